"""Words by their training frequency and by their place in the sentence, compared with slow counts."""

import gzip
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.errors import FormatError, InputError
from nmtalign.scoring.word_ids import WINDOW, TargetTexts, Tokenized, whole_words
from nmtalign.scoring.words import PLACES, Frequencies, WordCounts, place_table, word_table
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.text.tokenizer import MosesWords, SpacedWords
from nmtalign.text.vocabulary import Vocabulary

WORDS = SpacedWords()
COUNTS = Frequencies({"the": 1000, "cat": 50, "dog": 9, "sleeps": 2, "here": 1}, WORDS)
LINES = st.lists(st.lists(st.sampled_from(["the", "cat", "dog", "here", "new", "old"]), max_size=7), max_size=5)


def texts(references, *systems):
    return TargetTexts(references, systems, WORDS)


def cells(table, system=0):
    return {row.label: row.counts[system] for row in table.rows}


def test_words_fall_into_the_buckets_of_their_frequency():
    table = word_table(texts([["the cat sleeps here ok"]], ["the the cat sleeps ok no"]), COUNTS)
    assert cells(table) == {
        "unknown": WordCounts(1, 2, 1),
        "1": WordCounts(1, 0, 0),
        "2-9": WordCounts(1, 1, 1),
        "10-99": WordCounts(1, 1, 1),
        "100-999": WordCounts(0, 0, 0),
        ">=1000": WordCounts(1, 2, 1),
    }
    assert (table.by, table.heading) == ("frequency", "times seen")


def test_matches_are_counted_within_a_sentence_only_and_as_often_as_both_have_the_word():
    table = word_table(texts([["cat", "cat cat"]], ["cat cat cat", "dog"]), COUNTS)
    assert cells(table)["10-99"] == WordCounts(reference=3, hypothesis=3, matches=1)


def test_every_system_has_its_counts():
    table = word_table(texts([["cat"]], ["cat"], ["dog"], [""]), COUNTS, (1,))
    assert [row.label for row in table.rows] == ["unknown", ">=1"]
    assert [counts.f1 for counts in table.rows[1].counts] == [100, 0, 0]
    assert [counts.precision for counts in table.rows[1].counts] == [100, 0, None]
    assert [counts.recall for counts in table.rows[1].counts] == [100, 0, 0]


def test_of_several_references_the_one_that_shares_most_counts():
    references = [["the cat sleeps", "dog dog"], ["the dog", "cat"]]
    table = word_table(texts(references, ["the dog", "cat"], ["the cat", "here"]), COUNTS, (1,))
    assert table.rows[1].counts == (WordCounts(3, 3, 3), WordCounts(5, 3, 2))


def test_there_may_be_very_many_references():
    table = word_table(texts([["dog"]] * 70 + [["cat"]], ["cat"]), COUNTS, (1,))
    assert table.rows[1].counts == (WordCounts(1, 1, 1),)


def test_buckets_are_named_by_their_lowest_and_highest_counts():
    table = word_table(texts([["a"]], ["a"]), COUNTS, (1, 10, 11))
    assert [row.label for row in table.rows] == ["unknown", "1-9", "10", ">=11"]


@given(LINES, LINES, LINES)
def test_frequencies_and_places_are_those_of_a_slow_count(first, second, hypotheses):
    size = min(map(len, (first, second, hypotheses)))
    sides = [[" ".join(line) for line in side[:size]] for side in (first, second, hypotheses)]
    held = texts(sides[:2], sides[2])
    table, places = word_table(held, COUNTS), place_table(held)
    by_frequency, by_place = slow_counts(first, second, hypotheses)
    for label, counts in cells(table).items():
        assert (counts.reference, counts.hypothesis, counts.matches) == tuple(by_frequency[label])
    for label, counts in cells(places).items():
        found = counts.reference, counts.hypothesis, counts.matches, counts.found
        assert found == pytest.approx(by_place[PLACES.index(label)])


