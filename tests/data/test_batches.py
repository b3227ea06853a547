"""How epochs are cut into batches, and how batches are read."""

import contextlib
import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.links import in_order
from nmtalign.core.model import make_batch, make_source
from nmtalign.data.batches import AHEAD, eligible, load_batches, plan_epoch
from nmtalign.data.corpus import Split, SplitSide
from nmtalign.settings.training_settings import TrainingConfig


@dataclass
class Side:
    lengths: np.ndarray


@dataclass
class Sides:
    source: Side
    target: Side


def corpus(count, seed=0, longest=60):
    generator = np.random.default_rng(seed)
    return Sides(*(Side(generator.integers(0, longest, count)) for _ in range(2)))


policies = st.builds(
    TrainingConfig,
    batch_size=st.integers(1, 400),
    batch_unit=st.sampled_from(["sentences", "tokens"]),
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
    longest = np.maximum(pairs.source.lengths, pairs.target.lengths) + 1
    for batch in plan:
        if policy.batch_unit == "sentences":
            assert len(batch) <= policy.batch_size
        else:
            assert len(batch) == 1 or len(batch) * longest[batch].max() <= policy.batch_size


def test_pairs_with_a_long_or_an_empty_side_are_not_eligible():
    pairs = Sides(Side(np.array([0, 5, 50, 51, 3])), Side(np.array([4, 0, 50, 2, 51])))
    assert eligible(pairs, 50).tolist() == [2]
    assert eligible(pairs, 0).tolist() == [2, 3, 4]


def test_the_papers_policy_reads_windows_of_one_shuffle_in_order():
    pairs = corpus(1000)
    chosen = eligible(pairs, 0)
    policy = TrainingConfig(batch_size=10, seed=4)
    first, again = plan_epoch(pairs, chosen, policy, 0), plan_epoch(pairs, chosen, policy, 7)
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    order = np.random.default_rng([4, 0]).permutation(chosen)
    longest = np.maximum(pairs.source.lengths, pairs.target.lengths)
    window = np.concatenate(first[:20])
    assert set(window) == set(order[:200])  # 20 minibatches' worth are read at a time
    assert (np.diff(longest[window]) >= 0).all()  # and sorted by the longer side
    assert not (longest[window] == longest[np.concatenate(first[20:40])]).all()


def test_batches_end_with_end_of_sentence_and_mask_padding():
    batch = make_batch([([5, 6, 7], [8]), ([], [9, 10])])
    assert batch.source.tolist() == [[5, 6, 7, 0], [0, 0, 0, 0]]
    assert batch.source_mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert batch.target.tolist() == [[8, 0, 0], [9, 10, 0]]
    assert batch.target_mask.tolist() == [[True, True, False], [True] * 3]
    assert (batch.source_words, batch.target_words, len(batch.source)) == (5, 5, 2)
    assert make_source([np.array([4], np.uint16)])[0].tolist() == [[4, 0]]


@pytest.mark.parametrize(
    ("settings", "epoch", "count", "first"),
    [
        ({"batch_size": 5}, 0, 29, [[146, 15, 159, 74, 118], [191, 139, 23, 9, 88]]),
        (
            {"batch_size": 400, "batch_unit": "tokens", "window": 3, "shuffle": "epoch", "seed": 7},
            *(2, 18, [[26, 89, 119], [127, 21, 152, 130, 196, 131, 14, 24]]),
        ),
    ],
)
def test_a_resumed_training_gets_the_batches_of_earlier_versions(settings, epoch, count, first):
    pairs = corpus(200, seed=5)
    plan = plan_epoch(pairs, eligible(pairs, 50), TrainingConfig(**settings), epoch)
    assert len(plan) == count
    assert [batch.tolist() for batch in plan[:2]] == first


def flat_corpus(count, dtype=np.uint16):
    generator = np.random.default_rng(2)
    sides, empty = [], np.zeros(0, np.int64)
    for _ in range(2):
        offsets = np.concatenate(([0], np.cumsum(generator.integers(0, 9, count)))).astype(np.int64)
        sides.append(SplitSide(generator.integers(2, 60_000, offsets[-1]).astype(dtype), offsets, empty, empty))
    return Split("train", *sides)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_batches_gathered_at_once_are_those_of_single_pairs(dtype):
    pairs = flat_corpus(100, dtype)
    generator = np.random.default_rng(0)
    plan = [generator.integers(0, 100, size) for size in (1, 2, 7, 30, 30)]
    plan.append(np.array([99, 98]))  # the end of the file
    plan.append(np.flatnonzero(pairs.source.lengths == 0)[:2])  # nothing to gather
    for indices, batch in zip(plan, load_batches(pairs, plan), strict=True):
        expected = make_batch([pairs.pair(int(index)) for index in indices])
        for name in ("source", "source_mask", "target", "target_mask"):
            assert getattr(batch, name).dtype == getattr(expected, name).dtype
            assert torch.equal(getattr(batch, name), getattr(expected, name))
        counts = (expected.source_words, expected.target_words, len(expected.source))
        assert (batch.source_words, batch.target_words, len(batch.source)) == counts
        assert type(batch.source_words) is int


def working():
    return [thread for thread in threading.enumerate() if thread.name.startswith(("prefetch", "align"))]


def ended():
    """Waits for threads that end, also those of iterators that earlier tests have left; whether all have."""
    gc.collect()
    for thread in working():
        thread.join(60)
    return not working()


class Watched(Sequence):
    """A plan that counts the batches that were read from it."""

    def __init__(self, count):
        self.count, self.read, self.enough = count, 0, threading.Event()

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if number == self.count:
            raise IndexError
        self.read = number + 1
        if self.read == AHEAD:
            self.enough.set()
        return np.array([1])


def test_batches_are_read_while_one_is_in_use_and_at_most_eight_ahead():
    plan = Watched(100)
    stream = load_batches(flat_corpus(10), plan)
    assert ended()  # before the first batch is requested
    next(stream)
    assert plan.enough.wait(60)  # these were not requested
    for taken in range(2, 20):
        next(stream)
        assert plan.read <= taken + AHEAD
    assert len(working()) == 1
    assert len(list(stream)) == 100 - 19
    assert ended()


def test_a_damaged_pair_is_an_error_of_the_consumer_and_no_thread_stays():
    pairs = flat_corpus(10)
    stream = load_batches(pairs, [np.array([1]), np.array([10])])
    assert len(next(stream).source) == 1
    with pytest.raises(IndexError):
        next(stream)
    assert ended()
    with pytest.raises(StopIteration):
        next(stream)


@pytest.mark.parametrize("error", [None, KeyError])
def test_closing_or_leaving_early_ends_the_thread(error):
    stream = load_batches(flat_corpus(10), Watched(10**9))
    with contextlib.suppress(KeyError):
        for _ in stream:
            if error:
                raise error
            break
    stream.close()
    assert ended()


@pytest.mark.parametrize(
    "read_ahead",
    [
        lambda work: load_batches(flat_corpus(10), Watched(10), additions=[work]),
        lambda work: in_order(work, range(10), 1),
    ],
)
def test_closing_does_not_wait_for_a_thread_that_works(read_ahead):
    """The garbage collector may close an iterator in a thread that holds a lock without which no other thread ends."""
    begun, may_end = threading.Semaphore(0), threading.Semaphore(1)

    def work(batch):
        begun.release()
        may_end.acquire(timeout=60)
        return batch

    stream = read_ahead(work)
    next(stream)
    assert all(begun.acquire(timeout=60) for _ in range(2))  # the thread works on the second batch
    stream.close()
    assert working()
    may_end.release()
    assert ended()


def test_batches_are_pinned_in_the_thread_for_the_device_of_the_caller(monkeypatch):
    seen, pinned = [], []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: seen.append((device, threading.current_thread().name)))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.shape) or tensor)
    plan = [np.array([1, 2]), np.array([3])]
    assert [len(batch.source) for batch in load_batches(flat_corpus(10), plan, pin=True)] == [2, 1]
    assert seen == [(3, "prefetch_0")]
    assert len(pinned) == 2 * 4


@pytest.mark.gpu
def test_pinned_batches_go_to_the_device_unchanged():
    pairs = flat_corpus(100)
    plan = [np.arange(start, start + 10) for start in range(0, 100, 10)]
    for plain, batch in zip(load_batches(pairs, plan), load_batches(pairs, plan, pin=True), strict=True):
        assert batch.source.is_pinned()
        assert batch.target_mask.is_pinned()
        there = batch.to(torch.device("cuda"))
        assert torch.equal(there.source.cpu(), plain.source)
        assert torch.equal(there.target_mask.cpu(), plain.target_mask)
