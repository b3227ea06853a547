"""How to get the numbers of a report again: its commands, scores.csv, training.csv and settings.json."""

import csv
import dataclasses
import importlib.metadata
import json
import os
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError
from nmtalign.files import atomic_text, sha256_of
from nmtalign.model_files import find_weights, hash_of
from nmtalign.report.document import Block, Commands, DataTable, Heading, Paragraph
from nmtalign.reproduction.corpora import text_hashes, with_budget
from nmtalign.reproduction.plan import WORK, ReproductionPlan, ReproductionRequest, SystemPlan
from nmtalign.reproduction.reproduction_results import Results, Trained, metrics_of
from nmtalign.reproduction.settings_files import SETTINGS, path_from
from nmtalign.reproduction.translations import UNKNOWN
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, finite
from nmtalign.settings.workspace import FILE_NAME
from nmtalign.text.vocabulary import UNK
from nmtalign.version import __version__

_PACKAGES = ("torch", "numpy", "h5py", "sacrebleu", "sacremoses", "sentencepiece", "matplotlib")


def again(results: Results) -> Iterator[Block]:
    """The section of the report that explains how to get its numbers again."""
    plan = results.plan
    yield Heading("How to get these figures again")
    yield Paragraph("All of it, from the folder of `nmtalign.toml`; the same command goes on where it was cut off:")
    yield Commands([whole_command(plan)])
    yield Paragraph(
        "Or step by step, from the folder of this report. Each file in `settings` is an `nmtalign.toml` with all "
        "settings of one model, so that the plain subcommands do what was done here, or find that it is done. The "
        f"translations as they were scored are in `{WORK}/translations`."
    )
    yield Commands(list(_steps(results)))
    signatures = [
        (metric, f"`{signature}`")
        for metric, signature in zip(results.scored[0].paper.metrics, results.scored[0].paper.signatures, strict=True)
    ]
    yield DataTable(
        ("metric", "signature"), signatures, "Signatures of the scores, with the draws of their intervals", 2
    )
    facts = [
        ("nmtalign", __version__),
        ("data", "`scores.csv`, `training.csv`, `settings.json`"),
        ("seeds of the models", ", ".join(map(str, plan.seeds))),
    ]
    yield DataTable(("fact", "value"), facts, "Versions of everything else and the machine are in `settings.json`", 2)


def whole_command(plan: ReproductionPlan) -> str:
    """Returns the command that makes the report."""
    request = plan.request
    parts = ["nmtalign", "reproduce", "--scale", request.scale.name]
    parts += [f"--{plan.budget.unit}", f"{plan.budget.amount:.15g}"]
    parts += ["--models", request.models] if request.models else []
    parts += ["--ablations", request.ablations] if request.ablations not in ("", "none") else []
    parts += ["--seeds", str(request.seeds)] if request.seeds > 1 else []
    parts += ["--sentences", ",".join(map(str, request.sentences))] if request.sentences else []
    for name, value in (("long", request.long), ("reordered", request.reordered)):
        parts += [f"--{name}", str(value)] if value != getattr(ReproductionRequest(request.scale), name) else []
    parts += ["--jobs", str(request.jobs)] if request.jobs > 1 else []
    parts += [] if request.text else ["--no-text"]
    for name, value in request.flags.items():
        parts += [f"--{name}", str(value)] if value is not None else []
    file = plan.workspace.file or Path(FILE_NAME)
    parts += ["--config", file.name] if file.name != FILE_NAME else []
    return shlex.join([*parts, "-o", path_from(file, request.folder)])


def _steps(results: Results) -> Iterator[str]:
    """Yields the commands prep, train, translate, score, align and aer that lead to the same numbers."""
    plan = results.plan
    systems = [system for system in plan.systems if (system.name, plan.seeds[0]) in results.outcome.translations]
    for name in plan.corpora:
        first = next((system for system in systems if plan.corpus_folder(system).name == name), None)
        if first:
            yield f"nmtalign prep --config {SETTINGS}/{first.name}.toml"
    for system, seed in plan.models():
        other = "" if seed == plan.seeds[0] else f" -o {_shown(plan, plan.model_folder(system, seed))} --seed {seed}"
        yield f"nmtalign train --config {SETTINGS}/{system.name}.toml{other}"
    for test, (source, _) in plan.tests.items():
        for system in systems:
            model = _shown(plan, plan.model_folder(system, plan.seeds[0]))
            config = f"--config {SETTINGS}/{system.name}.toml"
            command = f"nmtalign translate -m {model} {config}"
            counted = f" | sed 's/{UNK}/{UNKNOWN}/g'" if system.search.allow_unk else ""
            yield f"{command} < {_shown(plan, source)}{counted} > {system.name}.{test}.txt"
            if not system.experiment.ablation:
                known = "--no-allow-unk --no-replace-unk"
                yield f"{command} {known} < {_shown(plan, source)} > {system.name}.{test}.known.txt"
    for test in plan.tests:
        for group in _groups(results):
            yield _score_command(plan, test, group)
        yield _score_command(plan, test, next(_groups(results)), known=True)
    for name, seed in results.rates:
        if seed == plan.seeds[0]:
            yield f"nmtalign align --config {SETTINGS}/{name}.toml -o {name}.h5"
            yield f"nmtalign aer {name}.h5 --config {SETTINGS}/{name}.toml"


def _groups(results: Results) -> Iterator[Sequence[str]]:
    """Yields the systems that are scored together, first the one against which the others are tested."""
    scored = results.scored[0]
    for report in (scored.paper, *scored.bases.values()):
        yield [system.name for system in report.systems]


def _score_command(plan: ReproductionPlan, test: str, names: Sequence[str], *, known: bool = False) -> str:
    """The command for all sentences, or with `known` for those without an unknown word (last column of Table 1)."""
    source, reference = plan.tests[test]
    end = ".known.txt" if known else ".txt"
    parts = ["nmtalign score", *(f"{name}={name}.{test}{end}" for name in names), "-r", _shown(plan, reference)]
    parts += ["-s", _shown(plan, source)]
    parts += ["--metrics", ",".join(metrics_of(plan).metrics), "--confidence"]
    parts += ["--significance bs"] if len(names) > 1 else []
    if known:
        parts += ["--data", _shown(plan, plan.base_corpus), "--table1"]
    elif not any(plan.named(name) not in plan.of_paper for name in names):
        parts += [f"--by-length --plot length-{test}.png"]
    return " ".join([*parts, f"--config {SETTINGS}/{names[0]}.toml"])


def _shown(plan: ReproductionPlan, path: Path) -> str:
    """A path relative to the folder of the report, quoted for a shell."""
    return shlex.quote(path_from(plan.request.folder / "report.md", path))


def write_scores(results: Results, path: Path) -> None:
    """Writes every score of every system: the rows of `nmtalign score --format csv` with test set, base and seed."""
    first = results.plan.seeds[0]
    rows: list[Mapping[str, Any]] = []
    for scored in results.scored:
        reports = {"": scored.paper, **scored.bases}
        for base, report in reports.items():
            common = {"test": scored.test.name, "compared_with": base or report.systems[0].name, "seed": first}
            # The report of an ablation contains its base only for the comparison.
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
    """Writes cost and losses of every training, a row for each model."""
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
    """Writes all settings, versions, seeds, hashes and signatures, and a description of the machine."""
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


def _system(results: Results, system: SystemPlan) -> dict[str, Any]:
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
        pass  # the experiment failed, and the report gives the reason
    return facts


def machine() -> dict[str, Any]:
    """Describes the machine on which the speeds were measured."""
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