def slow_counts(first, second, hypotheses):
    """(rows of word_table, rows of place_table) of two references and one system, computed one word at a time."""
    names = {0: "unknown", 1: "1", 2: "2-9", 9: "2-9", 50: "10-99", 1000: ">=1000"}
    by_frequency = {label: [0, 0, 0] for label in (*names.values(), "100-999")}
    by_place = np.zeros((5, 4))
    for one, other, hypothesis in zip(first, second, hypotheses, strict=False):

        def shared(line, hypothesis=hypothesis):
            return Counter(line) & Counter(hypothesis)

        def f1(line, hypothesis=hypothesis, shared=shared):
            return 2 * shared(line).total() / max(len(line) + len(hypothesis), 1)

        reference = other if f1(other) > f1(one) else one
        for column, line in enumerate((reference, hypothesis)):
            counts, matches = Counter(line), shared(reference)
            for number, word in enumerate(line):
                by_frequency[names[COUNTS.counts.get(word, 0)]][column] += 1
                place = int((number + 0.5) / len(line) * 5)
                by_place[place, column] += 1
                by_place[place, 3 - column] += matches[word] / counts[word]
        for word, count in shared(reference).items():
            by_frequency[names[COUNTS.counts.get(word, 0)]][2] += count
    return by_frequency, by_place


def test_counts_of_many_sentences_are_the_sum_of_the_counts_of_each():
    references, hypotheses = [["the cat", "dog dog", ""], ["the dog", "cat", "here"]], ["the cat", "here dog", "new"]
    times = WINDOW // 2
    few = texts(references, hypotheses)
    many = texts([lines * times for lines in references], hypotheses * times)
    for table in (lambda held: word_table(held, COUNTS), place_table):
        for label, counts in cells(table(few)).items():
            expected = counts.reference * times, counts.hypothesis * times, counts.matches * times
            found = cells(table(many))[label]
            assert (found.reference, found.hypothesis, found.matches) == pytest.approx(expected)


def test_a_system_that_forgets_the_end_of_the_sentence_loses_there_and_nowhere_else():
    reference = ["a b c d e f g h i j"]
    rows = cells(place_table(texts([reference], ["a b c d e f g h"])))
    assert [rows[place].recall for place in PLACES] == [100, 100, 100, 100, 0]
    assert [rows[place].precision for place in PLACES] == [100] * 5
    assert rows["last fifth"].f1 == 0


def test_places_are_symmetric_however_short_the_sentence():
    for length, expected in {1: "00100", 2: "01010", 3: "10101", 4: "11011", 5: "11111", 7: "12121"}.items():
        line = " ".join(map(str, range(length)))
        rows = cells(place_table(texts([[line]], [line])))
        assert "".join(str(rows[place].reference) for place in PLACES) == expected


def test_no_place_is_favoured_where_a_word_repeats():
    rows = cells(place_table(texts([["the the the the the"]], ["the the"])))
    assert [rows[place].found for place in PLACES] == [pytest.approx(0.4)] * 5
    assert sum(rows[place].matches for place in PLACES) == 2


def test_empty_texts_have_no_figures():
    held = texts([["", ""]], ["", ""])
    for table in (word_table(held, COUNTS), place_table(held)):
        assert all(row.counts[0].f1 is None for row in table.rows)
        assert all(row.counts[0].recall is None for row in table.rows)


def test_a_training_text_is_counted_as_the_tokenizer_cuts_it(tmp_path):
    text = "Le chat dort.\nLe chien ne dort pas.\n"
    (tmp_path / "plain").write_text(text)
    with gzip.open(tmp_path / "packed.gz", "wt") as stream:
        stream.write(text)
    for name in ("plain", "packed.gz"):
        seen = Frequencies.from_text(tmp_path / name, MosesWords("fr"))
        assert seen.of(["Le", "dort", ".", "chat", "dort."]).tolist() == [2, 2, 2, 1, 0]


def test_only_the_words_asked_for_are_kept_and_those_outside_a_vocabulary_are_unknown(tmp_path):
    (tmp_path / "train").write_text("a a b c\n")
    assert Frequencies.from_text(tmp_path / "train", WORDS, only={"a", "x"}).counts == {"a": 2}
    vocabulary = Vocabulary(["</s>", "<unk>", "b", "z"])
    assert Frequencies.from_text(tmp_path / "train", WORDS, vocabulary=vocabulary).counts == {"b": 1}


def test_a_missing_training_text_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: cannot read"):
        Frequencies.from_text(tmp_path / "nowhere", WORDS)


