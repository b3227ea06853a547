"""`nmtalign reproduce` as a user types it: options, lines on stderr, exit codes, Ctrl-C."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.command_line import environment_with_nmtalign
from helpers.reproductions import make_plan_in

from nmtalign.cli.app import main
from nmtalign.reproduction.experiments import SCALES, ablations
from nmtalign.reproduction.reproduction_report import begin_folder
from nmtalign.sample.sample_corpus import write_sample
from nmtalign.training.trainer import Trainer

QUICK = ("--scale", "tiny", "--models", "RNNencdec-50,RNNsearch-50", "--beam", "1", "--threads", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_sample(tmp_path, 200)
    for name in ("dev.en", "dev.fr", "test.en", "test.fr", "test.align"):
        lines = (tmp_path / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:8]))
    with (tmp_path / "nmtalign.toml").open("a") as stream:
        stream.write("[translate]\nmax_length_ratio = 1.0\n[score]\nbootstrap = 10\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def reproduce(folder, monkeypatch, capsys):
    """Runs it in this process; (exit code, stderr)."""

    def run(*arguments, command="reproduce"):
        monkeypatch.setattr(sys, "argv", ["nmtalign", command, *map(str, arguments)])
        capsys.readouterr()
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        with pytest.raises(SystemExit) as ended:
            main()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), handlers, strict=True):
            signal.signal(number, handler)
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def test_the_help_names_every_ablation(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nmtalign", "reproduce", "--help"])
    with pytest.raises(SystemExit):
        main()
    names = dict.fromkeys(experiment.ablation for experiment in ablations(SCALES["tiny"]))
    assert ", ".join(names) in " ".join(capsys.readouterr().out.split())


def test_from_a_workspace_to_a_report_whose_commands_find_what_is_done(reproduce, folder):
    code, said = reproduce(*QUICK, "--updates", 2, "--sentences", "1,2")
    assert code == 0, said
    assert "[1/5] preparing corpus\n" in said
    assert "[3/5] training RNNsearch-50, seed 1234\n" in said
    assert said.endswith("reproduction/report.md: written\n")
    text = Path("reproduction/report.md").read_text(encoding="utf-8")
    assert "nmtalign reproduce --scale tiny --updates 2 --models RNNencdec-50,RNNsearch-50 --sentences 1,2" in text
    assert "nmtalign train --config settings/RNNsearch-50.toml" in text
    assert Path("reproduction/work/.gitignore").read_text().endswith("*\n")
    code, said = reproduce("--config", "reproduction/settings/RNNsearch-50.toml", command="train")
    assert code == 0, said
    assert "already done (2 updates)" in said
    code, said = reproduce(*QUICK, "--updates", 2, "--quiet")
    assert (code, said) == (0, "")


def test_systems_are_compared_and_the_progress_of_a_translation_is_in_the_log(reproduce, folder, monkeypatch):
    monkeypatch.setattr("nmtalign.cli.common.next_report", lambda passed: 0.0)
    code, said = reproduce("--systems", "rnnencdec,light", *QUICK[:2], *QUICK[4:], "--updates", 1)
    assert code == 0, said
    assert "[2/5] training rnnencdec, seed 1234\n" in said
    assert re.search(r"translating with light: (\d+) of \1 lines, ", said)
    text = Path("reproduction/report.md").read_text(encoding="utf-8")
    assert "nmtalign reproduce --scale tiny --updates 1 --systems rnnencdec,light" in text


def test_a_failed_experiment_is_reported_and_the_exit_code_is_one(reproduce, folder, monkeypatch):
    run = Trainer.run

    def fails(self):
        if "RNNencdec-50" in str(self.folder):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return run(self)

    monkeypatch.setattr(Trainer, "run", fails)
    code, said = reproduce(*QUICK, "--updates", 2)
    assert code == 1, said
    reason = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert f"nmtalign: RNNencdec-50 failed, the others continue: {reason}\n" in said
    assert said.endswith("reproduction/report.md: written, with 1 that failed\n")
    assert reason in Path("reproduction/report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--updates", 5, "--words", 1e6), "--updates 5 does not go with --words 1000000: give one budget"),
        (("--hours", 0), "--hours 0: must be greater than 0"),
        (("--ablations", "spell"), "--ablations spell: unknown; give all, none, or some of encoder,context"),
        (("--systems", "spell"), "--systems spell: unknown; give all, none, or some of rnnsearch,"),
        (("--models", "Moses"), "--models Moses: unknown"),
        (("--sentences", "a"), "--sentences a: give lines of the test set, counted from 1, as in 3,17"),
        (("--sentences", "99"), "test.en has lines 1 to 8"),
        (("--seeds", 0), "--seeds 0: must be at least 1"),
    ],
)
def test_a_mistake_is_one_line(reproduce, arguments, complaint):
    code, said = reproduce(*arguments)
    assert code == 2
    assert said.count("\n") == 1
    assert complaint in said


@pytest.mark.parametrize("name", ["report.md", "settings.json", "figures/mine.png", "work/notes.txt"])
def test_a_folder_of_other_files_is_refused(reproduce, folder, name):
    path = folder / "mine" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    code, said = reproduce(*QUICK, "-o", "mine")
    assert code == 2
    assert said == (
        "nmtalign: error: mine: has files that are not of nmtalign reproduce; give another folder with -o\n"
    )
    assert [one.read_text() for one in (folder / "mine").rglob("*") if one.is_file()] == ["mine"]


@pytest.mark.parametrize("mark", [{}, {"settings.json": '{"nmtalign": "", "command": "", "scale": "tiny"}'}])
def test_an_empty_folder_and_a_copy_of_a_report_are_no_folders_of_others(folder, mark):
    (folder / "mine").mkdir()
    for name, text in mark.items():
        (folder / "mine" / name).write_text(text)
    for _ in range(2):
        begin_folder(make_plan_in(folder, SCALES["tiny"], folder="mine"))
    assert (folder / "mine" / "work" / ".gitignore").is_file()


def test_without_a_corpus_it_says_what_to_write(reproduce, folder):
    (folder / "nmtalign.toml").write_text('[corpus]\ntrain = ["train.en", "train.fr"]\n')
    code, said = reproduce()
    assert code == 2
    assert 'names no dev text, and `reproduce` needs one: dev = ["dev.en", "dev.fr"]' in said


def test_a_text_that_is_missing(reproduce, folder):
    (folder / "dev.fr").unlink()
    code, said = reproduce(*QUICK)
    assert code == 3
    assert said.count("\n") == 1
    assert "dev.fr" in said


def test_ctrl_c_saves_and_the_same_command_goes_on(folder):
    command = [sys.executable, "-m", "nmtalign", "reproduce", *QUICK, "--hours", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "training:" in line:
                break
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 130, rest
    assert rest.splitlines()[-1] == "nmtalign: error: interrupted; the same command resumes"
    model = folder / "reproduction" / "work" / "models" / "RNNencdec-50.seed-1234"
    assert (model / "training_state.safetensors").is_file()
    again = subprocess.run(
        [*command[:-2], "--updates", "1", "--models", "RNNencdec-50"], capture_output=True, text=True, env=environment
    )
    assert again.returncode == 0, again.stderr
    assert "resuming from update" in again.stderr


def test_the_commands_of_the_report_give_its_numbers(reproduce, folder, tmp_path_factory):
    code, said = reproduce(*QUICK[:2], "--models", "RNNsearch-50", *QUICK[4:], "--updates", 2)
    assert code == 0, said
    report = Path("reproduction/report.md").read_text(encoding="utf-8")
    commands = report.rsplit("```sh\n", 1)[1].split("```")[0]
    wanted = "prep train translate translate score score align aer"
    assert [line.split()[1] for line in commands.splitlines()] == wanted.split()
    environment = environment_with_nmtalign(tmp_path_factory.mktemp("bin"))
    done = subprocess.run(
        ["bash", "-euc", commands], cwd="reproduction", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "already done (2 updates)" in done.stderr
    model = folder / "reproduction" / "work" / "models" / "RNNsearch-50.seed-1234"
    kept = {path.read_text(encoding="utf-8").replace("<unk>", "UNK") for path in model.glob("translations/*.txt")}
    assert (folder / "reproduction" / "RNNsearch-50.test.txt").read_text(encoding="utf-8") in kept
    with Path("reproduction/scores.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    whole = next(row for row in rows if (row["subset"], row["by"], row["metric"]) == ("all", "", "BLEU"))
    known = next(row for row in rows if (row["subset"], row["by"], row["metric"]) == ("no-unk", "", "BLEU"))
    assert f"{float(whole['value']):.2f}" in done.stdout
    assert f"{float(known['value']):.2f}" in done.stdout
    assert whole["signature"] in done.stdout
    aer = re.search(r"\| RNNsearch-50 \| 1234 \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", report, re.M)
    assert aer is not None
    assert f"{float(aer[1]) / 100:.3f}"[:4] in done.stdout
