"""Writing alignments to one HDF5 file, in constant memory; `nmtalign.alignment.layout` says what it holds."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.background import Background, State, taken_up
from nmtalign.alignment.building import build
from nmtalign.alignment.chunks import Columns, Row
from nmtalign.alignment.layout import DEFAULTS, WEIGHT_TYPES, attributes_of
from nmtalign.alignment.links import argmax_links
from nmtalign.alignment.reader import AlignmentFile
from nmtalign.alignment.record import AlignmentRecord, Link, check_shape
from nmtalign.alignment.settings import check_same, plain
from nmtalign.alignment.spool import Content, Spool
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import disk_errors, followed
from nmtalign.hdf5 import damage
from nmtalign.version import __version__

_BLOCK = 1000  # records that wait in memory,
BLOCK_CELLS = 2_000_000  # unless they have more cells than this together,
_SECONDS = 2.0  # or the oldest has waited so long; after so long what was written is brought to the disk, too


class AlignmentWriter:
    """Writes records: `with AlignmentWriter(path, {"model_hash": ...}) as writer: writer.append(...)`.

    The file is FILE.h5.partial until the block ends. If anything is raised in it, or the process is killed, FILE.h5 is
    what it was before, and FILE.h5.partial holds the records up to one of the last seconds (none, and there is no such
    file, if the error came within the first seconds). With `resume` the writer
    goes on with it: `records` says after `__enter__` how many records are done (`sentences`: of how many sentences,
    where the entries of an n-best list count as one), and the caller goes on with the next one; what comes out is byte
    for byte what an uninterrupted run writes. A FILE.h5 that is whole is gone on with, too, and left alone if nothing
    is added. Raises UsageError naming what differs if the file was begun with other `attributes`, `dtype` or `end`: so
    give all that the records depend on (hash of the model, options, SHA-256 of the texts). Without `resume` a
    FILE.h5.partial that was there is kept as `kept` (FILE.h5.partial.old), else None, until the file is whole.

    `dtype` float16 keeps a weight to within 0.00025; float32 keeps it as it is. `end` says whether the matrices have
    the row and the column of `</s>`: (Ty+1, Tx+1), or (Ty, Tx). `at_most` goes on after so many sentences or fewer.
    `left()` says in words, for a message, what an interruption has left: "; FILE.h5.partial holds 7 pairs, and ...".
    Raises ResourceError for what the disk refuses. Compressing and writing is done by a thread.
    """

    def __init__(
        self,
        path: Path,
        attributes: Mapping[str, Any],
        dtype: str = "float16",
        *,
        resume: bool = False,
        end: bool = True,
        at_most: int | None = None,
    ) -> None:
        if dtype not in WEIGHT_TYPES:
            raise ValueError(f"weights are stored as {' or '.join(WEIGHT_TYPES)}, not as {dtype!r}")
        self.path = path = followed(path)
        self.partial = path.parent / f"{path.name}.partial"
        self.kept: Path | None = None
        self.records = self.sentences = 0  # so far
        self.attributes = {**DEFAULTS, **attributes, **attributes_of(end)}
        self._dtype, self._resume, self._end, self._at_most = dtype, resume, end, at_most
        self._spool = Spool(self.partial, self.path)
        self._background: Background | None = None
        self._whole: AlignmentFile | None = None  # a file that is gone on with as soon as anything is added
        self._rows: list[Row] = []
        self._cells = 0
        self._committed = 0  # sentences
        self._worth_keeping = False  # whether there is a commit, or will be as soon as the thread gets to it
        self._last_id = 0
        self._handed_over = self._saved = time.monotonic()

    def __enter__(self) -> Self:
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"{self.path}: is no file that could be replaced; give another name")
        self._spool.open()
        try:
            self._begin()
        except BaseException:
            with contextlib.suppress(NmtalignError):
                self._stop()
            self._spool.close(remove=self._spool.is_empty())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._whole is not None:  # nothing was added
            self._whole.close()
            self._spool.close(remove=True)
        elif kind is None:
            self._finish()
        else:
            self._break_off()

    def left(self) -> str:
        """What an interruption has left, for the end of a message."""
        if not self._committed or not self.partial.exists():
            return ""
        return f"; {self.partial} holds {self._committed:,} pairs, and --resume goes on after them"

    def _settings(self) -> dict[str, Any]:
        given = {name: plain(value) for name, value in self.attributes.items()}
        return {**given, "weights": self._dtype}

    def _begin(self) -> None:
        """Finds what there is to go on with, or begins anew."""
        content = None
        if not self._resume:
            self._keep_what_is_there()
        elif not self._spool.is_empty():
            content = self._spool.look_back(self._at_most)
        elif self.path.exists():
            self._take_up_whole()
        if content is not None:
            check_same(self.partial, content.settings, self._settings())
            self._take_up(content)
        elif self._whole is None and self._background is None:
            self._spool.cut(0)
            self._start()

    def _start(self) -> None:
        try:
            self._spool.begin(self._settings())
        except NmtalignError:
            self._spool.cut(0)
            raise
        self._background = Background(self._spool, Columns(self._dtype, {}, {}), State())

    def _take_up(self, content: Content) -> None:
        with damage(self.partial, "file of an interrupted run", "move it away, or leave out --resume"):
            state, columns = taken_up(content.state), Columns(self._dtype, content.tails, content.state["totals"])
        self._spool.cut(content.end)
        self.records, self.sentences, self._last_id = state.records, state.sentences, state.last_id
        self._committed, self._worth_keeping = self.sentences, True
        self._background = Background(self._spool, columns, state)

    def _keep_what_is_there(self) -> None:
        """Moves a FILE.h5.partial that could be gone on with out of the way."""
        try:
            worth_keeping = self._spool.holds_a_commit()
        except NmtalignError:  # whatever it is, it is not ours
            worth_keeping = True
        if worth_keeping:
            old = self.partial.with_name(f"{self.partial.name}.old")
            with disk_errors(self.partial):
                self.partial.replace(old)
            self._spool.close()
            self._spool.open()
            self.kept = old

    def _take_up_whole(self) -> None:
        """Goes on with a FILE.h5 that is whole."""
        whole = AlignmentFile(self.path)
        settings = {name: value for name, value in self._settings().items() if name != "weights"}
        check_same(self.path, {**whole.attributes, "weights": whole.dtype}, {**settings, "weights": self._dtype})
        self.records, self.sentences, self._whole = len(whole), whole.sentence_count(), whole
        if self._at_most is not None and self.sentences > self._at_most:
            self._unpack_whole(self._at_most)

    def _unpack_whole(self, sentences: int | None = None) -> None:
        """Writes the records of the whole file again, or those of so many sentences."""
        whole, self._whole = self._whole, None
        if whole is None:
            return
        self.records = self.sentences = 0
        self._start()
        with whole:
            for record in whole:
                if record.rank == 0 and self.sentences == sentences:
                    break
                self.add(record)

    def append(
        self,
        source_tokens: Sequence[str],
        target_tokens: Sequence[str],
        weights: NDArray[Any],
        log_prob: float,
        sentence_id: int | None = None,
        links: Sequence[Link] | None = None,
        token_log_probs: Sequence[float] | NDArray[Any] | None = None,
        rank: int = 0,
    ) -> None:
        """Adds a record: `weights` (Ty+1, Tx+1) with the row and the column of `</s>`, words without it.

        Where they are not given `sentence_id` counts from 0, `links` are the argmax links and `token_log_probs` (Ty+1,)
        are not a number. The entries of an n-best list come one after the other, `rank` counting from 0. Raises
        ValueError for shapes that do not fit, a word that holds a line feed, a link outside its pair, and ranks out of
        order.
        """
        check_shape(source_tokens, target_tokens, weights, self._end)
        rows = len(target_tokens) + 1
        log_probs = np.full(rows, np.nan, np.float32) if token_log_probs is None else np.array(token_log_probs, "<f4")
        if log_probs.shape != (rows,):
            raise ValueError(f"log-probabilities have the shape {log_probs.shape}; these words and </s> need ({rows},)")
        links = tuple(argmax_links(weights, self._end) if links is None else links)
        for i, j in links:
            if not (0 <= i < len(source_tokens) and 0 <= j < len(target_tokens)):
                raise ValueError(f"the link {i}-{j} is outside its pair")
        if sentence_id is None:
            sentence_id = self._last_id if rank else self.sentences
        if rank and not (self.records and sentence_id == self._last_id):
            raise ValueError(f"entry {rank} of sentence {sentence_id} does not follow the one before it")
        row = Row(
            weights=np.array(weights, np.float32).reshape(-1),  # a copy: the caller may reuse its own
            texts=(_joined(source_tokens), _joined(target_tokens)),
            words=(len(source_tokens), len(target_tokens)),
            links=links,
            token_log_probs=log_probs,
            log_prob=log_prob,
            sentence_id=sentence_id,
            rank=rank,
        )
        self._take(row)

    def add(self, record: AlignmentRecord) -> None:
        """Adds a record as `align_pairs` makes it, and as a file gives it."""
        if record.end != self._end:
            raise ValueError(f"the record has end = {record.end}, and the file end = {self._end}")
        self.append(
            record.source,
            record.target,
            record.weights,
            record.log_prob,
            record.sentence_id,
            record.hard_links,
            record.token_log_probs,
            record.rank,
        )

    def _take(self, row: Row) -> None:
        if self._whole is not None:
            self._unpack_whole()
        if row.rank == 0:  # the sentence before is whole
            if self._is_due():
                self._hand_over(commit=time.monotonic() - self._saved >= _SECONDS)
            self.sentences += 1
        self._last_id = row.sentence_id
        self._rows.append(row)
        self._cells += len(row.weights)
        self.records += 1

    def _is_due(self) -> bool:
        waiting = len(self._rows)
        return bool(waiting) and (
            waiting >= _BLOCK or self._cells > BLOCK_CELLS or time.monotonic() - self._handed_over >= _SECONDS
        )

    def _hand_over(self, commit: bool) -> None:
        """Gives what waits, whole sentences, to the thread that writes."""
        if self._background is None:
            raise ValueError("records are added inside `with`")
        rows, self._rows, self._cells = self._rows, [], 0
        self._handed_over = time.monotonic()
        self._background.put(rows, commit)
        if commit:
            self._saved, self._worth_keeping = self._handed_over, True

    def _finish(self) -> None:
        """FILE.h5.partial becomes FILE.h5."""
        try:
            self._hand_over(commit=True)
            self._stop()
            build(self._spool, self.path, {**self.attributes, "nmtalign_version": __version__}, self._dtype)
        except BaseException:
            self._break_off()
            raise
        self._spool.close(remove=True)
        if self.kept is not None:
            with disk_errors(self.kept):
                self.kept.unlink(missing_ok=True)

    def _break_off(self) -> None:
        """Commits the sentences that are whole as far as anybody knows: not the last one, of which more may come.

        Of a run that ends before its first commit, in a second or two, nothing is left.
        """
        while self._rows and self._rows.pop().rank:
            pass
        with contextlib.suppress(NmtalignError, OSError):  # what has ended it is being raised already
            try:
                if self._worth_keeping and self._background is not None:
                    self._hand_over(commit=True)
            finally:
                self._stop()
        with contextlib.suppress(NmtalignError, OSError):
            self._spool.cut()
        nothing = self._spool.end == 0
        self._spool.close(remove=nothing)
        if nothing and self.kept is not None:
            with disk_errors(self.partial):
                self.kept.replace(self.partial)
            self.kept = None

    def _stop(self) -> None:
        if self._background is not None:
            background, self._background = self._background, None
            try:
                background.stop()
            finally:
                self._committed = max(self._committed, background.committed)


def _joined(words: Sequence[str]) -> bytes:
    """The words in UTF-8, a line feed after each; half a character, which JSON can hold, becomes U+FFFD."""
    text = "".join([f"{word}\n" for word in words])
    if text.count("\n") != len(words):
        raise ValueError("a word holds a line feed, which ends a word in the file")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
