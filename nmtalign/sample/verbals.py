"""Verb groups: tense, negation, modals, adverbs and pronouns, each in its own place in each language."""

from dataclasses import dataclass
from typing import NamedTuple

from nmtalign.sample.draft import FUTURE, PAST, PRESENT, Agreement, Draft
from nmtalign.sample.verbs import AVOIR, BE, ETRE
from nmtalign.sample.words import THIRD_SINGULAR, Verb


class Clitic(NamedTuple):
    """An object pronoun: behind the verb in English, before it in French, where a past participle agrees with it."""

    english: str
    french: str
    form: int


DIRECT = (Clitic("him", "le", 0), Clitic("her", "la", 2), Clitic("them", "les", 1))
DIRECT_WIDE = (*DIRECT, Clitic("me", "me", 0), Clitic("us", "nous", 1))
INDIRECT = (Clitic("him", "lui", 0), Clitic("her", "lui", 0), Clitic("them", "leur", 0))

_REFLEXIVE = ("me", "se", "nous", "se")
FREQUENCY = (("often", "souvent"), ("always", "toujours"), ("sometimes", "parfois"), ("rarely", "rarement"))
_DENIAL = {"not": "pas", "never": "jamais"}


@dataclass(frozen=True, slots=True)
class Manner:
    """How a verb is said: its tense, and what else goes into the group."""

    tense: int = PRESENT
    denial: str = ""  # "", "not" or "never"
    modal: Verb | None = None
    adverb: tuple[str, str] | None = None
    asked: bool = False  # `do` has been said already, at the head of the question


class _Places(NamedTuple):
    """Where the English words of the group stand."""

    finite: tuple[int, ...]
    denial: tuple[int, ...]
    adverb: tuple[int, ...]
    verb: tuple[int, ...]


def do(who: Agreement, tense: int) -> str:
    """The auxiliary of English questions and negations."""
    if tense == PAST:
        return "did"
    return "does" if who.person == THIRD_SINGULAR else "do"


def finite(verb: Verb, who: Agreement, tense: int) -> str:
    """The English verb in the present or the past."""
    if tense == PAST:
        return verb.past
    return verb.third if who.person == THIRD_SINGULAR else verb.base


def verb_group(
    draft: Draft, verb: Verb, who: Agreement, manner: Manner, clitic: Clitic | None = None, agrees: int = 0
) -> None:
    """Write a verb with all that sticks to it; `agrees` is the form of a French object that has gone before (`que`)."""
    places = _say_modal(draft, verb, who, manner) if manner.modal else _say_group(draft, verb, who, manner)
    pronoun = (draft.say(clitic.english),) if clitic else ()
    form = _participle_form(verb, who, clitic, agrees)
    if manner.denial:
        draft.put("ne", places.denial)
    if manner.modal is None:
        _put_clitics(draft, verb, who, clitic, places.verb, pronoun)
    compound = _put_finite(draft, verb, who, manner, places)
    if manner.denial:
        draft.put(_DENIAL[manner.denial], places.denial)
    if manner.adverb:
        draft.put(manner.adverb[1], places.adverb)
    if manner.modal:
        _put_clitics(draft, verb, who, clitic, places.verb, pronoun)
        draft.put(verb.infinitive, places.verb)
    elif compound:
        draft.put(verb.participle[form], places.verb)


def _say_denial_and_adverb(draft: Draft, manner: Manner) -> tuple[tuple[int, ...], tuple[int, ...]]:
    denial = (draft.say(manner.denial),) if manner.denial else ()
    return denial, ((draft.say(manner.adverb[0]),) if manner.adverb else ())


