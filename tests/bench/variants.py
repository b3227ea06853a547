"""The variants of training: nmtalign and the naive loop, each in two precisions, on the same weights and batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bench.naive import NaiveLoop
from nmtalign.core.model import Batch, TranslationModel
from nmtalign.errors import UsageError


@dataclass(frozen=True)
class Variant:
    """A way to compute the loss; `precision` says with which floor it is compared."""

    name: str
    title: str
    precision: str
    loss: Callable[[TranslationModel, Batch], Tensor]


def _arguments(batch):
    return batch.source, batch.source_mask, batch.target, batch.target_mask


def _ours(bf16, model, batch):
    return model.loss(*_arguments(batch), dtype=torch.bfloat16 if bf16 else None).objective


def _loop(bf16, model, batch):
    loop = NaiveLoop(model.config, dict(model.named_parameters()))
    with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=bf16):
        return loop.loss(*_arguments(batch))


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("ours-bf16", "ours, bf16", "bf16", partial(_ours, True)),
        Variant("ours-fp32", "ours, fp32", "fp32", partial(_ours, False)),
        Variant("loop-autocast", "the loop under bf16 autocast", "bf16", partial(_loop, True)),
        Variant("loop-fp32", "the loop, fp32", "fp32", partial(_loop, False)),
    )
}


def choose(names):
    """Parses a list such as "ours-bf16,loop-fp32"; None selects all variants."""
    if names is None:
        return list(VARIANTS.values())
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in VARIANTS:
            raise UsageError(f"--variants: unknown variant '{name}'; choose from {', '.join(VARIANTS)}")
    return [VARIANTS[name] for name in wanted]


def make_model(workload, seed=1):
    """Returns a model of the workload's size, ready to train."""
    torch.manual_seed(seed)
    return TranslationModel(workload.size.model).train()


def loss_and_gradients(variant, model, workload):
    """Runs one pass over all batches: the loss, and the gradients of its mean over sentences, which are discarded."""
    for batch in workload.batches:
        (variant.loss(model, batch) / len(batch.source)).backward()
        model.zero_grad(set_to_none=True)
