"""The options of `nmtalign translate`, a type each."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from nmtalign.cli.common import MACHINE

_TEXT, _SEARCH, _CONSTRAINTS, _UNKNOWN = "Text", "Search", "Constraints", "Unknown words"


def _option(panel: str, help: str, metavar: str | None = None, names: str = "", **more: Any) -> Any:
    return typer.Option(*names.split(), help=help, metavar=metavar, rich_help_panel=panel, **more)


Inputs = Annotated[
    list[Path] | None, typer.Argument(metavar="INPUT", help="Text or .gz files, `-` for stdin (default: stdin).")
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        help="Model directory [dim](default: the workspace's, or model/)[/dim]; several are averaged.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write here, not to stdout; FILE.partial until it is whole."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with an interrupted -o FILE after its last complete line.")
]

Format = Annotated[str | None, _option(_TEXT, "Lines of text, or an object a line.", "text|json")]
InputFormat = Annotated[
    str | None, _option(_TEXT, 'Lines of text, or objects with "text", "prefix", "phrases".', "text|json")
]
NBest = Annotated[int | None, _option(_TEXT, "Print the N best, in Moses's format or in JSON.", "N")]
WordScores = Annotated[
    bool | None, _option(_TEXT, "Also print the log-probability of each word.", names="--word-scores/--no-word-scores")
]
Alignment = Annotated[
    str | None, _option(_TEXT, "Also print links i-j, or the weights of each word.", "none|hard|soft")
]
Alignments = Annotated[Path | None, _option(_TEXT, "Also keep the soft alignments, HDF5.", "FILE.h5")]
AlignmentsOf = Annotated[
    Literal["best", "n-best"], _option(_TEXT, "In that file: the best translation of each line, or all of --n-best.")
]
Weights = Annotated[Literal["float16", "float32"], _option(_TEXT, "How that file stores weights.")]
Tokenized = Annotated[
    bool | None,
    _option(
        _TEXT,
        "The text is tokenised as the model's is: split at spaces, leave tokenised.",
        names="--tokenized/--raw",
    ),
]
MaxSourceLength = Annotated[int | None, _option(_SEARCH, "Longer lines are translated in pieces (500 tokens).", "N")]

Beam = Annotated[int | None, _option(_SEARCH, "Width of the beam (12).", "N")]
Search = Annotated[
    str | None, _option(_SEARCH, "Stop when no open hypothesis can win, or as the paper's code does.", "beam|paper")
]
LengthPenalty = Annotated[
    float | None,
    _option(_SEARCH, "score = log-probability / length^ALPHA, </s> counted (1.0; 0 = none).", "ALPHA"),
]
WordPenalty = Annotated[float | None, _option(_SEARCH, "Taken from the log-probability for each word (0).", "X")]
CoveragePenalty = Annotated[
    float | None, _option(_SEARCH, "Weight of the penalty for source words hardly read (0).", "BETA")
]
MinLengthRatio = Annotated[float | None, _option(_SEARCH, "At least R times the source's length (0).", "R")]
MaxLengthRatio = Annotated[
    float | None, _option(_SEARCH, "At most R times the source's length, </s> counted (3).", "R")
]
Ensemble = Annotated[
    str | None, _option(_SEARCH, "What is averaged over several models (probability).", "probability|log")
]
Sample = Annotated[bool | None, _option(_SEARCH, "Draw words, do not search.", names="--sample/--no-sample")]
Temperature = Annotated[float | None, _option(_SEARCH, "Of drawing: below 1 sharper, above flatter (1).", "T")]
TopK = Annotated[int | None, _option(_SEARCH, "Draw from the K likeliest words (0 = all).", "K")]
Seed = Annotated[int | None, _option(_SEARCH, "Of drawing (1234).", "N")]

PrefixFile = Annotated[
    Path | None, _option(_CONSTRAINTS, "A line for each line: what the translation begins with.", "FILE")
]
PhraseFile = Annotated[
    Path | None, _option(_CONSTRAINTS, "A line for each line: phrases it must hold, set apart by tabs.", "FILE")
]
Candidates = Annotated[
    int | None,
    _option(
        _CONSTRAINTS,
        "Only words that the lexicon gives for a line, and the N most frequent (2000 with --lexicon alone; 0 = all).",
        "N",
    ),
]

AllowUnk = Annotated[bool | None, _option(_UNKNOWN, "Let <unk> be generated.", names="--allow-unk/--no-allow-unk")]
ReplaceUnk = Annotated[
    bool | None,
    _option(
        _UNKNOWN,
        "Replace each <unk> through the alignment: by the lexicon, else a copy of the source word.",
        names="--replace-unk/--no-replace-unk",
    ),
]
Lexicon = Annotated[
    Path | None,
    _option(_UNKNOWN, "For --replace-unk and --candidates: lines `source target \\[prob]`.", "FILE"),
]

BatchSize = Annotated[int | None, _option(MACHINE, "Source words searched together (0 = what is fastest).", "N")]
MaxMemory = Annotated[
    str | None, _option(MACHINE, "Memory of the search, such as 2G (a tenth of the machine's).", "SIZE")
]
