"""The figures of a report for other programs: scores.csv, training.csv, settings.json."""

import csv
import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError
from nmtalign.files import atomic_text, sha256_of
from nmtalign.model_files import find_weights, hash_of
from nmtalign.reproduction.commands import whole_command
from nmtalign.reproduction.corpora import text_hashes, with_budget
from nmtalign.reproduction.plan import System
from nmtalign.reproduction.results import Results, Trained
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, finite
from nmtalign.version import __version__

_PACKAGES = ("torch", "numpy", "h5py", "sacrebleu", "sacremoses", "sentencepiece", "matplotlib")


def write_scores(results: Results, path: Path) -> None:
    """Every score of every system: those of `nmtalign score --format csv`, and of each test set, base and seed."""
    first = results.plan.seeds[0]
    rows: list[Mapping[str, Any]] = []
    for scored in results.scored:
        reports = {"": scored.paper, **scored.bases}
        for base, report in reports.items():
            common = {"test": scored.test.name, "compared_with": base or report.systems[0].name, "seed": first}
            # A base stands in the reports of its ablations too, only to be compared with.
            rows += [common | row for row in csv_rows(report) if not base or row["system"] != base]
        for (name, seed), value in scored.bleu.items():
            if seed != first:
                common = {"test": scored.test.name, "seed": seed, "system": name, "metric": scored.paper.metrics[-1]}
                rows.append(common | {"subset": "all", "value": value, "sentences": scored.sentences})
                if (name, seed) in scored.known:
                    known = {"subset": "no-unk", "value": finite(scored.known[name, seed])}
                    rows.append(common | known | {"sentences": scored.sentences_known})
    _write(path, ("test", "seed", "compared_with", *CSV_COLUMNS), rows)


def write_training(results: Results, path: Path) -> None:
    """What every training took, a row a model; times are here and in the tables alone."""
    rows = []
    for (name, seed), trained in results.trained.items():
        figures = {
            key: finite(value) if isinstance(value, float) else value
            for key, value in dataclasses.asdict(trained).items()
        }
        rows.append({"model": name, "seed": seed, **figures})
    _write(path, ("model", "seed", *(field.name for field in dataclasses.fields(Trained))), rows)


def _write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with atomic_text(path) as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if row.get(name) is None else row[name] for name in columns})


def write_facts(results: Results, path: Path) -> None:
    """All settings, versions, seeds, hashes, signatures and the machine."""
    plan = results.plan
    report = results.scored[0].paper
    facts = {
        "nmtalign": __version__,
        "command": whole_command(plan),
        "scale": plan.request.scale.name,
        "budget": dataclasses.asdict(plan.budget),
        "seeds": list(plan.seeds),
        "signatures": dict(zip(report.metrics, report.signatures, strict=True)),
        "texts": text_hashes(plan) | ({"gold": sha256_of(plan.workspace.gold)} if plan.workspace.gold else {}),
        "corpora": {name: _corpus(plan.work / "corpora" / name) for name in plan.corpora},
        "systems": {system.name: _system(results, system) for system in plan.systems},
        "failures": {f"{name}, seed {seed}": problem for (name, seed), problem in results.outcome.failures.items()},
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "machine": machine(),
    }
    with atomic_text(path) as stream:
        stream.write(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def _corpus(folder: Path) -> dict[str, Any] | None:
    try:
        corpus = Corpus.open(folder)
    except NmtalignError:
        return None
    sizes = len(corpus.source_vocabulary), len(corpus.target_vocabulary)
    pairs = {name: len(split) for name, split in corpus.splits.items()}
    return {"hash": corpus.hash, "vocabularies": sizes, "pairs": pairs, "settings": corpus.settings}


def _system(results: Results, system: System) -> dict[str, Any]:
    plan, experiment = results.plan, system.experiment
    facts: dict[str, Any] = {
        "what": experiment.what,
        "base": experiment.base,
        "ablation": experiment.ablation,
        "preset": experiment.preset,
        "trained_as": system.trained_as,
        "corpus": plan.corpus_folder(system).name,
        "model": dataclasses.asdict(system.model),
        "search": dataclasses.asdict(system.search),
        "hashes": {},
    }
    try:
        corpus = Corpus.open(plan.corpus_folder(system))
        facts["training"] = dataclasses.asdict(with_budget(plan, system, corpus, plan.seeds[0]))
        for seed in plan.seeds:
            folder = plan.model_folder(system, seed)
            facts["hashes"][str(seed)] = hash_of(folder, sha256_of(find_weights(folder, "best")))
    except (NmtalignError, OSError):
        pass  # an experiment that failed: the report says why
    return facts


def machine() -> dict[str, Any]:
    """What the figures of speed were measured on."""
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count(), "gpus": gpus}


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            line = next((line for line in stream if line.startswith("model name")), "")
    except OSError:
        line = ""
    return line.partition(":")[2].strip() or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
