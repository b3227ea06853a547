"""Records cut into the chunks of the datasets, compressed as HDF5 compresses them, in an order that never varies."""

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.layout import COMPRESSION, DATASETS, OFFSETS, SIDES, SPANS, WEIGHT_TYPES, row_shape
from nmtalign.alignment.record import Link

Array = NDArray[Any]
NAMES = tuple(DATASETS)


@dataclass(frozen=True)
class Row:
    """A record as it waits: flat float32 weights; for each side the words, a line feed after each, and how many."""

    weights: Array
    texts: tuple[bytes, bytes]
    words: tuple[int, int]
    links: Sequence[Link]
    token_log_probs: Array
    log_prob: float
    sentence_id: int
    rank: int


def column_type(name: str, weights: str) -> np.dtype[Any]:
    """The type of a dataset; `weights`: float16 or float32."""
    return np.dtype(WEIGHT_TYPES[weights] if name == "weights" else DATASETS[name][0])


class Columns:
    """The datasets while they grow: what is not yet a whole chunk of each, and the totals that offsets go on from."""

    def __init__(self, weights: str, tails: Mapping[int, bytes], totals: Mapping[str, int]) -> None:
        """`tails`: raw bytes by number of the dataset; `totals`: the last of each of OFFSETS. Empty: from the start.

        Raises ValueError for a number that no dataset has, and for bytes that are no whole values.
        """
        if not all(0 <= number < len(NAMES) for number in tails):
            raise ValueError("holds a dataset that alignment files do not have")
        self._types = [column_type(name, weights) for name in NAMES]
        self.totals = dict.fromkeys(OFFSETS, 0) | dict(totals)
        self._tails = [self._from_bytes(number, tails.get(number, b"")) for number in range(len(NAMES))]
        self._saved = [len(tail) for tail in self._tails]  # how much of a tail the spool has
        if not totals:
            for name in OFFSETS:
                number = NAMES.index(name)
                self._tails[number] = np.zeros(1, self._types[number])

    def add(self, rows: Sequence[Row]) -> Iterator[tuple[int, bytes]]:
        """Adds records; yields each chunk that is now whole, with its dataset's number, by the record that fills it."""
        found: list[tuple[int, int, Array]] = []
        for number, (values, ends) in enumerate(map(self._values(rows).__getitem__, NAMES)):
            size = DATASETS[NAMES[number]][1]
            joined = np.concatenate((self._tails[number], values))
            full = len(joined) // size
            filled = np.arange(1, full + 1) * size - len(self._tails[number])
            by = np.searchsorted(ends, filled).tolist()
            found += [(by[k], number, joined[k * size : (k + 1) * size]) for k in range(full)]
            self._tails[number] = joined[full * size :].copy()
            if full:
                self._saved[number] = 0
        for _, number, chunk in sorted(found, key=lambda each: each[:2]):
            yield number, pack(chunk)

    def unsaved(self) -> Iterator[tuple[int, bytes]]:
        """What was added to the tails since this was last asked for."""
        for number, tail in enumerate(self._tails):
            if len(tail) > self._saved[number]:
                yield number, tail[self._saved[number] :].tobytes()
                self._saved[number] = len(tail)

    def _stored(self, weights: Sequence[Array]) -> Array:
        joined = np.concatenate(weights)
        return to_half(joined) if self._types[NAMES.index("weights")].itemsize == 2 else joined

    def _from_bytes(self, number: int, raw: bytes) -> Array:
        return np.frombuffer(raw, self._types[number]).reshape(-1, *row_shape(NAMES[number]))

    def _values(self, rows: Sequence[Row]) -> dict[str, tuple[Array, Array]]:
        """For each dataset the values of the rows, and for each row how many there are up to its end."""
        counts = {
            "weights": _counts(len(row.weights) for row in rows),
            "links": _counts(len(row.links) for row in rows),
            "token_log_prob": _counts(len(row.token_log_probs) for row in rows),
        }
        values: dict[str, Any] = {
            "weights": self._stored([row.weights for row in rows]),
            "links": list(itertools.chain.from_iterable(row.links for row in rows)),
            "token_log_prob": np.concatenate([row.token_log_probs for row in rows]),
            "log_prob": [row.log_prob for row in rows],
            "sentence_id": [row.sentence_id for row in rows],
            "rank": [row.rank for row in rows],
        }
        added = {"weight_offsets": counts["weights"], "link_offsets": counts["links"]}
        for place, side in enumerate(SIDES):
            counts[f"{side}/text"] = added[f"{side}/text_offsets"] = _counts(len(row.texts[place]) for row in rows)
            added[f"{side}/word_offsets"] = _counts(row.words[place] for row in rows)
            values[f"{side}/text"] = np.frombuffer(b"".join([row.texts[place] for row in rows]), np.uint8)
        for name, ends in added.items():
            values[name] = self.totals[name] + ends
            self.totals[name] = int(values[name][-1])
        each = np.arange(1, len(rows) + 1)
        return {
            name: (np.asarray(values[name], self._types[number]).reshape(-1, *row_shape(name)), counts.get(name, each))
            for number, name in enumerate(NAMES)
        }


def to_half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """float32 to float16, each rounded to the nearest, as `astype` does it, in a third of its time.

    What `astype` takes its time for are numbers below 2^-14, of which weights have many. There float16 counts in steps
    of 2^-24, and its bits are the count.
    """
    small = np.abs(values) < 2**-14
    halves = np.where(small, np.copysign(np.float32(0), values), values).astype("<f2")
    counts = np.where(small, np.abs(values) * np.float32(2**24), np.float32(0))
    halves.view("<u2")[:] |= np.rint(counts).astype("<u2")
    return halves


def _counts(lengths: Iterable[int]) -> Array:
    return np.cumsum(np.fromiter(lengths, np.int64))


def pack(chunk: Array) -> bytes:
    """A chunk's bytes after HDF5's shuffle, which puts the first bytes of all values first, and its gzip."""
    flat = np.ascontiguousarray(chunk).reshape(-1)
    if flat.itemsize > 1:
        flat = np.ascontiguousarray(flat.view(np.uint8).reshape(-1, flat.itemsize).T)
    return zlib.compress(flat.data, COMPRESSION)


def lengths_of(state: Mapping[str, Any]) -> dict[str, int]:
    """How many values each dataset has, after a commit whose state has `records` and `totals` (the last offsets)."""
    records, totals = state["records"], state["totals"]
    return {
        **dict.fromkeys(OFFSETS, records + 1),
        **dict.fromkeys(("log_prob", "sentence_id", "rank"), records),
        **{data: totals[offsets] for data, offsets in SPANS},
        "token_log_prob": totals["target/word_offsets"] + records,
    }
