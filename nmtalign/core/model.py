"""The complete model: word vectors, encoder, decoder and readout, its loss and forced decoding.

Read this file first. RNNsearch and RNNencdec (sections 2.1 and 3, appendix A) are its default parts: the recurrent
encoder in this file turns the source into annotations, the decoder (`decoder`) runs along the target words, updates its
state (`cells`) and attends to the annotations (`attention`), and the readout gives the probabilities of the words.
Other systems have other parts with the same interface, which the constructor chooses. Search uses a model that is
prepared for it (`inference`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn import functional as F

from nmtalign.core.attention import Memory
from nmtalign.core.cells import CELLS, unroll
from nmtalign.core.copying import Copying, known_words
from nmtalign.core.decoder import Decoder, DecoderOutput, InputFeedingDecoder, RecurrentDecoder, Stack
from nmtalign.core.latent_alignment import Alternatives, Latent
from nmtalign.core.numerics import (
    LEAST,
    Initialised,
    Role,
    aligned,
    check_wanted,
    fast_dropout,
    fused,
    initialise,
    maxout,
    narrowed,
    product,
    take_once,
    wide,
)
from nmtalign.core.transformer import TransformerDecoder, TransformerEncoder
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import EOS_ID


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


class Embedding(Initialised):
    """E[word] + b: one bias per side, as in the released code."""

    def __init__(self, vocabulary_size: int, size: int) -> None:
        super().__init__()
        self.weight = Role.EMBEDDING.parameter(vocabulary_size, size)
        self.bias = Role.BIAS.parameter(size)

    def forward(self, words: Tensor) -> Tensor:
        """Word ids (...) to vectors (..., m)."""
        return F.embedding(words, self.weight) + self.bias


class RecurrentEncoder(nn.Module):
    """Forward and backward gated recurrent nets over one shared embedding (section 3.2, equation 7 of appendix A.2.1).

    Both directions run as one batch: step t of the forward net beside step Tx - 1 - t of the backward net. A single
    direction is the forward one, or the backward one if the source is reversed (Sutskever et al. 2014). The annotation
    of a word is at the position of the word in either case. Further layers have one direction, that of the first net.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # For each direction, whether it reads the source from the end.
        self._backward = (False, True) if config.bidirectional else (config.reverse_source,)
        self.directions = len(self._backward)
        self.cell = CELLS[config.cell](config.embedding, config.hidden, directions=self.directions)
        widths = [self.directions * config.hidden, *[config.hidden] * (config.layers - 1)]  # the outputs of each layer
        self.upper = Stack(config, widths[:-1], 1, directions=1)
        self.output_size = widths[-1]  # of an annotation

    def forward(self, embedded: Tensor, padding: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Annotations (B, Tx, 2n) of embedded words (B, Tx, m), and the last state (B, S) of each layer.

        For a bidirectional layer it is that of its backward net. padding (B, Tx), where True, changes no state.
        """
        batch = len(embedded)
        inputs = self.cell.inputs(self._in_order(embedded.transpose(0, 1), self._backward))
        skip = None if padding is None else self._in_order(padding.t(), self._backward)[..., None]
        initial = embedded.new_zeros(self.directions, batch, self.cell.state_size, dtype=wide(embedded.dtype))
        outputs, last = unroll(self.cell, inputs, initial, skip)
        annotations = self._annotations(outputs, self._backward)
        if not len(self.upper.cells):
            return annotations, (last[-1],)
        order = self._backward[:1]
        skip = None if padding is None else self._in_order(padding.t(), order)[..., None]
        x = self._in_order(annotations.transpose(0, 1), order)
        outputs, lasts = self.upper(x, [initial[:1]] * len(self.upper.cells), skip)
        return self._annotations(outputs, order), (last[-1], *(one[0] for one in lasts))

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
        recurrent = InputFeedingDecoder if config.input_feeding == "attentional" else RecurrentDecoder
        self.decoder: Decoder = TransformerDecoder(config, size) if transforms else recurrent(config, size)
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
        annotations, finals = self.encoder(self._embed(self.source_embedding, source), padding)
        annotations = fast_dropout(annotations, self._dropout_rate, self.training)
        return replace(self.decoder.remember(annotations, finals, source_mask, padding), copies=copies)

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
            return cast(Loss, functional_call(self, narrowed(self, dtype), arguments, options))
        static = source.is_cuda if static_shapes is None else static_shapes
        run = self._run(self.encode(source, source_mask, copies, static), target)
        alternatives = None
        if self.latent is not None:
            alternatives = self.latent.alternatives(cast(Tensor, run.weights).transpose(0, 1), draw=self.training)
        features, targets, log_terms = self._outputs(run, target, alternatives, None if static else target_mask)
        row_weights = target_mask.t().flatten().to(wide(features.dtype)) if static else None
        softmax = self.readout.output_weight, self.readout.output_bias
        objective, nll, log_probs = linear_cross_entropy(
            features, *softmax, targets, label_smoothing, row_weights, log_terms
        )
        if alternatives is not None and alternatives.drawn:
            weights = cast(Tensor, run.weights).transpose(0, 1)
            rewards = _of_words(log_probs, None if static else target_mask, target)
            objective = objective + alternatives.cost_of_draws(weights, rewards, target_mask)
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
        run = self._run(self.encode(source, source_mask, copies), target)
        weights = None if run.weights is None else run.weights.transpose(0, 1)
        alternatives = None if self.latent is None else self.latent.alternatives(cast(Tensor, weights))
        _, tokens = self._softmax(*self._outputs(run, target, alternatives, target_mask))
        return Forced(_of_words(tokens, target_mask, target), weights)

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
        if self.latent is None and (self.copying is not None or not decoder.has_posterior):
            return self.force(source, source_mask, target, target_mask, copies)
        run = self._run(self.encode(source, source_mask, copies), target)
        if self.latent is not None:
            return self._exact_posterior(self.latent, run, target, target_mask)
        with torch.enable_grad():
            contexts = run.contexts.detach().requires_grad_()
            states = cast(RecurrentDecoder, decoder).states_given(run, contexts)
            products = self.readout.products(contexts.flatten(0, 1))
            features = self.readout.features(states.flatten(0, 1), run.words.flatten(0, 1), products)
            nll, log_probs = self._softmax(features, target.t().flatten())
        (gradient,) = torch.autograd.grad(nll, contexts)
        gains = -torch.bmm(gradient.transpose(0, 1), run.memory.values.mT)  # (B, Ty, Tx), up to a constant per row
        posterior = (cast(Tensor, run.weights).transpose(0, 1).log() + gains).softmax(-1)
        return Forced(_of_words(log_probs, None, target).masked_fill(~target_mask, 0.0), posterior)

    def _run(self, memory: Memory, target: Tensor) -> DecoderOutput:
        """Runs the decoder along the targets (B, Ty)."""
        previous = target.t()[:-1]
        if self.copying is not None:
            previous = known_words(previous, self.config.target_vocabulary_size)
        # At the first step there is no previous word: its vector is zero, without the embedding's bias.
        words = F.pad(self._embed(self.target_embedding, previous), (0, 0, 0, 0, 1, 0))
        return DecoderOutput(memory, words, *self.decoder.unroll(memory, words))

    def _exact_posterior(self, latent: Latent, run: DecoderOutput, target: Tensor, target_mask: Tensor) -> Forced:
        """As `force_posterior`, of a model whose attention is not soft."""
        weights = cast(Tensor, run.weights).transpose(0, 1)
        alternatives = latent.marginal(weights)
        features, targets, log_terms = self._outputs(run, target, alternatives)
        _, each = self._softmax(features.flatten(0, 1), targets.repeat_interleave(features.shape[1]))
        log_joint = joint_log_probs(cast(Tensor, log_terms), each).unflatten(0, target.t().shape).transpose(0, 1)
        _, tokens = self._softmax(*self._outputs(run, target, latent.alternatives(weights), target_mask))
        if run.memory.copies is not None:
            alternatives = alternatives.with_copied(weights * (run.memory.copies[:, None] == target[..., None]))
        return Forced(_of_words(tokens, target_mask, target), alternatives.posterior(log_joint))

    def _outputs(
        self, run: DecoderOutput, target: Tensor, alternatives: Alternatives | None, chosen: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The inputs of the softmax for the chosen (B, Ty) words, or for all, ordered by step.

        They are features (N, r), or (N, C, r) of the C alternatives of each word, targets (N,), and the terms of
        `linear_cross_entropy`: log-probabilities (N, C) of the alternatives, and (N, C + 1) with that of copying the
        word; None if there is only one softmax.
        """
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
        features = self.readout.features(state, word, products, self._dropout_rate if self.training else 0.0)
        log_weights = log_parts[0] if weights else None
        if not copied:
            return features, targets, log_weights
        generated, log_copied = (part[:, None] for part in log_parts[-2:])
        if log_weights is None:
            features = features[:, None]
        else:
            generated = generated + log_weights
        known = known_words(targets, self.config.target_vocabulary_size)
        return features, known, torch.cat([generated, log_copied], 1)

    def _softmax(self, features: Tensor, targets: Tensor, terms: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(negative log-likelihood with a gradient, log p (N,)) of given words; see `_outputs`."""
        # No gradient of the weights is needed: products may be small, so that a CPU keeps their results in its cache.
        cells = CHUNK_CELLS if features.device.type == "cpu" else BLOCK_CELLS
        softmax = self.readout.output_weight, self.readout.output_bias
        nll, _, log_probs = linear_cross_entropy(features, *softmax, targets, log_terms=terms, block_cells=cells)
        return nll, log_probs

    def _embed(self, embedding: Embedding, words: Tensor) -> Tensor:
        """The vectors of words in the dtype of the products, with dropout."""
        vectors = cast(Tensor, embedding(words)).to(self.encoder.dtype)
        return fast_dropout(vectors, self._dropout_rate, self.training)


def _of_words(numbers: Tensor, chosen: Tensor | None, target: Tensor) -> Tensor:
    """Numbers (N,) of the chosen words (B, Ty), or of all, in the order of `_outputs`, as (B, Ty); else 0."""
    if chosen is None:
        return numbers.view(target.t().shape).t()
    return numbers.new_zeros(target.t().shape).masked_scatter_(chosen.t(), numbers).t()


BLOCK_CELLS = 5 << 23  # logits that exist at the same time, rows * K
CHUNK_CELLS = 1 << 20  # float32 numbers that are processed together, because they fit into the processor's cache


class Readout(Initialised):
    """maxout(U_o s + V_o e(y_prev) + C_o context), then logits over K words, through `output_rank` if it is not 0.

    This is appendix A.2.2, which has no `output_rank`. There is no V_o if the readout does not depend on the previous
    word. The readouts "direct" and "attentional" have no maxout layer: the softmax gets the decoder's output itself.
    """

    def __init__(self, config: ModelConfig, context_size: int) -> None:
        super().__init__()
        self.has_maxout = config.readout == "maxout"
        state_size = config.embedding if config.architecture == "transformer" else config.hidden
        width = config.maxout if self.has_maxout else state_size
        if self.has_maxout:
            pre_activations = 2 * config.maxout
            self.state_weight = Role.MATRIX.parameter(pre_activations, config.hidden)  # U_o
            reads_word = config.readout_previous_word
            self.word_weight = Role.MATRIX.parameter(pre_activations, config.embedding) if reads_word else None
            self.context_weight = Role.MATRIX.parameter(pre_activations, context_size)  # C_o
            self.bias = Role.BIAS.parameter(pre_activations)
        rank = config.output_rank
        self.factor = Role.MATRIX.parameter(rank, width) if rank else None
        if not config.shared_embeddings:
            self.output_weight = Role.SOFTMAX.parameter(config.target_vocabulary_size, rank or width)
        self.output_bias = Role.BIAS.parameter(config.target_vocabulary_size)

    def products(self, contexts: Tensor) -> Tensor:
        """C_o contexts (..., 2l), which are linear in the contexts (..., 2n); without a maxout layer the contexts."""
        return F.linear(contexts, self.context_weight) if self.has_maxout else contexts

    def features(self, state: Tensor, word: Tensor, products: Tensor, dropout: float = 0.0) -> Tensor:
        """The inputs of the softmax (N, output_rank or l), from states (N, n), words (N, m) and `products` of contexts.

        With the products of C contexts (N, C, 2l) for each word they are (N, C, .).
        """
        dtype = word.dtype
        hidden = state.to(dtype)
        if self.has_maxout:
            total = self.bias.to(dtype)
            if self.word_weight is not None:
                total = F.linear(*aligned(word, self.word_weight), total)
            total = total + F.linear(hidden, self.state_weight)
            total = (total if products.dim() == 2 else total[:, None]) + products
            hidden = maxout(total)
        if hidden.dim() == 2:
            hidden = fast_dropout(hidden, dropout)
        elif dropout:  # the alternatives of a word lose the same units
            hidden = hidden * F.dropout(torch.ones_like(hidden[:, :1]), dropout)
        return hidden if self.factor is None else F.linear(*aligned(hidden, self.factor))


class TiedReadout(Readout):
    """A readout whose output weights are the vectors of the target words (Press & Wolf 2017)."""

    def __init__(self, config: ModelConfig, context_size: int, embedding: nn.Module) -> None:
        super().__init__(config, context_size)
        self._embedding = (embedding,)  # in a tuple, so that its weights are saved and counted once

    @property
    def output_weight(self) -> Tensor:  # type: ignore[override]
        """The weights (K, m) of the softmax."""
        return cast(Tensor, self._embedding[0].weight)


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    row_weights: Tensor | None = None,
    log_terms: Tensor | None = None,
    block_cells: int = BLOCK_CELLS,
) -> tuple[Tensor, Tensor, Tensor]:
    """(objective, nll, log p (N,)) of targets (N,) under softmax(features W^T + b); the objective has a gradient.

    features (N, r), weight (K, r), bias (K,). Objective and nll are sums over the targets. objective = (1 -
    label_smoothing) * nll + label_smoothing * the mean over K words of -log p. `row_weights` (N,) multiply the terms of
    the words, 0 for padding; None = all 1. The gradients are computed together with the loss. Products are in the dtype
    of the features, softmax and sums in float32 (float64 for float64).

    With log_terms (N, C), which have gradients, too, p is a mixture: the sum over c of exp(log_terms[c]) *
    softmax(features[c] W^T + b), for features (N, C, r). One more column (N, C + 1) is the logarithm of what is added
    to p. Each softmax is smoothed with the weight of its share in p, which counts as a constant.
    """
    constants = targets, label_smoothing, row_weights, block_cells, torch.is_grad_enabled()
    features, weight = aligned(features, weight)
    objective, nll, log_probs = _LinearCrossEntropy.apply(features, weight, bias, log_terms, *constants)
    return objective, nll, log_probs


def slices(rows: int, vocabulary: int, cells: int) -> Iterator[slice]:
    """Cuts rows into parts of nearly equal size, with at most `cells` logits each (but at least one row)."""
    parts = -(-rows // max(1, cells // vocabulary))
    size = -(-rows // parts) if parts else 1
    for start in range(0, rows, size):
        yield slice(start, min(rows, start + size))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        log_terms: Tensor | None,
        targets: Tensor,
        smoothing: float,
        row_weights: Tensor | None,
        block_cells: int,
        differentiate: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype, shape = wide(features.dtype), features.shape
        narrow_weight, wide_bias = weight.to(features.dtype), bias.to(dtype)
        each = 1 if log_terms is None else shape[1]  # softmaxes of a word, which stay in the same block
        features, each_target = features.flatten(0, -2), targets.repeat_interleave(each)
        nll, log_sums = features.new_empty(2, len(features), dtype=dtype)
        d_features, d_bias = torch.empty_like(features), torch.zeros_like(wide_bias)
        d_weight = weight.new_zeros(weight.shape if differentiate else 0, dtype=dtype)
        row_weights = nll.new_ones(len(targets)) if row_weights is None else row_weights.to(dtype)
        softmax_weights = row_weights.repeat_interleave(each)
        d_terms = None if log_terms is None else torch.empty_like(log_terms)
        for words in slices(len(targets), each * len(bias), block_cells):
            check_wanted()
            rows = slice(words.start * each, words.stop * each)
            block = features[rows]
            logits = product(block, narrow_weight)
            _to_gradient(logits, wide_bias, each_target[rows], smoothing, nll[rows], log_sums[rows])
            if log_terms is not None and d_terms is not None:
                parts = joint_log_probs(log_terms[words], -nll[rows]).softmax(-1) * row_weights[words, None]
                softmax_weights[rows] = parts[:, :each].flatten()
                d_terms[words] = parts * (smoothing - 1)
            if differentiate:
                torch.mm(logits, narrow_weight, out=d_features[rows]).mul_(softmax_weights[rows, None])
            if differentiate and any(ctx.needs_input_grad[1:3]):
                d_bias += (softmax_weights[None, rows].to(logits.dtype) @ logits)[0]
                _add_product(d_weight, logits, (block * softmax_weights[rows, None]).to(block.dtype))
            del logits  # before those of the next block are computed
        log_probs = -nll if log_terms is None else joint_log_probs(log_terms, -nll).logsumexp(-1)
        objective = total = -(log_probs * row_weights).sum()
        if smoothing:
            gradients = (d_features, d_weight, d_bias) if differentiate else None
            log_sum = (log_sums * softmax_weights).sum()
            smooth = _smooth(features, narrow_weight, wide_bias, log_sum, softmax_weights, smoothing, gradients)
            objective = (1 - smoothing) * total + smooth
        ctx.gradients = d_features.view(shape), d_weight.to(weight.dtype), d_bias.to(bias.dtype), d_terms
        ctx.mark_non_differentiable(total, log_probs)
        return objective.clone(), total, log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor | None, ...] = take_once(ctx, "gradients")
        # The weight of the loss stays in float32: rounded to bf16, it would change only this branch by up to 0.4%.
        scaled = (None if each is None else each.mul_(gradient) for each in gradients)
        return *scaled, *[None] * 5


def joint_log_probs(log_terms: Tensor, log_probs: Tensor) -> Tensor:
    """The log-probabilities (N, .) of each term of `linear_cross_entropy`, given those of the softmaxes (N C,)."""
    each = log_probs.view(len(log_terms), -1)
    return torch.cat([log_terms[:, : each.shape[1]] + each, log_terms[:, each.shape[1] :]], 1)


def _smooth(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    log_sum: Tensor,
    counted: Tensor,
    smoothing: float,
    gradients: tuple[Tensor, Tensor, Tensor] | None,
) -> Tensor:
    """smoothing * the mean over K words of -log p = log_sum - logit, summed over all rows at once.

    `counted` (N,) are the weights of the rows, and `log_sum` is their weighted sum. Adds to the gradients.
    """
    share = smoothing / len(bias)
    feature_sum = counted @ features.to(counted.dtype)
    weight_sum = weight.sum(0, dtype=counted.dtype)
    logit_sum = feature_sum @ weight_sum + counted.sum() * bias.sum()
    if gradients is not None:
        d_features, d_weight, d_bias = gradients
        d_features.sub_((counted[:, None] * (share * weight_sum)).to(features.dtype))
        d_weight.sub_(share * feature_sum)
        d_bias.sub_(share * counted.sum())
    return smoothing * log_sum - share * logit_sum


def _add_product(total: Tensor, d_logits: Tensor, block: Tensor) -> None:
    """`total (K, r) += d_logits^T block` in the dtype of `total`, by parts that fit into the cache."""
    if total.dtype == block.dtype:
        total.addmm_(d_logits.t(), block)
        return
    cells = 4 * CHUNK_CELLS if total.device.type == "cpu" else total.numel()
    vocabulary, rank = total.shape
    for words in slices(vocabulary, rank, cells):
        total[words] += d_logits[:, words].t() @ block


def _to_gradient(
    logits: Tensor, bias: Tensor, targets: Tensor, smoothing: float, nll: Tensor, log_sums: Tensor
) -> None:
    """Replaces logits (R, K), which do not contain the bias yet, by their gradient, in place.

    The gradient is the probability, minus 1 - smoothing at the target; `_smooth` adds the part of label smoothing that
    is equal for all words. Fills nll (R,) and the logarithms of the sums of exponentials (R,).
    """
    if logits.device.type != "cpu":
        _fused_gradient(logits, bias, targets, smoothing, nll, log_sums)
        return
    parts = list(slices(len(targets), logits.shape[1], CHUNK_CELLS))
    room = [bias.new_empty(parts[0].stop, len(bias)) for _ in range(2)]
    for rows in parts:
        chunk, picked = logits[rows], targets[rows, None]
        exact, probs = (buffer[: len(chunk)] for buffer in room)
        torch.softmax(exact.copy_(chunk).add_(bias), -1, out=probs)
        # The sum of exponentials follows from any probability without underflow: the target's, else the largest.
        known, place = probs.gather(1, picked), picked
        if float(known.min()) < LEAST:
            known, place = probs.max(-1, keepdim=True)
        torch.sub(exact.gather(1, place), known.log(), out=log_sums[rows, None])
        torch.sub(log_sums[rows, None], exact.gather(1, picked), out=nll[rows, None])
        probs.scatter_add_(1, picked, torch.full_like(picked, smoothing - 1, dtype=nll.dtype))
        chunk.copy_(probs)


@fused
def _fused_gradient(
    logits: Tensor, bias: Tensor, targets: Tensor, smoothing: float, nll: Tensor, log_sums: Tensor
) -> None:
    exact, picked = logits.to(bias.dtype) + bias, targets[:, None]
    log_sums.copy_(exact.logsumexp(-1))
    nll.copy_(log_sums - exact.gather(1, picked).squeeze(1))
    is_target = torch.arange(len(bias), device=targets.device) == picked
    logits.copy_((exact - log_sums[:, None]).exp() - is_target.to(exact.dtype) * (1 - smoothing))


Ids = Sequence[int] | npt.NDArray[np.integer]
Indices = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Batch:
    """B padded pairs, each side ending with `</s>`; masks are True at real tokens.

    The counts are plain numbers, so that the host need not wait for a device to know them.
    """

    source: Tensor  # (B, Tx) int64
    source_mask: Tensor  # (B, Tx) bool
    target: Tensor  # (B, Ty)
    target_mask: Tensor  # (B, Ty)
    indices: Indices  # (B,) positions of the pairs in their corpus
    source_words: int  # real tokens, `</s>` included
    target_words: int
    guide: Tensor | None = None  # (B, Ty, Tx) bool: the weights with a given link, if links are given
    linked: int = 0  # target tokens with a given link
    copies: Tensor | None = None  # (B, Tx) the ids that a copying model copies from each place

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; the host does not wait for a copy from pinned memory."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in pinned memory, from which a CUDA device copies without the host."""
        return self._map(Tensor.pin_memory)

    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of a loss: source, source_mask, target, target_mask, then copies and guide if there are any."""
        tensors = self.source, self.source_mask, self.target, self.target_mask, self.copies, self.guide
        return tuple(tensor for tensor in tensors if tensor is not None)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        changed: dict[str, Any] = {name: change(value) for name, value in vars(self).items() if torch.is_tensor(value)}
        return replace(self, **changed)


def make_source(sentences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Returns ids (B, Tx) and mask (B, Tx) of sentences; it appends `</s>` to each and pads with id 0, mask False."""
    lengths = np.array([len(sentence) + 1 for sentence in sentences])
    ids = np.full((len(sentences), int(lengths.max())), EOS_ID, np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = sentence
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids), torch.from_numpy(mask)


def make_batch(pairs: Sequence[tuple[Ids, Ids]], copies: Sequence[Ids] | None = None) -> Batch:
    """Returns the padded batch of pairs of ids without `</s>`; a copying model also needs `copies` (see `pair_ids`)."""
    source, source_mask = make_source([source for source, _ in pairs])
    target, target_mask = make_source([target for _, target in pairs])
    words = int(source_mask.sum()), int(target_mask.sum())
    copied = None if copies is None else make_source(copies)[0]
    return Batch(source, source_mask, target, target_mask, np.arange(len(pairs)), *words, copies=copied)
