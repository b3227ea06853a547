"""The words of the sample grammar, read from the tables in lexicon/: every word in both languages with its forms.

Tags are words: what a noun is (its first tag: human, animal, place, thing, organisation, document, abstract, food) and
what can be done with it (inside, destination, built, eaten, drunk, opened, written, material, purpose, adopted).
"""

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files

MASCULINE_SINGULAR, MASCULINE_PLURAL, FEMININE_SINGULAR, FEMININE_PLURAL, BEFORE_VOWEL = range(5)
"""Positions in `Adjective.forms` and `Verb.participle`: 2 * feminine + plural, then the masculine before a vowel."""

FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)
"""Positions in `Verb.present`, `Verb.imperfect` and `Verb.future`."""

KINDS = ("human", "animal", "place", "thing", "organisation", "document", "abstract", "food")

_VOWELS = frozenset("aeiouhyâàéèêëîïôûœ")
_ASPIRATED = frozenset(("héros", "hibou", "hiboux", "hache", "haches", "harpe", "harpes", "haine", "huit", "onze"))


def starts_with_vowel(french: str) -> bool:
    """Whether articles and pronouns before this French word lose their vowel (`l'homme`, but `le héros`)."""
    return french[0] in _VOWELS and french not in _ASPIRATED


@dataclass(frozen=True, slots=True, eq=False)  # words are compared and hashed by identity
class Noun:
    """A noun: singular and plural in both languages."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    tags: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What the noun denotes: one of KINDS."""
        return self.tags[0]


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective that fits nouns of some kinds."""

    english: str
    comparative: str  # "" if English says `more`
    forms: tuple[str, ...]
    place: str  # "before" the French noun; behind it: "quality", "colour", "scope" or "domain", in English order
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb with the nouns that can be its object (none: intransitive) and the kinds of noun that can be its subject.

    Flags: `named`: a person's name can be the object; `french_to`, `english_to`: `à` or `to` precedes the object;
    `giving`: it takes a thing and a receiver, `giving_only` always; `going`: it takes a destination; `saying`: it
    takes a clause; `reflexive`; `modal`.
    """

    base: str
    third: str
    past: str
    past_participle: str
    particle: str  # English preposition or adverb behind the verb, or ""
    infinitive: str
    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    participle: tuple[str, ...]
    past_tense: str  # auxiliary of the past tense, "avoir" or "être"; or "imparfait"
    subjects: tuple[str, ...]
    objects: tuple[Noun, ...]
    flags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A fixed phrase; `links` are pairs of positions (English, French)."""

    english: tuple[str, ...]
    french: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def _rows(table: str) -> list[dict[str, str]]:
    text = (files("nmtalign.sample") / "lexicon" / f"{table}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _noun(row: dict[str, str]) -> Noun:
    english, french = (row["english"], row["english_plural"]), (row["french"], row["french_plural"])
    return Noun(english, french, row["gender"] == "f", tuple(row["tags"].split()))


def _adjective(row: dict[str, str]) -> Adjective:
    names = ("masculine", "masculine_plural", "feminine", "feminine_plural", "before_vowel")
    forms = tuple(row[name] for name in names)
    return Adjective(row["english"], row["comparative"], forms, row["place"], tuple(row["kinds"].split()))


def _verb(row: dict[str, str]) -> Verb:
    imperfect, future, participle = row["nous"].removesuffix("ons"), row["future"].removesuffix("a"), row["participle"]
    return Verb(
        base=row["english"],
        third=row["third"],
        past=row["past"],
        past_participle=row["past_participle"],
        particle=row["particle"],
        infinitive=row["french"],
        present=(row["je"], row["il"], row["nous"], row["ils"]),
        imperfect=tuple(imperfect + ending for ending in ("ais", "ait", "ions", "aient")),
        future=tuple(future + ending for ending in ("ai", "a", "ons", "ont")),
        participle=(participle, participle + "s" * (participle[-1] != "s"), participle + "e", participle + "es"),
        past_tense=row["past_tense"],
        subjects=tuple(row["subjects"].split()),
        objects=tagged(*row["objects"].split()),
        flags=frozenset(row["flags"].split()),
    )


def _phrase(row: dict[str, str]) -> Phrase:
    links = (link.split("-") for link in row["links"].split())
    return Phrase(
        tuple(row["english"].split()), tuple(row["french"].split()), tuple((int(i), int(j)) for i, j in links)
    )


def tagged(*tags: str) -> tuple[Noun, ...]:
    """The nouns that carry at least one of the tags, in the order of the table."""
    return tuple(noun for noun in NOUNS if not set(tags).isdisjoint(noun.tags))


def _fitting(*places: str) -> dict[str, tuple[Adjective, ...]]:
    """The adjectives of these places by the kind of noun that they fit."""
    return {kind: tuple(word for word in ADJECTIVES if word.place in places and kind in word.kinds) for kind in KINDS}


def _verbs(choices: Iterable[Verb], subject: str, transitive: bool) -> tuple[Verb, ...]:
    return tuple(verb for verb in choices if subject in verb.subjects and bool(verb.objects) == transitive)


def _flagged(flag: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in _ALL_VERBS if flag in verb.flags)


NOUNS = tuple(map(_noun, _rows("nouns")))
TAGGED = {tag: tagged(tag) for tag in {tag for noun in NOUNS for tag in noun.tags}}

ADJECTIVES = tuple(map(_adjective, _rows("adjectives")))
BEFORE, QUALITIES, COLOURS, SCOPES, DOMAINS = map(_fitting, ("before", "quality", "colour", "scope", "domain"))
PREDICATES = _fitting("before", "quality")  # what can be said of a noun with `is`

_ALL_VERBS = tuple(map(_verb, _rows("verbs")))
MODALS = _flagged("modal")
VERBS = tuple(verb for verb in _ALL_VERBS if verb not in MODALS)
_ACTORS = ("human", "animal", "organisation")
TRANSITIVE = {
    kind: _verbs((verb for verb in VERBS if "giving_only" not in verb.flags), kind, transitive=True) for kind in _ACTORS
}
INTRANSITIVE = {
    kind: _verbs((verb for verb in VERBS if verb.flags <= {"reflexive"}), kind, transitive=False) for kind in _ACTORS
}
GIVING, GOING = _flagged("giving"), _flagged("going")
SAYING = {kind: _verbs(_flagged("saying"), kind, transitive=False) for kind in ("human", "organisation")}
WITHOUT_PARTICLE = {verb: replace(verb, particle="") for verb in _flagged("english_to")}
"""`speak to` -> `speak`: a noun behind the verb brings its own `to`."""
VERBS_OF_OBJECT = {
    noun: tuple(
        verb
        for verb in VERBS
        if noun in verb.objects and verb.flags.isdisjoint(("french_to", "giving_only")) and verb.subjects != ("animal",)
    )
    for noun in tagged("human", "animal", "place", "thing", "organisation", "document")
}
"""Noun -> the verbs whose object it can be, for `the house that the man sees` and for the passive."""

PHRASES: dict[str, list[Phrase]] = defaultdict(list)  # a phrase that the table repeats is drawn more often
for _row in _rows("phrases"):
    PHRASES[_row["class"]].append(_phrase(_row))
NAMES = {row["list"]: tuple(row["names"].split()) for row in _rows("names")}
