"""Several processes under the real torchrun: the same updates as one, resumption, and an end for all when one ends."""

import json
import os
import re
import shlex
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import trainings_together as several
from helpers.command_line import command, script_in_its_place, sets
from helpers.parallel_texts import prepared
from helpers.torchrun import torchrun
from helpers.trainings import weights

from nmtalign.data.batches import eligible, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.errors import UsageError
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.distributed import World, open_world

QUICK = ["--preset", "tiny", *sets(hidden=12, embedding=8, attention_hidden=10, maxout=6)]
ENDLESS = ["--epochs", "100000", *sets(patience=0, validate_every=100000, log_every=50, precision="fp32")]
torch_distributed = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    """61 pairs of training, 9 of dev: the lines of both are numbers, backwards on the other side."""
    generator = np.random.default_rng(5)
    lines = [[f"n{word}" for word in generator.integers(0, 9, generator.integers(1, 9))] for _ in range(61 + 9)]
    pairs = [(" ".join(line), " ".join(reversed(line))) for line in lines]
    corpus = prepared(tmp_path_factory.mktemp("corpus"), pairs[:61], pairs[61:], ("xx", "yy"), vocabulary="none")
    lengths = corpus.splits["train"].source.lengths
    links = (" ".join(f"{n - 1 - word}-{word}" for word in range(0, n, 2)) for n in lengths)
    (corpus.folder / "links").write_text("".join(f"{line}\n" for line in links))
    return corpus


@pytest.fixture(scope="module")
def together(corpus, tmp_path_factory) -> Path:
    """What two processes leave of all cases, one of which a single process has begun."""
    folder = tmp_path_factory.mktemp("together")
    for name in ("begun by one", "damaged"):
        several.train(corpus, folder / name, several.HALF)
    newest = folder / "damaged/training_state.safetensors"
    newest.replace(newest.with_name("training_state.previous.safetensors"))
    newest.write_bytes(b"")
    trainings = script_in_its_place(several.__file__)
    ranks, said = command(corpus.folder, folder), folder / "said"
    process = torchrun("--no-python", *ranks, folder=folder, output=said, code=trainings)
    assert (process.wait(250), said.read_text()) == (0, "")
    return folder


def logged(folder, kind):
    events = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == kind]


def assert_same_weights(one: Path, other: Path, name: str = "last"):
    """The same weights, to rounding."""
    ours, theirs = weights(one, name), weights(other, name)
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=2e-6, msg=lambda text, at=name: at + text)


def assert_alike(one: Path, other: Path):
    """The same updates, to rounding: weights, losses, norms and the counts behind them."""
    assert_same_weights(one, other)
    for kind, fields in {
        "progressed": ["update", "epoch", "loss", "loss_sentence", "gradient_norm", "learning_rate", "alignment_loss"],
        "validated": ["update", "loss", "loss_sentence", "bleu", "best", "sample_translation"],
        "finished": ["update", "reason", "complete"],
    }.items():
        rows, expected = ([[event[name] for name in fields] for event in logged(at, kind)] for at in (one, other))
        assert len(rows) == len(expected) > 0
        for row, wanted in zip(rows, expected, strict=True):
            assert row == [pytest.approx(value, rel=1e-4) if isinstance(value, float) else value for value in wanted]


@torch_distributed
def test_two_processes_make_the_updates_of_one(corpus, together, tmp_path):
    for name, config in several.cases(corpus).items():
        several.train(corpus, tmp_path / name, config)
        assert_alike(together / name, tmp_path / name)
        assert_same_weights(together / name, tmp_path / name, "best")
    several.train(corpus, tmp_path / "none", several.CONFIG, attention="none", bidirectional=False, output_rank=5)
    assert_alike(together / "no attention", tmp_path / "none")


@torch_distributed
def test_a_finished_run_whose_newest_checkpoint_is_damaged_stays_finished(together):
    """The first process wrote another checkpoint, for which the others did not wait, so that all hung."""
    events = [event for kind in ("damaged", "finished") for event in logged(together / "damaged", kind)]
    assert [event["update"] for event in events] == [3] * 3


@torch_distributed
def test_a_run_resumes_with_another_number_of_processes(corpus, together, tmp_path):
    several.train(corpus, tmp_path / "whole", several.WHOLE)
    assert_same_weights(together / "begun by one", tmp_path / "whole")
    shutil.copytree(together / "begun by two", tmp_path / "begun by two")
    events = several.train(corpus, tmp_path / "begun by two", several.WHOLE)
    assert events[0].resumed
    assert_same_weights(tmp_path / "begun by two", tmp_path / "whole")


@torch_distributed
def test_a_run_resumes_exactly_with_as_many_processes_dropout_included(together):
    ours, theirs = weights(together / "interrupted"), weights(together / "uninterrupted")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@torch_distributed
