"""TER's statistics are sacreBLEU's own, number by number."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import TER, lib_ter

from nmtalign.scoring import edit_distance, edits, shifts
from nmtalign.scoring.edits import ter_statistics

# The commonest words of a text make up much of it, which is what blocks that occur twice come from.
VOCABULARY = [f"w{rank}" for rank in range(3000) for _ in range(3000 // (rank + 1))]
# (hypothesis, reference, edits as TER of sacreBLEU 2.5 gave them)
KNOWN = [
    ("", "", 0),
    ("", "a b", 2),
    ("a b", "", 2),
    ("   ", "a", 1),
    ("The Cat  sat", "the cat sat", 0),
    ("sat the cat", "the cat sat", 1),
    ("a b c d e f", "d e f a b c", 1),
    ("f e d c b a", "a b c d e f", 5),
    ("a a a b", "b a a a", 1),
    ("on the mat sat the black cat", "the black cat sat on the mat", 2),
    ("x the black cat y", "the black cat sat on the mat", 5),
]


def text(draw: random.Random, length: int, vocabulary: list[str] = VOCABULARY) -> str:
    return " ".join(draw.choice(vocabulary) for _ in range(length))


def disturbed(draw: random.Random, line: str, rate: float) -> str:
    """Words replaced, left out and put in, and a block of words for every twelve words put elsewhere."""
    words: list[str] = []
    for word in line.split():
        chance = draw.random() / rate
        words += [draw.choice(VOCABULARY)] if chance < 0.6 else [] if chance < 0.8 else [word]
        words += [draw.choice(VOCABULARY)] if 0.8 <= chance < 1 else []
    for _ in range(len(words) // 12 + (len(words) > 3)):
        start, length = draw.randrange(len(words)), draw.randrange(1, 5)
        block = words[start : start + length]
        del words[start : start + length]
        target = draw.randrange(len(words) + 1)
        words[target:target] = block
    return " ".join(words)


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    """What is done for many pairs and moves at once is done for the few of a test as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shifts, "_FEW", 3)
        patch.setattr(edits, "_FEW", 5)
        yield


def check(hypotheses: list[str], *references: list[str]) -> None:
    expected = np.array(TER()._extract_corpus_statistics(hypotheses, references), dtype=np.float64)
    found = ter_statistics(hypotheses, references)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("hypothesis", "reference", "count"), KNOWN)
def test_known_edits(hypothesis: str, reference: str, count: int) -> None:
    assert ter_statistics([hypothesis], [[reference]]).tolist() == [[count, len(reference.split())]]
    check([hypothesis], [reference])


def test_no_lines_and_lines_that_do_not_fit() -> None:
    assert ter_statistics([], [[]]).shape == (0, 2)
    with pytest.raises(ValueError, match="shorter"):
        ter_statistics(["a", "b"], [["a"]])


def test_sentences_of_every_length_in_one_call() -> None:
    draw = random.Random(1)
    references = [text(draw, length) for length in (1, 2, 5, 12, 23, 24, 25, 26, 31, 32, 33, 40, 63, 64, 65, 90)]
    check([disturbed(draw, line, 0.1) for line in references], references)
    check(references[:8], [disturbed(draw, line, 0.5) for line in references[:8]])
    check(references[:11][::-1], references[:11])
    check(references[-4:], references[:4])


def test_several_references_give_the_least_edits_and_the_mean_length() -> None:
    draw = random.Random(2)
    first = [text(draw, draw.randrange(12)) for _ in range(60)]
    second = [disturbed(draw, line, 0.4) for line in first]
    third = [text(draw, draw.randrange(12)) for _ in range(60)]
    check([disturbed(draw, line, 0.4) for line in first], first, second, third)


def test_repeated_pairs_are_counted_each_time() -> None:
    rows = ter_statistics(["b a", "a", "b a"], [["a b", "a", "a b"]])
    assert rows.tolist() == [[1, 2], [0, 1], [1, 2]]


def test_batches_are_cut_where_they_grow_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    references = [text(draw, draw.randrange(1, 30)) for _ in range(40)]
    hypotheses = [disturbed(draw, line, 0.5) for line in references]
    monkeypatch.setattr(edits, "_PAIRS", 7)
    monkeypatch.setattr(shifts, "_BLOCK", 16)
    monkeypatch.setattr(shifts, "_MATCHES", 50)
    check(hypotheses, references)


def test_the_search_ends_after_a_thousand_moves() -> None:
    draw = random.Random(4)
    few = ["a", "b", "c", "d"]
    pairs = [(text(draw, 24, few), text(draw, 30, few)) for _ in range(2)]
    check(*map(list, zip(*pairs, strict=True)))


@pytest.fixture(params=[1, 2, 4, 7])
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Bounds so small that short sentences meet them, in sacreBLEU as here."""
    monkeypatch.setattr(lib_ter, "_BEAM_WIDTH", request.param)
    monkeypatch.setattr(edit_distance, "BAND", request.param)
    monkeypatch.setattr(lib_ter, "_MAX_SHIFT_CANDIDATES", 40 * request.param)
    monkeypatch.setattr(shifts, "MOST", 40 * request.param)
    monkeypatch.setattr(lib_ter, "_MAX_SHIFT_DIST", 5)
    monkeypatch.setattr(shifts, "FARTHEST", 5)
    return int(request.param)


def test_every_bound_is_that_of_sacrebleu(narrow: int) -> None:
    draw = random.Random(narrow)
    few = [f"w{number}" for number in range(8)]
    references = [text(draw, draw.randrange(25), few) for _ in range(120)]
    hypotheses = [
        text(draw, draw.randrange(25), few) if draw.random() < 0.3 else disturbed(draw, line, 0.4)
        for line in references
    ]
    check(hypotheses, references)


LINES = st.lists(st.sampled_from("abcde"), max_size=14).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(LINES, LINES, LINES), min_size=1, max_size=6))
def test_any_few_words_in_any_order(rows: list[tuple[str, str, str]]) -> None:
    hypotheses, first, second = map(list, zip(*rows, strict=True))
    check(hypotheses, first, second)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.sampled_from([f"w{number}" for number in range(20)]), min_size=1, max_size=40))
def test_any_order_of_the_same_words(data: st.DataObject, words: list[str]) -> None:
    check([" ".join(data.draw(st.permutations(words)))], [" ".join(words)])


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_is_split_and_lowered_as_sacrebleu_does(hypothesis: str, reference: str) -> None:
    check([hypothesis], [reference])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("shortest", "longest", "count"), [(1, 20, 1500), (15, 45, 150), (40, 90, 15), (90, 200, 3)])
@pytest.mark.parametrize("rate", [0.1, 0.4, 0.8])
def test_noisy_text(shortest: int, longest: int, count: int, rate: float, seed: int) -> None:
    draw = random.Random(seed)
    references = [text(draw, draw.randrange(shortest, longest)) for _ in range(count)]
    check([disturbed(draw, line, rate) for line in references], references)
