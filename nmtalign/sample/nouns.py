"""The nouns: one line each, `english french gender tags`; a slash parts singular and irregular plural."""

from nmtalign.sample.words import Noun

# The first tag is the kind: h human, a animal, p place, t thing, o organisation, d document or policy,
# b abstract (no plural), f food (no plural). Then: i one can be in it, g one goes to it, c somebody built it,
# e one eats it, l one drinks it, k it opens and closes, w somebody writes it, z it can be made of stone or wood,
# y it takes a purpose (`research programme`), v one votes on it.
_TABLE = """
man/men homme m h
woman/women femme f h
boy garçon m h
girl fille f h
king roi m h
queen reine f h
doctor médecin m h
nurse infirmière f h
teacher professeur m h
student étudiant m h
lawyer avocat m h
judge juge m h
farmer agriculteur m h
fisherman/fishermen pêcheur m h
baker boulanger m h
soldier soldat m h
writer écrivain m h
singer chanteuse f h
actress/actresses actrice f h
neighbour voisin m h
friend ami m h
child/children enfant m h
father père m h
mother mère f h
brother frère m h
sister sœur f h
uncle oncle m h
aunt tante f h
minister ministre m h
worker ouvrier m h
merchant marchand m h
painter peintre m h
musician musicien m h
princess/princesses princesse f h
hero/heroes héros/héros m h
traveller voyageur m h
engineer ingénieur m h
pilot pilote m h
captain capitaine m h
thief/thieves voleur m h
customer client m h
mayor maire m h
dog chien m a
cat chat m a
horse cheval/chevaux m a
bird oiseau/oiseaux m a
cow vache f a
wolf/wolves loup m a
fox/foxes renard m a
owl hibou/hiboux m a
mouse/mice souris/souris f a
bear ours/ours m a
goat chèvre f a
squirrel écureuil m a
house maison f pic
garden jardin m pi
church/churches église f pigc
school école f pigc
bridge pont m pzc
market marché m dpig
castle château/châteaux m pigc
village village m pi
town ville f pi
forest forêt f pi
river rivière f p
station gare f pigc
hospital hôpital/hôpitaux m pigc
hotel hôtel m pigc
library/libraries bibliothèque f pigc
museum musée m pigc
harbour port m pigc
factory/factories usine f pigc
farm ferme f pigc
tower tour f pizc
theatre théâtre m pigc
restaurant restaurant m pigc
beach/beaches plage f pg
book livre m tw
letter lettre f tw
poem poème m tw
table table f tz
chair chaise f tz
door porte f tkz
window fenêtre f tk
key clé f t
car voiture f t
boat bateau/bateaux m t
hat chapeau/chapeaux m t
coat manteau/manteaux m t
knife/knives couteau/couteaux m t
painting tableau/tableaux m t
newspaper journal/journaux m t
flower fleur f t
tree arbre m t
lamp lampe f t
clock horloge f t
umbrella parapluie m t
box/boxes boîte f tkz
bag sac m tk
bottle bouteille f tk
plate assiette f t
shoe chaussure f t
dress/dresses robe f t
shirt chemise f t
jewel bijou/bijoux m t
toy jouet m tz
gift cadeau/cadeaux m t
map carte f t
computer ordinateur m t
machine machine f t
axe hache f t
harp harpe f t
apple pomme f te
orange orange f te
cake gâteau/gâteaux m te
egg œuf m te
bread pain m fe
meat viande f fe
cheese fromage m fe
rice riz m fe
honey miel m fe
water eau f fl
wine vin m fl
milk lait m fl
oil huile f f
coffee café m fl
tea thé m fl
freedom liberté f b
justice justice f b
peace paix f b
love amour m b
music musique f b
history histoire f b
patience patience f b
truth vérité f b
poetry poésie f b
science science f b
courage courage m b
hatred haine f b
beauty beauté f b
wisdom sagesse f b
friendship amitié f b
nature nature f b
committee comité m o
council conseil m oy
commission commission f o
parliament parlement m o
union union f o
agency/agencies agence f oy
bank banque f o
ministry/ministries ministère m o
company/companies entreprise f o
court tribunal/tribunaux m o
university/universities université f o
association association f o
government gouvernement m o
community/communities communauté f o
report rapport m dwv
law loi f dv
agreement accord m dv
policy/policies politique f dyv
programme programme m dyv
project projet m dyv
plan plan m dyv
budget budget m dv
reform réforme f dv
treaty/treaties traité m dwv
decision décision f dv
proposal proposition f dw
area espace m d
crisis/crises crise f d
system système m d
strategy/strategies stratégie f dyv
"""


def _forms(field: str) -> tuple[str, str]:
    singular, _, plural = field.partition("/")
    return singular, plural or singular + "s"


def _noun(line: str) -> Noun:
    english, french, gender, tags = line.split()
    return Noun(_forms(english), _forms(french), gender == "f", tags)


NOUNS: tuple[Noun, ...] = tuple(_noun(line) for line in _TABLE.strip().splitlines())


def tagged(tags: str) -> tuple[Noun, ...]:
    """The nouns that carry at least one of the tags, in the order of the table."""
    return tuple(noun for noun in NOUNS if any(tag in noun.tags for tag in tags))


TAGGED: dict[str, tuple[Noun, ...]] = {tag: tagged(tag) for tag in "haptodbfigcelkwzy"}

MATERIALS: tuple[tuple[str, str], ...] = (
    ("stone", "pierre"),
    ("wooden", "bois"),
    ("iron", "fer"),
    ("gold", "or"),
    ("silver", "argent"),
)
"""`stone bridge`, `pont de pierre`."""

PURPOSES: tuple[tuple[str, str], ...] = (
    ("research", "recherche"),
    ("security", "sécurité"),
    ("health", "santé"),
    ("training", "formation"),
    ("defence", "défense"),
)
"""`research programme`, `programme de recherche`."""
