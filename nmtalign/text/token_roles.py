"""The role of each token in the spacing of a line: a word, a number, a mark, or a mark in one of its uses.

The role of a mark is the mark itself, unless its use depends on the tokens around it: quotation marks, apostrophes,
parentheses, colons between numbers, degrees. `tokenizer.json` holds learned spacings by these names.
"""

import re
import unicodedata
from collections.abc import Callable

WORD, NUMBER, GROUP, CJK = "a", "0", "000", "漢"  # GROUP: three digits, which may follow a number and a space
CONTRACTION, ELISION = "'s", "l'"  # English; French, Italian, Irish
JOIN, LEFT, RIGHT = "=both", "=left", "=right"  # attached to both neighbours, to the left one, to the right one
OPEN_QUOTE, CLOSE_QUOTE = '"(', '")'
CLOSERS = frozenset(".,;:!?)]}»”…") | {"", "..."}  # marks that follow a word, and the end of the line

_GROUP = re.compile(r"\d{3}(?:[.,]\d+)?")
_ENUMERATOR = re.compile(r"(?:\d{1,3}|([a-z])\1{0,2}|[A-Z]|[ivxlc]{1,6}|[IVXLC]{1,6})(?:\.\d+)?")
_SUFFIXES = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
_SPLIT_AT_APOSTROPHES = frozenset(("en", "fr", "it", "ga", "ca"))  # Moses attaches the apostrophe to one part
_LONGEST_QUOTATION = 100  # tokens
_CACHED = 1 << 17  # tokens whose roles are kept


class _RolesOfTokens(dict[str, str]):
    """The role of a token without its context."""

    def __missing__(self, token: str) -> str:
        if len(self) >= _CACHED:
            self.clear()
        role = self[token] = _role_of_character(token) if len(token) == 1 else _role_of_string(token)
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
        return LEFT  # superscripts, fractions, accents
    if category == "Cf" or character in "\u2010\u2011·":
        return JOIN  # joiners, soft hyphens, hyphens and the middle dot stand inside words
    if category == "Sc":
        return "$"
    return character if category[0] in "PS" else WORD


def token_roles(tokens: list[str], language: str) -> list[str]:
    """The role of each token of a line."""
    roles = list(map(_BY_ITSELF.__getitem__, tokens))
    return roles if _USES.keys().isdisjoint(roles) else _LineOfTokens(tokens, roles, language).with_uses()


class _LineOfTokens:
    """Finds the roles of the tokens of a line in context, from left to right."""

    def __init__(self, tokens: list[str], roles: list[str], language: str) -> None:
        self.tokens, self.roles, self.language = tokens, roles, language
        self._opened: set[str] = set()  # quotation marks
        self._double_quotes = tokens.count('"')  # not yet seen
        self._parentheses: list[bool] = []  # for each open one whether it is around a number or a letter
        self._numbered = False  # the same for the last closed one

    def with_uses(self) -> list[str]:
        """The roles in context."""
        for place, role in enumerate(list(self.roles)):
            if (use := _USES.get(role)) is not None:
                self.roles[place] = use(self, place)
        return self.roles

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
        return OPEN_QUOTE if mark in self._opened else CLOSE_QUOTE

    def double_quote(self, i: int) -> str:
        """Marks open and close in turn, but the last of an odd number closes if it cannot open."""
        before, after = self._token(i - 1), self._token(i + 1)
        self._double_quotes -= 1
        if not i or '"' in self._opened or self._double_quotes % 2:
            return self._toggle('"')
        if self._is_number(i - 1) or after in CLOSERS or (before in ",." and after[0].islower()):
            return CLOSE_QUOTE  # 7", or the end of a quotation that began in another line
        return self._toggle('"')

    def single_quote(self, i: int) -> str:
        """An apostrophe, feet (`6'`) or a quotation mark; a pair of marks ends what `` begins."""
        before, after = self._token(i - 1), self._token(i + 1)
        if "'" in (before, after):
            return LEFT
        if "'" in self._opened:
            return self._toggle("'")
        short = before.isalpha() and after.isalpha() and min(len(before), len(after)) <= 2
        if short and self.language not in _SPLIT_AT_APOSTROPHES:
            return JOIN  # German `geht's`
        closed_later = "'" in self.tokens[i + 1 : i + _LONGEST_QUOTATION]
        possessive = self.language == "en" and before.lower().endswith("s") and not closed_later
        if i and (self._is_number(i - 1) or after in CLOSERS or possessive):
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
}
