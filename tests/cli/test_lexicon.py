"""`nmtalign lexicon` through real pipes."""

import gzip
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import run_nmtalign
from helpers.raw_links import write_raw_links

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.cli.app import main
from nmtalign.data.corpus import Corpus
from nmtalign.search.candidates import CandidateLists
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import Vocabulary, read_entries

SOURCE = "the fox.\nthe boat.\na fox.\n\na boat.\n"
TARGET = "le renard.\nle bateau.\nun renard.\n\nun bateau.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.en").write_text(SOURCE)
    with gzip.open(tmp_path / "out.fr.gz", "wt") as stream:
        stream.write(TARGET)
    (tmp_path / "moses").mkdir()
    tokenizers = Tokenizers.moses("en", "fr")
    tokenizers.save(tmp_path / "moses")
    for side, tokenizer, text in (("source", tokenizers.source, SOURCE), ("target", tokenizers.target, TARGET)):
        words = Counter(word for line in text.splitlines() for word in tokenizer.tokenize(line))
        Vocabulary.shortlist(words.items(), 100).save(tmp_path / "moses" / f"{side}.vocabulary.txt")
    (tmp_path / "links.txt").write_text("0-0 1-1 2-2\n0-0\n0-0 1-1\n\n1-0\n")
    with AlignmentWriter(tmp_path / "a.h5", {}) as writer:
        writer.append(["the", "fox"], ["le", "renard"], np.eye(3), -2.5)
        writer.append(["the"], ["la"], np.eye(2), -1.0)
    return tmp_path


def run(folder: Path, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_nmtalign("lexicon", *arguments, cwd=folder, stdin=stdin, variables={"PYTHONWARNINGS": "error"})


def best(text: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.decode().splitlines():
        source, target, probability = line.split("\t")
        assert 0 < float(probability) <= 1
        found.setdefault(source, target)
    return found


def test_from_a_pipe_to_a_pipe_and_to_a_file(folder: Path) -> None:
    done = run(folder, "-", "out.fr.gz", "-m", "moses", stdin=SOURCE.encode())
    assert done.returncode == 0, done.stderr.decode()
    assert best(done.stdout) == {".": ".", "a": "un", "boat": "bateau", "fox": "renard", "the": "le"}
    assert done.stderr.decode().startswith("nmtalign: 4 pairs (1 more are empty or too long): ")
    filed = run(folder, "in.en", "out.fr.gz", "-m", "moses", "-o", "made/lexicon.txt", "--quiet")
    assert (filed.stdout, filed.stderr) == (b"", b"")
    assert (folder / "made" / "lexicon.txt").read_bytes() == done.stdout


def test_without_arguments_it_reads_the_corpus_of_the_workspace(folder: Path, reversal: Corpus) -> None:
    (folder / "nmtalign.toml").write_text(f'data = "{reversal.folder}"\n')
    done = run(folder, "--top", "1")
    assert done.returncode == 0, done.stderr.decode()
    found = best(done.stdout)
    assert found == {word: word.upper() for word in reversal.source_vocabulary.words[2:]}
    # A corpus may be named, and the direction turned.
    (folder / "lexicon.txt").write_bytes(run(folder, reversal.folder, "--reverse", "--every", "2").stdout)
    assert {line[0].lower() for line in read_entries(folder / "lexicon.txt")} == set(found)
    lists = CandidateLists.read(folder / "lexicon.txt", reversal.target_vocabulary, reversal.source_vocabulary, 1)
    assert len(lists.of([[2]]).words) > 3


def test_links_are_counted_not_learned(folder: Path) -> None:
    done = run(folder, "in.en", "out.fr.gz", "-m", "moses", "--links", "links.txt")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == [
        ".\t.\t1", "a\tun\t1", "boat\tun\t1", "fox\trenard\t1", "the\tle\t1",
    ]  # fmt: skip
    assert done.stderr.decode() == "nmtalign: 5 pairs, 7 links: 5 entries for 5 words\n"
    # Split at spaces, "fox." is a word; if the texts are exchanged, the links are exchanged, too.
    spaced = run(folder, "in.en", "out.fr.gz", "--tokenized", "--links", "-", "--reverse", stdin=b"1-1\n\n\n\n\n")
    assert spaced.stdout.decode() == "renard.\tfox.\t1\n"


def test_stored_alignments(folder: Path) -> None:
    done = run(folder, "a.h5", "-q", "--min-probability", "0.5")
    assert (done.stdout.decode(), done.stderr) == ("fox\trenard\t1\nthe\tla\t0.5\nthe\tle\t0.5\n", b"")


MISTAKES = [
    (("in.en",), 2, "in.en: one text is given; give the source and its translation: SRC TGT"),
    (("in.en", "out.fr.gz"), 2, "give a model or corpus with -m, or --tokenized"),
    (("in.en", "out.fr.gz", "-m", "moses", "--tokenized"), 2, "leave --model out, or --tokenized"),
    (("a.h5", "--links", "links.txt"), 2, "--links is for two texts"),
    (("--tokenized",), 2, "--tokenized is for two texts"),
    (("-", "-", "--tokenized"), 2, "only one of SRC, TGT and --links can be stdin"),
    (("a.h5", "--min-probability", "nan"), 2, "--min-probability nan: must be at least 0"),
    (("a.h5", "--top", "0"), 2, "--top 0: must be at least 1"),
    (("in.en", "links.txt", "--tokenized", "--links", "in.en"), 3, "in.en: line 1: 'the' is not a link"),
    (("in.en", "empty", "--tokenized"), 3, "empty: has no line 1, but in.en has 5 lines"),
    (("empty", "empty", "--tokenized"), 3, "no pairs to learn from"),
    (("empty", "empty", "--tokenized", "--links", "empty"), 3, "empty: no links to count"),
    (("none.en", "in.en", "--tokenized"), 3, "none.en: cannot read"),
    ((), 4, "data: no prepared corpus here"),
    (("moses",), 4, "moses: no prepared corpus here"),
    (("missing.h5",), 4, "missing.h5: no such file"),
    (("in.en", "out.fr.gz", "-m", "nowhere"), 4, "nowhere/tokenizer.json: cannot read"),
    (("a.h5", "-o", "in.en/lexicon.txt"), 5, "in.en: cannot make the folder"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES)
def test_a_mistake_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (folder / "empty").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("signal.signal", lambda number, action: None)
    monkeypatch.setattr(sys, "argv", ["nmtalign", "lexicon", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    written = capfd.readouterr()
    assert ended.value.code == code, written.err
    assert written.err.count("\n") == 1
    assert message in written.err


def test_an_output_does_not_replace_a_text(folder: Path) -> None:
    done = run(folder, "in.en", "out.fr.gz", "--tokenized", "-o", "in.en")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"nmtalign: error: in.en: is also an input; give the output another name\n"
    assert (folder / "in.en").read_text() == SOURCE


def test_links_that_count_words_between_spaces_become_those_of_tokens(tmp_path: Path) -> None:
    write_raw_links(tmp_path, 300)
    Tokenizers.moses("en", "fr").save(tmp_path / "data")
    arguments = "train.en", "train.fr", "--top", 1, "--links"
    raw, right = (run(tmp_path, *arguments, name) for name in ("words.links", "train.align"))
    assert raw.stderr.decode().startswith("nmtalign: words.links: counts the words between spaces;")
    assert "between spaces" not in right.stderr.decode()
    found, expected = best(raw.stdout), best(right.stdout)
    assert found["friend"] == "ami"
    assert sum(found.get(word) == target for word, target in expected.items()) > 0.9 * len(expected)
