"""The additive attention on a GPU (equation 6): forward, backward of one step, and the keys' gradient at the end.

No tensor (B, Tx, n') is ever written but the keys and their gradient: tanh is computed from query and keys where it is
needed, three times in all. At paper sizes (n' = 1000, D = 2000, Tx = 31, bf16) a step reads 0.19 MB per sentence and
direction, where PyTorch's operations read and write 0.5 MB forward and 1.3 MB backward. Not yet run on a card.

Arguments: keys (B, Tx, n') and annotations (B, Tx, D) are copied if they are not contiguous; queries and gradients may
be slices of wider rows. All sums are in float32 (float64 for float64).
"""

import torch
from torch import Tensor

from nmtalign.core.additive_attention import AdditiveAttentionPass
from nmtalign.core.functional import over_steps, wide
from nmtalign.core.gpu import attention_kernels as kernels
from nmtalign.core.gpu.launching import options, parts, power_of_two, rows, triton_type

# Numbers of a tile: positions x units. Each thread of 4 warps then holds 32 numbers of a tile that is read once, and
# 16 of one that stays in registers; the reading kernels have many more programs than the card has multiprocessors.
ROW_TILE = 4096
KEYS_TILE = (32, 64)
WARPS = 4


def attend_forward(
    query: Tensor,
    keys: Tensor,
    annotations: Tensor,
    vector: Tensor,
    padding: Tensor | None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """(context (B, D) in the annotations' type, weights (B, Tx) float32): softmax over v_a . tanh(query + keys).

    query (B, n'), vector (n',), padding (B, Tx) True = padding, whose weight is exactly 0, or None. `out`, contiguous,
    takes both results.
    """
    batch, positions, size = keys.shape
    query, query_stride = rows(query, size)
    annotations = annotations.contiguous()
    depth = annotations.shape[2]
    energies = keys.new_empty(batch, positions, dtype=wide(keys.dtype))
    context, weights = out or (annotations.new_empty(batch, depth), torch.empty_like(energies))
    block_t, block_a = _tall_tile(size)
    kernels.energies_kernel[(batch, parts(positions, block_t))](
        query,
        keys.contiguous(),
        vector.contiguous(),
        None if padding is None else padding.contiguous(),
        energies,
        positions,
        SIZE=size,
        QUERY_STRIDE=query_stride,
        WIDE=triton_type(energies.dtype),
        BLOCK_T=block_t,
        BLOCK_A=block_a,
        **options(WARPS),
    )
    block_t, block_d = _wide_tile(positions, depth)
    kernels.context_kernel[(batch, parts(depth, block_d))](
        energies,
        annotations,
        weights,
        context,
        positions,
        SIZE=depth,
        WIDE=triton_type(energies.dtype),
        SPAN=power_of_two(positions, least=16),
        BLOCK_T=block_t,
        BLOCK_D=block_d,
        **options(WARPS),
    )
    return context, weights


def attend_backward(
    d_context: Tensor | None,
    d_weights: Tensor | None,
    query: Tensor,
    keys: Tensor,
    annotations: Tensor,
    vector: Tensor,
    weights: Tensor,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """(d_query (B, n') in the query's type, d_energies (B, Tx) float32) of one step; arguments as in `attend_forward`.

    `keys_gradient` makes the gradients of keys and vector from the d_energies of all steps; that of the annotations is
    one product of the weights and d_contexts of all steps.
    """
    batch, positions, size = keys.shape
    total = _weights_gradient(d_context, d_weights, annotations, weights)
    given, query_stride = rows(query, size)
    d_query, d_energies = out or (query.new_empty(batch, size), torch.empty_like(total))
    block_t, block_a = _wide_tile(positions, size)
    kernels.query_gradient_kernel[(batch, parts(size, block_a))](
        weights.contiguous(),
        total,
        given,
        keys.contiguous(),
        vector.contiguous(),
        d_energies,
        d_query,
        positions,
        SIZE=size,
        QUERY_STRIDE=query_stride,
        WIDE=triton_type(total.dtype),
        SPAN=power_of_two(positions, least=16),
        BLOCK_T=block_t,
        BLOCK_A=block_a,
        **options(WARPS),
    )
    return d_query, d_energies


def _weights_gradient(
    d_context: Tensor | None, d_weights: Tensor | None, annotations: Tensor, weights: Tensor
) -> Tensor:
    """What comes to the weights (B, Tx): directly, and through the context."""
    if d_context is None:
        return torch.zeros_like(weights) if d_weights is None else d_weights.to(weights.dtype).contiguous()
    batch, positions, depth = annotations.shape
    d_context, stride = rows(d_context, depth)
    total = weights.new_empty(batch, positions)
    block_t, block_d = _tall_tile(depth)
    kernels.weights_gradient_kernel[(batch, parts(positions, block_t))](
        d_context,
        annotations.contiguous(),
        None if d_weights is None else d_weights.contiguous(),
        total,
        positions,
        SIZE=depth,
        D_CONTEXT_STRIDE=stride,
        WIDE=triton_type(total.dtype),
        BLOCK_T=block_t,
        BLOCK_D=block_d,
        **options(WARPS),
    )
    return total


def keys_gradient(queries: Tensor, d_energies: Tensor, keys: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """(d_keys (B, Tx, n') in the keys' type, d_vector (n',) float32), of queries (T, B, n') and d_energies (T, B, Tx).

    The steps go by in any order, inside the kernel: d_keys is written once, and no step has to read and write it.
    """
    batch, positions, size = keys.shape
    steps = len(queries)
    flat, query_stride = rows(queries, size)
    d_keys = torch.empty_like(keys, memory_format=torch.contiguous_format)
    block_t, block_a = KEYS_TILE
    tiles = parts(positions, block_t)
    d_vector = keys.new_empty(batch * tiles, size, dtype=wide(keys.dtype))
    kernels.keys_gradient_kernel[(batch, tiles, parts(size, block_a))](
        flat,
        d_energies.contiguous(),
        keys.contiguous(),
        vector.contiguous(),
        d_keys,
        d_vector,
        steps,
        batch,
        positions,
        SIZE=size,
        QUERY_STRIDE=query_stride,
        WIDE=triton_type(d_vector.dtype),
        BLOCK_T=block_t,
        BLOCK_A=block_a,
        **options(WARPS),
    )
    return d_keys, d_vector.sum(0)


def _tall_tile(size: int) -> tuple[int, int]:
    """A few positions by whole rows, where a row is summed up."""
    units = power_of_two(size, most=1024)
    return max(1, ROW_TILE // units if units >= 256 else 16), units


def _wide_tile(positions: int, size: int) -> tuple[int, int]:
    """All positions, if they are not many, by a few units, where positions are summed up."""
    block = power_of_two(positions, least=4, most=32)
    return block, power_of_two(size, most=ROW_TILE // block)


class FusedAttentionPass(AdditiveAttentionPass):
    """Two kernels per step and direction; the gradient of the keys waits until all steps have gone backward."""

    def forward(self, step: int, row: Tensor) -> None:
        """Fills the weights and the contexts of a step, for the states row (B, n)."""
        query = torch.mm(row, self._query_weight.t(), out=self.queries[step])
        out = (self.contexts[step], self.weights[step])
        attend_forward(query, self.keys, self.values, self.vector, self.padding, out)

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_contexts = torch.empty_like(self.contexts)
        self._d_queries = torch.empty_like(self.queries)
        self._all_d_energies = torch.empty_like(self.weights)
        self._keys_gradient: tuple[Tensor, Tensor] | None = None

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        out = (self._d_queries[step], self._all_d_energies[step])
        arguments = (self.queries[step], self.keys, self.values, self.vector, self.weights[step])
        d_query, _ = attend_backward(self.d_contexts[step], d_weights, *arguments, out)
        return d_query @ self._query_weight

    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, n')."""
        return self._over_steps()[0]

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_a (n', n) and v_a (n',)."""
        return over_steps(self._d_queries, rows), self._over_steps()[1].to(self.vector.dtype)

    def _over_steps(self) -> tuple[Tensor, Tensor]:
        """The gradients of keys and v_a, which one kernel computes."""
        if self._keys_gradient is None:
            self._keys_gradient = keys_gradient(self.queries, self._all_d_energies, self.keys, self.vector)
        return self._keys_gradient
