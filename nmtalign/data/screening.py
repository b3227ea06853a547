"""Which pairs of raw text become training pairs: dropped ones are counted, others are set aside as dev and test.

With `prep --clean`, filters drop pairs that are probably no translations of each other, by reason. A filter sees one
pair at a time. The typical ratio of lengths, and the script of a language that is not in the table, come from the first
pairs of the corpus. Nothing depends on chance.
"""

import contextlib
import functools
import hashlib
import itertools
import random
import re
import statistics
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmtalign.data.pipeline import CHUNK, Pairs, blocks_of
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import SettingError
from nmtalign.text.languages import main_language
from nmtalign.text.lines import BLANK, SIDES, counted
from nmtalign.text.tokenizer import normalized

NO_TRANSLATION, IN_OTHER_SETS = "no translation", "in dev or test"
NEAR_DUPLICATE, SET_ASIDE = "near-duplicate", "set aside"
Numbered = tuple[int, tuple[str, str]]  # (line from 0, pair)
_SEED = 1234  # of the sentences that are set aside

# Reasons in the order in which they are checked; a pair is counted under the first one.
REASONS = ("broken text", "no letters", "copy", "wrong script", "markup", "length ratio")
ALWAYS = ("empty", "duplicate", "too long")  # the reasons without `--clean`
_OF_CLEAN = (*REASONS, IN_OTHER_SETS, NEAR_DUPLICATE)
LONGER, SLACK = 3, 20  # a side may be 3 times as long as the other one, scaled to its language, plus 20 characters
FOREIGN = 0.3  # the largest share of letters of other scripts
MARKUP = 0.5  # the largest share of characters in tags and addresses
SAMPLE = 20_000  # pairs

_TABLE = """
LATIN af az bs ca cs cy da de en eo es et eu fi fr ga gl hr hu id is it lb lt lv ms mt nb nl nn no oc pl pt ro sk sl sq
sv sw tl tr uz vi; CYRILLIC be bg kk ky mk mn ru tg uk; ARABIC ar ckb fa ps sd ug ur; HEBREW he yi; DEVANAGARI hi mr ne
sa; CJK ja ko yue zh; HIRAGANA ja; KATAKANA ja; HANGUL ko; GREEK el; ARMENIAN hy; GEORGIAN ka; THAI th; BENGALI as bn;
TAMIL ta; TELUGU te; KANNADA kn; MALAYALAM ml; GUJARATI gu; GURMUKHI pa; SINHALA si; KHMER km; LAO lo; MYANMAR my;
ETHIOPIC am ti; TIBETAN bo
"""
_SCRIPTS = {script: frozenset(codes) for script, *codes in map(str.split, _TABLE.split(";"))}
# Control characters, U+FFFD, private characters; and UTF-8 that was read as Latin-1 or Windows-1252, as in "Ã©".
_SIGN_OF_BROKEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9fÂÃâÐÑ\ue000-\uf8ff\ufffd]")
_BROKEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ue000-\uf8ff]|[ÃÂ][\x80-\xbf]|Ã[€ƒˆ‰Š‹Œ‘’“”•–—˜™š›œžŸ]|â€|"
    "(?:[ÐÑ][\x80-\xbf€-™Ѐ-џ]){3}"
)
_MARKUP = re.compile(r"</?[A-Za-z!][^<>]{0,1000}>|(?:https?://|www\.)\S+|(?<![^\s>])[^\s@<>]++@[^\s<>]+\.\S+")
_SIGN_OF_MARKUP = re.compile(r"<|://|www\.|@")


class _BareLetters(dict[int, int | None]):
    """Keeps letters and the marks that belong to them, for `str.translate`."""

    def __missing__(self, code: int) -> int | None:
        kept = self[code] = code if unicodedata.category(chr(code))[0] in "LM" else None
        return kept


@functools.cache
def _script_of(letter: str) -> str:
    """The script of a letter, by its Unicode name; "" for letters of all scripts, such as modifiers."""
    words = re.split("[ -]", unicodedata.name(letter, ""))
    shared = unicodedata.category(letter) in ("Lm", "Mn", "Mc", "Me")
    return next((word for word in words if word in _SCRIPTS), "" if shared else words[0])


_LETTERS = _BareLetters()


def bare(line: str) -> str:
    """A line without case, digits, marks and blanks, in NFC: lines with the same letters are near-duplicates."""
    return normalized("NFC", line.casefold()).translate(_LETTERS)


