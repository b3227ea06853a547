"""The start of `nmtalign`: streams, limits, the table of commands, and how errors become one line and an exit code.

Hardly anything is imported before the command is known, so that Ctrl-C and --help work at once.

`python -m nmtalign.cli.app train ...` runs a command for another process, whose pipe is its stdin. When the pipe is
closed, because the other process has ended in whatever way, the command gets SIGTERM.
"""

import codecs
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtalign.errors import NO_MEMORY, NmtalignError, ResourceError, is_out_of_memory
from nmtalign.files import disk_errors, refusal
from nmtalign.version import __version__

HELP = """Learn to translate and to align at once (Bahdanau, Cho & Bengio 2015).

From two aligned text files to a translation, a BLEU table and word alignments in HDF5.

Examples:

  nmtalign prep train.en train.fr --dev dev.en dev.fr -o data/

  nmtalign train data/ -o model/ --preset small --max-time 15m

  nmtalign translate -m model/ < in.en > out.fr

  nmtalign score out.fr -r ref.fr -s in.en --by-length

  nmtalign align in.en out.fr -m model/ -o alignments.h5 --pharaoh

Exit codes: 0 done, 1 other, 2 usage, 3 text input, 4 corpus, model or alignment file, 5 machine, 6 training,
129 ended by SIGHUP, 130 interrupted, 143 ended by SIGTERM."""
PANELS: dict[str, dict[str, str]] = {
    "From text to a model, or to links": {
        "prep": "Prepare a corpus: tokenise parallel text, choose the vocabularies, write ids to HDF5.",
        "train": "Train a model; rerun an interrupted command and it resumes.",
        "link": "Link the words of a bitext: learns from it, and prints a line of links per pair: 0-0 2-1.",
    },
    "Results of a model": {
        "translate": "Translate text: one line out for each line in, as soon as it is translated.",
        "score": "Score translations with sacreBLEU's BLEU, chrF and chrF++, and their signatures.",
        "align": "Align given sentence pairs: soft alignments to HDF5, hard links to stdout, error rates.",
        "symmetrize": "Make one set of links from two directions: one line per pair on stdout.",
        "aer": "Compare links with gold links: precision, recall, alignment error rate (AER) and F1.",
        "view": "Make one HTML page of alignments that any browser shows, without a server or a network.",
        "export": "Write an alignment file in another format, or a small copy of a model.",
        "serve": "Serve models over HTTP: for programs that use LibreTranslate, for JSON, and a page to try it.",
    },
    "More": {
        "reproduce": "Train the paper's models or other systems under one budget, compare them, and write a report.",
        "info": "Describe a model, a prepared corpus, an aligner or an alignment file, and check it for damage.",
        "sample": "Write a sample corpus: train, dev and test in English and French, gold word alignments.",
    },
}
"""The beginning of the help of each command; `nmtalign.cli.NAME` contains its function."""
COMMANDS = {name: (panel, line) for panel, commands in PANELS.items() for name, line in commands.items()}
_OPTIONS = {
    "--version": "Print the version.",
    "--install-completion": "Install the completion of commands, options and settings for this shell.",
    "--show-completion": "Print the completion, to copy or change it.",
    "--help, -h": "Print this help. `nmtalign COMMAND --help` explains a command.",
}


def main() -> None:
    """Runs the command line and exits."""
    # With this mode, which MKL reads at its first product, fewer numbers depend on the other rows of a product.
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    limit = None
    try:
        open_streams()
        _check_folder()
        limit = _guard_address_space()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        _end(NO_MEMORY, ResourceError.exit_code)
    if code == ResourceError.exit_code and limit is not None:
        # Under such a limit the libraries may fail once more while the process ends, with messages of their own.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns the exit code; every error that a user can cause is one line on stderr."""
    try:
        code = _dispatch(arguments)
    except (Exception, KeyboardInterrupt) as error:
        code = _report(error.__cause__ if type(error).__name__ == "PassedError" else error)
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ResourceError) as error:
        code = code or _report(error)
        _drop_stdout()
    return code


def _dispatch(arguments: Sequence[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if "_NMTALIGN_COMPLETE" in os.environ or first.endswith("-completion"):
        result = completing_app()(list(arguments), prog_name="nmtalign", standalone_mode=False)
    elif first in ("--help", "-h"):
        _print_help()
        return 0
    elif first == "--version":
        sys.stdout.write(f"nmtalign {__version__}\n")
        return 0
    else:
        if first not in COMMANDS:
            from nmtalign.cli.old_names import current_command

            arguments = current_command(arguments, COMMANDS)
        from nmtalign.cli.common import exit_on_signals
        from nmtalign.cli.options import load_command

        exit_on_signals()
        name, *rest = arguments
        result = load_command(name).main(rest, prog_name=f"nmtalign {name}", standalone_mode=False)
    return result if isinstance(result, int) else 0


def completing_app() -> Any:
    """The typer application with all commands, which completes command lines and is not needed to run a command."""
    import typer

    from nmtalign.cli.options import add_command

    app = typer.Typer(name="nmtalign", help=HELP)
    for name in COMMANDS:
        add_command(app, name)
    return app


def _print_help() -> None:
    """Prints the help of `nmtalign`, without typer, whose way of printing takes longer than all the rest."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    console.print(Padding(f"Usage: nmtalign COMMAND [OPTIONS] [ARGUMENTS]\n\n{HELP}", 1))
    for title, lines in {**PANELS, "Options": _OPTIONS}.items():
        table = Table.grid(padding=(0, 2))
        for name, line in lines.items():
            table.add_row(name, line)
        console.print(Panel(table, title=title, title_align="left"))


def _report(error: Any) -> int:
    """Writes one line for an error and returns its exit code; raises the error again if it is a bug of nmtalign."""
    code = ResourceError.exit_code
    match error:
        case KeyboardInterrupt():
            message, code = "interrupted", 130
        case BrokenPipeError():
            _drop_stdout()
            return 0  # the reader of stdout has enough, as in `| head`
        case ResourceError():
            message = str(error)
        case _ if is_out_of_memory(error):  # even if a reader of files has reported that a file is damaged
            message = NO_MEMORY
        case NmtalignError():
            message, code = str(error), error.exit_code
        case OSError():
            message = str(refusal(error))
        case _ if hasattr(error, "format_message"):  # an error of usage; its class depends on the version of typer
            message, code = error.format_message().replace("Value error, ", ""), 2  # a prefix of pydantic
        case _ if type(error).__name__ == "Abort":  # of typer
            message, code = "interrupted", 130
        case _:
            raise error
    _wait_for_first_rank()
    if message:
        from nmtalign.cli.common import say

        say(f"error: {' '.join(message.split())}")
    return code


def _wait_for_first_rank() -> None:
    """Under torchrun, lets rank 0 report an error of the start, which all processes probably have.

    torchrun ends the waiting processes as soon as rank 0 has ended. Connected processes agree on which one reports.
    """
    distributed = sys.modules.get("torch.distributed")
    connected = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if not connected and os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0":
        time.sleep(5)


def _drop_stdout() -> None:
    """Sends the text that is still buffered to /dev/null, so that Python can close stdout without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


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


class _Guard:
    """Refuses to load a module that needs more address space than the limit leaves. It finds no module itself."""

    def __init__(self, limit: int) -> None:
        self._limit = limit >> 20

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
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


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
