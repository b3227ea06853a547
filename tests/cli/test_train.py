"""`nmtalign train` as a process: bare in a workspace, plain lines, signals, resumption."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from helpers.command_line import run_nmtalign, sets

QUICK = sets(hidden=16, embedding=8, attention_hidden=16, maxout=8, bleu_sentences=5)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A workspace whose corpus is prepared."""
    folder = tmp_path_factory.mktemp("made") / "workspace"
    for arguments in (("sample", ".", "--pairs", "300"), ("prep",)):
        folder.mkdir(exist_ok=True)
        assert run_nmtalign(*arguments, cwd=folder).returncode == 0
    return folder


@pytest.fixture
def workspace(made, tmp_path):
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def events(folder):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def test_train_without_arguments_in_a_workspace_and_again(nmtalign, workspace):
    toml = workspace / "nmtalign.toml"
    text = toml.read_text()
    toml.write_text(text[: text.index("[train]")] + '[train]\npreset = "tiny"\nmax_updates = 6\nlog_every = 2\n')
    result = nmtalign("train")
    assert result.stdout == b""
    lines = result.stderr.decode().splitlines()
    assert all(line.startswith("nmtalign: ") for line in lines)
    (figures,) = (line for line in lines if "words/s" in line)  # the run ends before the first line of progress
    assert "update 6 " in figures
    assert "done (6 updates)" in lines[-1]
    logged = [event["update"] for event in events(workspace / "model") if event["event"] == "progressed"]
    assert logged == [2, 4, 6]
    again = nmtalign("train").stderr.decode()
    assert "already done (6 updates)" in again
    assert [event["event"] for event in events(workspace / "model")][-1] == "finished"


def test_train_with_only_options_and_quiet(nmtalign, workspace):
    (workspace / "nmtalign.toml").unlink()
    quick = ("--preset", "tiny", *QUICK, "--max-updates", "3", "--quiet")
    result = nmtalign("train", "data", "-o", "folder with spaces/m", *quick)
    assert (result.stdout, result.stderr) == (b"", b"")
    settings = json.loads((workspace / "folder with spaces/m/config.json").read_text())
    assert settings["model"]["hidden"] == 16
    assert settings["preset"] == "tiny"
    info = json.loads(nmtalign("info", "folder with spaces/m", "--format", "json").stdout)
    assert info["parameters"] > 1000
    assert info["files"]["last.safetensors"]["update"] == 3


