"""What the subcommands share: the --config option, stderr, progress."""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from nmtalign.errors import UsageError

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Workspace file [dim]\\[default: nmtalign.toml in the current folder][/dim].",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", "-m", metavar="DIR", help="Model directory [dim]\\[default: the workspace's, or model/][/dim]."
    ),
]
ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        help="Model directory; repeat it for an ensemble [dim]\\[default: the workspace's, or model/][/dim].",
    ),
]
MACHINE = "Machine"
WhichOption = Annotated[
    Literal["best", "last"],
    typer.Option(
        help="Weights of the best validation, or the last ones.", rich_help_panel=f"Advanced: {MACHINE}", hidden=True
    ),
]
GoldBaseOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1,
        metavar="0|1",
        help="First position in the gold links [dim]\\[default: 0; 1 if each line has one link][/dim].",
    ),
]
DeviceOption = Annotated[str | None, typer.Option(metavar="auto|cpu|cuda", help="Device.", rich_help_panel=MACHINE)]
PrecisionOption = Annotated[
    str | None, typer.Option(metavar="auto|fp32|bf16", help="Precision of matrix products.", rich_help_panel=MACHINE)
]
ThreadsOption = Annotated[
    int | None, typer.Option(metavar="N", help="CPU threads; 0 lets PyTorch choose.", rich_help_panel=MACHINE)
]
# Control characters, ends of lines, what turns the direction of text, and halves of characters.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BYTES = re.compile("[\udc80-\udcff]+")  # how Python keeps the bytes of a name that it could not decode
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")]


def say(message: str) -> None:
    """One line for the person at the terminal: stderr, never stdout.

    Where nobody can read it any more, because the reader has gone or the disk is full, the work goes on without it.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(f"nmtalign: {escaped(message)}\n")
        sys.stderr.flush()


def escaped(text: str) -> str:
    """Text of a file or a name of one, fit to be shown to a person on one line.

    What could steer the terminal, reorder the letters or end the line appears as an escape such as `\\x1b`, and so does
    a byte of a name that is not UTF-8. Data that another program reads is never changed like this.
    """
    text = _BYTES.sub(lambda run: run[0].encode(errors="surrogateescape").decode(errors="backslashreplace"), text)
    return _STEERING.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def json_text(value: Any, indent: int | None = None, *, allow_nan: bool = False) -> str:
    """The value as JSON, without the characters that `escaped` replaces: JSON has escapes of its own for them."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, indent=indent)
    return _STEERING.sub(lambda one: one[0] if one[0] == "\n" else f"\\u{ord(one[0]):04x}", text)


def check_output(output: Path, inputs: Iterable[Path | None]) -> None:
    """Raises UsageError if the output would replace an input."""
    if output.exists() and any(path and path.exists() and output.samefile(path) for path in inputs):
        raise UsageError(f"{output}: is also an input; give -o another name")


def notifier(quiet: bool) -> Callable[[str], None]:
    """`say`, or nothing."""
    return (lambda message: None) if quiet else say


def choose_wait_policy() -> None:
    """Lets PyTorch's threads sleep, not spin, while they wait for each other, if other jobs keep the processor busy.

    To be called before torch is imported. On an idle machine of two cores spinning trained 1.5 times as fast as
    sleeping; beside one busy process it trained at a quarter of the speed. What the environment says holds.
    """
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ) or "torch" in sys.modules:
        return
    if _busy_cores(0.15) > 0.3:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def bound_caches() -> None:
    """Keeps oneDNN and PyTorch from holding on to a kernel for each of the last 1,024 shapes, some 400 MB.

    To be called before torch is imported, by what meets many shapes. With 256 a search is a few percent slower at its
    beginning. What the environment says holds.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")


def _busy_cores(seconds: float) -> float:
    """How many cores all processes together keep busy, measured over a moment; 0 where the system does not tell."""
    try:
        before = _busy_ticks()
        time.sleep(seconds)
        return (_busy_ticks() - before) / (seconds * os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


def _busy_ticks() -> int:
    with open("/proc/stat", encoding="ascii") as stream:  # noqa: PTH123
        user, nice, system = (int(field) for field in stream.readline().split()[1:4])
    return user + nice + system
