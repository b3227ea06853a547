"""Pieces: cutting long lines, searching pieces, batches that do not fit into memory, joining translations."""

import itertools

import numpy as np
import pytest
import torch
from helpers import score_tables as tables
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.errors import ResourceError, UsageError
from nmtalign.search.beam_search import Hypothesis, Scoring
from nmtalign.search.candidates import CandidateLists
from nmtalign.search.sampling import Draws, sample
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.tokenizer import TextBytes
from nmtalign.translating.pieces import Piece, PieceDecoder, combine, cut, join


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["▁a", "b", "▁.", ".", "▁cd"]), min_size=1, max_size=60), st.integers(1, 12))
def test_pieces_cover_the_line_in_order_and_keep_the_limit(tokens: list[str], limit: int) -> None:
    index = np.cumsum([token.startswith("▁") for token in tokens]).tolist()
    pieces = cut(tokens, index, limit)
    assert [token for piece in pieces for token in tokens[piece]] == tokens
    assert all(0 < len(tokens[piece]) <= limit for piece in pieces)


def test_a_piece_ends_at_the_end_of_a_sentence_or_of_a_word() -> None:
    tokens = ["a", "b", ".", "c", "d", "e", "f", ".", "g", "h", "i", "j", "k"]
    assert [" ".join(tokens[piece]) for piece in cut(tokens, range(13), 5)] == ["a b .", "c d e f .", "g h i j k"]
    assert [" ".join(tokens[piece]) for piece in cut(tokens, range(13), 7)] == ["a b . c d e f", ". g h i j k"]
    pieces = ["▁a", "▁bb", "b", "b", "▁c"]
    assert cut(pieces, [0, 1, 1, 1, 2], 4) == [slice(0, 4), slice(4, 5)]
    assert cut(pieces, [0, 1, 1, 1, 2], 3) == [slice(0, 3), slice(3, 5)]  # one word is longer than half a piece
    assert cut(["▁a", "▁b", "▁c", "c"], [0, 1, 2, 2], 3) == [slice(0, 2), slice(2, 4)]


def test_a_piece_does_not_begin_with_a_mark() -> None:
    pieces = ["▁ใ", "ช", "้", "ใ", "ช", "้"]
    assert cut(pieces, [0] * 6, 5) == [slice(0, 4), slice(4, 6)]


@pytest.mark.parametrize(
    ("line", "limit", "texts"),
    [
        ("He has 3.5. It ok x", 16, ["He has 3.5.", "It ok x"]),
        ("He does 3.5 too", 12, ["He does 3.5", "too"]),
        ("你好。再见吗", 13, ["你好。", "再见吗"]),
        ("你好再见吗", 8, ["你好", "再见", "吗"]),
        ("😀😀😀", 6, ["😀", "😀", "😀"]),
        ("abe\u0301io", 5, ["ab", "e\u0301io"]),
        ("ใช้ใช้", 12, ["ใช้", "ใช้"]),
    ],
)
def test_pieces_of_bytes_end_between_characters(line: str, limit: int, texts: list[str]) -> None:
    tokens = TextBytes().tokenize(line)
    pieces = cut(tokens, TextBytes().word_index(tokens), limit)
    assert [TextBytes().detokenize(tokens[piece]) for piece in pieces] == texts


def hypothesis(tokens: list[int], log_probs: list[float], weights: list[list[float]]) -> Hypothesis:
    return Hypothesis(tuple(tokens), sum(log_probs), 0.0, tuple(log_probs), np.array(weights, np.float32))


def test_joined_pieces() -> None:
    first = hypothesis([5, 6], [-1, -2, -4], [[0.5, 0.25, 0.25], [0.1, 0.7, 0.2], [0, 0, 1]])
    empty = hypothesis([], [-8], [[0.25, 0.75]])
    last = hypothesis([7], [-16, -32], [[0.75, 0.25], [0.5, 0.5]])
    joined = join([first, empty, last], Scoring())
    assert joined.tokens == (5, 6, 7)
    assert joined.token_log_probs == (-1, -2, -28, -32)
    assert joined.log_prob == -63
    assert joined.score == pytest.approx(-63 / 4)
    expected = [[0.5, 0.25, 0, 0, 0.25], [0.1, 0.7, 0, 0, 0.2], [0, 0, 0, 0.75, 0.25], [0, 0, 0, 0.5, 0.5]]
    assert joined.weights == pytest.approx(np.array(expected))
    assert join([first], Scoring(1.0)) is first


