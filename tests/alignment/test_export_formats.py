"""Alignments in other formats: nothing is lost, and every line is one."""

import json

import h5py
import numpy as np
import pytest
from helpers.commands import run
from helpers.records import add

from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.alignment.export_formats import json_line

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0], [0, 0, 1]], dtype=np.float32)


@pytest.fixture(params=["float16", "float32"])
def path(tmp_path, request):
    """Sentence 0 with two translations, and an empty one."""
    with AlignmentWriter(tmp_path / "a.h5", {"direction": "en-fr"}, request.param) as file:
        add(file, ["the", "fox"], ["le", "a|||b\u2028"], WEIGHTS, -1.5, links=[(1, 0), (0, 1)])
        add(file, ["the", "fox"], ["renard"], WEIGHTS[1:], -2.5, rank=1, token_log_probs=[-2.0, -0.5])
        add(file, [], [], np.ones((1, 1)), 0.0)
    return tmp_path / "a.h5"


def test_json_contains_the_record_and_is_one_line(path):
    with AlignmentFile(path) as file:
        lines = [json_line(record, file.dtype) for record in file]
        for line, record in zip(lines, file, strict=True):
            assert len(line.splitlines()) == 1
            found = json.loads(line, parse_constant=pytest.fail)
            names = ("id", "rank", "source", "target", "weights", "links", "log_prob", "token_log_probs")
            assert tuple(found) == names
            assert (found["id"], found["rank"]) == (record.sentence_id, record.rank)
            assert (tuple(found["source"]), tuple(found["target"])) == (record.source, record.target)
            assert found["links"] == [list(link) for link in record.links()]
            stored = np.array(found["weights"], file.dtype).astype(np.float32)
            np.testing.assert_array_equal(stored, record.weights)
        assert json.loads(lines[0])["weights"][1] == [0.1, 0.9, 0.0]  # the fewest digits of each type
        assert [json.loads(line)["log_prob"] for line in lines[:2]] == [-1.5, -2.5]
        assert json.loads(lines[0])["token_log_probs"] == [None, None, None]
        assert json.loads(lines[1])["token_log_probs"] == [-2.0, -0.5]


def test_numbers_that_are_not_finite_are_null(path):
    record = AlignmentFile(path)[0]
    object.__setattr__(record, "log_prob", float("-inf"))
    record.weights[0, 0] = np.nan
    found = json.loads(json_line(record), parse_constant=pytest.fail)
    assert (found["log_prob"], found["weights"][0][0]) == (None, None)


def test_a_sentence_is_read_by_three_lines_of_h5py(path):
    with AlignmentFile(path) as records:
        expected = list(records)
    with h5py.File(path) as file:
        for i, record in enumerate(expected):
            part = lambda name, offsets: file[name][slice(*file[offsets][i : i + 2])]  # noqa: B023, E731
            words = [bytes(part(f"{s}/text", f"{s}/text_offsets")).decode().split("\n") for s in ("source", "target")]
            weights = part("weights", "weight_offsets").reshape(len(words[1]), len(words[0]))
            assert words == [[*record.source, ""], [*record.target, ""]]
            np.testing.assert_array_equal(weights, record.weights)


def test_the_command_exports_every_format(path):
    def export(*arguments):
        done = run(path.parent, "export", "a.h5", *arguments)
        return done.returncode, done.stdout, done.stderr

    assert export() == export("--format", "pharaoh", "-o", "-") == (0, "1-0 0-1\n\n", "")
    code, out, err = export("--format", "json")
    assert [(line["id"], line["rank"]) for line in map(json.loads, out.splitlines())] == [(0, 0), (0, 1), (1, 0)]
    assert (code, err) == (0, "")
    assert export("--format", "json", "-o", "a.json.gz") == (0, "", "nmtalign: wrote a.json.gz\n")
    assert export("-o", "a.txt", "-q") == (0, "", "")
