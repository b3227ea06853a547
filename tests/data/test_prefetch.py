import threading
from collections.abc import Iterator

import pytest

from nmtalign.data.batches import prefetched


def others() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


class Counter:
    """Numbers from 0, at most `limit` of them; sets an event when all were made."""

    def __init__(self, limit: int, error: BaseException | None = None) -> None:
        self.made, self.limit, self.error = 0, limit, error
        self.all_made = threading.Event()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.made == self.limit:
            self.all_made.set()
            if self.error is not None:
                raise self.error
            raise StopIteration
        self.made += 1
        return self.made - 1


@pytest.mark.parametrize("ahead", [1, 2, 8])
def test_items_come_in_order_and_the_thread_ends(ahead: int) -> None:
    assert list(prefetched(iter(range(100)), ahead)) == list(range(100))
    assert list(prefetched(iter(()), ahead)) == []
    assert not others()


def test_items_are_made_while_one_is_in_use_and_no_more_than_asked() -> None:
    numbers = Counter(3)
    stream = prefetched(numbers, 4)
    assert next(stream) == 0
    assert numbers.all_made.wait(60)  # the others were not requested
    stream.close()  # type: ignore[attr-defined]
    numbers = Counter(1000)
    stream = prefetched(numbers, 4)
    for taken in range(1, 20):
        next(stream)
        assert numbers.made <= taken + 4
    stream.close()  # type: ignore[attr-defined]
    assert not others()


def test_an_error_comes_where_its_item_would_have_come() -> None:
    stream = prefetched(Counter(2, ValueError("item 2")), 8)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(ValueError, match="item 2"):
        next(stream)
    assert not others()
    with pytest.raises(StopIteration):
        next(stream)


def test_closing_or_leaving_early_ends_the_thread() -> None:
    stream = prefetched(iter(range(10**9)), 2)
    next(stream)
    assert len(others()) == 1
    stream.close()  # type: ignore[attr-defined]
    assert not others()
    for item in prefetched(iter(range(10**9)), 2):
        if item == 5:
            break
    assert not others()
    with pytest.raises(KeyError):
        leave_with_an_error()
    assert not others()


def leave_with_an_error() -> None:
    for _ in prefetched(iter(range(10**9)), 2):
        raise KeyError


def test_nothing_starts_before_the_first_item_is_asked_for() -> None:
    numbers = Counter(10)
    stream = prefetched(numbers, 4)
    assert not others()
    del stream
    assert numbers.made == 0
