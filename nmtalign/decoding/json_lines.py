"""Lines of JSON as requests: what to translate, what the translation has to hold, and keys that are passed through."""

import json
import re
from typing import Any, NoReturn

from nmtalign.decoding.results import Request
from nmtalign.errors import InputError
from nmtalign.untrusted import parse_json

_TEXT_KEYS = ("text", "source")  # the first that is there counts
_PHRASES_KEYS = ("phrases", "constraints")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def read_request(line: str, where: str) -> Request:
    """The request that a line holds: an object with the source under "text", or under "source".

    It may have "prefix" (a text) and "phrases" or "constraints" (a list of texts), null as good as none; all other keys
    go into `extra`, so that what `json_line` writes can be read again. A blank line is an empty request. A half of a
    character that JSON writes as an escape becomes U+FFFD. Raises InputError that starts with `where` (file and line)
    for anything else.
    """
    if not line or line.isspace():
        return Request("")
    found = _parse(line, where)
    if not isinstance(found, dict):
        raise InputError(f'{where}: {_kind(found)}, not an object; write {{"text": "..."}}')
    key = next((key for key in _TEXT_KEYS if key in found), None)
    if key is None:
        raise InputError(f'{where}: the object has no "text"; write {{"text": "..."}}, or the source under "source"')
    phrases = next((key for key in _PHRASES_KEYS if found.get(key) is not None), "")
    known = {*_TEXT_KEYS, *_PHRASES_KEYS, "prefix"}
    return Request(
        text=_text(found[key], f'{where}: "{key}"'),
        prefix="" if found.get("prefix") is None else _text(found["prefix"], f'{where}: "prefix"'),
        phrases=_phrases(found[phrases], f'{where}: "{phrases}"') if phrases else (),
        extra={key: value for key, value in found.items() if key not in known},
    )


def _parse(line: str, where: str) -> Any:
    try:
        return parse_json(line, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
    except ValueError as error:
        reason = str(error)
    raise InputError(f'{where}: not JSON ({reason}); write an object a line, such as {{"text": "..."}}')


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} is {_kind(value)}; write a text in quotes")
    return _SURROGATE.sub("\ufffd", value)


def _phrases(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f'{what} is {_kind(value)}; write a list of texts, such as ["..."]')
    return tuple(_text(phrase, f"{what}: entry {number}") for number, phrase in enumerate(value, 1))


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "a number")
