"""From a bitext to word links: learns two alignment models that agree, and aligns all pairs with both.

All files are in one folder:

| file                | content                                                                          |
|---------------------|----------------------------------------------------------------------------------|
| link.json           | the texts and settings of the run, and the seconds of each step                  |
| aligner.safetensors | what was learned (`nmtalign.alignment.word_aligner`); it aligns other pairs too  |
| links.tsv           | the links of all pairs and their probabilities (`AlignmentRecord.scored_links`)  |
| work                | until the run is complete: what the iterations so far have learned               |
"""

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtalign.alignment.agreement import HMM, MODEL_1, MODEL_1_TIME, AgreeingModels, usable
from nmtalign.alignment.aligning import AlignmentRun
from nmtalign.alignment.layout import SIDES
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.alignment.model1 import WordNumbers, read_bitext
from nmtalign.alignment.pair_batches import Sentences
from nmtalign.alignment.word_aligner import Pieces, in_pieces, load_aligner, save_aligner
from nmtalign.core.devices import using_threads
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import (
    INCOMPLETE,
    PartialFile,
    atomic_text,
    check_no_link,
    folder_lock,
    read_json,
    sha256_of,
    sweep,
)
from nmtalign.model_files import ALIGNER
from nmtalign.settings.command_settings import AlignConfig, LinkConfig
from nmtalign.settings.definition import seconds, select
from nmtalign.tensor_file import load_tensors, save_tensors
from nmtalign.text.direction import check_spaces
from nmtalign.text.languages import suffix_language
from nmtalign.text.lines import STDIN, read_pairs, shown
from nmtalign.text.tokenizer import Tokenizers

