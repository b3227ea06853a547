"""Verb groups: tense, negation, modals, adverbs and pronouns, each in its own place in each language."""

from dataclasses import dataclass
from typing import NamedTuple

from nmtalign.sample import dictionary
from nmtalign.sample.dictionary import AVOIR, ETRE, FUTURE, PAST, PRESENT, THIRD_SINGULAR, Agreement, Verb
from nmtalign.sample.draft import Draft, Places


class Clitic(NamedTuple):
    """An object pronoun: behind the verb in English, before it in French, where a past participle agrees with it."""

    english: str
    french: str
    form: int


DIRECT = (Clitic("him", "le", 0), Clitic("her", "la", 2), Clitic("them", "les", 1))
FIRST_PERSON = (Clitic("me", "me", 0), Clitic("us", "nous", 1))
INDIRECT = (Clitic("him", "lui", 0), Clitic("her", "lui", 0), Clitic("them", "leur", 0))

# By tense, then by person.
_BE = (("am", "is", "are", "are"), ("was", "was", "were", "were"), ("will", "will", "will", "will"))
_REFLEXIVE = ("me", "se", "nous", "se")
_DENIAL = {"not": "pas", "never": "jamais"}


@dataclass(frozen=True, slots=True)
class Manner:
    """The tense of a verb, and its additions."""

    tense: int = PRESENT
    denial: str = ""  # "", "not" or "never"
    modal: Verb | None = None
    adverb: tuple[str, str] = ("", "")  # English, French
    asked: bool = False  # the question has already started with `do`


class _Spoken(NamedTuple):
    """Places of the English words of a group."""

    finite: Places
    denial: Places
    adverb: Places
    verb: Places


def draw_manner(draft: Draft, tense: int, asked: bool = False, modals: bool = False, plain: bool = False) -> Manner:
    """Draw negation, a modal and an adverb of frequency that fit each other; `plain` excludes the first two.

    (In `he does not see the dog and buys a cat` the scope of the negation would be unclear.)
    """
    plain = plain or asked
    denial = ""
    if not plain and draft.chance(0.22):
        denial = "never" if draft.chance(0.3) else "not"
    modal = draft.pick(dictionary.MODALS) if modals and tense == PRESENT and not plain and draft.chance(0.12) else None
    adverb = ("", "")
    if tense != FUTURE and modal is None and draft.chance(0.12):
        drawn = draft.pick(dictionary.PHRASES["frequency"][:2] if denial or asked else dictionary.PHRASES["frequency"])
        adverb = adverb if denial == "never" else (drawn.english, drawn.french)
    return Manner(tense, denial, modal, adverb, asked)


def do(who: Agreement, tense: int) -> str:
    """The auxiliary of English questions and negations."""
    if tense == PAST:
        return "did"
    return "does" if who.person == THIRD_SINGULAR else "do"


def be(who: Agreement, tense: int) -> str:
    """The form of `be`, or `will`."""
    return _BE[tense][who.person]


def _finite(verb: Verb, who: Agreement, tense: int) -> str:
    if tense == PAST:
        return verb.past
    return verb.third if who.person == THIRD_SINGULAR else verb.base


def write_verb(
    draft: Draft, verb: Verb, who: Agreement, manner: Manner, clitic: Clitic | None = None, agrees: int = 0
) -> None:
    """Write a verb group; `agrees` is the form of a French object that precedes the verb (`que`)."""
    spoken = (_say_modal if manner.modal else _say_group)(draft, verb, who, manner)
    pronouns = [(_REFLEXIVE[who.person], spoken.verb)] if "reflexive" in verb.flags else []
    if clitic:
        pronouns.append((clitic.french, draft.say(clitic.english)))
    finite, compound = _french_finite(verb, who, manner)
    before, behind = ([], pronouns) if manner.modal else (pronouns, [])
    _deny(draft, manner.denial, spoken.denial, *before, (finite, spoken.finite))
    draft.put(manner.adverb[1], spoken.adverb)
    for word, origin in behind:
        draft.put(word, origin)
    if manner.modal:
        draft.put(verb.infinitive, spoken.verb)
    elif compound:
        form = who.form if verb.past_tense == "être" else clitic.form if clitic else agrees
        draft.put(verb.participle[form], spoken.verb)


