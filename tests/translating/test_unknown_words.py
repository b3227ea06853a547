"""The lexicon, and unknown words replaced through the alignment."""

import numpy as np
import pytest

from nmtalign.text.tokenizer import UNK_ID, Subwords, Tokenizers
from nmtalign.translating.unknown_words import read_lexicon, replace_unknowns

MOSES = Tokenizers.moses("en", "de")


def test_the_most_probable_translation_wins_and_of_equal_ones_the_first(tmp_path):
    path = tmp_path / "lexicon"
    path.write_text("fox renard 0.4\nfox goupil 0.6\nboat\tnef 0.5\nboat navire 0.5\nox bœuf\nox boeuf 0.9\nNULL a 1\n")
    assert read_lexicon(path) == {"fox": "goupil", "boat": "nef", "ox": "bœuf"}
    path.write_text("fox goupil -3.5\nfox renard -0.5\nfox <eps> -0.1\n")  # logarithms, as fast_align writes them
    assert read_lexicon(path) == {"fox": "renard"}


def rows(*places, width):
    """Weights (Ty + 1, Tx), each row all on one place; the last row on `</s>`."""
    return np.eye(width + 1, dtype=np.float32)[[*places, width]]


def replace(ids, tokens, weights, words, lexicon, unknown=(), tokenizers=MOSES):
    """The result of `replace_unknowns`, with the source tokens `words`, of which those at the places `unknown` are."""
    source_ids = [UNK_ID if place in unknown else 5 for place in range(len(words))]
    return replace_unknowns(ids, tokens, weights, source_ids, words, tokenizers, lexicon)


def replaced(source, target, places, lexicon, languages="en de"):
    """Unknown target words "_", each aligned with the place given for it."""
    words, tokens = source.split(), target.replace("_", "<unk>").split()
    ids = [UNK_ID if word == "<unk>" else 5 for word in tokens]
    left = iter(places)
    weights = rows(*(next(left) if number == UNK_ID else 0 for number in ids), width=len(words))
    tokenizers = Tokenizers.moses(*languages.split())
    return " ".join(replace(ids, tokens, [weights], words, lexicon, tokenizers=tokenizers))


class Pieces(Subwords):
    """Pieces of words as a subword tokeniser makes them."""

    kind = "sentencepiece"

    def pieces(self):
        return ()

    def tokenize(self, line):
        return line.split()

    def detokenize(self, tokens):
        return "".join(tokens).removeprefix("▁")


def test_each_unknown_is_replaced_by_what_it_is_aligned_with():
    ids = [UNK_ID, 5, UNK_ID, UNK_ID]
    tokens = ["<unk>", "voit", "<unk>", "<unk>"]
    words = ["Ann", "sees", "hedgehogs"]
    weights = np.array(
        [
            [0.3, 0.1, 0.1, 0.5],  # `</s>` has the most: left out
            [0.1, 0.1, 0.8, 0.0],  # not unknown: stays
            [0.1, 0.2, 0.6, 0.1],
            [0.3, 0.3, 0.1, 0.3],  # equal: the first one, but it already replaces a word
            [0.0, 0.0, 0.0, 1.0],
        ],
        np.float32,
    )
    lexicon = {"hedgehogs": "hérissons", "sees": "regarde"}
    assert replace(ids, tokens, [weights], words, lexicon) == ["Ann", "voit", "hérissons", "regarde"]
    pieces = Tokenizers(Pieces(), Pieces())
    for marked, unknown, expected in (
        (["▁Ann", "▁sees", "▁hedgehogs"], (), ["▁Ann", "voit", "▁hérissons", "▁regarde"]),
        (["▁a", "nn", "▁saw"], (1,), ["nn", "voit", "▁saw", "▁ann"]),  # only the piece that is unknown is copied
    ):
        assert replace(ids, tokens, [weights], marked, lexicon, unknown, pieces) == expected
    after_a_start = replace(ids, ["<unk>", "▁", "<unk>", "<unk>"], [weights], ["▁Ann", "▁sees", "▁it"], {}, (), pieces)
    assert after_a_start == ["▁Ann", "▁", "it", "▁sees"]  # one space
    marked = replace(ids, tokens, [weights], ["▁(Ann", "▁sees", "▁hedgehogs."], lexicon, (), pieces)
    assert marked == ["▁Ann", "voit", "▁hérissons", "▁regarde"]  # marks have their own places in the translation
    assert tokens[0] == "<unk>"
    assert replace(ids, tokens, [weights[:, 3:]], [], lexicon) == tokens
    assert replace([-1, 5, -1, -1], tokens, [weights], words, lexicon) == tokens  # a prefix


