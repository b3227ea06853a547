"""`nmtalign export`: an alignment file in another format, or a model without the files of its training."""

import sys
from pathlib import Path
from shlex import quote
from typing import Literal

from nmtalign.api import export as export_file
from nmtalign.cli.common import QUIET, notifier, output_option, own_argument, own_flag, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import ExportConfig
from nmtalign.text.lines import STDOUT


@with_settings(ExportConfig)
def export(
    chosen: Chosen[ExportConfig],
    source: Path = own_argument("FILE.h5|MODEL", "Alignment file, or model directory.", default=...),
    format: Literal["pharaoh", "json", "ctranslate2"] | None = own_option(
        "What to write [dim]\\[default: pharaoh; for a model, a copy][/dim].", names="--format -f"
    ),
    output: Path = output_option(
        "Output file (.gz is compressed; - is stdout), or folder of a model.", "OUT", stdout=True, default=STDOUT
    ),
    average: list[Path] | None = own_option(
        "For a model: write the mean of its weights and those of another model or file of weights; may be repeated.",
        "MODEL|FILE",
        "--average",
    ),
    force: bool = own_flag("For a model: replace another exported model.", "--force"),
    quiet: bool = QUIET,
) -> None:
    """Write an alignment file in another format, or a small copy of a model.

    pharaoh: hard links, one line per sentence, 0-0 2-1, source first, from 0. json: one object per line, for each entry
    of n-best lists: id, rank, source, target, weights, links, log_prob, token_log_probs. Every HDF5 library reads the
    file itself.

    A model is copied without the files that only its training needs. The copy translates, aligns and scores, and a new
    training can begin with it (train --init-from). It cannot resume the training. ctranslate2: a Transformer for
    CTranslate2, with a note that says how to use it.

    Examples:
      nmtalign export alignments.h5 > links.txt
      nmtalign export alignments.h5 --format json | jq .links
      nmtalign export model/ -o slim/ --weights int8
      nmtalign export model/ -o mean/ --average model/last.safetensors
      nmtalign export transformer/ -o ct2/ --format ctranslate2
    """
    own, settings, tell = format == "ctranslate2", chosen.settings, notifier(quiet)
    model = source.is_dir() or own
    if "weights" in chosen.typed and not model:
        raise UsageError(f"{source}: is no model directory; leave out --weights")
    place = sys.stdout if output == STDOUT else output
    export_file(source, place, format=format, average=average or [], force=force, config=settings)
    if model:
        size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
        usage = f"read {output / 'README.md'}" if own else f"nmtalign translate -m {quote(str(output))}"
        tell(f"wrote {output}: {size / 1e6:,.1f} MB, {settings.weights} weights; next: {usage}")
    elif output != STDOUT:
        tell(f"wrote {output}")
