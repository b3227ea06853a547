"""Whole sentences of three to eighty words: one clause, two, a question, or a chain as long as the limit allows."""

from collections.abc import Iterator

from nmtalign.sample import clauses, phrases
from nmtalign.sample.draft import FUTURE, PAST, PRESENT, Draft, Example
from nmtalign.sample.verbals import Manner, be, do, verb_group
from nmtalign.sample.verbs import BE, INTRANSITIVE

LONGEST = 80
"""Most tokens on either side, the full stop included."""

_SHORT_EVERY, _LONG_EVERY = 100, 200
_TRIES = 60

# A time is said with English words and French words, each with the rank of the English word it renders (-1: none).
_Time = tuple[tuple[str, ...], tuple[tuple[str, int], ...]]
_TIMES: tuple[tuple[_Time, ...], ...] = (
    (
        (("today",), (("aujourd'", 0), ("hui", 0))),
        (("now",), (("maintenant", 0),)),
        (("every", "day"), (("tous", 0), ("les", 0), ("jours", 1))),
        (("every", "morning"), (("chaque", 0), ("matin", 1))),
        (("this", "week"), (("cette", 0), ("semaine", 1))),
    ),
    (
        (("yesterday",), (("hier", 0),)),
        (("last", "week"), (("la", -1), ("semaine", 1), ("dernière", 0))),
        (("last", "year"), (("le", -1), ("an", 1), ("dernier", 0))),
        (("this", "morning"), (("ce", 0), ("matin", 1))),
    ),
    (
        (("tomorrow",), (("demain", 0),)),
        (("soon",), (("bientôt", 0),)),
        (("next", "week"), (("la", -1), ("semaine", 1), ("prochaine", 0))),
        (("next", "year"), (("le", -1), ("an", 1), ("prochain", 0))),
    ),
)
_CONJUNCTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("and", ("et",)),
    ("and", ("et",)),
    ("and", ("et",)),
    ("but", ("mais",)),
    ("but", ("mais",)),
    ("because", ("parce", "que")),
    ("while", ("pendant", "que")),
)


def generate(seed: int, stream: str = "train") -> Iterator[Example]:
    """Yield sentence pairs without end; the same seed and stream always give the same ones, and some come twice."""
    draft = Draft(f"nmtalign sample {stream} {seed}")
    number = 0
    while True:
        yield _sentence(draft, number)
        number += 1


def _sentence(draft: Draft, number: int) -> Example:
    """Write one sentence; every hundredth is of the shortest and every two-hundredth of the longest."""
    while True:
        draft.clear()
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


def _tense(draft: Draft) -> int:
    chance = draft.random()
    return PRESENT if chance < 0.5 else PAST if chance < 0.85 else FUTURE


def _ordinary(draft: Draft) -> None:
    chance = draft.random()
    if chance < 0.08:
        _question(draft)
    elif chance < 0.115:
        _chain(draft, 26 + int(draft.random() * (LONGEST - 25)))
    elif chance < 0.25:
        tense = _tense(draft)
        clauses.clause(draft, tense, 1)
        _next_clause(draft, tense, 0)
        _stop(draft)
    else:
        _simple(draft)


def _stop(draft: Draft) -> None:
    draft.copy(".")


def _next_clause(draft: Draft, tense: int, depth: int) -> int:
    """Write a conjunction and a clause; `while` keeps the tense. Gives the tense of the new clause."""
    english, french = draft.pick(_CONJUNCTIONS)
    if english in ("and", "but"):
        draft.copy(",")
    draft.put_all(french, (draft.say(english),))
    if english != "while":
        tense = _tense(draft)
    clauses.clause(draft, tense, depth, reported=english == "while")
    return tense


def _simple(draft: Draft) -> None:
    tense = _tense(draft)
    chance = draft.random()
    if chance < 0.1:
        _time(draft, tense)
        draft.copy(",")
    clauses.clause(draft, tense, 2, reported=chance < 0.1)
    _stop(draft)


def _time(draft: Draft, tense: int) -> None:
    if tense == PAST and draft.chance(0.4):
        draft.put("en", (draft.say("in"),))
        draft.copy(str(1900 + int(draft.random() * 120)))
        return
    english, french = draft.pick(_TIMES[tense])
    places = draft.say_all(english)
    for word, rank in french:
        draft.put(word, () if rank < 0 else (places[rank],))


def _short(draft: Draft) -> None:
    """Write `The man sleeps.`: three words or more in either language (`L'homme dort.` is two, and is redrawn)."""
    kind = draft.pick("ha")
    who = phrases.subject(draft, kind, 0)
    verb_group(draft, draft.pick(INTRANSITIVE[kind]), who, Manner(PAST if draft.chance(0.3) else PRESENT))
    _stop(draft)


def _question(draft: Draft) -> None:
    """Write `Does the man see the dog?`, `Est-ce que l'homme voit le chien ?`."""
    tense = PAST if draft.chance(0.4) else PRESENT
    auxiliary = draft.say("")
    kind = draft.pick("hhao")
    copular = draft.chance(0.25)
    for word in ("est-ce", "que"):
        draft.put(word, () if copular else (auxiliary,))
    who = phrases.subject(draft, kind, 0)
    if copular:
        draft.source[auxiliary] = BE[tense][who.person]
        be(draft, who, tense, said=(auxiliary,))
        phrases.quality(draft, kind, who, 0)
    else:
        draft.source[auxiliary] = do(who, tense)
        phrases.predicate(draft, kind, who, tense, 0, asked=True)
    draft.copy("?")


def _chain(draft: Draft, limit: int) -> None:
    """Join clauses until the longer side has just `limit` tokens, or as near as a number of tries comes to it."""
    tense = _tense(draft)
    clauses.clause(draft, tense, 1)
    misses = 0
    while draft.length() < limit - 1 and misses < _TRIES:
        mark = draft.mark()
        following = _next_clause(draft, tense, 1)
        room = limit - 1 - draft.length()
        if room < 0 or 0 < room < 7:
            draft.rewind(mark)
            misses += 1
        else:
            tense = following
    _stop(draft)
