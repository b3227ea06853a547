"""Required phrases: progress against counting, and beam search with phrases against enumeration."""

import re

import numpy as np
import pytest
import torch
from helpers import score_tables as tables
from helpers.score_tables import SENTENCES, TableScorer, phrases_of, search, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.search.beam_search import Scoring
from nmtalign.search.phrases import NO_PHRASES, Phrases, PhraseSearch, RequiredPhrase, bank_shares, whole_characters
from nmtalign.settings.command_settings import TranslateConfig

WORD = st.integers(2, 4)
LISTS = st.lists(st.lists(WORD, min_size=1, max_size=4), min_size=1, max_size=4)
PENALTIES = [{}, {"length_penalty": 0.0}, {"word_penalty": -2.0, "coverage_penalty": 0.5}]
_PHRASE = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
PHRASES = st.lists(_PHRASE, max_size=3).map(tuple)


def times(phrase, tokens):
    """The number of occurrences of a phrase in a translation, including overlapping ones."""
    size = len(phrase)
    return sum(tuple(tokens[start : start + size]) == tuple(phrase) for start in range(len(tokens) - size + 1))


def after(phrases, tokens):
    progress = phrases.start
    for token in tokens:
        progress = progress.after(token)
    return progress


def contains_all(tokens, phrases):
    return all(times(phrase, tokens) >= phrases.count(phrase) for phrase in phrases)


@settings(max_examples=120)
@given(LISTS, st.lists(WORD, max_size=14))
def test_nothing_is_missing_when_all_are_there(given_phrases, tokens):
    phrases = phrases_of(given_phrases)
    assert phrases.words == sum(map(len, given_phrases))
    for length in range(len(tokens) + 1):
        assert (after(phrases, tokens[:length]).missing == 0) == contains_all(tokens[:length], given_phrases)


@settings(max_examples=120)
@given(LISTS, st.lists(WORD, max_size=8))
def test_the_missing_words_are_the_most_that_are_needed(given_phrases, tokens):
    phrases = phrases_of(given_phrases)
    progress, tokens = after(phrases, tokens), list(tokens)
    assert progress.missing <= phrases.words
    for _ in range(progress.missing):
        if not progress.missing:
            break
        best = min(progress.wanted, key=lambda symbol: progress.after(symbol).missing)
        assert progress.after(best).missing < progress.missing
        progress = progress.after(best)
        tokens.append(best)
    assert contains_all(tokens, given_phrases)


def required(text, *ways):
    return RequiredPhrase(re.compile(rf"(?<!\w){text}(?!\w)"), 2 * len(text), ways)


SPELT = [" cat", "s", " c", "at", " ", "cats", "\udcc3", "\udca9"]  # the texts of symbols 2 to 9


def spelt(symbol):
    return "" if symbol == 0 else "?" if symbol == 1 else SPELT[symbol - 2]


def test_a_phrase_is_found_however_its_tokens_are_cut_and_only_as_a_word():
    phrases = Phrases([required("cat", (2,))], spelt)
    assert [after(phrases, tokens).missing for tokens in ([2], [4, 5], [6, 4, 5, 2])] == [0, 0, 0]
    assert [after(phrases, tokens).missing for tokens in ([2, 3], [6, 7], [4, 5, 3], [3, 5])] == [1, 1, 1, 1]
    assert after(phrases, [2, 3, 2]).missing == 0
    assert phrases.lacking([(2, 2), (4, 5)]) is NO_PHRASES
    assert phrases.lacking([(2,), (7,)]).words == 1
    # The two bytes of é, of which the first alone is not a letter.
    assert [after(phrases, tokens).missing for tokens in ([2, 8], [2, 8, 9], [2, 8, 9, 2])] == [0, 1, 0]
    assert after(phrases, [2, *[8] * 30]).missing == 0  # only the last three can still become a letter
    assert whole_characters("a\udcc3\udca9\udcc3") == "aé\udcc3"


def test_what_keeps_the_last_occurrence_is_always_possible():
    """The model wants `cats` up to the last step, and the last `cat` must not become it."""
    table = torch.zeros(1, 20, 10, 10)
    table[..., 3] = 50.0
    scorer = TableScorer(table)
    for beam, least in ((1, 0.0), (2, 1.0), (5, 0.0)):
        options = TranslateConfig(beam=beam, max_length_ratio=2.0, min_length_ratio=least)
        phrases = Phrases([required("cat", (2,), (4, 5))], spelt)
        (found,) = PhraseSearch(tables.sources_of([[2, 2]]), options, [phrases]).run(scorer)
        assert not phrases.lacking([found[0].tokens]).words


