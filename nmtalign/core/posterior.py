"""Weights given the word: where the model read, once it is known what it wrote.

The weights of a step are chosen before its word is known: alpha[t, j] is a prior over what the word y_t comes from.
Bayes' rule gives posterior[t, j], proportional to alpha[t, j] * p(y_t | context = annotations[j]) (Shankar & Sarawagi
2019, who train so). To ask for p at each of Tx annotations would cost Tx softmaxes; to the first order around the
context c_t that the model read, log p(y_t | annotations[j]) = log p(y_t | c_t) + g_t . (annotations[j] - c_t), and
g_t = d log p(y_t) / d c_t costs one. Nothing of it needs another training.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.decoder import Decoder, Memory
from nmtalign.core.readout import Readout
from nmtalign.core.recurrence import unroll


def force_posterior(
    decoder: Decoder, readout: Readout, memory: Memory, words: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """(log_probs (Ty, B) of the targets (Ty, B), posterior weights (Ty, B, Tx)) of a decoder that attends.

    words (Ty, B, m) are the previous ones, the first one's vector 0. Each row of the weights sums to 1.
    """
    with torch.no_grad():
        states, contexts, weights = decoder.unroll(memory, words)
    if weights is None:
        raise ValueError("a model without attention has no weights")
    with torch.enable_grad():
        read = contexts.detach().requires_grad_()
        states = _read_by_readout(decoder, memory, words, states, read)
        features = readout.features(states.flatten(0, 1), words.flatten(0, 1), read.flatten(0, 1))
    log_probs, d_features = readout.token_gradients(features.detach(), targets.flatten())
    (gradient,) = torch.autograd.grad(features, read, d_features)
    gains = torch.bmm(gradient.transpose(0, 1), memory.annotations.mT)  # (B, Ty, Tx), up to a constant a row
    return log_probs.view_as(targets), (weights.log() + gains.transpose(0, 1).to(weights.dtype)).softmax(-1)


def _read_by_readout(decoder: Decoder, memory: Memory, words: Tensor, states: Tensor, contexts: Tensor) -> Tensor:
    """The states (Ty, B, n) that the readout reads, as a function of the contexts (Ty, B, c) of the same steps.

    In the order look-generate-update they are none; in the other one the cell takes up the context just before: one
    step of the cell, for all steps of the pass side by side.
    """
    cell = decoder.cell
    if decoder.update_first or cell.context_weight is None:
        return states
    initial = decoder.initial_state(memory)
    before = torch.cat([initial[None], states[:-1].to(initial.dtype)])
    inputs = cell.inputs(words) + F.linear(contexts, cell.context_weight.to(contexts.dtype))
    return unroll(cell, inputs.flatten(0, 1)[None], before.flatten(0, 1)).states[1].view_as(states)
