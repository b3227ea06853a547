"""A synchronous grammar: English-French sentence pairs of three to eighty words with gold word links.

The pairs show what a translation model has to learn: French adjectives behind the noun in reversed order, agreement
over a relative clause, pronouns before the verb, one word for two and two for one, and names that are seldom seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TypeVar

from nmtalign.sample import dictionary as words
from nmtalign.sample.dictionary import PAST, PRESENT, THIRD_PLURAL, THIRD_SINGULAR, Adjective, Agreement, Noun, Verb

LONGEST = 80  # the largest number of tokens on either side, the full stop included
T = TypeVar("T")
Places = tuple[int, ...]  # positions of English words
_ELIDED = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'", "je": "j'", "me": "m'"}
_SHORT_EVERY, _LONG_EVERY = 100, 200
_TRIES = 30


@dataclass(frozen=True, slots=True)
class Example:
    """One sentence pair: natural text, its Moses tokens, and the gold links (source position, target position)."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def generate(seed: int, stream: str = "train") -> Iterator[Example]:
    """Yield sentence pairs without end, some of them more than once; seed and stream determine them."""
    draft = Draft(f"nmtalign sample {stream} {seed}")
    for number in count():
        yield _sentence(draft, number)


def _sentence(draft: "Draft", number: int) -> Example:
    """Write one sentence; one in a hundred is of the shortest, one in two hundred of the longest."""
    while True:
        draft.cut()
        chance = draft.random()
        if number % _SHORT_EVERY == 3:  # `L'homme dort.` is two words, and is drawn again
            kind = draft.pick(("human", "animal"))
            who = _subject(draft, kind, 0)
            verb = draft.pick(words.verbs_of_subject(kind, transitive=False))
            _verb(draft, verb, who, PAST if chance < 0.3 else PRESENT)
        elif number % _LONG_EVERY == 7:
            _chain(draft, LONGEST)
        elif chance < 0.03:
            _chain(draft, 26 + int(draft.random() * (LONGEST - 25)))
        elif chance < 0.2:
            _clause(draft, _tense(draft), 1)
            _next_clause(draft, 0)
        else:
            tense = _tense(draft)
            timed = draft.chance(0.1)
            if timed:
                draft.write(*draft.pick(words.PHRASES[("present", "past", "future")[tense]]))
                draft.write(",")
            _clause(draft, tense, 2, reported=timed)
        draft.write(".")
        if draft.length() <= LONGEST:
            example = draft.example()
            if min(example.source.count(" "), example.target.count(" ")) >= 2:
                return example


class Draft:
    """A growing sentence pair. `say` appends English words, `put` a French one, `write` both."""

    def __init__(self, seed: str) -> None:
        generator = Random(seed)
        self.random = generator.random
        self.bits = generator.getrandbits
        self.source: list[str] = []
        self.target: list[tuple[str, Places]] = []

    def say(self, words: str) -> Places:
        """Append English words and return their positions."""
        start = len(self.source)
        self.source.extend(words.split())
        return tuple(range(start, len(self.source)))

    def put(self, word: str, origin: Places = ()) -> None:
        """Append a French word that renders the English words at these positions; an empty word is left out."""
        if word:
            self.target.append((word, origin))

    def write(self, english: str, french: str | None = None) -> None:
        """Append English words, and French words that render all of them; by default they are the same."""
        origin = self.say(english)
        for word in (english if french is None else french).split():
            self.put(word, origin)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def length(self) -> int:
        """Tokens on the longer side so far."""
        return max(len(self.source), len(self.target))

    def cut(self, source: int = 0, target: int = 0) -> None:
        """Keep only this number of words of each side."""
        del self.source[source:], self.target[target:]

    def example(self) -> Example:
        """Finish the sentence: elide, capitalise, link and join."""
        source, target = list(self.source), [word for word, _ in self.target]
        for j, word in enumerate(target[:-1]):
            if word in _ELIDED and words.starts_with_vowel(target[j + 1]):
                target[j] = _ELIDED[word]
        for side in (source, target):
            side[0] = side[0][0].upper() + side[0][1:]
        links = sorted((i, j) for j, (_, origin) in enumerate(self.target) for i in origin)
        english, french = (" ".join(side).replace(" ,", ",").replace(" .", ".") for side in (source, target))
        return Example(english, french.replace("' ", "'"), tuple(source), tuple(target), tuple(links))


