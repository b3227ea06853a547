"""An alignment file in other formats: Pharaoh's links, JSON lines, Marian's soft alignments, NumPy arrays.

| format  | content                                                                                                  |
|---------|----------------------------------------------------------------------------------------------------------|
| pharaoh | per sentence a line of hard links: 0-0 2-1, source first, counted from 0                                 |
| marian  | lines as Marian prints them with --alignment soft: the target words, three bars, then for each target    |
|         | word and `</s>` the weights of all source words and `</s>`, separated by commas; groups are separated by |
|         | spaces                                                                                                   |
| json    | per entry an object: id, rank, source, target, weights (rows as in the file), links, log_prob,           |
|         | token_log_probs                                                                                          |
| numpy   | an .npz archive of the arrays of the file, `source/text` as `source_text`, and its attributes as JSON,   |
|         | without pickled objects                                                                                  |

Weights are written with the digits that are needed to read the stored numbers back exactly.
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

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.layout import DATASETS
from nmtalign.alignment.links import AlignmentRecord, format_links
from nmtalign.errors import UsageError
from nmtalign.files import atomic_path, atomic_text, check_other
from nmtalign.text.lines import escaped_breaks

TextFormat = Literal["pharaoh", "json", "marian"]
ExportFormat = Literal["pharaoh", "json", "marian", "numpy"]
Entries = Literal["best", "all"]  # of n-best lists
_ESCAPED_BARS = "| | |"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of the archive's members, so that equal arrays give equal bytes


def write_export(file: Path, output: Path, form: ExportFormat = "pharaoh", entries: Entries | None = None) -> None:
    """Writes an alignment file in another format, atomically; a text whose name ends in .gz is compressed.

    `entries` chooses one line per sentence ("best") or per entry of its n-best list ("all", the default of json and the
    only choice for numpy). Raises FormatError for a damaged file, UsageError if the output is the input.
    """
    check_other(output, [file])
    if form == "numpy" and entries == "best":
        raise UsageError(
            "NumPy arrays contain all entries, and the array `rank` distinguishes them; leave out --entries best"
        )
    with AlignmentFile(file) as alignments:
        if form == "numpy":
            write_numpy(alignments, output)
        else:
            with atomic_text(output) as stream:
                stream.writelines(text_lines(alignments, form, entries))


def text_lines(file: AlignmentFile, form: TextFormat, entries: Entries | None = None) -> Iterator[str]:
    """Yields the lines of a text format, with `\\n`: one per sentence ("best"), or per entry ("all", default of json).

    With "all" Marian's lines are those of its n-best lists: `id ||| words ||| weights ||| F0= -3.21 ||| -3.21`. For
    pharaoh the weights are not read.
    """
    every = (entries or ("all" if form == "json" else "best")) == "all"
    if form == "pharaoh":
        yield from (format_links(pair.links) + "\n" for pair in file.links() if every or pair.rank == 0)
        return
    line: Callable[[AlignmentRecord, str], str] = json_line
    if form == "marian":
        line = _marian_entry if every else marian_line
    yield from (line(record, file.dtype) + "\n" for record in file if every or record.rank == 0)


def marian_line(record: AlignmentRecord, dtype: str = "float32") -> str:
    """Returns `le renard ||| 0.9,0.1,0 0.2,0.7,0.1 0,0,1`; `dtype` is the type in which the weights are stored."""
    return f"{_words(record)} ||| {_groups(record, dtype)}"


def _marian_entry(record: AlignmentRecord, dtype: str) -> str:
    log_prob = f"{record.log_prob if math.isfinite(record.log_prob) else 0:.6g}"  # as in the lists of `translate`
    return f"{record.sentence_id} ||| {_words(record)} ||| {_groups(record, dtype)} ||| F0= {log_prob} ||| {log_prob}"


def _words(record: AlignmentRecord) -> str:
    return " ".join(record.target).replace("|||", _ESCAPED_BARS)


def _groups(record: AlignmentRecord, dtype: str) -> str:
    return " ".join(map(",".join, _texts(record.weights, dtype)))


def json_line(record: AlignmentRecord, dtype: str = "float32") -> str:
    """Returns an object on one line without any line separator of Unicode; numbers that are not finite become null."""
    known = {"id": record.sentence_id, "rank": record.rank, "source": record.source, "target": record.target}
    text = escaped_breaks(json.dumps(known, ensure_ascii=False))
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
    """Returns each number with the fewest digits from which the stored one can be read back."""
    if dtype == "float16":
        table, rows = _half_texts(), weights.astype(np.float16).view(np.uint16).tolist()
        return [[table[bits] for bits in row] for row in rows]
    return [[_short(value) for value in row] for row in weights]


@functools.cache
def _half_texts() -> list[str]:
    """Returns the text of every float16, by its bits."""
    return [_short(value) for value in np.arange(2**16, dtype=np.uint16).view(np.float16)]


def _short(value: Any) -> str:
    return str(value).removesuffix(".0")


def write_numpy(file: AlignmentFile, path: Path) -> None:
    """Writes the arrays of a file to an .npz archive in constant memory; ResourceError if the disk refuses."""
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        attributes = np.array(json.dumps(file.attributes, ensure_ascii=False))
        _write_blocks(archive, "attributes", attributes.dtype, attributes.shape, [attributes])
        for name in DATASETS:
            kind, shape = file.kind(name), file.shape(name)
            _write_blocks(archive, name.replace("/", "_"), kind, shape, file.blocks(name))


def _write_blocks(
    archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_2_0(stream, header)
        for block in blocks:
            stream.write(block.tobytes())
