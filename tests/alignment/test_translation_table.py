"""The translation table of `nmtalign link`: as the texts write the words, sorted, and readable as a lexicon."""

from collections import Counter

import numpy as np
import pytest

from nmtalign.alignment.lexical import LexicalModel, pieces_of, spelled
from nmtalign.alignment.linking import write_table
from nmtalign.text.tokenizer import read_entries


def make_table(source, target, counts):
    """The table of words that all share sentence pairs, with these counts of each pair (source, target)."""
    model = LexicalModel((source, target), [counts.sum(1), counts.sum(0)], np.arange(counts.size))
    counted = model.counted([counts.ravel()] * 2, [np.zeros(len(target)), np.zeros(len(source))])
    return model.cells, counted.tables(model.cells, model.words)[0]


def test_entries_are_written_as_in_the_texts(tmp_path):
    table = make_table(["the", "fox", "null"], ["le", "renard", "</s>"], np.diag([800.0, 900.0, 700.0]))
    spellings = [
        [Counter({"the": 3, "The": 1}), Counter({"fox": 4}), Counter({"NULL": 4, "null": 4})],
        [Counter({"le": 3, "Le": 1}), Counter({"renard": 4}), Counter({"</s>": 4})],
    ]
    write_table(tmp_path / "lexicon.tsv", *table, spellings)
    entries = list(read_entries(tmp_path))
    best = {source: target for source, target, _ in reversed(entries)}
    assert best["The"] == best["the"] == "le"
    assert best["fox"] == "renard"
    assert [source for source, _, _ in entries] == sorted(source for source, _, _ in entries)
    assert not {"NULL", "</s>"} & {word for entry in entries for word in entry[:2]}
    shares = {(source, target): value for source, target, value in entries}
    assert shares["the", "le"] == pytest.approx(3 * shares["the", "Le"], rel=1e-4)
    for source in best:
        assert sum(value for own, _, value in entries if own == source) <= 1


def test_a_word_has_few_translations_of_some_probability(tmp_path):
    words = [f"w{number}" for number in range(40)]
    table = make_table(["a"], words, 100 * np.arange(1.0, 41)[None])
    write_table(tmp_path / "lexicon.tsv", *table, [[Counter({"a": 1})], [Counter({word: 1}) for word in words]])
    assert [target for _, target, _ in read_entries(tmp_path)] == words[: -20 - 1 : -1]


@pytest.mark.parametrize(
    ("word", "spellings"), [("L'Été.", ["L'", "Été", "."]), ("NASA", ["NASA"]), ("Straße", ["strasse"]), ("3", ["3"])]
)
def test_pieces_are_spelled_as_in_the_word(word, spellings):
    assert spelled(word, pieces_of(word)) == spellings
