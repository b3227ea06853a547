"""Bytes of text files as UTF-8: .gz, .xz and .zst are decompressed, and UTF-16 is decoded, in bounded memory.

Each kind is recognised by the first bytes of the file, not by its name.
"""

import codecs
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nmtalign.errors import InputError, UsageError

_XZ_MEMORY = 128 << 20  # bytes; a file compressed with -9 needs 65 MB
_BLOCK = 1 << 16
_SUFFIXES = (".gz", ".xz", ".zst")


def bare_name(path: Path) -> Path:
    """The path without the ending of a compressed file, as in train.en of train.en.gz."""
    return path.with_suffix("") if path.suffix in _SUFFIXES else path


def is_converted(head: bytes) -> bool:
    """Whether a file that begins with these bytes (6 are enough) is compressed or UTF-16."""
    return any(head.startswith(sign) for sign in _SIGNS)


def converted(raw: BinaryIO, name: str) -> io.RawIOBase:
    """The bytes of an open file, decompressed and as UTF-8; `name` is the name of the file in messages.

    Reading raises InputError for compressed data that are damaged or end too early. A byte order mark of UTF-8 stays.
    UTF-16 that is not valid becomes bytes that are not valid UTF-8.
    """
    stream, head = _with_head(raw)
    for sign, (make, step) in _PACKED.items():
        if head.startswith(sign):
            try:
                stream, head = _with_head(_Unpacked(stream, name, make, step))
            except ImportError:
                raise UsageError(f'{name}: .zst files need zstandard: pip install "nmtalign[zst]"') from None
            break
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


# First bytes: the decoder, and the number of bytes that it gets at once, which become 17, 28 and 34 MB at most.
_PACKED: Mapping[bytes, tuple[Callable[[], Any], int]] = {
    b"\x1f\x8b": (_gzip, 16 << 10),
    b"\xfd7zXZ\0": (_xz, 4 << 10),
    b"(\xb5/\xfd": (_zstd, 1 << 10),
}
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_SIGNS = (*_PACKED, *_WIDE)


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
    """The stream, and as many of its first bytes as show of which kind it is.

    The bytes are read one by one, so that a line that is typed is not waited for twice.
    """
    head = b""
    while any(sign.startswith(head) and sign != head for sign in _SIGNS) and (byte := stream.read(1)):
        head += byte
    return _Converted(stream, head), head


class _Unpacked(_Converted):
    """A compressed stream, decompressed; the file may consist of several compressed parts."""

    def __init__(self, stream: _Converted, name: str, make: Callable[[], Any], step: int) -> None:
        super().__init__(stream)
        self._name, self._make, self._step = name, make, step
        self._decoder = make()
        self._rest = b""

    def _next(self) -> bytes | None:
        data = self._rest or self._stream.read(self._step)
        if self._decoder is None:
            if not data:
                return None
            self._rest, data = b"", data.lstrip(b"\0")  # a part may have padding after it
            if not data:
                return b""
            self._decoder = self._make()
        try:
            if not data:
                raise EOFError("the compressed data end too early")
            part: bytes = self._decoder.decompress(data)
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
