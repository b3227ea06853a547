"""Detokenising: where spaces are between tokens, by the rules of a language and as in a training text.

Each token of a line has a role: a word, a number, a mark, or a mark in one of its uses. The role of a mark is the mark
itself, unless its use depends on the tokens around it: quotation marks, apostrophes, parentheses, colons between
numbers, degrees. `tokenizer.json` contains learned spacings by the names of the roles.

Two wishes decide about each gap: one of the role of the token before it, one of the role of the token behind it. No
space wins over a space, and a no-break space over a plain one. A training text can overrule the wish of a role
("any ;", "« any") or of a pair of roles ("a –"). Text that deviates from the rules then comes back as it was written.

An apostrophe or a straight quotation mark between two words may have a spacing of its own with certain words: the role
of the apostrophe of Maltese "ta' Malta" is "=both'←ta", that of Dutch "Anna 's avonds" is "=both'→s→avonds". A role
without a learned spacing has that of its shorter name: "=both'", then "=both".
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise

from nmtalign.text.letters import bare

WORD, NUMBER, GROUP, CJK = "a", "0", "000", "漢"  # GROUP: three digits, which may follow a number and a space
CONTRACTION, ELISION = "'s", "l'"  # English; French, Italian, Irish
JOIN, LEFT, RIGHT = "=both", "=left", "=right"  # attached to both neighbours, to the left one, to the right one
OPEN_QUOTE, CLOSE_QUOTE = '"(', '")'
_CLOSERS = frozenset(".,;:!?)]}»”…") | {"", "..."}  # marks that follow a word, and the end of the line

_GROUP = re.compile(r"\d{3}(?:[.,]\d+)?")
_ENUMERATOR = re.compile(r"(?:\d{1,3}|([a-z])\1{0,2}|[A-Z]|[ivxlc]{1,6}|[IVXLC]{1,6})(?:\.\d+)?")
_SUFFIXES = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
_SPLIT_AT_APOSTROPHES = frozenset(("en", "fr", "it"))  # Moses attaches the apostrophe to one part
_LONGEST_QUOTATION = 100  # tokens
_CACHED = 1 << 17  # tokens whose roles are kept

SPACES = ("", " ", "\u00a0", "\u202f")
Counts = Counter[tuple[str, str, str]]  # role before the gap, role behind it, text of the gap

_JOINED = (JOIN, *"/_@\\", "0:0", "0′N")  # no space on either side
_BEHIND_WORDS = ("0(", ")(", "f(")  # parentheses that follow a word, a number or a parenthesis without a space
_CLOSING = (LEFT, CONTRACTION, CLOSE_QUOTE, *",.;:!?%)]}”…™®", "...", ")a)", "0′", "n°", *_BEHIND_WORDS)
_OPENING = (RIGHT, ELISION, OPEN_QUOTE, *"([{“‘„‚¿¡#~", "°C", ")a)", *_BEHIND_WORDS)
_PAIRS = (("!", "!"), ("?", "?"), ("!", "?"), ("?", "!"), ("0′", NUMBER), ("0′", GROUP))
_LONGEST_NAMES = 4, 2  # letters of a word behind an apostrophe that names its role, alone and with the next word
_AMBIGUOUS = frozenset("'’\"׳״´")
_EVIDENCE = 20  # smallest number of gaps between two roles from which their spacing is learned
_MAJORITY, _BEFORE_WORD = 0.6, 0.9  # smallest share of these gaps that are alike, and if a name has a word behind it
_ANY = "any"
_PLAIN = frozenset((WORD, NUMBER, GROUP))


class Spacing:
    """Joins the tokens of a language to text. `learned` is the result of `learn` on text of the same kind."""

    def __init__(self, language: str, learned: Mapping[str, str] | None = None) -> None:
        self.language, self.learned = language, dict(learned or {})
        self._gaps = _Gaps(language, self.learned)
        self._names = frozenset(chain.from_iterable(map(str.split, self.learned)))

    def join(self, tokens: Sequence[str]) -> str:
        """One line of text."""
        words = " ".join(tokens).split()
        if not words:
            return ""
        gaps = map(self._gaps.__getitem__, pairwise(_roles(words, self.language, self._names)))
        return words[0] + "".join(chain.from_iterable(zip(gaps, words[1:], strict=True)))

    def count(self, line: str, tokens: Sequence[str], counts: Counts) -> None:
        """Adds the gaps between the tokens of a line, except those between two words."""
        end, before, names_before = 0, "", list[str]()
        roles = _roles(list(tokens), self.language)
        line_of_tokens = None if _AMBIGUOUS.isdisjoint(tokens) else _LineOfTokens(list(tokens), roles, self.language)
        for place, (token, role) in enumerate(zip(tokens, roles, strict=True)):
            start = line.find(token, end)
            if start < 0:  # the tokeniser removed characters from the middle of a word
                return
            names = line_of_tokens.names(place) if line_of_tokens else []
            if before and not (role == WORD == before):
                for pair in ((before, role), *((one, role) for one in names_before), *((before, one) for one in names)):
                    counts[*pair, line[end:start]] += 1
            end, before, names_before = start + len(token), role, names

    def learn(self, counts: Counts) -> dict[str, str]:
        """The spacings in which a text deviates from the rules, by "role role" (see the module)."""
        learned: dict[str, str] = {}
        levels = [list(level) for _, level in groupby(sorted(_sides(counts).items(), key=_depth), _depth)]
        for tallies in (*levels, _pairs(counts).items()):  # a longer name or a pair is learned only if it deviates
            rules = _Gaps(self.language, learned)
            for (before, after), tally in sorted(tallies):
                pair = (WORD if before == _ANY else before), (WORD if after == _ANY else after)
                usual, share = _usual(tally), _BEFORE_WORD if "→" in before + after else _MAJORITY
                if tally.total() >= _EVIDENCE and tally[usual] >= share * tally.total() and usual != rules[pair]:
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
        before, after = _wish(self._after, pair[0]), _wish(self._before, pair[1])
        gap = self[pair] = "" if "" in (before, after) else max(before, after)
        return gap


def _names(role: str) -> Iterator[str]:
    """The role and its shorter names, the longest first."""
    yield role
    if (last := max(role.rfind("←"), role.rfind("→"))) > 0:
        yield from _names(role[:last])
    elif role in ("'(", "')", "”(", "”)"):
        yield f'"{role[1]}'
    else:
        yield from (name for name in (JOIN, LEFT, RIGHT) if role.startswith(name))


def _wish(wishes: Mapping[str, str], role: str) -> str:
    return next((wishes[name] for name in _names(role) if name in wishes), " ")


def _depth(side: tuple[tuple[str, str], object]) -> int:
    """The number of names of the mark of a side."""
    return max(len(list(_names(role))) for role in side[0])


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


class _RolesOfTokens(dict[str, str]):
    """The role of a token without its context."""

    def __missing__(self, token: str) -> str:
        if len(self) >= _CACHED:
            self.clear()
        letters = bare(token)
        role = self[token] = _role_of_character(letters) if len(letters) == 1 else _role_of_string(letters)
        return role


_BY_ITSELF = _RolesOfTokens()


def _role_of_string(token: str) -> str:
    from sacremoses.util import is_cjk

    if token[0].isdecimal() or (token[0] in "-+.," and token[1].isdecimal()):
        return GROUP if _GROUP.fullmatch(token) else NUMBER
    if token[0] == "'" and token[1].isalpha():
        return CONTRACTION
    if token[-1] == "'" and token[-2].isalpha():
        return ELISION
    if not token.strip("."):
        return "..."
    return CJK if is_cjk(token[0]) and is_cjk(token[-1]) else WORD


def _role_of_character(character: str) -> str:
    from sacremoses.util import is_cjk

    category = unicodedata.category(character)
    if category == "Nd":
        return NUMBER
    if is_cjk(character) or "\uff01" <= character <= "\uff60":
        return CJK
    if category in ("No", "Mn", "Me"):
        return LEFT + character  # superscripts, fractions, accents
    if category == "Cf" or character in "\u2010\u2011·":
        return JOIN + character  # joiners, soft hyphens, hyphens and the middle dot occur inside words
    if category == "Sc":
        return "$"
    return character if category[0] in "PS" else WORD


def _roles(tokens: list[str], language: str, names: Collection[str] = ()) -> list[str]:
    """The role of each token of a line; `names` are the names of roles whose spacing was learned."""
    roles = list(map(_BY_ITSELF.__getitem__, tokens))
    return roles if _USES.keys().isdisjoint(roles) else _LineOfTokens(tokens, roles, language).with_uses(names)


class _LineOfTokens:
    """Finds the roles of the tokens of a line in context, from left to right."""

    def __init__(self, tokens: list[str], roles: list[str], language: str) -> None:
        self.tokens, self.roles, self.language = tokens, roles, language
        self._opened: set[str] = set()  # quotation marks
        self._double_quotes = tokens.count('"')  # that are still to come
        self._parentheses: list[bool] = []  # for each open one: whether it is around a number or a letter
        self._numbered = False  # the same for the last closed one

    def with_uses(self, names: Collection[str]) -> list[str]:
        """The roles in context."""
        for place, role in enumerate(list(self.roles)):
            if (use := _USES.get(role)) is not None:
                found = use(self, place)
                self.roles[place] = found + role if found in (JOIN, LEFT, RIGHT) else found
                if names:
                    self.roles[place] = next(filter(names.__contains__, self.names(place)), self.roles[place])
        return self.roles

    def names(self, place: int) -> list[str]:
        """The names of the role of an apostrophe or a straight quotation mark beside a word, the longest first."""
        if self.tokens[place] not in _AMBIGUOUS:
            return []
        role, left, right, last = self.roles[place], *map(self._name, (place - 1, place + 1, place + 2))
        alone, with_next = (0 < len(right) <= longest for longest in _LONGEST_NAMES)
        names = [f"{role}→{right}→{last}"] if with_next and last else []
        return names + [f"{role}←{left}"] * bool(left) + [f"{role}→{right}"] * alone

    def _name(self, place: int) -> str:
        return "" if not self._is_word(place) else NUMBER if self._is_number(place) else self._token(place).lower()

    def _token(self, place: int) -> str:
        return self.tokens[place] if 0 <= place < len(self.tokens) else ""

    def _is(self, place: int, *roles: str) -> bool:
        return 0 <= place < len(self.roles) and self.roles[place] in roles

    def _is_word(self, place: int) -> bool:
        return self._is(place, WORD, NUMBER, GROUP, ELISION, CJK)

    def _is_number(self, place: int) -> bool:
        return self._is(place, NUMBER, GROUP)

    def _toggle(self, mark: str) -> str:
        self._opened ^= {mark}
        return f"{mark}(" if mark in self._opened else f"{mark})"

    def double_quote(self, i: int) -> str:
        """Marks open and close in turn, but the last of an odd number closes if it cannot open."""
        before, after = self._token(i - 1), self._token(i + 1)
        self._double_quotes -= 1
        if not i or '"' in self._opened or self._double_quotes % 2:
            return self._toggle('"')
        if self._is_number(i - 1) or after in _CLOSERS or (before in ",." and after[0].islower()):
            return CLOSE_QUOTE  # 7", or the end of a quotation that began in another line
        return self._toggle('"')

    def single_quote(self, i: int) -> str:
        """An apostrophe, feet (`6'`) or a quotation mark; a pair of marks ends what `` begins."""
        before, after = (unicodedata.normalize("NFC", self._token(place)) for place in (i - 1, i + 1))
        if "'" in (before, after):
            return LEFT
        if "'" in self._opened:
            return self._toggle("'")
        short = before.isalpha() and after.isalpha() and min(len(before), len(after)) <= 2
        if short and self.language not in _SPLIT_AT_APOSTROPHES:
            return JOIN  # German `geht's`
        closed_later = "'" in self.tokens[i + 1 : i + _LONGEST_QUOTATION]
        possessive = self.language == "en" and before.lower().endswith("s") and not closed_later
        if i and (self._is_number(i - 1) or after in _CLOSERS or possessive):
            return LEFT
        return self._toggle("'")

    def curly_apostrophe(self, i: int) -> str:
        """The mark is both the apostrophe and the end of a single quotation."""
        before, after = self._token(i - 1).lower(), self._token(i + 1).lower()
        plural = before.endswith(("s", "x")) and len(before) > 1
        if self._is_word(i - 1) and self._is_word(i + 1) and (after in _SUFFIXES or not plural):
            return JOIN
        return LEFT if i else RIGHT

    def right_curly_quote(self, i: int) -> str:
        """Finnish and Swedish begin and end a quotation with the same mark."""
        return self._toggle("”") if self.language in ("fi", "sv") else "”"

    def open_parenthesis(self, i: int) -> str:
        """Function calls `f()` and numbered sections `83(1)(b)`; other parentheses follow a space."""
        inner, alone = self._token(i + 1), self._token(i + 2) == ")"
        numbered = alone and _ENUMERATOR.fullmatch(inner) is not None
        role = "("
        if self._is_word(i - 1) and inner == ")":
            role = "f("
        elif numbered and self._is_number(i - 1):
            role = "0("
        elif numbered and self._token(i - 1) == ")" and self._numbered:
            role = ")("
        self._parentheses.append(numbered)
        return role

    def close_parenthesis(self, i: int) -> str:
        """Numbered sections continue without a space: `83(1)b)`, `a)(i)`."""
        self._numbered = self._parentheses.pop() if self._parentheses else True
        another = self._numbered and self._token(i + 2) == ")" and _ENUMERATOR.fullmatch(self._token(i + 1))
        return ")a)" if another else ")"

    def colon(self, i: int) -> str:
        """Times and scores: `10:30`."""
        return "0:0" if self._is_number(i - 1) and self._is_number(i + 1) else ":"

    def degree(self, i: int) -> str:
        """Degrees, minutes and seconds: `48°25′N`, `20 °C`, `n° 5`."""
        after = self._token(i + 1).rstrip(".")
        if self.tokens[i] == "°" and after in ("C", "F"):
            return "°C"
        if self._is_number(i - 1):
            return "0′N" if len(after) == 1 and after in "NSEWO" else "0′"
        return "n°" if self.tokens[i] == "°" and self._token(i - 1) in ("n", "N") else self.tokens[i]


_USES: dict[str, Callable[[_LineOfTokens, int], str]] = {
    '"': _LineOfTokens.double_quote,
    "'": _LineOfTokens.single_quote,
    "’": _LineOfTokens.curly_apostrophe,
    "”": _LineOfTokens.right_curly_quote,
    "(": _LineOfTokens.open_parenthesis,
    ")": _LineOfTokens.close_parenthesis,
    ":": _LineOfTokens.colon,
    **dict.fromkeys("°′″", _LineOfTokens.degree),
    **dict.fromkeys("׳״´", lambda line, i: line.tokens[i]),  # their use is learned
}
