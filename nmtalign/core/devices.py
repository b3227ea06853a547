"""The device, its native precision and its threads, and batches that do not fit into its memory."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import torch

from nmtalign.core.int8 import weight_steps
from nmtalign.errors import ResourceError, check_wanted, is_out_of_memory
from nmtalign.processor import bf16_is_fast, cpu_facts, fastest_precision
from nmtalign.settings.definition import Device, InferencePrecision, Precision

T = TypeVar("T")
R = TypeVar("R")


def pick_device(name: Device) -> torch.device:
    """The device of a name. Raises ResourceError if PyTorch sees no such device.

    "auto" is a GPU with CUDA if there is one, else the CPU. It is never mps, Apple's GPU, which we could not test.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ResourceError("device cuda: PyTorch sees no GPU here; choose the device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ResourceError("device mps: PyTorch sees no GPU of Apple here; choose the device cpu")
    return torch.device(name)


def widest(device: torch.device) -> torch.dtype:
    """The most precise dtype of a device: float64, or float32 on mps, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def picks_bf16(name: Precision, device: torch.device) -> bool:
    """Whether training computes products in bf16; "auto" chooses the faster precision of the device."""
    return name == "bf16" or (name == "auto" and has_fast_bf16(device))


def inference_precision(name: InferencePrecision, device: torch.device) -> Literal["fp32", "bf16", "int8"]:
    """The precision of products without gradients; "auto" chooses the fastest one of the device.

    Raises ResourceError for int8 where there are no such products: on a GPU, and if PyTorch has none here.
    """
    if name == "auto":
        if device.type == "cpu":
            with contextlib.suppress(ResourceError):
                if (fastest := fastest_precision()) == "int8":
                    weight_steps()
                return fastest
            return "fp32"
        return "bf16" if has_fast_bf16(device) else "fp32"
    if name == "int8" and device.type != "cpu":
        raise ResourceError(f"precision int8: is for the device cpu, and this is {device.type}; choose fp32 or bf16")
    if name == "int8":
        weight_steps()
    return name


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device computes products of bf16 numbers faster than those of fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bf16_is_fast()


def precision_notices(name: InferencePrecision, device: torch.device) -> list[str]:
    """A warning if a precision is asked for, and fp32 would be faster."""
    if device.type != "cpu":
        return []
    if name == "bf16" and not has_fast_bf16(device):
        return ["warning: this processor takes longer for products in bf16 than in fp32; leave out precision = bf16"]
    if name == "int8" and "avx2" not in cpu_facts().get("flags", ""):
        return [
            "warning: this processor may take longer for products in int8 than in fp32; compare --set precision=fp32"
        ]
    return []


def use_threads(threads: int) -> None:
    """Sets the number of threads of one operation; 0 keeps PyTorch's choice."""
    if threads:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Sets the number of threads of one operation for a block, 0 = no change, and restores it also after an error.

    The number is that of the calling thread, and of all threads that begin later.
    """
    before = torch.get_num_threads()
    try:
        use_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def keeping_generators(device: torch.device, threads: int = 0) -> Iterator[None]:
    """As `using_threads`, and restores PyTorch's random generators, those of the CPU and of a GPU with CUDA."""
    devices = [device] if device.type == "cuda" else []
    with using_threads(threads), torch.random.fork_rng(devices):
        yield


def in_halves(work: Callable[[Sequence[T]], list[R]], items: Sequence[T], too_large: Callable[[T], str]) -> list[R]:
    """The results of `work` for a batch, one per item; if memory runs out, those of its halves, one after the other.

    Raises ResourceError with the text of `too_large` if a single item does not fit into memory.
    """
    check_wanted()
    try:
        return work(items)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
    if len(items) == 1:
        raise ResourceError(too_large(items[0]))
    half = len(items) // 2
    return in_halves(work, items[:half], too_large) + in_halves(work, items[half:], too_large)


def out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; PyTorch reports this by several classes."""
    if is_out_of_memory(error) or isinstance(error, torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return "memory" in text and "alloc" in text
