"""Where translations go, and what is shown of it meanwhile."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nmtalign.cli.common import say
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import disk_errors, stays_in_place, stream_number
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.translating.inputs import Inputs, too_many
from nmtalign.translating.resume import ResumableOutput
from nmtalign.translating.translation import Translation

_EVERY = 0.1  # seconds between two changes of what is shown


@dataclass
class Counts:
    """What this run has translated."""

    lines: int = 0
    words: int = 0
    unknown: int = 0

    def add(self, translation: Translation) -> None:
        """One line more."""
        self.lines += 1
        self.words += len(translation.source_tokens)
        self.unknown += translation.source_unknown


class StreamOutput:
    """Standard output, or what is there under a name and cannot be replaced: /dev/null, a named pipe."""

    done = 0  # lines that an earlier run has written

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stream: BinaryIO = sys.stdout.buffer

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens what is not open yet."""
        if self._path is None:
            yield
            return
        number = stream_number(self._path)
        with disk_errors(self._path), open(self._path if number is None else os.dup(number), "wb") as self._stream:  # noqa: PTH123
            yield

    def write(self, lines: bytes) -> None:
        """Writes complete lines and flushes."""
        self._stream.write(lines)
        self._stream.flush()

    def finish(self) -> None:
        """Nothing is left to do."""

    def lines_done(self) -> Iterator[bytes]:
        """Nothing is known of them."""
        return iter(())

    def left(self, lines: int) -> str:
        """What there is after so many lines, for the message of an end before the end."""
        return f" after {lines:,} lines"


class FileOutput:
    """A file that stays to be gone on with if the run does not come to its end."""

    def __init__(self, path: Path, settings: TranslateConfig, resume: bool) -> None:
        lists = settings.format == "text" and (
            settings.n_best > 1 or settings.word_scores or settings.alignment != "none"
        )
        self.file = ResumableOutput(path, settings.n_best if lists else 0)
        if resume:
            self.file.look_back()
        self.done = self.file.done

    def is_complete(self, inputs: Inputs) -> bool:
        """Whether nothing is left to translate; a file that lacks only its name gets it."""
        if self.file.found is None:
            return False
        lines = inputs.count()
        if self.done > lines:
            raise too_many(self.file.found, self.done, lines)
        if self.done == lines and self.file.found == self.file.partial:
            self.file.begin()
            self.file.finish()
        return self.done == lines

    def is_whole(self, inputs: Inputs) -> bool:
        """Whether nothing is left to translate, and the file has its name."""
        lines = inputs.count()
        if self.file.found is not None and self.done > lines:
            raise too_many(self.file.found, self.done, lines)
        return self.file.found == self.file.path and self.done == lines

    def keep(self, done: int) -> None:
        """Goes on after so many lines, though there are more."""
        self.file.keep(done)
        self.done = done

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens FILE.partial, which stays if anything is raised."""
        if self.file.begin():
            say(f"{self.file.partial} was there; kept as {self.file.old}, and --resume would have gone on with it")
        try:
            yield
        finally:
            self.file.close()

    def write(self, lines: bytes) -> None:
        """Writes complete lines."""
        self.file.write(lines)

    def finish(self) -> None:
        """Gives the file its name."""
        self.file.finish()

    def lines_done(self) -> Iterator[bytes]:
        """What earlier runs have written for each line."""
        return self.file.entries()

    def left(self, lines: int) -> str:
        """What there is after so many lines, for the message of an end before the end."""
        if not self.done + lines:
            return ""
        return f"; {self.file.partial} holds {self.done + lines:,} lines, and --resume goes on after them"


def choose_output(
    path: Path | None, inputs: Inputs, settings: TranslateConfig, resume: bool
) -> StreamOutput | FileOutput:
    """The output under a name (None = stdout); raises UsageError where it cannot be gone on with and should be."""
    if path is None or stays_in_place(path):
        if resume:
            raise UsageError(f"--resume goes on with a file, and {path or 'standard output'} is none; give -o FILE")
        return StreamOutput(path)
    if resume and path in inputs.paths:
        raise UsageError(f"{path}: is the input; give another file with -o")
    return FileOutput(path, settings, resume)


@contextlib.contextmanager
def telling_what_is_left(output: StreamOutput | FileOutput, counts: Counts) -> Iterator[None]:
    """Adds to the message of an error what of a file is kept."""
    try:
        yield
    except NmtalignError as error:
        if isinstance(output, FileOutput) and counts.lines:
            raise type(error)(f"{error}{output.left(counts.lines)}") from None
        raise


@contextlib.contextmanager
def live_progress(wanted: bool, size: int | None) -> Iterator[Callable[[int, Counts], None]]:
    """A live line on stderr, to be told after each line where in the input it ends; `size` in bytes gives it a bar."""
    if not wanted:
        yield lambda end, counts: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    clock = (BarColumn(), TimeRemainingColumn()) if size else (TimeElapsedColumn(),)
    started = shown = time.monotonic()
    with Progress(
        TextColumn("{task.description}"), *clock, console=Console(stderr=True), transient=True, redirect_stdout=False
    ) as display:
        task = display.add_task("translating", total=size)

        def update(end: int, counts: Counts) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown > _EVERY:
                rate = counts.words / (now - started)
                display.update(task, completed=end, description=f"{counts.lines:,} lines, {rate:,.0f} words/s")
                shown = now

        yield update
