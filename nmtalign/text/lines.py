"""Lines of text files: only `\\n` ends a line, and bytes that are not UTF-8 are an error naming file and line.

Files may be compressed (.gz, .bz2, .xz, .zst) or in UTF-16 with a byte order mark; they are read in bounded memory.
Each kind is recognised by the first bytes of the file, not by its name. Files that are no text are refused.
"""

import bz2
import codecs
import contextlib
import io
import json
import lzma
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, product, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from nmtalign.errors import InputError, UsageError
from nmtalign.files import disk_errors, kind_of

T = TypeVar("T")
STDIN = STDOUT = Path("-")
SIDES = ("source", "target")
LONGEST_LINE = 4 << 20  # bytes with its end; real sentences have a few hundred, and JSON with alignments some 100,000
BOM = b"\xef\xbb\xbf"
# A line without a visible character: spaces, control characters, and characters without width, such as U+200B.
BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*")
# Control characters beyond ASCII, line separators, characters that change the direction of text, halves of characters.
UNSAFE = "\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ESCAPED = re.compile(f"[{UNSAFE}]")
_BUFFER = 1 << 20  # bytes
_SAMPLE = 1 << 12  # bytes by which an encoding is recognised
_CONTROL = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]")  # without tab, line feed and carriage return
_XZ_MEMORY = 128 << 20  # bytes; a file compressed with -9 needs 65 MB
_BLOCK = 1 << 16
_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")


def shown(path: Path) -> str:
    """The name of a text file in messages; `-` is standard input."""
    return "standard input" if path == STDIN else str(path)


def is_stream(path: Path) -> bool:
    """Whether a path can be read only once: standard input, a pipe or a device."""
    return path == STDIN or (path.exists() and not path.is_file())


def counted(number: int, noun: str) -> str:
    """A number with its noun for messages, such as "1 line" or "2,000 lines"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def blocks(parts: Iterable[tuple[T, int]], most: int, longest: int = sys.maxsize) -> Iterator[list[T]]:
    """Groups (part, its size) into lists of at most `longest` consecutive parts and of size `most`, or of one part."""
    block, total = list[T](), 0
    for part, size in parts:
        if block and (total + size > most or len(block) == longest):
            yield block
            block, total = [], 0
        block.append(part)
        total += size
    if block:
        yield block


def check_counts(counts: Iterable[tuple[str, int]]) -> None:
    """Raises InputError naming the first missing line if a text, (name, lines), has another length than the first."""
    first, *others = counts
    for other in others:
        (short, fewer), (long, more) = sorted((first, other), key=itemgetter(1))
        if fewer < more:
            fix = "give files with one line per sentence"
            raise InputError(f"{short}: has no line {fewer + 1}, but {long} has {counted(more, 'line')}; {fix}")


def as_json(value: Any, indent: int | None = None) -> str:
    """A value as valid JSON in UTF-8, without `indent` on one line; NaN and infinity become null.

    Escapes such as `\\u202e` replace the characters of `UNSAFE`.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return text if text.isascii() else _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become None."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def whole_text(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which UTF-8 cannot have, but JSON and Python can."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def checked_pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields pairs (source line, target line); raises UsageError for anything else."""
    for number, pair in enumerate(pairs, 1):
        try:
            source, target = pair
            if isinstance(pair, str) or not (isinstance(source, str) and isinstance(target, str)):
                raise TypeError
        except (TypeError, ValueError):
            wrong = f"pair {number}: {str(pair)[:60]!r} is not a pair of lines; give (source, target)"
            raise UsageError(wrong) from None
        yield whole_text(source), whole_text(target)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Opens a file, or `-` (standard input), to read UTF-8; raises InputError if it is missing or damaged."""
    with contextlib.ExitStack() as opened:
        try:
            with disk_errors(path, "read"):
                raw = io.FileIO(sys.stdin.fileno(), closefd=False) if path == STDIN else io.FileIO(path)
                text = converted(opened.enter_context(raw), shown(path))
            stream = opened.enter_context(io.BufferedReader(text, _BUFFER))
        except OSError as error:
            kind = kind_of(path) if path != STDIN and path.is_dir() else ""
            reason = f"is {kind}" if kind else f"cannot read: {error.strerror}"
            fix = "give a text file, and the model with -m" if "model" in kind else "give an existing text file"
            raise InputError(f"{shown(path)}: {reason}; {fix}") from None
        try:
            with disk_errors(path, "read"):
                yield stream
        except OSError as error:
            reason = f"cannot read further: {error.strerror or error}; is the file complete?"
            raise InputError(f"{shown(path)}: {reason}") from None


