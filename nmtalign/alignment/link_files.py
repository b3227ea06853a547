"""Files of links, how links compare with gold links, and files whose positions count the same words.

There are two text formats (docs/formats.md). A line of Pharaoh's format has all links of a pair, counted from 0. A line
of NAACL's format (WPT 2003) is one link, `sentence i j [S or P] [confidence]`, counted from 1: without S or P it is
sure, sentences without links are left out, and the confidence is ignored. The first line that is not blank decides
which format a file has. Scores after a tab are ignored. Alignment files (HDF5) can be read too.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice, takewhile
from operator import add
from pathlib import Path
from typing import Any, Literal

from nmtalign.alignment.alignment_file import AlignmentFile, method_of
from nmtalign.alignment.links import Link
from nmtalign.errors import InputError, UsageError
from nmtalign.hdf5 import is_hdf5
from nmtalign.settings.command_settings import AerConfig
from nmtalign.settings.definition import FilePair, StrPath, argument_layer, resolve
from nmtalign.text import link_counting as counting
from nmtalign.text.languages import is_unspaced, suffix_language
from nmtalign.text.lines import SIDES, STDIN, check_counts, counted, read_lines, shown
from nmtalign.text.tokenizer import MosesWords, SpacedWords
from nmtalign.version import __version__

Role = Literal["gold", "links"]  # errors name the setting gold_base or links_base
Comparable = tuple[Sequence["LinkFile"], int, Sequence[str]]  # files that count alike, pairs, notes on converted files

REVERSE: Mapping[Role, str] = {"gold": "--reverse-gold", "links": "--set reverse_links=true"}  # the settings
_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
SCORES = re.compile(r"\t[0-9. ]*$")  # the second column of `nmtalign link --scores`
_CONFIDENCE = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBERED = re.compile(rf"0*(\d{{1,7}})\s+(\d{{1,9}})\s+(\d{{1,9}})(?:\s+([SP]))?(?:\s+{_CONFIDENCE})?", re.ASCII)


@dataclass(frozen=True)
class GoldLinks:
    """The links of one pair: `sure`, and `possible`, which contains the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    @classmethod
    def of(cls, links: Sequence[tuple[Link, bool]]) -> "GoldLinks":
        """The links of a pair, each with whether it is sure; if all are, one set takes half the memory."""
        possible, sure = frozenset(link for link, _ in links), frozenset(link for link, is_sure in links if is_sure)
        return cls(possible if len(sure) == len(possible) else sure, possible)

    def turned(self) -> "GoldLinks":
        return GoldLinks.of([((j, i), (i, j) in self.sure) for i, j in self.possible])


NO_LINKS = GoldLinks(frozenset(), frozenset())


@dataclass(frozen=True)
class LinkFigures:
    """Counts of found links A, sure gold links S and possible ones P, and their rates; add the figures of each pair.

    Rates are fractions between 0 and 1; one with a denominator of 0 is 1, and then the AER is 0.
    """

    pairs: int = 0
    sure: int = 0  # |S|
    links: int = 0  # |A|
    links_sure: int = 0  # |A and S|
    links_possible: int = 0  # |A and P|

    def __add__(self, other: "LinkFigures") -> "LinkFigures":
        return LinkFigures(*map(add, vars(self).values(), vars(other).values()))

    @property
    def precision(self) -> float:
        """|A and P| / |A|."""
        return self.links_possible / self.links if self.links else 1.0

    @property
    def recall(self) -> float:
        """|A and S| / |S|."""
        return self.links_sure / self.sure if self.sure else 1.0

    @property
    def aer(self) -> float:
        """1 - (|A and S| + |A and P|) / (|A| + |S|)."""
        total = self.links + self.sure
        return 1 - (self.links_sure + self.links_possible) / total if total else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        mean = 0.5 * self.precision + 0.5 * self.recall
        return self.precision * self.recall / mean if mean else 0.0

    def rates(self) -> dict[str, float | None]:
        """Returns the rates by name, each None if there are neither sure nor found links."""
        rates = {"precision": self.precision, "recall": self.recall, "aer": self.aer, "f1": self.f1}
        return {name: rate if self.links or self.sure else None for name, rate in rates.items()}


def count_links(links: Iterable[Link], gold: GoldLinks) -> LinkFigures:
    """Returns the figures of one pair."""
    found = frozenset(links)
    return LinkFigures(1, len(gold.sure), len(found), len(found & gold.sure), len(found & gold.possible))


