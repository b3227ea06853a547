"""Windows of lines: full windows of available lines, and ready lines of a stream; PyTorch's threads."""

import itertools
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.errors import InputError
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.translating.translator import BatchLimits, in_batches, windows

MANY = 10**9


def cut(lines, count=100, characters=MANY, available=False):
    return list(windows(lines, count, characters, len, available))


def failing(error, *lines):
    yield from lines
    raise error


@given(st.lists(st.text(max_size=9)), st.integers(1, 50), st.integers(1, 200), st.booleans())
def test_available_lines_come_in_full_windows(lines, count, characters, sequence):
    found = cut(lines if sequence else iter(lines), count, characters, available=True)
    assert list(itertools.chain(*found)) == lines
    assert all(found)  # no window is empty
    for number, window in enumerate(found):
        part = 1 if sequence else max(1, 8 // 2**number)  # the first ones are smaller, so that something comes out soon
        most, bound = -(-count // part), -(-characters // part)
        assert len(window) <= most
        assert sum(map(len, window[:-1])) < bound
        full = len(window) == most or sum(map(len, window)) >= bound
        assert full or window is found[-1]


@given(st.lists(st.text(max_size=9), max_size=30), st.integers(1, 5), st.integers(1, 20))
def test_lines_that_are_waited_for_come_in_bounded_windows(lines, count, characters):
    found = cut(iter(lines), count, characters)
    assert list(itertools.chain(*found)) == lines
    assert all(found)  # no window is empty
    assert all(len(window) <= count for window in found)
    assert all(sum(map(len, window[:-1])) < characters for window in found)


def test_a_line_that_comes_alone_is_given_at_once():
    answered = threading.Semaphore(0)

    def source():
        for burst in (["one"], ["two", "three"], ["four"]):
            yield from burst
            assert answered.acquire(timeout=60)  # no more until there is an answer to all of it

    found: list[str] = []
    for window in windows(source(), 100, MANY, len):
        found += window
        if len(found) in (1, 3, 4):
            answered.release()
    assert found == ["one", "two", "three", "four"]


def test_reading_ahead_is_bounded():
    read: list[int] = []
    ahead = threading.Event()

    def source():
        for number in itertools.count():
            read.append(number)
            if number == 30:
                ahead.set()
            yield "x" * 10

    found = windows(source(), 8, MANY, len)
    taken = [next(found) for _ in range(3)]
    assert all(1 <= len(window) <= 8 for window in taken)
    assert len(read) <= sum(map(len, taken)) + 8 + 1
    found.close()
    assert not ahead.wait(0.05)  # no more items are consumed, so no more are read
    thin = windows(("x" * 10 for _ in itertools.count()), 100, 25, len)
    assert all(len(next(thin)) <= 3 for _ in range(5))
    thin.close()


@pytest.mark.parametrize("available", [False, True])
@pytest.mark.parametrize("error", [InputError("line 4"), SystemExit("line 4")], ids=type)
def test_an_error_comes_after_the_lines_before_it(error, available):
    found: list[str] = []
    with pytest.raises(type(error), match="line 4"):
        found.extend(itertools.chain.from_iterable(windows(failing(error, "a", "b", "c"), 2, MANY, len, available)))
    assert found == ["a", "b", "c"]


def test_two_names_of_a_score_take_the_same_memory():
    configs = (ModelConfig(attention=score, attention_hidden=4000) for score in ("additive", "concat"))
    limits = [BatchLimits(1, 0, config, 1, 4, 1, 1.0, False) for config in configs]
    assert limits[0].bytes_of(30) == limits[1].bytes_of(30)


def test_searches_that_overlap_leave_pytorch_its_threads():
    """Independent of which search ends first; the second search has the same number of threads as the first."""
    sizes = {"words": 1, "memory": 0, "beam": 1, "itemsize": 4, "scored": 1, "length_ratio": 1.0}
    one_per_batch = BatchLimits(model=ModelConfig(), keep_weights=False, **sizes)
    how = {"read": lambda number: (number, [number]), "length": lambda number: 1, "device": torch.device("cpu")}
    how["work"] = lambda batch: [torch.get_num_threads()]
    torch.set_num_threads(2)
    for order in ((0, 1), (1, 0)):
        searches = [in_batches([[0, 1, 2]], **how, limits=one_per_batch, ahead=True) for _ in range(2)]
        assert [next(search) for search in searches] == [(0, [1]), (0, [1])]
        for place in order:
            assert torch.get_num_threads() == 1
            assert list(searches[place]) == [(1, [1]), (2, [1])]
        assert torch.get_num_threads() == 2
