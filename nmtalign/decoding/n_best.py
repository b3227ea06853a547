"""Moses n-best lists that come in: read, matched with their sources, written out with scores added."""

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtalign.decoding.rescoring import score_pairs
from nmtalign.decoding.results import ScoredPair
from nmtalign.decoding.stream import AtHand
from nmtalign.decoding.translator import Translator
from nmtalign.errors import InputError, UsageError
from nmtalign.text.lines import read_lines, shown

_ID = re.compile(r"\d{1,15}", re.ASCII)
_NAME = re.compile(r"[^\s=|]+")


@dataclass(frozen=True)
class NBestLine:
    """A line of a list: `id ||| text`, then features and score if there are any; what follows them is kept as it is."""

    sentence: int  # id: the line of the source, from 0
    fields: tuple[str, ...]

    @property
    def text(self) -> str:
        """The translation."""
        return self.fields[1]

    def with_feature(self, name: str, values: Sequence[float]) -> "NBestLine":
        """The line with the feature `name= value ...` after the others; one of that name goes."""
        fields = [*self.fields, *[""] * (3 - len(self.fields))]
        kept = re.sub(rf"(?<!\S){re.escape(name)}=(?:\s+[^\s=]+(?!\S))*\s*", "", fields[2]).strip(" ")
        feature = f"{name}= {' '.join(f'{value:.6f}' for value in values)}"
        fields[2] = f"{kept} {feature}" if kept else feature
        return NBestLine(self.sentence, tuple(fields))

    def with_score(self, score: float) -> "NBestLine":
        """The line with another score."""
        fields = [*self.fields, *[""] * (4 - len(self.fields))]
        fields[3] = f"{score:.6f}"
        return NBestLine(self.sentence, tuple(fields))

    def __str__(self) -> str:
        """The line without its end."""
        return " ||| ".join(self.fields)


def parse_n_best(line: str, where: str) -> NBestLine:
    """The fields of a line; raises InputError that starts with `where` (file and line)."""
    fields = tuple(field.removeprefix(" ").removesuffix(" ") for field in line.split("|||"))
    if len(fields) < 2 or not _ID.fullmatch(fields[0].strip()):
        raise InputError(
            f"{where}: not a line of an n-best list; write `id ||| translation ||| features ||| score`, "
            "the id the number of the source line, from 0"
        )
    return NBestLine(int(fields[0]), fields)


def read_n_best(n_best: Path, source: Path) -> Iterator[tuple[NBestLine, str]]:
    """The lines of a list, each with its source; a source line may have none.

    Raises InputError that names file and line for what is not an n-best line, an id that falls (the sources are read
    along, not kept), and an id without a source line.
    """
    sources = enumerate(read_lines(source))
    at, text = -1, ""
    for number, line in enumerate(read_lines(n_best), 1):
        where = f"{shown(n_best)}: line {number}"
        parsed = parse_n_best(line, where)
        if parsed.sentence < at:
            raise InputError(
                f"{where}: id {parsed.sentence} comes after id {at}; sort the list by id (sort -s -n -k 1,1)"
            )
        while at < parsed.sentence:
            before, (at, text) = at, next(sources, (-1, ""))
            if at < 0:
                raise InputError(
                    f"{where}: id {parsed.sentence} needs line {parsed.sentence + 1} of {shown(source)}, which has "
                    f"{before + 1} lines; ids count its lines from 0"
                )
        yield parsed, text


def rescore(
    translator: Translator, entries: Iterable[tuple[NBestLine, str]], at_hand: bool = True
) -> Iterator[tuple[NBestLine, ScoredPair]]:
    """Each line of a list with the score of its text, in order; `at_hand` where no line need be waited for."""
    waiting: deque[NBestLine] = deque()

    def pairs() -> Iterator[tuple[str, str]]:
        for line, source in entries:
            waiting.append(line)
            yield source, line.text

    scored = score_pairs(translator, AtHand(pairs()) if at_hand else pairs())
    return ((waiting.popleft(), pair) for pair in scored)


def best_first(found: Iterable[tuple[NBestLine, ScoredPair]]) -> Iterator[tuple[NBestLine, ScoredPair]]:
    """The lines of each sentence by falling score of the models; of equal scores the first stays first."""
    for _, group in itertools.groupby(found, key=lambda entry: entry[0].sentence):
        yield from sorted(group, key=lambda entry: -entry[1].score)


def check_feature_name(name: str) -> None:
    """Raises UsageError for a name that cannot stand before `=` in a list of features."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a feature: give a name without spaces, = and |")
