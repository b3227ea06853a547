"""The adjectives: one line each, `english[/comparative] french place kinds`.

The French field is `masculine[/feminine[/masculine plural[/masculine before a vowel]]]`; what is left out is regular.
"""

from nmtalign.sample.words import Adjective

_TABLE = """
small/smaller petit P haptd
big/bigger grand P aptod
beautiful beau/belle/beaux/bel P hapt
new/newer nouveau/nouvelle/nouveaux/nouvel P ptod
old/older vieux/vieille/vieux/vieil P hapto
young/younger jeune P ha
good bon/bonne P hd
bad mauvais P hd
long/longer long/longue P d
pretty/prettier joli P apt
important important Q odb
difficult difficile Q db
useful utile Q tdb
necessary nécessaire Q db
dangerous dangereux Q apdb
rare/rarer rare Q atb
precious précieux Q tb
modern moderne Q pto
expensive cher Q t
tired fatigué Q h
happy/happier heureux Q h
sad/sadder triste Q h
rich/richer riche Q ho
intelligent intelligent Q ha
honest honnête Q h
famous célèbre Q hpo
curious curieux Q ha
generous généreux Q h
polite poli Q h
brave/braver courageux Q h
strange/stranger étrange Q hapt
proud/prouder fier Q h
jealous jaloux/jalouse Q h
lazy/lazier paresseux Q ha
heavy/heavier lourd Q t
light/lighter léger Q t
empty/emptier vide Q pt
clean/cleaner propre Q pt
dirty/dirtier sale Q pta
sick malade Q ha
quiet/quieter tranquille Q pha
powerful puissant Q ho
independent indépendant Q o
ambitious ambitieux Q hod
complex complexe Q d
effective efficace Q od
red rouge C t
green vert C t
black noir C ta
white blanc/blanche C ta
blue bleu C t
yellow jaune C t
grey gris C ta
European européen S od
French français S hodb
German allemand S hodb
Italian italien S hodb
Spanish espagnol S hodb
American américain S hodb
African africain S od
national national S od
international international S od
regional régional S od
local local S od
federal fédéral S od
economic économique D od
social social D od
political politique D od
financial financier D od
legal juridique D od
military militaire D od
industrial industriel D od
scientific scientifique D od
cultural culturel D od
agricultural agricole D od
commercial commercial D od
medical médical D od
technical technique D od
monetary monétaire D od
"""

_FEMININES = (("eux", "euse"), ("ien", "ienne"), ("éen", "éenne"), ("el", "elle"), ("er", "ère"), ("e", "e"))


def _feminine(masculine: str) -> str:
    for ending, feminine in _FEMININES:
        if masculine.endswith(ending):
            return masculine.removesuffix(ending) + feminine
    return masculine + "e"


def _masculine_plural(masculine: str) -> str:
    if masculine.endswith(("s", "x")):
        return masculine
    return masculine.removesuffix("al") + "aux" if masculine.endswith("al") else masculine + "s"


def _adjective(line: str) -> Adjective:
    english, french, place, kinds = line.split()
    word, _, comparative = english.partition("/")
    given = [*french.split("/"), "", "", ""]
    masculine, feminine = given[0], given[1] or _feminine(given[0])
    forms = (
        masculine,
        given[2] or _masculine_plural(masculine),
        feminine,
        feminine + "s",
        given[3] or masculine,
    )
    return Adjective(word, comparative, forms, place, kinds)


ADJECTIVES: tuple[Adjective, ...] = tuple(_adjective(line) for line in _TABLE.strip().splitlines())


def _pools(places: str) -> dict[str, tuple[Adjective, ...]]:
    return {
        kind: tuple(word for word in ADJECTIVES if word.place in places and kind in word.kinds) for kind in "haptodbf"
    }


BEFORE = _pools("P")
QUALITIES = _pools("Q")
COLOURS = _pools("C")
SCOPES = _pools("S")
DOMAINS = _pools("D")
PREDICATES = _pools("PQ")
"""Kind of noun -> the adjectives that can be said of it with `is`."""
