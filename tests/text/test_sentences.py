"""Sentences of paragraphs: no character is lost, abbreviations and numbers end none, long text is split in time."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.errors import UsageError
from nmtalign.text.sentences import SentenceSplitter

TEXT = st.text(st.sampled_from("aB1. !?«»\"'()。!?你は\t\n\xa0\u2028…é-"), max_size=80)


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Mr. Smith went to Washington, D.C. on Jan. 5th. ", "He met Dr. Jones. ", "He left."]),
        ("en", ['"Really?" she asked. ', "He paid $3.50, i.e. too much (see No. 5). ", "Wow!!! ", "What?"]),
        ("en", ["The Act applies. ", "1. First item.  ", "2. Second item.\t", "It ends. 3."]),
        ("fr", ["Bonjour ! ", "Ça va ? ", "M. Dupont est là. ", "Il a dit : « Oui. Je viens. » ", "Voilà… "]),
        ("de", ["Am 3. Mai kam Dr. Müller. z. B. heute. ", "Das ist die 2. Sitzung. ", "Er sagte: „Ja.“ ", "Gut."]),
        ("zh", ["你好。", "你叫什么名字?", "我叫小明!", "很高兴认识你。"]),
        ("ja", ["今日は良い天気です。", "明日は雨でしょう。"]),
        ("xx", ["Abc def. ", "Ghi jkl."]),
        ("en", ["one line without an end"]),
        ("en", ["  "]),
        ("en", ["1. 2. 3."]),
        ("en", []),
    ],
)
def test_sentences_of_a_paragraph(language: str, sentences: list[str]) -> None:
    assert SentenceSplitter(language).split("".join(sentences)) == sentences


@given(TEXT, st.sampled_from(["en", "fr", "zh", "xx"]))
def test_no_character_is_lost(text: str, language: str) -> None:
    sentences = SentenceSplitter(language).split(text)
    assert "".join(sentences) == text
    assert len(sentences) < 2 or all(any(map(str.isalpha, sentence)) for sentence in sentences)


@pytest.mark.parametrize(
    ("text", "count", "longest"),
    [
        ("The cat, no. 5, sat. " * 3000, 3000, 4000),
        ("你好。" * 3000, 3000, 4000),
        ("1. " * 30_000, 1, 4000),
        ("a" * 30_000, 1, 32_000),
        ("«" * 4000 + "a" * 70_000, 3, 32_000),
    ],
)
def test_long_text_is_split_in_parts(text: str, count: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """sentencex takes the square of the time for text of quotation marks."""
    splitter = SentenceSplitter("en")
    segment, lengths = splitter._segment, []
    monkeypatch.setattr(splitter, "_segment", lambda language, part: lengths.append(len(part)) or segment("en", part))
    sentences = splitter.split(text)
    assert "".join(sentences) == text
    assert len(sentences) == count
    assert sum(lengths) < 4 * len(text)
    assert max(lengths) <= longest


def test_without_sentencex_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UsageError, match=r"pip install 'nmtalign\[split\]'"):
        SentenceSplitter("en")
