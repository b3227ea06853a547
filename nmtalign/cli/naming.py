"""The names of files that are compared: NAME of `NAME=FILE`, else as much of the path as tells the files apart."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from nmtalign.errors import UsageError

_STDIN = Path("-")


def named(argument: Path) -> tuple[str, Path]:
    """(name, path) of `NAME=FILE`, or ("", path); a file that is there may have a `=` in its name."""
    name, equals, path = str(argument).partition("=")
    if equals and name and path and "/" not in name and not argument.exists():
        return name, Path(path)
    return "", argument


def own_parts(path: Path) -> Sequence[str]:
    """What a file can be called by: the parts of its path."""
    return ("stdin",) if path == _STDIN else path.parts


def name_files(
    arguments: Sequence[Path], parts_of: Callable[[Path], Sequence[str]] = own_parts
) -> tuple[tuple[str, Path], ...]:
    """(name, path) of each argument, all names different.

    A file without a NAME has the shortest end of its path that no other file has; the same file again has a number.
    Raises UsageError for a NAME that is given twice.
    """
    pairs = [named(argument) for argument in arguments]
    taken = Counter(name for name, _ in pairs if name)
    if twice := [name for name, count in taken.items() if count > 1]:
        raise UsageError(f"two files are named {twice[0]}; give each NAME=FILE another name")
    unnamed = [tuple(parts_of(path)) for name, path in pairs if not name]
    names = []
    for name, path in pairs:
        if not name:
            name = _distinct(_shortest(tuple(parts_of(path)), unnamed, taken), taken)
            taken[name] += 1
        names.append((name, path))
    return tuple(names)


def _shortest(parts: tuple[str, ...], others: Sequence[tuple[str, ...]], taken: Counter[str]) -> str:
    """The shortest end of a path that no path but its equals has; else all of the path."""
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
