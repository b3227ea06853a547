"""Keeps the best pairs of a noisy corpus, as two models of opposite directions judge them.

Usage: filter-corpus.py FORWARD BACKWARD SOURCE TARGET SHARE OUTPUT
   FORWARD is the model from the language of SOURCE to that of TARGET, BACKWARD the opposite one. The best SHARE
   (0 to 1) of the pairs is written to OUTPUT.source and OUTPUT.target. OUTPUT.scores has a line for each pair:
   dual, coverage and score, as defined below.

A pair gets three numbers. H is the cross-entropy per word of one side given the other, under one of the models.
   dual = exp(-(|H of FORWARD - H of BACKWARD| + (H of FORWARD + H of BACKWARD) / 2)): Junczys-Dowmunt (2018). A good
      translation is probable in both directions, and equally so.
   coverage = the share of the words that the other side explains. A word's attention weights are summed, at most to 1.
      Half a sentence, or a sentence too many, leaves words without attention. The smaller side of the two counts.
   score = the share of the pairs that are not better, by dual or by coverage, whichever share is smaller. A good pair
      must be good by both.
"""

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nmtalign import AlignmentRecord, align


def main() -> None:
    """Scores all pairs, then writes the best ones in their order."""
    forward, backward, source, target, share, output = sys.argv[1:]
    if len({sum(1 for _ in read(path)) for path in (source, target)}) > 1:
        sys.exit(f"{source} and {target} have different numbers of lines")
    judgements = np.array(list(judge(forward, backward, source, target)))
    scores = np.minimum(rank(judgements[:, 0]), rank(judgements[:, 1]))
    np.savetxt(f"{output}.scores", np.column_stack([judgements, scores]), fmt="%.6g", delimiter="\t")
    best = np.argsort(-scores, kind="stable")[: round(float(share) * len(scores))]
    kept = np.zeros(len(scores), bool)
    kept[best] = True
    for path, ending in ((source, "source"), (target, "target")):
        with Path(f"{output}.{ending}").open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(itertools.compress(read(path, end="\n"), kept))
    print(f"{len(scores):,} pairs, {kept.sum():,} kept", file=sys.stderr)


def judge(forward: str, backward: str, source: str, target: str) -> Iterator[tuple[float, float]]:
    """Yields the dual cross-entropy and the coverage of each pair, in order."""
    there = align(forward, zip(read(source), read(target), strict=True), precision="auto")
    back = align(backward, zip(read(target), read(source), strict=True), precision="auto")
    for one, other in zip(there, back, strict=True):
        if one.empty():
            yield 0.0, 0.0
            continue
        first, second = cross_entropy(one), cross_entropy(other)
        yield math.exp(-(abs(first - second) + (first + second) / 2)), min(coverage(one), coverage(other))


def rank(values: np.ndarray) -> np.ndarray:
    """Returns for each value the share of the values that are not larger."""
    return np.searchsorted(np.sort(values), values, side="right") / len(values)


def cross_entropy(record: AlignmentRecord) -> float:
    """Returns the negative log-probability of the target per word, with its end as one more word."""
    return -record.log_prob / (len(record.target) + 1)


def coverage(record: AlignmentRecord) -> float:
    """Returns the share of the source words that the target words read: 1 if each has a weight of 1 in sum."""
    read_weight = record.weights[:-1, :-1].sum(axis=0)
    return float(np.minimum(read_weight, 1).mean())


def read(path: str, end: str = "") -> Iterator[str]:
    """Yields the lines of a text, each with `end` as its ending."""
    with Path(path).open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.removesuffix("\n") + end


if __name__ == "__main__":
    main()
