"""The words of the sample grammar with their forms in both languages. A row of a table in lexicon/ is a word.

A tag says what a noun is (its first tag: human, animal, place, thing, organisation, document, abstract, food) or what
can be done with it (inside, destination, built, eaten, drunk, opened, written, material, purpose, adopted).
"""

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

PRESENT, PAST, FUTURE = range(3)
FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)  # positions in the forms of a tense
_KINDS = ("human", "animal", "place", "thing", "organisation", "document", "abstract", "food")
_ACTORS = ("human", "animal", "organisation")
T = TypeVar("T")
_VOWELS = frozenset("aeiouhyâàéèêëîïôûœ")
_ASPIRATED = frozenset(("héros", "hibou", "hiboux", "hache", "haches", "harpe", "harpes", "haine", "huit", "onze"))


def starts_with_vowel(french: str) -> bool:
    """Whether articles and pronouns before this French word lose their vowel (`l'homme`, but `le héros`)."""
    return french[0] in _VOWELS and french not in _ASPIRATED


class Agreement(NamedTuple):
    """The features with which verbs and adjectives agree: person, gender and number."""

    person: int
    feminine: bool
    plural: bool

    @property
    def form(self) -> int:
        """The position in `Adjective.forms` and `Verb.participle`."""
        return 2 * self.feminine + self.plural


@dataclass(frozen=True, slots=True, eq=False)  # words are compared and hashed by identity
class Noun:
    """A noun; the forms are singular and plural."""

    english: list[str]
    french: list[str]
    gender: str
    tags: list[str]

    @property
    def feminine(self) -> bool:
        """Whether the French noun is feminine."""
        return self.gender == "f"

    @property
    def kind(self) -> str:
        """What the noun denotes: its first tag."""
        return self.tags[0]


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective that fits nouns of some kinds; `forms` are those of `Agreement.form` and the one before a vowel."""

    english: str
    comparative: str  # "" if English uses `more`
    forms: list[str]
    place: str  # "before" the French noun; behind it: "quality", "colour", "scope" or "domain", in English order
    kinds: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb with the tags of the nouns that can be its object (none: intransitive), and the kinds of its subjects.

    Flags: `named`: a person's name can be the object; `french_to`, `english_to`: `à` or `to` precedes the object;
    `giving`: it takes a thing and a receiver, `giving_only` always; `going`: it takes a destination; `saying`: it
    takes a clause; `reflexive`; `modal`; `auxiliary`.
    """

    base: str
    third: str
    past: str
    past_participle: str
    particle: str  # English preposition or adverb behind the verb, or ""
    infinitive: str
    present: list[str]
    imperfect: list[str]
    future: list[str]
    participle: list[str]
    past_tense: str  # auxiliary of the past tense, "avoir" or "être"; or "imparfait"
    subjects: list[str]
    objects: list[str]
    flags: list[str]

    def nouns(self) -> list[Noun]:
        """The nouns that can be its object."""
        return tagged(*self.objects)

    def in_tense(self, tense: int) -> list[str]:
        """The French forms of a tense by person; PAST is the imparfait."""
        return (self.present, self.imperfect, self.future)[tense]

    def is_plain(self, *allowed: str) -> bool:
        """Whether the verb has no other flags than these."""
        return set(self.flags) <= set(allowed)


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """A determiner: its French forms, with `/` between them, are masculine, feminine, both before a vowel, and plural.

    A single form fits all nouns. A table row without forms is a determiner with a grammar of its own. `weights` say how
    often it is drawn: in the singular, there as object of `pas`, in the plural, there as object of `pas`.
    """

    english: str
    french: str
    weights: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Phrase:
    """A fixed phrase of a class; `links` are pairs of positions (English, French), as in `0-0`."""

    kind: str
    english: str
    french: str
    links: list[str]


def _rows(table: str) -> list[dict[str, str]]:
    text = (files("nmtalign.sample") / "lexicon" / f"{table}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _words(kind: type[T], table: str) -> list[T]:
    """The words of a table, whose columns are the fields of the class; spaces separate the items of a list."""
    columns = [(field.name, field.type is not str) for field in fields(kind)]  # type: ignore[arg-type]
    return [kind(*(row[name].split() if split else row[name] for name, split in columns)) for row in _rows(table)]


@cache
def tagged(*tags: str) -> list[Noun]:
    """The nouns that have at least one of the tags, in the order of the table."""
    return [noun for noun in NOUNS if not set(tags).isdisjoint(noun.tags)]


def _fitting(*places: str) -> dict[str, list[Adjective]]:
    """The adjectives of these places by the kind of noun that they fit."""
    return {kind: [word for word in ADJECTIVES if word.place in places and kind in word.kinds] for kind in _KINDS}


def _by_subject(choices: Iterable[Verb], transitive: bool) -> dict[str, list[Verb]]:
    """The verbs with or without an object by the kind of noun that can be their subject."""
    chosen = [verb for verb in choices if bool(verb.objects) == transitive]
    return {kind: [verb for verb in chosen if kind in verb.subjects] for kind in _ACTORS}


def _flagged(flag: str) -> list[Verb]:
    return [verb for verb in _ALL_VERBS if flag in verb.flags]


def _verbs_of_object(noun: Noun) -> list[Verb]:
    verbs = [verb for verb in VERBS if noun in verb.nouns() and verb.subjects != ["animal"]]
    return [verb for verb in verbs if not {"french_to", "giving_only"} & set(verb.flags)]


NOUNS = _words(Noun, "nouns")
TAGGED = {tag: tagged(tag) for noun in NOUNS for tag in noun.tags}

ADJECTIVES = _words(Adjective, "adjectives")
BEFORE, QUALITIES, COLOURS, SCOPES, DOMAINS = map(_fitting, ("before", "quality", "colour", "scope", "domain"))
PREDICATES = _fitting("before", "quality")  # adjectives that can follow `is`

_ALL_VERBS = _words(Verb, "verbs")
MODALS, GIVING, GOING = map(_flagged, ("modal", "giving", "going"))
ETRE, AVOIR = _flagged("auxiliary")
VERBS = [verb for verb in _ALL_VERBS if verb not in (*MODALS, ETRE, AVOIR)]
TRANSITIVE = _by_subject((verb for verb in VERBS if "giving_only" not in verb.flags), transitive=True)
INTRANSITIVE = _by_subject((verb for verb in VERBS if verb.is_plain("reflexive")), transitive=False)
SAYING = _by_subject(_flagged("saying"), transitive=False)
# `speak to` -> `speak`: a noun behind the verb has a `to` already.
WITHOUT_PARTICLE = {verb: replace(verb, particle="") for verb in _flagged("english_to")}
# For `the house that the man sees` and for the passive.
VERBS_OF_OBJECT = {
    noun: _verbs_of_object(noun) for noun in tagged("human", "animal", "place", "thing", "organisation", "document")
}

_DETERMINERS = _words(Determiner, "determiners")
DETERMINERS = {word.english: word.french.split("/") for word in _DETERMINERS}
DRAWN_DETERMINERS = [
    [word.english for word in _DETERMINERS for _ in range(int(word.weights[column]))] for column in range(4)
]

PHRASES: dict[str, list[Phrase]] = defaultdict(list)  # a phrase that the table repeats is drawn more often
for _phrase in _words(Phrase, "phrases"):
    PHRASES[_phrase.kind].append(_phrase)
NAMES = {row["list"]: row["names"].split() for row in _rows("names")}
