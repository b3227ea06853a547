"""The settings of a preset for the size of a corpus. This module needs no PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtalign.data.corpus import Corpus
from nmtalign.errors import FormatError
from nmtalign.model_files import read_settings
from nmtalign.settings.definition import Layer
from nmtalign.settings.presets import fitted_to_corpus
from nmtalign.settings.presets import preset as settings_of_preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

_BUDGET = {"epochs", "validate_every"}


def count_words(corpus: Corpus) -> int:
    """The target words of the training text, `</s>` included."""
    train = corpus.splits["train"]
    return int(train.target_lengths.sum()) + len(train)


def fit_preset(
    layers: tuple[Layer, ...], preset: str, corpus: Corpus, folder: Path, restart: bool = False
) -> tuple[Layer, ...]:
    """Adds above the preset, the first layer, the settings that it has for the size of this corpus.

    A run keeps the preset's own value of each setting that an earlier version did not fit to the corpus, so that it can
    resume; only its budget may grow. A training that starts from another model gets no such settings: this model has
    learned from another corpus before.
    """
    if any(given.get("init_from") for _, given in layers):
        return layers
    words = count_words(corpus)
    values, begun = dict(fitted_to_corpus(preset, words)), {} if restart else _begun(folder, preset, corpus)
    longer = values.get("epochs", 0) > _unfitted(preset, "epochs")  # any run may continue for more epochs
    kept = {name for name in values if begun.get(name) == _unfitted(preset, name)} - (_BUDGET if longer else set())
    values = {name: value for name, value in values.items() if name not in kept}
    added: list[Layer] = []
    if values:
        added.append((f"preset {preset} for a corpus of {words:,} words", values))
    return layers[0], *added, *layers[1:]


def _begun(folder: Path, preset: str, corpus: Corpus) -> Mapping[str, Any]:
    """The settings of the run in a folder; {} if there is none, or one with another preset or corpus."""
    try:
        run = read_settings(folder)
    except FormatError:
        return {}
    same = (run.get("preset"), run.get("corpus")) == (preset, corpus.hash)
    return {**run["model"], **run["training"]} if same else {}


def _unfitted(preset: str, name: str) -> Any:
    """The value of a setting that a preset has for a corpus of any size."""
    default = getattr(TrainingConfig if hasattr(TrainingConfig, name) else ModelConfig, name)
    return settings_of_preset(preset).get(name, default)
