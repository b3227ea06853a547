"""How much training is asked for: updates, epochs, time, whichever ends first."""

import math
from dataclasses import dataclass

from nmtalign.checks import interval, seconds
from nmtalign.config import TrainingConfig


@dataclass(frozen=True)
class Budget:
    """Limits; infinity where there is none."""

    updates: float
    epochs: float
    seconds: float

    @classmethod
    def of(cls, config: TrainingConfig) -> "Budget":
        """The limits that a configuration sets; `max_updates` and `max_time` given, `epochs` still holds."""
        return cls(
            config.max_updates or math.inf,
            config.epochs or math.inf,
            seconds("max_time", config.max_time) if config.max_time else math.inf,
        )

    def done(self, update: int, epoch: float, elapsed: float) -> float:
        """The share gone by of the limit that is nearest, 0 to 1."""
        return min(1.0, max(update / self.updates, epoch / self.epochs, elapsed / self.seconds))

    def reached(self, update: int, epoch: float, elapsed: float) -> str | None:
        """The limit that is reached, in words, or None."""
        if update >= self.updates:
            return f"{update} updates"
        if epoch >= self.epochs:
            return f"{self.epochs:g} epochs"
        if elapsed >= self.seconds:
            return f"{self.seconds:g} s"
        return None

    def total_updates(self, update: int, elapsed: float, updates_in_epoch: int, update_seconds: float) -> float:
        """The updates that fit into the limit that is nearest, after `update` updates and `elapsed` seconds.

        `update_seconds` is the time of one further update; 0 where it is not known, which leaves the time limit out.
        """
        by_time = update + (self.seconds - elapsed) / update_seconds if update_seconds else math.inf
        return min(self.updates, self.epochs * updates_in_epoch, by_time)


class Every:
    """Says when something is due: every so many updates or seconds, or at the end of an epoch.

    By updates it depends on the update alone, so that a resumed run does it when an uninterrupted one would have.
    """

    def __init__(self, name: str, text: str, elapsed: float) -> None:
        self.unit, self.amount = interval(name, text)
        self._last = elapsed

    def due(self, update: int, elapsed: float, epoch_ended: bool) -> bool:
        """Whether it is due now; a time counts anew from here if it is."""
        if self.unit == "epoch":
            return epoch_ended
        if self.unit == "updates":
            return update % self.amount == 0
        if elapsed - self._last < self.amount:
            return False
        self._last = elapsed
        return True
