"""Which device, which precision it has natively, and how the processor's threads and memory are used."""

import ctypes

import torch

from nmtalign.config import Device, Precision
from nmtalign.errors import ResourceError


def pick_device(name: Device) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one. Raises ResourceError where it is missing."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ResourceError("device cuda: PyTorch sees no GPU here; choose the device cpu")
    return torch.device(name)


def picks_bf16(name: Precision, device: torch.device) -> bool:
    """Whether products are computed in bf16; "auto" takes it where the processor multiplies it natively."""
    if name != "auto":
        return name == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    probes = [getattr(torch.cpu, probe, None) for probe in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    return any(probe() for probe in probes if probe is not None)


def use_threads(threads: int) -> None:
    """Sets the number of threads inside one operation; 0 leaves PyTorch's choice."""
    if threads:
        torch.set_num_threads(threads)


def keep_memory() -> None:
    """Lets the C library keep what training frees for the next batch, where it would give it back to the system.

    Every array of more than a few megabytes would otherwise come from the system anew, filled with zeros page by page:
    30,000 page faults a batch, a tenth of the time. Only glibc can be told; elsewhere nothing changes.
    """
    map_from, trim_from = 1 << 28, 2**31 - 1  # bytes
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, map_from)
    mallopt(_M_TRIM_THRESHOLD, trim_from)


def return_memory() -> None:
    """Gives the memory that is free back to the system, where the C library would keep it.

    A search frees arrays of many sizes in several threads. What is free lies scattered, and glibc keeps it: the process
    grows for a long time though it uses no more. Only glibc can be told; elsewhere nothing changes.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
