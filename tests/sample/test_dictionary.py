"""The lexicon: no English form stands for two French words, and inflection is as in the grammar books."""

from collections import defaultdict
from random import Random

import pytest
from nmtalign.sample.adjectives import ADJECTIVES
from nmtalign.sample.names import surname, town
from nmtalign.sample.nouns import NOUNS
from nmtalign.sample.verbs import ABOUT_NOUN, VERBS
from nmtalign.sample.words import starts_with_vowel


def test_an_english_form_has_one_french_counterpart() -> None:
    nouns = [word.english[0] for word in NOUNS] + [word.english[1] for word in NOUNS]
    assert len(set(nouns)) == len(nouns)
    assert len({word.english for word in ADJECTIVES}) == len(ADJECTIVES)
    forms = defaultdict(set)
    for verb in VERBS:
        for form in (verb.base, verb.third, verb.past):
            forms[form, verb.particle].add(verb.infinitive)
    assert [form for form, meanings in forms.items() if len(meanings) > 1] == []


def test_the_english_past_is_never_like_the_present() -> None:
    assert [verb.base for verb in VERBS if verb.past in (verb.base, verb.third)] == []


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("manger", "mange mange mangeons mangent mangeait mangera mangées"),
        ("annoncer", "annonce annonce annonçons annoncent annonçait annoncera annoncées"),
        ("nettoyer", "nettoie nettoie nettoyons nettoient nettoyait nettoiera nettoyées"),
        ("voir", "vois voit voyons voient voyait verra vues"),
        ("étudier", "étudie étudie étudions étudient étudiait étudiera étudiées"),
    ],
)
def test_conjugation(infinitive: str, forms: str) -> None:
    verb = next(verb for verb in VERBS if verb.infinitive == infinitive)
    assert " ".join((*verb.present, verb.imperfect[1], verb.future[1], verb.participle[3])) == forms


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("old", "vieux vieux vieille vieilles vieil"),
        ("European", "européen européens européenne européennes européen"),
        ("social", "social sociaux sociale sociales social"),
        ("cultural", "culturel culturels culturelle culturelles culturel"),
        ("happy", "heureux heureux heureuse heureuses heureux"),
        ("proud", "fier fiers fière fières fier"),
    ],
)
def test_adjective_forms(english: str, forms: str) -> None:
    assert " ".join(next(word.forms for word in ADJECTIVES if word.english == english)) == forms


def test_every_noun_can_be_spoken_of() -> None:
    assert [noun.english[0] for noun, verbs in ABOUT_NOUN.items() if len(verbs) < 2] == []


def test_h_is_mute_or_aspirated() -> None:
    assert [starts_with_vowel(word) for word in ("homme", "héros", "hôtel", "huit", "école", "maison")] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]


def test_names_are_safe_before_any_word() -> None:
    generator = Random(7)
    ordinary = {form.capitalize() for noun in NOUNS for form in noun.english + noun.french}
    for draw in (surname, town):
        names = {draw(generator.random, generator.getrandbits) for _ in range(3000)}
        assert len(names) > 1500
        assert not names & ordinary
        assert all(name[0] not in "AEIOUYHÉ" and name.isalpha() and name[-1] not in "sxz" for name in names)
