"""Runs another program for a time and records its lines, their times, and the memory of it and its children."""

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import environment, tree_mb

POLL = 0.2  # seconds between two measurements of its memory
PATIENCE = 300.0  # seconds until the first line that matches


@dataclass
class Watched:
    """The record of a program."""

    matches: list[tuple[float, str]] = field(default_factory=list)  # seconds since its start, first group
    last_lines: list[str] = field(default_factory=list)
    peak_mb: float = 0.0
    exit_code: int | None = None  # None = it was ended by `watch`

    @property
    def complaint(self) -> str:
        """The reason why the program failed, from its last lines."""
        return complaint_in(self.last_lines)


def complaint_in(lines: Sequence[str]) -> str:
    """Returns the line that says why a program failed: nmtalign's error line, else the last line."""
    words = [line.strip() for line in lines if line.strip()]
    errors = [line.partition(": error: ")[2] for line in words if ": error: " in line]
    return (errors or words[-1:] or ["it printed nothing"])[0][:300]


def watch(
    command: Sequence[str],
    pattern: str | None,
    seconds: float,
    folder: Path | None = None,
    extra: dict[str, str] | None = None,
    matches: int | None = None,
) -> Watched:
    """Runs a program until `seconds` after its first line that matches `pattern`, or until `matches` lines match.

    Without a pattern the seconds count from its start. `extra` is added to its environment. The program gets SIGTERM,
    and is killed if it has not ended 10 seconds later.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        env={**environment(), **(extra or {})},
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        return _follow(process, lines, re.compile(pattern) if pattern else None, began, seconds, matches)
    finally:
        _end(process)
        reader.join(timeout=5)


def _read(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str | None]") -> None:
    if process.stdout is not None:
        with contextlib.suppress(ValueError):  # closed while it is read
            for line in process.stdout:
                lines.put(line)
    lines.put(None)


def _follow(
    process: "subprocess.Popen[str]",
    lines: "queue.SimpleQueue[str | None]",
    pattern: re.Pattern[str] | None,
    began: float,
    seconds: float,
    matches: int | None,
) -> Watched:
    seen = Watched()
    while True:
        now = time.perf_counter() - began
        deadline = seen.matches[0][0] + seconds if seen.matches else PATIENCE if pattern else seconds
        if now > deadline or (matches is not None and len(seen.matches) >= matches):
            return seen
        try:
            line = lines.get(timeout=POLL)
        except queue.Empty:
            seen.peak_mb = max(seen.peak_mb, tree_mb(process.pid))
            continue
        if line is None:
            seen.exit_code = process.wait()
            return seen
        seen.last_lines = [*seen.last_lines[-20:], line]
        if pattern and (found := pattern.search(line)):
            seen.matches.append((time.perf_counter() - began, found[1]))
            seen.peak_mb = max(seen.peak_mb, tree_mb(process.pid))


def _end(process: "subprocess.Popen[str]") -> None:
    """Ends the program and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # any remaining children
    if process.stdout is not None:
        process.stdout.close()
