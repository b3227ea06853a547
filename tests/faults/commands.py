"""Commands under faults: killed, on a disk that refuses to write, or beside another command.

A killed or refused command leaves no incomplete file with a final name, and the same command again completes the work,
with the bytes of an undisturbed run (times excepted). Half of the kills come at a random moment, the others just before
a random operation on a file (open, rename, remove, flush), because the moments between two of these are short.
"""

import json
import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from faults.campaign import Part
from faults.processes import TRAIN, Ended, Process, Workspace, limit_files, run

from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError
from nmtalign.files import read_json
from nmtalign.model_directory import load_tensors

_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree"}
_SIZES = (0, 1, 100, 511, 512, 4095, 4096, 4097)  # bytes of files and disks, beside random ones
_KILLED = {-signal.SIGKILL, -signal.SIGALRM, 0}
# Parts of the names of values that differ between equal runs; reports, which note the excess, come at times.
_TIMES = ("seconds", "per_second", "date", "excess", "update_seconds", "validation_updates")

Prepare = Callable[[], object]  # runs in the process of a command before it


class Reference(NamedTuple):
    """What an undisturbed run of a command leaves, and how long it takes."""

    ended: Ended
    files: Mapping[str, object]
    largest: int  # bytes of the largest file
    operations: int  # on files
    seconds: float


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

    def start(self, folder: Path, prepare: Prepare = lambda: None) -> Process:
        """Starts the command."""
        return Process(self.line.split(), folder, prepare=prepare)

    @cached_property
    def reference(self) -> Reference:
        """An undisturbed run."""
        with self.workspace.copy(*self.inputs) as folder:
            counter, began = mmap.mmap(-1, 8), time.monotonic()
            ended = self.start(folder, partial(_watch_files, folder, counter, 0)).end()
            seconds = time.monotonic() - began
            if ended.code:
                raise RuntimeError(f"nmtalign {self.line}: {ended.err.decode(errors='replace')}")
            largest = max(path.stat().st_size for path in self._files(folder).values())
            return Reference(ended, self.left(folder), largest, int.from_bytes(counter[:8], "little"), seconds)

    def _files(self, folder: Path) -> dict[str, Path]:
        """The output files with their final names; names of incomplete files begin with a dot or contain .partial."""
        found = {}
        for path in (folder / output for output in self.outputs):
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                parts = file.relative_to(folder).parts
                if file.is_file() and "work" not in parts and not any(p[0] == "." or ".partial" in p for p in parts):
                    found["/".join(parts)] = file
        return found

    def left(self, folder: Path) -> dict[str, object]:
        """The values of the output files, without times."""
        return {name: _value(path) for name, path in self._files(folder).items()}

    def completed(self, folder: Path) -> str:
        """Runs the command again without a fault; returns "" if it has left the right files."""
        ended = self.start(folder).end()
        if ended.code or ended.fault():
            return f"the second run failed: {ended.fault() or ended.err.decode(errors='replace')[-300:]}"
        if self.prints and ended.out != self.reference.ended.out:
            return "the second run printed something else"
        values, final = self.left(folder), self.reference.files
        return next((f"{name} differs" for name in values | final if values.get(name) != final.get(name)), "")


def _watch_files(folder: Path, counter: mmap.mmap, last: int) -> None:
    """Counts the operations on files in a folder; kills this process at number `last`."""
    inside, own, fsync = str(folder), os.getpid(), os.fsync

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

    def flushed(descriptor: int) -> None:
        fsync(descriptor)
        count()

    os.fsync = flushed
    sys.addaudithook(hook)


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


def _kill(command: Command, folder: Path, chance: random.Random) -> Prepare:
    moment = chance.uniform(0.001, 1.1 * command.reference.seconds)
    last = chance.randint(1, command.reference.operations) if chance.random() < 0.5 else 0

    def prepare() -> None:
        if last:
            _watch_files(folder, mmap.mmap(-1, 8), last)
        else:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, moment)

    return prepare


