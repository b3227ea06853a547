"""`nmtalign translate`: raw text in, raw text out, one line for one line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtalign.cli.common import ModelsOption, QuietOption, WhichOption, bound_caches, choose_wait_policy
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.cli.stopping import Signals
from nmtalign.errors import UsageError
from nmtalign.model_files import check_ahead
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import SEARCH, TEXT

STDIN = Path("-")

Inputs = Annotated[
    list[Path] | None, typer.Argument(metavar="INPUT", help="Text or .gz files; - is stdin, the default.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, which is FILE.partial until it is complete."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted -o FILE after its last complete line.")]
SaveAlignments = Annotated[
    Path | None, typer.Option(metavar="FILE.h5", help="Also save the attention weights of each translation (HDF5).")
]
SaveAlignmentsOf = Annotated[
    Literal["best", "n-best"],
    typer.Option(
        help="Translations in that file: the best of each line, or all of --n-best.",
        rich_help_panel=f"Advanced: {TEXT}",
        hidden=True,
    ),
]
Weights = Annotated[
    Literal["float16", "float32"],
    typer.Option(help="Type of the weights in that file.", rich_help_panel=f"Advanced: {TEXT}", hidden=True),
]
PrefixFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The beginning of each translation, line by line.",
        rich_help_panel=f"Advanced: {SEARCH}",
        hidden=True,
    ),
]
PhraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Phrases that each translation contains, line by line, separated by tabs.",
        rich_help_panel=f"Advanced: {SEARCH}",
        hidden=True,
    ),
]


@with_settings(TranslateConfig, section="translate")
def translate(
    chosen: Chosen[TranslateConfig],
    inputs: Inputs = None,
    model: ModelsOption = None,
    output: Output = None,
    resume: Resume = False,
    save_alignments: SaveAlignments = None,
    save_alignments_of: SaveAlignmentsOf = "best",
    weights: Weights = "float16",
    prefix_file: PrefixFile = None,
    phrase_file: PhraseFile = None,
    which: WhichOption = "best",
    quiet: QuietOption = False,
) -> None:
    """Translate text: one line out for each line in, as soon as it is translated.

    A blank line stays blank. Bytes that are not UTF-8 become U+FFFD.

    Examples:

      nmtalign translate -m model/ < in.en > out.fr

      nmtalign translate in.en.gz -o out.fr --resume --replace-unk

      nmtalign translate --n-best 5 --format json < in.en | jq .n_best

      nmtalign translate --save-alignments alignments.h5 < in.en > out.fr
    """
    paths = tuple(inputs or (STDIN,))
    files = [*paths, prefix_file, phrase_file]
    _check(chosen.settings, files, output, resume, phrase_file)
    _check_alignments(save_alignments, save_alignments_of == "n-best", files, output)
    choose_wait_policy()
    bound_caches()
    folders = tuple(model or (chosen.workspace.model,))
    check_ahead(folders, which)
    with Signals() as signals:
        from nmtalign.cli.translate_alignments import Alignments
        from nmtalign.cli.translate_job import Job
        from nmtalign.translating.inputs import Inputs

        alignments = None
        if save_alignments is not None:
            alignments = Alignments(save_alignments, save_alignments_of == "n-best", weights, resume=resume)
        job = Job(
            Inputs(paths, chosen.settings.input_format, prefix_file, phrase_file),
            folders,
            which,
            None if output == STDIN else output,
            resume,
            alignments,
            chosen.settings,
            quiet,
        )
        with chosen.naming():
            job.run(signals)


def _check(
    settings: TranslateConfig, files: Sequence[Path | None], output: Path | None, resume: bool, phrase_file: Path | None
) -> None:
    """Raises UsageError for options that do not go together."""
    if files.count(STDIN) > 1:
        raise UsageError("standard input (-) is given more than once; give all but one as files")
    if resume and output in (None, STDIN):
        raise UsageError("--resume continues a file: give -o FILE too")
    if settings.sample and phrase_file:
        raise UsageError("sampling cannot be made to contain phrases: leave out --sample or --phrase-file")
    if settings.input_format == "json" and any(files[-2:]):
        raise UsageError('--prefix-file and --phrase-file are for text; JSON has the keys "prefix" and "phrases"')


def _check_alignments(alignments: Path | None, n_best: bool, files: Sequence[Path | None], output: Path | None) -> None:
    """Raises UsageError where --save-alignments would replace another file, or is missing."""
    if alignments is None:
        if n_best:
            raise UsageError("--save-alignments-of needs the file: give --save-alignments FILE.h5 too")
        return
    if alignments == output:
        raise UsageError(f"{output}: is given for -o and for --save-alignments; give two files")
    if alignments in files:
        raise UsageError(f"{alignments}: is an input; give another file with --save-alignments")
