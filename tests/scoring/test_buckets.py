"""Buckets contain the sentences that their labels name, and every sentence is in exactly one bucket."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.errors import UsageError
from nmtalign.scoring.buckets import Bucket, by_length, by_place, parse_buckets, word_counts


def test_upper_ends_become_buckets() -> None:
    buckets = parse_buckets("10, 20,21")
    assert [bucket.label for bucket in buckets] == ["0", "1-10", "11-20", "21", ">21"]
    assert buckets[-1] == Bucket(22, None)


def test_both_ends_are_in_the_bucket() -> None:
    lengths = np.array([0, 1, 10, 11, 20, 21, 500])
    members = {bucket.label: lengths[bucket.members(lengths)].tolist() for bucket in parse_buckets("10,20")}
    assert members == {"0": [0], "1-10": [1, 10], "11-20": [11, 20], ">20": [21, 500]}


def test_points_stand_for_the_ends_between() -> None:
    assert parse_buckets("10,20,...,60") == parse_buckets("10,20,30,40,50,60")
    assert parse_buckets("1, 5, 10, ..., 20") == parse_buckets("1,5,10,15,20")


@given(st.sets(st.integers(1, 300), min_size=1), st.lists(st.integers(0, 400)))
def test_every_length_is_in_one_bucket(ends: set[int], lengths: list[int]) -> None:
    buckets = parse_buckets(",".join(map(str, sorted(ends))))
    counts = sum(bucket.members(np.array(lengths, dtype=np.int64)).astype(int) for bucket in buckets)
    assert (counts == 1).all()


@given(st.sets(st.integers(1, 300), min_size=1), st.lists(st.integers(0, 400)))
def test_cumulative_buckets_hold_the_ones_before(ends: set[int], lengths: list[int]) -> None:
    buckets = parse_buckets(",".join(map(str, sorted(ends))), cumulative=True)
    members = [bucket.members(np.array(lengths, dtype=np.int64)) for bucket in buckets]
    assert [bucket.label for bucket in buckets] == [*(f"<={end}" for end in sorted(ends)), "all"]
    assert all((first <= second).all() for first, second in itertools.pairwise(members))
    assert members[-1].all()


def test_a_line_without_a_word_is_in_every_cumulative_bucket() -> None:
    assert all(bucket.members(np.array([0])).all() for bucket in parse_buckets("1,5", cumulative=True))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10,",
        "10;20",
        "ten",
        "-5",
        "1.5",
        "0,10",
        "10,10",
        "20,10",
        "9" * 30,
        "10,...,60",
        "10,20,...,55",
        "20,10,...,5",
        "10,20,...",
    ],
)
def test_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="buckets = "):
        parse_buckets(text)


def test_words_are_set_apart_by_white_space() -> None:
    assert word_counts(["", "  ", "It rains.", " a\tb  c "]).tolist() == [0, 0, 2, 3]


def test_lengths_of_one_text_are_those_of_all_systems() -> None:
    cut = by_length([["a", "a b c", "", "a b"]], parse_buckets("2"))
    assert (cut.by, cut.title, cut.heading, cut.common) == ("length", "by words of the source", "words", True)
    assert cut.labels == ("0", "1-2", ">2")
    assert [[mask.tolist() for mask in cut.part(number)] for number in range(3)] == [
        [[False, False, True, False]],
        [[True, False, False, True]],
        [[False, True, False, False]],
    ]


def test_every_system_has_lengths_of_its_own() -> None:
    cut = by_length([["a", "a b c"], ["a b c", "a"]], parse_buckets("2", cumulative=True), "hypothesis")
    assert cut.title == "by words of the hypothesis, cumulative"
    assert not cut.common
    assert [[mask.tolist() for mask in cut.part(number)] for number in range(2)] == [
        [[True, False], [False, True]],
        [[True, True], [True, True]],
    ]


def test_fifths_of_the_text_are_named_by_their_lines() -> None:
    cut = by_place(12)
    assert cut.labels == ("1-3", "4-6", "7-8", "9-10", "11-12")
    assert [int(cut.part(number)[0].sum()) for number in range(5)] == [3, 3, 2, 2, 2]
    assert sum(mask for masks in cut.masks for mask in masks).tolist() == [1] * 12
    assert (cut.by, cut.heading, cut.common) == ("place", "lines", True)


def test_a_text_of_few_lines_has_a_part_a_line() -> None:
    assert by_place(3).labels == ("1", "2", "3")
    assert by_place(6).labels == ("1-2", "3", "4", "5", "6")
