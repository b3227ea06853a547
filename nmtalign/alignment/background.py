"""The thread that compresses and writes what another thread makes."""

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from nmtalign.alignment.chunks import Columns, Row
from nmtalign.alignment.spool import CHUNK, TAIL, Spool

_AHEAD = 2  # blocks that wait


@dataclass
class State:
    """What has been written: kept by the thread that writes, so that a commit never says more than there is."""

    records: int = 0
    sentences: int = 0
    last_id: int = -(2**63)
    rises: bool = True  # sentence ids never fall

    def add(self, rows: Sequence[Row]) -> None:
        """Counts records."""
        self.records += len(rows)
        for row in rows:
            self.sentences += row.rank == 0
            self.rises &= row.sentence_id >= self.last_id
            self.last_id = row.sentence_id


class Background:
    """Takes blocks of records and writes them to a spool, in order; what fails there is raised by the next call."""

    def __init__(self, spool: Spool, columns: Columns, state: State) -> None:
        self.state = state
        self.committed = state.sentences
        self._spool, self._columns = spool, columns
        self._queue: queue.Queue[tuple[Sequence[Row], bool] | None] = queue.Queue(_AHEAD)
        self._failure: BaseException | None = None
        # A daemon: it holds nothing that an end of the program could spoil.
        self._thread = threading.Thread(target=self._work, name="nmtalign-alignments", daemon=True)
        self._thread.start()

    def put(self, rows: Sequence[Row], commit: bool) -> None:
        """Hands over a block of whole sentences, to commit all up to its end or not. Waits while too many wait."""
        self._check()
        self._queue.put((rows, commit))

    def stop(self) -> None:
        """Waits until all is written, and ends the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._failure is None:
                try:
                    self._write(*item)
                except BaseException as error:
                    self._failure = error

    def _write(self, rows: Sequence[Row], commit: bool) -> None:
        if rows:
            for number, packed in self._columns.add(rows):
                self._spool.append(CHUNK, number, packed)
            self.state.add(rows)
        if commit:
            for number, raw in self._columns.unsaved():
                self._spool.append(TAIL, number, raw)
            self._spool.commit({**asdict(self.state), "totals": self._columns.totals})
            self.committed = self.state.sentences


def taken_up(state: Mapping[str, int | bool]) -> State:
    """The state that a commit has kept."""
    return State(int(state["records"]), int(state["sentences"]), int(state["last_id"]), bool(state["rises"]))
