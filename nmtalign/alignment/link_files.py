"""Files of links, and how links compare with gold links.

| format  | a line                                                                                 | counts from |
|---------|----------------------------------------------------------------------------------------|-------------|
| Pharaoh | all links of a pair: `i-j` sure, `ipj` or `i?j` only possible; may be empty            | 0           |
| NAACL   | one link: `sentence i j [S or P] [confidence]`, as in the NAACL/WPT 2003 shared task   | 1           |

i is the position of a source word, j that of a target word. In the second format a link without S or P is sure,
sentences count from 1, sentences without links are left out, and the confidence is ignored. The first line that is not
blank decides which format a file has. Scores after a tab are ignored. Alignment files (HDF5) can be read too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmtalign.alignment.links import Link, LinkedPair, without_scores
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.command_settings import LinkMethod
from nmtalign.text.lines import STDIN, read_lines, shown
from nmtalign.text.link_counting import SAMPLE, Links, check_alike

if TYPE_CHECKING:
    from nmtalign.alignment.alignment_file import AlignmentFile

Role = Literal["gold", "links"]  # errors name the option --gold-base or --links-base
Words = tuple[Sequence[str], Sequence[str]]  # source, target

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
_CONFIDENCE = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBERED = re.compile(rf"0*(\d{{1,7}})\s+(\d{{1,9}})\s+(\d{{1,9}})(?:\s+([SP]))?(?:\s+{_CONFIDENCE})?", re.ASCII)
_WRONG: Mapping[Role, str] = {
    "gold": "is not a gold link; write 0-0 if it is sure, 0p0 or 0?0 if possible",
    "links": "is not a link; write source-target, as in 0-0 2-1",
}
_EXCHANGED = "all links of the line fit with source and target exchanged: {}"
_OUTSIDE = (
    "are the texts tokenised as the links expect (`align --tokenized`), do they count from there, and is the source "
    "first (else {})?"
)


@dataclass(frozen=True)
class GoldLinks:
    """The links of one pair: `sure`, and `possible`, which contains the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def turned(self) -> "GoldLinks":
        """Returns the links with source and target exchanged."""
        return GoldLinks(*(frozenset((j, i) for i, j in links) for links in (self.sure, self.possible)))


NO_LINKS = GoldLinks(frozenset(), frozenset())


@dataclass(frozen=True)
class ErrorRates:
    """How links compare with gold links: fractions between 0 and 1."""

    precision: float
    recall: float
    aer: float
    f1: float


@dataclass(frozen=True)
class LinkCounts:
    """Counts of found links A, sure gold links S and possible ones P; add those of each pair, then compute rates."""

    links: int = 0  # |A|
    sure: int = 0  # |S|
    links_sure: int = 0  # |A and S|
    links_possible: int = 0  # |A and P|

    def __add__(self, other: "LinkCounts") -> "LinkCounts":
        return LinkCounts(*map(add, vars(self).values(), vars(other).values()))

    @property
    def precision(self) -> float | None:
        """|A and P| / |A|; None without found links."""
        return self.links_possible / self.links if self.links else None

    @property
    def recall(self) -> float | None:
        """|A and S| / |S|; None without sure links."""
        return self.links_sure / self.sure if self.sure else None

    def rates(self) -> ErrorRates:
        """precision = |A and P| / |A|, recall = |A and S| / |S|, AER = 1 - (|A and S| + |A and P|) / (|A| + |S|).

        F1 is the harmonic mean of precision and recall. A fraction with a denominator of 0 is 1.
        """
        precision, recall = (1.0 if rate is None else rate for rate in (self.precision, self.recall))
        total = self.links + self.sure
        aer = 1 - (self.links_sure + self.links_possible) / total if total else 0.0
        return ErrorRates(precision, recall, aer, f_measure(precision, recall))


def f_measure(precision: float, recall: float, alpha: float = 0.5) -> float:
    """1 / (alpha / precision + (1 - alpha) / recall), as in Fraser & Marcu (2007): alpha 0.5 gives F1, 1 precision."""
    mean = (1 - alpha) * precision + alpha * recall
    return precision * recall / mean if mean else 0.0


