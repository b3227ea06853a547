"""Whole files of links, to be compared with each other: text in either format, or the links of an alignment file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nmtalign.alignment.link_formats import NO_LINKS, GoldLinks, Role, TextLinks
from nmtalign.alignment.record import AlignmentRecord, Link
from nmtalign.errors import InputError, UsageError
from nmtalign.text.lines import STDIN, read_lines, shown

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
Words = tuple[Sequence[str], Sequence[str]]  # source, target


@dataclass(frozen=True)
class LinkFile:
    """The links of a file, a `GoldLinks` a pair; links that are found by a program are sure."""

    name: str  # as errors call the file
    format: str  # Pharaoh, NAACL or HDF5
    base: int  # what positions count from in the file; here they count from 0
    pairs: Sequence[GoldLinks]
    reverse: bool = False  # the file has the target first; here the source comes first
    text: TextLinks | None = None
    words: Sequence[Words] | None = None  # where the file holds the words, too
    facts: Mapping[str, str] = field(default_factory=dict)  # of an alignment file

    @property
    def open_ended(self) -> bool:
        """Whether the format leaves open how many pairs there are after the last one with links."""
        return self.format == "NAACL"

    @property
    def looks_one_based(self) -> bool:
        """Whether there are links, and no position is 0."""
        positions = [position for pair in self.pairs for link in pair.possible for position in link]
        return bool(positions) and min(positions) > 0

    def turned(self) -> "LinkFile":
        """The file with source and target exchanged."""
        words = None if self.words is None else [(target, source) for source, target in self.words]
        return replace(self, pairs=[pair.turned() for pair in self.pairs], reverse=not self.reverse, words=words)

    def pair(self, number: int) -> GoldLinks:
        """The links of a pair, counted from 0; InputError where the file ends before it."""
        if number < len(self.pairs):
            return self.pairs[number]
        if self.open_ended:
            return NO_LINKS
        raise InputError(
            f"{self.name}: has no line {number + 1}: it has {len(self.pairs)}; give the links of the same sentences"
        )

    def where(self, pair: int, link: Link | None = None) -> str:
        """File and line of a pair or of one of its links, for errors."""
        if self.text is None:
            return f"{self.name}: record {pair}"
        return self.text.where(pair, link[::-1] if link and self.reverse else link)

    def shown_link(self, link: Link) -> str:
        """The link as it stands in the file."""
        i, j = link[::-1] if self.reverse else link
        return f"{i + self.base}-{j + self.base}"

    def check_inside(self, number: int, source_length: int | None, target_length: int | None) -> None:
        """InputError for a link that points outside its pair; a length that is not known is None."""
        for link in sorted(self.pair(number).possible):
            for position, length, side in zip(link, (source_length, target_length), ("source", "target"), strict=True):
                if length is not None and position >= length:
                    raise InputError(
                        f"{self.where(number, link)}: link {self.shown_link(link)} (counted from {self.base}) points "
                        f"outside the pair, whose {side} has {length} word{'' if length == 1 else 's'}; are the texts "
                        "tokenised as the links expect, do they count from there, and is the source first?"
                    )


def read_links(
    path: Path,
    role: Role = "links",
    base: int | None = None,
    reverse: bool = False,
    **choice: Any,
) -> LinkFile:
    """Reads a text of links (plain or .gz, `-` for stdin), or the links of an alignment file.

    `base` (0 or 1) is what positions count from, None that the format says it. `reverse` turns every link round.
    `choice` says which links of an alignment file, as `AlignmentRecord.links`; the stored ones where it is empty.
    Raises InputError naming file and line, FormatError for a damaged alignment file, UsageError for what does not fit.
    """
    if is_hdf5(path):
        if base:
            raise UsageError(f"{path}: positions in an alignment file count from 0; leave --{role}-base out")
        file = _stored_links(path, choice)
    else:
        if choice:
            raise UsageError(f"{shown(path)}: a text of links; another choice of links needs an alignment file (.h5)")
        text = TextLinks(path, base, role)
        file = LinkFile(shown(path), text.format, text.counts_from, list(text), text=text)
    return replace(file.turned(), reverse=True) if reverse else file


def is_hdf5(path: Path) -> bool:
    """Whether HDF5 begins at the start of a file or after a user block of 512 bytes; False where it cannot be read."""
    if path == STDIN or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            start = stream.read(512 + len(_HDF5_MAGIC))
            return start.startswith(_HDF5_MAGIC) or start.startswith(_HDF5_MAGIC, 512)
    except OSError:
        return False


def _stored_links(path: Path, choice: Mapping[str, Any]) -> LinkFile:
    from nmtalign.alignment.store import AlignmentFile

    pairs, words = [], []
    with AlignmentFile(path) as file:
        for record in _first_of_each(path, file):
            links = frozenset(record.links(**choice))
            pairs.append(GoldLinks(links, links))
            words.append((record.source, record.target))
        facts: dict[str, str] = {
            name: str(file.attributes[name]) for name in ("links_method", "model_hash") if name in file.attributes
        }
    if choice:
        facts["links_method"] = ",".join(str(value) for value in choice.values() if value is not None)
    return LinkFile(str(path), "HDF5", 0, pairs, words=words, facts=facts)


def _first_of_each(path: Path, records: Iterator[AlignmentRecord] | Any) -> Iterator[AlignmentRecord]:
    """The best record of each sentence, whose ids must count the lines of a text."""
    expected = 0
    for record in records:
        if record.rank:
            continue
        if record.sentence_id != expected:
            raise InputError(
                f"{path}: has sentence {record.sentence_id} where sentence {expected} should be; give the alignments "
                "of a whole text, in order"
            )
        expected += 1
        yield record


def common_length(files: Sequence[LinkFile], texts: Mapping[str, int]) -> int:
    """How many pairs all files and texts (name: lines) have; InputError naming what has another number of them."""
    counts = {file.name: len(file.pairs) for file in files if not file.open_ended} | dict(texts)
    open_ended = [file for file in files if file.open_ended]
    if not counts:
        return max((len(file.pairs) for file in open_ended), default=0)
    (first, expected), *others = counts.items()
    for name, count in others:
        if count != expected:
            (short, fewer), (long, more) = sorted(((first, expected), (name, count)), key=lambda item: item[1])
            raise InputError(
                f"{short}: has no line {fewer + 1}: it has {_lines(fewer)}, but {long} has {_lines(more)}; give files "
                "with one line a sentence"
            )
    for file in open_ended:
        if (count := len(file.pairs)) > expected:
            where = file.where(count - 1, min(file.pairs[-1].possible))
            raise InputError(
                f"{where}: a link of sentence {count}, but {first} has {_lines(expected)}; give files of the same "
                "sentences"
            )
    return expected


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


def read_words(path: Path) -> list[list[str]]:
    """The words of each line of a tokenised text, set apart by white space."""
    return [line.split() for line in read_lines(path)]
