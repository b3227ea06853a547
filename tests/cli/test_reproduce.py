"""`nmtalign reproduce` as a user types it: options, lines on stderr, exit codes, Ctrl-C."""

import os
import signal
import subprocess
import time

import pytest
from helpers.command_line import CODE, command, run_nmtalign
from helpers.commands import run

from nmtalign.sample.sample_corpus import write_sample

QUICK = ("--scale", "tiny", "--models", "RNNencdec-50")


@pytest.fixture
def folder(tmp_path):
    write_sample(tmp_path, 200)
    for name in ("dev.en", "dev.fr", "test.en", "test.fr", "test.align"):
        lines = (tmp_path / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:12]))
    with (tmp_path / "nmtalign.toml").open("a") as stream:
        stream.write("threads = 1\n[translate]\nmax_length_ratio = 1.0\nbeam = 1\n[score]\nbootstrap = 10\n")
    return tmp_path


def test_a_folder_with_other_files_is_refused(folder):
    before = sorted(folder.iterdir())
    done = run(folder, "reproduce", "-o", ".")
    message = ".: has files that are not of nmtalign reproduce; give another folder with -o"
    assert (done.returncode, done.stderr) == (2, f"nmtalign: error: {message}\n")
    assert sorted(folder.iterdir()) == before


def test_ctrl_c_saves_and_the_same_command_resumes(folder):
    forks = {CODE: f"from nmtalign.reproduction import steps; steps.NMTALIGN = {command()}"}
    call, environment = command("reproduce", *QUICK, "--hours", "1"), {**os.environ, **forks}
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder) as running:
        for line in running.stderr:
            if "training:" in line:
                break
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 130, rest
    assert rest.splitlines()[-1] == "nmtalign: error: interrupted; the same command resumes"
    model = folder / "reproduction/work/models/RNNencdec-50.seed-1234"
    assert (model / "training_state.safetensors").is_file()
    again = run_nmtalign("reproduce", *QUICK, "--words", "100", cwd=folder, variables=forks)
    assert again.returncode == 0, again.stderr
    assert b"resuming from update" in again.stderr
    assert again.stderr.endswith(b"reproduction/report.md: written\n")
    quiet = run_nmtalign("reproduce", *QUICK, "--words", "100", "-q", cwd=folder)
    assert (quiet.returncode, quiet.stderr, quiet.stdout) == (0, b"", b"")