def test_unknown_words_of_phrases_keep_their_places_in_joined_pieces() -> None:
    parts = [
        Hypothesis((5, 6), -1.0, -1.0, (0.0, 0.0, -1.0), given={1: "a"}),
        Hypothesis((7, 8, 9), -1.0, -1.0, (0.0, 0.0, 0.0, -1.0)),
        Hypothesis((4, 3), -1.0, -1.0, (0.0, 0.0, -1.0), given={0: "b", 1: "c"}),
    ]
    assert join(parts, Scoring()).given == {1: "a", 5: "b", 6: "c"}


@given(
    st.lists(st.lists(st.integers(-20, 0), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_combined_translations_have_the_largest_sums(scores: list[list[int]], count: int) -> None:
    found = [
        [Hypothesis((place,), float(score), float(score), (0.0, float(score))) for place, score in enumerate(piece)]
        for piece in (sorted(piece, reverse=True)[:count] for piece in scores)
    ]
    combined = combine(found, count, sampled=False)
    every = sorted((sum(each.score for each in chosen) for chosen in itertools.product(*found)), reverse=True)
    assert [sum(each.score for each in chosen) for chosen in combined] == every[:count]
    assert combined[0] == [piece[0] for piece in found]
    assert len({tuple(each.tokens for each in chosen) for chosen in combined}) == len(combined)


def test_samples_are_combined_in_the_order_in_which_they_were_drawn() -> None:
    first, second = ([hypothesis([word], [-word, 0], [[1, 0]] * 2) for word in words] for words in ((3, 5), (8, 7)))
    assert combine([first, second], 2, sampled=True) == [[first[0], second[0]], [first[1], second[1]]]


def test_pieces_without_weights() -> None:
    bare = Hypothesis((3,), -1.0, -0.5, (-0.5, -0.5))
    assert join([bare, bare], Scoring(0.0)).weights is None
    assert join([bare, bare], Scoring(0.0)).score == -2.0


SENTENCES, TableScorer = tables.SENTENCES, tables.TableScorer
# Source word n has n % 3 + 2 for a translation; of the frequent words there is one, 2.
LISTS = CandidateLists(np.array([(word, word % 3 + 2) for word in range(2, 9)]), 9, tables.WORDS, frequent=1)


def decoder(scorer, candidates=None, options=None, **config):
    config = TranslateConfig(beam=3, **config)
    options = options or tables.options_of(beam=3, n_best=min(3, config.n_best))
    return PieceDecoder(scorer, options, config, torch.device("cpu"), candidates)


def pieces(prefixes=((),) * 6, phrases=((),) * 6):
    every = zip(SENTENCES, prefixes, phrases, strict=True)
    return [
        Piece(tuple(source), prefix=prefix, phrases=tables.phrases_of(own, prefix), number=number)
        for number, (source, prefix, own) in enumerate(every)
    ]


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
        text = "".join(map(str, best.tokens))
        assert all("".join(map(str, phrase)) in text for phrase in phrases[place])
        assert set(best.tokens) <= {2} | {word % 3 + 2 for word in SENTENCES[place]} | given
        (alone,) = decoder(scorer, LISTS).search(pieces(prefixes, phrases)[place : place + 1])
        assert tables.same([best], alone)


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
        decoder(TableScorer.random(4), sample=True).search([Piece((2,), phrases=tables.phrases_of(((3,),)))])


def crowded(most, sizes):
    """Runs out of memory with more than `most` sentences."""

    def watch(source):
        sizes.append(len(source))
        if len(source) > most:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory: you tried")

    return tables.WatchedScorer(TableScorer.random(3), watch)


@pytest.mark.parametrize("config", [{}, {"sample": True}])
def test_a_batch_that_is_too_large_is_searched_in_halves(config):
    sizes = []
    found = decoder(crowded(2, sizes), **config).search(pieces())
    assert found == decoder(TableScorer.random(3), **config).search(pieces())
    assert sizes == [6, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(("config", "hint"), [({}, "smaller --beam"), ({"sample": True}, "smaller --n-best")])
def test_a_sentence_that_is_too_large_is_an_error(config, hint):
    with pytest.raises(ResourceError, match=f"one sentence of 2 tokens; give a {hint}"):
        decoder(crowded(0, []), **config).search(pieces())


def test_another_error_is_not_taken_for_want_of_memory():
    scorer = TableScorer.random(3, steps=1)
    with pytest.raises(IndexError):
        decoder(scorer).search(pieces())
