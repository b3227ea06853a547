"""Every cut holds the sentences that its labels say."""

from nmtalign.scoring.cuts import by_length, by_place
from nmtalign.scoring.lengths import parse_buckets


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
