"""What the commands share: messages and progress on stderr, common options, names of compared files, and threads."""

import contextlib
import functools
import itertools
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, TypeVar

import typer

from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, check_other
from nmtalign.model_files import own_files
from nmtalign.settings.definition import MACHINE
from nmtalign.text.lines import STDIN, STDOUT, Shard, finite, reading

T = TypeVar("T")
_HEAD = 1 << 16  # bytes of a text from which its number of lines is estimated


def own_argument(metavar: str, help: str, **details: Any) -> Any:
    """A positional argument of a command."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, **details)


def own_option(help: str, metavar: str | None = None, names: str = "", panel: str = "", **bounds: Any) -> Any:
    """An option of a command that is not a setting; one that has a panel is only in `--help-all`."""
    title = f"Advanced: {panel}" if panel else None
    return typer.Option(*names.split(), help=help, metavar=metavar, hidden=bool(panel), rich_help_panel=title, **bounds)


outputs: dict[str, Path] = {}
"""The files that the running command writes, by the name of the parameter; made anew when a command line is parsed."""


def writes(kind: Literal["a file", "a folder"], stdout: bool = False) -> Callable[..., Any]:
    """The `callback` of an option or argument that names an output.

    It refuses `-` where standard output is not possible, and lets `check_inputs` protect the inputs from a file.
    """

    def note(option: typer.CallbackParam, value: Path | None) -> Path | None:
        if value == STDOUT and not stdout:
            name = min(option.opts, key=len)
            raise UsageError(f"{name} -: standard output is not possible here; give the name of {kind}")
        if value not in (None, STDOUT) and kind == "a file":
            outputs[str(option.name)] = value
        return value

    return note


def check_inputs(*inputs: Path | None) -> None:
    """Raises UsageError if an output of the running command would replace one of these inputs, or another output.

    Standard input and the inputs that the command line names are checked for every command. A command gives those that
    it finds in other ways, such as the texts of the workspace. In a folder the files that nmtalign made are inputs.
    """
    files = [Path("/dev/stdin"), *(file for one in inputs if one is not None for file in (one, *own_files(one)))]
    for output in outputs.values():
        check_other(output, files)
    for (first, one), (second, other) in itertools.combinations(sorted(outputs.items()), 2):
        check_other(other, [one], f"is given for {_flag(first)} and for {_flag(second)}; give two files")


def _flag(name: str) -> str:
    return "-o" if name == "output" else f"--{name.replace('_', '-')}"


DATA_DEFAULT = "[dim]\\[default: the workspace's, or data/][/dim]."
MODEL_DEFAULT = "[dim]\\[default: the workspace's, or model/][/dim]."
ConfigOption = Annotated[
    Path | None,
    own_option("Workspace file [dim]\\[default: nmtalign.toml in the current folder][/dim].", "FILE", "--config"),
]
ModelOption = Annotated[Path | None, own_option(f"Model directory {MODEL_DEFAULT}", "DIR", "--model -m")]
ModelsOption = Annotated[
    list[Path] | None, own_option(f"Model directory; repeat it for an ensemble {MODEL_DEFAULT}", "DIR", "--model -m")
]
WhichOption = Annotated[
    Literal["best", "last"], own_option("Weights of the best validation, or the last ones.", panel=MACHINE)
]
GoldBaseOption = Annotated[
    int | None,
    own_option(
        "First position in the gold links [dim]\\[default: 0; 1 if each line has one link][/dim].", "0|1", min=0, max=1
    ),
]
ShardOption = Annotated[
    Shard | None,
    own_option(
        "Do only block I of N blocks of lines; the N outputs, one after the other, are the complete one.",
        "I/N",
        panel=MACHINE,
        parser=Shard.parse,
    ),
]
ReverseGoldOption = Annotated[bool, own_option("The gold links have the target first.", names="--reverse-gold")]
QuietOption = Annotated[bool, own_option("No progress and no summary on stderr.", names="--quiet -q")]


# Control characters, line separators, characters that change the direction of text, and halves of characters.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BYTES = re.compile("[\udc80-\udcff]+")  # how Python represents bytes of a file name that are not UTF-8


def say(*messages: str) -> None:
    """Writes one line per message for the user to stderr.

    If the reader has gone or the disk is full, the line is lost and the command continues.
    """
    with contextlib.suppress(OSError):
        for message in messages:
            sys.stderr.write(f"nmtalign: {escaped(message)}\n")
        sys.stderr.flush()


def shows_live() -> bool:
    """Whether stderr is a terminal on which text can be replaced."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def notifier(quiet: bool) -> Callable[[str], None]:
    """`say`, or with `quiet` a function that does nothing."""
    return (lambda message: None) if quiet else say


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A text file that appears when all is written; standard output for `-` and None."""
    if path is None or path == STDOUT:
        yield sys.stdout
        return
    with atomic_text(path) as stream:
        yield stream


def escaped(text: str) -> str:
    """Text from a file, or a file name, made safe to show to the user on one line.

    Characters that could control the terminal, reorder the text or end the line become escapes such as `\\x1b`, and so
    do bytes that are not UTF-8. Data for another program is never changed like this.
    """
    text = _BYTES.sub(lambda run: run[0].encode(errors="surrogateescape").decode(errors="backslashreplace"), text)
    return _UNSAFE.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as JSON: null for NaN and infinity, and escapes for the characters that `escaped` replaces."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSAFE.sub(lambda one: one[0] if one[0] == "\n" else f"\\u{ord(one[0]):04x}", text)


def counted(
    items: Iterable[T], doing: str, unit: str, quiet: bool, total: Callable[[], int | None] = lambda: None
) -> Iterator[T]:
    """Yields the items and shows their number and rate, as in "aligning: 2,000 of about 9,000 pairs, 50/s".

    `total` returns about how many there will be, if that is known; with `quiet` nothing is shown or computed.
    """
    if quiet or not shows_live():
        yield from items
        return
    count, began = total(), time.monotonic()
    of = f" of about {count:,}" if count else ""
    with live_line(f"{doing}: 0{of} {unit}", count) as update:
        for number, item in enumerate(items, 1):
            yield item
            rate = number / max(1e-3, time.monotonic() - began)
            update(completed=number, description=f"{doing}: {number:,}{of} {unit}, {rate:,.0f}/s")


def next_report(passed: float) -> float:
    """When a log gets its next line of progress: after 10 s, 30 s, then every minute."""
    return next((seconds for seconds in (10.0, 30.0) if seconds > passed), 60.0 * (passed // 60 + 1))


@contextlib.contextmanager
def advancing(quiet: bool, doing: str, total: float) -> Iterator[Callable[[float], None]]:
    """Shows how many of `total` lines are done, as a bar on a terminal, else as lines of a log.

    Yields a function that gets each number of lines that were finished; any thread may call it.
    """
    began, done, due, lock = time.monotonic(), 0.0, next_report(0.0), threading.Lock()
    with live_line(doing, total) if shows_live() and not quiet else contextlib.nullcontext() as update:

        def advance(count: float) -> None:
            nonlocal done, due
            with lock:
                done, passed = min(total, done + count), time.monotonic() - began
                text = f"{doing}: {done:,.0f} of {total:,.0f} lines, {done / max(1e-3, passed):,.0f}/s"
                if update:
                    update(completed=done, description=text)
                elif passed >= due and not quiet:
                    due = next_report(passed)
                    say(text)

        yield advance


def lines_of(path: Path) -> int | None:
    """About how many lines a text file has, by its size and its first lines; None if that is not known."""
    from nmtalign.translating.inputs import unpacked_size

    if not path.is_file() or not (size := unpacked_size(path)):
        return None
    with reading(path) as stream:
        head = stream.read(_HEAD)
    return round((head.count(b"\n") + (not head.endswith(b"\n"))) * size / len(head)) if head else None


@contextlib.contextmanager
def status_line(text: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows `text` and a clock on stderr if it is a terminal; yields a function that replaces the text."""
    if quiet or not shows_live():
        yield lambda text: None
        return
    with live_line(text) as update:
        yield lambda text: update(description=text)


