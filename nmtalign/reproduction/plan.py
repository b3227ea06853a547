"""From experiments to a plan: every setting resolved, which models are trained or shared, in which folders."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmtalign.checks import resolve
from nmtalign.config import (
    ModelConfig,
    PrepConfig,
    ScoreConfig,
    TrainingConfig,
    TranslateConfig,
    field_names,
)
from nmtalign.errors import UsageError
from nmtalign.presets import preset, translate_config
from nmtalign.reproduction.ablations import chosen_ablations
from nmtalign.reproduction.experiment import BASELINE, PAPER_MODELS, Experiment
from nmtalign.reproduction.scales import Budget, Scale
from nmtalign.workspace import Workspace, check_keys

PathPair = tuple[Path, Path]
Settings = Mapping[str, Any]
TOGETHER = "together"  # all test sets as one
WORK = "work"  # the folder of corpora and models, in that of the report
FIRST_SEED = 1234
_BASE_CORPUS = "corpus"
_MACHINE = ("device", "precision", "threads", "checkpoint_every")  # of [train]: how, not what


@dataclass(frozen=True)
class Request:
    """What is asked for, before anything is resolved."""

    scale: Scale
    budget: Budget | None = None
    models: str = ""  # names with commas, "" = the paper's four
    ablations: str = "none"
    seeds: int = 1
    folder: Path = Path("reproduction")
    sentences: tuple[int, ...] = ()  # lines of the test set, from 1
    long: int = 3  # of the longest sentences, shown side by side
    reordered: int = 4  # of the most reordered sentences, drawn
    jobs: int = 1  # models that are trained at once
    text: bool = True  # sentences of the corpus may stand in the report
    flags: Settings = dataclasses.field(default_factory=dict)  # of machine and search, None = not given

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UsageError(f"--seeds {self.seeds}: must be at least 1")
        if self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs}: must be at least 1")


@dataclass(frozen=True)
class System:
    """A row of the tables: a model and a search with it."""

    experiment: Experiment
    model: ModelConfig  # its vocabulary sizes are the corpus's in the end
    training: TrainingConfig  # of the first seed; without the budget
    prep: PrepConfig
    search: TranslateConfig
    trained_as: str  # the experiment whose models these are: its own, or one with the same settings

    @property
    def name(self) -> str:
        """The name in every table."""
        return self.experiment.name


@dataclass(frozen=True)
class Plan:
    """All that is to be done, in order."""

    request: Request
    workspace: Workspace
    systems: tuple[System, ...]
    corpora: Mapping[str, PrepConfig]  # by the name of the folder
    tests: Mapping[str, PathPair]
    scoring: ScoreConfig

    @property
    def budget(self) -> Budget:
        """What every model may use."""
        return self.request.budget or self.request.scale.budget

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the models of one system."""
        return tuple(FIRST_SEED + number for number in range(self.request.seeds))

    @property
    def work(self) -> Path:
        """Where corpora and models are."""
        return self.request.folder / WORK

    def models(self) -> Iterator[tuple[System, int]]:
        """Every model that is trained: the first system that has it, and its seed; first seeds first."""
        for seed in self.seeds:
            yield from ((system, seed) for system in self.systems if system.trained_as == system.name)

    def model_folder(self, system: System, seed: int) -> Path:
        """The model directory."""
        return self.work / "models" / f"{system.trained_as}.seed-{seed}"

    def corpus_folder(self, system: System) -> Path:
        """The prepared corpus."""
        name = next(name for name, prep in self.corpora.items() if prep == system.prep)
        return self.work / "corpora" / name

    @property
    def base_corpus(self) -> Path:
        """The corpus whose words the sentences without an unknown word are made of."""
        return self.work / "corpora" / _BASE_CORPUS

    @property
    def of_paper(self) -> tuple[System, ...]:
        """The systems that the paper has."""
        return tuple(system for system in self.systems if not system.experiment.ablation)

    def named(self, name: str) -> System | None:
        """The system of that name."""
        return next((system for system in self.systems if system.name == name), None)

    @property
    def baseline(self) -> System:
        """What the paper's models are compared with: the fixed vector, or the first model there is."""
        return self.named(BASELINE) or self.of_paper[0]


