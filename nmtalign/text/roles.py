"""The part that each mark plays in how a line is spaced, from what is around it."""

import re
from collections.abc import Callable

from nmtalign.text import quoting
from nmtalign.text.marks import (
    CLOSE_QUOTE,
    CLOSERS,
    FLAG,
    JOIN,
    LEFT,
    LOOSE,
    NUMBER,
    OPEN_QUOTE,
    OPEN_SINGLE,
    OPENERS,
    RIGHT,
    WORD,
    Line,
)

_ENUMERATOR = re.compile(r"(?:\d{1,3}|([a-z])\1{0,2}|[A-Z]|[ivxlc]{1,6}|[IVXLC]{1,6})(?:\.\d+)?")
_ENTITIES = frozenset(("amp", "quot", "lt", "gt", "nbsp", "apos"))
_INITIALS = re.compile(r"[A-Z]{1,3}")
_KEYS = re.compile(r"(?i:ctrl|control|alt|altgr|shift|cmd|command|option|win|super|meta|maj|strg|fn|mod\d)$")
_METHOD = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*\.[A-Za-z]\w{3,}")
_SECTION = re.compile(r"\.\d+$")
_CELL = re.compile(r"\$?[A-Z]{1,2}\$?\d+")
_DOLLARS = frozenset(("US", "CA", "CAN", "CDN", "AU", "A", "C", "NZ", "HK", "R", "NT", "S"))
_FORMAT = re.compile(r"[a-z]|[A-Z][A-Z0-9]+|\d+|\(")
_DIRECTIONS = frozenset("NSEWO")
_LARGE = frozenset(("million", "millions", "milliard", "milliards", "billion", "billions"))
_ROOTS = frozenset(
    ("bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp",
     "usr", "var")
)  # fmt: skip
_ENDINGS = {
    "en": frozenset(("s", "es", "ies")),
    "fr": frozenset(("e", "s", "es", "x", "ne", "nes", "le", "les", "aux", "trice", "rice", "ère")),
}  # what stands between parentheses at the end of a word


def assign_roles(tokens: list[str], kinds: list[str], language: str) -> list[str]:
    """The role of each token of a line, from its kind and what is around it."""
    if _HANDLED.isdisjoint(kinds):
        return kinds
    line = Line(tokens, kinds, language)
    for place in range(len(tokens)):
        if (handler := _HANDLERS.get(line.roles[place])) is not None:
            handler(line, place)
    return line.roles


def _open_parenthesis(line: Line, i: int) -> None:
    before, inner, alone = line.token(i - 1), line.token(i + 1), line.token(i + 2) == ")"
    numbered = alone and _ENUMERATOR.fullmatch(inner) is not None
    role = "("
    if (line.is_word(i - 1) and inner == ")") or line.kind(i - 2) == "_" or _METHOD.fullmatch(before):
        role = "f("
    elif numbered and (line.is_number(i - 1) or _SECTION.search(before)):
        role = "0("
    elif numbered and before == ")" and line.numbered:
        role = ")("
    elif alone and line.kind(i - 1) == WORD and inner.lower() in _ENDINGS.get(line.language, ()):
        role = "a(s"
    elif line.kind(i - 1) == RIGHT and before == "%":
        role = "%("
    line.parenthesis.append("0(" if numbered and role == "(" else role)
    line.put(i, role)


def _close_parenthesis(line: Line, i: int) -> None:
    if line.parenthesis:
        opened, after = line.parenthesis.pop(), line.token(i + 1)
        line.numbered = opened in ("0(", ")(")
        if opened == "a(s" and after.lower() in _ENDINGS.get(line.language, ()):
            line.put(i, ")s")
        elif opened == "%(" and len(after) == 1 and after.islower():
            line.put(i, JOIN)
        elif line.numbered and line.token(i + 2) == ")" and _ENUMERATOR.fullmatch(after):
            line.put(i, ")a)")  # 83(1)b)
    elif line.token(i - 1) in (":", ";"):
        line.put(i - 1, LOOSE, LEFT)  # :)
    elif line.token(i - 1) == "-" and line.token(i - 2) in (":", ";"):
        line.put(i - 2, LOOSE, LEFT, LEFT)
    else:
        line.numbered = True  # a)(i)


def _open_bracket(line: Line, i: int) -> None:
    if line.kind(i - 2) == "_" or _METHOD.fullmatch(line.token(i - 1)):
        line.put(i, "f(")


