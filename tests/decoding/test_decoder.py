"""Pieces: what their prefixes, phrases and candidates mean for the search, and batches that memory does not hold."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from nmtalign.config import TranslateConfig
from nmtalign.decoding.candidates import CandidateLists, Candidates
from nmtalign.decoding.decoder import Piece, PieceDecoder, allow
from nmtalign.decoding.sampling import Draws, sample
from nmtalign.errors import ResourceError, UsageError

spec = importlib.util.spec_from_file_location("tables", Path(__file__).with_name("tables.py"))
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)
SENTENCES, TableScorer = tables.SENTENCES, tables.TableScorer
# Source word n has n % 3 + 2 for a translation; of the frequent words there is one, 2.
LISTS = CandidateLists(np.array([(word, word % 3 + 2) for word in range(2, 9)]), 9, tables.WORDS, frequent=1)


def decoder(scorer, candidates=None, options=None, **config):
    config = TranslateConfig(beam=3, **config)
    options = options or tables.options_of(beam=3, n_best=min(3, config.n_best))
    return PieceDecoder(scorer, options, config, torch.device("cpu"), candidates)


def pieces(prefixes=((),) * 6, phrases=((),) * 6):
    every = zip(SENTENCES, prefixes, phrases, strict=True)
    return [Piece(tuple(source), prefix, own, number) for number, (source, prefix, own) in enumerate(every)]


def test_a_search_of_pieces_is_beam_search():
    scorer = TableScorer.random(3)
    prefixes, phrases = [(3,), (), (4, 4), (), (), (1,)], [(), ((3, 4),), (), ((2,),), (), ((1,), (2,))]
    found = decoder(scorer, n_best=2).search(pieces(prefixes, phrases))
    assert found == tables.search(scorer, SENTENCES, None, prefixes, phrases, beam=3, n_best=2)
    assert decoder(scorer).search(pieces()) == tables.search(scorer, SENTENCES, beam=3)


def test_candidates_take_in_the_words_of_prefix_and_phrases():
    scorer = TableScorer.random(3)
    prefixes, phrases = [(3,), (), (4, 4), (), (), (1,)], [(), ((3, 4),), (), ((2,),), (), ((1,), (4,))]
    found = decoder(scorer, LISTS).search(pieces(prefixes, phrases))
    for place, (best,) in enumerate(found):
        given = {word for part in (prefixes[place], *phrases[place]) for word in part}
        assert best.tokens[: len(prefixes[place])] == prefixes[place]
        for phrase, start in zip(phrases[place], best.phrase_at, strict=True):
            assert best.tokens[start : start + len(phrase)] == phrase
        assert set(best.tokens) <= {2} | {word % 3 + 2 for word in SENTENCES[place]} | given
        (alone,) = decoder(scorer, LISTS).search(pieces(prefixes, phrases)[place : place + 1])
        assert tables.same([best], alone)


def test_words_are_added_to_the_candidates_of_their_sentence_alone():
    before = Candidates(np.array([0, 1, 3, 5]), np.array([[1, 1, 1, 0], [1, 1, 0, 1]], bool))
    after = allow(before, [{4, 5}, {1}])
    assert after.words.tolist() == [0, 1, 3, 4, 5]
    assert after.allowed.tolist() == [[True] * 5, [True, True, False, False, True]]


def test_samples_of_pieces_follow_number_and_part():
    scorer, draws = TableScorer.random(4, spread=1.0), Draws(2, 1.3, 3, 77)
    sampler = decoder(scorer, sample=True, n_best=2, temperature=1.3, top_k=3, seed=77)
    found = sampler.search(pieces())
    source = tables.make_source(SENTENCES)
    assert found == sample(scorer, *source, tables.options_of(), draws, [(number, 0) for number in range(6)])
    assert sampler.search(pieces()[3:]) == found[3:]
    parts = [Piece((2, 3, 4), number=5, part=part) for part in range(20)]
    assert len({samples[0].tokens for samples in sampler.search(parts)}) > 3


def test_more_samples_than_the_beam_is_wide():
    found = decoder(TableScorer.random(4), sample=True, n_best=9).search(pieces())
    assert [len(samples) for samples in found] == [9] * 6


def test_samples_hold_no_phrases():
    with pytest.raises(UsageError, match=r"sample = True: .* leave out one of them"):
        decoder(TableScorer.random(4), sample=True).search([Piece((2,), phrases=((3,),))])


class Crowded:
    """Runs out of memory with more than so many sentences."""

    def __init__(self, most):
        self.scorer, self.most, self.sizes = TableScorer.random(3), most, []

    def start(self, source, source_mask, candidates=None):
        self.sizes.append(len(source))
        if len(source) > self.most:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory: you tried")
        return self.scorer.start(source, source_mask, candidates)


@pytest.mark.parametrize("config", [{}, {"sample": True}])
def test_a_batch_that_is_too_large_is_searched_in_halves(config):
    crowded = Crowded(2)
    found = decoder(crowded, **config).search(pieces())
    assert found == decoder(crowded.scorer, **config).search(pieces())
    assert crowded.sizes == [6, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(("config", "hint"), [({}, "smaller --beam"), ({"sample": True}, "smaller --n-best")])
def test_a_sentence_that_is_too_large_is_an_error(config, hint):
    with pytest.raises(ResourceError, match=f"one sentence of 2 tokens; give a {hint}"):
        decoder(Crowded(0), **config).search(pieces())


def test_another_error_is_not_taken_for_want_of_memory():
    scorer = TableScorer.random(3, steps=1)
    with pytest.raises(IndexError):
        decoder(scorer).search(pieces())
