"""The Transformer (Vaswani et al. 2017): layers of attention and feed-forward nets in the place of recurrence.

Its parts are exchangeable with those of RNNsearch: the encoder gives annotations, the decoder runs along the target
words, and the readout is the softmax. A layer has two sublayers, in the decoder three: self-attention, attention to the
source, and a feed-forward net. With `norm` = "post", as in the article, a sublayer f changes x to norm(x + f(x)); with
"pre" it changes x to x + f(norm(x)), and the last layer is followed by a norm. Projections have no bias.

m is the size of the word vectors and of all layers, n that of the inner layer of the feed-forward nets, A the number of
heads, and d = m / A.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import Memory
from nmtalign.core.decoder import Decoder, DecoderState, StepOutput
from nmtalign.core.numerics import Initialised, Role, check_wanted, fast_dropout, wide, widest
from nmtalign.settings.training_settings import ModelConfig

_ROOM = 16  # positions that a cache grows by
_POSITIONS = 1024  # positions whose encodings are kept


def sinusoids(first: int, count: int, width: int, device: torch.device) -> Tensor:
    """The encodings (count, width) of the positions from `first` (0, 1, ...): section 3.5 of that article."""
    numbers = torch.arange(first, first + count, dtype=widest(device), device=device)
    rates = 10_000 ** -(torch.arange(0, width, 2, dtype=numbers.dtype, device=device) / width)
    angles = numbers[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


@cache
def _kept_positions(width: int, device: torch.device) -> Tensor:
    """The encodings of the first positions, which any later computation may read, also one with a gradient."""
    with torch.inference_mode(False):
        return sinusoids(0, _POSITIONS, width, device)


def attend(queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """(contexts (B, A, R, d), weights (B, A, R, T)): softmax(Q K^T / sqrt(d)) V (equation 1 of that article).

    queries (B, A, R, d), keys and values (B, A, T, d), `hidden` is True at positions that get the weight 0.
    """
    products = (queries / math.sqrt(queries.shape[-1])) @ keys.mT
    energies = products.to(wide(products.dtype))
    weights = (energies if hidden is None else energies.masked_fill(hidden, -torch.inf)).softmax(-1)
    return weights.to(values.dtype) @ values, weights


def contexts_of(queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
    """Only the contexts of `attend`.

    On a GPU, PyTorch's scaled_dot_product_attention keeps no weights for the gradient. On a CPU it is no faster for
    sentences, and in bf16 its gradient takes seven times as long.
    """
    if not queries.is_cuda:
        return attend(queries, keys, values, hidden)[0]
    return F.scaled_dot_product_attention(queries, keys, values, None if hidden is None else ~hidden)


def self_attention(parts: Tensor, hidden: Tensor | None) -> Tensor:
    """The contexts (B, T, m) of the queries, keys and values (B, T, 3, A, d) of the same words; see `attend`."""
    queries, keys, values = parts.permute(2, 0, 3, 1, 4)
    return contexts_of(queries, keys, values, hidden).transpose(1, 2).flatten(2)


class LayerNorm(Initialised):
    """Each vector minus its mean, over its standard deviation, times a scale, plus a shift (Ba et al. 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = Role.SCALE.parameter(width), Role.BIAS.parameter(width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., m) to (..., m)."""
        return F.layer_norm(x, self.scale.shape, self.scale.to(x.dtype), self.shift.to(x.dtype))


class TransformerLayer(Initialised):
    """A layer of the encoder, or with `of_decoder` one that also attends to the source."""

    def __init__(self, config: ModelConfig, of_decoder: bool) -> None:
        super().__init__()
        size, inner = config.embedding, config.hidden
        self._heads, self._pre, self._dropout = config.heads, config.norm == "pre", config.dropout
        self.self_weight = Role.MATRIX.parameter(3, size, size)  # W^Q, W^K and W^V of all heads
        self.self_output = Role.MATRIX.parameter(size, size)  # W^O
        self.source_weight = Role.MATRIX.parameter(size, size) if of_decoder else None  # W^Q
        self.source_output = Role.MATRIX.parameter(size, size) if of_decoder else None
        self.inner_weight = Role.MATRIX.parameter(inner, size)
        self.inner_bias = Role.BIAS.parameter(inner)
        self.outer_weight = Role.MATRIX.parameter(size, inner)
        self.outer_bias = Role.BIAS.parameter(size)
        self.norms = nn.ModuleList(LayerNorm(size) for _ in range(3 if of_decoder else 2))

    def forward(
        self,
        x: Tensor,
        dtype: torch.dtype,
        attend_self: Callable[[Tensor], Tensor],
        source: tuple[Tensor, Tensor, Tensor | None] | None = None,
        aligned: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(x (B, R, m), weights (B, A, R, Tx) of the source) after this layer; x is wide, products are in `dtype`.

        `attend_self` gives the contexts (B, R, m) of queries, keys and values (B, R, 3, A, d). `source` are the keys
        and values (B, A, Tx, d) of the source, and its hidden positions. Weights are None unless `aligned`.
        """
        weights = None
        parts = F.linear(self._enter(0, x, dtype), self.self_weight.flatten(0, 1))
        contexts = attend_self(parts.unflatten(-1, (3, self._heads, -1)))
        x = self._leave(0, x, F.linear(contexts, self.self_output))
        if source is not None and self.source_weight is not None and self.source_output is not None:
            queries = F.linear(self._enter(1, x, dtype), self.source_weight)
            queries = queries.unflatten(-1, (self._heads, -1)).transpose(1, 2)
            contexts, weights = attend(queries, *source) if aligned else (contexts_of(queries, *source), None)
            x = self._leave(1, x, F.linear(contexts.transpose(1, 2).flatten(2), self.source_output))
        inner = F.linear(self._enter(-1, x, dtype), self.inner_weight, self.inner_bias.to(dtype)).relu()
        return self._leave(-1, x, F.linear(inner, self.outer_weight, self.outer_bias.to(dtype))), weights

    def _enter(self, number: int, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The input of a sublayer."""
        return (self.norms[number](x) if self._pre else x).to(dtype)

    def _leave(self, number: int, x: Tensor, change: Tensor) -> Tensor:
        """x changed by a sublayer."""
        x = x + fast_dropout(change, self._dropout, self.training)
        return x if self._pre else self.norms[number](x)


class TransformerStack(Initialised):
    """What encoder and decoder share: the layers, the positions before them, and the norm after them."""

    def __init__(self, config: ModelConfig, of_decoder: bool = False) -> None:
        super().__init__()
        self._dropout, self.output_size = config.dropout, config.embedding
        self.layers = nn.ModuleList(TransformerLayer(config, of_decoder) for _ in range(config.layers))
        self.norm = LayerNorm(config.embedding) if config.norm == "pre" else nn.Identity()

    def with_positions(self, vectors: Tensor, first: int = 0) -> Tensor:
        """The input of the first layer, wide, of word vectors (B, T, m) at the positions from `first`."""
        (_, count, width), dtype = vectors.shape, wide(vectors.dtype)
        positions = _kept_positions(width, vectors.device)[first : first + count]
        if len(positions) < count:
            positions = sinusoids(first, count, width, vectors.device)
        x = vectors.to(dtype) * math.sqrt(width) + positions.to(dtype)
        return fast_dropout(x, self._dropout, self.training)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of products."""
        return cast(TransformerLayer, self.layers[0]).self_weight.dtype


class TransformerEncoder(TransformerStack):
    """Every layer attends to all words of the sentence."""

    def forward(self, embedded: Tensor, padding: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Annotations (B, Tx, m) of embedded words (B, Tx, m); padding (B, Tx) is True where no word is."""
        x, hidden = self.with_positions(embedded), None if padding is None else padding[:, None, None]
        for layer in self.layers:
            check_wanted()
            x, _ = layer(x, embedded.dtype, partial(self_attention, hidden=hidden))
        return self.norm(x).to(embedded.dtype), ()


@dataclass(frozen=True)
class CachedState(DecoderState):
    """The keys and values of `steps` positions, for L layers: `hidden` (L, 2, N', A, C, d) has room for C positions.

    A step writes its keys and values into this room, or into a copy if another state has written there.
    """

    written: list[int] = field(default_factory=lambda: [0])  # positions that any state has written into `hidden`
    rows: Tensor | None = None  # (N,), the row of `hidden` that each row continues; None = the row of the same number

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
        """The same state with one more position, which the caller has to write."""
        length, room = self.steps, self.hidden.shape[4]
        if self.rows is None and length < room and self.written[0] == length:
            self.written[0] += 1
            return replace(self, steps=length + 1)
        if self.rows is None:
            copied = F.pad(self.hidden[..., :length, :], (0, 0, 0, _ROOM))
        else:  # no further room: a search that selects rows does so at most steps, and copies everything anyway
            layers, parts, _, heads, _, size = self.hidden.shape
            copied = self.hidden.new_empty(layers, parts, len(self), heads, length + 1, size)
            torch.index_select(self.hidden[..., :length, :], 2, self.rows, out=copied[..., :length, :])
        return CachedState(copied, steps=length + 1, written=[length + 1])


class TransformerDecoder(TransformerStack, Decoder):
    """Every layer attends to the words so far and to the annotations; one layer gives the weights of the alignment."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, of_decoder=True)
        size = config.embedding
        self._heads, self._head = config.heads, config.alignment_head
        self._aligned = (config.alignment_layer or config.layers) - 1
        self.memory_weight = Role.MATRIX.parameter(config.layers, 2, size, annotation_size)  # W^K, W^V of all

    def remember(self, annotations: Tensor, finals: Sequence[Tensor], mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, m); its `keys` are keys and values (B, A, L, 2, Tx, d) of all layers."""
        keys = F.linear(annotations, self.memory_weight.flatten(0, 2))
        keys = keys.unflatten(-1, (len(self.layers), 2, self._heads, -1)).permute(0, 4, 2, 3, 1, 5)
        keys = keys if torch.is_grad_enabled() else keys.contiguous()  # a search reads them at every step
        return Memory(annotations, keys, padding, annotations.new_empty(len(mask), 0))

    def unroll(self, memory: Memory, words: Tensor) -> StepOutput:
        """See `Decoder`; the contexts (Ty, B, 0) are empty: the states contain what the layers have read."""
        x = self.with_positions(words.transpose(0, 1))
        places = torch.arange(len(words), device=x.device)
        hidden = places > places[:, None]  # the positions after that of the query
        states, weights = self._run(memory, x, words.dtype, lambda _, parts: self_attention(parts, hidden))
        return StepOutput(states.transpose(0, 1), words[..., :0], weights.transpose(0, 1))

    def start(self, memory: Memory) -> CachedState:
        shape = len(self.layers), 2, len(memory.values), self._heads, 0, self.output_size // self._heads
        return CachedState(memory.values.new_empty(shape))

    def step(self, memory: Memory, state: DecoderState, words: Tensor) -> tuple[DecoderState, StepOutput]:
        before = cast(CachedState, state)
        position, state = before.steps, before.with_room()
        cache = state.hidden
        hidden = torch.arange(cache.shape[4], device=words.device)[None] > position  # (1, C): a mask has two dimensions

        def attend_self(number: int, parts: Tensor) -> Tensor:
            queries, new = parts.flatten(0, 1).split([1, 2], 1)
            cache[number, :, :, :, position] = new.transpose(0, 1)
            keys, values = cache[number]
            contexts = contexts_of(queries.transpose(1, 2), keys, values, hidden)
            return contexts.reshape(len(parts), -1, words.shape[1])

        x = self.with_positions(words[:, None], position).view(len(memory.values), -1, words.shape[1])
        states, weights = self._run(memory, x, words.dtype, attend_self)
        return state, StepOutput(states.flatten(0, 1), words[:, :0], weights.flatten(0, 1))

    def _run(
        self, memory: Memory, x: Tensor, dtype: torch.dtype, attend_self: Callable[[int, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(states (B, R, m), weights (B, R, Tx)) of all layers, for the input x (B, R, m) of the first one."""
        hidden = None if memory.padding is None else memory.padding[:, None, None]
        for number, layer in enumerate(self.layers):
            check_wanted()
            keys, values = cast(Tensor, memory.keys)[:, :, number].unbind(2)
            aligned = number == self._aligned
            x, by_head = layer(x, dtype, partial(attend_self, number), (keys, values, hidden), aligned)
            if aligned:
                weights = by_head[:, self._head - 1] if self._head else by_head.mean(1)
        return self.norm(x), weights
