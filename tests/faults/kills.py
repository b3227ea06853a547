"""Commands that are killed: no file with its final name is incomplete, and the same command again completes the work.

Half of the attempts kill at a random moment, the others just before a random operation on a file (open, rename, remove,
flush), because the moments between two of these operations are short. A third of the attempts kill the second run, too.
"""

import json
import mmap
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from faults.campaign import Part
from faults.processes import TRAIN, Ended, Process, Workspace

from nmtalign.errors import NmtalignError
from nmtalign.files import read_json
from nmtalign.tensor_file import load_tensors

_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree"}
_QUICK = ("prep over a corpus", "translate --save-alignments", "align", "score --html", "link")  # among the tests
_TORCHRUN_WAITS = 30  # seconds after SIGTERM until torchrun sends SIGKILL
_TIMES = ("seconds", "per_second", "date")  # parts of the names of values that differ between equal runs


@dataclass
class Command:
    """A command that writes the files `outputs` from the files `inputs`."""

    name: str
    line: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    workspace: Workspace
    prints: bool = False  # whether stdout must be equal, too
    grows: bool = False  # whether complete files of a run that continues may differ from the final ones
    processes: int = 1  # that train one model, 1 or 2

    @property
    def arguments(self) -> list[str]:
        return self.line.split()

    def start(self, folder: Path, prepare: Callable[[], object] = lambda: None) -> Process:
        """Starts the command."""
        before = _as_two_processes if self.processes == 2 else lambda: None
        return Process(self.arguments, folder, prepare=lambda: (before(), prepare()))

    def run(self, folder: Path, prepare: Callable[[], object] = lambda: None) -> Ended:
        """Runs the command."""
        return self.start(folder, prepare).end()

    @cached_property
    def reference(self) -> tuple[Ended, Mapping[str, object], int, float]:
        """What an undisturbed run leaves: (end, files, operations on files, seconds)."""
        with self.workspace.copy(*self.inputs) as folder:
            counter = mmap.mmap(-1, 8)
            began = time.monotonic()
            ended = self.run(folder, partial(_watch_files, folder, counter, 0))
            seconds = time.monotonic() - began
            if ended.code:
                raise RuntimeError(f"nmtalign {self.line}: {ended.err.decode(errors='replace')}")
            return ended, self.left(folder), int.from_bytes(counter[:8], "little"), seconds

    def files(self, folder: Path) -> dict[str, Path]:
        """The output files with their final names; names of incomplete files begin with a dot or contain .partial."""
        found = {}
        for output in self.outputs:
            path = folder / output
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                parts = file.relative_to(folder).parts
                if file.is_file() and "work" not in parts and not any(p[0] == "." or ".partial" in p for p in parts):
                    found["/".join(parts)] = file
        return found

    def left(self, folder: Path) -> dict[str, object]:
        """The values of the output files, without times."""
        return {name: _value(path) for name, path in self.files(folder).items()}

    def attempt(self, chance: random.Random) -> str:
        """Kills the command once or twice, and completes it."""
        expected, final, operations, seconds = self.reference
        with self.workspace.copy(*self.inputs) as folder:
            before = self.left(folder)
            for _ in range(1 + (chance.random() < 1 / 3)):
                if fault := self._kill(folder, chance, operations, seconds):
                    return fault
                try:
                    values = self.left(folder)
                except (NmtalignError, ValueError, OSError) as error:
                    return f"a file with its final name is damaged: {error}"
                for name, value in values.items():
                    if not self.grows and value not in (before.get(name), final.get(name)):
                        return f"{name} is incomplete"
            ended = self.run(folder)
            if ended.code or (fault := ended.fault()):
                return f"the second run failed: {ended.fault() or ended.err.decode(errors='replace')[-300:]}"
            if self.prints and ended.out != expected.out:
                return "the second run printed something else"
            values = self.left(folder)
            return next((f"{name} differs" for name in values | final if values.get(name) != final.get(name)), "")

    def _kill(self, folder: Path, chance: random.Random, operations: int, seconds: float) -> str:
        if chance.random() < 0.5:
            watch = partial(_watch_files, folder, mmap.mmap(-1, 8), chance.randint(1, operations))
            process = self.start(folder, watch)
        else:
            process = self.start(folder)
            process.wait(chance.uniform(0, 1.1 * seconds))
            workers = process.members()[1:] if self.processes == 2 else [process.number]
            if workers:
                process.kill(chance.choice(workers))
        if process.end().code == -signal.SIGALRM:
            return "the other processes of the command hang"
        return "a process outlives the command" if process.has_survivors() else ""


