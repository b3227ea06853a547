"""The options of `nmtalign align`, a type each, and what they come to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from nmtalign.cli.common import MACHINE

_BOTH, _LINKS, _OUTPUT = "Both directions", "How weights and links are read", "What comes out"


def _option(panel: str, help: str, metavar: str | None = None, names: str = "", **more: Any) -> Any:
    return typer.Option(*names.split(), help=help, metavar=metavar, rich_help_panel=panel, **more)


Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SRC", help="Source text or .gz file (default: the workspace's test set).", show_default=False
    ),
]
Target = Annotated[
    Path | None, typer.Argument(metavar="TGT", help="Its translation, line by line.", show_default=False)
]
Forward = Annotated[Path | None, _option(_BOTH, "Model that reads SRC and writes TGT (or -m).", "DIR")]
Backward = Annotated[Path | None, _option(_BOTH, "Model that reads TGT and writes SRC.", "DIR")]
Symmetrize = Annotated[
    str | None,
    _option(
        _BOTH,
        "How both become one: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and, of links; product, "
        "mutual, agreement (the default), bayes-risk, of weights.",
        "METHOD",
    ),
]
Links = Annotated[
    str | None,
    _option(_LINKS, "One link a target word or NULL, or all of some weight (argmax).", "argmax|threshold"),
]
Threshold = Annotated[
    float | None,
    _option(
        _LINKS, "Least weight of a link, of a row's 1 (0.3); of --symmetrize product 0.15, agreement 0.6, ...", "P"
    ),
]
Reading = Annotated[
    str | None,
    _option(
        _LINKS,
        "Weights of the step that writes the word, of the one that reads it, or given the word; auto: current with one "
        "model, posterior with two (auto).",
        "auto|current|shifted|posterior",
    ),
]
Temperature = Annotated[
    float | None, _option(_LINKS, "Weights to the power 1/T: below 1 sharper, above flatter (1).", "T")
]
DropEnd = Annotated[
    bool | None,
    _option(_LINKS, "Without </s>: rows sum to 1 over words, none is NULL.", names="--drop-end/--keep-end"),
]
Tokenized = Annotated[bool, _option(_LINKS, "Words stand between spaces: do not tokenise again.", names="--tokenized")]
Output = Annotated[
    Path | None,
    _option(
        _OUTPUT,
        "Soft alignments, HDF5 [dim](default: alignments.h5, without --pharaoh)[/dim]; FILE.h5.partial until it is "
        "whole.",
        "FILE.h5",
        "--output -o",
    ),
]
Resume = Annotated[bool, _option(_OUTPUT, "Go on with an interrupted -o FILE.h5.", names="--resume")]
Pharaoh = Annotated[
    bool, _option(_OUTPUT, "Hard links on stdout, a line a pair: 0-0 2-1 (source first).", names="--pharaoh")
]
Gold = Annotated[Path | None, _option(_OUTPUT, "Gold links: precision, recall and AER.", "FILE")]
GoldBase = Annotated[
    Literal["0", "1"] | None,
    _option(_OUTPUT, "What their positions count from [dim](default: 0, of numbered lines 1)[/dim].", "0|1"),
]
Weights = Annotated[str | None, _option(_OUTPUT, "How weights are stored.", "float16|float32")]
Format = Annotated[Literal["text", "json"], _option(_OUTPUT, "How the figures are printed.")]
BatchSize = Annotated[int | None, _option(MACHINE, "Pairs aligned together.", "N")]


@dataclass(frozen=True)
class Task:
    """What is aligned, and what comes out."""

    source: Path
    target: Path
    gold: Path | None
    gold_base: int | None
    gold_was_given: bool  # and is not the workspace's
    output: Path | None
    resume: bool
    pharaoh: bool
    tokenized: bool
    format: str
