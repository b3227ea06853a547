"""The naive loop: the model of Bahdanau et al. (2015), appendix A, implemented in the obvious way, as a baseline.

One Python loop runs over the steps and computes everything inside a step: the embedding of the word, the inputs of the
cell, attention, readout and logits. It uses plain autograd and keeps the logits of all steps for one cross entropy. The
keys (`U_a annotations`) are computed once per sentence, or, with `recompute_keys`, at every step as in the equations.
It uses the weights of a TranslationModel by name. It is a second implementation, independent of nmtalign's own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # the target value that F.cross_entropy leaves out


@dataclass(frozen=True)
class Memory:
    """The encoded source of N sentences, or of N hypotheses, each with a copy of its sentence."""

    annotations: Tensor  # (N, Tx, 2n)
    mask: Tensor  # (N, Tx), True = a real token
    keys: Tensor | None  # (N, Tx, n'); None without attention, and if they are computed at every step
    summary: Tensor  # the input of the first decoder state; without attention also the fixed context

    def select(self, rows):
        """Copies of the rows (indices), in their order."""
        keys = None if self.keys is None else self.keys[rows]
        return Memory(self.annotations[rows], self.mask[rows], keys, self.summary[rows])


@dataclass(frozen=True)
class State:
    """The decoder's state (N, n) and the last context (N, 2n), which is None before the first step."""

    hidden: Tensor
    context: Tensor | None

    def select(self, rows):
        """Copies of the rows (indices), in their order."""
        return State(self.hidden[rows], None if self.context is None else self.context[rows])


class NaiveLoop:
    """Computes the loss of a batch; `weights` are the parameters of a model by name, and gradients flow into them."""

    def __init__(self, config, weights, recompute_keys=False):
        self.config = config
        self.weights = weights
        self.recompute_keys = recompute_keys
        self._attends = config.attention == "additive"

    def loss(self, source, source_mask, target, target_mask, label_smoothing=0.0):
        """Returns the sum of the negative log-likelihoods of the target words (B, Ty), without padding (mask False)."""
        memory = self.remember(source, source_mask)
        state, previous, steps = self.start(memory), None, []
        for i in range(target.shape[1]):
            state, logits = self.step(memory, state, previous)
            steps.append(logits)
            previous = target[:, i]
        logits = torch.stack(steps, 1).flatten(0, 1)
        wanted = target.masked_fill(~target_mask, IGNORED).flatten()
        return F.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum", label_smoothing=label_smoothing)

    def remember(self, source, mask):
        """Encodes the source (N, Tx)."""
        annotations, summary = self._encode(source, mask)
        keys = self._keys(annotations) if self._attends and not self.recompute_keys else None
        return Memory(annotations, mask, keys, summary)

    def start(self, memory):
        """Returns the state before the first step."""
        hidden = F.linear(memory.summary, self["decoder.initial_weight"], self["decoder.initial_bias"])
        return State(torch.tanh(hidden), None)

    def step(self, memory, state, previous):
        """Returns the next state and the logits (N, K) of its word; previous words (N,) are None at the first step."""
        hidden, context = state.hidden, state.context
        if previous is None:
            word = hidden.new_zeros(len(hidden), self.config.embedding)
        else:
            word = self._embed("target_embedding", previous)
        if self.config.order == "look-update-generate":
            context = self._context(hidden, memory)
            hidden = self._cell("decoder.cell", self._inputs("decoder.cell", word), hidden, context)
        else:
            if previous is not None:
                hidden = self._cell("decoder.cell", self._inputs("decoder.cell", word), hidden, context)
            context = self._context(hidden, memory)
        return State(hidden, context), self._logits(hidden, word, context)

    def __getitem__(self, name):
        return self.weights[name]

    def _embed(self, name, words):
        return F.embedding(words, self[f"{name}.weight"]) + self[f"{name}.bias"]

    def _encode(self, source, mask):
        """Returns the annotations (B, Tx, 2n) and the input of the first decoder state."""
        length = source.shape[1]
        forward = self._read(source, mask, 0, range(length))
        if not self.config.bidirectional:
            return torch.stack(forward, 1), forward[-1]
        backward = self._read(source, mask, 1, reversed(range(length)))[::-1]
        annotations = torch.cat([torch.stack(forward, 1), torch.stack(backward, 1)], -1)
        return annotations, backward[0] if self._attends else torch.cat([forward[-1], backward[0]], -1)

    def _read(self, source, mask, direction, order):
        """Returns the states of one direction, in reading order; padding leaves a state unchanged."""
        state = self["encoder.cell.bias"].new_zeros(len(source), self.config.hidden)
        states = []
        for j in order:
            inputs = self._inputs("encoder.cell", self._embed("source_embedding", source[:, j]), direction)
            new = self._cell("encoder.cell", inputs, state, None, direction)
            state = torch.where(mask[:, j, None], new, state)
            states.append(state)
        return states

    def _inputs(self, name, x, direction=None):
        """Returns the products (..., 3n) of a cell's input (..., m); encoder weights have one entry per direction."""
        return F.linear(x, self[f"{name}.input_weight"][slice(None) if direction is None else direction])

    def _cell(self, name, inputs, state, context, direction=None):
        """Returns the next state (B, n) of the gated unit, given the input products (B, 3n)."""
        pick = slice(None) if direction is None else direction
        U, bias = (self[f"{name}.{part}"][pick] for part in ("recurrent_weight", "bias"))
        n = self.config.hidden
        if context is not None:
            inputs = inputs + F.linear(context, self[f"{name}.context_weight"])
        if self.config.cell == "paper":
            z, r = torch.sigmoid(inputs[:, : 2 * n] + F.linear(state, U[: 2 * n])).chunk(2, -1)
            candidate = torch.tanh(inputs[:, 2 * n :] + F.linear(r * state, U[2 * n :]) + bias)
            return (1 - z) * state + z * candidate
        inputs = inputs + bias
        recurrent = F.linear(state, U, self[f"{name}.recurrent_bias"][pick])
        r, z = torch.sigmoid(inputs[:, : 2 * n] + recurrent[:, : 2 * n]).chunk(2, -1)
        candidate = torch.tanh(inputs[:, 2 * n :] + r * recurrent[:, 2 * n :])
        return (1 - z) * candidate + z * state

    def _keys(self, annotations):
        return F.linear(annotations, self["decoder.attention.key_weight"])

    def _context(self, state, memory):
        """Returns sum_j weights[j] * annotations[j], or, without attention, the fixed context."""
        if not self._attends:
            return memory.summary
        keys = self._keys(memory.annotations) if memory.keys is None else memory.keys
        query = F.linear(state, self["decoder.attention.query_weight"])
        hidden = torch.tanh(query[:, None] + keys)
        energies = F.linear(hidden, self["decoder.attention.vector"][None]).squeeze(-1)
        weights = energies.masked_fill(~memory.mask, -torch.inf).softmax(-1)
        return torch.bmm(weights[:, None].to(memory.annotations.dtype), memory.annotations).squeeze(1)

    def _logits(self, state, word, context):
        """Returns the logits (B, K) of one step: the maxout layer, then the product with the output weights."""
        total = F.linear(state, self["readout.state_weight"], self["readout.bias"])
        total = total + F.linear(word, self["readout.word_weight"]) + F.linear(context, self["readout.context_weight"])
        hidden = total.unflatten(-1, (-1, 2)).amax(-1)
        if self.config.output_rank:
            hidden = F.linear(hidden, self["readout.factor"])
        return F.linear(hidden, self["readout.output_weight"], self["readout.output_bias"])
