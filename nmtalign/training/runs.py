"""The run in a model directory, whether it resumes with given settings, and the files that a run begins with."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from nmtalign.core.model import TranslationModel
from nmtalign.data.corpus import Corpus, ReversedCorpus
from nmtalign.data.guide import Guide, read_guide
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import sha256_of
from nmtalign.model_files import (
    BACKWARD,
    CONFIG,
    MAY_DIFFER,
    SOURCE_VOCABULARY,
    TARGET_VOCABULARY,
    check_files,
    find_weights,
    model_config,
    read_settings,
    recorded_weights,
)
from nmtalign.settings.definition import SettingError, definitions, field_names, toml
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.tensor_file import load_tensors
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.training.directions import turned_round
from nmtalign.training.state import Checkpoint, find_checkpoint, run_of_weights

MAY_CHANGE = frozenset(
    {"max_updates", "epochs", "max_time", "patience", "log_every", "average"}
    | {"validate_every", "checkpoint_every", "bleu_sentences", "device", "threads"}
)
# Settings that name a file, whose content is compared instead; then settings that have no effect without others.
_FILES = frozenset({"guided_alignment", "init_from"})
_GUIDED = frozenset({"guided_weight"})
_AGREEING = frozenset({"agreement", "agreement_weight"})
# Settings of the model that the first version had; the defaults of the others are what earlier versions did.
_FIRST = {"source_vocabulary_size", "target_vocabulary_size", "embedding", "hidden", "attention_hidden", "maxout"}
_FIRST |= {"output_rank", "cell", "order", "attention", "bidirectional", "dropout", "initialisation"}
LATER = {name: one.default for name, one in definitions(ModelConfig).items() if name not in _FIRST}


def fingerprint_of(
    corpus: Corpus, model: ModelConfig, config: TrainingConfig, files: Mapping[str, str] | None = None
) -> str:
    """SHA-256 of what must be equal for a run to resume: corpus, model, and the settings that change the updates.

    `files` are the hashes of the files that settings name, by setting.
    """
    files = files or {}
    left_out = MAY_CHANGE | _FILES | (frozenset() if "guided_alignment" in files else _GUIDED)
    left_out |= frozenset() if config.agreement else _AGREEING
    fixed = {name: value for name, value in asdict(config).items() if name not in left_out} | dict(files)
    shaping = {name: value for name, value in asdict(model).items() if LATER.get(name) != value}
    text = json.dumps([corpus.hash, shaping, fixed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find_run(
    folder: Path,
    fingerprint: str,
    corpus: Corpus,
    model: ModelConfig | None = None,
    config: TrainingConfig | None = None,
) -> Checkpoint | None:
    """The checkpoint from which the run in a folder resumes with these settings; None for a folder without a run.

    Raises UsageError if the folder contains another run; the message names the differences, if model and config are
    given.
    """
    if not (folder / CONFIG).exists():
        return None
    settings = read_settings(folder)
    if "exported" in settings:
        raise UsageError(
            f"{folder}: an exported model has no training state, so its training cannot be resumed; a new training can "
            f"begin with it: give --init-from {folder}, and another folder with -o"
        )
    found = find_checkpoint(folder, fingerprint)
    held = found.fingerprint if found else run_of_weights(folder)
    if held is None or (found is None and held == fingerprint):
        return None  # it ended before its first checkpoint, so nothing can be lost
    check_files(folder, settings)
    if held == fingerprint:
        return found
    changes = _changes_of_settings(settings, model, config)
    what = "with other settings"
    if settings.get("corpus") != corpus.hash:
        what, changes = "on another corpus", [*_changes_of_corpus(folder, settings, corpus), *changes]
    raise UsageError(
        f"{folder}: contains a model trained {what}{': ' if changes else ''}{', '.join(changes)}; to continue it, give "
        "what it was trained with; else give another folder with -o, or replace it with --restart"
    )


def _changes_of_settings(
    settings: Mapping[str, Any], model: ModelConfig | None, config: TrainingConfig | None
) -> list[str]:
    """The settings that prevent resuming, such as "learning_rate was 0.002, is 0.001"."""
    changes = []
    for there, given in ((settings["model"], model), (settings["training"], config)):
        for name, value in {} if given is None else asdict(given).items():
            was = there.get(name, definitions(type(given))[name].default)  # an earlier version had fewer settings
            if name in _FILES and was == value and value:
                changes.append(f"{name} may name other content now")
            elif name not in MAY_CHANGE and not name.endswith("_vocabulary_size") and was != value:
                changes.append(f"{name} was {toml(was)}, is {toml(value)}")
    return changes


def _changes_of_corpus(folder: Path, settings: Mapping[str, Any], corpus: Corpus) -> list[str]:
    """The properties in which the corpus differs from that of a model directory."""
    languages = f"{settings['source_language']}-{settings['target_language']}"
    is_now = f"{corpus.source_language}-{corpus.target_language}"
    changes = [] if languages == is_now else [f"languages were {languages}, are {is_now}"]
    prep = settings.get("prep", {})
    changes += [
        f"{name} of prep was {toml(prep[name])}, is {toml(value)}"
        for name, value in corpus.settings.items()
        if name in prep and prep[name] != value
    ]
    for name, words in ((SOURCE_VOCABULARY, corpus.source_vocabulary), (TARGET_VOCABULARY, corpus.target_vocabulary)):
        held = Vocabulary.load(folder / name)
        if held != words:
            sizes = f" ({len(held):,} words, now {len(words):,})" if len(held) != len(words) else ""
            changes.append(f"the {name.partition('.')[0]} vocabulary is another{sizes}")
    return changes or ["the pairs are others"]


@dataclass(frozen=True)
class Given:
    """The files that a training begins with: links that guide it, and weights of another model."""

    guide: Guide | None
    weights: Sequence[Path]  # files of the first weights of each direction; empty if they are drawn at random
    gone: str | None = None  # the hash of the first weights, if their model is gone: the training can only resume

    @classmethod
    def read(cls, corpus: Corpus, model: ModelConfig, config: TrainingConfig, folder: Path) -> "Given":
        """Reads the files that the settings of the training in `folder` name; compares them with corpus and model.

        Raises UsageError, InputError or FormatError with the name of a file that does not fit.
        """
        guide, weights = None, []
        if config.guided_alignment:
            if model.attention == "none":
                raise SettingError(
                    "links can guide only a model with attention",
                    guided_alignment=config.guided_alignment,
                    attention=model.attention,
                )
            guide = read_guide(Path(config.guided_alignment), corpus)
        gone = recorded_weights(folder, Path(config.init_from)) if config.init_from else None
        if gone:
            return cls(guide, (), gone)
        if config.init_from:
            weights.append(_weights_of(Path(config.init_from), corpus, model))
        if config.init_from and config.agreement:
            if not (Path(config.init_from) / BACKWARD / CONFIG).exists():
                raise SettingError(
                    f"{config.init_from} has no {BACKWARD}/, the model of the other direction; give a model that was "
                    "trained with agreement",
                    init_from=config.init_from,
                    agreement=True,
                )
            other = ReversedCorpus(corpus, corpus.folder)
            weights.append(_weights_of(Path(config.init_from) / BACKWARD, other, turned_round(model)))
        return cls(guide, weights)

    def notes(self) -> list[str]:
        """Returns what a user should know about the files, one line each."""
        return [self.guide.note] if self.guide is not None and self.guide.note else []

    def check_beginning(self, config: TrainingConfig, folder: Path) -> None:
        """Raises FormatError if a new training needs a model that is gone."""
        if self.gone:
            raise FormatError(
                f"{config.init_from}: no nmtalign model here (no {CONFIG}), and {folder} has no checkpoint to resume; "
                "put the model back"
            )

    @property
    def identity(self) -> Mapping[str, str]:
        """SHA-256 of the files, by setting: a run resumes only with the same files."""
        found = {}
        if self.guide is not None:
            found["guided_alignment"] = self.guide.hash
        if self.weights or self.gone:
            found["init_from"] = self.gone or " ".join(map(sha256_of, self.weights))
        return found

    @torch.no_grad()
    def start(self, models: Sequence[TranslationModel]) -> None:
        """Gives the models of all directions their first weights; raises FormatError where the sizes differ."""
        for path, model in zip(self.weights, models, strict=False):
            given, present = load_tensors(path)[0], model.state_dict()
            sizes, expected = ({name: tuple(x.shape) for name, x in part.items()} for part in (given, present))
            if sizes != expected:
                name = min(name for name in sizes | expected if sizes.get(name) != expected.get(name))
                raise FormatError(f"{path}: {name} is {sizes.get(name)} there and {expected.get(name)} here")
            for name, tensor in present.items():
                tensor.copy_(given[name])


def _weights_of(folder: Path, corpus: Corpus, model: ModelConfig) -> Path:
    """The best weights of a model directory, whose words and settings must be those of corpus and model."""
    settings = read_settings(folder)
    check_files(folder, settings)
    there = model_config(folder, settings)
    for name in field_names(ModelConfig):
        if name not in MAY_DIFFER and getattr(there, name) != getattr(model, name):
            raise UsageError(
                f"init_from: {name} is {getattr(there, name)} in {folder} and {getattr(model, name)} here; "
                "give a model with the same settings"
            )
    for name, words in ((SOURCE_VOCABULARY, corpus.source_vocabulary), (TARGET_VOCABULARY, corpus.target_vocabulary)):
        if Vocabulary.load(folder / name) != words:
            raise UsageError(
                f"init_from: {folder / name} has other words than {corpus.folder / name}; "
                f"prepare the texts with the words of the model: nmtalign prep ... --vocabulary-from {folder}"
            )
    return find_weights(folder, "best")
