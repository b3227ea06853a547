"""`nmtalign align` through real pipes."""

import json
import os
import subprocess

import pytest
from helpers.command_line import command, run_nmtalign
from helpers.parallel_texts import write_pairs

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import parse_links

SOURCE = "the fox sees a red boat.\n\nthe heron\nthe boat\n"
TARGET = "le renard voit un bateau rouge.\n\nl'aigrette\n\n"


@pytest.fixture
def model(models):
    return models[0]


@pytest.fixture
def align(tmp_path):
    """Runs `nmtalign align ARGUMENTS` in tmp_path as a process, which must succeed."""

    def run(*arguments, stdin=b""):
        variables = {"PYTHONWARNINGS": "error", "COLUMNS": "200"}
        done = run_nmtalign("align", *arguments, cwd=tmp_path, stdin=stdin, variables=variables)
        assert done.returncode == 0, done.stderr.decode()
        return done

    return run


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "in.en").write_text(SOURCE)
    (tmp_path / "out.fr").write_text(TARGET)
    return tmp_path


def test_soft_alignments_links_and_counts_in_one_run(texts, model, align):
    done = align("in.en", "out.fr", "-m", model, "-o", "a.h5", "--pharaoh")
    lines = done.stdout.decode().split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[3] == lines[4] == ""
    counts, wrote = done.stderr.decode().splitlines()
    assert wrote == "nmtalign: wrote a.h5"
    with AlignmentFile(texts / "a.h5") as file:
        assert [set(record.links()) for record in file] == [parse_links(line, "").sure for line in lines[:4]]
        assert file[0].source == ("the", "fox", "sees", "a", "red", "boat", ".")
        assert file[2].target == ("l'", "aigrette")
        assert [record.sentence_id for record in file] == [0, 1, 2, 3]
        assert counts == f"nmtalign: 4 pairs, {sum(len(record.links()) for record in file)} links"
        assert (file.attributes["direction"], file.attributes["reading"]) == ("en-fr", "current")
        assert json.loads(file.attributes["options"])["weights_of"] == "best.safetensors"


def test_progress_on_a_terminal_knows_the_number_of_pairs_also_of_compressed_texts(texts, model):
    subprocess.run(["gzip", "in.en", "out.fr"], cwd=texts, check=True)
    terminal, child_side = os.openpty()
    aligning = command("align", "in.en.gz", "out.fr.gz", "-m", model, "-o", "a.h5")
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    subprocess.run(aligning, cwd=texts, stderr=child_side, env=variables, check=True, timeout=280)
    os.close(child_side)
    shown = b""
    while b"aligning: 4 of 4 pairs" not in shown:
        shown += os.read(terminal, 65536)  # fails at the end
    os.close(terminal)


def test_pharaoh_without_output_writes_no_file(texts, model, align):
    done = align("in.en", "-", "-m", model, "--pharaoh", "-q", stdin=TARGET.encode())
    assert (done.stderr, done.stdout.count(b"\n")) == (b"", 4)
    assert not (texts / "alignments.h5").exists()


def test_a_file_is_completed_although_the_reader_of_the_links_has_gone(tmp_path, model):
    texts = write_pairs(tmp_path, "text", [("the fox sees a boat", "le renard voit un bateau")] * 1000)
    call = command("align", *texts, "-m", model, "--pharaoh", "-o", "a.h5")
    reader, gone = os.pipe()
    os.close(reader)
    done = subprocess.run(call, cwd=tmp_path, stdout=gone, stderr=subprocess.PIPE, check=False)
    os.close(gone)
    assert (done.returncode, b"wrote a.h5" in done.stderr) == (0, True), done.stderr.decode()
    assert b"1,000 pairs, " in done.stderr
    assert len(AlignmentFile(tmp_path / "a.h5")) == 1000


def test_without_arguments_it_aligns_the_test_set_of_the_workspace(texts, model, align):
    settings = '[corpus]\ntest = ["in.en", "out.fr"]\n[align]\nalignment_type = "float32"\n'
    (texts / "nmtalign.toml").write_text(f'model = "{model}"\n{settings}')
    done = align("--quiet")
    assert (done.stdout, done.stderr) == (b"", b"")
    assert AlignmentFile(texts / "alignments.h5").info()["weights"] == "float32"


def test_no_filter_by_log_probability_keeps_a_pair_with_a_blank_side(texts, model, align):
    """NaN in the file, null in JSON."""
    align("in.en", "out.fr", "-m", model, "-o", "a.h5", "--set", "alignment_type=float32")
    with AlignmentFile(texts / "a.h5") as file:
        known = [record.log_prob > -1000 for record in file]
        assert known == [not record.empty() for record in file] == [True, False, True, False]
        for record in file:
            assert bool((record.token_log_probs < 0).any()) is not record.empty()
    exported = run_nmtalign("export", "a.h5", "--format", "json", cwd=texts)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in exported.stdout.splitlines()]
    assert [line["log_prob"] is None for line in lines] == [False, True, False, True]
    assert [set(line["token_log_probs"]) == {None} for line in lines] == [False, True, False, True]
    drawn = run_nmtalign("view", "a.h5", "--sentence", 3, cwd=texts)
    assert (drawn.returncode, b"nan" in drawn.stdout) == (0, False)
    resumed = align("in.en", "out.fr", "-m", model, "-o", "a.h5", "--set", "alignment_type=float32", "--resume")
    assert b"already complete" in resumed.stderr
