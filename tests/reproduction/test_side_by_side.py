"""Trainings side by side: they give the same models, report failures, and end together."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers.reproductions import TWO, reach

from nmtalign.reproduction.reproduction_report import begin_folder
from nmtalign.reproduction.side_by_side import SideBySide, TrainingJob


def test_trainings_side_by_side_give_the_same_models(plan):
    turns = reach(plan(folder="turns", models=TWO)).plan.request.folder
    said = []
    both = reach(plan(folder="both", models=TWO, jobs=2, threads=2, seeds=1), said).plan.request.folder
    for name in ("RNNencdec-50", "RNNsearch-50"):
        weights = [folder / "work" / "models" / f"{name}.seed-1234" / "best.safetensors" for folder in (turns, both)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        started = weights[1].with_name("train.jsonl").read_text(encoding="utf-8").splitlines()[0]
        assert json.loads(started)["threads"] == 1, "the trainings share the two threads"
    assert (turns / "scores.csv").read_bytes() == (both / "scores.csv").read_bytes()
    assert "--jobs 2" in (both / "report.md").read_text(encoding="utf-8")
    steps = [line.partition(" ")[::2] for line in said if line.startswith("[")]
    assert [number for number, _ in steps] == [f"[{number}/5]" for number in range(1, 6)]
    assert {what for _, what in steps[1:3]} == {f"training {name}, seed 1234" for name in TWO.split(",")}
    assert any(line.startswith("RNNsearch-50: training: ") for line in said)


def test_a_failure_is_reported_with_the_line_of_its_command(plan):
    asked = plan(models=TWO, jobs=2)
    begin_folder(asked)
    broken = asked.model_folder(asked.systems[0], 1234)
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("no settings")
    said = []
    results = reach(asked, said)
    (failed,) = [line for line in said if " failed, " in line]
    assert failed.startswith("RNNencdec-50 failed, the others continue: ")
    assert "config.json" in failed
    assert "nmtalign: error" not in failed
    assert list(results.outcome.translations) == [("RNNsearch-50", 1234)]


def test_messages_and_errors_of_jobs():
    said, begun = [], []
    work = SideBySide(begun.append, said.append)
    jobs = [TrainingJob("good", ("--version",)), TrainingJob("bad", ("info", "nowhere"))]
    problems = work.run(jobs, 1)
    assert begun == jobs
    assert list(problems) == ["bad"]
    assert "nowhere" in problems["bad"]
    assert not problems["bad"].startswith("nmtalign")


def test_a_job_that_is_killed_or_cannot_start_fails_alone(monkeypatch):
    work = SideBySide(lambda job: None, lambda line: None)
    killed = TrainingJob("killed", ("score", "-r", "waits-for-its-standard-input"))
    popen = subprocess.Popen

    def start(command, **options):
        if "starts" in command:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        process = popen(command, **options)
        if "score" in command:
            process.kill()
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    jobs = [killed, TrainingJob("never started", ("starts",)), TrainingJob("good", ("--version",))]
    assert work.run(jobs, 1) == {
        "killed": "its process was killed by SIGKILL, perhaps for lack of memory",
        "never started": "its process could not be started: Cannot allocate memory",
    }


def test_stop_ends_all_jobs_and_no_other_starts(workspace):
    begun = []

    def begins(job):
        begun.append(job.name)
        threading.Timer(1.0, work.stop).start()

    work = SideBySide(begins, lambda line: None)
    waits = TrainingJob("waits for its standard input", ("score", "-r", str(workspace / "test.fr")))
    assert work.run([waits, TrainingJob("late", ("--version",))], 1) == {}
    assert begun == [waits.name]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_no_training_outlives_its_parent(workspace: Path, how):
    command = [sys.executable, "-m", "nmtalign", "reproduce", "--scale", "tiny", "--updates", "100000"]
    options = ["--models", TWO, "--jobs", "2", "--threads", "1", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [*command, *options], cwd=workspace, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stderr is not None
        seen: set[str] = set()
        for line in running.stderr:
            seen |= {name for name in TWO.split(",") if f"{name}: training: " in line}
            if len(seen) == 2:
                break
        children = _children(running.pid)
        assert len(children) == 2
        running.send_signal(how)
        rest = running.stderr.read()  # the children do not have this pipe open
    if how == signal.SIGTERM:
        assert running.returncode == 143
        assert rest.splitlines()[-1] == "nmtalign: error: ended by SIGTERM; the same command resumes"
        models = list((workspace / "reproduction" / "work" / "models").iterdir())
        assert all((model / "training_state.safetensors").is_file() for model in models)
    end = time.monotonic() + 60
    while any(map(_lives, children)) and time.monotonic() < end:
        time.sleep(0.2)
    alive = [child for child in children if _lives(child)]
    for child in alive:
        os.kill(child, signal.SIGKILL)
    assert not alive


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
