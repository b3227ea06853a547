"""What `nmtalign train` shows on stderr: a live panel on a terminal, else plain lines; and events for TensorBoard."""

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.live import Live

from nmtalign.cli.common import clock, escaped, next_report, say, shows_live
from nmtalign.cli.panel import Latest, TrainingPanel, describe_skipped, describe_start, short
from nmtalign.errors import UsageError
from nmtalign.training.events import (
    Damaged,
    Event,
    Figures,
    Finished,
    Listener,
    Noticed,
    Progressed,
    Skipped,
    Started,
    Validated,
)

_SLOW = 3.0  # seconds after which a plain line names the work between updates
_NOTICES = 5  # kept, to be shown again above the panel of a terminal that was resized


@contextlib.contextmanager
def make_listener(folder: Path, quiet: bool, tensorboard: Path | None) -> Iterator[Listener]:
    """A listener that shows the events of a training; with `quiet` only damaged files."""
    with contextlib.ExitStack() as stack:
        listeners: list[Listener] = []
        if tensorboard is not None:
            listeners.append(stack.enter_context(_tensorboard(tensorboard)))
        if quiet:
            listeners.append(lambda event: say(describe(event)) if isinstance(event, Damaged) else None)
        else:
            listeners.append(stack.enter_context(_live(folder) if shows_live() else _plain()))

        def listen(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield listen


def describe(event: Event) -> str:
    """One line for an event, or "" for an event that the user need not see."""
    match event:
        case Started():
            return f"{f'resuming from update {event.update}' if event.resumed else 'training'}: {describe_start(event)}"
        case Figures():
            links = f"alignment {event.alignment_loss:.3f}  " if event.alignment_loss is not None else ""
            left = f"  left {clock(event.seconds_left)}" if event.seconds_left is not None else ""
            left += f"  left out {event.skipped}" if event.skipped else ""
            return (
                f"update {event.update}  epoch {event.epoch:.2f}  {event.done:.0%}  loss {event.loss:.3f}  "
                f"ppl {short(event.perplexity)}  {links}"
                f"words/s {event.source_words_per_second:,.0f} + {event.target_words_per_second:,.0f}  "
                f"norm {short(event.gradient_norm)}  rate {event.learning_rate:.2g}  {clock(event.seconds)}{left}"
            )
        case Validated():
            bleu = f"  BLEU {event.bleu:.2f}" if event.bleu is not None else ""
            patience = "" if event.patience_left is None else f"  patience {event.patience_left} left"
            best = "  best" if event.best else patience
            return f"update {event.update}  dev loss {event.loss:.3f}  dev ppl {short(event.perplexity)}{bleu}{best}"
        case Damaged():
            return f"{event.problem}; resuming from the checkpoint before it, update {event.update}"
        case Noticed():
            return event.text
        case Skipped():
            return describe_skipped(event)
    return ""


class PlainLines:
    """Writes lines of progress at fixed times, also within a long update, and a line for each other event."""

    def __init__(self, write: Callable[[str], None] = say, now: Callable[[], float] = time.monotonic) -> None:
        self._write, self._now, self._began = write, now, now()
        self._latest, self._due, self._named = Latest(now), next_report(0.0), 0.0
        self._lock = threading.Lock()

    def take(self, event: Event) -> None:
        """Writes a line for an event, unless it belongs into the next line of progress."""
        with self._lock:
            self._latest.take(event)
            if isinstance(event, Finished) and self._latest.figures:
                self._write(describe(self._latest.figures))
            elif not isinstance(event, Figures) and (line := describe(event)):
                self._write(line)

    def tick(self) -> None:
        """Writes what is due; to be called about every second."""
        with self._lock:
            passed, latest = self._now() - self._began, self._latest
            due, figures = passed >= self._due, latest.current()
            if due:
                self._due = next_report(passed)
            if due and figures:
                self._write(describe(figures))
            if latest.working and (due or (latest.since != self._named and latest.working_seconds() >= _SLOW)):
                self._named = latest.since
                self._write(latest.doing())


@contextlib.contextmanager
def _plain() -> Iterator[Listener]:
    lines, ended = PlainLines(), threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            lines.tick()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lines.take
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _live(folder: Path) -> Iterator[Listener]:
    panel, notices = TrainingPanel(folder), deque[str](maxlen=_NOTICES)
    # rich would take an exported COLUMNS for the size of the terminal, also after the terminal is resized.
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    console = Console(file=cast(TextIO, _Terminal(sys.stderr)), _environ=variables)
    # Until the training begins, nothing remains on the terminal: an error of the start is a single line.
    with Live(panel, console=console, refresh_per_second=2, vertical_overflow="crop", transient=True) as live:

        def listen(event: Event) -> None:
            again, panel.cleared = panel.cleared, False
            if isinstance(event, Damaged | Noticed):
                notices.append(escaped(describe(event)))
            for notice in notices if again else [*notices][-1:] if isinstance(event, Damaged | Noticed) else ():
                live.console.print(notice, markup=False, highlight=False, soft_wrap=True)
            if isinstance(event, Started):
                live.transient = False
            panel.take(event)

        yield listen


class _Terminal:
    """A terminal that the user may close: output that it refuses is lost, and training continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _tensorboard(folder: Path) -> Iterator[Listener]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard: TensorBoard is not installed; install nmtalign[tensorboard]") from None
    with SummaryWriter(str(folder)) as writer:

        def listen(event: Event) -> None:
            if isinstance(event, Progressed | Validated):
                group = "train" if isinstance(event, Progressed) else "dev"
                for name, value in event.as_dict().items():
                    if isinstance(value, float) and name not in ("epoch", "seconds"):
                        writer.add_scalar(f"{group}/{name}", value, event.update)

        yield listen
