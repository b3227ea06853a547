"""Fonts for the words of a picture: matplotlib's own, and of the machine's what that one lacks."""

import contextlib
from pathlib import Path

_FIRST = "DejaVu Sans"  # comes with matplotlib
_BOXES = "Last Resort High-Efficiency"  # so may this one, of boxes that name a letter's script
_USUAL = ("400", "normal", "regular", "book")
_TRUETYPE = (b"\x00\x01\x00\x00", b"true")


def families(text: str, embedded: bool = False) -> tuple[list[str], str]:
    """(names of fonts, in the order in which letters are looked for, letters that none of them has).

    The first one is matplotlib's own. Of the others those are taken that hold letters which are still missing, in the
    order of their names; for a file with embedded fonts only those that can be.
    """
    from matplotlib.font_manager import fontManager, get_font

    chosen = [_FIRST]
    wanted = {letter for letter in text if letter.isprintable() and not letter.isspace()}
    missing = wanted - _letters(get_font(fontManager.findfont(_FIRST)), wanted)
    if not missing:
        return chosen, ""
    usual = (entry for entry in fontManager.ttflist if entry.style == "normal" and str(entry.weight) in _USUAL)
    for entry in sorted(usual, key=lambda entry: ("Sans" not in entry.name, entry.name, entry.fname)):
        if entry.name in (*chosen, _BOXES) or (embedded and not _is_truetype(Path(entry.fname))):
            continue
        with contextlib.suppress(OSError, RuntimeError):  # a font that cannot be read
            found = _letters(get_font(entry.fname), missing)
            if found:
                chosen.append(entry.name)
                missing -= found
        if not missing:
            break
    return chosen, "".join(sorted(missing))


def _letters(font: object, wanted: set[str]) -> set[str]:
    held = font.get_charmap()  # type: ignore[attr-defined]
    return {letter for letter in wanted if ord(letter) in held}


def _is_truetype(path: Path) -> bool:
    """Whether the outlines are TrueType's, in a file of one font: others cannot be embedded as they are."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        return stream.read(4) in _TRUETYPE
    return False