def _limit_files(command: Command, folder: Path, chance: random.Random) -> Prepare:
    """No file can grow beyond a random size."""
    return partial(limit_files, chance.choice((chance.choice(_SIZES), chance.randint(0, command.reference.largest))))


class Fault(NamedTuple):
    """What happens to a command, the exit codes that are right then, and the numbers of attempts of each command."""

    name: str
    apply: Callable[[Command, Path, random.Random], Prepare]
    codes: set[int]
    full: int
    quick: Mapping[str, int]  # the same among the tests; other commands are not tried there


_QUICK_KILLS = {"train": 10, "train, guided": 10, "prep over a corpus": 1, "translate --save-alignments": 1, "link": 1}
_FAULTS = (
    Fault("kills", _kill, _KILLED, 200, _QUICK_KILLS),
    Fault("disks", _limit_files, {0, 5}, 60, {"prep": 1, "translate --save-alignments": 1}),
)


def _attempt(fault: Fault, command: Command, chance: random.Random) -> str:
    """Runs a command under a fault, at times twice; looks at what is left, and completes the work."""
    final = command.reference.files
    codes = fault.codes | ({1} if command.name == "reproduce" else set())  # 1: an experiment failed
    with command.workspace.copy(*command.inputs) as folder:
        before = command.left(folder)
        for _ in range(1 + (chance.random() < 1 / 3)):
            process = command.start(folder, fault.apply(command, folder, chance))
            ended = process.end()
            if problem := ended.fault(codes):
                return problem
            if process.has_survivors():
                return "a process outlives the command"
            try:
                values = command.left(folder)
            except (NmtalignError, ValueError, OSError) as error:
                return f"a file with its final name is damaged: {error}"
            if ended.code == 0 and values != final:
                return "exit code 0, but the files are not those of an undisturbed run"
            for name, value in values.items():
                if not command.grows and value not in (before.get(name), final.get(name)):
                    return f"{name} is incomplete"
        return command.completed(folder)


def _together(lines: Sequence[str], folder: Path, chance: random.Random, seconds: float) -> tuple[list[Ended], str]:
    """Runs two command lines, the second up to `seconds` after the first; returns their ends, and a fault of one."""
    first = Process(lines[0].split(), folder)
    first.wait(chance.choice((0, chance.uniform(0, seconds))))
    both = [Process(lines[1].split(), folder).end(), first.end()][::-1]
    return both, both[0].fault({0, 2, 4}) or both[1].fault({0, 2, 4})


def _twice(command: Command, chance: random.Random) -> str:
    """One of two equal commands may be refused (2); then the same command again completes the work."""
    with command.workspace.copy(*command.inputs) as folder:
        both, fault = _together([command.line] * 2, folder, chance, command.reference.seconds)
        if not fault and all(ended.code for ended in both):
            return f"both were refused: {both[0].err!r}"
        same = command.left(folder) == command.reference.files
        return fault or (command.completed(folder) if same else "the files are not those of one run")


def _translate_while_training(workspace: Workspace, chance: random.Random) -> str:
    with workspace.copy("data", "test.en") as folder:
        line = TRAIN.replace("validate_every=4", "validate_every=1").replace("checkpoint_every=3", "checkpoint_every=1")
        training = Process(f"{line} data -o model".split(), folder)
        while not training.wait(0):
            which = chance.choice(("best", "last"))
            ended = run(f"translate -q test.en -m model/{which}.safetensors --beam 1 --set max_length_ratio=1", folder)
            if ended.fault({0, 4}):
                return ended.fault({0, 4})
            if ended.code == 0 and ended.out.count(b"\n") != 30:
                return "lines are missing"
        return training.end().fault({0})


def _prep_while_training(workspace: Workspace, chance: random.Random) -> str:
    """The training has the result of the old corpus or of the new one, or it is refused at its start."""
    prep = f"prep -q train.en train.fr --shortlist {chance.choice((200, 300))} --force -o data --set workers=1"
    with workspace.copy("data", "train.en", "train.fr") as folder:
        (trained, prepared), fault = _together([f"{TRAIN} data -o model", prep], folder, chance, 3)
        if fault or prepared.code:
            return fault or prepared.fault({0})
        return run("info model" if trained.code == 0 else f"{TRAIN} data -o model", folder).fault({0})


