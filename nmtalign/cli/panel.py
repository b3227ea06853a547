"""The panel that `nmtalign train` shows on a terminal: its rows fit into the width and the height."""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.control import Control
from rich.panel import Panel
from rich.text import Text

from nmtalign.cli.common import clock, escaped
from nmtalign.training.events import (
    Event,
    Figures,
    Finished,
    Saved,
    Skipped,
    Started,
    Underway,
    Validated,
    Working,
    perplexity,
)

WIDEST = 120  # columns; longer rows are hard to read
MOST_VALIDATIONS = 8
_SMOOTHED = ("loss", "alignment_loss", "source_words_per_second", "target_words_per_second", "gradient_norm")
_SHARE = 0.1  # of the newest figures in the smoothed ones
_GAP = "  "


class Latest:
    """The newest figures, smoothed over about ten events, and the work between updates that is going on."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._count, self._came, self.since = now, 0, now(), now()
        self.figures: Figures | None = None
        self.working: Working | None = None

    def take(self, event: Event) -> None:
        """Notes an event."""
        match event:
            case Underway():
                self._count, self._came = self._count + 1, self._now()
                self.figures, self.working = self._smoothed(event), None
            case Working():
                if self.working is None or self.working.doing != event.doing:
                    self.since = self._now()
                self.working = event
            case Saved() | Validated() | Finished():
                self.working = None

    def _smoothed(self, new: Figures) -> Figures:
        if self.figures is None:
            return new
        share, changed = max(_SHARE, 1 / self._count), {}
        for name in _SMOOTHED:
            before, after = getattr(self.figures, name), getattr(new, name)
            changed[name] = after if before is None or after is None else before + share * (after - before)
        return replace(new, **changed, perplexity=perplexity(changed["loss"]))

    def current(self) -> Figures | None:
        """The figures, with the time as it is now."""
        if self.figures is None:
            return None
        passed, left = self._now() - self._came, self.figures.seconds_left
        left = None if left is None else max(0.0, left - passed)
        return replace(self.figures, seconds=self.figures.seconds + passed, seconds_left=left)

    def working_seconds(self) -> float:
        """How long the present work has taken so far."""
        return self._now() - self.since

    def doing(self) -> str:
        """The present work in words, as in "validating ... 40%"."""
        if self.working is None:
            return "training" if self.figures else "starting"
        share = f" {self.working.done:.0%}" if self.working.done is not None else ""
        return f"{self.working.doing} ...{share}"


class TrainingPanel:
    """The latest state of a training; rich draws it several times per second, in the present size of the terminal."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._titles = f"nmtalign train {escaped(str(folder))}", "nmtalign train"
        self._latest, self._lock = Latest(now), threading.Lock()  # rich draws in another thread
        self._head: Sequence[str] = ()
        self._skipped = ""
        self._validations: deque[Validated] = deque(maxlen=MOST_VALIDATIONS)
        self._size: tuple[int, int] | None = None
        self.cleared = False  # the terminal was resized, and what it showed above the panel is gone

    def take(self, event: Event) -> None:
        """Replaces the part of the panel that shows events of this type."""
        with self._lock:
            self._latest.take(event)
            match event:
                case Started():
                    self._head = re.split("[,;] ", escaped(describe_start(event)))
                case Validated():
                    self._validations.append(event)
                case Skipped():
                    self._skipped = describe_skipped(event)
                case Finished():
                    self._skipped = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        size = options.size
        if self._size not in (None, size):  # a terminal breaks its old rows differently: they cannot be overwritten
            self.cleared = True
            yield Control.home()
            yield Control.clear()
        self._size = size
        width = min(options.max_width, WIDEST)
        with self._lock:
            rows = [*self._rows(console, width - 4, max(1, size.height - 3))]
        title = next((one for one in self._titles if len(one) <= width - 6), "")
        yield Panel(Group(*rows), title=Text(title) if title else None, title_align="left", width=width)
        yield Text("")  # the cursor waits here: the terminal's ^C would begin another row behind a complete one

    def _rows(self, console: Console, width: int, height: int) -> Iterator[Text]:
        """At most `height` rows; those that do not fit are left out, the least important first."""
        must = self._progress(width)
        head = flow([Text(item, "dim") for item in self._head], width)
        count, last = len(self._validations), self._validations[-1] if self._validations else None
        samples = sum(1 for _ in _sample_texts(last)) if last else 0
        room = height - len(must)
        shown = 1 if count and room >= 2 else 0
        room -= 2 * shown
        each = 1 if shown and room >= samples else 0
        room -= samples * each
        head = head if room >= len(head) else []
        room -= len(head)
        more = min(max(0, room), count - 1) if shown else 0
        room -= more
        each += min(2, max(0, room) // samples) if each and samples else 0
        yield from head
        yield from must[:height]
        if shown:
            yield from _table([*self._validations][-1 - more :], width)
        if last and each:
            yield from _samples(console, last, width, each)

    def _progress(self, width: int) -> list[Text]:
        """The bar, what is going on, and the figures."""
        doing, figures = Text(self._latest.doing(), "cyan"), self._latest.current()
        if self._latest.working and self._latest.working_seconds() >= 1:
            doing.append(f"{_GAP}{clock(self._latest.working_seconds())}")
        if figures is None:
            return flow([doing], width)
        rest = [f"{figures.done:.0%}", f"{clock(figures.seconds)} gone"]
        rest.append("no limit" if figures.seconds_left is None else f"{clock(figures.seconds_left)} left")
        length = min(40, max(8, width - sum(len(_GAP) + len(one) for one in rest)))
        full = round(length * figures.done)
        bar = Text.assemble(("\N{BOX DRAWINGS HEAVY HORIZONTAL}" * full, "green"))
        bar.append("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (length - full), "dim")
        values = [Text.assemble((name, "dim"), " ", (value, "bold")) for name, value in self._figures(figures)]
        skipped = [Text(self._skipped, "yellow")] if self._skipped else []
        return [*flow([bar, *map(Text, rest)], width), *flow([doing], width), *flow(values, width), *skipped]

    def _figures(self, figures: Figures) -> Iterator[tuple[str, str]]:
        yield "update", f"{figures.update:,}"
        yield "epoch", f"{figures.epoch:.2f}"
        yield "words/s", f"{figures.source_words_per_second:,.0f} + {figures.target_words_per_second:,.0f}"
        yield "loss", f"{figures.loss:.3f}"
        yield "ppl", short(figures.perplexity)
        if figures.alignment_loss is not None:
            yield "alignment", f"{figures.alignment_loss:.3f}"
        yield "norm", short(figures.gradient_norm)
        yield "rate", f"{figures.learning_rate:.2g}"
        if figures.skipped:
            yield "left out", f"{figures.skipped}"
        if self._validations and (left := self._validations[-1].patience_left) is not None:
            yield "patience", f"{left} left"


def describe_start(event: Started) -> str:
    """What is trained, and on what, in one line."""
    several = f"{event.processes} processes, each: " if event.processes > 1 else ""
    return (
        f"{event.parameters:,} parameters, {event.pairs:,} pairs ({event.left_out:,} too long), "
        f"{several}{event.device}, {event.precision}, {event.threads} threads, seed {event.seed}"
        + (f"; budget: {event.budget}" if event.budget else "")
    )


def describe_skipped(event: Skipped) -> str:
    """One line for an update that was left out."""
    return f"update {event.update}: the loss is not finite; left out ({event.in_a_row} in a row)"


def short(value: float) -> str:
    """A number with two decimals, or a very large one with few digits."""
    return f"{value:.2f}" if value < 1e6 else f"{value:.1e}"


def flow(items: Sequence[Text], width: int) -> list[Text]:
    """The items side by side, and in the next row where the width ends; one that is too long is cut into words."""
    rows: list[Text] = []
    for item in (part for one in items for part in ([one] if one.cell_len <= width else one.split(" "))):
        if rows and rows[-1].cell_len + len(_GAP) + item.cell_len <= width:
            rows[-1].append(_GAP).append_text(item)
        else:
            rows.append(item.copy())
    return [_fitted(row, width) for row in rows]


def _fitted(row: Text, width: int) -> Text:
    row.no_wrap = True
    row.truncate(width)
    return row


def _table(events: Sequence[Validated], width: int) -> Iterator[Text]:
    """A row of names, and one for each validation."""
    cells = [["update", "dev loss", "ppl", "BLEU", ""]]
    for event in events:
        values = [f"{event.update:,}", f"{event.loss:.3f}", short(event.perplexity), _bleu(event.bleu)]
        cells.append([*values, "best" if event.best else ""])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    gap = _GAP if sum(widths) + len(_GAP) * len(widths) <= width + len(_GAP) else " "
    for number, row in enumerate(cells):
        text = gap.join(cell.rjust(size) for cell, size in zip(row, widths, strict=True))
        yield _fitted(Text(text.rstrip(), "" if number else "dim"), width)


def _bleu(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _sample_texts(event: Validated) -> Iterator[tuple[str, str]]:
    for name in ("source", "translation", "reference"):
        if line := getattr(event, f"sample_{name}"):
            yield name, escaped(line)


def _samples(console: Console, event: Validated, width: int, most: int) -> Iterator[Text]:
    """The sample sentences, each in at most `most` rows; a longer one ends with an ellipsis after a word."""
    margin = len("translation") + len(_GAP)
    for name, line in _sample_texts(event):
        rows = Text(line).wrap(console, max(8, width - margin))
        kept = [row.plain.rstrip() for row in rows[:most]]
        if len(rows) > most:
            kept[-1] = _shortened(kept[-1], max(8, width - margin) - 2)
        for number, text in enumerate(kept):
            label = (name if number == 0 else "").ljust(margin)
            yield _fitted(Text.assemble((label, "dim"), text), width)


def _shortened(text: str, width: int) -> str:
    """The words of a text that fit into the width, and an ellipsis."""
    while Text(text).cell_len > width:
        text = text.rpartition(" ")[0] or text[:-1]
    return f"{text} \N{HORIZONTAL ELLIPSIS}"
