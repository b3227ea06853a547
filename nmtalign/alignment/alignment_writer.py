"""Writing alignments to one HDF5 file, in constant memory. `nmtalign.alignment.layout` documents the format."""

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.layout import DEFAULTS, WEIGHT_TYPES, ColumnBuffers, PackedRecord, format_attributes
from nmtalign.alignment.links import AlignmentRecord, Link, argmax_links, check_shape, row_entropies
from nmtalign.alignment.partial_alignments import CHUNK, TAIL, Commit, PartialAlignments, build, check_same
from nmtalign.errors import NmtalignError
from nmtalign.files import disk_errors
from nmtalign.version import __version__

_BLOCK = 1000  # records are given to the writing thread when this number waits in memory,
_BLOCK_CELLS = 2_000_000  # or when they have more cells than this together,
COMMIT_SECONDS = 2.0  # or when this time has passed; commits are this far apart
_BLOCKS_AHEAD = 2  # blocks that may wait for the writing thread


class Progress(NamedTuple):
    """Counts of the records that were written; a commit stores them."""

    records: int = 0
    sentences: int = 0
    last_id: int = -(2**63)
    rises: bool = True  # whether the ids of the sentences never fall

    def after(self, records: Sequence[PackedRecord]) -> "Progress":
        """Returns the counts after more records."""
        ids = [self.last_id, *(record.sentence_id for record in records)]
        sentences = self.sentences + sum(record.rank == 0 for record in records)
        return Progress(self.records + len(records), sentences, ids[-1], self.rises and ids == sorted(ids))


