"""Each preset on a device gives what it gives in float64 on the CPU: loss, gradient, forced decoding and beam search.

Without a GPU the same checks run on the CPU, with the static shapes that a GPU has.
"""

import copy
import os
from collections import Counter
from functools import partial

import pytest
import torch
from helpers.gpu_kernels import interpreted
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nmtalign.core import model as core_model
from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.core.numerics import Fusion
from nmtalign.search.beam_search import BeamSearch, ModelSession, Sources
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import PRESETS, preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.optimizers import descend, make_optimizer

SIZES = {"embedding": 32, "hidden": 32, "attention_hidden": 24, "maxout": 16, "dropout": 0.0}
pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")  # of the compiler of a GPU's kernels
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
WORDS = 50


def model_of(name):
    """A preset at a small size, in float64 on the CPU, with biases, and attention that is not even."""
    words = {"source_vocabulary_size": WORDS, "target_vocabulary_size": WORDS}
    torch.manual_seed(5)
    settings = {**SIZES, **words, "initialisation": "xavier"}
    model = TranslationModel(resolve(ModelConfig, ("preset", preset(name)), ("test", settings))).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 if model.config.architecture == "transformer" else 2)
            if not parameter.any():
                parameter.normal_(std=0.1)
    return model.eval()


def batch_of(seed, copies, longer=0, number=5):
    """A number of random pairs of several lengths; with copies, each place has its own word."""
    draw = torch.Generator().manual_seed(seed)
    lengths = ((3, 5), (1, 1), (9, 2), (6, 11), (12, 12))[:number]
    pairs = [[torch.randint(2, WORDS, (n + longer,), generator=draw).tolist() for n in both] for both in lengths]
    sources = [source for source, _ in pairs]
    return make_batch([(source, target) for source, target in pairs], copies=sources if copies else None)


def loss_and_gradient(model, batch, dtype=None, guided=True):
    """The negative log-likelihood and the gradient of each parameter, in float64 on the CPU.

    If it is guided, the attention weights have a further gradient, as in a training with given links.
    """
    loss = model.loss(*batch.inputs(), label_smoothing=0.1, dtype=dtype, static_shapes=True)
    of_weights = guided and loss.weights is not None
    objective = loss.objective + loss.weights.square().sum() if of_weights else loss.objective
    gradients = torch.autograd.grad(objective, list(model.parameters()))
    return [each.detach().cpu().double() for each in (loss.nll, *gradients)]


def distance(found, exact):
    """The length of the difference over the length of what is exact, of all numbers together."""
    difference = sum(float((one - other).square().sum()) for one, other in zip(found, exact, strict=True))
    return (difference / sum(float(one.square().sum()) for one in exact)) ** 0.5


def translations(model, batch):
    """The best hypotheses of each source."""
    sources = Sources(batch.source, batch.source_mask, copies=batch.copies)
    return BeamSearch(sources, TranslateConfig(beam=4)).run(partial(ModelSession, Inference(model)))


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
        assert [each.log_prob for each in ours] == pytest.approx([each.log_prob for each in theirs], abs=1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_computes_the_same_as_in_float64(name, device):
    exact, batch = model_of(name), batch_of(1, PRESETS[name].get("copy", False))
    ours, there = copy.deepcopy(exact).float().to(device), batch.to(torch.device(device))
    expected = loss_and_gradient(exact, batch)
    assert distance(loss_and_gradient(ours, there)[:1], expected[:1]) < 1e-5
    assert distance(loss_and_gradient(ours, there)[1:], expected[1:]) < 1e-4
    assert distance(loss_and_gradient(ours, there, torch.bfloat16)[1:], expected[1:]) < 0.1
    forced, forced_exactly = ours.force(*there.inputs()), exact.force(*batch.inputs())
    torch.testing.assert_close(forced.log_probs.cpu().double(), forced_exactly.log_probs, rtol=1e-4, atol=1e-4)
    if forced.weights is not None and forced_exactly.weights is not None:
        torch.testing.assert_close(forced.weights.cpu().double(), forced_exactly.weights, rtol=1e-3, atol=1e-5)
    assert not Fusion.problem  # else a GPU would have computed with functions that are not compiled


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_finds_the_same_translations_as_in_float64(name, device):
    exact, batch = model_of(name), batch_of(2, PRESETS[name].get("copy", False))
    ours = copy.deepcopy(exact).float().to(device)
    assert_same(translations(ours, batch.to(torch.device(device))), translations(exact, batch))


@pytest.fixture
def like_a_gpu(monkeypatch):
    """From its call on, a CPU computes as a GPU does, with functions that are compiled or run as they are written."""

    def begin(compiled):
        monkeypatch.setattr(Fusion, "wanted", compiled)
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: True))
        monkeypatch.setattr(core_model, "_to_gradient", core_model._fused_gradient)

    return begin


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_computes_on_a_gpu_as_on_a_cpu(name, like_a_gpu):
    model, batch = model_of(name), batch_of(3, PRESETS[name].get("copy", False))
    expected, weights = loss_and_gradient(model, batch), model.force(*batch.inputs()).weights
    unguided, found = loss_and_gradient(model, batch, guided=False), translations(model, batch)
    like_a_gpu(False)
    assert_same(translations(model, batch), found)
    assert distance(loss_and_gradient(model, batch), expected) < 1e-12
    assert distance(loss_and_gradient(model, batch, guided=False), unguided) < 1e-12
    assert distance(loss_and_gradient(model.float(), batch, torch.bfloat16), expected) < 0.1
    torch.testing.assert_close(model.double().force(*batch.inputs()).weights, weights)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton, and TRITON_INTERPRET=1")
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "of_a_step"), [("rnnsearch-50", 14), ("small", 10)])
def test_the_kernels_of_a_gpu_compute_what_their_functions_say(name, of_a_step, dtype, like_a_gpu, monkeypatch):
    """Triton's interpreter runs them on the CPU. The second batch has two more words per side, and is not guided."""
    torch.compiler.reset()
    totals = list[int]()
    monkeypatch.setitem(SIZES, "hidden", 96)  # for more than one program
    exact, batches = model_of(name), [(batch_of(1, False, longer, 2), longer == 0) for longer in (0, 2)]
    expected, ours = [loss_and_gradient(exact, batch, None, guided) for batch, guided in batches], copy.deepcopy(exact)
    like_a_gpu(True)
    with interpreted(monkeypatch) as launches:
        for (batch, guided), of_batch in zip(batches, expected, strict=True):
            assert distance(loss_and_gradient(ours.float(), batch, dtype, guided), of_batch) < (0.1 if dtype else 1e-5)
            totals.append(launches.total())
    assert not Fusion.problem
    first, both = totals
    assert (both - first) - first == 2 * of_a_step


class Operations(TorchDispatchMode):
    """Counts what a block computes, by the name of the operation."""

    def __init__(self):
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.counts[function.overloadpacket.__name__] += 1
        return function(*arguments, **(options or {}))


def test_an_update_looks_up_no_state_and_copies_no_rate_that_it_does_not_need():
    """Each would be a launch on a GPU."""
    model = model_of("rnnsearch-50").float()
    optimizer = make_optimizer(model.parameters(), TrainingConfig(optimizer="adadelta"))
    with Operations() as of_the_pass:
        model.loss(*batch_of(1, False).inputs(), static_shapes=True).objective.backward()
    assert of_the_pass.counts["index"] == 0
    with Operations() as of_the_step:
        descend(optimizer, 1.0, 1.0, on_device=True)
    assert of_the_step.counts["full_like"] == 1
