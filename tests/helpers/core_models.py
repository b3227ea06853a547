"""Small models of every kind, and sentence pairs for them."""

import contextlib
import dataclasses
import random

import pytest
import torch

from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.settings.definition import SettingError, select
from nmtalign.settings.presets import SYSTEMS
from nmtalign.settings.training_settings import ModelConfig

_SIZES = {"embedding": 5, "hidden": 6, "attention_hidden": 7, "maxout": 4, "output_rank": 3, "heads": 1}
TINY = ModelConfig(source_vocabulary_size=11, target_vocabulary_size=13, **_SIZES, initialisation="xavier")
ONE_WAY = dataclasses.replace(TINY, bidirectional=False)
SYSTEM_VARIANTS = {name: dataclasses.replace(TINY, **settings) for name, settings in SYSTEMS.items()}
SYSTEM_VARIANTS["marginal"] = dataclasses.replace(TINY, attention_kind="marginal", attention_positions=2)
LARGER = {"embedding": 32, "hidden": 64, "attention_hidden": 32, "maxout": 32, "heads": 2}  # for products in bf16
LUONG = [SYSTEM_VARIANTS[f"luong-{span}"] for span in ("global", "local-m", "local-p")]
SHARED = [
    dataclasses.replace(TINY, shared_embeddings=True, output_rank=5),
    dataclasses.replace(
        TINY, shared_embeddings=True, output_rank=0, maxout=5, cell="cudnn", order="look-update-generate"
    ),
    dataclasses.replace(TINY, shared_embeddings=True, output_rank=5, one_embedding=True, source_vocabulary_size=13),
    dataclasses.replace(SYSTEM_VARIANTS["luong-global"], shared_embeddings=True, output_rank=0, embedding=6),
]
LATENT = [SYSTEM_VARIANTS["marginal"]]
LATENT += [
    dataclasses.replace(TINY, attention_kind=kind, attention_positions=positions, **changes)
    for kind, positions, changes in (
        ("marginal", 1, {"order": "look-update-generate", "cell": "cudnn", "output_rank": 0}),
        ("marginal", 5, {"attention": "dot", "readout_previous_word": False}),
        ("marginal", 3, {"cell": "lstm", "layers": 2, "order": "update-look-generate"}),
        ("marginal", 3, {"coverage": "linguistic", "bidirectional": False}),
        ("marginal", 3, {"cell": "lstm", "attention": "dot", "output_rank": 0}),
        ("marginal", 2, {"copy": True}),
        ("marginal", 2, {"copy": True, "order": "update-look-generate", "layers": 2, "attention_layer": "first"}),
        ("hard", 2, {}),
        ("hard", 3, {"order": "look-update-generate", "cell": "cudnn", "output_rank": 0}),
        ("hard", 2, {"copy": True}),
    )
]
TRANSFORMER = dataclasses.replace(SYSTEM_VARIANTS["transformer"], embedding=6, heads=2, shared_embeddings=False)
# Every kind of cell, attention and softmax, once.
DIFFERENT = [*SYSTEM_VARIANTS.values(), *SHARED, *LATENT]
DIFFERENT += [dataclasses.replace(TINY, cell=cell, coverage="linguistic") for cell in ("paper", "cudnn")]
DIFFERENT += [TRANSFORMER, dataclasses.replace(TRANSFORMER, norm="post", alignment_layer=1, alignment_head=2)]
DIFFERENT += [dataclasses.replace(TINY, readout="attentional", cell=cell) for cell in ("paper", "cudnn")]
DIFFERENT += [dataclasses.replace(LUONG[0], layers=3, residual=True)]


def random_variant(seed):
    """One of `DIFFERENT`, in which half of the settings were changed at random, one after the other, where they fit."""
    drawn = random.Random(seed)
    choices = {"layers": (1, 1, 2, 3), "output_rank": (0, 3, 5), "maxout": (4, 5), "embedding": (5, 6), "heads": (1, 2)}
    choices |= {"attention_positions": (1, 2, 3), "attention_window": (1, 2), "source_vocabulary_size": (11, 13)}
    choices |= {"alignment_layer": (0, 1), "alignment_head": (0, 1)}
    choices |= {name: one.choices for name, one in select(ModelConfig, lambda one: one.choices).items()}
    choices |= dict.fromkeys(select(ModelConfig, lambda one: one.base is bool), (False, True))
    del choices["one_embedding"]
    config = drawn.choice(DIFFERENT)
    for name in drawn.sample(sorted(choices), len(choices) // 2):
        with contextlib.suppress(SettingError):
            config = dataclasses.replace(config, **{name: drawn.choice(choices[name])})
    same = config.shared_embeddings and config.source_vocabulary_size == config.target_vocabulary_size
    return dataclasses.replace(config, one_embedding=same)


VARIANTS = [*DIFFERENT, *map(random_variant, range(100))]
PAIRS = [([3, 4, 5, 6], [2, 3, 4]), ([7], [5, 6, 7, 8, 9]), ([2, 2, 10, 3, 4, 5, 6], [12]), ([1, 9], [1, 1])]
# For a copying model: the target word that is copied from each place of the source, or a place of the source (from 13).
COPYING_PAIRS = [([3, 4, 1, 6, 1], [15, 5, 13, 2, 1, 15]), ([7], [5, 13, 7, 8])]
COPYING_PAIRS += [([2, 2, 2], [3, 12]), ([1, 9, 9], [1, 1, 15])]
COPIES = [[13, 5, 15, 5, 15], [13], [3, 3, 3], [13, 0, 15]]


def pairs_of(config):
    return COPYING_PAIRS if config.copy else PAIRS


def batch_of(config, rows=slice(None)):
    """Some of the pairs for a model, with the ids that it copies."""
    return make_batch(pairs_of(config)[rows], copies=COPIES[rows] if config.copy else None)


def naive_arguments(config, row):
    """The ids of a pair with `</s>` and what is copied, for the naive implementations."""
    source, target = pairs_of(config)[row]
    return [*source, 0], [*target, 0], [*COPIES[row], 0] if config.copy else None


def make_model(config, dtype=torch.float64):
    torch.manual_seed(3)
    model = TranslationModel(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 3 and not parameter.abs().sum():
                parameter.normal_(0, 0.3)  # biases that are 0 would hide a bias that is forgotten
    # In training hard attention draws positions; tests of what is drawn turn the mode on.
    return model.train(config.attention_kind != "hard")


def check_gradients(module, objective):
    """Each parameter's gradient along a random direction, against central differences of the objective."""
    objective().backward()
    for name, parameter in module.named_parameters():
        direction, step = torch.randn_like(parameter), 1e-6
        with torch.no_grad():
            parameter.add_(direction, alpha=step)
            above = objective()
            parameter.add_(direction, alpha=-2 * step)
            below = objective()
            parameter.add_(direction, alpha=step)
        expected = float((above - below) / (2 * step))
        assert float((parameter.grad * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-6), name


def spread(model):
    """Weights that are large enough for sharp attention and different words."""
    for parameter in model.parameters():
        parameter.mul_(3).add_(torch.randn_like(parameter) * 0.3)


def named(config):
    """The settings in which a model differs from the smallest one."""
    fields = ((field.name, getattr(config, field.name)) for field in dataclasses.fields(config))
    return "-".join(f"{name}={value}" for name, value in fields if value != getattr(TINY, name)) or "tiny"
