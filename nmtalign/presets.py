"""The paper's four models with the paper's own settings, and two of ours."""

from collections.abc import Mapping
from typing import Any

from nmtalign.config import TranslateConfig, resolve
from nmtalign.errors import UsageError

_PAPER: Mapping[str, Any] = {
    "embedding": 620,
    "hidden": 1000,
    "attention_hidden": 1000,
    "maxout": 500,
    "output_rank": 620,
    "cell": "paper",
    "order": "look-generate-update",
    "initialisation": "paper",
    "dropout": 0.0,
    "optimizer": "adadelta",
    "learning_rate": 1.0,
    "rho": 0.95,
    "epsilon": 1e-6,
    "clip_norm": 1.0,
    "loss_normalization": "sum",
    "batch_size": 80,
    "batch_unit": "sentences",
    "window": 20,
    "shuffle": "once",
}
_SEARCH: Mapping[str, Any] = {**_PAPER, "attention": "additive", "bidirectional": True}
_ENCDEC: Mapping[str, Any] = {**_PAPER, "attention": "none", "bidirectional": False}

_MODERN: Mapping[str, Any] = {
    "output_rank": 0,
    "cell": "cudnn",
    "order": "look-update-generate",
    "initialisation": "lecun",
    "optimizer": "adamw",
    "epsilon": 1e-8,
    "clip_norm": 1.0,
    "loss_normalization": "tokens",
    "batch_unit": "tokens",
    "window": 100,  # leaves less padding than the paper's 20
    "shuffle": "epoch",
    "schedule": "linear",
    "metric": "bleu",  # the loss of a few long sentences can outweigh what all others have gained
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "rnnsearch-50": {**_SEARCH, "max_length": 50},
    "rnnsearch-30": {**_SEARCH, "max_length": 30},
    "rnnencdec-50": {**_ENCDEC, "max_length": 50},
    "rnnencdec-30": {**_ENCDEC, "max_length": 30},
    "small": {
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
    },
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
        "threads": 1,  # its products are too small to share
    },
}


def preset(name: str) -> Mapping[str, Any]:
    """The settings of a preset, model's and training's together; raises UsageError for an unknown name."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"unknown preset '{name}': choose one of {', '.join(PRESETS)}") from None


SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "beam": {},
    # The released code (PAPER section 6): summed log-probabilities, no `</s>` in the first half of the source's length.
    "paper": {"length_penalty": 0.0, "min_length_ratio": 0.5},
}


def translate_config(*layers: tuple[str, Mapping[str, Any]]) -> TranslateConfig:
    """The settings of layers (origin, values), the later ones over the earlier, over those of the search they name.

    Raises UsageError that names origin and setting.
    """
    name = "beam"
    for _, values in layers:
        name = values.get("search", name)
    return resolve(TranslateConfig, (f"search {name}", SEARCHES.get(name, {})), *layers)
