"""A whole recurrence as one autograd function: the cell's steps, and between them the decoder's looks at the source."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtalign.core.attention import AdditiveAttention, Looks
from nmtalign.core.autograd import apply, once
from nmtalign.core.cells import GatedCell, Steps, add_product, over_steps, product
from nmtalign.core.coverage import CoveredLooks
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
    attention: AdditiveAttention,
    inputs: Tensor,
    initial: Tensor,
    keys: Tensor,
    annotations: Tensor,
    padding: Tensor | None,
    looks: int,
    covered: tuple[Tensor, Tensor] | None = None,
) -> Unrolled:
    """Looks and updates in turn: look k reads state k; update k takes up inputs[k] (U, B, 3n) and what look k saw.

    There are as many looks as updates, or one more. keys (B, Tx, n'), annotations (B, Tx, D), padding (B, Tx) or None.
    `covered` are V_c (n',) and 1 / Phi (B, Tx) of a model with coverage (`nmtalign.core.coverage`).
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
        attention.query_weight.to(dtype),
        attention.energy_vector().to(dtype),
        keys,
        annotations,
        padding,
        looks,
        torch.is_grad_enabled(),
        *(covered or (None, None)),
    )
    return Unrolled(states, contexts, weights)


def _narrow(cell: GatedCell, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    bias = cell.inner_bias()
    return cell.recurrent_weight.to(dtype), None if bias is None else bias.to(dtype)


def _kernels(cell: GatedCell, device: torch.device) -> tuple[type[Steps], type[Looks]]:
    """The classes that go through the steps and the looks on a device: in plain PyTorch, or fused."""
    if missing(device):
        return cell.steps_class, Looks
    from nmtalign.core.triton.looks import FusedLooks
    from nmtalign.core.triton.steps import FUSED

    return FUSED[cell.steps_class], FusedLooks


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
        steps_class, _ = _kernels(cell, inputs.device)
        steps = steps_class(initial, weight, bias, skip, count, differentiate)
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
        query_weight: Tensor,
        vector: Tensor,
        keys: Tensor,
        annotations: Tensor,
        padding: Tensor | None,
        count: int,
        differentiate: bool,
        coverage_vector: Tensor | None,
        shares: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        steps_class, looks_class = _kernels(cell, inputs.device)
        steps = steps_class(initial, weight, bias, None, len(inputs), differentiate)
        arguments = (keys, annotations, vector, query_weight, padding, count, differentiate)
        if coverage_vector is None or shares is None:
            looks = looks_class(*arguments)
        else:  # which no fused kernel knows
            looks = CoveredLooks(*arguments, coverage_vector, shares)
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
        count = len(looks.weights)
        return (
            None,
            steps.d_inputs,
            d_state,
            steps.d_weight(),
            steps.d_bias(),
            over_steps(steps.d_inputs, looks.contexts[: steps.count]),
            looks.d_query_weight(steps.rows[:count]),
            looks.d_vector(),
            looks.d_keys(),
            looks.d_annotations(),
            None,
            None,
            None,
            *((looks.d_coverage_vector(), looks.d_shares()) if isinstance(looks, CoveredLooks) else (None, None)),
        )
