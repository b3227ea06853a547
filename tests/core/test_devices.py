"""The choice of a device and its precision, MKL's reproducible products, and batches that are too large for memory."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from nmtalign import processor
from nmtalign.core import numerics
from nmtalign.core.numerics import in_halves, inference_precision, pick_device, picks_bf16, precision_notices, widest
from nmtalign.errors import ResourceError


@pytest.mark.parametrize(("given", "expected"), [(None, "AUTO,STRICT"), ("COMPATIBLE", "COMPATIBLE")])
def test_the_command_line_asks_before_pytorch_is_imported(given, expected):
    code = """if True:
        import os, sys
        class Watch:
            def find_spec(self, name, path=None, target=None):
                if name in ("torch", "typer"):
                    print(name, os.environ.get("MKL_CBWR"), flush=True)
                if name == "torch":
                    os._exit(0)
        sys.meta_path.insert(0, Watch())
        sys.argv = ["nmtalign", "info", "nowhere"]
        from nmtalign.cli.app import main
        try:
            main()
        except SystemExit:
            import torch
    """
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    environment |= {} if given is None else {"MKL_CBWR": given}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.stdout == f"typer {expected}\ntorch {expected}\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_batch_is_halved_until_it_fits(error):
    sizes = []

    def work(items):
        sizes.append(len(items))
        if sum(items) > 6:
            raise error
        return [10 * item for item in items]

    assert in_halves(work, [1, 2, 3, 4, 5], str) == [10, 20, 30, 40, 50]
    assert sizes == [5, 2, 3, 1, 2, 1, 1]
    with pytest.raises(ResourceError, match="item 7 is too much") as caught:
        in_halves(work, [1, 7, 2], lambda item: f"item {item} is too much")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_other_errors_are_not_taken_for_memory():
    def work(items):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        in_halves(work, [1, 2], str)


def test_products_in_fp32_use_tf32_once_a_gpu_is_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, False
    try:
        pick_device("cpu")
        assert not torch.backends.cuda.matmul.allow_tf32
        assert pick_device("auto") == torch.device("cuda")
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_mps_is_chosen_only_by_its_name(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    assert pick_device("mps") == torch.device("mps")
    assert not picks_bf16("auto", torch.device("mps"), 512)
    assert picks_bf16("bf16", torch.device("mps"), 512)
    assert [widest(torch.device(name)) for name in ("mps", "cpu", "cuda")] == [torch.float32, *[torch.float64] * 2]


@pytest.mark.parametrize(
    ("vendor", "flags", "isa", "trained_in_bf16", "fastest"),
    [
        ("AuthenticAMD", "avx512f avx512_bf16", "", True, "bf16"),
        ("AuthenticAMD", "avx512f avx512_bf16", "AVX512_CORE_VNNI", False, "fp32"),
        ("AuthenticAMD", "avx512f avx512_bf16", "avx512_core_bf16", True, "bf16"),
        ("AuthenticAMD", "avx2 avx512f avx512_vnni avx512_bf16", "", True, "int8"),
        ("GenuineIntel", "avx2 avx512f avx512_vnni amx_bf16 amx_tile", "", True, "bf16"),
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16 amx_tile", "AVX512_CORE_BF16", False, "fp32"),
        # Intel's bf16 instructions without AMX take longer than fp32.
        ("GenuineIntel", "avx2 avx512f avx512_vnni avx512_bf16", "", False, "int8"),
        ("GenuineIntel", "avx2 avx512f avx512_vnni", "AVX512_CORE", False, "fp32"),
        ("GenuineIntel", "avx2", "", False, "fp32"),
        ("", "", "", False, "fp32"),
    ],
)
def test_auto_is_the_fastest_precision_of_a_training_and_of_a_search(
    vendor, flags, isa, trained_in_bf16, fastest, monkeypatch
):
    monkeypatch.setattr(processor, "cpu_facts", lambda: {"vendor_id": vendor, "flags": flags})
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    cpu = torch.device("cpu")
    assert picks_bf16("auto", cpu, 512) == trained_in_bf16  # training has no int8
    assert not picks_bf16("auto", cpu, 192)
    assert picks_bf16("bf16", cpu, 192)
    assert inference_precision("auto", cpu) == fastest
    assert inference_precision("fp32", cpu) == "fp32"
    assert precision_notices("auto", cpu) == []
    said = precision_notices("bf16", cpu)
    assert ["takes longer for products in bf16" in line for line in said] == ([] if trained_in_bf16 else [True])


def test_int8_is_for_the_processor(int8, monkeypatch):
    assert inference_precision("int8", torch.device("cpu")) == "int8"
    for device in ("cuda", "mps"):
        with pytest.raises(ResourceError, match=rf"^precision int8: is for the device cpu, and this is {device}; "):
            inference_precision("int8", torch.device(device))
    for flags, warned in (("avx2", False), ("asimd", True)):
        monkeypatch.setattr(numerics, "cpu_facts", lambda flags=flags: {"flags": flags})
        said = precision_notices("int8", torch.device("cpu"))
        assert ["may take longer for products in int8" in line for line in said] == [True] * warned


def test_a_machine_without_mps_reports_it(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ResourceError, match=r"^device mps: PyTorch sees no GPU of Apple here; choose the device cpu$"):
        pick_device("mps")


@pytest.fixture
def compiling(monkeypatch):
    """Replaces PyTorch's compiler: a function that is set here is what compiled functions do."""
    monkeypatch.setattr(numerics.Fusion, "problem", "")
    made = SimpleNamespace(functions=[], run=None)

    def compiled(function, dynamic, options):
        assert options["compile_threads"] == 1  # else PyTorch starts processes, for which the end of a program may wait
        made.functions.append(function)
        return made.run

    monkeypatch.setattr(torch, "compile", compiled)
    return made


ON_GPU, ON_CPU = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)


def test_a_function_is_compiled_once_and_only_for_a_gpu(compiling):
    compiling.run = lambda x: "compiled"
    function = numerics.fused(lambda x: "as written")
    ways = [function(x) for x in (ON_CPU, ON_GPU, ON_GPU, ON_CPU)]
    assert ways == ["as written", "compiled", "compiled", "as written"]
    assert len(compiling.functions) == 1


def test_a_function_that_cannot_be_compiled_runs_as_it_is_written(compiling):
    def run(x):
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")

    compiling.run = run
    function, another = numerics.fused(lambda x: "as written"), numerics.fused(lambda x: "as written, too")
    assert function(ON_GPU) == "as written"
    assert numerics.Fusion.problem == "Failed to find C compiler."
    assert another(ON_GPU) == "as written, too"
    assert len(compiling.functions) == 1


def test_memory_that_runs_out_in_a_compiled_function_is_no_fault_of_the_compiler(compiling):
    def run(x):
        raise torch.OutOfMemoryError("CUDA out of memory")

    compiling.run = run
    with pytest.raises(torch.OutOfMemoryError):
        numerics.fused(lambda x: "as written")(ON_GPU)
    assert not numerics.Fusion.problem
