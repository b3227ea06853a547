"""Lexicons: IBM Model 1 against a plain loop, links counted, entries in order."""

import itertools
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.links import LinkedPair
from nmtalign.alignment.model1 import LONGEST, Bitext, corpus_bitext, learn, read_bitext
from nmtalign.alignment.translation_table import Lexicon, learn_lexicon, lexicon_of_links, pharaoh_links, stored_links
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import read_entries

TOY = [
    ("the house", "la maison"),
    ("the book", "le livre"),
    ("a book", "un livre"),
    ("the house the house", "la maison la maison"),
    ("a red house", "une maison rouge"),
    ("red", "rouge"),
]
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), max_size=4)


def bitext_of(pairs: list[tuple[str, str]]) -> Bitext:
    return read_bitext(pairs, Tokenizers.spaced())


def naive(pairs: list[tuple[str, str]], iterations: int) -> dict[tuple[str | None, str], float]:
    """IBM Model 1 as the textbook writes it; None is the NULL word."""
    split = [([None, *source.split()], target.split()) for source, target in pairs]
    t = {(e, f): 1.0 for source, target in split if source[1:] for e in source for f in target}
    for _ in range(iterations):
        counts: dict[tuple[str | None, str], float] = defaultdict(float)
        for source, target in split:
            for f in target if source[1:] else ():
                z = sum(t[e, f] for e in source)
                for e in source:
                    counts[e, f] += t[e, f] / z
        totals: dict[str | None, float] = defaultdict(float)
        for (e, _), count in counts.items():
            totals[e] += count
        t = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return t


def learned(
    pairs: list[tuple[str, str]], iterations: int, cutoff: float = 0.0, **sizes: int
) -> dict[tuple[str, str], float]:
    bitext = bitext_of(pairs)
    found = learn(bitext, iterations, cutoff, **sizes)
    return {(bitext.source.words[e], bitext.target.words[f]): float(p) for e, f, p in zip(*found, strict=True)}


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("sizes", [{}, {"cells": 3, "scratch": 9}], ids=["whole", "in small parts"])
def test_model_1_is_that_of_the_textbook(iterations: int, sizes: dict[str, int]) -> None:
    expected = {pair: p for pair, p in naive(TOY, iterations).items() if pair[0] is not None}
    assert learned(TOY, iterations, **sizes) == pytest.approx(expected, rel=1e-5)


LINES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6).map(" ".join)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=8), st.sampled_from([0.0, 0.05]))
def test_the_probabilities_of_a_word_sum_to_at_most_1(pairs: list[tuple[str, str]], cutoff: float) -> None:
    found = learned(pairs, 3, cutoff)
    totals = Counter[str]()
    for (source, _), probability in found.items():
        assert probability >= cutoff
        totals[source] += probability
    assert max(totals.values(), default=0) <= 1 + 1e-5
    if not cutoff:
        expected = {pair: p for pair, p in naive(pairs, 3).items() if pair[0] is not None}
        assert found == pytest.approx(expected, rel=1e-4)
        assert min(totals.values()) == pytest.approx(1, abs=1e-5)


def test_progress_tells_of_each_iteration() -> None:
    seen: list[tuple[int, float]] = []
    learn(bitext_of(TOY), 2, progress=lambda iteration, share: seen.append((iteration, share)))
    assert [iteration for iteration, share in seen if share == 1.0] == [1, 2]
    assert seen == sorted(seen)


def test_empty_and_very_long_pairs_are_left_out() -> None:
    long = " ".join(["x"] * (LONGEST + 1))
    bitext = bitext_of([*TOY, ("", "rien"), ("nothing", " "), (long, "x")])
    assert (len(bitext), bitext.left_out) == (len(TOY), 3)
    assert learn_lexicon(bitext).entries(20, 0.0) == learn_lexicon(bitext_of(TOY)).entries(20, 0.0)
    with pytest.raises(InputError, match="no pairs"):
        learn_lexicon(bitext_of([("", "")]))


