"""Guided alignment: its loss, its effect, and that all other properties of training remain."""

import json
import os
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers import trainings
from helpers.core_models import check_gradients
from helpers.recording import Again

from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.errors import FormatError, UsageError
from nmtalign.model_directory import read_settings
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.training.events import Progressed
from nmtalign.training.graphs import ROWS, GraphedLoss, pad_to_bucket
from nmtalign.training.updates import add_gradient, batch_loss, guidance

ODD = os.fsdecode(b"\xff") if sys.platform == "linux" else ""  # no UTF-8

CONFIG, sizes, train, make_trainer = trainings.CONFIG, trainings.sizes, trainings.train, trainings.make_trainer


@pytest.fixture(scope="module")
def links(reversal, tmp_path_factory):
    """The true links of the reversing corpus' training text, some of them left out."""
    path = tmp_path_factory.mktemp("links") / "links"
    lengths = reversal.splits["train"].source.lengths
    lines = (" ".join(f"{n - 1 - j}-{j}" for j in range(n) if (j + line) % 4) for line, n in enumerate(lengths))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def guided_batch(seed=0):
    """Three pairs of random words, a third of whose cells are linked."""
    torch.manual_seed(seed)
    pairs = [([2, 3, 4], [5, 2, 3, 4]), ([4, 2], [3]), ([3] * 5, [2, 4])]
    batch = make_batch(pairs)
    guide = (torch.rand(3, batch.target.shape[1], batch.source.shape[1]) < 0.34) & batch.target_mask[:, :, None]
    guide &= batch.source_mask[:, None]
    return replace(batch, guide=guide, linked=int(guide.any(-1).sum()))


def model_of(dtype=torch.float64, **options):
    torch.manual_seed(5)
    small = {"embedding": 4, "hidden": 6, "attention_hidden": 5, "maxout": 4, "initialisation": "xavier", **options}
    return TranslationModel(ModelConfig(6, 7, **small)).to(dtype)


def test_the_cost_is_the_definitions():
    batch, expected = guided_batch(), 0.0
    weights = torch.rand(batch.target.shape[1], 3, batch.source.shape[1]).softmax(-1)
    for pair, step in batch.guide.any(-1).nonzero().tolist():
        expected -= float(weights[step, pair][batch.guide[pair, step]].log().mean())
    assert float(guidance(weights, batch.guide)) == pytest.approx(expected, rel=1e-5)


def test_weights_of_nothing_cost_much_and_break_nothing():
    weights = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    cost = guidance(weights, torch.tensor([[[True, False]]]))
    cost.backward()
    assert 50 < float(cost.detach()) < 100
    assert bool(weights.grad.isfinite().all())


