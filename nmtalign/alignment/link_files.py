"""Files of links: text in two formats, read pair by pair or as a whole, and the links of alignment files.

| format  | a line                                                                                 | counts from |
|---------|----------------------------------------------------------------------------------------|-------------|
| Pharaoh | all links of a pair: `i-j` sure, `ipj` or `i?j` only possible; may be empty            | 0           |
| NAACL   | one link: `sentence i j [S or P] [confidence]`, as in the NAACL/WPT 2003 shared task   | 1           |

i is the position of a source word, j that of a target word. In the second format a link without S or P is sure,
sentences count from 1, sentences without links are left out, and the confidence is ignored. The first line that is not
blank decides which format a file has.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmtalign.alignment.links import Link, LinkedPair
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.command_settings import LinkMethod
from nmtalign.text.lines import STDIN, read_lines, shown

if TYPE_CHECKING:
    from nmtalign.alignment.alignment_file import AlignmentFile

Role = Literal["gold", "links"]  # what a file is to the user; errors name the options --gold-base or --links-base
Words = tuple[Sequence[str], Sequence[str]]  # source, target

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
_CONFIDENCE = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBERED = re.compile(rf"0*(\d{{1,7}})\s+(\d{{1,9}})\s+(\d{{1,9}})(?:\s+([SP]))?(?:\s+{_CONFIDENCE})?", re.ASCII)
_WRONG: Mapping[Role, str] = {
    "gold": "is not a gold link; write 0-0 if it is sure, 0p0 or 0?0 if possible",
    "links": "is not a link; write source-target, as in 0-0 2-1",
}


@dataclass(frozen=True)
class GoldLinks:
    """The links of one pair: `sure`, and `possible`, which contains the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def turned(self) -> "GoldLinks":
        """Returns the links with source and target exchanged."""
        return GoldLinks(*(frozenset((j, i) for i, j in links) for links in (self.sure, self.possible)))


NO_LINKS = GoldLinks(frozenset(), frozenset())


def parse_gold(text: str, where: str, base: int = 0, role: Role = "gold") -> GoldLinks:
    """Returns the links of a line in Pharaoh's format, counted from 0, while those of the line count from `base`.

    Raises InputError that starts with `where` (file and line).
    """
    sure, possible = set(), set()
    for part in text.split():
        match = _LINK.fullmatch(part)
        if not match:
            raise InputError(f"{where}: {part!r} {_WRONG[role]}")
        link = _from_zero(int(match[1]), int(match[3]), part, where, base, role)
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def _from_zero(i: int, j: int, part: str, where: str, base: int, role: Role) -> Link:
    if min(i, j) < base:
        null = "; if 0 stands for no word, leave such links out" if base and " " in part else ""
        raise InputError(
            f"{where}: {part!r} has a position 0, but positions count from {base} here; if they count from 0, give "
            f"--{role}-base 0{null}"
        )
    return i - base, j - base


