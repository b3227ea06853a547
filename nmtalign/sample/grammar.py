"""Clauses, and sentences of three to eighty words: one clause, two, a question, or a chain of clauses."""

from collections.abc import Iterator

from nmtalign.sample import dictionary, predicates
from nmtalign.sample import noun_phrases as np
from nmtalign.sample.dictionary import FUTURE, PAST, PHRASES, PRESENT, TAGGED, Agreement
from nmtalign.sample.draft import Draft, Example
from nmtalign.sample.verb_groups import Manner, be, do, write_be, write_passive, write_there_is, write_verb

LONGEST = 80
"""Largest number of tokens on either side, the full stop included."""

_SHORT_EVERY, _LONG_EVERY = 100, 200
_TRIES = 60
_TIMES = (PHRASES["present"], PHRASES["past"], PHRASES["future"])


def generate(seed: int, stream: str = "train") -> Iterator[Example]:
    """Yield sentence pairs without end, some of them more than once; seed and stream determine them."""
    draft = Draft(f"nmtalign sample {stream} {seed}")
    number = 0
    while True:
        yield _sentence(draft, number)
        number += 1


def _sentence(draft: Draft, number: int) -> Example:
    """Write one sentence; one in a hundred is of the shortest, one in two hundred of the longest."""
    while True:
        draft.cut()
        if number % _SHORT_EVERY == 3:
            _short(draft)
        elif number % _LONG_EVERY == 7:
            _chain(draft, LONGEST)
        else:
            _ordinary(draft)
        if draft.length() <= LONGEST:
            example = draft.example()
            if min(example.source.count(" "), example.target.count(" ")) >= 2:
                return example


def _draw_tense(draft: Draft) -> int:
    chance = draft.random()
    return PRESENT if chance < 0.5 else PAST if chance < 0.85 else FUTURE


def _ordinary(draft: Draft) -> None:
    chance = draft.random()
    if chance < 0.08:
        _question(draft)
    elif chance < 0.115:
        _chain(draft, 26 + int(draft.random() * (LONGEST - 25)))
    elif chance < 0.25:
        tense = _draw_tense(draft)
        _clause(draft, tense, 1)
        _next_clause(draft, tense, 0)
        draft.write(".")
    else:
        tense = _draw_tense(draft)
        timed = draft.random() < 0.1
        if timed:
            _time(draft, tense)
            draft.write(",")
        _clause(draft, tense, 2, reported=timed)
        draft.write(".")


def _time(draft: Draft, tense: int) -> None:
    if tense == PAST and draft.chance(0.4):
        draft.write("in", "en")
        draft.write(str(1900 + int(draft.random() * 120)))
    else:
        draft.write_phrase(draft.pick(_TIMES[tense]))


def _short(draft: Draft) -> None:
    """Write `The man sleeps.`: three words or more in either language (`L'homme dort.` is two, and is redrawn)."""
    kind = draft.pick(("human", "animal"))
    who = predicates.write_subject(draft, kind, 0)
    write_verb(draft, draft.pick(dictionary.INTRANSITIVE[kind]), who, Manner(PAST if draft.chance(0.3) else PRESENT))
    draft.write(".")


def _question(draft: Draft) -> None:
    """Write `Does the man see the dog?`, `Est-ce que l'homme voit le chien ?`."""
    tense = PAST if draft.chance(0.4) else PRESENT
    place = draft.say("?")  # replaced by the auxiliary once the subject is known
    kind = draft.pick(("human", "human", "animal", "organisation"))
    copular = draft.chance(0.25)
    for word in ("est-ce", "que"):
        draft.put(word, () if copular else place)
    who = predicates.write_subject(draft, kind, 0)
    draft.source[place[0]] = be(who, tense) if copular else do(who, tense)
    if copular:
        write_be(draft, who, tense, said=place)
        predicates.write_quality(draft, kind, who, 0)
    else:
        predicates.write_predicate(draft, kind, who, tense, 0, asked=True)
    draft.write("?")


