"""The model prepared for search: in the paper's models, products that are equal at every step are computed once.

The context enters the cell and the readout linearly: C_c and C_o (appendix A.2.2) are multiplied with each annotation
once per sentence, not with each context at each step. Likewise the input weights of cell and readout are multiplied
with each target word once, when the word first occurs.
"""

import copy
import threading
from dataclasses import replace
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import Memory
from nmtalign.core.copying import known_words
from nmtalign.core.decoder import DecoderState, RecurrentDecoder
from nmtalign.core.latent_alignment import Latent
from nmtalign.core.model import Embedding, TranslationModel
from nmtalign.core.numerics import joined, matrices, maxout, wide

M = TypeVar("M", bound=nn.Module)
SearchStep = tuple[DecoderState, Tensor, Tensor | None, Tensor | None, Tensor | None]  # see `Inference.step`
_BLOCK = 4096  # words whose rows are computed together, at most
_NEW_WORDS = 16  # words of each product for words that occur for the first time


class Inference:
    """A model ready for search, without gradients. Products are in `dtype`, states and softmax in float32.

    The products of a model from `in_int8` are in eight bits, its dtype is float32.

    Some weights are copied at construction, and word vectors are read when a word first occurs: a model whose weights
    have changed needs a new `Inference`. The numbers of a sentence are the same up to rounding whatever the other
    sentences and hypotheses of a batch and the number of threads are.
    """

    def __init__(self, model: TranslationModel, dtype: torch.dtype | None = None) -> None:
        self.model, self.config = model, model.config
        self.dtype = dtype or model.readout.output_weight.dtype
        with torch.no_grad():
            self._encoder, self._readout = in_dtype(model.encoder, self.dtype), in_dtype(model.readout, self.dtype)
            self._copying = None if model.copying is None else in_dtype(model.copying, self.dtype)
            self.output_weight = joined([self._readout.output_weight], self.dtype)  # it may be that of word vectors
            self.output_bias = model.readout.output_bias.to(wide(self.dtype))
            decoder, self._folded = model.decoder, None
            if isinstance(decoder, RecurrentDecoder) and decoder.is_papers and model.readout.has_maxout:
                self._folded = FoldedWeights(model, decoder, self.dtype)
            self._decoder = in_dtype(decoder, self.dtype) if self._folded is None else self._folded.decoder

    def encode(self, source: Tensor, source_mask: Tensor, copies: Tensor | None = None) -> Memory:
        """The folded memory of sentences that end with `</s>`; see `TranslationModel.encode`."""
        padding = None if bool(source_mask.all()) else ~source_mask
        annotations, finals = self._encoder(self.model.source_embedding(source).to(self.dtype), padding)
        memory = self._decoder.remember(annotations, finals, source_mask, padding)
        values = memory.values if self._folded is None else F.linear(memory.values, self._folded.context_weight)
        return replace(memory, values=values, copies=copies)

    def start(self, memory: Memory) -> DecoderState:
        """The state of one row per sentence."""
        return self._decoder.start(memory)

    def step(self, memory: Memory, state: DecoderState, previous: Tensor | None) -> SearchStep:
        """One step from the previous words (N,), or None at the first.

        Returns (state, features (N, r), weights (N, Tx), gate (N,), log_weights). N is a multiple of the number of
        sentences; the rows of one sentence are adjacent. `features` are the inputs of the softmax; weights are None
        without attention. The gate has the logits of p_gen; None without copying. In a model whose attention is not
        soft, a row has the features (N, C, r) of C alternatives with log_weights (N, C); else log_weights is None.
        """
        if previous is not None and self._copying is not None:
            previous = known_words(previous, self.config.target_vocabulary_size)
        if self._folded is not None:
            state, features, weights, gate, log_weights = self._folded.step(memory, state, previous)
        else:
            no_word = self.output_weight.new_zeros(len(state), self.config.embedding)
            words = no_word if previous is None else self.model.target_embedding(previous).to(self.dtype)
            state, output = self._decoder.step(memory, state, words)
            contexts, weights, log_weights = output.contexts, output.weights, None
            if self.model.latent is not None and weights is not None:
                contexts, log_weights = _alternatives(self.model.latent, weights, memory.values)
            features = self._readout.features(output.states, words, self._readout.products(contexts))
            gate = None if self._copying is None else self._copying(output.states, words, output.contexts)
        if log_weights is not None and log_weights.shape[1] == 1:  # a single alternative is certain
            features, log_weights = features[:, 0], None
        return state, features, weights, gate, log_weights


