"""The hidden Markov model of word alignment against all alignments of small pairs, one by one, in float64."""

import itertools

import pytest
import torch
from torch import Tensor

from nmtalign.alignment.hmm import FARTHEST, NULL_SHARE, Posteriors, equal_choices, even_jumps, forward_backward

LENGTHS = [(1, 1), (3, 2), (2, 4), (4, 4)]  # source and target words


def random_pair(source: int, target: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """t(f | e) (T, S), t(f | NULL) (T,) and jumps, in float64."""
    random = torch.Generator().manual_seed(seed)
    sizes = (target, source), (target,), (2 * FARTHEST + 1,)
    found = [torch.rand(size, generator=random, dtype=torch.float64) + 0.05 for size in sizes]
    return found[0], found[1], found[2]


def every_alignment(translation: Tensor, null: Tensor, jumps: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Posteriors of links and of NULL, expected jumps and log-likelihood: a plain sum over all alignments."""
    steps, width = translation.shape
    links, absent, expected, total = torch.zeros(steps, width), torch.zeros(steps), torch.zeros(len(jumps)), 0.0
    links, absent, expected = links.double(), absent.double(), expected.double()

    def weight(distance: int) -> int:
        return max(-FARTHEST, min(FARTHEST, distance)) + FARTHEST

    for alignment in itertools.product(range(-1, width), repeat=steps):
        probability, place, moves = 1.0, -1, []
        for step, chosen in enumerate(alignment):
            if chosen < 0:
                probability *= NULL_SHARE * float(null[step])
                continue
            whole = sum(float(jumps[weight(other - place)]) for other in range(width))
            probability *= (1 - NULL_SHARE) * float(jumps[weight(chosen - place)]) / whole
            probability *= float(translation[step, chosen])
            moves.append(weight(chosen - place))
            place = chosen
        total += probability
        for step, chosen in enumerate(alignment):
            if chosen < 0:
                absent[step] += probability
            else:
                links[step, chosen] += probability
        for move in moves:
            expected[move] += probability
    return links / total, absent / total, expected / total, float(torch.tensor(total).log())


def padded(pairs: list[tuple[Tensor, Tensor, Tensor]], jumps: Tensor) -> Posteriors:
    """The posteriors of pairs in one batch."""
    steps, width = (max(pair[0].shape[axis] for pair in pairs) for axis in (0, 1))
    translation = torch.zeros(len(pairs), steps, width, dtype=torch.float64)
    null = torch.ones(len(pairs), steps, dtype=torch.float64)
    for row, (own, own_null, _) in enumerate(pairs):
        translation[row, : own.shape[0], : own.shape[1]], null[row, : len(own_null)] = own, own_null
    lengths = [torch.tensor([pair[0].shape[axis] for pair in pairs]) for axis in (1, 0)]
    return forward_backward(translation, null, lengths[0], lengths[1], jumps)


def test_posteriors_are_those_of_all_alignments_also_in_a_padded_batch() -> None:
    pairs = [random_pair(*lengths, seed) for seed, lengths in enumerate(LENGTHS)]
    jumps = pairs[0][2]
    found = padded(pairs, jumps)
    expected_jumps = torch.zeros(len(jumps), dtype=torch.float64)
    for row, (own, null, _) in enumerate(pairs):
        links, absent, moves, likelihood = every_alignment(own, null, jumps)
        steps, width = own.shape
        torch.testing.assert_close(found.links[row, :steps, :width], links)
        torch.testing.assert_close(found.null[row, :steps], absent)
        assert float(found.log_probs[row].sum()) == pytest.approx(likelihood)
        assert not found.links[row, steps:].any()
        assert not found.links[row, :, width:].any()
        assert not found.null[row, steps:].any()
        assert float(found.log_probs[row, steps:].abs().sum()) < 1e-12
        expected_jumps += moves
    torch.testing.assert_close(found.jumps, expected_jumps)


def test_long_pairs_of_unlikely_words_stay_finite() -> None:
    translation, null = torch.full((1, 300, 300), 1e-9), torch.full((1, 300), 1e-9)
    lengths = torch.tensor([300])
    found = forward_backward(translation, null, lengths, lengths, even_jumps())
    assert bool(found.log_probs.isfinite().all())
    torch.testing.assert_close(found.links.sum(2) + found.null, torch.ones(1, 300), atol=1e-3, rtol=0)


def test_equal_choices_are_model_1() -> None:
    translation, null, _ = random_pair(3, 2, 5)
    links, absent = equal_choices(translation[None], null[None], torch.tensor([3]))
    for step in range(2):
        parts = [(1 - NULL_SHARE) / 3 * float(translation[step, place]) for place in range(3)]
        parts.append(NULL_SHARE * float(null[step]))
        expected = [part / sum(parts) for part in parts]
        assert [*links[0, step].tolist(), float(absent[0, step])] == pytest.approx(expected)
