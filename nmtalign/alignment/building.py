"""FILE.h5.partial becomes FILE.h5: chunks that are compressed already are put where HDF5 wants them."""

import contextlib
import errno
import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from nmtalign.alignment.chunks import NAMES, column_type, lengths_of, pack
from nmtalign.alignment.layout import COMPRESSION, DATASETS, row_shape
from nmtalign.alignment.spool import Spool
from nmtalign.errors import FormatError
from nmtalign.files import atomic_path
from nmtalign.hdf5 import USER_BLOCK, seal

_ERRNO = re.compile(r"errno = (\d+)")


def build(spool: Spool, path: Path, attributes: Mapping[str, Any], weights: str) -> None:
    """Writes the HDF5 file of what is committed in a spool; `weights`: float16 or float32.

    The bytes of the file depend on its records alone. Raises ResourceError where the disk refuses, and FormatError
    where the spool was damaged after it was written; then there is no new file, and the spool is as it was.
    """
    content = spool.look_back()
    if content is None:
        raise FormatError(f"{spool.path}: is damaged; write the file again")
    lengths = lengths_of(content.state)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):  # by a run that was killed in this function
        left.unlink(missing_ok=True)
    with atomic_path(path) as temporary, _refusals(), _room(spool, temporary):
        # A layout that every HDF5 tool since 1.8 reads.
        versions = ("earliest", "v110")
        with h5py.File(temporary, "w", libver=versions, locking=False, userblock_size=USER_BLOCK) as file:
            file.attrs.update({**attributes, "sentence_ids_rise": content.state["rises"]})
            datasets = [_dataset(file, name, lengths[name], column_type(name, weights)) for name in NAMES]
            done = [0] * len(NAMES)
            for number, packed in _all_chunks(spool, content.tails, weights):
                _put(datasets[number], done[number], packed)
                done[number] += DATASETS[NAMES[number]][1]
        for name, found in zip(NAMES, done, strict=True):
            if not lengths[name] <= found < lengths[name] + DATASETS[name][1]:
                raise FormatError(f"{spool.path}: is damaged: {name} should have {lengths[name]} values")
        seal(temporary)


def _dataset(file: Any, name: str, length: int, kind: np.dtype[Any]) -> Any:
    tail = row_shape(name)
    return file.create_dataset(
        name,
        shape=(length, *tail),
        maxshape=(None, *tail),
        chunks=(DATASETS[name][1], *tail),
        dtype=kind,
        compression="gzip",
        compression_opts=COMPRESSION,
        shuffle=True,
    )


def _put(dataset: Any, start: int, packed: bytes) -> None:
    dataset.id.write_direct_chunk((start, 0)[: dataset.ndim], packed)


def _all_chunks(spool: Spool, tails: Mapping[int, bytes], weights: str) -> Iterator[tuple[int, bytes]]:
    """The chunks of a spool, and those that its tails make, filled up with zeros."""
    yield from spool.chunks()
    for number, name in enumerate(NAMES):
        if raw := tails.get(number):
            kind = column_type(name, weights)
            chunk = np.zeros((DATASETS[name][1], *row_shape(name)), kind)
            chunk.reshape(-1)[: len(raw) // kind.itemsize] = np.frombuffer(raw, kind)
            yield number, pack(chunk)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What HDF5 says of a disk that refuses, as the operating system says it."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        match = _ERRNO.search(str(error))
        if match:
            raise OSError(int(match[1]), os.strerror(int(match[1]))) from None
        raise


@contextlib.contextmanager
def _room(spool: Spool, temporary: Path) -> Iterator[None]:
    """Asks for the room first: HDF5 does not always get over a disk that becomes full."""
    if shutil.disk_usage(temporary.parent).free < spool.end:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    yield
