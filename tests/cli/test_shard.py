"""`--shard I/N` of translate and align: blocks of the input, whose outputs one after the other are the complete one."""

import gzip

import pytest
from helpers.command_line import run_nmtalign
from helpers.commands import assert_same_lines

import nmtalign
from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.errors import UsageError
from nmtalign.text.lines import Shard

LINES = ["the fox sees a red boat .", "", "a boat", "the fox", "red", "the the a .", "fox boat fox", "a", "sees ."]
FORMS = [(), ("--n-best", "2", "--format", "json"), ("--n-best", "2"), ("--set", "sample=true", "--n-best", "2")]


@pytest.fixture
def texts(tmp_path):
    """Two files of the same 9 lines, one of them compressed, and their translations."""
    text = "".join(f"{line}\n" for line in LINES)
    (tmp_path / "in.en").write_text(text)
    (tmp_path / "more.en.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "out.fr").write_text("le renard voit\n" * 9)
    return tmp_path


@pytest.mark.parametrize("count", [1, 2, 9, 40])
@pytest.mark.parametrize("lines", [0, 1, 9, 1000])
def test_blocks_are_equal_and_cover_all_lines(lines, count):
    blocks = [Shard(number, count).block(lines) for number in range(1, count + 1)]
    assert [line for block in blocks for line in block] == list(range(lines))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1.0/2", "٣/٤", f"1/{9**12}"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(UsageError, match="give I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0].strip("-") if form else "text")
def test_the_translations_of_all_blocks_in_order_are_those_of_the_text(random_model, texts, inside, form):
    arguments = "-m", random_model, "--beam", 3, *form, "in.en", "more.en.gz"
    whole = inside(*arguments).stdout.decode()
    assert whole.count("\n") >= 18
    parts = [inside(*arguments, "--shard", f"{number}/4").stdout for number in range(1, 5)]
    assert_same_lines(b"".join(parts).decode(), whole)


def test_a_block_that_was_cut_off_is_continued(random_model, texts, inside, unfinished):
    arguments = "-m", random_model, "--beam", 3, *FORMS[1], "in.en", "--shard", "2/2", "-o", "part"
    whole = unfinished(*arguments)
    assert inside(*arguments, "--resume").returncode == 0
    assert_same_lines((texts / "part").read_text(), whole.decode())
    done = inside(*arguments, "--resume").stderr
    assert b"already done: it contains 5 translations, as many as shard 2/2 has lines" in done


def test_an_empty_block_has_an_empty_output(random_model, texts, inside):
    done = inside("-m", random_model, "in.en", "--shard", "1/20", "-o", "part", "--resume")
    assert (done.returncode, (texts / "part").read_bytes()) == (0, b"")


def test_saved_alignments_are_numbered_as_in_the_text(random_model, texts, inside):
    arguments = "-m", random_model, "in.en", "-o", "part", "--save-alignments", "part.h5"
    assert inside(*arguments, "--shard", "2/3").returncode == 0
    with AlignmentFile(texts / "part.h5") as alignments:
        assert [record.sentence_id for record in alignments] == [3, 4, 5]


def test_python_names_a_block_as_the_command_does(random_model, texts, inside):
    nmtalign.translate_files(random_model, texts / "in.en", texts / "part", shard="2/3")
    assert (texts / "part").read_bytes() == inside("-m", random_model, "in.en", "--shard", "2/3").stdout
    assert nmtalign.align_files(random_model, texts / "in.en", texts / "out.fr", shard="2/3").pairs == 3
    with pytest.raises(UsageError, match="give I/N"):
        nmtalign.align_files(random_model, texts / "in.en", texts / "out.fr", shard="2 of 3")


def test_a_pipe_has_no_blocks_but_a_file_on_stdin_has(random_model, texts):
    arguments = "translate", "-m", random_model, "--shard", "1/3", "-q"
    done = run_nmtalign(*arguments, cwd=texts, stdin=b"the fox\n")
    assert done.returncode == 2
    message = "standard input: a shard needs a regular file, because its lines are counted first"
    assert done.stderr.decode().splitlines() == [f"nmtalign: error: {message}"]
    assert run_nmtalign(*arguments, texts / "in.en", cwd=texts).stdout.count(b"\n") == 3


def test_the_links_of_all_blocks_in_order_are_those_of_the_text(random_model, texts):
    def align(*arguments):
        return run_nmtalign("align", "in.en", "out.fr", "-m", random_model, "-q", *arguments, cwd=texts)

    whole = align("--pharaoh").stdout
    assert whole.count(b"\n") == 9
    assert b"".join(align("--pharaoh", "--shard", f"{number}/4").stdout for number in range(1, 5)) == whole
    assert align("-o", "part.h5", "--shard", "2/3").returncode == 0
    with AlignmentFile(texts / "part.h5") as alignments:
        assert [record.sentence_id for record in alignments] == [3, 4, 5]
    done = align("-o", "part.h5", "--shard", "1/3", "--resume")
    assert (done.returncode, b"options.shard = 2/3, and now it is 1/3" in done.stderr) == (2, True)
    done = align("--shard", "2/1")
    assert (done.returncode, done.stderr.count(b"\n"), b"give I/N" in done.stderr) == (2, 1, True)
    (texts / "out.fr").write_text("le renard voit\n" * 8)
    done = align("--pharaoh", "--shard", "1/3")
    assert (done.returncode, done.stdout, b"has no line 9" in done.stderr) == (3, b"", True)
    (texts / "out.fr").unlink()
    done = align("--pharaoh", "--shard", "1/3")
    assert (done.returncode, b"out.fr: cannot read: No such file or directory" in done.stderr) == (3, True), done.stderr
