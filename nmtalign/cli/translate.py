"""`nmtalign translate`: raw text in, raw text out, one line for one line."""

from pathlib import Path
from typing import Annotated

import typer

from nmtalign.cli.common import (
    MACHINE,
    ConfigOption,
    DeviceOption,
    ModelOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    WhichOption,
    choose_wait_policy,
)
from nmtalign.config import TranslateConfig, field_names
from nmtalign.errors import UsageError
from nmtalign.workspace import load_workspace

STDIN = Path("-")
_TEXT, _SEARCH, _UNKNOWN = "Text", "Search", "Unknown words"

Inputs = Annotated[
    list[Path] | None, typer.Argument(metavar="INPUT", help="Text or .gz files, `-` for stdin (default: stdin).")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write here, whole or not at all, not to stdout."),
]
Format = Annotated[
    str | None, typer.Option(metavar="text|json", help="Lines of text, or an object a line.", rich_help_panel=_TEXT)
]
Tokenized = Annotated[
    bool | None,
    typer.Option(
        "--tokenized/--raw",
        help="The text is tokenised as the model's is: split at spaces, leave tokenised.",
        rich_help_panel=_TEXT,
    ),
]
Alignments = Annotated[
    Path | None,
    typer.Option(metavar="FILE.h5", help="Also keep the soft alignments of the best.", rich_help_panel=_TEXT),
]
MaxSourceLength = Annotated[
    int | None,
    typer.Option(metavar="N", help="Longer lines are translated in pieces (500 tokens).", rich_help_panel=_TEXT),
]
Beam = Annotated[int | None, typer.Option(metavar="N", help="Width of the beam (12).", rich_help_panel=_SEARCH)]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="ALPHA",
        help="score = log-probability / length^ALPHA, </s> counted (1.0; 0 = none).",
        rich_help_panel=_SEARCH,
    ),
]
NBest = Annotated[
    int | None,
    typer.Option(metavar="N", help="Print the N best, in Moses's format or in JSON.", rich_help_panel=_SEARCH),
]
MaxLengthRatio = Annotated[
    float | None,
    typer.Option(metavar="R", help="At most R times the source's length, </s> counted (3).", rich_help_panel=_SEARCH),
]
AllowUnk = Annotated[
    bool | None,
    typer.Option("--allow-unk/--no-allow-unk", help="Let <unk> be generated.", rich_help_panel=_UNKNOWN),
]
ReplaceUnk = Annotated[
    bool | None,
    typer.Option(
        "--replace-unk/--no-replace-unk",
        help="Replace each <unk> through the alignment: by the lexicon, else a copy of the source word.",
        rich_help_panel=_UNKNOWN,
    ),
]
Lexicon = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For --replace-unk: lines `source target \\[prob]`.", rich_help_panel=_UNKNOWN),
]
BatchSize = Annotated[
    int | None, typer.Option(metavar="N", help="Sentences searched together (32).", rich_help_panel=MACHINE)
]


def translate(
    inputs: Inputs = None,
    model: ModelOption = None,
    output: Output = None,
    which: WhichOption = "best",
    format: Format = None,
    tokenized: Tokenized = None,
    alignments: Alignments = None,
    max_source_length: MaxSourceLength = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    n_best: NBest = None,
    max_length_ratio: MaxLengthRatio = None,
    allow_unk: AllowUnk = None,
    replace_unk: ReplaceUnk = None,
    lexicon: Lexicon = None,
    batch_size: BatchSize = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Translate text: one line out for each line in, always.

    A line that comes alone is answered at once; a flood is sorted into
    batches. A blank line stays blank. Bytes that are not UTF-8 become U+FFFD,
    and a line that is too long is translated in pieces: stderr tells which.

    Examples:

      nmtalign translate < in.en > out.fr

      nmtalign translate -m model/ in.en -o out.fr --replace-unk

      nmtalign translate --n-best 5 --format json < in.en | jq .n_best

      nmtalign translate --alignments alignments.h5 < in.en > out.fr
    """
    flags = {name: value for name, value in locals().items() if name in field_names(TranslateConfig)}
    flags["lexicon"] = str(lexicon) if lexicon else None
    workspace = load_workspace(config)
    settings = workspace.resolve(TranslateConfig, "translate", flags)
    if lexicon and not settings.replace_unk:
        raise UsageError("--lexicon is for --replace-unk: give both")
    choose_wait_policy()
    from nmtalign.cli.translate_job import Job

    job = Job(tuple(inputs or (STDIN,)), model or workspace.model, which, output, alignments, settings, quiet)
    job.run()