@dataclass(frozen=True)
class LinkFile:
    """The links of a complete file, one `GoldLinks` per pair; links that a program found are sure."""

    name: str  # for errors
    format: str  # Pharaoh, NAACL or HDF5
    base: int  # first position in the file; positions in `pairs` count from 0
    pairs: Sequence[GoldLinks]
    reverse: bool = False  # whether the file has the target first; `pairs` have the source first
    words: Sequence[tuple[Sequence[str], Sequence[str]]] | None = None  # of source and target, if the file has them
    method: str | None = None  # for an alignment file: how its links were made
    model: str = ""  # for an alignment file: the hash of the model
    role: Role = "links"

    @property
    def open_ended(self) -> bool:
        """Whether pairs without links may follow the last one, so that the number of pairs is not known."""
        return self.format == "NAACL"

    def turned(self) -> "LinkFile":
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

    def check_inside(self, number: int, source_length: int | None, target_length: int | None) -> None:
        """Raises InputError for a link outside its pair; a length of None is not known."""
        for link in sorted(self.pair(number).possible):
            for position, length, side in zip(link, (source_length, target_length), SIDES, strict=True):
                if length is not None and position >= length:
                    i, j = link[::-1] if self.reverse else link
                    places = {"HDF5": f"record {number}", "Pharaoh": f"line {number + 1}"}
                    place = places.get(self.format, f"sentence {number + 1}")
                    raise InputError(
                        f"{self.name}: {place}: link {i + self.base}-{j + self.base} (counted from {self.base}) "
                        f"points outside the pair, whose {side} has {counted(length, 'word')}; are the links of these "
                        "texts, tokenised alike (`align --tokenized`), do they count from there, and is the source "
                        f"first (else {'leave out' if self.reverse else 'give'} {REVERSE[self.role]})?"
                    )


def read_links(path: Path, role: Role = "links", base: int | None = None, reverse: bool = False) -> LinkFile:
    """Reads a text of links (plain or compressed, `-` for stdin), or the links of an alignment file.

    Positions count from `base` (0 or 1; None: as usual in the format). `reverse` exchanges source and target. Raises
    InputError naming file and line, FormatError for a damaged alignment file.
    """
    if path != STDIN and is_hdf5(path):
        if base:
            raise UsageError(f"{path}: positions in an alignment file count from 0; leave --{role}-base out")
        file = _stored_links(path)
    else:
        lines, name = list(read_lines(path)), shown(path)
        numbered = bool(_NUMBERED.fullmatch(next((line.strip() for line in lines if line.strip()), "")))
        base = int(numbered) if base is None else base
        if numbered:
            file = LinkFile(name, "NAACL", base, _naacl_links(lines, name, base, role))
        else:
            pairs = [parse_links(line, f"{name}: line {number}", base, role) for number, line in enumerate(lines, 1)]
            file = LinkFile(name, "Pharaoh", base, pairs)
    return replace(file.turned() if reverse else file, reverse=reverse, role=role)


def parse_links(text: str, where: str, base: int = 0, role: Role = "links") -> GoldLinks:
    """Returns the links of a line in Pharaoh's format, counted from 0, while those of the line count from `base`.

    The line may have scores (`AlignmentRecord.scored_links`). Raises InputError that starts with `where` (file and
    line).
    """
    try:
        return GoldLinks.of([_parsed(part, base, role) for part in SCORES.sub("", text).split()])
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


@lru_cache(1 << 16)  # large files repeat few different links, each of which is read once and is one object
def _parsed(part: str, base: int, role: Role) -> tuple[Link, bool]:
    """Returns a link in Pharaoh's format, counted from 0, and whether it is sure."""
    match = _LINK.fullmatch(part)
    if not match:
        raise InputError(f"{part!r} is not a link; write 0-0 2-1, or 0p0 or 0?0 for a possible gold link")
    return _from_zero(int(match[1]), int(match[3]), repr(part), base, role), match[2] == "-"


def _from_zero(i: int, j: int, where: str, base: int, role: Role) -> Link:
    if min(i, j) < base:
        raise InputError(
            f"{where} has a position 0, but positions count from {base} here; if 0 is no word (NULL), leave such links "
            f"out; if they count from 0, give --{role}-base 0"
        )
    return i - base, j - base


def _naacl_links(lines: Sequence[str], name: str, base: int, role: Role) -> list[GoldLinks]:
    found = defaultdict[int, list[tuple[Link, bool]]](list)
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
        pair, link = int(match[1]) - 1, _from_zero(int(match[2]), int(match[3]), f"{where}: {line!r}", base, role)
        found[pair].append((link, match[4] != "P"))
    return [GoldLinks.of(found[pair]) if pair in found else NO_LINKS for pair in range(max(found, default=-1) + 1)]


def _stored_links(path: Path) -> LinkFile:
    """Reads the links of the best record of each sentence."""
    pairs, words = list[GoldLinks](), list[tuple[Sequence[str], Sequence[str]]]()
    with AlignmentFile(path) as file:
        for pair in file.links():
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
        model = str(file.attributes.get("model_hash", ""))  # an untrusted file may have a number
        return LinkFile(str(path), "HDF5", 0, pairs, words=words, method=method_of(file.attributes), model=model)


