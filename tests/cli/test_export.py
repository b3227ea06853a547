"""`nmtalign export`, as a user runs it."""

import json
from functools import partial

import numpy as np
import pytest
from helpers.records import add

from nmtalign.alignment.alignment_file import AlignmentWriter


@pytest.fixture
def run(tmp_path, here):
    """Runs it in a folder with an alignment file: exit code, stdout, stderr."""
    with AlignmentWriter(tmp_path / "a.h5", {}) as file:
        add(file, ["thé"], ["fox"], np.array([[0.75, 0.25], [0, 1]], dtype=np.float32), -1.0)
        add(file, ["thé"], ["né"], np.array([[0.5, 0.5], [0, 1]], dtype=np.float32), -2.0, rank=1)
        add(file, [], [], np.ones((1, 1)), 0.0)
    return partial(here, "export")


def test_every_format(run, tmp_path):
    assert run("a.h5") == (0, "0-0\n\n", "")
    assert run("a.h5", "--format", "pharaoh", "-o", "-") == (0, "0-0\n\n", "")
    code, out, err = run("a.h5", "--format", "json")
    assert [(line["id"], line["rank"]) for line in map(json.loads, out.splitlines())] == [(0, 0), (0, 1), (1, 0)]
    assert (code, err) == (0, "")
    assert run("a.h5", "--format", "json", "-o", "a.json.gz") == (0, "", "nmtalign: wrote a.json.gz\n")
    assert run("a.h5", "-o", "a.txt", "-q") == (0, "", "")
