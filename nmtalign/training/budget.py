"""The budget of a training (updates, epochs, time), advice on it, intervals, and the learning rate.

This module needs no PyTorch.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path

from nmtalign.data.corpus import CORPUS_FILE, Corpus
from nmtalign.model_directory import with_first_model
from nmtalign.settings.definition import SECTIONS, Layer, interval, seconds, written
from nmtalign.settings.presets import AUTO, fitted_to_corpus, preset
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.text.lines import counted

SOON = 10.0  # seconds of a run after which its speed is known
_FEWEST, _PASSES = 1000, 1600  # constants of `updates_needed`
_POOR = 10.0  # BLEU on dev
_RISEN = 1.01  # a loss above this multiple of its smallest value has risen; smaller changes are chance


def count_words(corpus: Corpus) -> int:
    """The target words of the training text, `</s>` included."""
    train = corpus.splits["train"]
    return int(train.target.lengths.sum()) + len(train)


def training_layers(name: str, layers: tuple[Layer, ...], data: Path) -> tuple[Layer, ...]:
    """The layers of the settings of a training: the preset `name`, then `layers`.

    Between them are the architecture of the model that `init_from` names, or the settings that the preset has for the
    size of the corpus in `data`, if it is there.
    """
    layers = (f"preset {name}", preset(name)), *layers
    first = next((values["init_from"] for _, values in reversed(layers) if "init_from" in values), "")
    if first and isinstance(first, str | os.PathLike):
        return with_first_model(Path(first), layers)
    if not data.is_file() and not (data / CORPUS_FILE).is_file():
        return layers
    words = count_words(Corpus.open(data))
    values = fitted_to_corpus(name, words)
    fitted = [(f"preset {name} for a corpus of {words:,} words", values)] if values else []
    return layers[0], *fitted, *layers[1:]


def for_another_preset(name: str, layers: tuple[Layer, ...]) -> list[str]:
    """Warnings of settings that nmtalign.toml, the first of `layers`, has for a preset that the command replaces."""
    (origin, own), *later = layers
    if own.get("preset", name) == name:
        return []
    tuned = {each for each, one in SECTIONS["train"].items() if one.affects == "result"}
    kept = [each for each in own if each in tuned and not any(each in values for _, values in later)]
    return [
        f"{written(origin, each, own[each])} is for {own['preset']}, not {name}; --set replaces it" for each in kept
    ]


def updates_needed(words: int, updates_in_epoch: int) -> int:
    """About how many updates a useful model needs on a corpus with `words` target words.

    A rule of thumb from measurements (tests/bench/README.md): the smaller the corpus, the more often it must be seen,
    and no model is useful before 1,000 updates.
    """
    return max(_FEWEST, math.ceil(_PASSES / math.sqrt(max(1, words)) * updates_in_epoch))


class TrainingBudget:
    """The limits of a training; infinity means no limit. The first one that is reached ends the training."""

    def __init__(self, config: TrainingConfig) -> None:
        self.updates, self.epochs = config.max_updates or math.inf, config.epochs or math.inf
        self.seconds = seconds("max_time", config.max_time) if config.max_time else math.inf
        self.time_limit = f"{self.seconds:g} s"  # as the reason for which a training ends

    def done(self, update: int, epoch: float, elapsed: float, reserve: float = 0.0) -> float:
        """The share of the nearest limit that is used up, 0 to 1.

        `reserve` is the part of the time limit that is kept for the last validation.
        """
        return min(1.0, max(update / self.updates, epoch / self.epochs, elapsed / self._without(reserve)))

    def reached(self, update: int, epoch: float, elapsed: float, reserve: float = 0.0) -> str | None:
        """The limit that is reached, in words, or None. The arguments are those of `done`."""
        if update >= self.updates:
            return counted(update, "update")
        if epoch >= self.epochs:
            return _epochs(self.epochs)
        return self.time_limit if elapsed >= self._without(reserve) else None

    def _without(self, reserve: float) -> float:
        """The time limit without the reserve, and at least half of it."""
        return max(self.seconds - reserve, self.seconds / 2)

    def total_updates(self, update: int, elapsed: float, updates_in_epoch: int, update_seconds: float) -> float:
        """The updates that fit into the nearest limit, after `update` updates and `elapsed` seconds.

        `update_seconds` is the time of one further update; 0 = unknown, which leaves the time limit out.
        """
        by_epochs = math.ceil(self.epochs * updates_in_epoch) if self.epochs < math.inf else math.inf
        by_time = update + (self.seconds - elapsed) / update_seconds if update_seconds else math.inf
        return min(self.updates, by_epochs, by_time)

    def seconds_left(self, update: int, elapsed: float, updates_in_epoch: int, update_seconds: float) -> float | None:
        """The time until the nearest limit; None without a limit. The arguments are those of `total_updates`."""
        total = self.total_updates(update, elapsed, updates_in_epoch, update_seconds)
        return max(0.0, total - update) * update_seconds if math.isfinite(total) else None

    def describe(self, updates_in_epoch: int, patience: int) -> str:
        """The limits in words: "20 epochs = 2,340 updates, stops early after 10 validations without progress"."""
        limits = []
        if self.epochs < math.inf:
            limits.append(f"{_epochs(self.epochs)} = {counted(math.ceil(self.epochs * updates_in_epoch), 'update')}")
        if self.updates < math.inf:
            limits.append(f"{counted(int(self.updates), 'update')} = {_epochs(self.updates / updates_in_epoch)}")
        if self.seconds < math.inf:
            limits.append(duration(self.seconds))
        early = f", stops early after {counted(patience, 'validation')} without progress" if patience else ""
        return (", at most ".join(limits) or "no limit") + early


def _epochs(number: float) -> str:
    return f"{rounded(number, 3)} epoch{'' if number == 1 else 's'}"


def rounded(number: float, digits: int = 2) -> str:
    """A number with about this many digits and no exponent: 0.31, 5.5, 120, 2,200."""
    return f"{number:,.0f}" if number >= 10 ** (digits - 1) else f"{number:.{digits}g}"


def duration(seconds: float) -> str:
    """A time as the settings have it, rounded up if a tenth of the unit or more is left: 90s, 40m, 3h."""
    unit, size = next(((unit, size) for unit, size in (("s", 1), ("m", 60)) if seconds < 180 * size), ("h", 3600))
    return f"{math.ceil(round(seconds / size, 1))}{unit}"


class BudgetAdvice:
    """Reports, once each, that a budget is too small for its corpus, and why a finished model is poor."""

    def __init__(
        self, config: TrainingConfig, preset: str, words: int, updates_in_epoch: int, notice: Callable[[str], None]
    ) -> None:
        """`notice` is called with one line of advice."""
        self._preset, self._updates_in_epoch, self._notice = preset, updates_in_epoch, notice
        self._budget = TrainingBudget(config)
        # Weights of another model need an unknown, smaller number of further updates.
        self._needed = 0 if config.init_from else updates_needed(words, updates_in_epoch)
        self.on_train, self.on_dev = list[float](), list[float]()  # losses per word, of reports and of validations
        self._update_seconds, self._settled, self._short = 0.0, False, False

    def check_budget(self, update: int, seconds: float, update_seconds: float, is_known: bool) -> None:
        """Reports a budget that is too small: one in updates or epochs at once, a time when the speed is known.

        `seconds` is the time of all runs so far; `update_seconds` is the time of an update, which is reliable if it
        `is_known`; 0 = unknown.
        """
        self._update_seconds = update_seconds
        if self._settled:
            return
        if timed := self._budget.seconds < math.inf:
            update_seconds = update_seconds if is_known else 0.0
        total = self._budget.total_updates(update, seconds, self._updates_in_epoch, update_seconds)
        self._short = total < self._needed
        self._settled = self._short or not timed or update_seconds > 0
        if self._short:
            passes, needed = (rounded(number / self._updates_in_epoch) for number in (total, self._needed))
            faster = " or the faster --preset tiny" if timed and self._preset not in ("tiny", AUTO) else ""
            self._notice(
                f"the budget ends after {counted(round(total), 'update')} ({passes} times the corpus); a useful model "
                f"needs about {self._needed:,} ({needed} times): give {self._larger(self._needed)}{faster}"
            )

    def finish(self, update: int, bleu: float | None, of_words: bool = True) -> None:
        """Reports whether the loss of a poor model has risen; `bleu` is that of the best weights on dev."""
        if not self._short and (bleu is None or bleu >= _POOR):
            return
        quality = "" if bleu is None else f"dev BLEU is {bleu:.1f}, and "
        again = update > self._updates_in_epoch  # nothing that was read once is learned by heart
        if again and self.on_dev and self.on_dev[-1] > _RISEN * min(self.on_dev):
            self._notice(
                f"{quality}the loss on dev rose at the end: the model learns the training text by heart; more sentence "
                f"pairs would help{', or nmtalign prep --subwords' if of_words else ''}"
            )
        elif not self.on_train or self.on_train[-1] <= _RISEN * min(self.on_train):
            larger = self._larger(max(self._needed, 2 * update))
            self._notice(f"{quality}the loss has not risen: to continue, repeat the command with {larger}")

    def _larger(self, updates: int) -> str:
        """The options of a budget with this number of updates."""
        options, seconds = [], 1.1 * updates * self._update_seconds
        if self._budget.seconds < seconds:
            options.append(f"--max-time {duration(max(60.0, seconds))}")
        if self._budget.epochs * self._updates_in_epoch < updates:
            options.append(f"--epochs {math.ceil(updates / self._updates_in_epoch)}")
        if self._budget.updates < updates:
            options.append(f"--max-updates {math.ceil(updates / 100) * 100}")
        return " ".join(options) or "a larger budget"


class Every:
    """Tells when something is due: after a number of updates or seconds, or at the end of an epoch.

    An interval in updates depends only on the number of the update, also in a resumed run.
    """

    def __init__(self, name: str, text: str, elapsed: float) -> None:
        self.unit, self.amount = interval(name, text)
        self._last = elapsed

    def due(self, update: int, elapsed: float, epoch_ended: bool) -> bool:
        """Whether it is due now; if so, an interval in seconds starts again."""
        if self.unit == "epoch":
            return epoch_ended
        if self.unit == "updates":
            return update % self.amount == 0
        if is_due := elapsed - self._last >= self.amount:
            self._last = elapsed
        return is_due


def warm_up(config: TrainingConfig, update: int, done: float) -> float:
    """The share of the highest rate at update 1, 2, ...; `done` is the share of the budget after this update.

    The share rises over `warmup` updates, or over a tenth of the budget if that is shorter.
    """
    return min(1.0, max(update / config.warmup, 10 * done)) if config.warmup else 1.0


def learning_rate(config: TrainingConfig, update: int, done: float, rise: float) -> float:
    """The rate of update 1, 2, ...: `rise` (see `warm_up`) times that of the schedule.

    `done` is the share of the budget that is used up (0 to 1): "linear" falls with it to 0; "inverse-sqrt" needs no
    budget.
    """
    rate = config.learning_rate * rise
    if config.schedule == "linear":
        return rate * max(0.0, 1.0 - done)
    if config.schedule == "inverse-sqrt":
        return rate * math.sqrt(max(1, config.warmup) / max(update, config.warmup))
    return rate
