"""The ids of a copying model, from a prepared corpus and from text."""

import numpy as np
import pytest
import torch
from helpers.parallel_texts import prepared

from nmtalign.core.model import make_batch
from nmtalign.data import corpus_writer
from nmtalign.data.batches import CopyIds, eligible, load_batches
from nmtalign.errors import FormatError
from nmtalign.text.tokenizer import UNK_ID, Vocabulary, pair_ids

SPECIALS = ("</s>", "<unk>")


def copying_corpus(folder):
    """A corpus of random words, of which each side knows others; train and dev have the same pairs."""
    generator, lines = np.random.default_rng(4), []
    for letters in ("abcdefghij", "cdefghijkl"):
        words = [letters[k] for k in generator.integers(10, size=400)]
        lines.append([" ".join(words[start : start + 1 + start % 7]) for start in range(0, 390, 10)])
    pairs = list(zip(*lines, strict=True))
    return prepared(folder, pairs, pairs, vocabulary="none", shortlist="6:7")


def test_equal_words_get_equal_ids():
    source, target = Vocabulary([*SPECIALS, "the", "in"]), Vocabulary([*SPECIALS, "le", "Paris", "2"])
    words = ["the", "Zoe", "in", "Paris", "2", "Zoe", "</s>"]
    translation = ["Zoe", "le", "Bob", "in", "Paris", "the", "<unk>", "</s>"]
    own, there, copies = pair_ids((source, target), words, translation, copy=True)
    assert own == source.encode(words)
    # `Paris` and `2` are words of the target side; every other word is copied from its first place.
    assert copies == [5 + 0, 5 + 1, 5 + 2, 3, 4, 5 + 1, 5 + 6]
    assert there == [5 + 1, 2, UNK_ID, 5 + 2, 3, 5 + 0, UNK_ID, 5 + 6]
    assert target.decode(there, words) == ["Zoe", "le", "<unk>", "in", "Paris", "the", "<unk>", "</s>"]
    assert pair_ids((source, target), words, words) == (source.encode(words), target.encode(words), [])


def test_batches_of_a_corpus_have_the_ids_of_its_text(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_writer, "_BLOCK", 50)
    corpus = copying_corpus(tmp_path)
    vocabularies, dev = (corpus.source_vocabulary, corpus.target_vocabulary), corpus.splits["dev"]
    kinds = [np.unique(dev.source.ids, return_counts=True), np.unique(dev.target.ids, return_counts=True)]
    assert all(dict(zip(*kind, strict=True))[UNK_ID] > 10 for kind in kinds)
    for split in corpus.splits.values():
        chosen = eligible(dev, 0)
        copied, plan = set[int](), [chosen[::2], chosen[1::2][::-1]]
        for batch in load_batches(split, plan, additions=[CopyIds(corpus, split)]):
            pairs = [(dev.source.text(index).split(), dev.target.text(index).split()) for index in batch.indices]
            ids = [pair_ids(vocabularies, *pair, copy=True) for pair in pairs]
            expected = make_batch([own[:2] for own in ids], copies=[own[2] for own in ids])
            for found, wanted in zip(batch.inputs(), expected.inputs(), strict=True):
                assert torch.equal(found, wanted)
            copied |= set(batch.target.flatten().tolist())
        assert len([number for number in copied if number >= len(corpus.target_vocabulary)]) > 3


@pytest.mark.parametrize("name", ["unknown", "unknown_at"])
def test_a_damaged_corpus_is_refused(tmp_path, name):
    corpus = copying_corpus(tmp_path)
    side = corpus.splits["train"].source
    setattr(side, name, getattr(side, name)[:-1])
    with pytest.raises(FormatError, match="damaged"):
        CopyIds(corpus, corpus.splits["train"])
