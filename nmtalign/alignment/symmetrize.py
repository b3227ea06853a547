"""One set of links from those of two directions: intersection, union, and what lies between (Koehn et al. 2005).

All links are (source, target). `forward` are those of the model that writes the target: with argmax one a target word
at most. `backward` are those of the model that reads the target and writes the source, turned round: one a source word.

What lies between starts with the intersection and adds links of the union, a link only if one of its words at least has
none yet:

- "grow-diag": links beside one that is there, diagonally too, until no more come. The links that are there are gone
  through by target word, then by source word, what is added on the way included; and the places beside each in the
  order of `_BESIDE`.
- "grow-diag-final": then the links of forward alone, then those of backward alone, by target word, then source word.
- "grow-diag-final-and": the same, but then only links neither of whose words has one.

This is Moses's symal to the letter. fast_align's atools goes through the links that could be added, by source word, and
asks whether one beside them is there; where several links compete for the same words it may choose another.
"""

from collections.abc import Callable, Collection, Mapping
from typing import get_args

from nmtalign.alignment.links import Link
from nmtalign.config import HardSymmetrization

Links = Collection[Link]

_BESIDE = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))  # (source, target)


def symmetrize(forward: Links, backward: Links, method: HardSymmetrization) -> list[Link]:
    """The links of both directions made one, by target word, then by source word.

    Raises ValueError for a method that is none of `HARD_METHODS`.
    """
    if method not in HARD_METHODS:
        raise ValueError(f"links are made one by {', '.join(HARD_METHODS)}, not by {method!r}")
    return sorted(_METHODS[method](frozenset(forward), frozenset(backward)), key=_place)


def _place(link: Link) -> tuple[int, int]:
    """Links are gone through by target word, then by source word."""
    return link[1], link[0]


class _Growing:
    """Links that were chosen, and the words that have one."""

    def __init__(self, links: frozenset[Link]) -> None:
        self.links = set(links)
        self.source = {i for i, _ in links}
        self.target = {j for _, j in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.source.add(link[0])
        self.target.add(link[1])

    def has_room(self, link: Link) -> bool:
        """Whether a word of it at least has no link."""
        return link[0] not in self.source or link[1] not in self.target

    def is_free(self, link: Link) -> bool:
        """Whether neither word has one."""
        return link[0] not in self.source and link[1] not in self.target

    def grow(self, union: frozenset[Link]) -> None:
        """Adds links of the union beside those that are there, in passes over them, until one adds none."""
        before = -1
        while before < len(self.links) < len(union):
            before = len(self.links)
            self._pass(union)

    def _pass(self, union: frozenset[Link]) -> None:
        left = union - self.links
        # The places of the union in their order: what is added ahead of the one looked at is met in the same pass.
        for i, j in sorted(union, key=_place):
            if (i, j) not in self.links:
                continue
            for right, down in _BESIDE:
                near = i + right, j + down
                if near in left and self.has_room(near):
                    self.add(near)
                    left -= {near}

    def finish(self, links: frozenset[Link], fits: Callable[[Link], bool]) -> None:
        """Adds those links that fit when their turn comes."""
        for link in sorted(links - self.links, key=_place):
            if fits(link):
                self.add(link)


def _grow_diag(forward: frozenset[Link], backward: frozenset[Link]) -> _Growing:
    growing = _Growing(forward & backward)
    growing.grow(forward | backward)
    return growing


def _final(forward: frozenset[Link], backward: frozenset[Link]) -> set[Link]:
    growing = _grow_diag(forward, backward)
    for links in (forward, backward):
        growing.finish(links, growing.has_room)
    return growing.links


def _final_and(forward: frozenset[Link], backward: frozenset[Link]) -> set[Link]:
    growing = _grow_diag(forward, backward)
    for links in (forward, backward):
        growing.finish(links, growing.is_free)
    return growing.links


_METHODS: Mapping[HardSymmetrization, Callable[[frozenset[Link], frozenset[Link]], Collection[Link]]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": lambda forward, backward: _grow_diag(forward, backward).links,
    "grow-diag-final": _final,
    "grow-diag-final-and": _final_and,
}
HARD_METHODS: tuple[HardSymmetrization, ...] = get_args(HardSymmetrization)
