"""Means between two reports of progress."""

import math
import time

import torch
from torch import Tensor

from nmtalign.data.batches import Batch
from nmtalign.training.distributed import World
from nmtalign.training.events import Progressed


class Meter:
    """Sums over the updates since the last report; the loss stays on its device until it is asked for."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts counting anew."""
        self._sums: Tensor | float = 0.0
        self._norm: Tensor | float = 0.0
        self._source_words = self._words = self._linked = self._positions = self._sentences = self._updates = 0
        self._pause = 0.0
        self._started = time.perf_counter()
        self._pending: list[tuple[Batch, Tensor]] = []

    def pause(self, seconds: float) -> None:
        """Takes time out of the rates: validation and checkpoints."""
        self._pause += seconds

    def add(self, batch: Batch, sums: Tensor) -> None:
        """Takes in a minibatch of the update that is being made.

        `sums` is its summed negative log-likelihood; where it has a guide, that and the cost of its weights (2,); of
        both directions, those two, the other direction's negative log-likelihood and the disagreement (4,).
        """
        self._pending.append((batch, sums))

    def updated(self, norm: Tensor, finite: bool) -> None:
        """Counts the update with its minibatches, or forgets them where it was left out."""
        pending, self._pending = self._pending, []
        if not finite:
            return
        self._norm = self._norm + norm
        self._updates += 1
        for batch, sums in pending:
            self._sums = self._sums + sums
            self._source_words += batch.source_words
            self._words += batch.target_words
            self._linked += batch.linked
            self._positions += batch.source.numel() + batch.target.numel()
            self._sentences += batch.sentences

    def __bool__(self) -> bool:
        return self._updates > 0

    def report(
        self,
        when: tuple[int, float, float],
        world: World,
        *,
        learning_rate: float,
        done: float,
        seconds_left: float | None,
        skipped: int,
    ) -> Progressed:
        """The means over all processes, as the event that reports them at (update, epoch, seconds)."""
        spent = max(1e-9, time.perf_counter() - self._started - self._pause)
        sums = torch.as_tensor(self._sums).reshape(-1).tolist()
        both = len(sums) > 2
        counts = [self._source_words, self._words, self._linked, self._positions, self._sentences]
        totals = world.sum([*(*sums, 0.0, 0.0, 0.0)[:4], *counts])
        nll, guided, back_nll, apart, source_words, words, linked, positions, sentences = totals
        return Progressed(
            *when,
            loss=nll / words,
            loss_sentence=nll / sentences,
            perplexity=perplexity(nll / words),
            alignment_loss=guided / linked if linked else None,
            backward_loss=back_nll / source_words if both else None,
            disagreement=apart / sentences if both else None,
            source_words_per_second=source_words / spent,
            target_words_per_second=words / spent,
            gradient_norm=float(self._norm) / self._updates,
            learning_rate=learning_rate,
            padding=1 - (source_words + words) / positions,
            done=done,
            seconds_left=seconds_left,
            skipped=skipped,
        )


def perplexity(loss: float) -> float:
    """exp of a loss a word, capped where it would overflow."""
    return math.exp(min(loss, 700.0))
