"""What a training is given beside its corpus: links that guide it, and another model's weights to start from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmtalign.checks import SettingError
from nmtalign.config import ModelConfig, TrainingConfig, field_names
from nmtalign.core.model import TranslationModel
from nmtalign.data.corpus import Corpus
from nmtalign.data.guide import Guide, read_guide
from nmtalign.data.reversed import ReversedCorpus
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import sha256_of
from nmtalign.model_directory import load_tensors, model_config
from nmtalign.model_files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY, check_files, find_weights, read_settings
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.training.both import BACKWARD, turned_round

# What may differ between two models of which one has the other's weights; of the vocabularies each word is compared.
_MAY_DIFFER = {"dropout", "initialisation", "attention_temperature", "source_vocabulary_size", "target_vocabulary_size"}


@dataclass(frozen=True)
class Given:
    """The files that a training reads when it begins."""

    guide: Guide | None  # None where training is not guided
    weights: Sequence[Path]  # the files of the first weights of every direction; none where they are drawn

    @classmethod
    def read(cls, corpus: Corpus, model: ModelConfig, config: TrainingConfig) -> "Given":
        """What the settings name, checked against corpus and model.

        Raises UsageError, InputError or FormatError, naming the file, for what does not fit.
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
                    f"{config.init_from} holds no {BACKWARD}/, the other direction, to start from; give a model that "
                    "was trained with agreement",
                    init_from=config.init_from,
                    agreement=True,
                )
            other = ReversedCorpus(corpus, corpus.folder)
            weights.append(_weights_of(Path(config.init_from) / BACKWARD, other, turned_round(model)))
        return cls(guide, weights)

    @property
    def identity(self) -> Mapping[str, str]:
        """SHA-256 of what was read, by setting: a run goes on with the same alone."""
        found = {}
        if self.guide is not None:
            found["guided_alignment"] = self.guide.hash
        if self.weights:
            found["init_from"] = " ".join(map(sha256_of, self.weights))
        return found

    @torch.no_grad()
    def start(self, models: Sequence[TranslationModel]) -> None:
        """Gives the models of all directions their first weights; raises FormatError where they are of other sizes."""
        for path, model in zip(self.weights, models, strict=False):
            given, present = load_tensors(path)[0], model.state_dict()
            sizes, expected = ({name: tuple(x.shape) for name, x in part.items()} for part in (given, present))
            if sizes != expected:
                name = min(name for name in sizes | expected if sizes.get(name) != expected.get(name))
                raise FormatError(f"{path}: {name} is {sizes.get(name)} there and {expected.get(name)} here")
            for name, tensor in present.items():
                tensor.copy_(given[name])


def _weights_of(folder: Path, corpus: Corpus, model: ModelConfig) -> Path:
    """The best weights of a model directory whose words and sizes are those of corpus and model."""
    settings = read_settings(folder)
    check_files(folder, settings)
    there = model_config(folder, settings)
    for name in field_names(ModelConfig):
        if name not in _MAY_DIFFER and getattr(there, name) != getattr(model, name):
            raise UsageError(
                f"init_from: {name} is {getattr(there, name)} in {folder} and {getattr(model, name)} here; "
                "weights fit a model of the same settings alone"
            )
    for name, words in ((SOURCE_VOCABULARY, corpus.source_vocabulary), (TARGET_VOCABULARY, corpus.target_vocabulary)):
        if Vocabulary.load(folder / name) != words:
            raise UsageError(
                f"init_from: {folder / name} holds other words than {corpus.folder / name}; "
                "give a model that was trained on a corpus of the same words"
            )
    return find_weights(folder, "best")
