"""The inputs of a translation: lines of text or of JSON from files, each with its place for messages."""

import json
import os
import re
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

from nmtalign.errors import InputError, UsageError
from nmtalign.files import parse_json
from nmtalign.text.lines import STDIN, Shard, decode_lenient, is_converted, raw_lines, read_lines, reading, shown
from nmtalign.translating.translation import Request

_BLOCK = 1 << 20  # bytes
_GZIP_MAGIC = b"\x1f\x8b"
_TEXT_KEYS = ("text", "source")  # the first that exists counts
_PHRASES_KEYS = ("phrases", "constraints")
_SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


@dataclass(frozen=True, kw_only=True)
class InputRequest(Request):
    """A line of an input file as a request."""

    path: Path
    line: int  # its number in its file, from 1
    index: int  # its number among all lines, from 0
    end: int  # the number of bytes of the lines to translate up to its end
    valid: bool  # whether all of its bytes were UTF-8

    @property
    def place(self) -> str:
        """The file and the line number, for messages."""
        return _place(self.path, self.line)


@dataclass(frozen=True)
class Inputs:
    """The files to translate, one after the other; `-` is stdin.

    In format `json` each line is an object. The files `prefixes` and `phrases` have one line for each input line; tabs
    separate the phrases of a line. With a `shard` only its block of the lines is translated.
    """

    paths: tuple[Path, ...]
    format: Literal["text", "json"] = "text"
    prefixes: Path | None = None
    phrases: Path | None = None
    shard: Shard | None = None

    def __iter__(self) -> Iterator[InputRequest]:
        """The lines; only `\\n` and the end of a file end a line. Bytes that are not UTF-8 become U+FFFD.

        Raises InputError for a file that cannot be read, for a line that is not the expected JSON, for files with
        different numbers of lines, and for a line longer than `LONGEST_LINE`.
        """
        prefixes, phrases = _ParallelFile(self.prefixes), _ParallelFile(self.phrases)
        index, end = -1, 0
        for path in self.paths:
            for number, raw in enumerate(raw_lines(path), 1):
                index += 1
                if index >= self.block.stop:
                    return
                place = _place(path, number)
                prefix, phrase_line = prefixes.next(place), phrases.next(place)
                if index < self.block.start:
                    continue
                text, replaced = decode_lenient(raw)
                found = read_request(text, place) if self.format == "json" else Request(text)
                end += len(raw)
                yield InputRequest(
                    text=found.text,
                    prefix=prefix or found.prefix,
                    phrases=tuple(part for part in phrase_line.split("\t") if part.strip()) or found.phrases,
                    extra=found.extra,
                    path=path,
                    line=number,
                    index=index,
                    end=end,
                    valid=not replaced,
                )
        for parallel in (prefixes, phrases):
            parallel.finish(self.name, index + 1)

    @property
    def name(self) -> str:
        """The names of all files, for messages."""
        return " and ".join(map(shown, self.paths))

    @property
    def at_hand(self) -> bool:
        """Whether all files are regular files, read without waiting; raises InputError for a missing file."""
        return are_files(*self.paths, *(path for path in (self.prefixes, self.phrases) if path is not None))

    @cached_property
    def block(self) -> range:
        """The numbers of the lines to translate, from 0; raises UsageError for a shard of what is not a file."""
        if self.shard is None:
            return range(sys.maxsize)
        for path in self.paths:
            if not are_files(path):
                raise UsageError(f"{shown(path)}: a shard needs a regular file, because its lines are counted first")
        return self.shard.block(sum(map(_count_lines, self.paths)))

    def count(self) -> int:
        """The number of lines to translate. Reads all files; stdin must be a regular file and is rewound."""
        return len(self.block) if self.shard is not None else sum(map(_count_lines, self.paths))

    def size(self) -> int | None:
        """The number of bytes of the lines to translate, for the display of progress; None if it is not known."""
        if self.shard is not None or not self.at_hand:
            return None
        sizes = [unpacked_size(path) for path in self.paths]
        return None if None in sizes else sum(size or 0 for size in sizes)


