"""The Transformer (Vaswani et al. 2017): layers of attention and feed-forward nets in the place of recurrence.

Its parts are exchangeable with those of RNNsearch: the encoder gives annotations, the decoder runs along the target
words, and the readout is the softmax. With `norm` = "pre", the last layer is followed by a norm.

m is the size of the word vectors and of all layers, A the number of heads, and d = m / A.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import MIN_POSITIONS, Encoded, Memory, extended
from nmtalign.core.devices import widest
from nmtalign.core.functional import fast_dropout, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.core.step import Advance, Decoder, DecoderPass, DecoderState, Encoder
from nmtalign.core.transformer_layer import LayerNorm, TransformerLayer, attend, hidden_positions, self_attention
from nmtalign.errors import check_wanted
from nmtalign.settings.training_settings import ModelConfig


def sinusoids(first: int, count: int, width: int, device: torch.device) -> Tensor:
    """The encodings (count, width) of the positions from `first` (0, 1, ...): section 3.5 of that article."""
    numbers = torch.arange(first, first + count, dtype=widest(device), device=device)
    rates = 10_000 ** -(torch.arange(0, width, 2, dtype=numbers.dtype, device=device) / width)
    angles = numbers[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


class TransformerStack(Initialised):
    """What encoder and decoder share: the layers, the positions before them, and the norm after them."""

    def __init__(self, config: ModelConfig, of_decoder: bool) -> None:
        super().__init__()
        self._dropout, self.output_size = config.dropout, config.embedding
        self.layers = nn.ModuleList(TransformerLayer(config, of_decoder) for _ in range(config.layers))
        self.norm = LayerNorm(config.embedding) if config.norm == "pre" else nn.Identity()

    def with_positions(self, vectors: Tensor, first: int = 0) -> Tensor:
        """The input of the first layer, wide, of word vectors (B, T, m) at the positions from `first`."""
        (_, count, width), dtype = vectors.shape, wide(vectors.dtype)
        x = vectors.to(dtype) * math.sqrt(width) + sinusoids(first, count, width, vectors.device).to(dtype)
        return fast_dropout(x, self._dropout if self.training else 0.0)


class TransformerEncoder(TransformerStack, Encoder):
    """Every layer attends to all words of the sentence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, of_decoder=False)

    def forward(self, embedded: Tensor, padding: Tensor | None) -> Encoded:
        """Annotations (B, Tx, m) of embedded words (B, Tx, m); padding (B, Tx) is True where no word is."""
        x, hidden = self.with_positions(embedded), hidden_positions(embedded, padding)
        for layer in self.layers:
            check_wanted()
            x, _ = layer(x, embedded.dtype, partial(self_attention, hidden=hidden))
        return Encoded(self.norm(x).to(embedded.dtype), ())


@dataclass(frozen=True)
class CachedState(DecoderState):
    """The keys and values of all positions so far, for L layers: `hidden` (L, 2, N', A, C, d) has room for C positions.

    A step writes its own into the room, where no other state has done so, or into a copy.
    """

    length: int = 0  # positions so far
    written: list[int] = field(default_factory=lambda: [0])  # those of all states with this `hidden`
    rows: Tensor | None = None  # (N,), the row of `hidden` that each row continues; None = each its own

    def __len__(self) -> int:
        return self.hidden.shape[2] if self.rows is None else len(self.rows)

    def select(self, rows: Tensor) -> "CachedState":
        """The states of some rows (indices), in their order; only the next step copies keys and values.

        At most steps of a greedy search, every row continues itself, and nothing is copied.
        """
        if rows.device.type == "cpu" and torch.equal(rows, torch.arange(len(self))):
            return self
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def with_room(self) -> "CachedState":
        """The same state with one more position, which only its owner has yet to write."""
        length, room = self.length, self.hidden.shape[4]
        if self.rows is None and length < room and self.written[0] == length:
            self.written[0] += 1
            return replace(self, length=length + 1)
        more = 0 if length < room else MIN_POSITIONS
        copied = self.hidden.clone() if self.rows is None else self.hidden.index_select(2, self.rows)
        copied = F.pad(copied, (0, 0, 0, more)) if more else copied
        return CachedState(copied, length=length + 1, written=[length + 1])


