"""The fused kernels against plain loops in float64, forward and backward.

Without a GPU they run in Triton's interpreter; with one they are compiled, unless TRITON_INTERPRET=1 is set.
"""

import itertools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from nmtalign.core import gpu as fused
from nmtalign.core.attention import AttentionInputs, Memory
from nmtalign.core.cell_variants import CELLS
from nmtalign.core.cells import CudnnCell, PaperCell
from nmtalign.core.model import TranslationModel
from nmtalign.settings.training_settings import ModelConfig

COMPILED = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
DEVICE = torch.device("cuda" if COMPILED else "cpu")

with pytest.MonkeyPatch.context() as patch:
    # Read where Triton and the kernels are imported, and again at the first launch.
    if not COMPILED:
        patch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton", reason="Triton is not installed")
    from nmtalign.core.gpu import fused_attention, fused_cells, one_pass
    from nmtalign.core.gpu.fused_attention import FusedAttentionPass
    from nmtalign.core.gpu.fused_cells import FUSED_PASSES
    from nmtalign.core.gpu.one_pass import adadelta_, softmax_gradient

    with warnings.catch_warnings(action="ignore"):
        try:
            adadelta_(*torch.zeros(4, 1, device=DEVICE), rate=1.0, rho=0.9, epsilon=1e-6)
        except Exception as error:
            if "0-dimensional arrays" in str(error):  # Triton 3.6 beside NumPy 2.4
                pytest.skip("this Triton's interpreter does not know this NumPy", allow_module_level=True)
            raise

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0")  # Triton 3.6, NumPy 2.3
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
# Relative to the norm of the complete result; bf16 results are rounded once, from sums in float32.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 6e-3}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    torch.manual_seed(0)
    if not COMPILED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def normal(*shape, dtype=torch.float64, scale=1.0):
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).to(DEVICE)


def exact(*tensors):
    """Copies in float64 that gradients are taken of."""
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def close(found, expected, dtype, times=1.0):
    found, expected = found.double(), expected.detach().double()
    assert found.shape == expected.shape
    assert found.isfinite().all()
    assert (found - expected).norm() <= times * TOLERANCE[dtype] * expected.norm() + 1e-300


def naive_pass(states, query_weight, vector, keys, annotations, padding):
    """Contexts (T, B, D) and weights (T, B, Tx): one step, one sentence, one position after the other."""
    contexts, weights = [], []
    for state, b in itertools.product(states, range(len(keys))):
        real = [j for j in range(keys.shape[1]) if padding is None or not padding[b, j]]
        query = query_weight @ state[b]
        energies = torch.stack([vector @ torch.tanh(query + keys[b, j]) for j in real])
        shares = (energies - energies.max()).exp()
        shares = shares / shares.sum()
        row = torch.zeros(keys.shape[1], dtype=torch.float64, device=keys.device)
        weights.append(row.index_put((torch.tensor(real, device=keys.device),), shares))
        contexts.append(sum(share * annotations[b, j] for share, j in zip(shares, real, strict=True)))
    return torch.stack(contexts).unflatten(0, states.shape[:2]), torch.stack(weights).unflatten(0, states.shape[:2])


def source(batch, positions, size, depth, dtype, scale=1.0):
    """States of two steps, W_a, v_a, keys, annotations, and padding: the last sentence has one word."""
    padding = torch.zeros(batch, positions, dtype=torch.bool, device=DEVICE)
    for b in range(batch):
        padding[b, max(1, positions - 2 * b) :] = True
    padding[-1, 1:] = True
    tensors = (
        normal(2, batch, 4, dtype=dtype, scale=scale),
        normal(size, 4, dtype=dtype),
        normal(size, dtype=dtype),
        normal(batch, positions, size, dtype=dtype, scale=scale),
        normal(batch, positions, depth, dtype=dtype),
    )
    return *tensors, padding


def fused_pass(states, query_weight, vector, keys, annotations, padding):
    memory = Memory(annotations, keys, padding, states[0])
    steps = FusedAttentionPass(AttentionInputs(memory, (query_weight, vector), len(keys), len(states), True))
    for step, rows in enumerate(states):
        steps.forward(step, rows)
    return steps


def gradients_of(steps, states, d_contexts, d_weights):
    """Those of the states, W_a, v_a, the keys and the annotations, after a backward pass."""
    steps.start_backward()
    steps.d_contexts.copy_(d_contexts)
    d_states = [steps.backward(step, None if d_weights is None else d_weights[step]) for step in (1, 0)]
    d_keys = steps.d_keys(states)
    return [torch.stack(d_states[::-1]), *steps.d_parameters(states), d_keys, steps.d_values()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("positions", "size", "depth"), [(7, 20, 36), (1, 5, 3), (37, 70, 140)])
