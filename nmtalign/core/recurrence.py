"""A whole recurrence as one autograd function: the cell's steps, and between them the decoder's looks at the source."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtalign.core.attention import Looks
from nmtalign.core.autograd import apply, once
from nmtalign.core.cells import GatedCell, Steps, add_product, over_steps, product
from nmtalign.core.triton import missing


@dataclass(frozen=True)
class Unrolled:
    """All states and, with attention, all looks of a pass."""

    states: Tensor  # (*D, U + 1, B, n), the initial one first, in the activations' type
    contexts: Tensor | None  # (T, B, D)
    weights: Tensor | None  # (T, B, Tx), float32


def unroll(cell: GatedCell, inputs: Tensor, initial: Tensor, skip: Tensor | None = None) -> Unrolled:
    """The states of a cell along its inputs (*D, U, B, 3n), from initial (*D, B, n), in float32 even beside bf16.

    skip (*D, U, B, 1) is True where a state stays as it was; None if nowhere.
    """
    weight, bias = _narrow(cell, inputs.dtype)
    states = apply(_Cell, cell, inputs, initial, weight, bias, skip, torch.is_grad_enabled())
    return Unrolled(states, None, None)


def unroll_attending(
    cell: GatedCell,
    inputs: Tensor,
    initial: Tensor,
    keys: Tensor,
    annotations: Tensor,
    padding: Tensor | None,
    looks: int,
    looks_class: type[Looks],
    parameters: tuple[Tensor, ...],
) -> Unrolled:
    """Looks and updates in turn: look k reads state k; update k takes up inputs[k] (U, B, 3n) and what look k saw.

    There are as many looks as updates, or one more. keys (B, Tx, .), annotations (B, Tx, D), padding (B, Tx) or None.
    `parameters` are what looks of the class read beside these.
    """
    dtype = inputs.dtype
    weight, bias = _narrow(cell, dtype)
    if cell.context_weight is None:
        raise ValueError("the decoder's cell has no context")
    states, contexts, weights = apply(
        _AttendingCell,
        cell,
        inputs,
        initial,
        weight,
        bias,
        cell.context_weight.to(dtype),
        keys,
        annotations,
        padding,
        looks,
        looks_class,
        torch.is_grad_enabled(),
        *parameters,
    )
    return Unrolled(states, contexts, weights)


def _narrow(cell: GatedCell, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    bias = cell.inner_bias()
    return cell.recurrent_weight.to(dtype), None if bias is None else bias.to(dtype)


def _steps_class(cell: GatedCell, device: torch.device) -> type[Steps]:
    """What goes through the steps on a device: in plain PyTorch, or with fused kernels where there are any for them."""
    if missing(device):
        return cell.steps_class
    from nmtalign.core.triton.steps import FUSED

    return FUSED.get(cell.steps_class, cell.steps_class)


def _looks_class(plain: type[Looks], device: torch.device) -> type[Looks]:
    """What looks on a device, likewise."""
    if missing(device):
        return plain
    from nmtalign.core.triton.looks import FUSED

    return FUSED.get(plain, plain)


class _Cell(torch.autograd.Function):
    """The recurrence without attention."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: GatedCell,
        inputs: Tensor,
        initial: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        skip: Tensor | None,
        differentiate: bool,
    ) -> Tensor:
        count = inputs.shape[-3]
        steps = _steps_class(cell, inputs.device)(initial, weight, bias, skip, count, differentiate)
        for step in range(count):
            steps.forward(step, inputs.select(-3, step))
        ctx.steps = steps
        return steps.rows.view_as(steps.rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: Tensor) -> tuple[None, Tensor, Tensor, Tensor, Tensor | None, None, None]:
        steps = once(ctx, "steps")
        steps.start_backward()
        d_state = d_rows.select(-3, steps.count).to(steps.states.dtype, copy=True)
        for step in reversed(range(steps.count)):
            steps.backward(step, d_state)
            d_state += d_rows.select(-3, step)
        return None, steps.d_inputs, d_state, steps.d_weight(), steps.d_bias(), None, None


class _AttendingCell(torch.autograd.Function):
    """The recurrence with a look at the source before each update."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: GatedCell,
        inputs: Tensor,
        initial: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        context_weight: Tensor,
        keys: Tensor,
        annotations: Tensor,
        padding: Tensor | None,
        count: int,
        looks_class: type[Looks],
        differentiate: bool,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        steps = _steps_class(cell, inputs.device)(initial, weight, bias, None, len(inputs), differentiate)
        source = (keys, annotations, padding, count, differentiate)
        looks = _looks_class(looks_class, inputs.device)(*source, *parameters)
        for step in range(count):
            context = looks.forward(step, steps.rows[step])
            if step < len(inputs):
                steps.forward(step, product(context, context_weight, inputs[step]))
        ctx.steps, ctx.looks, ctx.context_weight = steps, looks, context_weight
        return (
            steps.rows.view_as(steps.rows),
            looks.contexts.view_as(looks.contexts),
            looks.weights.view_as(looks.weights),
        )

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_rows: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Any, ...]:
        steps, looks, context_weight = once(ctx, "steps"), once(ctx, "looks"), ctx.context_weight
        steps.start_backward()
        looks.start_backward()
        if d_contexts is None:
            looks.d_contexts.zero_()
        else:
            looks.d_contexts.copy_(d_contexts)
        d_state = torch.zeros_like(steps.states[0])
        if d_rows is not None:
            d_state += d_rows[-1]
        for step in reversed(range(len(looks.weights))):
            if step < steps.count:
                steps.backward(step, d_state)
                add_product(looks.d_contexts[step], steps.d_inputs[step], context_weight)
                if d_rows is not None:
                    d_state += d_rows[step]
            d_state += looks.backward(step, None if d_weights is None else d_weights[step])
        rows = steps.rows[: len(looks.weights)]
        return (
            None,
            steps.d_inputs,
            d_state,
            steps.d_weight(),
            steps.d_bias(),
            over_steps(steps.d_inputs, looks.contexts[: steps.count]),
            looks.d_keys(rows),
            looks.d_annotations(),
            None,
            None,
            None,
            None,
            *looks.d_parameters(rows),
        )
