"""The lexicon, and unknown words replaced through the alignment."""

from pathlib import Path

import numpy as np
import pytest

from nmtalign.decoding.unknowns import read_lexicon, replace_unknowns
from nmtalign.errors import FormatError
from nmtalign.text.vocabulary import UNK_ID


def test_the_most_probable_translation_wins_and_of_equal_ones_the_first(tmp_path: Path) -> None:
    path = tmp_path / "lexicon"
    path.write_text(
        "fox renard 0.4\nfox goupil 0.6\nboat\tbateau 0.5\nboat navire 0.5\nox bœuf\nox boeuf 0.9\nNULL le 1\n"
    )
    assert read_lexicon(path) == {"fox": "goupil", "boat": "bateau", "ox": "bœuf"}
    path.write_text("fox goupil -3.5\nfox renard -0.5\nfox <eps> -0.1\n")  # logarithms, as fast_align writes them
    assert read_lexicon(path) == {"fox": "renard"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fox", "1 fields"),
        ("", "0 fields"),
        ("the red fox 0.5", "4 fields"),
        ("red fox renard", "'renard' is not a probability"),
        ("fox renard nan", "'nan' is not a probability"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "lexicon"
    path.write_text(f"a un 1\n{line}\n")
    with pytest.raises(FormatError) as raised:
        read_lexicon(path)
    assert str(raised.value).startswith(f"{path}: line 2: ")
    assert message in str(raised.value)


def test_a_lexicon_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="none: cannot read"):
        read_lexicon(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"a un\n\xff un\n")
    with pytest.raises(FormatError, match="line 2: not UTF-8"):
        read_lexicon(tmp_path / "bytes")


def test_each_unknown_is_replaced_by_what_it_is_aligned_with() -> None:
    ids = [UNK_ID, 5, UNK_ID, UNK_ID]
    tokens = ["<unk>", "voit", "<unk>", "<unk>"]
    words = ["Ann", "sees", "hedgehogs"]
    weights = np.array(
        [
            [0.3, 0.1, 0.1, 0.5],  # `</s>` has the most: left out
            [0.1, 0.1, 0.8, 0.0],  # not unknown: stays
            [0.1, 0.2, 0.6, 0.1],
            [0.3, 0.3, 0.1, 0.3],  # equal: the first
            [0.0, 0.0, 0.0, 1.0],
        ],
        np.float32,
    )
    lexicon = {"hedgehogs": "hérissons", "sees": "regarde"}
    assert replace_unknowns(ids, tokens, weights, words, words, lexicon) == ["Ann", "voit", "hérissons", "Ann"]
    copies = ["▁Ann", "▁sees", "▁hedgehogs"]
    marked = replace_unknowns(ids, tokens, weights, words, copies, lexicon, word_start="▁")
    assert marked == ["▁Ann", "voit", "▁hérissons", "▁Ann"]
    assert tokens[0] == "<unk>"
