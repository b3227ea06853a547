"""The dictionary: no English form has two French translations, and no word can break the grammar."""

from collections import defaultdict

import pytest

from nmtalign.sample.dictionary import ADJECTIVES, NOUNS, VERBS, VERBS_OF_OBJECT, starts_with_vowel
from nmtalign.sample.draft import Draft
from nmtalign.sample.noun_phrases import draw_name


def test_an_english_form_has_one_translation() -> None:
    nouns = [form for word in NOUNS for form in word.english if form]
    assert len(set(nouns)) == len(nouns)
    assert len({word.english for word in ADJECTIVES}) == len(ADJECTIVES)
    forms = defaultdict(set)
    for verb in VERBS:
        for form in (verb.base, verb.third, verb.past):
            forms[form, verb.particle].add(verb.infinitive)
    assert [form for form, meanings in forms.items() if len(meanings) > 1] == []


def test_the_english_past_differs_from_the_present() -> None:
    assert [verb.base for verb in VERBS if verb.past in (verb.base, verb.third)] == []


@pytest.mark.parametrize(
    "forms",
    [
        "mange mange mangeons mangent mangeait mangera mangées",
        "annonce annonce annonçons annoncent annonçait annoncera annoncées",
        "vois voit voyons voient voyait verra vues",
        "comprends comprend comprenons comprennent comprenait comprendra comprises",
    ],
)
def test_conjugation(forms: str) -> None:
    assert forms in {" ".join((*verb.present, verb.imperfect[1], verb.future[1], verb.participle[3])) for verb in VERBS}


def test_every_noun_is_the_object_of_two_verbs() -> None:
    assert [noun.english[0] for noun, verbs in VERBS_OF_OBJECT.items() if len(verbs) < 2] == []


def test_h_is_mute_or_aspirated() -> None:
    assert all(map(starts_with_vowel, ("homme", "hôtel", "école")))
    assert not any(map(starts_with_vowel, ("héros", "huit", "maison")))


@pytest.mark.parametrize("endings", ["surname_endings", "town_endings"])
def test_names_fit_behind_any_word(endings: str) -> None:
    draft = Draft("names")
    ordinary = {form.capitalize() for noun in NOUNS for form in noun.english + noun.french}
    names = {draw_name(draft, endings) for _ in range(3000)}
    assert len(names) > 1500
    assert not names & ordinary
    assert all(name[0] not in "AEIOUYHÉ" and name.isalpha() and name[-1] not in "sxz" for name in names)