def _other_settings(workspace: Workspace, chance: random.Random) -> str:
    """Of two preps or two trainings with other settings one succeeds, and the folder has its result."""
    preps = [f"prep -q train.en train.fr --shortlist {size} --force -o data --set workers=1" for size in (200, 300)]
    trainings = [f"{TRAIN} data -o model --set maxout={size}" for size in (8, 12)]
    with workspace.copy("train.en", "train.fr", "data") as folder:
        both, fault = _together(preps, folder, chance, 0.5)
        if fault or all(ended.code for ended in both):
            return fault or "both were refused"
        Corpus.open(folder / "data")
        both, fault = _together(trainings, folder, chance, 3)
        if fault or [ended.code for ended in both].count(0) != 1:
            return fault or f"the exit codes are {both[0].code} and {both[1].code}"
        winner = trainings[both[1].code == 0]
        return run(winner, folder).fault({0}) or run("translate -q -m model", folder, b"a\n").fault({0})


def commands(workspace: Workspace) -> list[Command]:
    """All commands that are tried."""
    prep = "prep -q train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data --set workers=1"
    texts = ("train.en", "train.fr", "dev.en", "dev.fr", "test.en", "test.fr")
    search, model = "translate -q test.en --beam 2 --set max_length_ratio=1", ("test.en", "test.fr", "model")
    both = ("new.fr", "new.h5")
    score = "score -q out.fr -r test.fr -s test.en --metrics bleu --html page.html"
    reproduce = "reproduce -q --config quick.toml --scale tiny --words 100 --models RNNencdec-50 --seeds 2 --jobs 2"
    report = ("report/scores", "report/settings", "report/figures")
    make = partial(Command, workspace=workspace)
    train = partial(make, inputs=("data", "train.align"), outputs=("trained",), grows=True)
    return [
        make("prep", prep, texts, ("data",)),
        make("prep over a corpus", f"{prep} --shortlist 200 --force", (*texts, "data"), ("data",)),
        train("train", f"{TRAIN} data -o trained"),
        train("train, guided", f"{TRAIN} data -o trained --guided-alignment train.align --set optimizer=adadelta"),
        make("translate -o", f"{search} -o new.fr --resume", model, ("new.fr",)),
        make("translate --save-alignments", f"{search} -o new.fr --save-alignments new.h5 --resume", model, both),
        make("align", "align -q test.en test.fr -o new.h5 --resume", model, ("new.h5",)),
        make("score --html", score, ("test.en", "test.fr", "out.fr"), ("page.html",), prints=True),
        make("reproduce", f"{reproduce} -o report", (*texts, "test.align", "quick.toml"), report),
        make("link", "link -q dev.en dev.fr -o linked", texts, ("linked",), prints=True),
        make("export model", "export model -o slim --weights int8", ("model",), ("slim",)),
        make("export alignments", "export alignments.h5 -f json -o a.jsonl.gz", ("alignments.h5",), ("a.jsonl.gz",)),
    ]


def parts(workspace: Workspace) -> Iterator[Part]:
    """One part for each fault and command; then commands beside each other."""
    everything = commands(workspace)
    for fault in _FAULTS:
        for one in everything:
            attempt = partial(_attempt, fault, one)
            yield Part(f"{fault.name}: {one.name}", attempt, fault.full, fault.quick.get(one.name, 0))
    for one in everything:
        if one.name not in ("reproduce", "train, guided", "prep over a corpus"):
            yield Part(f"concurrency: {one.name}, twice", partial(_twice, one), 30, int(one.name == "link"))
    for name, attempt in (
        ("translate while train writes", _translate_while_training),
        ("prep over a corpus in training", _prep_while_training),
        ("two commands with other settings", _other_settings),
    ):
        yield Part(f"concurrency: {name}", partial(attempt, workspace), 30, 0)