def test_a_word_that_is_impossible_needs_no_text():
    """As the places of a longer sentence in the batch, which a model could copy."""
    table = torch.zeros(1, 20, 12, 12)
    table[..., 10:] = -torch.inf  # words without a text
    phrases = Phrases([required("cat", (2,))], spelt)
    (found,) = PhraseSearch(tables.sources_of([[2, 2]]), TranslateConfig(beam=12), [phrases]).run(TableScorer(table))
    assert not phrases.lacking([found[0].tokens]).words


def test_while_a_phrase_is_under_way_the_others_wait():
    phrases = phrases_of([[2, 3], [4, 4], [2, 4]])
    assert phrases.start.wanted == (2, 4)
    assert phrases.start.after(2).wanted == (3, 4)
    assert phrases.start.after(4).wanted == (4,)
    assert phrases.start.after(5).wanted == (2, 4)


def test_each_unknown_word_is_its_own():
    phrases = phrases_of([[1], [2, 1], [1]])
    assert len(phrases.unknown) == 3
    assert after(phrases, [1, 2, 1, 1]).missing == 4
    assert after(phrases, [2, -2, -3, -1]).missing == 0


def test_a_phrase_continues_after_its_unknown_word():
    phrases = phrases_of([[2, 1, 2, 3], [2, 4]])
    progress = phrases.start.after(2)
    assert (progress.wanted, progress.bound) == ((-1, 4), False)
    for symbol, wanted in ((-1, (2,)), (2, (3,))):
        progress = progress.after(symbol)
        assert (progress.wanted, progress.bound) == (wanted, True)
    progress = progress.after(3)
    assert (progress.wanted, progress.bound) == ((2,), False)


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("phrases", [((3,),), ((2, 3, 2),), ((2,), (3,)), ((2, 2), (3,)), ((4,), (2, 3))], ids=str)
def test_against_enumeration(phrases, real, penalties):
    scorer = tables.scorer_of(tables.small_model(seed=2)) if real else TableScorer.random(3)
    source = [2, 3, 5, 4]
    translations = [each for each in tables.every_translation(5, [2, 3, 4]) if contains_all(each, phrases)]
    expected = tables.enumerated(scorer, source, translations, Scoring(**penalties))
    options = {"beam": 300, "n_best": 300, "max_length_ratio": 1.0, **penalties}
    found = search(scorer, [source], phrases=[phrases], **options)[0]
    assert texts(found) == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("phrases", [((2, 3), (3, 4)), ((2,), (2, 3)), ((2, 2), (2, 2))], ids=str)
def test_phrases_that_share_words_or_come_twice(phrases):
    scorer, source = TableScorer.random(11), [2, 3]
    translations = [each for each in tables.every_translation(4, [2, 3, 4]) if contains_all(each, phrases)]
    expected = tables.enumerated(scorer, source, translations)
    found = search(scorer, [source], phrases=[phrases], beam=2500, n_best=2500, max_length_ratio=8 / 3)[0]
    short = [hypothesis for hypothesis in found if len(hypothesis.tokens) < 4]
    assert texts(short) == [tokens for _, tokens in expected]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 7),
    phrases=st.lists(PHRASES, min_size=6, max_size=6),
    prefixes=st.permutations([(), (), (2,), (3, 4), (2, 2, 2, 2), (1,)]),
    allow_unk=st.booleans(),
    options=st.sampled_from([*PENALTIES, {"search": "paper", "min_length_ratio": 0.5}, {"min_length_ratio": 1.0}]),
)
def test_translations_contain_their_phrases_whatever_the_batch(seed, beam, phrases, prefixes, allow_unk, options):
    scorer = TableScorer.random(seed, spread=4.0, steps=24)
    options = {"beam": beam, "n_best": beam, "max_length_ratio": 1.0, "allow_unk": allow_unk, **options}
    together = search(scorer, SENTENCES, None, prefixes, phrases, **options)
    without = search(scorer, SENTENCES, None, prefixes, **options)
    for place, found in enumerate(together):
        check(found, phrases[place], prefixes[place], allow_unk)
        source = SENTENCES[place]
        assert found == search(scorer, [source], None, [prefixes[place]], [phrases[place]], **options)[0]
        for hypothesis in found:
            expected = tables.walk(scorer, source, hypothesis.tokens)[0]
            assert list(hypothesis.token_log_probs) == expected
            most = max(len(source) + 1, len(prefixes[place]) + sum(map(len, phrases[place])) + 1)
            assert len(hypothesis.tokens) < most
        if not phrases[place]:
            assert found == without[place]


