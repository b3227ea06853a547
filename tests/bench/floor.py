"""The floor: the time that the matrix products of a pass take when nothing else is done."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from bench.products import Product, products_of
from bench.workload import Shape
from nmtalign.settings.training_settings import ModelConfig

CALLS = 4  # of a product that recurs are timed a round, and taken for all of its calls


class Floor:
    """Times the products in turns, a round at a time, so that rounds can alternate with whatever else is measured.

    Products that recur take turns as they do in a pass, a step at a time: each finds in the caches what the others have
    left there, no more and no less.
    """

    def __init__(self, batches: Iterable[Sequence[Product]], dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._turns: dict[tuple[Product, ...], int] = defaultdict(int)  # how often each comes up in all batches
        for products in batches:
            for turn in _turns(products):
                self._turns[turn] += 1
        self._seconds: dict[tuple[Product, ...], list[float]] = {turn: [] for turn in self._turns}

    @classmethod
    def of_training(cls, config: ModelConfig, shapes: Sequence[Shape], dtype: torch.dtype) -> "Floor":
        """The floor under loss and gradients of batches of these shapes."""
        return cls([products_of(config, shape) for shape in shapes], dtype)

    def measure(self) -> None:
        """One round: a few calls of each product, into an output that is there already."""
        for turn in self._turns:
            self._seconds[turn].append(_time(turn, self._dtype))

    @property
    def seconds(self) -> float:
        """Sum over all turns of the median time of each."""
        return sum(statistics.median(self._seconds[turn]) * count for turn, count in self._turns.items())


def _turns(products: Sequence[Product]) -> Iterator[tuple[Product, ...]]:
    """The products of each turn together, every other product alone."""
    together: dict[str, list[Product]] = defaultdict(list)
    for product in products:
        if product.turn:
            together[product.turn].append(product)
        else:
            yield (product,)
    for turn in together.values():
        yield tuple(turn)


def _time(turn: Sequence[Product], dtype: torch.dtype) -> float:
    """Seconds of all calls of all its products, from a few of each, after one that is not counted."""
    calls = [_call(product, dtype) for product in turn]
    spent = [0.0] * len(turn)
    rounds = min(CALLS, *(product.count for product in turn)) if len(turn) > 1 else min(CALLS, turn[0].count)
    for number in range(rounds + 1):
        for place, call in enumerate(calls):
            began = time.perf_counter()
            call()
            spent[place] += (time.perf_counter() - began) * (number > 0)
    return sum(seconds / rounds * product.count for seconds, product in zip(spent, turn, strict=True))


def _call(product: Product, dtype: torch.dtype) -> Callable[[], object]:
    """A call of the product on random numbers."""
    left = _matrix(product.batch, product.m, product.k, product.left_transposed, dtype)
    right = _matrix(product.batch, product.k, product.n, product.right_transposed, dtype)
    out = torch.empty(product.batch, product.m, product.n, dtype=dtype)
    if product.batch > 1:
        return partial(torch.bmm, left, right, out=out)
    return partial(torch.mm, left[0], right[0], out=out[0])


def _matrix(batch: int, rows: int, columns: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    """Random numbers (batch, rows, columns), in memory by columns if transposed."""
    if transposed:
        return _matrix(batch, columns, rows, False, dtype).mT
    cells = batch * rows * columns
    tile = torch.randn(min(cells, 1 << 16)).to(dtype)
    return tile.repeat(-(-cells // len(tile)))[:cells].view(batch, rows, columns)