@pytest.mark.parametrize("padded", [True, False])
def test_attention_steps_forward_and_backward(dtype, positions, size, depth, padded):
    *tensors, padding = source(3, positions, size, depth, dtype)
    padding = padding if padded else None
    steps = fused_pass(*tensors, padding)
    inputs = exact(*tensors)
    expected = naive_pass(*inputs, padding)
    close(steps.contexts, expected[0], dtype)
    close(steps.weights, expected[1], dtype)
    assert steps.weights.dtype == torch.promote_types(dtype, torch.float32)
    if padded:
        assert (steps.weights[:, padding] == 0).all()
    d_contexts, d_weights = normal(2, 3, depth, dtype=dtype), normal(2, 3, positions, dtype=steps.weights.dtype)
    goal = (expected[0] * d_contexts.double()).sum()
    for given, extra in ((d_weights, (expected[1] * d_weights.double()).sum()), (None, 0)):
        found = gradients_of(steps, tensors[0], d_contexts, given)
        wanted = torch.autograd.grad(goal + extra, inputs, retain_graph=True)
        if positions == 1:  # one weight is always 1
            assert max(x.abs().max() for x in found[:4]) < 1e-5
            continue
        for ours, theirs in zip(found, wanted, strict=True):
            close(ours, theirs, dtype, times=4)
            assert ours.dtype == dtype


def test_keys_and_annotations_of_any_layout_give_the_same():
    *tensors, padding = source(3, 7, 20, 36, torch.float32)
    expected = fused_pass(*tensors, padding)
    turned = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in tensors[3:]]
    found = fused_pass(*tensors[:3], *turned, padding)
    assert torch.equal(found.weights, expected.weights)
    torch.testing.assert_close(found.contexts, expected.contexts)


@pytest.mark.parametrize("scale", [1e-5, 1e4])
def test_small_and_large_numbers_keep_their_digits(scale):
    """The paper starts with keys near 0, where tanh must not lose its digits; large ones must not overflow."""
    *tensors, padding = source(2, 5, 12, 6, torch.float32, scale)
    steps = fused_pass(*tensors, padding)
    inputs = exact(*tensors)
    expected = naive_pass(*inputs, padding)
    close(steps.contexts, expected[0], torch.float32)
    close(steps.weights, expected[1], torch.float32)
    d_contexts = normal(2, 2, 6, dtype=torch.float32)
    wanted = torch.autograd.grad((expected[0] * d_contexts.double()).sum(), inputs)
    # Where tanh is 1 everywhere, only rounding is left of a gradient; it is multiplied with numbers of that scale.
    room = 1e-5 * scale if scale > 1 else 0
    for ours, theirs in zip(gradients_of(steps, tensors[0], d_contexts, None), wanted, strict=True):
        assert (ours.double() - theirs).norm() <= 1e-5 * theirs.norm() + room


# ------------------------------------------------------------------ cells


def naive_states(kind, inputs, initial, weight, bias, skip):
    """States (U + 1, B, n) of one direction, one row after the other."""
    n = initial.shape[-1]
    states = [initial]
    for step, given in enumerate(inputs):
        rows = []
        for b, s in enumerate(states[-1]):
            x = given[b]
            if kind is PaperCell:
                z = torch.sigmoid(x[:n] + weight[:n] @ s)
                r = torch.sigmoid(x[n : 2 * n] + weight[n : 2 * n] @ s)
                new = (1 - z) * s + z * torch.tanh(x[2 * n :] + weight[2 * n :] @ (r * s))
            else:
                r = torch.sigmoid(x[:n] + weight[:n] @ s)
                z = torch.sigmoid(x[n : 2 * n] + weight[n : 2 * n] @ s)
                inner = weight[2 * n :] @ s + bias
                new = (1 - z) * torch.tanh(x[2 * n :] + r * inner) + z * s
            rows.append(s if skip is not None and skip[step, b] else new)
        states.append(torch.stack(rows))
    return torch.stack(states)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [PaperCell, CudnnCell])
