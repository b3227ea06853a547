"""What training shows: a live display on a terminal, plain lines otherwise, TensorBoard if asked."""

import contextlib
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nmtalign.cli.common import escaped, say
from nmtalign.errors import UsageError
from nmtalign.training.events import (
    Damaged,
    Event,
    Finished,
    Listener,
    Noticed,
    Progressed,
    Skipped,
    Started,
    Validated,
)

DEV_ROWS = 8
_shown: list[Live] = []


@contextlib.contextmanager
def make_listener(folder: Path, quiet: bool, tensorboard: Path | None) -> Iterator[Listener]:
    """Who hears training's events: a live display on a terminal, plain lines otherwise; with `quiet` only of damage."""
    with contextlib.ExitStack() as stack:
        listeners: list[Listener] = []
        if tensorboard is not None:
            listeners.append(stack.enter_context(_tensorboard(tensorboard)))
        if quiet:
            listeners.append(lambda event: _plain(event) if isinstance(event, Damaged) else None)
        else:
            listeners.append(stack.enter_context(_live(folder)) if sys.stderr.isatty() else _plain)

        def listen(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield listen


def _plain(event: Event) -> None:
    line = describe(event)
    if line:
        say(line)


def describe(event: Event) -> str:
    """One line for an event, or nothing for one that a person need not see."""
    match event:
        case Started():
            verb = f"going on from update {event.update}" if event.resumed else "training"
            several = f"{event.processes} processes, each: " if event.processes > 1 else ""
            return (
                f"{verb}: {event.parameters:,} parameters, {event.pairs:,} pairs ({event.left_out:,} too long), "
                f"{several}{event.device}, {event.precision}, {event.threads} threads, seed {event.seed}"
            )
        case Progressed():
            return (
                f"update {event.update}  epoch {event.epoch:.2f}  loss {event.loss:.3f}  ppl {event.perplexity:.2f}  "
                f"{_alignment(event)}"
                f"words/s {event.source_words_per_second:,.0f} + {event.target_words_per_second:,.0f}  "
                f"norm {event.gradient_norm:.2f}  rate {event.learning_rate:.2g}  "
                f"{clock(event.seconds)}{_left(event)}{_skipped(event)}"
            )
        case Validated():
            bleu = f"  BLEU {event.bleu:.2f}" if event.bleu is not None else ""
            best = "  best" if event.best else ""
            back = f"  backward {event.backward_loss:.3f}" if event.backward_loss is not None else ""
            back += f" BLEU {event.backward_bleu:.2f}" if event.backward_bleu is not None else ""
            return f"update {event.update}  dev loss {event.loss:.3f}  dev ppl {event.perplexity:.2f}{bleu}{back}{best}"
        case Damaged():
            return f"{event.problem}; going on from the checkpoint before it, update {event.update}"
        case Noticed():
            return event.text
        case Skipped():
            return f"update {event.update}: the loss is not finite; left out ({event.in_a_row} in a row)"
    return ""


def _left(event: Progressed) -> str:
    return f"  left {clock(event.seconds_left)}" if event.seconds_left is not None else ""


def _alignment(event: Progressed) -> str:
    guided = f"alignment {event.alignment_loss:.3f}  " if event.alignment_loss is not None else ""
    if event.backward_loss is None or event.disagreement is None:
        return guided
    return f"{guided}backward {event.backward_loss:.3f}  disagreement {event.disagreement:.3f}  "


def _skipped(event: Progressed) -> str:
    return f"  left out {event.skipped}" if event.skipped else ""


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


@contextlib.contextmanager
def _live(folder: Path) -> Iterator[Listener]:
    display = LiveDisplay(folder)
    console = Console(file=cast(TextIO, _Terminal(sys.stderr)))
    with Live(display.render(), console=console, refresh_per_second=4) as live:
        _shown.append(live)

        def listen(event: Event) -> None:
            if isinstance(event, Damaged | Noticed):
                live.console.print(escaped(describe(event)), markup=False, highlight=False, soft_wrap=True)
            display.hear(event)
            live.update(display.render())

        yield listen


class _Terminal:
    """A terminal that may be closed at any time: what cannot be shown is left out, and training continues."""

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


def let_go() -> None:
    """Gives the terminal back, before a process that does not come to its regular end."""
    while _shown:
        _shown.pop().stop()


class LiveDisplay:
    """The latest state of a training run, as something rich can draw."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: Started | None = None
        self._progress: Progressed | None = None
        self._dev: deque[Validated] = deque(maxlen=DEV_ROWS)
        self._note = ""

    def hear(self, event: Event) -> None:
        """Takes an event in."""
        match event:
            case Started():
                self._started = event
            case Progressed():
                self._progress = event
            case Validated():
                self._dev.append(event)
            case Skipped() | Finished():
                self._note = describe(event)

    def render(self) -> Panel:
        """The whole display."""
        parts: list[Any] = [Text(escaped(describe(self._started)) if self._started else "starting", style="dim")]
        if self._progress:
            parts += [_figures(self._progress), _bar(self._progress)]
        if self._dev:
            parts += [_dev_table(list(self._dev)), _sample(self._dev[-1])]
        if self._note:
            parts.append(Text(escaped(self._note), style="yellow"))
        return Panel(Group(*parts), title=Text(f"nmtalign train {escaped(str(self._folder))}"), title_align="left")


def _figures(event: Progressed) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    columns = {
        "update": f"{event.update:,}",
        "epoch": f"{event.epoch:.2f}",
        "loss a word": f"{event.loss:.3f}",
        "perplexity": f"{event.perplexity:.2f}",
        "source words/s": f"{event.source_words_per_second:,.0f}",
        "target words/s": f"{event.target_words_per_second:,.0f}",
        "gradient norm": f"{event.gradient_norm:.2f}",
        "rate": f"{event.learning_rate:.2g}",
    }
    columns |= {
        name: f"{value:.3f}"
        for name, value in (
            ("alignment", event.alignment_loss),
            ("backward", event.backward_loss),
            ("disagreement", event.disagreement),
        )
        if value is not None
    }
    for name in columns:
        table.add_column(name, justify="right", style="bold", header_style="dim", no_wrap=True)
    table.add_row(*columns.values())
    return table


def _bar(event: Progressed) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(
        ProgressBar(total=1.0, completed=event.done, width=40),
        f"{clock(event.seconds)} gone{_left(event)}{_skipped(event)}",
    )
    return table


def _dev_table(rows: list[Validated]) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("dev at update", "loss a word", "perplexity", "BLEU", ""):
        table.add_column(name, justify="right", header_style="dim")
    for row in rows:
        bleu = f"{row.bleu:.2f}" if row.bleu is not None else ""
        mark = "best" if row.best else ""
        table.add_row(f"{row.update:,}", f"{row.loss:.3f}", f"{row.perplexity:.2f}", bleu, mark)
    return table


def _sample(event: Validated) -> Table:
    table = Table.grid(padding=(0, 2))
    lines = (event.sample_source, event.sample_translation, event.sample_reference)
    for name, line in zip(("source", "translation", "reference"), lines, strict=True):
        if line:
            table.add_row(Text(name, style="dim"), Text(escaped(line)))
    return table


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
