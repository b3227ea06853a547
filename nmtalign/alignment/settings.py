"""What a file was begun with, and whether this run goes on with the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmtalign.errors import UsageError
from nmtalign.untrusted import parse_json

_FREE = frozenset(("source_file", "target_file", "nmtalign_version"))
_FREE_OPTIONS = frozenset(("threads", "device", "max_memory"))


def plain(value: Any) -> Any:
    """An attribute's value as Python's own type."""
    return value.item() if isinstance(value, np.generic) else value


def check_same(path: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError that names the first setting of this run that is not what `path` was begun with.

    Where the texts lie and what is the machine's affair (threads and the like, among the options) may change.
    """
    for name, ours in now.items():
        if name in _FREE:
            continue
        different = _difference(name, plain(begun.get(name)), plain(ours))
        if different is not None:
            place, before, after = different
            raise UsageError(
                f"{path}: was begun with {place} = {_shown(before)}, and now it is {_shown(after)}; go on with the "
                "model, texts and options of then, or leave out --resume"
            )


def _difference(name: str, before: Any, after: Any) -> tuple[str, Any, Any] | None:
    """Name and values of what differs, if anything does: of texts that are JSON objects the first key that does."""
    if before == after:
        return None
    objects = _object(before), _object(after)
    if objects[0] is None or objects[1] is None:
        return name, before, after
    keys = [key for key in {**objects[0], **objects[1]} if key not in _FREE_OPTIONS]
    found = (key for key in keys if objects[0].get(key) != objects[1].get(key))
    return next(((f"{name}.{key}", objects[0].get(key), objects[1].get(key)) for key in found), None)


def _object(text: Any) -> dict[str, Any] | None:
    try:
        value = parse_json(text)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
