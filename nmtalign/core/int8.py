"""Products in eight bits: each weight is 127 steps of one scale per output, each input 127 steps of one scale per row.

The sums of such products are whole numbers, which are exact in any order. A row is scaled by its own largest number.
So the result of a row depends neither on the other rows of the product nor on the number of threads. A scale that is
calibrated beforehand would be as fast, but the inputs of the softmax have no bound.

A model in eight bits is a copy whose matrices are `Int8Weight`s (`in_int8`). The code of the model is the same: its
`F.linear` and `product` multiply in eight bits. Every other operation uses the float32 numbers of the weight.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.initialisation import matrices
from nmtalign.errors import ResourceError

M = TypeVar("M", bound=nn.Module)
_STEPS = 127
_FEWER_STEPS = 63  # of a weight, where the sum of two products of a processor has 16 bits
_SMALLEST, _FEWEST_INPUTS = 1 << 16, 128  # numbers and inputs of a weight; smaller ones are as fast in float32
_TINY = 1e-30  # the least scale
_MISSING = (AttributeError, NotImplementedError, RuntimeError)  # raised by a product that this build of PyTorch lacks
_MIDDLE = 128  # the zero of numbers of eight bits without a sign


@dataclass(frozen=True)
class Int8Matrix:
    """A matrix of whole numbers (..., out, in), and the scale (..., out) of each of its rows."""

    numbers: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Self:
        """The matrix that is nearest to a weight."""
        scales = weight.detach().abs().amax(-1).div_(weight_steps()).clamp_min_(_TINY)
        return cls((weight.detach() / scales[..., None]).round_().to(torch.int8), scales)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "Int8Matrix":
        """Some of the rows."""
        return Int8Matrix(self.numbers[rows], self.scales[rows])

    def product(self, x: Tensor, addend: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """x W^T (+ addend) in float32: x (..., in) to (..., out), or x (D, B, in) to (D, B, out) with D matrices.

        An addend has the shape of the result or is one row (out,). Fills and returns `out`, if it is given.
        """
        if self.numbers.dim() > 2:
            products = torch.stack([matrix.product(part) for matrix, part in zip(self._directions, x, strict=True)])
            return products if addend is None else products.add_(addend)
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(-1, keepdim=True).div_(_STEPS).clamp_min_(_TINY)
        steps = (rows / scale).round_()
        result = x.new_empty(len(rows), len(self)) if out is None else out
        sums = self.packed_product(steps)
        shape = *x.shape[:-1], len(self)
        if addend is not None and not _needs_gradient(addend):
            added = addend if addend.dim() == 1 else addend.reshape(result.shape)
            return torch.addcmul(added, sums, scale, out=result).view(shape)
        products = torch.mul(sums, scale, out=result).view(shape)
        return products if addend is None else products.add_(addend)

    @cached_property
    def _directions(self) -> tuple["Int8Matrix", ...]:
        return tuple(self[number] for number in range(len(self)))

    @cached_property
    def _packed(self) -> Tensor:
        """The numbers in the order in which oneDNN multiplies them."""
        packed: Tensor = torch.ops.onednn.qlinear_prepack(self.numbers, None)
        return packed

    def packed_product(self, steps: Tensor) -> Tensor:
        """The products (N, out) of steps (N, in), whole numbers from -127 to 127; oneDNN's inputs are not negative."""
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            *((steps + _MIDDLE).to(torch.uint8), 1.0, _MIDDLE),
            *(self._packed, self.scales, torch.zeros(len(self), dtype=torch.int32)),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        )
        return products


