"""The ways by which an update runs on a device: PyTorch's operations, fused kernels, and CUDA graphs of either."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from nmtalign.config import TrainingConfig
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import Batch

PATHS = ("graphs", "kernels", "plain")
TITLES = {"graphs": "kernels in CUDA graphs", "kernels": "fused kernels", "plain": "PyTorch's operations"}


def missing(path: str, device: torch.device) -> str | None:
    """Why there is no such path on a device; None where there is one."""
    if path == "plain":
        return None
    if path == "graphs" and device.type != "cuda":
        return "no CUDA graphs on a CPU"
    if path == "graphs" and importlib.util.find_spec("nmtalign.training.graphs") is None:
        return "this nmtalign has no CUDA graphs"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    from nmtalign.core import triton

    return triton.missing(device) if device.type == "cuda" else None


@contextmanager
def following(path: str) -> Iterator[None]:
    """Everything inside goes by that path; on a CPU the kernels run in Triton's interpreter."""
    from nmtalign.core.triton import forced

    with forced(path != "plain"):
        yield


def interpret_kernels() -> None:
    """Lets Triton's kernels run on a CPU; must come before Triton is imported."""
    os.environ.setdefault("TRITON_INTERPRET", "1")


def make_update(
    path: str, model: TranslationModel, optimizer: torch.optim.Optimizer, training: TrainingConfig
) -> Callable[[Batch], None]:
    """A function that makes one update, as training does it: loss, gradients, clipping, the optimiser's step."""
    parameters = list(model.parameters())
    gradients = _graphed(model) if path == "graphs" else _eager(model)

    def update(batch: Batch) -> None:
        gradients(batch)
        torch.nn.utils.clip_grad_norm_(parameters, training.clip_norm or torch.inf, foreach=True)
        optimizer.step()

    return update


def _eager(model: TranslationModel) -> Callable[[Batch], None]:
    def gradients(batch: Batch) -> None:
        model.zero_grad(set_to_none=True)
        loss = model.loss(batch.source, batch.source_mask, batch.target, batch.target_mask)
        (loss.objective / len(batch.source)).backward()

    return gradients


def _graphed(model: TranslationModel) -> Callable[[Batch], None]:
    raise NotImplementedError("no CUDA graphs")


def loss_and_gradients(path: str, model: TranslationModel, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """The summed loss and the gradients by name, in float64 on the CPU."""
    model.zero_grad(set_to_none=True)
    loss = model.loss(batch.source, batch.source_mask, batch.target, batch.target_mask)
    loss.objective.backward()
    gradients = {name: _plain(parameter.grad) for name, parameter in model.named_parameters()}
    return _plain(loss.objective.detach()), gradients


def _plain(tensor: Any) -> Tensor:
    dense: Tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return dense.double().cpu()
