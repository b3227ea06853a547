"""Parallel texts: two files that are aligned line by line, or one file with both languages.

That file is TSV, TMX, or a table: Parquet, or a data set that the library `datasets` has saved to a folder. pyarrow
reads tables in batches. Nothing in a folder is executed, and its list of files can name only files of the folder.

TMX, the exchange format of translation memories, is streamed, unit by unit, with no trust in the file. Only the tree of
one unit is in memory. Nothing outside the file is loaded, and a document type with declarations is refused, so that no
entity can be defined; one that names tmx14.dtd is allowed. Depth and sizes are bounded.
"""

import contextlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nmtalign.errors import InputError, UsageError
from nmtalign.files import DEEPEST, open_regular, read_json
from nmtalign.text.languages import EXACT, count_unspaced, fit, is_known, languages_in, main_language, matched
from nmtalign.text.lines import LONGEST_LINE, bounded_lines, counted, decode_line, is_stream, read_pairs, reading, shown

_ROLES = (frozenset(("source", "src")), frozenset(("target", "tgt", "trg")))  # names of columns
_NAMED = 10  # languages that a message lists

# Blanks and processing instructions may come before the first tag.
_XML = re.compile(
    rb"(\xef\xbb\xbf)?(?:\s|<\?(?!xml\b).*?\?>)*+<(?:!--|(?:\?xml|!DOCTYPE\s+tmx|tmx)\b)", re.IGNORECASE | re.DOTALL
)
_WIDE = re.compile(rb"encoding\s*=\s*[\"']utf-?16", re.IGNORECASE)  # `reading` has made UTF-8 of it
# Elements whose content is formatting code of another program, or a separate text inside it (TMX 1.4b, section 3.3).
# The text of other elements, such as `hi`, is part of the sentence.
_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
_STANDALONE = frozenset(("it", "ph", "ut", "x"))  # codes that may represent a word or a blank; x is of XLIFF
# No text of XML contains these characters, so they can represent the codes of a segment until it is complete.
_PLACEHOLDER, _FORMATTING = "\0", "\1"
_SHORT = 200  # characters; a longer code is no line break
_NAME = r"(?:w:)?(?:lbr?|br|cr|lf|crlf|nl|hr|tab|line-?break|new-?line|p|par|div|li|ul|ol|d[ltd]|table|t[rdh]|h[1-6])\b"
# Line breaks and tabs in the names of elements, in their types, and in the codes of HTML, RTF, Word and software.
_BREAK = re.compile(
    rf"(?:[\s⏎↵¶]|(?:x-)?(?:html-)?{_NAME}|[<\[{{]/?{_NAME}[^<>\[\]{{}}]*[>\]}}]"
    r"|\{?\\(?:line|tab|par|[nrt])\b\}?|\^[plnt]\b|&(?:#0*(?:9|10|13|32|160)|#x0*(?:9|a|d|20|a0)|nbsp);)+",
    re.IGNORECASE,
)
_TYPES = ("type", "ctype", "equiv-text", "displaytext")  # attributes that state what a code is
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
_LONGEST_CODE = 40  # characters of the code of a language

_LIST, _SPLITS = "state.json", "dataset_dict.json"  # of a data set: its files; of a folder with a data set per split
_SETS = {"train": "train", "dev": "validation", "test": "test"}
# The first file of a table in several, as Hugging Face names it.
_FIRST_FILE = re.compile(r"(.+)-0{5}-of-(\d{5})\.parquet")
_PAIRS = "translation."  # begins the names of the texts in a column of pairs, a convention of Hugging Face
_TEXT = ("string", "large_string", "string_view")  # types of a column
_ROWS, _TABLE_BUFFER = 1000, 1 << 20  # rows of a batch; bytes that are read at once


