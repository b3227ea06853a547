"""Writes the folder of a report: report.md, report.html, figures, data files, and how to get the numbers again."""

import contextlib
import csv
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.figures import need_matplotlib
from nmtalign.files import INCOMPLETE, atomic_text, disk_errors, make_folder, read_json, sha256_of
from nmtalign.model_directory import find_weights, hash_of
from nmtalign.processor import cpu_facts
from nmtalign.report.document import Block, Commands, DataTable, Document, Heading, Paragraph
from nmtalign.report.html_page import to_page
from nmtalign.report.markdown import to_markdown
from nmtalign.reproduction import report_figures, report_tables
from nmtalign.reproduction.plan import WORK, ReproductionPlan, ReproductionRequest, SystemPlan
from nmtalign.reproduction.preparation import SETTINGS, path_from, text_hashes, with_budget, write_settings
from nmtalign.reproduction.reproduction_results import Results, Trained, metrics_of
from nmtalign.reproduction.running import UNKNOWN
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, finite
from nmtalign.settings.workspace import FILE_NAME
from nmtalign.text.vocabulary import UNK
from nmtalign.version import __version__

_REPORT, _FACTS = "report.md", "settings.json"
_HIDDEN = f"# {WORK}: corpora and models; what belongs to the report is beside this folder"
_PACKAGES = ("torch", "numpy", "h5py", "sacrebleu", "sacremoses", "sentencepiece", "matplotlib")


def begin_folder(plan: ReproductionPlan) -> None:
    """Creates the folder of the report and hides its models from git.

    Raises UsageError without matplotlib, and for a folder with files that `reproduce` has not made.
    """
    need_matplotlib()
    folder = plan.request.folder
    if folder.is_dir() and not _is_begun(plan) and any(map(_is_foreign, folder.rglob("*"))):
        raise UsageError(f"{folder}: has files that are not of nmtalign reproduce; give another folder with -o")
    make_folder(plan.work)
    with atomic_text(plan.work / ".gitignore") as stream:
        stream.write(f"{_HIDDEN}\n*\n")


def _is_begun(plan: ReproductionPlan) -> bool:
    """Whether `reproduce` has worked in the folder; the folder `work` is missing in a copy from git."""
    with contextlib.suppress(OSError, ValueError):
        return (plan.work / ".gitignore").read_text("utf-8").startswith(_HIDDEN)
    with contextlib.suppress(OSError, ValueError, TypeError):
        return {"nmtalign", "command", "scale"} <= {*read_json(plan.request.folder / _FACTS)}
    return False


def _is_foreign(path: Path) -> bool:
    """Whether a file is not one that a process that was killed may have left before its work began."""
    return not path.is_dir() and not path.match(INCOMPLETE)


def write_report(results: Results) -> Path:
    """Writes all files, removes the pictures of an earlier report, and returns the path of the Markdown file."""
    folder, plan = results.plan.request.folder, results.plan
    earlier = _pictures(folder / _REPORT)
    for system in _with_settings(results):
        write_settings(plan, system)
    document = make_document(results)
    texts = {_REPORT: to_markdown(document), "report.html": to_page(document), _FACTS: _facts(results)}
    for name, text in texts.items():
        with atomic_text(folder / name) as stream:
            stream.write(text)
    _write_rows(folder / "scores.csv", ("test", "seed", "compared_with", *CSV_COLUMNS), _score_rows(results))
    columns = ("model", "seed", *(field.name for field in dataclasses.fields(Trained)))
    _write_rows(folder / "training.csv", columns, _training_rows(results))
    for name in earlier - _pictures(folder / _REPORT):
        with disk_errors(folder / name):
            (folder / name).unlink(missing_ok=True)
    return folder / _REPORT


def _pictures(report: Path) -> set[str]:
    """The files of the pictures that a report shows."""
    with contextlib.suppress(OSError, ValueError):
        return set(re.findall(rf"\(({report_figures.FIGURES}/[\w.-]+\.png)\)", report.read_text("utf-8")))
    return set()


