"""An alignment file in other formats (docs/formats.md): Pharaoh's links, JSON lines.

Weights are written with the digits that are needed to read the stored numbers back exactly.
"""

import contextlib
import functools
import json
import math
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.links import AlignmentRecord, format_links
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, check_other
from nmtalign.text.lines import as_json

TextFormat = Literal["pharaoh", "json"]


def export_alignments(path: Path, output: Path | TextIO, form: TextFormat | None = None) -> None:
    """Writes the links of each sentence, or JSON for each entry of n-best lists, to a stream or, atomically, a file.

    Raises FormatError for a damaged alignment file, UsageError for an unknown format and if the output is the input.
    """
    if form not in (None, *get_args(TextFormat)):
        raise UsageError(f"{path}: format = {form!r}: give {', '.join(get_args(TextFormat))}, or none")
    if isinstance(output, Path):
        check_other(output, [path])
    opened = atomic_text(output) if isinstance(output, Path) else contextlib.nullcontext(output)
    with AlignmentFile(path) as file, opened as stream:
        if form == "json":
            stream.writelines(f"{json_line(record, file.dtype)}\n" for record in file)
        else:
            stream.writelines(f"{format_links(pair.links)}\n" for pair in file.links() if pair.rank == 0)


def json_line(record: AlignmentRecord, dtype: str = "float32") -> str:
    """Returns an object on one line without any line separator of Unicode; numbers that are not finite become null."""
    known = {"id": record.sentence_id, "rank": record.rank, "source": record.source, "target": record.target}
    text = as_json(known)
    rows = ", ".join(f"[{', '.join(row)}]" for row in _texts(record.weights, dtype))
    log_probs = ", ".join(_texts(record.token_log_probs[None], "float32")[0])
    log_prob = json.dumps(record.log_prob) if math.isfinite(record.log_prob) else "null"
    links = json.dumps(record.links())
    if record.link_scores is not None:
        links += f', "scores": {json.dumps([round(score, 4) for score in record.link_scores])}'
    return (
        f'{text[:-1]}, "weights": [{rows}], "links": {links}, "log_prob": {log_prob}, '
        f'"token_log_probs": [{log_probs}]}}'
    )


def _texts(weights: NDArray[Any], dtype: str) -> list[list[str]]:
    """Returns each number in JSON with the fewest digits from which the stored one can be read back."""
    if dtype == "float16":
        table, rows = _half_texts(), weights.astype(np.float16).view(np.uint16).tolist()
        return [[table[bits] for bits in row] for row in rows]
    return [[_short(value) for value in row] for row in weights]


@functools.cache
def _half_texts() -> list[str]:
    """Returns the text of every float16, by its bits."""
    return [_short(value) for value in np.arange(2**16, dtype=np.uint16).view(np.float16)]


def _short(value: Any) -> str:
    text = str(value).removesuffix(".0")
    return "null" if text in ("nan", "inf", "-inf") else text
