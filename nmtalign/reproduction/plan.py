"""From a request to a plan: all settings resolved, which models are trained or shared, and their folders."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from nmtalign.data.corpus import CORPUS_FILE, Corpus
from nmtalign.data.corpus_checks import with_vocabulary
from nmtalign.errors import UsageError
from nmtalign.reproduction.experiments import (
    BASELINE,
    FIRST_SYSTEM,
    PAPER_MODELS,
    EqualBudget,
    Experiment,
    Scale,
    Settings,
    chosen_ablations,
    chosen_systems,
)
from nmtalign.settings.command_settings import PrepConfig, ReproduceConfig, ScoreConfig, TranslateConfig
from nmtalign.settings.definition import MACHINE, chooses_vocabulary, field_names, resolve, select
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.settings.workspace import Workspace, check_keys
from nmtalign.text.languages import language_code, suffix_language

PathPair = tuple[Path, Path]
TOGETHER = "together"  # the name of all test sets as one
WORK = "work"  # the folder of corpora and models, within the folder of the report
FIRST_SEED = 1234
_BASE_CORPUS = "corpus"
_MACHINE = select(TrainingConfig, lambda one: one.panel == MACHINE)  # the only settings of [train] that apply


@dataclass(frozen=True)
class ReproductionRequest:
    """What the user asks for."""

    scale: Scale
    budget: EqualBudget | None = None
    models: str = ReproduceConfig.models  # comma-separated names; "" means the article's four, or none beside systems
    systems: str = ReproduceConfig.systems
    ablations: str = ReproduceConfig.ablations
    seeds: int = ReproduceConfig.seeds
    folder: Path = Path("reproduction")
    sentences: tuple[int, ...] = ()  # lines of the test set to show, counted from 1
    long: int = ReproduceConfig.long  # number of the longest sentences whose translations are shown
    reordered: int = ReproduceConfig.reordered  # number of the most reordered sentences that are drawn
    jobs: int = ReproduceConfig.jobs  # models that are trained at the same time
    text: bool = ReproduceConfig.text  # whether the report may contain sentences of the corpus
    flags: Settings = dataclasses.field(default_factory=dict)  # for machine and search; None means not given


@dataclass(frozen=True)
class SystemPlan:
    """A row of the tables: a model and its search."""

    experiment: Experiment
    model: ModelConfig  # without the vocabulary sizes, which the corpus determines
    training: TrainingConfig  # with the first seed and without the budget
    prep: PrepConfig
    search: TranslateConfig
    trained_as: str  # the experiment that trains its models: itself, or an earlier one with the same settings

    @property
    def name(self) -> str:
        """The name in every table."""
        return self.experiment.name

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and therefore alignments."""
        return self.model.attention != "none"

    def trains_like(self, other: "SystemPlan") -> bool:
        """Whether the two share their models: they differ at most in their search."""
        return (self.model, self.training, self.prep) == (other.model, other.training, other.prep)


@dataclass(frozen=True)
class ReproductionPlan:
    """Everything to do, in order."""

    request: ReproductionRequest
    workspace: Workspace
    systems: tuple[SystemPlan, ...]
    corpora: Mapping[str, PrepConfig]  # by the name of the folder
    tests: Mapping[str, PathPair]
    scoring: ScoreConfig
    prepared: Path | None = None  # a corpus that is used as it is; None if the corpus is prepared from text

    @property
    def budget(self) -> EqualBudget:
        """The budget of every model."""
        return self.request.budget or self.request.scale.budget

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the models of each system."""
        return tuple(FIRST_SEED + number for number in range(self.request.seeds))

    @property
    def work(self) -> Path:
        """The folder of corpora and models."""
        return self.request.folder / WORK

    def models(self) -> Iterator[tuple[SystemPlan, int]]:
        """Yields every model that is trained as (system, seed); all models of the first seed come first."""
        for seed in self.seeds:
            yield from ((system, seed) for system in self.systems if system.trained_as == system.name)

    def model_folder(self, system: SystemPlan, seed: int) -> Path:
        """The directory of a model."""
        return self.work / "models" / f"{system.trained_as}.seed-{seed}"

    def corpus_folder(self, system: SystemPlan) -> Path:
        """The folder of a system's prepared corpus."""
        return self.corpus_named(next(name for name, prep in self.corpora.items() if prep == system.prep))

    def corpus_named(self, name: str) -> Path:
        """The folder of the prepared corpus of that name."""
        return self.base_corpus if name == _BASE_CORPUS else self.corpora_folder / name

    @property
    def corpora_folder(self) -> Path:
        """The folder of all prepared corpora."""
        return self.work / "corpora"

    @property
    def base_corpus(self) -> Path:
        """The corpus whose vocabularies decide which sentences have no unknown word."""
        return self.prepared or self.corpora_folder / _BASE_CORPUS

    @property
    def of_paper(self) -> tuple[SystemPlan, ...]:
        """The models of the article."""
        return tuple(system for system in self.compared if not system.experiment.system)

    @property
    def compared(self) -> tuple[SystemPlan, ...]:
        """The models of the article and the systems around it, without the ablations."""
        return tuple(system for system in self.systems if not system.experiment.ablation)

    def named(self, name: str) -> SystemPlan:
        """The system of that name."""
        return next(system for system in self.systems if system.name == name)

    @property
    def baseline(self) -> SystemPlan:
        """The system with which the others are compared: RNNencdec-50, else rnnsearch, else the first one."""
        first = [system for name in (BASELINE, FIRST_SYSTEM) for system in self.systems if system.name == name]
        return [*first, *self.compared][0]


