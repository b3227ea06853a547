"""Scores of given pairs equal those of the search; order, batches, lack of memory; n-best lists."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.score_tables import WatchedScorer

from nmtalign import Translator
from nmtalign.data.batches import make_batch
from nmtalign.errors import InputError, ResourceError, UsageError
from nmtalign.translating import rescoring
from nmtalign.translating.rescoring import (
    NBestLine,
    Pair,
    best_first,
    parse_n_best,
    read_n_best,
    score_n_best_list,
    score_pairs,
)
from nmtalign.translating.stream import windows
from nmtalign.translating.translation import ScoredPair

SOURCE_WORDS = ["the", "fox", "sees", "a", "red", "boat", "."]
TARGET_WORDS = ["le", "renard", "voit", "un", "bateau", "rouge", "."]
LINES = ["the fox sees a boat .", "", "a heron", "a a a a red red red", "\t ", "fox", "the fox ."]
PAIRS = [
    ("the fox", "le renard"),
    ("", ""),
    ("the fox sees a red boat .", "le renard voit un bateau rouge ."),
    ("", "le renard"),
    ("a heron", "un héron"),
    ("fox", ""),
    (" \t", "  "),
    ("boat", "bateau"),
]


def disturb(model: Any) -> None:
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 3  # words rather than none


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, random_model_directory: Any) -> dict[str, Path]:
    words = SOURCE_WORDS, TARGET_WORDS
    return {
        name: random_model_directory(tmp_path_factory.mktemp(name), *words, disturb, attention, seed)
        for name, attention, seed in (("one", "additive", 3), ("two", "additive", 4), ("fixed", "none", 5))
    }


def scored(translator: Translator, pairs: Any = PAIRS) -> list[ScoredPair]:
    return list(score_pairs(translator, pairs))


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (["one"], {}),
        (["one"], {"length_penalty": 0.6, "word_penalty": 0.3, "coverage_penalty": 0.2}),
        (["one"], {"precision": "bf16"}),
        (["one", "two"], {"precision": "int8"}),
        (["one"], {"search": "paper"}),
        (["fixed"], {"word_penalty": -0.3}),
        (["one", "two"], {}),
        (["one", "two"], {"ensemble": "log", "coverage_penalty": 0.2}),
        (["two", "fixed", "one"], {}),
    ],
)
def test_what_a_search_finds_is_scored_alike(
    models: dict[str, Path], names: list[str], settings: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if settings.get("precision") == "int8":
        request.getfixturevalue("int8")
    folders = [models[name] for name in names]
    translator = Translator.load(*folders, beam=4, n_best=4, tokenized=True, threads=1, **settings)
    found = [(line.source, one) for line in translator.translate(LINES) for one in line.n_best]
    assert len(found) == 4 * 5 + 2
    pairs = [(source, " ".join(one.tokens)) for source, one in found]
    for (_, one), pair in zip(found, scored(translator, pairs), strict=True):
        assert pair.target_tokens == one.tokens
        assert pair.log_prob == pytest.approx(one.log_prob, abs=1e-5)
        assert pair.score == pytest.approx(one.score, abs=1e-5)
        assert pair.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-5)


def test_the_model_itself_gives_the_same(models: dict[str, Path]) -> None:
    translator = Translator.load(models["one"], threads=1)
    pair = scored(translator)[2]
    batch = make_batch([([2, 3, 4, 5, 6, 7, 8], [2, 3, 4, 5, 6, 7, 8])])
    expected = translator.loaded.model.force(batch.source, batch.source_mask, batch.target, batch.target_mask)
    assert pair.token_log_probs == pytest.approx(expected.log_probs[0].tolist(), abs=1e-5)
    assert pair.log_prob == pytest.approx(sum(pair.token_log_probs), abs=1e-9)
    assert pair.score == pytest.approx(pair.log_prob / 8)


def test_pairs_come_in_order_one_each(models: dict[str, Path]) -> None:
    found = scored(Translator.load(models["one"], threads=1))
    assert [(pair.source, pair.target) for pair in found] == PAIRS
    assert [pair.number for pair in found] == list(range(len(PAIRS)))
    for pair in found:
        assert len(pair.token_log_probs) == len(pair.target_tokens) + 1
        assert pair.blank == (pair.number in (1, 6))
        # An empty side is only `</s>`; the model does not score a pair of two empty sides.
        assert (pair.log_prob == pair.score == 0) == pair.blank
    assert (found[4].source_unknown, found[4].target_unknown) == (1, 1)


def test_raw_text_is_tokenised_and_tokenised_text_is_not(models: dict[str, Path]) -> None:
    pair = [("the fox.", "l'renard.")]
    (raw,) = scored(Translator.load(models["one"], threads=1), pair)
    (given,) = scored(Translator.load(models["one"], threads=1, tokenized=True), pair)
    assert (raw.source_tokens, raw.target_tokens) == (("the", "fox", "."), ("l'", "renard", "."))
    assert (given.source_tokens, given.target_tokens) == (("the", "fox."), ("l'renard.",))


@pytest.mark.parametrize("settings", [{"batch_size": 1}, {"batch_size": 9}, {"threads": 2}, {"max_memory": "1K"}])
def test_batches_and_threads_change_nothing(models: dict[str, Path], settings: dict[str, Any]) -> None:
    expected = scored(Translator.load(models["one"], threads=1), PAIRS * 5)
    try:
        found = scored(Translator.load(models["one"], **{"threads": 1, **settings}), PAIRS * 5)
    finally:
        torch.set_num_threads(1)
    for one, other in zip(expected, found, strict=True):
        assert (one.number, one.source) == (other.number, other.source)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def test_pairs_are_read_no_further_than_needed(models: dict[str, Path]) -> None:
    taken = []

    def endless() -> Iterator[Pair]:
        while True:
            taken.append(1)
            yield "the fox", "le renard"

    pairs = score_pairs(Translator.load(models["one"], threads=1, batch_size=8), endless())
    assert not taken
    assert [next(pairs).number for _ in range(50)] == list(range(50))
    assert len(taken) < 200


def test_a_batch_that_is_too_large_is_halved(models: dict[str, Path]) -> None:
    loaded = Translator.load(models["one"], threads=1)
    room = 1

    def small_machine(source: torch.Tensor) -> None:
        if len(source) > room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    translator = Translator(loaded.models, loaded.config, scorer=WatchedScorer(loaded.scorer, small_machine))
    for one, other in zip(scored(loaded), scored(translator), strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
    room = 0
    with pytest.raises(ResourceError, match="line 3: out of memory with one pair of 7 and 7 tokens; leave it out"):
        scored(translator, PAIRS[1:2] * 2 + PAIRS[2:3])


def test_models_of_other_words_do_not_score_together(models: dict[str, Path], tmp_path: Path, request: Any) -> None:
    make: Callable[..., Path] = request.getfixturevalue("random_model_directory")
    other = make(tmp_path, SOURCE_WORDS, [*TARGET_WORDS, "chat"], disturb)
    with pytest.raises(UsageError, match="its target vocabulary is not that of"):
        Translator.load(models["one"], other)


def test_errors_of_the_input_come_after_the_pairs_before_them(models: dict[str, Path]) -> None:
    def broken() -> Iterator[Pair]:
        yield from PAIRS
        raise ValueError("no more")

    pairs = score_pairs(Translator.load(models["one"], threads=1), broken())
    assert [next(pairs).number for _ in PAIRS] == list(range(len(PAIRS)))
    with pytest.raises(ValueError, match="no more"):
        next(pairs)


@pytest.mark.parametrize(
    "wrong", ["plain string", "ab", ("one",), ("one", "two", "three"), None, ("a", None), ("a", 1.0)]
)
def test_what_is_not_a_pair_is_refused(models: dict[str, Path], wrong: Any) -> None:
    with pytest.raises(UsageError, match="is not a pair of lines"):
        next(score_pairs(Translator.load(models["one"], threads=1), [wrong]))


def test_a_list_is_read_in_large_windows_without_a_thread(models: dict[str, Path], monkeypatch: Any) -> None:
    asked = []

    def watched(*arguments: Any) -> Iterator[list[Pair]]:
        asked.append(arguments[-1])
        return windows(*arguments)

    monkeypatch.setattr(rescoring, "windows", watched)
    translator = Translator.load(models["one"], threads=1)
    assert [pair.score for pair in score_pairs(translator, iter(PAIRS))] == pytest.approx(
        [pair.score for pair in score_pairs(translator, PAIRS)]
    )
    assert asked == [False, True]


def test_a_line_is_kept_as_it_is() -> None:
    for line in (
        "0 ||| le chat ||| LogProb= -1.5 Length= 3 ||| -0.5",
        "12 ||| le  chat  | noir ||| lm= -1 -2 ||| -0.5 ||| 0-0 1-1 ||| more",
        "3 |||  ||| LogProb= 0 ||| 0 ||| ",
        "3 ||| un | | | deux",
    ):
        assert str(parse_n_best(line, "")) == line
    assert parse_n_best("12 ||| le  chat ||| a= 1", "").text == "le  chat"
    assert parse_n_best("4|||x|||a= 1|||2", "") == NBestLine(4, ("4", "x", "a= 1", "2"))
    assert parse_n_best("4 |||  ||| a= 1", "").text == ""


@pytest.mark.parametrize(
    "line", ["", "le chat", "-1 ||| x", "a ||| x ||| b= 1 ||| 2", "1.5 ||| x", "9" * 5000 + "|||", "0 \x1e|||"]
)
def test_what_is_no_line_of_a_list_is_named(line: str) -> None:
    with pytest.raises(InputError, match=r"^list: line 3: not a line of an n-best list; write `id \|\|\| "):
        parse_n_best(line, "list: line 3")


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("LogProb= -1.5", "LogProb= -1.5 x= -2.000000"),
        ("", "x= -2.000000"),
        ("x= -1", "x= -2.000000"),
        ("a= 1 x= 4 5e-3 -inf b= 2", "a= 1 b= 2 x= -2.000000"),
        ("xx= 1 x=", "xx= 1 x= -2.000000"),
        ("ax= 1 x.= 2", "ax= 1 x.= 2 x= -2.000000"),
    ],
)
def test_a_feature_is_added_or_replaced(features: str, expected: str) -> None:
    line = parse_n_best(f"0 ||| le chat ||| {features} ||| -0.5 ||| 0-0", "")
    assert str(line.with_feature("x", [-2])) == f"0 ||| le chat ||| {expected} ||| -0.5 ||| 0-0"


def test_fields_that_are_missing_are_made() -> None:
    bare = parse_n_best("0 ||| le chat", "")
    assert str(bare.with_feature("x", [-1, 2])) == "0 ||| le chat ||| x= -1.000000 2.000000"
    assert str(bare.with_feature("x", [-1]).with_score(-0.25)) == "0 ||| le chat ||| x= -1.000000 ||| -0.250000"
    assert str(bare.with_score(-0.25)) == "0 ||| le chat |||  ||| -0.250000"
    assert str(parse_n_best("0 ||| a ||| b= 1 ||| 7 ||| 0-0", "").with_score(2)).endswith(" ||| 2.000000 ||| 0-0")


@pytest.mark.parametrize("name", ["", "a b", "a=", "a|b", "a\t"])
def test_names_of_features(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    translator, files = Translator.load(models["one"], threads=1), written(tmp_path, "the fox\n", ["0 ||| le"])
    ((line, _),) = score_n_best_list(translator, *files, "nmtalign.1")
    assert str(line).startswith("0 ||| le ||| nmtalign.1= -")
    with pytest.raises(UsageError, match="cannot name a feature"):
        next(score_n_best_list(translator, *files, name))


def written(folder: Path, source: str, lines: list[str]) -> tuple[Path, Path]:
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    (folder / "in").write_text(source)
    return folder / "list", folder / "in"


def test_lines_find_their_sources(tmp_path: Path) -> None:
    files = written(tmp_path, "a\nb\nc\nd\n", ["0 ||| x", "0 ||| y", "2 ||| z", "3 ||| w"])
    assert [(line.text, source) for line, source in read_n_best(*files)] == [
        ("x", "a"), ("y", "a"), ("z", "c"), ("w", "d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0 ||| x", "2 ||| y", "1 ||| z"], r"list: line 3: id 1 comes after id 2; sort the list by id"),
        (["0 ||| x", "3 ||| y"], r"list: line 2: id 3 needs line 4 of .*in, which has 3 lines; ids count"),
        (["0 ||| x", ""], r"list: line 2: not a line of an n-best list"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(read_n_best(*written(tmp_path, "a\nb\nc\n", lines)))


def test_the_best_come_first_sentence_by_sentence() -> None:
    scores = [(0, -2.0), (0, -1.0), (0, -2.0), (1, -9.0), (2, -3.0), (2, 0.0)]
    entries = [
        (NBestLine(sentence, (str(sentence), str(place))), ScoredPair(place, "", "", (), (), 0, 0, 0, score, (0,)))
        for place, (sentence, score) in enumerate(scores)
    ]
    assert [line.text for line, _ in best_first(entries)] == ["1", "0", "2", "3", "5", "4"]
