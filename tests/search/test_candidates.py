"""Candidate lists against plain sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.errors import InputError
from nmtalign.search.candidates import CandidateLists
from nmtalign.text.tokenizer import Vocabulary

SOURCE = Vocabulary(["</s>", "<unk>", "the", "fox", "boat", "red", "."])
TARGET = Vocabulary(["</s>", "<unk>", "le", "la", ".", "renard", "bateau", "rouge", "goupil"])
LEXICON = "fox\trenard\t0.6\nfox\tgoupil\t0.3\nboat bateau 1\nred rouge\n. . 0.9\nheron aigrette 1\nfox fuchs 0.1\n"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "lexicon.txt").write_text(LEXICON)
    return tmp_path / "lexicon.txt"


def words_of(candidates, row):
    return TARGET.decode(candidates.words[candidates.allowed[row]].tolist())


def test_each_sentence_has_its_own_words_and_the_frequent_ones(path):
    lists = CandidateLists.read(path, SOURCE, TARGET, frequent=2)
    sentences = [SOURCE.encode(["the", "fox", "."]), SOURCE.encode(["a", "red", "boat"]), []]
    found = lists.of(sentences)
    assert found.words.dtype == np.int64
    assert found.allowed.dtype == np.bool_
    assert found.words.tolist() == list(range(9))
    frequent = ["</s>", "<unk>", "le", "la"]
    assert words_of(found, 0) == [*frequent, ".", "renard", "goupil"]
    assert words_of(found, 1) == [*frequent, "bateau", "rouge"]
    assert words_of(found, 2) == frequent
    # `</s>` has no translations, so that it does not matter whether it is given.
    ended = lists.of([[*sentence, 0] for sentence in sentences])
    np.testing.assert_array_equal(ended.allowed, found.allowed)


PAIRS = st.lists(st.tuples(st.integers(2, 8), st.integers(2, 14)), min_size=1, max_size=30)
SENTENCES = st.lists(st.lists(st.integers(0, 8), max_size=6), max_size=5)


@settings(max_examples=60)
@given(PAIRS, SENTENCES, st.integers(0, 5))
def test_candidates_are_those_of_plain_sets(pairs, sentences, frequent):
    lists = CandidateLists(np.array(pairs), 9, 15, frequent)
    found = lists.of(sentences)
    always = set(range(frequent + 2))
    expected = [always | {target for source, target in pairs if source in sentence} for sentence in sentences]
    assert found.words.tolist() == sorted(always.union(*expected))
    for row, (sentence, own) in enumerate(zip(sentences, expected, strict=True)):
        assert found.words[found.allowed[row]].tolist() == sorted(own)
        alone = lists.of([sentence])
        assert alone.words.tolist() == sorted(own)
        assert alone.allowed.all()


PIECES = Vocabulary(["</s>", "<unk>", "▁the", "▁fox", "es", "."])
PIECES_OUT = Vocabulary(["</s>", "<unk>", "▁le", "▁renard", "s", "."])


@pytest.mark.parametrize(
    ("text", "source", "target", "message"),
    [
        ("fox renard x\n", SOURCE, TARGET, "line 1: 'x' is not a probability"),
        ("", SOURCE, TARGET, "no entries"),
        ("heron aigrette 1\n", SOURCE, TARGET, "none of its 1 entries has both words in the model's vocabularies"),
        (LEXICON, TARGET, SOURCE, "a lexicon of the other direction"),
        (LEXICON, PIECES, PIECES_OUT, "reads subword pieces: first split the texts by its source.spm and"),
        ("▁the ▁le\n▁fox ▁renard\n. . 1\n", SOURCE, TARGET, "a lexicon of subword pieces, and this model reads compl"),
    ],
)
def test_a_wrong_lexicon_is_refused(tmp_path, text, source, target, message):
    path = tmp_path / "lexicon.txt"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        CandidateLists.read(path, source, target, 1)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_lexicon_of_pieces_is_read_for_a_model_of_pieces(tmp_path):
    (tmp_path / "lexicon").write_text("▁the ▁le\n▁fox ▁renard\n. . 1\n")
    assert CandidateLists.read(tmp_path / "lexicon", PIECES, PIECES_OUT, 0).of([[3]]).words.tolist() == [0, 1, 3]


def test_words_are_added_only_to_the_candidates_of_their_sentence():
    lists = CandidateLists(np.array([[2, 3], [3, 5]]), 4, 6, frequent=0)
    found = lists.of([[2], [3, 3]], [{4, 5, 7}, {1}])  # 7 is a place of the source
    assert found.words.tolist() == [0, 1, 3, 4, 5, 7]
    assert found.allowed.tolist() == [[True] * 6, [True, True, False, False, True, False]]
