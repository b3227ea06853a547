"""Small models of every kind, and sentence pairs for them."""

import dataclasses
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from nmtalign.core.model import Batch, TranslationModel, make_batch
from nmtalign.settings.presets import SYSTEMS
from nmtalign.settings.training_settings import ModelConfig

_SIZES = {"embedding": 5, "hidden": 6, "attention_hidden": 7, "maxout": 4, "output_rank": 3, "heads": 1}
TINY = ModelConfig(source_vocabulary_size=11, target_vocabulary_size=13, **_SIZES, initialisation="xavier")
VARIANTS = [
    dataclasses.replace(TINY, cell=cell, order=order, attention=attention, bidirectional=both, output_rank=rank)
    for cell, order, rank in (
        ("paper", "look-generate-update", 3),
        ("paper", "look-update-generate", 0),
        ("cudnn", "look-generate-update", 0),
        ("cudnn", "look-update-generate", 3),
    )
    for attention, both in (("additive", True), ("additive", False), ("none", False), ("none", True))
]
VARIANTS += [
    dataclasses.replace(TINY, cell=cell, order=order, coverage="linguistic")
    for cell, order in itertools.product(("paper", "cudnn"), ("look-generate-update", "look-update-generate"))
]
VARIANTS += [
    dataclasses.replace(TINY, attention=score, cell=cell, order=order, bidirectional=both)
    for score, cell, order, both in (
        ("dot", "paper", "look-generate-update", True),
        ("dot", "cudnn", "look-update-generate", False),
        ("dot", "paper", "look-update-generate", True),
        ("general", "paper", "look-update-generate", True),
        ("general", "cudnn", "look-generate-update", True),
        ("general", "paper", "look-generate-update", False),
    )
]
ONE_WAY = dataclasses.replace(TINY, bidirectional=False)
VARIANTS += [
    dataclasses.replace(TINY, readout_previous_word=False),
    dataclasses.replace(TINY, readout_previous_word=False, cell="cudnn", order="look-update-generate", output_rank=0),
    dataclasses.replace(ONE_WAY, reverse_source=True),
    dataclasses.replace(ONE_WAY, reverse_source=True, attention="none", cell="cudnn"),
    dataclasses.replace(ONE_WAY, reverse_source=True, attention="none", order="look-update-generate"),
    dataclasses.replace(ONE_WAY, reverse_source=True, attention="dot", readout_previous_word=False),
]
COVERED = dataclasses.replace(TINY, coverage="linguistic", order="update-look-generate")
VARIANTS += [COVERED, dataclasses.replace(COVERED, layers=2)]
VARIANTS += [dataclasses.replace(TINY, cell="lstm"), dataclasses.replace(TINY, cell="light", attention="none")]
VARIANTS += [dataclasses.replace(TINY, cell="minimal"), dataclasses.replace(TINY, cell="minimal", attention="none")]
SYSTEM_VARIANTS = {name: dataclasses.replace(TINY, **settings) for name, settings in SYSTEMS.items()}
SYSTEM_VARIANTS["marginal"] = dataclasses.replace(TINY, attention_kind="marginal", attention_positions=2)
LARGER = {"embedding": 32, "hidden": 64, "attention_hidden": 32, "maxout": 32, "heads": 2}  # for products in bf16
LUONG = [SYSTEM_VARIANTS[f"luong-{span}"] for span in ("global", "local-m", "local-p")]
VARIANTS += [
    *SYSTEM_VARIANTS.values(),
    dataclasses.replace(SYSTEM_VARIANTS["gnmt"], layers=2, attention="dot"),
    dataclasses.replace(
        SYSTEM_VARIANTS["luong-global"], layers=1, input_feeding="context", bidirectional=True, reverse_source=False
    ),
    dataclasses.replace(
        SYSTEM_VARIANTS["luong-global"], layers=3, attention="concat", input_feeding="context", residual=True
    ),
    *(dataclasses.replace(config, input_feeding="none", layers=1) for config in LUONG),
    *(
        dataclasses.replace(LUONG[0], layers=layers, cell=cell, attention=score, residual=layers > 2)
        for layers, cell, score in ((1, "lstm", "dot"), (1, "light", "concat"), (3, "cudnn", "general"))
    ),
    *(
        dataclasses.replace(config, layers=layers, attention=score, attention_window=window, residual=layers > 2)
        for config in LUONG[1:]
        for layers, score, window in ((1, "concat", 1), (3, "dot", 2), (2, "general", 3))
    ),
    *(
        dataclasses.replace(TINY, attention=score, order=order, attention_span=span, attention_window=2)
        for score, order, span in (
            ("additive", "look-generate-update", "local-m"),
            ("dot", "look-update-generate", "local-p"),
        )
    ),
]
VARIANTS += [
    dataclasses.replace(SYSTEM_VARIANTS["luong-global"], copy=True),
    dataclasses.replace(TINY, copy=True, cell="cudnn", order="look-update-generate", coverage="linguistic"),
    dataclasses.replace(TINY, copy=True, attention="dot", readout_previous_word=False, output_rank=0),
]
VARIANTS += [
    dataclasses.replace(TINY, readout=readout, cell=cell, order=order)
    for readout, cell, order in (
        ("attentional", "paper", "look-generate-update"),
        ("attentional", "cudnn", "look-update-generate"),
        ("direct", "cudnn", "look-generate-update"),
    )
]
SHARED = [
    dataclasses.replace(TINY, shared_embeddings=True, output_rank=5),
    dataclasses.replace(
        TINY, shared_embeddings=True, output_rank=0, maxout=5, cell="cudnn", order="look-update-generate"
    ),
    dataclasses.replace(TINY, shared_embeddings=True, output_rank=5, one_embedding=True, source_vocabulary_size=13),
    dataclasses.replace(SYSTEM_VARIANTS["luong-global"], shared_embeddings=True, output_rank=0, embedding=6),
]
VARIANTS += SHARED
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
VARIANTS += LATENT[1:]
TRANSFORMER = dataclasses.replace(SYSTEM_VARIANTS["transformer"], embedding=6, heads=2, shared_embeddings=False)
VARIANTS += [
    dataclasses.replace(TRANSFORMER, norm="post", alignment_layer=1, alignment_head=2),
    dataclasses.replace(TRANSFORMER, norm="post", shared_embeddings=True, layers=1),
    dataclasses.replace(
        TRANSFORMER, source_vocabulary_size=13, shared_embeddings=True, one_embedding=True, norm="post"
    ),
]
# Every kind of cell, attention and softmax, once.
DIFFERENT = [*SYSTEM_VARIANTS.values(), *SHARED, *LATENT]
DIFFERENT += [dataclasses.replace(TINY, cell=cell, coverage="linguistic") for cell in ("paper", "cudnn")]
PAIRS = [([3, 4, 5, 6], [2, 3, 4]), ([7], [5, 6, 7, 8, 9]), ([2, 2, 10, 3, 4, 5, 6], [12]), ([1, 9], [1, 1])]
# For a copying model: the target word that is copied from each place of the source, or a place of the source (from 13).
COPYING_PAIRS = [([3, 4, 1, 6, 1], [15, 5, 13, 2, 1, 15]), ([7], [5, 13, 7, 8])]
COPYING_PAIRS += [([2, 2, 2], [3, 12]), ([1, 9, 9], [1, 1, 15])]
COPIES = [[13, 5, 15, 5, 15], [13], [3, 3, 3], [13, 0, 15]]


