"""Starts `nmtalign` as a process, without the seconds that its imports take.

Each test worker has a server process that has imported the libraries. `command()` is a command line that runs this file
as a small client. The client sends its arguments, streams, folder and environment to the server. The server forks a
process that works like `python -m nmtalign`. The client passes signals on to it, and ends as it ends. If a variable
that Python or a library reads when it starts differs from the server's, or a stream is closed, the client becomes
`python -m nmtalign` itself. A test that measures a process starts `python -m nmtalign` directly.

A process first runs the Python code that the variable `NMTALIGN_TEST_CODE` contains, to slow down, limit or count.
"""

import array
import contextlib
import json
import os
import signal
import socket
import stat
import sys

READ_AT_START = ("GOMP_", "LANG", "LC_", "MALLOC_", "MKL_", "OMP_", "PYTHONPATH", "PYTHONIO", "PYTHONUN", "PYTHONUTF8")
SET_BY_NMTALIGN = ("MKL_CBWR", "OMP_WAIT_POLICY", "PYTHONPATH")  # or by tests; a fork heeds them, or does not need them
CODE = "NMTALIGN_TEST_CODE"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command(*arguments: object) -> list[str]:
    """The command line of `nmtalign ARGUMENTS`."""
    return [sys.executable, "-ISB", __file__, _server(), *(str(one) for one in arguments)]


def script_in_its_place(script: str) -> str:
    """Python code, for NMTALIGN_TEST_CODE, that runs a file as `python FILE ARGUMENTS` in place of the command."""
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    return f"""
import os, runpy, sys
sys.path.insert(0, {tests!r})
runpy.run_path({script!r}, run_name="__main__")
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def sets(**settings: object) -> list[str]:
    """`--set NAME=VALUE` for each setting."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def environment_with_nmtalign(folder) -> dict[str, str]:
    """The environment of a user with nmtalign installed: the command `nmtalign`, made in `folder`, is on the PATH."""
    import shlex

    program = folder / "nmtalign"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def run_nmtalign(*arguments, cwd, stdin=b"", variables=None):
    """Runs `nmtalign ARGUMENTS` in the folder `cwd`, with `variables` added to the environment."""
    import subprocess

    environment = {**os.environ, **(variables or {})}
    return subprocess.run(
        command(*arguments), input=stdin, capture_output=True, cwd=cwd, env=environment, check=False, timeout=280
    )


def _server(started: list[str] = []) -> str:  # noqa: B006
    """The socket of this worker's server, which is started when it is first needed."""
    if not started:
        import atexit
        import shutil
        import subprocess
        import tempfile

        folder = tempfile.mkdtemp()
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
        started.append(f"{folder}/socket")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(started[0])
        listening.listen(64)
        environment = {**os.environ, "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno())], pass_fds=[listening.fileno()], env=environment
        )
        listening.close()
        atexit.register(shutil.rmtree, folder)
        atexit.register(process.wait)
        atexit.register(process.kill)
    return started[0]


def skip_flushing() -> None:
    """Files need not reach the disk: a process that is killed takes nothing from the system's memory."""
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            flush(descriptor)

    os.fsync = fsync


def _be_client() -> None:
    path, arguments = sys.argv[1], sys.argv[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until they can be passed on
    request = {
        "arguments": arguments,
        "cwd": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
        "ignored": [int(one) for one in PASSED_ON if signal.getsignal(one) is signal.SIG_IGN],
    }
    data = json.dumps(request).encode()
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    try:
        server.sendmsg(
            [len(data).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
        )
    except OSError:  # a stream is closed
        _become_python(arguments)
    server.sendall(data)
    if server.recv(1) != b"y":
        _become_python(arguments)
    for number in PASSED_ON:  # a command may heed a signal that it was started to ignore
        signal.signal(number, lambda given, frame: server.sendall(bytes([given])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = int.from_bytes(server.recv(4), "big", signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become_python(arguments: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    os.execv(sys.executable, [sys.executable, "-m", "nmtalign", *arguments])  # noqa: S606


def _serve(listening: socket.socket) -> None:
    """Forks a process per client; returns only in a process that is to run the command."""
    import gc

    import_all()
    skip_flushing()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        client, _ = listening.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _answer(client)
            return
        client.close()


def import_all() -> None:
    """Imports all that a command may need, and compiles long expressions, so that a forked process need not."""
    import pkgutil
    from importlib import import_module

    import nmtalign

    for name in ("h5py", "sacrebleu", "sentencepiece"):
        import_module(name)
    for name in ("matplotlib.backends.backend_svg", "matplotlib.figure", "pydantic.type_adapter", "pydantic.types"):
        with contextlib.suppress(ImportError):  # an older typer does without pydantic, and nmtalign without matplotlib
            import_module(name)
    for module in pkgutil.walk_packages(nmtalign.__path__, "nmtalign."):
        if not module.name.endswith("__main__") and ".gpu." not in module.name:
            import_module(module.name)
    tokenizers = import_module("nmtalign.text.tokenizer").Tokenizers.moses("en", "fr")  # which need sacremoses
    for side in (tokenizers.source, tokenizers.target):
        side.tokenize("a")


def _answer(client: socket.socket) -> None:
    """Receives a request, and forks the process of the command; only this process returns."""
    header, streams, _, _ = socket.recv_fds(client, 8, 3)
    data, size = b"", int.from_bytes(header, "big")
    while len(data) < size:
        data += client.recv(size - len(data))
    if len(streams) < 3:
        os._exit(0)
    request = json.loads(data)
    changed = set(request["environment"].items()) ^ set(os.environ.items())
    if any(name.startswith(READ_AT_START) and name not in SET_BY_NMTALIGN for name, _ in changed):
        client.sendall(b"n")
        os._exit(0)
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        client.sendall(b"y")
        _watch(client, child)
    client.close()
    become(request, streams)


def _watch(client: socket.socket, child: int) -> None:
    """Passes signals of the client on to the child, and the child's exit code to the client."""
    import select

    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([client, ended], [], [])
        if ended in ready:
            _, status = os.waitpid(child, 0)
            client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
            os._exit(0)
        numbers = client.recv(16)
        for number in numbers or [signal.SIGKILL]:  # a client that is killed takes its process along
            os.kill(child, number)
        if not numbers:
            os._exit(0)


def become(request: dict, streams: list[int]) -> None:
    """Gives this process the streams, the folder, the environment and the arguments of a request."""
    import warnings

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    if rule := os.environ.get("PYTHONWARNINGS"):
        warnings.simplefilter(rule)
    sys.argv = ["nmtalign", *request["arguments"]]
    exec(os.environ.pop(CODE, ""), {})  # noqa: S102


def run_here() -> int:
    """Runs the command; returns the exit code that Python gives."""
    import atexit
    import runpy
    import traceback

    code: object = 0
    try:
        runpy.run_module("nmtalign", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        _serve(socket.socket(fileno=int(sys.argv[1])))
        os._exit(run_here())  # Python would take most of a second to free what the server has imported
    _be_client()
