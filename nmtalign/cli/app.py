"""The start of `nmtalign`: streams, limits and signals, with hardly an import, so that Ctrl-C works at once."""

import codecs
import importlib.abc
import io
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from nmtalign.errors import NO_MEMORY, ResourceError, is_out_of_memory
from nmtalign.files import disk_errors


def main() -> None:
    """Runs the command line and exits."""
    # With this mode, which MKL reads at its first product, fewer numbers depend on the other rows of a product.
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    try:
        open_streams()
        _check_folder()
        limit = _guard_address_space()
        from nmtalign.cli.commands import run
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        _end(NO_MEMORY, ResourceError.exit_code)
    code = run()
    if code == ResourceError.exit_code and limit is not None:
        # Under such a limit the libraries may fail once more while the process ends, with messages of their own.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _check_folder() -> None:
    """Ends the command if the current folder was removed: MKL would end the process with its own words."""
    try:
        Path.cwd()
    except OSError as error:
        _end(f"the current folder cannot be used: {error.strerror}; change to another folder", ResourceError.exit_code)


def _end(message: str, code: int) -> None:
    os.write(2, f"nmtalign: error: {message}\n".encode())
    sys.exit(code)


def open_streams() -> None:
    """Makes stdout and stderr UTF-8 in every locale, and reserves the numbers 0 to 2 for the streams.

    Text goes to stdout exactly: `\\n` ends a line, and the bytes of a file name that is not UTF-8 come out unchanged.
    A stream that the caller has closed (`>&-`) becomes /dev/null, opened the wrong way round: no other file gets its
    number, and reading or writing it is still an error. Only stderr ignores what is written to it.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        _reserve(number, flags)
    codecs.register_error("nmtalign.exact", _exactly)
    if sys.stdout is sys.__stdout__:  # a test may have replaced it
        sys.stdout = _exact_stdout(sys.stdout)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


def _reserve(number: int, flags: int) -> None:
    """Opens /dev/null under the number of a stream that is closed."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)
        os.dup2(opened, number)
        if opened != number:
            os.close(opened)


class _StandardOutput(io.FileIO):
    """Standard output; its errors name it, as the errors of a file do."""

    def write(self, data: Any) -> Any:
        """Writes bytes; raises ResourceError if the system refuses them, BrokenPipeError if the reader has gone."""
        with disk_errors(Path("standard output")):
            return super().write(data)


def _exact_stdout(given: Any) -> io.TextIOWrapper:
    """Standard output that writes text exactly; it is buffered like `given`, the stream that Python made, or None."""
    raw = io.BufferedWriter(_StandardOutput(1, "w", closefd=False))
    unbuffered = getattr(given, "write_through", False)
    return io.TextIOWrapper(raw, "utf-8", "nmtalign.exact", "\n", line_buffering=os.isatty(1), write_through=unbuffered)


def _exactly(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replaces what UTF-8 cannot encode: a byte of a file name by itself, half a character by `\\ud800` or the like."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError:
        return codecs.lookup_error("backslashreplace")(error)


# Megabytes of address space to load a module and to work on a small corpus, and for the threads of each core. Measured
# on Linux with two cores, with some room: NumPy 250, PyTorch 950, training with the preset tiny 1,490.
ADDRESS_SPACE: dict[str, tuple[str, int, int]] = {
    "numpy": ("NumPy", 300, 0),
    "h5py": ("h5py with NumPy", 300, 0),  # HDF5 starts before NumPy, and prints messages of its own
    "torch": ("PyTorch", 1200, 20),
    "nmtalign.training.trainer": ("training with PyTorch", 1700, 50),
}


class _Guard(importlib.abc.MetaPathFinder):
    """Refuses to load a module that needs more address space than the limit leaves. It finds no module itself."""

    def __init__(self, limit: int) -> None:
        self._limit = limit >> 20

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> None:
        """Raises ResourceError if the limit is too small for the module."""
        name, base, per_core = ADDRESS_SPACE.get(fullname, ("", 0, 0))
        needed = base + per_core * (os.cpu_count() or 1)
        if self._limit < needed:
            raise ResourceError(
                f"ulimit -v leaves {self._limit:,} MB of address space, and {name} needs about {needed:,} MB: "
                "raise the limit"
            )


def _guard_address_space() -> int | None:
    """Guards imports if the address space is limited (`ulimit -v`); returns the limit in bytes.

    Under a limit that is too small, NumPy and PyTorch print messages of their own, abort or crash.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    # NumPy's OpenBLAS takes 40 MB for each thread, and nmtalign computes its products with PyTorch.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.meta_path.insert(0, _Guard(limit))
    return limit
