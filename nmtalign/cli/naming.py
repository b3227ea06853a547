"""The names of files that are compared: the NAME of `NAME=FILE`, else the shortest distinct end of the path."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nmtalign.errors import UsageError

_STDIN = Path("-")


def named(argument: Path) -> tuple[str, Path]:
    """(name, path) of `NAME=FILE`, or ("", path); a file that is there may have a `=` in its name."""
    name, equals, path = str(argument).partition("=")
    if equals and name and path and "/" not in name and not argument.exists():
        return name, Path(path)
    return "", argument


def name_files(arguments: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """(name, path) of each argument, all names different.

    A file or folder without a NAME has the shortest end of its path that no other one has; the same path again has a
    number. Raises UsageError for a NAME that is given twice.
    """
    pairs = [named(argument) for argument in arguments]
    taken = Counter(name for name, _ in pairs if name)
    if twice := [name for name, count in taken.items() if count > 1]:
        raise UsageError(f"two files are named {twice[0]}; give each NAME=FILE another name")
    unnamed = [_parts(path) for name, path in pairs if not name]
    names = []
    for name, path in pairs:
        if not name:
            name = _distinct(_shortest(_parts(path), unnamed), taken)
            taken[name] += 1
        names.append((name, path))
    return tuple(names)


def _parts(path: Path) -> tuple[str, ...]:
    """The parts of a path; train.jsonl means its folder, and `model/backward` (the other direction) is one part."""
    if path == _STDIN:
        return ("stdin",)
    path = path.parent if path.name == "train.jsonl" else path
    parts = (path if path.name not in ("", "..") else path.resolve()).parts
    return (*parts[:-2], "/".join(parts[-2:])) if parts[-1] == "backward" else parts


def _shortest(parts: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    """The shortest end of a path that no other path has; else the path."""
    for size in range(1, len(parts)):
        end = parts[-size:]
        if all(other == parts or other[-size:] != end for other in others):
            return str(Path(*end))
    return str(Path(*parts))


def _distinct(name: str, taken: Counter[str]) -> str:
    number, plain = 1, name
    while name in taken:
        number += 1
        name = f"{plain} ({number})"
    return name
