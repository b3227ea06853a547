"""What can be trained and compared: the models of Bahdanau et al. (2015), the systems around them, and the scales."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.settings.definition import select
from nmtalign.settings.presets import SYSTEMS, preset
from nmtalign.settings.training_settings import ModelConfig

Settings = Mapping[str, Any]
FLAGSHIP = "RNNsearch-50"


@dataclass(frozen=True)
class EqualBudget:
    """How much training every model gets: target words or hours."""

    unit: str
    amount: float

    def __str__(self) -> str:
        return f"{self.amount:,.10g} {'target words' if self.unit == 'words' else self.unit}"


@dataclass(frozen=True)
class Scale:
    """Settings that override the preset of every model, and the budget unless the user gives one."""

    what: str
    settings: Settings
    budget: EqualBudget


def _quick(sizes: str, warmup: int) -> Settings:
    """The sizes of a preset and a faster training.

    The cells and the order of the decoder's operations are the article's. The optimiser is not: within a few hours,
    Adadelta from the article's small initial weights hardly begins to learn. Batches are half as large, which gives
    twice the updates.
    """
    integers = select(ModelConfig, lambda one: one.base is int)
    values = {name: value for name, value in preset(sizes).items() if name in integers}
    training = {
        "initialisation": "lecun",
        "optimizer": "adamw",
        "learning_rate": 2e-3,
        "epsilon": 1e-8,
        "schedule": "linear",
        "warmup": warmup,
        "loss_normalization": "tokens",
        "batch_size": 40,
    }
    return {**values, "output_rank": values["embedding"], **training}


SCALES: Mapping[str, Scale] = {
    "tiny": Scale(
        "sizes of the preset tiny, trained with AdamW: minutes on a laptop",
        _quick("tiny", warmup=100),
        EqualBudget("words", 3_000_000),
    ),
    "small": Scale(
        "sizes of the preset small, trained with AdamW: hours on a laptop",
        _quick("small", warmup=200),
        EqualBudget("words", 10_000_000),
    ),
    "paper": Scale("the paper's own sizes and training", {}, EqualBudget("hours", 110)),
}


@dataclass(frozen=True)
class Experiment:
    """A model: its preset, and the settings that differ from the preset."""

    name: str  # in every table, and of its files
    preset: str
    changed: Settings = field(default_factory=dict)

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and therefore alignments."""
        return {**preset(self.preset), **self.changed}.get("attention") != "none"


# The first one is the baseline of the tests of significance.
PAPER_MODELS = [Experiment(name, name.lower()) for name in ("RNNencdec-50", "RNNencdec-30", "RNNsearch-30", FLAGSHIP)]
# The training settings of a scale suit RNNsearch; a Transformer needs a longer warm-up.
_SYSTEMS = [
    Experiment(name, FLAGSHIP.lower(), {**changed, **({"warmup": 800} if name == "transformer" else {})})
    for name, changed in SYSTEMS.items()
]


def chosen_experiments(models: str, systems: str) -> Sequence[Experiment]:
    """Returns the experiments of two lists of comma-separated names (or all, none), in the order of the report.

    An empty list of models means all of them, or none if there are systems. Raises UsageError for a wrong choice.
    """
    around = _chosen("systems", systems, _SYSTEMS)
    found = [*_chosen("models", models or ("none" if around else "all"), PAPER_MODELS), *around]
    if not found:
        raise UsageError("--models none trains nothing; choose systems with --systems, too")
    return found


def _chosen(option: str, names: str, known: Iterable[Experiment]) -> list[Experiment]:
    by_name = {experiment.name: experiment for experiment in known}
    wanted = {"all": [*by_name], "none": [], "": []}.get(names, [name.strip() for name in names.split(",")])
    for name in wanted:
        if name not in by_name:
            raise UsageError(f"--{option} {name}: unknown; give all, none, or some of {','.join(by_name)}")
    return [experiment for name, experiment in by_name.items() if name in wanted]