@pytest.mark.parametrize("directions", [0, 1, 2])
def test_steps_of_a_cell_forward_and_backward(dtype, kind, directions):
    count, batch, n = 3, 2, 5
    lead = (directions,) if directions else ()
    state_dtype = torch.promote_types(dtype, torch.float32)
    inputs, initial = normal(count, *lead, batch, 3 * n, dtype=dtype), normal(*lead, batch, n, dtype=state_dtype)
    weight = normal(*lead, 3 * n, n, dtype=dtype, scale=0.5)
    bias = normal(*lead, n, dtype=dtype) if kind is CudnnCell else None
    skip = torch.rand(count, *lead, batch, 1, device=DEVICE) < 0.3 if directions else None
    steps = FUSED_PASSES[kind.pass_class](initial, weight, bias, skip, count, True)
    for step in range(count):
        steps.forward(step, inputs[step])
    leaves = exact(inputs, initial, weight, *([bias] if bias is not None else []))
    expected = expected_states(kind, leaves, skip, directions)
    gradient = normal(*steps.states.shape)
    times = 3.0  # a state of three steps carries the roundings of all their products
    close(steps.states, expected, dtype, times)
    close(steps.rows, expected, dtype, times)
    wanted = torch.autograd.grad((expected * gradient).sum(), leaves)
    steps.start_backward()
    d_state = gradient[count].to(state_dtype, copy=True)
    for step in reversed(range(count)):
        steps.backward(step, d_state)
        d_state += gradient[step].to(state_dtype)
    found = [steps.d_inputs, d_state, steps.d_weight(), *([steps.d_bias()] if bias is not None else [])]
    for ours, theirs in zip(found, wanted, strict=True):
        close(ours, theirs, dtype, times)


def expected_states(kind, leaves, skip, directions):
    inputs, initial, weight, *bias = leaves
    if not directions:
        return naive_states(kind, inputs, initial, weight, *(bias or [None]), skip)
    ways = [
        naive_states(kind, inputs[:, d], initial[d], weight[d], bias[0][d] if bias else None, skip[:, d])
        for d in range(directions)
    ]
    return torch.stack(ways, 1)


@pytest.mark.parametrize("kind", [PaperCell, CudnnCell])
def test_a_skipped_state_stays_to_the_last_bit_and_a_pass_without_gradient_agrees(kind):
    n = 600  # more than a block
    initial, inputs = normal(2, n, dtype=torch.float32), normal(2, 2, 3 * n, dtype=torch.float32)
    weight, bias = normal(3 * n, n, dtype=torch.float32, scale=0.05), normal(n, dtype=torch.float32)
    skip = torch.tensor([[True, False], [True, True]], device=DEVICE)[..., None]
    passes = [FUSED_PASSES[kind.pass_class](initial, weight, bias, skip, 2, kept) for kept in (True, False)]
    for steps, step in itertools.product(passes, range(2)):
        steps.forward(step, inputs[step])
    states = passes[0].states
    assert torch.equal(states, passes[1].states)
    assert torch.equal(states[2, 0], initial[0])
    assert torch.equal(states[2, 1], states[1, 1])
    assert not torch.equal(states[1, 1], initial[1])
    plain = kind.pass_class(initial, weight, bias, skip, 2, True)
    for step in range(2):
        plain.forward(step, inputs[step])
    torch.testing.assert_close(states, plain.states)


# ------------------------------------------------------------------ softmax, Adadelta


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("words", "size"), [(17, 1.0), (1500, 1.0), (17, 300.0)])
def test_softmax_gradient(dtype, words, size):
    count, smoothing = 6, 0.1
    logits = normal(count, words + 3, dtype=dtype, scale=size)[:, :words]
    bias = normal(words, dtype=torch.promote_types(dtype, torch.float32))
    targets = torch.randint(0, words, (count,), device=DEVICE)
    (leaf,) = exact(logits)
    shifted = leaf + bias.double()
    log_sums, nll = torch.empty(2, count, dtype=bias.dtype, device=DEVICE)
    softmax_gradient(logits, bias, targets, smoothing, nll, log_sums)
    times = 1 if size == 1 else 20  # logits of 300 have few digits behind the point
    close(nll, F.cross_entropy(shifted, targets, reduction="none"), bias.dtype, times)
    close(log_sums, shifted.logsumexp(-1), bias.dtype, times)
    goal = ((1 - smoothing) * nll_of(shifted, targets) + smoothing * shifted.logsumexp(-1)).sum()
    close(logits, torch.autograd.grad(goal, leaf)[0], dtype, times)


def nll_of(logits, targets):
    return -logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)


