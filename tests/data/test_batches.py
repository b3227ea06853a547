"""How epochs are cut into batches."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.data.batches import BatchPolicy, eligible, load_batches, make_batch, make_source, plan_epoch


@dataclass
class Lengths:
    source_lengths: np.ndarray
    target_lengths: np.ndarray

    def __len__(self):
        return len(self.source_lengths)

    def pair(self, index):
        return [2] * int(self.source_lengths[index]), [3] * int(self.target_lengths[index])


def corpus(count, seed=0, longest=60):
    generator = np.random.default_rng(seed)
    return Lengths(generator.integers(0, longest, count), generator.integers(0, longest, count))


policies = st.builds(
    BatchPolicy,
    size=st.integers(1, 400),
    unit=st.sampled_from(["sentences", "tokens"]),
    window=st.integers(1, 25),
    shuffle=st.sampled_from(["once", "epoch"]),
    seed=st.integers(0, 3),
)


@given(st.integers(1, 500), policies, st.integers(0, 3))
def test_every_eligible_pair_is_in_exactly_one_batch(count, policy, epoch):
    pairs = corpus(count)
    chosen = eligible(pairs, 50)
    if not len(chosen):
        return
    plan = plan_epoch(pairs, chosen, policy, epoch)
    assert sorted(np.concatenate(plan).tolist()) == chosen.tolist()
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths) + 1
    for batch in plan:
        if policy.unit == "sentences":
            assert len(batch) <= policy.size
        else:
            assert len(batch) == 1 or len(batch) * longest[batch].max() <= policy.size


def test_pairs_with_a_long_or_an_empty_side_are_not_eligible():
    pairs = Lengths(np.array([0, 5, 50, 51, 3]), np.array([4, 0, 50, 2, 51]))
    assert eligible(pairs, 50).tolist() == [2]
    assert eligible(pairs, 0).tolist() == [2, 3, 4]


def test_the_papers_policy_reads_windows_of_one_shuffle_in_order():
    pairs = corpus(1000)
    chosen = eligible(pairs, 0)
    policy = BatchPolicy(10, "sentences", 20, "once", seed=4)
    first, again = plan_epoch(pairs, chosen, policy, 0), plan_epoch(pairs, chosen, policy, 7)
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    order = np.random.default_rng([4, 0]).permutation(chosen)
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths)
    window = np.concatenate(first[:20])
    assert set(window) == set(order[:200])  # 20 minibatches' worth are read at a time
    assert (np.diff(longest[window]) >= 0).all()  # and sorted by the longer side
    assert not (longest[window] == longest[np.concatenate(first[20:40])]).all()


def test_another_epoch_is_shuffled_anew():
    pairs = corpus(300)
    policy = BatchPolicy(10, "tokens", 5, "epoch")
    one, two = (plan_epoch(pairs, eligible(pairs, 0), policy, epoch) for epoch in (0, 1))
    assert [batch.tolist() for batch in one] != [batch.tolist() for batch in two]


def test_sorting_leaves_little_padding():
    pairs = corpus(5000)
    plan = plan_epoch(pairs, eligible(pairs, 50), BatchPolicy(80, "sentences", 20, "once"), 0)
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths)
    useful = sum(longest[batch].sum() for batch in plan) / sum(longest[batch].max() * len(batch) for batch in plan)
    assert useful > 0.9


def test_batches_end_with_end_of_sentence_and_mask_padding():
    batch = make_batch([([5, 6, 7], [8]), ([], [9, 10])])
    assert batch.source.tolist() == [[5, 6, 7, 0], [0, 0, 0, 0]]
    assert batch.source_mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert batch.target.tolist() == [[8, 0, 0], [9, 10, 0]]
    assert batch.target_mask.tolist() == [[True, True, False], [True] * 3]
    assert (batch.source_words, batch.target_words, batch.sentences) == (5, 5, 2)
    assert make_source([np.array([4], np.uint16)])[0].tolist() == [[4, 0]]


def test_counts_are_plain_numbers_that_go_with_the_batch_to_a_device():
    batch = make_batch([([5, 6, 7], [8]), ([5], [9, 10, 11])])
    there = batch.to(torch.device("meta"))
    assert there.source.is_meta
    assert there.target_mask.is_meta
    for one in (batch, there):
        counts = one.source_words, one.target_words, one.sentences
        assert counts == (6, 6, 2)
        assert all(type(count) is int for count in counts)


def test_load_batches_keeps_the_plans_indices():
    pairs = corpus(50)
    plan = plan_epoch(pairs, eligible(pairs, 0), BatchPolicy(7, "sentences", 2), 0)
    for indices, batch in zip(plan, load_batches(pairs, plan), strict=True):
        assert batch.indices.tolist() == indices.tolist()
        assert batch.source_mask.sum(1).tolist() == (pairs.source_lengths[indices] + 1).tolist()
