"""The commands of nmtalign, run in this process, and what they print."""

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

from nmtalign.cli import app
from nmtalign.cli.options import load_command

COMMANDS = {name: load_command(name) for name in app.COMMANDS}


def _stream():
    return io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n", write_through=True)


def call(name, *arguments):
    """Runs a command; returns what it prints on stdout, and raises its errors."""
    with contextlib.redirect_stdout(_stream()) as shown:
        COMMANDS[name].main([str(one) for one in arguments], standalone_mode=False)
    return shown.buffer.getvalue().decode()


def run(folder, *arguments, stdin=b""):
    """Runs a command line in a folder as `nmtalign` does; returns what a process would."""
    before, (reading, writing) = sys.stdin, os.pipe()
    os.write(writing, stdin)  # at most 64 KB
    os.close(writing)
    with os.fdopen(reading) as sys.stdin, contextlib.chdir(folder):
        try:
            with contextlib.redirect_stdout(_stream()) as out, contextlib.redirect_stderr(_stream()) as err:
                code = app.run([str(one) for one in arguments])
        finally:
            sys.stdin = before
    texts = [one.buffer.getvalue().decode() for one in (out, err)]
    return subprocess.CompletedProcess([*arguments], code, *texts)


def assert_same_lines(found, expected):
    """Requires equal texts, in which log-probabilities may differ by rounding: other lines share their batches."""
    number = re.compile(r"(-?\d+\.\d+)")
    ours, theirs = number.split(found), number.split(expected)
    assert ours[::2] == theirs[::2]
    assert [float(text) for text in ours[1::2]] == pytest.approx([float(text) for text in theirs[1::2]], abs=1e-5)
