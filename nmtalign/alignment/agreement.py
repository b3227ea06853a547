"""Learns word alignment from a bitext alone: two hidden Markov models that must agree (Liang, Taskar & Klein 2006).

One model writes the target given the source, the other one the source given the target. Each iteration of
expectation-maximisation computes the posterior of every link in both models. The product of both is the expected count
of the link in both models, so that a link counts only where both directions see it. The first iterations are those of
IBM Model 1, without positions and without agreement.

The counts of a pair do not count for the pair itself ("leaving one out"): rare words would otherwise confirm any link
that they once got.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmtalign.alignment.hmm import equal_choices, even_jumps
from nmtalign.alignment.lexical import LexicalModel, Numbers, Table
from nmtalign.alignment.pair_batches import (
    CellBatch,
    Sentences,
    in_order,
    make_batches,
    null_probabilities,
    posteriors,
    translation_probabilities,
)

LONGEST = 100  # words of a side of a training pair
MODEL_1, HMM = 5, 5  # iterations
MODEL_1_TIME = 0.45  # the time of an iteration of Model 1, as a share of that of the hidden Markov models
_LEAST = 1e-3  # a pair of words with a smaller count is not kept, unless the words are cognates


class _Expected(NamedTuple):
    """Expected counts of a batch: of its cells (once, or by direction), of NULL and of the distances by direction."""

    cells: Sequence[Tensor]
    null: Sequence[Tensor]
    jumps: Sequence[Tensor]


class AgreeingModels:
    """Learns from pairs of sentences: call `iterate` until `done` is `iterations`.

    `names` are the words of both sides, which the ids of the sentences number. Only every n-th pair without an empty
    side or more than `LONGEST` words is used (`every`). Memory: four bytes per cell, and about 100 per pair of words
    that share a sentence pair.
    """

    def __init__(
        self,
        names: tuple[Sequence[str], Sequence[str]],
        sides: tuple[Sentences, Sentences],
        threads: int = 1,
        iterations: int = MODEL_1 + HMM,
        every: int = 1,
    ) -> None:
        self.done, self.iterations, self._threads = 0, iterations, threads
        sizes = len(names[0]), len(names[1])
        self._batches, keys = make_batches(sides, sizes, usable(sides)[::every])
        self.cells = sum(batch.places.size for batch in self._batches)
        occurrences = [np.bincount(side.ids, minlength=size) for side, size in zip(sides, sizes, strict=True)]
        self.model = LexicalModel(names, [own.astype(np.float64) for own in occurrences], keys)
        self.jumps = [even_jumps(), even_jumps()]
        self._own = torch.zeros(self.cells, dtype=torch.float16)  # what each cell has contributed to its counts

    def iterate(self, progress: Callable[[float], object] = lambda share: None) -> None:
        """Runs one iteration; `progress` is called with the share of it that is done."""
        agree = self.done >= MODEL_1
        cells = [np.zeros(len(self.model.keys) + 1) for _ in range(1 if agree else 2)]  # the last one is of padding
        null = [np.zeros(len(self.model.names[1]) + 1), np.zeros(len(self.model.names[0]) + 1)]
        jumps = [np.ones(len(one)) for one in self.jumps]
        expect = partial(self._expect, tables=self._tables(), agree=agree)
        own_parts = self._own.split([batch.places.size for batch in self._batches])
        seen = 0
        for batch, part, found in zip(
            self._batches,
            own_parts,
            in_order(expect, zip(self._batches, own_parts, strict=True), self._threads),
            strict=True,
        ):
            places = batch.places.ravel().astype(np.int64)
            for own, more in zip(cells, found.cells, strict=True):
                np.add.at(own, places, more.double().numpy().ravel())
            for own, ids, more in zip(null, (batch.target, batch.source), found.null, strict=True):
                np.add.at(own, ids.ravel(), more.double().numpy().ravel())
            for own, more in zip(jumps, found.jumps, strict=False):
                own += more.numpy()
            if agree:
                part.copy_(found.cells[0].ravel())
            seen += batch.places.size
            progress(seen / self.cells)
        self.model.count([own[:-1] for own in (cells * 2)[:2]], [own[:-1] for own in null])
        if agree:
            self.jumps = [torch.from_numpy(own / own.sum()) for own in jumps]
        self.done += 1

    def _expect(self, item: tuple[CellBatch, Tensor], tables: tuple[Table, Table], agree: bool) -> _Expected:
        """Returns the expected counts of a batch, given what its cells have contributed to the counts in `tables`."""
        batch, own = item
        if agree:
            left_out = own.view(batch.places.shape).float() if self.done > MODEL_1 else None
            forward, backward = posteriors(batch, tables, self.jumps, left_out)
            links = (forward.links * backward.links.transpose(1, 2)).half()
            return _Expected([links], [forward.null, backward.null], [forward.jumps, backward.jumps])
        ahead, back = translation_probabilities(batch, tables)
        null = null_probabilities(batch, tables)
        links, absent = equal_choices(ahead, null[0], batch.source_lengths)
        others, other_absent = equal_choices(back, null[1], batch.target_lengths)
        return _Expected([links, others.transpose(1, 2)], [absent, other_absent], [])

    def _tables(self) -> tuple[Table, Table]:
        """Returns the probabilities of both directions: equal ones before the first iteration."""
        if self.done:
            return self.model.tables(self.model.cells)
        sizes = [len(side) for side in self.model.names]
        cells = np.ones(len(self.model.keys))
        first, second = (
            Table.of(cells, np.full(given, float(written)), np.full(written, 1 / max(written, 1)))
            for given, written in (sizes, sizes[::-1])
        )
        return first, second

    def state(self) -> dict[str, Tensor]:
        """Returns what the iterations so far have learned, for `restore`."""
        arrays = [*self.model.counts, *self.model.null_counts, *(one.numpy() for one in self.jumps)]
        named = {f"counts.{number}": torch.from_numpy(np.ascontiguousarray(own)) for number, own in enumerate(arrays)}
        return {**named, "own": self._own, "done": torch.tensor(self.done)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continues where the object whose `state` this is had stopped.

        Raises KeyError, ValueError or RuntimeError for the state of other sentences.
        """
        arrays = [state[f"counts.{number}"].numpy() for number in range(6)]
        cells, words = len(self.model.keys) + 1, [len(side) for side in self.model.names]
        sizes = [cells, cells, words[1], words[0], len(self.jumps[0]), len(self.jumps[1])]
        if [own.shape for own in arrays] != [(size,) for size in sizes]:
            raise ValueError("this is the state of other sentences")
        self.model.count([own[:-1] for own in arrays[:2]], arrays[2:4])
        self._own.copy_(state["own"])
        self.jumps, self.done = [torch.from_numpy(own.copy()) for own in arrays[4:]], int(state["done"])

    def useful(self) -> NDArray[np.bool_]:
        """Returns which keys of the model to keep: those whose counts say something, and all cognates."""
        return self.model.alike | (self.model.counts[0][:-1] >= _LEAST)


def usable(sides: tuple[Sentences, Sentences]) -> Numbers:
    """Returns the numbers of the pairs without an empty side or more than `LONGEST` words."""
    lengths = np.stack([side.lengths() for side in sides])
    return np.flatnonzero((lengths.min(0) > 0) & (lengths.max(0) <= LONGEST))
