"""Subjects, predicates and noun phrases, in one file because noun phrases contain relative clauses."""

from nmtalign.sample import dictionary, verb_groups
from nmtalign.sample import noun_phrases as np
from nmtalign.sample.dictionary import PAST, PRESENT, TAGGED, VERBS_OF_OBJECT, Adjective, Agreement, Noun, Verb
from nmtalign.sample.draft import Draft
from nmtalign.sample.noun_phrases import NO_PREPOSITION, Nominal, Preposition
from nmtalign.sample.verb_groups import Clitic, Manner, draw_manner, write_verb

_PRONOUNS = (
    ("he", "il", Agreement(dictionary.THIRD_SINGULAR, False, False)),
    ("she", "elle", Agreement(dictionary.THIRD_SINGULAR, True, False)),
    ("they", "ils", Agreement(dictionary.THIRD_PLURAL, False, True)),
    ("I", "je", Agreement(dictionary.FIRST_SINGULAR, False, False)),
    ("we", "nous", Agreement(dictionary.FIRST_PLURAL, False, True)),
)
# Kind of noun -> tag of the nouns that follow it behind `of`: `the coat of the king`.
_OF = {"place": "human", "thing": "human", "organisation": "inside", "document": "organisation"}
_MASS = ("food", "abstract")  # nouns without a plural


def write_noun_phrase(
    draft: Draft,
    noun: Noun | str,
    preposition: Preposition = NO_PREPOSITION,
    depth: int = 0,
    determiner: str = "",
    denied: bool = False,
    bare: bool = False,
) -> Agreement:
    """Write a noun phrase about a noun, or about any noun with a tag.

    `depth` is the number of phrases and clauses that may nest behind the noun; `bare`: it may lack a determiner.
    """
    if isinstance(noun, str):
        noun = draft.pick(TAGGED[noun])
    plural = draft.chance(0.3) and determiner in ("", "the")
    nominal = np.decorate(draft, noun, plural, 0.42 if depth else 0.25)
    if not determiner and not denied and noun.kind != "organisation" and draft.chance(0.04):
        return np.write_owned(draft, nominal, preposition)
    chosen = determiner or np.draw_determiner(draft, plural, denied)
    if not bare and chosen == "bare":  # `doctors are ...` may be `les médecins` or `des médecins`
        chosen = "the"
    who = np.write_nominal(draft, nominal, chosen, preposition, denied)
    if depth > 0 and chosen in ("the", "a", "these", "bare"):
        _extend(draft, noun, who, depth)
    return who


