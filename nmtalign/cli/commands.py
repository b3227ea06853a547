"""The subcommands, and how errors become one line and an exit code."""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nmtalign.cli.aer import aer
from nmtalign.cli.align import align
from nmtalign.cli.common import say
from nmtalign.cli.docs import docs
from nmtalign.cli.doctor import doctor
from nmtalign.cli.export import export
from nmtalign.cli.info import info
from nmtalign.cli.lexicon import lexicon
from nmtalign.cli.link import link
from nmtalign.cli.options import Command, protecting, without_types
from nmtalign.cli.prep import prep
from nmtalign.cli.reproduce import reproduce
from nmtalign.cli.sample import sample
from nmtalign.cli.score import score
from nmtalign.cli.score_pairs import score_pairs
from nmtalign.cli.serve import serve
from nmtalign.cli.stopping import exit_on_signals
from nmtalign.cli.symmetrize import symmetrize
from nmtalign.cli.train import train, wait_for_first_rank
from nmtalign.cli.translate import translate
from nmtalign.cli.view import view
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


class _Passed(Exception):  # noqa: N818
    """Carries another error past typer, which would end the command with a code and a message of its own."""


class _Group(TyperGroup):
    """The command `nmtalign`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options before the subcommand."""
        return without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Runs the subcommand."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as error:
            raise _Passed from error


app = typer.Typer(
    name="nmtalign",
    cls=_Group,
    help=HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "From text to a model, or to links": (prep, train, link),
    "Results of a model": (translate, score, score_pairs, align, symmetrize, aer, view, export, serve),
    "More": (reproduce, lexicon, info, doctor, sample, docs),
}


def _help(function: Callable[..., None]) -> str:
    """The docstring with one line per paragraph, because rich breaks a paragraph where its lines end."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(one if one.startswith("  ") else " ".join(one.split("\n")) for one in paragraphs)


for _panel, _functions in _PANELS.items():
    for _function in _functions:
        _name = _function.__name__.replace("_", "-")
        app.command(_name, cls=Command, rich_help_panel=_panel, help=_help(_function))(protecting(_function))


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"nmtalign {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The options before any subcommand; without one the help is printed."""
    if context.invoked_subcommand is None:
        context.get_help()


def run() -> int:
    """Runs the command line and returns the exit code; every error that a user can cause is one line on stderr."""
    exit_on_signals()
    try:
        result = app(prog_name="nmtalign", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except _Passed as passed:
        code = _report(passed.__cause__)
    except (Exception, KeyboardInterrupt) as error:
        code = _report(error)
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ResourceError) as error:
        code = code or _report(error)
        _drop_stdout()
    return code


def _report(error: Any) -> int:
    """Writes one line for an error and returns its exit code; raises the error again if it is a bug of nmtalign."""
    code = ResourceError.exit_code
    match error:
        case KeyboardInterrupt() | typer.Abort():
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
        case _:
            raise error
    wait_for_first_rank()
    say(f"error: {' '.join(message.split())}")
    return code


def _drop_stdout() -> None:
    """Sends the text that is still buffered to /dev/null, so that Python can close stdout without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
