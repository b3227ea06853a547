"""The checkpoints of a run: saved, found and verified again, and refused if they belong to another run.

A checkpoint contains weights, optimiser and position; the newest two are kept. A new one is written under a temporary
name. Then the newest one is renamed to the previous one, and the new one to the newest. Wherever a process is killed,
one of the two is complete; the newest complete one is used.
"""

import contextlib
import hashlib
import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nmtalign import files, model_directory
from nmtalign.core.model import TranslationModel
from nmtalign.data.corpus import Corpus
from nmtalign.errors import FormatError, ResourceError, UsageError
from nmtalign.settings.definition import SettingError, definitions, resolve, select, toml
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.text.lines import counted
from nmtalign.text.tokenizer import MODEL_FILES, Vocabulary
from nmtalign.training.events import NO_PROGRESS
from nmtalign.training.optimizers import Optimizer

_MAY_CHANGE = {*select(TrainingConfig, lambda one: one.affects != "result")}  # between a run and one that resumes it
_FILES = {*select(TrainingConfig, lambda one: one.is_path)}  # the content of these files is compared
_ABOVE_GUESSING, _FAR_RISEN = 1.0, 2.0  # nats per word; a good training never shows such losses
_INFINITE = 1e30  # nats; JSON has no infinity


@dataclass
class Position:
    """The progress of a training."""

    update: int = 0
    epoch: int = 0  # completed epochs
    batch: int = 0  # completed batches of the current epoch
    seconds: float = 0.0
    skipped: int = 0
    bad_in_a_row: int = 0
    validated: int = -1  # update of the last validation
    validation_due: bool = False  # the validation of this update has not ended: a resumed run makes it first
    best_loss: float | None = None  # of the best validation
    best_bleu: float | None = None
    bleu_sentences: int = 0  # of best_bleu
    best_update: int = -1  # of the best validation; -1 = unknown
    since_best: int = 0
    finished: str | None = None
    rise: float = 0.0  # the share of the highest learning rate that the warm-up has reached
    excess: float | None = None  # nats per word of the last report above the loss of guessing among all words
    lowest_excess: float | None = None
    update_seconds: float = 0.0  # of a recent update; 0 = unknown
    validation_updates: float = 0.0  # the last validation takes as long as this number of updates: a load slows both

    def note_excess(self, excess: float) -> None:
        """Notes the loss of a report."""
        self.excess = excess if math.isfinite(excess) else _INFINITE
        self.lowest_excess = self.excess if self.lowest_excess is None else min(self.excess, self.lowest_excess)

    def patience_spent(self, patience: int) -> str | None:
        """The reason to end after `patience` validations without progress, in words, or None; 0 = never."""
        return f"{NO_PROGRESS} in {counted(patience, 'validation')}" if 0 < patience <= self.since_best else None

    @property
    def diverged(self) -> bool:
        """Whether the loss is not finite, is far above that of guessing, or has risen far above its lowest value."""
        if self.bad_in_a_row > 1:
            return True
        if self.excess is None or self.lowest_excess is None:
            return self.bad_in_a_row > 0
        return self.excess > min(_ABOVE_GUESSING, self.lowest_excess + _FAR_RISEN)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    position: Position
    fingerprint: str  # of the run that wrote it
    damage: str = ""  # the defect of a newer one or of the best weights, and what follows from it


