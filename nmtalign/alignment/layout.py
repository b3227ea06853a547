"""The layout of an alignment file (HDF5, format version 2): flat arrays and 64-bit offsets.

Record k (counted from 0) is one sentence pair of Tx source and Ty target words. The file has no group per sentence and
no variable-length types, so that every HDF5 tool can read it and 10 million pairs are as easy to read as 10.

| dataset               | type             | length             | meaning                                              |
|-----------------------|------------------|--------------------|------------------------------------------------------|
| weights               | float16, float32 | cells              | the matrices, one after the other, row by row        |
| weight_offsets        | int64            | records + 1        | first cell of each record                            |
| source/text           | uint8            | bytes              | UTF-8, each word followed by one line feed           |
| source/text_offsets   | int64            | records + 1        | first byte of each record                            |
| source/word_offsets   | int64            | records + 1        | words before each record (so Tx is a difference)     |
| target/...            |                  |                    | the same for the target                              |
| links                 | int32            | links x 2          | hard links (source, target), counted from 0          |
| link_offsets          | int64            | records + 1        | first link of each record                            |
| token_log_prob        | float32          | rows               | of each target word, then of `</s>`; those of        |
|                       |                  |                    | record k start at target/word_offsets[k] + k         |
| log_prob              | float64          | records            | their sum                                            |
| sentence_id           | int64            | records            | line of the pair in its file, counted from 0         |
| rank                  | int32            | records            | place in the sentence's n-best list, from 0          |

A matrix has Ty+1 rows (target words, then `</s>`) and Tx+1 columns (source words, then `</s>`): the weight of source
word i at target word j of record k is weights[weight_offsets[k] + j * (Tx + 1) + i]. Each row sums to 1, or to 0 where
one side of the pair is empty. If the attributes end_of_sentence_row and end_of_sentence_column are false, `</s>` was
dropped: a matrix then has Ty rows and Tx columns, and the index is j * Tx + i. All log-probabilities are natural
logarithms. The attributes of the root repeat these facts and record how the file was made:

| attribute                                   | meaning                                                                |
|---------------------------------------------|------------------------------------------------------------------------|
| format, format_version, nmtalign_version    | "nmtalign alignments", 2, the version of the program                   |
| model_hash, direction                       | the model (several are joined by +); languages as in en-fr             |
| made_by, options, seed                      | the command; its options as JSON; the seed of random choices           |
| links_method, symmetrization                | how the hard links were made                                           |
| rows, columns, index_order                  | what a matrix contains                                                 |
| end_of_sentence_row, end_of_sentence_column | whether `</s>` has a row, a column                                     |
| links_order, text, log_prob_unit            | what the other arrays contain                                          |
| sentence_ids_rise                           | whether sentence_id never falls, which allows binary search            |

Version 1 had no `rank` (all records were of rank 0), and its matrices always included `</s>`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

FORMAT = "nmtalign alignments"
FORMAT_VERSION = 2
VERSIONS_READ = (1, 2)
SIDES = ("source", "target")
SPANS = (  # each array with the offsets of the records in it
    ("weights", "weight_offsets"),
    ("links", "link_offsets"),
    ("source/text", "source/text_offsets"),
    ("target/text", "target/text_offsets"),
)
OFFSETS = (
    "weight_offsets",
    "link_offsets",
    "source/text_offsets",
    "source/word_offsets",
    "target/text_offsets",
    "target/word_offsets",
)
# Name: (type, values per chunk). With small chunks a sentence is read in well under a millisecond.
DATASETS: Mapping[str, tuple[str, int]] = {
    "weights": ("<f2", 16384),
    "source/text": ("|u1", 16384),
    "target/text": ("|u1", 16384),
    "links": ("<i4", 2048),
    "token_log_prob": ("<f4", 4096),
    "log_prob": ("<f8", 1024),
    "sentence_id": ("<i8", 1024),
    "rank": ("<i4", 1024),
    **dict.fromkeys(OFFSETS, ("<i8", 1024)),
}
COMPRESSION = 1  # level of gzip: higher levels take several times as long for hardly smaller files
WEIGHT_TYPES: Mapping[str, str] = {"float16": "<f2", "float32": "<f4"}
_ATTRIBUTES: Mapping[str, object] = {
    "format": FORMAT,
    "format_version": FORMAT_VERSION,
    "links_order": "source, target; both counted from 0; </s> has no links",
    "text": "UTF-8; each word is followed by one line feed",
    "log_prob_unit": "natural logarithm; </s> included",
}
# The attributes of a file whose writer is given no others.
DEFAULTS: Mapping[str, object] = {
    "model_hash": "",
    "direction": "",
    "made_by": "",
    "options": "{}",
    "seed": 0,
    "links_method": "argmax",
    "symmetrization": "none",
}


def format_attributes(end: bool) -> Mapping[str, object]:
    """Returns the attributes that describe the format; `end`: matrices have the row and the column of `</s>`."""
    then, width = (", then </s>", "(Tx + 1)") if end else ("", "Tx")
    return {
        **_ATTRIBUTES,
        "rows": f"target words{then}",
        "columns": f"source words{then}",
        "end_of_sentence_row": end,
        "end_of_sentence_column": end,
        "index_order": f"record, row (target), column (source): cell = weight_offsets[record] + row * {width} + column",
    }


def value_shape(name: str) -> tuple[int, ...]:
    """Returns the shape of one value of a dataset: a link is two numbers, every other value is one."""
    return (2,) if name == "links" else ()


def dataset_type(name: str, weights: str) -> np.dtype[Any]:
    """Returns the type of a dataset; `weights` is float16 or float32."""
    return np.dtype(WEIGHT_TYPES[weights] if name == "weights" else DATASETS[name][0])
