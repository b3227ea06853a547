"""A report has the same figures as sacreBLEU on the lines of each subset, for every division of the text."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.score_texts import corpus_scores, measure
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.errors import UsageError
from nmtalign.report.document import to_text
from nmtalign.scoring.metrics import measure_systems
from nmtalign.scoring.report import Resampling, by_length, make_report, parse_buckets
from nmtalign.scoring.score_document import score_document

SOURCES = ["one", "one two", "one two three", "", "one two three four five", "one two"]
REFERENCES = ["un", "un deux", "un deux trois", "", "un deux trois quatre cinq", "deux un"]
HYPOTHESES = ["un", "un trois", "un deux trois", "", "un deux trois quatre", "deux"]
OTHERS = ["deux", "un deux", "deux", "", "un", "deux un"]
QUICK = Resampling(samples=50, trials=64)


def values(part):
    return [score.value for score in part.scores.values()]


def test_every_bucket_scores_as_its_own_corpus():
    masks = by_length(SOURCES, parse_buckets("1, 2,4, 10"))
    report = make_report(["a"], [measure(HYPOTHESES, [REFERENCES])], parts=masks)
    parts = report.systems[0].everything.lengths
    found = [(part.label, part.sentences) for part in parts]
    assert found == [("0", 1), ("1", 1), ("2", 2), ("3-4", 1), ("5-10", 1), (">10", 0)]
    assert sum(part.sentences for part in parts) == report.systems[0].everything.whole.sentences == len(SOURCES)
    for part, mask in zip(parts[:-1], masks.values(), strict=False):
        chosen = np.flatnonzero(mask)
        lines = [[side[index] for index in chosen] for side in (HYPOTHESES, REFERENCES)]
        assert values(part) == [score.value for score in corpus_scores(*lines)]
    assert set(values(parts[-1])) == {None}
    assert parts[-1].length_ratio is None


def test_the_row_of_empty_lines_is_there_only_if_there_are_any():
    parts = by_length(["b", ""], parse_buckets("5"))
    table = measure(["a", "b"], [["a", "b"]])
    report = make_report(["a"], [table], parts=parts, known=np.array([True, False]))
    assert [part.label for part in report.systems[0].everything.lengths] == ["0", "1-5", ">5"]
    assert [part.label for part in report.systems[0].no_unk.lengths] == ["1-5", ">5"]


def test_two_letters_of_text_without_spaces_count_as_a_word():
    lines = ["老师在学校里读一本书。", "老师 读 书 。", "ครูอ่านหนังสือในโรงเรียน", "a b c", "猫"]
    parts = by_length(lines, parse_buckets("1,4,5"))
    members = {label: [lines[place][0] for place in np.flatnonzero(mask)] for label, mask in parts.items()}
    assert members == {"0": [], "1": ["猫"], "2-4": ["老", "a"], "5": ["老"], ">5": ["ค"]}


def test_intervals_can_be_left_out():
    tables = measure_systems([HYPOTHESES, OTHERS], [REFERENCES])
    report = make_report("ab", tables, resampling=replace(QUICK, tests=("ar",), intervals=False))
    assert {one.low for one in report.systems[1].everything.whole.scores.values()} == {None}
    assert all("|ar:64|seed:12345|" in signature for signature in report.signatures.values())
    alone = make_report("ab", tables, resampling=replace(QUICK, tests=()))
    assert "p: against" not in to_text(score_document(alone, ""))
    both = make_report("ab", tables, resampling=replace(QUICK, tests=("bs", "ar")))
    assert all("|bs:50|ar:64|seed:12345|" in signature for signature in both.signatures.values())


@given(st.sets(st.integers(1, 300), min_size=1), st.lists(st.integers(0, 400)))
def test_every_length_is_in_one_bucket(ends, lengths):
    parts = by_length(["a " * length for length in lengths], parse_buckets(",".join(map(str, sorted(ends)))))
    assert (sum(mask.astype(int) for mask in parts.values()) == 1).all()


WRONG = "10, 10;20 ten -5 1.5 0,10 10,10 20,10 10,20,...,60"


@pytest.mark.parametrize("text", ["", *WRONG.split(), "9" * 30])
def test_other_syntax_of_buckets_is_refused(text):
    with pytest.raises(UsageError, match="buckets = "):
        parse_buckets(text)
