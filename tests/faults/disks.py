"""Disks that refuse: full after any number of bytes, or read-only; and disks that are slow.

A command then ends with one line and a documented exit code. No file with its final name is incomplete, and the same
command completes the work when there is room. The size of files is limited (RLIMIT_FSIZE) to a random number of bytes.
If mounting is possible, there is also a small file system in memory, which is full or read-only. On a slow disk, one
flush (fsync) takes seconds, and the others some time.
"""

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from faults.campaign import Part
from faults.kills import Command, commands
from faults.processes import Ended, Workspace, limit_files

from nmtalign.errors import NmtalignError

_REFUSED = {0, 5}  # exit codes: done, or the machine has refused
_QUICK = ("prep", "train", "translate --save-alignments", "export alignments")  # among the tests
_SIZES = (0, 1, 100, 511, 512, 4095, 4096, 4097)  # bytes, beside random ones


def parts(workspace: Workspace) -> Iterator[Part]:
    """Files of limited size for each command; then a full and a read-only disk."""
    for command in commands(workspace):
        yield Part(f"disks: limited files, {command.name}", partial(_limited, command), 40, int(command.name in _QUICK))
    if _can_mount(workspace.folder):
        for command in commands(workspace):
            yield Part(f"disks: full, {command.name}", partial(_full, command), 20, int(command.name == "prep"))
        yield Part("disks: read-only", partial(_read_only, commands(workspace)), full=40, quick=1)
    yield Part("disks: slow", partial(_slow, commands(workspace)), full=40, quick=0)


def _limited(command: Command, chance: random.Random) -> str:
    largest = max(path.stat().st_size for path in _reference_files(command).values())
    size = chance.choice((chance.choice(_SIZES), chance.randint(0, largest), chance.randint(0, largest)))
    with command.workspace.copy(*command.inputs) as folder:
        before = command.left(folder)
        ended = command.run(folder, partial(limit_files, size))
        return _judged(command, folder, ended, before) or _completed(command, folder)


def _reference_files(command: Command) -> dict[str, Path]:
    """The files of an undisturbed run, which stay for the other attempts of this process."""
    kept = command.workspace.folder / f"reference {os.getpid()} {command.name}"
    if not kept.exists():
        with command.workspace.copy(*command.inputs) as folder:
            command.run(folder)
            shutil.copytree(folder, kept)
    return command.files(kept)


def _judged(command: Command, folder: Path, ended: Ended, before: dict[str, object]) -> str:
    """Returns "" if a command has ended as it should when the disk refuses."""
    if fault := ended.fault(_REFUSED):
        return fault
    final = command.reference[1]
    try:
        values = command.left(folder)
    except (NmtalignError, ValueError, OSError) as error:
        return f"a file with its final name is damaged: {error}"
    if ended.code == 0 and values != final:
        return "exit code 0, but the files are not those of an undisturbed run"
    wrong = (name for name, value in values.items() if value not in (before.get(name), final.get(name)))
    return "" if command.grows else next((f"{name} is incomplete" for name in wrong), "")


def _completed(command: Command, folder: Path) -> str:
    """Runs the command again with room on the disk."""
    ended = command.run(folder)
    if ended.code or ended.fault():
        return f"the second run failed: {ended.fault() or ended.err.decode(errors='replace')[-300:]}"
    return "" if command.left(folder) == command.reference[1] else "the second run left other files"


def _full(command: Command, chance: random.Random) -> str:
    """A disk with room for the input and a random part of the output, which then grows."""
    files = _reference_files(command)
    output = sum(path.stat().st_size for path in files.values())
    with command.workspace.copy(*command.inputs) as original:
        size = sum(path.stat().st_size + 4096 for path in original.rglob("*"))
        with _mounted(command.workspace.folder, size + chance.randint(4096, max(8192, 2 * output))) as disk:
            shutil.copytree(original, disk, dirs_exist_ok=True)
            before = command.left(disk)
            fault = _judged(command, disk, command.run(disk), before)
            _remount(disk, "size=1g")
            return fault or _completed(command, disk)


def _read_only(all_commands: list[Command], chance: random.Random) -> str:
    command = chance.choice(all_commands)
    with _mounted(command.workspace.folder, 1 << 30) as disk, command.workspace.copy(*command.inputs) as original:
        shutil.copytree(original, disk, dirs_exist_ok=True)
        before = sorted(path.relative_to(disk) for path in disk.rglob("*"))
        _remount(disk, "ro")
        ended = command.run(disk)
        if fault := ended.fault({5}):
            return f"{command.name}: {fault}"
        return "" if before == sorted(path.relative_to(disk) for path in disk.rglob("*")) else "files have changed"


def _slow(all_commands: list[Command], chance: random.Random) -> str:
    """A disk on which each flush waits, and one of the first for seconds: nothing changes but the time."""
    command = chance.choice(all_commands)
    with command.workspace.copy(*command.inputs) as folder:
        ended = command.run(folder, partial(_slow_flush, chance.randint(1, 10), chance.uniform(2, 6)))
        if fault := ended.fault({0}):
            return f"{command.name}: {fault}"
        return "" if command.left(folder) == command.reference[1] else f"{command.name}: the files differ"


def _slow_flush(stalled: int, seconds: float) -> None:
    """Makes each flush of this process wait, and number `stalled` for `seconds`."""
    flush, number = os.fsync, itertools.count(1)

    def slow(descriptor: int) -> None:
        time.sleep(seconds if next(number) == stalled else 0.05)
        flush(descriptor)

    os.fsync = slow


@contextlib.contextmanager
def _mounted(parent: Path, size: int) -> Iterator[Path]:
    """Yields a new file system in memory."""
    disk = parent / f"disk {os.getpid()}"
    disk.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True, capture_output=True)
        try:
            yield disk
        finally:
            subprocess.run(["umount", disk], check=True, capture_output=True)
    finally:
        disk.rmdir()


def _remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True, capture_output=True)


def _can_mount(folder: Path) -> bool:
    try:
        with _mounted(folder, 65536):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
