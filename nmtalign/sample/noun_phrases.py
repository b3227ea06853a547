"""Noun phrases: determiners, adjectives on their French side of the noun, compounds, names, contractions."""

from dataclasses import dataclass
from typing import NamedTuple

from nmtalign.sample import dictionary
from nmtalign.sample.dictionary import NAMES, PHRASES, TAGGED, Adjective, Agreement, Noun, Phrase
from nmtalign.sample.draft import Draft, Places


class Preposition(NamedTuple):
    """English words, French words, and behind them `de` or `à`, which contracts with the article (or nothing)."""

    english: str = ""
    french: str = ""
    link: str = ""


NO_PREPOSITION = Preposition()
OF, TO, IN = Preposition("of", "", "de"), Preposition("to", "", "à"), Preposition("in", "dans")
BY, THAN = Preposition("by", "par"), Preposition("than", "que")
UNSAID_TO = Preposition("", "", "à")  # `answers the man`, `répond à l'homme`
WITH = (Preposition("with", "avec"), Preposition("without", "sans"))
AROUND = (
    Preposition("near", "près", "de"),
    Preposition("behind", "derrière"),
    Preposition("in front of", "devant"),
    Preposition("far from", "loin", "de"),
    Preposition("opposite", "en face", "de"),
    IN,
)

_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_ENGLISH = {"generic": "", "bare": "", "all": "all the"}  # other determiners are their own English word
_SOUNDS_A = frozenset(("European", "useful", "university", "union"))
_SOUNDS_AN = frozenset(("honest",))
_TITLES = [noun for noun in TAGGED["human"] if noun.english[0] in ("king", "queen", "captain", "judge", "princess")]
_GIVEN = NAMES["men"] + NAMES["women"]


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
        """The features with which verbs and adjectives agree."""
        return Agreement(
            dictionary.THIRD_PLURAL if self.plural else dictionary.THIRD_SINGULAR, self.noun.feminine, self.plural
        )

    def french_before(self) -> str:
        """The adjective before the French noun in its form, or ""."""
        if self.before is None:
            return ""
        masculine = not self.plural and not self.noun.feminine
        before_vowel = masculine and dictionary.starts_with_vowel(self.noun.french[0])
        return self.before.forms[4 if before_vowel else self.agreement.form]

    def indefinite_article(self) -> str:
        """`a` or `an`."""
        first = self.before or (self.behind[0] if self.behind else self.complement)
        word = first.english if first else self.noun.english[0]
        return "an" if word in _SOUNDS_AN or (word[0] in "aeiouAEIOU" and word not in _SOUNDS_A) else "a"


def decorate(draft: Draft, noun: Noun, plural: bool, richness: float) -> Nominal:
    """Give a noun some adjectives; `richness` is the probability that it gets any."""
    if not draft.chance(richness):
        return Nominal(noun, plural)
    colours, scopes, domains, qualities = (
        choices[noun.kind]
        for choices in (dictionary.COLOURS, dictionary.SCOPES, dictionary.DOMAINS, dictionary.QUALITIES)
    )
    preceding = dictionary.BEFORE[noun.kind]
    before = draft.pick(preceding) if preceding and draft.chance(0.45) else None
    behind: list[Adjective] = []
    joined = False
    if colours and draft.chance(0.4):
        behind.append(draft.pick(colours))
    if scopes and draft.chance(0.5 if noun.kind in ("organisation", "document") else 0.15):
        behind.append(draft.pick(scopes))
    complement = _complement(draft, noun)
    if domains and complement is None and draft.chance(0.6):
        first, second = draft.pick(domains), draft.pick(domains)
        joined = first is not second and draft.chance(0.1)
        behind += [first, second] if joined else [first]
    if qualities and draft.chance(0.15 if behind else 0.5):
        behind.insert(0, draft.pick(qualities))
    return Nominal(noun, plural, before, tuple(behind), joined, complement)


def _complement(draft: Draft, noun: Noun) -> Phrase | None:
    for tag in ("material", "purpose"):
        if tag in noun.tags and draft.chance(0.4):
            return draft.pick(PHRASES[tag])
    return None


def write_nominal(
    draft: Draft,
    nominal: Nominal,
    determiner: str,
    preposition: Preposition = NO_PREPOSITION,
    denied: bool = False,
    owner: str = "",
) -> Agreement:
    """Write `[preposition] determiner adjectives noun` in both languages; `denied`: it is the object of `pas`.

    With an `owner`, and the determiner `generic`: `Marie's black cat`, `le chat noir de Marie`.
    """
    of_preposition = draft.say(preposition.english)
    of_owner, of_mark = draft.say(owner), draft.say("'s" if owner else "")
    english = nominal.indefinite_article() if determiner == "a" else _ENGLISH.get(determiner, determiner)
    of_determiner = draft.say(english)
    words = _say_nominal(draft, nominal)
    for word in preposition.french.split():
        draft.put(word, of_preposition)
    for word, origin in (*_determiner(determiner, of_determiner, nominal, preposition, of_preposition, denied), *words):
        draft.put(word, origin)
    if owner:
        draft.put("de", of_mark)
        draft.put(owner, of_owner)
    return nominal.agreement


