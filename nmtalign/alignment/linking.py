"""From a bitext to word links: learns two alignment models that agree, and aligns all pairs with both.

All files are in one folder (docs/formats.md). Until the run is complete, it also has the folder `work` with what the
iterations so far have learned.
"""

import contextlib
import functools
import io
import itertools
import json
import shutil
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmtalign import files
from nmtalign.alignment import agreement
from nmtalign.alignment.aligning import read_windows, window_size
from nmtalign.alignment.lexical import Cells, Table
from nmtalign.alignment.links import Pair, format_scored
from nmtalign.alignment.word_aligner import Pieces, in_pieces, load_aligner, save_aligner
from nmtalign.data.pipeline import worker_count
from nmtalign.errors import FormatError, InputError, ResourceError, UsageError
from nmtalign.model_directory import map_arrays, save_tensors
from nmtalign.settings.command_settings import AlignConfig, LinkConfig
from nmtalign.settings.definition import StrPath, argument_layer, resolve, select, toml
from nmtalign.text.languages import Notify, check_spaces, suffix_language
from nmtalign.text.lines import SIDES, counted, is_stream, read_pairs, shown
from nmtalign.text.tokenizer import EOS, LEXICON, NO_WORD, UNK, SpacedWords

_WORK, _RECORD, _STATE = "work", "link.json", "learned.safetensors"
MOST_CELLS = 300_000_000  # cells of all pairs that are learned from: this limits memory to some gigabytes
_COMMAS = frozenset(",،、，")
_MOST_ATTACHED = 0.02  # in tokenised text: commas without a space before them, per comma with spaces on both sides
_ALIGNING = 4.0  # the time of aligning all pairs, as a number of iterations over them
_SPACES_SEEN_IN = 100  # pairs
_TRANSLATIONS = 20  # entries of a source word in the translation table, at most
_LEAST = 1e-3  # the smallest probability of a translation
_BLANKS = frozenset(" \t\r\n")


@dataclass(frozen=True)
class LinkProgress:
    """How far a run is: step `step` of `steps`, the share of it that is done, and the time left for all steps."""

    steps = 3
    step: int
    doing: str
    done: float | None = None
    seconds_left: float | None = None


Show = Callable[[LinkProgress], object]


class BitextSide:
    """One side of the texts while they are read: the numbers of the words, and the sentences."""

    def __init__(self) -> None:
        self.index = defaultdict[str, int](itertools.count().__next__)  # in the order of their first occurrence
        self._ids, self._lengths = array("i"), array("q", [0])

    def add(self, words: Sequence[str]) -> None:
        self._ids.extend(map(self.index.__getitem__, words))
        self._lengths.append(len(words))

    def sentences(self) -> agreement.Sentences:
        return agreement.Sentences(np.array(self._ids, np.int32), np.cumsum(np.array(self._lengths, np.int64)))

    def has_free_commas(self) -> bool:
        """Returns whether commas have spaces on both sides, as in text that a tokeniser has split."""
        counts = np.bincount(self._ids, minlength=len(self.index))
        free = sum(counts[number] for word, number in self.index.items() if word in _COMMAS)
        attached = sum(counts[number] for word, number in self.index.items() if word[:-1] and word[-1] in _COMMAS)
        return bool(attached < _MOST_ATTACHED * free)


def read_sides(pairs: Iterable[Pair], tell: Callable[[], object] = lambda: None) -> tuple[BitextSide, BitextSide]:
    """Returns both sides of the pairs that have words on both sides, and not too many."""
    split, sides = SpacedWords().tokenize, (BitextSide(), BitextSide())
    for number, (source, target) in enumerate(pairs, 1):
        words = split(source), split(target)
        if all(0 < len(own) <= agreement.LONGEST for own in words):
            for side, own in zip(sides, words, strict=True):
                side.add(own)
        if number % 1000 == 0:
            tell()
    return sides


