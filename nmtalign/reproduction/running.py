"""Carries out a plan: prepares corpora, trains, translates. Steps that an earlier run completed are skipped."""

import dataclasses
import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import torch

from nmtalign.data.corpus import Corpus
from nmtalign.data.pipeline import worker_count
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import atomic_text, disk_errors, read_json
from nmtalign.reproduction.plan import ReproductionPlan, SystemPlan
from nmtalign.reproduction.preparation import Corpora, settings_file, with_budget, write_settings
from nmtalign.reproduction.side_by_side import SideBySide, TrainingJob
from nmtalign.scoring.known_words import UnknownWords, Vocabularies
from nmtalign.scoring.report import Mask
from nmtalign.scoring.scoring_run import Text, Track, check_aligned, read_text, untracked
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.vocabulary import UNK
from nmtalign.training.events import Finished, Listener
from nmtalign.training.trainer import Trainer
from nmtalign.translating.keeping import KeepingTranslator

Key = tuple[str, int]  # name of the system, seed
Translations = dict[str, list[str]]  # by test set
UNKNOWN = "UNK"  # replaces `<unk>`, because every tokeniser of a metric takes it for one word


class Halted(Exception):  # noqa: N818
    """`Reproduction.stop` ended the run; everything that was completed or saved is kept."""


@dataclass(frozen=True)
class TestSet:
    """A test set as text."""

    name: str
    source: Text
    reference: Text


@dataclass
class Outcome:
    """The results of a run, from which the report is made."""

    plan: ReproductionPlan
    tests: list[TestSet]
    finished: dict[Key, Finished] = field(default_factory=dict)  # by the system that trained the model
    known: dict[str, Mask] = field(default_factory=dict)  # by test set: (N,) sentences without an unknown word
    translations: dict[Key, Translations] = field(default_factory=dict)
    # The same sentences, translated by the models of the article without permission to write `<unk>`.
    of_known: dict[Key, Translations] = field(default_factory=dict)
    lines_per_second: dict[Key, float] = field(default_factory=dict)  # of translation, if it was measured
    failures: dict[Key, str] = field(default_factory=dict)

    def translated(self) -> list[SystemPlan]:
        """The systems whose model of the first seed has translated every test set."""
        seed = self.plan.seeds[0]
        return [system for system in self.plan.systems if (system.name, seed) in self.translations]


class TextTranslation:
    """The translation of some lines by a model with the settings of a search."""

    def __init__(self, model: Path, search: TranslateConfig, lines: Sequence[str], path: Path) -> None:
        """The complete translation is also written to `path`, and how long it took to a file beside it."""
        self._translator, self._lines, self._path = KeepingTranslator(model, search), lines, path

    def found(self) -> list[str] | None:
        """Returns the complete translation with UNK for `<unk>`, or None if there is none yet."""
        found = self._translator.find(self._lines) if self._lines else []
        return None if found is None else [line.replace(UNK, UNKNOWN) for line in found]

    def written(self) -> list[str]:
        """Writes the complete translation as it is scored, and returns it."""
        lines = self.found() or []
        with atomic_text(self._path) as stream:
            stream.writelines(f"{line}\n" for line in lines)
        return lines

    def __len__(self) -> int:
        return len(self._lines)

    def make(self, check: Callable[[], None], searched: Callable[[int], None] | None = None) -> None:
        """Translates the missing lines; it calls `check` after each line, which may raise to end it.

        `searched` gets the number of lines that are finished, also of those that an earlier run translated.
        """
        partial = self._beside(".partial")
        done = partial.read_text(encoding="utf-8").split("\n")[:-1] if partial.exists() else []
        began, new = time.perf_counter(), list[str]()
        with atomic_text(partial) as stream:  # without an incomplete last line
            stream.writelines(f"{line}\n" for line in done)
        with disk_errors(partial), partial.open("a", encoding="utf-8", newline="\n") as stream:
            if searched:
                searched(len(done))
            for line in self._translator.make(self._lines[len(done) :], searched):
                new.append(line)
                stream.write(f"{line}\n")
                stream.flush()
                check()
        seconds = time.perf_counter() - began
        self._translator.keep(self._lines, [*done, *new], self._path.name)
        with atomic_text(self._beside(".json")) as stream:
            stream.write(json.dumps({"lines": len(new), "seconds": seconds}) + "\n")
        partial.unlink()

    def seconds(self) -> float:
        """Estimates the time for all lines from the lines that the last call translated; 0 if it is not known."""
        try:
            record: Mapping[str, float] = read_json(self._beside(".json"))
            return float(record["seconds"]) * len(self._lines) / float(record["lines"])
        except (OSError, ValueError, KeyError, ZeroDivisionError):
            return 0.0

    def _beside(self, ending: str) -> Path:
        """A file named after model, search and text, so that systems that share a translation also share its time."""
        return self._path.with_name(self._translator.path(self._lines).stem + ending)


