"""Noun phrases: determiners, adjectives on their French side of the noun, compounds, names, contractions."""

from collections.abc import Sequence
from dataclasses import dataclass

from nmtalign.sample.dictionary import (
    BEFORE,
    BEFORE_VOWEL,
    COLOURS,
    DOMAINS,
    NAMES,
    PHRASES,
    QUALITIES,
    SCOPES,
    TAGGED,
    THIRD_PLURAL,
    THIRD_SINGULAR,
    Adjective,
    Noun,
    Phrase,
    starts_with_vowel,
)
from nmtalign.sample.draft import Agreement, Draft, Places


@dataclass(frozen=True, slots=True)
class Preposition:
    """English words, French words, and behind them `de` or `à`, which contracts with the article (or nothing)."""

    english: tuple[str, ...]
    french: tuple[str, ...]
    link: str


NO_PREPOSITION = Preposition((), (), "")
OF = Preposition(("of",), (), "de")
TO = Preposition(("to",), (), "à")
BY = Preposition(("by",), ("par",), "")
IN = Preposition(("in",), ("dans",), "")
THAN = Preposition(("than",), ("que",), "")
UNSAID_TO = Preposition((), (), "à")  # `answers the man`, `répond à l'homme`
WITH = (Preposition(("with",), ("avec",), ""), Preposition(("without",), ("sans",), ""))
AROUND = (
    Preposition(("near",), ("près",), "de"),
    Preposition(("behind",), ("derrière",), ""),
    Preposition(("in", "front", "of"), ("devant",), ""),
    Preposition(("far", "from"), ("loin",), "de"),
    Preposition(("opposite",), ("en", "face"), "de"),
    IN,
)

