"""What the commands share: options, messages and progress on stderr, tables, names of files, threads, and signals.

A signal (Ctrl-C, SIGTERM, SIGHUP) ends a command with exit code 128 + its number, after one line.
"""

import atexit
import contextlib
import functools
import itertools
import math
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self, TextIO

import psutil
import typer

from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import atomic_text, check_other, own_files
from nmtalign.report.document import DataTable, table_lines
from nmtalign.settings.definition import option
from nmtalign.text.lines import STDIN, STDOUT, UNSAFE

FIRST_REPORT = 10.0  # seconds until the first line of progress in a log
_BUSY = 0.3  # cores; less load of other programs is not noticed
_joining = threading.Lock()  # locked while a thread joins PyTorch's threads, and at exit: exiting meanwhile would crash


def own_argument(metavar: str, help: str, default: Any = None, **details: Any) -> Any:
    """A positional argument of a command; the default `...` means that it is required."""
    return typer.Argument(default, metavar=metavar, help=help, show_default=False, readable=False, **details)


def own_option(help: str, metavar: str | None = None, names: str = "", default: Any = None, **details: Any) -> Any:
    """An option of a command; it may be the option of a setting."""
    return typer.Option(default, *names.split(), help=help, metavar=metavar, readable=False, **details)


def own_flag(help: str, names: str) -> Any:
    """An option without a value, which is off by default."""
    return own_option(help, None, names, False)


outputs: dict[str, Path] = {}
"""The files that the running command writes, by the name of the parameter; made anew when a command line is parsed."""


def writes(kind: Literal["a file", "a folder"], stdout: bool = False) -> Callable[..., Any]:
    """The `callback` of an option or argument that names an output.

    It refuses `-` where standard output is not possible, and lets `check_inputs` protect the inputs from a file.
    """

    def note(parameter: typer.CallbackParam, value: Path | None) -> Path | None:
        if value == STDOUT and not stdout:
            name = min(parameter.opts, key=len)
            raise UsageError(f"{name} -: standard output is not possible here; give the name of {kind}")
        if value is not None and kind == "a file":
            outputs[str(parameter.name)] = value
        return value

    return note


def output_option(
    help: str, metavar: str = "FILE", stdout: bool = False, folder: bool = False, default: Path | None = None
) -> Any:
    """The option -o of a command that writes a file or a folder."""
    callback = writes("a folder" if folder else "a file", stdout)
    return own_option(help, metavar, "--output -o", default, callback=callback)


def check_inputs(*inputs: Path | None) -> None:
    """Raises UsageError if an output of the running command would replace one of these inputs, or another output.

    Two of the inputs must not both be standard input. `with_settings` gives the inputs that the command line names. A
    command gives those that it finds in other ways. In a folder the files that nmtalign made are inputs.
    """
    if inputs.count(STDIN) > 1:
        raise UsageError("standard input (-) is given more than once, and can be read only once; give files")
    paths = {name: path for name, path in sorted(outputs.items()) if path != STDOUT}
    written = [("-o" if name == "output" else option(name), path) for name, path in paths.items()]
    if not written:
        return
    files = [Path("/dev/stdin"), *(file for one in inputs if one is not None for file in (one, *own_files(one)))]
    for _, output in written:
        check_other(output, files)
    for (first, one), (second, other) in itertools.combinations(written, 2):
        check_other(other, [one], f"is given for {first} and for {second}; give two files")


def need_target(source: Path, target: Path | None) -> Path:
    """The translation of a source text; raises UsageError if only one text is given."""
    if target is None:
        files = "give two files, the source and its translation: SRC TGT; a file that has both must be split"
        raise UsageError(f"{source}: only one text is given; {files}")
    return target


LINK_SUFFIXES = (".txt", ".align", ".links")  # of files of links, which are text and not what -o writes
DATA_DEFAULT = "[dim]\\[default: the workspace's, or data/][/dim]."
MODEL_DEFAULT = "[dim]\\[default: the workspace's, or model/][/dim]."
MODELS = own_option(f"Model directory; repeat it for an ensemble {MODEL_DEFAULT}", "DIR", "--model -m")
SHARD = own_option(
    "Do only block I of N blocks of lines; the N texts, one after the other, are the complete text.", "I/N"
)
QUIET = own_flag("No progress and no summary on stderr.", "--quiet -q")


_UNSAFE = re.compile(f"[\x00-\x1f\x7f{UNSAFE}]")  # with the control characters of ASCII
_BYTES = re.compile("[\udc80-\udcff]+")  # how Python represents bytes of a file name that are not UTF-8


def say(*messages: str) -> None:
    """Writes one line per message for the user to stderr."""
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


def open_output(path: Path) -> contextlib.AbstractContextManager[TextIO]:
    """A text file that appears when all is written; standard output for `-`."""
    return contextlib.nullcontext(sys.stdout) if path == STDOUT else atomic_text(path)


