"""The best continuations of a beam: the result by blocks of words equals that of sorting all words, including ties."""

from unittest.mock import patch

import pytest
import torch
from helpers import score_tables as tables
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nmtalign.search import beam_search as search_module
from nmtalign.search.beam_search import best_continuations
from nmtalign.search.candidates import Candidates

SENTENCES = [[2, 3], [4], [1, 7, 6], [], [3, 3, 3]]


def by_sorting(scores, open_totals, count, restrict):
    """What `best_continuations` gives for one sentence, by sorting everything; banned words never come out."""
    rows = slice(0, scores.shape[0])
    log_probs = scores.log_probs(rows)
    restrict(log_probs, rows)
    gains = log_probs.flatten()
    totals = (gains.double().view(len(log_probs), -1) + open_totals.view(-1, 1)).flatten()
    count = min(count, int((totals > -torch.inf).sum()))
    candidates = (totals >= totals.topk(max(count, 1)).values[-1]).nonzero().flatten()  # to sort all takes long
    order = candidates[totals[candidates].argsort(descending=True, stable=True)][:count]
    hypotheses, columns = order // log_probs.shape[1], order % log_probs.shape[1]
    return tuple(part[None] for part in (totals[order], hypotheses, columns, gains[order]))


def agree(values: torch.Tensor, open_totals: torch.Tensor, count: int, banned: int | None = None) -> None:
    """`best_continuations` gives each sentence what sorting gives."""

    def restrict(log_probs, rows):
        if banned is not None:
            log_probs[:, banned] = -torch.inf

    log_probs = values - values.logsumexp(-1, keepdim=True)
    found = best_continuations(tables.TensorSession(log_probs), open_totals, count, restrict)
    for place, own in enumerate(log_probs.split(open_totals.shape[1])):
        expected = by_sorting(tables.TensorSession(own), open_totals[place], count, restrict)
        possible = expected[0].shape[1]
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.equal(ours[place, :possible], theirs[0])
        assert bool((found[0][place, possible:] == -torch.inf).all())
    _, hypotheses, columns, _ = found
    inside = (hypotheses >= 0) & (hypotheses < open_totals.shape[1])
    assert bool((inside & (columns >= 0) & (columns < values.shape[1])).all())


@pytest.mark.parametrize("width", [7, 4096, 5003, 30000])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("count", [1, 12])
def test_blocks_find_what_sorting_finds(width: int, rows: int, count: int) -> None:
    torch.manual_seed(width + rows)
    open_totals = torch.randn(3, rows, dtype=torch.float64)
    agree(torch.randn(3 * rows, width) * 4, open_totals, count, banned=1)


@pytest.mark.parametrize("levels", [1, 2, 40])
def test_equal_values_come_by_hypothesis_and_word(levels: int) -> None:
    torch.manual_seed(levels)
    values = torch.randint(0, levels, (6, 5003)).float()
    agree(values, torch.zeros(2, 3, dtype=torch.float64), 12)
    values[:, 17:] = -torch.inf
    agree(values, torch.zeros(2, 3, dtype=torch.float64), 12)


@pytest.mark.parametrize("width", [4097, 5003, 11569, 12000])
@pytest.mark.parametrize("left", [1, 3, 12])
def test_what_is_banned_names_no_other_row(width: int, left: int) -> None:
    torch.manual_seed(width)
    values = torch.full((4, width), -torch.inf)
    values.scatter_(1, torch.rand(4, width).topk(left).indices, torch.randn(4, left))
    agree(values, torch.zeros(4, 1, dtype=torch.float64), 12)
    agree(values, torch.zeros(2, 2, dtype=torch.float64), 40)


@settings(max_examples=60)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 40), st.integers(0, 9999), st.integers(1, 6)
)
def test_whatever_the_shape(sentences: int, rows: int, count: int, width: int, seed: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, levels, (sentences * rows, width), generator=generator).float()
    open_totals = -torch.randint(0, 3, (sentences, rows), generator=generator).double()
    with patch.multiple(search_module, _MIN_WIDTH=5, _STRIDE=5):
        agree(values, open_totals, count)


def anywhere(most):
    """Words of a prefix or a phrase; `<unk>`, the last word of the smallest vocabulary, and others."""
    return st.lists(st.sampled_from([1, 2, 999, 1000, 4000, 4088, 4089]), min_size=1, max_size=most).map(tuple)


@settings(max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking takes long
@given(
    words=st.sampled_from([4090, 4096, 4097, 5000, 5999, 8000, 11569, 12001]) | st.integers(4090, 12001),
    beam=st.sampled_from([1, 12, 40]) | st.integers(1, 40),
    seed=st.integers(0, 999),
    prefixes=st.lists(st.just(()) | anywhere(3), min_size=5, max_size=5),
    phrases=st.lists(st.just(()) | st.lists(anywhere(2), max_size=2).map(tuple), min_size=5, max_size=5),
    few=st.booleans(),
)
def test_many_words_with_prefixes_and_phrases_anywhere(words, beam, seed, prefixes, phrases, few):
    """Searched together as each sentence by itself, with the best found by sorting, and without phrases as naively."""
    scorer = tables.TableScorer.wide(seed, words)
    given = zip(prefixes, phrases, strict=True)
    allowed = [{*range(2, 4090, 3)}.union(prefix, *own) for prefix, own in given]
    allowed[seed % 5] |= set(range(2, words))  # of one sentence all, of the others few
    candidates = tables.candidates_of(*allowed) if few else None
    options = {"beam": beam, "n_best": beam, "max_length_ratio": 1.0, "search": "paper"}
    together = tables.search(scorer, SENTENCES, candidates, prefixes, phrases, **options)
    for place, source in enumerate(SENTENCES):
        own = None if candidates is None else Candidates(candidates.words, candidates.allowed[place : place + 1])
        with patch.object(search_module, "best_continuations", by_sorting):
            alone = tables.search(scorer, [source], own, [prefixes[place]], [phrases[place]], **options)[0]
        assert together[place] == alone
        if not phrases[place]:
            expected = tables.searched_by_hand(scorer, source, beam, prefixes[place], own)
            expected.sort(key=lambda each: -each[0] / (len(each[1]) + 1))
            assert [(found.log_prob, found.tokens) for found in together[place]] == expected