def _watch_files(folder: Path, counter: mmap.mmap, last: int) -> None:
    """Counts the operations on files in a folder; kills this process at number `last`."""
    inside = str(folder)
    own = os.getpid()

    def count() -> None:
        if os.getpid() == own:
            number = int.from_bytes(counter[:8], "little") + 1
            counter[:8] = number.to_bytes(8, "little")
            if number == last:
                os.kill(own, signal.SIGKILL)

    def hook(event: str, arguments: tuple) -> None:
        if event in _EVENTS and isinstance(arguments[0], str | os.PathLike):
            path = os.fspath(arguments[0])
            if isinstance(path, str) and (path.startswith(inside) or not path.startswith("/")):
                count()

    fsync = os.fsync

    def flushed(descriptor: int) -> None:
        fsync(descriptor)
        count()

    os.fsync = flushed
    sys.addaudithook(hook)


def _as_two_processes() -> None:
    """Starts two processes that train one model, and returns in each of them.

    This process waits for both. As torchrun does, it ends the second one if the first one that ended has failed.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    workers = []
    for rank in ("0", "1"):
        if not (worker := os.fork()):
            os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
            return
        workers.append(worker)
    first, status = os.wait()
    workers.remove(first)
    (second,) = workers
    if failed := os.waitstatus_to_exitcode(status):
        os.kill(second, signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(second, signal.SIGKILL))
        signal.alarm(_TORCHRUN_WAITS)
    last = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
    os._exit((failed or last) % 256)


def _value(path: Path) -> object:
    """The content of a file without times; raises an error for a file of tensors or of JSON that is damaged."""
    if path.suffix == ".safetensors":
        tensors, metadata = load_tensors(path)
        if "position" not in metadata:
            return path.read_bytes()
        values = [(name, tensor.numpy().tobytes()) for name, tensor in tensors.items()]
        return _timeless(json.loads(metadata["position"])), values
    if path.suffix == ".json":
        return _timeless(read_json(path))
    if path.suffix == ".jsonl":
        events = [json.loads(line) for line in path.read_bytes().splitlines()]
        return {event["update"]: event["loss"] for event in events if event["event"] == "validated"}
    return path.read_bytes()


def _timeless(value: dict) -> dict:
    return {key: one for key, one in value.items() if not any(part in key for part in _TIMES)}


def commands(workspace: Workspace) -> list[Command]:
    """All commands that are killed."""
    prep = "prep -q train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data --workers 1"
    texts = ("train.en", "train.fr", "dev.en", "dev.fr", "test.en", "test.fr")
    test, model = ("test.en", "test.fr"), ("model",)
    search = "translate -q test.en --beam 2 --max-length-ratio 1"
    make = partial(Command, workspace=workspace)
    train = partial(make, inputs=("data", "train.align"), outputs=("trained",), grows=True)
    return [
        make("prep", prep, texts, ("data",)),
        make("prep over a corpus", f"{prep} --shortlist 200 --force", (*texts, "data"), ("data",)),
        train("train", f"{TRAIN} data -o trained"),
        train("train, guided", f"{TRAIN} data -o trained --guided-alignment train.align"),
        train("train, two processes", f"{TRAIN} data -o trained --accumulate 2", processes=2),
        make("translate -o", f"{search} -o new.fr --resume", (*test, *model), ("new.fr",)),
        make(
            "translate --save-alignments",
            f"{search} -o new.fr --save-alignments new.h5 --resume",
            (*test, *model),
            ("new.fr", "new.h5"),
        ),
        make("align", "align -q test.en test.fr -o new.h5 --resume", (*test, *model), ("new.h5",)),
        make(
            "score --html",
            "score -q out.fr -r test.fr -s test.en --metrics bleu --html page.html",
            (*test, "out.fr"),
            ("page.html",),
            prints=True,
        ),
        make(
            "reproduce",
            "reproduce -q --config workspace.toml --scale tiny --updates 6 --models RNNencdec-50,RNNsearch-50 --jobs 2 "
            "--beam 1 --device cpu --no-text -o report",
            (*texts, "test.align", "workspace.toml"),
            ("report/scores.csv", "report/settings.json"),
        ),
        make("link", "link -q dev.en dev.fr -o linked", texts, ("linked",), prints=True),
        make("export model", "export model -o slim --weights int8", model, ("slim",)),
        make(
            "export alignments", "export alignments.h5 -f json -o new.jsonl.gz", ("alignments.h5",), ("new.jsonl.gz",)
        ),
    ]


def parts(workspace: Workspace) -> list[Part]:
    """One part for each command."""
    return [Part(f"kills: {one.name}", one.attempt, 200, int(one.name in _QUICK)) for one in commands(workspace)]
