"""TMX, the exchange format of translation memories: streamed, unit by unit, with no trust in the file.

The parser is expat without a tree in memory. Nothing outside the file is loaded, and a document type with declarations
is refused, so that no entity can be defined; one that names tmx14.dtd is allowed. Depth and sizes are bounded.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn
from xml.parsers import expat

from nmtalign.errors import InputError, UsageError
from nmtalign.text.languages import language_code
from nmtalign.text.lines import LONGEST_LINE, shown
from nmtalign.untrusted import DEEPEST

Unit = tuple[str, str] | None  # None: one of the languages is missing

_START = re.compile(rb"(\xef\xbb\xbf)?\s*<(?:!--|(?:\?xml|!DOCTYPE\s+tmx|tmx)\b)", re.IGNORECASE)
_WIDE = re.compile(rb"encoding\s*=\s*[\"']utf-?16", re.IGNORECASE)  # `open_bytes` has made UTF-8 of it
# Elements whose content is formatting code of another program, or a separate text inside it (TMX 1.4b, section 3.3).
# The text of `hi` is part of the sentence.
_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
_BREAKS = re.compile(r"(?<![ \t])[ \t]*+[\r\n][ \t\r\n]*")  # takes linear time also for a million blanks
_BLOCK = 1 << 16
_NAMED = 10  # languages that an error lists


def is_tmx(head: bytes) -> bool:
    """Whether a text that begins with these bytes is XML."""
    return _START.match(head) is not None


def fits(found: str, language: str) -> int:
    """How well a language of a file fits a wanted one: 2 = the same name, 1 = the same language, as en-US and en."""
    found = found.strip().lower()
    if not found or not language or found == language.lower():
        return 2 * bool(found and language)
    with contextlib.suppress(UsageError):
        return int(language_code(found) == language_code(language))
    return 0


def read_units(stream: BinaryIO, head: bytes, path: Path, languages: tuple[str, str]) -> Iterator[Unit]:
    """Yields the segments of each unit in two languages, each as one line.

    `head` was read from the stream before. Of several segments in a language the one that fits best, then the first, is
    taken. Raises InputError naming file and line for text that is not TMX, for a document type with declarations, and
    for a segment or tag that is longer than `LONGEST_LINE`.
    """
    reader = _TmxReader(path, languages, "UTF-8" if _WIDE.search(head[:200]) else None)
    while head:
        yield from reader.feed(head)
        head = stream.read(_BLOCK)
    yield from reader.feed(b"")
    if not reader.found:
        raise InputError(
            f"{shown(path)}: no unit has both {' and '.join(languages)}; its languages are "
            f"{', '.join(sorted(reader.languages)) or 'not named'}"
        )


class _TmxReader:
    """Collects the units while expat parses."""

    def __init__(self, path: Path, languages: tuple[str, str], encoding: str | None) -> None:
        self.found = False
        self.languages: set[str] = set()
        self._path, self._wanted = path, languages
        self._depth = self._codes = self._size = self._fed = 0
        self._language = ""
        self._text: list[str] | None = None  # of the segment that is being read
        self._segments = [(0, ""), (0, "")]  # (how well its language fits, text) of each side
        self._units: list[Unit] = []
        self._parser = expat.ParserCreate(encoding)
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._document_type
        self._parser.SkippedEntityHandler = self._skipped

    def feed(self, data: bytes) -> list[Unit]:
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
            self._segments = [(0, ""), (0, "")]
        elif name == "tuv":
            self._language = attributes.get("xml:lang", attributes.get("lang", ""))
        elif name == "seg":
            self._text, self._codes, self._size = [], 0, 0
        elif name in _CODES:
            self._codes += 1
            if attributes.get("type") == "lb":  # a line break
                self._add("\n")

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name in _CODES:
            self._codes -= 1
        elif name == "seg" and self._text is not None:
            self._keep(_BREAKS.sub(" ", "".join(self._text)).strip(" \t"))
            self._text = None
        elif name == "tu":
            (first, source), (second, target) = self._segments
            self.found |= bool(first and second)
            self._units.append((source, target) if first and second else None)

    def _characters(self, text: str) -> None:
        if not self._codes:
            self._add(text)

    def _add(self, text: str) -> None:
        """Adds text to the segment, if there is one."""
        if self._text is None:
            return
        self._size += len(text)
        if self._size > LONGEST_LINE:
            self._refuse(f"a segment of more than {LONGEST_LINE:,} characters")
        self._text.append(text)

    def _keep(self, text: str) -> None:
        if len(self.languages) < _NAMED:
            self.languages.add(self._language[:20])
        for side, language in enumerate(self._wanted):
            if (fit := fits(self._language, language)) > self._segments[side][0]:
                self._segments[side] = fit, text

    def _document_type(self, name: str, system: str | None, public: str | None, declarations: bool) -> None:
        if declarations:
            self._refuse("a document type with declarations (<!DOCTYPE tmx [...]>) is not read, for safety; remove it")

    def _skipped(self, name: str, parameter: bool) -> None:
        self._refuse(f"the entity &{name[:40]}; is not defined")
