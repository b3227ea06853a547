"""A stranger's file is read within bounds: nothing in it hangs or overflows, and a refusal is one line."""

import os

import pytest

from nmtalign.untrusted import DEEPEST, open_regular, parse_json, parse_toml, read_json

DEEP = "[" * DEEPEST + "]" * DEEPEST


def test_json_and_toml_within_bounds_are_read(tmp_path):
    assert len(parse_json(DEEP)) == 1
    assert parse_json('{"a": 12345678901234567890123}') == {"a": 12345678901234567890123}
    assert parse_toml(b"a = 0x7fffffffffffffff\r\n[b]\nc = [1, {d = 2}]\n") == {
        "a": 2**63 - 1,
        "b": {"c": [1, {"d": 2}]},
    }
    (tmp_path / "a.json").write_text('{"a": "\\u00e9\\ud83d\\ude00"}')
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    assert read_json(tmp_path / "link.json") == {"a": "é😀"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        (f"[{DEEP}]", "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" * 5000, "an integer has too many digits"),
        ("{", "Expecting"),
    ],
)
def test_hostile_json_is_a_value_error_of_one_line(text, message):
    for form in (text, text.encode()):
        with pytest.raises(ValueError, match=message) as caught:
            parse_json(form)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"a = " + b"1" * 5000, "an integer has too many digits"),
        (b"a = [{b = 0x" + b"f" * 20_000 + b"}]", "does not fit in 64 bits"),
        (b"a = \xff", "utf-8"),
    ],
)
def test_hostile_toml_is_a_value_error(text, message):
    with pytest.raises(ValueError, match=message):
        parse_toml(text)


def test_half_a_character_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"a": "\\uD800"}')
    with pytest.raises(ValueError, match="surrogates"):
        read_json(tmp_path / "a.json")


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
