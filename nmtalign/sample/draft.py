"""A sentence pair under construction: the words of both sides, and for each French word the English ones it renders."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from nmtalign.sample.dictionary import Phrase, starts_with_vowel

T = TypeVar("T")
Places = tuple[int, ...]  # positions of English words

_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'", "je": "j'", "se": "s'", "me": "m'"}


@dataclass(frozen=True, slots=True)
class Example:
    """One sentence pair: natural text, its Moses tokens, and the gold links (source position, target position)."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


class Draft:
    """A growing sentence pair. `say` appends English words, `put` a French one, `write` both."""

    def __init__(self, seed: str) -> None:
        generator = Random(seed)
        self.random = generator.random
        self.bits = generator.getrandbits
        self.source: list[str] = []
        self.target: list[tuple[str, Places]] = []

    def say(self, words: str) -> Places:
        """Append English words and return their positions."""
        start = len(self.source)
        self.source.extend(words.split())
        return tuple(range(start, len(self.source)))

    def put(self, word: str, origin: Places = ()) -> None:
        """Append a French word that renders the English words at these positions; an empty word is left out."""
        if word:
            self.target.append((word, origin))

    def write(self, english: str, french: str | None = None) -> None:
        """Append English words, and French words that render all of them; by default they are the same."""
        origin = self.say(english)
        for word in (english if french is None else french).split():
            self.put(word, origin)

    def write_phrase(self, phrase: Phrase) -> None:
        """Append a fixed phrase in both languages."""
        places = self.say(phrase.english)
        for position, word in enumerate(phrase.french.split()):
            links = (link.split("-") for link in phrase.links)
            self.put(word, tuple(places[int(i)] for i, j in links if int(j) == position))

    def pick(self, choices: Sequence[T]) -> T:
        """Draw one of the choices."""
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """Draw yes or no."""
        return self.random() < probability

    def length(self) -> int:
        """Tokens on the longer side so far."""
        return max(len(self.source), len(self.target))

    def cut(self, source: int = 0, target: int = 0) -> None:
        """Keep only this number of words of each side."""
        del self.source[source:], self.target[target:]

    def example(self) -> Example:
        """Finish the sentence: elide, capitalise, link and join."""
        source, target = list(self.source), [word for word, _ in self.target]
        for j, word in enumerate(target[:-1]):
            if word in _ELIDED and starts_with_vowel(target[j + 1]):
                target[j] = _ELIDED[word]
        for side in (source, target):
            side[0] = side[0][0].upper() + side[0][1:]
        links = sorted((i, j) for j, (_, origin) in enumerate(self.target) for i in origin)
        english = " ".join(source).replace(" ,", ",").replace(" '", "'")
        french = " ".join(target).replace(" ,", ",").replace("' ", "'")
        english = english[:-2] + english[-1]
        french = french if french[-1] == "?" else french[:-2] + french[-1]
        return Example(english, french, tuple(source), tuple(target), tuple(links))
