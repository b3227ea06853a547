"""Which pairs of raw text become training pairs: dropped ones are counted, others are set aside as dev and test."""

import contextlib
import itertools
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.data.cleaning import REASONS, SAMPLE, Cleaner, bare
from nmtalign.data.corpus import SIDES
from nmtalign.data.pair_spool import SeenTexts
from nmtalign.data.pipeline import CHUNK, Pairs
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import SettingError
from nmtalign.text.spacing import Counts

NO_TRANSLATION, IN_OTHER_SETS, NEAR_DUPLICATE, SET_ASIDE = (
    "no translation",
    "in dev or test",
    "near-duplicate",
    "set aside",
)
Numbered = tuple[int, tuple[str, str]]  # (line from 0, pair)
_SEED = 1234  # of the sentences that are set aside


@dataclass
class PrepTally:
    """The numbers of pairs read and dropped, and the positions of spaces in the target text."""

    pairs: int = 0
    empty: int = 0
    duplicate: int = 0
    too_long: int = 0
    others: Counter[str] = field(default_factory=Counter)  # further reasons, of which none is missing
    spacing: Counts = field(default_factory=Counter)
    # Training only: the lines, from 0, of the pairs that were not dropped for their raw text.
    lines: "array[int]" = field(default_factory=lambda: array("i"))

    def dropped(self) -> dict[str, int]:
        """Reasons and counts, in the words of the summary."""
        return {"empty": self.empty, "duplicate": self.duplicate, "too long": self.too_long, **self.others}


class RawText:
    """The pairs of a set in two temporary files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.paths = tuple(folder / f"{name}.{side}.raw" for side in SIDES)

    def write(self, blocks: Iterable[Pairs]) -> "RawText":
        """Writes all pairs."""
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in self.paths]
            for block in blocks:
                for side, stream in enumerate(streams):
                    stream.writelines(f"{pair[side]}\n" for pair in block)
        return self

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(*map(spooled_lines, self.paths), strict=True)


def spooled_lines(path: Path) -> Iterator[str]:
    """The lines of a temporary file, ended only by `\\n`."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line[:-1]


