"""The decoder for search: weights laid out for products over many rows, and what no step changes multiplied once.

What a step reads of the source is linear in the annotations: `C_c` of the cell and `C_o` of the readout (PAPER
section 2) are multiplied with each annotation once a sentence, not with each context at each step. Likewise the input
weights of cell and readout are multiplied with each target word once, when it is first met.
"""

import copy
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.decoder import Memory
from nmtalign.core.elementwise import wide
from nmtalign.core.model import TranslationModel
from nmtalign.core.readout import maxout
from nmtalign.core.tables import WordTable

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Encoded:
    """What the search reads of B sentences."""

    keys: Tensor | None  # (B, Tx, n'), U_a annotations; None without attention
    values: Tensor  # (B, Tx, 3n + 2l), what cell and readout take from each annotation; (B, 3n + 2l) without attention
    padding: Tensor | None  # (B, Tx), True = no token; None where there is none
    hidden: Tensor  # (B, n), the first decoder state

    def select(self, sentences: Tensor) -> "Encoded":
        """Those of some sentences (indices) alone."""
        parts = (self.keys, self.values, self.padding, self.hidden)
        keys, values, padding, hidden = (None if part is None else part[sentences] for part in parts)
        if values is None or hidden is None:
            raise ValueError("nothing was encoded")
        return Encoded(keys, values, padding, hidden)


@dataclass(frozen=True)
class SearchState:
    """The state of R rows."""

    hidden: Tensor  # (R, n), in float32 beside bf16 products
    context: Tensor | None  # (R, 3n), what the cell takes from the last context; None where it is not read again

    def select(self, rows: Tensor) -> "SearchState":
        """The rows (indices) alone, in their order."""
        return SearchState(self.hidden[rows], None if self.context is None else self.context[rows])


class Inference:
    """A model ready for search; no gradient. Products in `dtype`, states and softmax in float32 (float64 for float64).

    The weights are those of the moment it is made, apart from word vectors, which are read when a word is first met.
    """

    def __init__(self, model: TranslationModel, dtype: torch.dtype | None = None) -> None:
        self.model, self.config = model, model.config
        self.dtype = dtype or model.readout.output_weight.dtype
        cell, readout, attention = model.decoder.cell, model.readout, model.decoder.attention
        if cell.context_weight is None:
            raise ValueError("the decoder's cell has no context")
        with torch.no_grad():
            self._encoder = self._cast_module(model.encoder)
            self._decoder = self._cast_module(model.decoder)
            self._context_weight = self._cast(torch.cat([cell.context_weight, readout.context_weight]))
            self._look_weight = self._cast(attention.query_weight) if attention is not None else None
            self._state_weight = self._cast(readout.state_weight)
            self._factor = self._cast(readout.factor) if readout.factor is not None else None
            self.output_weight = self._cast(readout.output_weight)
            self.output_bias = readout.output_bias.to(wide(self.dtype))
            self._words = WordTable(
                model.target_embedding,
                self._cast(torch.cat([cell.input_weight, readout.word_weight])),
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
        padding = None if bool(source_mask.all()) else ~source_mask
        embedded = self.model.source_embedding(source).to(self.dtype)
        memory: Memory = self._decoder.remember(self._encoder(embedded, padding), source_mask, padding)
        hidden = self._decoder.initial_state(memory)
        read = memory.annotations if memory.context is None else memory.context
        return Encoded(memory.keys, F.linear(read, self._context_weight), padding, hidden)

    def start(self, encoded: Encoded) -> SearchState:
        """The state of one row a sentence."""
        return SearchState(encoded.hidden, None)

    def step(
        self, encoded: Encoded, state: SearchState, previous: Tensor | None
    ) -> tuple[SearchState, Tensor, Tensor | None]:
        """One step from the previous words (R,), or None at the first: (state, features (R, r), weights (R, Tx)).

        R is a multiple of the sentences; the rows of one sentence are adjacent. `features` are what the softmax reads;
        weights are None without attention.
        """
        word = self._words.nothing(len(state.hidden)) if previous is None else self._words(previous)
        size = 3 * self.config.hidden
        hidden = state.hidden
        if self.update_first and previous is not None:
            if state.context is None:
                raise ValueError("the decoder has not looked at the source yet")
            hidden = self._update(hidden, word[:, :size] + state.context)
        weights, context = self._look(encoded, hidden)
        if not self.update_first:
            hidden = self._update(hidden, word[:, :size] + context[:, :size])
        total = F.linear(hidden.to(self.dtype), self._state_weight)
        total += word[:, size:]
        total += context[:, size:]
        features = maxout(total)
        if self._factor is not None:
            features = F.linear(features, self._factor)
        return SearchState(hidden, context[:, :size] if self.update_first else None), features, weights

    def _update(self, hidden: Tensor, inputs: Tensor) -> Tensor:
        return self._decoder.cell.update(inputs, hidden)

    def _look(self, encoded: Encoded, hidden: Tensor) -> tuple[Tensor | None, Tensor]:
        """The weights (R, Tx) of states (R, n), and what cell and readout take from the contexts (R, 3n + 2l)."""
        if encoded.keys is None or self._look_weight is None or self._decoder.attention is None:
            rows = len(hidden) // len(encoded.values)
            return None, encoded.values.repeat_interleave(rows, 0) if rows > 1 else encoded.values
        query = F.linear(hidden.to(self.dtype), self._look_weight)
        context, weights = self._decoder.attention.look(query, encoded.keys, encoded.values, encoded.padding)
        return weights, context

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.dtype)

    def _cast_module(self, module: M) -> M:
        """The module itself where its weights have the type already, else a copy in it."""
        if all(parameter.dtype == self.dtype for parameter in module.parameters()):
            return module
        return copy.deepcopy(module).to(self.dtype)
