"""One alignment from those of two directions: links (Koehn et al. 2005), also of texts, or soft matrices.

All links are (source, target). `forward` are those of the model that writes the target; with argmax each target word
has at most one. `backward` are those of the model that reads the target and writes the source, with source and target
exchanged; each source word has at most one.

| method of links     | the links                                                                                     |
|---------------------|-----------------------------------------------------------------------------------------------|
| intersection        | those of both directions                                                                      |
| union               | those of either direction                                                                     |
| grow-diag           | the intersection, then links of the union that touch a link, diagonally too, until none is    |
|                     | added; each must have a word without a link                                                   |
| grow-diag-strict    | the same, but neither word may have a link                                                    |
| grow-diag-final     | grow-diag, then the other links of forward, then those of backward, that have a word without  |
|                     | a link                                                                                        |
| grow-diag-final-and | the same, but neither word of a link that is added after grow-diag may have a link            |

Links are visited by target word, then by source word, including the links added on the way, and the places around a
link in the order of `_NEIGHBOURS`. So the results are exactly those of Moses's symal. symal has no grow-diag-strict,
which is the "grow-diagonal" of published tables made with lilt/alignment-scripts. Those scripts and fast_align's atools
visit the links by source word instead; where several links compete for the same words, they may choose others.

Soft methods take matrices F and B (Ty+1, Tx+1), both [target row, source column], with the row and the column of
`</s>`, which means NULL. A row of F sums to 1 (the source of target word j), and so does a
column of B (the translation of source word i).
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.link_files import parse_links
from nmtalign.alignment.links import THRESHOLD, AlignmentRecord, Link, Matrix, format_links, links_where
from nmtalign.errors import InputError, UsageError
from nmtalign.files import atomic_text, check_other
from nmtalign.hdf5 import is_hdf5
from nmtalign.settings.command_settings import HardSymmetrization, SoftSymmetrization, Symmetrization
from nmtalign.settings.definition import StrPath
from nmtalign.text.lines import read_pairs, shown
from nmtalign.text.link_counting import SAMPLE, check_alike

BackwardOrder = Literal["target-source", "source-target"]
HARD_METHODS: tuple[HardSymmetrization, ...] = get_args(HardSymmetrization)
SOFT_METHODS: tuple[SoftSymmetrization, ...] = get_args(SoftSymmetrization)
# The smallest weight of a link, chosen on the development set of the gold alignments.
THRESHOLDS = {"mean": 0.5, "agreement": 0.6}
_NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))  # (source, target)
_NULL = 0.01  # the weight of both directions' NULL beside the product of two words
_TINY = 1e-12
_by_target = itemgetter(1, 0)  # the order of links

Links = Collection[Link]


def symmetrize(forward: Links, backward: Links, method: HardSymmetrization = "grow-diag-final-and") -> list[Link]:
    """Returns one set of links from those of both directions, sorted by target word, then by source word.

    Raises UsageError for a method that is not one of `HARD_METHODS`.
    """
    if method not in HARD_METHODS:
        raise UsageError(f"links are symmetrized by {', '.join(HARD_METHODS)}, not by {method!r}")
    ahead, back = frozenset(forward), frozenset(backward)
    if method in ("intersection", "union"):
        return sorted(ahead & back if method == "intersection" else ahead | back, key=_by_target)
    return sorted(_grow(ahead, back, method), key=_by_target)


def _grow(forward: frozenset[Link], backward: frozenset[Link], method: Symmetrization) -> set[Link]:
    """Returns the links of the methods whose names begin with grow-diag."""
    links, union = set(forward & backward), forward | backward
    sources, targets = {i for i, _ in links}, {j for _, j in links}  # the words that have a link

    def add(link: Link, enough: Callable[[Iterable[bool]], bool]) -> bool:
        """Adds a link if enough of its two words (any or all) have no link."""
        if fits := enough((link[0] not in sources, link[1] not in targets)):
            links.add(link)
            sources.add(link[0])
            targets.add(link[1])
        return fits

    # A pass visits the links in order, also those that it adds behind the current one; the others wait for the next
    # pass. No link is visited twice, because words only gain links.
    waiting, later = sorted((j, i) for i, j in links), list[Link]()
    while waiting:
        j, i = heappop(waiting)
        for right, down in _NEIGHBOURS:
            near = i + right, j + down
            if near in union and near not in links and add(near, all if method == "grow-diag-strict" else any):
                heappush(waiting if near[::-1] > (j, i) else later, near[::-1])
        if not waiting:
            waiting, later = later, []
    if method in ("grow-diag-final", "grow-diag-final-and"):
        for direction in (forward, backward):
            for link in sorted(direction - links, key=_by_target):
                add(link, all if method == "grow-diag-final-and" else any)
    return links


def soft_links(
    forward: NDArray[Any], backward: NDArray[Any], method: SoftSymmetrization, threshold: float = 0.0
) -> tuple[list[Link], NDArray[Any]]:
    """Returns the links on which two soft matrices agree, and the probability of each place (Ty, Tx).

    The links are sorted by target word, then by source word. A threshold of 0 means that of `THRESHOLDS`.

    - "mean": (F[j, i] + B[j, i]) / 2 is at least the threshold: at 0.5 these are the links that are more probable than
      not, if both models are trusted equally.
    - "agreement": `posterior` is at least the threshold. At 0.5 this is minimum Bayes risk for the number of errors,
      where a wrong link and a missing link count alike; 0.6 had the lowest error rate for plain and guided models.
    """
    least = least_weight(method, threshold)
    if method == "mean":
        return mean_links(forward[:-1, :-1], backward[:-1, :-1], least)
    likely = posterior(forward, backward)
    return links_where(likely >= least), likely


def mean_links(
    forward: NDArray[Any], backward: NDArray[Any], least: float = THRESHOLDS["mean"]
) -> tuple[list[Link], NDArray[Any]]:
    """Returns what `soft_links` does with the method "mean", of matrices without `</s>`."""
    likely = (forward + backward) / 2
    return links_where(likely >= least), likely


def least_weight(method: Symmetrization | None, threshold: float) -> float:
    """Returns the smallest weight of a link: the threshold, or if it is 0 that of the method (None = one direction)."""
    return threshold or THRESHOLDS.get(method or "", THRESHOLD)


def posterior(forward: NDArray[Any], backward: NDArray[Any]) -> Matrix:
    """Returns the posterior of each link given both directions, (Ty, Tx) without `</s>`: fractions between 0 and 1.

    F[j, i] B[j, i] is the probability that both directions choose the link (agreement, Liang et al. 2006). Normalised
    over the source words it is a posterior of the source of target word j; normalised over the target words it is one
    of the translation of source word i. Both include NULL. The mean of both is returned.
    """
    both = forward[:-1, :-1].astype(np.float64) * backward[:-1, :-1]
    target_null = _NULL * np.square(forward[:-1, -1:], dtype=np.float64)
    source_null = _NULL * np.square(backward[-1:, :-1], dtype=np.float64)
    by_target = both / (both.sum(1, keepdims=True) + target_null + _TINY)
    by_source = both / (both.sum(0, keepdims=True) + source_null + _TINY)
    return np.asarray((by_target + by_source) / 2, dtype=np.float32)


def combined(forward: NDArray[Any], backward: NDArray[Any], mean: Literal["geometric", "arithmetic"]) -> Matrix:
    """Returns one matrix of two: the mean of both weights of each link, with rows that sum to 1.

    NULL of a target word is the mean of its weight on `</s>` in F and of the probability that no source word chooses it
    in B, if each chooses independently; the row of `</s>` is computed in the same way. A row without weight stays 0.
    """
    first, second = forward.astype(np.float64), backward.astype(np.float64)
    first[-1, :-1] = np.prod(1 - first[:-1, :-1], axis=0)
    second[:-1, -1] = np.prod(1 - second[:-1, :-1], axis=1)
    joined = np.sqrt(np.maximum(first * second, 0)) if mean == "geometric" else (first + second) / 2
    total = joined.sum(1, keepdims=True)
    return np.asarray(np.divide(joined, total, out=np.zeros_like(joined), where=total > 0), dtype=np.float32)


def join(
    forward: AlignmentRecord, backward: AlignmentRecord, method: Symmetrization, threshold: float = 0.0
) -> AlignmentRecord:
    """Returns one record of the two directions of a pair, with the log-probabilities of the forward model.

    The source of `backward` is the target of the pair. The links are symmetrized by `method`, soft methods using
    `threshold`. The weights are the mean of both (`combined`), with "agreement" the geometric mean. The score of a link
    is the probability by which a soft method chose it, else its weight. Raises InputError if the words differ.
    """
    for ours, theirs in ((forward.source, backward.target), (forward.target, backward.source)):
        if ours != theirs:
            place = next((k for k, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), -1)
            words = f"{ours[place]!r} and {theirs[place]!r}" if place >= 0 else f"{len(ours)} and {len(theirs)} words"
            why = f"the two directions have different words ({words})"
            fix = "give text with spaces between words, and --tokenized"
            raise InputError(f"line {forward.sentence_id + 1}: {why}; {fix}")
    if forward.empty():
        return replace(forward, link_scores=())
    weights, turned = forward.weights, backward.weights.T
    joined = combined(weights, turned, "geometric" if method == "agreement" else "arithmetic")
    if method == "mean" or method == "agreement":
        links, likely = soft_links(weights, turned, method, threshold)
    else:
        links, likely = symmetrize(forward.hard_links, [(i, j) for j, i in backward.hard_links], method), joined
    scores = tuple(float(likely[j, i]) for i, j in links)
    return replace(forward, weights=np.ascontiguousarray(joined), hard_links=tuple(links), link_scores=scores)


@dataclass
class DirectionCounts:
    """Counts over the pairs of both directions."""

    pairs: int = 0
    links: int = 0  # after symmetrization
    both: int = 0  # links of forward that backward has too
    exchanged: int = 0  # links of forward that backward would have with source and target exchanged


def symmetrize_files(
    forward: StrPath,
    backward: StrPath,
    output: StrPath | TextIO,
    method: HardSymmetrization = "grow-diag-final-and",
    *,
    backward_order: BackwardOrder = "target-source",
) -> DirectionCounts:
    """Joins two texts of links in Pharaoh's format (`-` for stdin) pair by pair, as `nmtalign symmetrize` does.

    `output` is a file or an open stream. `backward_order` says which position the links of `backward` have first.
    Raises UsageError for alignment files, InputError, naming file and line, if the lines do not fit.
    """
    forward, backward = Path(forward), Path(backward)
    output = Path(output) if isinstance(output, str) else output
    counts = DirectionCounts()
    if backward_order not in get_args(BackwardOrder):
        raise UsageError(f"the order of the backward links is one of {', '.join(get_args(BackwardOrder))}")
    if isinstance(output, Path):
        check_other(output, [forward, backward])
    for path in (forward, backward, output):
        if isinstance(path, Path) and (is_hdf5(path) or path.suffix == ".h5"):
            fix = "for HDF5 files align with both models: nmtalign align SRC TGT -m DIR -m DIR -o FILE.h5"
            raise UsageError(f"{path}: texts of links are joined; {fix}")
    pairs = _read(forward, backward, backward_order)
    first = list(islice(pairs, SAMPLE))
    check_alike(shown(forward), shown(backward), first)
    with atomic_text(output) if isinstance(output, Path) else contextlib.nullcontext(output) as stream:
        for ahead, back in chain(first, pairs):
            links = symmetrize(ahead, back, method)
            stream.write(format_links(links) + "\n")
            counts.pairs, counts.links = counts.pairs + 1, counts.links + len(links)
            counts.both += len(ahead & back)
            counts.exchanged += sum((j, i) in back for i, j in ahead)
    return counts


def _read(forward: Path, backward: Path, order: BackwardOrder) -> Iterator[tuple[frozenset[Link], frozenset[Link]]]:
    """Yields the links of each pair in both directions, source first."""
    for line, (ours, theirs) in enumerate(read_pairs(forward, backward), 1):
        ahead = parse_links(ours, f"{shown(forward)}: line {line}")
        back = parse_links(theirs, f"{shown(backward)}: line {line}")
        yield ahead.possible, (back.turned() if order == "target-source" else back).possible