class OtherSets:
    """The sentences of dev and test, none of which may be in the training text; compared as `config.clean` says."""

    def __init__(self, config: PrepConfig) -> None:
        self.form = bare if config.clean else str.strip
        self._sides: tuple[set[str], set[str]] = set(), set()

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Adds the sentences of a set."""
        for pair in pairs:
            for sentences, line in zip(self._sides, pair, strict=True):
                sentences.add(self.form(line))

    def has(self, forms: Sequence[str]) -> bool:
        """Whether the source or the target of a pair, in the compared form, is in a set."""
        return forms[0] in self._sides[0] or forms[1] in self._sides[1]


class Screen:
    """Drops pairs with a blank side, and as the settings say, repeated ones and those that are no translations."""

    def __init__(self, config: PrepConfig, languages: tuple[str, str], tally: PrepTally, others: OtherSets) -> None:
        self._config, self._languages, self._tally, self._others = config, languages, tally, others
        self._seen, self._near = SeenTexts(), SeenTexts()
        if config.clean:
            tally.others.update(dict.fromkeys((*REASONS, IN_OTHER_SETS, NEAR_DUPLICATE), 0))

    def kept(self, blocks: Iterator[Pairs]) -> Iterator[Pairs]:
        """The pairs of each block that are not dropped; their lines are added to the tally."""
        sample = list(itertools.islice(blocks, SAMPLE // CHUNK if self._config.clean else 0))
        cleaner = Cleaner(self._languages, [pair for block in sample for pair in block])
        line = 0
        for block in itertools.chain(sample, blocks):
            numbered = [
                (number, pair) for number, pair in enumerate(block, line) if pair[0].strip() and pair[1].strip()
            ]
            self._tally.empty += len(block) - len(numbered)
            line += len(block)
            if self._config.drop_duplicates and numbered:
                # No line contains `\n`, so it separates the two sides.
                texts = [f"{source.strip()}\n{target.strip()}" for _, (source, target) in numbered]
                first = self._seen.first_time(texts)
                self._tally.duplicate += first.count(False)
                numbered = list(itertools.compress(numbered, first))
            if self._config.clean:
                numbered = self._cleaned(numbered, cleaner)
            self._tally.lines.extend(number for number, _ in numbered)
            yield [pair for _, pair in numbered]

    def _cleaned(self, numbered: list[Numbered], cleaner: Cleaner) -> list[Numbered]:
        counts, kept, texts = self._tally.others, [], []
        for number, pair in numbered:
            letters = bare(pair[0]), bare(pair[1])
            reason = cleaner.reason(pair, letters) or (IN_OTHER_SETS if self._others.has(letters) else "")
            if reason:
                counts[reason] += 1
            else:
                kept.append((number, pair))
                texts.append("\n".join(letters))
        first = self._near.first_time(texts)
        counts[NEAR_DUPLICATE] += first.count(False)
        return list(itertools.compress(kept, first))


def set_aside(
    blocks: Iterator[Pairs], folder: Path, config: PrepConfig, tally: PrepTally
) -> tuple[dict[str, RawText], Iterator[Pairs]]:
    """Draws dev and test from the pairs: (the sets, the blocks of the other pairs).

    The same text gives the same sets. Each of their sentences, on either side, occurs only once in the sets; a pair
    that has one of them is dropped. Raises SettingError if the text has too few different pairs.
    """
    sizes = {name: count for name, count in (("dev", config.dev_lines), ("test", config.test_lines)) if count}
    forms = OtherSets(config)
    text = RawText(folder, "all")
    drawn = _Draw(sum(sizes.values()))
    seen = SeenTexts(), SeenTexts()

    def watched() -> Iterator[Pairs]:
        for block in blocks:
            firsts = (side.first_time([forms.form(pair[number]) for pair in block]) for number, side in enumerate(seen))
            drawn.add(list(map(all, zip(*firsts, strict=True))))
            yield block

    text.write(watched())
    if drawn.candidates <= drawn.size:
        wanted = {f"{name}_lines": count for name, count in sizes.items()}
        raise SettingError(f"too large for {drawn.candidates:,} different pairs of training text", **wanted)
    places = drawn.places()
    sets, start = {}, 0
    for name, count in sizes.items():
        chosen = set(places[start : start + count])
        sets[name] = RawText(folder, name).write([[pair for place, pair in enumerate(text) if place in chosen]])
        forms.add(sets[name])
        start += count
    tally.others[SET_ASIDE] = len(places)
    tally.others.setdefault(IN_OTHER_SETS, 0)
    return sets, _others(text, frozenset(places), forms, tally)


class _Draw:
    """A random sample of candidates of which the number is not known before (reservoir sampling)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.candidates = self._place = 0
        self._places: list[int] = []
        self._random = random.Random(_SEED)

    def add(self, candidates: Sequence[bool]) -> None:
        """Adds the next pairs, of which some are candidates."""
        for candidate in candidates:
            if candidate:
                self.candidates += 1
                if len(self._places) < self.size:
                    self._places.append(self._place)
                elif (slot := self._random.randrange(self.candidates)) < self.size:
                    self._places[slot] = self._place
            self._place += 1

    def places(self) -> list[int]:
        """The places of the sample among all pairs, in random order."""
        self._random.shuffle(self._places)
        return self._places


def _others(text: RawText, chosen: frozenset[int], forms: OtherSets, tally: PrepTally) -> Iterator[Pairs]:
    """The pairs that are not in the sets; the tally gets their lines."""
    lines, tally.lines = tally.lines, array("i")
    pairs = zip(itertools.count(), lines, text, strict=False)
    while block := list(itertools.islice(pairs, CHUNK)):
        kept = []
        for place, line, pair in block:
            if place in chosen:
                continue
            if forms.has([forms.form(side) for side in pair]):
                tally.others[IN_OTHER_SETS] += 1
                continue
            tally.lines.append(line)
            kept.append(pair)
        yield kept
