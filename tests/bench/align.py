"""`bench align` measures alignments of given sentence pairs: how fast nmtalign computes, writes and reads them, and
how large their files are."""

import dataclasses
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.machine import describe_machine, in_words
from bench.random_model import write_model
from bench.report import Table, figure, percent, say, show, write_json
from bench.texts import Texts, random_texts
from bench.timing import spread, steady, take_turns
from bench.workload import Size
from nmtalign.alignment.aligning import align
from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.core.model import make_batch
from nmtalign.core.numerics import use_threads
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.processor import bf16_is_fast, keep_memory
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.definition import InferencePrecision
from nmtalign.text.lines import read_pairs
from nmtalign.text.tokenizer import Tokenizers

POOL = 4000  # different matrices among the synthetic pairs: far more than fit into the window of gzip
CONCENTRATION = 0.05  # of the Dirichlet distribution of each row: most of a word's weight falls on one or two others
WORDS = 30000
FORWARD = "forward_per_second"


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    use_threads(given["threads"])
    keep_memory()
    results: dict[str, Any] = {"benchmark": "align", "machine": describe_machine(given["device"])}
    say(in_words(results["machine"]))
    with tempfile.TemporaryDirectory(prefix="nmtalign-bench-", dir=given["folder"]) as folder:
        precisions = ("fp32", *(("bf16",) if bf16_is_fast() else ()), *(("int8",) if given["device"] == "cpu" else ()))
        results["making"] = {precision: making(Path(folder), given, precision) for precision in precisions}
        results["files"] = {
            dtype: storing(Path(folder) / f"{dtype}.h5", dtype, given) for dtype in ("float16", "float32")
        }
    for stored in results["files"].values():
        made = results["making"]["fp32"]["pairs_per_second"]
        stored["share_of_time"] = 1 / (1 + stored["written_per_second"] / made)
    show(tables(results, given))
    if given["json"]:
        write_json(given["json"], results)
    return 0


def making(folder: Path, given: dict[str, Any], precision: InferencePrecision = "fp32") -> dict[str, float]:
    """Returns the pairs per second of training's forward pass and of forced decoding, with the weights of translation,
    with their posterior, and written to a file. The four take turns."""
    folder = folder / precision
    folder.mkdir()
    texts = random_texts(folder, Size.of(given["size"]), given["length"] + 1, pairs=given["forced"])
    tokenizers = Tokenizers.spaced("en", "fr")
    loaded = load_model(write_model(folder / "made", texts, tokenizers), device=given["device"], precision=precision)
    config = AlignConfig(batch_size=given["batch"])
    posterior = dataclasses.replace(config, reading="posterior")
    tasks: dict[str, Callable[[], object]] = {
        "forward": lambda: forward_pass(loaded, texts, given["batch"]),
        "pairs": lambda: sum(1 for _ in records_of(loaded, texts, config)),
        "posterior": lambda: sum(1 for _ in records_of(loaded, texts, posterior)),
        "with_file": lambda: write(folder / "forced.h5", "float16", records_of(loaded, texts, config)),
    }
    seconds = take_turns(
        {name: partial(_finished, task, loaded.device) for name, task in tasks.items()}, given["repeats"]
    )
    rates = {f"{name}_per_second": given["forced"] / statistics.median(found) for name, found in seconds.items()}
    return {**rates, "spread": max(map(spread, seconds.values()))}


def _finished(task: Callable[[], object], device: torch.device) -> None:
    """Runs a task and waits for the device."""
    task()
    if device.type == "cuda":
        torch.cuda.synchronize()


def records_of(loaded: LoadedModel, texts: Texts, config: AlignConfig) -> Iterator[AlignmentRecord]:
    """Computes the alignments of the texts."""
    pairs = read_pairs(texts.file("train", "src"), texts.file("train", "tgt"))
    return align([loaded], pairs, dataclasses.replace(config, tokenized=True))


def forward_pass(loaded: LoadedModel, texts: Texts, size: int) -> None:
    """Computes the loss of each pair as in training, without gradients."""
    pairs = read_pairs(texts.file("train", "src"), texts.file("train", "tgt"))
    encode = loaded.source_vocabulary.encode, loaded.target_vocabulary.encode
    with torch.no_grad():
        while some := list(itertools.islice(pairs, size)):
            batch = make_batch([(encode[0](source.split()), encode[1](target.split())) for source, target in some])
            batch = batch.to(loaded.device)
            loaded.model.loss(batch.source, batch.source_mask, batch.target, batch.target_mask)


