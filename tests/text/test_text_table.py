"""Tables: aligned columns in a pipe, pieces that fit on a terminal."""

import pytest
from rich.cells import cell_len

from nmtalign.text.text_table import TextTable, cut

TABLE = TextTable(
    ["name", "BLEU", "p", "TER", "p"], [["one", "1.00", "0.5", "20.00", ""], ["très", "10.00", "", "3.00", "1"]]
)


def test_texts_stand_left_and_figures_right() -> None:
    assert TABLE.lines() == [
        "name   BLEU    p    TER  p",
        "one    1.00  0.5  20.00",
        "très  10.00        3.00  1",
    ]


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("été", 3, "été"),
        ("étés", 3, "ét…"),
        ("e\u0301te\u0301s", 3, "e\u0301t…"),
        ("漢字漢字", 5, "漢字…"),
        ("ab", 1, "…"),
    ],
)
def test_a_long_text_is_cut(text: str, limit: int, expected: str) -> None:
    assert cut(text, limit) == expected


def test_wide_letters_do_not_shift_the_columns_behind_them() -> None:
    lines = TextTable(["name", "x"], [["漢字漢字", "1"], ["a", "2"]]).lines()
    assert {cell_len(line) for line in lines} == {11}


@pytest.mark.parametrize("width", range(10, 60))
def test_pieces_fit_and_hold_every_column_once(width: int) -> None:
    pieces = TABLE.pieces(width)
    assert [name for piece in pieces for name in piece.head[1:]] == list(TABLE.head[1:])
    for piece in pieces:
        assert piece.head[0] == "name"
        assert len(piece.head) == 2 or sum(piece.widths()) + 3 * len(piece.head) + 1 <= width
