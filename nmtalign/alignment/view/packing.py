"""How records travel inside a page: blocks of deflated bytes, the words apart from the weights.

Blocks come in pairs and hold the same entries; each is compressed (raw deflate) and then written in base64.

| block   | content                                                                                            |
|---------|----------------------------------------------------------------------------------------------------|
| words   | JSON, a list a column: `id` sentence, `rank`, `model`, `first` (1 where a sentence begins), `end`  |
|         | (1 where weights have the row and the column of `</s>`), `log_prob`, `aer` (null where there is no |
|         | gold), `source` and `target` (the words, each followed by a line feed)                             |
| weights | 4 bytes, little-endian: the length of the JSON that follows, a list a column: `links`, `sure`,     |
|         | `possible` (flat: i, j, i, j ...; null where there is no gold), `surprise` (see below), `drawn`    |
|         | (0 where the weights were left out); then the matrices, a byte a weight, row by row                |

A byte b stands for the weight b / 255, so a weight is off by 0.002 at the most. A surprise is the negative natural
logarithm of the probability of a target word in twentieths, 255 where it is not known; `</s>` comes last.
All the words are unpacked when the page is opened, to be searched; a block of weights when a sentence of it is shown.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.gold import count_links
from nmtalign.alignment.link_formats import GoldLinks
from nmtalign.alignment.record import AlignmentRecord, Link

BLOCK_ENTRIES = 128
BLOCK_CELLS = 1_000_000
MAX_CELLS = 250_000  # of a sentence: a page cannot show more than this in a way that anybody could read
_SURPRISE_STEPS = 20
_UNKNOWN = 255


@dataclass(frozen=True)
class Entry:
    """A record to be shown: that of one model and one place in an n-best list."""

    record: AlignmentRecord
    model: int = 0  # place of its file among those that were given
    first: bool = True  # of its sentence
    gold: GoldLinks | None = None

    def cells(self) -> int:
        """Weights that go into the page."""
        size = int(self.record.weights.size)
        return size if size <= MAX_CELLS else 0


def pack_words(entries: Sequence[Entry]) -> str:
    """A block of words in base64."""
    records = [entry.record for entry in entries]
    columns = {
        "id": [record.sentence_id for record in records],
        "rank": [record.rank for record in records],
        "model": [entry.model for entry in entries],
        "first": [int(entry.first) for entry in entries],
        "end": [int(record.end) for record in records],
        "log_prob": [_rounded(record.log_prob) for record in records],
        "aer": [_aer(entry) for entry in entries],
        "source": [_joined(record.source) for record in records],
        "target": [_joined(record.target) for record in records],
    }
    return _packed(_json(columns))


def pack_weights(entries: Sequence[Entry]) -> str:
    """A block of weights, links and gold links in base64."""
    columns = {
        "links": [_flat(entry.record.hard_links) for entry in entries],
        "sure": [entry.gold and _flat(sorted(entry.gold.sure)) for entry in entries],
        "possible": [entry.gold and _flat(sorted(entry.gold.possible)) for entry in entries],
        "surprise": [_surprise(entry.record.token_log_probs) for entry in entries],
        "drawn": [int(entry.cells() == entry.record.weights.size) for entry in entries],
    }
    head = _json(columns)
    matrices = b"".join(_quantised(entry.record.weights) for entry in entries if entry.cells())
    return _packed(len(head).to_bytes(4, "little") + head + matrices)


def _quantised(weights: NDArray[Any]) -> bytes:
    """A byte a weight."""
    bounded = np.nan_to_num(weights.astype(np.float32)).clip(0, 1)
    return bytes(np.rint(bounded * 255).astype(np.uint8))


def _surprise(log_probs: NDArray[Any]) -> list[int]:
    known = np.isfinite(log_probs)
    steps = np.rint(-np.where(known, log_probs, 0) * _SURPRISE_STEPS).clip(0, _UNKNOWN - 1)
    return [int(step) for step in np.where(known, steps, _UNKNOWN)]


def _aer(entry: Entry) -> float | None:
    if entry.gold is None:
        return None
    return round(count_links(entry.record.hard_links, entry.gold).rates().aer, 4)


def _rounded(log_prob: float) -> float | None:
    return round(log_prob, 3) if np.isfinite(log_prob) else None


def _flat(links: Iterable[Link]) -> list[int]:
    return [position for link in links for position in link]


def _joined(words: Sequence[str]) -> str:
    return "".join(word + "\n" for word in words)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _packed(data: bytes) -> str:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")