def escaped(text: str) -> str:
    """Text from a file, or a file name, made safe to show to the user on one line.

    Characters that could control the terminal, reorder the text or end the line become escapes such as `\\x1b`, and so
    do bytes that are not UTF-8. Data for another program is never changed like this.
    """
    text = _BYTES.sub(lambda run: run[0].encode(errors="surrogateescape").decode(errors="backslashreplace"), text)
    return _UNSAFE.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def next_report(passed: float) -> float:
    """When a log gets its next line of progress: after 10 s, 30 s, then every minute."""
    return next((seconds for seconds in (FIRST_REPORT, 30.0) if seconds > passed), 60.0 * (passed // 60 + 1))


@contextlib.contextmanager
def advancing(quiet: bool, doing: str, total: float | None, unit: str = "lines") -> Iterator[Callable[[float], None]]:
    """Shows how much of the work is done by a `live_line`.

    Yields a function that gets each number of lines that were finished; any thread may call it.
    """
    began, done, lock = time.monotonic(), 0.0, threading.Lock()
    of = f" of {total:,.0f}" if total else ""
    with live_line(doing, quiet, total) as update:

        def advance(count: float) -> None:
            nonlocal done
            with lock:
                done, passed = min(total or math.inf, done + count), time.monotonic() - began
                update(f"{doing}: {done:,.0f}{of} {unit}, {done / max(1e-3, passed):,.0f}/s", done)

        yield advance


@contextlib.contextmanager
def live_line(text: str, hidden: bool, total: float | None = None) -> Iterator[Callable[..., None]]:
    """Shows `text` on stderr: on a terminal with a bar if there is a total of work, else with a clock.

    Yields a function that changes the text and how much of the work is done. A log gets the texts of some of its calls
    (`next_report`). Output of the command to stdout stays on stdout.
    """
    if hidden or not shows_live():
        began, due = time.monotonic(), FIRST_REPORT

        def log(text: str, done: float | None = None) -> None:
            nonlocal due
            if (passed := time.monotonic() - began) >= due:
                due = next_report(passed)
                say(text)

        yield (lambda text, done=None: None) if hidden else log
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    description, share = TextColumn("{task.description}", markup=False), TextColumn("{task.percentage:.0f}%")
    bar = description, BarColumn(), share, TimeRemainingColumn()
    spinner = SpinnerColumn(), description, TimeElapsedColumn()
    columns = bar if total else spinner
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as display:
        task = display.add_task(text, total=total)
        yield lambda text, done=None: display.update(task, description=text, completed=done)


def named(argument: Path) -> tuple[str, Path]:
    """(name, path) of `NAME=FILE`, or ("", path); the name of an existing file may contain `=`."""
    name, equals, path = str(argument).partition("=")
    if equals and name and path and "/" not in name and not argument.exists():
        return name, Path(path)
    return "", argument


def name_files(arguments: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """(name, path) of each argument, with different names.

    A file without NAME is called by its last part, or by the complete path if another one has the same. Raises
    UsageError if a name is given twice.
    """
    pairs = [named(argument) for argument in arguments]
    folders = (path.parent if path.name == "train.jsonl" else path for _, path in pairs)  # a log is named by its model
    # A link keeps its name: the pipe of `<(command)` has another one in each run.
    named_paths = (path.resolve() if path.name in ("", "..") else path for path in folders)
    lasts = ("stdin" if path == STDIN else path.name for path in named_paths)
    short = [name or last for (name, _), last in zip(pairs, lasts, strict=True)]
    both = zip(pairs, short, strict=True)
    names = [name or (last if short.count(last) == 1 else str(path)) for (name, path), last in both]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two files are named {twice[0]}; give each a different name: NAME=FILE")
    return tuple((name, path) for name, (_, path) in zip(names, pairs, strict=True))


def _clocks() -> tuple[float, float]:
    """The time, and the processor time that other processes have used."""
    times = psutil.cpu_times()
    return time.monotonic(), times.user + times.system + getattr(times, "nice", 0.0) - time.process_time()


@functools.cache  # one thread per process
def sleep_beside_others() -> None:
    """Makes PyTorch's threads sleep instead of spin while they wait for each other, whenever other programs compute.

    On an idle machine with two cores, spinning trained 1.2 to 1.7 times as fast as sleeping; beside one busy process it
    trained at a twelfth of the speed. Environment variables of the user have precedence.
    """
    if hasattr(os, "sched_getaffinity") and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        atexit.register(_joining.acquire)
        _start_watch()


def _start_watch() -> None:
    threading.Thread(target=_watch_others, name="load", daemon=True).start()


def _watch_others(pause: float = 1.0) -> None:
    """Looks once per `pause` seconds whether other programs compute.

    GNU's OpenMP lets threads spin only for a moment while there are more of them than cores. So further threads join
    PyTorch's, only to wait, as long as other programs need cores that PyTorch's threads use.
    """
    joined = needed = False
    with contextlib.suppress(OSError, RuntimeError):  # without /proc, an open file or a thread, nothing is watched
        began, before = _clocks()
        while joined == needed:
            time.sleep(pause)
            now, used = _clocks()
            busy, began, before = (used - before) / (now - began), now, used
            needed = busy > _BUSY
            joined = joined or (needed and _join(busy))
        # A thread reads PyTorch's number of threads only once, so another one watches on. Joined threads end with this.
        _start_watch()


def _join(busy: float) -> bool:
    """Makes PyTorch start threads for this thread if `busy` cores leave too few for it; returns whether it has.

    A signal may end the main thread's import of PyTorch. This thread must not continue it: Python would abort.
    """
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "compile"):  # defined at the end of the import
        return False
    threads = torch.get_num_threads()  # a single one never waits for others; the command may ask for more later
    short: bool = threads > 1 and busy + threads > len(os.sched_getaffinity(0)) + _BUSY
    if short:
        with _joining:
            torch.zeros(1 << 17).add_(1)  # large enough for several threads
    return short


def bound_caches() -> None:
    """Limits the caches of oneDNN and PyTorch, which keep a kernel for each of the last 1,024 shapes: about 400 MB.

    Call it before torch is imported, in commands that compute with many shapes. With 256 a search is a few percent
    slower at its beginning. Environment variables of the user have precedence.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")


def has_colour(shades: bool = False) -> bool:
    """Whether stdout shows colours, or 256 `shades`: no with NO_COLOR, yes with FORCE_COLOR, else by its terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("FORCE_COLOR"):
        return not os.environ.get("NO_COLOR")
    from rich.console import Console

    return Console().color_system in (*([] if shades else ["standard"]), "256", "truecolor")


def print_table(table: DataTable) -> None:
    """Prints a table; on a terminal it is never wider than that."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    sys.stdout.writelines(f"{line}\n" for line in table_lines(table, width))


REASONS: Mapping[int, str] = {
    getattr(signal, name): reason
    for name, reason in (("SIGINT", "interrupted"), ("SIGTERM", "ended by SIGTERM"), ("SIGHUP", "ended by SIGHUP"))
    if hasattr(signal, name)  # Windows has no SIGHUP
}
"""The signals that end a command, and what is reported for each."""
_REPEATS = 5  # seconds in which torchrun passes on a Ctrl-C that the terminal has already sent to all processes


class Stop(BaseException):
    """The signal `number` has come. `except Exception` does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(REASONS[number])
        self.exit_code = 128 + number


class Signals:
    """The running command, which a signal ends: at once, after a part marked by `whole`, or as `stopping` says.

    `detail` returns the rest of the message, such as what is left to do. A second signal ends the command at once.
    """

    def __init__(self) -> None:
        self.detail: Callable[[], str] = lambda: ""
        self._came: int | None = None
        self._when = 0.0
        self._stop: Callable[[str], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.detail, self._came, self._report = lambda: "", None, sys.unraisablehook
        # A signal that the caller ignores stays ignored, as SIGHUP under `nohup`. SIGINT does not: a shell ignores it
        # for a command in the background, but a process that sends SIGINT wants the command to end.
        heeded = [one for one in REASONS if one == signal.SIGINT or signal.getsignal(one) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in heeded}
        # A library that cannot pass Stop on would print it with a traceback. `check` raises it again.
        sys.unraisablehook = lambda lost: None if lost.exc_type is Stop else self._report(lost)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        sys.unraisablehook = self._report
        # After a signal, another one ends the process without a second message.
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:  # the command may have chosen to ignore it
                signal.signal(number, signal.SIG_DFL if isinstance(error, Stop) else handler)

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[str], None]) -> Iterator[None]:
        """A part that the first signal ends by a call of `stop` with its reason."""
        self.check()  # an import, or a function that Python calls, may have lost the exception
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """A part that the first signal does not interrupt, such as a line and its alignment."""
        with self.stopping(lambda reason: None):
            yield
        self.check()

    def check(self) -> None:
        """Ends the command if a signal has come."""
        if self._came is not None:
            raise Stop(self._came)

    def _handle(self, number: int, _: FrameType | None) -> None:
        first = self._came is None
        if first:
            self._came = number  # before any call, in which Python may handle the second signal
            self._when = time.monotonic()
        if first and self._stop is not None:
            self._stop(REASONS[number])
        elif first or "LOCAL_RANK" not in os.environ or time.monotonic() - self._when > _REPEATS:
            raise Stop(number)


signals = Signals()
"""The signals of the running command."""


def end_threads(code: int) -> None:
    """Ends the process if threads still compute; Python would wait for their results, which are not needed."""
    if sum(not thread.daemon for thread in threading.enumerate()) > 1:
        sys.stderr.flush()
        with contextlib.suppress(OSError, NmtalignError):  # finished lines are kept
            sys.stdout.flush()
        os._exit(code)
