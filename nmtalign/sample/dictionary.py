"""The words of the sample grammar with their forms in both languages. A row of a table in lexicon/ is a word.

A tag says what a noun is (its first tag: human, animal, place, thing, organisation, document, abstract, food) or what
can be done with it (inside, destination, built, eaten, drunk, opened, written, adopted).
"""

import csv
from collections import defaultdict
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

PRESENT, PAST, FUTURE = range(3)
FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)  # positions in the forms of a tense
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
    def kind(self) -> str:
        return self.tags[0]

    def agreement(self, plural: bool) -> Agreement:
        return Agreement(THIRD_PLURAL if plural else THIRD_SINGULAR, self.gender == "f", plural)


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective that fits nouns of some kinds; `forms` are those of `Agreement.form` and the one before a vowel."""

    english: str
    forms: list[str]
    place: str  # "before" the French noun; behind it: "quality", "colour", "scope" or "domain", in English order
    kinds: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb with the tags of the nouns that can be its object (none: intransitive), and the kinds of its subjects.

    Flags: `named`: a person's name can be the object; `saying`: it takes a clause; `auxiliary`.
    """

    base: str
    third: str
    past: str
    particle: str  # English preposition or adverb behind the verb, or ""
    present: list[str]
    imperfect: list[str]
    future: list[str]
    participle: list[str]
    past_tense: str  # auxiliary of the past tense, "avoir" or "être"; or "imparfait"
    subjects: list[str]
    objects: list[str]
    flags: list[str]

    def in_tense(self, tense: int) -> list[str]:
        """The French forms of a tense by person; PAST is the imparfait."""
        return (self.present, self.imperfect, self.future)[tense]


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


@cache
def fitting(kind: str, *places: str) -> list[Adjective]:
    """The adjectives of these places that fit a kind of noun."""
    return [word for word in ADJECTIVES if word.place in places and kind in word.kinds]


@cache
def verbs_of_subject(kind: str, *, transitive: bool, saying: bool = False) -> list[Verb]:
    """The verbs with or without an object whose subject can be a noun of this kind; with the flag `saying` or not."""
    verbs = [verb for verb in _VERBS if kind in verb.subjects and bool(verb.objects) == transitive]
    return [verb for verb in verbs if ("saying" in verb.flags) == saying]


@cache
def verbs_of_object(noun: Noun) -> list[Verb]:
    """The verbs for `the house that the man sees`."""
    verbs = [verb for verb in _VERBS if noun in tagged(*verb.objects) and verb.subjects != ["animal"]]
    return verbs if noun.kind not in ("abstract", "food") else []


NOUNS = _words(Noun, "nouns")
ADJECTIVES = _words(Adjective, "adjectives")
VERBS = _words(Verb, "verbs")
_VERBS = [verb for verb in VERBS if "auxiliary" not in verb.flags]
ETRE, AVOIR = (verb for verb in VERBS if "auxiliary" in verb.flags)

# The French forms are masculine, feminine, both before a vowel, and plural; a single form fits all nouns, and an empty
# one follows separate rules. The weights are the relative frequencies in the singular, in the singular after `pas`, in
# the plural, and in the plural after `pas`.
DETERMINERS = {row["english"]: row["french"].split("/") for row in _rows("determiners")}
DRAWN_DETERMINERS = [
    [row["english"] for row in _rows("determiners") for _ in range(int(row["weights"].split()[column]))]
    for column in range(4)
]
NAMES = {row["list"]: row["names"].split() for row in _rows("names")}
PHRASES: dict[str, list[tuple[str, str]]] = defaultdict(list)  # a phrase that the table repeats is drawn more often
for _row in _rows("phrases"):
    PHRASES[_row["kind"]].append((_row["english"], _row["french"]))
