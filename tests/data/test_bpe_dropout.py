"""BPE-dropout: the same words in other pieces, equal for equal seeds, epochs and pairs, and in training only."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import trainings

from nmtalign.data.batches import load_batches
from nmtalign.data.bpe_dropout import BpeDropout
from nmtalign.data.corpus import Corpus
from nmtalign.data.guide import read_guide
from nmtalign.data.prepare import prepare
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.text.tokenizer import WORD_START
from nmtalign.text.vocabulary import UNK_ID
from nmtalign.training.events import Validated

CONFIG = replace(trainings.CONFIG, bpe_dropout=0.2, max_updates=14)


def prepared(folder: Path, **settings) -> Corpus:
    """300 pairs of 1 to 6 made-up words; those of the target are the reversed words."""
    draw = np.random.default_rng(4)
    words = ["".join(draw.choice(list("abcdé"), draw.integers(2, 8))) for _ in range(50)]
    lines = [draw.choice(words, draw.integers(1, 7)).tolist() for _ in range(300)]
    folder.mkdir(exist_ok=True)
    texts = folder / "train.xx", folder / "train.yy"
    texts[0].write_text("".join(f"{' '.join(line)}\n" for line in lines))
    texts[1].write_text("".join(f"{' '.join(word[::-1] for word in line)}\n" for line in lines))
    (folder / "links").write_text("".join(" ".join(f"{i}-{i}" for i in range(len(line))) + "\n" for line in lines))
    config = PrepConfig(**{"vocabulary": "bpe", "size": "60", **settings})
    prepare(texts, folder / "data", config, ("xx", "yy"), dev=texts)
    return Corpus.open(folder / "data")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return prepared(tmp_path_factory.mktemp("bpe") / "corpus")


def sampled(corpus, indices, dropout=0.3, seed=1, epoch=0):
    """The pieces of both sides of pairs."""
    change = BpeDropout(corpus, dropout, seed).of_epoch(epoch)
    batch = next(load_batches(corpus.splits["train"], [np.array(indices)], complete=change))
    assert batch.indices.tolist() == list(indices)
    sides = (batch.source, batch.source_mask), (batch.target, batch.target_mask)
    counts = [int(mask.sum()) for _, mask in sides]
    assert counts == [batch.source_words, batch.target_words]
    pieces = [
        [corpus_words.decode(row[mask][:-1].tolist()) for row, mask in zip(*side, strict=True)]
        for side, corpus_words in zip(sides, (corpus.source_vocabulary, corpus.target_vocabulary), strict=True)
    ]
    return list(zip(*pieces, strict=True))


def stored(corpus, index):
    source, target = corpus.splits["train"].pair(index)
    return corpus.source_vocabulary.decode(source), corpus.target_vocabulary.decode(target)


def test_pieces_are_others_and_the_text_is_the_same(corpus):
    pairs = list(range(len(corpus.splits["train"])))
    assert sampled(corpus, pairs, dropout=1e-9) == [stored(corpus, index) for index in pairs]
    longer = 0
    for index, found in zip(pairs, sampled(corpus, pairs), strict=True):
        for one, other in zip(found, stored(corpus, index), strict=True):
            assert "".join(one) == "".join(other)
            longer += len(one) > len(other)
    assert longer > len(pairs) / 2
    for one, _ in sampled(corpus, pairs, dropout=1 - 1e-12):
        assert all(len(piece) == 1 for piece in one)


def test_a_merge_is_left_out_with_the_probability(corpus):
    """A word of two characters, "▁" counted, has one merge."""
    merge = next(word for word in corpus.source_vocabulary.words[2:] if len(word) == 2 and word[0] == WORD_START)
    found = corpus.tokenizers.source.sample([[merge] * 20_000], 0.3, seed=9)[0]
    assert found.count(merge) / 20_000 == pytest.approx(0.7, abs=0.02)


def test_the_sample_depends_on_seed_epoch_and_pair_only(corpus):
    whole = sampled(corpus, range(40))
    assert [sampled(corpus, [index])[0] for index in reversed(range(40))] == whole[::-1]
    assert sampled(corpus, range(40), epoch=1) != whole != sampled(corpus, range(40), seed=2)


def test_words_with_unknown_pieces_keep_them(corpus):
    dropout, vocabulary = BpeDropout(corpus, 0.999999, 1), corpus.source_vocabulary
    source = next(ids for ids in map(corpus.splits["train"].source.sentence, range(99)) if len(ids) > 8).tolist()
    pieces = vocabulary.decode(source)
    second = next(place for place in range(1, len(pieces)) if pieces[place].startswith(WORD_START))
    third = next(place for place in range(second + 1, len(pieces)) if pieces[place].startswith(WORD_START))
    inner = next(word for word in vocabulary.words[2:] if len(word) > 1 and not word.startswith(WORD_START))
    source[second:third] = [source[second], UNK_ID, *vocabulary.encode([inner])]
    found = dropout._of_sentence(0, source, 3)
    place = found.index(UNK_ID)
    assert found[place - 1 : place + 2] == source[second : second + 3]
    text = "".join(vocabulary.decode(found))
    assert text == "".join(vocabulary.decode(source))
    assert len(found) > len(source)


def test_links_of_words_follow_the_sampled_pieces(corpus):
    guide = read_guide(corpus.folder.parent / "links", corpus)
    change = BpeDropout(corpus, 0.5, 1).of_epoch(0)
    (batch,) = load_batches(corpus.splits["train"], [np.arange(50)], complete=lambda batch: guide(change(batch)))
    starts = [
        [[piece.startswith(WORD_START) for piece in words.decode(row)] for row in ids.tolist()]
        for ids, words in ((batch.source, corpus.source_vocabulary), (batch.target, corpus.target_vocabulary))
    ]
    for row in range(50):
        source, target = (np.cumsum(side[row]) for side in starts)
        real = batch.target_mask[row, 1:, None] & batch.source_mask[row, None, 1:]  # the tokens before `</s>`
        expected = torch.from_numpy(target[:-1, None] == source[None, :-1]) & real
        assert torch.equal(batch.guide[row, :-1, :-1], expected)


@pytest.mark.parametrize("vocabulary", ["word", "unigram", "bytes", "none"])
def test_other_vocabularies_are_refused(tmp_path, vocabulary):
    sizes = {"size": "40"} if vocabulary == "unigram" else {"size": None}
    corpus = prepared(tmp_path / "corpus", vocabulary=vocabulary, **{k: v for k, v in sizes.items() if v})
    with pytest.raises(UsageError, match=r"bpe_dropout = 0.1: .* has no BPE pieces; prepare it with .*bpe`$"):
        BpeDropout(corpus, 0.1, 1)


def test_a_copying_model_is_refused(corpus, tmp_path):
    with pytest.raises(UsageError, match="copies words needs the stored pieces"):
        trainings.train(corpus, tmp_path / "model", trainings.sizes(corpus, copy=True), CONFIG)
    assert not (tmp_path / "model").exists()


def test_a_training_resumes_exactly_and_validates_the_stored_pieces(corpus, tmp_path):
    def train(name, stop_at=None, **changes):
        config = replace(CONFIG, **changes)
        events = trainings.train(corpus, tmp_path / name, trainings.sizes(corpus), config, stop_at)
        return events, trainings.weights(tmp_path / name)

    weights = train("whole")[1]
    assert not train("parts", stop_at=9)[0][-1].complete
    resumed, again = train("parts")
    assert resumed[0].resumed
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    others = train("plain", bpe_dropout=0.0)[1]
    assert any(not torch.equal(others[name], weights[name]) for name in weights)
    frozen = [train(str(share), bpe_dropout=share, learning_rate=1e-30)[0] for share in (0.0, 0.5)]
    losses = [[event.loss for event in events if isinstance(event, Validated)] for events in frozen]
    assert losses[0] == losses[1]
