"""The hidden Markov model of word alignment against all alignments of small pairs, one by one, in float64."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from nmtalign.alignment.hmm import FARTHEST, NULL_SHARE, Posteriors, equal_choices, forward_backward

Array = NDArray[np.float64]
LENGTHS = [(1, 1), (3, 2), (2, 4), (4, 4)]  # source and target words


def random_pair(source: int, target: int, seed: int) -> tuple[Array, Array, Array]:
    """t(f | e) (T, S), t(f | NULL) (T,) and jumps, in float64."""
    random = np.random.default_rng(seed)
    sizes = (target, source), (target,), (2 * FARTHEST + 1,)
    found = [random.random(size) + 0.05 for size in sizes]
    return found[0], found[1], found[2]


def every_alignment(translation: Array, null: Array, jumps: Array) -> tuple[Array, Array, Array, float]:
    """Posteriors of links and of NULL, expected jumps and log-likelihood: a plain sum over all alignments."""
    steps, width = translation.shape
    links, absent, expected, total = np.zeros((steps, width)), np.zeros(steps), np.zeros(len(jumps)), 0.0

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
    return links / total, absent / total, expected / total, float(np.log(total))


def padded(pairs: list[tuple[Array, Array, Array]], jumps: Array) -> Posteriors:
    """The posteriors of pairs in one batch."""
    steps, width = (max(pair[0].shape[axis] for pair in pairs) for axis in (0, 1))
    translation, null = np.zeros((len(pairs), steps, width)), np.ones((len(pairs), steps))
    for row, (own, own_null, _) in enumerate(pairs):
        translation[row, : own.shape[0], : own.shape[1]], null[row, : len(own_null)] = own, own_null
    lengths = [np.array([pair[0].shape[axis] for pair in pairs]) for axis in (1, 0)]
    return forward_backward(translation, null, lengths, jumps)


def test_posteriors_are_those_of_all_alignments_also_in_a_padded_batch() -> None:
    pairs = [random_pair(*lengths, seed) for seed, lengths in enumerate(LENGTHS)]
    jumps = pairs[0][2]
    found = padded(pairs, jumps)
    expected_jumps = np.zeros(len(jumps))
    for row, (own, null, _) in enumerate(pairs):
        links, absent, moves, likelihood = every_alignment(own, null, jumps)
        steps, width = own.shape
        np.testing.assert_allclose(found.links[row, :steps, :width], links)
        np.testing.assert_allclose(found.null[row, :steps], absent)
        assert float(found.log_probs[row].sum()) == pytest.approx(likelihood)
        assert not found.links[row, steps:].any()
        assert not found.links[row, :, width:].any()
        assert not found.null[row, steps:].any()
        assert float(abs(found.log_probs[row, steps:]).sum()) < 1e-12
        expected_jumps += moves
    np.testing.assert_allclose(found.jumps, expected_jumps)


def test_distances_that_are_not_counted_change_nothing_else() -> None:
    translation, null, jumps = random_pair(5, 4, 1)
    lengths = np.array([5]), np.array([4])
    both = (True, False)
    full, quick = (forward_backward(translation[None], null[None], lengths, jumps, count) for count in both)
    for ours, theirs in zip(full[:3], quick[:3], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (full.jumps.any(), quick.jumps.any()) == (True, False)


def test_long_pairs_of_unlikely_words_stay_finite() -> None:
    translation, null = np.full((1, 300, 300), 1e-9, np.float32), np.full((1, 300), 1e-9, np.float32)
    lengths = np.array([300])
    found = forward_backward(translation, null, [lengths] * 2, np.ones(2 * FARTHEST + 1))
    assert bool(np.isfinite(found.log_probs).all())
    np.testing.assert_allclose(found.links.sum(2) + found.null, np.ones((1, 300)), atol=1e-3)


def test_equal_choices_are_model_1() -> None:
    translation, null, _ = random_pair(3, 2, 5)
    links, absent = equal_choices(translation[None], null[None], np.array([3]))
    for step in range(2):
        parts = [(1 - NULL_SHARE) / 3 * float(translation[step, place]) for place in range(3)]
        parts.append(NULL_SHARE * float(null[step]))
        expected = [part / sum(parts) for part in parts]
        assert [*links[0, step].tolist(), float(absent[0, step])] == pytest.approx(expected)
