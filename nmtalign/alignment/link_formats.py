"""Links as text, made by hand or by a program: a line a pair, or a line a link.

| format  | a line                                                                                 | counts from |
|---------|----------------------------------------------------------------------------------------|-------------|
| Pharaoh | all links of a pair: `i-j` sure, `ipj` or `i?j` only possible; may be empty            | 0           |
| NAACL   | one link: `sentence i j [S or P] [confidence]`, as in the NAACL/WPT 2003 shared task   | 1           |

i is the position of a source word, j that of a target word. A link of the second format without S or P is sure, its
sentences count from 1, and those without links are not there; a confidence is read and not used. Which format a file
has is known by its first line that is not blank.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from nmtalign.alignment.record import Link
from nmtalign.errors import InputError
from nmtalign.text.lines import read_lines, shown

Role = Literal["gold", "links"]  # what the file is to the user: the options that mend it are named so

_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
_CONFIDENCE = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBERED = re.compile(rf"0*(\d{{1,7}})\s+(\d{{1,9}})\s+(\d{{1,9}})(?:\s+([SP]))?(?:\s+{_CONFIDENCE})?", re.ASCII)
_WRONG: Mapping[Role, str] = {
    "gold": "is not a gold link; write 0-0 if it is sure, 0p0 or 0?0 if possible",
    "links": "is not a link; write source-target, as in 0-0 2-1",
}


@dataclass(frozen=True)
class GoldLinks:
    """The links of one pair: `sure`, and `possible`, which holds the sure ones, too."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def turned(self) -> "GoldLinks":
        """The same links with source and target exchanged."""
        return GoldLinks(*(frozenset((j, i) for i, j in links) for links in (self.sure, self.possible)))


NO_LINKS = GoldLinks(frozenset(), frozenset())


def parse_gold(text: str, where: str, base: int = 0, role: Role = "gold") -> GoldLinks:
    """The links of one line of Pharaoh's format, counted from 0 whatever `base` the line counts from.

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
    """The links of a text file, pair by pair: iterate once.

    Read as it is iterated, but for the format that gives each link a line, which is read whole. `base`, which counts
    positions, is 0 or 1, or None for the format's own. Raises InputError naming file and line.
    """

    path: Path
    base: int | None = None
    role: Role = "gold"
    numbered: bool = field(init=False)  # a line a link: how many pairs there are is not known
    line_of: dict[tuple[int, Link], int] = field(init=False, default_factory=dict)  # of (pair, link), where `numbered`

    def __post_init__(self) -> None:
        lines = read_lines(self.path)
        head: list[str] = []
        for line in lines:
            head.append(line)
            if line.strip():
                break
        self.numbered = bool(head and _NUMBERED.fullmatch(head[-1].strip()))
        self._base = int(self.numbered) if self.base is None else self.base
        self._lines = chain(head, lines)

    @property
    def format(self) -> str:
        """The name of the format."""
        return "NAACL" if self.numbered else "Pharaoh"

    @property
    def counts_from(self) -> int:
        """0 or 1: `base`, else what the format has."""
        return self._base

    def where(self, pair: int, link: Link | None = None) -> str:
        """File and line of a pair, counted from 0, or of one of its links."""
        if not self.numbered:
            return f"{shown(self.path)}: line {pair + 1}"
        line = self.line_of.get((pair, link)) if link else None
        return f"{shown(self.path)}: " + (f"line {line}" if line else f"sentence {pair + 1}")

    def __iter__(self) -> Iterator[GoldLinks]:
        if self.numbered:
            yield from self._numbered_pairs(self._lines)
            return
        for number, line in enumerate(self._lines, 1):
            yield parse_gold(line, f"{shown(self.path)}: line {number}", self._base, self.role)

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
        """(pair counted from 0, link, whether it is sure)."""
        where = f"{shown(self.path)}: line {number}"
        match = _NUMBERED.fullmatch(line)
        if not match:
            raise InputError(
                f"{where}: {line[:40]!r} is not a link; write sentence, source and target position, then S or P and a "
                "confidence where there are any, as in 0001 1 2 S"
            )
        if int(match[1]) == 0:
            raise InputError(f"{where}: sentence 0; sentences count from 1 in this format, as in 0001 1 2 S")
        link = _from_zero(int(match[2]), int(match[3]), line, where, self._base, self.role)
        return int(match[1]) - 1, link, match[4] != "P"
