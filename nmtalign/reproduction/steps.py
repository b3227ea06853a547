"""What a reproduction trains and compares, its shell commands, and how they run one after the other and resume.

All commands run in the folder of the report. `settings/` has an nmtalign.toml for each model, `work/` has corpus,
models and translations, `scores/` and `figures/` belong to the report.
"""

import contextlib
import hashlib
import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import compress, count
from pathlib import Path
from typing import Any

from nmtalign.data.batches import eligible
from nmtalign.data.corpus import CORPUS_FILE, Corpus
from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.files import atomic_text, make_folder, read_json
from nmtalign.settings.command_settings import ReproduceConfig
from nmtalign.settings.definition import FILE_NAME, SECTIONS, FilePair, Workspace, load_workspace, select, toml, written
from nmtalign.settings.presets import SYSTEMS, preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.text.lines import reading

NMTALIGN = [sys.executable, "-P", "-m", "nmtalign"]
FIRST_SEED = 1234
_CORPUS = "work/corpus"
_DONE = "work/done.json"  # the key of each output
# The only settings of [train] that apply.
_MACHINE = select(TrainingConfig, lambda one: one.affects == "machine" or one.loading)
_DRAWN = range(10, 21)  # words of the sentences of Figure 3, as in the article
Settings = Mapping[str, Any]
FLAGSHIP = "RNNsearch-50"


@dataclass(frozen=True)
class Scale:
    """Settings that override the preset of every model, and the budget unless the user gives one."""

    what: str
    settings: Settings
    budget: tuple[str, float]  # "words" (of the target) or "hours", and how many every model gets


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
        "sizes of the preset tiny, trained with AdamW: minutes on a laptop", _quick("tiny", warmup=100), ("words", 3e6)
    ),
    "small": Scale(
        "sizes of the preset small, trained with AdamW: hours on a laptop", _quick("small", warmup=200), ("words", 1e7)
    ),
    "paper": Scale("the paper's own sizes and training", {}, ("hours", 110)),
}


@dataclass(frozen=True)
class Experiment:
    """A model: its preset, and the settings that differ from the preset."""

    name: str  # in every table and in the names of its files
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
    by_name = {experiment.name.lower(): experiment for experiment in known}  # presets have lower-case names
    wanted = {"all": [*by_name], "none": [], "": []}.get(names, [name.strip().lower() for name in names.split(",")])
    for name in wanted:
        if name not in by_name:
            every = ",".join(experiment.name for experiment in by_name.values())
            raise UsageError(f"--{option} {name}: unknown; give all, none, or some of {every}")
    return [experiment for name, experiment in by_name.items() if name in wanted]


class Halted(Exception):  # noqa: N818
    """`Reproduction.stop` ended the run; everything that was completed or saved is kept."""


@dataclass(frozen=True)
class Step:
    """A shell command, the file that it makes, the steps whose files it needs, and other files that it reads."""

    command: str
    makes: str
    after: Sequence["Step"] = ()
    reads: Sequence[Path] = ()


@dataclass(frozen=True)
class Model:
    """A model of one seed, and the steps that train it and translate the test sets with it."""

    experiment: Experiment
    seed: int
    name: str  # the name of its folder and of its files
    folder: str
    steps: list[Step]


