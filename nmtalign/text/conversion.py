"""Bytes of text files as UTF-8: .gz, .bz2, .xz and .zst are decompressed, and UTF-16 is decoded, in bounded memory.

Each kind is recognised by the first bytes of the file, not by its name. Archives and other files that are no text are
refused.
"""

import bz2
import codecs
import io
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nmtalign.errors import InputError, UsageError

_XZ_MEMORY = 128 << 20  # bytes; a file compressed with -9 needs 65 MB
_BLOCK = 1 << 16
_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_NAMED = 5  # members of an archive that a message lists


def bare_name(path: Path) -> Path:
    """The path without the ending of a compressed file, as in train.en of train.en.gz."""
    return path.with_suffix("") if path.suffix in _SUFFIXES else path


def is_converted(head: bytes) -> bool:
    """Whether a file that begins with these bytes (6 are enough) is compressed or UTF-16."""
    return any(head.startswith(sign) for sign in _SIGNS)


def converted(raw: BinaryIO, name: str) -> io.RawIOBase:
    """The bytes of an open file, decompressed and as UTF-8; `name` is the name of the file in messages.

    Raises InputError for a file that is no text, such as an archive. Reading raises InputError for compressed data that
    are damaged or end too early. A byte order mark of UTF-8 stays. UTF-16 that is not valid becomes bytes that are not
    valid UTF-8.
    """
    stream, head = _with_head(raw)
    for sign, packed in _PACKED.items():
        if head.startswith(sign):
            try:
                stream, head = _with_head(_Unpacked(stream, name, packed))
            except ImportError:
                raise UsageError(f'{name}: .zst files need zstandard: pip install "nmtalign[zst]"') from None
            break
    if kind := next((kind for sign, kind in _NO_TEXT if sign.match(head)), ""):
        members = _members(raw) if "zip" in kind and head.startswith(b"PK") and raw.seekable() else ""
        raise InputError(f"{name}: is {kind}{members}")
    for mark, encoding in _WIDE.items():
        if head.startswith(mark):
            return _Transcoded(stream, encoding)
    return stream


def _gzip() -> Any:
    return zlib.decompressobj(31)  # with the header and the checksum of gzip


def _xz() -> Any:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)


def _zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14

        return zstd.ZstdDecompressor()
    except ImportError:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()


# First bytes: the decoder, the number of bytes that it gets at once, and the most that it returns at once. gzip and
# zstd have no such bound, but they make at most 17 and 34 MB of these bytes.
_Kind = tuple[Callable[[], Any], int, tuple[int, ...]]
_PACKED: Mapping[bytes, _Kind] = {
    b"\x1f\x8b": (_gzip, 16 << 10, ()),
    **{b"BZh%d" % level: (bz2.BZ2Decompressor, 16 << 10, (1 << 20,)) for level in range(1, 10)},
    b"\xfd7zXZ\0": (_xz, 16 << 10, (1 << 20,)),
    b"(\xb5/\xfd": (_zstd, 1 << 10, ()),
}
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_SIGNS = (*_PACKED, *_WIDE)
# The beginnings of files that are no text, what they are, and what to do.
_NO_TEXT = [
    (re.compile(sign, re.DOTALL), kind)
    for sign, kind in {
        rb"PK\x03\x04.{26}(\[Content|mimetype|_rels|docProps|word/|xl/)": "an office document; save it as plain text",
        rb"PK(\x03\x04|\x05\x06|\x07\x08)": "a zip archive; unpack it with unzip, then name the text files in it",
        rb".{257}ustar": "a tar archive; unpack it with tar -xf, then name the text files in it",
        rb"7z\xbc\xaf\x27\x1c": "a 7z archive; unpack it with 7z x, then name the text files in it",
        rb"Rar!\x1a\x07": "a rar archive; unpack it with unrar x, then name the text files in it",
        rb"\x04\x22\x4d\x18": "compressed by lz4; decompress it with lz4 -d",
        rb"LZIP\x01": "compressed by lzip; decompress it with lzip -d",
        rb"\x1f\x9d": "compressed by compress; decompress it with uncompress",
        rb"%PDF-": "a PDF document; save it as plain text, for example with pdftotext",
        rb"\{\\rtf1|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an office document; save it as plain text",
        rb"(.{512})?\x89HDF\r\n": "an HDF5 file, such as a corpus or alignments, and not a text; give a text file",
        rb"SQLite format 3\x00": "an SQLite database; export its texts as text files",
        rb"PAR1[\x00-\x1f]|ARROW1\x00": "a Parquet or Arrow table; export its texts as text files",
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II\*\x00|MM\x00\*|RIFF.{4}WEBP": "an image; give a text file",
        rb"ID3[\x02-\x04]|RIFF.{4}WAVE|OggS\x00|fLaC\x00|.{4}ftyp": "a recording; give a text file",
    }.items()
]