def test_no_space_is_put_into_a_text_without_spaces():
    pieces = Tokenizers(Pieces(), Pieces())
    pieces.target.unspaced = True
    words, weights = ["▁hotel", "▁Hilton", "▁Zürich"], rows(0, 0, 1, 2, width=3)
    ids, tokens = [5, *[UNK_ID] * 3], ["去", *["<unk>"] * 3]
    found = replace(ids, tokens, [weights], words, {"hotel": "饭店"}, (), pieces)
    assert found == ["去", "饭店", "Hilton", "▁Zürich"]


@pytest.mark.parametrize(
    ("source", "target", "places", "result"),
    [
        ("Hedgehogs eat", "_ mangent", [0], "Hérissons mangent"),  # the sentence's capital
        ("Hedgehogs eat", "les _ mangent", [0], "les hérissons mangent"),
        ("the Hedgehogs eat", "les _ mangent", [1], "les Hérissons mangent"),
        ("THE HEDGEHOGS", "LES _", [1], "LES HÉRISSONS"),
        ("The red hedgehogs", "_ rouges", [2], "Hérissons rouges"),
        ("the red hedgehogs", "_ rouges", [2], "hérissons rouges"),
        ('" The red hedgehogs', '" _ rouges', [3], '" Hérissons rouges'),
        ("No . Hedgehogs eat .", "Non . _ mangent .", [2], "Non . Hérissons mangent ."),
        ("in london", "à _", [1], "à Londres"),  # as the lexicon has it
        ("Frank is Iron", "_ est _", [0, 2], "Frank est Iron"),
        ("Ann saw Turkey", "Ann vit la _", [2], "Ann vit la Turquie"),
        ("the turkey", "la _", [1], "la dinde"),
        ("The iPhone", "_ !", [1], "iPhone !"),
        ("A B", "_ _", [0, 1], "Un B"),
        ("London is", "_ est", [0], "Londres est"),
        ("So A", "donc _", [1], "donc Un"),  # one capital is no word in capitals
        ("A hedgehogs", "_ rouges", [1], "Hérissons rouges"),
        ("red , Hedgehogs", "rouges , _", [2], "rouges , Hérissons"),
    ],
)
def test_case_is_kept(source, target, places, result):
    lexicon = {"hedgehogs": "hérissons", "London": "Londres", "Turkey": "Turquie", "turkey": "dinde", "a": "un"}
    assert replaced(source, target, places, lexicon) == result


@pytest.mark.parametrize(
    ("languages", "source", "target", "result"),
    [
        ("en tr", "Cows sleep", "_ uyuyor", "İnekler uyuyor"),
        ("en tr", "COWS SLEEP", "_ UYUYOR", "İNEKLER UYUYOR"),
        ("en ka", "Cows sleep", "_ სძინავს", "ძროხებს სძინავს"),  # Georgian has capitals only in words of capitals
        ("tr de", "Irmak geniş", "_ breit", "Fluss breit"),
        ("tr de", "İNEK GENİŞ", "_ BREIT", "KUH BREIT"),
        ("de en", "Irmak breit", "_ broad", "Irmak broad"),
    ],
)
def test_case_of_turkish_and_georgian(languages, source, target, result):
    lexicon = {"cows": "inekler" if languages == "en tr" else "ძროხებს", "ırmak": "Fluss", "inek": "Kuh"}
    assert replaced(source, target, [0], lexicon, languages) == result