def in_dtype(module: M, dtype: torch.dtype) -> M:
    """The module itself where its matrices have the dtype already, else a copy with the same vectors."""
    if all(parameter.dtype == dtype for _, _, parameter in matrices(module)):
        return module
    copied = copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    for part, name, parameter in list(matrices(copied)):
        setattr(part, name, nn.Parameter(parameter.detach().to(dtype), parameter.requires_grad))
    return copied


class FoldedWeights:
    """The weights of cell, readout and copying of a paper's model, joined: each product serves all of them."""

    def __init__(self, model: TranslationModel, decoder: RecurrentDecoder, dtype: torch.dtype) -> None:
        self._latent = model.latent
        self.decoder = in_dtype(decoder, dtype)
        cell, readout, gates = decoder.cell, model.readout, [] if model.copying is None else [model.copying]
        cell_weight = cast(Tensor, cell.context_weight)
        # The columns that belong to the cell and to the readout; one of the gate may follow.
        self._width, self._readout_width, self._has_gate = len(cell_weight), len(readout.bias), bool(gates)
        contexts = (gate.context_weight for gate in gates)
        self.context_weight = joined([cell_weight, readout.context_weight, *contexts], dtype)
        self._state_weight = joined([readout.state_weight, *(gate.state_weight for gate in gates)], dtype)
        self._factor = None if readout.factor is None else joined([readout.factor], dtype)
        unused = cell.input_weight.new_zeros(len(readout.bias), model.config.embedding)
        word_weight = unused if readout.word_weight is None else readout.word_weight
        # The product with a context is a column of the folded context already.
        self._layer = self.decoder.attending_layer(dtype, lambda inputs, context: inputs + context[:, : self._width])
        self._words = WordTable(
            model.target_embedding,
            joined([cell.input_weight, word_weight, *(gate.word_weight for gate in gates)], dtype),
            joined([cell.input_bias(), readout.bias, *(gate.bias for gate in gates)], dtype),
        )

    def step(self, memory: Memory, state: DecoderState, previous: Tensor | None) -> SearchStep:
        """As `Inference.step`, over a folded memory."""
        # At the first step the bias is what remains of the products: the vector of no word is zero.
        words = self._words.bias.expand(len(state), -1) if previous is None else self._words(previous)
        state, output = self.decoder.order(self._layer, memory, state, words[:, : self._width])
        total = F.linear(output.states, self._state_weight)
        total += words[:, self._width :]
        columns = slice(self._width, self._width + self._readout_width)
        products = log_weights = None
        if self._latent is not None and output.weights is not None:
            products, log_weights = _alternatives(self._latent, output.weights, memory.values[..., columns])
            products += total[:, None, : self._readout_width]
        total += output.contexts[:, self._width :]
        features = maxout(total[:, : self._readout_width] if products is None else products)
        gate = total[:, -1] if self._has_gate else None
        if self._factor is not None:
            features = F.linear(features, self._factor)
        return state, features, output.weights, gate, log_weights


def _alternatives(latent: Latent, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """(the sums (N, C, V) of values (B, Tx, V), log_weights (N, C)) of the alternatives of each row."""
    alternatives = latent.alternatives(weights.unflatten(0, (len(values), -1)))
    return alternatives.sums(values).flatten(0, 1), alternatives.log_weights.flatten(0, 1)


class WordTable:
    """The products of weights (out, m) with each word's vector, plus a bias (out,), without gradients.

    A translation uses a few thousand words of a large vocabulary: only their rows are computed, and only their pages
    of the table take memory. Threads may share a table. On a GPU all rows are computed at once, because the check for
    new words would take longer.
    """

    def __init__(self, embedding: Embedding, weight: Tensor, bias: Tensor) -> None:
        self._embedding, self._weight, self.bias = embedding, weight, bias
        words = len(embedding.weight)
        self._rows = weight.new_empty(words, len(bias))
        self._known = torch.zeros(words, dtype=torch.bool, device=weight.device)
        self._lock = threading.Lock()
        self._complete = weight.is_cuda
        if self._complete:
            self._fill(torch.arange(words, device=weight.device))

    def __call__(self, words: Tensor) -> Tensor:
        """The rows (N, out) of word ids (N,)."""
        if not self._complete and not bool(self._known[words].all()):
            self._fill(words)
        return self._rows[words]

    def _fill(self, words: Tensor) -> None:
        with self._lock:
            new = torch.unique(words[~self._known[words]])
            # The number of rows of a product may change its rounding. Each product has the same number, so that a
            # search that is repeated gives the same numbers, whatever was translated before.
            size = _BLOCK if self._complete else _NEW_WORDS
            for block in new.split(size):
                vectors = F.pad(self._embedding.weight[block] + self._embedding.bias, (0, 0, 0, size - len(block)))
                self._rows[block] = F.linear(vectors.to(self._weight.dtype), self._weight, self.bias)[: len(block)]
            self._known[new] = True
