"""One alignment from those of two directions, of pairs and of files: links (Koehn et al. 2005), or soft matrices.

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

Soft methods take matrices F and B, both [target row, source column]: (Ty+1, Tx+1) with the row and the column of
`</s>`, which means NULL, or (Ty, Tx) without. A row of F sums to 1 (the source of target word j), and so does a
column of B (the translation of source word i).
"""

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.alignment.link_files import is_hdf5, parse_links
from nmtalign.alignment.links import AlignmentRecord, Link, Matrix, format_links, links_where, normalised_rows
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import atomic_text
from nmtalign.settings.command_settings import HardSymmetrization, SoftSymmetrization, Symmetrization
from nmtalign.text.lines import STDIN, read_pairs, shown
from nmtalign.text.link_counting import SAMPLE, check_alike

BackwardOrder = Literal["target-source", "source-target"]
HARD_METHODS: tuple[HardSymmetrization, ...] = get_args(HardSymmetrization)
SOFT_METHODS: tuple[SoftSymmetrization, ...] = get_args(SoftSymmetrization)
# The smallest weight of a link, chosen on the development set of the gold alignments.
THRESHOLDS = {"product": 0.15, "agreement": 0.6}
_NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))  # (source, target)
_NULL = 0.01  # the weight of both directions' NULL beside the product of two words
_TINY = 1e-12

Links = Collection[Link]


def symmetrize(forward: Links, backward: Links, method: Symmetrization = "grow-diag-final-and") -> list[Link]:
    """Returns one set of links from those of both directions, sorted by target word, then by source word.

    Raises UsageError for a method that is not one of `HARD_METHODS`.
    """
    if method not in HARD_METHODS:
        raise UsageError(f"links are symmetrized by {', '.join(HARD_METHODS)}, not by {method!r}")
    ahead, back = frozenset(forward), frozenset(backward)
    if method in ("intersection", "union"):
        return sorted(ahead & back if method == "intersection" else ahead | back, key=_by_target)
    return sorted(_grow(ahead, back, method), key=_by_target)


def _by_target(link: Link) -> tuple[int, int]:
    return link[1], link[0]


def _grow(forward: frozenset[Link], backward: frozenset[Link], method: Symmetrization) -> set[Link]:
    """Returns the links of the methods whose names begin with grow-diag."""
    links, union = set(forward & backward), forward | backward
    sources, targets = {i for i, _ in links}, {j for _, j in links}  # the words that have a link

    def add(link: Link, enough: Callable[[Iterable[bool]], bool]) -> bool:
        """Adds a link if enough of its two words (any or all) have no link."""
        if not enough((link[0] not in sources, link[1] not in targets)):
            return False
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])
        return True

    # All places of the union are visited in order, so that a pass also visits links added after the current one.
    places, added = sorted(union, key=_by_target), True
    while added and len(links) < len(union):
        added = False
        for i, j in places:
            if (i, j) in links:
                for right, down in _NEIGHBOURS:
                    near = i + right, j + down
                    if near in union and near not in links:
                        added |= add(near, all if method == "grow-diag-strict" else any)
    if method in ("grow-diag-final", "grow-diag-final-and"):
        for direction in (forward, backward):
            for link in sorted(direction - links, key=_by_target):
                add(link, all if method == "grow-diag-final-and" else any)
    return links


def soft_links(
    forward: NDArray[Any], backward: NDArray[Any], method: SoftSymmetrization, threshold: float = 0.0, end: bool = True
) -> list[Link]:
    """Returns the links on which two soft matrices agree, by target word, then by source word.

    A threshold of 0 means that of `THRESHOLDS`.

    - "product": sqrt(F[j, i] B[j, i]), the geometric mean of both weights, is at least the threshold (Liang et al.
      2006 take the product of posteriors).
    - "agreement": `posterior` is at least the threshold. At 0.5 this is minimum Bayes risk for the number of errors,
      where a wrong link and a missing link count alike; 0.6 had the lowest error rate for plain and guided models.
    """
    return _agreed(forward, backward, method, threshold, end)[0]


