"""How many places a reader visits: library files and functions that real calls enter, against budgets.

A budget is the number that was counted when it was last lowered. A change that enters more files or functions makes
a reader open more. If it is worth it, raise the budget in the same commit and say why; lower it when you can.
"""

import contextlib
import gc
import inspect
import itertools
import json
import math
import os
import runpy
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers.command_line import CODE, command, run_nmtalign, script_in_its_place
from helpers.score_tables import make_source
from helpers.trainings import CONFIG

import nmtalign
from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import load_batches
from nmtalign.search.beam_search import BeamSearch, ModelSession, Sources
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.training.distributed import World
from nmtalign.training.updates import TrainingSetup

PACKAGE = str(Path(nmtalign.__file__).parent)
SIZES = {"embedding": 8, "hidden": 8, "attention_hidden": 8, "maxout": 4}
UPDATE = {"rnnsearch-50": (8, 77), "small": (8, 76), "luong-global": (8, 61)}  # files, functions
BEAM_STEP = {"rnnsearch-50": (6, 41), "small": (6, 40), "luong-global": (7, 44)}
COMMANDS = {
    "score": ("score", "out.fr", "-r", "test.fr", "--by-length", (15, 127)),
    "align": ("align", "test.en", "test.fr", "-o", "a.h5", (21, 273)),
    "translate": ("translate", (21, 283)),
}


class Hops:
    """Counts the files and functions of the library that are entered, in all threads.

    The body of a module, which runs at import, a comprehension and a lambda are not counted.
    """

    def __init__(self) -> None:
        self._entered = set()

    def __enter__(self):
        gc.collect()  # generators that earlier tests have left would run once more when they are freed
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _look(self, frame, event, _):
        code = frame.f_code
        own = code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<")
        if event == "call" and own and code.co_filename.startswith(PACKAGE):
            self._entered.add((code.co_filename, code.co_qualname))

    @property
    def counts(self):
        return len({file for file, _ in self._entered}), len(self._entered)

    @property
    def names(self):
        return "\n".join(sorted(f"{file.removeprefix(PACKAGE)[1:]} {name}" for file, name in self._entered))


def check(counts, budget, names):
    """`counts` and `budget` are of files and functions."""
    assert all(count <= most for count, most in zip(counts, budget, strict=True)), f"{counts}, not {budget}:\n{names}"


def sizes_of(name, corpus):
    words = len(corpus.source_vocabulary), len(corpus.target_vocabulary)
    sizes = resolve(ModelConfig, (name, preset(name)), ("here", SIZES))
    return replace(sizes, source_vocabulary_size=words[0], target_vocabulary_size=words[1])


@pytest.mark.parametrize("name", UPDATE)
def test_one_update(name, reversal, tmp_path):
    setup = TrainingSetup(reversal, tmp_path / "model", sizes_of(name, reversal), CONFIG, World(torch.device("cpu")))
    setup.build(print)
    setup.model.train()
    groups = setup.groups(setup.plan(0))

    def update():
        group = next(groups)
        batches = load_batches(setup.pairs, group, False, setup.additions)
        assert math.isfinite(setup.update(group, batches, 1.0)[0])

    update()  # what is computed once for a process, or for an optimiser, is not counted, whichever test comes first
    with Hops() as hops:
        update()
    check(hops.counts, UPDATE[name], hops.names)


class WatchedSession(ModelSession):
    """Counts what the search enters from the end of the first step to the end of the next."""

    def __init__(self, hops, *arguments):
        super().__init__(*arguments)
        self._hops, self._number = hops, itertools.count()

    def step(self, choice):
        super().step(choice)
        match next(self._number):
            case 0:
                self._hops.__enter__()
            case 1:
                self._hops.__exit__()


@pytest.mark.parametrize("name", BEAM_STEP)
def test_one_step_of_beam_search(name, reversal):
    torch.manual_seed(1)
    model, hops = TranslationModel(sizes_of(name, reversal)).eval(), Hops()
    for scorer in (partial(ModelSession, Inference(model)), partial(WatchedSession, hops, Inference(model))):
        BeamSearch(Sources(*make_source([[5, 6, 7, 0], [8, 9, 0]])), TranslateConfig(beam=3)).run(scorer)
    check(hops.counts, BEAM_STEP[name], hops.names)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A small corpus, a model that was hardly trained, and its translations."""
    folder = tmp_path_factory.mktemp("demo")
    for line in ("sample . --pairs 200", "prep", "train --preset tiny --max-updates 2", "translate test.en -o out.fr"):
        assert run_nmtalign(*line.split(), cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command(name, demo):
    """The server, of which it is a fork, has imported all that it needs, so that only the calls of the run count."""
    *arguments, budget = COMMANDS[name]
    # Without the thread that looks at the load: what it enters depends on other programs.
    environment = {**os.environ, "OMP_WAIT_POLICY": "active", CODE: script_in_its_place(__file__)}
    with (demo / "test.en").open() as stdin:
        done = subprocess.run(command(*arguments), cwd=demo, env=environment, stdin=stdin, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    *_, counts, names = done.stderr.decode().split("\0")
    check(json.loads(counts), budget, names)


if __name__ == "__main__":
    with contextlib.suppress(SystemExit), Hops() as hops:
        runpy.run_module("nmtalign", run_name="__main__", alter_sys=True)
    print("", json.dumps(hops.counts), hops.names, sep="\0", file=sys.stderr)
