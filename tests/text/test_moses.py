import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from nmtalign.text import caching
from nmtalign.text.lines import read_lines
from nmtalign.text.moses import MosesWords, has_rules

ENGLISH, FRENCH = MosesWords("en"), MosesWords("fr")
OURS = {"en": ENGLISH, "fr": FRENCH, "fi": MosesWords("fi")}
THEIRS = {language: MosesTokenizer(lang=language) for language in OURS}
PIECES = [
    "Mr.",
    "No. 7",
    "e.g.",
    "the",
    "cat's",
    "l'eau",
    "3,5",
    "...",
    "A.B.",
    "fin.",
    '"',
    "d.",
    "x",
    "«",
    "’",
    "&",
    "1:30",
    "'",
    "x'",
    "'x",
    ",y",
    "5,",
    "DOTDOTMULTI",
    "\x01",
    "\u00a0",
    "...x",
    "M.",
    "No.",
    "été.",
    "5.",
    "(a.b).",
    "``",
    "-",
]


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


def test_case_is_kept_and_nothing_is_escaped() -> None:
    assert FRENCH.tokenize("L'Été <d'après> «Zoé» & M. Dupont.") == [
        "L'", "Été", "<", "d'", "après", ">", "«", "Zoé", "»", "&", "M.", "Dupont", ".",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "The dog isn't here, Mr. Smith.",
        'He said "come in" (twice).',
        "The neighbour’s bell rang at 15:30; we didn’t hear it.",
        "See section 83(1)(b) and/or the notes of 2020/2021.",
        "“Quite so,” she said.",
        "At 48°25′N the sun sets.",
        "It costs $3,500.",
    ],
)
def test_english_comes_back(line: str) -> None:
    assert ENGLISH.detokenize(ENGLISH.tokenize(line)) == line


@pytest.mark.parametrize(
    "line",
    [
        "L'homme qu'elle attend aujourd'hui n'est pas là.",
        "L’homme qu’elle attend aujourd’hui n’est pas là, jusqu’à midi.",
        "Est-ce vrai ? Oui : « très » vrai !",
        "Voir l’alinéa 83(1)b) du texte.",
        "Il gagne 3,5 % par an.",
        "Rendez-vous à 15:30.",
    ],
)
def test_french_comes_back(line: str) -> None:
    assert FRENCH.detokenize(FRENCH.tokenize(line)) == line


@settings(max_examples=400)
@given(
    st.sampled_from(["en", "fr", "fi"]),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=12),
    st.sampled_from([" ", "", "  "]),
)
def test_tokens_are_those_of_sacremoses(language: str, parts: list[str], blank: str) -> None:
    line = blank.join(parts)
    tokens = OURS[language].tokenize(line)
    assert tokens == THEIRS[language].tokenize(line, escape=False)
    assert not any(" " in token or "\n" in token or not token for token in tokens)


def test_words_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "CACHED", 3)
    words = MosesWords("en")
    line = "It's 5, e.g. a (very) long way from A. to B., isn't it?"
    assert [words.tokenize(line) for _ in range(3)] == [THEIRS["en"].tokenize(line, escape=False)] * 3


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
        if number % step == 0:
            assert ours.tokenize(line) == theirs.tokenize(line, escape=False), f"line {number}: {line!r}"


@settings(max_examples=50)
@given(st.lists(st.text(max_size=6), max_size=8))
def test_any_tokens_can_be_detokenised(tokens: list[str]) -> None:
    assert isinstance(FRENCH.detokenize(tokens), str)


def test_it_goes_to_other_processes() -> None:
    copy = pickle.loads(pickle.dumps(FRENCH))  # noqa: S301
    assert copy.language == "fr"
    assert copy.tokenize("L'eau.") == ["L'", "eau", "."]


def test_languages_with_rules() -> None:
    assert has_rules("en")
    assert has_rules("fr")
    assert not has_rules("src")
    assert MosesWords("src").tokenize("Hello, Mr. X.") == ["Hello", ",", "Mr.", "X."]


def test_strings_that_are_kept_have_a_bound(monkeypatch):
    """Whatever Python does with interned strings: from 3.12 on, `sys.intern` may keep them for ever."""
    monkeypatch.setattr(caching, "CACHED", 50)
    monkeypatch.setattr(caching, "_strings", {})
    monkeypatch.setattr("sys.intern", None)
    tokenizer = MosesWords("en")
    for number in range(400):
        assert tokenizer.tokenize(f"word{number}, other{number}.") == [f"word{number}", ",", f"other{number}", "."]
        assert len(caching._strings) <= 50 + 4
    first, second = caching.keep({}, "a", ["".join("same")]), caching.keep({}, "b", ["".join(list("same"))])
    assert first[0] is second[0]
