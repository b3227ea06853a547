"""What a token is by itself, a word, a number or a mark, and what may be asked of the line around it."""

import re
import unicodedata

from nmtalign.text.caching import CACHED

WORD, NUMBER, GROUP, CJK, EMOJI, FLAG = "a", "0", "000", "漢", "☺", "⚑"
CONTRACTION, ELISION = "'s", "l'"  # English, and French, Italian and Irish
JOIN, LEFT, RIGHT, LOOSE = "=both", "=left", "=right", "=none"  # spaced by a rule that no text overrules
OPEN_QUOTE, CLOSE_QUOTE, OPEN_SINGLE, CLOSE_SINGLE = '"(', '")', "'(", "')"
CLOSERS = frozenset(".,;:!?)]}»”…") | {"", "..."}  # with the end of the line
OPENERS = frozenset("([{«“‘„¿¡")

_GROUP = re.compile(r"\d{3}(?:[.,]\d+)?")
_FULL_WIDTH = range(0xFF01, 0xFF61)
_SKIN = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)


class Kinds(dict[str, str]):
    """What a token is by itself: a mark is its own kind."""

    def __missing__(self, token: str) -> str:
        if len(self) >= CACHED:
            self.clear()
        kind = self[token] = _kind_of_character(token) if len(token) == 1 else _kind(token)
        return kind


def _kind(token: str) -> str:
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


def _kind_of_character(character: str) -> str:
    from sacremoses.util import is_cjk

    code, category = ord(character), unicodedata.category(character)
    if category == "Nd":
        return NUMBER
    if is_cjk(character) or code in _FULL_WIDTH:
        return CJK
    if category == "No":
        return LEFT if unicodedata.decomposition(character).startswith("<su") else "½"
    if category == "Cf" or character in "\u2010\u2011·":
        return JOIN  # joiners and soft hyphens stand inside of words, and so do hyphens and the middle dot
    if category in ("Mn", "Me") or code in _SKIN:
        return LEFT
    if code in _FLAGS:
        return FLAG
    if category == "Sc":
        return "$"
    if category == "So" and code > 0x2600:
        return EMOJI
    return character if category[0] in "PS" else WORD


class Line:
    """The tokens of a line, and `roles`: at first their kinds, in the end the part that each plays."""

    __slots__ = ("dunder", "flag", "language", "numbered", "opened", "parenthesis", "roles", "tokens", "unseen")

    def __init__(self, tokens: list[str], roles: list[str], language: str) -> None:
        self.tokens, self.roles, self.language = tokens, roles, language
        self.opened: set[str] = set()
        self.unseen = -1  # straight double quotation marks from here on; -1: not counted yet
        self.parenthesis: list[str] = []  # the roles of those that are open
        self.dunder = self.flag = self.numbered = False  # numbered: the last parenthesis that was closed

    def token(self, place: int) -> str:
        """The token, or "" beyond the ends."""
        return self.tokens[place] if 0 <= place < len(self.tokens) else ""

    def kind(self, place: int) -> str:
        """What it is so far, or "" beyond the ends."""
        return self.roles[place] if 0 <= place < len(self.roles) else ""

    def is_word(self, place: int) -> bool:
        """Whether there is a word or a number."""
        return self.kind(place) in (WORD, NUMBER, GROUP, ELISION, CJK)

    def is_number(self, place: int) -> bool:
        """Whether there is a number."""
        return self.kind(place) in (NUMBER, GROUP)

    def put(self, place: int, *roles: str) -> None:
        """Sets roles from a place on."""
        self.roles[place : place + len(roles)] = roles

    def close(self, mark: str) -> bool:
        """Whether the mark was open; it no longer is."""
        if mark in self.opened:
            self.opened.remove(mark)
            return True
        return False
