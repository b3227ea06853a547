"""The prepared corpora of a plan, and its budget in updates. A file in each corpus records its texts and settings."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmtalign.data.batches import BatchPolicy, eligible, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.data.prepare import prepare
from nmtalign.errors import InputError, UsageError
from nmtalign.files import atomic_text, sha256_of
from nmtalign.reproduction.experiments import EqualBudget
from nmtalign.reproduction.plan import ReproductionPlan, SystemPlan
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.untrusted import read_json

_IDENTITY = "made-of.json"
_FEWEST = 10  # updates between validations, at least


def languages(workspace: Workspace) -> tuple[str, str]:
    """Returns the languages of source and target: those of the workspace, or the endings of the training files."""
    named = workspace.source_language, workspace.target_language
    source, target = (
        language or path.name.removesuffix(".gz").rpartition(".")[2].lower()
        for language, path in zip(named, workspace.pairs["train"], strict=True)
    )
    return source, target


def text_hashes(plan: ReproductionPlan) -> dict[str, str]:
    """Returns the SHA-256 of every text file by its role (`train source`); raises InputError for a missing file."""
    hashes = {}
    pairs = {name: plan.workspace.pairs[name] for name in ("train", "dev")} | dict(plan.tests)
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
        self._plan = plan
        hashes = text_hashes(plan)
        self._texts = {name: value for name, value in hashes.items() if name.split()[0] in plan.workspace.pairs}

    def is_made(self, name: str) -> bool:
        """Whether the corpus is prepared; raises UsageError if the folder holds a corpus of other texts or settings."""
        folder = self._folder(name)
        try:
            held = read_json(folder / _IDENTITY)
        except (OSError, ValueError):
            return False
        if held != self._identity(name):
            raise UsageError(
                f"{folder}: was prepared from other text or with other settings; give another folder with -o, or "
                "remove this one with its models"
            )
        return True

    def make(self, name: str, progress: Callable[[int], None], notify: Callable[[str], None]) -> None:
        """Prepares the corpus; if `progress` or `notify` raises, the preparation ends and leaves nothing behind."""
        folder, pairs = self._folder(name), self._plan.workspace.pairs
        config, both = self._plan.corpora[name], languages(self._plan.workspace)
        prepare(pairs["train"], folder, config, both, pairs["dev"], pairs.get("test"), progress, notify, True)
        with atomic_text(folder / _IDENTITY) as stream:
            stream.write(json.dumps(self._identity(name), indent=2, sort_keys=True) + "\n")

    def _folder(self, name: str) -> Path:
        return self._plan.work / "corpora" / name

    def _identity(self, name: str) -> dict[str, Any]:
        settings = dataclasses.asdict(self._plan.corpora[name])
        del settings["workers"]
        return {"texts": self._texts, "prep": settings, "languages": list(languages(self._plan.workspace))}


def with_budget(plan: ReproductionPlan, system: SystemPlan, corpus: Corpus, seed: int) -> TrainingConfig:
    """Returns the training settings of one model with its seed, its budget, and 20 validations within the budget.

    A budget of words becomes a number of updates. The conversion uses the mean number of target words (with `</s>`) of
    the pairs of the base corpus within the preset's maximum length, so that a model sees the same number of sentences
    whatever its vocabulary.
    """
    budget = plan.budget
    config = dataclasses.replace(system.training, seed=seed)
    if budget.unit == "hours":
        seconds = max(1, round(budget.amount * 3600))
        interval = f"{max(1, seconds // 20)}s"
        return dataclasses.replace(config, max_time=f"{seconds}s", validate_every=interval)
    updates = _updates_of(budget, plan, system, corpus, config)
    every = max(_FEWEST, math.ceil(updates / 20))
    return dataclasses.replace(
        config,
        max_updates=updates,
        validate_every=str(every),
        log_every=min(config.log_every, every),
        max_time="",
        epochs=0.0,
    )


def _updates_of(
    budget: EqualBudget, plan: ReproductionPlan, system: SystemPlan, corpus: Corpus, config: TrainingConfig
) -> int:
    if budget.unit == "updates":
        return max(1, round(budget.amount))
    base = Corpus.open(plan.base_corpus).splits["train"]
    counted = base.target_lengths[eligible(base, int(preset(system.experiment.preset)["max_length"]))]
    train = corpus.splits["train"]
    chosen = eligible(train, config.max_length)
    if not len(chosen) or not len(counted):
        raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}")
    policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
    pairs_a_batch = len(chosen) / len(plan_epoch(train, chosen, policy, 0))
    return math.ceil(budget.amount / ((float(counted.mean()) + 1) * pairs_a_batch * config.accumulate))
