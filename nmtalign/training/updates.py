"""What a training needs, and one update: the loss of a group of minibatches, its gradient, the optimiser's step."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmtalign.core.model import Batch, Indices, TranslationModel
from nmtalign.core.numerics import LEAST, picks_bf16
from nmtalign.data.batches import CopyIds, eligible, load_batches, plan_epoch
from nmtalign.data.corpus import CORPUS_FILE, Corpus
from nmtalign.errors import InputError, UsageError
from nmtalign.files import CONFIG, sha256_of
from nmtalign.settings.definition import SettingError
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training import checkpoints
from nmtalign.training.checkpoints import Checkpoint, Position
from nmtalign.training.distributed import World
from nmtalign.training.graphs import CPU_ROWS, ROWS, GraphedLoss, Objective, pad_to_bucket
from nmtalign.training.guide import Guide, read_guide
from nmtalign.training.optimizers import descend, make_optimizer

_FAR = 10  # times the length limit of training; the time of a validation grows with the square of a length


def guidance(weights: Tensor, guide: Tensor) -> Tensor:
    """Guided alignment (Chen et al. 2016): the cross-entropy of attention weights against given links, in nats.

    It is summed over the target tokens that have links, for weights (Ty, B, Tx) and guide (B, Ty, Tx) bool. A token's
    links are equally probable. No shape depends on the content of the guide.
    """
    linked = guide.transpose(0, 1)
    shares = linked / linked.sum(-1, keepdim=True).clamp_min(1)
    return -(weights.clamp_min(LEAST).log() * shares.to(weights.dtype)).sum()


def batch_loss(
    model: TranslationModel, config: TrainingConfig, dtype: torch.dtype | None, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """(objective, sums over the target words in nats): negative log-likelihood and, with a guide, its cost.

    `inputs` are those of `Batch.inputs`. The sums are a number without a guide, and a vector of two with it.
    """
    count = 5 if model.config.copy else 4  # the rest is the guide
    loss = model.loss(*inputs[:count], label_smoothing=config.label_smoothing, dtype=dtype)
    objective, nll = loss.objective, loss.nll.detach()
    if len(inputs) == count or loss.weights is None:
        return objective, nll
    cost = guidance(loss.weights, inputs[count])
    return objective + config.guided_weight * cost, torch.stack([nll, cost.detach()])


def add_gradient(loss: Objective, device: torch.device, batch: Batch, weight: float = 1.0) -> Tensor:
    """Adds the gradient of weight * objective to that of the parameters, and returns the sums of the loss.

    If the loss is not finite, no part of the gradient is finite.
    """
    objective, sums = loss(*(tensor.to(device, non_blocking=True) for tensor in batch.inputs()))
    (objective * (objective.detach() * 0 + weight)).backward()  # `backward(gradient)` would import SymPy
    return sums.detach()


class TrainingSetup:
    """What a training needs before its first update, and how it makes an update.

    `build` makes the large parts. No file is written. The vocabulary sizes of the model are those of the corpus.
    """

    def __init__(
        self, corpus: Corpus, folder: Path, model_config: ModelConfig, config: TrainingConfig, world: World
    ) -> None:
        """Raises UsageError, InputError or FormatError for settings and files that do not fit the corpus."""
        if (folder / CORPUS_FILE).exists() and not (folder / CONFIG).exists():
            raise UsageError(f"{folder}: contains a prepared corpus; give another folder for the model with -o")
        self.corpus, self.folder, self.config, self.world = corpus, folder, config, world
        self.device = world.device
        self.patience = config.patience if len(corpus.splits.get("dev") or ()) else 0  # without dev, nothing is judged
        self.dtype = torch.bfloat16 if picks_bf16(config.precision, world.device, model_config.hidden) else None
        source, target = corpus.source_vocabulary, corpus.target_vocabulary
        self.model_config = replace(
            model_config,
            source_vocabulary_size=len(source),
            target_vocabulary_size=len(target),
            one_embedding=model_config.shared_embeddings and source == target,
        )
        files = dict[str, str]()  # the SHA-256 of links and first weights: a run resumes only with the same files
        self.guide: Guide | None = None
        if config.guided_alignment:
            if model_config.attention == "none":
                rule, links = "links can guide only a model with attention", config.guided_alignment
                raise SettingError(rule, guided_alignment=links, attention=model_config.attention)
            self.guide = read_guide(Path(config.guided_alignment), corpus)
            files["guided_alignment"] = self.guide.hash
        self._first_weights: Path | None = None
        if config.init_from:
            self._first_weights = checkpoints.first_weights(Path(config.init_from), corpus)
            files["init_from"] = sha256_of(self._first_weights)
        self.fingerprint = checkpoints.fingerprint_of(corpus, self.model_config, config, files)
        self.pairs = corpus.splits["train"]
        self.chosen = eligible(self.pairs, corpus.tokenizers.most_tokens(config.max_length))
        if not len(self.chosen):
            raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}; raise it")
        # What is added to each batch: its guide, the ids of a copying model, and padding. For each shape of batch a GPU
        # records a graph, and oneDNN makes kernels in bf16, which it cannot keep for all.
        self.additions: list[Callable[[Batch], Batch]] = [self.guide] if self.guide else []
        if model_config.copy:
            self.additions.append(CopyIds(corpus, self.pairs))
        if self.dtype or self.device.type == "cuda":
            self.additions.append(partial(pad_to_bucket, step=ROWS if self.device.type == "cuda" else CPU_ROWS))

    def find_run(self) -> Checkpoint | None:
        """The checkpoint from which the run in the folder resumes; UsageError if the folder contains another run."""
        return checkpoints.find_run(self.folder, self.fingerprint, self.corpus, self.model_config, self.config)

    def build(self, notice: Callable[[str], None]) -> None:
        """Makes the model with its first weights and the optimiser.

        It seeds PyTorch's random generators (see `keeping_generators`). `notice` is called with one line if training is
        slower than it could be.
        """
        torch.manual_seed(self.config.seed)
        self.model = TranslationModel(self.model_config)
        if self._first_weights:
            checkpoints.load_state(self._first_weights, self.model)
        self.model.to(self.device)
        self.optimizer = make_optimizer(self.model.parameters(), self.config)
        loss = partial(batch_loss, self.model, self.config, self.dtype)
        self._compute: Callable[[Batch, float], Tensor] = partial(add_gradient, loss, self.device)
        if self.device.type == "cuda":
            self._compute = GraphedLoss(self.model, loss, self._compute, notice)

    def notices(self) -> Iterator[str]:
        """Yields lines about converted links, and about long dev sentences, with which validations may take long."""
        if self.guide and self.guide.note:
            yield self.guide.note
        most, dev = self.corpus.tokenizers.most_tokens(self.config.max_length), self.corpus.splits.get("dev")
        longest = max(int(side.lengths.max()) for side in (dev.source, dev.target)) if dev else 0
        if longest > _FAR * most > 0:
            sizes = f"dev has sentences of up to {longest:,} tokens, training of up to {most:,}"
            yield f"{sizes}: validations may take long"

    def describe_divergence(self, position: Position) -> str:
        """Reports that a training has diverged, and what to do, in one line."""
        rate = f"lower learning_rate (it was {self.config.learning_rate:g})"
        text = f"the training has diverged; {rate} and train anew with --force"
        best, guessing = position.best_loss, math.log(self.model_config.target_vocabulary_size)
        if position.best_update >= 0 and best is not None and best < guessing:
            text += f"; the best weights, of update {position.best_update} with dev loss {best:.3f}, are kept"
        return text

    def plan(self, epoch: int) -> Sequence[Indices]:
        """The minibatches of an epoch; this takes seconds for millions of pairs."""
        return plan_epoch(self.pairs, self.chosen, self.config, epoch)

    def groups(self, plan: Sequence[Indices]) -> Iterator[Sequence[Indices]]:
        """The minibatches of each update; the last group has the rest."""
        size = self.config.accumulate
        return (plan[start : start + size] for start in range(0, len(plan), size))

    def batches(self, plan: Iterable[Indices]) -> Iterator[Batch]:
        """The rows of the planned minibatches that this process computes."""
        # A minibatch may have fewer pairs than there are processes.
        shares = filter(len, map(self.world.share, plan))
        return load_batches(self.pairs, shares, self.device.type == "cuda", self.additions)

    def update(
        self, group: Sequence[Indices], batches: Iterator[Batch], rate: float
    ) -> tuple[float, Sequence[tuple[Batch, Tensor]]]:
        """Makes an update with the next minibatches, those of the group, unless its gradient is not finite.

        The update is that of one minibatch of their union. Returns the norm of the gradient before clipping, and the
        minibatches of this process with their sums.
        """
        minibatches = self.gradient(group, batches)
        norm = descend(self.optimizer, rate, self.config.clip_norm)
        return float(norm), minibatches  # only here the host waits for a GPU, after it has launched everything

    def gradient(self, group: Sequence[Indices], batches: Iterator[Batch]) -> Sequence[tuple[Batch, Tensor]]:
        """Adds the gradient of the group to that of the parameters; returns the minibatches with their sums."""
        sentences = sum(map(len, group))
        words = sentences + sum(int(self.pairs.target.lengths[indices].sum()) for indices in group)  # with `</s>`
        weight = 1 / {"sentences": sentences, "tokens": words, "sum": 1}[self.config.loss_normalization]
        own = sum(len(indices) > self.world.rank for indices in group)  # minibatches with rows for this process
        minibatches = [(batch, self._compute(batch, weight)) for batch in islice(batches, own)]
        if self.world.size > 1:
            self.world.reduce_gradients(list(self.model.parameters()))
        return minibatches


def seed_dropout(seed: int, update: int, rank: int, device: torch.device) -> None:
    """Seeds each update of each process differently, so that a resumed run draws the same numbers again."""
    drawn = int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)
    elif device.type == "mps":
        torch.mps.manual_seed(drawn)
