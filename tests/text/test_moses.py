import os
import pickle
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from nmtalign.text import tokenizer as moses
from nmtalign.text.lines import read_lines
from nmtalign.text.tokenizer import MosesWords, has_rules, letters_of

ENGLISH, FRENCH = MosesWords("en"), MosesWords("fr")
OURS = {language: MosesWords(language) for language in ("en", "fr", "fi")}
THEIRS = {language: MosesTokenizer(lang=language) for language in OURS}
PIECES = [
    "Mr.", "No. 7", "e.g.", "the", "cat's", "l'eau", "3,5", "...", "A.B.", "fin.", '"', "d.", "x", "«", "’", "&",
    "1:30", "'", "x'", "'x", ",y", "5,", "DOTDOTMULTI", "\x01", "\u00a0", "...x", "M.", "No.", "été.", "5.",
    "(a.b).", "``", "-",
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("The dog isn't here, Mr. Smith.", ["The", "dog", "isn", "'t", "here", ",", "Mr.", "Smith", "."]),
        ("It costs 3,500 & more.", ["It", "costs", "3,500", "&", "more", "."]),
        ("a\u2028b\u00a0c\rd", ["a", "b", "c", "d"]),
        ("", []),
        (" \t\u3000", []),
        ("</s>", ["<", "/", "s", ">"]),
    ],
)
def test_english(line: str, tokens: list[str]) -> None:
    assert ENGLISH.tokenize(line) == tokens


def has_joined_marks(line: str) -> bool:
    """Whether some letter of a line, without control characters, has marks, which sacremoses may split off."""
    return any(len(letter) > 1 for letter in letters_of(re.sub(r"[\0-\x1f]", "", line)))


@settings(max_examples=400)
@given(
    st.sampled_from(["en", "fr", "fi"]),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=12),
    st.sampled_from([" ", "", "  "]),
)
def test_tokens_are_those_of_sacremoses(language: str, parts: list[str], blank: str) -> None:
    line = blank.join(parts)
    assume(not has_joined_marks(line))
    tokens = OURS[language].tokenize(line)
    assert tokens == THEIRS[language].tokenize(line, escape=False)
    assert not any(" " in token or "\n" in token or not token for token in tokens)


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize(
    ("language", "tokens"),
    [
        ("de", [decomposed("Schüler"), "hören", "."]),
        ("yo", ["Ẹ̀kọ́", "ọ̀rọ̀", "ni", "."]),
        ("vi", [decomposed("được"), ",", decomposed("Việt"), "."]),
        ("fr", [decomposed("été"), ",", decomposed("à"), "3,5", "x\u20dd", "%"]),
        ("th", ["ภาษาที่ใช้", "ได้"]),
        ("km", ["ខ្មែរ", "ខ្ញុំ"]),
        ("my", ["မြန်မာ"]),
        ("hi", ["हिन्दी", "क्\u200dष", "क\u093c", "डॉ."]),
        ("fa", ["می\u200cخواهم", "،"]),
        ("ar", ["ٱلرَّحۡمَٰنِ"]),
        ("he", ["בְּרֵאשִׁ֖ית", "."]),
        ("ja", ["か\u3099くせい"]),
        ("en", ["か\u3099", "く", "葛\U000e0100"]),
        ("en", ["👩\u200d💻", "👍🏽", "🇩🇪", "🇫🇷", "1\ufe0f\u20e3", "❤\ufe0f", "!"]),
        ("en", ["\u0301a", "b"]),
    ],
)
def test_a_letter_keeps_its_marks(language: str, tokens: list[str]) -> None:
    words = MosesWords(language)
    assert words.tokenize(" ".join(tokens)) == tokens
    assert words.tokenize("'x " + " ".join(tokens))[-len(tokens) :] == tokens  # by the rules for complete lines
    assert pickle.loads(pickle.dumps(words)).tokenize(" ".join(tokens)) == tokens  # noqa: S301


@given(st.text(st.sampled_from("aé'’.,- 1\u0301\u0323\u200dकि्か\u3099☺🇩\x01\ufe0f"), max_size=20))
def test_no_token_begins_with_a_mark_that_follows_a_letter(line: str) -> None:
    tokens = ENGLISH.tokenize(line)
    assert "".join(tokens) == "".join(line.replace("\x01", "").split())
    starts = {letter[0] for word in line.replace("\x01", "").split() for letter in letters_of(word)}
    assert {token[0] for token in tokens if unicodedata.category(token[0])[0] == "M"} <= starts


def test_decomposed_text_has_the_tokens_of_composed_text() -> None:
    line = "L'Été de M. Étienne, «à Évian», n'a été qu'un rêve. É. Zola l'a dit."
    assert [*map(decomposed, FRENCH.tokenize(line))] == FRENCH.tokenize(decomposed(line))


@pytest.mark.timeout(60)
def test_a_line_of_flags_is_split_in_linear_time():
    flags, half = ["🇫🇷", "🇫🇷\u0301\u200d", "🇩🇪\U0001f3fb"] * 40_000, "🇫"
    assert letters_of("".join(flags) + half) == [*flags, half]
    assert MosesWords("en").tokenize("🇫🇷" * 40_000 + " a.") == [*["🇫🇷"] * 40_000, "a", "."]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("language", ["en", "fr"])
def test_tokens_are_those_of_sacremoses_on_a_large_corpus(language: str) -> None:
    """One line of ten of large/train.en.gz and .fr.gz in NMTALIGN_TEST_DATA; with NMTALIGN_TEST_ALL=1 every line."""
    path = Path(os.environ.get("NMTALIGN_TEST_DATA", "")) / f"large/train.{language}.gz"
    if not path.is_file():
        pytest.skip(f"no large/train.{language}.gz in the folder NMTALIGN_TEST_DATA")
    ours, theirs = OURS[language], THEIRS[language]
    step = 1 if os.environ.get("NMTALIGN_TEST_ALL") else 10
    for number, line in enumerate(read_lines(path), 1):
        if number % step == 0 and not has_joined_marks(line):
            assert ours.tokenize(line) == theirs.tokenize(line, escape=False), f"line {number}: {line!r}"


def test_languages_with_rules() -> None:
    assert has_rules("en")
    assert has_rules("fr")
    assert not has_rules("src")
    assert MosesWords("src").tokenize("Hello, Mr. X.") == ["Hello", ",", "Mr.", "X."]


def test_strings_that_are_kept_have_a_bound(monkeypatch):
    """Whatever Python does with interned strings: from 3.12 on, `sys.intern` may keep them for ever."""
    monkeypatch.setattr(moses, "CACHED", 50)
    monkeypatch.setattr(moses, "_strings", {})
    monkeypatch.setattr("sys.intern", None)
    tokenizer = MosesWords("en")
    for number in range(400):
        assert tokenizer.tokenize(f"word{number}, other{number}.") == [f"word{number}", ",", f"other{number}", "."]
        assert len(moses._strings) <= 50 + 4
    first, second = (moses.TokenCache(lambda _: ["".join(["sa", "me"])])[word][0] for word in "ab")
    assert first is second
