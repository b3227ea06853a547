"""Scores of attention beside the additive one, a readout without the previous word, a source that is read reversed."""

import dataclasses
import itertools

import pytest
import torch
from helpers import core_models as models

from nmtalign.core.attention import AttentionInputs, Memory
from nmtalign.core.attention_variants import DotAttention
from nmtalign.core.model import Activations, RecurrentEncoder, TranslationModel
from nmtalign.data.batches import make_batch
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig

PAIRS, TINY, ONE_WAY, make_model = models.PAIRS, models.TINY, models.ONE_WAY, models.make_model
N, M, L = 1000, 620, 500


def arguments(pairs=PAIRS):
    batch = make_batch(pairs)
    return batch.source, batch.source_mask, batch.target, batch.target_mask


@pytest.mark.parametrize(
    ("name", "changes", "difference"),
    [
        # W_a and U_a (n', n) and (n', 2n) and v_a (n') go; general has W_a (n, 2n) in their place.
        ("rnnsearch-50", {"attention": "dot"}, -(3 * N * N + N)),
        ("rnnsearch-50", {"attention": "general"}, -(N * N + N)),
        ("rnnsearch-50", {"readout_previous_word": False}, -2 * L * M),
        ("rnnencdec-50", {"reverse_source": True}, 0),
    ],
)
def test_parameter_counts(name, changes, difference):
    sizes = {"source_vocabulary_size": 30_001, "target_vocabulary_size": 30_001}
    config = resolve(ModelConfig, ("preset", preset(name)), ("test", {**sizes, **changes}))
    with torch.device("meta"):
        model = TranslationModel(config)
    count = 84_349_101 if name.startswith("rnnsearch") else 72_487_101
    assert sum(parameter.numel() for parameter in model.parameters()) == count + difference


@pytest.mark.parametrize("score", ["dot", "general"])
@pytest.mark.parametrize("order", ["look-generate-update", "look-update-generate"])
def test_gradients_of_states_contexts_and_weights(score, order):
    config = dataclasses.replace(TINY, attention=score, order=order)
    models.check_gradients_of_unrolling(config)


@pytest.mark.parametrize("score", ["dot", "general"])
def test_bf16_stays_near_float32(score):
    config = dataclasses.replace(TINY, hidden=32, embedding=16, maxout=16, attention=score)
    model = make_model(config, torch.float32)
    found = []
    for on in (False, True):
        how = Activations(torch.bfloat16 if on else None)
        model.zero_grad()
        weights = model.loss(*arguments(), how=how).weights
        assert weights.dtype == torch.float32
        weights.square().sum().backward()
        found.append([p.grad.clone() for p in model.decoder.parameters() if p.grad is not None])
    exact, rough = (torch.cat([gradient.flatten() for gradient in gradients]) for gradients in found)
    assert (rough - exact).norm() <= 0.1 * exact.norm()


def test_general_attention_starts_uniform_and_a_dot_has_no_parameters():
    torch.manual_seed(0)
    sizes = {"embedding": 20, "hidden": 30, "maxout": 8, "output_rank": 0}
    model = TranslationModel(ModelConfig(11, 13, attention="general", **sizes))
    weight = model.decoder.attention.key_weight.detach()
    assert weight.shape == (30, 60)
    assert float(weight.std()) == pytest.approx(0.001, rel=0.1)
    batch = make_batch(PAIRS[:1])
    weights = model.force(batch.source, batch.source_mask, batch.target, batch.target_mask).weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 5), rtol=1e-4, atol=0)
    assert not list(DotAttention(TINY, 12).parameters())


def test_energies_do_not_depend_on_what_stands_beside_them(rounding):
    torch.manual_seed(1)
    attention = DotAttention(dataclasses.replace(TINY, hidden=24), 24)
    queries, keys = torch.randn(8, 12, 24), torch.randn(8, 37, 24)

    def energies(queries, keys):
        memory = Memory(keys, keys, None, queries[:, 0])
        rows = queries.flatten(0, 1)
        return attention.pass_class(AttentionInputs(memory, (), len(rows))).energies(0, rows)

    whole = energies(queries, keys)
    tolerance = rounding.of(float((queries.abs() @ keys.abs().mT).max()), 2 * 24)
    for sentences, rows, positions in itertools.product((4, 8), (1, 5, 12), (1, 7, 16, 30)):
        part = energies(queries[:sentences, :rows], keys[:sentences, :positions].contiguous())
        rounding.assert_same(part, whole[:sentences, :rows, :positions], tolerance)


@pytest.mark.parametrize("cell", ["paper", "cudnn"])
def test_a_reversed_source_is_read_as_the_backward_direction_reads_it(cell):
    both = RecurrentEncoder(dataclasses.replace(TINY, cell=cell))
    alone = RecurrentEncoder(dataclasses.replace(ONE_WAY, cell=cell, reverse_source=True))
    torch.manual_seed(2)
    with torch.no_grad():
        for ours, theirs in zip(alone.parameters(), both.parameters(), strict=True):
            theirs.normal_(0, 0.5)
            ours.copy_(theirs[1:])
    embedded = torch.randn(2, 5, TINY.embedding)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    expected = both(embedded, padding).annotations[..., TINY.hidden :]
    torch.testing.assert_close(alone(embedded, padding).annotations, expected)
    assert (
        not alone(embedded, padding).annotations[1, 3:].any()
    )  # no word has been read yet: the state is that before `</s>`


def test_a_decoder_takes_up_the_state_after_the_first_word_of_a_reversed_source():
    config = dataclasses.replace(ONE_WAY, attention="none", reverse_source=True)
    model = make_model(config)
    source, mask, *_ = arguments()
    memory = model.encode(source, mask)
    for row, (words, _) in enumerate(PAIRS):
        alone = model.encode(torch.tensor([[*words, 0]]), torch.ones(1, len(words) + 1, dtype=torch.bool))
        torch.testing.assert_close(memory.values[row], alone.values[0])


def test_a_readout_without_the_previous_word_still_hears_of_it_through_the_state():
    model = make_model(dataclasses.replace(TINY, readout_previous_word=False))
    assert "readout.word_weight" not in model.state_dict()
    one, other = (model.force(*arguments([([3, 4], [first, 3, 4])])).log_probs[0] for first in (2, 5))
    assert one[1] != other[1]
    state, context = torch.randn(3, TINY.hidden).double(), torch.randn(3, 2 * TINY.hidden).double()
    words = torch.randn(2, 3, TINY.embedding).double()
    assert torch.equal(*(model.readout.features(state, word, context) for word in words))
