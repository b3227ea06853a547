"""The links of two directions from files: two texts of links, or two alignment files, become one."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.alignment.link_files import is_hdf5
from nmtalign.alignment.links import AlignmentRecord, Link, format_links, parse_links
from nmtalign.alignment.symmetrization import HARD_METHODS, join, least_weight, symmetrize, what_weights_are
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import atomic_text
from nmtalign.settings.command_settings import HardSymmetrization, Symmetrization
from nmtalign.text.lines import STDIN, read_pairs, shown
from nmtalign.text.link_counting import SAMPLE, check_alike

BackwardOrder = Literal["target-source", "source-target"]
Write = Callable[[str], object]


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
    output: Path | Write,
    method: Symmetrization = "grow-diag-final-and",
    threshold: float | None = None,
    backward_order: BackwardOrder | None = None,
) -> DirectionCounts:
    """Joins two texts of links in Pharaoh's format (`-` for stdin), or two alignment files, pair by pair.

    `output` is a text, a function that takes its lines, or for two alignment files an alignment file (.h5). `threshold`
    is the smallest weight of a link of alignment files: of the result for soft methods, of each direction for methods
    of links (None: the stored links). `backward_order` says which position the links of a text `backward` have first
    (None: the target). Raises UsageError and FormatError for files that are not the two directions of the same pairs
    and for options that they do not have, InputError, naming file and line, if their lines or words do not fit.
    """
    if not _both_are_hdf5(forward, backward):
        if threshold is not None:
            raise UsageError("--threshold is for weights, and texts have none: give two .h5 of `nmtalign align`")
        if isinstance(output, Path) and output.suffix == ".h5":
            raise UsageError(
                f"{output}: HDF5 also needs weights, and texts have only links; give another name, or two .h5 of "
                "`nmtalign align`"
            )
        if method not in HARD_METHODS:
            raise UsageError(f"--method {method} needs weights, and texts have none: give two .h5 of `nmtalign align`")
        return _symmetrize_texts(forward, backward, output, method, backward_order or "target-source")
    if threshold is not None and method == "bayes-risk":
        raise UsageError("--method bayes-risk has no threshold; leave out --threshold")
    if backward_order is not None:
        raise UsageError("--backward-order is for texts: an alignment file records its own direction")
    counts = DirectionCounts()
    with AlignmentFile(forward) as ahead, AlignmentFile(backward) as back, contextlib.ExitStack() as stack:
        _check_files(ahead, back)
        put = stack.enter_context(_recording(output, ahead, back, method, threshold))
        for record in _joined(ahead, back, method, threshold):
            counts.pairs, counts.links = counts.pairs + 1, counts.links + len(record.hard_links)
            put(record)
    return counts


def _symmetrize_texts(
    forward: Path, backward: Path, output: Path | Write, method: HardSymmetrization, backward_order: BackwardOrder
) -> DirectionCounts:
    counts, pairs = DirectionCounts(), _read(forward, backward, backward_order)
    first = list(islice(pairs, SAMPLE))
    check_alike(shown(forward), shown(backward), first)
    with _lines_to(output) as write:
        for line, (ahead, back) in enumerate(chain(first, pairs), 1):
            links = symmetrize(ahead, back, method)
            counts.both += len(ahead & back)
            counts.exchanged += sum((j, i) in back for i, j in ahead)
            counts.pairs, counts.links = line, counts.links + len(links)
            write(format_links(links) + "\n")
    return counts


def _read(
    forward: Path, backward: Path, backward_order: BackwardOrder
) -> Iterator[tuple[frozenset[Link], frozenset[Link]]]:
    """Yields the links of each pair in both directions, source first."""
    for line, (ours, theirs) in enumerate(read_pairs(forward, backward), 1):
        ahead = frozenset(parse_links(ours, f"{shown(forward)}: line {line}"))
        back = frozenset(parse_links(theirs, f"{shown(backward)}: line {line}"))
        yield ahead, frozenset((j, i) for i, j in back) if backward_order == "target-source" else back


@contextlib.contextmanager
def _recording(
    output: Path | Write, ahead: AlignmentFile, back: AlignmentFile, method: Symmetrization, threshold: float | None
) -> Iterator[Callable[[AlignmentRecord], object]]:
    """Yields a function that writes a record."""
    if isinstance(output, Path) and output.suffix == ".h5":
        options = {"method": method, "threshold": threshold, "forward": str(ahead.path), "backward": str(back.path)}
        attributes = {
            "model_hash": "+".join(str(file.attributes.get("model_hash", "")) for file in (ahead, back)),
            "direction": str(ahead.attributes.get("direction", "")),
            "made_by": "symmetrize",
            "links_method": str(ahead.attributes.get("links_method", "argmax")),
            "symmetrization": method,
            "threshold": least_weight(method, threshold or 0.0),
            "weights_are": what_weights_are(method),
            "options": json.dumps(options),
        }
        with AlignmentWriter(output, attributes, ahead.dtype, end=ahead.end) as writer:
            yield writer.add
    else:
        with _lines_to(output) as write:
            yield lambda record: write(format_links(record.hard_links) + "\n")


@contextlib.contextmanager
def _lines_to(output: Path | Write) -> Iterator[Write]:
    """Yields a function that writes text: the given one, or that of a file, which appears when it is complete."""
    if isinstance(output, Path):
        with atomic_text(output) as stream:
            yield stream.write
    else:
        yield output


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
        raise UsageError(f"{without}: is without </s>, and the other file with it; align both with --drop-end, or none")


def _both_are_hdf5(forward: Path, backward: Path) -> bool:
    """Returns whether both are alignment files; raises UsageError if only one of them is."""
    kinds = [
        is_hdf5(path) if path != STDIN and path.is_file() else path.suffix == ".h5" for path in (forward, backward)
    ]
    if kinds[0] != kinds[1]:
        text, soft = (backward, forward) if kinds[0] else (forward, backward)
        raise UsageError(f"{text}: is text, and {soft} HDF5; give two files of one kind")
    return kinds[0]