_WORK, _LINKS, _RECORD, _STATE = "work", "links.tsv", "link.json", "learned.safetensors"
MOST_CELLS = 300_000_000  # of the training text; more pairs are thinned out, which bounds memory to some gigabytes
_QUICK_PAIRS, _QUICK_HMM = 50_000, 3  # the pairs and the last iterations of --quick
_FEWEST_PAIRS = 1_000  # a time limit leaves at least as many
_STEPS = 3
_COMMAS = frozenset(",،、，")
_MOST_ATTACHED = 0.02  # commas without a space before them, in tokenised text
_ALIGNING = 7.0  # the time of aligning all pairs, in iterations over them
_SPACES_SEEN_IN = 100  # pairs
_TRIAL_PAIRS = 2_000  # with which a time limit is planned


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
        self._budget = seconds("max_time", limit) if limit else None
        self._step, self._doing, self._began = 0, "", 0.0
        self._stopped = False
        self._record = self._open()
        self.was_complete = self.links.exists()

    def stop(self, reason: str) -> None:
        """Ends the run; a signal handler may call it. The same run resumes after the last complete iteration."""
        self._stopped = True

    def run(self) -> bool:
        """Does the steps that remain; returns False if `stop` has ended it, and the same call resumes."""
        if self.links.exists() and not self._work.exists():
            return True
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            check_no_link(path)
        with contextlib.suppress(_Halted), folder_lock(self._work), using_threads(self.config.threads):
            sweep(self.folder)
            if not (self.folder / ALIGNER).exists():
                names, sides = self._read()
                self._learn(names, sides)
            if not self.links.exists():
                self._align()
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
            raise UsageError(f"{self.folder}: is a file; give a folder for the aligner with -o")
        try:
            hashes = [sha256_of(path) for path in self._texts]
        except OSError as error:
            raise InputError(f"{error.filename}: cannot read: {error.strerror}; give an existing text file") from None
        settings = {
            name: getattr(self.config, name) for name in select(LinkConfig, lambda one: one.affects != "machine")
        }
        if not (self.folder / _RECORD).exists():
            if self.folder.exists() and not all(map(_is_unfinished, self.folder.iterdir())):
                raise UsageError(f"{self.folder}: has files that are not of nmtalign link; give another folder with -o")
            own = {"texts": hashes, "names": [str(path) for path in self._texts], "settings": settings}
            return {**own, "seconds": {}}
        found = _read_record(self.folder / _RECORD)
        if found["texts"] != hashes:
            names = " and ".join(found["names"])
            raise UsageError(f"{self.folder}: has the links of other texts ({names}); give another folder with -o")
        if changed := [name for name, value in settings.items() if found["settings"].get(name) != value]:
            was = ", ".join(f"{name} was {found['settings'].get(name)!r}, is {settings[name]!r}" for name in changed)
            raise UsageError(f"{self.folder}: has links made with other settings: {was}; give another folder with -o")
        return found

    @contextlib.contextmanager
    def _part(self, step: int, doing: str) -> Iterator[None]:
        """One step, whose time is recorded."""
        self._step, self._doing, self._began = step, doing, time.monotonic()
        self._tell()
        try:
            yield
        finally:
            spent = self._record["seconds"]
            spent[str(step)] = spent.get(str(step), 0.0) + time.monotonic() - self._began
            if "every" in self._record:
                self._save()

    def _save(self) -> None:
        with atomic_text(self.folder / _RECORD, follow=False) as stream:
            stream.write(json.dumps(self._record, indent=2) + "\n")

    def _tell(self, done: float | None = None, left: float | None = None) -> None:
        """Shows the progress of a step; ends the run after `stop`."""
        if self._stopped:
            raise _Halted
        self._show(LinkProgress(self._step, _STEPS, self._doing, done, left))

    def _read(self) -> tuple[tuple[list[str], list[str]], tuple[Sentences, Sentences]]:
        """Returns the words and the sentences of both sides."""
        with self._part(1, "reading the texts"):
            pairs = read_pairs(*self._texts)
            first = list(islice(pairs, _SPACES_SEEN_IN))
            check_spaces(self._texts, first, self._notify)
            bitext = read_bitext(chain(first, pairs), Tokenizers.spaced(), progress=lambda pairs: self._tell())
            self._record["pairs"] = len(bitext) + bitext.left_out
            if not self._record["pairs"]:
                names = " and ".join(map(str, self._texts))
                raise InputError(f"{names}: no lines; give files with text")
            self._tokenized = self.config.tokenized or all(map(_has_free_commas, (bitext.source, bitext.target)))
            pieces = Pieces(self._tokenized)
            source, target = in_pieces(bitext.source, pieces), in_pieces(bitext.target, pieces)
            return (source[0], target[0]), (source[1], target[1])

    def _learn(self, names: tuple[list[str], list[str]], sides: tuple[Sentences, Sentences]) -> None:
        with self._part(2, "learning"):
            quick = self.config.quick
            iterations = MODEL_1 + (_QUICK_HMM if quick else HMM)
            if "every" not in self._record:
                self._record["every"] = self._thinned(names, sides, iterations)
                self._save()
            learning = AgreeingModels(names, sides, torch.get_num_threads(), iterations, self._record["every"])
            state = self._work / _STATE
            if state.exists():
                _restore(learning, state)
            began, first = time.monotonic(), _work_of(learning.done)

            while learning.done < iterations:
                before, own = _work_of(learning.done), _work_of(learning.done + 1) - _work_of(learning.done)

                def tell(share: float, before: float = before, own: float = own) -> None:
                    done, whole = before + share * own, _work_of(iterations)
                    pace = (time.monotonic() - began) / max(done - first, 1e-9)
                    aligning = _ALIGNING * pace * self._record["every"]
                    self._tell(done / whole, (whole - done) * pace + aligning)

                learning.iterate(tell)
                save_tensors(state, learning.state(), {})
            languages = [suffix_language(path) or side for path, side in zip(self._texts, SIDES, strict=True)]
            save_aligner(self.folder, learning, (languages[0], languages[1]), self._tokenized)

    def _thinned(self, names: tuple[list[str], list[str]], sides: tuple[Sentences, Sentences], iterations: int) -> int:
        """Returns n if only every n-th pair is to be used for learning."""
        rows = usable(sides)
        lengths = [side.lengths()[rows] for side in sides]
        cells = float(lengths[0] @ lengths[1])
        every = max(1, math.ceil(cells / MOST_CELLS))
        if self.config.quick:
            every = max(every, math.ceil(len(rows) / _QUICK_PAIRS))
        if self._budget is not None and len(rows):
            trial = AgreeingModels(
                names, sides, torch.get_num_threads(), iterations, max(every, len(rows) // _TRIAL_PAIRS)
            )
            began = time.monotonic()
            trial.iterate()
            pace = (time.monotonic() - began) / MODEL_1_TIME / max(trial.cells, 1)
            spent = sum(self._record["seconds"].values()) + time.monotonic() - self._began
            left = self._budget - spent - _ALIGNING * pace * cells
            needed = pace * cells * _work_of(iterations)
            most = max(1, len(rows) // _FEWEST_PAIRS)
            every = max(every, min(most, math.ceil(needed / left)) if left > 0 else most)
        return every

    def _align(self) -> None:
        with self._part(3, "aligning all pairs"):
            config = AlignConfig(threads=self.config.threads)
            aligner, partial = load_aligner(self.folder), PartialFile(self.links)
            partial.open()
            try:
                # The texts are those of the aligner, so that warnings on their languages would say nothing.
                run = AlignmentRun(aligner, *self._texts, config, done=_complete_lines(partial))
                for record in self._watched(run):
                    partial.write(f"{record.scored_links()}\n".encode())
                partial.rename(self.links)
                if note := aligner.left_out():
                    self._notify(f"warning: {shown(self._texts[0])}: {note}")
            finally:
                partial.close()

    def _watched(self, run: AlignmentRun) -> Iterator[AlignmentRecord]:
        """Yields the records, and shows how many there are."""
        began, pairs = time.monotonic(), self._record["pairs"]
        for record in run:
            yield record
            done = run.summary.done_before + run.summary.pairs
            pace = (time.monotonic() - began) / run.summary.pairs
            self._tell(done / pairs, pace * (pairs - done))


def _is_unfinished(path: Path) -> bool:
    """Whether a process that was killed may have left this file before the record of its run was complete."""
    return path.name == _WORK or path.match(INCOMPLETE)


def _read_record(path: Path) -> dict[str, Any]:
    """Reads the record of a run; raises FormatError if it is damaged."""
    kinds = {"texts": list, "names": list, "settings": dict, "seconds": dict, "pairs": int, "every": int}
    try:
        found: dict[str, Any] = read_json(path)
        whole = all(isinstance(found[name], kind) for name, kind in kinds.items())
        numbers = [found["pairs"], found["every"] - 1, *found["seconds"].values()]
        if whole and all(isinstance(name, str) for name in found["names"]) and min(numbers) >= 0:
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise FormatError(f"{path}: damaged; remove this folder, or give another one with -o")


def _restore(learning: AgreeingModels, state: Path) -> None:
    """Continues from a file of `AgreeingModels.state`; raises FormatError if it fits other texts or is damaged."""
    try:
        learning.restore(load_tensors(state)[0])
    except (KeyError, RuntimeError, ValueError, TypeError):
        raise FormatError(f"{state}: does not fit the texts; remove it, and the run begins again") from None


def _has_free_commas(side: WordNumbers) -> bool:
    """Returns whether commas have spaces on both sides, as in text that a tokeniser has split."""
    counts = np.bincount(side.ids, minlength=len(side.words))
    free = sum(int(counts[place]) for place, word in enumerate(side.words) if word in _COMMAS)
    attached = sum(int(counts[place]) for place, word in enumerate(side.words) if len(word) > 1 and word[-1] in _COMMAS)
    return attached < _MOST_ATTACHED * free


def _work_of(iterations: int) -> float:
    """Returns the time of the first iterations, in iterations of the hidden Markov models."""
    return MODEL_1_TIME * min(iterations, MODEL_1) + max(0, iterations - MODEL_1)


def _complete_lines(partial: PartialFile) -> int:
    """Removes an incomplete last line; returns the number of lines."""
    text = partial.partial.read_bytes()
    partial.cut(text.rfind(b"\n") + 1)
    return text.count(b"\n")
