"""What it takes to get every figure again: the command, the plain subcommands, versions, signatures."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmtalign.reproduction.document import Block, Commands, Heading, Paragraph, Table
from nmtalign.reproduction.plan import WORK, Plan, Request
from nmtalign.reproduction.results import Results, metrics_of
from nmtalign.reproduction.settings_files import SETTINGS, path_from
from nmtalign.reproduction.translations import UNKNOWN
from nmtalign.text.vocabulary import UNK
from nmtalign.version import __version__
from nmtalign.workspace import FILE_NAME


def again(results: Results) -> Iterator[Block]:
    """The section of the report that says how to get its figures again."""
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
    yield Table(("metric", "signature"), signatures, "Signatures of the scores, with the draws of their intervals", 2)
    facts = [
        ("nmtalign", __version__),
        ("data", "`scores.csv`, `training.csv`, `settings.json`"),
        ("seeds of the models", ", ".join(map(str, plan.seeds))),
    ]
    yield Table(("fact", "value"), facts, "Versions of everything else and the machine are in `settings.json`", 2)


def whole_command(plan: Plan) -> str:
    """The command that made the report."""
    request = plan.request
    parts = ["nmtalign", "reproduce", "--scale", request.scale.name]
    parts += [f"--{plan.budget.unit}", f"{plan.budget.amount:.15g}"]
    parts += ["--models", request.models] if request.models else []
    parts += ["--ablations", request.ablations] if request.ablations not in ("", "none") else []
    parts += ["--seeds", str(request.seeds)] if request.seeds > 1 else []
    parts += ["--sentences", ",".join(map(str, request.sentences))] if request.sentences else []
    for name, value in (("long", request.long), ("reordered", request.reordered)):
        parts += [f"--{name}", str(value)] if value != getattr(Request(request.scale), name) else []
    parts += ["--jobs", str(request.jobs)] if request.jobs > 1 else []
    parts += [] if request.text else ["--no-text"]
    for name, value in request.flags.items():
        parts += [f"--{name}", str(value)] if value is not None else []
    file = plan.workspace.file or Path(FILE_NAME)
    parts += ["--config", file.name] if file.name != FILE_NAME else []
    return shlex.join([*parts, "-o", path_from(file, request.folder)])


def _steps(results: Results) -> Iterator[str]:
    """prep, train, translate, score and align, as one would type them."""
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
    """The systems that are scored together, the one that the others are tested against first."""
    scored = results.scored[0]
    for report in (scored.paper, *scored.bases.values()):
        yield [system.name for system in report.systems]


def _score_command(plan: Plan, test: str, names: Sequence[str], *, known: bool = False) -> str:
    """Of all sentences, or for the last column of Table 1, with `known`, of those without an unknown word."""
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


def _shown(plan: Plan, path: Path) -> str:
    """A path from the folder of the report, for a shell."""
    return shlex.quote(path_from(plan.request.folder / "report.md", path))
