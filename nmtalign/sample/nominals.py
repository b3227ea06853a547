"""Noun phrases: determiners, adjectives on their French side of the noun, compounds, names, contractions."""

from dataclasses import dataclass
from functools import cache

from nmtalign.sample.adjectives import BEFORE, COLOURS, DOMAINS, QUALITIES, SCOPES
from nmtalign.sample.draft import Agreement, Draft
from nmtalign.sample.names import GIVEN, surname, town
from nmtalign.sample.nouns import MATERIALS, PURPOSES, TAGGED
from nmtalign.sample.words import BEFORE_VOWEL, THIRD_PLURAL, THIRD_SINGULAR, Adjective, Noun, starts_with_vowel


@dataclass(frozen=True, slots=True)
class Preposition:
    """English words, the French words before the link, and the link that contracts with the article (de, à or none)."""

    english: tuple[str, ...]
    french: tuple[str, ...]
    link: str


NO_PREPOSITION = Preposition((), (), "")
OF = Preposition(("of",), (), "de")
TO = Preposition(("to",), (), "à")
BY = Preposition(("by",), ("par",), "")
IN = Preposition(("in",), ("dans",), "")
FROM = Preposition(("from",), (), "de")
THAN = Preposition(("than",), ("que",), "")
UNSAID_TO = Preposition((), (), "à")  # `answers the man`, `répond à l'homme`
WITH = (Preposition(("with",), ("avec",), ""), Preposition(("without",), ("sans",), ""))
FOR = Preposition(("for",), ("pour",), "")
ABOUT = Preposition(("about",), ("sur",), "")
AGAINST = Preposition(("against",), ("contre",), "")
AROUND = (
    Preposition(("near",), ("près",), "de"),
    Preposition(("behind",), ("derrière",), ""),
    Preposition(("in", "front", "of"), ("devant",), ""),
    Preposition(("far", "from"), ("loin",), "de"),
    Preposition(("opposite",), ("en", "face"), "de"),
    IN,
)

_POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
_NUMBERS = {
    "two": "deux",
    "three": "trois",
    "four": "quatre",
    "five": "cinq",
    "six": "six",
    "seven": "sept",
    "eight": "huit",
    "ten": "dix",
    "eleven": "onze",
    "twelve": "douze",
}
_ONE = ("the",) * 14 + ("a",) * 7 + ("this",) * 2 + ("my", "his", "her", "our", "their", "each")
_ONE_DENIED = ("the",) * 7 + ("a",) * 5 + ("this", "my", "his", "her", "our", "their")
_SEVERAL = ("bare",) * 4 + ("all",) * 2 + ("several", "many", "two", "three", *_NUMBERS)
_MANY = ("the",) * 12 + ("these",) * 2 + ("my", "his", "her", "our", "their", *_SEVERAL)
_MANY_DENIED = ("the",) * 7 + ("bare",) * 4 + ("these", "my", "his", "her", "our", "their")
_ENGLISH: dict[str, tuple[str, ...]] = {"generic": (), "bare": (), "all": ("all", "the")}
_SOUNDS_A = frozenset(("European", "useful", "university", "union"))
_SOUNDS_AN = frozenset(("honest",))

Word = tuple[str, str]  # a French word, and whose it is: d(eterminer), e (its second word), p(reposition), both, - none


def _definite(link: str, feminine: bool, plural: bool, vowel: bool, owner: str) -> tuple[Word, ...]:
    if link and plural:
        return (({"de": "des", "à": "aux"}[link], "b" if owner == "d" else "p"),)
    if link and not feminine and not vowel:
        return (({"de": "du", "à": "au"}[link], "b" if owner == "d" else "p"),)
    article = "les" if plural else "la" if feminine else "le"
    return ((link, "p"), (article, owner)) if link else ((article, owner),)


def _partitive(feminine: bool, vowel: bool) -> tuple[Word, ...]:
    if not feminine and not vowel:
        return (("du", "d"),)
    return ("de", "d"), ("la" if feminine else "le", "d")


def _all(link: str, feminine: bool) -> tuple[Word, ...]:
    words: tuple[Word, ...] = (("toutes" if feminine else "tous", "d"), ("les", "e"))
    return ((link, "p"), *words) if link else words


def _simple(determiner: str, feminine: bool, plural: bool, vowel: bool) -> tuple[str, ...]:
    """Determiners that no preposition changes."""
    if determiner == "a":
        return ("une",) if feminine else ("un",)
    if determiner in _POSSESSIVES:
        masculine, woman, many = _POSSESSIVES[determiner]
        return (many if plural else woman if feminine and not vowel else masculine,)
    if determiner in ("this", "these"):
        return ("ces" if plural else "cette" if feminine else "cet" if vowel else "ce",)
    others = {"several": ("plusieurs",), "many": ("beaucoup", "de"), "each": ("chaque",)}
    return others.get(determiner) or (_NUMBERS[determiner],)


