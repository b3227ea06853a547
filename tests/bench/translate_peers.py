"""Compares `nmtalign translate` with other toolkits: complete programs, the same text, models of the same sizes.

A program is run with one line, and with enough lines to take some seconds longer. Its rate is computed from the
difference, so that loading is left out.
"""

import dataclasses
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import ROOT, environment
from bench.peers import PeerError, chosen, install, limits, softly
from bench.recipes import Job, Recipe
from bench.report import Table, figure, say, times
from bench.texts import Texts
from bench.translate_recipes import BATCH, COMMANDS, WAYS, keep_open
from bench.watch import complaint_in

PATIENCE = 600.0  # seconds until a call is ended
LONGER = 3.0  # seconds that the lines must take; else there are four times as many
PRECISIONS = {f"nmtalign, {precision}": precision for precision in ("fp32", "bf16", "int8")}


# Translates a text file with a beam size; returns the output lines.
_Translate = Callable[[Path, int], list[str]]


def run_peers(given: Mapping[str, Any], texts: Texts, model: Path) -> dict[str, dict[str, Any]]:
    """Returns figures by name: {"rates": {beam: sentences/s}, "words": words per line}, or {"failed": why}."""
    beams = sorted({1, *given["beam"]})
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lines = texts.file("train", "src").read_text(encoding="utf-8").splitlines()
        measure = partial(_figures, lines, given["peer_sentences"], beams, folder)
        for title, precision in PRECISIONS.items():
            say(title)
            translate = partial(_ours, folder, model, precision, given["threads"])
            found[title] = softly(partial(measure, title, translate))
        for recipe in chosen(given["peers"]):
            job = Job(texts, folder / recipe.name, BATCH, given["threads"], once=True)
            job.folder.mkdir()
            environments = given["peer_env"] or ROOT / ".venv-peers"
            found |= _run(recipe, environments / recipe.name, job, measure)
    return found


def _ours(folder: Path, model: Path, precision: str, threads: int, text: Path, beam: int) -> list[str]:
    """Runs `nmtalign translate` with its settings in a workspace file."""
    settings = {"beam": beam, "precision": f'"{precision}"', "threads": threads, "tokenized": "true"}
    settings |= {"min_length_ratio": 1.0, "max_length_ratio": 1.0}
    lines = ["[translate]", *(f"{name} = {value}" for name, value in settings.items())]
    (folder / "nmtalign.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "nmtalign", "translate", "--quiet", "-m", str(model), str(text)]
    return _call(command, "nmtalign", folder)


def _run(
    recipe: Recipe, environment_folder: Path, job: Job, measure: Callable[..., dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Trains for one update, to get a model of the right size, and translates with it in all the toolkit's ways.

    Returns the figures of each way by name.
    """
    own = limits(recipe.name, job.threads)

    def train() -> dict[str, Any]:
        install(recipe, environment_folder)
        say(recipe.note)
        small = dataclasses.replace(job, texts=_few(job))
        _call(recipe.train_command(environment_folder / "bin", small), recipe.name, job.folder, own)
        keep_open(job)
        return {}

    failed = softly(train)
    if failed:
        return {recipe.name: failed}
    found = {}
    for way, options in WAYS.get(recipe.name, {"": ()}).items():

        def translate(lines: Path, beam: int, options: Sequence[str] = options) -> list[str]:
            command = [*COMMANDS[recipe.name](environment_folder / "bin", job, lines, beam), *options]
            said = _call(command, recipe.name, job.folder, own, lines)
            return job.output.read_text(encoding="utf-8").splitlines() if job.output.exists() else said

        name = recipe.name + way
        found[name] = {"note": recipe.note + way, **softly(partial(measure, name, translate))}
    return found


def _few(job: Job) -> Texts:
    """Returns the same texts with one batch for training."""
    folder = job.folder / "few"
    folder.mkdir()
    for part in ("train", "dev"):
        for side in ("src", "tgt"):
            lines = job.texts.file("train", side).read_text(encoding="utf-8").splitlines(keepends=True)
            few = lines[: job.sentences if part == "train" else 2]
            (folder / f"{part}.{side}").write_text("".join(few), encoding="utf-8")
    return dataclasses.replace(job.texts, folder=folder)


def _figures(
    lines: Sequence[str], count: int, beams: Sequence[int], folder: Path, name: str, translate: _Translate
) -> dict[str, Any]:
    """Returns the rate of each beam size, from `count` lines or more, and the words per output line."""
    rates, words = {}, 0.0
    text = folder / "text"
    for beam in beams:
        alone, _ = _timed(lines[:1], text, name, partial(translate, text, beam))
        asked = min(count, len(lines))
        while True:
            seconds, found = _timed(lines[:asked], text, name, partial(translate, text, beam))
            if seconds - alone >= LONGER or asked == len(lines):
                break
            asked = min(4 * asked, len(lines))
        rates[beam] = (asked - 1) / (seconds - alone) if seconds > alone and asked > 1 else None
        words = sum(len(line.split()) for line in found) / len(found)
    return {"rates": rates, "words": words}


def _timed(lines: Sequence[str], text: Path, name: str, translate: Callable[[], list[str]]) -> tuple[float, list[str]]:
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    began = time.perf_counter()
    found = translate()
    seconds = time.perf_counter() - began
    if len(found) != len(lines):
        raise PeerError(f"{name}: {len(lines)} lines in, {len(found)} out")
    return seconds, found


def _call(
    command: Sequence[str], name: str, folder: Path, extra: Mapping[str, str] | None = None, stdin: Path | None = None
) -> list[str]:
    """Returns the lines that the program wrote; raises PeerError if it failed."""
    given = stdin.read_bytes() if stdin else b""
    try:
        done = subprocess.run(
            list(command),
            input=given,
            capture_output=True,
            cwd=folder,
            env={**environment(), **(extra or {})},
            timeout=PATIENCE,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise PeerError(f"{name}: {error}"[:300]) from None
    if done.returncode:
        said = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
        raise PeerError(f"{name}: ended with {done.returncode}: {complaint_in(said)}")
    return done.stdout.decode("utf-8", "replace").splitlines()


def peers_table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns a table with one row per toolkit: sentences/s of each beam size, the widest first, and the speed of
    nmtalign in fp32 relative to it."""
    ours = found["nmtalign, fp32"].get("rates", {})
    beams = sorted({beam for figures in found.values() for beam in figures.get("rates", {})}, reverse=True)
    columns = [""]
    for beam in beams:
        columns += [f"beam {beam}" if beam > 1 else "greedy", "ours fp32 is"]
    table = Table("Complete programs translating the same lines, sentences/s without loading", [*columns, "words out"])
    for name, figures in found.items():
        cells = [figures.get("note", name)]
        for beam in beams:
            rate = figures.get("rates", {}).get(beam)
            cells += [figure(rate, 1), times(ours[beam] / rate if rate and ours.get(beam) else None)]
        table.rows.append([*cells, figure(figures.get("words"), 1)])
    table.note = "\n".join(figures["failed"] for figures in found.values() if "failed" in figures)
    return table
