"""Compiles every kernel for an H100 on a machine without one, and prints a summary of each compiled kernel.

A line a kernel and variant: name, registers a thread, bytes of stack (spilled registers), widest loads from memory.
Run it as a program; it must not share a process with Triton's interpreter.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nmtalign.core.attention import AttentionInputs, Memory
from nmtalign.core.cells import CudnnCellPass, PaperCellPass
from nmtalign.core.gpu.fused_attention import FusedAttentionPass
from nmtalign.core.gpu.fused_cells import FUSED_PASSES
from nmtalign.core.gpu.one_pass import adadelta_, softmax_gradient

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
BATCH, POSITIONS, SIZE, DEPTH, WORDS = 80, 31, 1000, 2000, 30000


class Driver:
    """As much of a GPU as the compiler asks for."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compile_only(self, *arguments, grid, warmup, **options):
    compiled = launch(self, *arguments, grid=grid, warmup=True, **options)
    if compiled.hash not in seen:
        seen.add(compiled.hash)
        report(self.__name__, compiled)
    return compiled


def report(name, compiled):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", text).groups()
    loads = Counter(re.findall(r"ld\.global\.(?:v(\d)\.)?b(\d+)", compiled.asm["ptx"]))
    widest = max(int(vector or 1) * int(bits) // 8 for vector, bits in loads)
    if "f64" not in compiled.asm["ptx"]:  # float64 is for tests: its kernels may be slow
        spilled.append(int(stack))
    sys.stdout.write(f"{name} {registers} registers, {stack} bytes of stack, loads of {widest} bytes\n")


def run_attention(dtype):
    keys, annotations = (torch.empty(BATCH, POSITIONS, width, dtype=dtype) for width in (SIZE, DEPTH))
    rows, vector = torch.empty(BATCH, SIZE, dtype=dtype), torch.empty(SIZE, dtype=dtype)
    memory = Memory(annotations, keys, None, rows)
    steps = FusedAttentionPass(AttentionInputs(memory, (torch.empty(SIZE, SIZE, dtype=dtype), vector), BATCH, 1, True))
    steps.forward(0, rows)
    steps.start_backward()
    steps.backward(0, None)
    steps.d_keys(rows[None])


def run_cells(dtype):
    state_dtype = torch.promote_types(dtype, torch.float32)
    inputs = torch.empty(1, 2, BATCH, 3 * SIZE, dtype=dtype)
    initial, weight = inputs.new_empty(2, BATCH, SIZE, dtype=state_dtype), inputs.new_empty(2, 3 * SIZE, SIZE)
    for kind, skips in ((PaperCellPass, True), (PaperCellPass, False), (CudnnCellPass, True), (CudnnCellPass, False)):
        skip = torch.zeros(1, 2, BATCH, 1, dtype=torch.bool) if skips else None
        bias = inputs.new_empty(2, SIZE) if kind is CudnnCellPass else None
        steps = FUSED_PASSES[kind](initial, weight, bias, skip, 1, True)
        steps.forward(0, inputs[0])
        steps.start_backward()
        steps.backward(0, initial)


def run_softmax(dtype):
    state_dtype = torch.promote_types(dtype, torch.float32)
    bias, targets = torch.empty(WORDS, dtype=state_dtype), torch.zeros(BATCH, dtype=torch.int64)
    logits, sums = torch.empty(BATCH, WORDS, dtype=dtype), torch.empty(2, BATCH, dtype=state_dtype)
    softmax_gradient(logits, bias, targets, 0.1, sums[0], sums[1])


def run_adadelta():
    weights = torch.empty(4, 1 << 12)
    for scale in (None, torch.ones(1)):
        adadelta_(*weights, rate=1.0, rho=0.95, epsilon=1e-6, scale=scale)


seen, spilled = set(), []
launch, JITFunction.run = JITFunction.run, compile_only
driver.set_active(Driver())
for dtype in (torch.bfloat16, torch.float32, torch.float64):
    sys.stdout.write(f"# {dtype}\n")
    run_attention(dtype)
    run_cells(dtype)
    run_softmax(dtype)
run_adadelta()
sys.exit("registers are spilled" if max(spilled) > 16 else 0)
