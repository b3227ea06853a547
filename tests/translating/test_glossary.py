"""Glossaries: which terms a text contains, and which files are refused."""

from pathlib import Path

import pytest

from nmtalign.errors import InputError
from nmtalign.translating.glossary import Glossary


def glossary(tmp_path: Path, text: str, tokenized: bool = False) -> Glossary:
    (tmp_path / "terms.tsv").write_text(text, encoding="utf-8")
    return Glossary.read(tmp_path / "terms.tsv", tokenized)


TERMS = """# animals
fox\trenard
red fox\trenard roux
sees the red\tvoit le
Fox\tM. Renard

e-mail\tcourriel
#hash\tdièse
猫\tchat
黒い猫\tchat noir
U.S.\tÉtats-Unis
"""


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("the fox, and a fox.", ["renard", "renard"]),
        ("THE FOX", ["renard"]),  # a term in lower case
        ("Mr Fox and the fox", ["M. Renard", "renard"]),  # the same case comes first
        ("the foxes and an outfox", []),
        ("fox's 'fox'", ["renard", "renard"]),
        ("the red fox", ["renard roux"]),
        ("sees the red fox", ["voit le", "renard"]),  # three words before two
        ("fox-like mail e-mail", ["courriel"]),
        ("#hash", ["dièse"]),
        ("黒い猫と猫", ["chat noir", "chat"]),
        ("the U.S. army", ["États-Unis"]),
        ("the u.s. army", []),
        ("", []),
        ("animals", []),
    ],
)
def test_terms_of_a_text(tmp_path: Path, text: str, targets: list[str]) -> None:
    assert glossary(tmp_path, TERMS).targets(text) == targets


def test_words_of_tokenised_text_are_the_parts_between_spaces(tmp_path: Path) -> None:
    found = glossary(tmp_path, "▁fox\t▁renard\na b\tx\n", tokenized=True)
    assert found.targets("▁the ▁fox es ▁Fox a b a-b") == ["▁renard", "▁renard", "x"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fox renard", "has no tab; write a term, a tab and its translation"),
        ("fox\t", "has an empty side"),
        ("\trenard", "has an empty side"),
        ("fox\trenard\tm", "has more than one tab"),
        ("cat\tchatte", "'cat' has another translation in line 1"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"terms\.tsv: line 3: {message}"):
        glossary(tmp_path, f"cat\tchat\n\n{line}\n")


def test_equal_lines_and_empty_files_are_accepted(tmp_path: Path) -> None:
    assert glossary(tmp_path, "cat\tchat\ncat\tchat\r\n").targets("a cat") == ["chat"]
    assert glossary(tmp_path, "").targets("a cat") == []
    with pytest.raises(InputError, match="cannot read"):
        Glossary.read(tmp_path / "none.tsv")


def test_a_large_glossary(tmp_path: Path) -> None:
    large = glossary(tmp_path, "".join(f"term{number} of law\tterme{number}\n" for number in range(100_000)))
    assert large.targets("the term7 of law and the term8 of laws; Term99999 of Law") == ["terme7", "terme99999"]
