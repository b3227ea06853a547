"""The layout of an alignment file (HDF5, format version 1): flat arrays and 64-bit offsets.

Record k (counted from 0) is one sentence pair of Tx source and Ty target words. No group a sentence, no
variable-length types, so that any HDF5 tool reads it and a file of 10 million pairs is as good as one of ten.

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
| token_log_prob        | float32          | rows               | one a row: each target word, then `</s>`; those of   |
|                       |                  |                    | record k start at target/word_offsets[k] + k         |
| log_prob              | float64          | records            | their sum                                            |
| sentence_id           | int64            | records            | line of the pair in its file, counted from 0         |

A matrix has Ty+1 rows (target words, then `</s>`) and Tx+1 columns (source words, then `</s>`): the weight of source
word i at target word j of record k is weights[weight_offsets[k] + j * (Tx + 1) + i]. Each row sums to 1, or to 0 where
a side of the pair is empty. All log-probabilities are natural logarithms. The root's attributes say all this, too.
"""

from collections.abc import Mapping

FORMAT = "nmtalign alignments"
FORMAT_VERSION = 1
SIDES = ("source", "target")
SPANS = (  # arrays and the offsets of the records in them
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
# Name: (type, values a chunk). Small chunks let one sentence be read in well under a millisecond.
DATASETS: Mapping[str, tuple[str, int]] = {
    "weights": ("<f2", 16384),
    "source/text": ("|u1", 16384),
    "target/text": ("|u1", 16384),
    "links": ("<i4", 2048),
    "token_log_prob": ("<f4", 4096),
    "log_prob": ("<f8", 1024),
    "sentence_id": ("<i8", 1024),
    **dict.fromkeys(OFFSETS, ("<i8", 1024)),
}
WEIGHT_TYPES: Mapping[str, str] = {"float16": "<f2", "float32": "<f4"}
ATTRIBUTES: Mapping[str, object] = {
    "format": FORMAT,
    "format_version": FORMAT_VERSION,
    "rows": "target words, then </s>",
    "columns": "source words, then </s>",
    "end_of_sentence_row": True,
    "end_of_sentence_column": True,
    "index_order": "record, row (target), column (source): cell = weight_offsets[record] + row * (Tx + 1) + column",
    "links_order": "source, target; both counted from 0; </s> has no links",
    "text": "UTF-8; each word is followed by one line feed",
    "log_prob_unit": "natural logarithm; </s> included",
}
