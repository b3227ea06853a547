"""Kernels of the gates of both cells: a program computes BLOCK units of one row of one direction.

Buffers are those of `nmtalign.core.cells.CellPass`, at one step: row b of direction d lies d * lead + b rows from the
start, where `step_lead` is the lead of what has room for each step, `state_lead` that of the states, which have one
more, and the batch that of what belongs to this step alone. The next state lies a batch after the present one.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl

from nmtalign.core.gpu.launching import sigmoid, tanh

LEADS = ["inputs_lead", "step_lead", "state_lead", "skip_lead", "skip_stride"]


@triton.jit(do_not_specialize=LEADS[:3])
def paper_reset_kernel(
    sums,  # (D, B, 2 SIZE), the recurrent products of z and r
    inputs,  # (D, B, 3 SIZE) with rows INPUTS_STRIDE apart
    states,  # (D, B, SIZE), the present one
    gates,  # out: (D, B, 2 SIZE), z and r
    products,  # out: (D, B, SIZE), r * state
    inputs_lead,
    step_lead,
    state_lead,
    SIZE: tl.constexpr,
    INPUTS_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """z, r, and r * state in the products' type."""
    row, way = tl.program_id(0).to(tl.int64), tl.program_id(2)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    old = tl.load(states + (way * state_lead + row) * SIZE + unit, inside, 0.0)
    given = inputs + (way * inputs_lead + row) * INPUTS_STRIDE + unit
    summed = sums + (way * tl.num_programs(0) + row) * (2 * SIZE) + unit
    z = tl.load(given, inside, 0.0).to(old.dtype) + tl.load(summed, inside, 0.0).to(old.dtype)
    r = tl.load(given + SIZE, inside, 0.0).to(old.dtype) + tl.load(summed + SIZE, inside, 0.0).to(old.dtype)
    r = sigmoid(r)
    at = way * step_lead + row
    tl.store(gates + at * (2 * SIZE) + unit, sigmoid(z), inside)
    tl.store(gates + at * (2 * SIZE) + SIZE + unit, r, inside)
    tl.store(products + at * SIZE + unit, (r * old).to(products.dtype.element_ty), inside)


