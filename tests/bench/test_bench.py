"""Runs every subcommand of the benchmark at tiny sizes, and compares its naive loop with the model."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.core_models import make_model
from torch.utils.flop_counter import FlopCounterMode

from bench import timing
from bench.naive import NaiveLoop
from bench.products import flops_of, products_of
from bench.workload import SYSTEM_SIZES, Size, random_workload
from nmtalign.core.model import make_batch
from nmtalign.sample.sample_corpus import write_sample

SMALL = {"hidden": 16, "embedding": 12, "attention_hidden": 10, "maxout": 8}
CELLS, ORDERS = ("paper", "cudnn"), ("look-generate-update", "look-update-generate")
ATTENTIONS = (("additive", True), ("additive", False), ("none", True), ("none", False))
OPTIONS = list(itertools.product(CELLS, ORDERS, ATTENTIONS, (0, 7)))


def size_of(cell, order, attention, rank):
    options = {"cell": cell, "order": order, "attention": attention[0], "bidirectional": attention[1]}
    return Size.of("tiny", 60, output_rank=rank, **options, **SMALL)


@pytest.mark.parametrize(("cell", "order", "attention", "rank"), OPTIONS[::3])
def test_the_naive_loop_is_the_model(cell, order, attention, rank):
    model = make_model(size_of(cell, order, attention, rank).model)
    batch = make_batch([(range(3, 3 + n), range(4, 4 + k)) for n, k in ((7, 4), (2, 6), (5, 1))])
    arguments = batch.source, batch.source_mask, batch.target, batch.target_mask
    weights = list(model.parameters())
    loss = model.loss(*arguments, label_smoothing=0.1).objective
    gradients = torch.autograd.grad(loss, weights)
    for recompute_keys in (False, True):
        loop = NaiveLoop(model.config, dict(model.named_parameters()), recompute_keys)
        loop_loss = loop.loss(*arguments, label_smoothing=0.1)
        torch.testing.assert_close(loop_loss, loss, rtol=1e-12, atol=1e-12)
        for ours, theirs in zip(gradients, torch.autograd.grad(loop_loss, weights), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("cell", "order", "attention", "rank"), OPTIONS[:: len(OPTIONS) // 8])
def test_operations_are_those_that_the_naive_loop_does(cell, order, attention, rank):
    size = size_of(cell, order, attention, rank)
    workload = random_workload(size, 3, 25)
    [batch], [shape] = workload.batches, workload.shapes
    model = make_model(size.model)
    loop = NaiveLoop(size.model, dict(model.named_parameters()))
    with FlopCounterMode(display=False) as counter:
        loop.loss(batch.source, batch.source_mask, batch.target, batch.target_mask).backward()
    # The loop multiplies a fixed context again at every step. It sums an outer product in the gradient of the energies
    # over the source; a product with as many operations computes the gradient of the query.
    fixed = ("decoder context", "readout of the context") if attention[0] == "none" else ()
    products = [product for product in products_of(size.model, shape) if product.name.startswith(fixed)]
    extra = sum(product.flops * (shape.target - 1) for product in products)
    # The difference: the gradients of the first states, which are not needed, and one update more or less.
    assert counter.get_total_flops() == pytest.approx(flops_of(size.model, shape) + extra, rel=0.03)


WITHOUT_FEEDING = [(name, {"input_feeding": "none"}) for name in SYSTEM_SIZES if name.startswith("luong")]
EACH_SYSTEM = [(name, {}) for name in SYSTEM_SIZES]


@pytest.mark.parametrize(("name", "options"), [*EACH_SYSTEM, *WITHOUT_FEEDING, ("light", {"cell": "minimal"})])
def test_operations_of_the_systems_are_those_of_the_model(name, options):
    size = Size.of(name, 60, **options, **SMALL)
    workload = random_workload(size, 3, 25)
    [batch], [shape] = workload.batches, workload.shapes
    model = make_model(size.model)
    with FlopCounterMode(display=False) as counter:
        model.loss(batch.source, batch.source_mask, batch.target, batch.target_mask).objective.backward()
    # The counter leaves out a product into a given output.
    products = products_of(size.model, shape)
    counted = sum(product.flops for product in products if product.name != "logits: input gradient")
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.01)


def test_train_prints_a_table_with_ratios_first_and_writes_json(bench, tmp_path):
    result = bench(
        *("train", "--size", "tiny", "--vocabulary", 60, "--set", "hidden=16"),
        *("--batch", 3, "--length", 5, "--threads", 1),
        *("--repeats", 2, "--no-memory", "--variants", "ours-fp32,loop-fp32", "--json", tmp_path / "out.json"),
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].split()[:3] == ["x", "the", "loop"]
    assert lines[2].startswith("ours, fp32")
    assert "the loop, fp32" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["machine"]["torch"] == torch.__version__
    assert {"device", "instructions", "load", "threads", "date", "revision"} <= set(found["machine"])
    ours = found["variants"]["ours-fp32"]
    assert ours["target_words_per_second"] == pytest.approx(15 / ours["seconds"])
    assert ours["of_floor"] == pytest.approx(found["floor"]["fp32"]["seconds"] / ours["seconds"])
    assert len(ours["all_seconds"]) == 2


@pytest.mark.parametrize(("slow", "rounds"), [({}, 4), ({2, 4}, 11), (set(range(1, 99, 2)), 12)], ids=str)
def test_noisy_times_are_measured_again_and_give_no_ratio(monkeypatch, slow, rounds):
    """A task that takes three times as long in some rounds; the clock is replaced, so that nothing else counts."""
    now, calls = 0.0, 0

    def task():
        nonlocal now, calls
        now += 3.0 if calls in slow else 1.0
        calls += 1

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    seconds = timing.take_turns({"task": task}, 4)["task"]
    assert len(seconds) == rounds
    noisy = timing.spread(seconds) > timing.LARGEST_SPREAD
    assert noisy == (rounds == 12)
    assert timing.steady(2.0, timing.spread(seconds), 0.0) == (None if noisy else 2.0)


def test_train_takes_the_batches_of_a_corpus_and_measures_the_memory(bench, reversal):
    result = bench(
        *("train", "--size", "tiny", "--data", reversal.folder, "--batches", 2, "--threads", 1, "--repeats", 1),
        *("--variants", "ours-bf16", "--json", "-"),
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout[result.stdout.index("{\n") :])
    assert found["workload"]["model"]["target_vocabulary_size"] == len(reversal.target_vocabulary)
    assert len(found["workload"]["shapes"]) == 2
    peaks = found["variants"]["ours-bf16"]["peak_mb"]
    assert peaks["update"] >= peaks["loss_and_gradients"] > peaks["imports"] > 50


def rehearse(part, folder, *more):
    """Runs a part of card.sh on the CPU, at tiny sizes."""
    environment = {**os.environ, "DEVICE": "cpu", "TIME": "5s"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = [Path(__file__).with_name("card.sh"), part, folder, *more]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_the_checks_for_a_gpu_run_on_a_cpu_and_leave_their_files(tmp_path):
    said = rehearse("check", tmp_path / "out")
    assert "its figures mean nothing" in said
    found = json.loads((tmp_path / "out" / "updates.json").read_text())
    assert found["dry_run"]
    assert [row["way"] for row in found["speeds"]] == ["eager"]
    assert found["speeds"][0]["target_words_per_second"] > 0
    assert "skipped" in (tmp_path / "out" / "tests.log").read_text()


@pytest.mark.slow
def test_the_training_for_a_gpu_runs_on_a_cpu(tmp_path):
    write_sample(tmp_path / "sample", 200)
    for name, part in (("train", "train"), ("val", "dev"), ("test_2016_flickr", "test")):
        for side in ("en", "fr"):
            shutil.copy(tmp_path / "sample" / f"{part}.{side}", tmp_path / f"{name}.{side}")
    assert "sentences/s" in rehearse("translate", tmp_path / "out")
    assert "BLEU|nrefs:1" in rehearse("train", tmp_path / "out", tmp_path)


@pytest.mark.gpu
def test_gpu_measures_each_way(bench, tmp_path):
    result = bench("gpu", "--size", "tiny", "--batches", "8,16", "--json", "gpu.json")
    assert result.returncode == 0, result.stderr
    speeds = json.loads((tmp_path / "gpu.json").read_text())["speeds"]
    assert [row["way"] for row in speeds] == 2 * ["graphs", "unfused", "eager"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--size", "huge"], "unknown size"),
        (["train", "--batch", "0"], "not a whole number above 0"),
        (["train", "--variants", "theirs"], "unknown variant 'theirs'"),
        (["train", "--size", "tiny", "--length", "1"], "at least 2"),
        (["translate", "--size", "tiny", "--length", "1"], "at least 2"),
        (["translate", "--size", "tiny", "--variants", "theirs"], "unknown variant 'theirs'"),
        (["translate", "--size", "gnmt"], "the plain decoder is RNNsearch"),
    ],
)
def test_a_wrong_option_is_one_line(bench, arguments, said):
    result = bench(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("bench: error: ")
    assert said in line
