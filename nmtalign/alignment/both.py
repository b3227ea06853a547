"""Both directions of sentence pairs made one: the links of two models, and one soft matrix."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from nmtalign.alignment.agreement import combined, combined_words, soft_links
from nmtalign.alignment.forced import Aligner, Lines, windows
from nmtalign.alignment.links import Link
from nmtalign.alignment.readings import chosen
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.symmetrize import HARD_METHODS, symmetrize
from nmtalign.config import AlignConfig, SoftSymmetrization, Symmetrization
from nmtalign.errors import InputError, UsageError
from nmtalign.model_directory import LoadedModel

SOFT_METHODS: tuple[SoftSymmetrization, ...] = get_args(SoftSymmetrization)


def align_both(
    forward: LoadedModel,
    backward: LoadedModel,
    pairs: Iterable[Lines],
    config: AlignConfig,
    *,
    tokenized: bool = False,
    first: int = 0,
) -> Iterator[AlignmentRecord]:
    """The records of sentence pairs aligned by two models, in order, numbered from `first`: as `join` makes them one.

    `forward` reads the source and writes the target, `backward` the other way. Otherwise as `align_pairs`. Raises
    UsageError for models of other directions, and InputError, naming the line, where they see other words in a text.
    """
    check_directions(forward, backward)
    config = chosen(config, 2)
    aligners = Aligner(forward, config, tokenized), Aligner(backward, config, tokenized, turned=True)
    return (
        join(ours, theirs, config.symmetrize, config.threshold)
        for ahead, back in windows(aligners, pairs, config, first)
        for ours, theirs in zip(aligners[0].records(ahead), aligners[1].records(back), strict=True)
    )


def check_directions(forward: LoadedModel, backward: LoadedModel) -> None:
    """Raises UsageError unless the backward model writes what the forward one reads, and reads what it writes."""
    ahead = forward.source_language, forward.target_language
    back = backward.source_language, backward.target_language
    if back != ahead[::-1]:
        raise UsageError(
            f"{backward.folder}: translates {'-'.join(back)}, and {forward.folder} {'-'.join(ahead)}: the backward "
            f"model reads the target and writes the source; give one of {'-'.join(ahead[::-1])}"
        )


def join(
    forward: AlignmentRecord, backward: AlignmentRecord, method: Symmetrization, threshold: float = 0.0
) -> AlignmentRecord:
    """One record of a pair's two: all in source-target terms, log-probabilities those of the forward model.

    `backward` is as its model made it: the pair's target is its source. The links are those of both made one; the
    weights the mean of both (`combined`): the arithmetic one for methods that make one of links, the geometric one for
    those that make one of matrices, which `threshold` is for. Raises InputError where the words differ.
    """
    _check_words(forward, backward)
    if forward.empty():
        return forward
    weights, turned = forward.weights, backward.weights.T
    links: list[Link]
    if method in HARD_METHODS:
        links = symmetrize(forward.hard_links, [(i, j) for j, i in backward.hard_links], method)
    elif method in SOFT_METHODS:
        links = soft_links(weights, turned, method, threshold, forward.end)
    else:
        raise ValueError(f"{method!r} is no method of making one of two directions")
    combine = combined if forward.end else combined_words
    mean: Any = "arithmetic" if method in HARD_METHODS else "geometric"
    return replace(forward, weights=np.ascontiguousarray(combine(weights, turned, mean)), hard_links=tuple(links))


def what_weights_are(method: Symmetrization) -> str:
    """What the weights of a joined record are, in words."""
    mean = "arithmetic" if method in HARD_METHODS else "geometric"
    return f"{mean} mean of both directions; each row, NULL included, sums to 1"


def _check_words(forward: AlignmentRecord, backward: AlignmentRecord) -> None:
    if forward.end != backward.end:
        raise ValueError("one direction has the row and the column of </s>, the other has not")
    for ours, theirs in ((forward.source, backward.target), (forward.target, backward.source)):
        if ours != theirs:
            place = next((k for k, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), -1)
            words = f"{ours[place]!r} and {theirs[place]!r}" if place >= 0 else f"{len(ours)} and {len(theirs)} words"
            raise InputError(
                f"line {forward.sentence_id + 1}: the two directions see other words in it ({words}); "
                "give text whose words stand between spaces, and --tokenized"
            )
