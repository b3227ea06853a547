"""The start of `nmtalign`: streams, limits, the table of commands, and how errors become one line and an exit code.

Hardly anything is imported before the command is known, so that Ctrl-C and --help work at once.
"""

import codecs
import contextlib
import gc
import io
import os
import re
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nmtalign.errors import NO_MEMORY, NmtalignError, ResourceError, is_out_of_memory
from nmtalign.files import disk_errors, refusal
from nmtalign.version import __version__

HELP = """Learn to translate and to align at once (Bahdanau, Cho & Bengio 2015).

From two aligned text files to a translation, a BLEU table and word alignments.

Examples:
  nmtalign prep train.en train.fr --dev dev.en dev.fr -o data/
  nmtalign train data/ -o model/ --max-time 15m
  nmtalign translate -m model/ < in.en > out.fr
  nmtalign score out.fr -r ref.fr -s in.en --by-length
  nmtalign align in.en out.fr -m model/ -o alignments.h5 --pharaoh

Exit codes: 0 done, 1 other, 2 usage, 3 text input, 4 corpus, model or alignment
file, 5 machine, 6 training, 129 ended by SIGHUP, 130 interrupted, 143 ended by
SIGTERM."""
PANELS: dict[str, dict[str, str]] = {
    "From text to a model, or to links": {
        "prep": "Prepare a corpus: tokenise parallel text, choose the vocabularies, write ids to HDF5.",
        "train": "Train a model; rerun an interrupted command and it resumes.",
        "link": "Learn from a bitext to link its words, and print one line of links per pair: 0-0 2-1.",
    },
    "Results of a model": {
        "translate": "Translate text: one line out for each line in, as soon as it is translated.",
        "score": "Score translations with sacreBLEU's BLEU, chrF and chrF++, and their signatures.",
        "align": "Align given sentence pairs: soft alignments to HDF5, hard links to stdout.",
        "symmetrize": "Make one set of links from two directions: one line per pair on stdout.",
        "aer": "Compare links with gold links: precision, recall, alignment error rate (AER) and F1.",
        "view": "Draw soft alignments as in the paper's Figure 3, learning curves, or a page that runs a model.",
        "export": "Write an alignment file in another format, or a small copy of a model.",
        "serve": "Serve models over HTTP: for programs that use LibreTranslate, for JSON, and a page to try it.",
    },
    "More": {
        "reproduce": "Train the paper's models or other systems under one budget, compare them, and write a report.",
        "info": "Describe a model, a prepared corpus, an aligner or an alignment file, and check it for damage.",
        "sample": "Write a sample corpus: train, dev and test in English and French, with gold word alignments.",
    },
}
"""The beginning of the help of each command; `nmtalign.cli.NAME` contains its function."""
COMMANDS = {name: line for commands in PANELS.values() for name, line in commands.items()}
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
    # The imports make 300,000 objects that stay. To look through all of them as often as usual takes 0.3 seconds.
    gc.set_threshold(*gc.get_threshold()[:2], 100)
    os.environ.pop("MPLBACKEND", None)  # set by notebooks; matplotlib may not know it here, and files need none
    try:
        open_streams()
        code = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while Python ends would print a traceback
    except KeyboardInterrupt:
        code = 130
        os.write(2, b"nmtalign: error: interrupted\n")
    except MemoryError:
        code = ResourceError.exit_code
        os.write(2, f"nmtalign: error: {NO_MEMORY}\n".encode())
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns the exit code; every error that a user can cause is one line on stderr."""
    try:
        code = _dispatch(arguments)
    except BaseException as error:
        code = _report(error)
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ResourceError) as error:
        code = code or _report(error)
        _drop_stdout()
    return code


def _dispatch(arguments: Sequence[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if "_NMTALIGN_COMPLETE" in os.environ or first.endswith("-completion"):
        import typer

        from nmtalign.cli.options import add_command

        app = typer.Typer(name="nmtalign", help=HELP)
        for name in COMMANDS:
            add_command(app, name)
        with _assignments_of_bash():
            result = app(list(arguments), prog_name="nmtalign", standalone_mode=False)
        return result if isinstance(result, int) else 0
    if first in ("--help", "-h"):
        _print_help()
    elif first == "--version":
        sys.stdout.write(f"nmtalign {__version__}\n")
    else:
        from typer import Exit

        from nmtalign.cli.common import signals
        from nmtalign.cli.options import load_command

        _guard_address_space()
        try:
            Path.cwd()  # if the folder was removed, MKL would end the process with another message
        except OSError as error:
            raise ResourceError(f"the current folder cannot be used: {error.strerror}; change to another") from None
        if first not in COMMANDS:
            from nmtalign.cli.old_names import current_command

            arguments = current_command(arguments, COMMANDS)
        if not arguments:
            return 0
        name, *rest = arguments
        with signals:
            command = load_command(name)
            try:
                with command.make_context(f"nmtalign {name}", rest) as context:  # `command.main` prints other messages
                    command.invoke(context)
            except Exit as end:
                return end.exit_code
    return 0


@contextlib.contextmanager
def _assignments_of_bash() -> Iterator[None]:
    """Completes NAME=VALUE also in bash, which makes three words of it and replaces only the last one."""
    words = os.environ.get("COMP_WORDS", "").split("\n")[: int(os.environ.get("COMP_CWORD", 0)) + 1]
    joined = re.sub(r"\n=\n?", "=", "\n".join(words))
    os.environ.update(COMP_WORDS=joined, COMP_CWORD=str(joined.count("\n")))
    kept = joined[joined.rfind("\n") + 1 : joined.rfind("=") + 1] if "=" in words[-2:] else ""
    stdout, text = sys.stdout, io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            yield
    finally:
        stdout.writelines(line.removeprefix(kept) for line in text.getvalue().splitlines(keepends=True))


def _guard_address_space() -> None:
    """Makes an import of NumPy or PyTorch an error if `ulimit -v` is too small: these libraries would abort."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needs = {"numpy": 300, "torch": 1200 + 20 * (os.cpu_count() or 1)}  # MB, measured; threads have stacks

    def find_spec(name: str, *_: object) -> None:
        if limit >> 20 < needs.get(name, 0):
            left = f"ulimit -v leaves {limit >> 20:,} MB of address space"
            raise ResourceError(f"{left}, and {name} needs about {needs[name]:,} MB: raise the limit")

    if limit != resource.RLIM_INFINITY:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread takes 40 MB and computes nothing
        sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))


