"""A layer of the Transformer (Vaswani et al. 2017): its attention, its feed-forward net and its norms.

A layer has two sublayers, in the decoder three: self-attention, attention to the source, and a feed-forward net. With
`norm` = "post", as in the article, a sublayer f changes x to norm(x + f(x)); with "pre" it changes x to x + f(norm(x)).
Projections have no bias.

m is the size of all layers, n that of the inner layer of the feed-forward nets, A the number of heads, and d = m / A.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import MIN_POSITIONS, MIN_ROWS, extended
from nmtalign.core.functional import fast_dropout, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, least_rows: int = MIN_ROWS
) -> tuple[Tensor, Tensor]:
    """(contexts (B, A, R, d), weights (B, A, R, T)): softmax(Q K^T / sqrt(d)) V (equation 1 of that article).

    queries (B, A, R, d), keys and values (B, A, T, d), `hidden` positions as in `hidden_positions`. PyTorch's
    scaled_dot_product_attention gives no weights, and is no faster for sentences on a CPU (in bf16, its gradient takes
    seven times as long). A softmax over fewer than 16 positions would take ten times as long. `least_rows` is 1 where R
    does not depend on other sentences.
    """
    rows, positions = queries.shape[-2], keys.shape[-2]
    products = extended(queries / math.sqrt(queries.shape[-1]), least_rows) @ extended(keys, MIN_POSITIONS).mT
    energies = products.to(wide(products.dtype))
    weights = (energies if hidden is None else energies.masked_fill(hidden, -torch.inf)).softmax(-1)[..., :positions]
    return (weights.to(values.dtype) @ values)[..., :rows, :], weights[..., :rows, :]


def hidden_positions(x: Tensor, padding: Tensor | None = None, causal: bool = False) -> Tensor | None:
    """True at the positions of x (B, T, .), extended to 16, that `attend` must ignore; None if there are none.

    These are the padding (B, T), and if it is `causal` all positions after that of the query.
    """
    count = x.shape[1]
    places = torch.arange(max(count, MIN_POSITIONS), device=x.device)
    if causal:
        return places > places[: max(count, MIN_ROWS), None]
    if padding is not None:
        return F.pad(padding, (0, len(places) - count), value=True)[:, None, None]
    return places >= count if count < MIN_POSITIONS else None


def self_attention(parts: Tensor, hidden: Tensor | None) -> Tensor:
    """The contexts (B, T, m) of the queries, keys and values (B, T, 3, A, d) of the same words; see `attend`."""
    queries, keys, values = parts.permute(2, 0, 3, 1, 4)
    return attend(queries, keys, values, hidden)[0].transpose(1, 2).flatten(2)


class LayerNorm(Initialised):
    """Each vector minus its mean, over its standard deviation, times a scale, plus a shift (Ba et al. 2016)."""

    roles: ClassVar[Mapping[str, Role]] = {"scale": Role.SCALE, "shift": Role.BIAS}

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., m) to (..., m)."""
        return F.layer_norm(x, self.scale.shape, self.scale.to(x.dtype), self.shift.to(x.dtype))


class TransformerLayer(Initialised):
    """A layer of the encoder, or with `of_decoder` one that also attends to the source."""

    roles: ClassVar[Mapping[str, Role]] = {
        "self_weight": Role.MATRIX,
        "self_output": Role.MATRIX,
        "source_weight": Role.MATRIX,
        "source_output": Role.MATRIX,
        "inner_weight": Role.MATRIX,
        "inner_bias": Role.BIAS,
        "outer_weight": Role.MATRIX,
        "outer_bias": Role.BIAS,
    }

    def __init__(self, config: ModelConfig, of_decoder: bool) -> None:
        super().__init__()
        size, inner = config.embedding, config.hidden
        self._heads, self._pre, self._dropout = config.heads, config.norm == "pre", config.dropout
        self.self_weight = nn.Parameter(torch.empty(3, size, size))  # W^Q, W^K and W^V of all heads
        self.self_output = nn.Parameter(torch.empty(size, size))  # W^O
        self.source_weight = nn.Parameter(torch.empty(size, size)) if of_decoder else None  # W^Q
        self.source_output = nn.Parameter(torch.empty(size, size)) if of_decoder else None
        self.inner_weight = nn.Parameter(torch.empty(inner, size))
        self.inner_bias = nn.Parameter(torch.zeros(inner))
        self.outer_weight = nn.Parameter(torch.empty(size, inner))
        self.outer_bias = nn.Parameter(torch.zeros(size))
        self.norms = nn.ModuleList(LayerNorm(size) for _ in range(3 if of_decoder else 2))

    def forward(
        self,
        x: Tensor,
        dtype: torch.dtype,
        attend_self: Callable[[Tensor], Tensor],
        source: tuple[Tensor, Tensor, Tensor | None] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(x (B, R, m), weights (B, A, R, Tx) of the source) after this layer; x is wide, products are in `dtype`.

        `attend_self` gives the contexts (B, R, m) of queries, keys and values (B, R, 3, A, d). `source` are the keys
        and values (B, A, Tx, d) of the source, and its hidden positions.
        """
        weights = None
        parts = F.linear(self._enter(0, x, dtype), self.self_weight.flatten(0, 1).to(dtype))
        contexts = attend_self(parts.unflatten(-1, (3, self._heads, -1)))
        x = self._leave(0, x, F.linear(contexts, self.self_output.to(dtype)))
        if source is not None and self.source_weight is not None and self.source_output is not None:
            queries = F.linear(self._enter(1, x, dtype), self.source_weight.to(dtype))
            found, weights = attend(queries.unflatten(-1, (self._heads, -1)).transpose(1, 2), *source)
            x = self._leave(1, x, F.linear(found.transpose(1, 2).flatten(2), self.source_output.to(dtype)))
        inner = F.linear(self._enter(-1, x, dtype), self.inner_weight.to(dtype), self.inner_bias.to(dtype)).relu()
        return self._leave(-1, x, F.linear(inner, self.outer_weight.to(dtype), self.outer_bias.to(dtype))), weights

    def _enter(self, number: int, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The input of a sublayer."""
        return (self.norms[number](x) if self._pre else x).to(dtype)

    def _leave(self, number: int, x: Tensor, change: Tensor) -> Tensor:
        """x changed by a sublayer."""
        x = x + fast_dropout(change, self._dropout if self.training else 0.0)
        return x if self._pre else self.norms[number](x)
