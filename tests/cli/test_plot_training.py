"""`nmtalign plot --training` through real pipes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import run_nmtalign

from nmtalign.cli.app import main
from nmtalign.cli.common import name_files
from nmtalign.errors import UsageError

SIGNATURE = "BLEU|nrefs:1|tok:13a"


def events(loss: float, bleu: float, **more: float) -> list[dict[str, object]]:
    when = [{"update": update, "epoch": update / 50, "seconds": update * 2.0} for update in (0, 10, 20)]
    speed = {"source_words_per_second": 400.0, "target_words_per_second": 500.0, "learning_rate": 1.0}
    sums = {"loss_sentence": 9 * loss}
    return [
        {"event": "started", **when[0], "resumed": False, "pairs": 100},
        {"event": "progressed", **when[1], "loss": loss + 1, **sums, **speed, **more},
        {"event": "progressed", **when[2], "loss": loss, **sums, **speed, **more},
        {"event": "validated", **when[2], "loss": loss, "bleu": bleu, "signature": SIGNATURE, "best": True, **more},
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, loss, bleu in (("model", 3.0, 21.5), ("other/model", 4.0, 11.25)):
        (tmp_path / name).mkdir(parents=True)
        text = "".join(json.dumps(event) + "\n" for event in events(loss, bleu))
        (tmp_path / name / "train.jsonl").write_text(text + '{"event": "prog')
    (tmp_path / "empty").mkdir()
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONWARNINGS": "error", "COLUMNS": "100"} | environment
    done = run_nmtalign("plot", *arguments, cwd=folder, variables=variables)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_bare_draws_the_workspace_s_model_in_the_terminal(folder: Path) -> None:
    done = run(folder, "--training", LC_ALL="C", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["loss", "per", "word", "perplexity"]
    assert ["dev", "BLEU", "21.50"] in [line.split() for line in lines]
    assert lines[-1] == f"dev BLEU, greedy: {SIGNATURE}"
    (folder / "nmtalign.toml").write_text('model = "other/model"\n')
    assert ["dev", "BLEU", "11.25"] in [line.split() for line in run(folder, "--training").stdout.splitlines()]


def test_bare_without_a_model_draws_those_under_models(folder: Path) -> None:
    for name in ("small", "large"):
        (folder / "models" / name).mkdir(parents=True)
        (folder / "models" / name / "train.jsonl").write_bytes((folder / "model/train.jsonl").read_bytes())
    (folder / "model/train.jsonl").unlink()
    (folder / "models" / "none").mkdir()
    done = run(folder, "--training")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"a large", "b small", "capital letter: dev"} <= set(done.stdout.splitlines())


def test_several_models_by_name_over_time(folder: Path) -> None:
    done = run(folder, "--training", "small=model", "other/model/train.jsonl", "--x", "hours", "--width", "60")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {"a small", "b model", "capital letter: dev"} <= set(lines)
    assert ["small", "model"] in [line.split() for line in lines]
    assert any(line.strip() == "hours" for line in lines)
    assert max(map(len, lines)) <= 60


def test_pictures(folder: Path) -> None:
    for name, magic in (("a.png", b"\x89PNG"), ("b.svg", b"<?xml"), ("c.pdf", b"%PDF")):
        done = run(folder, "--training", "model", "large=other/model", "--x", "words", "-o", name)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert done.stderr == f"nmtalign: wrote {name}\n"
        assert (folder / name).read_bytes().startswith(magic)
    text = (folder / "b.svg").read_text()
    assert all(f">{word}<" in text for word in ("model", "large", "target words", "dev BLEU"))
    assert run(folder, "--training", "-o", "d.png", "-q").stderr == ""


def test_colour_depends_on_the_environment(folder: Path) -> None:
    both = ("--training", "a=model", "b=other/model")
    assert "\x1b" not in run(folder, *both).stdout
    assert "\x1b[38;5;208m" in run(folder, *both, FORCE_COLOR="1").stdout
    assert "\x1b" not in run(folder, *both, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_models_have_different_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    def names(*arguments: str) -> list[str]:
        return [name for name, _ in name_files([*map(Path, arguments)])]

    assert names("model", "b=other/model") == ["model", "b"]
    assert names("model", "other/model") == ["model", "other/model"]
    assert names(".", "model/train.jsonl") == [folder.name, "model"]
    assert names("model", "model=other/model") == ["model (2)", "model"]
    with pytest.raises(UsageError, match="two files are named a; give each NAME=FILE"):
        names("a=model", "a=other/model")


MISTAKES = [
    (("--training", "--links"), 2, "--links is of alignments, and --training draws learning curves"),
    (("--training", "--sentence", "1"), 2, "--sentence is of alignments"),
    (("--training", "--no-end", "model"), 2, "--no-end is of alignments"),
    (("--x", "hours"), 2, "--x is of learning curves: give --training too"),
    (("model",), 2, "model: a folder; for the learning curves of a model give --training too"),
    (("--training", "--x", "days"), 2, "--x days: must be one of updates"),
    (("--training", "-o", "a.gif"), 2, "ends in .png"),
    (("--training", "none"), 4, "none: no such file or folder"),
    (("--training", "empty"), 4, "empty: no train.jsonl in it; give a model directory"),
    (("--training", "nmtalign.h5"), 4, "nmtalign.h5: line 1: not an event of a training"),
    (("--training", "-o", "nmtalign.h5/a.png"), 5, "nmtalign.h5: cannot make the folder"),
    (("--training", "a=model", "a=model"), 2, "two files are named a"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES)
def test_mistakes_are_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (folder / "nmtalign.h5").write_text("text\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["nmtalign", "plot", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    streams = capsys.readouterr()
    assert message in streams.err
    assert (streams.out, streams.err.count("\n"), caught.value.code) == ("", 1, code)


def test_curves_need_no_torch(folder: Path) -> None:
    code = (
        "import sys; sys.argv = ['nmtalign', 'plot', '--training', 'model']\n"
        "from nmtalign.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "sys.exit(bool({'torch', 'matplotlib', 'h5py'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=False).returncode == 0