class Cleaner:
    """Tells why a pair is dropped. `sample` are the first pairs of the corpus."""

    def __init__(self, languages: tuple[str, str], sample: Sequence[tuple[str, str]]) -> None:
        ratios = [len(target) / len(source) for source, target in sample if source and target]
        self.ratio = statistics.median(ratios) if ratios else 1.0
        self.scripts = tuple(
            _usual_scripts(language, (pair[side] for pair in sample)) for side, language in enumerate(languages)
        )

    def reason(self, pair: tuple[str, str], letters: tuple[str, str]) -> str:
        """The name of the first filter that drops a pair, or ""; `letters` are the `bare` lines."""
        if any(_SIGN_OF_BROKEN.search(line) and _BROKEN.search(line) for line in pair):
            return "broken text"
        if not all(letters):
            return "no letters"
        if letters[0] == letters[1]:
            return "copy"
        if any(_foreign(line, scripts) > FOREIGN for line, scripts in zip(letters, self.scripts, strict=True)):
            return "wrong script"
        if any(_markup(line) > MARKUP for line in pair):
            return "markup"
        lengths = len(pair[0].strip()) * self.ratio, len(pair[1].strip())
        return "length ratio" if max(lengths) > LONGER * min(lengths) + SLACK else ""


def _usual_scripts(language: str, lines: Iterable[str]) -> frozenset[str]:
    """The scripts of a language (of the text, if it is written differently), and "" for letters of all scripts."""
    known = frozenset(script for script, codes in _SCRIPTS.items() if main_language(language) in codes)
    counts = Counter(map(_script_of, bare("".join(lines))))
    del counts[""]
    if not counts or sum(counts[script] for script in known) >= counts.total() / 2:
        return known | {""}
    return frozenset(script for script, count in counts.items() if count >= FOREIGN * counts.total()) | {""}


def main_script(lines: Iterable[str]) -> str:
    """The script of most letters; kana belong to CJK, like the Han characters beside them."""
    counts = Counter(map(_script_of, bare("".join(lines))))
    counts["CJK"] += counts.pop("HIRAGANA", 0) + counts.pop("KATAKANA", 0)
    del counts[""]
    return max(counts, key=counts.__getitem__)


def _foreign(letters: str, scripts: frozenset[str]) -> float:
    """The share of letters that are in other scripts."""
    if letters.isascii():
        return float("LATIN" not in scripts)
    return sum(count for letter, count in Counter(letters).items() if _script_of(letter) not in scripts) / len(letters)


def _markup(line: str) -> float:
    """The share of characters in HTML tags and addresses."""
    if not _SIGN_OF_MARKUP.search(line):
        return 0.0
    return sum(match.end() - match.start() for match in _MARKUP.finditer(line)) / len(line)


