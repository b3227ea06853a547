"""The settings of a preset for the size of a corpus. This module needs no PyTorch."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtalign.data.corpus import Corpus
from nmtalign.errors import FormatError
from nmtalign.model_files import read_settings
from nmtalign.settings.definition import Layer
from nmtalign.settings.presets import fitted_to_corpus
from nmtalign.settings.presets import preset as settings_of_preset

_BUDGET = {"epochs", "validate_every"}  # a run may change them at any time


def count_words(corpus: Corpus) -> int:
    """The target words of the training text, `</s>` included."""
    train = corpus.splits["train"]
    return int(train.target_lengths.sum()) + len(train)


def fit_preset(
    layers: tuple[Layer, ...], preset: str, corpus: Corpus, folder: Path, restart: bool = False
) -> tuple[Layer, ...]:
    """Adds above the preset, the first layer, the settings that it has for the size of this corpus.

    A training that starts from another model gets none: this model has learned from another corpus before.
    """
    words = count_words(corpus)
    values = dict(fitted_to_corpus(preset, words))
    if not values or any(given.get("init_from") for _, given in layers):
        return layers
    if not restart and _began_with_preset(folder, preset, corpus, values):
        if values.get("epochs", math.inf) < settings_of_preset(preset)["epochs"]:
            return layers
        values = {name: value for name, value in values.items() if name in _BUDGET}
    return layers[0], (f"preset {preset} for a corpus of {words:,} words", values), *layers[1:]


def _began_with_preset(folder: Path, name: str, corpus: Corpus, fitted: Mapping[str, Any]) -> bool:
    """Whether the folder contains a run of an earlier version, which did not fit the preset to this corpus."""
    try:
        run = read_settings(folder)
    except FormatError:
        return False
    began, settings = {**run["model"], **run["training"]}, settings_of_preset(name)
    same = (run.get("preset"), run.get("corpus")) == (name, corpus.hash)
    return same and all(began.get(key) == settings.get(key) for key in set(fitted) & set(settings) - _BUDGET)
