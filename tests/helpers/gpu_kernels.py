"""The kernels that PyTorch's compiler writes for a GPU, on a CPU, where Triton's interpreter runs them with NumPy.

It needs TRITON_INTERPRET=1 in the environment before Triton is imported.
"""

import contextlib
from collections import Counter, defaultdict

import numpy as np
import torch


class _Hopper:
    """A driver of Triton that names a GPU, for which kernels are written."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


@contextlib.contextmanager
def interpreted(monkeypatch):
    """Within the block, tensors of a CPU are computed by kernels for a GPU; yields their launches, by name.

    The programs of a launch would run at once, so that none may read or write a number that another one writes.
    """
    from torch._inductor import ir, scheduler
    from torch._inductor.runtime import triton_helpers, triton_heuristics
    from triton import language
    from triton.runtime import driver, interpreter

    launches, read, written = Counter(), defaultdict(set), defaultdict(set)  # addresses, by program
    convert, run = interpreter._convert_float, triton_heuristics.CachingAutotuner.run
    load, store = (getattr(interpreter.InterpreterBuilder, f"create_masked_{name}") for name in ("load", "store"))

    def noted_load(builder, pointers, mask, *options):
        read[builder.grid_idx].update(pointers.data[mask.data].tolist())
        return load(builder, pointers, mask, *options)

    def noted_store(builder, pointers, value, mask, *options):
        written[builder.grid_idx].update(pointers.data[mask.data].tolist())
        return store(builder, pointers, value, mask, *options)

    def elementwise(function):
        return lambda x: language.tensor(interpreter.TensorHandle(function(x.handle.data), x.handle.dtype), x.type)

    def rounded(data, kind, wanted, mode):  # to the nearest bf16, where the interpreter would cut bits off
        if wanted is not language.bfloat16:
            return convert(data, kind, wanted, mode)
        return torch.from_numpy(data.copy()).bfloat16().view(torch.int16).numpy()

    def launch(kernel, *arguments, **options):
        read.clear()
        written.clear()
        run(kernel, *arguments, **options)
        launches[kernel.fn.__name__] += 1
        all_written = set().union(*written.values())
        alone = len(all_written) == sum(map(len, written.values()))
        alone &= all(all_written.isdisjoint(read[program] - written[program]) for program in read)
        assert alone, f"programs of {kernel.fn.__name__} share numbers that one of them writes"

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_masked_load", noted_load)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_masked_store", noted_store)
    monkeypatch.setattr(interpreter, "_convert_float", rounded)
    for name in ("exp", "tanh"):  # of CUDA's library
        monkeypatch.setattr(triton_helpers.libdevice, name, elementwise(getattr(np, name)))
    monkeypatch.setattr(triton_heuristics.CachingAutotuner, "run", launch)
    # What the compiler joins depends on the kind of device.
    monkeypatch.setattr(ir, "is_cpu", lambda _: False)
    monkeypatch.setattr(scheduler.BaseSchedulerNode, "is_cpu", lambda _: False)
    monkeypatch.setattr(scheduler.BaseSchedulerNode, "is_gpu", lambda _: True)
    monkeypatch.setattr(driver, "_active", _Hopper())
    with torch._inductor.config.patch(cpu_backend="triton", fx_graph_cache=False):
        yield launches
