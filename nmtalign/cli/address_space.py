"""A limit of the address space (`ulimit -v`): checked before a library is loaded that could not start under it.

Under such a limit numpy and PyTorch do not raise an error. They print messages of their own, abort, or crash.
"""

import importlib.abc
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple

from nmtalign.errors import ResourceError

_MB = 1 << 20


class _Need(NamedTuple):
    """What loading a module and working on a small corpus takes, in megabytes."""

    name: str
    base: int
    per_core: int  # stacks and buffers of threads


# Measured on Linux with two cores, with some room: numpy 250, PyTorch 950, training with the preset tiny 1,490.
NEEDS: Mapping[str, _Need] = {
    "numpy": _Need("NumPy", 300, 0),
    "torch": _Need("PyTorch", 1200, 20),
    "nmtalign.training.loop": _Need("training with PyTorch", 1700, 50),
}


class _Guard(importlib.abc.MetaPathFinder):
    """Finds no module, but refuses to load one that needs more address space than the limit leaves."""

    def __init__(self, limit: int) -> None:
        self._limit = limit // _MB

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> None:
        """Raises ResourceError if the module cannot be loaded under the limit."""
        if fullname in NEEDS:
            need = NEEDS[fullname]
            megabytes = need.base + need.per_core * (os.cpu_count() or 1)
            if self._limit < megabytes:
                raise ResourceError(
                    f"ulimit -v leaves {self._limit:,} MB of address space, and {need.name} needs about "
                    f"{megabytes:,} MB: raise the limit"
                )


def guard_address_space() -> None:
    """Refuses libraries that the limit of the address space is too small for; does nothing if there is no limit."""
    limit = address_space_limit()
    if limit is not None:
        # NumPy's OpenBLAS takes 40 MB for each thread, and nmtalign computes its products elsewhere.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        sys.meta_path.insert(0, _Guard(limit))


def address_space_limit() -> int | None:
    """The limit in bytes; None if there is none, or the system has no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
