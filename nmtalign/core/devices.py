"""Which device, and which precision it has natively."""

import torch

from nmtalign.config import Device, Precision
from nmtalign.errors import ResourceError


def pick_device(name: Device) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one. Raises ResourceError where it is missing."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ResourceError("device cuda: PyTorch sees no GPU here; give --device cpu")
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