def count_links(links: Iterable[Link], gold: GoldLinks) -> LinkCounts:
    """Returns the counts of one pair."""
    found = set(links)
    return LinkCounts(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible))


@dataclass(frozen=True)
class LinkFile:
    """The links of a complete file, one `GoldLinks` per pair; links that a program found are sure."""

    name: str  # for errors
    format: str  # Pharaoh, NAACL or HDF5
    base: int  # first position in the file; positions in `pairs` count from 0
    pairs: Sequence[GoldLinks]
    reverse: bool = False  # whether the file has the target first; `pairs` have the source first
    line_of: Mapping[tuple[int, Link], int] = field(default_factory=dict)  # NAACL: line of each (pair, link as written)
    words: Sequence[Words] | None = None  # if the file contains the words
    method: str | None = None  # for an alignment file: how its links were made
    model: str | None = None  # for an alignment file: the hash of the model
    role: Role = "links"

    @property
    def open_ended(self) -> bool:
        """Whether pairs without links may follow the last one, so that the number of pairs is not known."""
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
        """Returns file and line of a pair, counted from 0, or of one of its links, for errors."""
        if self.format == "HDF5":
            return f"{self.name}: record {pair}"
        if self.format == "Pharaoh":
            return f"{self.name}: line {pair + 1}"
        line = self.line_of.get((pair, link[::-1] if self.reverse else link)) if link else None
        return f"{self.name}: line {line}" if line else f"{self.name}: sentence {pair + 1}"

    def check_inside(self, number: int, source_length: int | None, target_length: int | None) -> None:
        """Raises InputError for a link outside its pair; a length of None is not known."""
        links = sorted(self.pair(number).possible)
        for link in links:
            for position, length, side in zip(link, (source_length, target_length), ("source", "target"), strict=True):
                if length is not None and position >= length:
                    i, j = link[::-1] if self.reverse else link
                    fits = len(links) > 2 and all(
                        j < (source_length or 0) and i < (target_length or 0) for i, j in links
                    )
                    option = f"{'leave out' if self.reverse else 'give'} --reverse-{self.role}"
                    raise InputError(
                        f"{self.where(number, link)}: link {i + self.base}-{j + self.base} (counted from {self.base}) "
                        f"points outside the pair, whose {side} has {plural(length, 'word')}; "
                        + (_EXCHANGED if fits else _OUTSIDE).format(option)
                    )


@dataclass
class GoldFile:
    """A file of gold links that is compared with found links pair by pair, in order.

    Positions count from `base` (None: as usual in the format). Raises InputError naming file and line for a link that
    cannot be read or points outside its pair, and for another number of lines than pairs.
    """

    path: Path
    base: int | None = None
    reverse: bool = False  # the file has the target first
    turned: LinkCounts = field(default_factory=LinkCounts)  # of the gold links with source and target exchanged
    counts: LinkCounts = field(default_factory=LinkCounts)
    pairs: int = 0

    def __post_init__(self) -> None:
        self.file: LinkFile = read_links(self.path, "gold", self.base, self.reverse)
        self._first: list[tuple[Links, Links]] = []

    def compare(self, links: Iterable[Link], source_length: int, target_length: int) -> None:
        """Counts the next pair; lengths are in words, without `</s>`."""
        self.file.check_inside(self.pairs, source_length, target_length)
        found, gold = set(links), self.file.pair(self.pairs)
        self.counts += count_links(found, gold)
        self.turned += count_links(found, gold.turned())
        self._first += [(found, gold.possible)] * (len(self._first) < SAMPLE)
        self.pairs += 1

    def finish(self) -> ErrorRates:
        """Returns the rates of all pairs; raises InputError if lines are left over, or count other words."""
        if (found := len(self.file.pairs)) > self.pairs:
            kind = "sentence" if self.file.open_ended else "line"
            raise InputError(
                f"{self.file.name}: has {found} {kind}s, but there are {self.pairs} pairs: "
                f"{kind} {self.pairs + 1} belongs to no pair"
            )
        check_alike("the alignment", self.file.name, self._first)
        return self.counts.rates()