@triton.jit(do_not_specialize=LEADS)
def paper_update_kernel(
    sums,  # (D, B, SIZE), the recurrent product of the candidate
    inputs,  # (D, B, 3 SIZE) with rows INPUTS_STRIDE apart
    gates,  # (D, B, 2 SIZE), z and r; out: z is set to 0 where a state stays
    skip,  # (D, B), rows skip_stride apart, True where a state stays; or None
    new,  # out: (D, B, SIZE), the candidate
    states,  # (D, B, SIZE), the present one; out: the next one
    rows,  # out: the next state in the products' type; or None
    inputs_lead,
    step_lead,
    state_lead,
    skip_lead,
    skip_stride,
    SIZE: tl.constexpr,
    INPUTS_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """state + z (tanh(candidate) - state)."""
    row, way = tl.program_id(0).to(tl.int64), tl.program_id(2)
    batch = tl.num_programs(0)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    here = (way * state_lead + row) * SIZE + unit
    old = tl.load(states + here, inside, 0.0)
    at = way * step_lead + row
    x = tl.load(inputs + (way * inputs_lead + row) * INPUTS_STRIDE + 2 * SIZE + unit, inside, 0.0).to(old.dtype)
    x += tl.load(sums + (way * batch + row) * SIZE + unit, inside, 0.0).to(old.dtype)
    z = tl.load(gates + at * (2 * SIZE) + unit, inside, 0.0)
    if skip is not None:
        z = tl.where(tl.load(skip + way * skip_lead + row * skip_stride) != 0, 0.0, z)
        tl.store(gates + at * (2 * SIZE) + unit, z, inside)
    taken = tanh(x)
    state = old + z * (taken - old)
    tl.store(new + at * SIZE + unit, taken, inside)
    tl.store(states + here + batch * SIZE, state, inside)
    if rows is not None:
        tl.store(rows + here + batch * SIZE, state.to(rows.dtype.element_ty), inside)


@triton.jit(do_not_specialize=LEADS[1:3])
def paper_update_backward_kernel(
    d_states,  # (D, B, SIZE), of the next state; out: what of it goes past the candidate
    gates,  # (D, B, 2 SIZE)
    new,  # (D, B, SIZE)
    states,  # (D, B, SIZE)
    d_inputs,  # out: (D, B, 3 SIZE), the parts of z and of the candidate
    step_lead,
    state_lead,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With d the gradient of the next state: d_candidate = d z (1 - new^2), d_z = d (new - s) z (1 - z)."""
    row, way = tl.program_id(0).to(tl.int64), tl.program_id(2)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    at = way * step_lead + row
    whole = d_states + (way * tl.num_programs(0) + row) * SIZE + unit
    d = tl.load(whole, inside, 0.0)
    old = tl.load(states + (way * state_lead + row) * SIZE + unit, inside, 0.0)
    taken = tl.load(new + at * SIZE + unit, inside, 0.0)
    z = tl.load(gates + at * (2 * SIZE) + unit, inside, 0.0)
    passed = d * z
    into = d_inputs + at * (3 * SIZE) + unit
    tl.store(into, (passed * (taken - old) * (1.0 - z)).to(d_inputs.dtype.element_ty), inside)
    tl.store(into + 2 * SIZE, (passed * (1.0 - taken * taken)).to(d_inputs.dtype.element_ty), inside)
    tl.store(whole, d - passed, inside)


@triton.jit(do_not_specialize=LEADS[1:3])
def paper_reset_backward_kernel(
    d_states,  # (D, B, SIZE), in place: what comes through r * state is added
    d_products,  # (D, B, SIZE), of r * state
    gates,  # (D, B, 2 SIZE)
    states,  # (D, B, SIZE)
    d_inputs,  # out: (D, B, 3 SIZE), the part of r
    step_lead,
    state_lead,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With d the gradient of r * state: d_r = d s r (1 - r), and d r is the state's."""
    row, way = tl.program_id(0).to(tl.int64), tl.program_id(2)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    at = way * step_lead + row
    here = (way * tl.num_programs(0) + row) * SIZE + unit
    d = tl.load(d_states + here, inside, 0.0)
    old = tl.load(states + (way * state_lead + row) * SIZE + unit, inside, 0.0)
    r = tl.load(gates + at * (2 * SIZE) + SIZE + unit, inside, 0.0)
    through = tl.load(d_products + here, inside, 0.0).to(d.dtype) * r
    into = d_inputs + at * (3 * SIZE) + SIZE + unit
    tl.store(into, (through * old * (1.0 - r)).to(d_inputs.dtype.element_ty), inside)
    tl.store(d_states + here, d + through, inside)


@triton.jit(do_not_specialize=LEADS)
def cudnn_update_kernel(
    sums,  # (D, B, 3 SIZE), the recurrent products of r, z and the candidate
    inputs,  # (D, B, 3 SIZE) with rows INPUTS_STRIDE apart
    bias,  # (D, SIZE), added to the candidate's product, or None
    skip,  # (D, B), rows skip_stride apart, True where a state stays; or None
    gates,  # out: (D, B, 2 SIZE), r and z; z is 1 where a state stays
    hidden,  # out: (D, B, SIZE), the candidate's product with its bias
    new,  # out: (D, B, SIZE), the candidate
    states,  # (D, B, SIZE), the present one; out: the next one
    rows,  # out: the next state in the products' type; or None
    inputs_lead,
    step_lead,
    state_lead,
    skip_lead,
    skip_stride,
    SIZE: tl.constexpr,
    INPUTS_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """new + z (state - new), new = tanh(inputs + r * hidden)."""
    row, way = tl.program_id(0).to(tl.int64), tl.program_id(2)
    batch = tl.num_programs(0)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    here = (way * state_lead + row) * SIZE + unit
    old = tl.load(states + here, inside, 0.0)
    given = inputs + (way * inputs_lead + row) * INPUTS_STRIDE + unit
    summed = sums + (way * batch + row) * (3 * SIZE) + unit
    r = sigmoid(tl.load(given, inside, 0.0).to(old.dtype) + tl.load(summed, inside, 0.0).to(old.dtype))
    z = sigmoid(tl.load(given + SIZE, inside, 0.0).to(old.dtype) + tl.load(summed + SIZE, inside, 0.0).to(old.dtype))
    inner = tl.load(summed + 2 * SIZE, inside, 0.0).to(old.dtype)
    if bias is not None:
        inner += tl.load(bias + way * SIZE + unit, inside, 0.0).to(old.dtype)
    taken = tanh(tl.load(given + 2 * SIZE, inside, 0.0).to(old.dtype) + r * inner)
    state = taken + z * (old - taken)
    if skip is not None:
        stays = tl.load(skip + way * skip_lead + row * skip_stride) != 0
        z = tl.where(stays, 1.0, z)
        state = tl.where(stays, old, state)  # to the last bit
    at = way * step_lead + row
    tl.store(gates + at * (2 * SIZE) + unit, r, inside)
    tl.store(gates + at * (2 * SIZE) + SIZE + unit, z, inside)
    tl.store(hidden + at * SIZE + unit, inner, inside)
    tl.store(new + at * SIZE + unit, taken, inside)
    tl.store(states + here + batch * SIZE, state, inside)
    if rows is not None:
        tl.store(rows + here + batch * SIZE, state.to(rows.dtype.element_ty), inside)


@triton.jit(do_not_specialize=LEADS[1:3])
def cudnn_update_backward_kernel(
    d_states,  # (D, B, SIZE), of the next state; out: what of it goes past the candidate
    gates,  # (D, B, 2 SIZE)
    hidden,  # (D, B, SIZE)
    new,  # (D, B, SIZE)
    states,  # (D, B, SIZE)
    d_inputs,  # out: (D, B, 3 SIZE)
    d_sums,  # out: (D, B, 3 SIZE), of the recurrent products
    step_lead,
    state_lead,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With d the gradient of the next state: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z)."""
    row, way = tl.program_id(0).to(tl.int64), tl.program_id(2)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    at = way * step_lead + row
    whole = d_states + (way * tl.num_programs(0) + row) * SIZE + unit
    d = tl.load(whole, inside, 0.0)
    old = tl.load(states + (way * state_lead + row) * SIZE + unit, inside, 0.0)
    taken = tl.load(new + at * SIZE + unit, inside, 0.0)
    inner = tl.load(hidden + at * SIZE + unit, inside, 0.0)
    r = tl.load(gates + at * (2 * SIZE) + unit, inside, 0.0)
    z = tl.load(gates + at * (2 * SIZE) + SIZE + unit, inside, 0.0)
    kept = d * z
    d_new = (d - kept) * (1.0 - taken * taken)
    d_inner = d_new * r
    d_r = (d_inner * inner * (1.0 - r)).to(d_inputs.dtype.element_ty)
    d_z = (kept * (old - taken) * (1.0 - z)).to(d_inputs.dtype.element_ty)
    into = at * (3 * SIZE) + unit
    tl.store(d_inputs + into, d_r, inside)
    tl.store(d_inputs + into + SIZE, d_z, inside)
    tl.store(d_inputs + into + 2 * SIZE, d_new.to(d_inputs.dtype.element_ty), inside)
    tl.store(d_sums + into, d_r, inside)
    tl.store(d_sums + into + SIZE, d_z, inside)
    tl.store(d_sums + into + 2 * SIZE, d_inner.to(d_inputs.dtype.element_ty), inside)
    tl.store(whole, kept, inside)
