"""TMX, the exchange format of translation memories: streamed, unit by unit, with no trust in the file.

Only the tree of one unit is in memory. Nothing outside the file is loaded, and a document type with declarations is
refused, so that no entity can be defined; one that names tmx14.dtd is allowed. Depth and sizes are bounded.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
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
    unit of more than `LONGEST_LINE` bytes.
    """

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        self._path, self._wanted = path, languages
        self._languages: set[str] = set()  # the first ones
        self._taken: tuple[Counter[str], Counter[str]] = Counter(), Counter()  # units by code; also 0, for each side
        self._before = "", ""  # the codes of the last unit
        self._depth = self._size = 0  # the size is that of the part that has been read since the last unit
        self._builder: TreeBuilder | None = None  # of the tree of the unit that is being read
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
        self._parser.StartDoctypeDeclHandler = self._document_type
        self._parser.SkippedEntityHandler = self._skipped
        blocks = (head[start : start + _BLOCK] for start in range(0, len(head), _BLOCK))
        for block in chain(blocks, iter(lambda: stream.read(_BLOCK), b""), [b""]):
            self._size += len(block)
            try:
                self._parser.Parse(block, not block)
            except expat.ExpatError as error:
                reason = expat.ErrorString(error.code)
                raise InputError(f"{shown(self._path)}: line {error.lineno}: not valid XML: {reason}") from None
            except (LookupError, ValueError):  # Python knows no such encoding, or not for XML
                raise InputError(f"{shown(self._path)}: its encoding is unknown; convert the file to UTF-8") from None
            if self._size > LONGEST_LINE:
                self._refuse(f"a unit of more than {LONGEST_LINE:,} bytes")
            yield from self._units
            self._units = []
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

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse("nested too deeply")
        if self._depth == 1 and name != "tmx":
            self._refuse(f"the XML is <{name[:40]}>, not <tmx>")
        if name == "tu":
            self._builder = TreeBuilder()
            self._parser.CharacterDataHandler = self._builder.data
        if self._builder is not None:
            self._builder.start(name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._builder is not None:
            element = self._builder.end(name)
            if name == "tu":
                self._units.append(self._unit(element))
                self._builder, self._parser.CharacterDataHandler = None, None
                self._size = 0

    def _unit(self, unit: Element) -> Unit:
        """The segments of a unit in the wanted languages."""
        segments: dict[str, str] = {}
        for variant in unit.iter("tuv"):
            language = variant.get("xml:lang", variant.get("lang", "")).strip()[:_LONGEST_CODE]
            if len(self._languages) < _NAMED:
                self._languages.add(language)
            fitting = [
                counts for counts, wanted in zip(self._taken, self._wanted, strict=True) if fit(language, wanted)
            ]
            for counts in fitting:
                if len(counts) < _NAMED:
                    counts.setdefault(language, 0)
            for segment in variant.iter("seg") if fitting else ():
                # Of several segments in a language the first one that is not empty.
                segments[language] = segments.get(language) or one_line("".join(_parts(segment)))
        codes = matched([*segments], self._wanted, self._before)
        if not all(codes):
            return None
        for taken, code in zip(self._taken, codes, strict=True):
            taken[code if code in taken else "other codes"] += 1
        self._before = codes
        return segments[codes[0]], segments[codes[1]]

    def _document_type(self, name: str, system: str | None, public: str | None, declarations: bool) -> None:
        if declarations:
            self._refuse("a document type with declarations (<!DOCTYPE tmx [...]>) is not read, for safety; remove it")

    def _skipped(self, name: str, parameter: bool) -> None:
        self._refuse(f"the entity &{name[:40]}; is not defined")

    def _refuse(self, reason: str) -> NoReturn:
        line = self._parser.CurrentLineNumber
        raise InputError(f"{shown(self._path)}: line {line}: {reason}; give a TMX file of units with segments")


def _parts(element: Element) -> Iterator[str]:
    """The text of a segment, with one character for each element in it."""
    yield element.text or ""
    for child in element:
        yield _mark(child)
        if child.tag not in _CODES:
            yield from _parts(child)
        yield child.tail or ""


def _mark(element: Element) -> str:
    """The character that represents an element in a segment: a line break, a placeholder, or formatting."""
    name, code = element.tag, ""
    inner: tuple[Element, ...] = (element,)
    if name in _CODES:
        code, inner = "".join(element.itertext()), tuple(element.iter())
    types = (one.attrib[key] for one in inner for key in _TYPES if key in one.attrib)
    if any(map(_is_break, chain([code], (one.tag for one in inner), types))):
        return "\n"
    return _PLACEHOLDER if name in _STANDALONE and not _INLINE.fullmatch(code.strip()) else _FORMATTING


def _is_break(code: str) -> bool:
    return 0 < len(code) <= _SHORT and _BREAK.fullmatch(code) is not None