def _deny(draft: Draft, denial: str, of_denial: Places, *group: tuple[str, Places]) -> None:
    """Put French words with their origins, and if there is a denial `ne ... pas` or `ne ... jamais` around them."""
    draft.put("ne" if denial else "", of_denial)
    for word, origin in group:
        draft.put(word, origin)
    draft.put(_DENIAL.get(denial, ""), of_denial)


def _say_group(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> _Spoken:
    """Say `[will|does] [not] [often] sees [at]`; `does` has no counterpart, `did` has one in `a vu`."""
    future = draft.say("will" if manner.tense == FUTURE else "")
    supported = manner.denial == "not" and manner.tense != FUTURE
    auxiliary = draft.say(do(who, manner.tense) if supported else "")
    denial, adverb = draft.say(manner.denial), draft.say(manner.adverb[0])
    bare = supported or manner.asked or manner.tense == FUTURE
    main = draft.say(f"{verb.base if bare else _finite(verb, who, manner.tense)} {verb.particle}")
    if manner.tense == PAST and verb.past_tense != "imparfait" and supported:
        return _Spoken(auxiliary, denial, adverb, main)
    return _Spoken(future + main, denial, adverb, main)


def _say_modal(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> _Spoken:
    """Say `can see`, `cannot see`, `must not see`, `does not want to see`: only `to` and `does` have no counterpart."""
    modal = manner.modal or verb
    denied = manner.denial == "not"
    if modal.base == "want":
        draft.say(do(who, PRESENT) if denied else "")
        denial = draft.say(manner.denial)
        spoken = draft.say(modal.base if denied else _finite(modal, who, PRESENT))
        draft.say("to")
    elif modal.base == "can" and denied:
        spoken = denial = draft.say("cannot")
    else:
        spoken, denial = draft.say(modal.base), draft.say(manner.denial)
    return _Spoken(spoken, denial, (), draft.say(f"{verb.base} {verb.particle}"))  # a modal has no adverb


def _french_finite(verb: Verb, who: Agreement, manner: Manner) -> tuple[str, bool]:
    """The French verb that agrees with the subject, and whether a participle follows."""
    if manner.modal:
        return manner.modal.present[who.person], False
    if manner.tense == PAST and verb.past_tense != "imparfait":
        return (AVOIR if verb.past_tense == "avoir" else ETRE).present[who.person], True
    return verb.in_tense(manner.tense)[who.person], False


def _say_be(draft: Draft, who: Agreement, tense: int, denial: str) -> tuple[Places, Places]:
    """Say `is [not]`, `was [not]` or `will [not] be`; return the places of the verb and of the denial."""
    spoken, denied = draft.say(be(who, tense)), draft.say(denial)
    return spoken + draft.say("be" if tense == FUTURE else ""), denied


def write_be(draft: Draft, who: Agreement, tense: int, denial: str = "", said: Places = ()) -> None:
    """Write a form of `be`; `said` is its place in a question, which starts with it."""
    spoken, denied = (said, ()) if said else _say_be(draft, who, tense, denial)
    _deny(draft, denial, denied, (ETRE.in_tense(tense)[who.person], spoken))


def write_passive(draft: Draft, verb: Verb, who: Agreement, tense: int, denial: str) -> None:
    """Write `was not adopted`, `n'a pas été adoptée`."""
    if tense == PAST:
        spoken, denied = _say_be(draft, who, tense, denial)
        _deny(draft, denial, denied, (AVOIR.present[who.person], spoken))
        draft.put("été", spoken)
    else:
        write_be(draft, who, tense, denial)
    draft.write(verb.past_participle, verb.participle[who.form])


def write_there_is(draft: Draft, who: Agreement, tense: int, denial: str) -> None:
    """Write `there is not`, `il n'y a pas`."""
    there = draft.say("there")
    spoken, denied = _say_be(draft, who, tense, denial)
    draft.put("il", there)
    _deny(draft, denial, denied, ("y", there), (AVOIR.in_tense(tense)[THIRD_SINGULAR], spoken))