@cache
def french_determiner(
    determiner: str, link: str, feminine: bool, plural: bool, vowel: bool, denied: bool, adjective_first: bool
) -> tuple[Word, ...]:
    """Render a determiner (and `de` or `à` before it); `vowel` is said of the next word, `denied` of an object."""
    if determiner == "the":
        return _definite(link, feminine, plural, vowel, "d")
    if determiner == "generic":
        return _definite(link, feminine, plural, vowel, "-")
    if determiner == "some":
        return _partitive(feminine, vowel)
    if determiner == "all":
        return _all(link, feminine)
    if denied and determiner in ("a", "bare"):
        return (("de", "d" if determiner == "a" else "-"),)
    if determiner == "bare" and link == "de":
        return (("de", "p"),)
    if determiner == "bare":
        inserted = (("de" if adjective_first else "des", "-"),)
        return ((link, "p"), *inserted) if link else inserted
    words = tuple((word, "d") for word in _simple(determiner, feminine, plural, vowel))
    return ((link, "p"), *words) if link else words


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun with its adjectives: `before` in both languages, `behind` in English order (French reverses it)."""

    noun: Noun
    plural: bool
    before: Adjective | None = None
    behind: tuple[Adjective, ...] = ()
    joined: bool = False  # the last two of `behind` are joined by `and`, which keeps their order
    complement: tuple[str, str] | None = None

    @property
    def agreement(self) -> Agreement:
        """What verbs and adjectives agree with."""
        return Agreement(THIRD_PLURAL if self.plural else THIRD_SINGULAR, self.noun.feminine, self.plural)

    def french_before(self) -> str:
        """The adjective before the noun, in the form that the noun asks for."""
        if self.before is None:
            return ""
        if not self.plural and not self.noun.feminine and starts_with_vowel(self.noun.french[0]):
            return self.before.forms[BEFORE_VOWEL]
        return self.before.forms[self.agreement.form]


def decorate(draft: Draft, noun: Noun, plural: bool, richness: float) -> Nominal:
    """Give a noun some adjectives; `richness` is the chance that it gets any."""
    if not draft.chance(richness):
        return Nominal(noun, plural)
    kind = noun.kind
    before = draft.pick(BEFORE[kind]) if BEFORE[kind] and draft.chance(0.45) else None
    behind: list[Adjective] = []
    joined = False
    if COLOURS[kind] and draft.chance(0.4):
        behind.append(draft.pick(COLOURS[kind]))
    if SCOPES[kind] and draft.chance(0.5 if kind in "od" else 0.15):
        behind.append(draft.pick(SCOPES[kind]))
    complement = _complement(draft, noun)
    if DOMAINS[kind] and complement is None and draft.chance(0.6):
        first, second = draft.pick(DOMAINS[kind]), draft.pick(DOMAINS[kind])
        joined = first is not second and draft.chance(0.1)
        behind.extend((first, second) if joined else (first,))
    if QUALITIES[kind] and draft.chance(0.15 if behind else 0.5):
        behind.insert(0, draft.pick(QUALITIES[kind]))
    return Nominal(noun, plural, before, tuple(behind), joined, complement)


def _complement(draft: Draft, noun: Noun) -> tuple[str, str] | None:
    if "z" in noun.tags and draft.chance(0.4):
        return draft.pick(MATERIALS)
    if "y" in noun.tags and draft.chance(0.4):
        return draft.pick(PURPOSES)
    return None


def write_nominal(
    draft: Draft, nominal: Nominal, determiner: str, preposition: Preposition = NO_PREPOSITION, denied: bool = False
) -> Agreement:
    """Write `[preposition] determiner adjectives noun` in both languages."""
    prepositions = draft.say_all(preposition.english)
    owner = _say_determiner(draft, determiner, nominal)
    origins = _say_nominal(draft, nominal)
    draft.put_all(preposition.french, prepositions)
    before = nominal.french_before()
    vowel = starts_with_vowel(before or nominal.noun.french[nominal.plural])
    feminine, plural = nominal.noun.feminine, nominal.plural
    owners = {"-": (), "d": owner[:1], "e": owner[1:], "p": prepositions, "b": prepositions + owner[:1]}
    link = preposition.link
    for word, whose in french_determiner(determiner, link, feminine, plural, vowel, denied, bool(before)):
        draft.put(word, owners[whose])
    _put_nominal(draft, nominal, before, origins)
    return nominal.agreement


def _say_determiner(draft: Draft, determiner: str, nominal: Nominal) -> tuple[int, ...]:
    if determiner == "a":
        return (draft.say(_indefinite(nominal)),)
    return draft.say_all(_ENGLISH.get(determiner, (determiner,)))


def _indefinite(nominal: Nominal) -> str:
    adjectives = ((nominal.before,) if nominal.before else ()) + nominal.behind
    complement = nominal.complement[0] if nominal.complement else nominal.noun.english[0]
    following = adjectives[0].english if adjectives else complement
    if following in _SOUNDS_A:
        return "a"
    return "an" if following[0] in "aeiouAEIOU" or following in _SOUNDS_AN else "a"


Origin = tuple[int, ...]


def _say_nominal(draft: Draft, nominal: Nominal) -> tuple[Origin, list[Origin], Origin, Origin, Origin]:
    """Say the English words; give where stand the adjective before, those behind, `and`, the complement, the noun."""
    before = (draft.say(nominal.before.english),) if nominal.before else ()
    behind: list[Origin] = []
    conjunction: Origin = ()
    for rank, adjective in enumerate(nominal.behind):
        if nominal.joined and rank == len(nominal.behind) - 1:
            conjunction = (draft.say("and"),)
        behind.append((draft.say(adjective.english),))
    complement = (draft.say(nominal.complement[0]),) if nominal.complement else ()
    return before, behind, conjunction, complement, (draft.say(nominal.noun.english[nominal.plural]),)


def _put_nominal(
    draft: Draft, nominal: Nominal, before: str, origins: tuple[Origin, list[Origin], Origin, Origin, Origin]
) -> None:
    of_before, of_behind, of_conjunction, of_complement, of_noun = origins
    form = nominal.agreement.form
    if before:
        draft.put(before, of_before)
    draft.put(nominal.noun.french[nominal.plural], of_noun)
    if nominal.complement:
        draft.put("de")
        draft.put(nominal.complement[1], of_complement)
    written = [(adjective.forms[form], origin) for adjective, origin in zip(nominal.behind, of_behind, strict=True)]
    if nominal.joined:
        draft.target.extend((written[-2], ("et", of_conjunction), written[-1]))
        del written[-2:]
    draft.target.extend(reversed(written))


def determiner(draft: Draft, plural: bool, denied: bool = False) -> str:
    """Draw a determiner that fits the number; an object of `pas` takes the plainer ones."""
    if plural:
        return draft.pick(_MANY_DENIED if denied else _MANY)
    return draft.pick(_ONE_DENIED if denied else _ONE)


def generic(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write an idea, which has an article in French only: `freedom`, `la liberté`."""
    noun = draft.pick(TAGGED["b"])
    scope = (
        (draft.pick(SCOPES["b"]),) if noun.english[0] in ("music", "science", "poetry") and draft.chance(0.4) else ()
    )
    return write_nominal(draft, Nominal(noun, False, behind=scope), "generic", preposition)


