"""The decoder for search: weights laid out for products over many rows, and what no step changes multiplied once.

What a step reads of the source is linear in the annotations: `C_c` of the cell and `C_o` of the readout (PAPER
section 2) are multiplied with each annotation once a sentence, not with each context at each step. Likewise the input
weights of cell and readout are multiplied with each target word once, when it is first met.
"""

import copy
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import LEAST_ROWS
from nmtalign.core.decoder import Memory
from nmtalign.core.elementwise import wide
from nmtalign.core.model import TranslationModel
from nmtalign.core.readout import maxout
from nmtalign.core.tables import WordTable

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Encoded:
    """What the search reads of B sentences."""

    keys: Tensor | None  # (B, Tx, n'), U_a annotations (n with other scores); None without attention
    values: Tensor  # (B, Tx, 3n + 2l), what cell and readout take from each annotation; (B, 3n + 2l) without attention
    padding: Tensor | None  # (B, Tx), True = no token; None where there is none
    hidden: Tensor  # (B, n), the first decoder state
    shares: Tensor | None = None  # (B, Tx), what a weight of 1 adds to a word's coverage; None without coverage

    def select(self, sentences: Tensor | slice) -> "Encoded":
        """Those of some sentences (indices) alone."""
        return Encoded(
            None if self.keys is None else self.keys[sentences],
            self.values[sentences],
            None if self.padding is None else self.padding[sentences],
            self.hidden[sentences],
            None if self.shares is None else self.shares[sentences],
        )


@dataclass(frozen=True)
class SearchState:
    """The state of R rows."""

    hidden: Tensor  # (R, n), in float32 beside bf16 products
    context: Tensor | None  # (R, 3n), what the cell takes from the last context; None where it is not read again
    coverage: Tensor | None = None  # (R, Tx), how much of each source word has been read; None without coverage

    def select(self, rows: Tensor) -> "SearchState":
        """The rows (indices) alone, in their order."""
        context, coverage = (None if part is None else part[rows] for part in (self.context, self.coverage))
        return SearchState(self.hidden[rows], context, coverage)

    def shortened(self, length: int) -> "SearchState":
        """Without the coverage of source positions from `length` on."""
        return self if self.coverage is None else replace(self, coverage=self.coverage[:, :length])


