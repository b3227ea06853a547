"""From a bitext to word links: prepares the texts, trains a model of each direction, and aligns all pairs with both.

Round 1 trains both directions so that their attention weights agree. Round 2 starts with these models, and the links of
round 1 guide it. All files are in one folder, which is then the model directory of the forward model:

| file       | content                                                                                    |
|------------|--------------------------------------------------------------------------------------------|
| link.json  | the texts and settings of the run, its plan, and the seconds of each step                  |
| links.tsv  | the links of all pairs and their probabilities (`AlignmentRecord.scored_links`)            |
| work       | until the run is complete: the prepared corpus, the models of round 1 and their links      |
| the others | the models of the last round, as `nmtalign train --agreement` writes them                  |
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtalign.alignment.aligning import AlignmentRun, load_models
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.core.devices import pick_device
from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.errors import InputError, UsageError
from nmtalign.files import PartialFile, alone_in, atomic_text, sha256_of
from nmtalign.model_files import BACKWARD, LINK_RECORD
from nmtalign.settings.alignment_settings import AlignConfig, LinkConfig
from nmtalign.settings.definition import seconds
from nmtalign.text.languages import suffix_language
from nmtalign.text.lines import STDIN, read_pairs, shown
from nmtalign.training.distributed import World
from nmtalign.training.dry_run import dry_run
from nmtalign.training.events import Damaged, Event, Figures
from nmtalign.training.fit import count_words
from nmtalign.training.link_plan import PRESET, LinkPlan, link_settings, passes, prep_settings
from nmtalign.training.loop import Trainer
from nmtalign.training.setup import TrainingSetup
from nmtalign.untrusted import read_json

_WORK, _LINKS = "work", "links.tsv"
_MEASURED = 5.0  # seconds in which updates are measured to plan the steps, or a tenth of the time limit


@dataclass(frozen=True)
class LinkProgress:
    """How far a run is: step `step` of `steps`, the share of it that is done, and the time left for all steps."""

    step: int
    steps: int
    doing: str
    done: float | None = None
    seconds_left: float | None = None


class _Halted(Exception):  # noqa: N818
    """`LinkRun.stop` was called."""


class LinkRun:
    """Links the words of two texts: `LinkRun(source, target, folder).run()`, then `links` is the file of the links.

    A run that was interrupted resumes in `folder`, and a completed one has nothing to do. Raises UsageError if the
    folder contains anything else, or a run with other texts or settings, and InputError for a text that cannot be read.
    `show` is called with the progress, `notify` with warnings.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        folder: Path,
        config: LinkConfig | None = None,
        show: Callable[[LinkProgress], object] = lambda progress: None,
        notify: Callable[[str], object] = lambda message: None,
    ) -> None:
        self.folder, self.links, self.config = folder, folder / _LINKS, config or LinkConfig()
        self._texts, self._work = (source, target), folder / _WORK
        self._show, self._notify = show, notify
        limit = self.config.max_time
        self._plan = LinkPlan(passes(1, self.config.quick), seconds("max_time", limit) if limit else None)
        self._step, self._doing, self._began = 0, "", 0.0
        self._stopped: str | None = None
        self._trainer: Trainer | None = None
        self._record = self._open()
        self.was_complete = self.links.exists()

    def stop(self, reason: str) -> None:
        """Ends the run after its state is saved; a signal handler may call it."""
        self._stopped = reason
        if self._trainer is not None:
            self._trainer.stop(reason)

    def run(self) -> bool:
        """Does the steps that remain; returns False if `stop` has ended it, and the same call resumes."""
        if self.links.exists():
            return True
        with contextlib.suppress(_Halted), alone_in(self._work):
            self._prepare()
            last = len(self._plan.rounds)
            for number in range(1, last + 1):
                model = self.folder if number == last else self._work / f"round-{number}"
                links = self.links if number == last else self._work / f"round-{number}.links"
                self._train(number, model, links)
                self._align(model, links)
            shutil.rmtree(self._work, ignore_errors=True)
            return True
        return False

    def _open(self) -> dict[str, Any]:
        """Returns the record of the run in the folder, or of a new one."""
        for path in self._texts:
            if path == STDIN or (path.exists() and not path.is_file()):
                raise UsageError(
                    f"{shown(path)}: is no file, and the texts are read several times; give two text files"
                )
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder}: is a file; give a folder for the models with -o")
        try:
            hashes = [sha256_of(path) for path in self._texts]
        except OSError as error:
            raise InputError(f"{error.filename}: cannot read: {error.strerror}; give an existing text file") from None
        settings = {name: getattr(self.config, name) for name in ("max_time", "quick", "tokenized", "seed")}
        if not (self.folder / LINK_RECORD).exists():
            if self.folder.exists() and any(path.name != _WORK for path in self.folder.iterdir()):
                raise UsageError(f"{self.folder}: has files that are not of nmtalign link; give another folder with -o")
            own = {"texts": hashes, "names": [str(path) for path in self._texts], "settings": settings}
            return {**own, "seconds": {}, "limits": {}}
        found: dict[str, Any] = read_json(self.folder / LINK_RECORD)
        if found["texts"] != hashes:
            names = " and ".join(found["names"])
            raise UsageError(f"{self.folder}: has the links of other texts ({names}); give another folder with -o")
        if changed := [name for name, value in settings.items() if found["settings"].get(name) != value]:
            was = ", ".join(f"{name} was {found['settings'].get(name)!r}, is {settings[name]!r}" for name in changed)
            raise UsageError(f"{self.folder}: has links made with other settings: {was}; give another folder with -o")
        return found

    @contextlib.contextmanager
    def _part(self, doing: str) -> Iterator[None]:
        """One step, whose time is recorded."""
        self._step, self._doing, self._began = self._step + 1, doing, time.monotonic()
        self._tell()
        try:
            yield
        finally:
            spent, step = self._record["seconds"], str(self._step)
            spent[step] = spent.get(step, 0.0) + time.monotonic() - self._began
            if "rounds" in self._record:
                self._save()

    def _save(self) -> None:
        with atomic_text(self.folder / LINK_RECORD) as stream:
            stream.write(json.dumps(self._record, indent=2) + "\n")

    def _spent(self) -> float:
        """The seconds since the command began, and those of earlier runs."""
        return float(sum(self._record["seconds"].values())) + time.monotonic() - self._began

    def _tell(self, done: float | None = None, left: float | None = None) -> None:
        """Shows the progress of a step with `left` seconds left for it; ends the run after `stop`."""
        if self._stopped is not None:
            raise _Halted
        later, budget = self._plan.later(self._step), self._plan.budget
        total = None if left is None or later is None else left + later
        if total is not None and left is not None and budget is not None:
            total = max(left, min(total, budget - self._spent()))
        self._show(LinkProgress(self._step, 1 + 2 * len(self._plan.rounds), self._doing, done, total))

    def _prepare(self) -> None:
        folder, record = self._work / "data", self._record
        with self._part("preparing the texts"):
            if "rounds" not in record:
                record["pairs"] = sum(1 for _ in read_pairs(*self._texts))
                named = zip(self._texts, ("source", "target"), strict=True)
                languages = [suffix_language(path) or side for path, side in named]
                summary = prepare(
                    self._texts,
                    folder,
                    prep_settings(record["pairs"]),
                    (languages[0], languages[1]),
                    progress=lambda pairs: self._tell(),
                    notify=lambda doing: self._tell(),
                    force=True,
                    nearest=True,
                )
                for note in (note for note in summary.notes if note.startswith("warning: ")):
                    self._notify(note)
            self._corpus = Corpus.open(folder)
            self._words = count_words(self._corpus)
            if "rounds" not in record:
                self._plan = self._planned()
                record["rounds"], record["epoch"] = self._plan.rounds, self._plan.epoch
            self._plan = LinkPlan(record["rounds"], self._plan.budget, record["epoch"])

    def _planned(self) -> LinkPlan:
        """Plans the rounds; under a time limit it first measures how long a pass takes."""
        plan = LinkPlan(passes(self._words, self.config.quick), self._plan.budget)
        if plan.budget is not None:
            model, config = link_settings(self.config, self._record["pairs"], self._words, plan.rounds[0])
            setup = TrainingSetup(self._corpus, self._work / "none", model, config, World(pick_device(config.device)))
            found = dry_run(setup, PRESET, seconds=min(_MEASURED, plan.budget / 10))
            plan.epoch = found.update_seconds * found.updates_in_epoch
        return plan.shortened(self._spent())

    def _train(self, number: int, folder: Path, links: Path) -> None:
        with self._part("training both directions" if number == 1 else "training with these links as a guide"):
            if links.exists():
                return
            first = self._work / f"round-{number - 1}"
            more: dict[str, Any] = (
                {} if number == 1 else {"init_from": str(first), "guided_alignment": f"{first}.links"}
            )
            limit = self._record["limits"].setdefault(str(number), self._plan.limit(self._step, self._spent()))
            more |= {} if limit is None else {"max_time": f"{limit:.0f}s"}
            self._save()
            sizes = self._record["pairs"], self._words, self._plan.rounds[number - 1]
            settings = link_settings(self.config, *sizes, **more)
            self._trainer = trainer = Trainer(self._corpus, folder, PRESET, *settings, self._listen)
            try:
                if self._stopped is not None:  # while the models were made
                    trainer.stop(self._stopped)
                if not trainer.run().complete:
                    raise _Halted
            finally:
                self._trainer = None

    def _listen(self, event: Event) -> None:
        if isinstance(event, Damaged):
            self._notify(event.problem)
        if isinstance(event, Figures) and event.epoch:
            self._plan.epoch = event.seconds / event.epoch
        if isinstance(event, Figures) and self._stopped is None:
            self._tell(event.done, event.seconds_left)

    def _align(self, folder: Path, links: Path) -> None:
        with self._part("aligning all pairs"):
            if links.exists():
                return
            last = links == self.links
            # The guide counts the words of the prepared corpus, which is not split at spaces.
            tokenized = self.config.tokenized and last
            config = AlignConfig(device=self.config.device, threads=self.config.threads, tokenized=tokenized)
            models, partial = load_models([folder, folder / BACKWARD], config), PartialFile(links)
            partial.open()
            try:
                run = AlignmentRun(models, *self._texts, config, done=_complete_lines(partial))
                for record in self._watched(run):
                    line = record.scored_links() if last else record.pharaoh()
                    partial.write(f"{line}\n".encode())
                partial.rename(links)
            finally:
                partial.close()

    def _watched(self, run: AlignmentRun) -> Iterator[AlignmentRecord]:
        """Yields the records, and shows how many there are."""
        began, pairs = time.monotonic(), self._record["pairs"]
        for record in run:
            yield record
            done = run.summary.done_before + run.summary.pairs
            pace = (time.monotonic() - began) / run.summary.pairs
            self._plan.aligning = pace * pairs
            self._tell(done / pairs, pace * (pairs - done))


def _complete_lines(partial: PartialFile) -> int:
    """Removes an incomplete last line; returns the number of lines."""
    text = partial.partial.read_bytes()
    partial.cut(text.rfind(b"\n") + 1)
    return text.count(b"\n")
