"""The live page: one HTML file that contains a trained model and runs it, without a server or a network.

`viewing/live_model.js` is the model in JavaScript. This file checks that it can run a model, and writes the weights,
the vocabularies and the tokenisers into the page.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from nmtalign.core.model import TranslationModel
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_text
from nmtalign.model_directory import SCALE, LoadedModel, int8_rows, load_model
from nmtalign.text.languages import check_pairs, main_language, word_count
from nmtalign.text.lines import SIDES, read_pairs
from nmtalign.text.tokenizer import Subwords, Tokenizer
from nmtalign.version import __version__
from nmtalign.viewing.page import inert_json, page, part

SAMPLES = 80  # sentence pairs that the page chooses its examples from, if the settings give no number
_LONGEST = 40  # words of such a sentence
# The values of the settings for which `live_model.js` has the equations.
_SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "architecture": ("recurrent",),
    "layers": (1,),
    "cell": ("paper", "cudnn"),
    "attention_kind": ("soft",),
    "attention_span": ("global",),
    "coverage": ("none",),
    "input_feeding": ("context",),
    "readout": ("maxout",),
    "reverse_source": (False,),
    "copy": (False,),
}


def write_live_page(
    models: Sequence[Path],
    texts: Sequence[Path],
    output: Path | None,
    title: str = "",
    limit: int | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> None:
    """Writes the live page of a model with attention, and perhaps one without, with sentences of a test set.

    `texts` are the source and the target of the test set, or nothing. Raises UsageError for other models, other texts
    and for an output that is no page.
    """
    if output is None or output.suffix.lower() != ".html":
        raise UsageError("the live page needs a file: give -o live.html")
    if len(texts) not in (0, 2):
        raise UsageError("the page takes its examples from the two texts of a test set: give SRC TGT, and -m MODEL")
    loaded = sorted((load_model(path, "cpu") for path in models), key=lambda one: one.model.config.attention == "none")
    for one in loaded:
        for name, values in _SUPPORTED.items():
            if (value := getattr(one.model.config, name)) not in values:
                possible = " or ".join(map(str, values))
                raise UsageError(f"{one.folder}: the live page cannot run {name} = {value}; it supports {possible}")
    if [one.model.config.attention == "none" for one in loaded] not in ([False], [False, True]):
        raise UsageError("the live page needs one model with attention, and at most one without (RNNencdec)")
    if len({(one.source_language, one.target_language) for one in loaded}) > 1:
        raise UsageError(f"{models[0]} and {models[1]} translate between different languages; give models of the same")
    fits = [loaded[0].text_fit(side) for side in (0, 1)]
    pairs = check_pairs(read_pairs(*texts), (texts[0], texts[1]), fits, notify) if texts else iter(())
    samples = _samples(pairs, SAMPLES if limit is None else limit or None)
    data = [("live", inert_json({"samples": samples, "models": [_facts(one) for one in loaded]}))]
    for one in loaded:
        tensors, weights = packed(one.model)
        tokenizers, words = one.tokenizers, (one.source_vocabulary.words, one.target_vocabulary.words)
        model = {
            "config": vars(one.model.config),
            "tensors": tensors,
            "rules": {"source": tokenizers.source.rules(), "target": tokenizers.target.rules()},
            "vocabularies": dict(zip(SIDES, words, strict=True)),
            "gaps": _gaps(tokenizers.target, words[1]),
        }
        data += [("live-model", inert_json(model)), ("live-weights", base64.b64encode(weights).decode("ascii"))]
    scripts = ["live_model.js", "live.js"]
    with atomic_text(output) as stream:
        stream.writelines(page(title or "A translator at work", part("live.html"), scripts, data, workers="blob:"))
    size = sum(len(text) for _, text in data) / 1e6
    notify(f"wrote {output} ({size:.1f} MB, examples: {len(samples)}): open it in a browser")


def packed(model: TranslationModel) -> tuple[list[dict[str, Any]], bytes]:
    """(name, shape and place of each tensor, the bytes of all): int8 matrices with one float32 scale per row.

    Biases become vectors; vectors stay float32. Scales come before the numbers of a matrix. Places are multiples of 4.
    """
    try:
        tensors = int8_rows(model.state_dict())
    except ValueError as error:
        raise FormatError(f"the live page cannot contain these weights: {error}") from None
    described, content = list[dict[str, Any]](), bytearray()
    for name, tensor in tensors.items():
        if name.endswith(SCALE):
            continue
        shape = list(tensor.shape) if tensor.dtype == torch.int8 else [tensor.numel()]
        described.append({"name": name, "shape": shape, "at": len(content)})
        if tensor.dtype == torch.int8:
            content += tensors[name + SCALE].numpy().astype("<f4").tobytes()
        content += tensor.numpy().astype("i1" if tensor.dtype == torch.int8 else "<f4").tobytes()
        content += bytes(-len(content) % 4)
    return described, bytes(content)


def _gaps(tokenizer: Tokenizer, words: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The text before and after each word, if it is not a space, where plain words are its neighbours.

    Straight quotation marks open and close in turn, so that their gaps are not always the same.
    """
    plain = () if isinstance(tokenizer, Subwords) else (word for word in words if word not in ('"', "'"))
    found = ((word, tokenizer.detokenize(("a", word, "a"))[1:-1].partition(word)) for word in plain)
    return {word: (before, after) for word, (before, _, after) in found if (before, after) != (" ", " ")}


def _facts(loaded: LoadedModel) -> dict[str, Any]:
    name, source, model = loaded.folder.resolve().name, loaded.source_language, loaded.model
    count = sum(weight.numel() for weight in model.parameters())
    facts = f"{name}: {source}-{loaded.target_language}, {count:,} parameters in eight bits, nmtalign {__version__}"
    return {"attends": model.config.attention != "none", "source": main_language(source), "name": name, "facts": facts}


def _samples(pairs: Iterator[tuple[str, str]], limit: int | None) -> list[tuple[str, str]]:
    """At most `limit` pairs of a test set, of all lengths up to 40 words, the shortest first."""
    counted = ((word_count(pair[0]), pair) for pair in islice(pairs, 20 * limit if limit else None))
    fitting = [pair for count, pair in sorted(counted, key=itemgetter(0)) if 0 < count <= _LONGEST]
    step = max(1, -(-len(fitting) // limit)) if limit else 1
    return fitting[::step]