def make_document(results: Results) -> Document:
    """Returns the report as a document, and writes its PNG files."""
    folder = results.plan.request.folder
    blocks = [
        *report_tables.opening(results),
        *report_figures.what_shows(results),
        *report_tables.table_one(results),
        *report_tables.systems(results),
        *report_tables.seeds(results),
        *report_tables.table_two(results),
        *report_figures.lengths(results, folder),
        *report_tables.ablations(results),
        *report_figures.heat_maps(results, folder),
        *report_tables.error_rates(results),
        *report_figures.side_by_side(results),
        *report_figures.curves(results, folder),
        *_again(results),
    ]
    paper = "Neural machine translation by jointly learning to align and translate, reproduced"
    return Document(paper if results.plan.of_paper else "Systems of neural machine translation, compared", blocks)


def _again(results: Results) -> Iterator[Block]:
    """How to get the numbers again."""
    plan, report = results.plan, results.scored[0].paper
    yield Heading("How to get these figures again")
    yield Paragraph(
        "This command, in the folder of `nmtalign.toml`, does all of it. Rerun an interrupted command and it resumes."
    )
    yield Commands([_whole_command(plan)])
    yield Paragraph(
        "These are the single steps, in the folder of this report. Each file in `settings` is an `nmtalign.toml` with "
        "all settings of one model. The commands repeat what was done here, or report that it is already done. The "
        f"translations as they were scored are in `{WORK}/translations`."
    )
    yield Commands(list(_steps(results)))
    signatures = [(metric, f"`{name}`") for metric, name in zip(report.metrics, report.signatures, strict=True)]
    yield DataTable(
        ("metric", "signature"), signatures, "Signatures of the scores, with the draws of their intervals", 2
    )
    facts = [
        ("nmtalign", __version__),
        ("data", "`scores.csv`, `training.csv`, `settings.json`"),
        ("seeds of the models", ", ".join(map(str, plan.seeds))),
    ]
    yield DataTable(("fact", "value"), facts, "All other versions and the machine are in `settings.json`", 2)


