"""The grammar: pairs are well formed, tokens are those of Moses, and links have the reorderings that models learn."""

import unicodedata
from collections import Counter
from functools import cache
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer

from nmtalign.sample.draft import Example
from nmtalign.sample.grammar import LONGEST, generate


@cache
def many_examples() -> tuple[Example, ...]:
    return tuple(islice(generate(1), 12000))


def examples() -> tuple[Example, ...]:
    return many_examples()[:3000]


def renderings(source: str) -> set[str]:
    """The target words linked to the source words of one phrase, in all examples that contain it."""
    wanted = source.split()
    found = set()
    for example in many_examples():
        if source not in example.source.lower():
            continue
        words = [word.lower() for word in example.source_tokens]
        for start in range(len(words) - len(wanted) + 1):
            if words[start : start + len(wanted)] == wanted:
                linked = {j for i, j in example.links if start <= i < start + len(wanted)}
                found.add(" ".join(example.target_tokens[j].lower() for j in sorted(linked)))
    return found


@settings(deadline=None, max_examples=40)
@given(st.integers(min_value=-(2**70), max_value=2**70))
def test_pairs_of_any_seed_are_well_formed(seed: int) -> None:
    for example in islice(generate(seed), 20):
        source, target = example.source_tokens, example.target_tokens
        assert max(len(source), len(target)) <= LONGEST
        assert min(len(example.source.split()), len(example.target.split())) >= 3
        assert list(example.links) == sorted(set(example.links))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in example.links)
        assert (len(source) - 1, len(target) - 1) in example.links
        assert source[-1] == target[-1]
        assert source[-1] in ".?"
        assert source[0][0].isupper()
        assert target[0][0].isupper()
        for text in (example.source, example.target):
            assert unicodedata.is_normalized("NFC", text)
            assert text == text.strip()
            assert "  " not in text


def test_the_same_seed_gives_the_same_pairs_and_another_does_not() -> None:
    again = tuple(islice(generate(1), 300))
    assert again == examples()[:300]
    assert len(set(again) & set(islice(generate(2), 300))) < 10


def test_parts_are_drawn_apart() -> None:
    dev, test = (set(islice(generate(1, part), 300)) for part in ("dev", "test"))
    assert len(dev & test) < 10
    assert len(dev & set(examples()[:300])) < 10


@pytest.mark.parametrize("language", ["en", "fr"])
def test_moses_agrees_with_the_tokens_and_the_text(language: str) -> None:
    tokenizer, detokenizer = MosesTokenizer(language), MosesDetokenizer(language)
    for example in examples()[:1500]:
        text, tokens = example.source, list(example.source_tokens)
        if language == "fr":
            text, tokens = example.target, list(example.target_tokens)
        assert tokenizer.tokenize(text, escape=False) == tokens
        assert detokenizer.detokenize(tokens) == text


def test_a_sentence_has_one_translation() -> None:
    translations: dict[str, str] = {}
    for example in many_examples():
        assert translations.setdefault(example.source, example.target) == example.target
    assert len(translations) < len(many_examples())  # some sentences occur twice


def test_punctuation_and_names_are_linked_to_themselves() -> None:
    for example in examples()[:1000]:
        linked = set(example.links)
        commas = [[i for i, word in enumerate(side) if word == ","] for side in _sides(example)]
        assert set(zip(*commas, strict=True)) <= linked
        for i, j in example.links:
            if example.source_tokens[i] in {"Paul", "Nadia", "Victor"}:
                assert example.target_tokens[j] == example.source_tokens[i]