_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_POSSESSIVES = {  # before masculine, feminine and plural nouns
    "my": ("mon", "ma", "mes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
_NUMBERS = {phrase.english[0]: phrase.french for phrase in PHRASES["number"]}
_INVARIABLE = {"several": ("plusieurs",), "many": ("beaucoup", "de"), "each": ("chaque",), **_NUMBERS}
_ONE = ("the",) * 14 + ("a",) * 7 + ("this",) * 2 + (*_POSSESSIVES, "each")
_ONE_DENIED = ("the",) * 7 + ("a",) * 5 + ("this", *_POSSESSIVES)
_SEVERAL = ("bare",) * 4 + ("all",) * 2 + ("several", "many", "two", "three", *_NUMBERS)
_MANY = ("the",) * 12 + ("these",) * 2 + (*_POSSESSIVES, *_SEVERAL)
_MANY_DENIED = ("the",) * 7 + ("bare",) * 4 + ("these", *_POSSESSIVES)
_ENGLISH = {"generic": (), "bare": (), "all": ("all", "the")}  # other determiners are their own English word
_SOUNDS_A = frozenset(("European", "useful", "university", "union"))
_SOUNDS_AN = frozenset(("honest",))
_TITLED = ("king", "queen", "captain", "judge", "princess")
_TITLES = tuple(noun for noun in TAGGED["human"] if noun.english[0] in _TITLED)
_GIVEN = (*NAMES["men"], *NAMES["women"])


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun with its adjectives: `before` in both languages, `behind` in English order (French reverses it)."""

    noun: Noun
    plural: bool = False
    before: Adjective | None = None
    behind: tuple[Adjective, ...] = ()
    joined: bool = False  # the last two of `behind` are joined by `and`, which keeps their order
    complement: Phrase | None = None  # `stone bridge`, `pont de pierre`

    @property
    def agreement(self) -> Agreement:
        """What verbs and adjectives agree with."""
        return Agreement(THIRD_PLURAL if self.plural else THIRD_SINGULAR, self.noun.feminine, self.plural)

    def french_before(self) -> str:
        """The adjective before the French noun in its form, or ""."""
        if self.before is None:
            return ""
        if not self.plural and not self.noun.feminine and starts_with_vowel(self.noun.french[0]):
            return self.before.forms[BEFORE_VOWEL]
        return self.before.forms[self.agreement.form]

    def first_english_word(self) -> str:
        """The word behind the determiner."""
        if self.before or self.behind:
            return (self.before or self.behind[0]).english
        return self.complement.english[0] if self.complement else self.noun.english[0]


def decorate(draft: Draft, noun: Noun, plural: bool, richness: float) -> Nominal:
    """Give a noun some adjectives; `richness` is the probability that it gets any."""
    if not draft.chance(richness):
        return Nominal(noun, plural)
    kind = noun.kind
    before = draft.pick(BEFORE[kind]) if BEFORE[kind] and draft.chance(0.45) else None
    behind: list[Adjective] = []
    joined = False
    if COLOURS[kind] and draft.chance(0.4):
        behind.append(draft.pick(COLOURS[kind]))
    if SCOPES[kind] and draft.chance(0.5 if kind in ("organisation", "document") else 0.15):
        behind.append(draft.pick(SCOPES[kind]))
    complement = _complement(draft, noun)
    if DOMAINS[kind] and complement is None and draft.chance(0.6):
        first, second = draft.pick(DOMAINS[kind]), draft.pick(DOMAINS[kind])
        joined = first is not second and draft.chance(0.1)
        behind.extend((first, second) if joined else (first,))
    if QUALITIES[kind] and draft.chance(0.15 if behind else 0.5):
        behind.insert(0, draft.pick(QUALITIES[kind]))
    return Nominal(noun, plural, before, tuple(behind), joined, complement)


def _complement(draft: Draft, noun: Noun) -> Phrase | None:
    for tag in ("material", "purpose"):
        if tag in noun.tags and draft.chance(0.4):
            return draft.pick(PHRASES[tag])
    return None


def write_nominal(
    draft: Draft, nominal: Nominal, determiner: str, preposition: Preposition = NO_PREPOSITION, denied: bool = False
) -> Agreement:
    """Write `[preposition] determiner adjectives noun` in both languages; `denied`: it is the object of `pas`."""
    of_preposition = draft.say(*preposition.english)
    if determiner == "a":
        of_determiner = draft.say(_indefinite_article(nominal.first_english_word()))
    else:
        of_determiner = draft.say(*_ENGLISH.get(determiner, (determiner,)))
    origins = _say_nominal(draft, nominal)
    _put_preposition(draft, preposition, of_preposition)
    _put_determiner(draft, determiner, of_determiner, nominal, preposition.link, of_preposition, denied)
    _put_nominal(draft, nominal, *origins)
    return nominal.agreement


def _indefinite_article(following: str) -> str:
    if following in _SOUNDS_A:
        return "a"
    return "an" if following[0] in "aeiouAEIOU" or following in _SOUNDS_AN else "a"


def _say_nominal(draft: Draft, nominal: Nominal) -> tuple[Places, list[Places], Places, Places, Places]:
    """Say the English words; return the places of the adjective before, those behind, `and`, complement and noun."""
    before = draft.say(nominal.before.english if nominal.before else "")
    behind: list[Places] = []
    conjunction: Places = ()
    for rank, adjective in enumerate(nominal.behind):
        if nominal.joined and rank == len(nominal.behind) - 1:
            conjunction = draft.say("and")
        behind.append(draft.say(adjective.english))
    complement = draft.say(*nominal.complement.english) if nominal.complement else ()
    return before, behind, conjunction, complement, draft.say(nominal.noun.english[nominal.plural])


def _put_preposition(draft: Draft, preposition: Preposition, origin: Places) -> None:
    for word in preposition.french:
        draft.put(word, origin)


def _put_determiner(
    draft: Draft, determiner: str, said: Places, nominal: Nominal, link: str, of_link: Places, denied: bool = False
) -> None:
    """Put the French determiner, which renders the English words `said`, and `de` or `à` before it."""
    before = nominal.french_before()
    vowel = starts_with_vowel(before or nominal.noun.french[nominal.plural])
    feminine, plural = nominal.noun.feminine, nominal.plural
    article = "les" if plural else "la" if feminine else "le"
    if determiner in ("the", "generic"):
        _put_article(draft, article, said, link, of_link, vowel)
    elif determiner == "some":
        _put_article(draft, article, said, "de", said, vowel)
    elif denied and determiner in ("a", "bare"):
        draft.put("de", said)
    elif determiner == "bare" and link == "de":
        draft.put("de", of_link)
    else:
        if link:
            draft.put(link, of_link)
        if determiner == "bare":
            draft.put("de" if before else "des")
        elif determiner == "all":
            draft.put("toutes" if feminine else "tous", said[:1])
            draft.put("les", said[1:])
        else:
            for word in _determiner(determiner, feminine, plural, vowel):
                draft.put(word, said)


def _put_article(draft: Draft, article: str, said: Places, link: str, of_link: Places, vowel: bool) -> None:
    contracted = _CONTRACTED.get((link, article))
    if contracted and not (vowel and article == "le"):
        draft.put(contracted, of_link if of_link == said else of_link + said)
        return
    if link:
        draft.put(link, of_link)
    draft.put(article, said)


def _determiner(determiner: str, feminine: bool, plural: bool, vowel: bool) -> Sequence[str]:
    """The French words of a determiner that no preposition changes."""
    if determiner == "a":
        return ("une",) if feminine else ("un",)
    if determiner in _POSSESSIVES:
        before_masculine, before_feminine, before_plural = _POSSESSIVES[determiner]
        return (before_plural if plural else before_feminine if feminine and not vowel else before_masculine,)
    if determiner in ("this", "these"):
        return ("ces" if plural else "cette" if feminine else "cet" if vowel else "ce",)
    return _INVARIABLE[determiner]


def _put_nominal(
    draft: Draft,
    nominal: Nominal,
    of_before: Places,
    of_behind: list[Places],
    of_conjunction: Places,
    of_complement: Places,
    of_noun: Places,
) -> None:
    if nominal.before:
        draft.put(nominal.french_before(), of_before)
    draft.put(nominal.noun.french[nominal.plural], of_noun)
    if nominal.complement:
        draft.put("de")
        draft.put(nominal.complement.french[0], of_complement)
    form = nominal.agreement.form
    written = [(adjective.forms[form], origin) for adjective, origin in zip(nominal.behind, of_behind, strict=True)]
    if nominal.joined:
        draft.target.extend((written[-2], ("et", of_conjunction), written[-1]))
        del written[-2:]
    draft.target.extend(reversed(written))


def draw_determiner(draft: Draft, plural: bool, denied: bool = False) -> str:
    """Draw a determiner that fits the number; an object of `pas` takes the plainer ones."""
    if plural:
        return draft.pick(_MANY_DENIED if denied else _MANY)
    return draft.pick(_ONE_DENIED if denied else _ONE)


def write_idea(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write an abstract noun, which has an article in French only: `freedom`, `la liberté`."""
    noun = draft.pick(TAGGED["abstract"])
    scoped = noun.english[0] in ("music", "science", "poetry") and draft.chance(0.4)
    scope = (draft.pick(SCOPES["abstract"]),) if scoped else ()
    return write_nominal(draft, Nominal(noun, behind=scope), "generic", preposition)


def write_person(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write a person's name."""
    origin = draft.say(*preposition.english)
    _put_preposition(draft, preposition, origin)
    if preposition.link:
        draft.put(preposition.link, origin)
    given = draft.pick(_GIVEN)
    draft.write(given)
    if draft.chance(0.75):
        draft.write(draw_name(draft, "surname_endings"))
    return Agreement(THIRD_SINGULAR, given in NAMES["women"], False)


def write_title(draft: Draft) -> Agreement:
    """Write a title and a name, with an article in French only: `King Velorin`, `le roi Velorin`."""
    noun = draft.pick(_TITLES)
    title = draft.say(noun.english[0].capitalize())
    draft.put("la" if noun.feminine else "le")
    draft.put(noun.french[0], title)
    draft.write(draw_name(draft, "surname_endings"))
    return Agreement(THIRD_SINGULAR, noun.feminine, False)


def write_owned(draft: Draft, nominal: Nominal, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write `Marie's black cat`, `le chat noir de Marie`."""
    of_preposition = draft.say(*preposition.english)
    name = draft.pick(_GIVEN)
    of_name, of_mark = draft.say(name), draft.say("'s")
    origins = _say_nominal(draft, nominal)
    _put_preposition(draft, preposition, of_preposition)
    _put_determiner(draft, "generic", (), nominal, preposition.link, of_preposition)
    _put_nominal(draft, nominal, *origins)
    draft.put("de", of_mark)
    draft.put(name, of_name)
    return nominal.agreement


_FREQUENT_OCTAVES, _OCTAVES = 3, 20  # ranks below 2^3 are left out: those names would be as frequent as nouns


def draw_name(draft: Draft, endings: str) -> str:
    """Draw a family name (`surname_endings`) or the name of a town (`town_endings`).

    The name of rank r comes up about as often as 1/r, over a million ranks: the longer the text, the more new names,
    which a shortlist of frequent words must leave out. Names start with a consonant and never end in `s`, so they
    change neither the words before them nor their own form.
    """
    octave = _FREQUENT_OCTAVES + int(draft.random() * (_OCTAVES - _FREQUENT_OCTAVES))
    rank = (1 << octave) | draft.bits(octave)
    # An odd factor spreads neighbouring ranks over the syllables, and no two ranks get the same number.
    number = (rank * 668265263 + 374761393) % (1 << _OCTAVES)
    return (
        NAMES["starts"][number & 15]
        + "aeio"[number >> 4 & 3]
        + NAMES["middles"][number >> 6 & 15]
        + "aeou"[number >> 10 & 3]
        + NAMES["middles"][number >> 12 & 15]
        + NAMES[endings][number >> 16 & 15]
    )


def write_town(draft: Draft) -> None:
    """Write `in Maronville`, `à Maronville`."""
    draft.write("in", "à")
    draft.write(draw_name(draft, "town_endings"))
