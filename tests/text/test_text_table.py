"""Tables: aligned columns in a pipe, pieces that fit on a terminal."""

import pytest
from rich.cells import cell_len

from nmtalign.text.text_table import aligned, cut

TABLE = [["name", "one", "très"], ["BLEU", "1.00", "10.00"], ["p", "0.5", ""], ["TER", "20.00", "3.00"], ["p", "", "1"]]


def test_texts_are_aligned_left_and_figures_right() -> None:
    assert list(aligned(TABLE)) == [
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
    assert {cell_len(line) for line in aligned([["name", "漢字漢字", "a"], ["x", "1", "2"]])} == {11}


def test_pieces_fit_and_contain_every_column_once() -> None:
    for width in range(10, 60):
        lines = list(aligned(TABLE, width=width))
        heads = [line.split() for line in lines[::3]]
        assert all(first == "name" for first, *_ in heads)
        assert [name for _, *names in heads for name in names] == ["BLEU", "p", "TER", "p"]
        for number, names in enumerate(heads):
            assert len(names) == 2 or max(map(cell_len, lines[3 * number : 3 * number + 3])) <= width
