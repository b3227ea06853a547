"""The floor: the time of the matrix products of a forward and backward pass, without any other work."""

import statistics
import time
from collections import defaultdict
from functools import partial

import torch

from bench.products import Product

CALLS = 4  # timed calls per round of a recurring product; their time represents that of all its calls


class Floor:
    """Times the products round by round, so that rounds can alternate with other measurements.

    Recurring products take turns step by step, as in a real pass, so that each finds the caches in the state in which
    the others have left them.
    """

    def __init__(self, batches, dtype):
        self._dtype = dtype
        self._turns: dict[tuple[Product, ...], int] = defaultdict(int)  # how often each turn occurs in all batches
        for products in batches:
            for turn in _turns(products):
                self._turns[turn] += 1
        self._seconds: dict[tuple[Product, ...], list[float]] = {turn: [] for turn in self._turns}

    def measure(self):
        """Runs one round: a few calls of each product, into an output that is allocated beforehand."""
        for turn in self._turns:
            self._seconds[turn].append(_time(turn, self._dtype))

    @property
    def seconds(self):
        """Returns the sum of the median times of all turns."""
        return sum(statistics.median(self._seconds[turn]) * count for turn, count in self._turns.items())


def _turns(products):
    """Groups the products of each turn; every other product is a group by itself."""
    together: dict[str, list[Product]] = defaultdict(list)
    for product in products:
        if product.turn:
            together[product.turn].append(product)
        else:
            yield (product,)
    for turn in together.values():
        yield tuple(turn)


def _time(turn, dtype):
    """Returns the seconds of all calls of its products, from a few timed calls of each after one warm-up call."""
    calls = [_call(product, dtype) for product in turn]
    spent = [0.0] * len(turn)
    rounds = min(CALLS, *(product.count for product in turn)) if len(turn) > 1 else min(CALLS, turn[0].count)
    for number in range(rounds + 1):
        for place, call in enumerate(calls):
            began = time.perf_counter()
            call()
            spent[place] += (time.perf_counter() - began) * (number > 0)
    return sum(seconds / rounds * product.count for seconds, product in zip(spent, turn, strict=True))


def _call(product, dtype):
    """Returns a function that computes the product on random numbers; int8 is for weights, everything else float32."""
    of_weight = product.batch == 1 and product.n > 1
    if dtype == torch.int8 and not of_weight:
        dtype = torch.float32
    left = _matrix(product.batch, product.m, product.k, product.left_transposed, dtype)
    right = _matrix(product.batch, product.k, product.n, product.right_transposed, dtype)
    out = torch.empty(product.batch, product.m, product.n, dtype=dtype)
    if dtype == torch.int8:
        return partial(torch._int_mm, left[0], right[0])
    if product.batch > 1 and product.n == 1 and dtype != torch.bfloat16:  # faster as a row times a matrix, as in `dots`
        return partial(torch.bmm, right.mT, left.mT, out=out.mT)
    if product.batch > 1:
        return partial(torch.bmm, left, right, out=out)
    return partial(torch.mm, left[0], right[0], out=out[0])


def _matrix(batch, rows, columns, transposed, dtype):
    """Returns random numbers (batch, rows, columns), stored by columns if transposed."""
    if transposed:
        return _matrix(batch, columns, rows, False, dtype).mT
    cells = batch * rows * columns
    tile = torch.randn(min(cells, 1 << 16)).to(dtype)
    return tile.repeat(-(-cells // len(tile)))[:cells].view(batch, rows, columns)
