"""Heartbeats: every process of a training tells the others that it lives, and ends when one of them does not.

Each rank has a thread that writes a row into torchrun's key-value store once a second and reads all others'. A rank is
lost when its process is gone (seen at once on the same machine) or when its row has not changed for `SILENCE` seconds
by the reader's own clock. The first to notice writes a verdict that all obey, and the lowest rank left says it. So
nobody waits for ever in a collective operation for one that will never come, whatever the backend does about it.

| key       | content                                                                            |
|-----------|------------------------------------------------------------------------------------|
| rank/R    | JSON of a `Row`                                                                    |
| verdict   | empty, or JSON of a `Verdict`: why all end                                         |
| voice     | how many have asked to speak; the first does                                       |
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

BEAT = 1.0  # seconds
SILENCE = 15.0  # seconds
_TURN = 2.0  # seconds in which a lower rank may speak first
_SAVING = 12.0  # seconds in which a checkpoint that is being written may be ended
_HERE, _LEFT, _GONE = "here", "left", "gone"


class Store(Protocol):
    """What is needed of PyTorch's key-value stores."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def multi_get(self, keys: list[str]) -> list[bytes]: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


@dataclass(frozen=True)
class Row:
    """What a rank tells of itself."""

    beat: int
    update: int
    status: str  # here; left = done, like all; gone = ended by an error that it says itself
    pid: int
    host: str
    place: str  # equal where process numbers mean the same

    @property
    def name(self) -> str:
        """Where it runs."""
        return f"pid {self.pid}, host {self.host}"


@dataclass(frozen=True)
class Verdict:
    """Why all ranks end."""

    lost: Sequence[int]  # ranks
    line: str  # what there is to say; empty if the lost rank says it
    code: int  # of the exit


