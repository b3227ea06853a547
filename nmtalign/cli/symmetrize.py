"""`nmtalign symmetrize`: the links of two directions made one, from texts or from files of soft alignments."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from nmtalign.cli.common import QuietOption, notifier, say
from nmtalign.config import Symmetrization
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import atomic_text

if TYPE_CHECKING:
    from nmtalign.alignment.links import Link
    from nmtalign.alignment.record import AlignmentRecord
    from nmtalign.alignment.store import AlignmentFile

STDIO = Path("-")
_METHODS = get_args(Symmetrization)
BackwardOrder = Literal["target-source", "source-target"]

Forward = Annotated[Path, typer.Argument(metavar="FORWARD", help="Links of source and target, text or .h5.")]
Backward = Annotated[Path, typer.Argument(metavar="BACKWARD", help="Those of target and source.")]
Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="intersection, union, grow-diag, grow-diag-final, grow-diag-final-and; of two .h5 also product, mutual, "
        "agreement, bayes-risk.",
    ),
]
Order = Annotated[
    BackwardOrder | None,
    typer.Option(
        metavar="ORDER",
        help="How the text BACKWARD has its links: target-source, as `nmtalign align TGT SRC --pharaoh` writes them "
        "[dim](default)[/dim], or source-target, as `fast_align -r` does.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(metavar="P", min=0, max=1, help="Of two .h5: least weight of a link [dim](the method's own)[/dim]."),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="Links, or of two .h5 one FILE.h5 [dim](stdout)[/dim]."),
]


@dataclass
class _Counts:
    """What went in and came out."""

    pairs: int = 0
    links: int = 0
    both: int = 0  # links of forward that backward has, too
    turned: int = 0  # those that it would have with source and target exchanged

    def compare(self, forward: "frozenset[Link]", backward: "frozenset[Link]") -> None:
        """Counts what the two directions of a pair share."""
        self.both += len(forward & backward)
        self.turned += sum((j, i) in backward for i, j in forward)


def symmetrize(
    forward: Forward,
    backward: Backward,
    method: Method = "grow-diag-final-and",
    backward_order: Order = None,
    threshold: Threshold = None,
    output: Output = STDIO,
    quiet: QuietOption = False,
) -> None:
    """Make the links of two directions one: a line a pair on stdout, source first, counted from 0.

    FORWARD are the links of source and target, BACKWARD those that a model of
    the other direction gives for target and source. Both are text, a line a
    pair, or files of `nmtalign align`, whose directions and words are
    compared, and whose weights the methods product, mutual, agreement and
    bayes-risk need.

    Examples:

      nmtalign symmetrize en-fr.txt fr-en.txt --method grow-diag > links.txt

      nmtalign symmetrize forward.txt reverse.txt --backward-order source-target

      nmtalign symmetrize en-fr.h5 fr-en.h5 --method agreement -o both.h5
    """
    _check(forward, backward, method, output)
    kinds = _is_hdf5(forward), _is_hdf5(backward)
    if kinds[0] != kinds[1]:
        text, soft = (backward, forward) if kinds[0] else (forward, backward)
        raise UsageError(f"{text}: is text, and {soft} HDF5; give two files of one kind")
    counts = _Counts()
    if kinds[0]:
        if backward_order is not None:
            raise UsageError("--backward-order is for texts: a file of alignments says itself what comes first")
        _of_files(forward, backward, method, threshold, output, counts)
    else:
        if threshold is not None:
            raise UsageError("--threshold is for weights, and texts have none: give two .h5 of `nmtalign align`")
        _of_texts(forward, backward, method, backward_order or "target-source", output, counts)
        _warn_of_order(counts, backward, backward_order or "target-source")
    place = "" if output == STDIO else f" in {output}"
    notifier(quiet)(f"{counts.pairs:,} pairs, {counts.links:,} links{place}")


def _check(forward: Path, backward: Path, method: str, output: Path) -> None:
    """Raises UsageError for what does not go together."""
    if method not in _METHODS:
        raise UsageError(f"--method {method}: must be one of {', '.join(_METHODS)}")
    if forward == backward == STDIO:
        raise UsageError("only one of FORWARD and BACKWARD can be stdin")
    if output != STDIO and output.is_dir():
        raise UsageError(f"{output}: is a folder; give the name of a file")
    there = output != STDIO and output.exists()
    if there and any(path.exists() and output.samefile(path) for path in (forward, backward)):
        raise UsageError(f"{output}: is read, too; give -o another name")


def _is_hdf5(path: Path) -> bool:
    if path == STDIO or not path.is_file():
        return path.suffix == ".h5"
    from nmtalign.alignment.link_files import is_hdf5

    return is_hdf5(path)


def _of_texts(forward: Path, backward: Path, method: str, order: BackwardOrder, output: Path, counts: _Counts) -> None:
    from nmtalign.alignment.links import format_links
    from nmtalign.alignment.symmetrize import HARD_METHODS
    from nmtalign.alignment.symmetrize import symmetrize as make_one
    from nmtalign.text.lines import read_pairs

    if output.suffix == ".h5":
        raise UsageError(f"{output}: links alone make no HDF5 file; give another name, or two .h5 of `nmtalign align`")
    hard = next((name for name in HARD_METHODS if name == method), None)
    if hard is None:
        raise UsageError(f"--method {method} needs weights, and texts have none: give two .h5 of `nmtalign align`")
    with _lines_to(output) as write:
        for line, (ours, theirs) in enumerate(read_pairs(forward, backward), 1):
            ahead = frozenset(_links(ours, forward, line))
            back = frozenset(_links(theirs, backward, line))
            if order == "target-source":
                back = frozenset((j, i) for i, j in back)
            links = make_one(ahead, back, hard)
            counts.compare(ahead, back)
            counts.pairs, counts.links = line, counts.links + len(links)
            write(format_links(links) + "\n")


def _links(text: str, path: Path, line: int) -> "list[Link]":
    from nmtalign.alignment.links import parse_links
    from nmtalign.text.lines import shown

    return parse_links(text, f"{shown(path)}: line {line}")


def _warn_of_order(counts: _Counts, backward: Path, order: BackwardOrder) -> None:
    """Says so where the two directions agree far more with the links of BACKWARD turned round."""
    if counts.turned > 2 * counts.both + 10:
        other = "source-target" if order == "target-source" else "target-source"
        say(
            f"{backward}: {counts.both:,} links are in both directions, and {counts.turned:,} would be with "
            f"--backward-order {other}: is that how they are written?"
        )


def _of_files(
    forward: Path, backward: Path, method: str, threshold: float | None, output: Path, counts: _Counts
) -> None:
    from nmtalign.alignment.links import format_links
    from nmtalign.alignment.store import AlignmentFile, AlignmentWriter

    with AlignmentFile(forward) as ahead, AlignmentFile(backward) as back:
        _check_files(ahead, back)
        with contextlib.ExitStack() as stack:
            if output.suffix == ".h5":
                attributes = _attributes(ahead, back, method, threshold)
                end = bool(ahead.attributes.get("end_of_sentence_row", True))
                write = stack.enter_context(AlignmentWriter(output, attributes, ahead.dtype, end=end)).add
            else:
                put = stack.enter_context(_lines_to(output))

                def write(record: "AlignmentRecord") -> None:
                    put(format_links(record.hard_links) + "\n")

            for record in _joined(ahead, back, method, threshold):
                counts.pairs, counts.links = counts.pairs + 1, counts.links + len(record.hard_links)
                write(record)


def _joined(
    ahead: "AlignmentFile", back: "AlignmentFile", method: Any, threshold: float | None
) -> "Iterator[AlignmentRecord]":
    """The records of both files made one."""
    from nmtalign.alignment.both import join
    from nmtalign.alignment.symmetrize import HARD_METHODS

    reads_weights = threshold is not None and method in HARD_METHODS
    for number, (ours, theirs) in enumerate(zip(ahead, back, strict=True)):
        if (ours.sentence_id, ours.rank) != (theirs.sentence_id, theirs.rank):
            raise InputError(
                f"{back.path}: record {number} is sentence {theirs.sentence_id}, and that of {ahead.path} sentence "
                f"{ours.sentence_id}; align the same pairs in both directions"
            )
        if reads_weights:
            ours, theirs = (replace(one, hard_links=tuple(one.links(threshold=threshold))) for one in (ours, theirs))
        try:
            yield join(ours, theirs, method, threshold or 0.0)
        except InputError as error:
            raise InputError(f"{ahead.path} and {back.path}: {error}") from None


def _check_files(ahead: "AlignmentFile", back: "AlignmentFile") -> None:
    """Raises an error, in one line, for files that are not the two directions of the same pairs."""
    directions = [str(file.attributes.get("direction", "")).split("-") for file in (ahead, back)]
    if all(len(languages) == 2 for languages in directions) and directions[0] != directions[1][::-1]:
        raise UsageError(
            f"{back.path}: is {'-'.join(directions[1])}, and {ahead.path} {'-'.join(directions[0])}; BACKWARD is to be "
            f"{'-'.join(directions[0][::-1])}: align target and source with a model of that direction"
        )
    if len(ahead) != len(back):
        raise FormatError(
            f"{ahead.path} has {len(ahead):,} records, and {back.path} {len(back):,}; align the same pairs in both "
            "directions"
        )
    ends = [bool(file.attributes.get("end_of_sentence_row", True)) for file in (ahead, back)]
    if ends[0] != ends[1]:
        without = back.path if ends[0] else ahead.path
        raise UsageError(f"{without}: is without </s>, and the other file with it; align both with --drop-end, or none")


def _attributes(ahead: "AlignmentFile", back: "AlignmentFile", method: Any, threshold: float | None) -> dict[str, Any]:
    """What the joined file says of itself."""
    from nmtalign.alignment.both import what_weights_are

    ours = ahead.attributes
    options = {"method": method, "threshold": threshold, "forward": str(ahead.path), "backward": str(back.path)}
    return {
        "model_hash": "+".join(str(file.attributes.get("model_hash", "")) for file in (ahead, back)),
        "direction": ours.get("direction", ""),
        "made_by": "symmetrize",
        "links_method": ours.get("links_method", "argmax"),
        "symmetrization": method,
        "weights_are": what_weights_are(method),
        "options": json.dumps(options),
    }


@contextlib.contextmanager
def _lines_to(output: Path) -> Iterator[Callable[[str], Any]]:
    """What writes text: to stdout, or to a file that is there when it is whole."""
    if output == STDIO:
        yield sys.stdout.write
        return
    with atomic_text(output) as stream:
        yield stream.write
