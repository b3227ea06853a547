"""`nmtalign export`: an alignment file in another format, or a model without the files of its training."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from nmtalign.api import export_model
from nmtalign.cli.common import own_argument, own_option, say, writes
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import ExportConfig
from nmtalign.text.lines import STDOUT

Source = Annotated[Path, own_argument("FILE.h5|MODEL", "Alignment file, or model directory.")]
Format = Annotated[
    Literal["pharaoh", "json", "numpy", "marian"] | None,
    own_option("Of alignments: what to write [dim]\\[default: pharaoh][/dim].", names="--format -f"),
]
Output = Annotated[
    Path | None,
    own_option(
        "Output file, not stdout; .gz compresses text. Of a model: the new folder.",
        "OUT",
        "--output -o",
        callback=writes("a file", stdout=True),
    ),
]
Entries = Annotated[
    Literal["best", "all"] | None,
    own_option("Of n-best lists: one line per sentence, or per entry [dim](default: all for json and numpy)[/dim]."),
]
Average = Annotated[
    list[Path] | None,
    own_option(
        "Of a model: write the mean of its weights and these, of another model or a file; may be repeated.",
        "MODEL|FILE",
        "--average",
    ),
]
Force = Annotated[bool, own_option("Of a model: replace another exported model.", names="--force")]


@with_settings(ExportConfig)
def export(
    chosen: Chosen[ExportConfig],
    source: Source,
    format: Format = None,
    output: Output = None,
    entries: Entries = None,
    average: Average = None,
    force: Force = False,
) -> None:
    """Write an alignment file in another format, or a small copy of a model.

    pharaoh: hard links, one line per sentence, 0-0 2-1, source first, from 0.
    json: one object per line: id, rank, source, target, weights, links,
    log_prob, token_log_probs. marian: target words ||| soft weights, a group
    for each target word and </s>. numpy: an .npz archive of the arrays.

    A model is copied without the files that only its training needs. The copy translates, aligns and scores, and a new
    training can begin with it (train --init-from). It cannot resume the training.

    Examples:

      nmtalign export alignments.h5 > links.txt

      nmtalign export alignments.h5 --format json | jq .links

      nmtalign export alignments.h5 --format numpy -o alignments.npz

      nmtalign export model/ -o slim/

      nmtalign export model/ -o slim/ --weights int8

      nmtalign export model/ -o mean/ --average model/last.safetensors
    """
    if source.is_dir():
        _refuse(source, "is a model directory", {"--format": format, "--entries": entries})
        _export_model(source, output, chosen.settings, average or [], force)
    else:
        of_models = {"--weights": chosen.typed.get("weights"), "--average": average, "--force": force}
        _refuse(source, "is no model directory", of_models)
        _export_alignments(source, format or "pharaoh", output, entries)


def _refuse(source: Path, reason: str, options: Mapping[str, object]) -> None:
    if given := [name for name, value in options.items() if value]:
        raise UsageError(f"{source}: {reason}; leave out {' and '.join(given)}")


def _export_model(
    model: Path, folder: Path | None, settings: ExportConfig, average: Sequence[Path], force: bool
) -> None:
    if folder is None or folder == STDOUT:
        raise UsageError(f"{model}: the copy of a model needs a folder: give -o FOLDER")
    export_model(model, folder, force=force, average=average, weights=settings.weights)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"wrote {folder}: {size / 1e6:,.1f} MB, {settings.weights} weights; next: nmtalign translate -m {folder}")


def _export_alignments(
    file: Path,
    format: Literal["pharaoh", "json", "numpy", "marian"],
    output: Path | None,
    entries: Literal["best", "all"] | None,
) -> None:
    from nmtalign.alignment.alignment_file import AlignmentFile
    from nmtalign.alignment.export_formats import text_lines, write_export

    if output is not None and output != STDOUT:
        write_export(file, output, format, entries)
        say(f"wrote {output}")
    elif format == "numpy":
        raise UsageError("NumPy arrays need a file: give -o FILE.npz")
    else:
        with AlignmentFile(file) as alignments:
            sys.stdout.writelines(text_lines(alignments, format, entries))
