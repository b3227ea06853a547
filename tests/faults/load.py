"""`bin/test load`: many lines through prep and translate, and one process that answers single lines for an hour.

Prints how many lines came back, the peak of memory for a tenth of the lines and for all of them, and what an hour of
single lines changes.
"""

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.machine import tree_cpu_seconds, tree_mb
from faults.processes import SIZES, temporary_folder

_NUMBERS = 200_000  # different numbers in the text, so that it has as many words
_TOLERANCE = 1.1  # how much the memory of all lines may exceed that of a tenth, and the last minutes the first ones
_BYTES_OF_A_PAIR = 4  # that prep keeps in memory: the number of its line
_PREP = "prep -q - --set columns=1,2 --source-language en --target-language fr --set max_length=200 "
_PREP += "--force -o many --format json"
_TRANSLATE = "translate -q -m model --threads 1"


def main() -> int:
    """Returns the exit code: 1 if lines are missing or something has grown."""
    parser = argparse.ArgumentParser(prog="bin/test load", description=__doc__)
    parser.add_argument("--prep", type=float, default=1e7, metavar="N", help="pairs of prep; 0 = none [1e7]")
    parser.add_argument("--translate", type=float, default=3e6, metavar="N", help="lines of translate; 0 = none [3e6]")
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="of single lines; 0 = none [60]")
    parser.add_argument("--pause", type=float, default=0.1, metavar="S", help="seconds between single lines [0.1]")
    chosen = parser.parse_args()
    with temporary_folder(None) as folder:
        train = f"train -q data -o model --preset tiny {SIZES} --max-updates 12 --batch-size 400"
        for line in ("sample . --pairs 2000 --force", "prep -q train.en train.fr -o data", train):
            subprocess.run(_command(line), cwd=folder, check=True, capture_output=True)
        sides = ((folder / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "fr"))
        pairs = ["\t".join(pair) for pair in zip(*sides, strict=True)]
        texts = (folder / "test.en").read_text("utf-8").splitlines()
        many = f"{_TRANSLATE} --beam 1 --set max_length_ratio=1"
        right = [
            _many(folder, _PREP, pairs, int(chosen.prep), lambda out: json.loads(out)["splits"]["train"]["kept"]),
            _many(folder, many, texts, int(chosen.translate), lambda out: out.count(b"\n")),
            _single_lines(folder, texts, chosen.minutes, chosen.pause),
        ]
    return int(not all(right))


def _command(line: str) -> list[str]:
    """`nmtalign LINE` as a list."""
    return [sys.executable, "-m", "nmtalign", *line.split()]


def _numbered(text: Sequence[str], count: int) -> Iterator[bytes]:
    """The lines again and again, each column with a number, so that the text has many words."""
    for number, line in zip(range(count), itertools.cycle(text), strict=False):
        yield "\t".join(f"{column} {number * 7919 % _NUMBERS}" for column in line.split("\t")).encode() + b"\n"


def _many(folder: Path, line: str, text: Sequence[str], lines: int, counted: Callable[[bytes], int]) -> bool:
    """A command that reads a tenth of the lines from a pipe, then all of them."""
    peaks, counts, seconds = list[float](), list[int](), 0.0
    for part in (lines // 10, lines) if lines else ():
        began, output = time.monotonic(), folder / "output"
        with output.open("wb") as stdout:
            process = subprocess.Popen(_command(line), cwd=folder, stdin=subprocess.PIPE, stdout=stdout)
        assert process.stdin is not None
        writer = threading.Thread(target=process.stdin.writelines, args=[_numbered(text, part)])
        writer.start()
        peak = 0.0
        while writer.is_alive() or process.poll() is None:
            peak = max(peak, tree_mb(process.pid))
            time.sleep(0.5)
            if not writer.is_alive():
                process.stdin.close()
        seconds = time.monotonic() - began
        peaks.append(peak - (_BYTES_OF_A_PAIR * part / (1 << 20) if line == _PREP else 0))
        counts.append(counted(output.read_bytes()))
    if not lines:
        return True
    constant = peaks[1] <= _TOLERANCE * peaks[0]
    sys.stdout.write(
        f"{lines:,} lines through {line.split()[0]}: {counts[1]:,} came back in {seconds:,.0f} s; peak "
        f"{peaks[1]:,.0f} MB, of a tenth of them {peaks[0]:,.0f} MB{'' if constant else ' (it grows)'}\n"
    )
    sys.stdout.flush()
    return counts == [lines // 10, lines] and constant


def _single_lines(folder: Path, text: Sequence[str], minutes: float, pause: float) -> bool:
    """One process of `nmtalign translate` that gets the next line when it has answered the last one."""
    if not minutes:
        return True
    rows, count, lines = list[tuple[float, ...]](), 0, itertools.cycle(text)
    with subprocess.Popen(
        _command(_TRANSLATE), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(10):
            used, own, until = sum(tree_cpu_seconds(process.pid).values()), 0, time.monotonic() + 6 * minutes
            while time.monotonic() < until or not own:
                process.stdin.write(next(lines).encode() + b"\n")
                if not process.stdout.readline().endswith(b"\n"):
                    raise RuntimeError("nmtalign translate has ended")
                own += 1
                time.sleep(pause)
            used, count = sum(tree_cpu_seconds(process.pid).values()) - used, count + own
            descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            rows.append((1000 * used / own, tree_mb(process.pid), descriptors))
        process.stdin.close()
    changes = list(zip(("processor ms", "MB", "descriptors"), rows[1], rows[-1], strict=True))
    grown = any(after > _TOLERANCE * before for _, before, after in changes)
    sys.stdout.write(
        f"{count:,} single lines in {minutes:g} minutes, second and last tenth: "
        f"{', '.join(f'{name} {before:,.1f} and {after:,.1f}' for name, before, after in changes)}"
        f"{' (it grows)' if grown else ''}\n"
    )
    return not grown


if __name__ == "__main__":
    sys.exit(main())
