"""`nmtalign align` with two models, its readings of weights, and resuming an interrupted run."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import run_nmtalign
from helpers.raw_links import write_raw_links

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.links import format_links, hard_links
from nmtalign.alignment.symmetrization import HARD_METHODS, soft_links, symmetrize

SOURCE = "the fox sees a red boat .\n\nthe heron\nthe boat\nred fox\n"
TARGET = "le renard voit un bateau rouge .\n\nl' aigrette\n\nrenard rouge\n"
GOLD = "0-0 1-1 2-2 3-3 4-5 5p4 6-6\n\n0-0 1-1\n\n0-1 1-0\n"


@pytest.fixture
def run(tmp_path, here):
    """Runs a command line in a folder with texts: (exit code, stdout, stderr)."""
    for name, text in (("in.en", SOURCE), ("out.fr", TARGET), ("links.gold", GOLD)):
        (tmp_path / name).write_text(text)
    return here


def weights_of(run, model, texts, *options):
    given = ("-m", model, "-o", "one.h5", "--set", "alignment_type=float32", "--tokenized", *options)
    code, _, err = run("align", *texts, *given)
    assert code == 0, err
    with AlignmentFile("one.h5") as file:
        return [record.weights for record in file]


def both_of(models, *options):
    forward, backward = models
    of_both = ("-m", forward, "-m", backward, "--reading", "current")
    return ["align", "in.en", "out.fr", *of_both, "--tokenized", *options]


def test_each_method_joins_both_directions(run, models):
    ahead = weights_of(run, models[0], ("in.en", "out.fr"))
    back = weights_of(run, models[1], ("out.fr", "in.en"))
    for method in (*HARD_METHODS, "mean", "agreement"):
        code, out, err = run(*both_of(models, "--symmetrize", method, "--pharaoh", "-o", "both.h5"))
        assert code == 0, err
        expected = []
        for one, other in zip(ahead, back, strict=True):
            if method in HARD_METHODS:
                turned = [(i, j) for j, i in hard_links(other)]
                expected.append(symmetrize(hard_links(one), turned, method))
            else:
                expected.append(soft_links(one, other.T, method)[0] if min(one.shape) > 1 else [])
        assert out == "".join(format_links(links) + "\n" for links in expected)
        with AlignmentFile("both.h5") as file:
            assert [record.links() for record in file] == expected
            assert file.attributes["direction"] == "en-fr"
            assert (file.attributes["symmetrization"], file.attributes["reading"]) == (method, "current")
            assert file.attributes["links_method"] == ("argmax" if method in HARD_METHODS else "threshold")
            assert len(file.attributes["model_hash"].split("+")) == 2
            geometric = method == "agreement"
            assert ("geometric" if geometric else "arithmetic") in file.attributes["weights_are"]
            for record in file:
                np.testing.assert_allclose(record.weights.sum(1), 0 if record.empty() else 1, atol=2e-3)


def test_settings_come_from_the_workspace_and_are_in_the_signature(run, models):
    Path("nmtalign.toml").write_text('[align]\nsymmetrize = "union"\nlinks = "threshold"\nthreshold = 0.4\n')

    def signature(*options):
        assert run(*both_of(models, "-o", "a.h5", "-q", *options)) == (0, "", "")
        code, out, err = run("aer", "a.h5", "links.gold", "--format", "json")
        assert (code, err) == (0, "")
        return json.loads(out)["signature"]

    assert "|gold:links.gold,Pharaoh,from-0|method:threshold,union,0.4|pairs:5|" in signature()
    assert "|method:mean,0.4|" in signature("--symmetrize", "mean")


def test_an_interrupted_file_is_resumed(run, models, monkeypatch):
    from nmtalign.alignment import alignment_file
    from nmtalign.core.model import TranslationModel

    monkeypatch.setattr(alignment_file, "COMMIT", 1)  # all is brought to the disk at once
    for name, text in (("many.en", SOURCE * 10), ("many.fr", TARGET * 10)):
        Path(name).write_text(text)
    arguments = ["align", "many.en", "many.fr", "-m", str(models[0]), "--set", "batch_size=1", "-q", "-o"]
    assert run(*arguments, "whole.h5")[0] == 0
    force, calls = TranslationModel.force, []

    def fails(*arguments):
        calls.append(1)
        if len(calls) > 20:
            raise KeyboardInterrupt
        return force(*arguments)

    monkeypatch.setattr(TranslationModel, "force", fails)
    code, _, err = run(*arguments, "cut.h5")
    assert code == 130
    assert not Path("cut.h5").exists()
    assert Path("cut.h5.partial").exists()
    monkeypatch.setattr(TranslationModel, "force", force)
    code, _, err = run(*arguments, "cut.h5", "--resume", "--threshold", "0.5")
    assert code == 2
    assert "cut.h5.partial: was begun with" in err
    code, _, err = run(*arguments, "cut.h5", "--resume")
    assert code == 0, err
    assert Path("cut.h5").read_bytes() == Path("whole.h5").read_bytes()
    monkeypatch.setattr(TranslationModel, "force", fails)  # nothing is aligned again
    code, _, err = run(*[part for part in arguments if part != "-q"], "cut.h5", "--resume")
    assert code == 0
    assert "cut.h5: already complete: it has the alignments of 50 pairs" in err


def test_settings_without_effect_are_not_recorded_and_may_change(run, models):
    one = ["align", "in.en", "out.fr", "-m", models[0], "--tokenized", "-o", "one.h5"]
    Path("nmtalign.toml").write_text('[align]\nsymmetrize = "union"\n')
    assert run(*one)[0] == 0
    with AlignmentFile("one.h5") as file:
        assert json.loads(file.attributes["options"])["symmetrize"] is None
    Path("nmtalign.toml").unlink()
    code, _, err = run(*one, "--resume", "--set", "batch_size=3", "--set", "threads=1")
    assert (code, "already complete" in err) == (0, True), err
    both = both_of(models, "--symmetrize", "mean", "-o", "both.h5")
    assert run(*both, "--set", "links=threshold")[0] == 0  # which no soft method reads
    assert run(*both, "--set", "links=argmax", "--resume")[0] == 0
    assert "was begun with" in run(*both, "--resume", "--symmetrize", "union")[2]


def test_the_words_of_a_text_count_more_than_its_name(run, models):
    forward, backward = models
    Path("odd.fr").write_bytes(Path("in.en").read_bytes())
    Path("odd.en").write_bytes(Path("out.fr").read_bytes())
    code, links, err = run("align", "odd.fr", "odd.en", "-m", forward, "-m", backward, "--pharaoh")
    assert code == 0, err
    assert links == run("align", "in.en", "out.fr", "-m", forward, "-m", backward, "--pharaoh")[1]


def test_texts_of_links_are_joined(run):
    Path("ahead").write_text("0-0 1-1 2-1\n\n0-1 1-0\n")
    Path("back").write_text("0-0 1-1 3-1\n\n0-1 1-1\n")  # target first
    Path("turned").write_text("0-0 1-1 1-3\n\n1-0 1-1\n")
    expected = "0-0 1-1 2-1 1-3\n\n1-0 0-1 1-1\n"
    assert run("symmetrize", "ahead", "back", "--symmetrize", "union", "-q") == (0, expected, "")
    for output in ((), ("-o", "-")):  # standard input is no other file than standard output, which has the same name
        arguments = ("symmetrize", "-", "back", "--symmetrize", "union", "-q", *output)
        done = run_nmtalign(*arguments, cwd=Path.cwd(), stdin=Path("ahead").read_bytes())
        assert done.stdout.decode() == expected, done.stderr
    turned = ("symmetrize", "ahead", "turned", "--backward-order", "source-target", "--symmetrize")
    assert run(*turned, "union", "-o", "out.txt") == (0, "", "nmtalign: 3 pairs, 7 links in out.txt\n")
    assert Path("out.txt").read_text() == expected
    assert run(*turned, "intersection")[1] == "0-0 1-1\n\n1-0\n"


def test_links_with_source_and_target_exchanged_are_noticed(run):
    Path("ahead").write_text("0-1 1-2 2-3\n" * 5)
    code, _, err = run("symmetrize", "ahead", "ahead", "-q")
    assert code == 0
    assert "would be with --backward-order source-target; does that option fit how they are written?" in err
    assert run("symmetrize", "ahead", "ahead", "-q", "--backward-order", "source-target")[2] == ""


def test_links_that_count_different_words_are_not_joined(run):
    write_raw_links(Path())
    code, out, err = run("symmetrize", "words.links", "train.align", "--backward-order", "source-target")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "words.links: counts the words between spaces, and train.align counts tokens" in err
