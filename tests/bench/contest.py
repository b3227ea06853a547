"""Variants in processes of their own, one of which runs at a time: each in the environment that it has for its users.

A process answers requests, a line of JSON each, and is stopped while it has none: the threads of some spin while they
wait for work. So threads, memory and what a decoder sets up never touch another variant's, and memory is its own.
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
        # A process group in this session: should this program be killed, the system wakes and ends those that stand.
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
        """Its answer; raises NmtalignError where it ended instead."""
        self._signal(signal.SIGCONT)
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None:
            raise ValueError("made with pipes")
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
        """Ends it and what it has started."""
        self._signal(signal.SIGKILL)
        self._process.communicate()
        self._said.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextlib.contextmanager
def contestants(names: Sequence[str], task: Mapping[str, Any]) -> Iterator[dict[str, Contestant]]:
    """One process for each name, ready to be asked; they end with the block."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name in names:
            started[name] = Contestant(name, task)
            stack.callback(started[name].close)
            started[name].ask({})  # the next one starts when this one is ready and stands
        yield started