def test_words_of_a_corpus_are_counted_as_often_as_its_training_part_has_them(reversal):
    seen = Frequencies.from_corpus(reversal.folder)
    expected = Counter(reversal.target_vocabulary.decode(reversal.splits["train"].target.ids))
    assert seen.counts == expected
    assert Frequencies.from_corpus(reversal.folder / "corpus.h5").counts == expected


def write_corpus(folder, targets, **settings):
    (folder / "train.en").write_text("".join(f"the cat sleeps here, {number}!\n" for number in range(len(targets))))
    (folder / "train.fr").write_text("".join(f"{line}\n" for line in targets))
    prepare(
        (folder / "train.en", folder / "train.fr"), folder / "data", PrepConfig(workers=1, **settings), ("en", "fr")
    )
    return folder / "data"


def test_a_word_outside_the_shortlist_is_unknown_however_often_training_had_it(tmp_path):
    data = write_corpus(tmp_path, ["le le chat", "le chat noir noir"], vocabulary="none", shortlist="9:4")
    assert Frequencies.from_corpus(data).counts == {"le": 3, "chat": 2}


@pytest.mark.parametrize(("vocabulary", "size"), [("bpe", 30), ("bytes", 258)])
def test_words_of_a_subword_corpus_are_whole(tmp_path, vocabulary, size):
    lines = ["le chat dort", "le chat  danse", " la chatte dort !", "été"] * 3
    data = write_corpus(tmp_path, lines, vocabulary=vocabulary, size=str(min(size, 30)), drop_duplicates=False)
    seen = Frequencies.from_corpus(data)
    assert seen.counts == Counter(word for line in lines for word in line.split())
    assert len(Corpus.open(data).target_vocabulary) == size
    table = word_table(TargetTexts([["le chat boit"]], [["le chat danse"]], seen.tokenizer), seen, (1, 4))
    assert cells(table) == {"unknown": WordCounts(1, 0, 0), "1-3": WordCounts(0, 1, 0), ">=4": WordCounts(2, 2, 2)}
    (tmp_path / "more").write_text("le chat\nle chien\n")
    from_text = Frequencies.from_text(tmp_path / "more", seen.tokenizer, vocabulary=Corpus.open(data).target_vocabulary)
    assert from_text.counts == {"le": 2, "chat": 1, "chien": 1}


@given(st.text(max_size=30).filter(lambda line: "\n" not in line))
def test_whole_words_are_those_of_the_tokenizer(pieces, line):
    assert list(whole_words(pieces)(line)) == [word for word in pieces.words(pieces.tokenize(line)) if word]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    data = write_corpus(folder, ["le chat dort", "la chatte danse", "un chien"], vocabulary="bpe", size="30")
    return Corpus.open(data).tokenizers.target


def test_the_unknown_rate_is_the_share_of_unknown_words():
    rates = COUNTS.unknown_rates(texts([["the cat", "x"], ["y", "the"]], ["the x", ""], ["", ""]))
    assert (rates.source, rates.reference, rates.systems) == (None, 0.4, (0.5, 0))
    rates = COUNTS.unknown_rates(texts([["the cat , 5 !"]], ["x ☺"], ["6"]))
    assert (rates.reference, rates.systems) == (0, (1, 0))  # numbers and marks are no words


def test_a_text_is_tokenised_only_once(monkeypatch):
    kept, seen = Tokenized(), []
    tokenize = MosesWords.tokenize
    monkeypatch.setattr(MosesWords, "tokenize", lambda self, line: seen.append(line) or tokenize(self, line))
    references, systems = [["a."]], [["b", "c"], ["a ."]]
    first = TargetTexts(references, systems, MosesWords("fr"), kept)
    second = TargetTexts(references, systems, MosesWords("fr"), kept)
    assert (seen, first.words) == (["a.", "b", "c", "a ."], second.words)
    TargetTexts(references, systems, MosesWords("en"), kept)  # other rules, other words
    assert len(seen) == 8


def test_pieces_and_the_words_that_they_make_up_are_kept_apart(pieces):
    kept, lines = Tokenized(), ["le chat"]
    assert len(kept.ids(lines, pieces, whole=True).ids) == 2 < len(kept.ids(lines, pieces).ids)
    assert list(kept.index(pieces, whole=True)) == ["le", "chat"]


def test_a_folder_without_a_corpus_is_named(tmp_path):
    with pytest.raises(FormatError, match="no prepared corpus here"):
        Frequencies.from_corpus(tmp_path)