def least_weight(method: Symmetrization, threshold: float) -> float:
    """Returns the smallest weight of a link: the threshold, or if it is 0 that of the method."""
    return threshold or THRESHOLDS.get(method, 0.0)


def _agreed(
    forward: NDArray[Any], backward: NDArray[Any], method: SoftSymmetrization, threshold: float, end: bool
) -> tuple[list[Link], NDArray[Any]]:
    """Returns the links of `soft_links` and the probability of each place (Ty, Tx), by which they were chosen."""
    least = least_weight(method, threshold)
    if method == "agreement":
        likely = posterior(forward, backward, end)
        return links_where(likely >= least), likely
    both = _product(forward, backward, end)
    return links_where(both >= max(least**2, _TINY)), np.sqrt(both)


def posterior(forward: NDArray[Any], backward: NDArray[Any], end: bool = True) -> Matrix:
    """Returns the posterior of each link given both directions, (Ty, Tx) without `</s>`: fractions between 0 and 1.

    F[j, i] B[j, i] is the probability that both directions choose the link (agreement, Liang et al. 2006). Normalised
    over the source words it is a posterior of the source of target word j; normalised over the target words it is one
    of the translation of source word i. Both include NULL. The mean of both is returned.
    """
    both = _product(forward, backward, end)
    target_null, source_null = np.zeros((len(both), 1)), np.zeros((1, both.shape[1]))
    if end:
        target_null = _NULL * np.square(forward[:-1, -1:], dtype=np.float64)
        source_null = _NULL * np.square(backward[-1:, :-1], dtype=np.float64)
    by_target = both / (both.sum(1, keepdims=True) + target_null + _TINY)
    by_source = both / (both.sum(0, keepdims=True) + source_null + _TINY)
    return np.asarray((by_target + by_source) / 2, dtype=np.float32)


def combined(
    forward: NDArray[Any], backward: NDArray[Any], mean: Literal["geometric", "arithmetic"], end: bool = True
) -> Matrix:
    """Returns one matrix of two: the mean of both weights of each link, with rows that sum to 1.

    With `</s>` (`end`), NULL of a target word is the mean of its weight on `</s>` in F and of the probability that no
    source word chooses it in B, if each chooses independently; the row of `</s>` is computed in the same way. A row
    without weight stays 0.
    """
    first, second = forward.astype(np.float64), backward.astype(np.float64)
    if end:
        first[-1, :-1] = np.prod(1 - first[:-1, :-1], axis=0)
        second[:-1, -1] = np.prod(1 - second[:-1, :-1], axis=1)
    return normalised_rows(np.sqrt(np.maximum(first * second, 0)) if mean == "geometric" else (first + second) / 2)


def _product(forward: NDArray[Any], backward: NDArray[Any], end: bool) -> NDArray[np.float64]:
    """Returns the product of both weights of each pair of words."""
    stop = -1 if end else None
    return np.asarray(forward[:stop, :stop].astype(np.float64) * backward[:stop, :stop])


def join(
    forward: AlignmentRecord, backward: AlignmentRecord, method: Symmetrization, threshold: float = 0.0
) -> AlignmentRecord:
    """Returns one record of the two directions of a pair, with the log-probabilities of the forward model.

    The source of `backward` is the target of the pair. The links are symmetrized by `method`, soft methods using
    `threshold`. The weights are the mean of both (`combined`): arithmetic for methods of links, geometric for methods
    of matrices. The score of a link is the probability by which a soft method chose it, else its weight. Raises
    InputError if the words differ, ValueError for an unknown method.
    """
    _check_words(forward, backward)
    if forward.empty():
        return forward
    weights, turned = forward.weights, backward.weights.T
    joined = combined(weights, turned, _mean_of(method), forward.end)
    if method in HARD_METHODS:
        links, likely = symmetrize(forward.hard_links, [(i, j) for j, i in backward.hard_links], method), joined
    elif method in SOFT_METHODS:
        links, likely = _agreed(weights, turned, method, threshold, forward.end)
    else:
        raise ValueError(f"unknown method of symmetrization {method!r}")
    scores = tuple(float(likely[j, i]) for i, j in links)
    return replace(forward, weights=np.ascontiguousarray(joined), hard_links=tuple(links), link_scores=scores)