def _chain(draft: Draft, limit: int) -> None:
    """Join clauses until the longer side has `limit` tokens, or nearly `limit` after a number of tries."""
    tense = _draw_tense(draft)
    _clause(draft, tense, 1)
    misses = 0
    while draft.length() < limit - 1 and misses < _TRIES:
        before = len(draft.source), len(draft.target)
        following = _next_clause(draft, tense, 1)
        room = limit - 1 - draft.length()
        if room < 0 or 0 < room < 7:
            draft.cut(*before)
            misses += 1
        else:
            tense = following
    draft.write(".")


def _next_clause(draft: Draft, tense: int, depth: int) -> int:
    """Write a conjunction and a clause; return the tense of the clause, which `while` keeps."""
    conjunction = draft.pick(PHRASES["conjunction"])
    if conjunction.english in ("and", "but"):
        draft.write(",")
    draft.write_phrase(conjunction)
    if conjunction.english != "while":
        tense = _draw_tense(draft)
    _clause(draft, tense, depth, reported=conjunction.english == "while")
    return tense


def _clause(draft: Draft, tense: int, depth: int, reported: bool = False) -> None:
    """Write a clause of any sort; a `reported` one contains no other reported clause."""
    chance = draft.random()
    if chance < 0.16:
        _copular_clause(draft, tense, depth)
    elif chance < 0.24:
        _passive_clause(draft, tense, depth)
    elif chance < 0.29:
        _there_clause(draft, tense)
    elif chance < 0.37 and not reported:
        _reported_clause(draft, tense, depth)
    else:
        _active_clause(draft, tense, depth)


def _active_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write a subject and one predicate or two."""
    kind = draft.pick(("human", "human", "human", "human", "animal", "organisation"))
    who = predicates.write_subject(draft, kind, depth, tense)
    twice = draft.chance(0.1)
    predicates.write_predicate(draft, kind, who, tense, 0 if twice else depth, plain=twice)
    if twice:
        draft.write("and", "et")
        predicates.write_predicate(draft, kind, who, tense, 0)


def _copular_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write `the old house is not very beautiful`, `freedom is important`."""
    kind = draft.pick(("human", "human", "animal", "thing", "place", "organisation", "document", "abstract"))
    who = np.write_idea(draft) if kind == "abstract" else predicates.write_subject(draft, kind, depth, tense)
    predicates.write_copula(draft, kind, who, tense, depth)


def _passive_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write `the law was adopted by the council`, `la loi a été adoptée par le conseil`."""
    noun = draft.pick(TAGGED[draft.pick(("document", "thing", "place"))])
    verbs = [verb for verb in dictionary.VERBS_OF_OBJECT[noun] if verb.past_tense == "avoir" and not verb.particle]
    verb = draft.pick([verb for verb in verbs if verb.is_plain("named")])
    who = predicates.write_noun_phrase(draft, noun, depth=depth, determiner="the" if draft.chance(0.7) else "")
    write_passive(draft, verb, who, tense, "not" if draft.chance(0.2) else "")
    agent = draft.pick(TAGGED["organisation" if "organisation" in verb.subjects else "human"])
    predicates.write_noun_phrase(draft, agent, np.BY, depth, "the" if draft.chance(0.6) else "a")


def _there_clause(draft: Draft, tense: int) -> None:
    """Write `there is a dog in the garden`, `il y a un chien dans le jardin`."""
    denied, plural = draft.chance(0.2), draft.chance(0.4)
    who = Agreement(dictionary.THIRD_PLURAL if plural else dictionary.THIRD_SINGULAR, False, plural)
    write_there_is(draft, who, tense, "not" if denied else "")
    noun = draft.pick(TAGGED[draft.pick(("human", "animal", "thing", "thing"))])
    determiner = "a"
    if plural:
        determiner = "bare" if denied else draft.pick(("bare", "several", "many", "three", "two"))
    np.write_nominal(draft, np.decorate(draft, noun, plural, 0.45), determiner, denied=denied)
    predicates.write_place(draft)


def _reported_clause(draft: Draft, tense: int, depth: int) -> None:
    """Write `the man says that ...`, `l'homme dit que ...`."""
    kind = "organisation" if draft.chance(0.25) else "human"
    who = predicates.write_subject(draft, kind, 0)
    write_verb(draft, draft.pick(dictionary.SAYING[kind]), who, Manner(PRESENT))
    draft.write("that", "que")
    _clause(draft, tense, depth, reported=True)
