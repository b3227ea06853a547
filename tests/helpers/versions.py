"""Prints the requirements of nmtalign at their oldest or newest allowed versions: `versions.py oldest|newest`.

`bin/test oldest` and `bin/test newest` install them. Extras that need no other test tools are included.
"""

import sys
import tomllib
from pathlib import Path

_EXTRAS = ("plot", "serve")


def requirements(which: str) -> list[str]:
    """Returns the arguments for pip, such as ["torch==2.6", ...] or ["torch", ...]."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for name in _EXTRAS for line in project["optional-dependencies"][name])]
    named = [line.partition(">=") for line in lines]
    return [f"{name}=={oldest}" if which == "oldest" else name for name, _, oldest in named]


if __name__ == "__main__":
    sys.stdout.write(" ".join(requirements(sys.argv[1])) + "\n")
