"""The model compared with the naive loop, independence of padding, batches and steps, and how weights start."""

import dataclasses
import math

import pytest
import torch
from helpers import core_models as models
from helpers import naive_transformer
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from nmtalign.core.inference import in_dtype
from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.settings.definition import SettingError, resolve
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig

PAIRS, TINY, VARIANTS = models.PAIRS, models.TINY, models.VARIANTS
make_model, named = models.make_model, models.named

VOCABULARIES = "source_vocabulary_size", "target_vocabulary_size"
PAPERS = 84_349_101
COUNTS = [
    ("rnnsearch-50", {}, PAPERS),
    ("rnnencdec-50", {}, 72_487_101),
    ("rnnsearch-50", {"output_rank": 0}, 80_438_981),
    ("rnnsearch-50", {"shared_embeddings": True, "one_embedding": True}, PAPERS - 2 * 30_001 * 620 - 620),
    ("rnnsearch-50", {"copy": True}, PAPERS + 2000 + 1000 + 620 + 1),  # p_gen: context, state, word, bias
    ("rnnsearch-50", {"attention": "dot"}, PAPERS - 3 * 1000**2 - 1000),  # without W_a, U_a and v_a
    ("rnnsearch-50", {"attention": "general"}, PAPERS - 1000**2 - 1000),
    ("sutskever", {}, 38_099_761),
    ("luong-global", {}, 39_934_769),
    ("luong-local-p", {}, 39_934_769 + 512**2 + 512),  # W_p and v_p
    ("gnmt", {}, 53_839_153),
    ("light", {}, 27_796_017),
    ("transformer", {**dict.fromkeys(VOCABULARIES, 8000), "one_embedding": True}, 7_316_544),
    ("transformer-tiny", {"source_vocabulary_size": 8000, "target_vocabulary_size": 6000}, 3_117_680),
]


