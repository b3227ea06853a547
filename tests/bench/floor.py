"""The floor: the time that the matrix products of a pass take when nothing else is done."""

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from bench.products import Product, products_of
from bench.workload import Shape
from nmtalign.config import ModelConfig

CALLS = 4  # of a product that recurs are timed a round, and taken for all of its calls


class Floor:
    """Times every distinct product, a round at a time, so that rounds can alternate with whatever else is measured."""

    def __init__(self, config: ModelConfig, shapes: Sequence[Shape], dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._calls: dict[Product, int] = defaultdict(int)  # by the shape of one product, whatever its name
        for shape in shapes:
            for product in products_of(config, shape):
                self._calls[_unnamed(product)] += product.count
        self._seconds: dict[Product, list[float]] = {product: [] for product in self._calls}

    def measure(self) -> None:
        """One round: a few calls of each product, into an output that is there already."""
        for product, count in self._calls.items():
            self._seconds[product].append(_time(product, min(count, CALLS), self._dtype))

    @property
    def seconds(self) -> float:
        """Sum over all calls of the median time of each."""
        return sum(statistics.median(self._seconds[product]) * count for product, count in self._calls.items())


def _unnamed(product: Product) -> Product:
    return Product(
        "", product.m, product.k, product.n, 1, product.batch, product.left_transposed, product.right_transposed
    )


def _time(product: Product, calls: int, dtype: torch.dtype) -> float:
    """Seconds of one call, after one that is not counted."""
    batched = product.batch > 1
    left = _matrix(product.batch, product.m, product.k, product.left_transposed, dtype)
    right = _matrix(product.batch, product.k, product.n, product.right_transposed, dtype)
    out = torch.empty(product.batch, product.m, product.n, dtype=dtype)
    if not batched:
        left, right, out = left[0], right[0], out[0]
    multiply = torch.bmm if batched else torch.mm
    multiply(left, right, out=out)
    began = time.perf_counter()
    for _ in range(calls):
        multiply(left, right, out=out)
    return (time.perf_counter() - began) / calls


def _matrix(batch: int, rows: int, columns: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    """Random numbers (batch, rows, columns), in memory by columns if transposed."""
    if transposed:
        return _matrix(batch, columns, rows, False, dtype).mT
    cells = batch * rows * columns
    tile = torch.randn(min(cells, 1 << 16)).to(dtype)
    return tile.repeat(-(-cells // len(tile)))[:cells].view(batch, rows, columns)
