"""`nmtalign aer` against a count by hand, through the real command line."""

import csv
import gzip
import io
import json
from functools import partial

import numpy as np
import pytest
from helpers.commands import run
from helpers.raw_links import write_raw_links
from helpers.records import add

from nmtalign.alignment.alignment_file import AlignmentWriter

# Pair 1: A = 00 12 22 33, S = 00 12 21, P = S + 33; pair 2: A = 00, S = 00 01; pair 3: A = 11, S = 00, P = S + 11.
LINKS = "0-0 1-2 2-2 3-3\n0-0\n1-1\n"
GOLD = "0-0 1-2 2-1 3p3\n0-0 0-1\n0-0 1?1\n"
NUMBERED = "0001 1 1 S\n0001 2 3 S\n0001 3 2 S 0.9\n1 4 4 P 1\n0002 1 1\n0002 1 2\n\n0003 1 1\n0003 2 2 P\n"
# |A| = 6, |S| = 6, |A and S| = 3, |A and P| = 5.
BY_HAND = {"precision": 5 / 6, "recall": 3 / 6, "aer": 1 - (3 + 5) / 12, "f1": 2 * (5 / 6) * 0.5 / (5 / 6 + 0.5)}


@pytest.fixture
def folder(tmp_path):
    texts = {
        "links": LINKS,
        "gold": GOLD,
        "numbered": NUMBERED,
        "from1": "1-1 2-3 3-3 4-4\n1-1\n2-2\n",
        "turned": "0-0 2-1 2-2 3-3\n0-0\n1-1\n",
        "in.en": "a b c d\ne\nf g h\n",
        "out.fr": "a b c d\ne f\ng h\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with gzip.open(tmp_path / "links.gz", "wt") as stream:
        stream.write(LINKS)
    with AlignmentWriter(tmp_path / "a.h5", {"links_method": "argmax", "model_hash": "0123456789abcdef"}) as writer:
        links = [[0, 2, 1, 3], [0, 1], [1, 1]]
        for source, target, found in zip(["a b c d", "e", "f g h"], ["a b c d", "e f", "g h"], links, strict=True):
            weights = np.zeros((len(target.split()) + 1, len(source.split()) + 1))
            weights[range(len(found)), found] = 0.6
            weights[:, -1] += 1 - weights.sum(axis=1)
            add(writer, source.split(), target.split(), weights, -1.0)
    return tmp_path


@pytest.fixture
def aer(folder, here):
    """(exit code, stdout, stderr) of `nmtalign aer ARGUMENTS`."""
    return partial(here, "aer")


READINGS = ["links gold", "links numbered", "links.gz numbered", "from1 gold --links-base 1", "-g gold links"]
READINGS += ["turned gold --set reverse_links=true", "links gold -s in.en -t out.fr"]


@pytest.mark.parametrize("arguments", READINGS)
def test_every_reading_gives_the_count_by_hand(aer, arguments):
    code, out, err = aer(*arguments.split(), "--format", "json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert {name: record[name] for name in BY_HAND} == pytest.approx(BY_HAND)
    counts = {"pairs": 3, "sure": 6, "links": 6, "links_sure": 3, "links_possible": 5}
    assert {name: record[name] for name in counts} == counts


def test_words_are_those_of_link_and_align(aer, folder):
    (folder / "in.en").write_text("a\u00a0b c\u2028 d e\ne\nf g h\n")  # four words between ASCII blanks
    code, out, err = aer("links", "gold", "-s", "in.en", "-t", "out.fr", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["pairs"] == 3
    (folder / "in.en").write_text("a\u00a0b\u00a0c d\ne\nf g h\n")  # two words: the links 2-1 and 3-3 are outside
    code, _, err = aer("links", "gold", "-s", "in.en", "-t", "out.fr")
    assert code == 3
    assert "outside" in err


def test_the_table_and_its_signature(aer):
    code, out, _ = aer("links", "numbered")
    assert code == 0
    assert out.splitlines()[:3] == [
        "pairs: 3  gold: 6 sure links, 8 with the possible ones",
        "links of  found  precision  recall     AER      F1",
        "links         6     0.8333  0.5000  0.3333  0.6250",
    ]
    signature = out.splitlines()[3]
    assert signature.startswith("AER|links:links,Pharaoh,from-0|gold:numbered,NAACL,from-1|pairs:3|sure:6|possible:8|")
    _, out, _ = aer("turned", "gold", "--set", "reverse_links=true")
    assert "links:turned,Pharaoh,from-0,target-first|" in out


@pytest.mark.parametrize(
    ("attributes", "method"),
    [
        ({"links_method": "threshold", "threshold": 0.1}, "threshold,0.1"),
        ({"links_method": "argmax", "symmetrization": "agreement", "threshold": 0.6}, "agreement,0.6"),
        ({"links_method": "argmax", "symmetrization": "grow-diag", "threshold": 0.0}, "argmax,grow-diag"),
    ],
)
def test_the_signature_says_how_stored_links_were_made(aer, folder, attributes, method):
    with AlignmentWriter(folder / "b.h5", {"model_hash": "a" * 64 + "+" + "b" * 64, **attributes}) as writer:
        for source, target in (("a b c d", "a b c d"), ("e", "e f"), ("f g h", "g h")):
            words = source.split(), target.split()
            add(writer, *words, np.eye(len(words[1]) + 1, len(words[0]) + 1), -1.0)
    signature = json.loads(aer("b.h5", "gold", "--format", "json")[1])["signature"]
    assert f"|method:{method}|" in signature
    assert f"|model:{'a' * 12}+{'b' * 12}|" in signature


def test_the_links_of_an_alignment_file(aer, folder):
    # The stored links are those with the largest weight: 00 21 12 33; 00 11 is no link, that is `</s>`; 10 11.
    _, out, _ = aer("a.h5", "gold", "--format", "json")
    record = json.loads(out)
    assert (record["links"], record["links_sure"], record["links_possible"]) == (7, 4, 6)
    assert "|method:argmax|" in record["signature"]
    assert "|model:0123456789ab|" in record["signature"]
    with AlignmentWriter(folder / "forged.h5", {"model_hash": 5}) as writer:
        add(writer, ["a"], ["b"], np.eye(2), -1.0)
    (folder / "one").write_text("0-0\n")
    assert "|model:5|" in aer("forged.h5", "one")[1]


def test_several_systems_are_rows_of_one_table(aer):
    _, out, _ = aer("ours=links", "numbered", "-g", "gold")
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["ours", "numbered"]
    _, out, _ = aer("ours=links", "numbered", "gold", "--format", "json")
    assert [json.loads(line)["aer"] for line in out.splitlines()] == [pytest.approx(1 / 3), 0]


def test_comma_separated_values(aer):
    _, out, _ = aer("a,b=links", "numbered", "-g", "gold", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["name"] for row in rows] == ["a,b", "numbered"]
    assert float(rows[0]["aer"]) == pytest.approx(1 / 3)
    assert rows[0]["signature"].startswith("AER|")


def test_hints(aer, folder):
    _, _, err = aer("from1", "gold")
    assert err == "nmtalign: from1: no position is 0; if positions count from 1 there, give --links-base 1\n"
    assert "no position is 0" not in aer("from1", "gold", "--links-base", "0")[2]
    (folder / "short").write_text("1 1 1\n")
    _, _, err = aer("links", "short")
    assert "short: ends with sentence 1 of 3; the others count as sentences without gold links" in err
    (folder / "far").write_text("2-0 3-1\n\n\n")
    (folder / "near").write_text("0-2 1-3\n\n\n")
    for arguments, fix in (
        (("near",), "if it has the target first, give --set reverse_links=true (or --reverse-gold)"),
        (("far", "--reverse-gold"), "if it has the target first, give --set reverse_links=true (or leave out "),
        (("far", "--set", "reverse_links=true"), "leave out --set reverse_links=true (or --reverse-gold)"),
    ):
        note = "far: with source and target exchanged its AER would be 0.0000 and not 1.0000"
        assert f"{note}; {fix}" in aer("far", *arguments)[2]
    assert "with source and target exchanged" not in aer("far", "near", "--reverse-gold")[2]
    assert aer("far", "near", "-q")[2] == ""


def test_links_from_a_pipe_and_gold_of_the_workspace(folder, aer):
    (folder / "nmtalign.toml").write_text('[corpus]\ngold = "gold"\n')
    for arguments in (["-"], ["-", "numbered"], ["-g", "gold"]):
        done = run(folder, "aer", *arguments, stdin=LINKS.encode())
        assert (done.returncode, done.stderr) == (0, "")
        assert "stdin         6     0.8333  0.5000  0.3333  0.6250" in done.stdout
    (folder / "a.h5").rename(folder / "alignments.h5")
    assert "alignments.h5" in aer()[1]


def test_a_terminal_is_not_read(aer, folder, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert aer("-g", "gold")[0] == 2
    (folder / "a.h5").rename(folder / "alignments.h5")
    code, out, _ = aer("-g", "gold")
    assert (code, "links:alignments.h5,HDF5" in out) == (0, True)


def test_links_that_count_other_words_than_the_gold_links(aer, folder):
    """They are converted with the texts, given or of the workspace; without raw texts they are refused."""
    write_raw_links(folder)
    in_workspace = aer("words=words.links", "tokens=train.align", "-g", "train.align", "--format", "json")
    (folder / "nmtalign.toml").unlink()
    texts = "-s", "train.en", "-t", "train.fr"
    for code, out, err in (in_workspace, aer("words.links", "train.align", *texts, "--format", "json")):
        assert (code, err.count("words.links: counts the words between spaces")) == (0, 1)
        figures = json.loads(out.splitlines()[0])
        assert figures["aer"] < 0.1
        assert "words-to-tokens" in figures["signature"]
    assert json.loads(in_workspace[1].splitlines()[1])["aer"] == 0
    piped = "words.links", "train.align", "-s", "-", "-t", "train.fr", "--format", "json"  # a stream is read only once
    done = run(folder, "aer", *piped, stdin=(folder / "train.en").read_bytes())
    assert json.loads(done.stdout)["aer"] == figures["aer"], done.stderr
    assert "gold-method:words-to-tokens" in aer("train.align", "words.links", *texts)[1]
    tokenised = "-s", "train.tok.en", "-t", "train.tok.fr"
    for names in (("words.links", "train.align"), ("train.align", "words.links", *tokenised)):
        code, out, err = aer(*names)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert "words.links: counts the words between spaces, and train.align counts tokens" in err
    # Two files that count alike are compared as they are.
    code, out, _ = aer("words.links", "words.links", *texts)
    assert (code, "tokens" in out) == (0, False)
