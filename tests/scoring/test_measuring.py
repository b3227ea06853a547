"""Whole systems are measured in blocks, here or in other processes, with the same result."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from nmtalign.errors import InputError, ResourceError
from nmtalign.scoring import measuring
from nmtalign.scoring.measuring import measure, measure_systems, steps
from nmtalign.scoring.options import METRICS, MetricOptions

REFERENCES = [f"un chat noir dort {number}, dit-il." for number in range(50)]
SYSTEMS = [[line.replace("noir", word) for line in REFERENCES] for word in ("gris", "noir et blanc")]
EVERYTHING = MetricOptions(METRICS, language="fr")


def test_processes_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_BLOCK", 7)
    told: list[int] = []
    found = measure_systems(SYSTEMS, [REFERENCES], EVERYTHING, processes=2, advance=told.append)
    assert sum(told) == steps(2, 50, EVERYTHING) == 2 * 50 * 5
    assert len(told) == 8
    for system, table in zip(SYSTEMS, found, strict=True):
        alone = measure(system, [REFERENCES], EVERYTHING)
        assert [one.name for one in table] == ["BLEU", "chrF2", "chrF2++", "TER", "multi-bleu"]
        for one, other in zip(table, alone, strict=True):
            assert one.signature == other.signature
            assert one.rows.dtype == np.float64
            np.testing.assert_array_equal(one.rows, other.rows)


def test_long_lines_are_measured_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = measure(SYSTEMS[0], [REFERENCES], EVERYTHING)
    monkeypatch.setattr(measuring, "_CHARACTERS", 200)
    told: list[int] = []
    (found,) = measure_systems(SYSTEMS[:1], [REFERENCES], EVERYTHING, advance=told.append)
    assert len(told) > 10
    assert sum(told) == steps(1, 50, EVERYTHING)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)


def test_few_sentences_are_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "process_pool", None)
    assert len(measure_systems(SYSTEMS, [REFERENCES])) == 2


def test_ter_alone_is_worse_where_it_is_higher() -> None:
    names = {one.name for one in measure(SYSTEMS[0], [REFERENCES], EVERYTHING) if not one.higher_is_better}
    assert names == {"TER"}


def test_a_process_that_is_killed_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_work", _die)
    with pytest.raises(ResourceError, match="a process that scores was killed"):
        measure_systems(SYSTEMS, [REFERENCES], processes=2)


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("systems", "references", "message"),
    [
        ([], [["a"]], "no sentence"),
        ([["a"]], [], "no sentence"),
        ([["a"], []], [["a"]], "no sentence"),
        ([["a"], ["a", "b"]], [["a"]], "2 hypotheses, but 1 references"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    systems: list[list[str]], references: list[list[str]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        measure_systems(systems, references)


def test_its_processes_load_no_torch() -> None:
    code = "import sys, nmtalign.scoring.measuring; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
