"""The workload of training: model sizes, and batches of random words or of a prepared corpus."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmtalign.core.model import Batch, make_batch
from nmtalign.data.batches import eligible, plan_epoch
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

# The preset of each size, and its number of words per side.
SYSTEM_SIZES = ("sutskever", "luong-global", "luong-local-m", "luong-local-p", "gnmt", "light", "transformer-tiny")
SIZES = {"paper": ("rnnsearch-30", 30000), "small": ("small", 10000), "tiny": ("tiny", 2000)}
SIZES |= {name: (name, 10000) for name in SYSTEM_SIZES}
FIRST_WORD = 2  # 0 is `</s>`, 1 is `<unk>`


@dataclass(frozen=True)
class Size:
    """The settings of a model and its training; dropout and label smoothing are off unless they are given."""

    name: str
    model: ModelConfig
    training: TrainingConfig

    @classmethod
    def of(cls, name, vocabulary=0, **options):
        """Returns the size `name` with a vocabulary size and with options such as cell="cudnn" (None = not given)."""
        if name not in SIZES:
            raise UsageError(f"unknown size '{name}': choose one of {', '.join(SIZES)}")
        preset_name, words = SIZES[name]
        given = {key: value for key, value in options.items() if value is not None}
        words = vocabulary or words
        sizes = {"source_vocabulary_size": words, "target_vocabulary_size": words}
        off = {"dropout": 0.0, "label_smoothing": 0.0}
        layers = [("preset", preset(preset_name)), ("benchmark", {**sizes, **off}), ("option", given)]
        return cls(name, resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers))

    def with_vocabularies(self, source, target):
        """Returns the same size with the vocabularies of a corpus."""
        return replace(self, model=replace(self.model, source_vocabulary_size=source, target_vocabulary_size=target))


@dataclass(frozen=True)
class Shape:
    """The shape of a batch: the number of sentences, padded lengths (with `</s>`), the number of real target words."""

    sentences: int
    source: int
    target: int
    words: int

    @classmethod
    def of(cls, batch):
        """Returns the shape of a batch."""
        return cls(len(batch.source), batch.source.shape[1], batch.target.shape[1], int(batch.target_mask.sum()))


@dataclass(frozen=True)
class Workload:
    """The batches of all variants, and a description of their origin."""

    size: Size
    batches: Sequence[Batch]
    origin: str

    @property
    def shapes(self):
        """The shape of each batch."""
        return [Shape.of(batch) for batch in self.batches]

    @property
    def target_words(self):
        """The number of real target words of all batches, with `</s>`."""
        return sum(shape.words for shape in self.shapes)

    @property
    def sentences(self):
        """The number of sentence pairs of all batches."""
        return sum(shape.sentences for shape in self.shapes)


def random_workload(size, sentences, length, seed=0):
    """Returns one batch of random words; every sentence has `length` words on both sides, with `</s>`."""
    if length < 2:
        raise UsageError(f"--length {length}: give at least 2, because `</s>` is counted")
    generator = np.random.default_rng(seed)
    words = min(size.model.source_vocabulary_size, size.model.target_vocabulary_size)
    ids = generator.integers(FIRST_WORD, words, (sentences, 2, length - 1))
    batch = make_batch([(pair[0], pair[1]) for pair in ids])
    return Workload(size, [batch], f"random words, {sentences} sentences of {length} words per side")


def corpus_workload(size, folder, count, sentences, seed=0):
    """Returns `count` batches, spread evenly over the first epoch of a prepared corpus, with the preset's batch sizes.

    With `sentences`, every batch has this number of sentences instead.
    """
    from nmtalign.data.corpus import Corpus

    corpus = Corpus.open(folder)
    size = size.with_vocabularies(len(corpus.source_vocabulary), len(corpus.target_vocabulary))
    unit = {"batch_size": sentences, "batch_unit": "sentences"} if sentences else {}
    policy = replace(size.training, **unit, seed=seed)
    train = corpus.splits["train"]
    chosen = eligible(train, size.training.max_length)
    if not len(chosen):
        raise InputError(f"{folder}: no training pair within max_length = {size.training.max_length}")
    plan = plan_epoch(train, chosen, policy, 0)
    picked = np.unique(np.linspace(0, len(plan) - 1, count + 2).round().astype(int)[1:-1])
    batches = [make_batch([train.pair(int(index)) for index in plan[number]]) for number in picked]
    each = f"{policy.batch_size} {policy.batch_unit}"
    origin = f"{len(batches)} of the {len(plan)} batches of {folder} ({each}, windows of {policy.window})"
    return Workload(size, batches, origin)
