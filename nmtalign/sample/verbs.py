"""The verbs: one line each, `english french past subjects objects flags`, and the French verbs that are irregular."""

from dataclasses import replace

from nmtalign.sample.nouns import tagged
from nmtalign.sample.words import Verb

# english: base[/third/past/participle][+particle]; past: a avoir, e être, i imparfait; a leading `se-` is reflexive.
# subjects: kinds of noun that do it; objects: tags of the nouns it is done to, `-` for none.
# flags: n also of names, t its French object takes `à`, s so does the English one (its particle `to`),
# d something is given to somebody, x always so, m one moves somewhere, q a clause is said, - none.
_TABLE = """
see/sees/saw/seen voir a ha haptd n
find/finds/found/found trouver a ha ht n
buy/buys/bought/bought acheter a h tfc -
sell/sells/sold/sold vendre a h tfc d
carry porter a h t -
lose/loses/lost/lost perdre a h t -
forget/forgets/forgot/forgotten oublier a h thd n
hide/hides/hid/hidden cacher a h t -
choose/chooses/chose/chosen choisir a ho tv -
look+at regarder a ha htap n
look+for chercher a ha hta n
wait+for attendre a ha h n
listen+to écouter a ha h n
know/knows/knew/known connaître i h hp n
like aimer i h haptb n
admire admirer i h hpb n
help aider a h h n
follow suivre a ha ha n
meet/meets/met/met rencontrer a h h n
visit visiter a h p -
invite inviter a ho h n
thank remercier a h h n
protect protéger a ho hapb n
paint peindre a h hap -
clean nettoyer a h tc -
open ouvrir a h k -
close fermer a h k -
write/writes/wrote/written écrire a h w -
eat/eats/ate/eaten manger a h e -
drink/drinks/drank/drunk boire a h l -
build/builds/built/built construire a h c -
repair réparer a h t -
describe décrire a h hptd n
call appeler a h h n
steal/steals/stole/stolen voler a h t -
prepare préparer a ho v -
chase chasser a a a -
fear craindre i a ha n
adopt adopter a o v -
reject rejeter a o v -
support soutenir a o ov n
approve approuver a o v -
examine examiner a o d -
finance financer a o ov -
publish publier a o w -
propose proposer a o v -
defend défendre a ho ovb n
criticise critiquer a ho ovh n
accept accepter a o v -
sign signer a h w -
modify modifier a o v -
present présenter a o v -
study/studies/studied/studied étudier a ho db -
refuse refuser a o v -
condemn condamner a o oh n
give/gives/gave/given donner a h t dx
show/shows/showed/shown montrer a h t dx
send/sends/sent/sent envoyer a h t dx
lend/lends/lent/lent prêter a h t dx
offer offrir a h t dx
bring/brings/brought/brought apporter a h t dx
answer répondre a h h nt
obey obéir a ha h nt
phone téléphoner a h h nt
speak/speaks/spoke/spoken+to parler a h h nts
sleep/sleeps/slept/slept dormir a ha - -
work travailler a ho - -
sing/sings/sang/sung chanter a ha - -
dance danser a h - -
laugh rire a h - -
cry pleurer a h - -
walk marcher a ha - -
swim/swims/swam/swum nager a ha - -
dream/dreams/dreamed/dreamed rêver a h - -
travel/travels/travelled/travelled voyager a h - -
smile sourire a h - -
shout crier a h - -
play jouer a ha - -
fall/falls/fell/fallen tomber e ha - -
arrive arriver e ha - -
come/comes/came/come+back revenir e ha - -
stay rester e ha - -
disappear disparaître a hao - -
wake/wakes/woke/woken+up se-réveiller e ha - -
rest se-reposer e ha - -
stop/stops/stopped/stopped se-arrêter e ha - -
go/goes/went/gone aller e h - m
return retourner e h - m
say/says/said/said dire a ho - q
think/thinks/thought/thought penser i h - q
believe croire i h - q
hope espérer i h - q
understand/understands/understood/understood comprendre a h - q
announce annoncer a ho - q
explain expliquer a ho - q
"""

