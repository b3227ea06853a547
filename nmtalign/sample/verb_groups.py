"""Verb groups: tense, negation, modals, adverbs and pronouns, each in its own place in each language."""

from dataclasses import dataclass
from typing import NamedTuple

from nmtalign.sample.dictionary import MODALS, PHRASES, THIRD_SINGULAR, Phrase, Verb
from nmtalign.sample.draft import FUTURE, PAST, PRESENT, Agreement, Draft, Places


class Clitic(NamedTuple):
    """An object pronoun: behind the verb in English, before it in French, where a past participle agrees with it."""

    english: str
    french: str
    form: int


DIRECT = (Clitic("him", "le", 0), Clitic("her", "la", 2), Clitic("them", "les", 1))
DIRECT_WITH_FIRST_PERSON = (*DIRECT, Clitic("me", "me", 0), Clitic("us", "nous", 1))
INDIRECT = (Clitic("him", "lui", 0), Clitic("her", "lui", 0), Clitic("them", "leur", 0))

# By tense, then by person.
BE = (("am", "is", "are", "are"), ("was", "was", "were", "were"))
_ETRE = (
    ("suis", "est", "sommes", "sont"),
    ("étais", "était", "étions", "étaient"),
    ("serai", "sera", "serons", "seront"),
)
AVOIR = ("ai", "a", "avons", "ont")
_REFLEXIVE = ("me", "se", "nous", "se")
_DENIAL = {"not": "pas", "never": "jamais"}


@dataclass(frozen=True, slots=True)
class Manner:
    """The tense of a verb, and what is added to it."""

    tense: int = PRESENT
    denial: str = ""  # "", "not" or "never"
    modal: Verb | None = None
    adverb: Phrase | None = None
    asked: bool = False  # `do` stands already at the start of the question


class _Spoken(NamedTuple):
    """Places of the English words of a group."""

    finite: Places
    denial: Places
    adverb: Places
    verb: Places


def draw_manner(draft: Draft, tense: int, asked: bool = False, modals: bool = False, plain: bool = False) -> Manner:
    """Draw negation, a modal and an adverb of frequency that fit each other; `plain` excludes the first two.

    (In `he does not see the dog and buys a cat` it would be unclear what is denied.)
    """
    plain = plain or asked
    denial = ""
    if not plain and draft.chance(0.22):
        denial = "never" if draft.chance(0.3) else "not"
    modal = draft.pick(MODALS) if modals and tense == PRESENT and not plain and draft.chance(0.12) else None
    adverb = None
    if tense != FUTURE and modal is None and draft.chance(0.12):
        adverb = draft.pick(PHRASES["frequency"][:2] if denial or asked else PHRASES["frequency"])
    return Manner(tense, denial, modal, None if denial == "never" else adverb, asked)


def do(who: Agreement, tense: int) -> str:
    """The auxiliary of English questions and negations."""
    if tense == PAST:
        return "did"
    return "does" if who.person == THIRD_SINGULAR else "do"


def _finite(verb: Verb, who: Agreement, tense: int) -> str:
    if tense == PAST:
        return verb.past
    return verb.third if who.person == THIRD_SINGULAR else verb.base


def write_verb(
    draft: Draft, verb: Verb, who: Agreement, manner: Manner, clitic: Clitic | None = None, agrees: int = 0
) -> None:
    """Write a verb group; `agrees` is the form of a French object that precedes the verb (`que`)."""
    spoken = (_say_modal if manner.modal else _say_group)(draft, verb, who, manner)
    of_clitic = draft.say(clitic.english) if clitic else ()
    if manner.denial:
        draft.put("ne", spoken.denial)
    if manner.modal is None:
        _put_pronouns(draft, verb, who, clitic, spoken.verb, of_clitic)
    finite, compound = _french_finite(verb, who, manner)
    draft.put(finite, spoken.finite)
    if manner.denial:
        draft.put(_DENIAL[manner.denial], spoken.denial)
    if manner.adverb:
        draft.put(manner.adverb.french[0], spoken.adverb)
    if manner.modal:
        _put_pronouns(draft, verb, who, clitic, spoken.verb, of_clitic)
        draft.put(verb.infinitive, spoken.verb)
    elif compound:
        form = who.form if verb.past_tense == "être" else clitic.form if clitic else agrees
        draft.put(verb.participle[form], spoken.verb)


def _adverb(manner: Manner) -> str:
    return manner.adverb.english[0] if manner.adverb else ""


def _say_group(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> _Spoken:
    """Say `[will|does] [not] [often] sees [at]`; `does` has no counterpart, `did` has one in `a vu`."""
    future = draft.say("will" if manner.tense == FUTURE else "")
    supported = manner.denial == "not" and manner.tense != FUTURE
    auxiliary = draft.say(do(who, manner.tense) if supported else "")
    denial, adverb = draft.say(manner.denial), draft.say(_adverb(manner))
    bare = supported or manner.asked or manner.tense == FUTURE
    main = draft.say(verb.base if bare else _finite(verb, who, manner.tense), verb.particle)
    if manner.tense == PAST and verb.past_tense != "imparfait" and supported:
        return _Spoken(auxiliary, denial, adverb, main)
    return _Spoken(future + main, denial, adverb, main)


def _say_modal(draft: Draft, verb: Verb, who: Agreement, manner: Manner) -> _Spoken:
    """Say `can see`, `cannot see`, `must not see`, `does not want to see`: only `to` and `does` have no counterpart."""
    modal = manner.modal or verb
    denied = manner.denial == "not"
    if modal.base == "want":
        draft.say(do(who, PRESENT) if denied else "")
        denial, adverb = draft.say(manner.denial), draft.say(_adverb(manner))
        spoken = draft.say(modal.base if denied else _finite(modal, who, PRESENT))
        draft.say("to")
    elif modal.base == "can" and denied:
        spoken = denial = draft.say("cannot")
        adverb = draft.say(_adverb(manner))
    else:
        spoken = draft.say(modal.base)
        denial, adverb = draft.say(manner.denial), draft.say(_adverb(manner))
    return _Spoken(spoken, denial, adverb, draft.say(verb.base, verb.particle))


def _put_pronouns(
    draft: Draft, verb: Verb, who: Agreement, clitic: Clitic | None, of_verb: Places, of_clitic: Places
) -> None:
    if "reflexive" in verb.flags:
        draft.put(_REFLEXIVE[who.person], of_verb)
    if clitic:
        draft.put(clitic.french, of_clitic)


def _french_finite(verb: Verb, who: Agreement, manner: Manner) -> tuple[str, bool]:
    """The French verb that agrees with the subject, and whether a participle follows."""
    if manner.modal:
        return manner.modal.present[who.person], False
    if manner.tense == PRESENT:
        return verb.present[who.person], False
    if manner.tense == FUTURE:
        return verb.future[who.person], False
    if verb.past_tense == "imparfait":
        return verb.imperfect[who.person], False
    return (AVOIR if verb.past_tense == "avoir" else _ETRE[PRESENT])[who.person], True


def write_be(draft: Draft, who: Agreement, tense: int, denial: str = "", said: Places = ()) -> None:
    """Write a form of `be`; `said` is its place in a question, where it stands already."""
    spoken = said or draft.say("will" if tense == FUTURE else BE[tense][who.person])
    denied = draft.say(denial)
    if tense == FUTURE:
        spoken += draft.say("be")
    if denial:
        draft.put("ne", denied)
    draft.put(_ETRE[tense][who.person], spoken)
    if denial:
        draft.put(_DENIAL[denial], denied)
