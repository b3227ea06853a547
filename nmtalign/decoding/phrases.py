"""What a translation has of the phrases that must stand in it, word by word."""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from nmtalign.text.vocabulary import UNK_ID

Symbols = tuple[int, ...]


class Phrases:
    """The phrases of one sentence, each of which must stand in its translation, its words side by side.

    They may share words: "a b c" has both "a b" and "b c". A phrase that is given twice must stand there twice. Symbols
    are ids of words, but each `<unk>` of a phrase has a negative symbol of its own, for it is printed as its own word.
    """

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        own = count(-1, -1)
        self.phrases = [tuple(next(own) if word == UNK_ID else word for word in phrase) for phrase in phrases]
        counts = Counter(phrase for phrase in self.phrases if phrase)
        self.different = [_Pattern(phrase) for phrase in counts]
        self.words = sum(map(len, self.phrases))
        self.alphabet = {symbol for phrase in counts for symbol in phrase}
        self._known: dict[_Parts, Progress] = {}
        self.start = self.progress(tuple((0, times) for times in counts.values()))

    def progress(self, parts: "_Parts") -> "Progress":
        """The one object for this progress: for each different phrase (words matched, times it must still come)."""
        if parts not in self._known:
            self._known[parts] = Progress(self, parts)
        return self._known[parts]

    def places(self, symbols: Symbols) -> tuple[int, ...]:
        """Where each phrase begins in a translation that has all of them, -1 for an empty one."""
        found: dict[Symbols, int] = {(): -1}
        result = []
        for phrase in self.phrases:
            start = found.get(phrase, -1) + 1
            while phrase and symbols[start : start + len(phrase)] != phrase:
                start += 1
            found[phrase] = start if phrase else -1
            result.append(found[phrase])
        return tuple(result)


_Parts = tuple[tuple[int, int], ...]


class Progress:
    """How far translations are that go on alike.

    `missing`: so many words bring all that is still missing, at most. `wanted`: the symbols that bring it nearer;
    `bound`: nothing else may follow, for an `<unk>` of a phrase would be left without the rest of it.
    """

    def __init__(self, phrases: Phrases, parts: _Parts) -> None:
        self._phrases, self._parts = phrases, parts
        self._after: dict[int | None, Progress] = {}
        missing = [
            (matched, pattern) for (matched, times), pattern in zip(parts, phrases.different, strict=True) if times
        ]
        begun = max((matched for matched, _ in missing), default=0)
        total = sum(times * len(pattern.symbols) for (_, times), pattern in zip(parts, phrases.different, strict=True))
        self.missing = total - begun
        # While a phrase is under way, the others wait for its end.
        wanted = [pattern.symbols[matched] for matched, pattern in missing if matched or not begun]
        # There is at most one of these, for no other phrase has its symbol.
        bound = [
            pattern.symbols[matched] for matched, pattern in missing if min(pattern.symbols[:matched], default=0) < 0
        ]
        self.wanted, self.bound = tuple(dict.fromkeys(bound or wanted)), bool(bound)

    def after(self, symbol: int | None) -> "Progress":
        """The progress with one more word; None stands for a word of no phrase."""
        key = symbol if symbol in self._phrases.alphabet else None
        if key not in self._after:
            self._after[key] = self._phrases.progress(self._with(key))
        return self._after[key]

    def _with(self, symbol: int | None) -> _Parts:
        return tuple(
            pattern.advance(matched, times, symbol)
            for (matched, times), pattern in zip(self._parts, self._phrases.different, strict=True)
        )


class _Pattern:
    """A phrase to find (Knuth, Morris and Pratt): after a word that does not fit, the longest part that still does."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self._borders = [0, 0]  # of each beginning: how long its longest other beginning is that is also its end
        for length in range(2, len(symbols) + 1):
            self._borders.append(self._longer(self._borders[-1], symbols[length - 1]))

    def advance(self, matched: int, times: int, symbol: int | None) -> tuple[int, int]:
        """(words matched, times it must still come) with one more word."""
        if not times:
            return 0, 0
        matched = self._longer(matched, symbol)
        if matched < len(self.symbols):
            return matched, times
        return (self._borders[matched] if times > 1 else 0), times - 1

    def _longer(self, matched: int, symbol: int | None) -> int:
        while matched and self.symbols[matched] != symbol:
            matched = self._borders[matched]
        return matched + (self.symbols[matched] == symbol)