class Int8Weight(Tensor):
    """A float32 weight (..., out, in) with its matrix of eight bits, which `F.linear` and `product` multiply.

    Where a gradient is wanted, they multiply the float32 numbers.
    """

    _given: Int8Matrix | None = None
    _split: tuple[tuple[int, ...], tuple["Int8Weight", ...]] | None = None

    @classmethod
    def of(cls, weight: Tensor, matrix: Int8Matrix | None = None) -> "Int8Weight":
        """The weight; it shares the memory of the float32 numbers."""
        own = weight.detach().as_subclass(cls)
        own._given = matrix
        return own

    @cached_property
    def matrix(self) -> Int8Matrix:
        """The matrix, made at the first product: many weights of a model are used only through others."""
        return self._given or Int8Matrix.of(self.as_subclass(Tensor))

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Multiplies in eight bits in `F.linear`; every other operation returns ordinary tensors."""
        if func is F.linear and isinstance(args[1], cls) and not _needs_gradient(args[0]):
            return args[1].linear(*args[:1], *args[2:], **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x W^T + bias in eight bits."""
        return self.matrix.product(x, bias)

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> "Int8Weight":
        """The weight itself, whose products in eight bits do not need it."""
        return self

    def split(self, sizes: Sequence[int], dim: int = -2) -> tuple["Int8Weight", ...]:  # type: ignore[override]
        """The blocks of outputs: the same objects at every call, so that each is packed once."""
        if self._split is None or self._split[0] != tuple(sizes):
            parts = zip(self.matrix.numbers.split(sizes, -2), self.matrix.scales.split(sizes, -1), strict=True)
            floats = self.as_subclass(Tensor).split(sizes, dim)
            blocks = (Int8Weight.of(part, Int8Matrix(*matrix)) for part, matrix in zip(floats, parts, strict=True))
            self._split = tuple(sizes), tuple(blocks)
        return self._split[1]

    def flatten(self, start_dim: int, end_dim: int) -> "Int8Weight":  # type: ignore[override]
        """Some of the first dimensions as one."""
        matrix = self.matrix
        flat = Int8Matrix(matrix.numbers.flatten(start_dim, end_dim), matrix.scales.flatten(start_dim, end_dim))
        return Int8Weight.of(self.as_subclass(Tensor).flatten(start_dim, end_dim), flat)


def _needs_gradient(x: Tensor) -> bool:
    return torch.is_grad_enabled() and x.requires_grad


def in_int8(module: M) -> M:
    """A copy that multiplies its large matrices in eight bits; it shares the memory of the parameters."""
    copied = copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    for part, name, parameter in list(matrices(copied)):  # an embedding may be the weight of the softmax, too
        if parameter.numel() >= _SMALLEST and parameter.shape[-1] >= _FEWEST_INPUTS:
            delattr(part, name)
            setattr(part, name, Int8Weight.of(parameter))
    return copied


def joined(weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The outputs of several weights as those of one, without a gradient; in eight bits if one of the weights is."""
    together = (torch.cat(list(weights)) if len(weights) > 1 else weights[0]).detach().to(dtype)
    return Int8Weight.of(together) if any(isinstance(weight, Int8Weight) for weight in weights) else together


def outputs_of(weight: Tensor, outputs: Tensor) -> Tensor | Int8Matrix:
    """Some of the outputs of a weight (out, in)."""
    return weight.matrix[outputs] if isinstance(weight, Int8Weight) else weight[outputs]


@cache
def weight_steps() -> int:
    """The steps of a weight with which products are exact here: 127, or 63 on a processor that adds in 16 bits.

    The instructions of AVX2 and AVX-512 without VNNI add two products of eight bits in sixteen, which may be too few.
    Raises ResourceError if PyTorch has no exact products of eight bits.
    """
    largest, ones = torch.full((64, 64), float(_STEPS)), torch.ones(64)
    for steps in (_STEPS, _FEWER_STEPS):
        try:
            sums = Int8Matrix(torch.full((64, 64), steps, dtype=torch.int8), ones).product(largest)
        except _MISSING:
            break
        if bool((sums == 64 * _STEPS * steps).all()):
            return steps
    raise ResourceError("precision int8: this PyTorch has no products in eight bits here; choose the precision fp32")