@pytest.mark.parametrize(("name", "changes", "count"), COUNTS)
def test_presets_have_the_parameters_of_their_equations(name, changes, count):
    sizes = dict.fromkeys(VOCABULARIES, 30_001)
    config = resolve(ModelConfig, ("preset", preset(name)), ("test", {**sizes, **changes}))
    with torch.device("meta"):
        model = TranslationModel(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert sum(tensor.numel() for tensor in model.state_dict().values()) == count


@pytest.mark.parametrize("config", models.SHARED, ids=named)
def test_the_softmax_of_shared_embeddings_has_the_word_vectors_of_the_target(config):
    model = make_model(config)
    assert model.readout.output_weight is model.target_embedding.weight
    assert not [name for name in model.state_dict() if "output_weight" in name]
    assert (model.source_embedding is model.target_embedding) == config.one_embedding


EQUAL_SIZES = r"shared_embeddings = True does not go with embedding = 5: .*; output_rank = 5 makes them equal"


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (TINY, {"attention_span": "local-m", "attention": "none"}, "needs attention = "),
        (TINY, {"attention_span": "local-p", "coverage": "linguistic"}, "needs coverage = none"),
        (TINY, {"attention_window": 0, "attention_span": "local-m"}, "must be at least 1"),
        (TINY, {"coverage": "linguistic", "attention": "none"}, "needs attention = additive or concat"),
        (TINY, {"coverage": "linguistic", "attention": "general"}, "needs attention = additive or concat"),
        (TINY, {"reverse_source": True}, "needs bidirectional = false"),
        (TINY, {"copy": True, "attention": "none"}, "needs attention = "),
        (TINY, {"copy": True, "attention_span": "local-m"}, "needs attention_span = global"),
        (TINY, {"norm": "post"}, "needs architecture = transformer"),
        (TINY, {"alignment_layer": 1}, "there is no such layer of a Transformer"),
        (TINY, {"alignment_head": 1}, "there is no such head of a Transformer"),
        (models.TRANSFORMER, {"copy": True}, "needs copy = false"),
        (TINY, {"input_feeding": "attentional"}, "needs readout = attentional"),
        (TINY, {"input_feeding": "attentional", "readout": "attentional"}, "needs order = "),
        (models.LUONG[0], {"attention_layer": "first"}, "where the last layer attends"),
        (models.TRANSFORMER, {"readout": "maxout"}, "needs readout = direct"),
        (models.TRANSFORMER, {"order": "look-update-generate"}, "needs order = update-look-generate"),
        (models.TRANSFORMER, {"heads": 4}, "the heads must divide the embedding"),
        (models.TRANSFORMER, {"alignment_layer": 5}, "there is no such layer"),
        (models.TRANSFORMER, {"alignment_head": 3}, "there is no such head"),
        (models.TRANSFORMER, {"attention": "none"}, "needs attention = "),
        (TINY, {"shared_embeddings": True, "output_rank": 3}, EQUAL_SIZES),
        (TINY, {"shared_embeddings": True, "output_rank": 0, "maxout": 4}, EQUAL_SIZES),
        (models.LUONG[0], {"shared_embeddings": True, "output_rank": 0}, EQUAL_SIZES),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_refused(config, changes, message):
    with pytest.raises(SettingError, match=message):
        dataclasses.replace(config, **changes)


def test_some_part_of_the_model_must_read_the_context():
    """Else the attention has no gradient, and its weights stay those of the beginning."""
    with pytest.raises(SettingError, match="no part of the model reads the context"):
        dataclasses.replace(models.SYSTEM_VARIANTS["sutskever"], attention="dot")
    for reader in ({"layers": 2, "attention_layer": "first"}, {"copy": True}, {"input_feeding": "context"}):
        model = make_model(dataclasses.replace(models.SYSTEM_VARIANTS["sutskever"], attention="general", **reader))
        model.loss(*models.batch_of(model.config).inputs()).objective.backward()
        assert model.decoder.attention.key_weight.grad.any()


@pytest.mark.parametrize("config", VARIANTS, ids=named)
def test_forward_pass_equals_the_naive_loop(config):
    model, arguments = make_model(config), models.batch_of(config).inputs()
    forced = model.force(*arguments)
    for row in range(len(PAIRS)):
        source, target, copies = models.naive_arguments(config, row)
        expected, weights = naive_transformer.log_probs_and_weights(model, source, target, copies)
        torch.testing.assert_close(forced.log_probs[row, : len(target)], expected, rtol=1e-10, atol=1e-10)
        assert not forced.log_probs[row, len(target) :].any()
        if weights is not None:
            found = forced.weights[row, : len(target), : len(source)]
            torch.testing.assert_close(found, weights, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(model.loss(*arguments).nll, -forced.log_probs.sum())


@pytest.mark.parametrize("config", VARIANTS, ids=named)
def test_gradients_by_finite_differences(config):
    """Each parameter's gradient along a random direction, against central differences of the loss.

    The gradients of the program for fixed shapes, which runs on GPUs, are the same in every variant.
    """
    model, arguments = make_model(config), models.batch_of(config, slice(3)).inputs()
    # The label smoothing of a mixture has constant weights; test_label_smoothing_of_a_mixture has its gradient.
    smoothing = 0.0 if config.copy or config.attention_kind != "soft" else 0.1

    def objective(static=False):
        return model.loss(*arguments, label_smoothing=smoothing, static_shapes=static).objective

    if config in models.DIFFERENT:  # the gradients of other combinations are PyTorch's
        models.check_gradients(model, objective)
    else:
        objective().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    objective(static=True).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-9, atol=1e-12)


SCORES = [dataclasses.replace(TINY, **changes) for changes in ({"coverage": "linguistic"}, {"attention": "dot"})]


@pytest.mark.parametrize("config", [*models.SYSTEM_VARIANTS.values(), *SCORES], ids=named)
def test_products_in_bf16_stay_near_float32_in_every_system(config):
    """States, sums or probabilities in bf16 would double the difference of the log-probabilities, or more."""
    config = dataclasses.replace(config, **models.LARGER)
    model = make_model(config, torch.float32)
    long = [(torch.randint(2, 11, (40,)).tolist(), torch.randint(2, 13, (40,)).tolist()) for _ in range(3)]
    copies = [*models.COPIES, *([13 + place for place in range(40)] for _ in long)] if config.copy else None
    batch = make_batch([*models.pairs_of(config), *long], copies=copies)
    found = []
    for dtype in (None, torch.bfloat16):
        model.zero_grad()
        loss = model.loss(*batch.inputs(), dtype=dtype)
        forced = in_dtype(model, dtype or torch.float32).force(*batch.inputs())
        loss.objective.backward()
        assert {x.dtype for x in (loss.objective, loss.nll, forced.log_probs)} == {torch.float32}
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        found.append((loss.nll, forced.log_probs[batch.target_mask], forced.weights, gradient))
    (exact, log_probs, weights, gradient), (rough, rough_log_probs, rough_weights, rough_gradient) = found
    assert 0 < abs(rough - exact) < 1e-3 * exact
    share = 0.007 if config.coverage == "none" else 0.02  # coverage adds up what is rounded
    assert (rough_log_probs - log_probs).norm() < share * (log_probs - log_probs.mean()).norm()
    assert (rough_gradient - gradient).norm() < 0.05 * gradient.norm()
    if weights is None:
        assert rough_weights is None
    else:
        torch.testing.assert_close(rough_weights, weights, atol=0.005, rtol=0)
        torch.testing.assert_close(rough_weights.sum(-1), weights.sum(-1), atol=1e-5, rtol=0)


class Masks(TorchDispatchMode):
    """Counts the masks of dropout that a block draws. All keep everything, but for one, which drops everything."""

    def __init__(self, emptied=None):
        super().__init__()
        self.count, self._emptied = 0, emptied

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found, name = function(*arguments, **(options or {})), function.overloadpacket.__name__
        if name in ("bernoulli_", "random_"):
            kept = self.count != self._emptied
            found.fill_(kept if name == "bernoulli_" else (1 if kept else -1) * 0x7FFF7FFF7FFF7FFF)
            self.count += 1
        return found


@pytest.mark.parametrize(
    ("config", "places"),
    [
        (TINY, 4),  # the words of both sides, the annotations, the readout
        (dataclasses.replace(models.LUONG[0], layers=3), 4 + 2 + 2),  # between layers of the encoder and of the decoder
        (dataclasses.replace(models.SYSTEM_VARIANTS["gnmt"], layers=3), 4 + 2 + 2),
        (dataclasses.replace(models.TRANSFORMER, layers=2), 2 + 2 * 2 + 2 * 3),  # embeddings, and each sublayer
    ],
)
def test_dropout_is_on_only_in_training_and_at_each_place(config, places):
    model = make_model(dataclasses.replace(config, dropout=0.5))
    arguments = make_batch(PAIRS).inputs()

    def loss(training, emptied=None):
        with Masks(emptied) as masks:
            found = model.train(training).loss(*arguments).nll
        assert masks.count == training * places
        return float(found)

    assert loss(False) == loss(False)
    assert loss(True) not in [loss(True, place) for place in range(places)]


MIXTURES = [models.SYSTEM_VARIANTS["copy"], *(config for config in models.LATENT if config.attention_kind != "hard")]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("config", MIXTURES, ids=named)
def test_label_smoothing_of_a_mixture(config, static):
    """The smoothing of each softmax has the weight of its share in the word's probability, a constant."""
    model, batch = make_model(config), models.batch_of(config)
    found = model.loss(*batch.inputs(), label_smoothing=0.3, static_shapes=static)
    run = model._run(model.encode(batch.source, batch.source_mask, batch.copies), batch.target)
    alternatives = model.latent and model.latent.alternatives(run.weights.transpose(0, 1))
    features, words, log_terms = model._outputs(run, batch.target, alternatives, batch.target_mask)
    logits = F.linear(features, model.readout.output_weight, model.readout.output_bias)
    vocabulary = logits.log_softmax(-1)
    count = vocabulary.shape[1]
    targets = words[:, None, None].expand(-1, count, 1)
    terms = log_terms.clone()
    terms[:, :count] += vocabulary.gather(2, targets)[..., 0]
    shares = terms.softmax(-1).detach()
    log_probs = terms.logsumexp(-1)
    smooth = (shares[:, :count] * vocabulary.mean(-1)).sum(1)
    objective = -(0.7 * log_probs + 0.3 * smooth).sum()
    torch.testing.assert_close(found.objective, objective)
    torch.testing.assert_close(found.nll, -log_probs.sum())
    expected = torch.autograd.grad(objective, list(model.parameters()))
    torch.testing.assert_close(torch.autograd.grad(found.objective, list(model.parameters())), expected)


def test_the_alternatives_of_a_word_lose_the_same_units():
    model, batch = make_model(dataclasses.replace(models.LATENT[0], dropout=0.5, output_rank=0)), make_batch(PAIRS)
    run = model._run(model.encode(batch.source, batch.source_mask), batch.target)
    alternatives = model.latent.alternatives(run.weights.transpose(0, 1))
    features, _, _ = model._outputs(run, batch.target, alternatives)
    lost = features == 0
    assert lost.any()
    assert (lost == lost[:, :1]).all()
    assert (lost[1:, 0] != lost[:-1, 0]).any()


SIZES = {"embedding": 80, "hidden": 100, "attention_hidden": 90, "maxout": 50}


def check_statistics(model, deviation):
    """Biases are 0, recurrent blocks orthogonal, all else has the deviation of its name and value, where 0 is 0."""
    for name, parameter in model.named_parameters():
        value = parameter.detach()
        wanted = 0 if "bias" in name else deviation(name, value)
        if not wanted:
            assert not value.any(), name
        elif name.endswith("recurrent_weight"):
            for block in value.view(-1, 100, 100):
                torch.testing.assert_close(block @ block.T, torch.eye(100), atol=1e-4, rtol=0)
        else:
            assert abs(value.std().item() - wanted) < 6 * wanted / math.sqrt(2 * value.numel()), name
            assert abs(value.mean().item()) < 6 * wanted / math.sqrt(value.numel()), name


@pytest.mark.parametrize("options", [{}, {"cell": "cudnn"}, {"coverage": "linguistic"}, {"attention": "general"}])
def test_the_papers_statistics(options):
    torch.manual_seed(0)
    check_statistics(TranslationModel(ModelConfig(500, 600, **SIZES, **options)), of_the_paper)


def of_the_paper(name, value):
    if name.endswith("attention.vector"):
        return 0
    return 0.001 if name.endswith(("query_weight", "key_weight", "coverage_weight", "fertility_weight")) else 0.01


@pytest.mark.parametrize("options", [{}, {"attention": "general"}, {"output_rank": 0, "cell": "cudnn"}])
def test_lecuns_deviation_is_that_of_the_inputs(options):
    torch.manual_seed(0)
    model = TranslationModel(ModelConfig(500, 600, **SIZES | options, initialisation="lecun"))
    check_statistics(model, lambda name, value: value.shape[-1] ** -0.5)