def _colon(line: Line, i: int) -> None:
    before, after = line.token(i - 1), line.token(i + 1)
    if after == "/" and line.token(i + 2) == "/" and line.is_word(i - 1):
        _address(line, i)
    elif after == ":" and (line.is_word(i - 1) or before == ")"):
        line.put(i, JOIN, JOIN)
    elif (line.is_number(i - 1) and line.is_number(i + 1)) or (_CELL.fullmatch(before) and _CELL.fullmatch(after)):
        line.put(i, "0:0")
    elif after == "\\" and len(before) == 1:
        line.put(i, LEFT, JOIN)


def _address(line: Line, i: int) -> None:
    """http://host:80/path?name=value#part, as far as it goes."""
    line.put(i, JOIN, JOIN, JOIN)
    place = i + 3
    while place < len(line.tokens):
        mark, value = line.tokens[place], line.is_word(place + 1)
        if line.is_word(place):
            if line.is_word(place - 1):
                return
        elif (
            mark == "/"
            or (mark in "=#~%_@" and value)
            or (mark == ":" and line.is_number(place + 1))
            or (mark in "?&" and value and line.token(place + 2) in ("=", "_"))
        ):
            line.put(place, JOIN)
        else:
            return
        place += 1


def _slash(line: Line, i: int) -> None:
    if not line.is_word(i + 1):
        return
    if line.token(i - 1) in (".", "..."):
        line.put(i - 1, LOOSE, JOIN)  # ./file
    elif line.kind(i - 1) in (",", ";", ":", CLOSE_QUOTE, "”", "»") or line.token(i + 1) in _ROOTS:
        line.put(i, RIGHT)


def _backslash(line: Line, i: int) -> None:
    line.put(i, JOIN if line.token(i - 2) == "\\" and line.is_word(i - 1) else RIGHT)


def _at(line: Line, i: int) -> None:
    if line.is_word(i - 1) and "." in line.token(i + 1).rstrip("."):
        line.put(i, JOIN)
    elif line.kind(i + 1) == WORD:
        line.put(i, RIGHT)


def _currency(line: Line, i: int) -> None:
    before, after = line.token(i - 1), line.kind(i + 1)
    amount = line.is_number(i - 1) or before in _LARGE
    if before in _DOLLARS and not line.is_number(i - 1):
        line.put(i, "US$0" if line.is_number(i + 1) else "US$")
    elif before in ("M", "k", "G", "Md") and line.is_number(i - 2):
        line.put(i, LEFT)  # 3 M$
    elif amount and not (line.is_number(i + 1) and line.language == "en"):
        line.put(i, "0$")
    elif line.is_number(i + 1):
        line.put(i, "$0")
    elif not line.is_word(i + 1) and after != "{" and line.close("$"):
        line.put(i, LEFT)
    elif line.is_word(i + 1) or after == "{":
        line.opened.add("$")
        line.put(i, RIGHT)


def _per_cent(line: Line, i: int) -> None:
    if not line.is_number(i - 1) and _FORMAT.fullmatch(line.token(i + 1)):
        line.put(i, RIGHT)


def _hash(line: Line, i: int) -> None:
    if line.token(i - 1) in ("C", "F") and not line.is_number(i + 1):
        line.put(i, LEFT)
    elif line.is_word(i + 1):
        line.put(i, "#0")


def _ampersand(line: Line, i: int) -> None:
    after = line.token(i + 1)
    if after in _ENTITIES and line.token(i + 2) == ";":
        letters = _INITIALS.fullmatch(line.token(i - 1)) and _INITIALS.match(line.token(i + 3))
        line.put(i, *((JOIN, WORD, JOIN) if letters else (RIGHT, WORD, LEFT)))
    elif after == "#" and line.is_number(i + 2) and line.token(i + 3) == ";":
        line.put(i, RIGHT, RIGHT, NUMBER, LEFT)
    elif _INITIALS.fullmatch(line.token(i - 1)) and _INITIALS.fullmatch(after):
        line.put(i, "A&A")


def _plus(line: Line, i: int) -> None:
    before, after = line.token(i - 1), line.token(i + 1)
    if after == "+" and line.is_word(i - 1):
        line.put(i, LEFT, LEFT)
    elif _KEYS.search(before) or (before == "U" and len(after) >= 4):
        line.put(i, JOIN)
    elif line.is_word(i - 1) and after in CLOSERS:
        line.put(i, LEFT)
    elif line.is_number(i + 1) and not line.is_word(i - 1) and before not in (")", "]"):
        line.put(i, RIGHT)


def _equals(line: Line, i: int) -> None:
    if line.token(i - 1) == "!":
        line.put(i - 1, LOOSE, LEFT)
    elif line.token(i - 1) in ("=", "<", ">", ":", "+", "*"):
        line.put(i, LEFT)
    elif i == 0 and line.token(1).isupper() and line.token(2) == "(":
        line.put(i, RIGHT)  # a formula


