"""Graphs over bucketed lengths: their results equal those of the eager path, which replaces them if they fail.

The recorder of these tests does the work again where CUDA would replay it; the last tests record real graphs.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from helpers import core_models as models
from helpers.recording import Again

from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.training import graphs
from nmtalign.training.graphs import CPU_ROWS, ROWS, GraphedLoss, pad_to_bucket
from nmtalign.training.updates import add_gradient

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")  # of the compiler of a GPU's kernels
CPU = torch.device("cpu")


def batch_of(source_lengths, target_lengths, seed=0):
    """A batch of random words; lengths do not count `</s>`."""
    draw = np.random.default_rng(seed)
    pairs = zip(source_lengths, target_lengths, strict=True)
    return make_batch([(draw.integers(2, 11, s).tolist(), draw.integers(2, 13, t).tolist()) for s, t in pairs])


def model_of(device=CPU, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    settings = {"embedding": 4, "hidden": 6, "attention_hidden": 5, "maxout": 4, "initialisation": "xavier", **options}
    return TranslationModel(ModelConfig(11, 13, **settings)).to(device, dtype)


def loss_of(model, smoothing=0.0, static=False):
    def loss(*tensors):
        found = model.loss(*tensors, label_smoothing=smoothing, static_shapes=static)
        return found.objective, found.nll.detach()

    return loss


def gradients_of(model):
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    return gradients


def assert_same(found, expected, **tolerance):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


def graphs_of(model, loss, notice=pytest.fail, recorder=None):
    return GraphedLoss(model, loss, partial(add_gradient, loss, CPU), notice, recorder or Again())


SMALL = ([3, 5, 2], [4, 1, 6])
LARGE = ([9, 3], [12, 2])


def test_a_bucket_contains_its_batch():
    batch = batch_of(*SMALL)
    for rows, step, padded in [(17, ROWS, 32), (1, ROWS, 16), (9, CPU_ROWS, 16), (5, CPU_ROWS, 8), (1, CPU_ROWS, 1)]:
        assert pad_to_bucket(batch_of([7] * rows, [8] * rows), step).target.shape == (padded, 12)
    larger = pad_to_bucket(batch, 4)
    assert pad_to_bucket(larger, 4) is larger
    assert [tuple(tensor.shape) for tensor in larger.inputs()] == [(4, 8)] * 4
    assert larger.source_mask.sum(1).tolist() == [4, 6, 3, 1]
    assert larger.target_mask.sum(1).tolist() == [5, 2, 7, 0]
    assert torch.equal(larger.source[:3, :6], batch.source)
    assert not larger.source[3].any()


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("config", models.DIFFERENT, ids=models.named)
def test_padding_to_a_bucket_changes_neither_loss_nor_gradient(config, static):
    model, batch = models.make_model(config), models.batch_of(config)
    objective, nll = loss_of(model, smoothing=0.1)(*batch.inputs())
    expected = torch.autograd.grad(objective, list(model.parameters()))
    loss = loss_of(model, smoothing=0.1, static=static)
    padded_objective, padded_nll = loss(*pad_to_bucket(batch, ROWS).inputs())
    found = torch.autograd.grad(padded_objective, list(model.parameters()))
    assert_same((padded_objective, padded_nll, *found), (objective, nll, *expected))


def test_replays_leave_what_the_plain_way_leaves():
    model, said, recorder = model_of(), [], Again()
    graphed = graphs_of(model, loss_of(model, 0.1, static=True), said.append, recorder=recorder)
    eager = partial(add_gradient, loss_of(model, 0.1), CPU)
    returned = []
    for number, shape in enumerate([SMALL, SMALL, LARGE, SMALL, LARGE, LARGE, SMALL]):
        batch, weight = batch_of(*shape, seed=number), 1 / (number + 1)
        expected = eager(batch, weight), *gradients_of(model)
        returned.append(graphed(batch, weight))
        assert_same((returned[-1], *gradients_of(model)), expected)
    assert recorder.recorded == 2
    assert len({float(loss) for loss in returned}) == 7  # the next replay changes none of them
    assert said == []


def test_gradients_add_up_to_those_that_were_there():
    model = model_of()
    graphed = graphs_of(model, loss_of(model, static=True))
    eager = partial(add_gradient, loss_of(model), CPU)
    for _ in range(3):
        batches = [batch_of(*SMALL, seed=1), batch_of(*LARGE, seed=2), batch_of(*SMALL, seed=3)]
        for batch in batches:
            eager(batch)
        expected = gradients_of(model)
        for batch in batches:
            graphed(batch)
        assert_same(gradients_of(model), expected)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        graphed(batches[0])
        with_ones = gradients_of(model)
        eager(batches[0])
        assert_same(with_ones, [gradient + 1 for gradient in gradients_of(model)])


def test_the_least_recently_used_graph_is_dropped(monkeypatch):
    monkeypatch.setattr(graphs, "LIMIT", 2)
    model, recorder = model_of(), Again()
    graphed = graphs_of(model, loss_of(model, static=True), recorder=recorder)
    shapes = {"a": SMALL, "b": LARGE, "c": ([1], [1])}
    recorded = []
    for name in "abcabcbab":  # the first three batches are computed without graphs
        graphed(batch_of(*shapes[name]))
        model.zero_grad(set_to_none=True)
        recorded.append(recorder.recorded)
    assert recorded == [0, 0, 0, 1, 2, 3, 3, 4, 4]  # the first c drops a, the last a drops c


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("fault", ["refuse", "loss", "gradient", "nan"])
def test_a_graph_that_cannot_be_recorded_or_is_wrong_is_given_up_and_reported_once(fault, dropout):
    model, twin, said = model_of(dropout=dropout), model_of(dropout=dropout), []

    def spoil(work):
        if fault == "refuse":
            raise RuntimeError("operation not permitted when stream is capturing\nand more lines")

        def replay():
            work()
            if fault == "loss":
                graphed._sums.mul_(1.02)
            else:
                graphed._gradients[0].mul_(2 if fault == "gradient" else torch.nan)

        return replay

    recorder = Again(spoil)
    graphed = graphs_of(model, loss_of(model, static=True), said.append, recorder=recorder)
    eager = partial(add_gradient, loss_of(twin, static=True), CPU)
    for number in range(4):
        batch = batch_of(*SMALL, seed=number)
        torch.manual_seed(number)
        found = graphed(batch), *gradients_of(model)
        torch.manual_seed(number)
        assert_same(found, (eager(batch), *gradients_of(twin)), rtol=0, atol=0)
    assert recorder.recorded == 1
    assert len(said) == 1
    assert "\n" not in said[0]
    expected = {"refuse": "not permitted", "loss": "results differ by 2.0e-02", "nan": "results differ by nan"}
    assert expected.get(fault, "results differ by") in said[0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_dropout_draws_new_numbers_at_every_replay_and_the_same_for_the_same_seed(device):
    model, said = model_of(torch.device(device), torch.float32, dropout=0.4), []
    loss, recorder = loss_of(model, static=True), Again() if device == "cpu" else None
    graphed = GraphedLoss(model, loss, partial(add_gradient, loss, torch.device(device)), said.append, recorder)
    batch = batch_of(*SMALL)
    graphed(batch)
    seen = []
    for seed in (1, 2, 3, 1):
        torch.manual_seed(seed)
        seen.append(float(graphed(batch)))
    assert said == []
    assert len(set(seen)) == 3
    assert seen[0] == seen[3]


@pytest.mark.parametrize("config", models.DIFFERENT, ids=models.named)
def test_a_pass_of_static_shapes_never_looks_at_a_value(config):
    """No code that waits for the GPU can be captured; tensors without values raise if code reads their values."""
    model = models.make_model(dataclasses.replace(config, dropout=0.3)).train().to("meta")
    tensors = models.batch_of(config).to(torch.device("meta")).inputs()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        model.loss(*tensors)
    objective, _ = loss_of(model, 0.1, static=True)(*tensors)
    torch.autograd.grad(objective, list(model.parameters()))


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("options", [{}, {"cell": "cudnn", "order": "look-update-generate"}, {"attention": "none"}])
def test_real_graphs_leave_what_the_plain_way_leaves(options, dropout):
    device, said = torch.device("cuda"), []
    model = model_of(device, torch.float32, dropout=dropout, **options)
    loss = loss_of(model, 0.1, static=True)
    eager = partial(add_gradient, loss, device)
    graphed = GraphedLoss(model, loss, eager, said.append)
    for number, shape in enumerate([SMALL, SMALL, LARGE, SMALL, LARGE, LARGE, SMALL]):
        batch = batch_of(*shape, seed=number)
        found = graphed(batch, 0.5), *gradients_of(model)
        if not dropout:
            assert_same(found, (eager(batch, 0.5), *gradients_of(model)), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), found[1:], strict=True):
                parameter -= 0.01 * gradient
    assert said == []
    assert len(graphed._recordings) == 2


@pytest.mark.gpu
def test_training_continues_where_a_real_graph_cannot_be_recorded():
    device, said = torch.device("cuda"), []
    model, twin = (model_of(device, torch.float32, dropout=0.4) for _ in range(2))
    loss = loss_of(model, static=False)  # it waits for the device, which no recording can
    graphed = GraphedLoss(model, loss, partial(add_gradient, loss, device), said.append)
    eager = partial(add_gradient, loss_of(twin, static=False), device)
    for number in range(4):
        batch = batch_of(*SMALL, seed=number)
        torch.cuda.manual_seed(number)
        found = graphed(batch), *gradients_of(model)
        torch.cuda.manual_seed(number)
        assert_same(found, (eager(batch), *gradients_of(twin)), rtol=1e-4, atol=1e-5)
    assert len(said) == 1
