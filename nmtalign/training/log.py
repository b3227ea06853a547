"""train.jsonl: every event, a JSON line each."""

import json
from pathlib import Path

from nmtalign.files import atomic_text, disk_errors
from nmtalign.training.events import Event
from nmtalign.untrusted import parse_json

LOG = "train.jsonl"


class EventLog:
    """Appends events to train.jsonl; what an interrupted run wrote after its last checkpoint is taken back first."""

    def __init__(self, folder: Path, update: int) -> None:
        self._path = folder / LOG
        kept = [line for line in _lines(self._path) if _update_of(line) <= update] if update else []
        with atomic_text(self._path) as stream:
            stream.writelines(f"{line.decode()}\n" for line in kept)

    def write(self, event: Event) -> None:
        """Appends one event; the file is whole after each."""
        with disk_errors(self._path), self._path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(event.as_dict(), ensure_ascii=False) + "\n")


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        return []
    return [line for line in path.read_bytes().split(b"\n") if line]


def _update_of(line: bytes) -> float:
    try:
        return float(parse_json(line.decode())["update"])
    except (ValueError, KeyError, TypeError, OverflowError):  # a line that was cut off, perhaps within a character
        return float("inf")