def _whole_command(plan: ReproductionPlan) -> str:
    """The command that makes the report, without the options that have their defaults."""
    request, file = plan.request, plan.workspace.file or Path(FILE_NAME)
    default = ReproductionRequest(request.scale)
    parts = ["nmtalign", "reproduce", "--scale", request.scale.name]
    parts += [f"--{plan.budget.unit}", f"{plan.budget.amount:.15g}"]
    for name in ("models", "systems", "ablations", "seeds", "sentences", "long", "reordered", "jobs"):
        value = getattr(request, name)
        if value not in (getattr(default, name), ""):
            parts += [f"--{name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    parts += [] if request.text else ["--no-text"]
    for name, value in request.flags.items():
        parts += [f"--{name}", str(value)] if value is not None else []
    parts += ["--config", file.name] if file.name != FILE_NAME else []
    return shlex.join([*parts, "-o", path_from(file, request.folder)])


def _with_settings(results: Results) -> list[SystemPlan]:
    """The systems that have a settings file: those that have translated, and those whose models they share."""
    names = {name for system in results.outcome.translated() for name in (system.name, system.trained_as)}
    return [system for system in results.plan.systems if system.name in names]


def _steps(results: Results) -> Iterator[str]:
    """Yields the commands prep, train, translate, score, align and aer that lead to the same numbers."""
    plan, systems = results.plan, results.outcome.translated()
    for name in plan.corpora:
        first = next((system for system in systems if plan.corpus_folder(system).name == name), None)
        if first and not plan.prepared:
            yield f"nmtalign prep {_config(first.name)}"
    described = _with_settings(results)
    for system, seed in plan.models():
        other = "" if seed == plan.seeds[0] else f" -o {_shown(plan, plan.model_folder(system, seed))} --seed {seed}"
        if system in described:
            yield f"nmtalign train {_config(system.name)}{other}"
    for test, (source, _) in plan.tests.items():
        for system in systems:
            model = _shown(plan, plan.model_folder(system, plan.seeds[0]))
            command = f"nmtalign translate -m {model} {_config(system.name)}"
            counted = f" | sed 's/{UNK}/{UNKNOWN}/g'" if system.search.allow_unk else ""
            yield f"{command} < {_shown(plan, source)}{counted} > {system.name}.{test}.txt"
            if not system.experiment.ablation:
                known = f"--no-allow-unk --no-replace-unk < {_shown(plan, source)} > {system.name}.{test}.known.txt"
                yield f"{command} {known}"
    scored = results.scored[0]
    for test in plan.tests:
        for report in (scored.paper, *scored.bases.values()):
            yield _score_command(plan, test, [system.name for system in report.systems])
        yield _score_command(plan, test, [system.name for system in scored.paper.systems], known=True)
    for name, seed in results.rates:
        if seed == plan.seeds[0]:
            yield f"nmtalign align {_config(name)} -o {name}.h5"
            yield f"nmtalign aer {name}.h5 {_config(name)}"


def _config(name: str) -> str:
    return f"--config {SETTINGS}/{name}.toml"


def _score_command(plan: ReproductionPlan, test: str, names: Sequence[str], *, known: bool = False) -> str:
    """The command for all sentences, or with `known` for those without an unknown word (last column of Table 1)."""
    source, reference = (_shown(plan, path) for path in plan.tests[test])
    files = [f"{name}={name}.{test}{'.known' if known else ''}.txt" for name in names]
    parts = ["nmtalign score", *files, "-r", reference, "-s", source]
    parts += ["--metrics", ",".join(metrics_of(plan).metrics), "--confidence"]
    parts += ["--significance bs"] if len(names) > 1 else []
    if known:
        parts += ["--data", _shown(plan, plan.base_corpus), "--table1"]
    elif not any(plan.named(name).experiment.ablation for name in names):
        parts += [f"--by-length --plot length-{test}.png"]
    return " ".join([*parts, _config(names[0])])


def _shown(plan: ReproductionPlan, path: Path) -> str:
    """A path relative to the folder of the report, quoted for a shell."""
    return shlex.quote(path_from(plan.request.folder / _REPORT, path))


def _score_rows(results: Results) -> Iterator[Mapping[str, Any]]:
    """Every score of every system: the rows of `nmtalign score --format csv` with test set, base and seed."""
    first = results.plan.seeds[0]
    for scored in results.scored:
        for base, report in {"": scored.paper, **scored.bases}.items():
            common = {"test": scored.test.name, "compared_with": base or report.systems[0].name, "seed": first}
            # The report of an ablation contains its base only for the comparison.
            yield from (common | row for row in csv_rows(report) if not base or row["system"] != base)
        for (name, seed), value in scored.bleu.items():
            if seed != first:
                row = {"test": scored.test.name, "seed": seed, "system": name, "metric": scored.paper.metrics[-1]}
                yield row | {"subset": "all", "value": value, "sentences": scored.sentences}
                if (name, seed) in scored.known:
                    known = finite(scored.known[name, seed])
                    yield row | {"subset": "no-unk", "value": known, "sentences": scored.sentences_known}


def _training_rows(results: Results) -> Iterator[Mapping[str, Any]]:
    """Cost and losses of every training, one row per model."""
    for (name, seed), trained in results.trained.items():
        values = {key: finite(value) if isinstance(value, float) else value for key, value in vars(trained).items()}
        yield {"model": name, "seed": seed, **values}


def _write_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with atomic_text(path) as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")  # None becomes an empty cell
        writer.writeheader()
        writer.writerows(rows)


def _facts(results: Results) -> str:
    """settings.json: all settings, versions, seeds, hashes and signatures, and a description of the machine."""
    plan, report = results.plan, results.scored[0].paper
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    facts = {
        "nmtalign": __version__,
        "command": _whole_command(plan),
        "scale": plan.request.scale.name,
        "budget": dataclasses.asdict(plan.budget),
        "seeds": list(plan.seeds),
        "signatures": dict(zip(report.metrics, report.signatures, strict=True)),
        "texts": text_hashes(plan) | ({"gold": sha256_of(plan.workspace.gold)} if plan.workspace.gold else {}),
        "corpora": {name: _corpus(plan.corpus_named(name)) for name in plan.corpora},
        "systems": {system.name: _system(results, system) for system in plan.systems},
        "failures": {f"{name}, seed {seed}": problem for (name, seed), problem in results.outcome.failures.items()},
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "machine": {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count(), "gpus": gpus},
    }
    return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"


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


def _processor() -> str:
    return cpu_facts().get("model name") or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