@dataclass
class TextLinks:
    """The links of a text file, pair by pair; iterate only once.

    A Pharaoh file is read while it is iterated, a NAACL file as a whole. Positions count from `base` (0 or 1; None: as
    usual in the format). Raises InputError naming file and line.
    """

    path: Path
    base: int | None = None
    role: Role = "gold"
    numbered: bool = field(init=False)  # one link per line, so that the number of pairs is not known
    line_of: dict[tuple[int, Link], int] = field(init=False, default_factory=dict)  # by (pair, link), if `numbered`

    def __post_init__(self) -> None:
        lines = read_lines(self.path)
        head: list[str] = []
        for line in lines:
            head.append(line)
            if line.strip():
                break
        self.numbered = bool(head and _NUMBERED.fullmatch(head[-1].strip()))
        self.counts_from = int(self.numbered) if self.base is None else self.base
        self._lines = chain(head, lines)

    @property
    def format(self) -> str:
        """The name of the format."""
        return "NAACL" if self.numbered else "Pharaoh"

    def where(self, pair: int, link: Link | None = None) -> str:
        """Returns file and line of a pair, counted from 0, or of one of its links."""
        if not self.numbered:
            return f"{shown(self.path)}: line {pair + 1}"
        line = self.line_of.get((pair, link)) if link else None
        return f"{shown(self.path)}: " + (f"line {line}" if line else f"sentence {pair + 1}")

    def __iter__(self) -> Iterator[GoldLinks]:
        if self.numbered:
            yield from self._numbered_pairs(self._lines)
            return
        for number, line in enumerate(self._lines, 1):
            yield parse_gold(line, f"{shown(self.path)}: line {number}", self.counts_from, self.role)

    def _numbered_pairs(self, lines: Iterable[str]) -> Iterator[GoldLinks]:
        sure: dict[int, set[Link]] = {}
        possible: dict[int, set[Link]] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            pair, link, certain = self._numbered_link(line.strip(), number)
            self.line_of.setdefault((pair, link), number)
            possible.setdefault(pair, set()).add(link)
            if certain:
                sure.setdefault(pair, set()).add(link)
        for pair in range(max(possible, default=-1) + 1):
            if pair in possible:
                yield GoldLinks(frozenset(sure.get(pair, ())), frozenset(possible[pair]))
            else:
                yield NO_LINKS

    def _numbered_link(self, line: str, number: int) -> tuple[int, Link, bool]:
        """Returns (pair counted from 0, link, whether it is sure)."""
        where = f"{shown(self.path)}: line {number}"
        match = _NUMBERED.fullmatch(line)
        if not match:
            raise InputError(
                f"{where}: {line[:40]!r} is not a link; write sentence, source and target position, then optionally S "
                "or P and a confidence, as in 0001 1 2 S"
            )
        if int(match[1]) == 0:
            raise InputError(f"{where}: sentence 0; sentences count from 1 in this format, as in 0001 1 2 S")
        link = _from_zero(int(match[2]), int(match[3]), line, where, self.counts_from, self.role)
        return int(match[1]) - 1, link, match[4] != "P"


@dataclass(frozen=True)
class LinkFile:
    """The links of a whole file, one `GoldLinks` per pair; links that a program found are sure."""

    name: str  # for errors
    format: str  # Pharaoh, NAACL or HDF5
    base: int  # what positions count from in the file; in `pairs` they count from 0
    pairs: Sequence[GoldLinks]
    reverse: bool = False  # whether the file has the target first; `pairs` have the source first
    text: TextLinks | None = None
    words: Sequence[Words] | None = None  # if the file contains the words
    method: str | None = None  # of an alignment file: how its links were made
    model: str | None = None  # of an alignment file: the hash of the model

    @property
    def open_ended(self) -> bool:
        """Whether the format leaves open how many pairs follow the last one with links."""
        return self.format == "NAACL"

    @property
    def looks_one_based(self) -> bool:
        """Whether there are links, and no position is 0."""
        positions = [position for pair in self.pairs for link in pair.possible for position in link]
        return bool(positions) and min(positions) > 0

    def turned(self) -> "LinkFile":
        """Returns the file with source and target exchanged."""
        words = None if self.words is None else [(target, source) for source, target in self.words]
        return replace(self, pairs=[pair.turned() for pair in self.pairs], reverse=not self.reverse, words=words)

    def pair(self, number: int) -> GoldLinks:
        """Returns the links of a pair, counted from 0; raises InputError if the file ends before it."""
        if number < len(self.pairs):
            return self.pairs[number]
        if self.open_ended:
            return NO_LINKS
        raise InputError(
            f"{self.name}: has no line {number + 1}: it has {len(self.pairs)}; give the links of the same sentences"
        )

    def where(self, pair: int, link: Link | None = None) -> str:
        """Returns file and line of a pair or of one of its links, for errors."""
        if self.text is None:
            return f"{self.name}: record {pair}"
        return self.text.where(pair, link[::-1] if link and self.reverse else link)

    def check_inside(self, number: int, source_length: int | None, target_length: int | None) -> None:
        """Raises InputError for a link outside its pair; a length of None is not known."""
        for link in sorted(self.pair(number).possible):
            for position, length, side in zip(link, (source_length, target_length), ("source", "target"), strict=True):
                if length is not None and position >= length:
                    i, j = link[::-1] if self.reverse else link
                    raise InputError(
                        f"{self.where(number, link)}: link {i + self.base}-{j + self.base} (counted from {self.base}) "
                        f"points outside the pair, whose {side} has {_count(length, 'word')}; are the texts tokenised "
                        "as the links expect (`align --tokenized`), do they count from there, and is the source first?"
                    )


