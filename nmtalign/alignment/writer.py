"""Writing alignments to one HDF5 file, in constant memory; `nmtalign.alignment.layout` says what it holds."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.layout import ATTRIBUTES, DATASETS, OFFSETS, SIDES, WEIGHT_TYPES
from nmtalign.alignment.links import argmax_links
from nmtalign.alignment.record import AlignmentRecord, Link, check_shape
from nmtalign.files import atomic_path
from nmtalign.version import __version__

_BLOCK = 1000  # records that wait in memory,
BLOCK_CELLS = 2_000_000  # unless they have more cells than this together


class _Column:
    """A dataset that grows at its end: what is appended waits in memory for `write`."""

    def __init__(self, dataset: Any) -> None:
        self.total = 0
        self._dataset = dataset
        self._dtype, self._shape = dataset.dtype, (-1, *dataset.shape[1:])  # asking the dataset each time is slow
        self._pending: list[NDArray[Any]] = []

    def append(self, values: Any) -> None:
        array = np.array(values, dtype=self._dtype).reshape(self._shape)  # a copy: the caller may reuse its own
        self._pending.append(array)
        self.total += len(array)

    def write(self) -> None:
        if self._pending:
            size = len(self._dataset)
            self._dataset.resize(self.total, axis=0)
            self._dataset[size:] = np.concatenate(self._pending)
            self._pending.clear()


class AlignmentWriter:
    """Writes records: `with AlignmentWriter(path, {"model_hash": ...}) as writer: writer.append(...)`.

    The file is FILE.h5.partial until the block ends. If anything is raised in it, or the process is killed, FILE.h5 is
    what it was before, and FILE.h5.partial holds the records up to one of the last seconds. With `resume` the writer
    goes on with it: `records` says after `__enter__` how many records are done (`sentences`: of how many sentences,
    where the entries of an n-best list count as one), and the caller goes on with the next one; what comes out is byte
    for byte what an uninterrupted run writes. A FILE.h5 that is whole is gone on with, too, and left alone if nothing
    is added. Raises UsageError naming what differs if the file was begun with other `attributes`, `dtype` or `end`: so
    give all that the records depend on (hash of the model, options, SHA-256 of the texts). Without `resume` a
    FILE.h5.partial that was there is kept as `kept` (FILE.h5.partial.old), else None, until the file is whole.

    `dtype` float16 keeps a weight to within 0.00025; float32 keeps it as it is. `end` says whether the matrices have
    the row and the column of `</s>`: (Ty+1, Tx+1), or (Ty, Tx). `at_most` goes on after so many sentences or fewer.
    `left()` says in words, for a message, what an interruption has left: "; FILE.h5.partial holds 7 pairs, and ...".
    """

    kept: Path | None = None

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
        self.path = path
        self.attributes = {**attributes, **ATTRIBUTES, "nmtalign_version": __version__}
        self._weight_type = WEIGHT_TYPES[dtype]
        self._stack = contextlib.ExitStack()
        self._columns: dict[str, _Column] = {}
        self._words = dict.fromkeys(SIDES, 0)
        self.records = 0  # so far
        self._waiting = self._waiting_cells = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(atomic_path(self.path))
            # A layout that every HDF5 tool since 1.8 reads.
            file = stack.enter_context(h5py.File(temporary, "w", libver=("earliest", "v110"), locking=False))
            file.attrs.update(self.attributes)
            self._columns = {name: self._column(file, name) for name in DATASETS}
            for name in OFFSETS:
                self._columns[name].append(0)
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    @property
    def sentences(self) -> int:
        """Sentences so far: records of rank 0."""
        return self.records

    def left(self) -> str:
        """What an interruption has left, for a message."""
        return ""

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()

    def _column(self, file: Any, name: str) -> _Column:
        kind, chunk = DATASETS[name]
        tail = (2,) if name == "links" else ()
        return _Column(
            file.create_dataset(
                name,
                shape=(0, *tail),
                maxshape=(None, *tail),
                chunks=(chunk, *tail),
                dtype=self._weight_type if name == "weights" else kind,
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )
        )

    def append(
        self,
        source_tokens: Sequence[str],
        target_tokens: Sequence[str],
        weights: NDArray[Any],
        log_prob: float,
        sentence_id: int | None = None,
        links: Sequence[Link] | None = None,
        token_log_probs: Sequence[float] | NDArray[Any] | None = None,
    ) -> None:
        """Adds a record: `weights` (Ty+1, Tx+1) with the row and the column of `</s>`, words without it.

        Where they are not given `sentence_id` counts from 0, `links` are the argmax links and `token_log_probs` (Ty+1,)
        are not a number. Raises ValueError for shapes that do not fit and for a word that holds a line feed.
        """
        check_shape(source_tokens, target_tokens, weights)
        rows = len(target_tokens) + 1
        log_probs = np.full(rows, np.nan) if token_log_probs is None else np.asarray(token_log_probs)
        if log_probs.shape != (rows,):
            raise ValueError(f"log-probabilities have the shape {log_probs.shape}; these words and </s> need ({rows},)")
        texts = _joined(source_tokens), _joined(target_tokens)
        for side, words, text in zip(SIDES, (source_tokens, target_tokens), texts, strict=True):
            self._words[side] += len(words)
            self._columns[f"{side}/word_offsets"].append(self._words[side])
            self._grow(f"{side}/text", f"{side}/text_offsets", text)
        self._grow("weights", "weight_offsets", weights)
        self._grow("links", "link_offsets", argmax_links(weights) if links is None else links)
        self._columns["token_log_prob"].append(log_probs)
        self._columns["log_prob"].append(log_prob)
        self._columns["sentence_id"].append(self.records if sentence_id is None else sentence_id)
        self._count(weights.size)

    def add(self, record: AlignmentRecord) -> None:
        """Adds a record as `align_pairs` makes it."""
        self.append(
            record.source,
            record.target,
            record.weights,
            record.log_prob,
            record.sentence_id,
            record.hard_links,
            record.token_log_probs,
        )

    def _grow(self, name: str, offsets: str, values: Any) -> None:
        self._columns[name].append(values)
        self._columns[offsets].append(self._columns[name].total)

    def _count(self, cells: int) -> None:
        self.records += 1
        self._waiting += 1
        self._waiting_cells += cells
        if self._waiting >= _BLOCK or self._waiting_cells > BLOCK_CELLS:
            self._flush()

    def _flush(self) -> None:
        for column in self._columns.values():
            column.write()
        self._waiting = self._waiting_cells = 0


def _joined(words: Sequence[str]) -> NDArray[np.uint8]:
    """The bytes of the words, a line feed after each."""
    text = "".join([f"{word}\n" for word in words])
    if text.count("\n") != len(words):
        raise ValueError("a word holds a line feed, which ends a word in the file")
    return np.frombuffer(text.encode(), dtype=np.uint8)
