"""Prints the requirements of nmtalign at their oldest or newest allowed versions: `versions.py oldest|newest`.

`bin/test oldest` and `bin/test newest` install them. Extras that need no other test tools are included.
"""

import sys
import tomllib
from pathlib import Path

_EXTRAS = ("plot", "serve", "split")
# What the oldest typer and matplotlib themselves need; later versions warn about what these two call.
_OF_THEIR_TIME = ["click==8.1.8", "pyparsing==3.1.1"]


def requirements(which: str) -> list[str]:
    """Returns the arguments for pip, such as ["torch==2.6", ...] or ["torch", ...]."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for name in _EXTRAS for line in project["optional-dependencies"][name])]
    named = [line.partition(">=") for line in lines]
    if which == "newest":
        return [name + versions.partition(",")[2] for name, _, versions in named]
    return [*(f"{name}=={oldest}" for name, _, oldest in named), *_OF_THEIR_TIME]


if __name__ == "__main__":
    sys.stdout.write(" ".join(requirements(sys.argv[1])) + "\n")
