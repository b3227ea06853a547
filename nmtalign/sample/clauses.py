"""Clauses: what somebody does or is, what is done, what there is, and what somebody says."""

from nmtalign.sample import nominals as np
from nmtalign.sample.draft import FUTURE, PAST, PRESENT, Agreement, Draft
from nmtalign.sample.nouns import TAGGED
from nmtalign.sample.phrases import copula, noun_phrase, place, predicate, subject
from nmtalign.sample.verbals import Manner, be, verb_group
from nmtalign.sample.verbs import ABOUT_NOUN, BE, SAYING
from nmtalign.sample.words import THIRD_PLURAL, THIRD_SINGULAR


def copular_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write `the old house is not very beautiful`, `freedom is important`."""
    kind = draft.pick("hhatpodb")
    who = np.generic(draft) if kind == "b" else subject(draft, kind, depth, tense)
    copula(draft, kind, who, tense, depth)


def passive_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write `the law was adopted by the council`, `la loi a été adoptée par le conseil`."""
    noun = draft.pick(TAGGED[draft.pick("dtp")])
    verbs = [
        verb for verb in ABOUT_NOUN[noun] if verb.past_by == "avoir" and not verb.particle + verb.flags.strip("-n")
    ]
    verb = draft.pick(verbs)
    who = noun_phrase(draft, noun, depth=depth, determiner="the" if draft.chance(0.7) else "", bare=False)
    denial = "not" if draft.chance(0.2) else ""
    if tense == PAST:
        _was(draft, who, denial)
    else:
        be(draft, who, tense, denial)
    draft.put(verb.participle[who.form], (draft.say(verb.past_participle),))
    agent = "o" if "o" in verb.subjects else "h"
    noun_phrase(draft, draft.pick(TAGGED[agent]), np.BY, depth=depth, determiner="the" if draft.chance(0.6) else "a")


def _was(draft: Draft, who: Agreement, denial: str) -> None:
    spoken = (draft.say(BE[PAST][who.person]),)
    denied = (draft.say(denial),) if denial else ()
    if denial:
        draft.put("ne", denied)
    draft.put("a" if who.person == THIRD_SINGULAR else "ont", spoken)
    if denial:
        draft.put("pas", denied)
    draft.put("été", spoken)


def there_clause(draft: Draft, tense: int) -> None:
    """Write `there is a dog in the garden`, `il y a un chien dans le jardin`."""
    denied = draft.chance(0.2)
    plural = draft.chance(0.4)
    there = (draft.say("there"),)
    spoken = draft.say_all(("will",) if tense == FUTURE else (BE[tense][THIRD_PLURAL if plural else THIRD_SINGULAR],))
    denial = (draft.say("not"),) if denied else ()
    if tense == FUTURE:
        spoken = (*spoken, draft.say("be"))
    draft.put("il", there)
    if denied:
        draft.put("ne", denial)
    draft.put("y", there)
    draft.put(("a", "avait", "aura")[tense], spoken)
    if denied:
        draft.put("pas", denial)
    noun = draft.pick(TAGGED[draft.pick("hatt")])
    determiner = ("bare" if denied else draft.pick(("bare", "several", "many", "three", "two"))) if plural else "a"
    np.write_nominal(draft, np.decorate(draft, noun, plural, 0.45), determiner, denied=denied)
    place(draft)


def reported_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write `the man says that ...`, `l'homme dit que ...`."""
    kind = "o" if draft.chance(0.25) else "h"
    who = subject(draft, kind, 0)
    verb_group(draft, draft.pick(SAYING[kind]), who, Manner(PRESENT))
    draft.put("que", (draft.say("that"),))
    clause(draft, tense, depth, reported=True)


def clause(draft: Draft, tense: int, depth: int, reported: bool = False) -> None:
    """Write one clause of any sort."""
    chance = draft.random()
    if chance < 0.16:
        copular_clause(draft, tense, depth)
    elif chance < 0.24:
        passive_clause(draft, tense, depth)
    elif chance < 0.29:
        there_clause(draft, tense)
    elif chance < 0.37 and not reported:
        reported_clause(draft, tense, depth)
    else:
        active_clause(draft, tense, depth)


def active_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write a subject and what it does, sometimes two things."""
    kind = draft.pick("hhhhao")
    who = subject(draft, kind, depth, tense)
    twice = draft.chance(0.1)
    predicate(draft, kind, who, tense, 0 if twice else depth, plain=twice)
    if twice:
        draft.put("et", (draft.say("and"),))
        predicate(draft, kind, who, tense, 0)
