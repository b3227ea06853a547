"""The bodies of requests: read within limits, and parsed; nothing in them is trusted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from nmtalign.errors import InputError
from nmtalign.settings.command_settings import ServeConfig
from nmtalign.settings.definition import byte_count
from nmtalign.translating.file_translation import checked_text, parse_line
from nmtalign.translating.requests import Request as Line

T = TypeVar("T")

TOO_LARGE = 413
_DISCARDED = 16 << 20  # bytes of a body that is too large; a client that sends all of it first reads the answer then
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 10_000  # of a form
_MOST_CELLS = 50_000_000  # weights if each character is a word: 1,000 lines of 220 characters
_MOST_WEIGHTS = 2_000_000  # of a response, whose JSON they make 20 MB larger
_MOST_REQUIRED = 1000  # characters of the prefix and the phrases of a line, and one for each phrase


@dataclass(frozen=True)
class LibreQuery:
    """What a client of LibreTranslate asks for."""

    texts: Sequence[str]
    is_list: bool
    source: str
    target: str
    alternatives: int

    def answer(self, values: Sequence[Any]) -> Any:
        """One value per text as a list, or the only value, as the client gave the texts."""
        return list(values) if self.is_list else values[0]


@dataclass(frozen=True)
class JsonBody(Generic[T]):
    """The values of a body of JSON: a list, or one value per line."""

    values: Sequence[T]
    is_list: bool

    def answer(self, lines: Sequence[str]) -> str:
        """One line of JSON per value: as a list, or one per line, as the client gave them."""
        return f"[{', '.join(lines)}]\n" if self.is_list else "".join(f"{line}\n" for line in lines)


class BodyLimits:
    """Reads bodies and checks lines; raises HTTPException for what exceeds the limits of the settings."""

    def __init__(self, config: ServeConfig) -> None:
        self._bytes, self._lines = byte_count("max_body", config.max_body), config.max_lines
        self._characters = config.max_characters

    async def read(self, request: Request) -> bytes:
        """The body; one that is too large is refused, and discarded as far as that is quick."""
        length = request.headers.get("content-length", "")[:18]
        if length.isdecimal() and int(length) > self._bytes + _DISCARDED:
            raise self._too_large()
        body, size = bytearray(), 0
        async for chunk in request.stream():
            size += len(chunk)
            if size <= self._bytes:
                body += chunk
            elif size > self._bytes + _DISCARDED:
                break
        if size > self._bytes:
            raise self._too_large()
        return bytes(body)

    def check_count(self, lines: int) -> None:
        """Refuses too many lines; callers count them before they make an object of each."""
        if lines > self._lines:
            raise HTTPException(TOO_LARGE, f"{lines} lines: send at most {self._lines} in one request")

    def check(self, lines: Iterable[tuple[int, Line]], work: float = 1.0) -> None:
        """Refuses a numbered line that is too long, or requires too many words.

        With a search that does `work` times as much as usual, a line may have fewer characters by this factor.
        """
        most = int(self._characters / work)
        for number, line in lines:
            if len(line.text) > most:
                cause = ", the most with so wide a search" if work > 1 else ""
                raise HTTPException(TOO_LARGE, f"line {number + 1}: longer than {most} characters{cause}")
            if len(line.prefix) + sum(len(phrase) + 1 for phrase in line.phrases) > _MOST_REQUIRED:
                rule = f"the prefix and the phrases have more than {_MOST_REQUIRED} characters"
                raise HTTPException(TOO_LARGE, f"line {number + 1}: {rule}")

    def check_weights(self, count: int, most: int = _MOST_WEIGHTS) -> None:
        """Refuses alignments with too many weights."""
        if count > most:
            raise HTTPException(TOO_LARGE, "the alignments would be too large; send fewer or shorter lines")

    def check_cells(self, cells: int) -> None:
        """Refuses alignments that could have too many weights: `cells`, if each character is a word."""
        self.check_weights(cells, _MOST_CELLS)

    def _too_large(self) -> HTTPException:
        return HTTPException(TOO_LARGE, f"the body is larger than {self._bytes} bytes")


def libre_query(content_type: str, body: bytes, limits: BodyLimits, only_text: bool = False) -> LibreQuery:
    """Reads a body of LibreTranslate, JSON or a form; raises InputError that names what is wrong."""
    fields = {"source": "", "target": "", **_fields(content_type, body, limits)}
    if "q" not in fields:
        raise InputError('"q" is missing: give the text, or a list of texts (/translate/json reads "text")')
    if fields.get("format") not in (None, "", "text"):
        raise InputError('"format" must be "text": markup is not translated')
    found = fields["q"]
    given = found if isinstance(found, list) else [found]
    limits.check_count(len(given))
    texts = [checked_text(text, '"q"') for text in given]
    languages = {name: checked_text(fields[name], f'"{name}"') for name in ("source", "target")}
    limits.check_count(sum(text.count("\n") + 1 for text in texts))
    if not only_text and "" in languages.values():
        raise InputError('"source" and "target" must be languages, such as "en" and "fr"')
    return LibreQuery(texts, isinstance(found, list), **languages, alternatives=_count(fields.get("alternatives")))


def json_body(body: bytes, limits: BodyLimits, make: Callable[[Any, str], T]) -> JsonBody[T]:
    """Reads a list of JSON values, or one value per line; raises InputError that names the line or the entry.

    `make` turns a value into what the caller needs; it gets the place for messages, too. A blank line is a blank text.
    One value may extend over several lines.
    """
    text = _decoded(body).removesuffix("\n")
    lines = text.split("\n")
    if not text.strip():
        raise InputError('the body is empty: send objects such as {"text": "..."}, one per line or in a list')
    try:
        if text != text.strip() and not text.lstrip().startswith("["):  # a blank line at an end is a line
            raise InputError("several lines")
        value = parse_line(text, "the body" if len(lines) > 1 else "line 1")
    except InputError:
        if len(lines) == 1 or text.lstrip().startswith("["):
            raise
        limits.check_count(len(lines))
        places = [(f"line {number}", line) for number, line in enumerate(lines, 1)]
        values = [(place, parse_line(line, place) if line.strip() else {"text": ""}) for place, line in places]
    else:
        values = [("line 1", value)]
        if isinstance(value, list):
            limits.check_count(len(value))
            values = [(f"entry {number}", one) for number, one in enumerate(value, 1)]
    return JsonBody([make(one, place) for place, one in values], text.lstrip().startswith("["))


def pair_of(value: Any, where: str) -> tuple[str, str]:
    """The lines of a pair to align; raises InputError, which begins with `where`."""
    if not isinstance(value, dict) or "source" not in value or "target" not in value:
        raise InputError(f'{where}: not a pair; write {{"source": "...", "target": "..."}}')
    return checked_text(value["source"], f'{where}: "source"'), checked_text(value["target"], f'{where}: "target"')


def _fields(content_type: str, body: bytes, limits: BodyLimits) -> Mapping[str, Any]:
    """The fields of a form, of which a repeated one is a list, or those of a JSON object."""
    text = _decoded(body)
    if content_type.startswith(_FORM) and not text.lstrip().startswith("{"):  # curl -d names JSON a form
        limits.check_count(text.lower().count("%0a"))  # line breaks, without which a form has at least one line
        return _form(text)
    if content_type.startswith("multipart/"):
        raise HTTPException(415, f"multipart forms are not read: send application/json or {_FORM}")
    found = parse_line(text, "the body")
    if not isinstance(found, dict):
        raise InputError('the body: not an object; write {"q": "...", "source": "en", "target": "fr"}')
    return found


def _form(text: str) -> Mapping[str, Any]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InputError(f"the form is not readable: {error}") from None
    texts = [value for name, value in pairs if name == "q"]
    return {**dict(pairs), "q": texts[0] if len(texts) == 1 else texts} if texts else dict(pairs)


def _count(value: Any) -> int:
    """The number of alternatives."""
    if value is None or value == "":
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 4:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError('"alternatives" must be a number such as 3')
    return value


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte 0x{body[error.start]:02x} at position {error.start}") from None
