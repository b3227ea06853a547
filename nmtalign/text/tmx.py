"""TMX, the exchange format of translation memories: streamed, unit by unit, with no trust in the file.

The parser is expat without a tree in memory. Nothing outside the file is loaded, and a document type with declarations
is refused, so that no entity can be defined; one that names tmx14.dtd is allowed. Depth and sizes are bounded.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn
from xml.parsers import expat

from nmtalign.errors import InputError
from nmtalign.files import DEEPEST
from nmtalign.text.languages import EXACT, WIDER, count_unspaced, fit, matched
from nmtalign.text.lines import LONGEST_LINE, shown

Unit = tuple[str, str] | None  # None: one of the languages is missing

_START = re.compile(rb"(\xef\xbb\xbf)?\s*<(?:!--|(?:\?xml|!DOCTYPE\s+tmx|tmx)\b)", re.IGNORECASE)
_WIDE = re.compile(rb"encoding\s*=\s*[\"']utf-?16", re.IGNORECASE)  # `open_bytes` has made UTF-8 of it
# Elements whose content is formatting code of another program, or a separate text inside it (TMX 1.4b, section 3.3).
# The text of other elements, such as `hi`, is part of the sentence.
_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
_STANDALONE = frozenset(("it", "ph", "ut", "x"))  # codes that may stand for a word or a blank; x is of XLIFF
# No text of XML contains these characters, so they can represent the codes of a segment until it is complete.
_PLACEHOLDER, _FORMATTING = "\0", "\1"
_SHORT = 200  # characters; a longer code is no line break
_NAMES = (
    r"(?:w:)?(?:lbr?|br|cr|lf|crlf|nl|hr|tab|line-?break|new-?line|p|par|div|li|ul|ol|d[ltd]|table|t[rdh]|h[1-6])\b"
)
# Line breaks and tabs in the names of elements, in their types, and in the codes of HTML, RTF, Word and software.
_BREAK = re.compile(
    rf"(?:[\s⏎↵¶]|(?:x-)?(?:html-)?{_NAMES}|[<\[{{]/?{_NAMES}[^<>\[\]{{}}]*[>\]}}]"
    r"|\{?\\(?:line|tab|par|[nrt])\b\}?|\^[plnt]\b|&(?:#0*(?:9|10|13|32|160)|#x0*(?:9|a|d|20|a0)|nbsp);)+",
    re.IGNORECASE,
)
_TYPES = ("type", "ctype", "equiv-text", "displaytext")  # attributes that tell what a code is
# Codes of formatting, which may begin and end inside a word.
_INLINE = re.compile(
    r"</?(?:[abiusgq]|em|strong|span|font|big|small|su[bp]|code|tt|kbd|mark|ins|del|c?f|bpt|ept)\d*\b[^<>]*(?<!/)>"
    r"|\{\\.*|\}",
    re.IGNORECASE,
)
_RUN = re.compile(r"(?<![ \t])[ \t]*+[\r\n\0\1][ \t\r\n\0\1]*")  # takes linear time also for a million blanks
_BR = re.compile(r"<br\s*/?>", re.IGNORECASE)
_ENDS, _BEGINS = frozenset(".!?:;,…)]»”।؟"), frozenset("([«“¿¡")
_BLOCK = 1 << 16
_NAMED = 10  # languages that an error lists
_LONGEST_CODE = 40  # characters of the code of a language


def is_tmx(head: bytes) -> bool:
    """Whether a text that begins with these bytes is XML."""
    return _START.match(head) is not None


def one_line(segment: str) -> str:
    """The text of a segment as one line. Line breaks, tabs of codes and the blanks around them become one space.

    So do placeholders that would join two words. Other codes leave nothing.
    """
    return _RUN.sub(_joint, _BR.sub("\n", segment)).strip(" \t")


def _joint(run: re.Match[str]) -> str:
    """What replaces a run of blanks, line breaks and codes."""
    if run[0].strip(_PLACEHOLDER + _FORMATTING):
        return " "
    text, start, end = run.string, run.start(), run.end()
    if _PLACEHOLDER not in run[0] or not 0 < start < end < len(text):
        return ""
    before, after = text[start - 1], text[end]
    if count_unspaced(before + after):
        return ""
    first, second = unicodedata.category(before)[0], unicodedata.category(after)[0]
    words = first in "LMN" and second in "LN"
    return " " if words or (before in _ENDS and (second == "L" or after in _BEGINS)) else ""


class TmxReader:
    """Reads the segments of each unit in two languages, each as one line.

    Raises InputError naming file and line for text that is not TMX, for a document type with declarations, and for a
    unit or tag that is longer than `LONGEST_LINE`.
    """

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        self._path, self._wanted = path, languages
        self._languages: set[str] = set()  # the first ones
        self._taken: tuple[Counter[str], Counter[str]] = Counter(), Counter()  # units by code; also 0, for each side
        self._before = "", ""  # the codes of the last unit
        self._depth = self._codes = self._size = self._fed = 0
        self._language, self._wants_segment = "", False  # of the variant that is being read
        self._segments: dict[str, str] = {}  # of the unit that is being read, by the code of its language
        self._text: list[str] | None = None  # of the segment that is being read
        self._code: list[str] = []  # of the code that is being read
        self._units: list[Unit] = []

    def units(self, stream: BinaryIO, head: bytes) -> Iterator[Unit]:
        """Yields the units; `head` was read from the stream before.

        Of several segments the one whose language fits best is taken, see `matched`. Raises InputError if no unit has
        both languages.
        """
        self._parser = expat.ParserCreate("UTF-8" if _WIDE.search(head[:200]) else None)
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._document_type
        self._parser.SkippedEntityHandler = self._skipped
        while head:
            yield from self._feed(head)
            head = stream.read(_BLOCK)
        yield from self._feed(b"")
        if not any(self._before):
            regions = (
                "; a code without a region, such as en, takes any" if re.search("[-_]", "".join(self._wanted)) else ""
            )
            raise InputError(
                f"{shown(self._path)}: no unit has both {' and '.join(self._wanted)}; its languages are "
                f"{', '.join(sorted(self._languages)) or 'not named'}{regions}"
            )

    def note(self) -> str:
        """What was taken, for the user; with the codes if several fit a language, or none names all its parts."""
        source, target = self._wanted
        parts = [f"{shown(self._path)}: TMX, {source} is the source, {target} the target"]
        for wanted, taken in zip(self._wanted, self._taken, strict=True):
            fits = {code: fit(code, wanted) for code, units in taken.items() if units}
            if WIDER in fits.values() or (len(taken) > 1 and set(fits.values()) - {EXACT}):
                units = (
                    f"{code} ({f'{count:,}' if count else 'not'} taken)" for code, count in taken.most_common(_NAMED)
                )
                parts.append(f"for {wanted} it has {', '.join(units)}")
        return "; ".join(parts)

    def _feed(self, data: bytes) -> list[Unit]:
        """The units that these bytes complete; no bytes are the end of the file."""
        self._units = []
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(f"{shown(self._path)}: line {error.lineno}: not valid XML: {reason}") from None
        except (LookupError, ValueError):  # Python knows no such encoding, or not for XML
            raise InputError(f"{shown(self._path)}: its encoding is unknown; convert the file to UTF-8") from None
        self._fed += len(data)
        if data and self._fed - self._parser.CurrentByteIndex > LONGEST_LINE:
            self._refuse(f"a tag of more than {LONGEST_LINE:,} bytes")
        return self._units

    def _refuse(self, reason: str) -> NoReturn:
        line = self._parser.CurrentLineNumber
        raise InputError(f"{shown(self._path)}: line {line}: {reason}; give a TMX file of units with segments")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse("nested too deeply")
        if self._depth == 1 and name != "tmx":
            self._refuse(f"the XML is <{name[:40]}>, not <tmx>")
        if name == "tu":
            self._segments, self._size = {}, 0
        elif name == "tuv":
            self._enter(attributes.get("xml:lang", attributes.get("lang", "")).strip()[:_LONGEST_CODE])
        elif name == "seg" and self._wants_segment:
            self._text, self._codes = [], 0
            self._grow(_LONGEST_CODE)
        elif self._text is not None:
            if not self._codes:
                self._code = []
            if any(map(_is_break, (name, *(attributes[key] for key in attributes if key in _TYPES)))):
                self._add("\n")
            if name in _CODES:
                self._codes += 1
            elif not self._codes:
                self._add(_PLACEHOLDER if name in _STANDALONE else _FORMATTING)

    def _enter(self, language: str) -> None:
        """Begins a variant of the unit."""
        self._language, self._wants_segment = language, False
        if len(self._languages) < _NAMED:
            self._languages.add(language)
        for taken, wanted in zip(self._taken, self._wanted, strict=True):
            if fit(language, wanted):
                self._wants_segment = True
                if len(taken) < _NAMED:
                    taken[language] += 0

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name in _CODES and self._codes:
            self._codes -= 1
            if not self._codes:
                self._add(_mark(name, "".join(self._code)))
        elif name == "seg" and self._text is not None:
            # Of several segments in a language the first one that is not empty.
            kept, self._text = self._segments.get(self._language) or one_line("".join(self._text)), None
            self._segments[self._language] = kept
        elif name == "tu":
            codes = matched([*self._segments], self._wanted, self._before)
            if not all(codes):
                self._units.append(None)
                return
            for taken, code in zip(self._taken, codes, strict=True):
                taken[code if code in taken else "other codes"] += 1
            self._before = codes
            self._units.append((self._segments[codes[0]], self._segments[codes[1]]))

    def _characters(self, text: str) -> None:
        self._add(text, is_code=self._codes > 0)

    def _add(self, text: str, is_code: bool = False) -> None:
        """Adds text to the segment, if there is one, or to its code."""
        if self._text is not None:
            self._grow(len(text))
            (self._code if is_code else self._text).append(text)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > LONGEST_LINE:
            self._refuse(f"a unit of more than {LONGEST_LINE:,} characters")

    def _document_type(self, name: str, system: str | None, public: str | None, declarations: bool) -> None:
        if declarations:
            self._refuse("a document type with declarations (<!DOCTYPE tmx [...]>) is not read, for safety; remove it")

    def _skipped(self, name: str, parameter: bool) -> None:
        self._refuse(f"the entity &{name[:40]}; is not defined")


def _is_break(code: str) -> bool:
    return 0 < len(code) <= _SHORT and _BREAK.fullmatch(code) is not None


def _mark(name: str, code: str) -> str:
    """The character that represents a code with this content in a segment."""
    if _is_break(code):
        return "\n"
    return _PLACEHOLDER if name in _STANDALONE and not _INLINE.fullmatch(code.strip()) else _FORMATTING
