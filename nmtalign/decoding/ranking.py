"""The largest values of each row, with ties in a fixed order."""

import torch
from torch import Tensor


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, largest first, the smaller index first among equal ones.

    values (N, C) -> values and int64 indices, both (N, min(count, C)). `torch.topk` leaves open which of equal values
    it takes; here that is settled, so that a result depends on nothing but the row. Entries of -inf come in any order.
    """
    width = values.shape[1]
    # More than needed, so that a run of equal values across the border (common in bf16) is mostly seen to its end.
    best, places = values.topk(min(count + 4, width), dim=1)
    equal = (best[:, 1 : count + 1] == best[:, :count][:, : best.shape[1] - 1]) & (best[:, 1 : count + 1] > -torch.inf)
    tied = equal.any(dim=1)
    if tied.any():
        rows = tied.nonzero().squeeze(1)
        settled = _by_place(best[rows], places[rows])
        if best.shape[1] < width:
            cut_off = best[rows, -1] == best[rows, count - 1]
            settled[cut_off, :count] = _by_search(values[rows[cut_off]], best[rows[cut_off], :count])
        places[rows] = settled
    return best[:, :count], places[:, :count]


def _by_place(best: Tensor, places: Tensor) -> Tensor:
    """The places (N, k) of values that fall (N, k), those of equal values in rising order."""
    rising, order = places.sort(dim=1)
    return rising.gather(1, best.gather(1, order).argsort(dim=1, descending=True, stable=True))


def _by_search(values: Tensor, best: Tensor) -> Tensor:
    """The places of the k best values (N, k) of rows (N, C) in which many more are equal to the last of them."""
    # `nonzero` gives the entries that reach the last one row by row, by rising index; two stable sorts, the second by
    # row, put them in order.
    reaching = values >= best[:, -1:]
    rows, columns = reaching.nonzero(as_tuple=True)
    order = values[rows, columns].argsort(descending=True, stable=True)
    order = order[rows[order].argsort(stable=True)]
    counts = reaching.sum(dim=1)
    starts = counts.cumsum(dim=0) - counts
    return columns[order[starts[:, None] + torch.arange(best.shape[1], device=values.device)]]