def test_all_end_a_validation_when_one_is_asked_to_stop_and_repeat_it(together):
    said = [(together / f"stopped.{rank}").read_text() for rank in (0, 1)]
    assert said[0] == said[1]
    assert "Finished(update=4," in said[0]
    assert "complete=False" in said[0]
    for name in ("last", "best"):
        ours, theirs = weights(together / "stopped", name), weights(together / "tokens", name)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@torch_distributed
def test_all_skip_the_same_updates_and_end_alike_where_the_loss_is_not_finite(corpus, together, tmp_path):
    said = [(together / f"diverged.{rank}").read_text() for rank in (0, 1)]
    assert "10 times in a row" in said[0]
    assert said[0] == said[1]
    alone = several.diverge(corpus, tmp_path / "diverged")
    assert alone.removeprefix(str(tmp_path)) == said[0].removeprefix(str(together))


def test_every_pair_is_read_by_only_one_process_and_the_load_is_even(reversal):
    train = reversal.splits["train"]
    plan = plan_epoch(train, eligible(train, 0), TrainingConfig(batch_size=41, batch_unit="tokens"), 0)
    worlds = [World(torch.device("cpu"), rank, 3) for rank in range(3)]
    for indices in plan:
        parts = [world.share(indices) for world in worlds]
        assert sorted(np.concatenate(parts).tolist()) == sorted(indices.tolist())
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


# A rank writes the number of its process to a file.
TELLS_ITS_NUMBER = """
import os
from pathlib import Path
Path("pid." + os.environ["RANK"]).write_text(str(os.getpid()))
"""


class Run:
    """`torchrun ... train ...` in the background; the ranks are clients of the server that saves their imports.

    With `seldom`, torchrun looks after them so seldom that a rank that loses another one says so before torchrun ends
    it, on a busy machine, too.
    """

    def __init__(self, folder, *arguments, processes=2, seldom=False):
        self.folder, self.log, self.events = folder, folder / "stderr", folder / "m" / "train.jsonl"
        program = [*["--monitor-interval=6"] * seldom, "--no-python", *command("train", *arguments)]
        places = {"folder": folder, "output": self.log}
        self.agent = torchrun(*program, **places, processes=processes, code=TELLS_ITS_NUMBER)

    def wait_for_progress(self):
        """Waits until the first 50 updates are made."""
        until = time.monotonic() + 250
        while not (self.events.exists() and '"progressed"' in self.events.read_text()):
            assert self.agent.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)

    def rank(self, number) -> int:
        """The process number of a rank."""
        return int((self.folder / f"pid.{number}").read_text())

    def end(self):
        """(exit code, our own lines without those of progress) once all is over."""
        code = self.agent.wait(250)
        lines = self.log.read_text().splitlines()
        return code, [line for line in lines if line.startswith("nmtalign: ") and not line.endswith(" ...")]


@pytest.fixture
def endless(corpus, tmp_path):
    """Starts a training without an end, and waits until it has made updates."""
    runs = []

    def start(*arguments, **options):
        run = Run(tmp_path, corpus.folder, "-o", "m", *QUICK, *ENDLESS, *arguments, **options)
        runs.append(run)
        run.wait_for_progress()
        return run

    yield start
    for run in runs:
        run.agent.terminate()
        run.agent.wait()


def is_gone(pid) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


@linux
@torch_distributed
def test_a_rank_that_is_killed_ends_the_run_and_is_named(endless, tmp_path, corpus, nmtalign):
    run = endless("--set", "checkpoint_every=20", seldom=True)
    pids = [run.rank(0), run.rank(1)]
    os.kill(pids[1], signal.SIGKILL)
    code, lines = run.end()
    assert code != 0
    errors = [line for line in lines if "error" in line]
    assert len(errors) == 1, run.log.read_text()
    (line,) = errors
    assert re.match(rf"nmtalign: error: rank 0 \(pid {pids[0]}, host \S+\) lost the connection .* at update \d+", line)
    assert line.endswith("the same command resumes from the last checkpoint")
    assert "rank      : 1 " in run.log.read_text()  # the report of torchrun
    assert all(map(is_gone, pids))
    once = ("--epochs", "0", "--max-updates", "1", "--set", "precision=fp32")
    again = nmtalign("train", corpus.folder, "-o", "m", *QUICK, *once)
    assert "already done" in again.stderr.decode() or "done (1 update)" in again.stderr.decode()
    assert logged(tmp_path / "m", "started")[-1]["update"] >= 20


@torch_distributed
def test_a_signal_saves_and_ends_all_together(endless, tmp_path, corpus, nmtalign):
    run = endless()
    os.kill(run.agent.pid, signal.SIGTERM)
    code, lines = run.end()
    assert code != 0
    said = [line for line in lines if "the same command resumes" in line]
    assert len(said) == 1, lines
    assert not [line for line in lines if "error" in line]
    (finished,) = logged(tmp_path / "m", "finished")
    assert (finished["reason"], finished["complete"]) == ("ended by SIGTERM", False)
    last = finished["update"] + 1
    again = nmtalign("train", corpus.folder, "-o", "m", *QUICK, *ENDLESS, "--epochs", "0", "--max-updates", last)
    assert f"resuming from update {last - 1}" in again.stderr.decode()


