"""An untrusted file is read within bounds: nothing in it hangs or overflows, and a refusal is one line.

nmtalign/docs/formats.md lists what nmtalign promises about untrusted files and folders, and names the tests.
"""

import os
import re
import shutil
from pathlib import Path

import pytest
from helpers.command_line import sets

from nmtalign.errors import ResourceError
from nmtalign.files import DEEPEST, open_regular, parse_json, parse_toml, read_json, sha256_of

DEEP = "[" * DEEPEST + "]" * DEEPEST


def test_json_and_toml_within_bounds_are_read(tmp_path):
    assert len(parse_json(DEEP)) == 1
    assert parse_json('{"a": 12345678901234567890123}') == {"a": 12345678901234567890123}
    text = b"a = 0x7fffffffffffffff\r\n[b]\nc = [1, {d = 2}]\n"
    assert parse_toml(text) == {"a": 2**63 - 1, "b": {"c": [1, {"d": 2}]}}
    names = parse_toml(b"a = [" + b'"b.c", ' * 500 + b"]  # " + b"." * 500)["a"]
    assert len(names) == 500  # a long list of files is no deep key
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
    with pytest.raises(ValueError, match=message) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"a." * 1000 + b"b = 1", "nested too deeply"),
        (b"[" + b"'a.b' . " * 1000 + b"b]", "nested too deeply"),
        (b"a = " + b"1" * 5000, "an integer has too many digits"),
        (b"a = [{b = 0x" + b"f" * 20_000 + b"}]", "does not fit in 64 bits"),
        (b"a = \xff", "utf-8"),
    ],
)
def test_hostile_toml_is_a_value_error(text, message):
    with pytest.raises(ValueError, match=message):
        parse_toml(text)


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(ResourceError, match="mem: cannot read"):  # opens, and cannot be read, as on a damaged disk
        sha256_of(Path("/proc/self/mem"))


@pytest.fixture
def secrets(tmp_path: Path):
    """Makes symbolic links to files outside; at the end none of these may have changed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    made = {}

    def link(path: Path) -> None:
        secret = outside / path.name
        if path.is_dir():
            path.rename(secret)
        elif path.exists():
            shutil.move(path, secret)
        else:
            secret.write_text("secret\n")
        path.symlink_to(secret)
        made.update({one: one.read_bytes() for one in (secret, *secret.rglob("*")) if one.is_file()})

    yield link
    assert {one: one.read_bytes() for one in outside.rglob("*") if one.is_file()} == made


def test_training_replaces_links_in_the_folder_of_a_model(tmp_path, nmtalign, secrets):
    nmtalign("sample", tmp_path, "--pairs", "300")
    nmtalign("prep")
    sizes = ["--preset", "tiny", *sets(hidden=8, embedding=8, attention_hidden=8, maxout=4)]
    command = ["train", *sizes, "--max-updates", "4", "--set", "validate_every=2", "--set", "bleu_sentences=5"]
    nmtalign(*command, "--set", "checkpoint_every=2")
    for path in sorted((tmp_path / "model").iterdir()):
        secrets(path)
    nmtalign(*command, "--force", "--set", "checkpoint_every=2")
    written = {"config.json", "train.jsonl", "best.safetensors", "last.safetensors", "training_state.safetensors"}
    assert not [name for name in written if (tmp_path / "model" / name).is_symlink()]
    nmtalign("info", "model")


def test_links_refuse_links_to_folders(tmp_path, nmtalign, secrets):
    nmtalign("sample", tmp_path, "--pairs", "60")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "aligner").mkdir()
    for name in ("work", "links.txt", "links.txt.partial", "link.json"):
        secrets(tmp_path / "aligner" / name)
        done = nmtalign("link", "train.en", "train.fr", check=False)
        assert done.returncode in (2, 4, 5), done.stderr
        (tmp_path / "aligner" / name).unlink()
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_links_that_are_no_file_are_refused(tmp_path, nmtalign, make):
    nmtalign("sample", tmp_path, "--pairs", "60")
    nmtalign("link", "train.en", "train.fr", "-o", "aligner")
    (tmp_path / "aligner/links.tsv").unlink()
    make(tmp_path / "aligner/links.tsv")
    done = nmtalign("link", "train.en", "train.fr", "-o", "aligner", check=False)
    assert (done.returncode, done.stderr.decode().count("\n")) == (5, 1)
    assert "aligner/links.tsv: not a regular file" in " ".join(done.stderr.decode().split())


def test_the_tests_of_each_promise_exist():
    root = Path(__file__).parents[1]
    promises = (root / "nmtalign/docs/formats.md").read_text("utf-8").partition("## Untrusted files")[2]
    rows = [line for line in promises.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) >= 7
    for row in rows:
        named = re.findall(r"`(tests/[^`]+)`", row)
        assert all((root / name).exists() for name in named), row
        assert named or "bin/test faults" in row, row