def check(found, phrases, prefix, allow_unk):
    """Checks every hypothesis: prefix, phrases, and no `<unk>` that was not given."""
    assert found
    words = phrases_of(phrases).unknown
    for hypothesis in found:
        tokens, given = hypothesis.tokens, hypothesis.given
        assert tokens[: len(prefix)] == prefix
        assert contains_all(tokens, phrases)
        assert set(words) <= set(given.values()) <= set(words)
        assert all(tokens[place] == 1 and place >= len(prefix) for place in given)
        if not allow_unk:
            assert {place for place, word in enumerate(tokens) if word == 1} - set(range(len(prefix))) == set(given)


def test_a_phrase_that_is_unlikely_now_and_more_unlikely_later_is_begun_now():
    """A part of the beam is reserved for it, although more words than the beam has are better."""
    table = torch.zeros(1, 20, 10, 10)
    table[:, 0, :, 2], table[:, 1:, :, 2] = -5.0, -50.0
    (found,) = search(TableScorer(table), [[2, 3]], phrases=[((2,),)], beam=4)
    assert found[0].tokens[0] == 2


def test_a_phrase_in_the_prefix_is_there():
    scorer = TableScorer.random(2)
    with_it = search(scorer, [[2, 3]], prefixes=[(3, 4)], phrases=[((3, 4),)], beam=3)
    assert texts(with_it[0]) == texts(search(scorer, [[2, 3]], prefixes=[(3, 4)], beam=3)[0])
    rest = [(3, 4, *words) for words in tables.every_translation(3, [2, 3, 4])]
    expected = tables.enumerated(scorer, [2, 3], [tokens for tokens in rest if contains_all(tokens, ((4, 2),))])
    begun = search(scorer, [[2, 3]], prefixes=[(3, 4)], phrases=[((4, 2),)], beam=50, n_best=50, max_length_ratio=1.0)
    assert texts(begun[0]) == [tokens for _, tokens in expected]


def test_with_candidates():
    scorer, phrases = TableScorer.random(6), [((4, 4),), ((3,),), (), ((2,), (3, 2)), (), ((1, 4),)]
    allowed = [{2, 4}, {3, 4}, {2, 3, 4}, {2, 3}, {4}, {2, 4}]
    together = search(scorer, SENTENCES, tables.candidates_of(*allowed), None, phrases, beam=3)
    for place, found in enumerate(together):
        own = tables.candidates_of(allowed[place])
        alone = search(scorer, [SENTENCES[place]], own, None, [phrases[place]], beam=3)[0]
        assert tables.same(found, alone)
        check(found, phrases[place], (), allow_unk=False)
        assert set(found[0].tokens) <= allowed[place] | {1}


def test_words_that_are_copied_in_phrases_and_prefixes():
    scorer, phrases, prefix = tables.scorer_of(tables.small_model(seed=3, copy=True)), ((5, 4),), (3,)
    source, copies = SENTENCES[0], tables.COPIES[tuple(SENTENCES[0])]
    rest = [prefix + words for words in tables.every_translation(5, [2, 3, 4, 5])]
    every = [tokens for tokens in rest if contains_all(tokens, phrases)]
    expected = tables.enumerated(scorer, source, every, copies=copies)
    options = {"beam": 300, "n_best": 300, "max_length_ratio": 2.0}
    found = search(scorer, [source], None, [prefix], [phrases], [copies], **options)[0]
    assert texts(found) == [tokens for _, tokens in expected]
    assert len(found) > 5


@settings(max_examples=100)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 20))
def test_half_the_beam_is_shared_the_fuller_banks_first(counts, width):
    shares = bank_shares(np.array(counts), width)
    assert shares.sum() <= width
    assert (shares <= counts).all()
    filled = [bank for bank, count in enumerate(counts) if count]
    share = max(1, width // max(1, 2 * len(filled)))
    expected = [min(share, counts[bank]) for bank in filled]
    if len(filled) <= width:
        assert [shares[bank] for bank in filled] == expected
    else:
        assert [shares[bank] for bank in filled] == [0] * (len(filled) - width) + expected[len(filled) - width :]
