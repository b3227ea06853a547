"""The layout of an alignment file (HDF5, format version 4), and how records become its compressed chunks.

The file contains flat arrays and 64-bit offsets: no group per sentence and no variable-length types, so that every HDF5
tool can read it. Record k (counted from 0) is one sentence pair of Tx source and Ty target words. A matrix has Ty + 1
rows (target words, then `</s>`) and Tx + 1 columns (source words, then `</s>`): the weight of source word i at target
word j of record k is weights[weight_offsets[k] + j * (Tx + 1) + i]. Each row sums to 1, or to 0 where one side of the
pair is empty; the weights of local-p attention are normalised. If `</s>` was dropped, a matrix has Ty rows and Tx
columns. All log-probabilities are natural logarithms; they are NaN for a pair that no model has read, because a side is
empty.

The attributes of the root (`format_attributes` and DEFAULTS) repeat these facts and record how the file was made.
`sentence_ids_rise` says that sentence_id never falls, which allows binary search.
"""

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.links import Link

Array = NDArray[Any]

FORMAT = "nmtalign alignments"
FORMAT_VERSION = 4
SIDES = ("source", "target")
# Each dataset with its type and the values per chunk. With small chunks a sentence is read in well under a millisecond.
DATASETS: Mapping[str, tuple[str, int]] = {
    "weights": ("<f2", 16384),  # or <f4: the matrices, one after the other, row by row
    "source/text": ("|u1", 16384),  # UTF-8, each word followed by one line feed
    "target/text": ("|u1", 16384),
    "links": ("<i4", 2048),  # pairs (source, target), both counted from 0
    "token_log_prob": ("<f4", 4096),  # for each target word, then for </s>; record k starts at word_offsets[k] + k
    "log_prob": ("<f8", 1024),  # their sum
    "sentence_id": ("<i8", 1024),  # line of the pair in its file, counted from 0
    "rank": ("<i4", 1024),  # place in the sentence's n-best list, from 0
    "weight_offsets": ("<i8", 1024),  # the first cell of each record; one more than records, as in all offsets
    "link_offsets": ("<i8", 1024),
    "source/text_offsets": ("<i8", 1024),  # in bytes
    "source/word_offsets": ("<i8", 1024),  # the number of words before each record, so that Tx is a difference
    "target/text_offsets": ("<i8", 1024),
    "target/word_offsets": ("<i8", 1024),
    "entropy": ("<f4", 4096),  # of each stored row, in nats; as token_log_prob, NaN for `</s>` if it was dropped
}
NAMES = tuple(DATASETS)
OFFSETS = tuple(name for name in NAMES if name.endswith("_offsets"))
COMPRESSION = 1  # level of gzip: higher levels take several times as long for hardly smaller files
WEIGHT_TYPES: Mapping[str, str] = {"float16": "<f2", "float32": "<f4"}
# The attributes of a file whose writer is given no others.
DEFAULTS: Mapping[str, object] = {
    "model_hash": "",
    "direction": "",
    "made_by": "",
    "options": "{}",
    "seed": 0,
    "links_method": "argmax",
    "symmetrization": "none",
}


def format_attributes(end: bool) -> Mapping[str, object]:
    """Returns the attributes that describe the format; `end`: matrices have the row and the column of `</s>`."""
    then, width = (", then </s>", "(Tx + 1)") if end else ("", "Tx")
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "links_order": "source, target; both counted from 0; </s> has no links",
        "text": "UTF-8; each word is followed by one line feed",
        "log_prob_unit": "natural logarithm; </s> included",
        "entropy_unit": "nats",
        "rows": f"target words{then}",
        "columns": f"source words{then}",
        "end_of_sentence_row": end,
        "end_of_sentence_column": end,
        "index_order": f"record, row (target), column (source): cell = weight_offsets[record] + row * {width} + column",
    }


def value_shape(name: str) -> tuple[int, ...]:
    """Returns the shape of one value of a dataset: a link is two numbers, every other value is one."""
    return (2,) if name == "links" else ()


def dataset_type(name: str, weights: str) -> np.dtype[Any]:
    """Returns the type of a dataset; `weights` is float16 or float32."""
    return np.dtype(WEIGHT_TYPES[weights] if name == "weights" else DATASETS[name][0])


def lengths(records: int, totals: Mapping[str, int]) -> dict[str, int]:
    """Returns the length that each dataset must have; `totals` is the last value of each of OFFSETS."""
    return {
        **dict.fromkeys(OFFSETS, records + 1),
        **dict.fromkeys(("log_prob", "sentence_id", "rank"), records),
        **{f"{side}/text": totals[f"{side}/text_offsets"] for side in SIDES},
        "weights": totals["weight_offsets"],
        "links": totals["link_offsets"],
        **dict.fromkeys(("token_log_prob", "entropy"), totals["target/word_offsets"] + records),
    }


class PackedRecord(NamedTuple):
    """A record that waits to be written: flat float32 weights; for each side the text and the number of words."""

    weights: Array
    texts: tuple[bytes, bytes]  # UTF-8, each word followed by a line feed
    words: tuple[int, int]
    links: Sequence[Link]
    token_log_probs: Array
    entropies: Array
    log_prob: float
    sentence_id: int
    rank: int


