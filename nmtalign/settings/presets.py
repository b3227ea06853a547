"""Presets: the models of Bahdanau et al. (2015), smaller ones, and other systems."""

import math
from collections.abc import Mapping
from typing import Any

from nmtalign.errors import UsageError

# The defaults of the settings are those of RNNsearch; the article's experiments differ in these. The article does
# not stop early, trained in float32, and its Table 2 has the number of updates.
_PAPER: Mapping[str, Any] = {"loss_normalization": "sum", "patience": 0, "precision": "fp32"}
_ENCDEC: Mapping[str, Any] = {**_PAPER, "attention": "none", "bidirectional": False}

_MODERN: Mapping[str, Any] = {
    "output_rank": 0,
    "cell": "cudnn",
    "initialisation": "lecun",
    "optimizer": "adamw",
    "epsilon": 1e-8,
    "clip_norm": 1.0,
    "loss_normalization": "tokens",
    "batch_unit": "tokens",
    "window": 100,  # less padding than with the paper's 20
    "shuffle": "epoch",
    "schedule": "linear",
    "metric": "bleu",  # a few long sentences can increase the loss while most translations become better
}

_SMALL: Mapping[str, Any] = {
    **_MODERN,
    "embedding": 256,
    "hidden": 512,
    "attention_hidden": 512,
    "maxout": 256,
    "dropout": 0.2,
    "label_smoothing": 0.1,
    "learning_rate": 2e-3,
    "warmup": 200,
    "batch_size": 1000,
    "epochs": 20.0,
    "validate_every": "epoch",
}

_LSTM: Mapping[str, Any] = {"cell": "lstm", "layers": 2, "order": "update-look-generate", "bidirectional": False}
_LUONG: Mapping[str, Any] = {
    **_LSTM,
    "reverse_source": True,
    "attention": "general",
    "readout": "attentional",
    "input_feeding": "attentional",
}

# The architectures that readers of the article compare with; everything else is as in the preset "small".
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "rnnsearch": {},
    "rnnencdec": {"attention": "none", "bidirectional": False},
    "sutskever": {**_LSTM, "reverse_source": True, "attention": "none", "input_feeding": "none", "readout": "direct"},
    "luong-global": _LUONG,
    "luong-local-m": {**_LUONG, "attention_span": "local-m"},
    "luong-local-p": {**_LUONG, "attention_span": "local-p"},
    "gnmt": {
        **_LSTM,
        "layers": 4,
        "residual": True,
        "bidirectional": True,
        "attention_layer": "first",
        "readout": "direct",
    },
    "copy": {"copy": True},
    "light": {"cell": "light"},
    "transformer": {
        "architecture": "transformer",
        "layers": 4,
        "order": "update-look-generate",
        "readout": "direct",
        "output_rank": 0,
        "initialisation": "xavier",
        "shared_embeddings": True,
    },
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "rnnsearch-50": {**_PAPER, "max_length": 50, "max_updates": 288_000},
    "rnnsearch-30": {**_PAPER, "max_length": 30, "max_updates": 471_000},
    "rnnencdec-50": {**_ENCDEC, "max_length": 50, "max_updates": 600_000},
    "rnnencdec-30": {**_ENCDEC, "max_length": 30, "max_updates": 846_000},
    "small": _SMALL,
    "tiny": {
        **_MODERN,
        "embedding": 64,
        "hidden": 128,
        "attention_hidden": 128,
        "maxout": 64,
        "learning_rate": 4e-3,
        "warmup": 100,
        "batch_size": 800,
        "epochs": 10.0,
        "validate_every": "epoch",
        "threads": 1,  # its matrix products are too small for several threads
    },
    **{name: {**_SMALL, **settings} for name, settings in SYSTEMS.items() if not name.startswith("rnn")},
    "transformer-tiny": {**_SMALL, **SYSTEMS["transformer"], "embedding": 128, "hidden": 256, "dropout": 0.3},
    "auto": _SMALL,  # and what `automatic` chooses
}
DEFAULT_PRESET = AUTO = "auto"

# The updates that a preset makes at least, and its other settings for a corpus on which its epochs give fewer. Such a
# corpus is seen often, so that the model needs more dropout. tests/bench/README.md has the measurements.
_SMALL_CORPUS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "small": (5000, {"dropout": 0.3, "validate_every": "250"}),
    "tiny": (2000, {"dropout": 0.3, "label_smoothing": 0.1, "learning_rate": 0.01, "validate_every": "200"}),
}
_MEDIUM = 1_000_000  # fewer target words than this still need more dropout than most presets have
_MEDIUM_CORPUS: Mapping[str, Mapping[str, Any]] = {
    "small": {"dropout": 0.3, "learning_rate": 4e-3, "batch_size": 800},
    "tiny": {},
    "transformer-tiny": {},  # it always has this dropout
}
# A preset reads no more words than `_LARGE`, as long as it reads each `_FEWEST_EPOCHS` times.
_LARGE, _LARGE_DROPOUT = 100_000_000, 0.1
_FEWEST_EPOCHS = 3.0
_SMALLEST_BATCH = 500  # tokens; a smaller batch takes a core nearly as long
_MOST_EPOCHS = 200.0

