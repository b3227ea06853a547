"""Trainings that are killed, for test_kill.py: a process of its own that forks them.

`python killed_trainings.py CORPUS FOLDER SEED KILLS OPTIMIZER...` kills a training KILLS times for each optimiser, half
of them while a file is being written, lets it finish, and prints as JSON what it and an uninterrupted run to the same
update have left.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch
from helpers.trainings import make_trainer, sizes

from nmtalign.data.corpus import Corpus
from nmtalign.model_directory import load_tensors
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.checkpoints import find_checkpoint

CONFIG = TrainingConfig(
    learning_rate=5e-3,
    epsilon=1e-8,
    loss_normalization="tokens",
    batch_size=60,
    max_length=5,
    shuffle="epoch",
    validate_every="4",
    checkpoint_every="3",
    patience=1000,
    log_every=1,
    bleu_sentences=2,
    precision="fp32",
    device="cpu",
    threads=1,  # of a process that forks
)


def train(corpus, folder, config):
    """Runs a complete training, or the rest of it."""
    small = sizes(corpus, embedding=8, hidden=16, attention_hidden=16, maxout=8, dropout=0.2)
    make_trainer(corpus, folder, small, config, lambda event: None).run()


def forked(corpus, folder, config, prepare=lambda: None):
    """The process id of a training."""
    child = os.fork()
    if child:
        return child
    code = 1
    signal.alarm(200)  # even if the parent has ended
    try:
        prepare()
        train(corpus, folder, config)
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def kill_in_a_write(corpus, folder, config, count):
    """Kills a training when it is about to flush or to rename a file for the `count`-th time."""
    reading, writing = os.pipe()

    def prepare():
        os.fsync, Path.replace = (halting(function) for function in (os.fsync, Path.replace))

    def halting(function):
        def wrapped(*arguments):
            nonlocal count
            count -= 1
            if not count:
                os.write(writing, b"!")
                signal.pause()
            return function(*arguments)

        return wrapped

    child = forked(corpus, folder, config, prepare)
    os.close(writing)
    if not os.read(reading, 1):
        raise SystemExit("a training ended before it was killed")
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def kill_after(corpus, folder, config, seconds):
    """Kills a training some time after its first update."""
    log = folder / "train.jsonl"
    before = log.stat().st_ino if log.exists() else 0
    child = forked(corpus, folder, config)
    while not log.exists() or log.stat().st_ino == before or b"progressed" not in log.read_bytes()[-1500:]:
        if os.waitpid(child, os.WNOHANG)[0]:
            raise SystemExit("a training ended before it was killed")
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def digest(path):
    """Returns a digest of the names and values of all tensors, without the other contents of the file."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(load_tensors(path)[0].items()):
        hashed.update(name.encode() + tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def left(folder):
    """All that must be the same."""
    names = ("last.safetensors", "best.safetensors", "training_state.safetensors")
    timed = {"seconds", "update_seconds", "validation_updates"}
    position = vars(find_checkpoint(folder).position)
    timeless = {name: value for name, value in position.items() if name not in timed}
    log = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    dev = [(event["update"], event["loss"], event["best"]) for event in log if event["event"] == "validated"]
    return {"weights": [digest(folder / name) for name in names], "position": timeless, "dev": dev}


def compare(corpus, folder, config, chance, kills):
    """Compares the files of a training that is killed again and again with those of an uninterrupted one."""
    train(corpus, folder / "first", replace(config, max_updates=1))  # imports what is imported late, for all children
    for kill in range(kills):
        if kill % 2:
            kill_in_a_write(corpus, folder / "killed", config, chance.randint(1, 30))
        else:
            kill_after(corpus, folder / "killed", config, chance.uniform(0, 0.1))
    config = replace(config, max_updates=find_checkpoint(folder / "killed").position.update + 5)
    for name in ("killed", "whole"):
        train(corpus, folder / name, config)
    files = sorted(path.name for path in (folder / "killed").iterdir())
    return {"killed": left(folder / "killed"), "whole": left(folder / "whole"), "files": files}


def main():
    corpus, folder, seed, kills, *optimizers = sys.argv[1:]
    chance = random.Random(int(seed))
    results = [
        compare(Corpus.open(Path(corpus)), Path(folder) / name, replace(CONFIG, optimizer=name), chance, int(kills))
        for name in optimizers
    ]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
