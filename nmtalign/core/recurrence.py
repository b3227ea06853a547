"""Products and attention inside a recurrence, with the gradients that do not recur put off until after it.

A weight that is used at every step gets its gradient by one product over all steps (`G^T X`, with the steps stacked)
instead of one small product and one addition a step; the same holds for what the attention reads. Each step records
what it needs in a list that belongs to this one pass, and a `_PutOff` node placed before the loop computes the sum
when the backward pass reaches it, after all steps.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtalign.core.autograd import apply


class _PutOff(torch.autograd.Function):
    """The identity; its backward takes the gradient that the steps have left behind."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, gradient: Callable[[], Tensor | None]) -> Tensor:
        ctx.gradient = gradient
        ctx.set_materialize_grads(False)
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, direct: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.gradient()
        if direct is not None:
            total = direct if total is None else total + direct
        return total, None


class _StepProduct(torch.autograd.Function):
    """`x W^T (+ addend)` at one step; the gradient of W is left to the end."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, addend: Tensor | None, tape: "_ProductTape") -> Tensor:
        rows = x.to(weight.dtype)
        ctx.save_for_backward(rows, weight)
        ctx.tape, ctx.x_dtype, ctx.has_addend = tape, x.dtype, addend is not None
        return _product(rows, weight, addend)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        ctx.tape.record(gradient, rows)
        return (gradient @ weight).to(ctx.x_dtype), None, gradient if ctx.has_addend else None, None


def _product(rows: Tensor, weight: Tensor, addend: Tensor | None) -> Tensor:
    if addend is None:
        return rows @ weight.mT
    if weight.dim() == 2:
        return torch.addmm(addend, rows, weight.t())
    return torch.baddbmm(addend, rows, weight.mT)


class StepWeight:
    """A weight (out, in), or one a direction (D, out, in), for the products inside one pass over a recurrence."""

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        self._tape = _ProductTape()
        self._deferred = torch.is_grad_enabled() and weight.requires_grad
        cast = weight.to(dtype)
        self.weight = apply(_PutOff, cast, self._tape.gradient) if self._deferred else cast

    def __call__(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        """`x W^T (+ addend)`: x (B, in) or (D, B, in) of any float type, the result in the weight's type."""
        if self._deferred:
            result: Tensor = apply(_StepProduct, x, self.weight, addend, self._tape)
            return result
        return _product(x.to(self.weight.dtype), self.weight, addend)


class _ProductTape:
    """The steps of one weight: (gradient of the product, its input).

    It holds no tensor of the graph: the graph holds it, and a circle would keep a whole pass in memory.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Tensor, Tensor]] = []

    def record(self, gradient: Tensor, rows: Tensor) -> None:
        """Adds one step."""
        self._steps.append((gradient, rows))

    def gradient(self) -> Tensor | None:
        """`G^T X` over all steps, which are forgotten: another backward pass starts from nothing."""
        if not self._steps:
            return None
        gradients = torch.cat([gradient for gradient, _ in self._steps], -2)
        rows = torch.cat([row for _, row in self._steps], -2)
        self._steps.clear()
        return gradients.mT @ rows


class _Attend(torch.autograd.Function):
    """One look at the source: energies, softmax, context (PAPER section 2), with tanh recomputed in the backward."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        annotations: Tensor,
        vector: Tensor,
        padding: Tensor | None,
        tape: "_LookTape",
    ) -> tuple[Tensor, Tensor]:
        weights = _weights(query[:, None], keys[:, None], vector, padding).squeeze(1)
        context = torch.bmm(weights.to(annotations.dtype)[:, None], annotations).squeeze(1)
        ctx.save_for_backward(query, keys, annotations, vector, weights)
        ctx.tape = tape
        ctx.set_materialize_grads(False)
        return context, weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_context: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None, None]:
        query, keys, annotations, vector, weights = ctx.saved_tensors
        total = torch.zeros_like(weights) if d_weights is None else d_weights
        if d_context is not None:
            total = total + torch.bmm(annotations, d_context[:, :, None]).squeeze(2).to(weights.dtype)
        d_energies = weights * (total - (weights * total).sum(-1, keepdim=True))
        hidden = (keys + query[:, None]).tanh_()
        narrow = d_energies.to(hidden.dtype)
        d_query = ctx.tape.record(hidden, narrow, vector, weights, d_context)
        return d_query, None, None, None, None, None