def bounded_lines(stream: BinaryIO, path: Path, head: bytes = b"") -> Iterator[bytes]:
    """The raw lines of a stream, without a byte order mark.

    `path` is its name for messages, `head` its first lines if these have been read. Raises InputError naming file and
    line for a line of more than `LONGEST_LINE` bytes, without reading all of it: a small compressed file may contain a
    line that does not fit into memory.
    """
    for number, raw in enumerate(chain(io.BytesIO(head), iter(partial(stream.readline, LONGEST_LINE + 1), b"")), 1):
        if len(raw) > LONGEST_LINE:
            fix = "give text with one sentence per line"
            raise InputError(f"{shown(path)}: line {number}: longer than {LONGEST_LINE:,} bytes; {fix}")
        if line := raw if number > 1 else raw.removeprefix(BOM):  # a file with only the mark has no line
            yield line


def strip_end(raw: bytes) -> bytes:
    """A line without its `\\n` and without one `\\r` before it (files from Windows)."""
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; `\\r` and U+2028 inside a line remain.

    Raises InputError naming file and line: the file is missing, damaged, not UTF-8, or has a line that is too long.
    """
    for number, raw in enumerate(raw_lines(path), 1):
        yield decode_line(path, number, raw)


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files side by side; raises InputError as `read_lines` does, and naming a missing line."""
    both = zip_longest(raw_lines(source), raw_lines(target))
    for number, (left, right) in enumerate(both, 1):
        if left is None or right is None:
            counts = number - 1, number + sum(1 for _ in both)
            check_counts(zip(map(shown, (source, target)), counts if left is None else counts[::-1], strict=True))
        else:
            yield decode_line(source, number, left), decode_line(target, number, right)


