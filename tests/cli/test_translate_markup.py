"""`nmtalign translate --markup`: one document in, one document out."""

import gzip
import re

import pytest
from helpers.parallel_texts import write_pairs

from nmtalign import link

HTML = b"<h1>The <b>fox</b> sees</h1>\n<p title='the'>a red <i>boat</i>. The fox sees {name}.<br>\n<!-- fox -->"


@pytest.fixture
def run(random_model, inside):
    return lambda *arguments, text=HTML: inside("-m", random_model, *arguments, text=text)


def test_html_keeps_all_but_its_text(run):
    done = run("--markup", "html")
    assert done.returncode == 0, done.stderr
    pattern = rb"<[^>]*>|\{name\}"
    assert sorted(re.findall(pattern, done.stdout)) == sorted(re.findall(pattern, HTML))
    expected = [b"<h1>", b"</h1>\n<p title='the'>", b"<br>\n<!-- fox -->"]
    assert re.findall(rb"^<h1>|</h1>\n<p title='the'>|<br>\n<!-- fox -->$", done.stdout) == expected
    assert b"sees" not in done.stdout
    assert done.stderr.startswith(b"nmtalign: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (b"<meta charset='iso-8859-1'><p>%s", b"le caf\xe9 &#337;\x85"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=Windows-1250"><p>%s', b"le caf\xe9 \xf5\x85"),
        (b'<?xml version="1.0" encoding="koi8-r"?><p>%s', b"le caf&#233; &#337;&#8230;"),
        (b"<meta charset=windows-1252><!-- \x93 \xe9 --><p>%s", b"le caf\xe9 &#337;\x85"),
        (b"<meta charset=windows-1252><!-- \xc3\xa9 --><p>%s", "le café ő…".encode()),
        (b"<meta charset=utf-8><p>%s", "le café ő…".encode()),
        (b"<meta charset=utf-7><p>%s", "le café ő…".encode()),
        (b"\xef\xbb\xbf<meta charset=iso-8859-1><p>%s", "le café ő…".encode()),
    ],
)
def test_a_page_keeps_the_encoding_that_it_declares(run, monkeypatch, page, found):
    monkeypatch.setattr("nmtalign.translating.translator.Translator._text", lambda *_: "le café ő…")
    done = run("--markup", "html", text=page % b"the fox")
    assert (done.returncode, done.stdout) == (0, page % found)


def test_a_file_is_written_when_it_is_complete(run, tmp_path):
    (tmp_path / "page.html").write_bytes(HTML)
    assert run("--markup", "html", "page.html", "-o", "out.html.gz", "-q", text=None).returncode == 0
    with gzip.open(tmp_path / "out.html.gz") as stream:
        assert stream.read() == run("--markup", "html").stdout
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.html.gz"]


def test_an_aligner_can_place_the_tags(run, blind_model, inside, tmp_path):
    pairs = [("the fox sees a red boat .", "le renard voit un bateau rouge .")] * 20
    link(*write_pairs(tmp_path, "train", pairs), tmp_path / "aligner")
    done = inside("-m", blind_model, "--markup", "html", "--set", "aligner=aligner", text=HTML)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"<b>") == done.stdout.count(b"<i>") == done.stdout.count(b"{name}") == 1
    done = inside("-m", blind_model, "--markup", "html", text=HTML)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"this model has no attention" in done.stderr
    assert b"aligner" in done.stderr


def test_a_wrong_aligner_is_an_error_before_the_translation(run, monkeypatch):
    monkeypatch.delattr("nmtalign.translating.translator.Translator.translate_numbered")
    assert run("--markup", "html", "--set", "aligner=absent").returncode == 4


def test_a_document_that_is_too_large_is_named(run, tmp_path):
    (tmp_path / "page").write_bytes(gzip.compress(bytes((64 << 20) + 1)))
    done = run("--markup", "html", "page", text=None)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"nmtalign: error: page: larger than 64 MiB, decompressed")