def read_links(
    path: Path,
    role: Role = "links",
    base: int | None = None,
    reverse: bool = False,
    *,
    method: LinkMethod | None = None,
    threshold: float | None = None,
) -> LinkFile:
    """Reads a text of links (plain or compressed, `-` for stdin), or the links of an alignment file.

    Positions count from `base` (0 or 1; None: as usual in the format). `reverse` exchanges source and target. `method`
    and `threshold` choose other links of an alignment file than the stored ones, as `AlignmentRecord.links`; texts
    ignore them. Raises InputError naming file and line, FormatError for a damaged alignment file.
    """
    if is_hdf5(path):
        if base:
            raise UsageError(f"{path}: positions in an alignment file count from 0; leave --{role}-base out")
        file = _stored_links(path, method, threshold)
    else:
        file = _text_links(path, role, base)
    return replace(file.turned() if reverse else file, reverse=reverse, role=role)


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


def _text_links(path: Path, role: Role, base: int | None) -> LinkFile:
    lines, name = list(read_lines(path)), shown(path)
    numbered = bool(_NUMBERED.fullmatch(next((line.strip() for line in lines if line.strip()), "")))
    base = int(numbered) if base is None else base
    if numbered:
        return _naacl_links(lines, name, base, role)
    pairs = [parse_gold(line, f"{name}: line {number}", base, role) for number, line in enumerate(lines, 1)]
    return LinkFile(name, "Pharaoh", base, pairs)


def parse_gold(text: str, where: str, base: int = 0, role: Role = "gold") -> GoldLinks:
    """Returns the links of a line in Pharaoh's format, counted from 0, while those of the line count from `base`.

    Raises InputError that starts with `where` (file and line).
    """
    sure, possible = set(), set()
    for part in without_scores(text).split():
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
        null = "; if 0 means no word, leave these links out" if base and " " in part else ""
        raise InputError(
            f"{where}: {part!r} has a position 0, but positions count from {base} here; if they count from 0, give "
            f"--{role}-base 0{null}"
        )
    return i - base, j - base


def _naacl_links(lines: Sequence[str], name: str, base: int, role: Role) -> LinkFile:
    sure: dict[int, set[Link]] = {}
    possible: dict[int, set[Link]] = {}
    line_of: dict[tuple[int, Link], int] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line:
            continue
        where, match = f"{name}: line {number}", _NUMBERED.fullmatch(line)
        if not match:
            raise InputError(
                f"{where}: {line[:40]!r} is not a link; write sentence, source and target position, then optionally S "
                "or P and a confidence, as in 0001 1 2 S"
            )
        if int(match[1]) == 0:
            raise InputError(f"{where}: sentence 0; sentences count from 1 in this format, as in 0001 1 2 S")
        pair, link = int(match[1]) - 1, _from_zero(int(match[2]), int(match[3]), line, where, base, role)
        line_of.setdefault((pair, link), number)
        possible.setdefault(pair, set()).add(link)
        if match[4] != "P":
            sure.setdefault(pair, set()).add(link)
    pairs = [
        GoldLinks(frozenset(sure.get(pair, ())), frozenset(possible[pair])) if pair in possible else NO_LINKS
        for pair in range(max(possible, default=-1) + 1)
    ]
    return LinkFile(name, "NAACL", base, pairs, line_of=line_of)


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
                    "alignments of a complete text, in order"
                )
            links = frozenset(pair.links)
            pairs.append(GoldLinks(links, links))
            words.append((pair.source, pair.target))
        made, model = file.method(), file.attributes.get("model_hash")
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


def plural(number: int, unit: str) -> str:
    """Returns a number and its unit, such as "1 line" or "2 lines"."""
    return f"{number} {unit}{'' if number == 1 else 's'}"
