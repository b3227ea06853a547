"""Subjects, predicates and noun phrases, which hold relative clauses, which hold subjects and predicates."""

from nmtalign.sample import nominals as np
from nmtalign.sample.adjectives import PREDICATES
from nmtalign.sample.draft import FUTURE, PAST, PRESENT, Agreement, Draft
from nmtalign.sample.nominals import Nominal, Preposition
from nmtalign.sample.nouns import TAGGED
from nmtalign.sample.verbals import (
    DIRECT,
    DIRECT_WIDE,
    INDIRECT,
    Clitic,
    Manner,
    be,
    draw_manner,
    verb_group,
)
from nmtalign.sample.verbs import (
    ABOUT_NOUN,
    GIVING,
    GOING,
    INTRANSITIVE,
    MODALS,
    TRANSITIVE,
    WITHOUT_PARTICLE,
)
from nmtalign.sample.words import FIRST_PLURAL, FIRST_SINGULAR, THIRD_PLURAL, THIRD_SINGULAR, Adjective, Noun, Verb

_PRONOUNS = (
    ("he", "il", Agreement(THIRD_SINGULAR, False, False)),
    ("she", "elle", Agreement(THIRD_SINGULAR, True, False)),
    ("they", "ils", Agreement(THIRD_PLURAL, False, True)),
    ("I", "je", Agreement(FIRST_SINGULAR, False, False)),
    ("we", "nous", Agreement(FIRST_PLURAL, False, True)),
)
_MANNERS = (
    ("quickly", "rapidement"),
    ("slowly", "lentement"),
    ("quietly", "discrètement"),
    ("carefully", "prudemment"),
    ("easily", "facilement"),
)
_OF = {"p": "h", "t": "h", "o": "i", "d": "o"}  # what stands behind `of`: `the coat of the king`


def noun_phrase(
    draft: Draft,
    noun: Noun,
    preposition: Preposition = np.NO_PREPOSITION,
    denied: bool = False,
    depth: int = 0,
    determiner: str = "",
    bare: bool = True,
) -> Agreement:
    """Write a noun phrase; `depth` is how many phrases and clauses may still nest behind the noun."""
    plural = draft.chance(0.3) and determiner in ("", "the")
    nominal = np.decorate(draft, noun, plural, 0.42 if depth else 0.25)
    if not determiner and not denied and noun.kind in "haptd" and draft.chance(0.04):
        return np.owned(draft, nominal, preposition)
    chosen = determiner or np.determiner(draft, plural, denied)
    if not bare and chosen == "bare":  # `doctors are ...` may be `les médecins` or `des médecins`
        chosen = "the"
    who = np.write_nominal(draft, nominal, chosen, preposition, denied)
    if depth > 0 and chosen in ("the", "a", "these", "bare"):
        _extend(draft, noun, who, depth)
    return who


