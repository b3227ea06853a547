"""The run in a model directory, whether it resumes with given settings, and the files that a run begins with."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from nmtalign.core.model import TranslationModel
from nmtalign.data.corpus import Corpus, ReversedCorpus
from nmtalign.data.guide import Guide, read_guide
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import sha256_of
from nmtalign.model_directory import model_config
from nmtalign.model_files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY, check_files, find_weights, read_settings
from nmtalign.settings.definition import SettingError, field_names
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.tensor_file import load_tensors
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.training.directions import BACKWARD, turned_round
from nmtalign.training.state import Checkpoint, find_checkpoint, run_of_weights

MAY_CHANGE = frozenset(
    {"max_updates", "epochs", "max_time", "patience", "log_every"}
    | {"validate_every", "checkpoint_every", "bleu_sentences", "device", "threads"}
)
# Settings that name a file, whose content is compared instead; then settings that have no effect without others.
_FILES = frozenset({"guided_alignment", "init_from"})
_GUIDED = frozenset({"guided_weight", "guided_loss", "guided_reading"})
_AGREEING = frozenset({"agreement", "agreement_weight"})
# Settings of the model that earlier versions did not have, with the values that those versions used.
LATER: Mapping[str, object] = {
    "attention_temperature": 1.0,
    "coverage": "none",
    "readout_previous_word": True,
    "reverse_source": False,
}


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


def find_run(folder: Path, fingerprint: str, corpus: Corpus) -> Checkpoint | None:
    """The checkpoint from which the run in a folder resumes with these settings; None for a folder without a run.

    Raises UsageError if the folder contains another run.
    """
    if not (folder / CONFIG).exists():
        return None
    settings = read_settings(folder)
    found = find_checkpoint(folder, fingerprint)
    held = found.fingerprint if found else run_of_weights(folder)
    if held is None or (found is None and held == fingerprint):
        return None  # it ended before its first checkpoint, so nothing can be lost
    check_files(folder, settings)
    if held == fingerprint:
        return found
    what = "on another corpus" if settings.get("corpus") != corpus.hash else "with other settings"
    raise UsageError(
        f"{folder}: contains a model trained {what}; give another folder with -o, or replace it with --restart"
    )


# Settings in which a model may differ from the one whose weights it starts from; vocabularies are compared by word.
_MAY_DIFFER = {"dropout", "initialisation", "attention_temperature", "source_vocabulary_size", "target_vocabulary_size"}


@dataclass(frozen=True)
class Given:
    """The files that a training begins with: links that guide it, and weights of another model."""

    guide: Guide | None
    weights: Sequence[Path]  # files of the first weights of each direction; empty if they are drawn at random

    @classmethod
    def read(cls, corpus: Corpus, model: ModelConfig, config: TrainingConfig) -> "Given":
        """Reads the files that the settings name, and compares them with corpus and model.

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

    @property
    def identity(self) -> Mapping[str, str]:
        """SHA-256 of the files, by setting: a run resumes only with the same files."""
        found = {}
        if self.guide is not None:
            found["guided_alignment"] = self.guide.hash
        if self.weights:
            found["init_from"] = " ".join(map(sha256_of, self.weights))
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
        if name not in _MAY_DIFFER and getattr(there, name) != getattr(model, name):
            raise UsageError(
                f"init_from: {name} is {getattr(there, name)} in {folder} and {getattr(model, name)} here; "
                "give a model with the same settings"
            )
    for name, words in ((SOURCE_VOCABULARY, corpus.source_vocabulary), (TARGET_VOCABULARY, corpus.target_vocabulary)):
        if Vocabulary.load(folder / name) != words:
            raise UsageError(
                f"init_from: {folder / name} has other words than {corpus.folder / name}; "
                "give a model that was trained on a corpus of the same words"
            )
    return find_weights(folder, "best")