def read_links(
    path: Path,
    role: Role = "links",
    base: int | None = None,
    reverse: bool = False,
    *,
    method: LinkMethod | None = None,
    threshold: float | None = None,
) -> LinkFile:
    """Reads a text of links (plain or .gz, `-` for stdin), or the links of an alignment file.

    Positions count from `base` (0 or 1; None: as usual in the format). `reverse` exchanges source and target. `method`
    and `threshold` choose other links of an alignment file than the stored ones, as `AlignmentRecord.links`. Raises
    InputError naming file and line, FormatError for a damaged alignment file, UsageError for a choice that the file
    does not have.
    """
    if is_hdf5(path):
        if base:
            raise UsageError(f"{path}: positions in an alignment file count from 0; leave --{role}-base out")
        file = _stored_links(path, method, threshold)
    else:
        if method is not None or threshold is not None:
            raise UsageError(f"{shown(path)}: a text of links; another choice of links needs an alignment file (.h5)")
        text = TextLinks(path, base, role)
        file = LinkFile(shown(path), text.format, text.counts_from, list(text), text=text)
    return replace(file.turned(), reverse=True) if reverse else file


def is_hdf5(path: Path) -> bool:
    """Returns whether HDF5 begins at the start of a file or after a user block of 512 bytes; False if unreadable."""
    if path == STDIN or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            start = stream.read(512 + len(_HDF5_MAGIC))
            return start.startswith(_HDF5_MAGIC) or start.startswith(_HDF5_MAGIC, 512)
    except OSError:
        return False


def _stored_links(path: Path, method: LinkMethod | None, threshold: float | None) -> LinkFile:
    """Reads the links of the best record of each sentence."""
    from nmtalign.alignment.alignment_file import AlignmentFile

    pairs: list[GoldLinks] = []
    words: list[Words] = []
    with AlignmentFile(path) as file:
        for pair in _linked_pairs(file, method, threshold):
            if pair.rank:
                continue
            if pair.sentence_id != len(pairs):
                raise InputError(
                    f"{path}: has sentence {pair.sentence_id} where sentence {len(pairs)} should be; give the "
                    "alignments of a whole text, in order"
                )
            links = frozenset(pair.links)
            pairs.append(GoldLinks(links, links))
            words.append((pair.source, pair.target))
        made, model = (file.attributes.get(name) for name in ("links_method", "model_hash"))
    chosen = ",".join(str(value) for value in (method, threshold) if value is not None)
    return LinkFile(str(path), "HDF5", 0, pairs, words=words, method=chosen or made, model=model)


def _linked_pairs(file: "AlignmentFile", method: LinkMethod | None, threshold: float | None) -> Iterator[LinkedPair]:
    """Yields the records with the chosen links; weights are read only if they choose the links."""
    if method is None and threshold is None:
        yield from file.links()
        return
    for record in file:
        links = tuple(record.links(method, threshold))
        yield LinkedPair(record.source, record.target, links, record.sentence_id, record.rank)


def common_length(files: Sequence[LinkFile], texts: Mapping[str, int]) -> int:
    """Returns the number of pairs that all files and texts (name: lines) have; raises InputError if they differ."""
    counts = {file.name: len(file.pairs) for file in files if not file.open_ended} | dict(texts)
    open_ended = [file for file in files if file.open_ended]
    if not counts:
        return max((len(file.pairs) for file in open_ended), default=0)
    (first, expected), *others = counts.items()
    for name, count in others:
        if count != expected:
            (short, fewer), (long, more) = sorted(((first, expected), (name, count)), key=lambda item: item[1])
            raise InputError(
                f"{short}: has no line {fewer + 1}: it has {_count(fewer, 'line')}, but {long} has "
                f"{_count(more, 'line')}; give files with one line a sentence"
            )
    for file in open_ended:
        if (count := len(file.pairs)) > expected:
            where = file.where(count - 1, min(file.pairs[-1].possible))
            raise InputError(
                f"{where}: a link of sentence {count}, but {first} has {_count(expected, 'line')}; give files of the "
                "same sentences"
            )
    return expected


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"
