"""The rows of every metric equal sacreBLEU's, sentence by sentence, and matches equal those of counters."""

import functools
import operator
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.scoring.metrics import TOKENIZE, MetricOptions, has_tokenizer
from nmtalign.scoring.sentence_counts import Counting, Numbered, matches, words_and_marks

WORDS = (
    "a b Ab é Σ Σς İ 1 23 10,5 1. . , - ... ' \" ! ( ) « & < / &quot; &amp;lt; <skipped> 日 本語 😀 e\u0301 $ € ۳ ² ﬁ"
)
BLANKS = (
    " ",
    " ",
    " ",
    "  ",
    "\t",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\u0085",
    "\x1c",
    "\r",
    "\n",
    "-\n",
    "\x00",
    "\ufeff",
)
PIECES = [*WORDS.split(), *BLANKS]
TEXT = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=10)
LINES = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(TEXT, min_size=n, max_size=n), min_size=3, max_size=5))


def rows_of(metric: Any, hypotheses: list[str], references: list[list[str]]) -> list[list[float]]:
    return np.array(metric._extract_corpus_statistics(hypotheses, references)).tolist()


@pytest.mark.parametrize("tokenize", [*filter(has_tokenizer, TOKENIZE)])
@settings(deadline=None)
@given(texts=LINES, lowercase=st.booleans())
@example(texts=[["\n."], ["-\n."], ["1-\n2"]], lowercase=False)
def test_bleu_counts_as_sacrebleu(tokenize: str, texts: list[list[str]], lowercase: bool) -> None:
    systems, references = texts[:2], texts[2:]
    found = Counting(MetricOptions(("bleu",), lowercase, tokenize)).rows(systems, references)
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    for hypotheses, rows in zip(systems, found, strict=True):
        assert rows["bleu"].tolist() == rows_of(metric, hypotheses, references)


@settings(deadline=None)
@given(texts=LINES)
@example(texts=[["ab cd"], ["ab"], ["ab cd"], ["ab  cd!"]])
def test_chrf_counts_as_sacrebleu(texts: list[list[str]]) -> None:
    systems, references = texts[:2], texts[2:]
    found = Counting(MetricOptions(("chrf", "chrf++"))).rows(systems, references)
    for hypotheses, rows in zip(systems, found, strict=True):
        assert rows["chrf"].tolist() == rows_of(CHRF(), hypotheses, references)
        assert rows["chrf++"].tolist() == rows_of(CHRF(word_order=2), hypotheses, references)


@settings(deadline=None)
@given(texts=LINES)
def test_ter_counts_as_sacrebleu(texts: list[list[str]]) -> None:
    systems, references = texts[:2], texts[2:]
    for hypotheses, rows in zip(systems, Counting(MetricOptions(("ter",))).rows(systems, references), strict=True):
        assert rows["ter"].tolist() == rows_of(TER(), hypotheses, references)


def test_one_counting_serves_block_after_block() -> None:
    counting = Counting(MetricOptions(("bleu", "chrf++")))
    for hypotheses, references in ((["un deux trois."], ["deux trois un."]), (["trois, deux"], ["trois, un"])):
        (rows,) = counting.rows([hypotheses], [references])
        assert rows["bleu"].tolist() == rows_of(BLEU(), hypotheses, [references])
        assert rows["chrf++"].tolist() == rows_of(CHRF(word_order=2), hypotheses, [references])


def test_a_lone_surrogate_is_a_character() -> None:
    (rows,) = Counting(MetricOptions(("chrf",))).rows([["a\ud800b"]], [["\ud800b"]])
    assert rows["chrf"].tolist() == rows_of(CHRF(), ["a\ud800b"], [["\ud800b"]])


def test_chinese_characters_are_numbered_by_sentence() -> None:
    generator = np.random.default_rng(0)
    texts = [["".join(map(chr, line)) for line in generator.integers(0x4E00, 0x4E00 + 5000, (300, 40))] for _ in "ab"]
    texts[0] = [one[:20] + other[20:] for one, other in zip(*texts, strict=True)]
    (rows,) = Counting(MetricOptions(("chrf",))).rows(texts[:1], texts[1:])
    assert rows["chrf"].tolist() == rows_of(CHRF(), texts[0], texts[1:])


def test_words_are_forgotten_where_they_have_become_many() -> None:
    many = Counting(MetricOptions(("bleu", "chrf++")), most_words=3)
    for hypotheses in (["a, b c d e"], ["e, d c b a"], ["a, b"]):
        (rows,) = many.rows([hypotheses], [["e, d c b a"]])
        assert rows["bleu"].tolist() == rows_of(BLEU(), hypotheses, [["e, d c b a"]])
        assert rows["chrf++"].tolist() == rows_of(CHRF(word_order=2), hypotheses, [["e, d c b a"]])


@pytest.mark.parametrize(
    ("word", "parts"), [("!", ["!"]), ("(hi)", ["(hi", ")"]), ("'a", ["'", "a"]), ("a-b", ["a-b"]), ("»a", ["»a"])]
)
def test_one_mark_is_separated(word: str, parts: list[str]) -> None:
    assert words_and_marks(word) == parts == CHRF()._remove_punctuation(word)


Sentences = list[list[int]]


def numbered(sentences: Sentences) -> Numbered:
    codes = [code for sentence in sentences for code in (*sentence, 0)]
    return Numbered(np.array(codes, dtype=np.int64), np.array([len(sentence) for sentence in sentences]))


def counted(system: Sentences, references: list[Sentences], order: int) -> list[list[int]]:
    table = []
    for sentence, *wanted in zip(system, *references, strict=True):
        row = []
        for length in range(1, order + 1):
            counters = [Counter(zip(*(text[k:] for k in range(length)), strict=False)) for text in (sentence, *wanted)]
            row.append((counters[0] & functools.reduce(operator.or_, counters[1:])).total())
        table.append(row)
    return table


def texts_of(largest: int) -> st.SearchStrategy[list[Sentences]]:
    """3 to 5 texts with equal numbers of sentences."""
    sentence = st.lists(st.integers(1, largest), max_size=12)
    return st.integers(1, 6).flatmap(
        lambda count: st.lists(st.lists(sentence, min_size=count, max_size=count), min_size=3, max_size=5)
    )


@pytest.mark.parametrize("bits", [64, 40, 25, 12, 3])  # fewer bits: other numbers, or no keys
@pytest.mark.parametrize("order", [1, 4, 6])
@pytest.mark.parametrize("largest", [3, 2**20])
def test_matches_are_those_of_counters(bits: int, order: int, largest: int) -> None:
    @settings(max_examples=20, deadline=None)
    @given(texts_of(largest), st.integers(1, 2))
    def check(texts: list[Sentences], systems: int) -> None:
        found = matches(
            [numbered(text) for text in texts[:systems]], [numbered(text) for text in texts[systems:]], order, bits
        )
        for system, rows in zip(texts[:systems], found, strict=True):
            assert rows.tolist() == counted(system, texts[systems:], order)

    check()


def test_a_sentence_with_too_many_different_words_for_a_key() -> None:
    words = list(range(1, 40_000))
    (found,) = matches([numbered([words])], [numbered([words[::-1]])], 4)
    assert found.tolist() == [[39_999, 0, 0, 0]]