def count_cells(pairs: Iterable[Pair], tell: Callable[[], object]) -> tuple[int, int]:
    """Returns the number of the pairs, and about how many cells those have that can be learned from."""
    number = cells = 0
    for number, lines in enumerate(pairs, 1):
        words = [line.count(" ") + 1 for line in lines]
        cells += words[0] * words[1] if max(words) <= agreement.LONGEST else 0
        if number % 1000 == 0:
            tell()
    return number, cells


def link(
    source: StrPath,
    target: StrPath,
    folder: StrPath = "aligner",
    *,
    show: Show = lambda progress: None,
    notify: Notify = lambda message: None,
    config: LinkConfig | None = None,
    **settings: Any,
) -> Path:
    """Links the words of two texts, as `nmtalign link` does, and returns the file of the links.

    Its lines are those of `nmtalign link --scores`. `folder` gets the aligner, with which `align` aligns other pairs,
    and a translation table, lexicon.tsv; an interrupted call resumes there. `settings` are those of section [link],
    such as learn_from=500000; `config` replaces them. `show` is called with the progress, `notify` with warnings.
    Raises UsageError for a folder with other content, InputError for texts of unequal length.
    """
    config = config or resolve(LinkConfig, argument_layer("link", settings, LinkConfig))
    run = LinkRun(Path(source), Path(target), Path(folder), config, show, notify)
    run.run()
    return run.links


