from pathlib import Path

import pytest
from nmtalign.text.lexicon import read_entries

from nmtalign.errors import FormatError


def test_entries_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lexicon"
    path.write_text("fox renard 0.4\nfox\tgoupil  0.6\nox bœuf\nNULL le 1\nfox <eps> -0.1\na\u00a0b ab -3.5\n")
    assert list(read_entries(path)) == [
        ("fox", "renard", 0.4), ("fox", "goupil", 0.6), ("ox", "bœuf", 1.0), ("a\u00a0b", "ab", -3.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fox", "1 fields"),
        ("", "0 fields"),
        ("the red fox 0.5", "4 fields"),
        ("red fox renard", "'renard' is not a probability"),
        ("fox renard nan", "'nan' is not a probability"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "lexicon"
    path.write_text(f"a un 1\n{line}\n")
    with pytest.raises(FormatError) as raised:
        list(read_entries(path))
    assert str(raised.value).startswith(f"{path}: line 2: ")
    assert message in str(raised.value)


def test_a_lexicon_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="none: cannot read"):
        list(read_entries(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"a un\n\xff un\n")
    with pytest.raises(FormatError, match="line 2: not UTF-8"):
        list(read_entries(tmp_path / "bytes"))