def _say_nominal(draft: Draft, nominal: Nominal) -> list[tuple[str, Places]]:
    """Say the adjectives, the complement and the noun in English; return the French words with their origins."""
    form, complement = nominal.agreement.form, nominal.complement
    french = [(nominal.french_before(), draft.say(nominal.before.english if nominal.before else ""))]
    behind: list[tuple[str, Places]] = []  # in French order
    for rank, adjective in enumerate(nominal.behind):
        conjunction = draft.say("and") if nominal.joined and rank == len(nominal.behind) - 1 else ()
        word = adjective.forms[form], draft.say(adjective.english)
        behind = [behind[0], ("et", conjunction), word, *behind[1:]] if conjunction else [word, *behind]
    of_complement = draft.say(complement.english if complement else "")
    french.append((nominal.noun.french[nominal.plural], draft.say(nominal.noun.english[nominal.plural])))
    if complement:
        french += [("de", ()), (complement.french, of_complement)]
    return french + behind


def _determiner(
    determiner: str, said: Places, nominal: Nominal, preposition: Preposition, of_link: Places, denied: bool
) -> list[tuple[str, Places]]:
    """The French determiner with its origin, the English words `said`, after the `de` or `à` of the preposition."""
    before, feminine, plural = nominal.french_before(), nominal.noun.feminine, nominal.plural
    vowel = dictionary.starts_with_vowel(before or nominal.noun.french[plural])
    link = [(preposition.link, of_link)]
    match determiner:
        case "some":
            return _article(nominal, vowel, said, "de", said)
        case "the" | "generic":
            return _article(nominal, vowel, said, *link[0])
        case "a" | "bare" if denied:
            return [("de", said)]
        case "bare" if preposition.link == "de":
            return link
        case "bare":
            return [*link, ("de" if before else "des", ())]
        case "all":
            return [*link, ("toutes" if feminine else "tous", said[:1]), ("les", said[1:])]
        case _:
            forms = dictionary.DETERMINERS[determiner]
            form = forms[0] if len(forms) == 1 else forms[4 if plural else feminine + 2 * vowel]
            return link + [(word, said) for word in form.split()]


def _article(nominal: Nominal, vowel: bool, said: Places, link: str, of_link: Places) -> list[tuple[str, Places]]:
    """`le`, `la` or `les`, contracted with `de` or `à`."""
    article = "les" if nominal.plural else "la" if nominal.noun.feminine else "le"
    contracted = _CONTRACTED.get((link, article))
    if contracted and not (vowel and article == "le"):
        return [(contracted, of_link if of_link == said else of_link + said)]
    return [(link, of_link), (article, said)]


def draw_determiner(draft: Draft, plural: bool, denied: bool = False) -> str:
    """Draw a determiner that fits the number; an object of `pas` takes the plainer ones."""
    return draft.pick(dictionary.DRAWN_DETERMINERS[2 * plural + denied])


def write_owned(draft: Draft, nominal: Nominal, preposition: Preposition) -> Agreement:
    """Write a noun phrase with the name of its owner."""
    return write_nominal(draft, nominal, "generic", preposition, owner=draft.pick(_GIVEN))


def write_idea(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write an abstract noun, which has an article in French only: `freedom`, `la liberté`."""
    noun = draft.pick(TAGGED["abstract"])
    scoped = noun.english[0] in ("music", "science", "poetry") and draft.chance(0.4)
    scope = (draft.pick(dictionary.SCOPES["abstract"]),) if scoped else ()
    return write_nominal(draft, Nominal(noun, behind=scope), "generic", preposition)


def write_person(draft: Draft, preposition: Preposition = NO_PREPOSITION) -> Agreement:
    """Write a person's name."""
    draft.write(preposition.english, f"{preposition.french} {preposition.link}")
    given = draft.pick(_GIVEN)
    draft.write(given)
    if draft.chance(0.75):
        draft.write(draw_name(draft, "surname_endings"))
    return Agreement(dictionary.THIRD_SINGULAR, given in NAMES["women"], False)


def write_title(draft: Draft) -> Agreement:
    """Write a title and a name, with an article in French only: `King Velorin`, `le roi Velorin`."""
    noun = draft.pick(_TITLES)
    draft.put("la" if noun.feminine else "le")
    draft.write(noun.english[0].capitalize(), noun.french[0])
    draft.write(draw_name(draft, "surname_endings"))
    return Agreement(dictionary.THIRD_SINGULAR, noun.feminine, False)


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
    starts, middles = NAMES["starts"], NAMES["middles"]
    syllables = starts[number & 15], "aeio"[number >> 4 & 3], middles[number >> 6 & 15], "aeou"[number >> 10 & 3]
    return "".join(syllables) + middles[number >> 12 & 15] + NAMES[endings][number >> 16 & 15]


def write_town(draft: Draft) -> None:
    """Write `in Maronville`, `à Maronville`."""
    draft.write("in", "à")
    draft.write(draw_name(draft, "town_endings"))