def _extend(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Put something behind a noun: `of` and another noun, or a relative clause, always about the nearest noun."""
    chance = draft.random()
    if chance < 0.14 and noun.kind in _OF:
        _of(draft, noun, depth - 1)
    elif chance < 0.22:
        _relative_subject(draft, noun, who, depth - 1)
    elif chance < 0.29 and noun in VERBS_OF_OBJECT:
        _relative_object(draft, noun, who, depth - 1)


def _of(draft: Draft, noun: Noun, depth: int) -> None:
    tag = _OF[noun.kind]
    if tag == "human" and draft.chance(0.2):
        np.write_person(draft, np.OF)
    else:
        write_noun_phrase(draft, tag, np.OF, depth, bare=True)


def _relative_subject(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Write `who sees the dog`, `qui voit le chien`."""
    draft.write("who" if noun.kind == "human" else "that", "qui")
    tense = PAST if draft.chance(0.35) else PRESENT
    if noun.kind in ("human", "animal", "organisation") and draft.chance(0.75):
        write_predicate(draft, noun.kind, who, tense, depth)
    else:
        write_copula(draft, noun.kind, who, tense, depth)


def _relative_object(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Write `that the man has`, `que l'homme a`; a French past participle agrees with the noun."""
    verb = draft.pick(VERBS_OF_OBJECT[noun])
    draft.write("whom" if noun.kind == "human" else "that", "que")
    subject = write_subject(draft, "human" if "human" in verb.subjects else "organisation", 0)
    tense = PAST if draft.chance(0.5) else PRESENT
    write_verb(draft, verb, subject, draw_manner(draft, tense), agrees=who.form)


def write_subject(draft: Draft, kind: str, depth: int, tense: int = PRESENT) -> Agreement:
    """Write a subject: a noun phrase, a pronoun, a name, or two noun phrases joined by `and`.

    `I` and `we` have no future, which keeps the number of French forms small.
    """
    chance = draft.random()
    if kind == "human" and chance < 0.2:
        english, french, who = draft.pick(_PRONOUNS[:3] if tense == dictionary.FUTURE else _PRONOUNS)
        draft.write(english, french)
        return who
    if kind == "human" and chance < 0.42:
        return np.write_title(draft) if draft.chance(0.2) else np.write_person(draft)
    if kind != "organisation" and chance > 0.94:
        first = write_noun_phrase(draft, kind)
        draft.write("and", "et")
        second = write_noun_phrase(draft, kind)
        return Agreement(dictionary.THIRD_PLURAL, first.feminine and second.feminine, True)
    determiner = "the" if draft.chance(0.3) else ""
    return write_noun_phrase(draft, kind, depth=depth, determiner=determiner)


def write_predicate(
    draft: Draft, kind: str, who: Agreement, tense: int, depth: int, asked: bool = False, plain: bool = False
) -> None:
    """Write a verb and its objects."""
    manner = draw_manner(draft, tense, asked, modals=True, plain=plain)
    chance = draft.random()
    if chance < 0.2:
        _intransitive(draft, draft.pick(dictionary.INTRANSITIVE[kind]), who, manner)
    elif kind == "human" and chance < 0.28:
        write_verb(draft, draft.pick(dictionary.GOING), who, manner)
        write_noun_phrase(draft, "destination", np.TO, depth, "the")
    elif kind == "human" and chance < 0.38:
        _giving(draft, who, manner, depth)
    else:
        _transitive(draft, draft.pick(dictionary.TRANSITIVE[kind]), who, manner, depth)
        if kind == "human" and depth > 0 and draft.chance(0.05):
            write_place(draft)


def _intransitive(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> None:
    write_verb(draft, verb, who, manner)
    if "human" not in verb.subjects or draft.chance(0.4):
        return
    if draft.chance(0.75):
        write_place(draft)
    else:
        noun = draft.pick(TAGGED["human"])
        write_noun_phrase(draft, noun, draft.pick(np.WITH))


def write_place(draft: Draft) -> None:
    """Write a place: `in the garden`, `near the bridge`, `in Maronville`."""
    if draft.chance(0.3):
        np.write_town(draft)
        return
    preposition = draft.pick(np.AROUND)
    noun = draft.pick(TAGGED["inside" if preposition is np.IN else "place"])
    write_noun_phrase(draft, noun, preposition, determiner="the" if draft.chance(0.8) else "a")


def _giving(draft: Draft, who: Agreement, manner: Manner, depth: int) -> None:
    """Write `gives him a book`, `lui donne un livre`, or the same with a noun behind `to`."""
    verb = draft.pick(dictionary.GIVING)
    pronoun = draft.pick(verb_groups.INDIRECT) if draft.chance(0.4) else None
    write_verb(draft, verb, who, manner, pronoun)
    determiner = "the" if draft.chance(0.5) else "this" if manner.denial else "a"
    write_noun_phrase(draft, "thing", determiner=determiner)
    if pronoun is None and draft.chance(0.25):
        np.write_person(draft, np.TO)
    elif pronoun is None:
        write_noun_phrase(draft, "human", np.TO, depth, bare=True)


def _transitive(draft: Draft, verb: Verb, who: Agreement, manner: Manner, depth: int) -> None:
    chance = draft.random()
    named = "named" in verb.flags
    if named and chance < 0.2:
        write_verb(draft, verb, who, manner, _pronoun(draft, verb, who))
        return
    preposition = NO_PREPOSITION
    if "french_to" in verb.flags:
        preposition = np.TO if "english_to" in verb.flags else np.UNSAID_TO
    write_verb(draft, dictionary.WITHOUT_PARTICLE.get(verb, verb), who, manner)
    if named and chance < 0.34:
        np.write_person(draft, preposition)
    elif chance < 0.42 and not manner.adverb[0] and not preposition.link:
        _object_and_adverb(draft, verb, bool(manner.denial))
    elif chance < 0.5 and not manner.denial and not preposition.link and verb.nouns()[0].kind not in _MASS:
        _two_objects(draft, verb)
    else:
        _object(draft, verb, preposition, bool(manner.denial), depth)


def _pronoun(draft: Draft, verb: Verb, who: Agreement) -> Clitic:
    if "french_to" in verb.flags:
        return draft.pick(verb_groups.INDIRECT)
    first = who.person in (dictionary.FIRST_SINGULAR, dictionary.FIRST_PLURAL)
    return draft.pick(verb_groups.DIRECT if first else verb_groups.DIRECT + verb_groups.FIRST_PERSON)


def _object(draft: Draft, verb: Verb, preposition: Preposition, denied: bool, depth: int) -> None:
    noun = draft.pick(verb.nouns())
    if noun.kind == "food":
        np.write_nominal(draft, Nominal(noun), "the" if denied or draft.chance(0.3) else "some")
    elif noun.kind == "abstract":
        np.write_nominal(draft, Nominal(noun), "generic")
    else:
        general = verb.past_tense == "imparfait"  # `likes rich men` means all of them: `aime les hommes riches`
        write_noun_phrase(draft, noun, preposition, depth, "", denied and not preposition.link, bare=not general)


def _two_objects(draft: Draft, verb: Verb) -> None:
    """Write `a dog or a cat`, `the king and the queen`."""
    nouns = [noun for noun in verb.nouns() if noun.kind not in _MASS]
    write_noun_phrase(draft, draft.pick(nouns))
    draft.write(*(("or", "ou") if draft.chance(0.4) else ("and", "et")))
    write_noun_phrase(draft, draft.pick(nouns))


def _object_and_adverb(draft: Draft, verb: Verb, denied: bool) -> None:
    """Write `opens the door slowly`, `ouvre lentement la porte`."""
    behind_verb = len(draft.target)
    noun = draft.pick(verb.nouns())
    if noun.kind in _MASS:
        np.write_nominal(draft, Nominal(noun), "the" if noun.kind == "food" else "generic")
    else:
        write_noun_phrase(draft, noun, determiner="the" if denied else "", bare=verb.past_tense != "imparfait")
    adverb = draft.pick(dictionary.PHRASES["manner"])
    draft.target.insert(behind_verb, (adverb.french, draft.say(adverb.english)))


def write_copula(draft: Draft, kind: str, who: Agreement, tense: int, depth: int) -> None:
    """Write `is not very old`."""
    denial = "not" if draft.chance(0.2) else ""
    verb_groups.write_be(draft, who, tense, denial)
    write_quality(draft, kind, who, depth)


def write_quality(draft: Draft, kind: str, who: Agreement, depth: int) -> None:
    """Write an adjective by itself, after `very` or `too`, or in a comparison."""
    adjective = draft.pick(dictionary.PREDICATES[kind])
    chance = draft.random()
    if chance < 0.15 and adjective.english not in ("good", "bad"):
        _comparison(draft, adjective, kind, who, depth)
        return
    if chance < 0.45:
        draft.write(*(("too", "trop") if chance < 0.25 else ("very", "très")))
    draft.write(adjective.english, adjective.forms[who.form])


def _comparison(draft: Draft, adjective: Adjective, kind: str, who: Agreement, depth: int) -> None:
    """Write `older than`, `plus vieux que` (two French words for one), or `more useful than`."""
    if adjective.comparative:
        draft.write(adjective.comparative, f"plus {adjective.forms[who.form]}")
    else:
        draft.write("more", "plus")
        draft.write(adjective.english, adjective.forms[who.form])
    if kind == "abstract":
        np.write_idea(draft, np.THAN)
    else:
        write_noun_phrase(draft, kind, np.THAN, depth, "the")
