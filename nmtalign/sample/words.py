"""What a word of the sample lexicon is: nouns, adjectives and verbs with every form that the grammar may ask for."""

from dataclasses import dataclass

MASCULINE_SINGULAR, MASCULINE_PLURAL, FEMININE_SINGULAR, FEMININE_PLURAL, BEFORE_VOWEL = range(5)
"""Positions in `Adjective.forms` and `Verb.participle`: 2 * feminine + plural, then the masculine before a vowel."""

FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)
"""Positions in `Verb.present`, `Verb.imperfect` and `Verb.future`."""

_VOWELS = frozenset("aeiouhyâàéèêëîïôûœ")
_ASPIRATED = frozenset(
    [
        "héros",
        "hibou",
        "hiboux",
        "haut",
        "hauts",
        "haute",
        "hautes",
        "hache",
        "haches",
        "harpe",
        "harpes",
        "haine",
        "huit",
        "onze",
    ]
)


def starts_with_vowel(french: str) -> bool:
    """Whether the articles and pronouns before this French word lose their vowel (`l'homme`, but `le héros`)."""
    return french[0] in _VOWELS and french not in _ASPIRATED


@dataclass(frozen=True, slots=True, eq=False)  # each word is one object: compared and hashed as itself
class Noun:
    """A noun of both languages; `tags` says what kind of thing it is and what can be done with it."""

    english: tuple[str, str]  # singular, plural
    french: tuple[str, str]
    feminine: bool
    tags: str

    @property
    def kind(self) -> str:
        """The first tag: human, animal, place, thing, organisation, document, abstract or food."""
        return self.tags[0]


@dataclass(frozen=True, slots=True, eq=False)  # each word is one object: compared and hashed as itself
class Adjective:
    """An adjective of both languages; `place` is its rank among English adjectives and its side in French."""

    english: str
    comparative: str  # one English word, or empty where English says `more`
    forms: tuple[str, str, str, str, str]
    place: str  # before the noun (P), or behind it: quality Q, colour C, scope S, domain D
    kinds: str


@dataclass(frozen=True, slots=True, eq=False)  # each word is one object: compared and hashed as itself
class Verb:
    """A verb of both languages; `objects` are the nouns that it may govern (empty: intransitive)."""

    base: str
    third: str
    past: str
    past_participle: str
    particle: str  # the English preposition or adverb that goes with it, or empty
    infinitive: str
    present: tuple[str, str, str, str]
    imperfect: tuple[str, str, str, str]
    future: tuple[str, str, str, str]
    participle: tuple[str, str, str, str]
    past_by: str  # "avoir", "être" or "imparfait"
    reflexive: bool
    objects: tuple[Noun, ...]
    subjects: str
    flags: str