def lines_after(lines: Iterable[T], skipped: int, done: int, name: str) -> Iterator[T]:
    """The lines, or pairs, after the first `skipped` ones; raises InputError if there are fewer than `done` ones."""
    count = 0
    for count, line in enumerate(lines, 1):
        if count > skipped:
            yield line
    if count < done:
        fix = "give the input that belongs to it, or leave out --resume to start again"
        raise InputError(f"{name}: has {counted(count, 'line')}, and the output has {done:,}; {fix}")


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends, without a byte order mark; raises InputError as `read_lines` does."""
    with reading(path) as stream:
        yield from bounded_lines(stream, path)


def decode_line(path: Path, number: int, raw: bytes) -> str:
    """The text of line `number` of a file without its end; raises InputError if it is not UTF-8."""
    try:
        return strip_end(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown(path)}: line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            "convert the file to UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8"
        ) from None


def bare_name(path: Path) -> Path:
    """The path without the ending of a compressed file, as in train.en of train.en.gz."""
    return path.with_suffix("") if path.suffix in _SUFFIXES else path


def unpacked_size(path: Path) -> int | None:
    """The number of bytes of a regular file as UTF-8, None if it is compressed, in another encoding or unreadable."""
    with contextlib.suppress(OSError), open(0 if path == STDIN else path, "rb", 0, closefd=path != STDIN) as stream:
        place = stream.tell()
        head = stream.read(6)  # enough to recognise a compression
        stream.seek(place)  # stdin is read later
        return None if head.startswith(_MAGIC) else os.fstat(stream.fileno()).st_size
    return None


def converted(raw: BinaryIO, name: str) -> io.RawIOBase:
    """The bytes of an open file, decompressed and as UTF-8; `name` is the name of the file in messages.

    Raises InputError for a file that is no text, such as an archive. Reading raises InputError for compressed data that
    are damaged or end too early. A byte order mark of UTF-8 stays. UTF-16 that is not valid becomes bytes that are not
    valid UTF-8.
    """
    stream, head = _with_head(raw)
    if compression := next((one for magic, one in _COMPRESSIONS.items() if head.startswith(magic)), None):
        stream, head = _with_head(_DerivedStream(_decompressed(stream, name, *compression)))
    if kind := next((kind for magic, kind in _NO_TEXT.items() if magic.match(head)), ""):
        raise InputError(f"{name}: is {kind}")
    if head.startswith(_UTF_16):
        return _DerivedStream(_utf_8(stream))
    if _CONTROL.search(head := head[:_SAMPLE]) and (found := _unmarked(head)):
        raise InputError(f"{name}: is {found} without a byte order mark; convert it: iconv -f {found} -t UTF-8")
    return stream


def _unmarked(head: bytes) -> str:
    """UTF-16 or UTF-32 if a text without a byte order mark is in it, by its first bytes; "" for UTF-8.

    There a line feed has a NUL beside it, and in most scripts the upper bytes are control characters. What could be
    UTF-8 with control characters, too, is refused: an error is better than garbled lines.
    """
    found = {}
    is_utf_8 = "\ufffd" not in codecs.getincrementaldecoder("UTF-8")("replace").decode(head)
    for size, order in product((2, 4), ("LE", "BE")):
        encoding, upper = f"UTF-{8 * size}{order}", head[size - 1 if order == "LE" else 0 :: size]
        text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
        ends, controls = text.count("\n"), sum(byte < 0x20 for byte in upper)
        by_script = controls > 0.9 * len(upper) and (ends > 0 or b"\n" not in head[:-1])
        by_ends = ends > 0.7 * head.count(b"\n") and (controls > 0.3 * len(upper) or not is_utf_8)
        if (by_script or by_ends) and not {"\0", "\ufffd"} & {*text}:
            found[encoding] = ends, -len({*upper})
    return max(found, key=found.__getitem__, default="")


def _zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14

        return zstd.ZstdDecompressor()
    except ImportError:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()


# First bytes: the decompressor, and the number of bytes that it gets at once. Most return at most _PART bytes at once;
# zlib and zstandard have no such bound, but they make at most 17 and 34 MB of what they get. The file objects of the
# libraries are not used: lzma.LZMAFile has no bound on memory, and zstandard.open takes a file that was cut off for a
# complete one.
_PART = 1 << 20
_COMPRESSIONS: Mapping[bytes, tuple[Callable[[], Any], int]] = {
    b"\x1f\x8b": (partial(zlib.decompressobj, 31), 16 << 10),  # 31: with the header and the checksum of gzip
    **{b"BZh%d" % level: (bz2.BZ2Decompressor, 16 << 10) for level in range(1, 10)},
    b"\xfd7zXZ\0": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY), 16 << 10),
    # zstd, also after a part that is skipped, with which pzstd begins
    **dict.fromkeys((b"(\xb5/\xfd", *(b"%c*M\x18" % code for code in range(0x50, 0x60))), (_zstd, 1 << 10)),
}
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAGIC = (*_COMPRESSIONS, *_UTF_16)
# The beginnings of files that are no text, what they are, and what to do.
_NO_TEXT = {
    re.compile(magic, re.DOTALL): kind
    for magic, kind in {
        rb"PK\x03\x04.{26}(\[Content|mimetype|_rels|docProps|word/|xl/)": "an office document; save it as plain text",
        rb"PK(\x03\x04|\x05\x06|\x07\x08)": "a zip archive; unpack it with unzip, then name the text files in it",
        rb".{257}ustar[\x00 ]": "a tar archive; unpack it with tar -xf, then name the text files in it",
        rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x04\x22\x4d\x18|LZIP\x01": "packed (7z, rar, lz4, lzip); unpack it",
        rb"\x1f\x8b\x08|BZh[1-9]1AY&SY|\xfd7zXZ\x00|\(\xb5/\xfd": "compressed twice; decompress it once",
        rb"%PDF-|\{\\rtf1|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a PDF or office document; save it as plain text",
        rb"(.{512})?\x89HDF\r\n": "an HDF5 file, such as a corpus or alignments, and not a text; give a text file",
        rb"SQLite format 3\x00|PAR1\x15|ARROW1\x00": "a database or table; export its texts as text files",
        rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff": "UTF-32; convert it to UTF-8: iconv -f UTF-32 -t UTF-8",
        rb"[^\n]*\x1b\$[@B()]": "ISO-2022; convert it to UTF-8, for example: iconv -f ISO-2022-JP -t UTF-8",
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II\*\x00|MM\x00\*|RIFF.{4}(WEBP|WAVE)|ID3[\x02-\x04]|OggS\x00|fLaC\x00"
        rb"|\x00\x00.{2}ftyp": "an image or a recording; give a text file",
    }.items()
}


class _DerivedStream(io.RawIOBase):
    """The bytes that an iterator makes of another stream, part by part."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (part := next(self._parts, None)) is not None:
            self._ready = memoryview(part)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def _with_head(stream: Any) -> tuple[_DerivedStream, bytes]:
    """The stream, and its first bytes, which show its kind.

    From a pipe these are the bytes that arrive first, so that a typed line is not waited for twice.
    """
    head, blocks = b"", iter(lambda: stream.read(_BLOCK) or b"", b"")
    for block in blocks:
        head += block
        if not any(magic.startswith(head) and magic != head for magic in _MAGIC):
            break
    return _DerivedStream(chain([head], blocks)), head


