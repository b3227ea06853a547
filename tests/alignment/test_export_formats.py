"""Alignments in other formats: nothing is lost, and every line is one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.alignment_writer import AlignmentWriter
from nmtalign.alignment.export_formats import json_line, text_lines, write_numpy
from nmtalign.errors import ResourceError

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0], [0, 0, 1]], dtype=np.float32)


@pytest.fixture(params=["float16", "float32"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Sentence 0 with two translations, and an empty one."""
    with AlignmentWriter(tmp_path / "a.h5", {"direction": "en-fr"}, request.param) as file:
        file.append(["the", "fox"], ["le", "a|||b\u2028"], WEIGHTS, -1.5, links=[(1, 0), (0, 1)])
        file.append(["the", "fox"], ["renard"], WEIGHTS[1:], -2.5, rank=1, token_log_probs=[-2.0, -0.5])
        file.append([], [], np.ones((1, 1)), 0.0)
    return tmp_path / "a.h5"


def test_links(path: Path) -> None:
    with AlignmentFile(path) as file:
        assert list(text_lines(file, "pharaoh")) == ["1-0 0-1\n", "\n"]
        assert list(text_lines(file, "pharaoh", "all")) == ["1-0 0-1\n", "1-0\n", "\n"]


def test_marian(path: Path) -> None:
    with AlignmentFile(path) as file:
        best, everything = list(text_lines(file, "marian")), list(text_lines(file, "marian", "all"))
    assert best == ["le a| | |b\u2028 ||| 0.5,0.25,0.25 0.1,0.9,0 0,0,1\n", " ||| 1\n"]
    assert everything[1] == "0 ||| renard ||| 0.1,0.9,0 0,0,1 ||| F0= -2.5 ||| -2.5\n"


def test_json_holds_the_record_and_is_one_line(path: Path) -> None:
    with AlignmentFile(path) as file:
        lines = list(text_lines(file, "json", "all"))
        for line, record in zip(lines, file, strict=True):
            assert len(line.splitlines()) == 1
            found = json.loads(line, parse_constant=pytest.fail)
            assert list(found) == [
                *("id", "rank", "source", "target", "weights", "links", "log_prob", "token_log_probs"),
            ]
            assert (found["id"], found["rank"]) == (record.sentence_id, record.rank)
            assert (tuple(found["source"]), tuple(found["target"])) == (record.source, record.target)
            assert found["links"] == [list(link) for link in record.links()]
            stored = np.array(found["weights"], file.dtype).astype(np.float32)
            np.testing.assert_array_equal(stored, record.weights)
        assert json.loads(lines[0])["token_log_probs"] == [None, None, None]
        assert json.loads(lines[1])["token_log_probs"] == [-2.0, -0.5]


def test_numbers_that_are_not_finite_are_null(path: Path) -> None:
    record = AlignmentFile(path)[0]
    object.__setattr__(record, "log_prob", float("-inf"))
    record.weights[0, 0] = np.nan
    found: dict[str, Any] = json.loads(json_line(record), parse_constant=pytest.fail)
    assert (found["log_prob"], found["weights"][0][0]) == (None, None)


def test_numpy_arrays_are_those_of_the_file(path: Path, tmp_path: Path) -> None:
    with AlignmentFile(path) as file:
        write_numpy(file, tmp_path / "a.npz")
        write_numpy(file, tmp_path / "b.npz")
        with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
            assert arrays["weights"].dtype == file.dtype
            begin, end = arrays["weight_offsets"][:2]
            np.testing.assert_array_equal(arrays["weights"][begin:end].reshape(3, 3), file[0].weights)
            assert bytes(arrays["target_text"]).decode() == "le\na|||b\u2028\nrenard\n"
            assert arrays["links"].tolist() == [[1, 0], [0, 1], [1, 0]]
            assert arrays["rank"].tolist() == [0, 1, 0]
            assert json.loads(str(arrays["attributes"]))["direction"] == "en-fr"
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
        with pytest.raises(ResourceError, match="cannot make the folder"):
            write_numpy(file, tmp_path / "a.npz" / "b.npz")
