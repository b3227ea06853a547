"""The paths by which an update runs on a device: PyTorch's operations, fused kernels, and CUDA graphs of either."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmtalign.core.model import Activations, TranslationModel
from nmtalign.data.batches import Batch
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.graphs import GraphedLoss
from nmtalign.training.optimizers import Optimizer, descend
from nmtalign.training.updates import BatchLoss, add_gradient

PATHS = ("graphs", "kernels", "plain")
TITLES = {"graphs": "kernels in CUDA graphs", "kernels": "fused kernels", "plain": "PyTorch's operations"}


def missing(path: str, device: torch.device) -> str | None:
    """Returns why a path is not available on a device, or None if it is."""
    if path == "plain":
        return None
    if path == "graphs" and device.type != "cuda":
        return "no CUDA graphs on a CPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    from nmtalign.core import gpu as triton

    return triton.missing(device) if device.type == "cuda" else None


@contextmanager
def following(path: str) -> Iterator[None]:
    """Within the block, computations use that path; on a CPU the kernels run in Triton's interpreter."""
    from nmtalign.core.gpu import forced

    with forced(path != "plain"):
        yield


def interpret_kernels() -> None:
    """Makes Triton's kernels run on a CPU; must be called before Triton is imported."""
    os.environ.setdefault("TRITON_INTERPRET", "1")


def make_update(
    path: str, model: TranslationModel, how: Activations, optimizer: Optimizer, training: TrainingConfig
) -> Callable[[Batch], None]:
    """Returns a function that makes one update as in training: loss, gradients, clipping, optimiser step."""
    loss = make_loss(path, model, how)

    def update(batch: Batch) -> None:
        loss(batch, 1 / batch.sentences)
        descend(optimizer, training.learning_rate, training.clip_norm)

    return update


def make_loss(path: str, model: TranslationModel, how: Activations) -> Callable[..., Tensor]:
    """Returns a function that computes loss and gradients of a batch by a path; raises RuntimeError if no CUDA graph
    can be captured."""
    device = next(model.parameters()).device
    loss = BatchLoss(model, 0.0, how=how)
    eager = partial(add_gradient, loss, device)
    return GraphedLoss(model, loss, eager, _refuse) if path == "graphs" else eager


def _refuse(reason: str) -> None:
    raise RuntimeError(reason)


def loss_and_gradients(
    path: str, model: TranslationModel, how: Activations, batch: Batch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns the summed loss and the gradients by name, in float64 on the CPU; for a graph, those of its replay."""
    loss = make_loss(path, model, how)
    nll = None
    for _ in range(3 if path == "graphs" else 1):  # eager, captured, replayed
        model.zero_grad(set_to_none=True)
        nll = loss(batch)
    gradients = {name: _plain(parameter.grad) for name, parameter in model.named_parameters()}
    return _plain(nll), gradients


def _plain(tensor: Any) -> Tensor:
    plain: Tensor = tensor.double().cpu()
    return plain
