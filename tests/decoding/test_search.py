"""Beam search: against enumeration, against forced decoding, whatever the batch."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from nmtalign.config import ModelConfig
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import make_batch, make_source
from nmtalign.decoding.search import Hypothesis, SearchOptions, beam_search
from nmtalign.errors import NmtalignError, UsageError

WORDS = 5


@dataclass
class TableMemory:
    mask: torch.Tensor

    def select(self, sentences: torch.Tensor) -> "TableMemory":
        return TableMemory(self.mask[sentences])


@dataclass
class TableState:
    steps: torch.Tensor  # (rows,) words so far
    last: torch.Tensor  # (rows,)

    def select(self, rows: torch.Tensor) -> "TableState":
        return TableState(self.steps[rows], self.last[rows])


@dataclass
class TableOutput:
    state: TableState
    log_probs: torch.Tensor
    weights: torch.Tensor | None


class TableModel:
    """Log-probabilities straight from a table [step, previous word, word]; it knows nothing of the source's words."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table.log_softmax(-1)

    def encode(self, source: torch.Tensor, mask: torch.Tensor) -> TableMemory:
        return TableMemory(mask)

    def initial_state(self, memory: TableMemory, rows: int = 1) -> TableState:
        zeros = torch.zeros(len(memory.mask) * rows, dtype=torch.long)
        return TableState(zeros, zeros)

    def step(self, memory: TableMemory, state: TableState, previous: torch.Tensor | None) -> TableOutput:
        assert len(state.steps) % len(memory.mask) == 0
        last = state.last if previous is None else previous
        log_probs = self.table[state.steps, last].clone()
        weights = memory.mask.float().repeat_interleave(len(last) // len(memory.mask), 0)
        return TableOutput(TableState(state.steps + 1, last), log_probs, weights / weights.sum(1, keepdim=True))


def small_model(seed: int = 0, attention: str = "additive", spread: float = 3.0, **changes: object) -> TranslationModel:
    torch.manual_seed(seed)
    sizes = {"source_vocabulary_size": 9, "target_vocabulary_size": WORDS, "embedding": 4, "hidden": 5}
    settings = {**sizes, "attention_hidden": 3, "maxout": 4, "output_rank": 0, "attention": attention, **changes}
    model = TranslationModel(ModelConfig(initialisation="xavier", **settings)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(spread).add_(torch.randn_like(weight) * 0.1)  # so that hypotheses differ
    return model


SENTENCES = [[2, 3], [4], [8, 7, 6, 5], [], [3, 3, 3], [2, 8]]


def search(model: TranslationModel, sentences: list[list[int]], **options: object) -> list[list[Hypothesis]]:
    return beam_search(model, *make_source(sentences), SearchOptions(**options))


def forced(
    model: TranslationModel, source: list[int], target: tuple[int, ...]
) -> tuple[list[float], np.ndarray | None]:
    batch = make_batch([(source, list(target))])
    out = model.force(batch.source, batch.source_mask, batch.target, batch.target_mask)
    return out.log_probs[0].tolist(), None if out.weights is None else out.weights[0].numpy()


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


def every_translation(limit: int, words: list[int]) -> list[tuple[int, ...]]:
    return [tokens for length in range(limit) for tokens in itertools.product(words, repeat=length)]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("allow_unk", [False, True])
def test_full_width_is_exhaustive_search(length_penalty: float, allow_unk: bool) -> None:
    model, source, limit = small_model(), [2, 3], 3
    words = [1, 2, 3, 4] if allow_unk else [2, 3, 4]
    scored = []
    for tokens in every_translation(limit, words):
        log_probs, _ = forced(model, source, tokens)
        scored.append((sum(log_probs) / (len(tokens) + 1) ** length_penalty, tokens))
    scored.sort(reverse=True)
    found = search(
        model, [source], beam=200, n_best=200, length_penalty=length_penalty, allow_unk=allow_unk, max_length_ratio=1.0
    )[0]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in scored]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in scored], abs=1e-5)


