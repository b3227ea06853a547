"""An alignment file in other forms: Pharaoh's links, JSON lines, Marian's soft alignments, NumPy arrays.

| format  | a line, or what there is                                                                                 |
|---------|----------------------------------------------------------------------------------------------------------|
| pharaoh | the hard links of a sentence: 0-0 2-1, source first, counted from 0                                      |
| marian  | as Marian prints with --alignment soft: the target words, three bars, and for each of them and `</s>` the|
|         | weights of all source words and `</s>`, set apart by commas; the groups set apart by spaces              |
| json    | an object: id, rank, source, target, weights (rows as in the file), links, log_prob, token_log_probs     |
| numpy   | an .npz archive of the file's own arrays, `source/text` as `source_text`, and its attributes as JSON;    |
|         | no pickled object is in it                                                                               |

Weights are written with as many digits as it takes to get the stored ones again.
"""

import functools
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.layout import DATASETS
from nmtalign.alignment.links import format_links
from nmtalign.alignment.reader import AlignmentFile
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.settings import plain
from nmtalign.files import atomic_path

TextFormat = Literal["pharaoh", "json", "marian"]
_TWO_BARS_MORE = "| | |"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same arrays are the same bytes, whenever they are written


def text_lines(file: AlignmentFile, form: TextFormat, entries: Literal["best", "all"] = "best") -> Iterator[str]:
    """The lines of a text format, each with its end: one a sentence, or with "all" one an entry of its n-best list.

    With "all" a line of Marian's is one of its n-best lists: `id ||| words ||| weights ||| F0= -3.21 ||| -3.21`.
    """
    line: Callable[[AlignmentRecord], str]
    if form == "pharaoh":
        line = _pharaoh
    elif form == "json":
        line = functools.partial(json_line, dtype=file.dtype)
    else:
        line = functools.partial(_marian_entry if entries == "all" else marian_line, dtype=file.dtype)
    for record in file:
        if entries == "all" or record.rank == 0:
            yield line(record) + "\n"


def _pharaoh(record: AlignmentRecord) -> str:
    return format_links(record.links())


def marian_line(record: AlignmentRecord, dtype: str = "float32") -> str:
    """`le renard ||| 0.9,0.1,0 0.2,0.7,0.1 0,0,1`; `dtype`: how the weights are stored."""
    return f"{_words(record)} ||| {_groups(record, dtype)}"


def _marian_entry(record: AlignmentRecord, dtype: str) -> str:
    log_prob = f"{record.log_prob:.6g}"
    return f"{record.sentence_id} ||| {_words(record)} ||| {_groups(record, dtype)} ||| F0= {log_prob} ||| {log_prob}"


def _words(record: AlignmentRecord) -> str:
    return " ".join(record.target).replace("|||", _TWO_BARS_MORE)


def _groups(record: AlignmentRecord, dtype: str) -> str:
    return " ".join(map(",".join, _texts(record.weights, dtype)))


def json_line(record: AlignmentRecord, dtype: str = "float32") -> str:
    """An object on one line, in which no character ends a line for anybody; what is no finite number is null."""
    known = {"id": record.sentence_id, "rank": record.rank, "source": record.source, "target": record.target}
    text = json.dumps(known, ensure_ascii=False)
    if not text.isascii():
        text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")
    rows = ", ".join(f"[{', '.join(map(_json_number, row))}]" for row in _texts(record.weights, dtype))
    log_probs = ", ".join(map(_json_number, _texts(record.token_log_probs[None], "float32")[0]))
    log_prob = json.dumps(record.log_prob) if math.isfinite(record.log_prob) else "null"
    links = json.dumps(record.links())
    return (
        f'{text[:-1]}, "weights": [{rows}], "links": {links}, "log_prob": {log_prob}, '
        f'"token_log_probs": [{log_probs}]}}'
    )


def _json_number(text: str) -> str:
    return "null" if text in ("nan", "inf", "-inf") else text


def _texts(weights: NDArray[Any], dtype: str) -> list[list[str]]:
    """Each number in the fewest digits that give the stored one again."""
    if dtype == "float16":
        table, rows = _half_texts(), weights.astype(np.float16).view(np.uint16).tolist()
        return [[table[bits] for bits in row] for row in rows]
    return [[_short(value) for value in row] for row in weights]


@functools.cache
def _half_texts() -> list[str]:
    """The text of every float16, by its bits."""
    return [_short(value) for value in np.arange(2**16, dtype=np.uint16).view(np.float16)]


def _short(value: Any) -> str:
    return str(value).removesuffix(".0")


def write_numpy(file: AlignmentFile, path: Path) -> None:
    """Writes the arrays of a file to an .npz archive, in constant memory; raises ResourceError for what fails."""
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        attributes = {name: plain(value) for name, value in file.attributes.items()}
        _write_array(archive, "attributes", np.array(json.dumps(attributes, ensure_ascii=False)))
        for name in DATASETS:
            kind, shape = file.kind(name), file.shape(name)
            _write_blocks(archive, name.replace("/", "_"), kind, shape, file.blocks(name))


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    _write_blocks(archive, name, array.dtype, array.shape, [array])


def _write_blocks(
    archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_2_0(stream, header)
        for block in blocks:
            stream.write(block.tobytes())
