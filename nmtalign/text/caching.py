"""What tokenisers remember of words that they have met."""

from collections.abc import Iterable

CACHED = 1 << 17  # words; more are forgotten and found anew, so that memory has an end

Tokens = tuple[str, ...]

# One string for each token. `sys.intern` is not used: from Python 3.12 on, it may keep a string until the program ends.
_strings: dict[str, str] = {}


def keep(cache: dict[str, Tokens], key: str, tokens: Iterable[str]) -> Tokens:
    """Puts the tokens into the cache, emptied first where it is full, and returns them.

    Equal tokens become one string: they take memory once, and are found quickly when they are counted.
    """
    if len(cache) >= CACHED:
        cache.clear()
    if len(_strings) >= CACHED:
        _strings.clear()
    kept = cache[key] = tuple(_strings.setdefault(token, token) for token in tokens)
    return kept