@pytest.mark.parametrize("options", [{}, {"coverage": "linguistic"}, {"attention": "general"}])
def test_gradients_of_the_guided_loss_are_those_of_differences(options):
    model, batch = model_of(**options), guided_batch()
    loss = partial(batch_loss, model, replace(CONFIG, label_smoothing=0.1, guided_weight=0.7), None)
    assert 0 < batch.linked < batch.target_words
    plain = model.loss(*batch.inputs()[:4], label_smoothing=0.1)
    expected = plain.objective + 0.7 * guidance(plain.weights, batch.guide)
    torch.testing.assert_close(loss(*batch.inputs())[0], expected)
    check_gradients(model, lambda: loss(*batch.inputs())[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_padding_changes_nothing_and_graphs_replay_it(dtype):
    model = model_of(dtype)
    loss = partial(batch_loss, model, replace(CONFIG, label_smoothing=0.1, guided_weight=0.7), None)
    eager = partial(add_gradient, loss, torch.device("cpu"))
    graphed = GraphedLoss(model, loss, eager, pytest.fail, recorder=Again())
    for seed in range(4):
        batch, found = guided_batch(seed), []
        for way, one in ((eager, batch), (graphed, pad_to_bucket(batch, ROWS))):
            sums = way(one, 0.5)
            found.append([sums, *(parameter.grad.clone() for parameter in model.parameters())])
            model.zero_grad(set_to_none=True)
        assert found[0][0].shape == (2,)
        for plain, replayed in zip(*found, strict=True):
            torch.testing.assert_close(plain, replayed, rtol=1e-3, atol=1e-5)


def test_bf16_activations_are_guided_in_float32():
    model, batch = model_of(torch.float32), guided_batch()
    objective, sums = batch_loss(model, replace(CONFIG, guided_weight=1.0), torch.bfloat16, *batch.inputs())
    objective.backward()
    assert sums.dtype == torch.float32
    plain = batch_loss(model_of(torch.float32), replace(CONFIG, guided_weight=1.0), None, *batch.inputs())[1]
    torch.testing.assert_close(sums, plain, rtol=2e-2, atol=1e-2)


def test_a_few_guided_updates_teach_what_many_plain_ones_must_find(reversal, links, tmp_path):
    config = replace(CONFIG, max_updates=100, log_every=10, validate_every="100")
    events = train(reversal, tmp_path / "m", replace(config, guided_alignment=str(links), guided_weight=1.0))
    costs = [event.alignment_loss for event in events if isinstance(event, Progressed)]
    assert costs[-1] < costs[0] / 2
    logged = [json.loads(line) for line in (tmp_path / "m/train.jsonl").read_text().splitlines()]
    assert [event["alignment_loss"] for event in logged if event["event"] == "progressed"] == costs
    assert trainings.share_on_diagonal(tmp_path / "m", reversal.splits["dev"]) > 0.8


def test_a_run_resumes_only_with_the_same_links_wherever_they_are(reversal, links, tmp_path):
    config = replace(CONFIG, guided_alignment=str(links), max_updates=3)
    train(reversal, tmp_path / "m", config)
    moved = tmp_path / (ODD + "links")
    moved.write_bytes(links.read_bytes())
    (tmp_path / "m").rename(tmp_path / (ODD + "m"))
    more = replace(config, guided_alignment=str(moved), max_updates=4)
    assert train(reversal, tmp_path / (ODD + "m"), more)[0].resumed
    assert read_settings(tmp_path / (ODD + "m"))["training"]["max_updates"] == 4
    (tmp_path / (ODD + "m")).rename(tmp_path / "m")
    moved.write_text(moved.read_text().replace("0-2", "1-2"))
    others = [{"guided_alignment": str(moved)}, {"guided_alignment": ""}, {"guided_weight": 0.1}]
    for other in others:
        with pytest.raises(UsageError, match="other settings"):
            train(reversal, tmp_path / "m", replace(config, **other))
    train(reversal, tmp_path / "plain", replace(CONFIG, max_updates=3))  # without links the weight changes nothing
    assert train(reversal, tmp_path / "plain", replace(CONFIG, max_updates=3, guided_weight=3.0))[0].resumed


def test_a_training_starts_from_another_models_weights_if_they_fit(reversal, links, tmp_path):
    train(reversal, tmp_path / "first", CONFIG)
    config = replace(CONFIG, init_from=str(tmp_path / "first"), guided_alignment=str(links))
    trainer = make_trainer(reversal, tmp_path / "second", sizes(reversal), config, lambda event: None)
    given = trainings.weights(tmp_path / "first", "best")
    assert all(torch.equal(tensor, given[name]) for name, tensor in trainer.setup.model.state_dict().items())
    trainer.run()
    ended = trainings.weights(tmp_path / "second")
    assert not all(torch.equal(ended[name], tensor) for name, tensor in given.items())
    again = train(reversal, tmp_path / "second", replace(config, max_updates=14))
    assert (again[0].resumed, again[0].update) == (True, 12)
    with pytest.raises(UsageError, match="other settings"):
        train(reversal, tmp_path / "second", replace(config, init_from=str(tmp_path / "second")))
    with pytest.raises(FormatError, match=r"best\.safetensors: does not fit this model"):
        train(reversal, tmp_path / "m", config, hidden=16)
    with pytest.raises(FormatError, match="no nmtalign model here"):
        train(reversal, tmp_path / "m", replace(CONFIG, init_from=str(tmp_path / "none")))
