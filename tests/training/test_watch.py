"""Heartbeats: who is dead, stopped or failed is named, once, and nobody else is."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import pytest
import torch

from nmtalign.training.watch import Watch

CODE = 6


class Rank:
    """A rank that lives in this process: its watch, and what it was told when all had to end."""

    def __init__(self, store, rank, size=2, silence=1000.0):
        self.store, self.rank, self.told, self.over = store, rank, [], threading.Event()
        self.watch = Watch(store, rank, size, self.lose, CODE, beat=0.01, silence=silence)

    def lose(self, line, code):
        self.told.append((line, code))
        self.over.set()

    def pretends(self, **changes):
        """Writes a row as if this rank were another process; it has no heart of its own."""
        self.store.set(f"rank/{self.rank}", json.dumps(asdict(replace(self.watch.row, **changes))))


@pytest.fixture
def store():
    return torch.distributed.HashStore()


@pytest.fixture
def sleeper():
    """A process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_that_dies_is_named_with_its_update_by_one_rank_alone(store, sleeper):
    first, other, dying = (Rank(store, rank, size=3) for rank in range(3))
    dying.pretends(pid=sleeper.pid, update=37)
    first.watch.start()
    other.watch.start()
    assert not first.over.wait(0.1)
    sleeper.kill()  # not waited for: a corpse is dead too
    assert first.over.wait(60)
    assert other.over.wait(60)
    ((line, code),) = first.told
    who = f"pid {sleeper.pid}, host {first.watch.row.host}"
    assert line == (f"rank 2 ({who}) has died at update 37; the same command goes on from the last checkpoint")
    assert code == CODE
    assert other.told == [("", CODE)]


def test_a_process_that_stops_answering_is_named_and_ended(store, sleeper):
    first, stopped = Rank(store, 0, silence=0.2), Rank(store, 1)
    stopped.pretends(pid=sleeper.pid)
    os.kill(sleeper.pid, signal.SIGSTOP)
    first.watch.start()
    assert first.over.wait(60)
    assert "rank 1" in first.told[0][0]
    assert "has not answered" in first.told[0][0]
    assert sleeper.wait(60) == -signal.SIGKILL


def test_a_process_on_another_machine_is_judged_by_its_silence_alone(store):
    first, away = Rank(store, 0, silence=0.3), Rank(store, 1)
    away.pretends(place="another machine", pid=2**22 + 1, host="elsewhere")
    first.watch.start()
    assert first.over.wait(60)
    assert "host elsewhere) has not answered" in first.told[0][0]


def test_the_lowest_rank_that_is_left_speaks(store, sleeper):
    dying, second, third = (Rank(store, rank, size=3) for rank in range(3))
    dying.pretends(pid=sleeper.pid)
    sleeper.kill()
    third.watch.start()  # notices first
    second.watch.start()
    assert second.over.wait(60)
    assert third.over.wait(60)
    assert second.told[0][0].startswith("rank 0 ")
    assert third.told == [("", CODE)]


def test_ranks_that_have_left_are_not_missed(store):
    first, second = Rank(store, 0, silence=0.2), Rank(store, 1)
    second.watch.leave()
    first.watch.start()
    assert not first.over.wait(0.6)
    first.watch.leave()


def test_an_error_of_one_rank_ends_the_others_without_a_word_of_theirs(store):
    first, second = Rank(store, 0), Rank(store, 1)
    first.watch.start()
    assert second.watch.fail(3)  # nobody else has anything to say: it has the word
    assert first.over.wait(60)
    assert first.told == [("", 3)]


def test_the_same_error_everywhere_is_said_by_rank_0_alone(store):
    first, second = Rank(store, 0), Rank(store, 1)
    said = {}
    thread = threading.Thread(target=lambda: said.update({1: second.watch.fail(3)}))
    thread.start()
    said[0] = first.watch.fail(3)
    thread.join()
    assert said == {0: True, 1: False}


def test_a_store_that_is_gone_ends_the_rank():
    server = torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    client = torch.distributed.TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)
    rank = Rank(client, 0, size=1)
    rank.watch.start()
    assert not rank.over.wait(0.1)
    del server
    assert rank.over.wait(60)
    assert "torchrun" in rank.told[0][0]
