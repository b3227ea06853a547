"""The grammar: pairs are well formed, tokens are those of Moses, and links have the reorderings that models learn."""

import unicodedata
from collections import Counter
from functools import cache
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer

from nmtalign.sample.dictionary import starts_with_vowel
from nmtalign.sample.grammar import LONGEST, Example, generate


@cache
def many_examples() -> tuple[Example, ...]:
    return tuple(islice(generate(1), 8000))


def examples() -> tuple[Example, ...]:
    return many_examples()[:3000]


def renderings(source: str) -> set[str]:
    """The target words linked to the source words of one phrase, in all examples that contain it."""
    wanted = source.split()
    found = set()
    for example in many_examples():
        words = [word.lower() for word in example.source_tokens]
        for start in range(len(words) - len(wanted) + 1):
            if words[start : start + len(wanted)] == wanted:
                linked = {j for i, j in example.links if start <= i < start + len(wanted)}
                found.add(" ".join(example.target_tokens[j].lower() for j in sorted(linked)))
    return found


@settings(max_examples=30)
@given(st.integers(min_value=-(2**70), max_value=2**70))
def test_pairs_of_any_seed_are_well_formed(seed: int) -> None:
    for example in islice(generate(seed), 20):
        source, target = example.source_tokens, example.target_tokens
        assert max(len(source), len(target)) <= LONGEST
        assert min(len(example.source.split()), len(example.target.split())) >= 3
        assert list(example.links) == sorted(set(example.links))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in example.links)
        assert (len(source) - 1, len(target) - 1) in example.links
        assert source[-1] == target[-1] == "."
        assert source[0][0].isupper()
        assert target[0][0].isupper()
        for text in (example.source, example.target):
            assert unicodedata.is_normalized("NFC", text)
            assert " ".join(text.split()) == text


def test_seeds_and_parts_are_drawn_apart() -> None:
    assert tuple(islice(generate(1), 300)) == examples()[:300]
    dev, test, other = (set(islice(generate(*which), 300)) for which in ((1, "dev"), (1, "test"), (2,)))
    assert max(len(dev & test), len(dev & set(examples()[:300])), len(other & set(examples()[:300]))) < 10


@pytest.mark.parametrize(("language", "side"), [("en", "source"), ("fr", "target")])
def test_moses_agrees_with_the_tokens_and_the_text(language: str, side: str) -> None:
    tokenizer, detokenizer = MosesTokenizer(language), MosesDetokenizer(language)
    for example in examples()[:1500]:
        text, tokens = getattr(example, side), list(getattr(example, f"{side}_tokens"))
        assert tokenizer.tokenize(text, escape=False) == tokens
        assert detokenizer.detokenize(tokens) == text


def test_a_sentence_has_one_translation() -> None:
    translations: dict[str, str] = {}
    for example in many_examples():
        assert translations.setdefault(example.source, example.target) == example.target


def test_only_function_words_have_no_link_and_every_fertility_is_there() -> None:
    unlinked: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    kinds: Counter[tuple[int, int]] = Counter()
    for example in examples():
        for side, tokens in enumerate((example.source_tokens, example.target_tokens)):
            linked = Counter(link[side] for link in example.links)
            unlinked[side].update(word.lower() for place, word in enumerate(tokens) if place not in linked)
            kinds.update((side, linked[place]) for place in range(len(tokens)))
    assert set(unlinked[0]) <= {"do", "does", "did"}
    assert set(unlinked[1]) <= {"le", "la", "l'", "les", "de", "d'", "des"}
    for kind in ((0, 0), (1, 0), (0, 2), (1, 2)):
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


PHRASES = """
of the king => du roi, to the market => au marché, to the school => à l' école, the hero => le héros,
this man => cet homme, my friend => mon ami, in front of => devant, some water => de l' eau, freedom => liberté,
will be => sera, many => beaucoup de, old house => vieille maison, european social => social européen,
because => parce que, today => aujourd' hui
"""


@pytest.mark.parametrize("phrase", PHRASES.replace("\n", " ").split(","))
def test_phrases(phrase: str) -> None:
    source, _, target = phrase.strip().partition(" => ")
    assert target in renderings(source)


def test_nothing_is_left_unelided_or_uncontracted() -> None:
    for example in examples():
        for word, following in pairwise(word.lower() for word in example.target_tokens):
            assert (word, following) not in {("de", "le"), ("de", "les"), ("à", "les")}, example.target
            mute = following[0] in "aeiouâàéèêëîïôûœ" and following not in ("onze", "et", "ou", "à")
            assert not mute or word not in ("le", "la", "de", "que", "ne", "je", "ma", "sa", "ce"), example.target
            if word in ("l'", "d'", "qu'", "n'", "j'"):
                assert starts_with_vowel(following), example.target
