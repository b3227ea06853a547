"""Bytes of text files as UTF-8: .gz, .bz2, .xz and .zst are decompressed, and UTF-16 is decoded, in bounded memory.

Each kind is recognised by the first bytes of the file, not by its name. Archives and other files that are no text are
refused.
"""

import bz2
import codecs
import contextlib
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
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
    return head.startswith(_MAGIC)


def converted(raw: BinaryIO, name: str) -> io.RawIOBase:
    """The bytes of an open file, decompressed and as UTF-8; `name` is the name of the file in messages.

    Raises InputError for a file that is no text, such as an archive. Reading raises InputError for compressed data that
    are damaged or end too early. A byte order mark of UTF-8 stays. UTF-16 that is not valid becomes bytes that are not
    valid UTF-8.
    """
    stream, head = _with_head(raw)
    for magic, compression in _COMPRESSIONS.items():
        if head.startswith(magic):
            stream, head = _with_head(_DerivedStream(stream, _decompressed(stream, name, *compression)))
            break
    if kind := next((kind for magic, kind in _NO_TEXT if magic.match(head)), ""):
        members = _members(raw) if "zip" in kind and head.startswith(b"PK") and raw.seekable() else ""
        raise InputError(f"{name}: is {kind}{members}")
    return _DerivedStream(stream, _utf_8(stream)) if head.startswith(_UTF_16) else stream


def _zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14

        return zstd.ZstdDecompressor()
    except ImportError:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()


# First bytes: the decompressor, the number of bytes that it gets at once, and the most that it returns at once. gzip
# and zstd have no such bound, but they make at most 17 and 34 MB of these bytes. The file objects of the libraries are
# not used: lzma.LZMAFile has no bound on memory, and zstandard.open takes a file that was cut off for a complete one.
_Compression = tuple[Callable[[], Any], int, tuple[int, ...]]
_COMPRESSIONS: Mapping[bytes, _Compression] = {
    b"\x1f\x8b": (partial(zlib.decompressobj, 31), 16 << 10, ()),  # 31: with the header and the checksum of gzip
    **{b"BZh%d" % level: (bz2.BZ2Decompressor, 16 << 10, (1 << 20,)) for level in range(1, 10)},
    b"\xfd7zXZ\0": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY), 16 << 10, (1 << 20,)),
    b"(\xb5/\xfd": (_zstd, 1 << 10, ()),
}
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAGIC = (*_COMPRESSIONS, *_UTF_16)
# The beginnings of files that are no text, what they are, and what to do.
_NO_TEXT = [
    (re.compile(magic, re.DOTALL), kind)
    for magic, kind in {
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


class _DerivedStream(io.RawIOBase):
    """The bytes that an iterator makes of another stream, part by part."""

    def __init__(self, stream: io.IOBase, parts: Iterator[bytes]) -> None:
        self._stream, self._parts = stream, parts
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (part := next(self._parts, None)) is not None:
            self._ready = memoryview(part)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        super().close()
        self._stream.close()


def _with_head(stream: Any) -> tuple[_DerivedStream, bytes]:
    """The stream, and its first bytes, which show of which kind it is.

    Of a pipe these are the bytes that arrive first, so that a line that is typed is not waited for twice.
    """
    head, blocks = b"", iter(lambda: stream.read(_BLOCK) or b"", b"")
    for block in blocks:
        head += block
        if not any(magic.startswith(head) and magic != head for magic in _MAGIC):
            break
    return _DerivedStream(stream, chain([head], blocks)), head


def _decompressed(
    stream: io.RawIOBase, name: str, make: Callable[[], Any], step: int, most: tuple[int, ...]
) -> Iterator[bytes]:
    """The decompressed bytes; the file may consist of several compressed parts, with padding behind each."""
    decoder: Any = None
    data = b""
    try:
        while data or (decoder and not getattr(decoder, "needs_input", True)) or (data := stream.read(step) or b""):
            if decoder is None:
                if not (data := data.lstrip(b"\0")):
                    continue
                decoder = make()
            yield decoder.decompress(data, *most)
            data = decoder.unused_data if decoder.eof else b""
            decoder = None if decoder.eof else decoder
        if decoder:
            raise EOFError("the compressed data end too early")
    except ImportError:
        raise UsageError(f'{name}: .zst files need zstandard: pip install "nmtalign[zst]"') from None
    except MemoryError:
        raise
    except Exception as error:  # each library has its own error
        raise InputError(f"{name}: cannot read on: {error}; is the file complete?") from None


def _utf_8(stream: io.RawIOBase) -> Iterator[bytes]:
    """UTF-16 text as UTF-8, without its byte order mark; half of a character becomes bytes that are not UTF-8."""
    blocks = iter(lambda: stream.read(_BLOCK) or b"", b"")
    try:
        yield from codecs.iterencode(codecs.iterdecode(blocks, "utf-16", "surrogatepass"), "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"


def _members(raw: Any) -> str:
    """The names of the files in a zip archive, for a message; without those that only describe it."""
    from zipfile import ZipFile

    with contextlib.suppress(Exception), ZipFile(raw) as archive:  # a damaged archive has many kinds of errors
        names = [name for name in archive.namelist() if not re.search(r"(^|/)($|README|LICEN[CS]E)", name)]
        return f": {', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''}" if names else ""
    return ""
