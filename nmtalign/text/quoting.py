"""Quotation marks and apostrophes: which of them open, which close, and which stand inside of a word."""

import re

from nmtalign.text.marks import CLOSE_QUOTE, CLOSE_SINGLE, CLOSERS, JOIN, LEFT, OPEN_QUOTE, OPEN_SINGLE, RIGHT, Line

_ELIDED = r"(?:^|-)(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu|presqu|quelqu|aujourd|entr)$"
_LANGUAGES_OF_ELISION = frozenset(("fr", "it", "ga", "ca"))
_SUFFIXES = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
_CLIPPED = frozenset(("em", "tis", "twas", "til", "cause", "bout"))
_REACH = 100  # tokens: no quotation is longer, as far as its other end is looked for
_DECADE = re.compile(r"\d\ds?")


def double_quote(line: Line, i: int) -> None:
    """The straight mark: the first opens, the next closes, but for inches and for one without a partner."""
    line.unseen = line.tokens.count('"') if line.unseen < 0 else line.unseen - 1
    if line.close('"'):
        line.put(i, CLOSE_QUOTE)
        return
    unpaired = i and line.unseen % 2
    after = line.token(i + 1)
    if unpaired and (line.is_number(i - 1) or after in CLOSERS or (line.token(i - 1) in ",." and after[0].islower())):
        line.put(i, CLOSE_QUOTE)  # 7", or the end of what an earlier line opens
        return
    line.opened.add('"')
    line.put(i, OPEN_QUOTE)


def single_quote(line: Line, i: int) -> None:
    """A straight mark that stands alone: an apostrophe, a quotation mark, feet, or what is left out of a word."""
    before, after = line.token(i - 1), line.token(i + 1)
    if after == "'":
        _two_single_quotes(line, i)
    elif _is_apostrophe(line, before, after) and not ("'" in line.opened and line.is_word(i + 1)):
        line.put(i, JOIN)
    elif line.is_number(i - 1) and "'" not in line.opened:
        line.put(i, JOIN if line.is_number(i + 1) else LEFT)  # 6'7"
    elif line.close("'"):
        line.put(i, CLOSE_SINGLE)
    elif _is_clipped(after):
        line.put(i, RIGHT)
    elif i and ((after in CLOSERS and line.token(i + 2) != "'") or _is_possessive(line, i)):
        line.put(i, LEFT)
    else:
        line.opened.add("'")
        line.put(i, OPEN_SINGLE)


def _two_single_quotes(line: Line, i: int) -> None:
    if (
        line.close("''")
        or line.token(i + 2) in CLOSERS
        or any(t.startswith("``") for t in line.tokens[max(0, i - _REACH) : i])
    ):
        line.put(i, LEFT, LEFT)
    elif "'" in line.tokens[i + 2 : i + _REACH]:
        line.opened.add("''")
        line.put(i, RIGHT, RIGHT)
    else:
        line.put(i, RIGHT, LEFT)


def _is_apostrophe(line: Line, before: str, after: str) -> bool:
    """Whether a mark that stands alone is one inside of a word."""
    if line.language in _LANGUAGES_OF_ELISION:
        return _is_elided(before) and after not in CLOSERS
    if line.language == "en":
        return False
    return before.isalpha() and after.isalpha() and (len(before) <= 2 or len(after) <= 2)


def _is_elided(word: str) -> bool:
    return re.search(_ELIDED, word, re.IGNORECASE) is not None


def _is_possessive(line: Line, i: int) -> bool:
    """Whether "dogs '" is no start of a quotation: nothing ends one."""
    if line.language != "en" or not line.token(i - 1).lower().endswith("s"):
        return False
    marks = (j for j in range(i + 2, min(i + _REACH, len(line.tokens))) if line.tokens[j] == "'")
    return all(line.token(j - 1).lower().endswith("s") or _is_clipped(line.token(j + 1)) for j in marks)


def _is_clipped(word: str) -> bool:
    """Whether it is written with a mark for what is left out before it."""
    return word.lower() in _CLIPPED or _DECADE.fullmatch(word) is not None


def apostrophe(line: Line, i: int) -> None:
    """The mark that is both the typographic apostrophe and what closes a single quotation."""
    before, after = line.token(i - 1), line.token(i + 1)
    suffix = line.is_word(i - 1) and after.lower() in _SUFFIXES
    if suffix or ((_is_elided(before) or before in ("O", "o", "D", "L")) and after not in CLOSERS):
        line.put(i, JOIN)
    elif line.close("‘"):
        line.put(i, LEFT)
    elif line.is_word(i - 1) and line.is_word(i + 1) and not _DECADE.fullmatch(after):
        line.put(i, LEFT if before.lower().endswith(("s", "x")) else JOIN)
    elif i and not _DECADE.fullmatch(after):
        line.put(i, LEFT)
    else:
        line.put(i, RIGHT)


def opening_curly(line: Line, i: int) -> None:
    """What opens a quotation; after „ it closes one."""
    if line.tokens[i] == "“" and line.close("„"):
        line.put(i, "”")
    else:
        line.opened.add(line.tokens[i])


def closing_curly(line: Line, i: int) -> None:
    """What closes a quotation; in Finnish and Swedish it opens one, too."""
    if line.close("“") or line.close("„") or line.language not in ("fi", "sv"):
        return
    if line.close("”"):
        return
    line.opened.add("”")
    line.put(i, "“")


def backquote(line: Line, i: int) -> None:
    """The first opens, the next closes."""
    if line.close("`"):
        line.put(i, LEFT)
    else:
        line.opened.add("`")
        line.put(i, RIGHT)
