"""`bench quick`: training, search, alignment, links and start-up on this machine in less than three minutes."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.align import making
from bench.contestants import Job
from bench.machine import describe_machine, environment, in_words
from bench.random_model import write_model
from bench.report import Table, figure, percent, say, show, times, write_json
from bench.startup import translate_startup_seconds
from bench.texts import Texts, random_texts
from bench.timing import steady
from bench.train import compare as compare_training
from bench.translate import Contest, compare, rates
from bench.variants import choose
from bench.workload import Size, random_workload
from nmtalign.core.devices import use_threads
from nmtalign.errors import NmtalignError
from nmtalign.processor import bf16_is_fast, fastest_precision
from nmtalign.text.tokenizer import Tokenizers

WORDS, LENGTH = 10_000, 20  # vocabulary per side; words per sentence, with `</s>`
BEAM, SENTENCES, PAIRS = 5, 64, 5000


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    use_threads(given["threads"] or 0)
    results: dict[str, Any] = {"benchmark": "quick", "machine": describe_machine()}
    say(in_words(results["machine"]))
    with tempfile.TemporaryDirectory(prefix="nmtalign-bench-") as temporary:
        folder = Path(temporary)
        texts = random_texts(folder, Size.of("small", WORDS, initialisation="xavier"), LENGTH, SENTENCES)
        model = write_model(folder / "random", texts, Tokenizers.moses("en", "fr"))
        say("training")
        results["training"] = _training(given)
        say("translation")
        results["search"] = _search(model, texts, given)
        say("alignment")
        sizes = {"size": "small", "length": LENGTH, "forced": 400, "device": "cpu", "batch": 80}
        results["align"] = making(folder, {**sizes, "repeats": given["repeats"]})
        say("links")
        results["link"] = _link(folder, given["threads"])
        say("start-up")
        results["startup"] = translate_startup_seconds(model)
    show([_table(results)])
    if given["json"]:
        write_json(given["json"], results)
    return 0


def _training(given: dict[str, Any]) -> dict[str, Any]:
    """Loss and gradients of `small`, in the precision that training chooses here, and as a plain loop in fp32."""
    ours = "ours-bf16" if bf16_is_fast() else "ours-fp32"
    workload = random_workload(Size.of("small", WORDS), 80, LENGTH)
    found = compare_training(workload, choose(f"{ours},loop-fp32"), given["repeats"])
    return {**found["variants"][ours], "times_loop": found["ratios"][ours]["loop-fp32"]}


def _search(model: Path, texts: Texts, given: dict[str, Any]) -> dict[str, Any]:
    """Sentences per second of `small` with random weights, in fp32 and in the fastest precision."""
    job = Job(str(model), str(texts.file("train", "src")), min_ratio=1.0, max_ratio=1.0, threads=given["threads"])
    names = list(dict.fromkeys(("ours-fp32", f"ours-{fastest_precision()}")))
    contest = Contest(job, names, dict.fromkeys(names, range(SENTENCES)), warm=SENTENCES)
    figures = rates(contest, compare(contest, [BEAM], given["repeats"])[BEAM])["variants"]
    return {name.removeprefix("ours-"): each for name, each in figures.items()}


def _link(folder: Path, threads: int) -> dict[str, Any]:
    """Seconds of `nmtalign link`, the complete program, on the sample corpus, and the error rate of its links."""

    def nmtalign(*arguments: str) -> str:
        command = [sys.executable, "-m", "nmtalign", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment())
        if done.returncode:
            raise NmtalignError(f"nmtalign {' '.join(arguments)}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout

    nmtalign("sample", "sample", "--pairs", str(PAIRS))
    texts = ["sample/train.tok.en", "sample/train.tok.fr"]
    began = time.perf_counter()
    nmtalign("link", *texts, "-o", "aligner", "--threads", str(threads))
    seconds = time.perf_counter() - began
    found = json.loads(nmtalign("aer", "aligner/links.tsv", "sample/train.align", "--format", "json"))
    return {"seconds": seconds, "pairs_per_second": PAIRS / seconds, "aer": found["aer"]}


def _table(results: dict[str, Any]) -> Table:
    table = Table("nmtalign on this machine", ["", "figure", "compared"])
    training, search, align, link = (results[name] for name in ("training", "search", "align", "link"))
    rate = f"{figure(training['target_words_per_second'])} target words/s"
    row = f"training, `small`, {training['precision']}"
    table.rows.append([row, rate, f"{times(training['times_loop'])} a plain loop in fp32"])
    for name, each in search.items():
        rate, plain = each["sentences_per_second"], search["fp32"]
        faster = steady(rate / plain["sentences_per_second"], each["spread"], plain["spread"])
        ratio = "" if name == "fp32" else f"{times(faster)} fp32"
        table.rows.append([f"translation, `small`, beam {BEAM}, {name}", f"{figure(rate, 1)} sentences/s", ratio])
    of_forward = steady(align["pairs_per_second"] / align["forward_per_second"], align["spread"])
    share = f"{percent(of_forward)} of training's forward pass"
    table.rows.append(["alignment of given pairs, `small`", f"{figure(align['pairs_per_second'])} pairs/s", share])
    row, rate = f"`nmtalign link`, {PAIRS:,} pairs", f"{figure(link['seconds'], 1)} s"
    table.rows.append([row, rate, f"{figure(link['pairs_per_second'])} pairs/s"])
    table.rows.append(["alignment error rate of its links", f"{figure(100 * link['aer'], 1)}%", ""])
    table.rows += [[name, f"{figure(seconds, 2)} s", ""] for name, seconds in results["startup"].items()]
    table.note = f"{in_words(results['machine'])}\nrandom words, {LENGTH} per sentence; links: sample corpus"
    return table
