"""What a file was begun with, and whether this run goes on with the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmtalign.errors import UsageError


def plain(value: Any) -> Any:
    """An attribute's value as Python's own type."""
    return value.item() if isinstance(value, np.generic) else value


def check_same(path: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError that names the first setting of this run that is not what `path` was begun with."""
    for name, ours in now.items():
        theirs = plain(begun.get(name))
        if theirs != plain(ours):
            place, theirs, ours = _difference(name, theirs, plain(ours))
            raise UsageError(
                f"{path}: was begun with {place} = {_shown(theirs)}, and now it is {_shown(ours)}; go on with the "
                "model, texts and options of then, or leave out --resume"
            )


def _difference(name: str, theirs: Any, ours: Any) -> tuple[str, Any, Any]:
    """Name and values of what differs: of two texts that are JSON objects, the first key whose values do."""
    try:
        before, after = json.loads(theirs), json.loads(ours)
        for key in [*before, *after]:
            if before.get(key) != after.get(key):
                return f"{name}.{key}", before.get(key), after.get(key)
    except (TypeError, ValueError, AttributeError):
        pass
    return name, theirs, ours


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
