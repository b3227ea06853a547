"""What `nmtalign train` shows on stderr: a panel on a terminal, else plain lines; and events for TensorBoard."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nmtalign.cli.common import clock, escaped, next_report, say, shows_live
from nmtalign.errors import UsageError
from nmtalign.text.lines import counted
from nmtalign.training import events

_AVERAGED = ("loss", "alignment_loss", "source_words_per_second", "target_words_per_second", "gradient_norm")
_SLOW = 3.0  # seconds after which a plain line names the work between updates
_WIDEST = 120  # columns; longer rows are hard to read
_FIXED_ROWS = 14  # rows of the panel without the table of validations


class TrainingDisplay:
    """Shows the events of a training that `take` gets, while its context is open; with `quiet` only damaged files."""

    def __init__(self, folder: Path, quiet: bool = False, tensorboard: Path | None = None) -> None:
        self.updates = 0  # of this process
        self._folder, self._quiet, self._tensorboard = folder, quiet, tensorboard
        self._context = contextlib.ExitStack()
        self._lock, self._began, self._due = threading.Lock(), time.monotonic(), next_report(0.0)
        self._started: events.Started | None = None
        self._figures: deque[events.Figures] = deque(maxlen=10)
        self._came = 0.0  # the time of the last figures
        self._working: events.Working | None = None
        self._since, self._named = self._began, 0.0  # when this work began, and the work that a line has named
        self._validations: deque[events.Validated] = deque(maxlen=8)
        self._ended = threading.Event()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._tensorboard is not None and find_spec("tensorboard") is None:
            raise UsageError("--tensorboard: TensorBoard is not installed; install nmtalign[tensorboard]")
        if not self._quiet and shows_live():
            # rich would take an exported COLUMNS for the size of the terminal, also after the terminal is resized.
            variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            console = Console(stderr=True, _environ=variables)
            # Until the training begins, nothing remains on the terminal: an error of the start is a single line.
            live = Live(self, console=console, refresh_per_second=2, vertical_overflow="crop", transient=True)
            self._live = self._context.enter_context(live)
        elif not self._quiet:
            thread = threading.Thread(target=self._watch, daemon=True)
            thread.start()
            self._context.callback(thread.join)
            self._context.callback(self._ended.set)
        return self

    def __exit__(self, *error: object) -> None:
        self._context.close()

    @cached_property
    def _writer(self) -> Any:
        """TensorBoard's writer. Its file is made with the first figures, so that an error of the start leaves none."""
        from torch.utils.tensorboard import SummaryWriter

        return self._context.enter_context(SummaryWriter(str(self._tensorboard)))

    def take(self, event: events.Event) -> None:
        """Notes an event; writes a line for it, unless it belongs in the panel or in the next line of progress."""
        with self._lock:
            self._note(event)
            line = describe(event)
            if self._quiet:
                line = line if isinstance(event, events.Damaged) else ""
            elif self._live:
                line = line if isinstance(event, events.Damaged | events.Noticed | events.Skipped) else ""
            elif isinstance(event, events.Finished) and (figures := self._current()):
                line = describe(figures)
            elif isinstance(event, events.Figures):
                line = ""
        if line and self._live:
            self._live.console.print(escaped(line), markup=False, highlight=False, soft_wrap=True)
        elif line:
            say(line)
        if self._tensorboard is not None and isinstance(event, events.Progressed | events.Validated):
            group = "train" if isinstance(event, events.Progressed) else "dev"
            for name, value in event.as_dict().items():
                if isinstance(value, float) and name not in ("epoch", "seconds"):
                    self._writer.add_scalar(f"{group}/{name}", value, event.update)

    def _note(self, event: events.Event) -> None:
        now = time.monotonic()
        self.updates += isinstance(event, events.Underway | events.Skipped)
        match event:
            case events.Started():
                self._started = event
                if self._live:
                    self._live.transient = False
            case events.Underway():
                self._came, self._working = now, None
                self._figures.append(event)
            case events.Working():
                if self._working is None or self._working.doing != event.doing:
                    self._since = now
                self._working = event
            case events.Validated():
                self._validations.append(event)
        if event.recorded:
            self._working = None

    def _current(self) -> events.Figures | None:
        """The figures, those in `_AVERAGED` as means of the last ten, with the time as it is now."""
        if not self._figures:
            return None
        last, passed = self._figures[-1], time.monotonic() - self._came
        values = {name: [getattr(one, name) for one in self._figures] for name in _AVERAGED}
        means = {name: sum(each) / len(each) for name, each in values.items() if None not in each}
        left = None if last.seconds_left is None else max(0.0, last.seconds_left - passed)
        means |= {"perplexity": events.perplexity(means["loss"])}
        return replace(last, **means, seconds=last.seconds + passed, seconds_left=left)

    def _doing(self) -> str:
        """The present work in words, as in "validating ... 40%"."""
        if self._working is None:
            return "training" if self._figures else "starting"
        share = f" {self._working.done:.0%}" if self._working.done is not None else ""
        return f"{self._working.doing} ...{share}"

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.tick()

    def tick(self) -> None:
        """Writes the plain lines that are due, also within a long update; to be called about every second."""
        with self._lock:
            now = time.monotonic()
            due, figures = now - self._began >= self._due, self._current()
            if due:
                self._due = next_report(now - self._began)
            if due and figures:
                say(describe(figures))
            if self._working and (due or (self._since != self._named and now - self._since >= _SLOW)):
                self._named = self._since
                say(self._doing())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The panel; rich draws it several times per second, in the present size of the terminal."""
        with self._lock:
            rows = [*self._rows(options.size.height)]
        title = Text(f"nmtalign train {escaped(str(self._folder))}")
        yield Panel(Group(*rows), title=title, title_align="left", width=min(options.max_width, _WIDEST))
        yield Text("")  # the cursor waits here: the terminal's ^C would begin another row behind a complete one

    def _rows(self, height: int) -> Iterator[RenderableType]:
        if self._started:
            yield Text(describe_start(self._started), "dim")
        figures, doing = self._current(), Text(self._doing(), "cyan")
        if self._working and (seconds := time.monotonic() - self._since) >= 1:
            doing.append(f"  {clock(seconds)}")
        if figures:
            left = "no limit" if figures.seconds_left is None else f"{clock(figures.seconds_left)} left"
            bar = Table.grid(padding=(0, 1))
            gone = f"{clock(figures.seconds)} gone"
            bar.add_row(ProgressBar(1, figures.done, width=30), f"{figures.done:.0%}", gone, left)
            yield bar
        yield doing
        if figures:
            yield Text("  ".join(item.replace(" ", "\N{NO-BREAK SPACE}") for item in _items(figures)))
        if self._validations:
            table = Table(box=None, padding=(0, 2, 0, 0))
            for name in ("update", "dev loss", "ppl", "BLEU", ""):
                table.add_column(name, justify="right", header_style="dim")
            for one in [*self._validations][-max(1, height - _FIXED_ROWS) :]:
                bleu = "" if one.bleu is None else f"{one.bleu:.2f}"
                values = f"{one.update:,}", f"{one.loss:.3f}", _short(one.perplexity), bleu
                table.add_row(*values, _verdict(one))
            yield table
            samples = Table.grid(padding=(0, 2))
            for name in ("source", "translation", "reference"):
                line = escaped(getattr(self._validations[-1], f"sample_{name}"))
                samples.add_row(Text(name, "dim"), Text(line, overflow="ellipsis", no_wrap=True))
            yield samples


def describe(event: events.Event) -> str:
    """One line for an event, or "" for an event that the user need not see."""
    match event:
        case events.Started():
            return f"{f'resuming from update {event.update}' if event.resumed else 'training'}: {describe_start(event)}"
        case events.Figures():
            left = f"  left {clock(event.seconds_left)}" if event.seconds_left is not None else ""
            return f"{'  '.join(_items(event))}  {event.done:.0%}  {clock(event.seconds)}{left}"
        case events.Validated():
            bleu = f"  BLEU {event.bleu:.2f}" if event.bleu is not None else ""
            figures = f"dev loss {event.loss:.3f}  dev ppl {_short(event.perplexity)}{bleu}"
            return f"update {event.update:,}  {figures}  {_verdict(event)}".rstrip()
        case events.Damaged():
            return event.problem
        case events.Noticed():
            return event.text
        case events.Skipped():
            return f"update {event.update}: the loss is not finite; left out ({event.in_a_row} in a row)"
    return ""


def _items(figures: events.Figures) -> Iterator[str]:
    yield f"update {figures.update:,}"
    yield f"epoch {figures.epoch:.2f}"
    yield f"loss {figures.loss:.3f}"
    yield f"ppl {_short(figures.perplexity)}"
    if figures.alignment_loss is not None:
        yield f"alignment {figures.alignment_loss:.3f}"
    yield f"words/s {figures.source_words_per_second:,.0f} + {figures.target_words_per_second:,.0f}"
    yield f"norm {_short(figures.gradient_norm)}"
    yield f"rate {figures.learning_rate:.2g}"
    if figures.skipped:
        yield f"left out {figures.skipped}"


def describe_start(event: events.Started) -> str:
    """What is trained, and on what, in one line."""
    several = f"{event.processes} processes, each: " if event.processes > 1 else ""
    sizes = f"{event.parameters:,} parameters, {counted(event.pairs, 'pair')} ({event.left_out:,} too long)"
    machine = f"{several}{event.device}, {event.precision}, {counted(event.threads, 'thread')}, seed {event.seed}"
    return f"{sizes}, {machine}{f'; budget: {event.budget}' if event.budget else ''}"


def _verdict(event: events.Validated) -> str:
    patience = "" if event.patience_left is None else f"patience {event.patience_left} left"
    return "best" if event.best else patience


def _short(value: float) -> str:
    """A number with two decimals, or a very large one with few digits."""
    return f"{value:.2f}" if value < 1e6 else f"{value:.1e}"
