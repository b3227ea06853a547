"""Matches found by sorting are those that counting finds, however the keys are packed."""

import functools
import operator
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.scoring.sentence_counts import Numbered, matches

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
    """3 to 5 texts of as many sentences each."""
    sentence = st.lists(st.integers(1, largest), max_size=12)
    return st.integers(1, 6).flatmap(
        lambda count: st.lists(st.lists(sentence, min_size=count, max_size=count), min_size=3, max_size=5)
    )


@pytest.mark.parametrize("bits", [64, 40, 25, 12, 3])  # fewer bits: other numbers, or no keys
@pytest.mark.parametrize("order", [1, 4, 6])
@pytest.mark.parametrize("largest", [3, 2**20])
def test_matches_are_those_of_counters(bits: int, order: int, largest: int) -> None:
    @settings(max_examples=20)
    @given(texts_of(largest), st.integers(1, 2))
    def check(texts: list[Sentences], systems: int) -> None:
        found = matches(
            [numbered(text) for text in texts[:systems]], [numbered(text) for text in texts[systems:]], order, bits
        )
        for system, rows in zip(texts[:systems], found, strict=True):
            assert rows.tolist() == counted(system, texts[systems:], order)

    check()


def test_a_sentence_of_more_different_words_than_a_key_holds() -> None:
    words = list(range(1, 40_000))
    (found,) = matches([numbered([words])], [numbered([words[::-1]])], 4)
    assert found.tolist() == [[39_999, 0, 0, 0]]
