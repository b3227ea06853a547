"""A sentence pair under construction: the words of both sides, and for each French word the English ones it renders."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeVar

from nmtalign.sample.dictionary import Phrase, starts_with_vowel

T = TypeVar("T")

PRESENT, PAST, FUTURE = range(3)

Places = tuple[int, ...]  # positions of English words

_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'", "je": "j'", "se": "s'", "me": "m'"}


class Agreement(NamedTuple):
    """What verbs and adjectives agree with: person (see `Verb.present`), gender and number."""

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
    """A growing sentence pair. `say` appends English words, `put` French ones, `write` both."""

    def __init__(self, seed: str) -> None:
        generator = Random(seed)
        self.random = generator.random
        self.bits = generator.getrandbits
        self.clear()

    def clear(self) -> None:
        """Begin a new sentence."""
        self.source: list[str] = []
        self.target: list[tuple[str, Places]] = []

    def say(self, *words: str) -> Places:
        """Append English words and return their positions; an empty word is left out."""
        start = len(self.source)
        self.source.extend(filter(None, words))
        return tuple(range(start, len(self.source)))

    def put(self, word: str, origin: Places = ()) -> None:
        """Append a French word that renders the English words at these positions (none: it has no counterpart)."""
        self.target.append((word, origin))

    def write(self, english: str, *french: str) -> None:
        """Append an English word and the French words that render it, by default the same word."""
        origin = self.say(english)
        self.target.extend((word, origin) for word in french or (english,))

    def write_phrase(self, phrase: Phrase) -> None:
        """Append a fixed phrase in both languages."""
        places = self.say(*phrase.english)
        for position, word in enumerate(phrase.french):
            self.put(word, tuple(places[i] for i, j in phrase.links if j == position))

    def pick(self, choices: Sequence[T]) -> T:
        """Draw one of the choices."""
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """Draw yes or no."""
        return self.random() < probability

    def length(self) -> int:
        """Tokens on the longer side so far."""
        return max(len(self.source), len(self.target))

    def mark(self) -> tuple[int, int]:
        """The current end of both sides, for `rewind`."""
        return len(self.source), len(self.target)

    def rewind(self, mark: tuple[int, int]) -> None:
        """Delete what was written since `mark`."""
        del self.source[mark[0] :]
        del self.target[mark[1] :]

    def example(self) -> Example:
        """Finish the sentence: elide, capitalise, link and join."""
        target = _elide([word for word, _ in self.target])
        source = self.source
        source[0] = source[0][0].upper() + source[0][1:]
        target[0] = target[0][0].upper() + target[0][1:]
        links = sorted((i, j) for j, (_, origin) in enumerate(self.target) for i in origin)
        return Example(_join_english(source), _join_french(target), tuple(source), tuple(target), tuple(links))


def _elide(words: list[str]) -> list[str]:
    for j in range(len(words) - 1):
        short = _ELIDED.get(words[j])
        if short is not None and starts_with_vowel(words[j + 1]):
            words[j] = short
    return words


def _join_english(tokens: list[str]) -> str:
    text = " ".join(tokens).replace(" ,", ",").replace(" '", "'")
    return text[:-2] + text[-1]


def _join_french(tokens: list[str]) -> str:
    text = " ".join(tokens).replace(" ,", ",").replace("' ", "'")
    return text if text[-1] == "?" else text[:-2] + text[-1]
