"""`nmtalign`: where the command line begins, with hardly an import, so that Ctrl-C is heeded from the first moment."""

import codecs
import io
import os
import sys
from pathlib import Path
from typing import Any

from nmtalign.cli.address_space import guard_address_space
from nmtalign.errors import NO_MEMORY, ResourceError, is_out_of_memory
from nmtalign.files import disk_errors


class _StandardOutput(io.FileIO):
    """Standard output; its errors name it, as those of a file do."""

    def write(self, data: Any) -> Any:
        """Writes bytes; raises ResourceError for what the system refuses, BrokenPipeError for a reader that left."""
        with disk_errors(Path("standard output")):
            return super().write(data)


def main() -> None:
    """Runs the command line and exits."""
    # MKL reads this at its first product (`nmtalign.core.devices.products_are_reproducible`).
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    try:
        open_streams()
        guard_address_space()
        from nmtalign.cli.commands import run
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        _end(NO_MEMORY, ResourceError.exit_code)
    run()


def open_streams() -> None:
    """Makes stdout and stderr carry UTF-8 whatever the locale is, and reserves the numbers 0 to 2 for the streams.

    Text goes to stdout exactly: `\\n` ends a line, and the bytes of a file name that is not UTF-8 come out unchanged.
    A stream that the caller has closed (`>&-`) becomes /dev/null, opened the wrong way round: no file that is opened
    later gets its number, and whoever reads from it or writes to it still gets an error. Only stderr swallows what it
    is given.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        _reserve(number, flags)
    codecs.register_error("nmtalign.exact", _exactly)
    if sys.stdout is sys.__stdout__:  # a caller of `main` that has put another stream there reads that one
        sys.stdout = _exact_stdout(sys.stdout)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


def _exact_stdout(given: Any) -> io.TextIOWrapper:
    """Standard output that carries text exactly, buffered as the stream that Python made, or None, was."""
    raw = io.BufferedWriter(_StandardOutput(1, "w", closefd=False))
    unbuffered = getattr(given, "write_through", False)
    return io.TextIOWrapper(raw, "utf-8", "nmtalign.exact", "\n", line_buffering=os.isatty(1), write_through=unbuffered)


def _reserve(number: int, flags: int) -> None:
    """Opens /dev/null under the number of a stream that is closed."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)
        os.dup2(opened, number)
        if opened != number:
            os.close(opened)


def _exactly(error: UnicodeError) -> tuple[str | bytes, int]:
    """What UTF-8 cannot encode: a byte of a file name as that byte, half a character as an escape like `\\ud800`."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _end(message: str, code: int) -> None:
    os.write(2, f"nmtalign: error: {message}\n".encode())
    sys.exit(code)