def test_a_training_imports_no_compiler(workspace):
    """PyTorch's compiler takes a second and 140 MB, and SymPy a quarter of that."""
    runs = [("rnnsearch-30", "adadelta", 1), ("tiny", "adam", 1), ("tiny", "adamw", 1), ("tiny", "adamw", 2)]
    code = "import sys; sys.modules |= {'torch._dynamo': None, 'sympy': None}; from nmtalign.cli.app import run; "
    for preset, optimizer, updates in runs:
        settings = [*QUICK, *sets(optimizer=optimizer), "--epochs", "0", "--max-updates", str(updates)]
        code += f"assert run({['train', 'data', '-o', optimizer, '--preset', preset, *settings, '-q']!r}) == 0; "
    done = subprocess.run([sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [one["update"] for one in events(workspace / "adamw") if one["event"] == "started"] == [0, 1]


def test_a_loss_that_stays_without_bounds_ends_the_run_naming_the_batch(nmtalign, workspace):
    flags = [*QUICK, *sets(optimizer="adam", learning_rate="1e38", clip_norm=0, warmup=0)]
    result = nmtalign("train", *flags, check=False)
    assert result.returncode == 6
    lines = result.stderr.decode().splitlines()
    assert sum("the loss is not finite; left out" in line for line in lines) == 10
    assert re.search(r"error: .*10 times in a row.* minibatch of training pairs \d+, .*weights are kept", lines[-1])
    assert "lower learning_rate (it was 1e+38)" in lines[-1]
    assert events(workspace / "model")[-1]["event"] == "saved"
    assert "NaN" not in (workspace / "model/train.jsonl").read_text()


def test_a_training_that_has_diverged_is_not_advised_to_continue(nmtalign, workspace):
    flags = [*QUICK, *sets(learning_rate=50, warmup=0, log_every=10), "--max-updates", "20"]
    first, again = (nmtalign("train", *flags, *quiet).stderr.decode().splitlines() for quiet in ([], ["-q"]))
    assert sum("the training has diverged; lower learning_rate (it was 50)" in line for line in first) == 1
    assert "already done (20 updates), diverged; lower learning_rate and train anew with --force" in again[-1]
    for lines in (first, again):
        assert not any("to continue" in line or "next: nmtalign translate" in line for line in lines)
    assert events(workspace / "model")[-1]["diverged"]
    shown = nmtalign("view", "model").stdout.decode()
    assert ["ended", "20", "updates,", "diverged"] in [line.split() for line in shown.splitlines()]


def test_how_to_continue_a_training_that_stopped_early_is_reported_and_works(nmtalign, workspace):
    flags = [*QUICK, "--max-updates", "6", *sets(learning_rate=1e-12, validate_every=1, patience=1)]
    assert "update 2 " in nmtalign("train", *flags).stderr.decode().splitlines()[-2]
    again = nmtalign("train", *flags).stderr.decode().splitlines()[-1]
    assert "already done (no progress on dev in 1 validation); to continue, give --set patience=0; to train" in again
    assert "done (6 updates)" in nmtalign("train", *flags, "--set", "patience=0").stderr.decode().splitlines()[-1]


def test_tensorboard(nmtalign, workspace):
    pytest.importorskip("tensorboard")
    nmtalign("train", *QUICK, "--max-updates", "2", "--tensorboard", "board")
    assert list((workspace / "board").glob("events.*"))
    refused = run_nmtalign("train", *sets(hidden=8), "--max-updates", "2", "--tensorboard", "other", cwd=workspace)
    assert (refused.returncode, (workspace / "other").exists()) == (2, False)


def test_a_dry_run_prints_settings_size_and_time_and_writes_nothing(nmtalign, workspace):
    before = sorted(workspace.rglob("*"))
    result = nmtalign("train", *QUICK, "--max-updates", "2", "-o", "m")
    after = sorted(path for path in workspace.rglob("*") if (workspace / "m") not in (path, *path.parents))
    assert after == before
    assert "budget: 200 epochs = " in result.stderr.decode()
    assert ", at most 2 updates = " in result.stderr.decode()
    shown = nmtalign("train", *QUICK, "--dry-run").stdout.decode()
    assert sorted(path for path in workspace.rglob("*") if (workspace / "m") not in (path, *path.parents)) == before
    train = tomllib.loads(shown)["train"]
    assert (train["hidden"], train["preset"], train["epochs"]) == (16, "tiny", 200.0)
    assert re.search(r"^batch_size = 500  # preset tiny for a corpus of [0-9,]+ words$", shown, re.MULTILINE)
    facts = dict(re.findall(r"^# (\w+): (.*)$", shown, re.MULTILINE))
    assert {"parameters", "memory", "budget", "updates", "passes", "speed", "time"} <= set(facts)
    assert facts["done"].startswith("0 updates")
    chosen = nmtalign("train", "--preset", "auto", "--epochs", "0", "--max-time", "", "--dry-run").stdout.decode()
    facts = dict(re.findall(r"^# (\w+): (.*)$", chosen, re.MULTILINE))
    assert (facts["passes"], facts["time"]) == ("no limit", "no limit")
    assert facts["done"] == "0 updates in 0:00"
    assert re.search(r"^# memory: .*activations and gradients of the largest batch [1-9]", chosen, re.MULTILINE)
    resumed = nmtalign("train", *QUICK, "--max-updates", "5", "-o", "m", "--dry-run").stdout.decode()
    assert "# done: 2 updates" in resumed
    assert "; 3 remain" in resumed


def test_a_budget_that_is_too_small_is_reported_and_at_the_end_why(nmtalign, workspace):
    budget = "--max-updates", "3", "--max-time", "100h"  # no time decides the advice
    lines = nmtalign("train", *QUICK, *budget).stderr.decode().splitlines()
    (short,) = [line for line in lines if "a useful model needs about" in line]
    assert short.endswith("give --max-updates 1000")
    assert "ends after 3 updates" in short
    falling = "the loss has not risen: to continue, repeat the command with --max-updates 1000"
    assert sum(falling in line for line in lines) == 1


@pytest.mark.slow
def test_a_model_of_2000_sample_pairs_is_useful(nmtalign, tmp_path):
    nmtalign("sample", tmp_path, "--pairs", "2000")
    nmtalign("prep")
    nmtalign("train", "--max-time", "1h")  # no time decides the test
    (tmp_path / "out").write_bytes(nmtalign("translate", stdin=(tmp_path / "test.en").read_bytes()).stdout)
    score = json.loads(nmtalign("score", "out", "--metrics", "bleu", "--format", "json").stdout)
    assert score["systems"][0]["scores"]["BLEU"]["value"] > 60
