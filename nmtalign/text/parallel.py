"""Parallel texts: two files that are aligned line by line, or one file with both languages (TSV or TMX)."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmtalign.errors import InputError, UsageError
from nmtalign.text.languages import EXACT, fit, known_language, matched
from nmtalign.text.lines import (
    BOM,
    LONGEST_LINE,
    STDIN,
    bounded_lines,
    decode_line,
    read_pairs,
    reading,
    shown,
    strip_end,
)
from nmtalign.text.tmx import TmxReader, is_tmx

_ROLES = (frozenset(("source", "src")), frozenset(("target", "tgt", "trg")))  # names of columns
_NAMED = 10  # columns that a note lists


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
        self.note = ""  # what was chosen in a file with both languages; known after the last pair

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
            reader = TmxReader(self.source, self._languages)
            for unit in reader.units(stream, head):
                if unit is None:
                    self.skipped += 1
                else:
                    yield unit
            self.note = reader.note()

    def _rows(self, lines: Iterator[bytes]) -> Iterator[tuple[str, str]]:
        first = next(lines, None)
        if first is None:
            return
        names = decode_line(self.source, 1, first).split("\t")
        if len(names) == 1:
            raise _one_text(self.source)
        chosen = _chosen(self.name, names, self._languages, self._columns)
        self.note = f"{self.name}: {chosen.described(names, self._languages)}"
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


def is_plain(path: Path) -> bool:
    """Whether a file is neither TMX nor TSV; False if it is empty, or no regular file."""
    head = _first_line(path)
    return bool(head) and b"\t" not in head and not is_tmx(head)


def languages_of_columns(path: Path, columns: str) -> tuple[str, str]:
    """The languages that name the two columns of a TSV file, in `columns` or in its first line; ("", "") if none do.

    Raises UsageError if the file is plain text.
    """
    if is_plain(path):
        raise _one_text(path)
    names = columns.split(",") if columns else _first_line(path).decode("utf-8", "replace").split("\t")
    codes = [name.strip() if known_language(name) else "" for name in names]
    return (codes[0], codes[1]) if len(codes) == 2 and all(codes) and fit(*codes) != EXACT else ("", "")


def _first_line(path: Path) -> bytes:
    if path == STDIN or (path.exists() and not path.is_file()):
        return b""
    with reading(path) as stream:
        return strip_end(stream.readline(LONGEST_LINE)).removeprefix(BOM)


def _one_text(path: Path) -> UsageError:
    return UsageError(
        f"{shown(path)}: one text is given; give its translation too: SRC TGT, or one TMX or TSV file with both "
        "languages (tabs between the columns)"
    )


class _Columns(NamedTuple):
    """The places of the two texts in each line, and whether the first line is a header."""

    source: int
    target: int
    header: bool

    def described(self, names: Sequence[str], languages: tuple[str, str]) -> str:
        """What was chosen, for the user, and which other columns fit a language that is not named exactly."""
        source, target = (f"column {place + 1}{f' ({names[place]})' * self.header}" for place in self[:2])
        chosen = f"{source} is the source, {target} the target"
        if not self.header:
            return f"{chosen}; line 1 is a pair, no header"
        for place, language in zip(self[:2], languages, strict=True):
            others = [name.strip() for name in names if name != names[place] and fit(name, language)]
            if others and 0 < fit(names[place], language) < EXACT:
                chosen += f"; for {language} it also has {', '.join(others[:_NAMED])}"
        return chosen


def _chosen(name: str, names: Sequence[str], languages: tuple[str, str], columns: str) -> _Columns:
    """The columns of a TSV file with this first line: those that are named, those of its header, or the only two."""
    named = matched(names, languages)
    source, target = (_place(names, name, roles) for name, roles in zip(named, _ROLES, strict=True))
    header = source is not None and target is not None and source != target
    if columns:
        wanted = [part.strip() for part in columns.split(",")]
        header = header or not all(map(str.isdecimal, wanted))
        source, target = (_named(name, names, one) for one in wanted)
        return _Columns(source, target, header)
    if source is not None and target is not None and header:
        return _Columns(source, target, header)
    other = (fit(name, re.split("[-_]", one)[0]) for one in languages if re.search("[-_]", one) for name in names)
    if len(names) == 2 and not any(other):  # a header may name only another region
        return _Columns(0, 1, header=False)
    raise UsageError(
        f"{name}: {_counted(len(names))}, and line 1 does not name {' and '.join(filter(None, languages)) or 'two'}; "
        "choose two, such as --set columns=1,2"
    )


def _place(names: Sequence[str], chosen: str, roles: frozenset[str]) -> int | None:
    """The only column with a chosen name, or without one the only column of a role; None if there is none."""
    found = [place for place, name in enumerate(names) if (name == chosen if chosen else name.strip().lower() in roles)]
    return found[0] if len(found) == 1 else None


def _named(name: str, names: Sequence[str], wanted: str) -> int:
    """The place of a column with this name or number, from 0; raises UsageError if there is none."""
    bare = [one.strip().lower() for one in names]
    if wanted.lower() in bare:
        return bare.index(wanted.lower())
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise UsageError(f"columns: {name} has no column {wanted}; it has {_counted(len(names))}: {', '.join(names)[:80]}")


def _counted(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"