@contextlib.contextmanager
def live_line(text: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """Shows `text` on stderr, with a bar if there is a total of work, else with a clock.

    Yields a function that changes it: `description`, and `completed` or `advance` of the work. What the command writes
    to stdout meanwhile goes there.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    description, share = TextColumn("{task.description}", markup=False), TextColumn("{task.percentage:.0f}%")
    columns = (
        (description, BarColumn(), share, TimeRemainingColumn())
        if total
        else (SpinnerColumn(), description, TimeElapsedColumn())
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as display:
        yield functools.partial(display.update, display.add_task(text, total=total))


def named(argument: Path) -> tuple[str, Path]:
    """(name, path) of `NAME=FILE`, or ("", path); the name of an existing file may contain `=`."""
    name, equals, path = str(argument).partition("=")
    if equals and name and path and "/" not in name and not argument.exists():
        return name, Path(path)
    return "", argument


def name_files(arguments: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """(name, path) of each argument, with different names.

    The name of a file or folder without NAME is the shortest end of its path that no other one has. If a path is given
    twice, the second name has a number. Raises UsageError if a NAME is given twice.
    """
    pairs = [named(argument) for argument in arguments]
    taken = Counter(name for name, _ in pairs if name)
    if twice := [name for name, count in taken.items() if count > 1]:
        raise UsageError(f"two files are named {twice[0]}; give each NAME=FILE a different name")
    unnamed = [_parts(path) for name, path in pairs if not name]
    found = []
    for name, path in pairs:
        if not name:
            name = _unused(_shortest_end(_parts(path), unnamed), taken)
            taken[name] += 1
        found.append((name, path))
    return tuple(found)


def _parts(path: Path) -> tuple[str, ...]:
    """The parts of a path; train.jsonl means its folder."""
    if path == STDIN:
        return ("stdin",)
    path = path.parent if path.name == "train.jsonl" else path
    return (path if path.name not in ("", "..") else path.resolve()).parts


def _shortest_end(parts: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    """The shortest end of a path that no different path has."""
    for size in range(1, len(parts)):
        if all(other == parts or other[-size:] != parts[-size:] for other in others):
            return str(Path(*parts[-size:]))
    return str(Path(*parts))


def _unused(name: str, taken: Counter[str]) -> str:
    """The name, or if it is taken the name with the next free number, as in "x (2)"."""
    numbered = (f"{name} ({number})" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)


def _clocks() -> tuple[float, float]:
    """The time, and the processor time that other processes have used; 0 if the system does not report it."""
    try:
        user, nice, system = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=4)[1:4]
        used = (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), used - time.process_time()
    except (OSError, ValueError, IndexError):
        return 0.0, 0.0


_BEGAN = _clocks()


def busy_cores() -> float:
    """How many cores the other processes have used since this module was imported."""
    (began, before), (now, used) = _BEGAN, _clocks()
    return (used - before) / (now - began) if now > began else 0.0


def choose_wait_policy(busy: Callable[[], float] = busy_cores) -> None:
    """Makes PyTorch's threads sleep instead of spin while they wait for each other, if the processor is busy.

    Call it before torch is imported. On an idle machine with two cores, spinning trained 1.5 times as fast as sleeping;
    beside one busy process it trained at a quarter of the speed. Environment variables of the user have precedence.
    """
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ) or "torch" in sys.modules:
        return
    if busy() > 0.3:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def bound_caches() -> None:
    """Limits the caches of oneDNN and PyTorch, which keep a kernel for each of the last 1,024 shapes: about 400 MB.

    Call it before torch is imported, in commands that compute with many shapes. With 256 a search is a few percent
    slower at its beginning. Environment variables of the user have precedence.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")