class Inference:
    """A model ready for search; no gradient. Products in `dtype`, states and softmax in float32 (float64 for float64).

    The weights are those of the moment it is made, apart from word vectors, which are read when a word is first met.
    In float32 on a CPU where MKL's strict reproducibility is active (`devices.products_are_reproducible`), the numbers
    of a sentence do not depend, to the last bit, on the other sentences and hypotheses, or on the number of threads.
    Elsewhere, and for models of fewer than 32 hidden units, they depend on them within the rounding of float32.
    """

    def __init__(self, model: TranslationModel, dtype: torch.dtype | None = None) -> None:
        self.model, self.config = model, model.config
        self.dtype = dtype or model.readout.output_weight.dtype
        cell, readout = model.decoder.cell, model.readout
        if cell.context_weight is None:
            raise ValueError("the decoder's cell has no context")
        with torch.no_grad():
            self._encoder = self._cast_module(model.encoder)
            self._decoder = self._cast_module(model.decoder)
            self._context_weight = self._cast(torch.cat([cell.context_weight, readout.context_weight]))
            coverage = model.decoder.coverage
            self._coverage_vector = None if coverage is None else coverage.vector(self.dtype)
            self._state_weight = self._cast(readout.state_weight)
            self._factor = self._cast(readout.factor) if readout.factor is not None else None
            self.output_weight = self._cast(readout.output_weight)
            self.output_bias = readout.output_bias.to(wide(self.dtype))
            unread = cell.input_weight.new_zeros(len(readout.bias), self.config.embedding)
            word_weight = unread if readout.word_weight is None else readout.word_weight
            self._words = WordTable(
                model.target_embedding,
                self._cast(torch.cat([cell.input_weight, word_weight])),
                self._cast(torch.cat([cell.input_bias(), readout.bias])),
            )

    @property
    def update_first(self) -> bool:
        """Whether a step takes up the previous word before it looks (PAPER section 2, "look, generate, update")."""
        return self._decoder.update_first

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.output_weight.device

    def settle(self) -> None:
        """Does now what steps do when they first need it: from then on a step looks at no value."""
        with torch.inference_mode():
            self._words.fill()

    def encode(self, source: Tensor, source_mask: Tensor) -> Encoded:
        """Reads sentences: ids (B, Tx) and mask (B, Tx), True = a real token; each ends with `</s>`."""
        count = len(source)
        if more := max(0, LEAST_ROWS - count):  # sentences of `</s>` alone
            source = F.pad(source, (0, 0, 0, more))
            source_mask = F.pad(source_mask, (0, 0, 0, more))
            source_mask[count:, 0] = True
        padding = None if bool(source_mask.all()) else ~source_mask
        embedded = self.model.source_embedding(source).to(self.dtype)
        memory: Memory = self._decoder.remember(self._encoder(embedded, padding), source_mask, padding)
        hidden = self._decoder.initial_state(memory)
        read = memory.annotations if memory.context is None else memory.context
        values = F.linear(read, self._context_weight)
        encoded = Encoded(memory.keys, values, padding, hidden, memory.shares)
        return encoded.select(slice(count)) if more else encoded

    def start(self, encoded: Encoded) -> SearchState:
        """The state of one row a sentence."""
        return SearchState(encoded.hidden, None, None if encoded.shares is None else torch.zeros_like(encoded.shares))

    def step(
        self, encoded: Encoded, state: SearchState, previous: Tensor | None
    ) -> tuple[SearchState, Tensor, Tensor | None]:
        """One step from the previous words (R,), or None at the first: (state, features (R, r), weights (R, Tx)).

        R is a multiple of the sentences; the rows of one sentence are adjacent. `features` are what the softmax reads;
        weights are None without attention.
        """
        rows, size = len(state.hidden), 3 * self.config.hidden
        word = self._words.nothing(rows) if previous is None else self._words(previous)
        hidden = state.hidden
        if self.update_first and previous is not None:
            if state.context is None:
                raise ValueError("the decoder has not looked at the source yet")
            hidden = self._update(hidden, word[:, :size] + state.context)
        weights, context = self._look(encoded, hidden, state.coverage)
        if not self.update_first:
            hidden = self._update(hidden, word[:, :size] + context[:, :size])
        total = F.linear(hidden.to(self.dtype), self._state_weight)
        total += word[:, size:]
        total += context[:, size:]
        features = maxout(total)
        if self._factor is not None:
            features = F.linear(features, self._factor)
        coverage = _covered(encoded, state.coverage, weights)
        return SearchState(hidden, context[:, :size] if self.update_first else None, coverage), features, weights

    def _update(self, hidden: Tensor, inputs: Tensor) -> Tensor:
        return self._decoder.cell.update(inputs, hidden)

    def _look(self, encoded: Encoded, hidden: Tensor, coverage: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """The weights (R, Tx) of R states, and what cell and readout take from their contexts (R, 3n + 2l)."""
        attention = self._decoder.attention
        if encoded.keys is None or attention is None:
            each = len(hidden) // len(encoded.values)
            return None, encoded.values.repeat_interleave(each, 0) if each > 1 else encoded.values
        queries = attention.queries(hidden.to(self.dtype))
        covered = None
        if coverage is not None and self._coverage_vector is not None:
            covered = coverage, self._coverage_vector
        context, weights = attention.look(queries, encoded.keys, encoded.values, encoded.padding, covered)
        return weights, context

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.dtype)

    def _cast_module(self, module: M) -> M:
        """The module itself where its weights have the type already, else a copy in it."""
        if all(parameter.dtype == self.dtype for parameter in module.parameters()):
            return module
        return copy.deepcopy(module).to(self.dtype)


def _covered(encoded: Encoded, coverage: Tensor | None, weights: Tensor | None) -> Tensor | None:
    """The coverage (R, Tx) that a look with some weights (R, Tx) leaves, each product rounded before it is added."""
    if coverage is None or encoded.shares is None or weights is None:
        return None
    sentences, length = encoded.shares.shape
    return coverage + (weights.view(sentences, -1, length) * encoded.shares[:, None]).view(coverage.shape)