class _Converted(io.RawIOBase):
    """A stream made of another one, in parts."""

    def __init__(self, stream: Any, ready: bytes = b"") -> None:
        self._stream = stream
        self._ready = memoryview(ready)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (part := self._next()) is not None:
            self._ready = memoryview(part)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _next(self) -> bytes | None:
        """The next bytes, which may be none; None at the end."""
        return self._stream.read(_BLOCK) or None

    def close(self) -> None:
        super().close()
        self._stream.close()


def _with_head(stream: Any) -> tuple[_Converted, bytes]:
    """The stream, and its first bytes, which show of which kind it is.

    Of a pipe these are the bytes that arrive first, so that a line that is typed is not waited for twice.
    """
    head = b""
    while (not head or any(sign.startswith(head) and sign != head for sign in _SIGNS)) and (
        part := stream.read(_BLOCK)
    ):
        head += part
    return _Converted(stream, head), head


def _members(raw: Any) -> str:
    """The names of the files in a zip archive, for a message; without those that only describe it."""
    raw.seek(max(raw.seek(0, io.SEEK_END) - _BLOCK, 0))
    end = raw.read(_BLOCK)
    places = (match.start() for match in re.finditer(rb"PK\x01\x02", end))
    found = [end[at + 46 : at + 46 + int.from_bytes(end[at + 28 : at + 30], "little")] for at in places]
    names = [name.decode("utf-8", "replace") for name in found if not re.search(rb"(^|/)($|README|LICEN[CS]E)", name)]
    return f": {', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''}" if names else ""


class _Unpacked(_Converted):
    """A compressed stream, decompressed; the file may consist of several compressed parts."""

    def __init__(self, stream: _Converted, name: str, kind: _Kind) -> None:
        super().__init__(stream)
        self._name = name
        self._make, self._step, self._most = kind
        self._decoder = self._make()
        self._rest = b""

    def _next(self) -> bytes | None:
        has_more = not getattr(self._decoder, "needs_input", True)  # output that it has not returned yet
        data = b"" if has_more else self._rest or self._stream.read(self._step)
        if self._decoder is None:
            if not data:
                return None
            self._rest, data = b"", data.lstrip(b"\0")  # a part may have padding after it
            if not data:
                return b""
            self._decoder = self._make()
        try:
            if not data and not has_more:
                raise EOFError("the compressed data end too early")
            part: bytes = self._decoder.decompress(data, *self._most)
        except MemoryError:
            raise
        except Exception as error:  # each library has its own error
            raise InputError(f"{self._name}: cannot read on: {error}; is the file complete?") from None
        if self._decoder.eof:
            self._rest, self._decoder = self._decoder.unused_data, None
        return part


class _Transcoded(_Converted):
    """UTF-16 text as UTF-8, without its byte order mark."""

    def __init__(self, stream: _Converted, encoding: str) -> None:
        super().__init__(stream)
        self._stream.read(2)
        # A half of a character becomes bytes that no UTF-8 text contains.
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self._ended = False

    def _next(self) -> bytes | None:
        if self._ended:
            return None
        data = self._stream.read(_BLOCK)
        self._ended = not data
        try:
            return self._decoder.decode(data, final=self._ended).encode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return b"\xff"  # half of a character at the end
