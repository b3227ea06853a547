"""What `nmtalign train` shows on stderr: a live display on a terminal, else plain lines; and events for TensorBoard."""

import contextlib
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
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


@contextlib.contextmanager
def make_listener(folder: Path, quiet: bool, tensorboard: Path | None) -> Iterator[Listener]:
    """A listener that shows the events of a training; with `quiet` only damaged files."""
    with contextlib.ExitStack() as stack:
        listeners: list[Listener] = []
        if tensorboard is not None:
            listeners.append(stack.enter_context(_tensorboard(tensorboard)))
        if quiet:
            listeners.append(lambda event: _say(event) if isinstance(event, Damaged) else None)
        else:
            listeners.append(stack.enter_context(_live(folder)) if sys.stderr.isatty() else _say)

        def listen(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield listen


def _say(event: Event) -> None:
    if line := describe(event):
        say(line)


def describe(event: Event) -> str:
    """One line for an event, or "" for an event that the user need not see."""
    match event:
        case Started():
            verb = f"resuming from update {event.update}" if event.resumed else "training"
            several = f"{event.processes} processes, each: " if event.processes > 1 else ""
            return (
                f"{verb}: {event.parameters:,} parameters, {event.pairs:,} pairs ({event.left_out:,} too long), "
                f"{several}{event.device}, {event.precision}, {event.threads} threads, seed {event.seed}"
            )
        case Progressed():
            both = "".join(f"{name} {value:.3f}  " for name, value in _further_losses(event).items())
            return (
                f"update {event.update}  epoch {event.epoch:.2f}  loss {event.loss:.3f}  ppl {event.perplexity:.2f}  "
                f"{both}words/s {event.source_words_per_second:,.0f} + {event.target_words_per_second:,.0f}  "
                f"norm {event.gradient_norm:.2f}  rate {event.learning_rate:.2g}  {clock(event.seconds)}{_rest(event)}"
            )
        case Validated():
            bleu = f"  BLEU {event.bleu:.2f}" if event.bleu is not None else ""
            bleu += f"  backward {event.backward_loss:.3f}" if event.backward_loss is not None else ""
            bleu += f" BLEU {event.backward_bleu:.2f}" if event.backward_bleu is not None else ""
            best = "  best" if event.best else ""
            return f"update {event.update}  dev loss {event.loss:.3f}  dev ppl {event.perplexity:.2f}{bleu}{best}"
        case Damaged():
            return f"{event.problem}; resuming from the checkpoint before it, update {event.update}"
        case Noticed():
            return event.text
        case Skipped():
            return f"update {event.update}: the loss is not finite; left out ({event.in_a_row} in a row)"
    return ""


def _further_losses(event: Progressed) -> Mapping[str, float]:
    """The losses of the links that guide the training, and of the other direction."""
    losses = {"alignment": event.alignment_loss, "backward": event.backward_loss, "disagreement": event.disagreement}
    return {name: value for name, value in losses.items() if value is not None}


def _rest(event: Progressed) -> str:
    left = f"  left {clock(event.seconds_left)}" if event.seconds_left is not None else ""
    return left + (f"  left out {event.skipped}" if event.skipped else "")


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


@contextlib.contextmanager
def _live(folder: Path) -> Iterator[Listener]:
    display = _Display(folder)
    console = Console(file=cast(TextIO, _Terminal(sys.stderr)))
    with Live(console=console, get_renderable=display.render, refresh_per_second=4) as live:

        def listen(event: Event) -> None:
            if isinstance(event, Damaged | Noticed):
                live.console.print(escaped(describe(event)), markup=False, highlight=False, soft_wrap=True)
            display.take(event)

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


class _Display:
    """The latest state of a training, which rich draws several times per second."""

    def __init__(self, folder: Path) -> None:
        self._title = Text(f"nmtalign train {escaped(str(folder))}")
        self._parts: dict[type, RenderableType] = {Started: Text("starting", style="dim")}
        self._validations: deque[Validated] = deque(maxlen=8)  # the last ones

    def take(self, event: Event) -> None:
        """Replaces the part of the display that shows events of this type."""
        match event:
            case Started():
                self._parts[Started] = Text(escaped(describe(event)), style="dim")
            case Progressed():
                self._parts[Progressed] = _figures(event)
            case Validated():
                self._validations.append(event)
                self._parts[Validated] = Group(_validations(self._validations), _sample(event))
            case Skipped():
                self._parts[Skipped] = Text(describe(event), style="yellow")
            case Finished():
                self._parts.pop(Skipped, None)

    def render(self) -> Panel:
        """The display as a panel."""
        shown = [self._parts[kind] for kind in (Started, Progressed, Validated, Skipped) if kind in self._parts]
        return Panel(Group(*shown), title=self._title, title_align="left")


def _figures(event: Progressed) -> Group:
    """Each figure below its name, in a row that rich breaks where the terminal is narrow; then a bar."""
    figures = {
        "update": f"{event.update:,}",
        "epoch": f"{event.epoch:.2f}",
        "loss/word": f"{event.loss:.3f}",
        "perplexity": f"{event.perplexity:.2f}",
        "source words/s": f"{event.source_words_per_second:,.0f}",
        "target words/s": f"{event.target_words_per_second:,.0f}",
        "gradient norm": f"{event.gradient_norm:.2f}",
        "rate": f"{event.learning_rate:.2g}",
    } | {name: f"{value:.3f}" for name, value in _further_losses(event).items()}
    cells = [Text.assemble((name, "dim"), "\n", (value, "bold"), justify="right") for name, value in figures.items()]
    bar = Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(total=1.0, completed=event.done, width=30), f"{clock(event.seconds)} gone{_rest(event)}")
    return Group(Columns(cells, padding=(0, 3)), bar)


def _validations(events: deque[Validated]) -> Table:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("dev at update", "loss/word", "perplexity", "BLEU", ""):
        table.add_column(name, justify="right", header_style="dim", no_wrap=True)
    for event in events:
        bleu = f"{event.bleu:.2f}" if event.bleu is not None else ""
        table.add_row(
            f"{event.update:,}", f"{event.loss:.3f}", f"{event.perplexity:.2f}", bleu, "best" if event.best else ""
        )
    return table


def _sample(event: Validated) -> Table:
    table = Table.grid(padding=(0, 2))
    for name in ("source", "translation", "reference"):
        if line := getattr(event, f"sample_{name}"):
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
