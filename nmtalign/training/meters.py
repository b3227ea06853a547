"""The means that the events of a training report, and the pace of the training."""

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from nmtalign.data.batches import Batch
from nmtalign.training.distributed import World
from nmtalign.training.events import Figures, Progressed, Underway, perplexity


class Meter:
    """Sums over the updates since the last report; the losses stay on their device until the report."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts again at zero."""
        self._sums: Tensor | None = None
        self._norm = 0.0
        self._source_words = self._words = self._linked = self._positions = self._sentences = self._updates = 0
        self._paused = 0.0
        self._started = time.perf_counter()

    def pause(self, seconds: float) -> None:
        """Excludes the time of validation or of a checkpoint from the rates."""
        self._paused += seconds

    def add(self, norm: float, minibatches: Sequence[tuple[Batch, Tensor]]) -> None:
        """Adds an update: the norm of its gradient, and its minibatches with the sums of their losses.

        The sums are the negative log-likelihood; with a guide also the cost of the attention weights (2,); with both
        directions also the negative log-likelihood of the other direction and the disagreement (4,).
        """
        self._norm += norm
        self._updates += 1
        for batch, sums in minibatches:
            self._sums = sums if self._sums is None else self._sums + sums
            self._source_words += batch.source_words
            self._words += batch.target_words
            self._linked += batch.linked
            self._positions += batch.source.numel() + batch.target.numel()
            self._sentences += batch.sentences

    def __bool__(self) -> bool:
        return self._updates > 0

    def report(
        self,
        kind: type[Figures],
        when: tuple[int, float, float],
        world: World,
        learning_rate: float,
        done: float,
        seconds_left: float | None,
        skipped: int,
    ) -> Figures:
        """The means over all processes, as an event of this kind at (update, epoch, seconds)."""
        spent = max(1e-9, time.perf_counter() - self._started - self._paused)
        sums = [0.0] if self._sums is None else self._sums.reshape(-1).tolist()
        both = len(sums) > 2
        counts = [self._source_words, self._words, self._linked, self._positions, self._sentences]
        totals = world.sum([*(*sums, 0.0, 0.0, 0.0)[:4], *counts])
        nll, guided, back_nll, apart, source_words, words, linked, positions, sentences = totals
        return kind(
            *when,
            loss=nll / words,
            loss_sentence=nll / sentences,
            perplexity=perplexity(nll / words),
            alignment_loss=guided / linked if linked else None,
            backward_loss=back_nll / source_words if both else None,
            disagreement=apart / sentences if both else None,
            source_words_per_second=source_words / spent,
            target_words_per_second=words / spent,
            gradient_norm=self._norm / self._updates,
            learning_rate=learning_rate,
            padding=1 - (source_words + words) / positions,
            done=done,
            seconds_left=seconds_left,
            skipped=skipped,
        )


class Meters:
    """A meter for each kind of progress event, and the pace of this run."""

    def __init__(self) -> None:
        self._meters: dict[type[Figures], Meter] = {Progressed: Meter(), Underway: Meter()}
        self._updates, self._since = 0, 0.0

    def start(self, elapsed: float) -> None:
        """The run begins after this training time, which is that of the runs that it resumes."""
        self._since = elapsed
        for meter in self._meters.values():
            meter.reset()

    def begin(self, elapsed: float) -> None:
        """An update begins. The first one takes longer: the pace is measured without it as soon as there is another."""
        self._updates += 1
        if self._updates == 2:
            self._since = elapsed

    def pace(self, elapsed: float) -> float:
        """Seconds per update, with the validations and checkpoints between them."""
        return (elapsed - self._since) / max(1, self._updates - 1)

    def add(self, norm: float, minibatches: Sequence[tuple[Batch, Tensor]]) -> None:
        """Adds an update to all meters."""
        for meter in self._meters.values():
            meter.add(norm, minibatches)

    def pause(self, seconds: float) -> None:
        """Excludes the time of validation or of a checkpoint from the rates."""
        for meter in self._meters.values():
            meter.pause(seconds)

    def report(self, kind: type[Figures], *arguments: Any) -> Figures | None:
        """The means since the last event of this kind; None if all updates since then were left out."""
        meter = self._meters[kind]
        if not meter:
            return None
        found = meter.report(kind, *arguments)
        meter.reset()
        return found
