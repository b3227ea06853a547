"""Checks the results of a device: loss and gradients of small models, by every path, compared with float64."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bench.naive import NaiveLoop
from bench.paths import following, loss_and_gradients
from bench.workload import Size
from nmtalign.core.model import Activations, TranslationModel
from nmtalign.data.batches import Batch, make_batch
from nmtalign.settings.training_settings import ModelConfig

# Errors relative to the norm: of the complete gradient, and of the gradient of the worst weight. In bf16 a maxout
# unit may choose the other one of two nearly equal values, and the keys' gradient sums terms that nearly cancel.
ALLOWED = {"fp32": (1e-5, 1e-3), "bf16": (0.12, 0.4)}
LENGTHS = ((13, 9), (5, 11), (1, 1), (8, 2), (17, 6))  # odd, with padding on both sides
FEW = ((3, 1), (1, 2))  # for Triton's interpreter, which is slow
WIDTHS = {"hidden": 48, "embedding": 36, "attention_hidden": 40, "maxout": 20, "output_rank": 28}
# The paper's model is first, because it matters most if time is short.
OPTIONS = list(
    itertools.product(
        ("additive", "none"), ("paper", "cudnn"), ("look-generate-update", "look-update-generate")
    )
)  # fmt: skip


def check_path(path: str, device: torch.device, options: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Returns the errors of loss and gradients, by model and precision, compared with the naive loop in float64 on the
    CPU."""
    found = []
    for attention, cell, order in options:
        size = Size.of("tiny", 211, attention=attention, cell=cell, order=order, **WIDTHS)
        batch = _batch(size.model, FEW if device.type == "cpu" else LENGTHS)
        model = _random_model(size.model)
        loss, gradients = _reference(model, batch)
        there, model = batch.to(device), model.to(device)
        for precision in ALLOWED:
            how = Activations(torch.bfloat16 if precision == "bf16" else None)
            with following(path):
                seen_loss, seen = loss_and_gradients(path, model, how, there)
            errors = {name: _error(seen[name], gradients[name]) for name in gradients}
            worst = max(errors, key=lambda name: errors[name])
            whole = _error(*(torch.cat([found[name].flatten() for name in gradients]) for found in (seen, gradients)))
            loss_error = float((seen_loss - loss).abs() / loss)
            allowed, allowed_worst = ALLOWED[precision]
            # ("<=" rather than "not >", so that NaN counts as wrong.)
            ok = loss_error <= allowed and whole <= allowed and errors[worst] <= allowed_worst
            found.append(
                {
                    "model": f"{cell}, {order}, {attention}",
                    "precision": precision,
                    "loss": loss_error,
                    "gradient": whole,
                    "worst": errors[worst],
                    "worst_of": worst,
                    "ok": ok,
                }
            )
    return found


def _batch(config: ModelConfig, lengths: Sequence[tuple[int, int]]) -> Batch:
    generator = torch.Generator().manual_seed(3)
    words = min(config.source_vocabulary_size, config.target_vocabulary_size)

    def sentence(length: int) -> list[int]:
        return torch.randint(2, words, (length,), generator=generator).tolist()

    return make_batch([(sentence(source), sentence(target)) for source, target in lengths])


def _random_model(config: ModelConfig) -> TranslationModel:
    """Returns a model in which every weight and bias affects the result."""
    torch.manual_seed(5)
    model = TranslationModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    return model


def _reference(model: TranslationModel, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    weights = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    loss = NaiveLoop(model.config, weights).loss(batch.source, batch.source_mask, batch.target, batch.target_mask)
    return loss.detach(), dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))


def _error(seen: Tensor, wanted: Tensor) -> float:
    """Returns the distance divided by the norm of the expected value."""
    return float((seen - wanted).norm() / wanted.norm().clamp_min(1e-30))
