"""A Transformer in the format of CTranslate2, which decodes Transformers faster than nmtalign does.

CTranslate2 has no bias of word vectors, so the bias is added to every vector. If the softmax shares them, this changes
all logits of a step equally, and no probability. The article's positions are exported: CTranslate2 computes others.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtalign.core.transformer import sinusoids
from nmtalign.errors import UsageError
from nmtalign.files import make_folder
from nmtalign.model_directory import EXPORTED, LoadedModel
from nmtalign.settings.command_settings import StoredWeights
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import EOS
from nmtalign.version import __version__

_POSITIONS = 2048  # rows of the table of positions; no sentence can be longer on either side


def write_ctranslate2(loaded: LoadedModel, folder: Path, weights: StoredWeights) -> None:
    """Writes a model for ctranslate2.Translator: weights, vocabularies, tokenisers, and docs/ctranslate2.md as a note.

    Raises UsageError if CTranslate2 is not installed and for a model that is no Transformer.
    """
    config = loaded.model.config
    if config.architecture != "transformer":
        raise UsageError(f"{loaded.folder}: architecture = {config.architecture}; CTranslate2 runs only Transformers")
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
    settings = {"bos_token": EOS, "decoder_start_token": EOS, "add_source_eos": True, "layer_norm_epsilon": 1e-5}
    for name, value in {**settings, "nmtalign_version": __version__, EXPORTED: weights}.items():
        spec.config.add_attribute(name, value)
    spec.validate()
    spec.optimize(quantization=None if weights == "fp32" else weights)
    make_folder(folder)
    spec.save(str(folder))
    shutil.copyfile(Path(__file__).parent / "docs" / "ctranslate2.md", folder / "README.md")
    for name in loaded.tokenizers.files():
        shutil.copyfile(loaded.folder / name, folder / name)
    for path in folder.iterdir():
        with path.open("r+b") as written:
            os.fsync(written.fileno())


def _fill(spec: Any, model: Any, config: ModelConfig) -> None:
    """Copies all weights of a model into a specification."""
    source, target, readout = model.source_embedding, model.target_embedding, model.readout
    spec.encoder.embeddings[0].weight = source.weight + source.bias
    spec.decoder.embeddings.weight = words = target.weight + target.bias
    spec.decoder.projection.weight = words if config.shared_embeddings else readout.output_weight
    spec.decoder.projection.bias, spec.decoder.start_from_zero_embedding = readout.output_bias, True
    positions = sinusoids(0, _POSITIONS, config.embedding, torch.device("cpu")).float()
    for to, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        to.position_encodings.encodings = positions
        norms = [(to.layer_norm, stack.norm)] if config.norm == "pre" else []
        for part, layer in zip(to.layer, stack.layers, strict=True):
            own, inner, outer = part.self_attention, part.ffn.linear_0, part.ffn.linear_1
            own.linear[0].weight, own.linear[1].weight = layer.self_weight.flatten(0, 1), layer.self_output
            inner.weight, inner.bias, outer.weight = layer.inner_weight, layer.inner_bias, layer.outer_weight
            outer.bias = layer.outer_bias
            parts = own, *([part.attention] if to is spec.decoder else []), part.ffn
            norms += zip([one.layer_norm for one in parts], layer.norms, strict=True)
        for place, norm in norms:
            place.gamma, place.beta = norm.scale, norm.shift

    def in_order(rows: Tensor) -> Tensor:  # those (m, ...) of the head that aligns come first
        return rows.view(config.heads, -1, rows.shape[-1]).roll(-max(0, config.alignment_head - 1), 0).flatten(0, 1)

    for part, layer, memory in zip(spec.decoder.layer, model.decoder.layers, model.decoder.memory_weight, strict=True):
        queries, memories, output = part.attention.linear
        queries.weight = in_order(layer.source_weight)
        memories.weight = torch.cat([in_order(one) for one in memory])
        output.weight = in_order(layer.source_output.T.contiguous()).T.contiguous()