def _say_group(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> _Places:
    """Say `[will|does] [not] [often] sees [at]`; `does` has no counterpart, `did` has one in `a vu`."""
    future = (draft.say("will"),) if manner.tense == FUTURE else ()
    supported = manner.denial == "not" and manner.tense != FUTURE
    auxiliary = (draft.say(do(who, manner.tense)),) if supported else ()
    denial, adverb = _say_denial_and_adverb(draft, manner)
    bare = supported or manner.asked or manner.tense == FUTURE
    word = verb.base if bare else finite(verb, who, manner.tense)
    main = draft.say_all((word, verb.particle) if verb.particle else (word,))
    if manner.tense == PAST and verb.past_by != "imparfait" and supported:
        return _Places(auxiliary, denial, adverb, main)
    return _Places(future + main, denial, adverb, main)


def _say_modal(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> _Places:
    """Say `can see`, `cannot see`, `must not see`, `does not want to see`: only `to` and `does` have no counterpart."""
    modal = manner.modal or verb
    if modal.base == "want":
        if manner.denial == "not":
            draft.say(do(who, PRESENT))
        denial, adverb = _say_denial_and_adverb(draft, manner)
        spoken = (draft.say(modal.base if manner.denial == "not" else finite(modal, who, PRESENT)),)
        draft.say("to")
    elif modal.base == "can" and manner.denial == "not":
        spoken = denial = (draft.say("cannot"),)
        adverb = (draft.say(manner.adverb[0]),) if manner.adverb else ()
    else:
        spoken = (draft.say(modal.base),)
        denial, adverb = _say_denial_and_adverb(draft, manner)
    main = draft.say_all((verb.base, verb.particle) if verb.particle else (verb.base,))
    return _Places(spoken, denial, adverb, main)


def _participle_form(verb: Verb, who: Agreement, clitic: Clitic | None, agrees: int) -> int:
    if verb.past_by == "être":
        return who.form
    return clitic.form if clitic else agrees


def _put_clitics(
    draft: Draft, verb: Verb, who: Agreement, clitic: Clitic | None, main: tuple[int, ...], pronoun: tuple[int, ...]
) -> None:
    if verb.reflexive:
        draft.put(_REFLEXIVE[who.person], main)
    if clitic:
        draft.put(clitic.french, pronoun)


def _put_finite(draft: Draft, verb: Verb, who: Agreement, manner: Manner, places: _Places) -> bool:
    """Put the French verb that agrees with the subject; say whether a participle is still to come."""
    if manner.modal:
        draft.put(manner.modal.present[who.person], places.finite)
    elif manner.tense == PRESENT:
        draft.put(verb.present[who.person], places.finite)
    elif manner.tense == FUTURE:
        draft.put(verb.future[who.person], places.finite)
    elif verb.past_by == "imparfait":
        draft.put(verb.imperfect[who.person], places.finite)
    else:
        draft.put((AVOIR if verb.past_by == "avoir" else ETRE[PRESENT])[who.person], places.finite)
        return True
    return False


def be(draft: Draft, who: Agreement, tense: int, denial: str = "", said: tuple[int, ...] = ()) -> None:
    """Write a form of `be`; `said` is where a question has put it already."""
    if said:
        spoken = said
    elif tense == FUTURE:
        spoken = (draft.say("will"),)
    else:
        spoken = (draft.say(BE[tense][who.person]),)
    denied = (draft.say(denial),) if denial else ()
    if tense == FUTURE:
        spoken = (*spoken, draft.say("be"))
    if denial:
        draft.put("ne", denied)
    draft.put(ETRE[tense][who.person], spoken)
    if denial:
        draft.put(_DENIAL[denial], denied)


def draw_manner(
    draft: Draft, tense: int, asked: bool = False, modals: tuple[Verb, ...] = (), plain: bool = False
) -> Manner:
    """Draw negation, a modal and an adverb of frequency that go together; `plain` wants neither of the first two.

    (What is denied or wanted in `he does not see the dog and buys a cat` would be in doubt.)
    """
    denial = ""
    plain = plain or asked
    if not plain and draft.chance(0.22):
        denial = "never" if draft.chance(0.3) else "not"
    modal = draft.pick(modals) if modals and tense == PRESENT and not plain and draft.chance(0.12) else None
    adverb = None
    if tense != FUTURE and modal is None and draft.chance(0.12):
        adverb = draft.pick(FREQUENCY[:2] if denial or asked else FREQUENCY)
    return Manner(tense, denial, modal, None if denial == "never" else adverb, asked)
