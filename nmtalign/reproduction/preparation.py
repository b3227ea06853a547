"""What training needs on disk: the prepared corpora, and for each system an nmtalign.toml with all its settings."""

import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmtalign.data.batches import BatchPolicy, eligible, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.errors import InputError, UsageError
from nmtalign.files import atomic_text, read_json, sha256_of
from nmtalign.reproduction.experiments import Settings
from nmtalign.reproduction.plan import ReproductionPlan, SystemPlan, languages
from nmtalign.settings.command_settings import PrepConfig, ScoreConfig, TranslateConfig
from nmtalign.settings.definition import chooses_vocabulary, definitions, select
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

SETTINGS = "settings"  # the folder of the nmtalign.toml files, within the folder of the report
_IDENTITY = "made-of.json"  # a file in each corpus that records its texts and settings
_FEWEST = 10  # updates between validations, at least


def text_hashes(plan: ReproductionPlan) -> dict[str, str]:
    """Returns the SHA-256 of every text file by its role (`train source`); raises InputError for a missing file."""
    hashes = {}
    pairs = {name: pair for name, pair in plan.workspace.file_pairs.items() if name != "test"} | dict(plan.tests)
    for name, pair in pairs.items():
        for side, path in zip(("source", "target"), pair, strict=True):
            try:
                hashes[f"{name} {side}"] = sha256_of(path)
            except OSError as error:
                raise InputError(f"{path}: cannot read: {error.strerror}") from None
    return hashes


class Corpora:
    """Prepares the corpora of a plan."""

    def __init__(self, plan: ReproductionPlan) -> None:
        self._plan, self._languages = plan, languages(plan.workspace)
        hashes = text_hashes(plan)
        self._texts = {name: value for name, value in hashes.items() if name.split()[0] in plan.workspace.file_pairs}

    def is_made(self, name: str) -> bool:
        """Whether the corpus is prepared; raises UsageError if the folder has a corpus of other texts or settings."""
        folder = self._plan.corpus_named(name)
        if folder == self._plan.prepared:
            return True
        try:
            found = read_json(folder / _IDENTITY)
        except (OSError, ValueError):
            return False
        if found != self._identity(name):
            raise UsageError(
                f"{folder}: was prepared from other text or with other settings; give another folder with -o, or "
                "remove this one with its models"
            )
        return True

    def make(self, name: str, progress: Callable[[int], None], notify: Callable[[str], None]) -> None:
        """Prepares the corpus; if `progress` or `notify` raises, the preparation ends and leaves nothing behind."""
        folder, pairs = self._plan.corpus_named(name), self._plan.workspace.file_pairs
        texts = pairs["dev"], pairs.get("test")
        prepare(pairs["train"], folder, self._plan.corpora[name], self._languages, *texts, progress, notify, True)
        with atomic_text(folder / _IDENTITY) as stream:
            stream.write(json.dumps(self._identity(name), indent=2, sort_keys=True) + "\n")

    def _identity(self, name: str) -> dict[str, Any]:
        settings = dataclasses.asdict(self._plan.corpora[name])
        del settings["workers"]
        return {"texts": self._texts, "prep": settings, "languages": list(self._languages)}


def with_budget(plan: ReproductionPlan, system: SystemPlan, corpus: Corpus, seed: int) -> TrainingConfig:
    """Returns the training settings of one model with its seed, its budget, and 20 validations within the budget."""
    config = dataclasses.replace(system.training, seed=seed)
    if plan.budget.unit == "hours":
        seconds = max(1, round(plan.budget.amount * 3600))
        return dataclasses.replace(config, max_time=f"{seconds}s", validate_every=f"{max(1, seconds // 20)}s")
    updates = _updates(plan, system, corpus, config)
    every = max(_FEWEST, math.ceil(updates / 20))
    return dataclasses.replace(
        config,
        max_updates=updates,
        validate_every=str(every),
        log_every=min(config.log_every, every),
        max_time="",
        epochs=0.0,
    )


