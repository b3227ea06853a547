"""Pictures in the terminal: blocks or grey, the words, gold and hard links, in any width."""

import re

import numpy as np
import pytest
from rich.cells import cell_len

from nmtalign.alignment.heatmap import Panel
from nmtalign.alignment.link_files import GoldLinks
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.alignment.terminal import legend, render_text


def columns(line: str) -> int:
    return cell_len(re.sub("\x1b[^m]*m", "", line))


def panel(source: str, target: str, weights: np.ndarray, caption: str = "", links=(), gold=None, end=True) -> Panel:
    words = tuple(source.split()), tuple(target.split())
    zeros = np.zeros(len(weights), np.float32)
    record = AlignmentRecord(*words, weights.astype(np.float32), -1.0, 0, zeros, tuple(links), end=end)
    return Panel(record, caption, gold, bool(links))


def gold_of(sure: set, possible: set = frozenset()) -> GoldLinks:
    return GoldLinks(frozenset(sure), frozenset(sure | possible))


WEIGHTS = np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]])
SMALL = panel("the cat", "le chat", WEIGHTS)
EMPTY = panel("", "le", np.zeros((2, 1)))


def test_rows_are_target_words() -> None:
    # Headings end on the same line: `</s>` has four letters, the words three.
    text = render_text([SMALL], 80)
    assert text.splitlines() == [
        "         <",
        "     t c /",
        "     h a s",
        "     e t >",
        "  le ██",
        "chat   ▒▒░░",
        "</s>     ██",
    ]
    assert text.endswith("██\n")
    assert render_text([SMALL], 80, end=False).splitlines()[-2:] == ["  le ██", "chat   ▒▒"]
    bare = panel("the cat", "le chat", WEIGHTS[:2, :2], end=False)
    assert render_text([bare], 80) == render_text([SMALL], 80, end=False)


@pytest.mark.parametrize("width", [10, 20, 33, 60, 80])
@pytest.mark.parametrize("colour", [False, True])
def test_the_width_is_never_passed(width: int, colour: bool) -> None:
    words = " ".join(["désoxyribonucléique"] * 45)
    marked = panel(words, words, np.eye(46), "a long caption", [(1, 1)], gold_of({(0, 0)}, {(3, 3)}))
    lines = render_text([marked, marked], width, colour=colour).splitlines()
    assert max(map(columns, lines)) <= width
    # Every mark is shown once a picture, in one of the bands.
    assert sum(line.count("●") for line in lines) == sum(line.count("○") for line in lines) == 2
    assert sum(line.count("+") for line in lines) == 2


def test_long_sentences_shrink_or_fold_in_bands_of_like_length() -> None:
    words = " ".join(["w"] * 44)
    shrunk = render_text([panel(words, words, np.eye(45))], 60).splitlines()
    assert len(shrunk) == 49
    assert sum(line.count("█") for line in shrunk) == 45
    folded = render_text([panel(words, words, np.eye(45))], 40).splitlines()
    assert sum(line.count("██") for line in folded) == 45
    assert max(map(len, folded)) == 5 + 2 * 15  # three bands of 15 columns
    wide = render_text([panel(words.replace("w", "日"), words, np.eye(45))], 60)
    assert "█ " not in wide.replace("██", "")


def test_the_shades() -> None:
    shades = panel("a b c d", "x", np.array([[0.1, 0.2, 0.4, 0.7, 0.9], [0, 0, 0, 0, 1]]))
    assert render_text([shades], 80).splitlines()[-2] == "   x   ░░▒▒▓▓██"


def test_wide_letters_marks_and_controls_keep_the_columns() -> None:
    text = render_text([panel("e\u0301 日本 \x1b[31m", "日本 x\u200c\u200dy", np.eye(3, 4))], 80)
    assert "\x1b" not in text
    rows = text.splitlines()
    assert rows[-3] == "日本 ██"
    assert rows[-2] == "  xy   ██"
    assert rows[-4].endswith("é 本m >")
    odd = panel("मुझे ไทย السلام q\u0323\u0307 👍", "\u200d \u0301x", np.eye(3, 6))
    for line in render_text([odd], 30).splitlines():
        assert columns(line) <= 30


def test_gold_and_hard_links_are_seen() -> None:
    gold = gold_of({(0, 0)}, {(1, 0), (1, 1)})
    marked = panel("the cat", "le chat", WEIGHTS, gold=gold)
    assert render_text([marked], 80).splitlines()[-3:-1] == ["  le █● ○", "chat   ▒○░░"]
    linked = panel("the cat", "le chat", WEIGHTS, links=[(0, 0), (1, 1)])
    assert render_text([linked], 80).splitlines()[-3:-1] == ["  le █+", "chat   ▒+░░"]
    both = panel("the cat", "le chat", WEIGHTS, links=[(0, 0), (0, 1)], gold=gold)
    assert render_text([both], 80).splitlines()[-3:-1] == ["  le █+●  ○", "chat  + ▒▒○░░░"]
    assert legend([SMALL]) == ""
    assert legend([SMALL, both]) == "● sure  ○ possible  + link"


def test_grey_where_there_is_colour() -> None:
    marked = panel("the cat", "le chat", WEIGHTS, links=[(0, 0)], gold=gold_of({(0, 0)}))
    row = render_text([marked], 80, colour=True).splitlines()[-3]
    assert re.findall(r"\x1b\[48;5;(\d+)m", row) == ["231", "16", "16"]
    assert row.endswith("\x1b[0m")
    assert columns(row) == 5 + 6
    assert re.sub(r"\x1b\[[0-9;]*m", "", row) == "  le +●    "
    assert "\x1b" not in render_text([marked], 80)


def test_two_models_stand_side_by_side_where_they_fit() -> None:
    one = panel("the cat", "le chat", WEIGHTS, "one")
    two = panel("the cat", "la chatte ronronne", np.eye(4, 3), "two")
    lines = render_text([one, two], 80).splitlines()
    assert lines[0].split() == ["one", "two"]
    assert lines[-1].rstrip().endswith("██") is False
    assert [line.split()[0] for line in lines[-3:]] == ["le", "chat", "</s>"]
    stacked = render_text([one, two], 25).splitlines()
    assert stacked.index("two") > stacked.index("one")
    assert "" in stacked


def test_a_pair_without_words_says_so() -> None:
    assert render_text([EMPTY], 80) == "nothing to draw: 0 source words, 1 target words\n"