def _extend(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Put something behind a noun: `of` and another noun, or a relative clause, always about the nearest noun."""
    chance = draft.random()
    if chance < 0.14 and noun.kind in "ptod":
        _of(draft, noun, depth - 1)
    elif chance < 0.22:
        _relative_subject(draft, noun, who, depth - 1)
    elif chance < 0.29 and noun in ABOUT_NOUN:
        _relative_object(draft, noun, who, depth - 1)


def _of(draft: Draft, noun: Noun, depth: int) -> None:
    tag = _OF[noun.kind]
    if tag == "h" and draft.chance(0.2):
        np.person(draft, np.OF)
    else:
        noun_phrase(draft, draft.pick(TAGGED[tag]), np.OF, depth=depth)


def _relative_subject(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Write `who sees the dog`, `qui voit le chien`."""
    draft.put("qui", (draft.say("who" if noun.kind == "h" else "that"),))
    tense = PAST if draft.chance(0.35) else PRESENT
    if noun.kind in "hao" and draft.chance(0.75):
        predicate(draft, noun.kind, who, tense, depth)
    else:
        copula(draft, noun.kind, who, tense, depth)


def _relative_object(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Write `that the man has`, `que l'homme a`; a French past participle agrees with the noun."""
    verb = draft.pick(ABOUT_NOUN[noun])
    draft.put("que", (draft.say("whom" if noun.kind == "h" else "that"),))
    subject_of = subject(draft, "h" if "h" in verb.subjects else "o", 0)
    tense = PAST if draft.chance(0.5) else PRESENT
    verb_group(draft, verb, subject_of, draw_manner(draft, tense), agrees=who.form)


def subject(draft: Draft, kind: str, depth: int, tense: int = PRESENT) -> Agreement:
    """Write a subject: a noun phrase, a pronoun, a name, or two joined by `and`.

    `I` and `we` have no future, which keeps the number of French forms small.
    """
    chance = draft.random()
    if kind == "h" and chance < 0.2:
        english, french, who = draft.pick(_PRONOUNS[:3] if tense == FUTURE else _PRONOUNS)
        draft.put(french, (draft.say(english),))
        return who
    if kind == "h" and chance < 0.42:
        return np.titled(draft) if draft.chance(0.2) else np.person(draft)
    if kind != "o" and chance > 0.94:
        return _pair(draft, kind)
    determiner = "the" if draft.chance(0.3) else ""
    return noun_phrase(draft, draft.pick(TAGGED[kind]), depth=depth, determiner=determiner, bare=False)


def _pair(draft: Draft, kind: str) -> Agreement:
    first = noun_phrase(draft, draft.pick(TAGGED[kind]), bare=False)
    draft.put("et", (draft.say("and"),))
    second = noun_phrase(draft, draft.pick(TAGGED[kind]), bare=False)
    return Agreement(THIRD_PLURAL, first.feminine and second.feminine, True)


def predicate(
    draft: Draft, kind: str, who: Agreement, tense: int, depth: int, asked: bool = False, plain: bool = False
) -> None:
    """Write a verb and what it governs."""
    manner = draw_manner(draft, tense, asked, MODALS, plain)
    chance = draft.random()
    if chance < 0.2 and INTRANSITIVE[kind]:
        _intransitive(draft, draft.pick(INTRANSITIVE[kind]), who, manner)
    elif kind == "h" and chance < 0.28:
        verb_group(draft, draft.pick(GOING), who, manner)
        noun_phrase(draft, draft.pick(TAGGED["g"]), np.TO, depth=depth, determiner="the")
    elif kind == "h" and chance < 0.38:
        _giving(draft, who, manner, depth)
    else:
        _transitive(draft, draft.pick(TRANSITIVE[kind]), who, manner, depth)
        if kind == "h" and depth > 0 and draft.chance(0.05):
            place(draft)


def _intransitive(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> None:
    verb_group(draft, verb, who, manner)
    if "h" not in verb.subjects or draft.chance(0.4):
        return
    if draft.chance(0.75):
        place(draft)
    else:
        noun_phrase(draft, draft.pick(TAGGED["h"]), draft.pick(np.WITH), bare=False)


def place(draft: Draft) -> None:
    """Write where: `in the garden`, `near the bridge`, `in Maronville`."""
    if draft.chance(0.3):
        np.in_town(draft)
        return
    preposition = draft.pick(np.AROUND)
    noun = draft.pick(TAGGED["i" if preposition is np.IN else "p"])
    noun_phrase(draft, noun, preposition, determiner="the" if draft.chance(0.8) else "a")


def _giving(draft: Draft, who: Agreement, manner: Manner, depth: int) -> None:
    """Write `gives him a book`, `lui donne un livre`, or the same with a noun behind `to`."""
    verb = draft.pick(GIVING)
    pronoun = draft.pick(INDIRECT) if draft.chance(0.4) else None
    verb_group(draft, verb, who, manner, pronoun)
    thing = "the" if draft.chance(0.5) else "this" if manner.denial else "a"
    noun_phrase(draft, draft.pick(TAGGED["t"]), determiner=thing)
    if pronoun is None and draft.chance(0.25):
        np.person(draft, np.TO)
    elif pronoun is None:
        noun_phrase(draft, draft.pick(TAGGED["h"]), np.TO, depth=depth)


def _transitive(draft: Draft, verb: Verb, who: Agreement, manner: Manner, depth: int) -> None:
    chance = draft.random()
    named = "n" in verb.flags
    if named and chance < 0.2:
        verb_group(draft, verb, who, manner, _pronoun(draft, verb, who))
        return
    preposition = np.NO_PREPOSITION
    if "t" in verb.flags:
        preposition = np.TO if "s" in verb.flags else np.UNSAID_TO
    verb_group(draft, WITHOUT_PARTICLE.get(verb, verb), who, manner)
    if named and chance < 0.34:
        np.person(draft, preposition)
    elif chance < 0.42 and manner.adverb is None and not preposition.link:
        _object_and_adverb(draft, verb, bool(manner.denial))
    elif chance < 0.5 and not manner.denial and not preposition.link and verb.objects[0].kind not in "fb":
        _two_objects(draft, verb)
    else:
        _object(draft, verb, preposition, bool(manner.denial), depth)


def _pronoun(draft: Draft, verb: Verb, who: Agreement) -> Clitic:
    if "t" in verb.flags:
        return draft.pick(INDIRECT)
    return draft.pick(DIRECT if who.person in (FIRST_SINGULAR, FIRST_PLURAL) else DIRECT_WIDE)


def _object(draft: Draft, verb: Verb, preposition: Preposition, denied: bool, depth: int) -> None:
    noun = draft.pick(verb.objects)
    if noun.kind == "f":
        np.write_nominal(draft, Nominal(noun, False), "the" if denied or draft.chance(0.3) else "some")
    elif noun.kind == "b":
        np.write_nominal(draft, Nominal(noun, False), "generic")
    else:
        particular = verb.past_by == "imparfait"  # `likes rich men` is of all of them: `aime les hommes riches`
        noun_phrase(draft, noun, preposition, denied and not preposition.link, depth, bare=not particular)


def _two_objects(draft: Draft, verb: Verb) -> None:
    """Write `a dog or a cat`, `the king and the queen`."""
    nouns = [noun for noun in verb.objects if noun.kind not in "fb"]
    noun_phrase(draft, draft.pick(nouns), bare=False)
    english, french = ("or", "ou") if draft.chance(0.4) else ("and", "et")
    draft.put(french, (draft.say(english),))
    noun_phrase(draft, draft.pick(nouns), bare=False)


def _object_and_adverb(draft: Draft, verb: Verb, denied: bool) -> None:
    """Write `opens the door slowly`, `ouvre lentement la porte`."""
    mark = len(draft.target)
    noun = draft.pick(verb.objects)
    if noun.kind in "fb":
        np.write_nominal(draft, Nominal(noun, False), "the" if noun.kind == "f" else "generic")
    else:
        noun_phrase(draft, noun, determiner="the" if denied else "", bare=verb.past_by != "imparfait")
    english, french = draft.pick(_MANNERS)
    draft.target.insert(mark, (french, (draft.say(english),)))


def copula(draft: Draft, kind: str, who: Agreement, tense: int, depth: int) -> None:
    """Write `is not very old`."""
    denial = "not" if draft.chance(0.2) else ""
    be(draft, who, tense, denial)
    quality(draft, kind, who, depth)


def quality(draft: Draft, kind: str, who: Agreement, depth: int) -> None:
    """Write what something is: an adjective, stronger or weaker, or a comparison."""
    adjective = draft.pick(PREDICATES[kind])
    chance = draft.random()
    if chance < 0.15 and adjective.english not in ("good", "bad"):
        _comparison(draft, adjective, kind, who, depth)
        return
    degree = (("very", "très"), ("too", "trop"))[chance < 0.25] if chance < 0.45 else None
    degree_place = (draft.say(degree[0]),) if degree else ()
    spoken = draft.say(adjective.english)
    if degree:
        draft.put(degree[1], degree_place)
    draft.put(adjective.forms[who.form], (spoken,))


def _comparison(draft: Draft, adjective: Adjective, kind: str, who: Agreement, depth: int) -> None:
    """Write `older than`, `plus vieux que`, which is one word for two, or `more useful than`."""
    if adjective.comparative:
        more = spoken = draft.say(adjective.comparative)
    else:
        more, spoken = draft.say("more"), draft.say(adjective.english)
    draft.put("plus", (more,))
    draft.put(adjective.forms[who.form], (spoken,))
    if kind == "b":
        np.generic(draft, np.THAN)
    else:
        noun_phrase(draft, draft.pick(TAGGED[kind]), np.THAN, depth=depth, determiner="the")