def make_plan(request: Request, workspace: Workspace) -> Plan:
    """Resolves everything; raises UsageError for what cannot be, an ablation whose setting is not known by its name."""
    tests = _tests(workspace)
    base_prep = workspace.resolve(PrepConfig, "prep", {})
    systems: list[System] = []
    for experiment in _experiments(request):
        system = _resolved(request, workspace, experiment, base_prep)
        systems.append(dataclasses.replace(system, trained_as=_same_model(system, systems)))
    corpora = {_BASE_CORPUS: base_prep}
    for system in systems:
        if system.prep not in corpora.values():
            corpora[system.name] = system.prep
    return Plan(request, workspace, tuple(systems), corpora, tests, workspace.resolve(ScoreConfig, "score", {}))


def _tests(workspace: Workspace) -> dict[str, PathPair]:
    for name in ("train", "dev", "test"):
        if name not in workspace.pairs and not (name == "test" and workspace.tests):
            raise UsageError(
                f"{workspace.file or 'nmtalign.toml'}: [corpus] names no {name} text, and `reproduce` needs one: "
                f'{name} = ["{name}.en", "{name}.fr"]'
            )
    first = {"test": workspace.pairs["test"]} if "test" in workspace.pairs else {}
    for name in workspace.tests:
        if name in first or name == TOGETHER or not re.fullmatch(r"[\w.-]+", name):
            raise UsageError(
                f"{workspace.file}: [corpus.tests] {name}: give it another name, of letters, digits, - and _; "
                f"test and {TOGETHER} have a meaning of their own"
            )
    return {**first, **workspace.tests}


def _experiments(request: Request) -> list[Experiment]:
    """The chosen models and ablations, with what those are compared with, in the order of the report."""
    known = {experiment.name: experiment for experiment in PAPER_MODELS}
    names = [name.strip() for name in request.models.split(",")] if request.models else list(known)
    for name in names:
        if name not in known:
            raise UsageError(f"--models {name}: unknown; give some of {','.join(known)}")
    variants = chosen_ablations(request.ablations, request.scale)
    wanted = {*names, *(variant.base for variant in variants)}
    return [*(one for name, one in known.items() if name in wanted), *variants]


def _resolved(request: Request, workspace: Workspace, experiment: Experiment, base: PrepConfig) -> System:
    origin = f"ablation {experiment.ablation}" if experiment.ablation else experiment.name
    check_keys(origin, experiment.changed, field_names(ModelConfig, TrainingConfig))
    where, section = workspace.section("train")
    flags = {name: value for name, value in request.flags.items() if value is not None}
    layers = (
        (f"preset {experiment.preset}", preset(experiment.preset)),
        (f"scale {request.scale.name}", request.scale.settings),
        (where, {name: value for name, value in section.items() if name in _MACHINE}),
        (origin, experiment.changed),
        # No model ends before its budget does.
        ("command line", {**flags, "patience": 0, "seed": FIRST_SEED}),
    )
    search_flags = {name: value for name, value in flags.items() if name in field_names(TranslateConfig)}
    search_flags.pop("precision", None)  # of training
    return System(
        experiment,
        resolve(ModelConfig, *layers),
        resolve(TrainingConfig, *layers),
        resolve(PrepConfig, ("[prep]", asdict(base)), (origin, experiment.prep)),
        translate_config(
            ("the paper's search", {"allow_unk": True}),
            workspace.section("translate"),
            ("command line", search_flags),
            (origin, {**experiment.search, "n_best": 1, "sample": False}),
        ),
        experiment.name,
    )


def _same_model(system: System, before: Sequence[System]) -> str:
    """The first system with the same model, or its own name."""
    for other in before:
        if (other.model, other.training, other.prep) == (system.model, system.training, system.prep):
            return other.trained_as
    return system.name
