"""Tables: aligned columns in a pipe, pieces that fit on a terminal."""

import pytest

from nmtalign.text.text_table import TextTable
from nmtalign.text.width import columns_of

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
    ("text", "width"),
    [
        ("", 0),
        ("été", 3),
        ("e\u0301te\u0301", 3),
        ("漢字", 4),
        ("█▒", 2),
        ("👨\u200d👩\u200d👧", 2),
        ("👩\u200d⚕\ufe0f", 2),
        ("🇫🇷", 2),
        ("👍🏽", 4),
        ("❤\ufe0f", 1),
        ("a\u200db", 2),
        ("a\u00adb", 3),
        ("\u1112\u1161\u11ab", 2),
        ("नमस्ते", 4),
        ("ที่", 1),
        ("a\u20dd", 1),
        ("\x1b[38;5;208mx\x1b[0m", 1),
    ],
)
def test_what_a_text_takes_on_the_screen(text: str, width: int) -> None:
    assert columns_of(text) == width


def test_wide_letters_do_not_shift_the_columns_behind_them() -> None:
    lines = TextTable(["name", "x"], [["漢字漢字", "1"], ["a", "2"]]).lines()
    assert {columns_of(line) for line in lines} == {11}


@pytest.mark.parametrize("width", range(10, 60))
def test_pieces_fit_and_hold_every_column_once(width: int) -> None:
    pieces = TABLE.pieces(width)
    assert [name for piece in pieces for name in piece.head[1:]] == list(TABLE.head[1:])
    for piece in pieces:
        assert piece.head[0] == "name"
        assert len(piece.head) == 2 or sum(piece.widths()) + 3 * len(piece.head) + 1 <= width


def test_groups_stay_together() -> None:
    table = TextTable(TABLE.head, TABLE.rows, groups=(2, 2))
    assert [piece.head for piece in table.pieces(30)] == [["name", "BLEU", "p"], ["name", "TER", "p"]]
    assert [len(piece.head) for piece in table.pieces(5)] == [3, 3]
    assert [piece.head for piece in table.pieces(100)] == [list(TABLE.head)]
