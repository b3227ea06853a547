"""The complete model: word vectors, encoder, decoder and readout, its loss and forced decoding.

Read this file first. RNNsearch and RNNencdec (sections 2.2 and 3, appendix A) are its default parts: the recurrent
encoder in this file turns the source into annotations, the decoder (`decoder`) runs along the target words, updates its
state (`cells`) and attends to the annotations (`attention`), and the readout (`readout`) gives the probabilities of the
words. `reference` computes RNNsearch with plain loops. Other systems have other parts with the same interface, which
the constructor chooses. Search uses a model that is prepared for it (`inference`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from nmtalign.core.attention import Memory
from nmtalign.core.cells import CELLS, unroll
from nmtalign.core.copying import Copying, known_words
from nmtalign.core.decoder import Decoder, DecoderOutput, Encoded, RecurrentDecoder, Stack, make_decoder
from nmtalign.core.functional import fast_dropout, wide
from nmtalign.core.initialisation import Initialised, Role, initialise, narrowed
from nmtalign.core.latent_alignment import Alternatives, Latent
from nmtalign.core.readout import Readout, TiedReadout, joint_log_probs, linear_cross_entropy
from nmtalign.core.transformer import TransformerDecoder, TransformerEncoder
from nmtalign.settings.training_settings import ModelConfig


@dataclass(frozen=True)
class Forced:
    """The result of decoding B given target sentences."""

    log_probs: Tensor  # (B, Ty), of each target word, `</s>` included; 0 at padding
    weights: Tensor | None  # (B, Ty, Tx), None without attention


@dataclass(frozen=True)
class Loss:
    """Sums over the target words of a batch, `</s>` included."""

    objective: Tensor  # the loss with a gradient: nll, with label smoothing if it is on
    nll: Tensor  # negative log-likelihood, in nats
    weights: Tensor | None  # (Ty, B, Tx), with a gradient; None without attention


@dataclass(frozen=True)
class Outputs:
    """The inputs of the softmax for N given target words."""

    features: Tensor  # (N, r); of the C alternatives of each word (N, C, r)
    targets: Tensor  # (N,)
    # The terms of `linear_cross_entropy`: log-probabilities (N, C) of the alternatives, and (N, C + 1) with that of
    # copying the word; None if there is only one softmax.
    log_terms: Tensor | None = None


class Embedding(Initialised):
    """E[word] + b: one bias per side, as in the released code."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": Role.EMBEDDING, "bias": Role.BIAS}

    def __init__(self, vocabulary_size: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, words: Tensor) -> Tensor:
        """Word ids (...) to vectors (..., m)."""
        return F.embedding(words, self.weight) + self.bias


class RecurrentEncoder(nn.Module):
    """Forward and backward gated recurrent nets over one shared embedding (section 3.2, appendix A.2.1).

    Both directions run as one batch: step t of the forward net beside step Tx - 1 - t of the backward net. A single
    direction is the forward one, or the backward one if the source is reversed (Sutskever et al. 2014). The annotation
    of a word is at the position of the word in either case. Further layers have one direction, that of the first net.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # For each direction, whether it reads the source from the end.
        self._backward = (False, True) if config.bidirectional else (config.reverse_source,)
        self.directions = len(self._backward)
        self.size, above = config.hidden, config.layers - 1
        self.cell = CELLS[config.cell](config.embedding, config.hidden, directions=self.directions)
        sizes = [self.directions * self.size, *[self.size] * (above - 1)][:above]
        self.upper = Stack(config, sizes, 1, directions=1)
        # Width of an annotation: 2n, or n if its layer has one direction.
        self.output_size = self.size if above else self.directions * self.size

    def forward(self, embedded: Tensor, padding: Tensor | None) -> Encoded:
        """Annotations (B, Tx, 2n) of embedded words (B, Tx, m); padding (B, Tx), where True, changes no state."""
        batch = len(embedded)
        inputs = self.cell.inputs(self._in_order(embedded.transpose(0, 1), self._backward))
        skip = None if padding is None else self._in_order(padding.t(), self._backward)[..., None]
        initial = embedded.new_zeros(self.directions, batch, self.cell.state_size, dtype=wide(embedded.dtype))
        outputs, last = unroll(self.cell, inputs, initial, skip)
        annotations = self._annotations(outputs, self._backward)
        if not len(self.upper.cells):
            return Encoded(annotations, (last[-1],))
        order = self._backward[:1]
        skip = None if padding is None else self._in_order(padding.t(), order)[..., None]
        x = self._in_order(annotations.transpose(0, 1), order)
        outputs, lasts = self.upper(x, [initial[:1]] * len(self.upper.cells), skip)
        return Encoded(self._annotations(outputs, order), (last[-1], *(one[0] for one in lasts)))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of products."""
        return self.cell.input_weight.dtype

    def _in_order(self, steps: Tensor, backward: Sequence[bool]) -> Tensor:
        """The inputs of each direction in the order of its steps: (Tx, ...) to (Tx, D, ...)."""
        return torch.stack([steps.flip(0) if back else steps for back in backward], 1)

    def _annotations(self, outputs: Tensor, backward: Sequence[bool]) -> Tensor:
        """The outputs of all directions at the positions of the words: (Tx, D, B, n) to (B, Tx, D n)."""
        ways = [way.flip(0) if back else way for way, back in zip(outputs.unbind(1), backward, strict=True)]
        return torch.stack([way.transpose(0, 1) for way in ways], 2).flatten(2)


