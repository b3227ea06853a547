"""Whole systems are measured in blocks, here or in other processes, with the same result."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from nmtalign.errors import InputError, NmtalignError, ResourceError
from nmtalign.scoring.measuring import measure, measure_systems, steps
from nmtalign.scoring.metrics import METRICS, MetricOptions

REFERENCES = [f"un chat noir dort {number}, dit-il." for number in range(120)]
SYSTEMS = [[line.replace("noir", word) for line in REFERENCES] for word in ("gris", "noir et blanc")]
EVERYTHING = MetricOptions(METRICS, language="fr")


class Killer(str):
    """A line that kills the process to which it is sent."""

    __slots__ = ()

    def __reduce__(self) -> object:
        return _die, ()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_several_processes_give_the_same_as_one() -> None:
    told: list[int] = []
    found = measure_systems(SYSTEMS, [REFERENCES], EVERYTHING, processes=2, advance=told.append)
    assert sum(told) == steps(2, 120, EVERYTHING) == 2 * 120 * 5
    assert len(told) == 3  # TER is slow, so the blocks are small
    for system, table in zip(SYSTEMS, found, strict=True):
        alone = measure(system, [REFERENCES], EVERYTHING, processes=1)
        assert [one.name for one in table] == ["BLEU", "chrF2", "chrF2++", "TER", "multi-bleu"]
        for one, other in zip(table, alone, strict=True):
            assert one.signature == other.signature
            assert one.rows.dtype == np.float64
            np.testing.assert_array_equal(one.rows, other.rows)


def test_long_lines_are_measured_few_at_a_time() -> None:
    lines = ["le chat " * 50_000] * 3
    told: list[int] = []
    (found,) = measure_systems([lines], [lines], MetricOptions(("bleu",)), advance=told.append)
    assert told == [2, 1]
    assert found[0].score().value == pytest.approx(100)


def test_few_sentences_are_measured_here() -> None:
    assert len(measure_systems([[*SYSTEMS[0][:-1], Killer("x")]], [REFERENCES])) == 1


def test_only_ter_is_worse_if_it_is_higher() -> None:
    names = {one.name for one in measure(SYSTEMS[0], [REFERENCES], EVERYTHING) if not one.higher_is_better}
    assert names == {"TER"}


def test_a_killed_process_is_one_line() -> None:
    with pytest.raises(ResourceError, match="a process that scores was killed"):
        measure_systems([[*SYSTEMS[0][:-1], Killer("x")]], [REFERENCES], processes=2)


def test_a_sacrebleu_that_counts_in_another_way_ends_the_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*REFERENCES[:-1], "un chat (noir) dort, dit-il !"]
    monkeypatch.setattr(CHRF, "_remove_punctuation", lambda self, word: [word])
    with pytest.raises(NmtalignError, match=r"sacrebleu \S+ disagree on the counts of chrF2\+\+ in line 1; nothing"):
        measure_systems([lines], [lines])
    assert len(measure_systems([lines], [lines], MetricOptions(("bleu", "chrf")))[0]) == 2


def test_a_sacrebleu_that_makes_other_scores_ends_the_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    made = BLEU._compute_score_from_stats
    monkeypatch.setattr(BLEU, "_compute_score_from_stats", lambda self, rows: made(self, [*rows[:-1], rows[-1] + 1]))
    with pytest.raises(NmtalignError, match="disagree on the BLEU of 20 sentences"):
        measure(SYSTEMS[0], [REFERENCES], MetricOptions(("bleu",)))


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