# Noun phrases: determiners, adjectives on their French side of the noun, names, contractions.

# English words, French words, and behind them `de` or `à`, which contracts with the article (or nothing).
Preposition = tuple[str, str, str]
_NO_PREPOSITION, _OF, _IN = ("", "", ""), ("of", "", "de"), ("in", "dans", "")
_AROUND = (("near", "près", "de"), ("behind", "derrière", ""), ("in front of", "devant", ""), ("to", "", "à"), _IN)
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_SOUNDS_A = frozenset(("European", "useful", "university", "union"))
_SOUNDS_AN = frozenset(("honest",))
# Places of adjectives, in English order, and the probability that a decorated noun has one.
_ADJECTIVES = {"before": 0.45, "quality": 0.3, "colour": 0.4, "scope": 0.4, "domain": 0.6}
# Kind of noun -> tag of the nouns that follow it behind `of`: `the coat of the king`.
_OWNERS = {"place": "human", "thing": "human", "organisation": "inside", "document": "organisation"}


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun with its adjectives: `before` in both languages, `behind` in English order (French reverses it)."""

    noun: Noun
    plural: bool = False
    before: Adjective | None = None
    behind: Sequence[Adjective] = ()

    def french_before(self) -> str:
        """The adjective before the French noun in its form, or ""."""
        form = self.noun.agreement(self.plural).form
        special = form == 0 and words.starts_with_vowel(self.noun.french[0])
        return self.before.forms[4 if special else form] if self.before else ""

    def indefinite_article(self) -> str:
        word = next((one.english for one in (self.before, *self.behind) if one), self.noun.english[0])
        return "an" if word in _SOUNDS_AN or (word[0] in "aeiouAEIOU" and word not in _SOUNDS_A) else "a"

    def say(self, draft: Draft) -> list[tuple[str, Places]]:
        """Say the adjectives and the noun in English; return the French words with their origins."""
        form = self.noun.agreement(self.plural).form
        before = self.french_before(), draft.say(self.before.english if self.before else "")
        behind = [(one.forms[form], draft.say(one.english)) for one in self.behind]
        return [before, (self.noun.french[self.plural], draft.say(self.noun.english[self.plural])), *reversed(behind)]


def _decorated(draft: Draft, noun: Noun, plural: bool, richness: float) -> Nominal:
    """Give a noun some adjectives; `richness` is the probability that it gets any."""
    drawn: dict[str, Adjective] = {}
    if draft.chance(richness):
        for place, probability in _ADJECTIVES.items():
            if draft.chance(probability) and (choices := words.fitting(noun.kind, place)):
                drawn[place] = draft.pick(choices)
    before = drawn.pop("before", None)
    return Nominal(noun, plural, before, [*drawn.values()])


def _noun_phrase(
    draft: Draft,
    noun: Noun,
    preposition: Preposition = _NO_PREPOSITION,
    depth: int = 0,
    determiner: str = "",
    denied: bool = False,
) -> Agreement:
    """Write a noun phrase; `depth` phrases and clauses may nest behind the noun. `denied`: the object of `pas`."""
    is_mass = noun.kind in ("food", "abstract")
    plural = not is_mass and determiner in ("", "the") and draft.chance(0.3)
    nominal = Nominal(noun) if is_mass else _decorated(draft, noun, plural, 0.42 if depth else 0.25)
    if is_mass:
        determiner = "generic" if noun.kind == "abstract" else "the" if denied or draft.chance(0.3) else "some"
    determiner = determiner or draft.pick(words.DRAWN_DETERMINERS[2 * plural + denied])
    of_preposition = draft.say(preposition[0])
    special = {"generic": "", "bare": "", "all": "all the", "a": nominal.indefinite_article()}
    of_determiner = draft.say(special.get(determiner, determiner))
    french = nominal.say(draft)
    draft.put(preposition[1], of_preposition)
    link = preposition[2], of_preposition
    for word, origin in (*_determiner(nominal, determiner, of_determiner, link, denied), *french):
        draft.put(word, origin)
    who = noun.agreement(plural)
    if depth > 0 and not is_mass and determiner in ("the", "a", "these", "bare"):
        _extend(draft, noun, who, depth - 1)
    return who


def _determiner(
    nominal: Nominal, determiner: str, said: Places, link: tuple[str, Places], denied: bool
) -> list[tuple[str, Places]]:
    """The French determiner of the English words `said`, after the `de` or `à` of the preposition (the `link`)."""
    before, who = nominal.french_before(), nominal.noun.agreement(nominal.plural)
    vowel = words.starts_with_vowel(before or nominal.noun.french[nominal.plural])
    match determiner:
        case "some" | "the" | "generic":
            link = ("de", said) if determiner == "some" else link
            article = "les" if who.plural else "la" if who.feminine else "le"
            contracted = _CONTRACTED.get((link[0], article))
            if contracted and not (vowel and article == "le"):
                return [(contracted, said if link[1] == said else link[1] + said)]
            return [link, (article, said)]
        case "a" | "bare" if denied:
            return [("de", said)]
        case "bare" if link[0] == "de":
            return [link]
        case "bare":
            return [link, ("de" if before else "des", ())]
        case "all":
            return [link, ("toutes" if who.feminine else "tous", said[:1]), ("les", said[1:])]
        case _:
            forms = words.DETERMINERS[determiner]
            form = forms[0] if len(forms) == 1 else forms[4 if who.plural else who.feminine + 2 * vowel]
            return [link, *((word, said) for word in form.split())]


def _extend(draft: Draft, noun: Noun, who: Agreement, depth: int) -> None:
    """Put something behind a noun: `of` and another noun, or a relative clause, always about the nearest noun."""
    chance = draft.random()
    if chance < 0.14 and noun.kind in _OWNERS:
        _noun_phrase(draft, draft.pick(words.tagged(_OWNERS[noun.kind])), _OF, depth)
    elif chance < 0.22:  # `who sees the dog`, `qui voit le chien`
        draft.write("who" if noun.kind == "human" else "that", "qui")
        tense = PAST if draft.chance(0.35) else PRESENT
        if noun.kind in ("human", "animal", "organisation") and draft.chance(0.75):
            _predicate(draft, noun.kind, who, tense, depth)
        else:
            _copula(draft, noun.kind, who, tense)
    elif chance < 0.29 and (verbs := words.verbs_of_object(noun)):  # `that the man has seen`, `que l'homme a vue`
        verb = draft.pick(verbs)
        draft.write("whom" if noun.kind == "human" else "that", "que")
        subject = _subject(draft, "human" if "human" in verb.subjects else "organisation", 0)
        _verb(draft, verb, subject, PAST if draft.chance(0.5) else PRESENT, agrees=who.form)


def _person(draft: Draft) -> Agreement:
    given = draft.pick(words.NAMES["men"] + words.NAMES["women"])
    draft.write(given)
    if draft.chance(0.75):
        draft.write(draw_name(draft, "surname_endings"))
    return Agreement(THIRD_SINGULAR, given in words.NAMES["women"], False)


_FREQUENT_OCTAVES, _OCTAVES = 3, 20  # ranks below 2^3 are left out: those names would be as frequent as nouns


def draw_name(draft: Draft, endings: str) -> str:
    """Draw a family name (`surname_endings`) or the name of a town (`town_endings`).

    The frequency of the name of rank r is proportional to 1/r, over a million ranks. Thus longer text has more new
    names, which a shortlist of frequent words must leave out. Names start with a consonant and never end in `s`, so
    they change neither the words before them nor their own form.
    """
    octave = _FREQUENT_OCTAVES + int(draft.random() * (_OCTAVES - _FREQUENT_OCTAVES))
    rank = (1 << octave) | draft.bits(octave)
    # An odd factor spreads neighbouring ranks over the syllables, and no two ranks get the same number.
    number = (rank * 668265263 + 374761393) % (1 << _OCTAVES)
    starts, middles = words.NAMES["starts"], words.NAMES["middles"]
    syllables = starts[number & 15], "aeio"[number >> 4 & 3], middles[number >> 6 & 15], "aeou"[number >> 10 & 3]
    return "".join(syllables) + middles[number >> 12 & 15] + words.NAMES[endings][number >> 16 & 15]


# Verb groups: tense, negation and pronouns, each in its own place in each language.

# Object pronouns, behind the verb in English, before it in French, and the form of a past participle that agrees.
Clitic = tuple[str, str, int]
_DIRECT: Sequence[Clitic] = (("him", "le", 0), ("her", "la", 2), ("them", "les", 1))
_BE = (("am", "is", "are", "are"), ("was", "was", "were", "were"), ("will",) * 4)  # by tense, then by person
_DENIAL = {"not": "pas", "never": "jamais"}


def _verb(draft: Draft, verb: Verb, who: Agreement, tense: int, clitic: Clitic | None = None, agrees: int = 0) -> bool:
    """Write `[will|does] [not|never] sees [at] [him]`; return whether it is denied.

    `agrees` is the form of a French object that precedes the verb (`que`).
    """
    denial = "" if not draft.chance(0.22) else "never" if draft.chance(0.3) else "not"
    future, is_third = tense == words.FUTURE, who.person == THIRD_SINGULAR
    supported, is_compound = denial == "not" and not future, tense == PAST and verb.past_tense != "imparfait"
    do = "did" if tense == PAST else "does" if is_third else "do"
    auxiliary = draft.say("will" if future else do if supported else "")
    of_denial = draft.say(denial)
    form = verb.base if auxiliary else verb.past if tense == PAST else verb.third if is_third else verb.base
    of_verb = draft.say(f"{form} {verb.particle}")
    # `does` has no counterpart, `did` has one in `a vu`.
    of_finite = auxiliary if is_compound and supported else (auxiliary if future else ()) + of_verb
    finite = verb.in_tense(tense)
    if is_compound:
        finite = (words.AVOIR if verb.past_tense == "avoir" else words.ETRE).present
    pronoun = [(clitic[1], draft.say(clitic[0]))] if clitic else []
    _deny(draft, denial, of_denial, *pronoun, (finite[who.person], of_finite))
    if is_compound:
        draft.put(verb.participle[who.form if verb.past_tense == "être" else clitic[2] if clitic else agrees], of_verb)
    return bool(denial)


def _deny(draft: Draft, denial: str, of_denial: Places, *group: tuple[str, Places]) -> None:
    """Put French words with their origins, and if there is a denial `ne ... pas` or `ne ... jamais` around them."""
    for word, origin in (("ne" if denial else "", of_denial), *group, (_DENIAL.get(denial, ""), of_denial)):
        draft.put(word, origin)


# Clauses: subjects and predicates.

_PRONOUNS = (
    ("he", "il", Agreement(THIRD_SINGULAR, False, False)),
    ("she", "elle", Agreement(THIRD_SINGULAR, True, False)),
    ("they", "ils", Agreement(THIRD_PLURAL, False, True)),
    ("I", "je", Agreement(words.FIRST_SINGULAR, False, False)),
    ("we", "nous", Agreement(words.FIRST_PLURAL, False, True)),
)


def _tense(draft: Draft) -> int:
    chance = draft.random()
    return PRESENT if chance < 0.5 else PAST if chance < 0.85 else words.FUTURE


def _subject(draft: Draft, kind: str, depth: int, tense: int = PRESENT) -> Agreement:
    """Write a subject: a noun phrase, a pronoun, a name, or two noun phrases joined by `and`.

    `I` and `we` have no future, which keeps the number of French forms small.
    """
    chance = draft.random()
    if kind == "human" and chance < 0.2:
        english, french, who = draft.pick(_PRONOUNS[:3] if tense == words.FUTURE else _PRONOUNS)
        draft.write(english, french)
        return who
    if kind == "human" and chance < 0.42:
        return _person(draft)
    nouns = words.tagged(kind)
    if kind not in ("organisation", "abstract") and chance > 0.94:
        first = _noun_phrase(draft, draft.pick(nouns), determiner="the")
        draft.write("and", "et")
        second = _noun_phrase(draft, draft.pick(nouns), determiner="the")
        return Agreement(THIRD_PLURAL, first.feminine and second.feminine, True)
    return _noun_phrase(draft, draft.pick(nouns), depth=depth, determiner=draft.pick(("the", "the", "a", "my", "this")))


def _predicate(draft: Draft, kind: str, who: Agreement, tense: int, depth: int) -> None:
    """Write a verb and its object or a place."""
    if draft.chance(0.2):
        verb = draft.pick(words.verbs_of_subject(kind, transitive=False))
        _verb(draft, verb, who, tense)
        if "human" in verb.subjects and draft.chance(0.5):
            _place(draft)
        return
    verb = draft.pick(words.verbs_of_subject(kind, transitive=True))
    chance = draft.random() if "named" in verb.flags else 1.0
    denied = _verb(draft, verb, who, tense, draft.pick(_DIRECT) if chance < 0.2 else None)
    if 0.2 <= chance < 0.34:
        _person(draft)
    elif chance >= 0.34:
        # `likes rich men` would mean all of them: `aime les hommes riches`.
        determiner = "the" if verb.past_tense == "imparfait" else ""
        _noun_phrase(draft, draft.pick(words.tagged(*verb.objects)), depth=depth, determiner=determiner, denied=denied)


def _place(draft: Draft) -> None:
    """Write a place: `in the garden`, `near the bridge`, `in Maronville`."""
    if draft.chance(0.3):
        draft.write("in", "à")
        draft.write(draw_name(draft, "town_endings"))
        return
    preposition = draft.pick(_AROUND)
    tag = "inside" if preposition is _IN else "destination" if preposition[2] == "à" else "place"
    _noun_phrase(draft, draft.pick(words.tagged(tag)), preposition, determiner="the")


def _copula(draft: Draft, kind: str, who: Agreement, tense: int) -> None:
    """Write `is [not] very old`, `will be old`."""
    denial = "not" if draft.chance(0.2) else ""
    said, denied = draft.say(_BE[tense][who.person]), draft.say(denial)
    said += draft.say("be" if tense == words.FUTURE else "")
    _deny(draft, denial, denied, (words.ETRE.in_tense(tense)[who.person], said))
    adjective, chance = draft.pick(words.fitting(kind, "before", "quality")), draft.random()
    if chance < 0.3:
        draft.write(*(("too", "trop") if chance < 0.1 else ("very", "très")))
    draft.write(adjective.english, adjective.forms[who.form])


def _clause(draft: Draft, tense: int, depth: int, reported: bool = False) -> None:
    """Write a clause of any sort; a `reported` one contains no other reported clause."""
    chance = draft.random()
    if chance < 0.16:  # `the old house is not very beautiful`, `freedom is important`
        kind = draft.pick(("human", "human", "animal", "thing", "place", "organisation", "document", "abstract"))
        _copula(draft, kind, _subject(draft, kind, depth, tense), tense)
    elif chance < 0.24 and not reported:  # `the man says that ...`, `l'homme dit que ...`
        kind = "organisation" if draft.chance(0.25) else "human"
        who = _subject(draft, kind, 0)
        _verb(draft, draft.pick(words.verbs_of_subject(kind, transitive=False, saying=True)), who, PRESENT)
        draft.write("that", "que")
        _clause(draft, tense, depth, reported=True)
    else:
        kind = draft.pick(("human", "human", "human", "human", "animal", "organisation"))
        _predicate(draft, kind, _subject(draft, kind, depth, tense), tense, depth)


def _next_clause(draft: Draft, depth: int) -> None:
    """Write a conjunction and a clause."""
    english, french = draft.pick(words.PHRASES["conjunction"])
    if english in ("and", "but"):
        draft.write(",")
    draft.write(english, french)
    _clause(draft, _tense(draft), depth)


def _chain(draft: Draft, limit: int) -> None:
    """Join clauses until the longer side has nearly `limit` tokens."""
    _clause(draft, _tense(draft), 1)
    for _ in range(_TRIES):
        before = len(draft.source), len(draft.target)
        _next_clause(draft, 1)
        if draft.length() >= limit:
            draft.cut(*before)