class RawText:
    """The pairs of a set in two temporary files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.paths = tuple(folder / f"{name}.{side}.raw" for side in SIDES)

    def write(self, blocks: Iterable[Pairs]) -> "RawText":
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


class SeenTexts:
    """The texts seen before: 8 bytes per text, in sorted runs that are merged as they grow.

    A Python set of the same hashes takes ten times the memory, too much for 12 million pairs.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def first_time(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text occurs for the first time."""
        raw = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        hashes, first = np.unique(np.frombuffer(raw, dtype=np.uint64), return_index=True)
        new = np.ones(len(hashes), dtype=bool)
        for run in self._runs:
            new &= run[np.minimum(np.searchsorted(run, hashes), len(run) - 1)] != hashes
        merged = hashes[new]
        while self._runs and len(self._runs[-1]) < 2 * len(merged):
            merged = np.sort(np.concatenate((self._runs.pop(), merged)))
        if len(merged):
            self._runs.append(merged)
        answer = np.zeros(len(texts), dtype=bool)
        answer[first[new]] = True
        return answer.tolist()


class Screening:
    """Which training pairs are kept: `dropped` counts the others by reason, `lines` are those of the pairs, from 0."""

    def __init__(self, config: PrepConfig, languages: tuple[str, str]) -> None:
        self._config, self._languages = config, languages
        self._form = bare if config.clean else str.strip  # the form in which sentences are compared
        self._excluded: tuple[set[str], set[str]] = set(), set()  # sentences of dev and test
        self.pairs = 0  # pairs that were read
        self.dropped = Counter(dict.fromkeys((*ALWAYS, *(_OF_CLEAN if config.clean else ())), 0))
        self.lines = array("i")
        self._seen, self._near = SeenTexts(), SeenTexts()

    def exclude(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Excludes the sentences of a set from the training text."""
        for sentences, lines in zip(self._excluded, zip(*pairs, strict=True), strict=False):
            sentences.update(map(self._form, lines))

    def _is_excluded(self, forms: Sequence[str]) -> bool:
        return forms[0] in self._excluded[0] or forms[1] in self._excluded[1]

    def kept(self, blocks: Iterator[Pairs]) -> Iterator[Pairs]:
        """Yields of each block the pairs that are kept: not blank and, as the settings say, new, and translations."""
        sample = list(itertools.islice(blocks, SAMPLE // CHUNK if self._config.clean else 0))
        cleaner = Cleaner(self._languages, [pair for block in sample for pair in block])
        for block in itertools.chain(sample, blocks):
            numbered = list(enumerate(block, self.pairs))
            self.pairs += len(block)
            numbered = self._without("empty", numbered, [not any(map(BLANK.fullmatch, pair)) for _, pair in numbered])
            if self._config.drop_duplicates:
                # No line contains `\n`, so it separates the two sides.
                texts = [f"{source.strip()}\n{target.strip()}" for _, (source, target) in numbered]
                numbered = self._without("duplicate", numbered, self._seen.first_time(texts))
            if self._config.clean:
                letters = [(bare(source), bare(target)) for _, (source, target) in numbered]
                reasons = [
                    cleaner.reason(pair, both) or (IN_OTHER_SETS if self._is_excluded(both) else "")
                    for (_, pair), both in zip(numbered, letters, strict=True)
                ]
                self.dropped.update(filter(None, reasons))
                clean = [not reason for reason in reasons]
                numbered = list(itertools.compress(numbered, clean))
                firsts = self._near.first_time(["\n".join(both) for both in itertools.compress(letters, clean)])
                numbered = self._without(NEAR_DUPLICATE, numbered, firsts)
            self.lines.extend(number for number, _ in numbered)
            yield [pair for _, pair in numbered]

    def _without(self, reason: str, numbered: list[Numbered], keep: Sequence[bool]) -> list[Numbered]:
        """The pairs that are kept; the others are counted under the reason."""
        self.dropped[reason] += len(keep) - sum(keep)
        return list(itertools.compress(numbered, keep))

    def set_aside(
        self, blocks: Iterator[Pairs], sizes: Mapping[str, int], folder: Path
    ) -> tuple[dict[str, RawText], Iterator[Pairs]]:
        """Draws sets of these sizes from the pairs: (the sets, the blocks of the other pairs).

        The same text gives the same sets. Each of their sentences, on either side, occurs only once in the sets; a pair
        that has one of them is dropped. Raises SettingError if the text has too few different pairs.
        """
        text, seen = RawText(folder, "all"), (SeenTexts(), SeenTexts())
        candidates, size = array("i"), sum(sizes.values())  # the places of pairs whose sentences are new

        def watched() -> Iterator[Pairs]:
            places = itertools.count()
            for block in blocks:
                firsts = (side.first_time([self._form(pair[i]) for pair in block]) for i, side in enumerate(seen))
                news = zip(map(all, zip(*firsts, strict=True)), places, strict=False)
                candidates.extend(place for new, place in news if new)
                yield block

        text.write(watched())
        if len(candidates) <= size:
            wanted = {f"{name}_lines": count for name, count in sizes.items()}
            raise SettingError(f"too large for {counted(len(candidates), 'different pair')} of training text", **wanted)
        drawn = random.Random(_SEED).sample(candidates, size)
        sets, places = {}, iter(drawn)
        for name, count in sizes.items():
            chosen = set(itertools.islice(places, count))
            sets[name] = RawText(folder, name).write([[pair for place, pair in enumerate(text) if place in chosen]])
            self.exclude(sets[name])
        self.dropped[SET_ASIDE] = len(drawn)
        self.dropped.setdefault(IN_OTHER_SETS, 0)
        return sets, self._rest(text, frozenset(drawn))

    def _rest(self, text: RawText, drawn: frozenset[int]) -> Iterator[Pairs]:
        """The pairs that are not in the sets; `lines` are then those of these pairs."""
        places, self.lines = enumerate(self.lines), array("i")
        for block in blocks_of(text):
            pairs = zip(block, places, strict=False)
            numbered = [(line, pair) for pair, (place, line) in pairs if place not in drawn]
            fresh = [not self._is_excluded([self._form(side) for side in pair]) for _, pair in numbered]
            numbered = self._without(IN_OTHER_SETS, numbered, fresh)
            self.lines.extend(line for line, _ in numbered)
            yield [pair for _, pair in numbered]
