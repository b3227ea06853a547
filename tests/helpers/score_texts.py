"""Scores of texts by `measure` and by the command of sacreBLEU, which tests compare."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nmtalign.scoring.metrics import measure


def corpus_scores(hypotheses, *references, options=None):
    """The scores of the complete corpus by each metric."""
    return [statistics.score() for statistics in measure(hypotheses, references, options)]


def sacrebleu(folder: Path, systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], *flags: str) -> str:
    """What the command prints for the lines of systems and references."""
    paths = []
    for number, lines in enumerate((*references, *systems)):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    texts = [*paths[: len(references)], "-i", *paths[len(references) :]]
    command = [sys.executable, "-m", "sacrebleu", *map(str, texts), *flags, "--no-color"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
