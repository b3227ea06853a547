"""The lexicon, and unknown words replaced through the alignment."""

from pathlib import Path

import numpy as np

from nmtalign.decoding.unknowns import read_lexicon, replace_unknowns
from nmtalign.text.vocabulary import UNK_ID


def test_the_most_probable_translation_wins_and_of_equal_ones_the_first(tmp_path: Path) -> None:
    path = tmp_path / "lexicon"
    path.write_text(
        "fox renard 0.4\nfox goupil 0.6\nboat\tbateau 0.5\nboat navire 0.5\nox bœuf\nox boeuf 0.9\nNULL le 1\n"
    )
    assert read_lexicon(path) == {"fox": "goupil", "boat": "bateau", "ox": "bœuf"}
    path.write_text("fox goupil -3.5\nfox renard -0.5\nfox <eps> -0.1\n")  # logarithms, as fast_align writes them
    assert read_lexicon(path) == {"fox": "renard"}


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
