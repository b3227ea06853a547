"""A dry run: it counts what a training will do, measures a few updates, and writes nothing."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.trainings import CONFIG, sizes, train, weights
from torch.profiler import ProfilerActivity, profile

from nmtalign.data.batches import load_batches
from nmtalign.errors import UsageError
from nmtalign.settings.presets import SYSTEMS
from nmtalign.training.distributed import World
from nmtalign.training.dry_run import dry_run
from nmtalign.training.trainer import TrainingSetup
from nmtalign.training.updates import cut_groups

BATCH = "activations and gradients of the largest batch"


def rehearse(corpus, folder, config=CONFIG, model=None, **settings):
    setup = TrainingSetup(corpus, folder, model or sizes(corpus), config, World(torch.device("cpu")))
    return dry_run(setup, "tiny", seconds=0.05, **settings), setup


def test_it_counts_what_the_training_will_do_and_writes_nothing(reversal, tmp_path):
    config = replace(CONFIG, max_updates=0, epochs=2.0)
    found, setup = rehearse(reversal, tmp_path / "model", config)
    assert list(tmp_path.iterdir()) == []
    assert sum(found.parameters.values()) == sum(weight.numel() for weight in setup.model.parameters())
    assert set(found.parameters) == {"source embedding", "target embedding", "encoder", "decoder", "readout"}
    assert (found.updates, found.passes) == (2 * 75, 2.0)  # 3,000 pairs in batches of 40
    assert found.seconds == pytest.approx(150 * found.update_seconds)
    assert found.budget.startswith("2 epochs = 150 updates")
    assert "a useful model needs" in found.advice[0]
    assert found.memory["parameters"] == 4 * sum(found.parameters.values())
    assert found.memory["optimiser"] == pytest.approx(2 * found.memory["parameters"], abs=500)  # and the steps
    assert found.memory[BATCH] > 0


def test_of_a_resumed_run_it_tells_what_remains_and_changes_no_file(reversal, tmp_path):
    train(reversal, tmp_path / "model", sizes(reversal))
    before = {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    found, setup = rehearse(reversal, tmp_path / "model", replace(CONFIG, max_updates=30))
    assert (found.done.update, found.updates) == (12, 30)
    assert found.seconds == pytest.approx(18 * found.update_seconds)
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    kept = weights(tmp_path / "model")
    assert all(torch.equal(value, kept[name]) for name, value in setup.model.state_dict().items())
    again, _ = rehearse(reversal, tmp_path / "model", replace(CONFIG, max_updates=30), restart=True)
    assert again.done.update == 0


def test_a_time_limit_gives_the_updates_that_fit_into_it(reversal, tmp_path):
    found, _ = rehearse(reversal, tmp_path / "model", replace(CONFIG, max_updates=0, max_time="1h"))
    assert found.seconds == pytest.approx(3600)
    assert found.updates == pytest.approx(3600 / found.update_seconds)


def test_a_time_limit_that_suffices_gives_no_advice(reversal, tmp_path):
    enough, short = (
        rehearse(reversal, tmp_path / "model", replace(CONFIG, max_updates=0, max_time=time))[0]
        for time in ("10h", "1s")
    )
    assert enough.updates > 1000
    assert not enough.advice
    assert "the budget ends after" in short.advice[0]
    assert "inf" not in short.advice[0]


def test_another_run_in_the_folder_is_refused_as_by_a_training(reversal, tmp_path):
    train(reversal, tmp_path / "model", sizes(reversal))
    with pytest.raises(UsageError, match="--force"):
        rehearse(reversal, tmp_path / "model", replace(CONFIG, learning_rate=1e-3))


def peak_of(work):
    """The largest number of bytes that PyTorch has allocated on the processor during some work."""
    with tempfile.TemporaryDirectory() as folder:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        profiler.export_chrome_trace(f"{folder}/trace")
        events = json.loads(Path(f"{folder}/trace").read_text())["traceEvents"]
    totals = [event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]"]
    return max(totals) - totals[0]


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (SYSTEMS["rnnsearch"], {}),
        (SYSTEMS["rnnsearch"], {"precision": "bf16"}),
        (SYSTEMS["rnnsearch"], {"accumulate": 2, "optimizer": "adadelta"}),
        (SYSTEMS["gnmt"], {}),
        (SYSTEMS["luong-local-p"], {"label_smoothing": 0.1}),
        ({**SYSTEMS["transformer"], "embedding": 64}, {}),
        ({"attention_kind": "marginal"}, {}),
    ],
    ids=str,
)
def test_the_memory_is_that_of_an_update_with_the_largest_batch(reversal, tmp_path, model, training):
    config = replace(CONFIG, max_updates=2, **training)
    own = {"hidden": 64, "attention_hidden": 64, "embedding": 32, "dropout": 0.1, **model}
    found, setup = rehearse(reversal, tmp_path / "model", config, replace(sizes(reversal), **own))
    lengths = setup.pairs.source_lengths
    plan = [max(setup.plan(0), key=lambda pairs: len(pairs) * lengths[pairs].max())] * config.accumulate
    (group,) = cut_groups(setup.pairs, plan, config.accumulate)
    peak = peak_of(lambda: float(setup.updater.update(group, load_batches(setup.pairs, plan), 0.0).norm))
    assert found.memory[BATCH] == pytest.approx(peak, rel=0.25)


# Prints the memory that a dry run expects, or the memory that a training has needed.
MEMORY = """if True:
    import re, sys
    from dataclasses import replace
    from pathlib import Path
    import torch
    from helpers.trainings import CONFIG, sizes, train
    from nmtalign.processor import keep_memory
    from nmtalign.data.corpus import Corpus
    from nmtalign.training.distributed import World
    from nmtalign.training.dry_run import dry_run
    from nmtalign.training.trainer import TrainingSetup
    corpus, folder = Corpus.open(Path(sys.argv[1])), Path(sys.argv[2])
    keep_memory()
    config = replace(CONFIG, batch_size=300, max_updates=3, threads=1, validate_every="1000")
    large = replace(sizes(corpus), hidden=300, attention_hidden=300, maxout=300, embedding=200)
    if sys.argv[3] == "expected":
        setup = TrainingSetup(corpus, folder, large, config, World(torch.device("cpu")))
        print(sum(dry_run(setup, "tiny", seconds=0.1).memory.values()))
    else:
        train(corpus, folder, large, config)
        print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process")
def test_the_memory_of_the_process_is_that_of_a_training(reversal, tmp_path):
    call = [sys.executable, "-c", MEMORY, reversal.folder, tmp_path / "model"]
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tests, tests.parent)))}
    expected, needed = (int(subprocess.check_output([*call, what], env=environment)) for what in ("expected", "needed"))
    assert expected == pytest.approx(needed, rel=0.25)
    assert needed > 3e8