@torch_distributed
def test_a_mistake_is_reported_once(tmp_path):
    code, lines = Run(tmp_path, "absent").end()
    assert code != 0
    assert len(lines) == 1
    assert lines[0].startswith("nmtalign: error: absent: no prepared corpus here")


PATIENCE = """
import os, time
from datetime import timedelta
from pathlib import Path
from nmtalign.training import distributed
Path("ready." + os.environ["RANK"]).touch()
while len(list(Path().glob("ready.*"))) < 2:  # one process may begin seconds after the other
    time.sleep(0.02)
distributed.TIMEOUT = timedelta(seconds=SECONDS)
world = distributed.open_world("cpu")
time.sleep(1.5 * SECONDS * world.is_main)
world.wait_for_files()
Path(f"waited.{world.rank}").touch()
while world.is_main and not Path("lost.1").exists():
    time.sleep(0.02)
try:
    world.all_reduce([1.0], "sum")
except distributed.ConnectionLostError:
    Path(f"lost.{world.rank}").touch()
os._exit(0)
"""


@torch_distributed
def test_ranks_wait_longer_for_files_than_for_sums(tmp_path):
    for seconds in (2, 40):  # on a busy machine the processes may need more than two to connect
        (folder := tmp_path / str(seconds)).mkdir()
        code, said = f"SECONDS = {seconds}{PATIENCE}", folder / "said"
        if torchrun("--no-python", *command(), folder=folder, output=said, code=code).wait(140) == 0:
            break
    assert {"waited.0", "waited.1", "lost.1"} <= {path.name for path in folder.iterdir()}, said.read_text()


@torch_distributed
def test_an_error_of_only_one_rank_is_reported_once(tmp_path, corpus):
    for rank in ("0", "1"):
        (tmp_path / rank).mkdir()
    shutil.copytree(corpus.folder, tmp_path / "0" / "data")
    train = f"cd $RANK; exec {shlex.join(command('train', 'data'))}"
    said = tmp_path / "said"
    assert torchrun("--no-python", "sh", "-c", train, folder=tmp_path, output=said).wait(100) != 0
    (line,) = [line for line in said.read_text().splitlines() if line.startswith("nmtalign: error: ")]
    assert re.match(r"nmtalign: error: rank 1 \(pid \d+, host \S+\): data: no prepared corpus here", line)


@torch_distributed
def test_processes_with_other_settings_are_refused(corpus, tmp_path):
    world = World(torch.device("cpu"))
    world.all_gather = lambda value: [("other settings", *value[1:]), value]
    with pytest.raises(UsageError, match="rank 1 has another corpus or other settings than rank 0"):
        several.train(corpus, tmp_path / "model", several.CONFIG, world)


@torch_distributed
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_rank_by_itself_trains_as_a_single_process_does(corpus, tmp_path, device):
    """The distributed paths on each device: with one GPU, NCCL can be tested with only one rank."""
    world = World(torch.device("cpu"), 0, 1, torch.distributed.HashStore())
    world.connect(device)
    config = replace(several.CONFIG, device=device, accumulate=2)
    with world.reporting_once():
        assert world.all_reduce([1.5, 2.0], "sum") == [1.5, 2.0]
        assert world.all_gather(["ä", None]) == [["ä", None]]
        several.train(corpus, tmp_path / "rank", replace(config, epochs=1.0), world)
        several.train(corpus, tmp_path / "rank", config, world)
        world.close()
    several.train(corpus, tmp_path / "alone", config)
    assert_same_weights(tmp_path / "rank", tmp_path / "alone")


@torch_distributed
@pytest.mark.gpu
def test_two_gpus_make_the_updates_of_one(corpus, tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("fewer than two GPUs")
    flags = [corpus.folder, *QUICK, "--set", "precision=fp32", "--device", "cuda", "--max-updates", 9, "--epochs", 0]
    for name, processes in (("two", 2), ("one", 1)):
        code, lines = Run(tmp_path, *flags, "-o", name, processes=processes).end()
        assert code == 0, lines
    assert_same_weights(tmp_path / "two", tmp_path / "one")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": ""}, "RANK expected, but not set.*; start the processes with torchrun"),
        ({"WORLD_SIZE": "two"}, "torchrun"),
    ],
)
def test_an_incomplete_environment_is_one_line(changes, message, monkeypatch):
    rank = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in {**rank, **changes}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message) as raised:
        open_world("cpu")
    assert "\n" not in str(raised.value)


def test_a_process_without_torchrun_trains_by_itself(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    world = open_world("cpu")
    assert (world.rank, world.size, world.all_gather("one")) == (0, 1, ["one"])
