"""The queue merges jobs of the same work, shares batches among them, and drops jobs for which no client waits."""

import threading

import pytest

from nmtalign.core.numerics import check_wanted
from nmtalign.serving.batch_queue import BatchQueue, QueueFullError, _QueuedLines

SECONDS = 60


class Recorder:
    """Work that records its batches, and can be held."""

    def __init__(self):
        self.batches, self.free, self.begun = [], threading.Event(), threading.Event()
        self.free.set()

    def work(self, items):
        self.begun.set()
        assert self.free.wait(SECONDS)
        self.batches.append(list(items))
        if "bad" in items:
            raise ValueError("a bad item")
        return [f"<{item}>" for item in items]


def submit(queue, recorder, *items, **more):
    return queue.submit(recorder.work, items, [len(item) for item in items], **more)


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def queue():
    found = BatchQueue(1000)
    yield found
    found.close()


def held(queue, recorder):
    """The future of a job that the thread works on until `recorder.free` is set."""
    recorder.free.clear()
    future = submit(queue, recorder, "first")
    assert recorder.begun.wait(SECONDS)
    return future


def test_waiting_jobs_are_merged_and_each_gets_its_results(queue, recorder):
    first = held(queue, recorder)
    others = [submit(queue, recorder, *(f"{name}{place}" for place in range(3))) for name in "abc"]
    recorder.free.set()
    assert first.result(SECONDS) == ["<first>"]
    assert [job.result(SECONDS) for job in others] == [[f"<{name}{place}>" for place in range(3)] for name in "abc"]
    assert [len(batch) for batch in recorder.batches] == [1, 9]


def test_a_small_job_does_not_wait_for_all_of_a_large_one(queue, recorder):
    first = held(queue, recorder)
    large = submit(queue, recorder, *(f"l{number}" for number in range(500)))
    small = submit(queue, recorder, "s")
    recorder.free.set()
    assert large.result(SECONDS) == [f"<l{number}>" for number in range(500)]
    assert small.result(SECONDS) == ["<s>"]
    assert first.result(SECONDS)
    assert "s" in recorder.batches[1]
    assert max(map(len, recorder.batches)) <= 128


def test_a_small_job_does_not_share_a_batch_with_a_long_line(queue, recorder):
    first = held(queue, recorder)
    jobs = [submit(queue, recorder, line) for line in ("small", "x" * 20_000, "other")]
    recorder.free.set()
    assert all(job.result(SECONDS) for job in [first, *jobs])
    assert [len(batch) for batch in recorder.batches] == [1, 2, 1]
    assert recorder.batches[1] == ["small", "other"]


def test_other_work_takes_turns(queue, recorder):
    other = Recorder()
    first = held(queue, recorder)
    large = submit(queue, recorder, *(f"l{number}" for number in range(300)))
    different = submit(queue, other, "o")
    different.add_done_callback(lambda future: recorder.batches.append(["other"]))
    recorder.free.set()
    assert large.result(SECONDS)
    assert different.result(SECONDS) == ["<o>"]
    assert first.result(SECONDS)
    assert recorder.batches[2] == ["other"]


def test_jobs_are_not_compared_with_each_other(queue, recorder, monkeypatch):
    first = held(queue, recorder)
    others = [submit(queue, one, "a") for one in (recorder, Recorder()) for _ in range(5)]
    monkeypatch.setattr(_QueuedLines, "__eq__", None)
    recorder.free.set()
    assert [job.result(SECONDS) for job in (first, *others)] == [["<first>"], *[["<a>"]] * 10]


def test_one_bad_item_fails_only_its_job(queue, recorder):
    first = held(queue, recorder)
    good, bad, fine = (submit(queue, recorder, item) for item in ("good", "bad", "fine"))
    recorder.free.set()
    assert good.result(SECONDS) == ["<good>"]
    assert fine.result(SECONDS) == ["<fine>"]
    with pytest.raises(ValueError, match="bad item"):
        bad.result(SECONDS)
    assert first.result(SECONDS)
    assert submit(queue, recorder, "after").result(SECONDS) == ["<after>"]


def test_a_full_queue_refuses_and_recovers(recorder):
    queue = BatchQueue(3)
    first = held(queue, recorder)
    two = submit(queue, recorder, "a", "b")
    with pytest.raises(QueueFullError):
        submit(queue, recorder, "c")
    assert queue.size() == (2, 3)
    recorder.free.set()
    assert first.result(SECONDS)
    assert two.result(SECONDS)
    assert submit(queue, recorder, *"12345").result(SECONDS)  # larger than the queue, which is empty
    assert queue.size() == (0, 0)
    queue.close()


def test_work_ends_once_no_job_of_its_batch_waits(queue, recorder):
    """A batch of three jobs continues while one of them waits."""
    ended = threading.Event()

    class Endless(Recorder):
        def work(self, items):
            try:
                while not self.free.is_set():
                    check_wanted()
            finally:
                ended.set()
            return super().work(items)

    endless = Endless()
    first = held(queue, recorder)
    jobs = [submit(queue, endless, item) for item in "abc"]
    endless.free.clear()
    recorder.free.set()
    assert first.result(SECONDS)
    assert jobs[0].cancel()
    assert jobs[2].cancel()
    assert not ended.wait(0.1)
    assert jobs[1].cancel()
    assert submit(queue, recorder, "next").result(SECONDS) == ["<next>"]
    assert ended.is_set()
    assert endless.batches == []