class ParallelText:
    """The pairs of `source` and `target`, or of the file `source` if `target` is None; iterate over it once.

    `languages` find the columns of a table, those of a TSV file with a header, and the segments of a TMX file.
    `columns` names two columns of a table or a TSV file, by their names or by numbers from 1, as in "en,fr" or "3,4".
    """

    def __init__(
        self, source: Path, target: Path | None = None, languages: tuple[str, str] = ("", ""), columns: str = ""
    ) -> None:
        self.source, self.target = source, target
        self._languages, self._columns = languages, columns
        # Known after the last pair: the units of a TMX file in which one of the languages is missing, and what was
        # chosen in a file with both languages.
        self.skipped, self.note = 0, ""

    @property
    def name(self) -> str:
        """The names of the files in messages."""
        return " and ".join(shown(path) for path in (self.source, self.target) if path is not None)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The pairs; raises InputError naming file and line, and UsageError for plain text and unclear columns."""
        if self.target is not None:
            yield from read_pairs(self.source, self.target)
            return
        if is_table(self.source):
            columns = text_columns(self.source)
            names = [*columns]
            first, second, _ = self._choose(names, table=True)
            yield from column_pairs(self.source, (columns[names[first]], columns[names[second]]))
            return
        with reading(self.source) as stream:
            head = stream.read(_BLOCK) + stream.readline(LONGEST_LINE + 1)
            if not _XML.match(head):
                yield from self._rows(bounded_lines(stream, self.source, head))
                return
            reader = TmxReader(self.source, self._languages)
            yield from reader.pairs(stream, head)
            self.skipped, self.note = reader.skipped, reader.note()
            if self._columns:
                self.note += "; columns has no effect"

    def _rows(self, lines: Iterator[bytes]) -> Iterator[tuple[str, str]]:
        first = next(lines, None)
        if first is None:
            return
        names = decode_line(self.source, 1, first).split("\t")
        if len(names) == 1:
            raise _one_text(self.source)
        source, target, has_header = self._choose(names)
        if not has_header:
            yield names[source], names[target]
        for number, raw in enumerate(lines, 2):
            cells = decode_line(self.source, number, raw).split("\t")
            if len(cells) == len(names):
                yield cells[source], cells[target]
            elif cells == [""]:
                yield "", ""
            else:
                why = f"{counted(len(cells), 'column')}, but line 1 has {len(names)}"
                fix = "put one tab between two columns, and none inside a text"
                raise InputError(f"{self.name}: line {number}: {why}; {fix}")

    def _choose(self, names: Sequence[str], table: bool = False) -> tuple[int, int, bool]:
        """The columns of a table, or of a TSV file with this first line: those that are named, or the only two of TSV.

        Returns the place of the source, that of the target, and whether the first line is a header.
        """
        named = matched(names, self._languages)
        source, target = (_place(names, name, roles) for name, roles in zip(named, _ROLES, strict=True))
        has_header = source is not None and target is not None
        if self._columns:
            wanted = [part.strip() for part in self._columns.split(",")]
            has_header = has_header or table or not all(map(str.isdecimal, wanted))
            source, target = (_named(self.name, names, one, has_header) for one in wanted)
            if source == target:
                raise UsageError(f"columns: {self._columns} is only column {source + 1} of {self.name}; give two")
        elif source is None or target is None:
            regional = (main_language(one) for one in self._languages if re.search("[-_]", one))
            if len(names) != 2 or table or any(fit(name, one) for one in regional for name in names):  # another region
                wanted_languages = " and ".join(filter(None, self._languages)) or "two"
                found = f"{counted(len(names), 'column')}, and their names ({', '.join(names)[:80]})"
                fix = "choose two, such as --set columns=1,2"
                raise UsageError(f"{self.name}: {found} do not tell {wanted_languages}; {fix}")
            in_name, own = languages_in(self.source), tuple(map(main_language, self._languages))
            source, target = (1, 0) if in_name[::-1] == own != in_name else (0, 1)
        first, second = (f"column {place + 1}{f' ({names[place]})' * has_header}" for place in (source, target))
        end = "" if has_header else "; line 1 is a pair, no header"
        self.note = f"{self.name}: {first} is the source, {second} the target{end}"
        return source, target, has_header


def languages_of_columns(path: Path, columns: str) -> tuple[str, str]:
    """The languages that name the columns of a TSV file or table, or ("", ""); raises UsageError for plain text."""
    path = split_folders(path).get("train", path)
    head = beginning(path)
    first = head.decode("utf-8-sig", "replace").partition("\n")[0].removesuffix("\r")
    if head and "\t" not in first and not _XML.match(head):
        raise _one_text(path)
    found = [*text_columns(path)] if is_table(path) else first.split("\t")
    names = columns.split(",") if columns else found
    codes = [name.strip() if is_known(name) else "" for name in names]
    return (codes[0], codes[1]) if len(codes) == 2 and all(codes) and fit(*codes) != EXACT else ("", "")


def beginning(path: Path) -> bytes:
    """The first bytes of a text, nothing of a table or a stream; raises InputError if there is no such file."""
    if is_stream(path) or is_table(path):
        return b""
    with reading(path) as stream:
        return stream.read(_BLOCK)


def _one_text(path: Path) -> UsageError:
    fix = "SRC TGT, or one TMX or TSV file with both languages (with tabs between the columns, not commas)"
    return UsageError(f"{shown(path)}: one text is given; give its translation too: {fix}, or one table (Parquet)")


def _place(names: Sequence[str], chosen: str, roles: frozenset[str]) -> int | None:
    """The only column with a chosen name, or without one the only column of a role; None if there is none."""
    found = [place for place, name in enumerate(names) if (name == chosen if chosen else name.strip().lower() in roles)]
    return found[0] if len(found) == 1 else None


def _named(name: str, names: Sequence[str], wanted: str, has_header: bool) -> int:
    """The place of a column with this name or number, from 0; raises UsageError if there is none."""
    bare = [one.strip().lower() for one in names]
    if has_header and wanted.lower() in bare:
        return bare.index(wanted.lower())
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    known = f"{counted(len(names), 'column')}: {', '.join(names)[:80]}"
    raise UsageError(f"columns: {name} has no column {wanted}; it has {known}")


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
        self._before = "", ""  # the codes of the last unit
        self._depth = self._size = 0  # the size is that of the part that has been read since the last unit
        self._builder: TreeBuilder | None = None  # of the tree of the unit that is being read
        self._pairs: list[tuple[str, str]] = []
        self.skipped = 0  # units in which one of the languages is missing

    def pairs(self, stream: BinaryIO, head: bytes) -> Iterator[tuple[str, str]]:
        """Yields the units with both languages; `head` was read from the stream before.

        Of several segments the one whose language fits best is taken (`matched`). Raises InputError without such a
        unit.
        """
        self._parser = expat.ParserCreate("UTF-8" if _WIDE.search(head[:200]) else None)
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._document_type
        self._parser.SkippedEntityHandler = lambda name, _: self._refuse(f"the entity &{name[:40]}; is not defined")
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
            yield from self._pairs
            self._pairs = []
        if not any(self._before):
            fix = f"{self._named_languages()}; a code without a region, such as en, takes any"
            raise InputError(f"{shown(self._path)}: no unit has both {' and '.join(self._wanted)}; {fix}")

    def note(self) -> str:
        """What was taken, for the user."""
        source, target = self._wanted
        return f"{shown(self._path)}: TMX, {source} is the source, {target} the target; {self._named_languages()}"

    def _named_languages(self) -> str:
        return f"its languages are {', '.join(sorted(self._languages - {''})) or 'not named'}"

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
                self._add(element)
                self._builder, self._parser.CharacterDataHandler = None, None
                self._size = 0

    def _add(self, unit: Element) -> None:
        """Adds the segments of a unit in the wanted languages."""
        segments: dict[str, str] = {}
        for variant in unit.findall("tuv"):
            language = variant.get("xml:lang", variant.get("lang", "")).strip()[:_LONGEST_CODE]
            if len(self._languages) < _NAMED:
                self._languages.add(language)
            for segment in variant.findall("seg") if any(fit(language, wanted) for wanted in self._wanted) else ():
                # Of several segments in a language the first one that is not empty.
                segments[language] = segments.get(language) or one_line("".join(_parts(segment)))
        source, target = matched([*segments], self._wanted, self._before)
        if source and target:
            self._before = source, target
            self._pairs.append((segments[source], segments[target]))
        else:
            self.skipped += 1

    def _document_type(self, name: str, system: str | None, public: str | None, declarations: bool) -> None:
        if declarations:
            self._refuse("a document type with declarations (<!DOCTYPE tmx [...]>) is not read, for safety; remove it")

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
    texts = chain([code], (one.tag for one in inner), types)
    if any(len(text) <= _SHORT and _BREAK.fullmatch(text) for text in texts):
        return "\n"
    return _PLACEHOLDER if name in _STANDALONE and not _INLINE.fullmatch(code.strip()) else _FORMATTING


def is_table(path: Path) -> bool:
    """Whether a path is a Parquet file, or the folder of a data set."""
    if not path.is_file():
        return (path / _LIST).is_file()
    with open_regular(path) as stream:
        return stream.read(5) == b"PAR1\x15"  # a TSV file may begin with PAR1, too


def split_folders(folder: Path) -> dict[str, Path]:
    """The tables train, dev and test of a folder with a data set, or Parquet files, per split; {} for other folders."""
    found = {name: folder / split for name, split in _SETS.items() if (folder / split / _LIST).is_file()}
    if not (folder / _SPLITS).is_file():
        found = {name: path for name, split in _SETS.items() for path in folder.glob(f"{split}-00000-of-*.parquet")}
    return found if "train" in found else {}


def text_columns(path: Path) -> Mapping[str, str]:
    """The columns with text: their names for the user, and their names in the file.

    If there is a column `translation` of pairs, they are its texts. Raises InputError for a table without text.
    """
    with _errors(path):
        schema = next(_batches(path)).schema
    kinds = {one.name: str(one.type).removeprefix("dictionary<values=").partition(",")[0] for one in schema}
    if not (texts := [name for name, kind in kinds.items() if kind in _TEXT]):
        raise InputError(f"{path}: no column contains text; its columns are {', '.join(schema.names)[:200]}")
    parts = {name.removeprefix(_PAIRS): name for name in texts if name.startswith(_PAIRS)}
    return parts or {name: name for name in texts}


def column_pairs(path: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The texts of two columns, by their names in the file.

    Raises InputError naming the row for a missing text or one that is no line, and for a damaged table.
    """
    with _errors(path):
        batches = (batch.select(columns).columns for batch in _batches(path, columns))
        rows = chain.from_iterable(zip(*(column.to_pylist() for column in batch), strict=True) for batch in batches)
        for row, pair in enumerate(rows, 1):
            for name, text in zip(columns, pair, strict=True):
                if not isinstance(text, str) or "\n" in text or len(text) > LONGEST_LINE:
                    fault = "has a line break, or is too long" if text else "is missing (null)"
                    raise InputError(f"{path}: row {row}: the text of column {name} {fault}; remove or change the row")
            yield pair