@pytest.mark.parametrize("attention", ["additive", "none"])
@pytest.mark.parametrize("order", ["look-generate-update", "look-update-generate"])
@pytest.mark.parametrize("cell", ["paper", "cudnn"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_beam_score_is_forced_score(attention: str, order: str, cell: str, dtype: torch.dtype, error: float) -> None:
    model = small_model(attention=attention, order=order, cell=cell).to(dtype)
    for source, found in zip(SENTENCES, search(model, SENTENCES, beam=4, n_best=3, keep_weights=True), strict=True):
        for hypothesis in found:
            log_probs, weights = forced(model, source, hypothesis.tokens)
            assert list(hypothesis.token_log_probs) == pytest.approx(log_probs, rel=1e-6, abs=error)
            assert hypothesis.score == pytest.approx(sum(log_probs) / len(log_probs), abs=error)
            assert hypothesis.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-12)
            if weights is None:
                assert hypothesis.weights is None
            else:
                assert hypothesis.weights is not None
                assert hypothesis.weights.dtype == np.float32
                assert hypothesis.weights == pytest.approx(weights, abs=1e-5)
                assert hypothesis.weights.sum(1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("beam", [1, 3, 12])
def test_batch_composition_and_order_change_nothing(beam: int) -> None:
    model = small_model(seed=4)
    options = {"beam": beam, "n_best": min(beam, 3), "keep_weights": True}
    alone = [search(model, [sentence], **options)[0] for sentence in SENTENCES]
    for order in (range(6), [5, 3, 1, 0, 2, 4], [2, 2, 4]):
        together = search(model, [SENTENCES[i] for i in order], **options)
        for i, found in zip(order, together, strict=True):
            assert_same(found, alone[i])
            for one, other in zip(found, alone[i], strict=True):
                assert one.weights == pytest.approx(other.weights, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_best_does_not_depend_on_n_best(seed: int, length_penalty: float) -> None:
    model = small_model(seed=seed)
    lists = [search(model, SENTENCES, beam=6, n_best=n, length_penalty=length_penalty) for n in (1, 2, 6)]
    for few, more, most in zip(*lists, strict=True):
        assert_same(few, most[:1])
        assert_same(more, most[:2])


def test_n_best_is_sorted_and_without_repetition() -> None:
    for found in search(small_model(), SENTENCES, beam=12, n_best=12):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({h.tokens for h in found}) == len(found)


def test_stopping_early_loses_nothing() -> None:
    for seed, length_penalty in itertools.product(range(6), (0.0, 0.3, 1.0)):
        model = small_model(seed=seed)
        options = SearchOptions(beam=5, length_penalty=length_penalty)
        early = beam_search(model, *make_source(SENTENCES), options)
        whole = beam_search(model, *make_source(SENTENCES), replace(options, n_best=5))
        assert_same([found[0] for found in early], [found[0] for found in whole])


def test_it_stops_as_soon_as_no_open_hypothesis_can_win() -> None:
    # After `</s>` at once, the rest of the beam has log-probability -10 or less, far under the first ending's.
    table = torch.zeros(50, WORDS, WORDS)
    table[0, :, 0] = 10.0
    model, steps = TableModel(table), []
    step = model.step
    model.step = lambda *arguments: steps.append(1) or step(*arguments)  # type: ignore[method-assign]
    found = search(model, [[2] * 9], beam=3, length_penalty=0.0)  # type: ignore[arg-type]
    assert found[0][0].tokens == ()
    assert len(steps) == 1


def test_a_limit_is_each_sentences_own_and_ends_what_is_open() -> None:
    table = torch.zeros(50, WORDS, WORDS)
    table[:, :, 3] = 9.0  # the model would say the same word for ever
    found = search(TableModel(table), [[2], [2] * 5, []], beam=2, max_length_ratio=1.5)  # type: ignore[arg-type]
    assert [best[0].tokens for best in found] == [(3,) * 2, (3,) * 8, ()]
    log_probs = table.log_softmax(-1)[0, 0]
    assert found[1][0].log_prob == pytest.approx(8 * log_probs[3].item() + log_probs[0].item())
    assert search(TableModel(table), [[2]], beam=2, max_length_ratio=0.01)[0][0].tokens == ()  # type: ignore[arg-type]


def test_unknown_word_is_banned_unless_allowed() -> None:
    table = torch.zeros(50, WORDS, WORDS)
    table[0, :, 1] = 5.0
    table[1, :, 0] = 5.0
    model = TableModel(table)
    assert search(model, [[2]], beam=3, allow_unk=True)[0][0].tokens == (1,)  # type: ignore[arg-type]
    for hypothesis in search(model, [[2]], beam=9, n_best=9)[0]:  # type: ignore[arg-type]
        assert 1 not in hypothesis.tokens


def test_equal_hypotheses_come_in_the_order_of_their_ids() -> None:
    found = search(TableModel(torch.zeros(9, WORDS, WORDS)), [[]], beam=4, n_best=4, max_length_ratio=2.0)  # type: ignore[arg-type]
    assert [h.tokens for h in found[0]] == [(), (2,), (3,), (4,)]


def test_the_beam_shrinks_with_each_ending() -> None:
    # Two words and `</s>` are equally likely at each step; a beam of 3 has room for 3 endings and no more.
    table = torch.full((50, WORDS, WORDS), -20.0)
    table[:, :, [0, 2, 3]] = 0.0
    found = search(TableModel(table), [[2] * 9], beam=3, n_best=3, length_penalty=0.0)  # type: ignore[arg-type]
    assert [h.tokens for h in found[0]] == [(), (2,), (2, 2)]


def test_a_model_of_no_numbers_is_refused() -> None:
    with pytest.raises(NmtalignError, match="no finite probability"):
        search(TableModel(torch.full((9, WORDS, WORDS), math.nan)), [[2]], beam=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(("beam", "n_best"), [(2, 3), (0, 0), (1, 0)])
def test_n_best_must_fit_the_beam(beam: int, n_best: int) -> None:
    with pytest.raises(UsageError, match="n_best"):
        SearchOptions(beam=beam, n_best=n_best)


def test_float64_and_bf16() -> None:
    model = small_model().double()
    exact = search(model, SENTENCES, beam=4)
    single = search(small_model(), SENTENCES, beam=4)
    assert [h[0].score for h in exact] == pytest.approx([h[0].score for h in single], abs=1e-4)
    rough = small_model(spread=1.0)
    rough.use_bf16()
    for source, found in zip(SENTENCES, search(rough, SENTENCES, beam=4), strict=True):
        assert found[0].log_prob == pytest.approx(sum(forced(rough, source, found[0].tokens)[0]), abs=0.05)
