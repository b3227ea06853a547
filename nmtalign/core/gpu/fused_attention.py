"""The paper's alignment model on a GPU: energies, the query's gradient, and at the end the keys' gradient.

No tensor (B, Tx, n') is ever written but the keys and their gradient: tanh is computed from query and keys where it is
needed, three times in all. The softmax, the contexts and their gradients are PyTorch's operations, as in `attention`.
Widths are compile-time constants, so that the compiler knows how rows are aligned; numbers of positions, steps and
sentences are not, so that they never recompile. Not yet run on a card.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmtalign.core.attention import AdditiveAttentionPass, AttentionPass
from nmtalign.core.functional import over_steps
from nmtalign.core.gpu.launching import power_of_two, tanh, triton_type

# Numbers of a tile: positions x units. Each thread of 4 warps then has 32 numbers of a tile that is read once, and
# 16 of one that stays in registers; the reading kernels have many more programs than the card has multiprocessors.
ROW_TILE = 4096
KEYS_TILE = (32, 64)
WARPS = 4


class FusedAttentionPass(AdditiveAttentionPass):
    """One kernel per step and direction; the gradient of the keys waits until all steps have gone backward."""

    def energies(self, step: int, row: Tensor) -> Tensor:
        """v_a . tanh(W_a s + keys)."""
        query = torch.mm(row, self.query_weight.t(), out=self.queries[step])
        energies = torch.empty_like(self.weights[step])
        size = self.keys.shape[2]
        units = power_of_two(size, most=1024)
        block_t = max(1, ROW_TILE // units if units >= 256 else 16)  # a few positions by complete rows
        self._launch(energies_kernel, (triton.cdiv(self.length, block_t),), (query, energies), (block_t, units))
        return energies[:, None]

    def start_backward(self) -> None:
        """Allocates the gradients."""
        AttentionPass.start_backward(self)
        self._d_queries = torch.empty_like(self.queries)
        self._all_d_energies = torch.empty_like(self.weights)

    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """Through tanh and the query's product; the gradient of the keys is left to `d_keys`."""
        self._all_d_energies[step] = d_energies
        size = self.keys.shape[2]
        block_t = power_of_two(self.length, least=4, most=32)  # all positions, if they are few, by a few units
        block_a = power_of_two(size, most=ROW_TILE // block_t)
        written = self.queries[step], self._all_d_energies[step], self._d_queries[step]
        self._launch(query_gradient_kernel, (triton.cdiv(size, block_a),), written, (block_t, block_a))
        return self._d_queries[step] @ self.query_weight

    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, n'); v_a's is computed by the same kernel.

        The kernel runs over the steps: d_keys is written once, and no step has to read and write it.
        """
        d_keys = torch.empty_like(self.keys, memory_format=torch.contiguous_format)
        size, (block_t, block_a) = self.keys.shape[2], KEYS_TILE
        tiles = triton.cdiv(self.length, block_t)
        self._d_vectors = self.weights.new_empty(self.batch * tiles, size)
        tensors = self.queries, self._all_d_energies, d_keys, self._d_vectors, len(self.queries), self.batch
        self._launch(keys_gradient_kernel, (tiles, triton.cdiv(size, block_a)), tensors, KEYS_TILE)
        return d_keys

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_a (n', n) and v_a (n',), after `d_keys`."""
        return over_steps(self._d_queries, rows), self._d_vectors.sum(0).to(self.vector.dtype)

    def _launch(self, kernel, grid, tensors, block) -> None:
        """Runs a kernel over the sentences and a grid of tiles of positions x units."""
        kernel[(self.batch, *grid)](
            self.keys.contiguous(),
            self.vector.contiguous(),
            *tensors,
            self.length,
            SIZE=self.keys.shape[2],
            WIDE=triton_type(self.weights.dtype),
            BLOCK_T=block[0],
            BLOCK_A=block[1],
            num_warps=WARPS,
        )


@triton.jit(do_not_specialize=["positions"])
def energies_kernel(
    keys,  # (B, positions, SIZE)
    vector,  # (SIZE,)
    query,  # (B, SIZE)
    energies,  # out: (B, positions)
    positions,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_A: tl.constexpr,
):
    """v_a . tanh(query + key) at BLOCK_T positions of a sentence."""
    sentence = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    here = at < positions
    row = sentence * positions + at
    total = tl.zeros((BLOCK_T,), WIDE)
    for start in range(0, SIZE, BLOCK_A):
        unit = start + tl.arange(0, BLOCK_A)
        inside = unit < SIZE
        wanted = tl.load(query + sentence * SIZE + unit, inside, 0.0).to(WIDE)
        scale = tl.load(vector + unit, inside, 0.0).to(WIDE)
        key = tl.load(keys + row[:, None] * SIZE + unit[None, :], here[:, None] & inside[None, :], 0.0).to(WIDE)
        total += tl.sum(tanh(key + wanted[None, :]) * scale[None, :], 1)
    tl.store(energies + row, total, here)


@triton.jit(do_not_specialize=["positions"])
def query_gradient_kernel(
    keys,  # (B, positions, SIZE)
    vector,  # (SIZE,)
    query,  # (B, SIZE)
    d_energies,  # (B, positions)
    d_query,  # out: (B, SIZE)
    positions,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_A: tl.constexpr,
):
    """BLOCK_A units of the query's gradient, v_a * sum_j d_energy_j (1 - tanh^2).

    The d_energies of a softmax sum to 0, so the 1 is left out: with small keys tanh^2 is far under the rounding of that
    sum.
    """
    sentence = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * BLOCK_A + tl.arange(0, BLOCK_A)
    inside = unit < SIZE
    wanted = tl.load(query + sentence * SIZE + unit, inside, 0.0).to(WIDE)
    squares = tl.zeros((BLOCK_T, BLOCK_A), WIDE)
    for start in range(0, positions, BLOCK_T):
        at = start + tl.arange(0, BLOCK_T)
        here = at < positions
        row = sentence * positions + at
        d_energy = tl.load(d_energies + row, here, 0.0)
        key = tl.load(keys + row[:, None] * SIZE + unit[None, :], here[:, None] & inside[None, :], 0.0).to(WIDE)
        hidden = tanh(key + wanted[None, :])
        squares += d_energy[:, None] * hidden * hidden
    result = -tl.load(vector + unit, inside, 0.0).to(WIDE) * tl.sum(squares, 0)
    tl.store(d_query + sentence * SIZE + unit, result.to(d_query.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["steps", "sentences", "positions"])
def keys_gradient_kernel(
    keys,  # (sentences, positions, SIZE)
    vector,  # (SIZE,)
    queries,  # (steps, sentences, SIZE)
    d_energies,  # (steps, sentences, positions)
    d_keys,  # out: (sentences, positions, SIZE)
    d_vector,  # out: (sentences, blocks of positions, SIZE), to be summed
    steps,
    sentences,
    positions,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_A: tl.constexpr,
):
    """A tile of keys stays in registers while the steps go by; d_vector is summed tile by tile, without atomics."""
    sentence = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    at = tile * BLOCK_T + tl.arange(0, BLOCK_T)
    unit = tl.program_id(2) * BLOCK_A + tl.arange(0, BLOCK_A)
    here, inside = at < positions, unit < SIZE
    offsets = (sentence * positions + at)[:, None] * SIZE + unit[None, :]
    mask = here[:, None] & inside[None, :]
    key = tl.load(keys + offsets, mask, 0.0).to(WIDE)
    d_key = tl.zeros((BLOCK_T, BLOCK_A), WIDE)
    d_scale = tl.zeros((BLOCK_T, BLOCK_A), WIDE)
    for step in range(steps):
        row = step * sentences + sentence
        wanted = tl.load(queries + row * SIZE + unit, inside, 0.0).to(WIDE)
        d_energy = tl.load(d_energies + row * positions + at, here, 0.0).to(WIDE)
        hidden = tanh(key + wanted[None, :])
        d_scale += d_energy[:, None] * hidden
        d_key += d_energy[:, None] * (1.0 - hidden * hidden)
    scale = tl.load(vector + unit, inside, 0.0).to(WIDE)
    tl.store(d_keys + offsets, (d_key * scale[None, :]).to(d_keys.dtype.element_ty), mask)
    where = d_vector + (sentence * tl.num_programs(1) + tile) * SIZE + unit
    tl.store(where, tl.sum(d_scale, 0), inside)