# infinitive: present je, il, nous, ils; past participle; future stem.
_IRREGULAR = """
voir vois voit voyons voient vu verr
acheter achète achète achetons achètent acheté achèter
vendre vends vend vendons vendent vendu vendr
perdre perds perd perdons perdent perdu perdr
choisir choisis choisit choisissons choisissent choisi choisir
attendre attends attend attendons attendent attendu attendr
connaître connais connaît connaissons connaissent connu connaîtr
suivre suis suit suivons suivent suivi suivr
protéger protège protège protégeons protègent protégé protéger
peindre peins peint peignons peignent peint peindr
nettoyer nettoie nettoie nettoyons nettoient nettoyé nettoier
ouvrir ouvre ouvre ouvrons ouvrent ouvert ouvrir
écrire écris écrit écrivons écrivent écrit écrir
boire bois boit buvons boivent bu boir
construire construis construit construisons construisent construit construir
décrire décris décrit décrivons décrivent décrit décrir
appeler appelle appelle appelons appellent appelé appeller
craindre crains craint craignons craignent craint craindr
rejeter rejette rejette rejetons rejettent rejeté rejetter
soutenir soutiens soutient soutenons soutiennent soutenu soutiendr
défendre défends défend défendons défendent défendu défendr
envoyer envoie envoie envoyons envoient envoyé enverr
offrir offre offre offrons offrent offert offrir
répondre réponds répond répondons répondent répondu répondr
obéir obéis obéit obéissons obéissent obéi obéir
dormir dors dort dormons dorment dormi dormir
rire ris rit rions rient ri rir
sourire souris sourit sourions sourient souri sourir
revenir reviens revient revenons reviennent revenu reviendr
disparaître disparais disparaît disparaissons disparaissent disparu disparaîtr
aller vais va allons vont allé ir
dire dis dit disons disent dit dir
croire crois croit croyons croient cru croir
espérer espère espère espérons espèrent espéré espérer
comprendre comprends comprend comprenons comprennent compris comprendr
pouvoir peux peut pouvons peuvent pu pourr
devoir dois doit devons doivent dû devr
vouloir veux veut voulons veulent voulu voudr
"""

_BY_INFINITIVE = {line.split()[0]: line.split()[1:] for line in _IRREGULAR.strip().splitlines()}
_PAST = {"a": "avoir", "e": "être", "i": "imparfait"}


def _regular(infinitive: str) -> list[str]:
    """The written forms of a regular verb in -er, in the order of the irregular table."""
    stem = infinitive.removesuffix("er")
    soft = {"g": stem + "e", "c": stem.removesuffix("c") + "ç"}.get(stem[-1], stem)
    return [stem + "e", stem + "e", soft + "ons", stem + "ent", stem + "é", infinitive]


def _participle(masculine: str) -> tuple[str, str, str, str]:
    plural = masculine if masculine.endswith("s") else masculine + "s"
    return masculine, plural, masculine + "e", masculine + "es"


def _english(field: str) -> tuple[str, str, str, str]:
    """Base, third person, past and participle; only what is irregular is written in the table."""
    if "/" in field:
        base, third, past, participle = field.split("/")
        return base, third, past, participle
    if field.endswith("y") and field[-2] not in "aeiou":
        return field, field[:-1] + "ies", field[:-1] + "ied", field[:-1] + "ied"
    third = field + ("es" if field.endswith(("sh", "ch", "s", "x")) else "s")
    past = field + ("d" if field.endswith("e") else "ed")
    return field, third, past, past


def _verb(line: str) -> Verb:
    english, french, past, subjects, objects, flags = line.split()
    words, _, particle = english.partition("+")
    infinitive = french.removeprefix("se-")
    first, third, plural, they, participle, future = _BY_INFINITIVE.get(infinitive) or _regular(infinitive)
    stem = plural.removesuffix("ons")
    return Verb(
        *_english(words),
        particle=particle,
        infinitive=infinitive,
        present=(first, third, plural, they),
        imperfect=(stem + "ais", stem + "ait", stem + "ions", stem + "aient"),
        future=(future + "ai", future + "a", future + "ons", future + "ont"),
        participle=_participle(participle),
        past_by=_PAST[past],
        reflexive=infinitive != french,
        objects=tagged(objects.replace("-", "")),
        subjects=subjects,
        flags=flags,
    )


VERBS: tuple[Verb, ...] = tuple(_verb(line) for line in _TABLE.strip().splitlines())


def _subset(kind: str, flag: str, transitive: bool) -> tuple[Verb, ...]:
    return tuple(
        verb for verb in VERBS if kind in verb.subjects and flag in verb.flags and bool(verb.objects) == transitive
    )


TRANSITIVE = {kind: tuple(verb for verb in _subset(kind, "", True) if "x" not in verb.flags) for kind in "hao"}
INTRANSITIVE = {kind: tuple(verb for verb in _subset(kind, "", False) if verb.flags == "-") for kind in "hao"}
WITHOUT_PARTICLE = {verb: replace(verb, particle="") for verb in VERBS if "s" in verb.flags}
"""`speak to` -> `speak`, for a noun behind it, which brings its own `to`."""
GIVING = _subset("h", "d", True)
GOING = _subset("h", "m", False)
SAYING = {kind: _subset(kind, "q", False) for kind in "ho"}
ABOUT_NOUN = {
    noun: tuple(
        verb for verb in VERBS if noun in verb.objects and not set("tx") & set(verb.flags) and verb.subjects != "a"
    )
    for noun in tagged("haptod")
}
"""Noun -> the verbs whose object it may be, for `the house that the man sees` and for the passive."""

MODALS: tuple[Verb, ...] = tuple(
    _verb(line)
    for line in (
        "can/can/could/- pouvoir i h - -",
        "must/must/must/- devoir i h - -",
        "want/wants/wanted/wanted+to vouloir i h - -",
    )
)

BE = (("am", "is", "are", "are"), ("was", "was", "were", "were"))
ETRE = (
    ("suis", "est", "sommes", "sont"),
    ("étais", "était", "étions", "étaient"),
    ("serai", "sera", "serons", "seront"),
)
AVOIR = ("ai", "a", "avons", "ont")
