"""`bench score`: time and memory of the command on a large synthetic test set, and each metric beside sacreBLEU's."""

import importlib.metadata
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

from bench.machine import describe_machine, environment, in_words, tree_cpu_seconds, tree_mb
from bench.report import Table, figure, say, show, times, write_json
from bench.score_texts import NOISE, ScoredTexts, write_texts
from bench.watch import complaint_in
from nmtalign.data.pipeline import worker_count
from nmtalign.errors import NmtalignError
from nmtalign.scoring.metrics import METRICS, MetricOptions
from nmtalign.scoring.sentence_counts import Counting
from nmtalign.text.lines import read_lines

LANGUAGE = "fr"
COUNTED = tuple(name for name in METRICS if name != "ter")  # TER is computed by sacreBLEU, and only on demand
POLL = 0.1  # seconds between two measurements of memory and processor time
BLOCK = 1000  # sentences, as in the command
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
    with tempfile.TemporaryDirectory(prefix="nmtalign-bench-", dir=given["folder"]) as folder:
        say(f"writing {given['sentences']:,} sentences of three systems")
        texts = write_texts(Path(folder), given["sentences"])
        names = [name for name in RUNS if name in (given["runs"] or RUNS)]
        results["runs"] = {name: command(texts, RUNS[name], given, Path(folder)) for name in names}
        results["metrics"] = {name: metric(name, texts, given) for name in METRICS}
    show(tables(results, given))
    if given["json"]:
        write_json(given["json"], results)
    return 0


def command(texts: ScoredTexts, flags: Sequence[str], given: dict[str, Any], folder: Path) -> dict[str, float]:
    """Returns seconds, processor time and memory of the complete program `nmtalign score`."""
    arguments = [f"{name}={path}" for name, path in texts.systems.items()]
    arguments += ["-r", str(texts.reference), "-s", str(texts.source), "--by-length", "--metrics", ",".join(COUNTED)]
    arguments += ["--target-language", LANGUAGE, "--bootstrap", str(given["samples"]), "--trials", str(given["trials"])]
    say(" ".join(["nmtalign score ...", *flags]))
    program = [sys.executable, "-m", "nmtalign", "score", *arguments, *flags, "--format", "json"]
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
            raise NmtalignError(f"nmtalign score ended with {process.returncode}: {complaint_in(stderr.readlines())}")
    return {"seconds": seconds, "core_seconds": sum(spent.values()), "peak_mb": peak}


def metric(name: str, texts: ScoredTexts, given: dict[str, Any]) -> dict[str, float]:
    """Returns the milliseconds of a core per hypothesis with only one metric: nmtalign's, and sacreBLEU's on fewer
    sentences."""
    say(f"{name}, in this process")
    ours = _lines(texts, given["peer_sentences" if name == "ter" else "sample"])
    counting = Counting(MetricOptions((name,), language=LANGUAGE))
    counting.rows([lines[:10] for lines in ours[1:]], [ours[0][:10]])  # warm-up: imports and tables that are made once
    began = time.process_time()
    for start in range(0, len(ours[0]), BLOCK):
        block = [lines[start : start + BLOCK] for lines in ours]
        counting.rows(block[1:], block[:1])
    spent = time.process_time() - began
    found = {"ours_ms": 1000 * spent / len(ours[0]) / len(texts.systems)}
    theirs = {"bleu": BLEU, "chrf": CHRF, "chrf++": lambda **more: CHRF(word_order=2, **more), "ter": TER}.get(name)
    if theirs:
        few = _lines(texts, given["peer_sentences"])
        began = time.process_time()
        peer = theirs(references=few[:1])
        for lines in few[1:]:
            peer.corpus_score(lines, None)
        found["sacrebleu_ms"] = 1000 * (time.process_time() - began) / len(few[0]) / len(texts.systems)
    return found


def _lines(texts: ScoredTexts, count: int) -> list[list[str]]:
    paths = (texts.reference, *texts.systems.values())
    return [list(itertools.islice(read_lines(path), count)) for path in paths]


def tables(results: dict[str, Any], given: dict[str, Any]) -> list[Table]:
    """Returns the tables of the results."""
    sentences, metrics, systems = given["sentences"], results["metrics"], len(NOISE)
    whole = Table(
        f"nmtalign score, {sentences:,} sentences, {systems} systems, all metrics but TER, {given['samples']} samples",
        ["", "seconds", "processor seconds", "peak MB, all processes"],
        [
            [name, figure(one["seconds"], 1), figure(one["core_seconds"], 1), figure(one["peak_mb"])]
            for name, one in results["runs"].items()
        ],
        f"{in_words(results['machine'])}\npages that processes share are counted in each of them",
    )
    total = sum(metrics[name]["ours_ms"] for name in COUNTED)
    scale = sentences * systems / 1000
    rows = []
    for name, one in metrics.items():
        peer = one.get("sacrebleu_ms")
        rows.append(
            [
                name,
                figure(one["ours_ms"], 3),
                f"{100 * one['ours_ms'] / total:.0f}%",
                figure(scale * one["ours_ms"] / worker_count(0), 1),
                figure(peer, 3),
                figure(None if peer is None else scale * peer),
                times(None if peer is None else peer / one["ours_ms"]),
            ]
        )
    version = importlib.metadata.version("sacrebleu")
    return [
        whole,
        Table(
            "Statistics per hypothesis, with only one metric",
            ["", "ms of a core", "share", "s, all on all cores", f"sacreBLEU {version}, ms", "s, all", "speedup"],
            rows,
            f"nmtalign on {given['sample']:,} sentences, sacreBLEU on {given['peer_sentences']:,} with one core and "
            "without its bootstrap",
        ),
    ]