def _updates(plan: ReproductionPlan, system: SystemPlan, corpus: Corpus, config: TrainingConfig) -> int:
    """The budget in updates.

    The conversion from words uses the mean number of target words (with `</s>`) of the pairs of the base corpus within
    the preset's maximum length, so that a model sees the same number of sentences whatever its vocabulary.
    """
    if plan.budget.unit == "updates":
        return max(1, round(plan.budget.amount))
    base, train = Corpus.open(plan.base_corpus).splits["train"], corpus.splits["train"]
    counted = base.target_lengths[eligible(base, int(preset(system.experiment.preset)["max_length"]))]
    chosen = eligible(train, corpus.tokenizers.most_tokens(config.max_length))
    if not len(chosen) or not len(counted):
        raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}")
    policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
    pairs_per_batch = len(chosen) / len(plan_epoch(train, chosen, policy, 0))
    return math.ceil(plan.budget.amount / ((float(counted.mean()) + 1) * pairs_per_batch * config.accumulate))


def settings_file(plan: ReproductionPlan, system: SystemPlan) -> Path:
    """The path of a system's nmtalign.toml, in the folder of the report."""
    return plan.request.folder / SETTINGS / f"{system.name}.toml"


def write_settings(plan: ReproductionPlan, system: SystemPlan) -> None:
    """Writes the nmtalign.toml of a system, with which every subcommand repeats the work of `reproduce`.

    It contains every setting that has a value, so that none is derived from others differently than it was here.
    """
    path, workspace = settings_file(plan, system), plan.workspace
    source, target = languages(workspace)
    model = {name: value for name, value in vars(system.model).items() if not definitions(ModelConfig)[name].internal}
    training = vars(with_budget(plan, system, Corpus.open(plan.corpus_folder(system)), plan.seeds[0]))
    prep, search, scoring = (_section(path, config) for config in (system.prep, system.search, plan.scoring))
    if system.prep.vocabulary_from:
        prep = {name: prep[name] for name in prep.keys() - select(PrepConfig, chooses_vocabulary).keys()}
    texts: dict[str, Any] = {
        name: [path_from(path, side) for side in pair] for name, pair in workspace.file_pairs.items()
    }
    if workspace.gold:
        texts["gold"] = path_from(path, workspace.gold)
    sections: dict[str, Settings] = {
        "": {
            "source_language": source,
            "target_language": target,
            "data": path_from(path, plan.corpus_folder(system)),
            "model": path_from(path, plan.model_folder(system, plan.seeds[0])),
        },
        "corpus": texts,
        "corpus.tests": {name: [path_from(path, side) for side in pair] for name, pair in workspace.tests.items()},
        "prep": prep,
        "train": {"preset": system.experiment.preset, **model, **training},
        "translate": search,
        "score": scoring,
        "align": workspace.sections.get("align", {}),
    }
    with atomic_text(path) as stream:
        stream.write(f"# {system.name}: {system.experiment.what}\n")
        for name, settings in sections.items():
            if settings:
                stream.write((f"\n[{name}]\n" if name else "") + _assignments(settings))


def _section(file: Path, config: PrepConfig | TranslateConfig | ScoreConfig) -> dict[str, Any]:
    """The settings that have a value, with paths relative to the folder of the file."""
    known = definitions(type(config))
    return {
        name: path_from(file, Path(value)) if value and known[name].is_path else value
        for name, value in vars(config).items()
        if value is not None
    }


def path_from(file: Path, path: Path) -> str:
    """The path relative to the folder of the file that contains it."""
    return Path(os.path.relpath(path, file.parent)).as_posix()


def _assignments(settings: Settings) -> str:
    # JSON and TOML write strings, numbers, truth values and lists of them in the same way.
    return "".join(
        f"{name if name.isidentifier() else json.dumps(name)} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in settings.items()
    )
