"""What tokenisers remember of words that they have met."""

import sys
from collections.abc import Iterable

CACHED = 1 << 17  # words; more are forgotten and found anew, so that memory has an end

Tokens = tuple[str, ...]


def keep(cache: dict[str, Tokens], key: str, tokens: Iterable[str]) -> Tokens:
    """Puts the tokens into the cache, emptied first where it is full, and returns them.

    Equal tokens become one string: they take memory once, and are found quickly when they are counted.
    """
    if len(cache) >= CACHED:
        cache.clear()
    kept = cache[key] = tuple(map(sys.intern, tokens))
    return kept