def _weights(query: Tensor, keys: Tensor, vector: Tensor, padding: Tensor | None) -> Tensor:
    """Softmax over the source of v_a . tanh(query + keys): (..., R, n'), (..., 1, Tx, n') to (..., R, Tx)."""
    hidden = (keys + query[..., None, :]).tanh_()
    energies = (hidden @ vector[:, None]).squeeze(-1)
    energies = energies.to(torch.promote_types(energies.dtype, torch.float32))
    if padding is not None:
        energies = energies.masked_fill(padding[:, None], -torch.inf)
    return energies.softmax(-1)


class AttentionReader:
    """The source as the attention reads it in one pass.

    keys (B, Tx, n'), annotations (B, Tx, D), vector (n',), padding (B, Tx), True = padding, or None if there is none.

    With gradients, rows must equal B: one state a sentence. Without, any number of adjacent rows share a sentence.
    """

    def __init__(self, keys: Tensor, annotations: Tensor, vector: Tensor, padding: Tensor | None) -> None:
        self.padding = padding
        self._tape = _LookTape()
        self._deferred = torch.is_grad_enabled() and (keys.requires_grad or vector.requires_grad)
        if self._deferred:
            keys = apply(_PutOff, keys, self._tape.keys_gradient)
            annotations = apply(_PutOff, annotations, self._tape.annotations_gradient)
            vector = apply(_PutOff, vector, self._tape.vector_gradient)
        self.keys, self.annotations, self.vector = keys, annotations, vector

    def __call__(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """(context (rows, D), weights (rows, Tx)) for queries (rows, n'); weights are float32 (float64 for float64)."""
        if self._deferred:
            context, weights = apply(_Attend, query, self.keys, self.annotations, self.vector, self.padding, self._tape)
            return context, weights
        sentences, positions, size = self.keys.shape
        weights = _weights(query.view(sentences, -1, size), self.keys[:, None], self.vector, self.padding)
        context = torch.bmm(weights.to(self.annotations.dtype), self.annotations)
        return context.flatten(0, 1), weights.view(-1, positions)


class _LookTape:
    """The looks of one pass: running sums for keys and vector, and the steps for the annotations.

    Like `_ProductTape` it holds no tensor of the graph.
    """

    def __init__(self) -> None:
        self._d_keys: Tensor | None = None
        self._d_vector: Tensor | None = None
        self._steps: list[tuple[Tensor, Tensor]] = []

    def record(
        self, hidden: Tensor, d_energies: Tensor, vector: Tensor, weights: Tensor, d_context: Tensor | None
    ) -> Tensor:
        """Adds one step's share of the gradients of keys, vector and annotations; returns that of the query (B, n').

        hidden (B, Tx, n') is tanh(query + keys) and is overwritten.
        """
        size = hidden.shape[-1]
        d_vector = d_energies.reshape(1, -1) @ hidden.view(-1, size)
        self._d_vector = d_vector[0] if self._d_vector is None else self._d_vector + d_vector[0]
        squares = hidden.square_()
        # The query's gradient is the sum over the source of d_energy * (1 - tanh^2) * v_a. The d_energies of a softmax
        # sum to 0, so the 1 falls out; left in, it would cancel in bf16 at the cost of a tenth of the gradient.
        d_query = torch.bmm(d_energies[:, None], squares).squeeze(1).mul_(vector).neg_()
        squares.neg_().add_(1).mul_(vector).mul_(d_energies[..., None])
        if d_context is not None:
            self._steps.append((weights.detach(), d_context))
        if self._d_keys is None:
            self._d_keys = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        else:
            self._d_keys.add_(hidden)
        return d_query

    def keys_gradient(self) -> Tensor | None:
        """Handed over and forgotten, as all that is recorded: another backward pass starts from nothing."""
        total, self._d_keys = self._d_keys, None
        return total

    def vector_gradient(self) -> Tensor | None:
        """The gradient of v_a (n',)."""
        total, self._d_vector = self._d_vector, None
        return total

    def annotations_gradient(self) -> Tensor | None:
        """The gradient of the annotations (B, Tx, D), by one product over all steps."""
        if not self._steps:
            return None
        weights = torch.stack([weight for weight, _ in self._steps], 2)
        gradients = torch.stack([gradient for _, gradient in self._steps], 1)
        self._steps.clear()
        return torch.bmm(weights.to(gradients.dtype), gradients)
