"""Parallel texts: two files that are aligned line by line, or one file with both languages (TSV or TMX)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmtalign.errors import InputError, UsageError
from nmtalign.text.languages import known_language
from nmtalign.text.lines import BOM, LONGEST_LINE, bounded_lines, decode_line, read_pairs, reading, shown
from nmtalign.text.tmx import fits, is_tmx, read_units

_ROLES = (frozenset(("source", "src")), frozenset(("target", "tgt", "trg")))  # names of columns


class ParallelText:
    """The pairs of `source` and `target`, or of the file `source` if `target` is None; iterate over it once.

    `languages` find the columns of a TSV file with a header and the segments of a TMX file. `columns` names two columns
    of a TSV file, by the names of its header or by numbers from 1, as in "en,fr" or "3,4".
    """

    def __init__(
        self, source: Path, target: Path | None = None, languages: tuple[str, str] = ("", ""), columns: str = ""
    ) -> None:
        self.source, self.target = source, target
        self._languages, self._columns = languages, columns
        self.skipped = 0  # units of a TMX file in which one of the languages is missing
        self.note = ""  # what was chosen in a file with both languages; known after the first pair

    @property
    def name(self) -> str:
        """The names of the files in messages."""
        return " and ".join(shown(path) for path in (self.source, self.target) if path is not None)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The pairs of lines. Raises InputError naming file and line for text that cannot be used.

        Raises UsageError if the one file is plain text, and if it is not clear which columns to take.
        """
        if self.target is not None:
            yield from read_pairs(self.source, self.target)
            return
        with reading(self.source) as stream:
            head = stream.readline(LONGEST_LINE + 1)
            if not is_tmx(head):
                yield from self._rows(bounded_lines(stream, self.source, head))
                return
            self.note = f"{self.name}: TMX, {self._languages[0]} is the source, {self._languages[1]} the target"
            for unit in read_units(stream, head, self.source, self._languages):
                if unit is None:
                    self.skipped += 1
                else:
                    yield unit

    def _rows(self, lines: Iterator[bytes]) -> Iterator[tuple[str, str]]:
        first = next(lines, None)
        if first is None:
            return
        names = decode_line(self.source, 1, first.removeprefix(BOM)).split("\t")
        if len(names) == 1:
            raise UsageError(
                f"{self.name}: one text is given; give its translation too: SRC TGT, or one TMX or TSV file with both "
                "languages (tabs between the columns)"
            )
        chosen = _chosen(self.name, names, self._languages, self._columns)
        self.note = f"{self.name}: {chosen.described(names)}"
        if not chosen.header:
            yield names[chosen.source], names[chosen.target]
        for number, raw in enumerate(lines, 2):
            cells = decode_line(self.source, number, raw).split("\t")
            if len(cells) == len(names):
                yield cells[chosen.source], cells[chosen.target]
            elif cells == [""]:
                yield "", ""
            else:
                raise InputError(
                    f"{self.name}: line {number}: {_counted(len(cells))}, but line 1 has {len(names)}; put one tab "
                    "between two columns, and none inside a text"
                )


def languages_of_columns(path: Path, columns: str) -> tuple[str, str]:
    """The languages that name the two columns of a TSV file, in `columns` or in its first line; ("", "") if none do."""
    names = columns.split(",")
    if not columns and path.is_file():
        with reading(path) as stream:
            names = stream.readline(LONGEST_LINE).removeprefix(BOM).decode("utf-8", "replace").split("\t")
    codes = list(map(known_language, names))
    return (codes[0], codes[1]) if len(codes) == 2 and all(codes) and codes[0] != codes[1] else ("", "")


class _Columns(NamedTuple):
    """The places of the two texts in each line, and whether the first line is a header."""

    source: int
    target: int
    header: bool

    def described(self, names: Sequence[str]) -> str:
        """What was chosen, for the user."""
        source, target = (f"column {place + 1}{f' ({names[place]})' * self.header}" for place in self[:2])
        return f"{source} is the source, {target} the target{'' if self.header else '; line 1 is a pair, no header'}"


def _chosen(name: str, names: Sequence[str], languages: tuple[str, str], columns: str) -> _Columns:
    """The columns of a TSV file with this first line: those that are named, those of its header, or the only two."""
    source, target = (_place(names, language, roles) for language, roles in zip(languages, _ROLES, strict=True))
    header = source is not None and target is not None and source != target
    if columns:
        wanted = [part.strip() for part in columns.split(",")]
        header = header or not all(map(str.isdecimal, wanted))
        source, target = (_named(name, names, one) for one in wanted)
        return _Columns(source, target, header)
    if source is not None and target is not None and header:
        return _Columns(source, target, header)
    if len(names) == 2:
        return _Columns(0, 1, header=False)
    raise UsageError(
        f"{name}: {_counted(len(names))}, and line 1 does not name {' and '.join(filter(None, languages)) or 'two'}; "
        "choose two with --columns, such as --columns 1,2"
    )


def _place(names: Sequence[str], language: str, roles: frozenset[str]) -> int | None:
    """The only column with the name of a language, or else of a role; None if there is none."""
    ranks = [2 * fits(name, language) or int(name.strip().lower() in roles) for name in names]
    return ranks.index(max(ranks)) if max(ranks) and ranks.count(max(ranks)) == 1 else None


def _named(name: str, names: Sequence[str], wanted: str) -> int:
    """The place of a column with this name or number, from 0; raises UsageError if there is none."""
    bare = [one.strip().lower() for one in names]
    if wanted.lower() in bare:
        return bare.index(wanted.lower())
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise UsageError(
        f"--columns: {name} has no column {wanted}; it has {_counted(len(names))}: {', '.join(names)[:80]}"
    )


def _counted(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"
