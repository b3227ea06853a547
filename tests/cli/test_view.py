"""`nmtalign view` and `nmtalign.view`: what is drawn follows from the inputs and from the ending of the output."""

import json
import os
from unittest.mock import patch

import numpy as np
import pytest
from helpers import commands
from helpers.records import add

import nmtalign
from nmtalign.alignment.alignment_file import AlignmentWriter

SIGNATURE = "BLEU|nrefs:1|tok:13a"


@pytest.fixture
def folder(tmp_path):
    """Two alignment files, gold links, and two models with logs of their training."""
    for name, target in (("alignments.h5", ["le", "chat"]), ("b.h5", ["la", "chatte"])):
        with AlignmentWriter(tmp_path / name, {}) as writer:
            add(writer, ["the", "cat"], target, np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]]), -2.5)
            add(writer, [], ["été"], np.zeros((2, 1)), 0.0)
            for rank, word in enumerate(target):
                add(writer, [name[0]], [word], np.eye(2), -1.0, links=[], rank=rank)
    (tmp_path / "gold").write_text("1-1 2p2\n\n1-1\n")
    for name, loss in (("model", 3.0), ("other/model", 4.0)):
        (tmp_path / name).mkdir(parents=True)
        when = [{"update": update, "epoch": update / 50, "seconds": update * 2.0} for update in (0, 10, 20)]
        events = [
            {"event": "started", **when[0], "resumed": False, "pairs": 100},
            {"event": "progressed", **when[1], "loss": loss + 1, "loss_sentence": 9, "target_words_per_second": 500.0},
            {"event": "progressed", **when[2], "loss": loss, "loss_sentence": 9, "target_words_per_second": 500.0},
            {"event": "validated", **when[2], "loss": loss, "bleu": 21.5, "signature": SIGNATURE, "best": True},
        ]
        text = "".join(json.dumps(event) + "\n" for event in events)
        (tmp_path / name / "train.jsonl").write_text(text + '{"event": "prog')
    return tmp_path


def run(folder, *arguments, **environment):
    """Runs `nmtalign view ARGUMENTS` in this process, with other variables of the environment."""
    with patch.dict(os.environ, {"COLUMNS": "100", **environment}):
        return commands.run(folder, "view", *arguments)


def test_alignments_in_the_terminal(folder):
    done = run(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "sentence 0"
    assert done.stdout.splitlines()[-3:] == ["  le ██", "chat   ▒▒░░", "</s>     ██"]
    done = run(folder, "alignments.h5", "-s", "1,2", "--set", "end=false", "--rank", "0")
    assert "le ██" in done.stdout
    assert "</s>" not in done.stdout
    assert "nothing to draw: 0 source words, 1 target word\n" in done.stdout
    assert "sentence 2, rank 1" in run(folder, "-s", "2", "--rank", "1").stdout
    assert run(folder, "--title", "A title").stdout.startswith("A title\n")
    done = run(folder, "small=alignments.h5", "b.h5", "--gold", "gold", "--gold-base", "1", "--set", "hard_links=true")
    assert done.stdout.splitlines()[0].split() == ["small:", "sentence", "0", "b.h5:", "sentence", "0"]
    assert done.stdout.count("+●") == 2
    assert done.stdout.splitlines()[-1] == "● sure  ○ possible  + link"
    for done in (run(folder, COLUMNS="11"), run(folder, "--set", "width=11")):
        assert max(map(len, done.stdout.splitlines())) <= 11


def test_curves_in_the_terminal(folder):
    done = run(folder, "small=model", "other/model/train.jsonl", "--x", "hours", "--set", "width=60")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {"a small", "b model", "capital letter: dev", f"dev BLEU, greedy: {SIGNATURE}"} <= set(lines)
    assert ["dev", "BLEU", "21.50", "21.50"] in [line.split() for line in lines]
    assert any(line.strip() == "hours" for line in lines)
    assert max(map(len, lines)) <= 60


FIGURES = [("alignments.h5 b.h5", "a.png", b"\x89PNG"), ("small=model other/model --x epochs", "c.PDF", b"%PDF")]


@pytest.mark.parametrize(("inputs", "name", "magic"), FIGURES)
def test_figures(folder, inputs, name, magic):
    done = run(folder, *inputs.split(), "-o", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"nmtalign: wrote {name}\n")
    assert (folder / name).read_bytes().startswith(magic)
    assert run(folder, *inputs.split(), "-o", "d.svg", "-q").stderr == ""


def test_names_and_titles_may_have_any_bytes(folder):
    odd = os.fsdecode(b"caf\xe9")
    (folder / f"{odd}.h5").write_bytes((folder / "alignments.h5").read_bytes())
    for output in ([], ["-o", "odd.svg"], ["-o", "odd.html"]):
        assert run(folder, f"{odd}.h5", *output, "--title", odd).returncode == 0
    assert run(folder, f"{odd}.h5", "-o", "odd.html").returncode == 0
    assert "<title>Alignments: caf\ufffd.h5</title>" in (folder / "odd.html").read_text("utf-8")


def test_a_page(folder):
    done = run(folder, "a=alignments.h5", "--limit", "2", "--title", "A <b>title</b>", "-o", "page.html")
    assert (done.returncode, done.stdout) == (0, "")
    assert "alignments.h5: only 2 sentences shown; --limit 0 shows all" in done.stderr
    assert "wrote page.html: 2 sentences, 0.0 MB" in done.stderr
    assert "wrote one.html: 1 sentence, 0.0 MB" in run(folder, "alignments.h5", "-s", "1", "-o", "one.html").stderr
    without_effect = "-o", "ranks.html", "--rank", "1", "--set", "end=false"
    assert "warning: --rank has no effect: a page has all" in run(folder, "alignments.h5", *without_effect).stderr
    assert '"end":true' in (folder / "page.html").read_text()
    assert '"end":false' in (folder / "ranks.html").read_text()
    assert "warning: --limit has no effect: only a page" in run(folder, "alignments.h5", "--limit", "2").stderr
    assert "<title>A &lt;b&gt;title&lt;/b&gt;</title>" in (folder / "page.html").read_text()


def test_colour_depends_on_the_environment(folder):
    for inputs, code in ((["alignments.h5"], "\x1b[48;5;231m"), (["a=model", "b=other/model"], "\x1b[38;5;208m")):
        assert "\x1b" not in run(folder, *inputs).stdout
        assert code in run(folder, *inputs, FORCE_COLOR="1").stdout
        assert "\x1b" not in run(folder, *inputs, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_the_function(folder):
    text = nmtalign.view(folder / "alignments.h5", sentence=2, end=False, width=40)
    assert text.splitlines()[-1] == "le ██"
    assert "sentence 0" in nmtalign.view([("a", folder / "alignments.h5"), folder / "b.h5"], width=80)
    notes: list[str] = []
    assert nmtalign.view(folder / "model", folder / "c.svg", notify=notes.append) == ""
    assert notes == [f"wrote {folder / 'c.svg'}"]
    with pytest.raises(nmtalign.UsageError, match="rank"):
        nmtalign.view(folder / "alignments.h5", rank=-1)
