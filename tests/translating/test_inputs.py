"""The lines of files and pipes, JSON requests, and the counts of a run."""

import errno
import gzip
import io
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers.marked_documents import translation_of

from nmtalign.errors import InputError, ResourceError
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.lines import as_json
from nmtalign.translating.file_translation import Inputs, OutputFormat, are_files, read_request
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Alternative

# One Windows line end, an inner carriage return and U+2028, a blank line, a bad byte, no end of line at the end.
RAW = b"\xef\xbb\xbfa\r\nb\rb \xe2\x80\xa8\n\n\xff\x00\nlast"
TEXTS = ["a", "b\rb \u2028", "", "\ufffd\x00", "last"]


def test_lines_are_what_a_line_feed_ends(tmp_path):
    path = tmp_path / "in.en"
    path.write_bytes(RAW)
    inputs = Inputs((path, path))
    lines = list(inputs)
    assert [line.text for line in lines] == TEXTS * 2
    assert [line.index for line in lines] == list(range(10))
    assert (lines[8].place, lines[8].valid) == (f"{path}: line 4", False)
    assert [line.valid for line in lines].count(False) == 2
    assert inputs.size() == 2 * len(RAW)
    assert lines[-1].end == 2 * len(RAW) - 6  # two byte order marks
    assert inputs.count() == 10
    assert are_files(*inputs.paths)
    path.write_text("\ufffd\n", "utf-8")
    assert [(line.text, line.valid) for line in Inputs((path,))] == [("\ufffd", True)]


def test_several_files_one_of_them_compressed(tmp_path):
    plain, packed, empty = tmp_path / "a.en", tmp_path / "b.gz", tmp_path / "c.en"
    plain.write_bytes(RAW)
    packed.write_bytes(gzip.compress(RAW * 50))
    empty.write_bytes(b"")
    inputs = Inputs((plain, empty, packed))
    lines = list(inputs)
    assert [line.text for line in lines[:6]] == [*TEXTS, "\ufeffa"[1:]]
    assert lines[5].place == f"{packed}: line 1"
    assert len(lines) == inputs.count() == 5 + 4 * 50 + 1
    assert inputs.size() is None
    assert are_files(*inputs.paths)


def test_the_size_of_compressed_standard_input_is_not_known(tmp_path):
    before = os.dup(0)
    try:
        for data, size in ((RAW, len(RAW)), (gzip.compress(RAW), None)):
            (tmp_path / "in").write_bytes(data)
            with (tmp_path / "in").open("rb") as stream:
                os.dup2(stream.fileno(), 0)
            assert (Inputs((Path("-"),)).size(), os.lseek(0, 0, os.SEEK_CUR)) == (size, 0)
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_what_cannot_be_read_is_named(tmp_path, monkeypatch):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=f"{path}: (cannot read|is a folder)"):
            list(Inputs((path,)))
    damaged = Inputs((Path("/proc/self/mem"),))  # opens, and its first bytes cannot be read, as on a damaged disk
    assert damaged.size() is None
    with pytest.raises(ResourceError, match="mem: cannot read"):
        list(damaged)
    with pytest.raises(InputError, match="none: cannot read"):
        assert are_files(Path("-"), tmp_path / "none")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(os.urandom(60000).hex().encode())[:50000])  # random bytes may look like UTF-16
    with pytest.raises(InputError, match=r"cut.gz: cannot read further: .*is the file complete"):
        list(Inputs((cut,)))
    with pytest.raises(InputError, match=r"cut.gz: cannot read further: .*is the file complete"):
        Inputs((cut,)).count()
    monkeypatch.setattr(io, "FileIO", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(ResourceError, match=r"cut.gz: cannot read: Permission denied"):
        list(Inputs((cut,)))


def test_an_object_is_a_request_and_a_blank_line_an_empty_one():
    assert read_request('{"text": "the cat"}', "in: line 1") == Request("the cat")
    assert read_request('{"source": "the cat"}', "in: line 1") == Request("the cat")
    assert read_request('{"source": "the dog", "text": "the cat"}', "in: line 1") == Request("the cat")
    line = '{"text": "", "prefix": "le", "phrases": ["chat noir", ""], "id": 5, "doc": {"n": [1.5, null]}}'
    expected = Request("", "le", ("chat noir", ""), {"id": 5, "doc": {"n": [1.5, None]}})
    assert read_request(line, "in: line 1") == expected
    assert read_request('{"text": "a", "constraints": ["b"]}', "").phrases == ("b",)
    assert read_request('{"text": "a", "prefix": null, "phrases": null}', "") == Request("a")
    assert [read_request(blank, "") for blank in ("", " ", "\t\r", "\u2028")] == [Request("")] * 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("the cat", "not JSON"),
        ('{"text": "the cat"', "not JSON"),
        ('{"text": "a"} {"text": "b"}', "not JSON (Extra data at column 15)"),
        ('{"text": "a", "x": NaN}', "not JSON (NaN is no number of JSON)"),
        ('{"text": "a", "x": ' + "[" * 200 + "]" * 200 + "}", "not JSON (nested too deeply)"),
        ('["the cat"]', ": not an object; write"),
        ("null", ": not an object; write"),
        ('{"Text": "a"}', 'the object has no "text"'),
        ('{"text": null}', '"text" is not a text; write one in quotes'),
        ('{"source": 5}', '"source" is not a text'),
        ('{"text": "a", "prefix": ["b"]}', '"prefix" is not a text'),
        ('{"text": "a", "phrases": "b"}', '"phrases" is not a list; write one of texts'),
        ('{"text": "a", "constraints": ["b", {}]}', '"constraints": entry 2 is not a text'),
    ],
)
def test_anything_else_is_named_by_file_and_line(line, message):
    with pytest.raises(InputError) as caught:
        read_request(line, "in.jsonl: line 3")
    messages = str(caught.value)
    assert messages.startswith("in.jsonl: line 3: ")
    assert message in messages
    assert "\n" not in messages
    assert len(messages) < 300


def test_what_was_written_can_be_read_again():
    request = read_request('{"text": "the cat", "id": "x", "doc": "é\\u2028"}', "")
    alternative = Alternative("le chat", ("le", "chat"), -0.5, -1.5, (-0.5, -0.75, -0.25))
    translation = translation_of(request, ("the", "cat"), 0, alternative)
    written = OutputFormat(TranslateConfig(word_scores=True)).json_line(9, translation)
    again = read_request(written, "")
    assert again.text == "the cat"
    assert (again.extra["id"], again.extra["doc"]) == ("x", "é\u2028")
    both = (translation_of(one, ("the", "cat"), 0, alternative) for one in (again, request))
    second, plain = (OutputFormat(TranslateConfig()).json_line(9, one) for one in both)
    assert second == plain


def test_what_is_nested_as_deeply_as_is_read_is_written_too():
    request = read_request('{"text": "a", "x": ' + "[" * 199 + "1e400" + "]" * 199 + "}", "here")
    assert as_json(request.extra) == '{"x": ' + "[" * 199 + "null" + "]" * 199 + "}"
    assert read_request('{"text": "' + "[" * 5000 + '"}', "here").text == "[" * 5000
