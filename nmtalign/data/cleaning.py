"""The filters of `prep --clean`: pairs that are probably no translations of each other, by reason.

A filter sees one pair at a time. The typical ratio of lengths, and the script of a language that is not in the table,
come from the first pairs of the corpus. Nothing depends on chance.
"""

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

# Reasons in the order in which they are checked; a pair is counted under the first one.
REASONS = ("broken text", "no letters", "copy", "wrong script", "markup", "length ratio")
LONGER, SLACK = 3, 20  # a side may be 3 times as long as the other one, scaled to its language, plus 20 characters
FOREIGN = 0.3  # the largest share of letters of other scripts
MARKUP = 0.5  # the largest share of characters in tags and addresses
SAMPLE = 20_000  # pairs

_SCRIPTS = {
    "LATIN": "af az bs ca cs cy da de en eo es et eu fi fr ga gl hr hu id is it lb lt lv ms mt nb nl nn no oc pl pt ro "
    "sk sl sq sv sw tl tr uz vi",
    "CYRILLIC": "be bg kk ky mk mn ru tg uk",
    "ARABIC": "ar ckb fa ps sd ug ur",
    "HEBREW": "he yi",
    "DEVANAGARI": "hi mr ne sa",
    "CJK": "ja ko yue zh",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "GREEK": "el",
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "THAI": "th",
    "BENGALI": "as bn",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "SINHALA": "si",
    "KHMER": "km",
    "LAO": "lo",
    "MYANMAR": "my",
    "ETHIOPIC": "am ti",
    "TIBETAN": "bo",
}
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


class _Scripts(dict[str, str]):
    """The script of a letter, by its Unicode name; "" for letters of all scripts, such as modifiers."""

    def __missing__(self, letter: str) -> str:
        words = re.split("[ -]", unicodedata.name(letter, ""))
        shared = unicodedata.category(letter) in ("Lm", "Mn", "Mc", "Me")
        script = self[letter] = next((word for word in words if word in _SCRIPTS), "" if shared else words[0])
        return script


_LETTERS, _SCRIPT_OF = _BareLetters(), _Scripts()


def bare(line: str) -> str:
    """A line without case, digits, punctuation and blanks: two lines with the same letters are near-duplicates."""
    return line.casefold().translate(_LETTERS)


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
    """The scripts of a language, and "" for letters of all scripts.

    They are those of the text if the language is not in the table, or is written differently here.
    """
    code = re.split("[-_]", language.lower())[0]
    known = frozenset(script for script, codes in _SCRIPTS.items() if code in codes.split())
    counts: Counter[str] = Counter()
    for line in lines:
        for letter, count in Counter(bare(line)).items():
            counts[_SCRIPT_OF[letter]] += count
    del counts[""]
    if not counts or sum(counts[script] for script in known) >= counts.total() / 2:
        return known | {""}
    return frozenset(script for script, count in counts.items() if count >= FOREIGN * counts.total()) | {""}


def _foreign(letters: str, scripts: frozenset[str]) -> float:
    """The share of letters that are in other scripts."""
    if letters.isascii():
        return float("LATIN" not in scripts)
    return sum(count for letter, count in Counter(letters).items() if _SCRIPT_OF[letter] not in scripts) / len(letters)


def _markup(line: str) -> float:
    """The share of characters in HTML tags and addresses."""
    if not _SIGN_OF_MARKUP.search(line):
        return 0.0
    return sum(match.end() - match.start() for match in _MARKUP.finditer(line)) / len(line)
