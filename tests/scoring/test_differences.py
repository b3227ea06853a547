"""The sentences in which two systems differ most."""

import pytest
from helpers.score_texts import measure
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

from nmtalign.scoring.differences import Segment, most_different, split_segments
from nmtalign.scoring.metrics import MetricOptions

REFERENCE = ["the cat sleeps here", "a dog runs", "two birds sing now", "rain falls"]
FIRST = ["the cat sleeps here", "a dog runs", "two fish swim", "rain fell"]
SECOND = ["a tiger eats there", "a dog runs", "two birds sing now", "rain falls"]
BOTH = {"a": FIRST, "b": SECOND}
PIECES = st.lists(st.sampled_from(["a", "b", " ", "  ", ".", "'", "été", "日", "\u00a0", "x1", "-"]), max_size=12)


def test_the_most_different_sentences_come_first_whichever_system_is_better():
    found = most_different(BOTH, [REFERENCE], (), 5)
    assert [difference.line for difference in found] == [3, 1, 4]  # line 2 is the same in both
    assert [translation.name for translation in found[0].systems] == ["a", "b"]
    for (one, other), place in ((found[0].systems, 1), (found[1].systems, 0)):
        assert (one, other)[place].score == pytest.approx(100)
        assert (other, one)[place].score < 50
    assert found[1].references == ("the cat sleeps here",)
    assert (found[0].source, found[0].metric) == (None, "chrF2")


@pytest.mark.parametrize("references", [[REFERENCE], [REFERENCE, SECOND]])
def test_the_scores_are_those_of_sacrebleu(references):
    for difference in most_different(BOTH, references, (), 5):
        for one in difference.systems:
            assert one.score == CHRF().sentence_score(one.text, list(difference.references)).score


def test_known_statistics_give_the_same_differences():
    for names in (("bleu",), ("bleu", "chrf")):
        table = [measure(system, [REFERENCE], MetricOptions(names)) for system in (FIRST, SECOND)]
        assert most_different(BOTH, [REFERENCE], table, 2) == most_different(BOTH, [REFERENCE], (), 2)


def test_only_the_first_two_of_three_systems_are_compared():
    (found,) = most_different({**BOTH, "c": REFERENCE}, [REFERENCE], (), 1, ["s1", "s2", "s3", "s4"])
    assert [one.text for one in found.systems] == [FIRST[2], SECOND[2]]
    assert found.source == "s3"


def test_ties_are_in_the_order_of_their_lines():
    found = most_different({"a": ["x y"] * 4, "b": ["a b"] * 4}, [["a b"] * 4], (), 3)
    assert [difference.line for difference in found] == [1, 2, 3]


def test_equal_systems_have_no_differences():
    assert most_different({"a": FIRST, "b": FIRST}, [REFERENCE], (), 3) == ()


def test_empty_lines_can_differ():
    (found,) = most_different({"a": [""], "b": ["a b"]}, [["a b"]], (), 3)
    assert [one.score for one in found.systems] == [0.0, pytest.approx(100)]
    assert [one.segments for one in found.systems] == [(), (Segment("a b", "only", True),)]


def test_segments_tell_what_differs_and_what_the_reference_contains():
    first, second = split_segments("the big cat sleeps.", "the cat naps!", ["the small cat naps."])
    assert first == (
        Segment("the", "same", True),
        Segment(" big", "only", False),
        Segment(" cat", "same", True),
        Segment(" sleeps", "only", False),
        Segment(".", "only", True),
    )
    assert second == (Segment("the cat", "same", True), Segment(" naps", "only", True), Segment("!", "only", False))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("word", ["a", "a{}", "."])
def test_long_lines_are_compared_in_bounded_time(word):
    """Words beyond the first 2,000 count as those of one line."""
    words = [word.format(number) for number in range(20_000)]
    lines = " ".join(["b", *words]), " ".join([*words, "c"])
    for line, segments in zip(lines, split_segments(*lines, []), strict=True):
        assert "".join(segment.text for segment in segments) == line
        assert segments[-1].kind == "only"
        assert any(segment.kind == "same" for segment in segments) == (word == "a{}")


def test_ideographs_are_compared_one_by_one():
    first, _ = split_segments("我喜欢猫", "我喜欢狗", ["我喜欢狗"])
    assert first == (Segment("我喜欢", "same", True), Segment("猫", "only", False))


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("यह किताब है", "यह कितनी है", "यह है"),  # the vowel signs are not the ends of words
        ("l'e\u0301te\u0301", "l'e\u0301tait", "l'"),
        ("ที่ใช้", "ที่ช้", "ที่ช้"),
    ],
)
def test_marks_belong_to_their_letters(first, second, shared):
    for segments in split_segments(first, second, []):
        assert "".join(segment.text for segment in segments if segment.kind == "same") == shared


@given(PIECES, PIECES, PIECES)
def test_segments_joined_are_the_lines_and_what_is_shared_is_shared_by_both(first, second, reference):
    lines = "".join(first), "".join(second)
    both = split_segments(*lines, ["".join(reference)])
    words = []
    for line, segments in zip(lines, both, strict=True):
        assert "".join(segment.text for segment in segments) == line
        assert all(segment.text for segment in segments)
        words.append("".join("".join(segment.text for segment in segments if segment.kind == "same").split()))
    assert words[0] == words[1]
    if lines[0] == lines[1]:
        assert {segment.kind for segment in both[0]} <= {"same"}