def _greater(line: Line, i: int) -> None:
    if line.token(i - 1) in ("-", "=", "--"):
        line.put(i, LEFT)


def _less(line: Line, i: int) -> None:
    if line.token(i + 1) == "!" and line.token(i + 2).startswith("--"):
        line.put(i, RIGHT, RIGHT)
        return
    name = i + 1 + (line.token(i + 1) == "/")
    if not line.token(name)[:1].isalpha() or ">" not in line.tokens[name : name + 24]:
        return
    end = line.tokens.index(">", name)
    apart = (j for j in range(name + 1, end) if line.is_word(j) and line.is_word(j - 1))
    if all(line.token(j + 1) in ("=", "-") for j in apart):
        line.put(i, "<(")
        line.put(end, ">)")
        for j in range(name, end):
            if line.tokens[j] in "=/":
                line.put(j, JOIN)


def _asterisk(line: Line, i: int) -> None:
    before, after = line.is_word(i - 1), line.token(i + 1)
    if after == "*":
        line.put(i, RIGHT, LOOSE if before else RIGHT)
    elif after.startswith(".") and len(after) > 1:
        line.put(i, RIGHT)
    elif (before and after in CLOSERS) or line.token(i - 1).endswith("-"):
        line.put(i, LEFT)


def _tilde(line: Line, i: int) -> None:
    if line.is_number(i + 1) or line.token(i + 1) == "/":
        line.put(i, RIGHT)


def _degree(line: Line, i: int) -> None:
    after = line.token(i + 1).rstrip(".")
    if after in ("C", "F"):
        line.put(i, "°C")
    elif line.is_number(i - 1):
        line.put(i, "0′N" if after in _DIRECTIONS else "0′")
    elif line.token(i - 1) in ("n", "N"):
        line.put(i, "n°")


def _prime(line: Line, i: int) -> None:
    if line.is_number(i - 1):
        line.put(i, "0′N" if line.token(i + 1).rstrip(".") in _DIRECTIONS else "0′")


def _underscore(line: Line, i: int) -> None:
    if line.token(i + 1) == "_":
        opening = (JOIN if line.token(i - 1).endswith(".") else RIGHT), RIGHT
        closing = LEFT, JOIN if line.token(i + 2).startswith(".") and len(line.token(i + 2)) > 1 else LEFT
        line.put(i, *(closing if line.dunder else opening))
        line.dunder = not line.dunder


def _dash(line: Line, i: int) -> None:
    if line.is_number(i - 1) and line.is_number(i + 1):
        line.put(i, "0–0")


def _minus(line: Line, i: int) -> None:
    if line.is_number(i + 1) and not line.is_word(i - 1):
        line.put(i, RIGHT)


def _ellipsis(line: Line, i: int) -> None:
    if i == 0 or line.kind(i - 1) in (OPEN_QUOTE, OPEN_SINGLE, *OPENERS):
        line.put(i, "^...")


def _fraction(line: Line, i: int) -> None:
    if line.is_number(i - 1):
        line.put(i, LEFT)


def _flag(line: Line, i: int) -> None:
    line.put(i, LEFT if line.flag else RIGHT)
    line.flag = not line.flag


def _caret(line: Line, i: int) -> None:
    if line.token(i - 1) == "[":
        line.put(i, RIGHT)
    elif line.is_word(i - 1) and line.is_word(i + 1):
        line.put(i, JOIN)


_Handler = Callable[[Line, int], None]
_GROUPS: dict[str, _Handler] = {
    '"': quoting.double_quote, "'": quoting.single_quote, "’": quoting.apostrophe, "‘“„": quoting.opening_curly,
    "”": quoting.closing_curly, "`": quoting.backquote, "(": _open_parenthesis, "[": _open_bracket,
    ")": _close_parenthesis, ":": _colon, "/": _slash, "\\": _backslash, "@": _at, "$": _currency, "%": _per_cent,
    "#": _hash, "&": _ampersand, "+": _plus, "=": _equals, ">": _greater, "<": _less, "*": _asterisk, "~": _tilde,
    "°": _degree, "′″": _prime, "_": _underscore, "–—": _dash, "−": _minus, "…": _ellipsis, "½": _fraction,
    FLAG: _flag, "^": _caret,
}  # fmt: skip
_HANDLERS = {mark: handler for marks, handler in _GROUPS.items() for mark in marks} | {"...": _ellipsis}
_HANDLED = frozenset(_HANDLERS)