def _print_help() -> None:
    """Prints the help of `nmtalign` as plain text: importing rich or typer takes longer than all the rest."""
    width = min(120, shutil.get_terminal_size().columns)
    parts = ["Usage: nmtalign COMMAND [OPTIONS] [ARGUMENTS]", HELP]
    for title, entries in {**PANELS, "Options": _OPTIONS}.items():
        rows = (
            textwrap.fill(line, width, initial_indent=f"  {name:<21}", subsequent_indent=" " * 23)
            for name, line in entries.items()
        )
        parts.append("\n".join([f"{title}:", *rows]))
    sys.stdout.write("\n\n".join(parts) + "\n")


def _report(error: Any) -> int:
    """Writes one line for an error and returns its exit code; raises the error again if it is a bug of nmtalign."""
    from nmtalign.cli.common import Stop, end_threads, say, signals

    code = ResourceError.exit_code
    match error:
        case Stop():
            first = os.environ.get("RANK", "0") == "0"  # torchrun ends its processes together: one reports
            message, code = f"{error}{signals.detail()}" if first else "", error.exit_code
        case KeyboardInterrupt():
            message, code = "interrupted", 130
        case BrokenPipeError():
            _drop_stdout()
            message, code = "", 0  # the reader of stdout has enough, as in `| head`
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
        case _:
            raise error
    if message:
        _wait_for_first_rank()
        say(f"error: {' '.join(message.split())}")
    if isinstance(error, Stop | BrokenPipeError):
        end_threads(code)
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


def open_streams() -> None:
    """Makes stdout and stderr UTF-8 in every locale, and reserves the numbers 0 to 2 for the streams.

    Text goes to stdout exactly: `\\n` ends a line, and the bytes of a file name that is not UTF-8 come out unchanged.
    A stream that the caller has closed (`>&-`) becomes /dev/null, opened the wrong way round: no other file gets its
    number, and reading or writing it is still an error. Only stderr ignores what is written to it.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest free number, which is this one
    codecs.register_error("nmtalign.exact", _exactly)
    if sys.stdout is sys.__stdout__:  # a test may have replaced it
        raw, unbuffered = _StandardOutput(1, "w", closefd=False), getattr(sys.stdout, "write_through", False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), "utf-8", "nmtalign.exact", "\n", os.isatty(1), write_through=unbuffered
        )
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is sys.__stderr__:
        buffer = io.BufferedWriter(_StandardError(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(buffer, "utf-8", "backslashreplace", line_buffering=True)


class _StandardOutput(io.FileIO):
    """Standard output; its errors name it, as the errors of a file do."""

    def write(self, data: Any) -> Any:
        """Writes bytes; raises ResourceError if the system refuses them, BrokenPipeError if the reader has gone."""
        with disk_errors(Path("standard output")):
            return super().write(data)


class _StandardError(io.FileIO):
    """Standard error. What the system refuses is lost, and the command continues: the user may close the terminal."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _exactly(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replaces what UTF-8 cannot encode: a byte of a file name by itself, half a character by `\\ud800` or the like."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError:
        return codecs.lookup_error("backslashreplace")(error)