def _sides(example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return example.source_tokens, example.target_tokens


def test_only_function_words_have_no_link() -> None:
    unlinked: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for example in examples():
        for side, tokens in enumerate(_sides(example)):
            linked = {link[side] for link in example.links}
            unlinked[side].update(word.lower() for place, word in enumerate(tokens) if place not in linked)
    assert set(unlinked[0]) == {"do", "does", "did", "to"}
    assert set(unlinked[1]) <= {"le", "la", "l'", "les", "de", "d'", "des", "à", "au", "aux", "est-ce", "que", "qu'"}


def test_links_show_every_kind_of_fertility() -> None:
    kinds: Counter[tuple[int, int]] = Counter()
    for example in examples():
        of_source = Counter(i for i, _ in example.links)
        of_target = Counter(j for _, j in example.links)
        kinds.update((1, of_source[i]) for i in range(len(example.source_tokens)))
        kinds.update((of_target[j], 1) for j in range(len(example.target_tokens)))
    for kind in ((1, 0), (0, 1), (1, 2), (2, 1), (1, 3)):
        assert kinds[kind] >= 30, kind


def test_adjectives_are_reversed_behind_the_french_noun() -> None:
    runs = Counter(_longest_reversal(example) for example in examples())
    assert runs[2] > 100
    assert runs[3] > 100
    assert runs[4] + runs[5] > 5


def _longest_reversal(example: Example) -> int:
    """The longest run of neighbouring source words whose counterparts are in exactly the opposite order."""
    links = dict(example.links)
    longest = run = 1
    for i in range(1, len(example.source_tokens)):
        run = run + 1 if i in links and links.get(i - 1) == links[i] + 1 else 1
        longest = max(longest, run)
    return longest


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("of the king", "du roi"),
        ("to the market", "au marché"),
        ("to the school", "à l' école"),
        ("the man", "l' homme"),
        ("the hero", "le héros"),
        ("this man", "cet homme"),
        ("these", "ces"),
        ("her friend", "son ami"),
        ("my friend", "mon ami"),
        ("cannot", "ne peut pas"),
        ("in front of", "devant"),
        ("there is", "il y a"),
        ("some bread", "du pain"),
        ("some water", "de l' eau"),
        ("freedom", "liberté"),
        ("will be", "sera"),
        ("law was adopted by", "loi a été adoptée par"),
        ("many women", "beaucoup de femmes"),
        ("old house", "vieille maison"),
        ("research programme", "programme recherche"),
        ("last week", "semaine dernière"),
        ("today", "aujourd' hui"),
    ],
)
def test_phrases(source: str, target: str) -> None:
    assert target in renderings(source)


def test_pronouns_go_before_the_french_verb_and_participles_agree_with_them() -> None:
    seen = 0
    for example in examples():
        for i, j in example.links:
            word, rendered = example.source_tokens[i], example.target_tokens[j]
            if word == "them" and rendered == "les":
                before = [target for source, target in example.links if source == i - 1]
                assert j < max(before)
                seen += 1
                if example.target_tokens[j + 1] in ("a", "ont", "ai", "avons"):
                    assert example.target_tokens[max(before)].endswith("s")
    assert seen > 20


def test_nothing_is_left_unelided_or_uncontracted() -> None:
    wrong = {("de", "le"), ("de", "les"), ("à", "les"), ("si", "il"), ("si", "ils")}
    for example in examples():
        words = [word.lower() for word in example.target_tokens]
        for word, following in pairwise(words):
            assert (word, following) not in wrong, example.target
            if word in ("le", "la", "de", "que", "ne", "je", "se", "me", "ma", "sa", "ce", "beau", "nouveau", "vieux"):
                mute = following[0] in "aeiouâàéèêëîïôûœ" and following not in ("onze", "et", "ou", "à")
                assert not mute or word in ("vieux", "beau", "nouveau"), example.target
            if word in ("l'", "d'", "qu'", "n'", "j'", "s'", "m'"):
                assert following[0] in "aeiouhyâàéèêëîïôûœ", example.target
                assert following not in ("héros", "hiboux", "hibou", "hache", "harpe", "haine", "onze"), example.target


def test_both_ends_of_the_lengths_are_there() -> None:
    lengths = [max(len(example.source_tokens), len(example.target_tokens)) for example in examples()[:1000]]
    assert max(lengths) > 75
    assert min(len(example.source.split()) for example in examples()[:1000]) == 3
    usual = sum(5 <= length <= 25 for length in lengths)
    assert usual > 850
    assert 10 < sum(lengths) / len(lengths) < 15


def test_names_make_a_long_tail() -> None:
    counts = Counter(word for example in many_examples()[:6000] for word in example.source_tokens)
    singletons = [word for word, count in counts.items() if count == 1 and word[0].isupper()]
    shortlist = {word for word, _ in counts.most_common(1500)}
    cut = sum(count for word, count in counts.items() if word not in shortlist) / counts.total()
    assert len(singletons) > 900
    assert 0.003 < cut < 0.03