class ColumnBuffers:
    """The datasets while they grow: for each the values that do not fill a chunk yet, and the last offsets."""

    def __init__(self, weights: str, tails: Mapping[int, bytes], totals: Mapping[str, int]) -> None:
        """`tails`: raw bytes by dataset number; `totals`: the last value of each of OFFSETS. Both start empty."""
        self._types = [dataset_type(name, weights) for name in NAMES]
        self._tails = [self._shaped(n, np.frombuffer(tails.get(n, b""), kind)) for n, kind in enumerate(self._types)]
        self._saved = [len(tail) for tail in self._tails]  # values of each tail that the partial file has
        self.totals = dict(totals)
        if not totals:
            self.totals = dict.fromkeys(OFFSETS, 0)
            for name in OFFSETS:
                self._tails[NAMES.index(name)] = np.zeros(1, np.int64)

    def add(self, records: Sequence[PackedRecord]) -> Iterator[tuple[int, bytes]]:
        """Adds records; yields (dataset number, compressed bytes) of each full chunk, in the order they were filled.

        So the order does not depend on how many records are added at a time.
        """
        found: list[tuple[int, int, Array]] = []
        columns = self._columns(records)
        for number, name in enumerate(NAMES):
            values, ends = columns[name]
            size, tail = DATASETS[name][1], self._tails[number]
            joined = np.concatenate((tail, self._shaped(number, np.asarray(values, self._types[number]))))
            full = len(joined) // size
            by = np.searchsorted(ends, np.arange(1, full + 1) * size - len(tail)).tolist()
            found += [(by[k], number, joined[k * size : (k + 1) * size]) for k in range(full)]
            self._tails[number] = joined[full * size :].copy()
            if full:
                self._saved[number] = 0
        for _, number, chunk in sorted(found, key=lambda each: each[:2]):
            yield number, pack(chunk)

    def unsaved(self) -> Iterator[tuple[int, bytes]]:
        """Yields what was added to each tail since the last call."""
        for number, tail in enumerate(self._tails):
            if len(tail) > self._saved[number]:
                yield number, tail[self._saved[number] :].tobytes()
                self._saved[number] = len(tail)

    def _shaped(self, number: int, values: Array) -> Array:
        return values.reshape(-1, *value_shape(NAMES[number]))

    def _columns(self, records: Sequence[PackedRecord]) -> dict[str, tuple[Any, Array]]:
        """Returns for each dataset the values of the records, and the number of values up to the end of each record."""
        each = np.arange(1, len(records) + 1)
        weights = np.concatenate([record.weights for record in records])
        log_probs = [record.token_log_probs for record in records]
        entropies = [record.entropies for record in records]
        links = [record.links for record in records]
        ends = {
            "weight_offsets": _ends([len(record.weights) for record in records]),
            "link_offsets": _ends([len(some) for some in links]),
        }
        columns: dict[str, tuple[Any, Array]] = {
            "weights": (to_half(weights) if self._types[0].itemsize == 2 else weights, ends["weight_offsets"]),
            "links": (list(itertools.chain.from_iterable(links)), ends["link_offsets"]),
            "token_log_prob": (np.concatenate(log_probs), _ends([len(some) for some in log_probs])),
            "entropy": (np.concatenate(entropies), _ends([len(some) for some in entropies])),
            "log_prob": ([record.log_prob for record in records], each),
            "sentence_id": ([record.sentence_id for record in records], each),
            "rank": ([record.rank for record in records], each),
        }
        for place, side in enumerate(SIDES):
            texts = [record.texts[place] for record in records]
            ends[f"{side}/text_offsets"] = _ends([len(text) for text in texts])
            ends[f"{side}/word_offsets"] = _ends([record.words[place] for record in records])
            columns[f"{side}/text"] = np.frombuffer(b"".join(texts), np.uint8), ends[f"{side}/text_offsets"]
        for name, added in ends.items():
            columns[name] = self.totals[name] + added, each
            self.totals[name] += int(added[-1])
        return columns


def _ends(sizes: Sequence[int]) -> Array:
    return np.cumsum(np.array(sizes, np.int64))


def to_half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Converts float32 to the nearest float16, with the result of `astype` in a third of its time.

    `astype` is slow for numbers below 2^-14, which are frequent among weights. There float16 has steps of 2^-24, and
    its bits are the number of steps.
    """
    small = np.abs(values) < 2**-14
    halves = np.where(small, np.copysign(np.float32(0), values), values).astype("<f2")
    steps = np.where(small, np.abs(values) * np.float32(2**24), np.float32(0))
    halves.view("<u2")[:] |= np.rint(steps).astype("<u2")
    return halves


def pack(chunk: Array) -> bytes:
    """Returns the bytes of a chunk after HDF5's filters: shuffle (first bytes of all values first), then gzip."""
    flat = np.ascontiguousarray(chunk).reshape(-1)
    if flat.itemsize > 1:
        flat = np.ascontiguousarray(flat.view(np.uint8).reshape(-1, flat.itemsize).T)
    return zlib.compress(flat.data, COMPRESSION)
