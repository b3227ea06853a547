"""Lines of JSON as requests."""

import pytest

from nmtalign.config import TranslateConfig
from nmtalign.decoding.json_lines import read_request
from nmtalign.decoding.output import json_line, one_line
from nmtalign.decoding.results import Alternative, Request, Translation
from nmtalign.errors import InputError


def test_an_object_is_a_request() -> None:
    assert read_request('{"text": "the cat"}', "in: line 1") == Request("the cat")
    assert read_request('{"source": "the cat"}', "in: line 1") == Request("the cat")
    assert read_request('{"source": "the dog", "text": "the cat"}', "in: line 1") == Request("the cat")
    line = '{"text": "", "prefix": "le", "phrases": ["chat noir", ""], "id": 5, "doc": {"n": [1.5, null]}}'
    expected = Request("", "le", ("chat noir", ""), {"id": 5, "doc": {"n": [1.5, None]}})
    assert read_request(line, "in: line 1") == expected
    assert read_request('{"text": "a", "constraints": ["b"]}', "").phrases == ("b",)
    assert read_request('{"text": "a", "prefix": null, "phrases": null}', "") == Request("a")


@pytest.mark.parametrize("line", ["", " ", "\t\r", "\u2028"])
def test_a_blank_line_is_an_empty_request(line: str) -> None:
    assert read_request(line, "in: line 1") == Request("")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("the cat", "not JSON"),
        ('{"text": "the cat"', "not JSON"),
        ('{"text": "a"} {"text": "b"}', "not JSON (Extra data at column 15)"),
        ('{"text": "a", "x": NaN}', "not JSON (NaN is no number of JSON)"),
        ('{"text": "a", "x": -Infinity}', "not JSON (-Infinity is no number of JSON)"),
        ('{"text": "a", "x": ' + "9" * 5000 + "}", "not JSON (an integer has too many digits"),
        ("[" * 100_000, "not JSON (nested too deeply)"),
        ('{"text": "a", "x": ' + "[" * 200 + "]" * 200 + "}", "not JSON (nested too deeply)"),
        ('"the cat"', "a text, not an object"),
        ('["the cat"]', "a list, not an object"),
        ("17", "a number, not an object"),
        ("null", "null, not an object"),
        ("true", "true or false, not an object"),
        ('{"Text": "a"}', 'the object has no "text"'),
        ('{"text": null}', '"text" is null; write a text in quotes'),
        ('{"source": 5}', '"source" is a number; write a text in quotes'),
        ('{"text": "a", "prefix": ["b"]}', '"prefix" is a list; write a text in quotes'),
        ('{"text": "a", "phrases": "b"}', '"phrases" is a text; write a list of texts'),
        ('{"text": "a", "constraints": ["b", {}]}', '"constraints": entry 2 is an object; write a text in quotes'),
    ],
)
def test_anything_else_is_named_by_file_and_line(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_request(line, "in.jsonl: line 3")
    told = str(caught.value)
    assert told.startswith("in.jsonl: line 3: ")
    assert message in told
    assert "\n" not in told
    assert len(told) < 300


def test_half_a_character_becomes_the_replacement_character() -> None:
    found = read_request(
        '{"text": "a\\ud800b", "prefix": "\\udfff", "phrases": ["\\ud83e\\udd8a"], "k": "\\ud800"}', ""
    )
    assert (found.text, found.prefix, found.phrases) == ("a\ufffdb", "\ufffd", ("🦊",))
    assert found.extra == {"k": "\ud800"}  # passed through as it came


def test_what_was_written_can_be_read_again() -> None:
    request = read_request('{"text": "the cat", "id": "x", "doc": "é\\u2028"}', "")
    alternative = Alternative("le chat", ("le", "chat"), -0.5, -1.5, (-0.5, -0.75, -0.25))
    written = json_line(9, Translation(request, ("the", "cat"), 0, (alternative,)), TranslateConfig(word_scores=True))
    again = read_request(written, "")
    assert again.text == "the cat"
    assert (again.extra["id"], again.extra["doc"]) == ("x", "é\u2028")
    second, plain = (
        json_line(9, Translation(one, ("the", "cat"), 0, (alternative,)), TranslateConfig()) for one in (again, request)
    )
    assert second == plain


def test_what_is_nested_as_deeply_as_is_read_is_written_too() -> None:
    request = read_request('{"text": "a", "x": ' + "[" * 199 + "1e400" + "]" * 199 + "}", "here")
    assert one_line(request.extra) == '{"x": ' + "[" * 199 + "null" + "]" * 199 + "}"
    assert read_request('{"text": "' + "[" * 5000 + '"}', "here").text == "[" * 5000
