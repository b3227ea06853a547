"""A report holds the same figures as sacreBLEU on the lines of each subset."""

import json

import numpy as np
import pytest

from nmtalign.scoring.lengths import parse_buckets, word_counts
from nmtalign.scoring.metrics import MetricOptions, corpus_scores, measure
from nmtalign.scoring.report import make_report

SOURCES = ["one", "one two", "one two three", "", "one two three four five", "one two"]
REFERENCES = ["un", "un deux", "un deux trois", "", "un deux trois quatre cinq", "deux un"]
HYPOTHESES = ["un", "un trois", "un deux trois", "", "un deux trois quatre", "deux"]


def test_every_bucket_scores_as_its_own_corpus() -> None:
    lengths, buckets = word_counts(SOURCES), parse_buckets("1,2,4,10")
    report = make_report(measure(HYPOTHESES, [REFERENCES]), lengths, buckets)
    parts = report.everything.by_length
    assert parts
    assert [(part.label, part.sentences) for part in parts] == [
        ("0", 1),
        ("1", 1),
        ("2", 2),
        ("3-4", 1),
        ("5-10", 1),
        (">10", 0),
    ]
    assert sum(part.sentences for part in parts) == report.everything.whole.sentences == len(SOURCES)
    for part, bucket in zip(parts[:-1], buckets, strict=False):
        chosen = np.flatnonzero(bucket.members(lengths))
        lines = [[side[index] for index in chosen] for side in (HYPOTHESES, REFERENCES)]
        assert part.values == tuple(score.value for score in corpus_scores(*lines))
    assert parts[-1].values == (None, None, None)
    assert parts[-1].length_ratio is None


def test_the_row_of_empty_lines_is_there_only_if_there_are_any() -> None:
    report = make_report(measure(["a"], [["a"]]), word_counts(["b"]), parse_buckets("5"))
    assert [part.label for part in report.everything.by_length or ()] == ["1-5", ">5"]


def test_the_known_subset_has_figures_of_its_own() -> None:
    known = np.array([True, False, True, False, True, False])
    lengths, buckets = word_counts(SOURCES), parse_buckets("2")
    report = make_report(measure(HYPOTHESES, [REFERENCES]), lengths, buckets, known)
    assert report.no_unk
    lines = [side[::2] for side in (HYPOTHESES, REFERENCES)]
    assert report.no_unk.whole.values == tuple(score.value for score in corpus_scores(*lines))
    assert [part.sentences for part in report.no_unk.by_length or ()] == [1, 2]


def test_the_record_is_json_without_nan() -> None:
    report = make_report(
        measure(["", ""], [["", ""]], MetricOptions(("bleu", "ter"))),
        word_counts(["", "a"]),
        parse_buckets("3"),
        np.array([False, False]),
    )
    record = json.loads(json.dumps(report.record(), allow_nan=False))
    assert record["sentences"] == 2
    assert [(score["name"], score["value"]) for score in record["scores"]] == [("BLEU", 0.0), ("TER", 0.0)]
    assert record["by_length"][-1] == {
        "words": ">3",
        "sentences": 0,
        "BLEU": None,
        "TER": None,
        "length_ratio": None,
    }
    assert record["no_unk"]["sentences"] == 0
    assert record["no_unk"]["scores"][0]["value"] is None


def test_without_lengths_and_known_there_are_no_such_parts() -> None:
    record = make_report(measure(HYPOTHESES, [REFERENCES])).record()
    assert record.keys() == {"sentences", "scores", "length_ratio"}
    assert record["length_ratio"] == pytest.approx(11 / 13)
