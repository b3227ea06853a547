"""Kernels of the additive attention (equation 6): one attention step, its gradient, the gradient of the keys.

Rows are laid out as the callers in `nmtalign.core.gpu.attention` say. Widths are compile-time constants, so that the
compiler knows how rows are aligned; numbers of positions, steps and sentences are not, so that they never recompile.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl

from nmtalign.core.gpu.launching import tanh


@triton.jit(do_not_specialize=["positions"])
def energies_kernel(
    query,  # (B, SIZE), rows QUERY_STRIDE apart
    keys,  # (B, positions, SIZE)
    vector,  # (SIZE,)
    padding,  # (B, positions) or None
    energies,  # out: (B, positions)
    positions,
    SIZE: tl.constexpr,
    QUERY_STRIDE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_A: tl.constexpr,
):
    """v_a . tanh(query + key) at BLOCK_T positions of a sentence, -inf at padding."""
    sentence = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    here = at < positions
    row = sentence * positions + at
    total = tl.zeros((BLOCK_T,), WIDE)
    for start in range(0, SIZE, BLOCK_A):
        unit = start + tl.arange(0, BLOCK_A)
        inside = unit < SIZE
        wanted = tl.load(query + sentence * QUERY_STRIDE + unit, inside, 0.0).to(WIDE)
        scale = tl.load(vector + unit, inside, 0.0).to(WIDE)
        key = tl.load(keys + row[:, None] * SIZE + unit[None, :], here[:, None] & inside[None, :], 0.0).to(WIDE)
        total += tl.sum(tanh(key + wanted[None, :]) * scale[None, :], 1)
    if padding is not None:
        total = tl.where(tl.load(padding + row, here, 1) != 0, float("-inf"), total)
    tl.store(energies + row, total, here)


@triton.jit(do_not_specialize=["positions"])
def context_kernel(
    energies,  # (B, positions)
    annotations,  # (B, positions, SIZE)
    weights,  # out: (B, positions)
    context,  # out: (B, SIZE)
    positions,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Softmax of a sentence's energies (in each of its programs: it is short), and BLOCK_D units of its context."""
    sentence = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    unit = block * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = unit < SIZE
    first = sentence * positions
    at = tl.arange(0, SPAN)
    energy = tl.load(energies + first + at, at < positions, float("-inf"))
    top = tl.max(energy, 0)
    share = tl.exp(energy - top)
    total = tl.sum(share, 0)
    if block == 0:
        tl.store(weights + first + at, share / total, at < positions)
    mixed = tl.zeros((BLOCK_T, BLOCK_D), WIDE)
    for start in range(0, positions, BLOCK_T):
        near = start + tl.arange(0, BLOCK_T)
        here = near < positions
        part = tl.exp(tl.load(energies + first + near, here, float("-inf")) - top)
        where = annotations + (first + near)[:, None] * SIZE + unit[None, :]
        mixed += part[:, None] * tl.load(where, here[:, None] & inside[None, :], 0.0).to(WIDE)
    result = tl.sum(mixed, 0) / total
    tl.store(context + sentence * SIZE + unit, result.to(context.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["positions"])
def weights_gradient_kernel(
    d_context,  # (B, SIZE), rows D_CONTEXT_STRIDE apart
    annotations,  # (B, positions, SIZE)
    d_weights,  # (B, positions) or None
    total_d_weights,  # out: (B, positions)
    positions,
    SIZE: tl.constexpr,
    D_CONTEXT_STRIDE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """The gradient of the weights at BLOCK_T positions: annotation . d_context, and what came to them directly."""
    sentence = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    here = at < positions
    row = sentence * positions + at
    total = tl.zeros((BLOCK_T,), WIDE)
    for start in range(0, SIZE, BLOCK_D):
        unit = start + tl.arange(0, BLOCK_D)
        inside = unit < SIZE
        gradient = tl.load(d_context + sentence * D_CONTEXT_STRIDE + unit, inside, 0.0).to(WIDE)
        where = annotations + row[:, None] * SIZE + unit[None, :]
        annotation = tl.load(where, here[:, None] & inside[None, :], 0.0).to(WIDE)
        total += tl.sum(annotation * gradient[None, :], 1)
    if d_weights is not None:
        total += tl.load(d_weights + row, here, 0.0).to(WIDE)
    tl.store(total_d_weights + row, total, here)


@triton.jit(do_not_specialize=["positions"])
def query_gradient_kernel(
    weights,  # (B, positions)
    d_weights,  # (B, positions), whole
    query,  # (B, SIZE), rows QUERY_STRIDE apart
    keys,  # (B, positions, SIZE)
    vector,  # (SIZE,)
    d_energies,  # out: (B, positions)
    d_query,  # out: (B, SIZE)
    positions,
    SIZE: tl.constexpr,
    QUERY_STRIDE: tl.constexpr,
    WIDE: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_A: tl.constexpr,
):
    """The softmax's gradient of a sentence (in each of its programs), and BLOCK_A units of the query's gradient.

    The query's is v_a * sum_j d_energy_j (1 - tanh^2); the d_energies of a softmax sum to 0, so the 1 is left out: with
    small keys tanh^2 is far under the rounding of that sum.
    """
    sentence = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    unit = block * BLOCK_A + tl.arange(0, BLOCK_A)
    inside = unit < SIZE
    first = sentence * positions
    at = tl.arange(0, SPAN)
    weight = tl.load(weights + first + at, at < positions, 0.0)
    gradient = tl.load(d_weights + first + at, at < positions, 0.0)
    mean = tl.sum(weight * gradient, 0)
    if block == 0:
        tl.store(d_energies + first + at, weight * (gradient - mean), at < positions)
    wanted = tl.load(query + sentence * QUERY_STRIDE + unit, inside, 0.0).to(WIDE)
    squares = tl.zeros((BLOCK_T, BLOCK_A), WIDE)
    for start in range(0, positions, BLOCK_T):
        near = start + tl.arange(0, BLOCK_T)
        here = near < positions
        share = tl.load(weights + first + near, here, 0.0)
        d_energy = share * (tl.load(d_weights + first + near, here, 0.0) - mean)
        where = keys + (first + near)[:, None] * SIZE + unit[None, :]
        hidden = tanh(tl.load(where, here[:, None] & inside[None, :], 0.0).to(WIDE) + wanted[None, :])
        squares += d_energy[:, None] * hidden * hidden
    scale = tl.load(vector + unit, inside, 0.0).to(WIDE)
    result = -scale * tl.sum(squares, 0)
    tl.store(d_query + sentence * SIZE + unit, result.to(d_query.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["steps", "sentences", "positions"])
def keys_gradient_kernel(
    queries,  # (steps, sentences, SIZE), rows QUERY_STRIDE apart
    d_energies,  # (steps, sentences, positions)
    keys,  # (sentences, positions, SIZE)
    vector,  # (SIZE,)
    d_keys,  # out: (sentences, positions, SIZE)
    d_vector,  # out: (sentences, blocks of positions, SIZE), to be summed
    steps,
    sentences,
    positions,
    SIZE: tl.constexpr,
    QUERY_STRIDE: tl.constexpr,
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
        wanted = tl.load(queries + row * QUERY_STRIDE + unit, inside, 0.0).to(WIDE)
        d_energy = tl.load(d_energies + row * positions + at, here, 0.0).to(WIDE)
        hidden = tanh(key + wanted[None, :])
        d_scale += d_energy[:, None] * hidden
        d_key += d_energy[:, None] * (1.0 - hidden * hidden)
    scale = tl.load(vector + unit, inside, 0.0).to(WIDE)
    tl.store(d_keys + offsets, (d_key * scale[None, :]).to(d_keys.dtype.element_ty), mask)
    where = d_vector + (sentence * tl.num_programs(1) + tile) * SIZE + unit
    tl.store(where, tl.sum(d_scale, 0), inside)