class Reproduction:
    """Plans the commands and runs them. `stop` ends a run, and a new `run` with the same settings resumes.

    `notify` gets messages. With `silent`, or if several commands run at the same time, the commands themselves print
    nothing. Raises UsageError for an unknown model, a missing text, or a folder with other files.
    """

    def __init__(
        self, workspace: Workspace, settings: ReproduceConfig, folder: Path, notify: Callable[[str], None], silent: bool
    ) -> None:
        self.workspace, self.settings, self.folder = workspace, settings, folder
        self.experiments = chosen_experiments(settings.models, settings.systems)
        self.scale = SCALES[settings.scale]
        amounts: Sequence[tuple[str, float | None]] = ("words", settings.words), ("hours", settings.hours)
        self.unit, self.amount = next(((unit, amount) for unit, amount in amounts if amount), self.scale.budget)
        self.is_of_paper = any(experiment in PAPER_MODELS for experiment in self.experiments)
        self.seeds = [FIRST_SEED + number for number in range(settings.seeds)]
        self.tests = self._find_tests()
        pairs = *workspace.pairs.values(), *self.tests.values()
        self._texts = [path for pair in pairs for path in pair if path]
        for path in filter(None, [*self._texts, workspace.gold]):
            if not path.exists():
                raise InputError(f"{path}: no such file or folder; {workspace.file or workspace.data} names it")
        with reading(next(iter(self.tests.values()))[0]) as stream:
            fitting = [place for place, line in enumerate(stream) if len(line.split()) in _DRAWN]
        self.lines = sorted(random.Random(FIRST_SEED).sample(fitting, min(4, len(fitting))))  # of Figure 3, from 0
        self.steps: list[Step] = []  # of the last run, without those that failed
        self.failures: dict[str, str] = {}  # by the file that is missing: the reason, "" if its command was not run
        self._notify, self._silent = notify, silent or settings.jobs > 1
        self._running: set[subprocess.Popen[str]] = set()
        self._halted, self._lock, self._numbers, self._total = "", threading.Lock(), count(1), 0
        # A process that was killed may have left only the folder of the settings, which are written first.
        foreign = any(path.name != "settings" for path in folder.iterdir()) if folder.is_dir() else False
        if foreign and not (folder / "settings/corpus.toml").is_file():
            raise UsageError(f"{folder}: has files that are not of nmtalign reproduce; give another folder with -o")
        origin, scoring = workspace.section("score")
        if "bleu" not in (metrics := str(scoring.get("metrics") or "bleu")) and metrics != "all":
            raise UsageError(f"{written(origin, 'metrics', metrics)}: the report needs bleu or multi-bleu, too")

    @property
    def _is_prepared(self) -> bool:
        """Whether nmtalign.toml names no train text, so that the corpus in its data folder is used as it is."""
        return "train" not in self.workspace.pairs and (self.workspace.data / CORPUS_FILE).is_file()

    def _find_tests(self) -> Mapping[str, FilePair]:
        named, test, prep = self.workspace.pairs, self.workspace.test_files, self.workspace.section("prep")[1]
        aside = [name for name in ("dev", "test") if prep.get(f"{name}_lines")]
        if not (self._is_prepared or "test" in (*named, *aside)):
            test = None  # its sentences were set aside from the train text, which would be read anew
        tests = ({"test": test} if test else {}) | dict(self.workspace.tests)
        if wrong := [name for name in tests if not re.fullmatch(r"[\w.-]+", name)]:
            origin = f"{self.workspace.file}: [corpus.tests]"
            raise UsageError(f"{origin} {wrong[0]!r}: names files; give it a name of letters, digits, - and .")
        missing = [name for name in ("train", "dev") if name not in (*named, *aside) and not self._is_prepared]
        if missing or not tests:
            name, file = [*missing, "test"][0], self.workspace.file
            why = f"{file}: [corpus] names no {name} text" if file else f"there is no {FILE_NAME} with [corpus] here"
            raise UsageError(f'{why}, and `reproduce` needs one: {name} = ["{name}.en", "{name}.fr"]')
        return tests

    def stop(self, reason: str) -> None:
        """Ends the running commands, which save their work; a signal handler may call it."""
        self._halted = reason
        for process in tuple(self._running):
            _terminate(process)

    def run(self) -> None:
        """Runs every command whose file is missing or was made with other settings, unless one that it needs failed.

        Raises Halted after `stop`, UsageError for other settings than before, NmtalignError if no model was trained.
        """
        self._write_settings("corpus", {})
        for name in ("scores", "figures", "work/models", "work/translations", "work/alignments"):
            make_folder(self.folder / name)
        (self.folder / "work/.gitignore").write_text("*\n", encoding="utf-8")
        reads = [*self._texts, *([self.workspace.data / CORPUS_FILE] if self._is_prepared else [])]
        prepare = Step("nmtalign prep --force --config settings/corpus.toml", f"{_CORPUS}/{CORPUS_FILE}", reads=reads)
        first = [] if self._is_prepared else [prepare]
        models = [self._model(one, seed, prepare) for seed in self.seeds for one in self.experiments]
        self._total = len([*first, *(step for model in models for step in model.steps), *self._evaluation(models)])
        if not all(map(self._do, first)):
            raise NmtalignError(f"the corpus could not be prepared: {self.failures[prepare.makes]}")
        corpus = Corpus.open(self.workspace.data if self._is_prepared else self.folder / _CORPUS)
        for experiment in self.experiments:
            self._write_settings(experiment.name, self._training(experiment, corpus))
        with ThreadPoolExecutor(self.settings.jobs) as pool:
            good = [*pool.map(lambda model: all(self._do(step) for step in model.steps), models)]
        models = [*compress(models, good)]
        if not models:
            raise NmtalignError(f"no model could be trained: {next(iter(self.failures.values()))}")
        evaluation = [step for step in self._evaluation(models) if self._do(step)]
        self.steps = [*first, *(step for model in models for step in model.steps), *evaluation]

    def _model(self, experiment: Experiment, seed: int, prepare: Step) -> Model:
        name = f"{experiment.name}.seed-{seed}"
        model = Model(experiment, seed, name, f"work/models/{name}", [])
        command = f"nmtalign train --config settings/{experiment.name}.toml -o {model.folder} --seed {seed}"
        train = Step(command, f"{model.folder}/best.safetensors", [prepare])
        model.steps.append(train)
        for test, (source, _) in self.tests.items():
            made = f"work/translations/{model.name}.{test}"
            search = f"-m {model.folder} < {self.shown(source)}"
            # For the first column of Table 1 the models may write <unk>, which counts as one wrong word.
            command = f"nmtalign translate --config settings/corpus.toml --set allow_unk=true {search} > {made}.raw"
            command += f" && sed 's/<unk>/UNK/g' {made}.raw > {made}.txt"
            model.steps.append(Step(command, f"{made}.txt", [train]))
            if seed == FIRST_SEED:
                command = f"nmtalign translate --config settings/corpus.toml {search} > {made}.known.txt"
                model.steps.append(Step(command, f"{made}.known.txt", [train]))
        return model

    def _evaluation(self, models: Sequence[Model]) -> Iterator[Step]:
        """Yields what scores the translations, compares links with gold links, and draws the figures."""
        first = [model for model in models if model.seed == FIRST_SEED]
        for test in self.tests if first else ():
            yield self._score(test, "", first, f"--by-length --plot figures/length-{test}.svg")
            yield self._score(test, ".known", first, f"--known-words -m {first[0].folder}")
        for test in self.tests if len(self.seeds) > 1 else ():
            yield self._score(test, ".seeds", models, "--significance none")
        attentive = [model for model in first if model.experiment.attends]
        name, (source, reference) = next(iter(self.tests.items()))
        gold = [self.workspace.gold] if self.workspace.gold and name == "test" else []
        for model in attentive if gold else ():
            align = self._align(model, source, self.shown(reference), model.name)
            yield align
            made = f"scores/{model.experiment.name}.aer.json"
            yield Step(f"nmtalign aer {align.makes} {self.shown(gold[0])} --format json > {made}", made, [align], gold)
        attentive.sort(key=lambda model: model.experiment.name != FLAGSHIP)
        for model in attentive[:1] if self.lines else ():
            align = self._align(model, source, f"work/translations/{model.name}.{name}.known.txt", "figure3")
            yield align
            for line in self.lines:
                made = f"figures/alignment-{line + 1}.svg"
                yield Step(f"nmtalign view {align.makes} --sentence {line} -o {made}", made, [align])

    def _score(self, test: str, kind: str, models: Sequence[Model], options: str) -> Step:
        source, reference = map(self.shown, self.tests[test])
        of_seeds = kind == ".seeds"
        names = ((one.name if of_seeds else one.experiment.name, one.name) for one in models)
        ending = f"{test}{'' if of_seeds else kind}.txt"
        systems = " ".join(f"{system}=work/translations/{model}.{ending}" for system, model in names)
        made = f"scores/{test}{kind}.json"
        command = f"nmtalign score {systems} -r {reference} -s {source} --config settings/corpus.toml {options}"
        return Step(f"{command} --format json > {made}", made, [step for model in models for step in model.steps])

    def _align(self, model: Model, source: Path, target: str, name: str) -> Step:
        made = f"work/alignments/{name}.h5"
        command = f"nmtalign align {self.shown(source)} {target} --config settings/corpus.toml"
        return Step(f"{command} -m {model.folder} -o {made}", made, model.steps)

    def shown(self, path: Path) -> str:
        """A path relative to the folder of the report, quoted for a shell."""
        return shlex.quote(_relative(path, self.folder))

    def _write_settings(self, name: str, training: Settings) -> None:
        """Writes settings/NAME.toml: the texts and the sections of the user's nmtalign.toml, and the training.

        Raises UsageError if the models of the folder were begun with others.
        """
        folder, workspace = self.folder / "settings", self.workspace
        texts: dict[str, Any] = {
            key: [_relative(path, folder) for path in (source, target)] if target else _relative(source, folder)
            for key, (source, target) in workspace.pairs.items()
        }
        texts["gold"] = _relative(workspace.gold, folder) if workspace.gold else None
        top = {"source_language": workspace.source_language, "target_language": workspace.target_language}
        data = workspace.data if self._is_prepared else self.folder / _CORPUS
        sections: dict[str, Settings] = {"": {**top, "data": _relative(data, folder)}, "corpus": texts}
        sections["reproduce"] = {"scale": self.settings.scale, self.unit: self.amount}
        for section in ("prep", "translate", "score", "align"):
            sections[section] = {
                key: _relative(Path(value), folder) if value and SECTIONS[section][key].is_path else value
                for key, value in workspace.sections.get(section, {}).items()
                if SECTIONS[section][key].affects != "printing"  # the report reads plain translations
            }
        sections["train"] = training
        path = folder / f"{name}.toml"
        if path.is_file() and any(self.folder.glob("work/models/*")):
            self._check_begun(load_workspace(path).sections, sections)
        with atomic_text(path) as stream:
            for section, settings in sections.items():
                rows = [f"{key} = {toml(value)}\n" for key, value in settings.items() if value is not None]
                stream.write((f"\n[{section}]\n" if section and rows else "") + "".join(rows))

    def _check_begun(self, begun: Mapping[str, Settings], sections: Mapping[str, Settings]) -> None:
        """Raises UsageError that names the first setting that has changed since the models were begun."""
        for section in ("reproduce", "prep", "train"):
            before, now = begun[section], sections[section]
            for key, one in SECTIONS[section].items():
                if one.affects != "machine" and not one.is_path and before.get(key) != now.get(key):
                    old = written(f"[{section}]", key, before[key]) if key in before else f"no {key} in [{section}]"
                    fix = "give the same again, or another folder with -o"
                    raise UsageError(f"{self.folder}: its models were begun with {old}; {fix}")

    def _training(self, experiment: Experiment, corpus: Corpus) -> Settings:
        """The settings of [train] of an experiment, with its budget and 20 validations within it."""
        of_user = self.workspace.sections.get("train", {})
        values = {
            "preset": experiment.preset,
            **self.scale.settings,
            **{name: of_user[name] for name in _MACHINE if name in of_user},
            **experiment.changed,
            "patience": 0,
        }
        if self.unit == "hours":
            limit = max(1, round(self.amount * 3600))  # in seconds
            return {**values, "max_updates": 0, "max_time": f"{limit}s", "validate_every": f"{max(1, limit // 20)}s"}
        # The mean length of the pairs that are short enough, so that every model reads the same number of words.
        train = corpus.splits["train"]
        longest = corpus.tokenizers.most_tokens(preset(experiment.preset)["max_length"])
        lengths = train.target.lengths[eligible(train, longest)]
        words = (float(lengths.sum()) / max(1, len(lengths)) + 1) * values.get("batch_size", TrainingConfig.batch_size)
        updates = math.ceil(self.amount / words)
        every = max(10, math.ceil(updates / 20))
        budget = {"max_updates": updates, "epochs": 0.0, "validate_every": str(every)}
        return {**values, **budget, "log_every": min(TrainingConfig.log_every, every)}

    def _do(self, step: Step) -> bool:
        """Runs a step unless its file exists; returns whether it does then."""
        if self._halted:
            raise Halted(self._halted)
        number = next(self._numbers)
        if any(needed.makes in self.failures for needed in step.after):
            self.failures[step.makes] = ""
            return False
        key = self._key(step)
        files = [step.makes, *(word for word in step.command.split() if word.startswith("figures/"))]
        done = all((self.folder / file).is_file() for file in files) and self._done().get(step.makes) == key
        self._notify(f"[{number}/{self._total}] {step.command}{': done before' if done else ''}")
        if done:
            return True
        problem = self._run(step)
        if self._halted:
            raise Halted(self._halted)
        if problem:
            self.failures[step.makes] = problem
            self._notify(f"failed, the others continue: {problem}")
            return False
        with self._lock, atomic_text(self.folder / _DONE) as stream:
            stream.write(json.dumps({**self._done(), step.makes: key}, indent=1))
        return True

    def _run(self, step: Step) -> str:
        """Runs the command of a step in a shell; returns its last line on stderr if it fails, else ""."""
        # A shell with a trap waits for the command that it runs, which saves its work.
        script = f"trap 'exit 143' TERM\nnmtalign() {{ {shlex.join(NMTALIGN)} \"$@\"; }}\n{step.command}"
        environment = {**os.environ}
        if self.settings.jobs > 1:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.settings.jobs)))
        process = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", script],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if self._silent else 2,
            stderr=subprocess.PIPE if self._silent else None,
            text=True,
            errors="replace",
            start_new_session=True,  # only `stop` passes a signal on, and not the terminal as well
        )
        self._running.add(process)
        if self._halted:
            _terminate(process)
        said = process.communicate()[1] or ""
        self._running.discard(process)
        return [f"exit code {process.returncode}", *said.splitlines()][-1] if process.returncode else ""

    def _key(self, step: Step) -> str:
        """A hash of all that decides what the step makes."""
        settings = (word for word in step.command.split() if word.startswith("settings/"))
        parts = [step.command, *map(self._key, step.after)]
        parts += [(self.folder / name).read_text("utf-8") for name in settings]
        parts += [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in step.reads]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _done(self) -> Mapping[str, str]:
        with contextlib.suppress(OSError, ValueError):
            return read_json(self.folder / _DONE)  # type: ignore[no-any-return]
        return {}


def _terminate(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def _relative(path: Path, folder: Path) -> str:
    """The path as a command in the folder finds it: `..` leads out of the folder itself, not of a link to it."""
    real = Path(os.path.realpath(path.parent), path.name)  # a link to the file keeps its name
    return Path(os.path.relpath(real, os.path.realpath(folder))).as_posix()
