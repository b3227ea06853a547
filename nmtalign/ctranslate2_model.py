"""A Transformer in the format of CTranslate2, which decodes Transformers faster than nmtalign does.

Three things differ. CTranslate2 has no bias of word vectors: it is added to every vector. Where the softmax shares the
vectors, this adds the same number to all logits of a step, which changes no probability. CTranslate2's own positions
are not those of the article, so that their table is exported. It aligns with the first head or with all heads.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from nmtalign.core.transformer import sinusoids
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, make_folder
from nmtalign.model_directory import EXPORTED, LoadedModel
from nmtalign.settings.command_settings import StoredWeights
from nmtalign.settings.definition import toml
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import EOS, UNK, SentencePieces, SpacedWords
from nmtalign.version import __version__

ModelFormat = Literal["ctranslate2"]
_POSITIONS = 2048  # rows of the table of positions; no sentence can be longer on either side

_NOTE = """\
# A translation model for CTranslate2: {0.source_language} to {0.target_language}

Exported by nmtalign {1}. Tokens go in and come out. In this folder:

```python
import ctranslate2
{2}
translator = ctranslate2.Translator(".", compute_type="int8", inter_threads=1, intra_threads=1)
lines = ["..."]
options = {{"beam_size": 5, "length_penalty": 1, "min_decoding_length": 0, "disable_unk": True}}
found = translator.translate_batch([tokenize(line) for line in lines], **options)
print([detokenize(result.hypotheses[0]) for result in found])
```

`compute_type` is chosen when the model is loaded: float32, int8 and others. `</s>` is added to the source by itself.

| nmtalign translate | `translate_batch` |
|---|---|
| `beam = 12` | `beam_size=12`; its default is 2, and 1 is greedy search |
| `length_penalty = 1.0` | `length_penalty=1`: the lengths of both count `</s>`; add `return_scores=True` for scores |
| `allow_unk = false` | `disable_unk=True`; the other words then share the probability of `<unk>` |
| `replace_unk = true` | `replace_unknowns=True` |
| `min_length_ratio = 0.0` | `min_decoding_length=0`; its default, 1, bans empty translations |
| `max_length_ratio = 3.0` | `max_decoding_length=256` is a number of tokens, at most {3} |
| `max_source_length = 500` | `max_input_length=1024`: what is behind is lost; nmtalign translates it in pieces |
| `n_best = 1` | `num_hypotheses=1` |

A beam of nmtalign shrinks with each finished hypothesis, and the search ends when no other can be better. CTranslate2
keeps the width, and ends when as many hypotheses are finished. A few translations therefore differ.
"""
_PIECES = """\
import sentencepiece

source, target = (sentencepiece.SentencePieceProcessor(model_file=f"{side}.spm") for side in ("source", "target"))
tokenize, detokenize = lambda line: source.encode(line, out_type=str), target.decode
"""
_SPACED = '\ntokenize, detokenize = str.split, " ".join\n'
_OTHERS = """\
from pathlib import Path

from nmtalign.text.tokenizer import Tokenizers

tokenizers = Tokenizers.load(Path())
tokenize, detokenize = tokenizers.source.tokenize, tokenizers.target.detokenize
"""


def write_ctranslate2(loaded: LoadedModel, metadata: Mapping[str, str], folder: Path, weights: StoredWeights) -> None:
    """Writes a model for ctranslate2.Translator: weights, vocabularies, tokenisers and a note how to use them.

    Raises UsageError if CTranslate2 is not installed and for a model that is no Transformer.
    """
    config = loaded.model.config
    if config.architecture != "transformer":
        built = toml(config.architecture)
        raise UsageError(f"{loaded.folder}: has architecture = {built}; CTranslate2 decodes only Transformers")
    try:
        import ctranslate2.specs
    except ImportError:
        raise UsageError('this format needs CTranslate2: pip install "nmtalign[ctranslate2]"') from None
    # The layer -1 is the last one, and 0 heads are all of them.
    spec = ctranslate2.specs.TransformerSpec.from_config(
        config.layers,
        config.heads,
        pre_norm=config.norm == "pre",
        alignment_layer=config.alignment_layer - 1,
        alignment_heads=min(config.alignment_head, 1),
    )
    _fill(spec, loaded.model, config)
    spec.register_source_vocabulary(list(loaded.source_vocabulary.words))
    spec.register_target_vocabulary(list(loaded.target_vocabulary.words))
    spec.config.unk_token, spec.config.eos_token, spec.config.bos_token = UNK, EOS, EOS
    spec.config.decoder_start_token, spec.config.add_source_eos = EOS, True
    spec.config.layer_norm_epsilon = 1e-5
    for name, value in {"nmtalign_version": __version__, EXPORTED: weights}.items():
        spec.config.add_attribute(name, value)
    spec.validate()
    spec.optimize(quantization=None if weights == "fp32" else weights)
    make_folder(folder)
    spec.save(str(folder))
    for name in loaded.tokenizers.files():
        shutil.copyfile(loaded.folder / name, folder / name)
    examples = {SentencePieces.kind: _PIECES, SpacedWords.kind: _SPACED}
    with atomic_text(folder / "README.md") as stream:
        example = examples.get(loaded.tokenizers.kind, _OTHERS)
        stream.write(_NOTE.format(loaded, __version__, example, f"{_POSITIONS:,}"))
    for path in folder.iterdir():
        with path.open("r+b") as written:
            os.fsync(written.fileno())


def _fill(spec: Any, model: Any, config: ModelConfig) -> None:
    """Copies all weights of a model into a specification."""
    positions = sinusoids(0, _POSITIONS, config.embedding, torch.device("cpu")).float()
    embeddings = model.source_embedding, model.target_embedding
    tables = spec.encoder.embeddings[0], spec.decoder.embeddings
    for embedding, table in zip(embeddings, tables, strict=True):
        table.weight = embedding.weight + embedding.bias
    spec.decoder.projection.weight = tables[1].weight if config.shared_embeddings else model.readout.output_weight
    spec.decoder.projection.bias = model.readout.output_bias
    spec.decoder.start_from_zero_embedding = True
    for to, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        to.position_encodings.encodings = positions
        if config.norm == "pre":
            _set(to.layer_norm, gamma=stack.norm.scale, beta=stack.norm.shift)
        for part, layer in zip(to.layer, stack.layers, strict=True):
            _set(part.self_attention.linear[0], weight=layer.self_weight.flatten(0, 1))
            _set(part.self_attention.linear[1], weight=layer.self_output)
            _set(part.ffn.linear_0, weight=layer.inner_weight, bias=layer.inner_bias)
            _set(part.ffn.linear_1, weight=layer.outer_weight, bias=layer.outer_bias)
            parts = part.self_attention, *([part.attention] if to is spec.decoder else []), part.ffn
            for one, norm in zip(parts, layer.norms, strict=True):
                _set(one.layer_norm, gamma=norm.scale, beta=norm.shift)

    def in_order(heads: Tensor) -> Tensor:
        """The same rows (m, ...) with those of the head that aligns first."""
        return heads.view(config.heads, -1, heads.shape[-1]).roll(-max(0, config.alignment_head - 1), 0).flatten(0, 1)

    for part, layer, memory in zip(spec.decoder.layer, model.decoder.layers, model.decoder.memory_weight, strict=True):
        _set(part.attention.linear[0], weight=in_order(layer.source_weight))
        _set(part.attention.linear[1], weight=torch.cat([in_order(one) for one in memory]))
        _set(part.attention.linear[2], weight=in_order(layer.source_output.T.contiguous()).T.contiguous())


def _set(part: Any, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        setattr(part, name, tensor)