def _decompressed(stream: io.RawIOBase, name: str, make: Callable[[], Any], step: int) -> Iterator[bytes]:
    """The decompressed bytes; the file may consist of several compressed parts, with padding behind each."""
    decoder: Any = None
    data = b""
    try:
        while data or (decoder and not getattr(decoder, "needs_input", True)) or (data := stream.read(step) or b""):
            if decoder is None:
                if not (data := data.lstrip(b"\0")):
                    continue
                decoder = make()
            yield decoder.decompress(data, *([_PART] if hasattr(decoder, "needs_input") else []))
            data = decoder.unused_data if decoder.eof else b""
            decoder = None if decoder.eof else decoder
        if decoder:
            raise EOFError("the compressed data end too early")
    except ImportError:
        raise UsageError(f'{name}: .zst files need zstandard: pip install "nmtalign[zst]"') from None
    except Exception as error:  # each library has its own error
        if isinstance(error, MemoryError) or getattr(error, "errno", None):  # the data are not damaged
            raise
        raise InputError(f"{name}: cannot read further: {error}; is the file complete?") from None


def _utf_8(stream: io.RawIOBase) -> Iterator[bytes]:
    """UTF-16 text as UTF-8, without its byte order mark; half of a character becomes bytes that are not UTF-8."""
    blocks = iter(lambda: stream.read(_BLOCK) or b"", b"")
    try:
        yield from codecs.iterencode(codecs.iterdecode(blocks, "utf-16", "surrogatepass"), "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"


@dataclass(frozen=True)
class Shard:
    """Block `number` (from 1) of `count` blocks of lines. All blocks one after the other are the complete text."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that "I/N" describes; raises UsageError for anything else."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip(), re.ASCII)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard {text}: give I/N, block I of N blocks, such as 1/8, 2/8, ... 8/8")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def block(self, lines: int) -> range:
        """The numbers of its lines, from 0, in a text of `lines` lines; empty if there are too few lines."""
        return range(lines * (self.number - 1) // self.count, lines * self.number // self.count)