class AlignmentWriter:
    """Writes records: `with AlignmentWriter(path, {"model_hash": ...}) as writer: writer.append(...)`.

    The file is called FILE.h5.partial until the block ends. If an error is raised in the block, or the process is
    killed, FILE.h5 does not change, and FILE.h5.partial contains the records up to a commit in the last seconds. (An
    error in the first seconds, before any commit, leaves no such file.)

    With `resume` the writer continues that file, or adds to a complete FILE.h5, which does not change if nothing is
    added. After `__enter__`, `records` counts the records that exist and `sentences` their sentences (an n-best list
    is one sentence); the caller continues with the next one. The result is byte for byte that of an uninterrupted run.
    UsageError names the difference if the file was begun with other `attributes`, `dtype` or `end`; so the attributes
    should include all that the records depend on (hash of the model, options, SHA-256 of the texts). `at_most` resumes
    after at most this number of sentences. Without `resume` an existing FILE.h5.partial is renamed to `kept`
    (FILE.h5.partial.old) until the new file is complete.

    `dtype` float16 stores a weight to within 0.00025, float32 exactly. `end` says whether matrices have the row and
    the column of `</s>`: (Ty+1, Tx+1), or (Ty, Tx). `left()` reports what remains after an interruption. A thread
    compresses and writes, and commits every `commit_seconds`. Raises ResourceError if the disk refuses.
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
        commit_seconds: float | None = None,
    ) -> None:
        if dtype not in WEIGHT_TYPES:
            raise ValueError(f"weights are stored as {' or '.join(WEIGHT_TYPES)}, not as {dtype!r}")
        self.kept: Path | None = None
        self.attributes = {**DEFAULTS, **attributes, **format_attributes(end)}
        self._dtype, self._resume, self._end, self._at_most = dtype, resume, end, at_most
        self._commit_seconds = COMMIT_SECONDS if commit_seconds is None else commit_seconds
        self._file = PartialAlignments(path)
        self.path, self.partial = self._file.path, self._file.partial
        self._complete: AlignmentFile | None = None  # a complete file that is copied as soon as anything is added
        self.records = self.sentences = 0  # so far
        self._last_id = 0
        self._waiting: list[PackedRecord] = []  # records for the next block
        self._cells = 0  # of the waiting records
        self._thread = ThreadPoolExecutor(1, "nmtalign-alignments")
        self._blocks: deque[Future[None]] = deque()  # the last blocks of the thread
        # Only the thread changes these. It counts what it writes, so that a commit never counts too much.
        self._columns: ColumnBuffers | None = None
        self._written = Progress()
        self._failed = False  # if a block was not written to its end, nothing more is written
        self._has_commit = False  # whether the file has a commit, or the thread will write one
        self._handed_over = self._saved = time.monotonic()

    def __enter__(self) -> Self:
        self._file.open()
        try:
            self._begin()
        except BaseException:
            self._thread.shutdown()
            self._file.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._complete is not None:  # nothing was added
            self._complete.close()
            self._thread.shutdown()
            self._file.close(remove=True)
        elif kind is None:
            self._finish()
        else:
            self._break_off()

    def left(self) -> str:
        """Returns what remains after an interruption, for the end of a message; "" if nothing."""
        if not self._file.sentences or not self.partial.exists():
            return ""
        return f"; {self.partial} has {self._file.sentences:,} pairs, and --resume continues after them"

    def _settings(self) -> dict[str, Any]:
        attributes = self.attributes.items()
        given = {name: value.item() if isinstance(value, np.generic) else value for name, value in attributes}
        return {**given, "weights": self._dtype}

    def _begin(self) -> None:
        """Resumes from what exists, or starts a new file."""
        if not self._resume:
            self._keep_old()
        elif not self._file.is_empty():
            commit = self._file.last_commit(self._at_most)
            if commit is not None:
                self._resume_commit(commit)
        elif self.path.exists():
            self._resume_complete()
        if self._complete is None and self._columns is None:
            self._start()

    def _start(self) -> None:
        try:
            self._file.begin(self._settings())
        except NmtalignError:
            self._file.cut(0)
            raise
        self._columns = ColumnBuffers(self._dtype, {}, {})

    def _resume_commit(self, commit: Commit) -> None:
        check_same(self.partial, commit.settings, self._settings())
        self._columns = ColumnBuffers(self._dtype, commit.tails, commit.state["totals"])
        self._written = Progress(*(commit.state[name] for name in Progress._fields))
        self.records, self.sentences, self._last_id, _ = self._written
        self._file.resume(commit)
        self._has_commit = True

    def _keep_old(self) -> None:
        """Renames a FILE.h5.partial from which a run could resume."""
        try:
            resumable = self._file.last_commit() is not None
        except NmtalignError:  # a damaged file, or one of another kind
            resumable = True
        if resumable:
            self._file.set_aside()
            self.kept = self._file.old

    def _resume_complete(self) -> None:
        """Resumes from a complete FILE.h5."""
        complete = AlignmentFile(self.path)
        check_same(self.path, {**complete.attributes, "weights": complete.dtype}, self._settings())
        self.records, self.sentences, self._complete = len(complete), complete.sentence_count(), complete
        if self._at_most is not None and self.sentences > self._at_most:
            self._copy_complete(self._at_most)

    def _copy_complete(self, sentences: int | None = None) -> None:
        """Writes the records of the complete file again, or those of its first `sentences` sentences."""
        complete, self._complete = self._complete, None
        if complete is None:
            return
        self.records = self.sentences = 0
        self._start()
        with complete:
            for record in complete:
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

        By default `sentence_id` counts from 0, `links` are the argmax links and `token_log_probs` (Ty+1,) are NaN. The
        entries of an n-best list follow each other with `rank` 0, 1, ... Raises ValueError for shapes that do not fit,
        a word with a line feed, a link outside its pair, and ranks out of order.
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
        record = PackedRecord(
            weights=np.array(weights, np.float32).reshape(-1),  # a copy: the caller may reuse its own
            texts=(_joined(source_tokens), _joined(target_tokens)),
            words=(len(source_tokens), len(target_tokens)),
            links=links,
            token_log_probs=log_probs,
            entropies=row_entropies(np.array(weights, self._dtype), self._end),  # of the weights as they are stored
            log_prob=log_prob,
            sentence_id=sentence_id,
            rank=rank,
        )
        self._take(record)

    def add(self, record: AlignmentRecord) -> None:
        """Adds a record as `align` makes it and as `AlignmentFile` reads it."""
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

    def _take(self, record: PackedRecord) -> None:
        if self._complete is not None:
            self._copy_complete()
        seconds = time.monotonic() - self._handed_over
        due = len(self._waiting) >= _BLOCK or self._cells > _BLOCK_CELLS or seconds >= self._commit_seconds
        if record.rank == 0 and due and self._waiting:  # the sentence before is complete
            self._hand_over(commit=time.monotonic() - self._saved >= self._commit_seconds)
        self.records += 1
        self.sentences += record.rank == 0
        self._last_id = record.sentence_id
        self._waiting.append(record)
        self._cells += len(record.weights)

    def _hand_over(self, commit: bool) -> None:
        """Gives the waiting records (complete sentences) to the writing thread; raises the errors of earlier blocks."""
        if self._columns is None:
            raise ValueError("records are added inside `with`")
        rows, self._waiting, self._cells = self._waiting, [], 0
        self._handed_over = time.monotonic()
        self._wait(_BLOCKS_AHEAD)
        self._blocks.append(self._thread.submit(self._write, self._columns, rows, commit))
        if commit:
            self._saved, self._has_commit = self._handed_over, True

    def _wait(self, most: int) -> None:
        """Waits until the thread has at most this number of blocks; raises its errors."""
        while len(self._blocks) > most:
            self._blocks.popleft().result()

    def _write(self, columns: ColumnBuffers, records: Sequence[PackedRecord], commit: bool) -> None:
        """Compresses and writes a block, then with `commit` a commit. The thread runs this."""
        if self._failed:
            return
        self._failed = True  # until all is written
        if records:
            for number, packed in columns.add(records):
                self._file.append(CHUNK, number, packed)
            self._written = self._written.after(records)
        if commit:
            for number, raw in columns.unsaved():
                self._file.append(TAIL, number, raw)
            self._file.commit({**self._written._asdict(), "totals": columns.totals})
        self._failed = False

    def _finish(self) -> None:
        """Turns FILE.h5.partial into FILE.h5."""
        try:
            self._hand_over(commit=True)
            self._wait(0)
            build(self._file, {**self.attributes, "nmtalign_version": __version__}, self._dtype)
        except BaseException:
            self._break_off()
            raise
        self._thread.shutdown()
        self._file.close(remove=True)
        if self.kept is not None:
            with disk_errors(self.kept):
                self.kept.unlink(missing_ok=True)

    def _break_off(self) -> None:
        """Commits the complete sentences: all except the last one, of which more entries may follow.

        A run that ends before its first commit leaves nothing.
        """
        while self._waiting and self._waiting.pop().rank:
            pass
        with contextlib.suppress(NmtalignError, OSError):  # the first error is being raised already
            if self._has_commit:
                self._hand_over(commit=True)
                self._wait(0)
        self._thread.shutdown()
        with contextlib.suppress(NmtalignError, OSError):
            self._file.cut(self._file.end)
        nothing = self._file.end == 0
        self._file.close(remove=nothing)
        if nothing and self.kept is not None:
            with disk_errors(self.partial):
                self.kept.replace(self.partial)
            self.kept = None


def _joined(words: Sequence[str]) -> bytes:
    """Returns the words in UTF-8, each followed by a line feed; a lone surrogate, possible in JSON, becomes U+FFFD."""
    text = "".join([f"{word}\n" for word in words])
    if text.count("\n") != len(words):
        raise ValueError("a word contains a line feed, which ends a word in the file")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