def make_plan(request: ReproductionRequest, workspace: Workspace) -> ReproductionPlan:
    """Resolves all settings; raises UsageError with the name of the model or ablation if it cannot be trained."""
    prepared = None if "train" in workspace.pairs or not (workspace.data / CORPUS_FILE).is_file() else workspace.data
    tests = _tests(workspace, prepared is not None)
    base_prep = resolve(PrepConfig, workspace.section("prep"))
    if prepared:
        workspace, base_prep = _of_corpus(workspace, Corpus.open(prepared))
    base_prep = with_vocabulary(base_prep, languages(workspace))
    systems: list[SystemPlan] = []
    for experiment in _experiments(request):
        try:
            system = _resolved(request, workspace, experiment, base_prep)
        except UsageError as error:
            named = not experiment.system or experiment.name in str(error)
            raise UsageError(str(error) if named else f"system {experiment.name}: {error}") from None
        same = (other for other in systems if other.trains_like(system))
        systems.append(dataclasses.replace(system, trained_as=next(same, system).trained_as))
    corpora = {_BASE_CORPUS: base_prep}
    for system in systems:
        if system.prep not in corpora.values():
            if prepared:
                raise UsageError(f"{system.name} needs other vocabularies: name the train text under [corpus]")
            if base_prep.vocabulary_from and {*system.experiment.prep} & {*select(PrepConfig, chooses_vocabulary)}:
                raise UsageError(f"{system.name} needs other vocabularies: remove vocabulary_from from [prep]")
            corpora[system.name] = system.prep
    scoring = resolve(ScoreConfig, workspace.section("score"))
    return ReproductionPlan(request, workspace, tuple(systems), corpora, tests, scoring, prepared)


def languages(workspace: Workspace) -> tuple[str, str]:
    """Returns the languages of source and target: those of the workspace, or the endings of the training files."""
    named = workspace.source_language, workspace.target_language
    source, target = (
        language_code(language) if language else suffix_language(path)
        for language, path in zip(named, workspace.file_pairs.get("train", (Path(), Path())), strict=True)
    )
    return source, target


def _of_corpus(workspace: Workspace, corpus: Corpus) -> tuple[Workspace, PrepConfig]:
    """The workspace with the languages of a prepared corpus, and the settings of the corpus."""
    if "dev" not in corpus.splits:
        raise UsageError(f"{corpus.folder}: has no dev set, and `reproduce` needs one: run nmtalign prep with --dev")
    workspace = dataclasses.replace(
        workspace, source_language=corpus.source_language, target_language=corpus.target_language
    )
    return workspace, resolve(PrepConfig, (str(corpus.folder), corpus.settings))


def _tests(workspace: Workspace, is_prepared: bool) -> dict[str, PathPair]:
    test = workspace.test_files if is_prepared else workspace.file_pairs.get("test")
    for name in ("test",) if is_prepared else ("train", "dev", "test"):
        if name not in workspace.file_pairs and not (name == "test" and (test or workspace.tests)):
            missing = f"{workspace.file}: [corpus] names no {name} text, and `reproduce` needs one:"
            if workspace.file is None:
                missing = (
                    f"there is no nmtalign.toml here, and `reproduce` needs one that names a {name} text: [corpus]"
                )
            raise UsageError(f'{missing} {name} = ["{name}.en", "{name}.fr"]')
    first = {"test": test} if test else {}
    for name in workspace.tests:
        if name in first or name == TOGETHER or not re.fullmatch(r"[\w.-]+", name):
            raise UsageError(
                f"{workspace.file}: [corpus.tests] {name}: give it another name, of letters, digits, - and _; "
                f"the names test and {TOGETHER} are reserved"
            )
    return {**first, **workspace.tests}


def _experiments(request: ReproductionRequest) -> list[Experiment]:
    """Returns the chosen models, systems and ablations, and the bases of the ablations, in the order of the report."""
    known, systems = {experiment.name: experiment for experiment in PAPER_MODELS}, chosen_systems(request.systems)
    names = [name.strip() for name in request.models.split(",")] if request.models else [] if systems else list(known)
    for name in names:
        if name not in known:
            raise UsageError(f"--models {name}: unknown; give some of {','.join(known)}")
    variants = chosen_ablations(request.ablations, request.scale)
    wanted = {*names, *(variant.base for variant in variants)}
    return [*(one for name, one in known.items() if name in wanted), *systems, *variants]


def _resolved(
    request: ReproductionRequest, workspace: Workspace, experiment: Experiment, base: PrepConfig
) -> SystemPlan:
    kind = "system " if experiment.system else "ablation " if experiment.ablation else ""
    origin = kind + (experiment.ablation or experiment.name)
    check_keys(origin, experiment.changed, field_names(ModelConfig, TrainingConfig))
    where, section = workspace.section("train")
    flags = {name: value for name, value in request.flags.items() if value is not None}
    layers = (
        (f"preset {experiment.preset}", preset(experiment.preset)),
        (f"scale {request.scale.name}", request.scale.settings),
        (where, {name: value for name, value in section.items() if name in _MACHINE}),
        (origin, experiment.changed),
        # Every model uses its complete budget, which replaces that of the preset.
        ("command line", {**flags, "patience": 0, "max_updates": 0, "seed": FIRST_SEED}),
    )
    search_flags = {name: value for name, value in flags.items() if name in field_names(TranslateConfig)}
    search_flags.pop("precision", None)  # it applies to training only
    return SystemPlan(
        experiment,
        resolve(ModelConfig, *layers),
        resolve(TrainingConfig, *layers),
        resolve(PrepConfig, ("[prep]", asdict(base)), (origin, experiment.prep)),
        resolve(
            TranslateConfig,
            ("the paper's search", {"allow_unk": True}),
            workspace.section("translate"),
            ("command line", search_flags),
            (origin, {**experiment.search, "n_best": 1, "sample": False}),
        ),
        experiment.name,
    )
