"""What a training needs before its first update: pairs, batches, model, optimiser and updater. No file is written."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from nmtalign.core.devices import picks_bf16, precision_notices, use_threads
from nmtalign.data.batches import Batch, BatchPolicy, Indices, eligible, plan_epoch
from nmtalign.data.copy_ids import CopyIds
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.directions import directions_of, make_models
from nmtalign.training.distributed import World
from nmtalign.training.events import Figures, Started
from nmtalign.training.optimizers import make_optimizer
from nmtalign.training.runs import Given, find_run, fingerprint_of
from nmtalign.training.state import Checkpoint, Position
from nmtalign.training.updates import Updater
from nmtalign.version import __version__


class TrainingSetup:
    """The parts of a training; `build` makes the large ones. The vocabulary sizes of the model are the corpus'."""

    def __init__(
        self, corpus: Corpus, folder: Path, model_config: ModelConfig, config: TrainingConfig, world: World
    ) -> None:
        """Raises UsageError, InputError or FormatError for settings and files that do not fit the corpus."""
        use_threads(config.threads)
        self.corpus, self.folder, self.config, self._world = corpus, folder, config, world
        self.device = world.device
        self.patience = config.patience if len(corpus.splits.get("dev") or ()) else 0  # without dev, nothing is judged
        self.bf16 = picks_bf16(config.precision, world.device)
        sizes = len(corpus.source_vocabulary), len(corpus.target_vocabulary)
        one = model_config.shared_embeddings and corpus.source_vocabulary == corpus.target_vocabulary
        self.model_config = replace(
            model_config, source_vocabulary_size=sizes[0], target_vocabulary_size=sizes[1], one_embedding=one
        )
        self.given = Given.read(corpus, self.model_config, config, folder)
        self.fingerprint = fingerprint_of(corpus, self.model_config, config, self.given.identity)
        self.pairs = corpus.splits["train"]
        self.chosen = eligible(self.pairs, corpus.tokenizers.most_tokens(config.max_length))
        if not len(self.chosen):
            raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}")
        self._policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
        self._copies = CopyIds(corpus, self.pairs) if model_config.copy else None

    def complete(self, batch: Batch) -> Batch:
        """Adds the guide, and the ids of a copying model, to a batch."""
        for step in (self.given.guide, self._copies):
            batch = batch if step is None else step(batch)
        return batch

    def found(self) -> Checkpoint | None:
        """The checkpoint from which the run in the folder resumes; raises UsageError if it contains another run."""
        return find_run(self.folder, self.fingerprint, self.corpus, self.model_config, self.config)

    def build(self, notice: Callable[[str], None]) -> None:
        """Makes the model with its first weights, the optimiser and the updater; `notice` is that of `Updater`."""
        torch.manual_seed(self.config.seed)
        self.model = make_models(self.model_config, self.config)
        self.directions = directions_of(self.model, self.folder, self.corpus)
        self.given.start([direction.model for direction in self.directions])
        self.model.to(self.device)
        self.dtype = torch.bfloat16 if self.bf16 else None
        self.optimizer = make_optimizer(self.model.parameters(), self.config)
        self.updater = Updater(self.model, self.optimizer, self.config, self._world, notice, self.dtype)

    def notices(self) -> list[str]:
        """What a user should know before the first update: why it is slow on its device, and how links were read."""
        return [*precision_notices(self.config.precision, self.device), *self.given.notes()]

    def excess(self, found: Figures) -> float:
        """The loss per word above that of guessing among all words; of two directions the larger one."""
        above = found.loss - math.log(self.model_config.target_vocabulary_size)
        if found.backward_loss is None:
            return above
        return max(above, found.backward_loss - math.log(self.model_config.source_vocabulary_size))

    def describe_divergence(self, position: Position) -> str:
        """Reports that a training has diverged, and what to do, in one line."""
        found = "the training has diverged"
        if position.diverged and position.excess is not None and position.lowest_excess is not None:
            above = position.excess > 0
            nats = position.excess if above else position.excess - position.lowest_excess
            than = "that of guessing" if above else "its lowest value"
            found += f": the loss is {nats:,.1f} nats per word above {than}"
        found += f"; lower --learning-rate (it was {self.config.learning_rate:g}) and train anew with --restart"
        guessing = math.log(self.model_config.target_vocabulary_size)
        if position.best_update >= 0 and position.best_loss is not None and position.best_loss < guessing:
            found += f"; the best weights, of update {position.best_update} with dev loss "
            found += f"{position.best_loss:.3f}, are kept"
        return found

    def plan(self, epoch: int) -> Sequence[Indices]:
        """The minibatches of an epoch; this takes seconds for millions of pairs."""
        return plan_epoch(self.pairs, self.chosen, self._policy, epoch)

    def started(self, when: tuple[int, float, float], resumed: bool, budget: str) -> Started:
        """The event of the beginning of a training, with its limits in words."""
        return Started(
            *when,
            resumed=resumed,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            pairs=len(self.chosen),
            left_out=len(self.pairs) - len(self.chosen),
            device=str(self.device),
            precision="bf16" if self.bf16 else "fp32",
            threads=torch.get_num_threads(),
            version=__version__,
            torch=torch.__version__,
            seed=self.config.seed,
            processes=self._world.size,
            budget=budget,
        )