def pairs_of(config: ModelConfig) -> list[tuple[list[int], list[int]]]:
    return COPYING_PAIRS if config.copy else PAIRS


def batch_of(config: ModelConfig, rows: slice = slice(None)) -> Batch:
    """Some of the pairs for a model, with the ids that it copies."""
    return make_batch(pairs_of(config)[rows], copies=COPIES[rows] if config.copy else None)


def naive_arguments(config: ModelConfig, row: int) -> tuple[list[int], list[int], list[int] | None]:
    """The ids of a pair with `</s>` and what is copied, for the naive implementations."""
    source, target = pairs_of(config)[row]
    return [*source, 0], [*target, 0], [*COPIES[row], 0] if config.copy else None


def make_model(config: ModelConfig, dtype: torch.dtype = torch.float64) -> TranslationModel:
    torch.manual_seed(3)
    model = TranslationModel(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 3 and not parameter.abs().sum():
                parameter.normal_(0, 0.3)  # biases that are 0 would hide a bias that is forgotten
    # In training hard attention draws positions; tests of what is drawn turn the mode on.
    return model.train(config.attention_kind != "hard")


def check_gradients(module: nn.Module, objective: Callable[[], torch.Tensor]) -> None:
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


def spread(model: TranslationModel) -> None:
    """Weights that are large enough for sharp attention and different words."""
    for parameter in model.parameters():
        parameter.mul_(3).add_(torch.randn_like(parameter) * 0.3)


def named(config: ModelConfig) -> str:
    coverage = "" if config.coverage == "none" else f"-{config.coverage}"
    kind = f"{config.cell}-{config.order}-{config.attention}-{config.bidirectional}-{config.output_rank}"
    fewer = "-reversed" * config.reverse_source + "-no-word" * (not config.readout_previous_word)
    layers = f"-{config.layers}-{config.readout}-{config.input_feeding}" * (config.order == "update-look-generate")
    shared = "-shared" * config.shared_embeddings + "-one" * config.one_embedding
    if config.architecture == "transformer":
        return f"transformer-{config.norm}-{config.layers}-{config.alignment_layer}-{config.alignment_head}{shared}"
    local = f"-{config.attention_span}-{config.attention_window}" * (config.attention_span != "global")
    if config.attention_kind != "soft":
        kind += f"-{config.attention_kind}-{config.attention_positions}"
    return kind + coverage + fewer + layers + local + "-copy" * config.copy + shared
