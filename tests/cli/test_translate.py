"""`nmtalign translate`: one output line for each input line of any content; options, formats, files."""

import json

import pytest
from helpers.command_line import sets

from nmtalign.processor import fastest_precision


def lines_of(done):
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode("utf-8")
    assert text.endswith("\n") or not text
    assert "\r" not in text
    return text.split("\n")[:-1]


def test_one_line_out_for_each_line_in(random_model, inside):
    lines = [
        b"the fox sees a red boat .",
        b"",
        b" \t ",
        b"the fox\r",  # CR LF
        b"the fox\rsees \xe2\x80\xa8 a boat",  # a carriage return and U+2028 inside
        b"\xc2\x85 a\x00b \x0b\x0c",  # next line, NUL, vertical tab, form feed
        b"the \xff\xfe fox",
        "</s> <unk> ||| 猫 e\u0301 \ufeff 🦊".encode(),
        b"the fox sees " * 2000,
        b"a boat",  # no newline at the end
    ]
    done = inside("-m", random_model, "--beam", 3, "--set", "max_source_length=50", text=b"\n".join(lines))
    out = lines_of(done)
    assert len(out) == len(lines)
    assert [out[1], out[2]] == ["", ""]
    assert all(out[i] for i in (0, 3, 4, 5, 6, 7, 8, 9))
    messages = done.stderr.decode().splitlines()
    assert messages[0] == "nmtalign: text: line 7: not UTF-8; the bytes that are not became U+FFFD"
    assert messages[1].startswith("nmtalign: text: line 9: a sentence has more tokens than max_source_length = 50:")
    assert "in 120 pieces" in messages[1]
    assert len(out[8].split()) > 120
    assert messages[2].startswith("nmtalign: 10 lines, ")
    assert "% of the source words are unknown" in messages[2]
    assert len(messages) == 3
    assert b"nmtalign: 1 line, 1 source word in " in inside("-m", random_model, "--beam", 3, text=b"fox").stderr


@pytest.mark.parametrize("precision", ["fp32", "int8", "auto"])
def test_the_last_line_names_the_precision(precision, random_model, inside, int8):
    done = inside("-m", random_model, "--device", "cpu", "--set", f"precision={precision}", text=b"the fox\n")
    assert len(lines_of(done)) == 1
    named = {"auto": fastest_precision()}.get(precision, precision)
    assert f"; cpu, {named}); " in done.stderr.decode().splitlines()[-1]


def test_files_in_and_file_out(random_model, tmp_path, inside):
    (tmp_path / "one.en").write_bytes(b"\xef\xbb\xbfthe fox\na boat")
    (tmp_path / "two.en").write_bytes(b"\xff\n\n")
    (tmp_path / "more.en").write_bytes(b"red\n")
    done = inside("-m", random_model, "one.en", "more.en", "two.en", "-o", "out/all.fr", "--quiet")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"nmtalign: two.en: line 1: not UTF-8; the bytes that are not became U+FFFD\n"
    out = (tmp_path / "out" / "all.fr").read_text(encoding="utf-8").split("\n")
    assert len(out) == 6
    assert (out[4], out[5]) == ("", "")
    first = lines_of(inside("-m", random_model, text=b"the fox\n"))
    assert out[0] == first[0]


def test_the_workspace_names_the_model_and_has_settings(random_model, tmp_path, inside):
    (tmp_path / "nmtalign.toml").write_text(f'model = "{random_model}"\n[translate]\nbeam = 2\nn_best = 2\n')
    assert len(lines_of(inside(text=b"the fox\n"))) == 2
    assert len(lines_of(inside("--n-best", 1, text=b"the fox\n"))) == 1


def test_no_input_and_no_model(random_model, tmp_path, inside):
    done = inside("-m", random_model, text=b"")
    assert lines_of(done) == []
    assert b"nmtalign: 0 lines" in done.stderr
    assert b"model: no nmtalign model here (no config.json); name one with -m" in inside("-").stderr
    assert list(tmp_path.iterdir()) == []


def test_without_attention(blind_model, tmp_path, inside):
    assert len(lines_of(inside("-m", blind_model, "--beam", 2, text=b"the fox\n\n"))) == 2
    needing = ["--replace-unk"], ["--save-alignments", "soft.h5"], ["--alignment", "hard"], sets(coverage_penalty=0.2)
    for option in needing:
        done = inside("-m", blind_model, *option, text=b"the fox\n")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"this model has no attention" in done.stderr
    assert not (tmp_path / "soft.h5").exists()


def test_objects_in_and_out(random_model, tmp_path, inside):
    text = b'{"text": "the fox", "n": 7}\n\n{"source": "a boat", "id": "x"}\n'
    both = ("--set", "input_format=json", "--format", "json")
    found = [json.loads(line) for line in lines_of(inside("-m", random_model, *both, text=text))]
    assert [line["id"] for line in found] == [0, 1, "x"]
    assert found[0]["n"] == 7
    plain = lines_of(inside("-m", random_model, text=b"the fox\n\na boat\n"))
    assert [line["translation"] for line in found] == plain
    done = inside("-m", random_model, "--set", "input_format=json", "-o", "out.fr", text=text + b"the fox\n")
    assert done.returncode == 3
    assert b"text: line 4: not JSON" in done.stderr
    assert done.stderr.endswith(b"; out.fr.partial contains 3 lines; --resume continues after them\n")
    assert (tmp_path / "out.fr.partial").read_text().split("\n")[:-1] == plain
