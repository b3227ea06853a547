"""The sentence being written: words of both sides in their own order, and for each target word what it renders."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeVar

from nmtalign.sample.words import starts_with_vowel

T = TypeVar("T")

PRESENT, PAST, FUTURE = range(3)

_ELIDED = {
    "le": "l'",
    "la": "l'",
    "de": "d'",
    "que": "qu'",
    "ne": "n'",
    "je": "j'",
    "se": "s'",
    "me": "m'",
}


class Agreement(NamedTuple):
    """Who a verb or an adjective agrees with: person (see `Verb.present`), gender and number."""

    person: int
    feminine: bool
    plural: bool

    @property
    def form(self) -> int:
        """The position in `Adjective.forms` and `Verb.participle`."""
        return 2 * self.feminine + self.plural


@dataclass(frozen=True, slots=True)
class Example:
    """One sentence pair: natural text, its Moses tokens, and the gold links (source position, target position)."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


class Draft:
    """A growing sentence pair; `say` writes English and tells the position, `put` writes French and its origin."""

    def __init__(self, seed: str) -> None:
        generator = Random(seed)
        self.random = generator.random
        self.bits = generator.getrandbits
        self.clear()

    def clear(self) -> None:
        """Begin a new sentence."""
        self.source: list[str] = []
        self.target: list[tuple[str, tuple[int, ...]]] = []

    def say(self, word: str) -> int:
        """Append an English word."""
        self.source.append(word)
        return len(self.source) - 1

    def say_all(self, words: Sequence[str]) -> tuple[int, ...]:
        """Append English words; give their positions."""
        start = len(self.source)
        self.source.extend(words)
        return tuple(range(start, len(self.source)))

    def put(self, word: str, origin: tuple[int, ...] = ()) -> None:
        """Append a French word that renders the English words at these positions (none: inserted)."""
        self.target.append((word, origin))

    def put_all(self, words: Sequence[str], origin: tuple[int, ...] = ()) -> None:
        """Append French words that together render the same English words."""
        self.target.extend((word, origin) for word in words)

    def copy(self, word: str) -> None:
        """Append a word that is the same in both languages."""
        self.put(word, (self.say(word),))

    def pick(self, choices: Sequence[T]) -> T:
        """Draw one of them."""
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """Draw yes or no."""
        return self.random() < probability

    def length(self) -> int:
        """Tokens on the longer side so far."""
        return max(len(self.source), len(self.target))

    def rewind(self, mark: tuple[int, int]) -> None:
        """Strike out what was written since `mark`, the two lengths then."""
        del self.source[mark[0] :]
        del self.target[mark[1] :]

    def mark(self) -> tuple[int, int]:
        """Where `rewind` may come back to."""
        return len(self.source), len(self.target)

    def example(self) -> Example:
        """Finish the sentence: elide, capitalise, link and join."""
        target = _elide([word for word, _ in self.target])
        source = self.source
        source[0] = source[0][0].upper() + source[0][1:]
        target[0] = target[0][0].upper() + target[0][1:]
        links = [(i, j) for j, (_, origin) in enumerate(self.target) for i in origin]
        links.sort()
        return Example(_join_english(source), _join_french(target), tuple(source), tuple(target), tuple(links))


def _elide(words: list[str]) -> list[str]:
    for j in range(len(words) - 1):
        short = _ELIDED.get(words[j])
        if short is not None and starts_with_vowel(words[j + 1]):
            words[j] = short
        elif words[j] == "si" and words[j + 1] in ("il", "ils"):
            words[j] = "s'"
    return words


def _join_english(tokens: list[str]) -> str:
    text = " ".join(tokens).replace(" ,", ",").replace(" '", "'")
    return text[:-2] + text[-1]


def _join_french(tokens: list[str]) -> str:
    text = " ".join(tokens).replace(" ,", ",").replace("' ", "'")
    return text if text[-1] == "?" else text[:-2] + text[-1]
