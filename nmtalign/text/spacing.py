"""Detokenising: where spaces stand between tokens, by the rules of a language and as a training text does.

Two wishes decide about each gap: one of the role of the token before it, one of the role of the token behind it. No
space wins over a space, and a no-break space over a plain one. A training text can overrule the wish of a role
("any ;", "« any") or of a pair of roles ("a –"). Text that deviates from the rules then comes back as it was written.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

from nmtalign.text.token_roles import (
    CJK,
    CLOSE_QUOTE,
    CONTRACTION,
    ELISION,
    GROUP,
    JOIN,
    LEFT,
    NUMBER,
    OPEN_QUOTE,
    RIGHT,
    WORD,
    token_roles,
)

SPACES = ("", " ", "\u00a0", "\u202f")
Counts = Counter[tuple[str, str, str]]  # role before the gap, role behind it, text of the gap

_JOINED = (JOIN, *"/_@\\", "0:0", "0′N")  # no space on either side
_BEHIND_WORDS = ("0(", ")(", "f(")  # parentheses that follow a word, a number or a parenthesis without a space
_CLOSING = (
    LEFT, CONTRACTION, CLOSE_QUOTE, *",.;:!?%)]}”…™®", "...", ")a)", "0′", "n°", *_BEHIND_WORDS,
)  # fmt: skip
_OPENING = (RIGHT, ELISION, OPEN_QUOTE, *"([{“‘„‚¿¡#~", "°C", ")a)", *_BEHIND_WORDS)
_PAIRS = (("!", "!"), ("?", "?"), ("!", "?"), ("?", "!"), ("0′", NUMBER), ("0′", GROUP))
_FIXED = frozenset((JOIN, LEFT, RIGHT))
_EVIDENCE = 20  # smallest number of gaps between two roles from which their spacing is learned
_MAJORITY = 0.6  # smallest share of these gaps that are alike
_ANY = "any"
_PLAIN = frozenset((WORD, NUMBER, GROUP))


class Spacing:
    """Joins the tokens of a language to text. `learned` is the result of `learn` on text of the same kind."""

    def __init__(self, language: str, learned: Mapping[str, str] | None = None) -> None:
        self.language, self.learned = language, dict(learned or {})
        self._gaps = _Gaps(language, self.learned)

    def join(self, tokens: Sequence[str]) -> str:
        """One line of text."""
        words = " ".join(tokens).split()
        if not words:
            return ""
        gaps = map(self._gaps.__getitem__, pairwise(token_roles(words, self.language)))
        return words[0] + "".join(chain.from_iterable(zip(gaps, words[1:], strict=True)))

    def count(self, line: str, tokens: Sequence[str], counts: Counts) -> None:
        """Adds the gaps between the tokens of a line, except those between two words."""
        end, before = 0, ""
        for token, role in zip(tokens, token_roles(list(tokens), self.language), strict=True):
            start = line.find(token, end)
            if start < 0:  # the tokeniser removed characters from the middle of a word
                return
            if before and not (role == WORD == before) and role not in _FIXED and before not in _FIXED:
                counts[before, role, line[end:start]] += 1
            end, before = start + len(token), role

    def learn(self, counts: Counts) -> dict[str, str]:
        """The spacings in which a text deviates from the rules, by "role role" (see the module)."""
        learned: dict[str, str] = {}
        for tallies in (_sides(counts), _pairs(counts)):  # a pair is learned where it deviates from its two sides
            rules = _Gaps(self.language, learned)
            for (before, after), tally in sorted(tallies.items()):
                pair = (WORD if before == _ANY else before), (WORD if after == _ANY else after)
                usual = _usual(tally)
                if tally.total() >= _EVIDENCE and tally[usual] >= _MAJORITY * tally.total() and usual != rules[pair]:
                    learned[f"{before} {after}"] = usual
        return learned


class _Gaps(dict[tuple[str, str], str]):
    """The text between two roles."""

    def __init__(self, language: str, learned: Mapping[str, str]) -> None:
        self._before = dict.fromkeys((*_JOINED, *_CLOSING), "")  # the wish of a role for the gap before it
        self._after = dict.fromkeys((*_JOINED, *_OPENING), "")
        if language == "fr":
            self._before |= dict.fromkeys(":;!?%»", " ")
        else:
            self._before["»"] = self._after["«"] = ""
        if language == "en":
            self._before["°C"] = self._after["$"] = ""
        if language == "de":
            self._before["“"], self._after["“"] = "", " "
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
    """The gaps between two roles and how often each occurs."""
    tallies: _Tallies = defaultdict(Counter)
    for (before, after, gap), count in counts.items():
        tallies[before, after][gap if gap in SPACES else " "] += count
    return tallies


def _sides(counts: Counts) -> _Tallies:
    """The gaps between a mark and the word or number beside it, and how often each occurs."""
    tallies: _Tallies = defaultdict(Counter)
    for (before, after), tally in _pairs(counts).items():
        if before in _PLAIN and after not in _PLAIN:
            tallies[_ANY, after] += tally
        elif after in _PLAIN and before not in _PLAIN:
            tallies[before, _ANY] += tally
    return tallies


def _usual(tally: Counter[str]) -> str:
    """No space if most gaps have none, else the most frequent kind of space."""
    spaces = [(tally[space], -place, space) for place, space in enumerate(SPACES) if space]
    return "" if 2 * tally[""] > tally.total() else max(spaces)[2]
