"""Runs each variant in a separate process, one at a time, so that variants do not share threads, memory or caches.

A process answers requests, one line of JSON each. It is stopped (SIGSTOP) while it has no request, because the threads
of some variants spin while they wait for work.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.machine import BENCH, environment
from bench.watch import complaint_in
from nmtalign.errors import NmtalignError


class Contestant:
    """A process that runs `python tests/bench contestant TASK`; see bench.contestants for what it is asked."""

    def __init__(self, name: str, task: Mapping[str, Any]) -> None:
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        # A process group in this session: if this program is killed, the system wakes and ends the stopped processes.
        self._process = subprocess.Popen(
            [sys.executable, str(BENCH), "contestant", json.dumps({**task, "variant": name})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            env=environment(),
            process_group=0,
        )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns its answer; raises NmtalignError if the process ended instead."""
        self._signal(signal.SIGCONT)
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None:
            raise ValueError("the process was started without pipes")
        with contextlib.suppress(BrokenPipeError):
            pipe_in.write(json.dumps(request) + "\n")
            pipe_in.flush()
        line = pipe_out.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            why = complaint_in(self._said.read().decode("utf-8", "replace").splitlines())
            raise NmtalignError(f"{self.name} ended with {code}: {why}")
        self._signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Ends the process and its children."""
        self._signal(signal.SIGKILL)
        self._process.communicate()
        self._said.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextlib.contextmanager
def contestants(names: Sequence[str], task: Mapping[str, Any]) -> Iterator[dict[str, Contestant]]:
    """Starts one process per name, ready for requests; they end with the `with` block."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name in names:
            started[name] = Contestant(name, task)
            stack.callback(started[name].close)
            started[name].ask({})  # the next process starts when this one is ready and stopped
        yield started
