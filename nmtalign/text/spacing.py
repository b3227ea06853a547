"""Where spaces stand between tokens: by rules for English, French and others, and as a training text does.

Each gap has two sides: what the role of the token before it wants, and what the role of the one after it wants; no
space wins over a space, and either over no wish. A text may overrule the wish of a role ("any ;", "« any") or
of a pair of roles ("a –"), so that text which disagrees with the rules comes back as its own kind is written.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

from nmtalign.text.marks import (
    CJK,
    CLOSE_QUOTE,
    CLOSE_SINGLE,
    CONTRACTION,
    ELISION,
    EMOJI,
    GROUP,
    JOIN,
    LEFT,
    LOOSE,
    NUMBER,
    OPEN_QUOTE,
    OPEN_SINGLE,
    RIGHT,
    WORD,
    Kinds,
)
from nmtalign.text.roles import assign_roles

SPACES = ("", " ", "\u00a0", "\u202f")
Counts = Counter[tuple[str, str, str]]  # role before, role after, what stands between

_JOINED = (JOIN, "/", "_", "0:0", "0–0", "A&A", "US$0", "0′N")
_ENUMERATED = ("0(", ")(", "f(", "a(s", "%(")
_CLOSING = (
    LEFT, CONTRACTION, CLOSE_QUOTE, CLOSE_SINGLE, *",.;:!?%)]}”…™®", "...", ")s", ")a)", ">)", "0′", "n°",
    "US$", *_ENUMERATED,
)  # fmt: skip
_OPENING = (
    RIGHT, ELISION, OPEN_QUOTE, OPEN_SINGLE, *"([{“‘„‚¿¡", "$0", "#0", "<(", "°C", "^...", ")s", ")a)", *_ENUMERATED,
)  # fmt: skip
_PAIRS = (("!", "!"), ("?", "?"), ("!", "?"), ("?", "!"), ("0′", NUMBER), ("0′", GROUP), (EMOJI, EMOJI))
_FIXED = frozenset((JOIN, LEFT, RIGHT, LOOSE))
_EVIDENCE = 20  # gaps of a kind in the text that is counted; fewer teach nothing
_MAJORITY = 0.6  # of them
_ANY = "any"
_PLAIN = frozenset((WORD, NUMBER, GROUP))


class Spacing:
    """Joins tokens to text for a language; `learned` is what `learn` gave for a text of the same kind."""

    def __init__(self, language: str, learned: Mapping[str, str] | None = None) -> None:
        self.language, self.learned = language, dict(learned or {})
        self._kinds = Kinds()
        self._gaps = _Gaps(language, self.learned)

    def join(self, tokens: Sequence[str]) -> str:
        """One line of text."""
        words = " ".join(tokens).split()
        if not words:
            return ""
        gaps = map(self._gaps.__getitem__, pairwise(self._roles(words)))
        return words[0] + "".join(chain.from_iterable(zip(gaps, words[1:], strict=True)))

    def _roles(self, words: list[str]) -> list[str]:
        return assign_roles(words, list(map(self._kinds.__getitem__, words)), self.language)

    def count(self, line: str, tokens: Sequence[str], counts: Counts) -> None:
        """Adds what stands between the tokens of a line of text, words next to words aside."""
        if not tokens:
            return
        roles, end, before = self._roles(list(tokens)), 0, ""
        for token, role in zip(tokens, roles, strict=True):
            start = line.find(token, end)
            if start < 0:  # the tokeniser took something out of the middle of a word
                return
            if before and not (role == WORD == before) and role not in _FIXED and before not in _FIXED:
                counts[before, role, line[end:start]] += 1
            end, before = start + len(token), role

    def learn(self, counts: Counts) -> dict[str, str]:
        """Where a text disagrees with the rules, in the form that `learned` takes."""
        learned: dict[str, str] = {}
        for tallies in (_sides(counts), _pairs(counts)):  # pairs where they disagree with their sides
            rules = _Gaps(self.language, learned)
            for (before, after), tally in sorted(tallies.items()):
                pair = (WORD if before == _ANY else before), (WORD if after == _ANY else after)
                usual = _usual(tally)
                if tally.total() >= _EVIDENCE and tally[usual] >= _MAJORITY * tally.total() and usual != rules[pair]:
                    learned[f"{before} {after}"] = usual
        return learned


class _Gaps(dict[tuple[str, str], str]):
    """What stands between two roles."""

    def __init__(self, language: str, learned: Mapping[str, str]) -> None:
        self._before = dict.fromkeys((*_JOINED, *_CLOSING), "")  # what a role wants before it
        self._after = dict.fromkeys((*_JOINED, *_OPENING), "")
        if language == "fr":
            self._before |= dict.fromkeys(":;!?%»", " ")
        else:
            self._before["»"] = self._after["«"] = ""
        if language == "en":
            self._before["°C"] = ""
        for key, gap in learned.items():
            before, _, after = key.partition(" ")
            if after == _ANY:
                self._after[before] = gap
            elif before == _ANY:
                self._before[after] = gap
            else:
                self[before, after] = gap
        if language != "ko":
            self.setdefault((CJK, CJK), "")
        for pair in _PAIRS:
            self.setdefault(pair, "")

    def __missing__(self, pair: tuple[str, str]) -> str:
        before, after = self._after.get(pair[0], " "), self._before.get(pair[1], " ")
        gap = self[pair] = "" if "" in (before, after) else max(before, after)
        return gap


_Tallies = dict[tuple[str, str], Counter[str]]


def _pairs(counts: Counts) -> _Tallies:
    """How often what stands between two roles."""
    tallies: _Tallies = defaultdict(Counter)
    for (before, after, gap), count in counts.items():
        tallies[before, after][gap if gap in SPACES else " "] += count
    return tallies


def _sides(counts: Counts) -> _Tallies:
    """How often what stands between a mark and the word or number before it, and the one after it."""
    tallies: _Tallies = defaultdict(Counter)
    for (before, after), tally in _pairs(counts).items():
        if before in _PLAIN and after not in _PLAIN:
            tallies[_ANY, after] += tally
        elif after in _PLAIN and before not in _PLAIN:
            tallies[before, _ANY] += tally
    return tallies


def _usual(tally: Counter[str]) -> str:
    """What mostly stands there; of spaces, the most frequent kind."""
    spaces = [(tally[space], -place, space) for place, space in enumerate(SPACES) if space]
    return "" if 2 * tally[""] > tally.total() else max(spaces)[2]