def synthetic(count: int, length: int, seed: int = 0) -> Iterator[AlignmentRecord]:
    """Yields pairs of `length` words whose weights are as peaked as those of a trained model."""
    generator = np.random.default_rng(seed)
    shape = (length + 1, length + 1)
    pool = generator.dirichlet(np.full(length + 1, CONCENTRATION), (POOL, length + 1)).astype(np.float32)
    words = [f"w{number}" for number in range(WORDS)]
    chosen = (generator.zipf(1.3, (POOL, 2 * length)) % WORDS).tolist()
    lines = [tuple(words[index] for index in row) for row in chosen]
    log_probs = generator.normal(-2, 1, (POOL, length + 1)).astype(np.float32)
    links = [tuple((int(i), j) for j, i in enumerate(rows[:-1].argmax(1)) if i < length) for rows in pool]
    for number in range(count):
        a, b = number % POOL, (number * 7 + number // POOL) % POOL
        line, total = lines[b], float(log_probs[b].sum(dtype=np.float64))
        yield AlignmentRecord(
            line[:length], line[length:], pool[a].reshape(shape), total, number, log_probs[b], links[a]
        )


def write(path: Path, dtype: str, records: Iterator[AlignmentRecord]) -> None:
    """Writes an alignment file."""
    with AlignmentWriter(path, {"direction": "en-fr"}, dtype) as writer:
        for record in records:
            writer.add(record)


def storing(path: Path, dtype: str, given: dict[str, Any]) -> dict[str, float]:
    """Measures a file of synthetic pairs: the time to write it, its size, and the time to read it."""
    count = given["pairs"]
    say(f"{count:,} pairs, {dtype}")
    records = synthetic(count, given["length"])
    first = next(records)  # this draws the pool; later records cost almost nothing
    began = time.perf_counter()
    write(path, dtype, itertools.chain([first], records))
    seconds = time.perf_counter() - began
    with AlignmentFile(path) as file:
        info = file.info()
    return {
        "pairs": count,
        "seconds": seconds,
        "written_per_second": count / seconds,
        "bytes": info["bytes"],
        "bytes_per_cell": info["bytes_per_cell"],
        "bytes_per_pair": info["bytes"] / count,
        **reading(path, given["reads"]),
    }


def reading(path: Path, reads: int) -> dict[str, float]:
    """Returns the milliseconds to read a random record, and the rate of reading all records in order."""
    with AlignmentFile(path) as file:
        chosen = random.Random(1).choices(range(len(file)), k=reads)
        file[0].links()
        warm = [_timed(file, index) for index in chosen]
        began = time.perf_counter()
        read = sum(1 for _ in itertools.islice(file, 20000))
        seconds = time.perf_counter() - began
    return {
        "warm_ms": 1000 * statistics.median(warm),
        "read_per_second": read / seconds,
    }


def _timed(file: AlignmentFile, index: int) -> float:
    """Returns the seconds to read a record."""
    began = time.perf_counter()
    file[index].links()
    return time.perf_counter() - began


def tables(results: dict[str, Any], given: dict[str, Any]) -> list[Table]:
    """Returns the tables of the results."""
    rows_of_making = (
        ("training's forward pass", FORWARD),
        ("forced decoding", "pairs_per_second"),
        ("forced decoding with the posterior", "posterior_per_second"),
        ("forced decoding, written to a file", "with_file_per_second"),
    )
    making_table = Table(
        f"Alignments of given pairs, {given['size']}, {given['length']} words per side, {given['forced']:,} pairs",
        ["", "pairs/s", "relative to forward pass"],
        [
            [f"{precision}: {name}", figure(made[key]), percent(steady(made[key] / made[FORWARD], made["spread"]))]
            for precision, made in results["making"].items()
            for name, key in rows_of_making
        ],
    )
    rows = (
        ("seconds to write", "seconds", 1),
        ("pairs/s written", "written_per_second", 0),
        ("bytes", "bytes", 0),
        ("bytes per cell", "bytes_per_cell", 2),
        ("bytes per pair", "bytes_per_pair", 0),
        ("random read, ms", "warm_ms", 3),
        ("pairs/s read in order", "read_per_second", 0),
    )
    files = results["files"]
    stored = Table(
        f"Files of {given['pairs']:,} synthetic pairs",
        ["", *files],
        [[name, *(figure(file[key], digits) for file in files.values())] for name, key, digits in rows]
        + [["share of time for writing", *(f"{100 * file['share_of_time']:.1f}%" for file in files.values())]],
        "The share is a part of the total time of forced decoding followed by writing.",
    )
    return [making_table, stored]
