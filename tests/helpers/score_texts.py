"""Scores of texts by `measure` and by the command of sacreBLEU, which tests compare."""

from typing import NamedTuple

from helpers.command_line import CODE, run_nmtalign

from nmtalign.scoring.metrics import measure_systems

# In a fork of the server, which has imported sacreBLEU.
SACREBLEU = """
import os, sys
from sacrebleu.sacrebleu import main
main()
sys.stdout.flush()
os._exit(0)
"""


class Score(NamedTuple):
    name: str
    value: float
    signature: str


def measure(hypotheses, references, options=None, **more):
    """The statistics of one system."""
    return measure_systems([hypotheses], references, options, **more)[0]


def corpus_scores(hypotheses, *references, options=None):
    """The scores of the complete corpus by each metric, with their names and signatures."""
    return [Score(one.name, one.score(), one.signature) for one in measure(hypotheses, references, options)]


def sacrebleu(folder, systems, references, *flags):
    """What the command prints for the lines of systems and references."""
    paths = []
    for number, lines in enumerate((*references, *systems)):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    texts = [*paths[: len(references)], "-i", *paths[len(references) :]]
    done = run_nmtalign(*texts, *flags, "--no-color", cwd=folder, variables={CODE: SACREBLEU})
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