def test_softmax_gradient_without_smoothing_is_probability_less_the_target():
    logits, bias = normal(3, 5, dtype=torch.float32), torch.zeros(5, device=DEVICE)
    expected = logits.softmax(-1) - F.one_hot(torch.tensor([4, 0, 2], device=DEVICE), 5)
    nll, log_sums = torch.empty(2, 3, device=DEVICE)
    softmax_gradient(logits, bias, torch.tensor([4, 0, 2], device=DEVICE), 0.0, nll, log_sums)
    torch.testing.assert_close(logits, expected)
    with pytest.raises(ValueError, match="in place"):
        softmax_gradient(normal(5, 3).t(), bias, bias, 0.0, nll, log_sums)


def test_adadelta_is_pytorchs_and_passes_over_a_bad_gradient():
    weights = normal(3, 700, dtype=torch.float32)
    theirs = torch.nn.Parameter(weights.clone())
    optimizer = torch.optim.Adadelta([theirs], lr=0.5, rho=0.95, eps=1e-6)
    squares, deltas = torch.zeros_like(weights), torch.zeros_like(weights)
    for scale in (1.0, 0.25, 3.0):
        gradient = normal(3, 700, dtype=torch.float32)
        theirs.grad = gradient * scale
        optimizer.step()
        factor = torch.tensor([scale], device=DEVICE)
        adadelta_(weights, gradient, squares, deltas, rate=0.5, rho=0.95, epsilon=1e-6, scale=factor)
    torch.testing.assert_close(weights, theirs.detach())
    state = optimizer.state[theirs]
    torch.testing.assert_close(squares, state["square_avg"])
    torch.testing.assert_close(deltas, state["acc_delta"])
    before = [tensor.clone() for tensor in (weights, squares, deltas)]
    for bad in (torch.inf, torch.nan):
        factor = torch.tensor([bad], device=DEVICE)
        adadelta_(weights, gradient, squares, deltas, rate=0.5, rho=0.95, epsilon=1e-6, scale=factor)
    for old, new in zip(before, (weights, squares, deltas), strict=True):
        assert torch.equal(old, new)
    with pytest.raises(ValueError, match="contiguous"):
        adadelta_(weights.t(), gradient, squares, deltas, rate=0.5, rho=0.95, epsilon=1e-6)


# ------------------------------------------------------------------ the model


def counted(function, calls):
    def call(*arguments):
        calls.append(function)
        return function(*arguments)

    return call


@pytest.mark.parametrize(("cell", "order"), [("paper", "look-generate-update"), ("cudnn", "look-update-generate")])
def test_the_model_gives_the_same_loss_and_gradient(cell, order, monkeypatch):
    config = ModelConfig(
        11, 13, embedding=3, hidden=5, attention_hidden=6, maxout=4, output_rank=0, cell=cell, order=order,
        initialisation="xavier",
    )  # fmt: skip
    model = TranslationModel(config).double().to(DEVICE)
    words, masks = torch.randint(0, 11, (2, 3, 5), device=DEVICE), torch.ones(2, 3, 5, dtype=torch.bool, device=DEVICE)
    masks[0, 1, 3:], masks[0, 2, 1:], masks[1, 0, 2:] = False, False, False

    def loss_and_gradient():
        loss = model.loss(words[0], masks[0], words[1], masks[1])
        return loss.objective.detach(), *torch.autograd.grad(loss.objective, list(model.parameters()))

    with fused.forced(False):
        expected = loss_and_gradient()
    launched = []
    fused_cell = FUSED_PASSES[CELLS[cell].pass_class]
    places = (fused_cell, "start_backward"), (FusedAttentionPass, "start_backward"), (one_pass, "softmax_gradient")
    for place, name in places:
        monkeypatch.setattr(place, name, counted(getattr(place, name), launched))
    with fused.forced(True):
        found = loss_and_gradient()
    assert len(launched) == 4  # encoder, decoder, its attention steps, softmax
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_why_the_kernels_are_missing():
    assert fused.missing(torch.device("cpu")) == "no kernels for cpu"
    with fused.forced(True):
        assert fused.missing(torch.device("cpu")) is None
        with fused.forced(False):
            assert fused.missing(torch.device("cuda")) == "switched off"
    if COMPILED:
        assert fused.missing(DEVICE) is None


@pytest.mark.slow
def test_kernels_compile_for_a_gpu_that_is_not_here(tmp_path):
    """The interpreter is lenient: the compiler must take all of them too, without spilling registers."""
    script = Path(__file__).parent / "compile_kernels.py"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    names = {line.split()[0] for line in result.stdout.splitlines()}
    assert {name for name in names if name.endswith("_kernel")} == {
        name for module in (fused_attention, fused_cells, one_pass) for name in vars(module) if name.endswith("_kernel")
    }
