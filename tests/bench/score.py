"""`bench score`: time and memory of the command on a large synthetic test set, beside sacreBLEU's in one process."""

import importlib.metadata
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe_machine, environment, in_words, tree_cpu_seconds, tree_mb
from bench.report import Table, figure, say, show, write_json
from bench.score_texts import NOISE, ScoredTexts, write_texts
from bench.watch import complaint_in
from nmtalign.errors import NmtalignError
from nmtalign.scoring.metrics import METRICS, MetricOptions, make_metric
from nmtalign.text.lines import read_lines

LANGUAGE = "fr"
COUNTED = tuple(name for name in METRICS if name != "ter")  # TER is computed by sacreBLEU, and only on demand
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
    with tempfile.TemporaryDirectory(prefix="nmtalign-bench-", dir=given["folder"]) as folder:
        say(f"writing {given['sentences']:,} sentences of three systems")
        texts = write_texts(Path(folder), given["sentences"])
        names = [name for name in RUNS if name in (given["runs"] or RUNS)]
        results["runs"] = {name: command(texts, RUNS[name], given, Path(folder)) for name in names}
        results["metrics"] = {name: peer(name, texts, given) for name in METRICS}
    show(tables(results, given))
    if given["json"]:
        write_json(given["json"], results)
    return 0


def command(texts: ScoredTexts, flags: Sequence[str], given: dict[str, Any], folder: Path) -> dict[str, float]:
    """Returns seconds, processor time and memory of the complete program `nmtalign score`."""
    arguments = [f"{name}={path}" for name, path in texts.systems.items()]
    arguments += ["-r", str(texts.reference), "-s", str(texts.source), "--by-length", "--metrics", ",".join(COUNTED)]
    settings = {"target_language": LANGUAGE, "bootstrap": given["samples"], "trials": given["trials"]}
    arguments += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
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


def peer(name: str, texts: ScoredTexts, given: dict[str, Any]) -> float:
    """Returns the milliseconds of a core that sacreBLEU takes per hypothesis with one metric."""
    say(f"{name}, by sacreBLEU")
    lines = _lines(texts, given["peer_sentences"])
    began = time.process_time()
    metric = make_metric(name, MetricOptions((name,), tokenize="none"), lines[:1])
    for hypotheses in lines[1:]:
        metric.corpus_score(hypotheses, None)
    return 1000 * (time.process_time() - began) / len(lines[0]) / len(texts.systems)


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
    version, scale = importlib.metadata.version("sacrebleu"), sentences * systems / 1000
    rows = [[name, figure(spent, 3), figure(scale * spent)] for name, spent in metrics.items()]
    return [
        whole,
        Table(
            "sacreBLEU alone, with only one metric and without its bootstrap",
            ["", f"sacreBLEU {version}, ms per hypothesis", "s, all sentences"],
            rows,
            f"measured on {given['peer_sentences']:,} sentences with one core",
        ),
    ]