def test_a_reversed_bitext_gives_the_other_direction() -> None:
    turned = [(target, source) for source, target in TOY]
    assert learn_lexicon(bitext_of(TOY).reversed()).entries(20, 0.0) == learn_lexicon(bitext_of(turned)).entries(20, 0)


def test_a_prepared_corpus_gives_what_its_text_gives(reversal: Corpus) -> None:
    split = reversal.splits["train"]
    sides = reversal.source_vocabulary, reversal.target_vocabulary
    lines = [
        tuple(" ".join(words.decode(ids.tolist())) for words, ids in zip(sides, split.pair(number), strict=True))
        for number in range(len(split))
    ]
    for every in (1, 7):
        of_corpus = learn_lexicon(corpus_bitext(reversal, every)).entries(1, 0.01)
        assert [(entry.source, entry.target) for entry in of_corpus] == [
            (entry.source, entry.target) for entry in learn_lexicon(bitext_of(lines[::every])).entries(1, 0.01)
        ]
        assert [entry.target for entry in of_corpus] == [entry.source.upper() for entry in of_corpus]


def test_entries_are_sorted_and_few() -> None:
    words = ["b", "</s>", "a", "NULL", "two words", "é"]
    sources = np.array([0, 0, 0, 0, 2, 1, 3, 4, 0, 5])
    targets = np.array([0, 5, 2, 1, 0, 0, 0, 0, 4, 0])
    values = np.array([0.1, 0.2, 0.2, 0.3, 0.04, 1, 1, 1, 0.1, 0.5])
    lexicon = Lexicon(words, words, sources, targets, values)
    found = [(entry.source, entry.target) for entry in lexicon.entries(2, 0.05)]
    assert found == [("b", "a"), ("b", "é"), ("é", "b")]
    assert lexicon.entries(2, 0.04)[0].line() == "a\tb\t0.04\n"
    assert len(lexicon.entries(9, 0.0)) == 5


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_links_are_counted(data: st.DataObject) -> None:
    side = st.lists(WORDS, min_size=1, max_size=4)
    pairs = data.draw(st.lists(st.tuples(side, side), max_size=5))
    linked = []
    counts, totals = Counter[tuple[str, str]](), Counter[str]()
    for source, target in pairs:
        place = st.tuples(st.integers(0, len(source) - 1), st.integers(0, len(target) - 1))
        links = data.draw(st.lists(place, max_size=5))
        linked.append(LinkedPair(tuple(source), tuple(target), tuple(links)))
        counts.update((source[i], target[j]) for i, j in links)
        totals.update(source[i] for i, _ in links)
    lexicon = lexicon_of_links(linked)
    found = {
        (lexicon.source_words[e], lexicon.target_words[f]): p
        for e, f, p in zip(lexicon.sources, lexicon.targets, lexicon.probabilities, strict=True)
    }
    assert found == {pair: count / totals[pair[0]] for pair, count in counts.items()}


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.tuples(WORDS, WORDS), st.floats(1e-6, 1.0), max_size=8))
def test_entries_that_are_written_are_read_back(tmp_path_factory: pytest.TempPathFactory, pairs: dict) -> None:
    lexicon = lexicon_of_links([])
    if pairs:
        words = sorted({word for pair in pairs for word in pair})
        places = np.array([[words.index(word) for word in pair] for pair in pairs]).T
        lexicon = Lexicon(words, words, *places, np.array(list(pairs.values())))
    entries = lexicon.entries(20, 0.0)
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.txt"
    path.write_text("".join(entry.line() for entry in entries), encoding="utf-8", newline="\n")
    read = list(read_entries(path))
    assert [line[:2] for line in read] == [(entry.source, entry.target) for entry in entries]
    assert [line[2] for line in read] == pytest.approx([entry.probability for entry in entries], rel=1e-4)
    for _, group in itertools.groupby(read, key=lambda line: line[0]):
        probabilities = [line[2] for line in group]
        assert probabilities == sorted(probabilities, reverse=True)


