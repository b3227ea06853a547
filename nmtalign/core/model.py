"""RNNsearch and RNNencdec: the whole model (PAPER sections 1-3)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.decoder import Decoder, Memory
from nmtalign.core.elementwise import wide
from nmtalign.core.encoder import Encoder
from nmtalign.core.initialisation import initialise
from nmtalign.core.posterior import force_posterior
from nmtalign.core.readout import Readout


@dataclass(frozen=True)
class Forced:
    """A forced decoding of B pairs."""

    log_probs: Tensor  # (B, Ty) of each target word, `</s>` included, 0 at padding
    weights: Tensor | None  # (B, Ty, Tx), None without attention


@dataclass(frozen=True)
class Loss:
    """Sums over the target words of a batch, `</s>` included."""

    objective: Tensor  # what is differentiated: nll, with label smoothing where it is on
    nll: Tensor  # negative log-likelihood, in nats
    weights: Tensor | None  # (Ty, B, Tx) of the same pass, with a gradient; None without attention


class Embedding(nn.Module):
    """E[word] + b: one bias a side, as in the paper's code."""

    def __init__(self, vocabulary_size: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.sparse = False  # whether the gradient is a sparse tensor of the rows that were read

    def forward(self, words: Tensor) -> Tensor:
        """Word ids (...) to vectors (..., m)."""
        return F.embedding(words, self.weight, sparse=self.sparse) + self.bias


@dataclass(frozen=True)
class _Unrolled:
    """All steps of a pass along given targets, word by word in order of time."""

    features: Tensor  # (N, output_rank or l)
    targets: Tensor  # (N,)
    weights: Tensor | None  # (Ty, B, Tx)


class TranslationModel(nn.Module):
    """Encoder, alignment model, decoder and readout; knows nothing of words or files.

    Activations are of the parameters' type, or, after `use_bf16`, bf16 around float32 parameters, states and softmax.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(config.source_vocabulary_size, config.embedding)
        self.target_embedding = Embedding(config.target_vocabulary_size, config.embedding)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, self.encoder.output_size)
        self.readout = Readout(config, self.encoder.output_size)
        self._activation_dtype: torch.dtype | None = None
        # No shape and no decision of a pass depends on what the masks hold: nothing waits for the device, at the cost
        # of computing the logits of padding too.
        self.static_shapes = False
        if not self.source_embedding.weight.is_meta:  # a skeleton is given its weights
            initialise(self, config.initialisation)

    def use_bf16(self, on: bool = True) -> None:
        """Computes the products in bf16; parameters, states, softmax and sums keep their own type."""
        self._activation_dtype = torch.bfloat16 if on else None

    def use_sparse_gradients(self, on: bool = True) -> None:
        """Gives the embeddings sparse gradients: of the words of a batch, not of the whole vocabulary."""
        self.source_embedding.sparse = self.target_embedding.sparse = on

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Reads the source: ids (B, Tx) and mask (B, Tx), True = a real token; every sentence ends with `</s>`."""
        padding = None if not self.static_shapes and bool(source_mask.all()) else ~source_mask
        embedded = self._dropout(self._activations(self.source_embedding(source)))
        annotations = self._dropout(self.encoder(embedded, padding))
        return self.decoder.remember(annotations, source_mask, padding)

    def loss(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, label_smoothing: float = 0.0
    ) -> Loss:
        """Negative log-likelihood of the target words (B, Ty), summed; `objective.backward()` gives gradients."""
        unrolled = self._unroll(source, source_mask, target, target_mask, None if self.static_shapes else target_mask)
        weights = target_mask.t().flatten().to(wide(unrolled.features.dtype)) if self.static_shapes else None
        objective, nll = self.readout.cross_entropy(unrolled.features, unrolled.targets, label_smoothing, weights)
        return Loss(objective, nll, unrolled.weights)

    @torch.no_grad()
    def force(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, posterior: bool = False
    ) -> Forced:
        """Scores given targets (B, Ty) word by word and keeps the alignment weights.

        `posterior` gives the weights as they are once each word is known (`nmtalign.core.posterior`).
        """
        if posterior and self.decoder.attention is not None:
            memory, words = self._read(source, source_mask, target)
            tokens, weights = force_posterior(self.decoder, self.readout, memory, words, target.t())
            return Forced(tokens.t().masked_fill(~target_mask, 0.0), weights.transpose(0, 1))
        unrolled = self._unroll(source, source_mask, target, target_mask, target_mask)
        tokens = self.readout.token_log_probs(unrolled.features, unrolled.targets)
        log_probs = tokens.new_zeros(target.shape[1], target.shape[0])
        log_probs[target_mask.t()] = tokens
        return Forced(log_probs.t(), None if unrolled.weights is None else unrolled.weights.transpose(0, 1))

    def _unroll(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, chosen: Tensor | None
    ) -> _Unrolled:
        """Runs the decoder along the targets; features of the chosen (B, Ty) words alone, or of all.

        What does not recur is done for all steps at once, before and after.
        """
        memory, words = self._read(source, source_mask, target)
        states, contexts, weights = self.decoder.unroll(memory, words)
        read, targets = (states, words, contexts), target.t()
        if chosen is None or (not self.static_shapes and bool(chosen.all())):
            rows = [x.flatten(0, 1) for x in (*read, targets)]
        else:
            index = chosen.t().flatten().nonzero().squeeze(1)
            rows = [x.flatten(0, 1).index_select(0, index) for x in (*read, targets)]
        state, word, context, picked = rows
        features = self.readout.features(state, word, context, self.config.dropout if self.training else 0.0)
        return _Unrolled(features, picked, weights)

    def _read(self, source: Tensor, source_mask: Tensor, target: Tensor) -> tuple[Memory, Tensor]:
        """The source as the decoder sees it, and the vectors (Ty, B, m) of each step's previous word."""
        memory = self.encode(source, source_mask)
        words = self._dropout(self._embed_target(target.t()[:-1]))
        return memory, torch.cat([self._first_word(len(target), memory)[None], words])

    def _embed_target(self, words: Tensor) -> Tensor:
        return self._activations(self.target_embedding(words))

    def _first_word(self, rows: int, memory: Memory) -> Tensor:
        """At the first step there is no previous word: its vector is zero, embedding bias and all."""
        return memory.annotations.new_zeros(rows, self.config.embedding)

    def _activations(self, x: Tensor) -> Tensor:
        return x if self._activation_dtype is None else x.to(self._activation_dtype)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training) if self.config.dropout else x
