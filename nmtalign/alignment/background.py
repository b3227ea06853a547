"""The thread that compresses and writes what another thread makes."""

import queue
import threading
from collections.abc import Sequence
from typing import Any

from nmtalign.alignment.chunks import Columns, Row
from nmtalign.alignment.spool import CHUNK, TAIL, Spool

_AHEAD = 2  # blocks that wait


class Background:
    """Takes blocks of records and writes them to a spool, in order; what fails there is raised by the next call."""

    def __init__(self, spool: Spool, columns: Columns) -> None:
        self._spool, self._columns = spool, columns
        self._queue: queue.Queue[tuple[Sequence[Row], dict[str, Any] | None] | None] = queue.Queue(_AHEAD)
        self._failure: BaseException | None = None
        self.committed = 0  # sentences
        # A daemon: it holds nothing that an end of the program could spoil.
        self._thread = threading.Thread(target=self._work, name="nmtalign-alignments", daemon=True)
        self._thread.start()

    def put(self, rows: Sequence[Row], state: dict[str, Any] | None = None) -> None:
        """Hands over a block; with `state` all up to its end is committed. Waits while too many blocks wait."""
        self._check()
        self._queue.put((rows, state))

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

    def _write(self, rows: Sequence[Row], state: dict[str, Any] | None) -> None:
        if rows:
            for number, packed in self._columns.add(rows):
                self._spool.append(CHUNK, number, packed)
        if state is not None:
            for number, raw in self._columns.unsaved():
                self._spool.append(TAIL, number, raw)
            self._spool.commit({**state, "totals": self._columns.totals})
            self.committed = state["sentences"]