@pytest.mark.parametrize(
    ("target", "place", "result"),
    [
        ("le _ noir", 0, "l' arbre noir"),
        ("La _", 0, "L' arbre"),
        ("plus de _", 0, "plus d' arbre"),
        ("l' _", 1, "le renard"),
        ("Qu' _", 1, "Que renard"),
        ("de _", 2, "de hérisson"),  # which h it is cannot be seen
        ("d' _", 2, "d' hérisson"),
        ("d' _", 3, "d' 5"),
        ("pas _", 0, "pas arbre"),
    ],
)
def test_french_is_elided_before_what_replaces(target, place, result):
    lexicon = {"tree": "arbre", "fox": "renard", "hedgehog": "hérisson"}
    assert replaced("tree fox hedgehog 5", target, [place], lexicon, "en fr") == result
    unchanged = replaced("tree fox hedgehog 5", target, [place], lexicon)
    assert unchanged.split()[0] == target.split()[0]


def test_which_source_word_an_unknown_one_represents():
    words = ["foxes", ",", "martens", "eat"]

    def place(*weights, unknown=()):
        row = np.array([weights, [0, 0, 0, 0, 1]], np.float32)
        return replace([UNK_ID], ["<unk>"], [row], words, {}, unknown)[0]

    assert place(0.2, 0.7, 0.1, 0.0, 0.0) == "foxes"  # a punctuation mark is not chosen if there is a word
    assert place(0.5, 0.0, 0.2, 0.0, 0.3) == "foxes"
    assert place(0.5, 0.0, 0.2, 0.0, 0.3, unknown=[2]) == "martens"
    assert place(0.8, 0.0, 0.2, 0.0, 0.0, unknown=[2]) == "foxes"
    twice = np.array([[0.7, 0, 0.1, 0.2, 0], [0.7, 0, 0.1, 0.2, 0], [0.99, 0, 0.01, 0, 0]], np.float32)
    weights = np.vstack([twice, [[0, 0, 0, 0, 1]]]).astype(np.float32)
    tokens = ["<unk>"] * 3
    assert replace([UNK_ID] * 3, tokens, [weights], words, {}) == ["foxes", "eat", "foxes"]
    marks = np.array([[0.1, 0.9, 0], [0, 0, 1]], np.float32)
    assert replace([UNK_ID], ["<unk>"], [marks], [",", "!"], {}) == ["!"]


def test_a_line_in_pieces_is_as_one():
    generator, words = np.random.default_rng(2), [f"w{number}" for number in range(7)]
    first, last = generator.random((4, 5), np.float32), generator.random((3, 4), np.float32)
    empty = np.array([[1]], np.float32)
    whole = np.zeros((6, 8), np.float32)
    whole[:3, :4], whole[:3, 7], whole[3:, 4:] = first[:3, :4], first[:3, 4], last
    ids, tokens = [UNK_ID] * 5, ["<unk>"] * 5
    expected = replace(ids, tokens, [whole], words, {"w5": "cinq"}, [1, 6])
    assert "<unk>" not in expected
    assert replace(ids, tokens, [first, empty, last], words, {"w5": "cinq"}, [1, 6]) == expected


def test_no_part_of_a_line_is_copied_for_a_word():
    class Whole(list):
        def __getitem__(self, place):
            assert isinstance(place, int)
            return super().__getitem__(place)

    words = Whole(["Fox", "Fox"])
    found = replace([UNK_ID] * 2, ["<unk>"] * 2, [rows(0, 1, width=2)], words, {"fox": "renard"})
    assert found == ["Renard", "Renard"]


def test_given_words_are_not_elided():
    weights = rows(0, 1, width=2)
    words = ["the", "tree"]
    for given, expected in ((-1, ["le", "arbre"]), (5, ["l'", "arbre"])):
        ids, tree = [given, UNK_ID], {"tree": "arbre"}
        french = Tokenizers.moses("en", "fr")
        found = replace(ids, ["le", "<unk>"], [weights], words, tree, tokenizers=french)
        assert found == expected