def fingerprint_of(
    corpus: Corpus, model: ModelConfig, config: TrainingConfig, files: Mapping[str, str] | None = None
) -> str:
    """SHA-256 of what must be equal for a run to resume: corpus, model, and the settings that change the updates.

    `files` are the hashes of the files that settings name, by setting.
    """
    left_out = _MAY_CHANGE | _FILES | (set() if config.guided_alignment else {"guided_weight"})
    fixed = {name: value for name, value in asdict(config).items() if name not in left_out} | dict(files or {})
    text = json.dumps([corpus.hash, asdict(model), fixed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def create_run(
    folder: Path, corpus: Corpus, preset: str, model: ModelConfig, config: TrainingConfig, restart: bool = False
) -> None:
    """Creates the model directory of a new run, without weights; config.json, which makes it complete, comes last.

    Checkpoints of another run and incomplete files are removed, with `restart` all weights. Raises UsageError if
    training should start from them.
    """
    if restart and config.init_from and Path(config.init_from).resolve() == folder.resolve():
        rule = "training anew would remove this folder; give another folder for the new model"
        raise SettingError(rule, init_from=config.init_from)
    with files.disk_errors(folder):
        for path in folder.glob("*.safetensors" if restart else "training_state*.safetensors"):
            path.unlink(missing_ok=True)
    files.sweep(folder)
    names = [files.SOURCE_VOCABULARY, files.TARGET_VOCABULARY, *corpus.tokenizers.files()]
    hashes = json.loads(corpus.attributes["sha256"])
    for name in names:
        with files.atomic_path(folder / name, follow=False) as temporary:
            shutil.copyfile(corpus.folder / name, temporary)
            if files.sha256_of(temporary) != hashes.get(name):
                raise FormatError(f"{corpus.folder / name}: was replaced just now; repeat the command")
    for name in {*MODEL_FILES} - {*names}:  # of the tokeniser of an earlier corpus
        (folder / name).unlink(missing_ok=True)
    model_directory.write_settings(
        folder,
        {
            "preset": preset,
            "source_language": corpus.source_language,
            "target_language": corpus.target_language,
            "model": asdict(model),
            "training": asdict(config),
            "prep": dict(corpus.settings),
            "corpus": corpus.hash,
            "files": {name: hashes[name] for name in names},
        },
    )


def find_run(
    folder: Path, fingerprint: str, corpus: Corpus, model: ModelConfig, config: TrainingConfig
) -> Checkpoint | None:
    """The checkpoint from which the run in a folder resumes with these settings; None for a folder without a run.

    Raises UsageError if the folder contains another run, with the differences, or weights without config.json.
    """
    if not (folder / files.CONFIG).exists():
        weights = model_directory.STATE, model_directory.LAST, model_directory.BEST
        if found := [name for name in weights if (folder / name).exists()]:
            fix = "restore it, give another folder with -o, or replace the model with --force"
            raise UsageError(f"{folder}: contains {found[0]}, but no {files.CONFIG}; {fix}")
        return None
    settings = model_directory.read_settings(folder)
    sections = ("model", ModelConfig), ("training", TrainingConfig)
    if any(settings[key].keys() != definitions(cls).keys() for key, cls in sections):
        why = "contains a model of another version of nmtalign, whose training cannot be resumed"
        raise UsageError(f"{folder}: {why}; give another folder with -o, or replace it with --force")
    if checkpoint := find_checkpoint(folder):
        owner = checkpoint.fingerprint
    elif (folder / model_directory.BEST).exists():  # exported, or its checkpoints were removed
        raise UsageError(
            f"{folder}: this model has no training state, so its training cannot be resumed; a new training can begin "
            f"with it: give --init-from {folder}, and another folder with -o; or replace it with --force"
        )
    else:  # it ended before its first checkpoint; the last weights, if it had any, may be of another run
        owner = fingerprint
        with contextlib.suppress(FormatError):
            owner = model_directory.read_metadata(folder / model_directory.LAST).get("fingerprint", "")  # "": unknown
        if owner == fingerprint:
            return None  # nothing can be lost
    model_directory.check_files(folder, settings)
    if owner == fingerprint:
        return checkpoint
    changes = _changes(settings["model"], asdict(model)) + _changes(settings["training"], asdict(config))
    what = "with other settings"
    if settings["corpus"] != corpus.hash:
        what, changes = "on another corpus", _changes_of_corpus(folder, settings, corpus) + changes
    before = f"what it was trained with (--preset {settings['preset']})"
    fix = f"to continue it, give {before}; else give another folder with -o, or replace it with --force"
    raise UsageError(f"{folder}: contains a model trained {what}{': ' if changes else ''}{', '.join(changes)}; {fix}")


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings that prevent resuming, such as "learning_rate was 0.002, is 0.001"."""
    changes = []
    for name, value in now.items():
        if name in _FILES and before[name] == value and value:
            changes.append(f"{name} may name other content now")
        elif name not in _MAY_CHANGE and not name.endswith("_vocabulary_size") and before[name] != value:
            changes.append(f"{name} was {toml(before[name])}, is {toml(value)}")
    return changes


def _changes_of_corpus(folder: Path, settings: Mapping[str, Any], corpus: Corpus) -> list[str]:
    """The properties in which the corpus differs from that of a model directory."""
    before = f"{settings['source_language']}-{settings['target_language']}"
    now = f"{corpus.source_language}-{corpus.target_language}"
    changes = [] if before == now else [f"languages were {before}, are {now}"]
    prep = settings["prep"]
    changes += [
        f"{name} of prep was {toml(prep[name])}, is {toml(value)}"
        for name, value in corpus.settings.items()
        if name in prep and prep[name] != value
    ]
    for name, old, new in _other_words(folder, corpus):
        sizes = f" ({len(old):,} words, now {len(new):,})" if len(old) != len(new) else ""
        changes.append(f"the {name.partition('.')[0]} vocabulary is another{sizes}")
    return changes or ["the pairs are others"]


def _other_words(folder: Path, corpus: Corpus) -> Iterator[tuple[str, Vocabulary, Vocabulary]]:
    """Yields (file name, vocabulary of the model directory, vocabulary of the corpus) for each side that differs."""
    sides = (files.SOURCE_VOCABULARY, corpus.source_vocabulary), (files.TARGET_VOCABULARY, corpus.target_vocabulary)
    for name, new in sides:
        if (old := Vocabulary.load(folder / name)) != new:
            yield name, old, new


def find_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest complete checkpoint in a folder, with its checksum verified; None if there has never been one.

    If the best weights are missing or damaged, its position has no best validation, and a validation is due.
    Raises FormatError if all checkpoints are damaged.
    """
    wrong = list[str]()
    for path in filter(Path.exists, (folder / model_directory.STATE, folder / model_directory.PREVIOUS_STATE)):
        try:
            _, metadata = model_directory.map_arrays(path)
            position = resolve(Position, (str(path), files.parse_json(metadata["position"])))
            break
        except FormatError as error:
            wrong.append(str(error))
        except (AttributeError, KeyError, UsageError, ValueError):
            wrong.append(f"{path}: not a checkpoint of a training")
    else:
        if not wrong:
            return None
        rescue = f"to keep the best weights, give --init-from {folder} and another folder with -o"
        raise FormatError(f"{'; '.join(wrong)}; no checkpoint is complete: {rescue}; or train anew with --force")
    if wrong:
        wrong.append(f"resuming from the checkpoint before it, update {position.update}")
    try:
        if position.validated >= 0:
            model_directory.map_arrays(folder / model_directory.BEST)
    except FormatError as error:
        wrong.append(f"{error}; the best weights are chosen anew, from update {position.update} on")
        position = replace(position, validation_due=True, finished=None, best_update=-1, since_best=0)
        position.best_loss = position.best_bleu = None
    return Checkpoint(path, position, metadata.get("fingerprint", ""), "; ".join(wrong))


def clean_folder(folder: Path, checkpoint: Checkpoint) -> None:
    """Removes incomplete files of killed processes, and a newer checkpoint than this one, which is damaged.

    The next save would otherwise keep the damaged one instead of the complete one.
    """
    files.sweep(folder)
    if checkpoint.path.name != model_directory.STATE:
        with files.disk_errors(folder):
            (folder / model_directory.STATE).unlink(missing_ok=True)


def load_state(path: Path, model: TranslationModel, optimizer: Optimizer | None = None) -> None:
    """Restores the weights of a file, and of a checkpoint also the optimiser; raises FormatError if they do not fit."""
    tensors, values = model_directory.load_tensors(path)[0], defaultdict[int, dict[str, Tensor]](dict)
    try:
        if optimizer is None:
            model.load_state_dict(tensors)
            return
        weights = dict[str, Tensor]()
        for name, tensor in tensors.items():
            part, _, key = name.partition(".")
            if part == "optimizer":
                number, _, key = key.partition(".")
                values[int(number)][key] = tensor
            else:
                weights[key] = tensor
        model.load_state_dict(weights)
        optimizer.restore(values)
    except (ValueError, RuntimeError) as error:
        raise FormatError(f"{path}: does not fit this model: {' '.join(str(error).split())[:200]}") from None


def save_state(folder: Path, model: TranslationModel, optimizer: Optimizer, position: Position, run: str) -> Path:
    """Writes a complete checkpoint or none, and keeps the one before it; `run` is the fingerprint."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, values in optimizer.values().items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
    metadata = {"position": json.dumps(asdict(position)), "fingerprint": run}
    _save(folder / model_directory.STATE, tensors, metadata, keep=folder / model_directory.PREVIOUS_STATE)
    return folder / model_directory.STATE


def save_weights(path: Path, model: TranslationModel, update: int, run: str, calibration: str = "") -> None:
    """Writes the weights of the last update or of the best validation, which may have a calibration."""
    metadata = {"update": str(update), "fingerprint": run}
    metadata |= {model_directory.CALIBRATION: calibration} if calibration else {}
    _save(path, model.state_dict(), metadata)


def _save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], keep: Path | None = None) -> None:
    """Writes a file; an error of the disk also tells that the last checkpoint is kept."""
    try:
        model_directory.save_tensors(path, tensors, metadata, keep)
    except ResourceError as error:
        if not any(path.with_name(name).exists() for name in (model_directory.STATE, model_directory.PREVIOUS_STATE)):
            raise
        raise ResourceError(f"{error}; the last checkpoint is kept, and the same command resumes from it") from error


def first_weights(folder: Path, corpus: Corpus) -> Path:
    """The best weights of the model that `init_from` names; its words must be those of the corpus.

    Raises UsageError or FormatError with the difference.
    """
    model_directory.check_files(folder, model_directory.read_settings(folder))
    for name, _, _ in _other_words(folder, corpus):
        fix = f"prepare the texts with the words of the model: nmtalign prep ... --vocabulary-from {folder}"
        raise SettingError(f"its {name} has other words than {corpus.folder / name}; {fix}", init_from=str(folder))
    return model_directory.find_weights(folder)