class LinkRun:
    """A run of `link`; then `links` is the file of the links.

    A run that any exception has ended resumes in `folder`, after the last complete iteration, and a completed one has
    nothing to do. Raises UsageError if the folder contains anything else, or a run with other texts or settings, and
    InputError for a text that cannot be read.
    """

    def __init__(
        self, source: Path, target: Path, folder: Path, config: LinkConfig, show: Show, notify: Notify
    ) -> None:
        self.folder, self.links, self.config = folder, folder / files.LINKS, config
        self._texts, self._work = (source, target), folder / _WORK
        self._show, self._notify = show, notify
        self._threads = worker_count(self.config.threads)
        self._record = self._open()

    def run(self) -> None:
        """Does the steps that remain."""
        if self._is_learned() and self._is_linked() and not self._work.exists():
            return
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.is_symlink():  # the folder may be untrusted, and writing would follow the link
                reason = "is a symbolic link, through which nmtalign does not write; replace it by a copy"
                raise ResourceError(f"{path}: {reason}")
        with files.folder_lock(self._work):
            files.sweep(self.folder)
            if not self._is_learned():
                self._read()
                self._learn()
            if not self._is_linked():
                self._align()
            shutil.rmtree(self._work, ignore_errors=True)

    def _is_learned(self) -> bool:
        """Returns whether the aligner and the lexicon exist; a damaged aligner is learned again."""
        with contextlib.suppress(FormatError):
            map_arrays(self.folder / files.ALIGNER)
            return (self.folder / LEXICON).exists()
        return False

    def _is_linked(self) -> bool:
        """Returns whether the file of the links has a line for each pair; a copy of it may be incomplete."""
        with contextlib.suppress(FileNotFoundError):
            stream = io.BufferedReader(files.open_regular(self.links))
            with stream, files.disk_errors(self.links, "read"):
                return sum(line.endswith(b"\n") for line in stream) == int(self._record["pairs"])
        return False

    def _open(self) -> dict[str, Any]:
        """Returns the record of the run in the folder, or of a new one."""
        hashes = []
        for path in self._texts:
            if is_stream(path):
                raise UsageError(f"{shown(path)}: is no file, and texts are read several times; give two text files")
            try:
                hashes.append(files.sha256_of(path))
            except OSError as error:
                raise InputError(f"{path}: cannot read: {error.strerror}; give an existing text file") from None
        kept = select(LinkConfig, lambda one: one.affects != "machine")
        settings = {name: getattr(self.config, name) for name in kept}
        if not (self.folder / _RECORD).exists():
            # A process that was killed may have left some files before the record was complete.
            own = (path.name == _WORK or path.match(files.INCOMPLETE) for path in self.folder.glob("*"))
            if not all(own):
                raise UsageError(f"{self.folder}: has files that are not of nmtalign link; give another folder with -o")
            return {"texts": hashes, "names": list(map(str, self._texts)), "settings": settings}
        found = _read_record(self.folder / _RECORD)
        if found["texts"] != hashes:
            texts = " and ".join(found["names"])
            raise UsageError(f"{self.folder}: has links of other or older texts ({texts}); give another folder with -o")
        if changed := [name for name, value in settings.items() if found["settings"].get(name) != value]:
            before = found["settings"]
            was = ", ".join(f"{name} was {toml(before.get(name))}, is {toml(settings[name])}" for name in changed)
            raise UsageError(f"{self.folder}: has links made with other settings: {was}; give another folder with -o")
        return found

    def _read(self) -> None:
        """Reads the words and the sentences of both sides, of no more pairs than can be learned from."""
        tell = functools.partial(self._show, LinkProgress(1, "reading the texts"))
        tell()
        check_spaces(self._texts, list(itertools.islice(read_pairs(*self._texts), _SPACES_SEEN_IN)), self._notify)
        count, cells = count_cells(read_pairs(*self._texts), tell)
        if not count:
            names = " and ".join(map(str, self._texts))
            raise InputError(f"{names}: no lines; give files with text")
        most = min(self.config.learn_from or count, count * MOST_CELLS // max(cells, 1) or 1, count)
        numbered = enumerate(read_pairs(*self._texts))
        sides = read_sides((pair for number, pair in numbered if agreement.is_chosen(number, most, count)), tell)
        self._tokenized = self.config.tokenized or all(side.has_free_commas() for side in sides)
        pieces = Pieces(lambda word: self._tokenized)
        parts = [in_pieces(list(side.index), side.sentences(), pieces) for side in sides]
        self._spellings, self._names, self._sides = zip(*parts, strict=True)
        rows = agreement.usable(self._sides)
        if 2 * len(rows) < most:
            few = f"{shown(self._texts[0])}: learning from only {len(rows):,} of {counted(most, 'pair')}"
            why = f"an empty side, or more than {agreement.LONGEST} words and marks on a side"
            self._notify(f"warning: {few}; the others have {why}; split long ones into sentences")
        lengths = [side.lengths()[rows] for side in self._sides]
        self._learned_from = max(1, min(len(rows), len(rows) * MOST_CELLS // max(1, int(lengths[0] @ lengths[1]))))
        self._record["pairs"] = count
        with files.atomic_text(self.folder / _RECORD, follow=False) as stream:
            stream.write(json.dumps(self._record, indent=2) + "\n")

    def _learn(self) -> None:
        self._show(LinkProgress(2, "learning"))
        learning = agreement.AgreeingModels(self._names, self._sides, self._threads, self._learned_from)
        state = self._work / _STATE
        if state.exists():
            try:
                learning.restore(map_arrays(state)[0])
            except (KeyError, ValueError, TypeError):
                raise FormatError(f"{state}: does not fit the texts; remove it, and the run begins again") from None
        began, first, others = time.monotonic(), _work_of(learning.done), self._record["pairs"] / self._learned_from

        def tell(share: float) -> None:
            done, whole = _work_of(learning.done + share), _work_of(agreement.ITERATIONS)
            pace = (time.monotonic() - began) / max(done - first, 1e-9)
            self._show(LinkProgress(2, "learning", done / whole, (whole - done + _ALIGNING * others) * pace))

        while learning.done < agreement.ITERATIONS:
            learning.iterate(tell)
            save_tensors(state, learning.state(), {})
        languages = [suffix_language(path) or side for path, side in zip(self._texts, SIDES, strict=True)]
        write_table(self.folder / LEXICON, learning.model.cells, learning.tables()[0], self._spellings)
        save_aligner(self.folder, learning, (languages[0], languages[1]), self._tokenized)
        del self._spellings, self._names, self._sides  # aligning needs the memory

    def _align(self) -> None:
        aligning = functools.partial(LinkProgress, 3, "aligning all pairs")
        self._show(aligning())
        aligner, partial, config = load_aligner(self.folder), files.PartialFile(self.links), AlignConfig()
        partial.open()
        try:
            first = size = end = 0
            with files.disk_errors(partial.partial, "read"), partial.partial.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    end += len(line)
                    if number % window_size(config) == 0 and line.endswith(b"\n"):
                        first, size = number, end
            partial.cut(size)  # a window that is done in part is aligned again, as before
            texts = itertools.islice(read_pairs(*self._texts), first, None)
            found = aligner.links(read_windows(aligner.read, texts, config, first), self._threads)
            began, left = time.monotonic(), self._record["pairs"] - first
            for new, (links, scores) in enumerate(found, 1):
                partial.write(f"{format_scored(links, scores)}\n".encode())
                seconds = (time.monotonic() - began) / new * (left - new)
                self._show(aligning((first + new) / (first + left), seconds))
            partial.rename(self.links)
            if note := aligner.left_out():
                self._notify(f"warning: {shown(self._texts[0])}: {note}")
        finally:
            partial.close()


def _read_record(path: Path) -> dict[str, Any]:
    """Reads the record of a run; raises FormatError if it is damaged."""
    kinds = {"texts": list, "names": list, "settings": dict, "pairs": int}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found: dict[str, Any] = files.read_json(path)
        whole = all(isinstance(found[name], kind) for name, kind in kinds.items())
        if whole and all(isinstance(name, str) for name in found["names"]) and found["pairs"] > 0:
            return found
    raise FormatError(f"{path}: damaged; remove this folder, or give another one with -o")


def _work_of(iterations: float) -> float:
    """Returns the time of the first iterations, and of a share of one, in iterations of the hidden Markov models."""
    return agreement.MODEL_1_TIME * min(iterations, agreement.MODEL_1) + max(0, iterations - agreement.MODEL_1)


def write_table(path: Path, cells: Cells, table: Table, spellings: Sequence[Sequence[Counter[str]]]) -> None:
    """Writes the translation table, a line `source<tab>target<tab>probability` for each entry.

    The aligner knows the probabilities t(f | e) of words, numbers and marks in lower case. The table has them as the
    texts write them: p(F | E) = t(f | e) * (share of the spelling F among the occurrences of f).
    `table` has the probabilities of `cells`; `spellings` are for each side those of its words. A source word has at
    most 20 entries, the most probable first. Words that a line cannot contain, and names for no word such as NULL, are
    left out.
    """
    probabilities = table.counts[:-1] / table.totals[cells.source]
    order = np.flatnonzero(probabilities >= _LEAST)
    order = order[np.lexsort((cells.target[order], -probabilities[order], cells.source[order]))]
    starts = np.searchsorted(cells.source[order], np.arange(len(spellings[0]) + 1)).tolist()
    totals = [counts.total() for counts in spellings[1]]
    written = sorted((word, own) for own, counts in enumerate(spellings[0]) for word in filter(_writable, counts))
    with files.atomic_text(path, follow=False) as stream:
        for source_word, own in written:
            places = order[starts[own] : starts[own + 1]][:_TRANSLATIONS]
            entries = [
                (probability * (count / totals[target]), word)
                for target, probability in zip(cells.target[places], probabilities[places].tolist(), strict=True)
                for word, count in spellings[1][target].items()
            ]
            likely = (entry for entry in entries if entry[0] >= _LEAST and _writable(entry[1]))
            best = sorted(likely, key=lambda entry: (-entry[0], entry[1]))[:_TRANSLATIONS]
            stream.writelines(f"{source_word}\t{target_word}\t{value:.5g}\n" for value, target_word in best)


def _writable(word: str) -> bool:
    return word not in NO_WORD and word not in (EOS, UNK) and _BLANKS.isdisjoint(word)
