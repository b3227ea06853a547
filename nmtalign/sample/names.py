"""Proper names: a few common given names, and surnames and towns of our own making with a long Zipfian tail.

Name number r comes up about as often as 1/r, over a million surnames and a million towns, so that the more text is
written the more names are new: what a shortlist of frequent words must cut. All begin with a consonant, and none ends
in `s`, so that they neither change the words before them nor their own form.
"""

from collections.abc import Callable

GIVEN: tuple[tuple[str, bool], ...] = (
    ("Paul", False),
    ("Martin", False),
    ("Simon", False),
    ("Victor", False),
    ("Daniel", False),
    ("Robert", False),
    ("Bruno", False),
    ("David", False),
    ("Vincent", False),
    ("Gabriel", False),
    ("Marie", True),
    ("Claire", True),
    ("Julie", True),
    ("Nadia", True),
    ("Laura", True),
    ("Sophie", True),
    ("Rosa", True),
    ("Nina", True),
    ("Clara", True),
    ("Sabine", True),
)
"""Given names, and whether a woman bears them."""

_COMMON, _OCTAVES = 3, 20  # the first octaves would be names as frequent as nouns
_MASK = (1 << _OCTAVES) - 1
_FIRST = ["B", "D", "F", "G", "K", "L", "M", "N", "P", "R", "S", "T", "V", "Z", "Br", "Tr"]
_MIDDLE = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "nd", "lm"]
_SURNAME_END = [
    "ek",
    "in",
    "or",
    "an",
    "ard",
    "eau",
    "ino",
    "ot",
    "ier",
    "ovan",
    "et",
    "ell",
    "ert",
    "ik",
    "olt",
    "und",
]
_TOWN_END = [
    "ia",
    "ona",
    "ville",
    "burg",
    "ava",
    "ora",
    "ette",
    "elle",
    "ance",
    "una",
    "aine",
    "ière",
    "ola",
    "uga",
    "emont",
    "euil",
]


def _rank(random: Callable[[], float], bits: Callable[[int], int]) -> int:
    octave = _COMMON + int(random() * (_OCTAVES - _COMMON))
    return (1 << octave) | bits(octave)


def _compose(rank: int, ends: list[str]) -> str:
    """Spell a rank: an odd factor spreads neighbours over the syllables, and no two ranks share a spelling number."""
    number = rank * 668265263 + 374761393 & _MASK
    return (
        _FIRST[number & 15]
        + "aeio"[number >> 4 & 3]
        + _MIDDLE[number >> 6 & 15]
        + "aeou"[number >> 10 & 3]
        + _MIDDLE[number >> 12 & 15]
        + ends[number >> 16 & 15]
    )


def surname(random: Callable[[], float], bits: Callable[[int], int]) -> str:
    """Draw a family name."""
    return _compose(_rank(random, bits), _SURNAME_END)


def town(random: Callable[[], float], bits: Callable[[int], int]) -> str:
    """Draw the name of a town."""
    return _compose(_rank(random, bits), _TOWN_END)
