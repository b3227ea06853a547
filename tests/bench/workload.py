"""What is trained on: sizes of models, and batches of random words or of a prepared corpus."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmtalign.data.batches import Batch, BatchPolicy, eligible, make_batch, plan_epoch, useful_work
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

# The preset that a size takes its settings from, and the words a side that go with it.
SIZES = {"paper": ("rnnsearch-30", 30000), "small": ("small", 10000), "tiny": ("tiny", 2000)}
FIRST_WORD = 2  # 0 is `</s>`, 1 is `<unk>`


@dataclass(frozen=True)
class Size:
    """A model's and a training's settings; dropout and label smoothing are off unless they are asked for."""

    name: str
    model: ModelConfig
    training: TrainingConfig

    @classmethod
    def of(cls, name: str, vocabulary: int = 0, **options: Any) -> "Size":
        """The size `name` with a vocabulary of its own and with options such as cell="cudnn" (None = not given)."""
        if name not in SIZES:
            raise UsageError(f"unknown size '{name}': choose one of {', '.join(SIZES)}")
        preset_name, words = SIZES[name]
        given = {key: value for key, value in options.items() if value is not None}
        words = vocabulary or words
        sizes = {"source_vocabulary_size": words, "target_vocabulary_size": words}
        off = {"dropout": 0.0, "label_smoothing": 0.0}
        layers = [("preset", preset(preset_name)), ("benchmark", {**sizes, **off}), ("option", given)]
        return cls(name, resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers))

    def with_vocabularies(self, source: int, target: int) -> "Size":
        """The same with the vocabularies of a corpus."""
        model = dataclasses.replace(self.model, source_vocabulary_size=source, target_vocabulary_size=target)
        return dataclasses.replace(self, model=model)


@dataclass(frozen=True)
class Shape:
    """What a batch means for the matrix products: sentences, padded lengths (`</s>` counted), real target words."""

    sentences: int
    source: int
    target: int
    words: int

    @classmethod
    def of(cls, batch: Batch) -> "Shape":
        """The shape of a batch."""
        return cls(len(batch.source), batch.source.shape[1], batch.target.shape[1], int(batch.target_mask.sum()))


@dataclass(frozen=True)
class Workload:
    """The batches that every variant is given, and in words where they come from."""

    size: Size
    batches: Sequence[Batch]
    origin: str
    useful: float | None = None  # share of real words among padded positions, of the preset's own batches

    @property
    def shapes(self) -> list[Shape]:
        """One a batch."""
        return [Shape.of(batch) for batch in self.batches]

    @property
    def target_words(self) -> int:
        """Real target words of all batches, `</s>` counted."""
        return sum(shape.words for shape in self.shapes)

    @property
    def sentences(self) -> int:
        """Sentence pairs of all batches."""
        return sum(shape.sentences for shape in self.shapes)


def random_workload(size: Size, sentences: int, length: int, seed: int = 0) -> Workload:
    """One batch of random words, every sentence `length` long on both sides, its `</s>` counted."""
    if length < 2:
        raise UsageError(f"--length {length}: give at least 2, `</s>` is counted")
    generator = np.random.default_rng(seed)
    words = min(size.model.source_vocabulary_size, size.model.target_vocabulary_size)
    ids = generator.integers(FIRST_WORD, words, (sentences, 2, length - 1))
    batch = make_batch([(pair[0], pair[1]) for pair in ids])
    return Workload(size, [batch], f"random words, {sentences} sentences of {length} words a side")


def corpus_workload(size: Size, folder: Path, count: int, sentences: int | None, seed: int = 0) -> Workload:
    """`count` batches spread evenly over the first epoch of a prepared corpus, cut as the preset cuts them.

    `sentences` replaces the preset's batches by batches of so many sentences.
    """
    from nmtalign.data.corpus import Corpus

    corpus = Corpus.open(folder)
    size = size.with_vocabularies(len(corpus.source_vocabulary), len(corpus.target_vocabulary))
    policy = policy_of(size.training, sentences, seed)
    train = corpus.splits["train"]
    chosen = eligible(train, size.training.max_length)
    if not len(chosen):
        raise InputError(f"{folder}: no training pair within max_length = {size.training.max_length}")
    plan = plan_epoch(train, chosen, policy, 0)
    picked = np.unique(np.linspace(0, len(plan) - 1, count + 2).round().astype(int)[1:-1])
    batches = [make_batch([train.pair(int(index)) for index in plan[number]], plan[number]) for number in picked]
    unit = f"{policy.size} {policy.unit}"
    origin = f"{len(batches)} of the {len(plan)} batches of {folder} ({unit}, windows of {policy.window})"
    return Workload(size, batches, origin, useful_work(train, plan))


def policy_of(training: TrainingConfig, sentences: int | None, seed: int) -> BatchPolicy:
    """The batch policy of a training, or one of `sentences` sentences a batch."""
    size, unit = (sentences, "sentences") if sentences else (training.batch_size, training.batch_unit)
    return BatchPolicy(size, unit, training.window, training.shuffle, seed)