class TranslationModel(nn.Module):
    """Encoder, decoder and readout over word ids."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if not config.one_embedding:
            self.source_embedding = Embedding(config.source_vocabulary_size, config.embedding)
        self.target_embedding = Embedding(config.target_vocabulary_size, config.embedding)
        if config.one_embedding:  # without a second name for its weights, so that they are saved and counted once
            self.__dict__["source_embedding"] = self.target_embedding
        transforms = config.architecture == "transformer"
        self.encoder = TransformerEncoder(config) if transforms else RecurrentEncoder(config)
        size = self.encoder.output_size
        self.decoder: Decoder = TransformerDecoder(config, size) if transforms else make_decoder(config, size)
        self._dropout_rate = 0.0 if transforms else config.dropout  # a Transformer's layers drop
        tied = config.shared_embeddings
        self.readout = TiedReadout(config, size, self.target_embedding) if tied else Readout(config, size)
        self.copying = Copying(config, size) if config.copy else None
        self.latent = None if config.attention_kind == "soft" else Latent(config)
        if not self.source_embedding.weight.is_meta:  # a model on the meta device receives its weights later
            initialise(self, config.initialisation)

    def encode(
        self, source: Tensor, source_mask: Tensor, copies: Tensor | None = None, static_shapes: bool | None = None
    ) -> Memory:
        """The memory of sentences that end with `</s>`: ids (B, Tx) and mask (B, Tx), True = a real token.

        `copies` (B, Tx) are the ids that a copying model copies from each place. With `static_shapes`, which a GPU has
        by default, no shape depends on the content of the masks: the host never waits for the device, a CUDA graph can
        record the pass, and the logits of padding are computed too.
        """
        static = source.is_cuda if static_shapes is None else static_shapes
        padding = None if not static and bool(source_mask.all()) else ~source_mask
        encoded = self.encoder(self._dropout(self._embed(self.source_embedding, source)), padding)
        encoded = encoded._replace(annotations=self._dropout(encoded.annotations))
        return replace(self.decoder.remember(encoded, source_mask, padding), copies=copies)

    def loss(
        self,
        source: Tensor,
        source_mask: Tensor,
        target: Tensor,
        target_mask: Tensor,
        copies: Tensor | None = None,
        *,
        label_smoothing: float = 0.0,
        dtype: torch.dtype | None = None,
        static_shapes: bool | None = None,
    ) -> Loss:
        """Negative log-likelihood of the target words (B, Ty), summed; `objective.backward()` gives gradients.

        `dtype` is that of the products, None = that of the parameters; states, softmax and sums are float32 even beside
        bf16. See `encode` for the other arguments.
        """
        if dtype is not None:  # the same, with parameters that are narrower for this call
            options = {"label_smoothing": label_smoothing, "static_shapes": static_shapes}
            arguments = source, source_mask, target, target_mask, copies
            narrow: Loss = functional_call(self, narrowed(self, dtype), arguments, options)
            return narrow
        static = source.is_cuda if static_shapes is None else static_shapes
        run = self._run(source, source_mask, target, copies, static)
        alternatives = self._alternatives(run, draw=self.training)
        outputs = self._outputs(run, target, alternatives, None if static else target_mask)
        row_weights = target_mask.t().flatten().to(wide(outputs.features.dtype)) if static else None
        softmax = self.readout.output_weight, self.readout.output_bias
        objective, nll, log_probs = linear_cross_entropy(
            outputs.features, *softmax, outputs.targets, label_smoothing, row_weights, outputs.log_terms
        )
        if alternatives is not None and alternatives.drawn and run.weights is not None:
            rewards = _of_words(log_probs, None if static else target_mask, target)
            objective = objective + alternatives.cost_of_draws(run.weights.transpose(0, 1), rewards, target_mask)
        return Loss(objective, nll, run.weights)

    forward = loss

    @property
    def has_posterior(self) -> bool:
        """Whether there are weights given the word, `force_posterior`.

        With soft attention only the paper's decoders have posteriors. A copying one copies with the weights
        themselves, which are its posteriors, too.
        """
        return self.latent is not None or self.decoder.has_posterior

    @torch.no_grad()
    def force(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, copies: Tensor | None = None
    ) -> Forced:
        """The log-probability of each target word (B, Ty), and the weights with which it was generated."""
        run = self._run(source, source_mask, target, copies)
        tokens = self._log_joint(self._outputs(run, target, self._alternatives(run), target_mask)).logsumexp(-1)
        log_probs = _of_words(tokens, target_mask, target)
        return Forced(log_probs, None if run.weights is None else run.weights.transpose(0, 1))

    @torch.no_grad()
    def force_posterior(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, copies: Tensor | None = None
    ) -> Forced:
        """As `force`, but the weights are posteriors given each target word.

        Models without `has_posterior` have none: their weights are those of `force`.

        The weights of a step are chosen before its word is known: weights[t, j] is the prior probability that the word
        y_t comes from the source word j. By Bayes' rule posterior[t, j] is proportional to weights[t, j] * p(y_t |
        context = annotations[j]) (Shankar & Sarawagi 2019 train with it). The exact p would take a softmax for each of
        Tx annotations. To the first order around the context c_t, log p(y_t | annotations[j]) is log p(y_t | c_t) +
        g_t . (annotations[j] - c_t). The gradient g_t = d log p(y_t) / d c_t takes one softmax. With marginal or hard
        attention the p of the most probable positions are exact, and the others share the p of their mean.
        """
        decoder = self.decoder
        if self.latent is not None:
            return self._exact_posterior(self._run(source, source_mask, target, copies), target, target_mask)
        if self.copying is not None or not isinstance(decoder, RecurrentDecoder) or not decoder.has_posterior:
            return self.force(source, source_mask, target, target_mask, copies)
        run = self._run(source, source_mask, target, copies)
        with torch.enable_grad():
            contexts = run.contexts.detach().requires_grad_()
            states = decoder.states_given(run, contexts)
            features = self.readout.features(states.flatten(0, 1), run.words.flatten(0, 1), contexts.flatten(0, 1))
        targets = target.t()
        log_probs, d_features = self.readout.token_gradients(features.detach(), targets.flatten())
        (gradient,) = torch.autograd.grad(features, contexts, d_features)
        gains = torch.bmm(gradient.transpose(0, 1), run.memory.values.mT)  # (B, Ty, Tx), up to a constant per row
        posterior = (_weights(run).log() + gains).softmax(-1)
        return Forced(log_probs.view_as(targets).t().masked_fill(~target_mask, 0.0), posterior)

    def _run(
        self,
        source: Tensor,
        source_mask: Tensor,
        target: Tensor,
        copies: Tensor | None = None,
        static_shapes: bool | None = None,
    ) -> DecoderOutput:
        """Runs the decoder along the targets (B, Ty)."""
        memory = self.encode(source, source_mask, copies, static_shapes)
        previous = target.t()[:-1]
        if self.copying is not None:
            previous = known_words(previous, self.config.target_vocabulary_size)
        words = self._dropout(self._embed(self.target_embedding, previous))
        # At the first step there is no previous word: its vector is zero, without the embedding's bias.
        return self.decoder.unroll(memory, F.pad(words, (0, 0, 0, 0, 1, 0)))

    def _exact_posterior(self, run: DecoderOutput, target: Tensor, target_mask: Tensor) -> Forced:
        """As `force_posterior`, of a model whose attention is not soft."""
        if self.latent is None:
            raise ValueError("the posterior of soft attention is not exact")
        weights, shape = _weights(run), target.t().shape
        alternatives = self.latent.marginal(weights)
        log_joint = self._log_joint(self._outputs(run, target, alternatives)).unflatten(0, shape).transpose(0, 1)
        chosen = self.latent.alternatives(weights)
        log_probs = self._log_joint(self._outputs(run, target, chosen)).logsumexp(-1).view(shape).t()
        if run.memory.copies is not None:
            alternatives = alternatives.with_copied(weights * (run.memory.copies[:, None] == target[..., None]))
        return Forced(log_probs.masked_fill(~target_mask, 0.0), alternatives.posterior(log_joint))

    def _alternatives(self, run: DecoderOutput, draw: bool = False) -> Alternatives | None:
        """The contexts from which the words of a pass may be generated; None for soft attention."""
        return None if self.latent is None else self.latent.alternatives(_weights(run), draw)

    def _outputs(
        self, run: DecoderOutput, target: Tensor, alternatives: Alternatives | None, chosen: Tensor | None = None
    ) -> Outputs:
        """The outputs for the chosen (B, Ty) words, or for all, ordered by step."""
        contexts, weights = run.contexts, list[Tensor]()
        if alternatives is not None:
            contexts = alternatives.sums(self.readout.products(run.memory.values)).transpose(0, 1)
            weights.append(alternatives.log_weights.transpose(0, 1))
        copied = [] if self.copying is None else self.copying.log_terms(run, target.t())
        rows = [part.flatten(0, 1) for part in (run.states, run.words, contexts, target.t(), *weights, *copied)]
        if chosen is not None and not bool(chosen.all()):
            index = chosen.t().flatten().nonzero().squeeze(1)
            rows = [part.index_select(0, index) for part in rows]
        state, word, contexts, targets, *log_parts = rows
        products = self.readout.products(contexts) if alternatives is None else contexts
        features = self.readout.features_of(state, word, products, self._dropout_rate if self.training else 0.0)
        log_weights = log_parts[0] if weights else None
        if not copied:
            return Outputs(features, targets, log_weights)
        generated, log_copied = (part[:, None] for part in log_parts[-2:])
        if log_weights is None:
            features = features[:, None]
        else:
            generated = generated + log_weights
        known = known_words(targets, self.config.target_vocabulary_size)
        return Outputs(features, known, torch.cat([generated, log_copied], 1))

    def _log_joint(self, outputs: Outputs) -> Tensor:
        """The log-probabilities (N, C) of each alternative together with its word; with copying (N, C + 1)."""
        features, log_terms = outputs.features, outputs.log_terms
        if log_terms is None:
            return self.readout.token_log_probs(features, outputs.targets)[:, None]
        rows = features.flatten(0, 1), outputs.targets.repeat_interleave(features.shape[1])
        return joint_log_probs(log_terms, self.readout.token_log_probs(*rows))

    def _embed(self, embedding: Embedding, words: Tensor) -> Tensor:
        """The vectors of words in the dtype of the products."""
        vectors: Tensor = embedding(words)
        return vectors.to(self.encoder.dtype)

    def _dropout(self, x: Tensor) -> Tensor:
        return fast_dropout(x, self._dropout_rate) if self.training else x


def _weights(run: DecoderOutput) -> Tensor:
    """The weights (B, Ty, Tx) of a pass with attention."""
    if run.weights is None:
        raise ValueError("a model with attention has weights")
    return run.weights.transpose(0, 1)


def _of_words(numbers: Tensor, chosen: Tensor | None, target: Tensor) -> Tensor:
    """Numbers (N,) of the chosen words (B, Ty), or of all, in the order of `_outputs`, as (B, Ty); else 0."""
    if chosen is None:
        return numbers.view(target.t().shape).t()
    return numbers.new_zeros(target.t().shape).masked_scatter_(chosen.t(), numbers).t()
