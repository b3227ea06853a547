"""Adadelta and clipping against PyTorch's own, with dense and with sparse gradients."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nmtalign.core.gpu import forced
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.optimizers import Adadelta, Descent, make_optimizer


class Words(nn.Module):
    """Rows of a table, which has sparse gradients, and a matrix, which has dense ones."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(3))
        self.table, self.matrix = nn.Parameter(torch.randn(20, 4)), nn.Parameter(torch.randn(4, 3))

    def backward(self, ids, sparse):
        (F.embedding(ids, self.table, sparse=sparse) @ self.matrix + self.bias).square().sum().backward()


def words():
    torch.manual_seed(1)
    return Words().double()


def batches(count):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, 20, (6,), generator=generator) for _ in range(count)]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_adadelta_is_pytorchs(sparse, clip):
    compare_with_pytorch(words(), sparse, clip, 12)


def test_adadelta_of_a_large_matrix_by_pieces_is_pytorchs():
    model = words()
    model.matrix = nn.Parameter(torch.randn(4, 150_000).double())
    model.bias = nn.Parameter(torch.randn(150_000).double())
    compare_with_pytorch(model, sparse=False, clip=0.0, count=3)


def compare_with_pytorch(ours, sparse, clip, count):
    theirs = copy.deepcopy(ours)
    descent = Descent(Adadelta(list(ours.parameters()), rho=0.95, epsilon=1e-6), clip)
    reference = torch.optim.Adadelta(theirs.parameters(), lr=0.5, rho=0.95, eps=1e-6)
    for ids in batches(count):
        ours.backward(ids, sparse)
        norm = descent.step(0.5)
        theirs.backward(ids, sparse=False)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), clip or torch.inf))
        reference.step()
        reference.zero_grad()
        assert all(weight.grad is None for weight in ours.parameters())
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_adam_with_sparse_gradients_and_clipping_is_pytorchs(name, clip):
    decay = 0.1 if name == "adamw" else 0.0
    config = TrainingConfig(optimizer=name, weight_decay=decay, epsilon=1e-8, beta1=0.8, beta2=0.9)
    ours, theirs = words(), words()
    descent = Descent(make_optimizer(ours.parameters(), config), clip)
    cls = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    groups = [{"params": [theirs.table, theirs.matrix]}, {"params": [theirs.bias], "weight_decay": 0.0}]
    reference = cls(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=decay)
    for ids in batches(8):
        ours.backward(ids, sparse=True)
        descent.step(0.01)
        theirs.backward(ids, sparse=False)
        nn.utils.clip_grad_norm_(theirs.parameters(), clip or torch.inf)
        reference.step()
        reference.zero_grad()
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore:invalid value")  # of the interpreter
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("name", ["adadelta", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_a_step_that_does_not_wait_for_the_norm_is_the_same(name, clip, kernels):
    config = TrainingConfig(optimizer=name)
    models = [words().float(), words().float()]
    descents = [
        Descent(make_optimizer(model.parameters(), config), clip, on_device=number == 1)
        for number, model in enumerate(models)
    ]
    for number, ids in enumerate(batches(6)):
        for model, descent in zip(models, descents, strict=True):
            model.backward(ids, sparse=False)
            if number == 3:
                model.matrix.grad[0, 0] = torch.inf
            with forced(kernels):
                descent.step(0.1)
        for waits, other in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(waits, other, rtol=1e-5, atol=1e-6)
            assert waits.isfinite().all()


@pytest.mark.parametrize("name", ["adadelta", "adamw"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(name, bad):
    model = words()
    optimizer = make_optimizer(model.parameters(), TrainingConfig(optimizer=name))
    descent = Descent(optimizer, 1.0)
    for ids in batches(2):
        model.backward(ids, sparse=True)
        descent.step(0.1)
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state())
    model.backward(batches(1)[0], sparse=True)
    model.matrix.grad[0, 0] = bad
    assert not descent.step(0.1).isfinite()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state(), state, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["adadelta", "adamw"])
def test_a_state_that_was_saved_goes_on_as_if_nothing_had_happened(name):
    config = TrainingConfig(optimizer=name)

    def run(stop):
        model = words().float()
        optimizer = make_optimizer(model.parameters(), config)
        descent = Descent(optimizer, 1.0)
        for number, ids in enumerate(batches(10)):
            if number == stop:
                saved = copy.deepcopy(optimizer.state())
                optimizer = make_optimizer(model.parameters(), config)
                optimizer.restore(saved)
                descent = Descent(optimizer, 1.0)
            model.backward(ids, sparse=True)
            descent.step(0.1)
        return list(model.parameters())

    for whole, resumed in zip(run(None), run(5), strict=True):
        assert torch.equal(whole, resumed)


def test_a_run_may_change_between_sparse_and_dense_gradients():
    changing, dense = words(), words()
    descents = [Descent(Adadelta(list(model.parameters())), 1.0) for model in (changing, dense)]
    for number, ids in enumerate(batches(12)):
        changing.backward(ids, sparse=number // 4 != 1)
        dense.backward(ids, sparse=False)
        for descent in descents:
            descent.step(1.0)
    for mine, yours in zip(changing.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-9, atol=1e-12)