# What `auto` chooses from (nmtalign/docs/results.md has the measurements). A size is better than the smaller ones if
# the budget is enough to read this number of target words: (words, hidden units, embedding = maxout = attention).
AUTO_SIZES = ((0, 192, 128), (15_000_000, 256, 192), (30_000_000, 384, 256), (100_000_000, 512, 320))
# The more often the corpus is read, the more dropout: (fewer passes than this, dropout).
_AUTO_DROPOUT = ((1.5, 0.0), (5.0, 0.1), (8.0, 0.15), (13.0, 0.2), (20.0, 0.25), (30.0, 0.3), (math.inf, 0.35))
_AUTO_RATES = ((5_000, 8e-3), (math.inf, 4e-3))  # (fewer updates than this, rate); a wider model has a lower one
_AUTO_PASSES, _AUTO_TIME = 40.0, "8h"  # the budget of `auto` if none is given
_AUTO_UPDATES = 2000  # the fewest updates, on a small corpus


def preset(name: str) -> Mapping[str, Any]:
    """The settings of a preset, of the model and of the training; raises UsageError for an unknown name."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"unknown preset '{name}': choose one of {', '.join(PRESETS)}") from None


def fitted_to_corpus(name: str, words: int) -> Mapping[str, Any]:
    """The settings that a preset has for a corpus with this number of target words; {} if they are its own.

    If the epochs of the preset give too few updates, batches become smaller and epochs more. A corpus of medium size
    needs more dropout, and `small` then learns faster. A large corpus needs less dropout and fewer epochs. The presets
    of the article never change.
    """
    if "epochs" not in preset(name) or name == AUTO:
        return {}
    updates, settings = _SMALL_CORPUS.get(name, _SMALL_CORPUS["small"])
    batch_size, epochs = preset(name)["batch_size"], preset(name)["epochs"]
    if words * epochs > _LARGE:
        dropout = min(preset(name).get("dropout", 0.0), _LARGE_DROPOUT)
        return {"dropout": dropout, "epochs": max(_FEWEST_EPOCHS, round(_LARGE / words, 1))}
    if words * epochs >= updates * batch_size:
        return _MEDIUM_CORPUS.get(name, {"dropout": 0.3}) if words < _MEDIUM else {}
    batch_size = max(_SMALLEST_BATCH, round(words * epochs / updates))
    epochs = min(_MOST_EPOCHS, max(epochs, math.ceil(updates * batch_size / max(1, words))))
    return {**settings, "batch_size": batch_size, "epochs": epochs}


def automatic(words: int, units: int, passes: float, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that `auto` chooses for a corpus with this number of target words, a size, and passes over it.

    `given` are the settings that the user has chosen. Word vectors are shared, unless these
    settings give parts of the model other sizes.
    """
    width = min(AUTO_SIZES, key=lambda size: abs(size[1] - units))[2]
    batch_size = max(_SMALLEST_BATCH, min(800, round(words * _AUTO_PASSES / _AUTO_UPDATES)))
    updates = max(1, words) / batch_size  # in an epoch
    epochs = min(_MOST_EPOCHS, max(_AUTO_PASSES, math.ceil(_AUTO_UPDATES / updates)))
    rate = next(rate for most, rate in _AUTO_RATES if passes * updates < most)
    settings = {
        "hidden": units,
        **dict.fromkeys(("embedding", "maxout", "attention_hidden"), width),
        "shared_embeddings": not {"embedding", "maxout", "output_rank", "readout", "architecture"} & given.keys(),
        "dropout": next(dropout for most, dropout in _AUTO_DROPOUT if passes < most),
        "label_smoothing": 0.0,
        "learning_rate": round(rate * min(1.0, 256 / units), 4),
        "warmup": 100,
        "batch_size": batch_size,
        "epochs": epochs,
        "validate_every": str(max(100, round(updates * min(passes, epochs) / 20), min(1500, round(2 * updates)))),
    }
    return settings if {"epochs", "max_updates", "max_time"} & given.keys() else {**settings, "max_time": _AUTO_TIME}


def budget_of(name: str) -> str:
    """The budget of a preset in words, such as "20 epochs, on a small corpus 5,000 updates"."""
    values = preset(name)
    if name == AUTO:
        return f"{_AUTO_PASSES:g} epochs, at most {_AUTO_TIME}; --dry-run shows what else it chooses"
    if "max_updates" in values:
        return f"{values['max_updates']:,} updates"
    updates, _ = _SMALL_CORPUS.get(name, _SMALL_CORPUS["small"])
    return f"{values['epochs']:g} epochs, on a small corpus {updates:,} updates"