class Watch:
    """The heartbeats of one rank. `lose(line, code)` is called in their thread when all must end; line may be empty."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        lose: Callable[[str, int], None],
        code: int,
        beat: float = BEAT,
        silence: float = SILENCE,
    ) -> None:
        self._store, self._rank, self._size, self._lose, self._code = store, rank, size, lose, code
        self._beat, self._silence = beat, silence
        self._row = Row(0, 0, _HERE, os.getpid(), socket.gethostname(), _place())
        self._keys = [f"rank/{other}" for other in range(size)]
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._looked = time.monotonic()
        self._ended, self._over = threading.Event(), threading.Event()
        self._ending = threading.Lock()  # one of the two threads ends the process, not both
        self.writing = threading.Lock()  # held while files are written
        self.update = 0
        self._tell(_HERE)
        store.compare_set("verdict", "", "")

    def start(self) -> None:
        """Begins to watch, once every rank has written its first row."""
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    @property
    def row(self) -> Row:
        """What this rank has told last."""
        return self._row

    def leave(self) -> None:
        """Says that this rank is done, as all are."""
        self._end(_LEFT)

    def fail(self, code: int) -> bool:
        """Says that this rank ends by an error of its own, with an exit code; whether it is the one to say which.

        Where all ranks meet the same error, rank 0 says it.
        """
        self._end(_HERE)
        with contextlib.suppress(RuntimeError):
            speaks = self._takes_the_word(at_once=self._rank == 0)
            verdict = Verdict([self._rank], "", code)
            self._store.compare_set("verdict", "", json.dumps(asdict(verdict)))
            self._tell(_GONE)
            return speaks
        return True

    def wait(self) -> None:
        """Waits for the verdict of a connection that has broken; returns if none comes."""
        self._over.wait(self._silence + 5 * self._beat)

    def _end(self, status: str) -> None:
        with self._ending:
            self._ended.set()
        with contextlib.suppress(RuntimeError):
            self._tell(status)

    def _tell(self, status: str) -> None:
        old = self._row
        self._row = Row(old.beat + 1, self.update, status, old.pid, old.host, old.place)
        self._store.set(f"rank/{self._rank}", json.dumps(asdict(self._row)))

    def _run(self) -> None:
        while not self._ended.wait(self._beat):
            try:
                self._tell(_HERE)
                verdict = self._look()
                if verdict is not None:
                    self._obey(verdict)
            except RuntimeError:  # the store does not answer
                self._obey_alone()

    def _look(self) -> Verdict | None:
        """Reads all rows; the verdict, if there is one, or if there must be one."""
        now = time.monotonic()
        if now - self._looked > 3 * self._beat + 2:
            self._heard.clear()  # this process itself was stopped for a while, and perhaps all were
        self._looked = now
        *texts, verdict = self._store.multi_get([*self._keys, "verdict"])
        if verdict:
            return Verdict(**json.loads(verdict))
        lost = {
            rank: trouble
            for rank, text in enumerate(texts)
            if rank != self._rank and (trouble := self._trouble(rank, text, now))
        }
        if not lost:
            return None
        rank, trouble = min(lost.items())
        row = Row(**json.loads(texts[rank]))
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        # All are at the same update, and a row may be a second old.
        line = f"rank {rank} ({row.name}){more} {trouble} at update {max(row.update, self.update)}"
        found = Verdict(list(lost), f"{line}; the same command goes on from the last checkpoint", self._code)
        return Verdict(**json.loads(self._store.compare_set("verdict", "", json.dumps(asdict(found)))))

    def _trouble(self, rank: int, text: bytes, now: float) -> str:
        """What is wrong with a rank, or nothing."""
        row = Row(**json.loads(text))
        if row.status != _HERE:
            return ""
        before, since = self._heard.get(rank, (b"", now))
        if text != before:
            self._heard[rank] = (text, now)
        elif now - since > self._silence:
            return f"has not answered for {self._silence:.0f} s"
        if row.place != self._row.place or _lives(row.pid):
            return ""
        # It may have left between its last row and this look at its process.
        return "has died" if Row(**json.loads(self._store.get(f"rank/{rank}"))).status == _HERE else ""

    def _obey(self, verdict: Verdict) -> None:
        """Ends this rank, and those on this machine that are stopped and cannot end themselves."""
        self._release(verdict)
        lower = [rank for rank in range(self._rank) if rank not in verdict.lost]
        speaks = bool(verdict.line) and self._takes_the_word(at_once=not lower)
        self._close(verdict.line if speaks else "", verdict.code)

    def _obey_alone(self) -> None:
        """Ends this rank, which has lost the store that all share; the first rank of each machine says so."""
        rows = {rank: Row(**json.loads(text)) for rank, (text, _) in self._heard.items()}
        here = {rank: row for rank, row in rows.items() if row.place == self._row.place and row.status == _HERE}
        dead = [f"rank {rank} ({row.name}) has died" for rank, row in here.items() if not _lives(row.pid)]
        if dead:
            trouble = dead[0]
        elif 0 in rows and 0 not in here:
            trouble = f"rank 0 ({rows[0].name}) or the torchrun beside it has gone"
        else:
            trouble = "torchrun has gone, without which the processes do not know of each other,"
        line = f"{trouble} at update {self.update}; the same command goes on from the last checkpoint"
        self._close(line if os.environ.get("LOCAL_RANK", "0") == "0" else "", self._code)

    def _close(self, line: str, code: int) -> None:
        with self._ending:
            if self._ended.is_set():
                return
            self._ended.set()
            self.writing.acquire(timeout=_SAVING)
            self._lose(line, code)
            self._over.set()

    def _release(self, verdict: Verdict) -> None:
        for rank in verdict.lost if verdict.line else ():
            row = Row(**json.loads(self._store.get(f"rank/{rank}")))
            if row.place == self._row.place and row.status == _HERE:
                with contextlib.suppress(OSError):
                    os.kill(row.pid, signal.SIGKILL)

    def _takes_the_word(self, at_once: bool) -> bool:
        """Whether this rank is the one that speaks; the lower ones have a moment to do it first."""
        until = time.monotonic() + (0 if at_once else _TURN)
        while time.monotonic() < until:
            if self._store.add("voice", 0):
                return False
            time.sleep(0.1)
        return self._store.add("voice", 1) == 1


def _place() -> str:
    """Host, boot and process namespace: containers may share a host's name but not its process numbers."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {boot.read_text().strip()} {space.readlink()}"
    return socket.gethostname()


def _lives(pid: int) -> bool:
    """Whether a process of this machine is there and not a corpse that its parent has not yet looked at."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except (OSError, IndexError):  # another user's, or a system without /proc
        return True
    return state not in "ZX"
