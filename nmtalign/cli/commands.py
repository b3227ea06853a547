"""The subcommands, and how errors become one line and an exit code."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nmtalign.cli import (
    aer,
    align,
    docs,
    export,
    info,
    lexicon,
    plot,
    prep,
    reproduce,
    sample,
    score,
    score_pairs,
    symmetrize,
    train,
    translate,
    view,
)
from nmtalign.cli.address_space import address_space_limit
from nmtalign.cli.common import say
from nmtalign.cli.options import Command
from nmtalign.cli.ranks import let_the_first_speak
from nmtalign.errors import NO_MEMORY, NmtalignError, ResourceError, is_out_of_memory
from nmtalign.files import refusal
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
129 ended by SIGHUP, 130 interrupted, 143 ended by SIGTERM.
"""


class _ReaderGone(Exception):  # noqa: N818
    """The reader of stdout has gone (`| head`): an end like any other."""


class _Interrupted(Exception):  # noqa: N818
    """Ctrl-C."""


class _Group(TyperGroup):
    """Lets through to `run` what typer would turn into exit codes of its own, without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the subcommand."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None
        except KeyboardInterrupt:
            raise _Interrupted from None


app = typer.Typer(
    name="nmtalign",
    cls=_Group,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

WORK, RESULTS, EXTRA = "From text to a model", "What a model gives", "More"
COMMANDS: Mapping[str, tuple[str, Callable[..., None]]] = {
    "prep": (WORK, prep.prep),
    "train": (WORK, train.train),
    "translate": (RESULTS, translate.translate),
    "score": (RESULTS, score.score),
    "score-pairs": (RESULTS, score_pairs.score_pairs),
    "align": (RESULTS, align.align),
    "symmetrize": (RESULTS, symmetrize.symmetrize),
    "aer": (RESULTS, aer.aer),
    "plot": (RESULTS, plot.plot),
    "view": (RESULTS, view.view),
    "reproduce": (EXTRA, reproduce.reproduce),
    "lexicon": (EXTRA, lexicon.lexicon),
    "export": (RESULTS, export.export),
    "info": (EXTRA, info.info),
    "sample": (EXTRA, sample.sample),
    "docs": (EXTRA, docs.docs),
}
for _name, (_panel, _function) in COMMANDS.items():
    # rich breaks lines where the docstring does: paragraphs are joined, so that they fill the width of the terminal.
    _paragraphs = inspect.cleandoc(_function.__doc__ or "").split("\n\n")
    _help = "\n\n".join(one if one.startswith("  ") else " ".join(one.split("\n")) for one in _paragraphs)
    app.command(_name, cls=Command, rich_help_panel=_panel, help=_help)(_function)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"nmtalign {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The options before any subcommand."""


def run() -> None:
    """Runs the command line and exits; every error that a user can cause is one line on stderr."""
    code = _flushed(_outcome())
    if code == ResourceError.exit_code and address_space_limit() is not None:
        # Under such a limit the libraries may fail once more while the process ends, with messages of their own.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _outcome() -> int:
    """Runs the command line and returns its exit code."""
    try:
        code = app(prog_name="nmtalign", standalone_mode=False)
    except (_Interrupted, KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except (_ReaderGone, BrokenPipeError):
        _let_stdout_go()
        return 0
    except ResourceError as error:
        return _complain(str(error), error.exit_code)
    except Exception as error:
        return _complain_of_any(error)
    return code if isinstance(code, int) else 0


def _flushed(code: int) -> int:
    """Writes what stdout still holds; the exit code, that of a full disk where all went well until now."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _let_stdout_go()
    except ResourceError as error:
        _let_stdout_go()
        return code or _complain(str(error), error.exit_code)
    return code


def _complain(message: str, code: int) -> int:
    let_the_first_speak()
    say(f"error: {' '.join(message.split())}")
    return code


def _complain_of_any(error: Exception) -> int:
    """One line for any error that a user can cause; anything else is a bug, and raised again."""
    # A reader that knows only that it could not read a file may have called it damaged.
    if is_out_of_memory(error):
        return _complain(NO_MEMORY, ResourceError.exit_code)
    if isinstance(error, NmtalignError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, OSError):
        return _complain(str(refusal(error)), ResourceError.exit_code)
    # typer carries its own copy of click's exceptions or uses click's, by version: known by what they can do.
    if hasattr(error, "format_message"):
        return _complain(error.format_message().replace("Value error, ", ""), 2)
    raise error


def _let_stdout_go() -> None:
    """Keeps Python from complaining, when it ends, of what it cannot flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