class _ParallelFile:
    """A file with one line for each line of the inputs; without a file all lines are empty."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = read_lines(path) if path is not None else iter(())

    def next(self, place: str) -> str:
        """The line that belongs to the input line at `place`."""
        if self._path is None:
            return ""
        line = next(self._lines, None)
        if line is None:
            raise InputError(
                f"{shown(self._path)}: has no line for {place}; the two must have the same number of lines"
            )
        return line

    def finish(self, inputs: str, count: int) -> None:
        """Raises InputError if lines are left after the inputs have ended with `count` lines."""
        if self._path is not None and next(self._lines, None) is not None:
            raise InputError(
                f"{shown(self._path)}: has a line {count + 1}, but {inputs} ended after {count} lines; "
                "the two must have the same number of lines"
            )


def are_files(*paths: Path) -> bool:
    """Whether all are regular files, read without waiting; raises InputError for a missing file."""
    modes = [_status(path).st_mode for path in paths]
    return all(map(stat.S_ISREG, modes))


def read_request(line: str, where: str) -> Request:
    """Reads a request from a line of JSON; a blank line is an empty request.

    Raises InputError, which begins with `where` (file and line).
    """
    return make_request(parse_line(line, where), where) if line and not line.isspace() else Request("")


def make_request(found: Any, where: str) -> Request:
    """Makes a request of a JSON object with the source text under "text" or "source".

    Optional keys are "prefix" (a text) and "phrases" or "constraints" (a list of texts); null is the same as a missing
    key. All other keys become `extra`, so that the output of `json_line` can be read again. An escaped surrogate
    becomes U+FFFD. Raises InputError, which begins with `where`.
    """
    if not isinstance(found, dict):
        raise InputError(f'{where}: {_kind(found)}, not an object; write {{"text": "..."}}')
    key = next((key for key in _TEXT_KEYS if key in found), None)
    if key is None:
        raise InputError(f'{where}: the object has no "text"; write {{"text": "..."}}, or the source under "source"')
    phrases = next((key for key in _PHRASES_KEYS if found.get(key) is not None), "")
    known = {*_TEXT_KEYS, *_PHRASES_KEYS, "prefix"}
    return Request(
        text=checked_text(found[key], f'{where}: "{key}"'),
        prefix="" if found.get("prefix") is None else checked_text(found["prefix"], f'{where}: "prefix"'),
        phrases=_phrases(found[phrases], f'{where}: "{phrases}"') if phrases else (),
        extra={key: value for key, value in found.items() if key not in known},
    )


def parse_line(line: str, where: str) -> Any:
    """Returns the value of a line of JSON; raises InputError, which begins with `where`."""
    try:
        return parse_json(line, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
    except ValueError as error:
        reason = str(error)
    raise InputError(f'{where}: not JSON ({reason}); write one object per line, such as {{"text": "..."}}')


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def checked_text(value: Any, what: str) -> str:
    """Returns a text from JSON with U+FFFD for every surrogate; raises InputError, which begins with `what`."""
    if not isinstance(value, str):
        raise InputError(f"{what} is {_kind(value)}; write a text in quotes")
    return _SURROGATE.sub("\ufffd", value)


def _phrases(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f'{what} is {_kind(value)}; write a list of texts, such as ["..."]')
    return tuple(checked_text(phrase, f"{what}: entry {number}") for number, phrase in enumerate(value, 1))


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")


def _place(path: Path, number: int) -> str:
    return f"{shown(path)}: line {number}"


def _status(path: Path) -> os.stat_result:
    try:
        return os.fstat(0) if path == STDIN else path.stat()
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot read: {error.strerror}; give an existing text file") from None


def _count_lines(path: Path) -> int:
    offset = os.lseek(0, 0, os.SEEK_CUR) if path == STDIN else 0
    count, last = 0, b"\n"
    with reading(path) as stream:
        while block := stream.read(_BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    if path == STDIN:
        os.lseek(0, offset, os.SEEK_SET)
    return count + (last != b"\n")


def unpacked_size(path: Path) -> int | None:
    """The number of bytes of a regular file as UTF-8, None if it is not known.

    For a gzip file it is the size in its last bytes (modulo 2^32, of its last part).
    """
    size = _status(path).st_size
    if path == STDIN or size < 18:
        return size
    with path.open("rb") as stream:
        head = stream.read(6)
        if not head.startswith(_GZIP_MAGIC):
            return None if is_converted(head) else size
        stream.seek(-4, os.SEEK_END)
        unpacked: int = struct.unpack("<I", stream.read(4))[0]
    return unpacked if unpacked >= size else None