def person(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write somebody's name."""
    prepositions = draft.say_all(preposition.english)
    draft.put_all(preposition.french, prepositions)
    if preposition.link:
        draft.put(preposition.link, prepositions)
    given, feminine = draft.pick(GIVEN)
    draft.copy(given)
    if draft.chance(0.75):
        draft.copy(surname(draft.random, draft.bits))
    return Agreement(THIRD_SINGULAR, feminine, False)


_TITLES = tuple(noun for noun in TAGGED["h"] if noun.english[0] in ("king", "queen", "captain", "judge", "princess"))


def titled(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write a title and a name, with an article in French only: `King Velorin`, `le roi Velorin`."""
    noun = draft.pick(_TITLES)
    prepositions = draft.say_all(preposition.english)
    title = draft.say(noun.english[0].capitalize())
    draft.put_all(preposition.french, prepositions)
    for word, whose in french_determiner("generic", preposition.link, noun.feminine, False, False, False, False):
        draft.put(word, prepositions if whose == "p" else ())
    draft.put(noun.french[0], (title,))
    draft.copy(surname(draft.random, draft.bits))
    return Agreement(THIRD_SINGULAR, noun.feminine, False)


def owned(draft: Draft, nominal: Nominal, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write `Marie's black cat`, `le chat noir de Marie`."""
    prepositions = draft.say_all(preposition.english)
    name = draft.pick(GIVEN)[0]
    owner, mark = draft.say(name), draft.say("'s")
    origins = _say_nominal(draft, nominal)
    draft.put_all(preposition.french, prepositions)
    before = nominal.french_before()
    vowel = starts_with_vowel(before or nominal.noun.french[nominal.plural])
    feminine, plural = nominal.noun.feminine, nominal.plural
    for word, whose in french_determiner("generic", preposition.link, feminine, plural, vowel, False, bool(before)):
        draft.put(word, prepositions if whose == "p" else ())
    _put_nominal(draft, nominal, before, origins)
    draft.put("de", (mark,))
    draft.put(name, (owner,))
    return nominal.agreement


def in_town(draft: Draft) -> None:
    """Write `in Maronville`, `à Maronville`."""
    draft.put("à", (draft.say("in"),))
    draft.copy(town(draft.random, draft.bits))
