"""Interrupted, damaged or without room on the disk: nothing is lost but the updates since the last checkpoint.

The campaign `kills` of tests/faults, which test_faults.py runs, kills trainings at random moments.
"""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from helpers.command_line import CODE, sets
from helpers.command_line import command as nmtalign_command
from helpers.commands import run

from nmtalign.training.checkpoints import find_checkpoint

SIZES = ["--preset", "tiny", *sets(hidden=16, embedding=8, attention_hidden=16, maxout=8)]
FLAGS = [*SIZES, "--epochs", "0", "--batch-size", "400", "--set", "dropout=0.2", "--set", "patience=1000"]
# The runs that are compared have different budgets and end in between: no warm-up and no decay, which depend on the
# budget, and the loss, which falls steadily, as the measure of the best.
EVEN = [*sets(schedule="constant", warmup=0, metric="loss")]
OFTEN = [*FLAGS, *EVEN, *sets(precision="fp32", validate_every=4, checkpoint_every=3)]
ENDLESS = ["--max-updates", "1000000", "--quiet"]


# A disk that never ends writing a checkpoint once there is a file of the name `slow`. Its sleeps are short: Linux may
# deliver two signals that come at once to another thread, and Python handles them after the main thread's sleep.
SLOW_DISK = """
import os, time
from pathlib import Path
fsync = os.fsync
def slow(descriptor):
    while "training_state" in os.readlink(f"/proc/self/fd/{descriptor}") and Path("slow").exists():
        time.sleep(0.05)
    fsync(descriptor)
os.fsync = slow
"""

SEES_NAMES = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the names of open files")


def command(corpus, folder, *arguments):
    return ["train", str(corpus.folder), "-o", str(folder), *OFTEN, *map(str, arguments)]


def start(arguments, code="", **options):
    """`nmtalign ARGUMENTS` as a process, which first runs `code`."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(nmtalign_command(*arguments), env={**os.environ, CODE: code}, **streams, **options)


def both(folder):
    return [(folder / f"{name}.safetensors").read_bytes() for name in ("last", "best")]


def half_written(folder, name=""):
    return list(folder.glob(f".{name}*.partial"))


def until(process, true):
    """Waits for something to become true of a running process."""
    while not true():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def updates(folder):
    """How far the log goes."""
    log = folder / "train.jsonl"
    return max(map(int, re.findall(rb'"update": (\d+)', log.read_bytes()[-2000:])), default=0) if log.exists() else 0


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(reversal, tmp_path):
    folder = tmp_path / "damaged"
    again = command(reversal, folder, "--max-updates", 12)
    run(tmp_path, *again)
    whole = both(folder)
    state = folder / "training_state.safetensors"
    data = bytearray(state.read_bytes())
    data[-100] ^= 4
    state.write_bytes(data)
    (folder / ".best.safetensors.1.partial").touch()  # of a killed process
    resumed = run(tmp_path, *again, "--quiet")
    assert resumed.returncode == 0
    assert not half_written(folder)
    assert [line for line in resumed.stderr.splitlines() if "checksum" in line] == [
        f"nmtalign: {state}: damaged: its checksum does not match, so some of its bytes have changed; "
        "resuming from the checkpoint before it, update 12"
    ]
    assert both(folder) == whole
    events = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    assert [event["update"] for event in events if event["event"] == "damaged"] == [12]
    for path in folder.glob("training_state*"):
        path.write_bytes(path.read_bytes()[:1000])
    refused = run(tmp_path, *again)
    assert refused.returncode == 4
    for words in ("training_state.safetensors", "training_state.previous.safetensors", "--force"):
        assert words in refused.stderr.splitlines()[-1]
    assert run(tmp_path, *again, "--force").returncode == 0
    assert both(folder) == whole


def test_best_weights_that_are_damaged_are_reported_and_chosen_anew(reversal, tmp_path):
    again = command(reversal, tmp_path / "model", "--max-updates", 8)
    run(tmp_path, *again)
    best = tmp_path / "model/best.safetensors"
    whole = both(tmp_path / "model")
    for damage, problem in ((best.unlink, "cannot be read"), (lambda: best.write_bytes(whole[1][:-9]), "damaged")):
        damage()
        resumed = run(tmp_path, *again, "--quiet")
        assert (resumed.returncode, resumed.stderr.count("\n")) == (0, 1)
        assert re.search(f"{best}: {problem}.*; the best weights are chosen anew, from update 8 on", resumed.stderr)
        assert both(tmp_path / "model") == whole
        events = [json.loads(line) for line in (tmp_path / "model/train.jsonl").read_text().splitlines()]
        assert [event["update"] for event in events if event["event"] == "validated"] == [4, 8]
    assert run(tmp_path, *again, "--quiet").stderr == ""


def test_a_disk_that_refuses_ends_the_run_in_one_line(reversal, tmp_path):
    folder, whole = tmp_path / "limited", tmp_path / "whole"
    run(tmp_path, *command(reversal, folder, "--max-updates", 6))

    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    process = start(command(reversal, folder, *ENDLESS), limit)
    said = process.communicate()[1]
    assert process.returncode == 5, said
    (complaint,) = [line for line in said.splitlines() if "error" in line]
    assert "cannot write" in complaint
    assert "Traceback" not in said
    assert not half_written(folder)
    assert find_checkpoint(folder).position.update == 6
    for name in (folder, whole):
        run(tmp_path, *command(reversal, name, "--max-updates", 9))
    assert both(folder) == both(whole)


@pytest.mark.parametrize(("name", "number"), [("SIGHUP", 129), ("SIGTERM", 143), ("ignored SIGHUP", 0)])
def test_a_signal_saves_and_ends_unless_nohup_started_it(reversal, tmp_path, name, number):
    folder = tmp_path / "model"
    if number:
        process = start(command(reversal, folder, *ENDLESS))
    else:
        process = start(
            command(reversal, folder, "--max-updates", "20", "--quiet"),
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
    until(process, lambda: updates(folder) > 4)
    process.send_signal(signal.SIGTERM if name == "SIGTERM" else signal.SIGHUP)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == number, said
    assert ("; the same command resumes" in said) == (number > 0)  # a quiet one says it, too
    finished = json.loads((folder / "train.jsonl").read_text().splitlines()[-1])
    assert finished["event"] == "finished"
    assert finished["complete"] == (number == 0)
    assert find_checkpoint(folder).position.update == finished["update"]


@SEES_NAMES
def test_a_second_signal_leaves_at_once_even_while_a_checkpoint_is_written(reversal, tmp_path):
    folder = tmp_path / "model"
    process = start(command(reversal, folder, *ENDLESS), SLOW_DISK, cwd=tmp_path)
    until(process, lambda: updates(folder) > 4)
    (tmp_path / "slow").touch()
    until(process, lambda: half_written(folder, "training_state"))
    process.send_signal(signal.SIGINT)  # one between two checkpoints may find nothing to write, and end the run
    before = find_checkpoint(folder).position.update
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not half_written(folder)
    assert find_checkpoint(folder).position.update == before
