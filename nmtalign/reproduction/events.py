"""What a reproduction says while it goes on."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A part of the work begins, or was done before."""

    number: int  # from 1
    total: int
    what: str  # `training RNNsearch-50, seed 1234`
    already: bool = False


@dataclass(frozen=True)
class Failed:
    """An experiment cannot go on; the others do."""

    name: str
    problem: str


@dataclass(frozen=True)
class Noted:
    """Something worth knowing."""

    text: str


Happening = Step | Failed | Noted
Listener = Callable[[Happening], None]


class Halted(Exception):  # noqa: N818
    """The end that `Reproduction.stop` asked for; what was reached is kept."""