class TransformerDecoder(TransformerStack, Decoder):
    """Every layer attends to the words so far and to the annotations; one layer gives the weights of the alignment."""

    roles: ClassVar[Mapping[str, Role]] = {"memory_weight": Role.MATRIX}

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, of_decoder=True)
        size = config.embedding
        self._heads, self._head = config.heads, config.alignment_head
        self._aligned = (config.alignment_layer or config.layers) - 1
        self.memory_weight = nn.Parameter(torch.empty(config.layers, 2, size, annotation_size))  # W^K, W^V of all

    def remember(self, encoded: Encoded, mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, m); its `keys` are keys and values (B, A, L, 2, T, d) of all layers.

        T is at least 16, so that `attend` need not extend them at every step.
        """
        annotations = encoded.annotations
        found = F.linear(annotations, self.memory_weight.flatten(0, 2).to(annotations.dtype))
        keys = found.unflatten(-1, (len(self.layers), 2, self._heads, -1)).permute(0, 4, 2, 3, 1, 5)
        keys = extended(keys, MIN_POSITIONS)
        keys = keys if torch.is_grad_enabled() else keys.contiguous()  # a search reads them at every step
        return Memory(annotations, keys, padding, annotations.new_empty(len(mask), 0))

    def unroll(self, memory: Memory, words: Tensor) -> DecoderPass:
        """All steps along given previous words (Ty, B, m), the first one's vector 0, with a gradient.

        The contexts (Ty, B, 0) are empty: the states contain what the layers have read.
        """
        x = self.with_positions(words.transpose(0, 1))
        hidden = hidden_positions(x, causal=True)
        states, weights = self._run(memory, x, words.dtype, lambda _, parts: self_attention(parts, hidden))
        return DecoderPass(memory, words, states.transpose(0, 1), words[..., :0], weights.transpose(0, 1))

    def start(self, memory: Memory) -> CachedState:
        """The state of one row per sentence."""
        shape = len(self.layers), 2, len(memory.values), self._heads, 0, self.output_size // self._heads
        return CachedState(memory.values.new_empty(shape))

    def advance(self, memory: Memory, state: DecoderState, words: Tensor, first: bool) -> Advance:
        """One step of search from the previous words (N, m), which are 0 at the `first` step; without a gradient.

        The rows of one sentence are adjacent. N is a multiple of the number of sentences.
        """
        if not isinstance(state, CachedState):
            raise TypeError("the state is not that of a Transformer")
        position, state = state.length, state.with_room()
        cache = state.hidden
        hidden = torch.arange(cache.shape[4], device=words.device) > position

        def attend_self(number: int, parts: Tensor) -> Tensor:
            queries, new = parts.flatten(0, 1).split([1, 2], 1)
            cache[number, :, :, :, position] = new.transpose(0, 1)
            keys, values = cache[number]
            found, _ = attend(queries.transpose(1, 2), keys, values, hidden, least_rows=1)
            return found.reshape(len(parts), -1, words.shape[1])

        x = self.with_positions(words[:, None], position).view(len(memory.values), -1, words.shape[1])
        states, weights = self._run(memory, x, words.dtype, attend_self)
        return Advance(state, states.flatten(0, 1), words[:, :0], weights.flatten(0, 1))

    def _run(
        self, memory: Memory, x: Tensor, dtype: torch.dtype, attend_self: Callable[[int, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(states (B, R, m), weights (B, R, Tx)) of all layers, for the input x (B, R, m) of the first one."""
        if memory.keys is None:
            raise ValueError("the memory of a model without attention cannot be attended to")
        hidden, length = hidden_positions(memory.values, memory.padding), memory.values.shape[1]
        for number, layer in enumerate(self.layers):
            check_wanted()
            keys, values = memory.keys[:, :, number].unbind(2)
            x, found = layer(x, dtype, partial(attend_self, number), (keys, values, hidden))
            if number == self._aligned:
                weights = (found[:, self._head - 1] if self._head else found.mean(1))[..., :length]
        return self.norm(x), weights