def test_links_are_counted_in_small_parts_too() -> None:
    pairs = [LinkedPair(("a", "b"), ("x", "y"), ((0, 0), (0, 1), (1, 1)))] * 5
    whole = lexicon_of_links(pairs).entries(20, 0.0)
    assert lexicon_of_links(pairs, at_once=2).entries(20, 0.0) == whole
    assert [(entry.source, entry.target, entry.probability) for entry in whole] == [
        ("a", "x", 0.5), ("a", "y", 0.5), ("b", "y", 1.0),
    ]  # fmt: skip


def test_stored_alignments_give_their_words_and_links(tmp_path: Path) -> None:
    with AlignmentWriter(tmp_path / "a.h5", {}) as writer:
        writer.append(["the", "cat"], ["le", "chat"], np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]]), -2.5)
        writer.append(["the"], ["la"], np.eye(2), -1.0)
    assert [(pair[0], pair[1], list(pair[2])) for pair in stored_links(tmp_path / "a.h5")] == [
        (("the", "cat"), ("le", "chat"), [(0, 0), (1, 1)]),
        (("the",), ("la",), [(0, 0)]),
    ]
    assert len(list(stored_links(tmp_path / "a.h5", every=2))) == 1


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize(("lines", "message"), [(12, "has 2 lines more than"), (8, "has no line 9")])
def test_texts_and_links_are_of_equal_length_also_if_only_some_are_read(
    tmp_path: Path, every: int, lines: int, message: str
) -> None:
    texts = tmp_path / "in", tmp_path / "out"
    for path in texts:
        path.write_text("a\n" * 10)
    (tmp_path / "links").write_text("0-0\n" * lines)
    with pytest.raises(InputError, match=message):
        list(pharaoh_links(texts, tmp_path / "links", Tokenizers.spaced(), every=every))


def test_only_the_best_of_several_translations_is_counted(tmp_path: Path) -> None:
    with AlignmentWriter(tmp_path / "a.h5", {}) as writer:
        for rank, word in enumerate(("chat", "chien")):
            writer.append(["cat"], [word], np.eye(2), -1.0, sentence_id=0, rank=rank)
    assert [pair[1] for pair in stored_links(tmp_path / "a.h5")] == [("chat",)]


def texts_and_links(folder: Path, links: str) -> tuple[tuple[Path, Path], Path]:
    for name, text in (("in", "the cat\n\nthe dog .\n"), ("out", "le chat\n\nle chien .\n"), ("links", links)):
        (folder / name).write_text(text)
    return (folder / "in", folder / "out"), folder / "links"


def test_links_of_a_file(tmp_path: Path) -> None:
    texts, links = texts_and_links(tmp_path, "0-0 1-1\n\n2-2 1-1\n")
    pairs = list(pharaoh_links(texts, links, Tokenizers.spaced()))
    assert pairs == [
        (("the", "cat"), ("le", "chat"), ((0, 0), (1, 1)), 0, 0),
        ((), (), (), 1, 0),
        (("the", "dog", "."), ("le", "chien", "."), ((2, 2), (1, 1)), 2, 0),
    ]
    assert list(pharaoh_links(texts, links, Tokenizers.spaced(), every=2)) == pairs[::2]


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-0\n\n", "links: has no line 3"),
        ("0-0\n\n\n\n\n", "links: has 2 lines more than"),
        ("0-0\n\n0-0 x\n", "links: line 3: 'x' is not a link"),
        ("0-0\n0-0\n\n", "links: line 2: link 0-0 points outside the pair, which has 0 source and 0 target words"),
    ],
)
def test_wrong_links_are_named(tmp_path: Path, links: str, message: str) -> None:
    texts, path = texts_and_links(tmp_path, links)
    with pytest.raises(InputError, match=message):
        list(pharaoh_links(texts, path, Tokenizers.spaced()))