def _mean_of(method: Symmetrization) -> Literal["geometric", "arithmetic"]:
    return "arithmetic" if method in HARD_METHODS else "geometric"


def what_weights_are(method: Symmetrization) -> str:
    """Returns a description of the weights of a joined record."""
    return f"{_mean_of(method)} mean of both directions; each row, NULL included, sums to 1"


def _check_words(forward: AlignmentRecord, backward: AlignmentRecord) -> None:
    if forward.end != backward.end:
        raise ValueError("one direction has the row and the column of </s>, the other has not")
    for ours, theirs in ((forward.source, backward.target), (forward.target, backward.source)):
        if ours != theirs:
            place = next((k for k, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), -1)
            words = f"{ours[place]!r} and {theirs[place]!r}" if place >= 0 else f"{len(ours)} and {len(theirs)} words"
            raise InputError(
                f"line {forward.sentence_id + 1}: the two directions have different words ({words}); "
                "give text with spaces between words, and --tokenized"
            )


@dataclass
class DirectionCounts:
    """Counts over the pairs of both directions."""

    pairs: int = 0
    links: int = 0  # after symmetrization
    both: int = 0  # links of forward that backward has too
    exchanged: int = 0  # links of forward that backward would have with source and target exchanged

    def looks_exchanged(self) -> bool:
        """Returns whether far more links agree with source and target of backward exchanged."""
        return self.exchanged > 2 * self.both + 10


def symmetrize_files(
    forward: Path,
    backward: Path,
    output: Path | TextIO,
    method: Symmetrization = "grow-diag-final-and",
    threshold: float | None = None,
    backward_order: BackwardOrder | None = None,
) -> DirectionCounts:
    """Joins two texts of links in Pharaoh's format (`-` for stdin), or two alignment files, pair by pair.

    `output` is a text, a stream, or for two alignment files an alignment file (.h5). `threshold` is the smallest weight
    of a link of alignment files: of the result for soft methods, of each direction for methods of links (None: the
    stored links). `backward_order` says which position the links of a text `backward` have first (None: the target).
    Raises UsageError and FormatError for files that are not the two directions of the same pairs and for options that
    they do not have, InputError, naming file and line, if their lines or words do not fit.
    """
    soft, counts, stored = _both_are_hdf5(forward, backward), DirectionCounts(), False
    if isinstance(output, Path):
        stored = output.suffix == ".h5"
    for wrong, problem in (
        (not soft and threshold is not None, "--threshold is for weights, and texts have none: give two .h5"),
        (not soft and stored, f"{output}: HDF5 also needs weights, and texts have only links; give another name"),
        (
            not soft and method not in HARD_METHODS,
            f"--symmetrize {method} needs weights, and texts have none: give two .h5",
        ),
        (soft and backward_order is not None, "--backward-order is for texts: an .h5 records its own direction"),
    ):
        if wrong:
            raise UsageError(problem)
    with contextlib.ExitStack() as stack:
        pairs: Iterable[Sequence[Link]]
        if soft:
            ahead, back = (stack.enter_context(AlignmentFile(path)) for path in (forward, backward))
            _check_files(ahead, back)
            records = _joined(ahead, back, method, threshold)
            if stored and isinstance(output, Path):
                attributes = _attributes(ahead, back, method, threshold)
                writer = stack.enter_context(AlignmentWriter(output, attributes, ahead.dtype, end=ahead.end))
                for record in records:
                    counts.pairs, counts.links = counts.pairs + 1, counts.links + len(record.hard_links)
                    writer.add(record)
                return counts
            pairs = (record.hard_links for record in records)
        else:
            pairs = _joined_texts(forward, backward, method, backward_order or "target-source", counts)
        stream = stack.enter_context(atomic_text(output)) if isinstance(output, Path) else output
        for links in pairs:
            stream.write(format_links(links) + "\n")
            counts.pairs, counts.links = counts.pairs + 1, counts.links + len(links)
    return counts


