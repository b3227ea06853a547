"""All settings of one system as an nmtalign.toml, with which every subcommand repeats what `reproduce` did."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtalign.data.corpus import Corpus
from nmtalign.files import atomic_text
from nmtalign.reproduction.corpora import languages, with_budget
from nmtalign.reproduction.plan import ReproductionPlan, SystemPlan
from nmtalign.settings.command_settings import ScoreConfig, TranslateConfig

SETTINGS = "settings"


def settings_file(plan: ReproductionPlan, system: SystemPlan) -> Path:
    """The path of a system's nmtalign.toml, in the folder of the report."""
    return plan.request.folder / SETTINGS / f"{system.name}.toml"


def write_settings(plan: ReproductionPlan, system: SystemPlan) -> None:
    """Writes the nmtalign.toml of a system."""
    path = settings_file(plan, system)
    corpus = Corpus.open(plan.corpus_folder(system))
    model = dataclasses.asdict(system.model)
    for side in ("source", "target"):
        del model[f"{side}_vocabulary_size"]
    training = dataclasses.asdict(with_budget(plan, system, corpus, plan.seeds[0]))
    source, target = languages(plan.workspace)
    top = {
        "source_language": source,
        "target_language": target,
        "data": path_from(path, plan.corpus_folder(system)),
        "model": path_from(path, plan.model_folder(system, plan.seeds[0])),
    }
    texts: dict[str, Any] = {
        name: [path_from(path, side) for side in pair] for name, pair in plan.workspace.pairs.items()
    }
    if plan.workspace.gold:
        texts["gold"] = path_from(path, plan.workspace.gold)
    sections = {
        "corpus": texts,
        "corpus.tests": {name: [path_from(path, side) for side in pair] for name, pair in plan.workspace.tests.items()},
        "prep": dataclasses.asdict(system.prep),
        "train": {"preset": system.experiment.preset, **model, **training},
        "translate": _all(system.search) | _lexicon(path, system.search),
        "score": _all(plan.scoring),
        "align": plan.workspace.sections.get("align", {}),
    }
    with atomic_text(path) as stream:
        stream.write(f"# {system.name}: {system.experiment.what or system.experiment.preset}\n")
        stream.write(_assignments(top))
        for name, settings in sections.items():
            if settings:
                stream.write(f"\n[{name}]\n{_assignments(settings)}")


def _all(settings: TranslateConfig | ScoreConfig) -> dict[str, Any]:
    """Every setting that has a value, so that no setting is derived from others differently than it was here."""
    return {name: value for name, value in dataclasses.asdict(settings).items() if value is not None}


def _lexicon(file: Path, search: TranslateConfig) -> dict[str, str]:
    return {"lexicon": path_from(file, Path(search.lexicon))} if search.lexicon else {}


def path_from(file: Path, path: Path) -> str:
    """The path relative to the folder of the file that contains it."""
    return Path(os.path.relpath(path, file.parent)).as_posix()


def _assignments(settings: Mapping[str, Any]) -> str:
    # JSON and TOML write strings, numbers, truth values and lists of them in the same way.
    return "".join(
        f"{name if name.isidentifier() else json.dumps(name)} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in settings.items()
    )
