"""`bin/test load`: many lines through prep and translate, and one process that answers single lines for an hour.

Prints how many lines came back, the peak of memory for a tenth of the lines and for all of them, and what an hour of
single lines changes. Writes the measurements of that hour to a CSV file and draws them.
"""

import argparse
import csv
import itertools
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.machine import tree_cpu_seconds, tree_mb
from faults.processes import SIZES, temporary_folder

from nmtalign.data.corpus import Corpus

_POLL = 0.5  # seconds between two measurements of memory
_NUMBERS = 200_000  # different numbers in the text, so that it has as many words
_TOLERANCE = 1.1  # how much the memory of all lines may exceed that of a tenth, and the last minutes the first ones
_BYTES_OF_A_PAIR = 4  # that prep keeps in memory: the number of its line
_COLUMNS = ("minute", "answers", "median ms", "processor ms", "MB", "descriptors")


def main() -> int:
    """Returns the exit code: 1 if lines are missing or something has grown."""
    parser = argparse.ArgumentParser(prog="bin/test load", description=__doc__)
    parser.add_argument("--prep", type=float, default=1e7, metavar="N", help="pairs of prep; 0 = none [1e7]")
    parser.add_argument("--translate", type=float, default=3e6, metavar="N", help="lines of translate; 0 = none [3e6]")
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="of single lines; 0 = none [60]")
    parser.add_argument("--pause", type=float, default=0.1, metavar="S", help="seconds between single lines [0.1]")
    parser.add_argument("-o", "--output", type=Path, default=Path("load"), help="CSV and PNG file, without .csv [load]")
    chosen = parser.parse_args()
    with temporary_folder(None) as folder:
        train = f"train -q data -o model --preset tiny {SIZES} --max-updates 12 --batch-size 400"
        for line in ("sample . --pairs 2000 --force", "prep -q train.en train.fr -o data", train):
            subprocess.run(_command(line), cwd=folder, check=True, capture_output=True)
        right = [
            *([_many_pairs(folder, int(chosen.prep))] if chosen.prep else ()),
            *([_many_lines(folder, int(chosen.translate))] if chosen.translate else ()),
            *([_single_lines(folder, chosen.minutes, chosen.pause, chosen.output)] if chosen.minutes else ()),
        ]
    return int(not all(right))


def _command(line: str) -> list[str]:
    """`nmtalign LINE` as a list."""
    return [sys.executable, "-m", "nmtalign", *line.split()]


def _text(path: Path, lines: int) -> Iterator[str]:
    """The lines of a file again and again, each with a number, so that the text has many words."""
    for number, line in zip(range(lines), itertools.cycle(path.read_text("utf-8").splitlines()), strict=False):
        yield f"{line} {number * 7919 % _NUMBERS}\n"


