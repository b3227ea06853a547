"""`bench quality --minutes`: BLEU of each toolkit after equal times, by the clock, as whole programs.

Each toolkit trains once per time, from the start of its command until it is stopped. It translates with the model that
it saved last. nmtalign trains with its preset and `--max-time`, because its schedule of the learning rate depends on
the time. The others have the sizes of that preset, and the settings of `quality_recipes.py`.
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import in_words
from bench.peers import PeerError, install, limits, softly
from bench.quality import Task, call, our_training, our_translation, their_training, their_translation
from bench.quality_recipes import ENDLESS, QUALITY_RECIPES
from bench.recipes import Recipe
from bench.report import Table, figure, say, show, write_json
from bench.watch import watch
from bench.workload import SIZES
from nmtalign.text.tokenizer import Tokenizers

SAVING = 60.0  # seconds that a toolkit may take to save its model

_Measure = Callable[[float], dict[str, Any]]  # argument: minutes


def run(
    given: Mapping[str, Any], task: Task, recipes: Sequence[Recipe], environments: Path, machine: dict[str, Any]
) -> int:
    """Measures and shows the curves of nmtalign and of the toolkits."""
    # A shell lets its background jobs ignore this signal, and their children would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    say(f"{in_words(machine)}; {', '.join(f'{minutes:g}' for minutes in given['minutes'])} min each")
    toolkits: dict[str, _Measure] = {} if given["peers_only"] else {"nmtalign": partial(_ours, task)}
    toolkits |= {recipe.note: partial(_theirs, task, recipe, environments / recipe.name) for recipe in recipes}
    reference = given["test"][1].read_text(encoding="utf-8").splitlines()
    found = {
        name: {f"{minutes:g}": softly(partial(_measure, task, reference, one, minutes)) for minutes in given["minutes"]}
        for name, one in toolkits.items()
    }
    results = {"benchmark": "quality", "machine": machine, "corpus": str(given["data"]), "found": found}
    show([curve_table(results)])
    if given["json"]:
        write_json(given["json"], results)
    return 0


def _measure(task: Task, reference: Sequence[str], translations: _Measure, minutes: float) -> dict[str, Any]:
    """Returns BLEU of the text that is made from the tokens, and the seconds of the training."""
    from nmtalign.scoring.metrics import bleu

    found = translations(minutes)
    target = Tokenizers.load(task.corpus).target
    lines = [target.detokenize(line.split()) for line in found.pop("lines")]
    if len(lines) != len(reference):
        raise PeerError(f"{len(reference)} lines in, {len(lines)} out")
    return {**found, "bleu": bleu(lines, reference, lowercase=True).value}


def _ours(task: Task, minutes: float) -> dict[str, Any]:
    folder = task.texts.folder / f"ours-{minutes:g}"
    options = ["--preset", SIZES[task.texts.size.name][0], "--epochs", "0", "--max-time", f"{60 * minutes:g}s"]
    options += ["--threads", str(task.threads), "--seed", str(task.training.seed), "--restart", "--quiet"]
    seconds = our_training(task, folder, "nmtalign", "", options)
    translates = our_translation(task, folder, task.texts.file("test", "src"), task.training.beam)
    return {"seconds": seconds, "lines": call(translates, "nmtalign", task)}


def _theirs(task: Task, recipe: Recipe, folder: Path, minutes: float) -> dict[str, Any]:
    install(recipe, folder)
    job = task.job(f"{recipe.name}-{minutes:g}")
    command = their_training(recipe, folder / "bin", job, replace(task.training, updates=ENDLESS))
    say(f"{recipe.name}: {minutes:g} min")
    own, stop = limits(recipe.name, task.threads), QUALITY_RECIPES[recipe.name].stop
    began = time.perf_counter()
    seen = watch(command, None, 60 * minutes, job.folder, own, stop=stop, saving=SAVING)
    if seen.exit_code is not None:
        raise PeerError(f"{recipe.name}: its training ended with {seen.exit_code}: {seen.complaint}")
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "lines": their_translation(task, recipe, folder / "bin", job)}


def curve_table(results: Mapping[str, Any]) -> Table:
    """Returns a table with one row per toolkit, and one column per time."""
    found = results["found"]
    columns = list(next(iter(found.values()), {}))
    table = Table(f"BLEU by the time of training, {results['corpus']}", ["", *(f"{name} min" for name in columns)])
    for name, curve in found.items():
        table.rows.append([name, *(figure(one.get("bleu"), 2) for one in curve.values())])
    failures = {one["failed"] for curve in found.values() for one in curve.values() if "failed" in one}
    table.note = "\n".join([*sorted(failures), "BLEU of sacreBLEU, lowercased"])
    return table