def check_gold(gold: LinkFile, file: AlignmentFile) -> None:
    """Raises InputError if gold links are of other texts, or one of both counts words between spaces, the other tokens.

    Only the first pairs are compared.
    """
    known = takewhile(lambda pair: pair.sentence_id < len(gold.pairs), file.links())
    best = list(islice((pair for pair in known if pair.rank == 0), counting.SAMPLE))
    counting.check_alike(gold.name, str(file.path), ((gold.pair(one.sentence_id).possible, one.links) for one in best))
    for pair in best:
        gold.check_inside(pair.sentence_id, len(pair.source), len(pair.target))


def comparable(
    files: Sequence[LinkFile], texts: tuple[Path | None, Path | None], others: Sequence[FilePair] = ()
) -> Comparable:
    """Returns files of links, gold links first, as links between the same words.

    Where one file counts the words between spaces and another one tokens, the links of the first become links between
    tokens. This needs both texts: those given, or two of `others` that fit. Raises InputError for files of unequal
    length, for a link outside its pair, and if files that count differently cannot be converted.
    """
    lines = {path: list(read_lines(path)) for path in texts if path}
    pairs = common_length(files, {shown(path): len(text) for path, text in lines.items()})
    source, target = texts
    if source and target and (found := _in_tokens(files, (source, target), lines)):
        return found
    try:
        for file in files[1:]:
            both = ((file.pair(number).possible, files[0].pair(number).possible) for number in range(pairs))
            counting.check_alike(file.name, files[0].name, both)
    except InputError as error:
        for one in others:
            with suppress(InputError):  # other texts, or none
                lines = {path: list(read_lines(path)) for path in one}
                if {*map(len, lines.values())} == {pairs} and (found := _in_tokens(files, one, lines)):
                    return found
        fix = "or convert them with the raw texts: nmtalign aer --source SRC --target TGT"
        raise InputError(f"{error}, {fix}") from None
    known, split = next(filter(None, (file.words for file in files)), None), SpacedWords().tokenize
    sides = [  # the words that the links count
        [pair[side] for pair in known] if known else list(map(split, lines[path])) if path else None
        for side, path in enumerate(texts)
    ]
    for number in range(pairs) if any(texts) or known else ():
        for file in files:
            file.check_inside(number, *(None if own is None else len(own[number]) for own in sides))
    return files, pairs, ()


def _in_tokens(files: Sequence[LinkFile], texts: FilePair, lines: Mapping[Path, Sequence[str]]) -> Comparable | None:
    """Returns the files with links between the tokens of two raw texts; None if none of them counts tokens."""
    # In a text without spaces, the words of an alignment file may be pieces, which the text does not show.
    if any(file.words is not None for file in files) and any(is_unspaced(lines[path]) for path in texts):
        return None
    sides = []
    for path in texts:
        tokenize = MosesWords(suffix_language(path)).tokenize
        sides.append([counting.SplitLine.of(line, tokenize(line)) for line in lines[path]])
    pairs = list(zip(*sides, strict=True))
    counted = [counting.counts_words((file.pair(k).possible, pair) for k, pair in enumerate(pairs)) for file in files]
    if False not in counted:
        return None
    found = [_converted(file, pairs, bool(words)) for file, words in zip(files, counted, strict=True)]
    notes = [counting.converted_note(file.name) for file, words in zip(files, counted, strict=True) if words]
    return found, len(pairs), notes


def _converted(file: LinkFile, pairs: Sequence[counting.SplitPair], words: bool) -> LinkFile:
    """Returns a file, converted if it counts `words`; raises InputError for a link outside its pair."""
    found = []
    for number, pair in enumerate(pairs):
        file.check_inside(number, *(side.word_count if words else len(side.tokens) for side in pair))
        if words:
            sure, possible = (
                frozenset(counting.token_links(links, pair)) for links in vars(file.pair(number)).values()
            )
            found.append(GoldLinks(sure, possible | sure))
    method = ",".join(filter(None, (file.method, "words-to-tokens")))
    return replace(file, pairs=found, method=method) if words else file


def common_length(files: Sequence[LinkFile], texts: Mapping[str, int]) -> int:
    """Returns the number of pairs that all files and texts (name: lines) have; raises InputError if they differ."""
    counts = {file.name: len(file.pairs) for file in files if not file.open_ended} | dict(texts)
    open_ended = [file for file in files if file.open_ended]
    if not counts:
        return max((len(file.pairs) for file in open_ended), default=0)
    check_counts(counts.items())
    first, expected = next(iter(counts.items()))
    for file in open_ended:
        if (count := len(file.pairs)) > expected:
            raise InputError(
                f"{file.name}: a link of sentence {count}, but {first} has {counted(expected, 'line')}; give files of "
                "the same sentences"
            )
    return expected


