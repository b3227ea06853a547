"""`bench score`: time and memory of `nmtalign score` on a large synthetic test set, beside the command of sacreBLEU.

The texts resemble translations by three systems: 1 to 80 words per sentence, with Zipf's frequencies, commas, elisions
and capitals. A system repeats the reference, except for exchanged and omitted words.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import describe_machine, environment, in_words, tree_cpu_seconds, tree_mb
from bench.report import Table, figure, say, show, write_json
from bench.watch import complaint_in
from nmtalign.errors import NmtalignError

NOISE = {"near": 0.1, "middle": 0.2, "far": 0.3}  # per system: the share of exchanged words; half as many are omitted
WORDS, MEAN, LONGEST = 50_000, 25, 80
POLL = 0.1  # seconds between two measurements of memory and processor time
# The parts of the command, each with the previous ones.
RUNS = {
    "counted, by length": ("--no-confidence", "--significance", "none"),
    "and intervals": ("--confidence", "--significance", "none"),
    "and paired bootstrap": ("--confidence", "--significance", "bs"),
    "and approximate randomisation": ("--confidence", "--significance", "both"),
}


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    results: dict[str, Any] = {"benchmark": "score", "machine": describe_machine(), "sentences": given["sentences"]}
    say(in_words(results["machine"]))
    with tempfile.TemporaryDirectory(prefix="nmtalign-bench-", dir=given["folder"]) as temporary:
        folder = Path(temporary)
        say(f"writing {given['sentences']:,} sentences of three systems")
        write_texts(folder, given["sentences"])
        ours = [sys.executable, "-m", "nmtalign", "score", *NOISE, "-r", "reference", "-s", "source", "--by-length"]
        ours += ["--set", "target_language=fr", "--set", f"bootstrap={given['samples']}"]
        ours += ["--set", f"trials={given['trials']}", "--format", "json"]
        results["runs"] = {
            f"nmtalign, {name}": measure([*ours, *flags], folder)
            for name, flags in RUNS.items()
            if name in (given["runs"] or RUNS)
        }
        theirs = [sys.executable, "-m", "sacrebleu", "reference", "-i", *NOISE, "-m", "bleu", "chrf"]
        results["runs"]["sacrebleu -m bleu chrf"] = measure(theirs, folder)
    table = Table(
        f"Scoring {given['sentences']:,} sentences of three systems, {given['samples']} samples",
        ["", "seconds", "processor seconds", "peak MB, all processes"],
        [
            [name, figure(one["seconds"], 1), figure(one["core_seconds"], 1), figure(one["peak_mb"])]
            for name, one in results["runs"].items()
        ],
        f"{in_words(results['machine'])}\npages that processes share are counted in each of them",
    )
    show([table])
    if given["json"]:
        write_json(given["json"], results)
    return 0


def measure(program: Sequence[str], folder: Path) -> dict[str, float]:
    """Returns seconds, processor time and memory of a complete program."""
    say(" ".join(program[2:4]))
    began, peak, spent = time.perf_counter(), 0.0, dict[int, float]()
    with (folder / "stderr").open("w+", encoding="utf-8") as stderr:
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=stderr, cwd=folder, env=environment())
        while process.poll() is None:
            time.sleep(POLL)
            peak = max(peak, tree_mb(process.pid))
            spent.update(tree_cpu_seconds(process.pid))
        seconds = time.perf_counter() - began
        stderr.seek(0)
        if process.returncode:
            raise NmtalignError(f"{program[2]} ended with {process.returncode}: {complaint_in(stderr.readlines())}")
    return {"seconds": seconds, "core_seconds": sum(spent.values()), "peak_mb": peak}


def write_texts(folder: Path, sentences: int, seed: int = 0) -> None:
    """Writes source, reference and the systems of NOISE into the folder."""
    generator = np.random.default_rng(seed)
    parts = generator.choice(
        ["ba", "ce", "di", "fo", "gu", "la", "mé", "no", "pi", "ra", "se", "ti", "vou", "chan", "tre", "quel"],
        (WORDS, 3),
    )
    stems = ["".join(row[: 1 + min(2, number // 100)]) for number, row in enumerate(parts)]
    words = np.array([f"l'{stem}" if number % 20 == 0 else stem for number, stem in enumerate(stems)], object)
    shares = np.cumsum(1 / np.arange(1, WORDS + 1))

    def draw(count: int) -> Any:
        forms = words[np.searchsorted(shares / shares[-1], generator.random(count)).clip(max=WORDS - 1)]
        return np.where(generator.random(count) < 0.06, forms + ",", forms)

    lengths = np.clip(generator.gamma(2.2, MEAN / 2.2, sentences), 1, LONGEST).astype(int)
    ends, reference = np.cumsum(lengths)[:-1], draw(int(lengths.sum()))
    texts = {"source": draw(len(reference)), "reference": reference}
    for name, noise in NOISE.items():
        chance = generator.random(len(reference))
        exchanged = np.where(chance < noise, draw(len(reference)), reference)
        texts[name] = np.where(chance > 1 - noise / 2, "", exchanged)
    for name, tokens in texts.items():
        lines = (" ".join(filter(None, line)).rstrip(",").capitalize() + "." for line in np.split(tokens, ends))
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