@contextmanager
def _watched(process: "subprocess.Popen[bytes]") -> Iterator[list[float]]:
    """Measures the memory of a process and its children in MB until the block ends."""
    found, ended = [tree_mb(process.pid)], threading.Event()

    def measure() -> None:
        while not ended.wait(_POLL):
            found.append(tree_mb(process.pid))

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _many_pairs(folder: Path, pairs: int) -> bool:
    """`nmtalign prep` with a tenth of the pairs, then with all."""
    peaks, counts, seconds = list[float](), list[int](), 0.0
    for part in (pairs // 10, pairs):
        for language in ("en", "fr"):
            with (folder / f"many.{language}").open("w", encoding="utf-8") as file:
                file.writelines(_text(folder / f"train.{language}", part))
        command = _command("prep -q many.en many.fr --max-length 200 --force -o many")
        began = time.monotonic()
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process, _watched(process) as measured:
            process.wait()
        seconds = time.monotonic() - began
        peaks.append(max(measured))
        counts.append(len(Corpus.open(folder / "many").splits["train"]))
    whole = counts == [pairs // 10, pairs]
    peaks[-1] -= _BYTES_OF_A_PAIR * (pairs - pairs // 10) / (1 << 20)
    return _report("pairs through prep, without 4 bytes for each pair", pairs, counts[-1], seconds, peaks, whole)


def _many_lines(folder: Path, lines: int) -> bool:
    """`nmtalign translate` from a pipe to a pipe, with a tenth of the lines, then with all."""
    peaks, counts, seconds = list[float](), list[int](), 0.0
    command = _command("translate -q -m model --beam 1 --max-length-ratio 1 --threads 1")
    for part in (lines // 10, lines):
        began = time.monotonic()
        with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            writer = threading.Thread(target=_write, args=(process.stdin, _text(folder / "test.en", part)))
            writer.start()
            with _watched(process) as measured:
                assert process.stdout is not None
                counts.append(sum(1 for _ in process.stdout))
            writer.join()
        seconds = time.monotonic() - began
        peaks.append(max(measured))
    return _report("lines through translate", lines, counts[-1], seconds, peaks, counts == [lines // 10, lines])


def _write(stream: Any, lines: Iterable[str]) -> None:
    with stream:
        for line in lines:
            stream.write(line.encode())


def _report(what: str, wanted: int, found: int, seconds: float, peaks: Sequence[float], whole: bool) -> bool:
    constant = peaks[-1] <= _TOLERANCE * peaks[0]
    sys.stdout.write(
        f"{wanted:,} {what}: {found:,} came back in {seconds:,.0f} s; peak {peaks[-1]:,.0f} MB, "
        f"of a tenth of them {peaks[0]:,.0f} MB{'' if constant else ' (it grows)'}\n"
    )
    sys.stdout.flush()
    return whole and constant


def _single_lines(folder: Path, minutes: float, pause: float, output: Path) -> bool:
    """One process of `nmtalign translate` that gets the next line when it has answered the last one."""
    lines = itertools.cycle((folder / "test.en").read_bytes().splitlines(keepends=True))
    command = _command("translate -q -m model --threads 1")
    rows = list[tuple[float, ...]]()
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        _answer(process, next(lines))  # it has loaded the model
        began = time.monotonic()
        while (minute := (time.monotonic() - began) / 60) < minutes:
            taken, before = list[float](), sum(tree_cpu_seconds(process.pid).values())
            until = time.monotonic() + min(60.0, 60 * minutes / 10)
            while time.monotonic() < until:
                taken.append(_answer(process, next(lines)))
                time.sleep(pause)
            used = sum(tree_cpu_seconds(process.pid).values()) - before
            descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            milliseconds = 1000 * statistics.median(taken), 1000 * used / len(taken)
            rows.append((minute, len(taken), *milliseconds, tree_mb(process.pid), descriptors))
        process.communicate()
    with output.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *(tuple(round(n, 2) for n in row) for row in rows)])
    _draw(rows, output.with_suffix(".png"))
    part = max(1, len(rows) // 6)
    first, last = (
        [statistics.median(column) for column in zip(*some, strict=True)] for some in (rows[:part], rows[-part:])
    )
    changes = list(zip(_COLUMNS, first, last, strict=True))[2:]
    grown = [name for name, before, after in changes[1:] if after > _TOLERANCE * before]
    sys.stdout.write(
        f"{int(sum(row[1] for row in rows)):,} single lines in {minutes:g} minutes, first and last sixth: "
        f"{', '.join(f'{name} {before:,.1f} and {after:,.1f}' for name, before, after in changes)}"
        f"{' (it grows)' if grown else ''}\n"
    )
    return not grown


def _answer(process: "subprocess.Popen[bytes]", line: bytes) -> float:
    """Sends a line and waits for its translation; returns the seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    began = time.monotonic()
    process.stdin.write(line)
    process.stdin.flush()
    if not process.stdout.readline().endswith(b"\n"):
        raise RuntimeError("nmtalign translate has ended")
    return time.monotonic() - began


def _draw(rows: Sequence[tuple[float, ...]], path: Path) -> None:
    """Draws the time of an answer, the memory and the open descriptors over the minutes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(3, 1, figsize=(7, 6), sharex=True)
    for panel, column in zip(panels, (3, 4, 5), strict=True):
        panel.plot([row[0] for row in rows], [row[column] for row in rows], color="#1f5fa8")
        panel.set_ylabel({3: "processor time of\nan answer, ms", 4: "memory, MB", 5: "open descriptors"}[column])
        panel.set_ylim(0, 1.2 * max(row[column] for row in rows))
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("minutes")
    panels[0].set_title(
        f"One process of nmtalign translate, {int(sum(row[1] for row in rows)):,} single lines", loc="left"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