@dataclass(frozen=True)
class LinkEvaluation:
    """The links of one file beside the gold links."""

    name: str
    figures: LinkFigures
    signature: str  # everything that reproduces the figures


@dataclass(frozen=True)
class LinkComparison:
    """The evaluation of each file, and notes on likely mistakes in how the files are read."""

    systems: Sequence[LinkEvaluation]
    gold: Sequence[GoldLinks] = field(repr=False)
    notes: Sequence[str]


def aer(
    systems: Sequence[tuple[str, StrPath]],
    gold: StrPath,
    *,
    source: StrPath | None = None,
    target: StrPath | None = None,
    others: Sequence[FilePair] = (),
    config: AerConfig | None = None,
    **settings: Any,
) -> LinkComparison:
    """Compares files of links, (name, path) each, with gold links: AER, precision, recall and F1.

    A file is text in Pharaoh's or NAACL's format, plain or compressed, `-` for stdin, or an alignment file. Where files
    count the words between spaces and others tokens (`comparable`), links are converted with the raw texts `source` and
    `target`, or with two of `others`. `settings` are those of section [aer], such as links_base=1. Raises InputError
    naming file and line, FormatError for a damaged alignment file.
    """
    config = config or resolve(AerConfig, argument_layer("aer", settings, AerConfig))
    answers = read_links(Path(gold), "gold", config.gold_base, config.reverse_gold)
    files = [read_links(Path(path), "links", config.links_base, config.reverse_links) for _, path in systems]
    texts = None if source is None else Path(source), None if target is None else Path(target)
    (answers, *files), pairs, converted = comparable([answers, *files], texts, others)
    expected = [answers.pair(number) for number in range(pairs)]
    found, notes = [], [*converted, *_notes(answers, files, config, pairs)]
    for (name, _), file in zip(systems, files, strict=True):
        links = [file.pair(number).possible for number in range(pairs)]
        figures, turned = _figures(links, expected), _figures(([(j, i) for i, j in one] for one in links), expected)
        found.append(LinkEvaluation(name, figures, _signature(file, answers, expected)))
        if note := _turned_note(file, figures.aer, turned.aer):
            notes.append(f"{note} (or {'leave out ' if answers.reverse else ''}{REVERSE['gold']})")
    return LinkComparison(found, expected, notes)


def _figures(found: Iterable[Collection[Link]], gold: Sequence[GoldLinks]) -> LinkFigures:
    pairs = zip(found, gold, strict=True)
    figures = (count_links(links, pair) for links, pair in pairs if links or pair.possible)  # most of NAACL have none
    return replace(sum(figures, LinkFigures()), pairs=len(gold))


def _notes(gold: LinkFile, files: Sequence[LinkFile], config: AerConfig, pairs: int) -> Iterator[str]:
    """Yields notes on files that may be incomplete, or count from another base."""
    if len(gold.pairs) < pairs:
        yield (
            f"{gold.name}: ends with sentence {len(gold.pairs)} of {pairs}; the others count as sentences without gold "
            "links"
        )
    for file, base in [(gold, config.gold_base), *((file, config.links_base) for file in files)]:
        if base is None and file.format == "Pharaoh":
            links = chain.from_iterable(pair.possible for pair in file.pairs)
            if min(chain.from_iterable(links), default=0) > 0:
                yield f"{file.name}: no position is 0; if positions count from 1 there, give --{file.role}-base 1"


def _turned_note(file: LinkFile, rate: float, other: float) -> str:
    """Returns a note if the AER of a file is far better with source and target exchanged; else ""."""
    if other >= rate - 0.1:
        return ""
    fix = "leave out" if file.reverse else "if it has the target first, give"
    exchanged = f"with source and target exchanged its AER would be {other:.4f} and not {rate:.4f}"
    return f"{file.name}: {exchanged}; {fix} {REVERSE[file.role]}"


def _signature(file: LinkFile, gold: LinkFile, answers: Sequence[GoldLinks]) -> str:
    parts = ["AER"]
    for role, one in (("links", file), ("gold", gold)):
        first = ",target-first" if one.reverse else ""
        parts.append(f"{role}:{Path(one.name).name},{one.format},from-{one.base}{first}")
    parts += [] if file.method is None else [f"method:{file.method}"]
    parts += [] if gold.method is None else [f"gold-method:{gold.method}"]
    sure, possible = (sum(len(links[kind]) for links in map(vars, answers)) for kind in ("sure", "possible"))
    parts += [f"pairs:{len(answers)}", f"sure:{sure}", f"possible:{possible}"]
    parts += [f"model:{'+'.join(part[:12] for part in file.model.split('+'))}"] if file.model else []
    return "|".join([*parts, f"nmtalign:{__version__}"])
