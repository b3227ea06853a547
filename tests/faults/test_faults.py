"""Each campaign with few attempts, and the harness itself: it must report what does not survive."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from faults.campaign import Part, run_part
from faults.commands import commands
from faults.processes import Ended
from helpers.command_line import CODE, command
from helpers.commands import run

# The campaigns run in a fork of the server, which has imported all that they import, and fork the commands.
CAMPAIGNS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from faults.__main__ import main
sys.exit(main())
"""


@pytest.mark.timeout(1200)  # a machine may be so busy that a minute of work takes ten
@pytest.mark.parametrize(
    "names", ["kills disks mutations texts", pytest.param("environment concurrency", marks=pytest.mark.slow)]
)
def test_a_campaign_is_survived(names, tmp_path):
    call = command("--only", *names.split(), "--quick", "--seed", "1")
    environment = {**os.environ, CODE: CAMPAIGNS}
    result = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, errors="replace")
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(f"| {name}: " in result.stdout for name in names.split())


def test_a_campaign_has_the_options_of_today(tmp_path):
    """The quick campaigns try only some of the commands."""
    (tmp_path / "quick.toml").touch()
    for one in commands(workspace=None):
        done = run(tmp_path, *one.line.split(), "--show-settings")
        assert done.returncode == 0, done.stderr


def _mistaken(chance):
    """Attempts of which one in four raises an error, ends the process, hangs or is reported."""
    kind = chance.randrange(16)
    if kind == 0:
        raise KeyError("a")
    if kind == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == 2:
        signal.pause()
    return "reported" if kind == 3 else ""


# Of Python 3.12, where a worker of pytest has threads:
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_kind_of_failure_is_found_and_can_be_repeated():
    part = Part("mistaken", _mistaken, full=1, quick=1, limit=250)
    found = run_part(part, seed=178, numbers=[0, 1, 3, 4], seconds=250).failures
    kinds = [(number, fault.split(":")[0]) for number, fault in found]
    assert kinds == [(1, "the attempt failed"), (3, "reported"), (4, "the process ended")]
    assert run_part(part, seed=178, numbers=[3], seconds=250).failures == [(3, "reported")]
    hanging = run_part(replace(part, limit=0.1), seed=178, numbers=[2, 2], seconds=250).failures
    assert hanging == [(2, "no answer for 0 seconds")] * 2


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (Ended(0, b"", b"nmtalign: a note\n"), ""),
        (Ended(5, b"", b"nmtalign: error: no space left\n"), ""),
        (Ended(-11, b"", b""), "exit code -11"),
        (Ended(99, b"", b""), "exit code 99"),
        (Ended(5, b"", b""), "0 lines of error"),
        (Ended(4, b"", b"nmtalign: error: a\nnmtalign: error: b\n"), "2 lines of error"),
        (Ended(4, b"", b"UserWarning: a\nnmtalign: error: b\n"), "not of nmtalign"),
        (Ended(0, b"", b"Traceback (most recent call last):\nOSError\n"), "a traceback"),
        (Ended(3, b"", b"nmtalign: error: line 1: \x1b[2J\n"), "a control character"),
    ],
)
def test_an_end_that_is_not_documented_is_a_fault(ended, fault):
    assert fault in ended.fault()
    assert bool(fault) == bool(ended.fault())
