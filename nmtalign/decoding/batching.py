"""Which sentences are searched together: of about one length, as many as the words and the memory allow."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nmtalign.checks import byte_count
from nmtalign.config import ModelConfig

_SHARE = 0.1  # of the machine's memory, where nothing else is said
_CARD_SHARE = 0.5  # of what is free of a GPU's
_LEAST = 64 << 20  # bytes; a search gets that much whatever is asked for
# Words of a batch times beam, where no size is given, and the most words: beyond, nothing gets faster.
_ROWS, _MOST_WORDS = 12_000, 6_000
_CARD_ROWS, _MOST_CARD_WORDS = 200_000, 60_000


def memory_limit(text: str, device: torch.device) -> int:
    """Bytes of a setting such as "2G", or a tenth of the machine's memory, or half of what is free of a GPU's."""
    if text:
        return byte_count("max_memory", text)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _CARD_SHARE)
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE)
    except (AttributeError, OSError, ValueError):
        return 1 << 30


def default_words(beam: int, device: torch.device) -> int:
    """Source words of a batch where no size is given."""
    rows, most = (_CARD_ROWS, _MOST_CARD_WORDS) if device.type == "cuda" else (_ROWS, _MOST_WORDS)
    return min(most, max(1, rows // beam))


@dataclass(frozen=True)
class BatchLimits:
    """How much is searched at once: `words` source words with `</s>` and padding, in `memory` bytes."""

    words: int
    memory: int
    model: ModelConfig
    beam: int
    itemsize: int  # bytes of a number in a product
    scored: int  # words that are scored at each step
    length_ratio: float  # steps a source word, at most
    keep_weights: bool

    def cut(self, lengths: Sequence[int], least_batches: int = 1) -> list[list[int]]:
        """The places of sentences of these lengths (`</s>` counted), in batches, the longest sentences first.

        There are at least `least_batches` of them if there are sentences enough, of about the same size.
        """
        words = min(self.words, max(1, -(-sum(lengths) // least_batches)))
        memory = max(_LEAST, self.memory)
        batches: list[list[int]] = []
        longest = 0
        for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
            count = len(batches[-1]) + 1 if batches else 0
            if not batches or count * longest > words or count * self.bytes_of(longest) > memory:
                batches.append([])
                longest = lengths[place]
            batches[-1].append(place)
        return batches

    def bytes_of(self, length: int) -> int:
        """About what one sentence takes while it is encoded and searched."""
        model, rows = self.model, self.beam
        annotation = 2 * model.hidden
        folded = 3 * model.hidden + 2 * model.maxout
        encoder = length * (7 * model.hidden * self.itemsize + 4 * annotation * 4)
        # Annotations, keys and folded values, and these a second time while sentences are dropped from the batch.
        keys = model.attention_hidden if model.attention == "additive" else model.hidden
        source = length * (annotation + 2 * (keys + folded)) * self.itemsize
        step = rows * (2 * self.scored + 4 * folded + 8 * model.hidden) * self.itemsize
        kept = rows * length * 4 * int(self.length_ratio * length) if self.keep_weights else 0
        return max(encoder, source) + source + step + kept
