"""Two commands at the same time: the second is told who has the folder or file, or both results are right."""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from faults.campaign import Part
from faults.kills import Command, commands
from faults.processes import TRAIN, Ended, Process, Workspace, run

from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError

_TOGETHER = ("prep", "train", "translate -o", "translate --save-alignments", "align", "score --html", "link")
_QUICK = ("translate -o", "link")  # among the tests


def parts(workspace: Workspace) -> list[Part]:
    """Each command beside itself; then pairs of different commands."""
    all_commands = {command.name: command for command in commands(workspace)}
    twice = [all_commands[name] for name in (*_TOGETHER, "export model", "export alignments")]
    return [
        *(Part(f"concurrency: {one.name}, twice", partial(_twice, one), 30, int(one.name in _QUICK)) for one in twice),
        Part("concurrency: translate while train writes", partial(_translate_while_training, workspace), 20, 0),
        Part("concurrency: prep over a corpus in training", partial(_prep_while_training, workspace), 30, 0),
        Part("concurrency: two preps with other settings", partial(_other_preps, workspace), 30, 1),
        Part("concurrency: two trainings with other settings", partial(_other_trainings, workspace), 30, 0),
    ]


def _start(lines: Sequence[str], folder: Path, chance: random.Random, seconds: float) -> list[Ended]:
    """Runs command lines at the same time; the second starts up to `seconds` after the first."""
    first = Process(lines[0].split(), folder)
    first.wait(chance.choice((0, chance.uniform(0, seconds))))
    second = Process(lines[1].split(), folder)
    return [first.end(), second.end()]


def _twice(command: Command, chance: random.Random) -> str:
    """One of two equal commands may be refused (2); then the same command again completes the work."""
    _, final, _, seconds = command.reference
    with command.workspace.copy(*command.inputs) as folder:
        both = _start([command.line, command.line], folder, chance, seconds)
        for ended in both:
            if fault := ended.fault({0, 2}):
                return fault
        if all(ended.code for ended in both):
            return f"both were refused: {both[0].err!r}"
        if command.left(folder) != final:
            return "the files are not those of one run"
        again = command.run(folder)
        return again.fault({0}) or ("" if command.left(folder) == final else "a third run changed the files")


def _translate_while_training(workspace: Workspace, chance: random.Random) -> str:
    with workspace.copy("data", "test.en") as folder:
        line = TRAIN.replace("--validate-every 4 --checkpoint-every 3", "--validate-every 1 --checkpoint-every 1")
        training = Process(f"{line} data -o model".split(), folder)
        while not training.wait(0):
            which = chance.choice(("best", "last"))
            ended = run(f"translate -q test.en -m model --which {which} --beam 1 --max-length-ratio 1", folder)
            if ended.fault({0, 4}):
                return ended.fault({0, 4})
            if ended.code == 0 and ended.out.count(b"\n") != 30:
                return "lines are missing"
        return training.end().fault({0})


def _prep_while_training(workspace: Workspace, chance: random.Random) -> str:
    """The training has the result of the old corpus or of the new one, or it is refused at its start."""
    prep = f"prep -q train.en train.fr --shortlist {chance.choice((200, 300))} --force -o data --workers 1"
    with workspace.copy("data", "train.en", "train.fr") as folder:
        training = Process(f"{TRAIN} data -o model".split(), folder)
        training.wait(chance.uniform(0, 3))
        prepared = run(prep, folder)
        ended = training.end()
        if fault := prepared.fault({0}) or ended.fault({0, 4}):
            return fault
        if ended.code == 0:
            described = run("info model", folder)
            return described.fault({0})
        return run(f"{TRAIN} data -o model", folder).fault({0})


def _other_preps(workspace: Workspace, chance: random.Random) -> str:
    """The folder has one of the two corpora, complete; at least one command has succeeded."""
    lines = [f"prep -q train.en train.fr --shortlist {size} --force -o data --workers 1" for size in (200, 300)]
    with workspace.copy("train.en", "train.fr") as folder:
        both = _start(lines, folder, chance, 0.5)
        if fault := both[0].fault({0, 2}) or both[1].fault({0, 2}):
            return fault
        try:
            Corpus.open(folder / "data")
        except NmtalignError as error:
            return f"the corpus is damaged: {error}"
        return "both were refused" if all(ended.code for ended in both) else ""


def _other_trainings(workspace: Workspace, chance: random.Random) -> str:
    """One training succeeds, and the other is refused; the folder has the model of the first."""
    lines = [f"{TRAIN} data -o model --maxout {size}" for size in (8, 12)]
    with workspace.copy("data") as folder:
        both = _start(lines, folder, chance, 3)
        if fault := both[0].fault({0, 2, 4}) or both[1].fault({0, 2, 4}):
            return fault
        if [ended.code for ended in both].count(0) != 1:
            return f"the exit codes are {both[0].code} and {both[1].code}"
        winner = lines[both[1].code == 0]
        return run(winner, folder).fault({0}) or run("translate -q -m model", folder, b"a\n").fault({0})