def _joined_texts(
    forward: Path, backward: Path, method: Symmetrization, order: BackwardOrder, counts: DirectionCounts
) -> Iterator[list[Link]]:
    """Yields the links of each pair of two texts, and counts those that agree."""
    pairs = _read(forward, backward, order)
    first = list(islice(pairs, SAMPLE))
    check_alike(shown(forward), shown(backward), first)
    for ahead, back in chain(first, pairs):
        counts.both += len(ahead & back)
        counts.exchanged += sum((j, i) in back for i, j in ahead)
        yield symmetrize(ahead, back, method)


def _read(forward: Path, backward: Path, order: BackwardOrder) -> Iterator[tuple[frozenset[Link], frozenset[Link]]]:
    """Yields the links of each pair in both directions, source first."""
    for line, (ours, theirs) in enumerate(read_pairs(forward, backward), 1):
        ahead = parse_links(ours, f"{shown(forward)}: line {line}")
        back = parse_links(theirs, f"{shown(backward)}: line {line}")
        yield ahead.possible, (back.turned() if order == "target-source" else back).possible


def _attributes(
    ahead: AlignmentFile, back: AlignmentFile, method: Symmetrization, threshold: float | None
) -> dict[str, object]:
    options = {"method": method, "threshold": threshold, "forward": str(ahead.path), "backward": str(back.path)}
    return {
        "model_hash": "+".join(str(file.attributes.get("model_hash", "")) for file in (ahead, back)),
        "direction": str(ahead.attributes.get("direction", "")),
        "made_by": "symmetrize",
        "links_method": str(ahead.attributes.get("links_method", "argmax")),
        "symmetrization": method,
        "threshold": least_weight(method, threshold or 0.0),
        "weights_are": what_weights_are(method),
        "options": json.dumps(options),
    }


def _joined(
    ahead: AlignmentFile, back: AlignmentFile, method: Symmetrization, threshold: float | None
) -> Iterator[AlignmentRecord]:
    for number, (ours, theirs) in enumerate(zip(ahead, back, strict=True)):
        if (ours.sentence_id, ours.rank) != (theirs.sentence_id, theirs.rank):
            raise InputError(
                f"{back.path}: record {number} is sentence {theirs.sentence_id}, and that of {ahead.path} sentence "
                f"{ours.sentence_id}; align the same pairs in both directions"
            )
        if threshold is not None and method in HARD_METHODS:
            ours, theirs = (replace(one, hard_links=tuple(one.links(threshold=threshold))) for one in (ours, theirs))
        try:
            yield join(ours, theirs, method, threshold or 0.0)
        except InputError as error:
            raise InputError(f"{ahead.path} and {back.path}: {error}") from None


def _check_files(ahead: AlignmentFile, back: AlignmentFile) -> None:
    """Raises an error unless the files are the two directions of the same pairs."""
    directions = [str(file.attributes.get("direction", "")).split("-") for file in (ahead, back)]
    if all(len(languages) == 2 for languages in directions) and directions[0] != directions[1][::-1]:
        raise UsageError(
            f"{back.path}: is {'-'.join(directions[1])}, and {ahead.path} {'-'.join(directions[0])}; BACKWARD must be "
            f"{'-'.join(directions[0][::-1])}: align target and source with a model of that direction"
        )
    if len(ahead) != len(back):
        raise FormatError(
            f"{ahead.path} has {len(ahead):,} records, and {back.path} {len(back):,}; align the same pairs in both "
            "directions"
        )
    if ahead.end != back.end:
        without = back.path if ahead.end else ahead.path
        raise UsageError(f"{without}: is without </s>, and the other file with it; align both with or without it")


def _both_are_hdf5(forward: Path, backward: Path) -> bool:
    """Returns whether both are alignment files; raises UsageError if only one of them is."""
    kinds = [
        is_hdf5(path) if path != STDIN and path.is_file() else path.suffix == ".h5" for path in (forward, backward)
    ]
    if kinds[0] != kinds[1]:
        text, soft = (backward, forward) if kinds[0] else (forward, backward)
        raise UsageError(f"{text}: is text, and {soft} HDF5; give two files of one kind")
    return kinds[0]