class Reproduction:
    """Runs a plan. `stop` ends it after the state is saved, and a new `run` of the same plan resumes there."""

    def __init__(
        self,
        plan: ReproductionPlan,
        listen: Callable[[str], None],
        listener_of: Callable[[Path], AbstractContextManager[Listener]],
        track: Track = untracked,
    ) -> None:
        """`listen` gets messages; `listener_of` returns the listener for the training events of a model directory."""
        self._plan, self._listen, self._listener_of, self._track = plan, listen, listener_of, track
        self._trainer: Trainer | None = None
        self._side_by_side: SideBySide | None = None
        self._begun: set[Key] = set()  # models whose start was reported
        self._halted: str | None = None
        self._number = 0
        self._total = len(plan.corpora) + len(list(plan.models())) + len(plan.systems) * len(plan.seeds)

    def stop(self, reason: str) -> None:
        """Asks for an end; a signal handler may call it."""
        self._halted = reason
        if self._trainer is not None:
            self._trainer.stop(reason)
        if self._side_by_side is not None:
            self._side_by_side.stop()

    def run(self) -> Outcome:
        """Prepares, trains and translates; raises Halted after `stop`, and the first error if no model could translate.

        If an experiment fails, the failure is reported and recorded in the outcome, and the other experiments continue.
        """
        outcome = Outcome(self._plan, self._read_tests())
        self._prepare(outcome)
        words = UnknownWords([Vocabularies.load(self._plan.base_corpus)])
        outcome.known = {test.name: words.without(test.source.lines, [test.reference.lines]) for test in outcome.tests}
        if self._plan.request.jobs > 1:
            self._train_side_by_side(outcome)
        for system, seed in self._plan.models():
            self._guarded(self._train, outcome, system, seed)
        for system in self._plan.systems:
            for seed in self._plan.seeds:
                self._guarded(self._translate, outcome, system, seed)
        if not outcome.translations:
            raise NmtalignError(f"no model could be trained: {next(iter(outcome.failures.values()))}")
        return outcome

    def _read_tests(self) -> list[TestSet]:
        tests = []
        for name, (source, reference) in self._plan.tests.items():
            tests.append(TestSet(name, read_text(source), read_text(reference)))
            check_aligned([tests[-1].source, tests[-1].reference])
        first = tests[0].source
        for number in self._plan.request.sentences:
            if not 1 <= number <= len(first.lines):
                raise UsageError(f"--sentences {number}: {first.name} has lines 1 to {len(first.lines)}")
        return tests

    def _prepare(self, outcome: Outcome) -> None:
        corpora = Corpora(self._plan)
        for name in self._plan.corpora:
            already = corpora.is_made(name)
            self._check()
            self._tell(f"preparing {name}", already)
            if already:
                continue
            try:
                corpora.make(name, lambda _: self._check(), lambda _: self._check())
            except Halted:
                raise
            except Exception as error:
                if self._plan.corpus_named(name) == self._plan.base_corpus:
                    raise
                problem = one_line(error)
                self._report_failure(name, problem)
                unable = [system for system in self._plan.systems if self._plan.corpus_folder(system).name == name]
                outcome.failures |= {(system.name, seed): problem for system in unable for seed in self._plan.seeds}

    def _guarded(
        self, work: Callable[[Outcome, SystemPlan, int], None], outcome: Outcome, system: SystemPlan, seed: int
    ) -> None:
        """Does the work unless the model has already failed, and records a failure."""
        self._check()
        key, failures = (system.name, seed), outcome.failures
        if problem := failures.get(key) or failures.get((system.trained_as, seed)):
            failures[key] = problem
            return
        try:
            work(outcome, system, seed)
        except Halted:
            raise
        except Exception as error:  # any error concerns only this experiment
            failures[key] = one_line(error)
            self._report_failure(system.name, failures[key])
        finally:
            self._trainer = None
        if key in failures:
            free_memory()

    def _train_side_by_side(self, outcome: Outcome) -> None:
        """Trains several models at the same time; `_train` then finds them complete."""
        plan, keys, jobs = self._plan, dict[str, Key](), list[TrainingJob]()
        for system, seed in plan.models():
            if (system.name, seed) in outcome.failures:
                continue
            write_settings(plan, system)
            folder = plan.model_folder(system, seed)
            name = folder.name if len(plan.seeds) > 1 else system.name
            threads = max(1, worker_count(system.training.threads) // plan.request.jobs)
            where = ("--config", str(settings_file(plan, system)), "-o", str(folder))
            jobs.append(TrainingJob(name, ("train", *where, "--seed", str(seed), "--threads", str(threads))))
            keys[name] = system.name, seed

        self._side_by_side = SideBySide(lambda job: self._begin(keys[job.name]), self._listen)
        problems = self._side_by_side.run(jobs, plan.request.jobs)
        self._check()
        for name, problem in problems.items():
            outcome.failures[keys[name]] = problem
            self._report_failure(keys[name][0], problem)

    def _begin(self, key: Key) -> None:
        if key not in self._begun:
            self._begun.add(key)
            self._tell(f"training {key[0]}, seed {key[1]}")

    def _train(self, outcome: Outcome, system: SystemPlan, seed: int) -> None:
        self._begin((system.name, seed))
        folder = self._plan.model_folder(system, seed)
        corpus = Corpus.open(self._plan.corpus_folder(system))
        config = with_budget(self._plan, system, corpus, seed)
        with self._listener_of(folder) as listen:
            self._trainer = trainer = Trainer(corpus, folder, system.experiment.preset, system.model, config, listen)
            if self._halted:  # `stop` was called while the model was created
                trainer.close()
                raise Halted(self._halted)
            finished = trainer.run()
        if not finished.complete:
            raise Halted(finished.reason)
        outcome.finished[system.name, seed] = finished

    def _translate(self, outcome: Outcome, system: SystemPlan, seed: int) -> None:
        key = system.name, seed
        texts = {test.name: test.source.lines for test in outcome.tests}
        known = {name: list(compress(lines, outcome.known[name])) for name, lines in texts.items()}
        # Second column of Table 1: the models must not write <unk> for these sentences (section 5.1).
        banned = dataclasses.replace(system.search, allow_unk=False, replace_unk=False)
        work = self._work(system, seed, system.search, texts, "")
        of_known = {} if system.experiment.ablation else self._work(system, seed, banned, known, ".known")
        missing = [part for part in (*work.values(), *of_known.values()) if part.found() is None]
        self._tell(f"translating with {system.name}, seed {seed}", already=not missing)
        with self._track(f"translating with {system.name}", sum(map(len, missing))) as searched:
            for part in missing:
                part.make(self._check, searched)
        outcome.translations[key] = {name: part.written() for name, part in work.items()}
        if of_known:
            outcome.of_known[key] = {name: part.written() for name, part in of_known.items()}
        seconds = [part.seconds() for part in work.values()]
        if all(seconds):
            outcome.lines_per_second[key] = sum(map(len, texts.values())) / sum(seconds)

    def _work(
        self, system: SystemPlan, seed: int, search: TranslateConfig, texts: Mapping[str, Sequence[str]], ending: str
    ) -> dict[str, TextTranslation]:
        """The translation of each test set by one model."""
        model, folder = self._plan.model_folder(system, seed), self._plan.work / "translations"
        return {
            test: TextTranslation(model, search, lines, folder / f"{system.name}.seed-{seed}.{test}{ending}.txt")
            for test, lines in texts.items()
        }

    def _tell(self, what: str, already: bool = False) -> None:
        self._number += 1
        self._listen(f"[{self._number}/{self._total}] {what}{': done before' if already else ''}")

    def _report_failure(self, name: str, problem: str) -> None:
        self._listen(f"{name} failed, the others continue: {problem}")

    def _check(self) -> None:
        if self._halted:
            raise Halted(self._halted)


def one_line(error: Exception) -> str:
    """Returns the reason of a failure in one line, with the type of an error that is not nmtalign's own."""
    text = " ".join(str(error).split())
    return text if isinstance(error, NmtalignError) else f"{type(error).__name__}: {text[:300]}".removesuffix(": ")


def free_memory() -> None:
    """Frees the memory of a failed experiment for the next one."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