def _batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The rows in batches, as tables whose columns have no parts; before the rows of each file an empty table."""
    import pyarrow
    from pyarrow import parquet

    for file in _files(path):
        with open_regular(file) as stream:
            if path.is_file():
                table = parquet.ParquetFile(stream, buffer_size=_TABLE_BUFFER)
                schema, batches = table.schema_arrow, table.iter_batches(_ROWS, columns=columns)
            else:
                batches = pyarrow.ipc.open_stream(stream)
                schema = batches.schema
            yield schema.empty_table().flatten()
            for batch in batches:
                batch.validate(full=True)  # the offsets of a damaged file may point outside of its memory
                yield pyarrow.Table.from_batches([batch]).flatten()


def _files(path: Path) -> list[Path]:
    """The files of a table, in their order; the first of several Parquet files represents all."""
    if match := _FIRST_FILE.fullmatch(path.name):
        return [path.with_name(f"{match[1]}-{number:05}-of-{match[2]}.parquet") for number in range(int(match[2]))]
    if path.is_file():
        return [path]
    names = [one["filename"] for one in read_json(path / _LIST)["_data_files"]]
    if not names or any(Path(name).name != name for name in names):
        raise ValueError(f"{_LIST} names no files of this folder")
    return [path / name for name in names]


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turns the errors of pyarrow, and of a list of files that is damaged, into one InputError."""
    try:
        yield
    except ImportError:
        raise UsageError(f'{path}: tables need pyarrow: pip install "nmtalign[datasets]"') from None
    except (OSError, ValueError, LookupError, TypeError, NotImplementedError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError(f"{path}: cannot be read as a table: {reason}; is it complete?") from None
