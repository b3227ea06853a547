"""Runs `nmtalign` as a process, without the seconds that its imports take.

A server process imports the libraries once per test worker. For each run it forks a child. The child does what
`python -m nmtalign` does, with the streams, the folder and the environment of that run. If a run changes a variable
that Python or a library reads when it starts, it is a new Python process instead.
"""

import atexit
import functools
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ_AT_START = ("LANG", "LC_", "MKL_", "OMP_", "PYTHONIO", "PYTHONPATH", "PYTHONUN", "PYTHONUTF8")


def run_nmtalign(
    *arguments: object, cwd: Path, stdin: bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs `nmtalign ARGUMENTS` in the folder `cwd`, with `variables` added to the environment."""
    words = [os.fsdecode(one) if isinstance(one, bytes | Path) else str(one) for one in arguments]
    environment = {**os.environ, **(variables or {})}
    changed = {name for name, value in environment.items() if os.environ.get(name) != value}
    if any(name.startswith(READ_AT_START) for name in changed):
        command = [sys.executable, "-m", "nmtalign", *words]
        return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=environment, check=False)
    request = {"arguments": words, "cwd": os.fspath(cwd), "environment": environment}
    pipes = [os.pipe() for _ in range(3)]  # of standard input, output and error
    (reads_input, writes_input), (reads_output, writes_output), (reads_error, writes_error) = pipes
    theirs = [reads_input, writes_output, writes_error]
    connection = _server()
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], theirs)
    for descriptor in theirs:
        os.close(descriptor)
    output: list[bytes] = [b"", b""]

    def read(index: int, descriptor: int) -> None:
        with open(descriptor, "rb") as stream:
            output[index] = stream.read()

    threads = [
        threading.Thread(target=_feed, args=(writes_input, stdin)),
        *(threading.Thread(target=read, args=one) for one in ((0, reads_output), (1, reads_error))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code = int(connection.makefile("rb").readline())
    return subprocess.CompletedProcess(["nmtalign", *words], code, *output)


def _feed(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:
        pass  # the command did not read all of its input


@functools.cache
def _server() -> socket.socket:
    """The connection to the server of this test worker."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # which ends the server; called before the line above
    return ours


def serve(connection: socket.socket) -> None:
    """Forks a child per request and sends its exit code; returns only in a child, which then runs the command."""
    _import_all()
    gc.freeze()
    while True:
        line, descriptors, *_ = socket.recv_fds(connection, 1, 3)
        if not line:
            os._exit(0)
        while not line.endswith(b"\n"):
            line += connection.recv(65536)
        child = os.fork()
        if not child:
            connection.close()
            _become(json.loads(line), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    import nmtalign

    for name in ("h5py", "sacrebleu", "sentencepiece"):
        import_module(name)
    for module in pkgutil.walk_packages(nmtalign.__path__, "nmtalign."):
        if not module.name.endswith("__main__") and ".gpu." not in module.name:
            import_module(module.name)


def _become(request: dict[str, object], descriptors: list[int]) -> None:
    """Gives this process the streams, the folder, the environment and the arguments of a request."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(request["cwd"])  # type: ignore[arg-type]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if rule := os.environ.get("PYTHONWARNINGS"):
        warnings.simplefilter(rule)  # type: ignore[arg-type]
    sys.argv = ["nmtalign", *request["arguments"]]  # type: ignore[misc]


def _run() -> int:
    """Runs the command; returns the exit code that Python gives."""
    code: object = 0
    try:
        runpy.run_module("nmtalign", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(_run())  # Python would take most of a second to free what the server has imported
