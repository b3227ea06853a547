"""The equations of the article, slowly: RNNsearch and RNNencdec, one sentence and one word at a time, in float64.

This is the place to read the model beside the article: section 3, equations 4 to 7, appendix A. The fast modules
compute the same numbers, and tests compare both. Nothing else in the package imports this module.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from nmtalign.core.attention import AdditiveAttention
from nmtalign.core.cells import PaperCell
from nmtalign.core.decoder import RecurrentDecoder
from nmtalign.core.model import RecurrentEncoder, TranslationModel


def log_probs_and_weights(
    model: TranslationModel, source: Sequence[int], target: Sequence[int]
) -> tuple[Tensor, Tensor | None]:
    """(log p of each target word (Ty,), weights (Ty, Tx) or None) of a pair of ids that end with `</s>`.

    Raises ValueError for a model that is not one of the article.
    """
    check(model)
    config, decoder = model.config, cast(RecurrentDecoder, model.decoder)
    annotations = annotate(model, source)
    attends = isinstance(decoder.attention, AdditiveAttention)
    # The RNNencdec has a fixed context: the last state of each direction.
    n = config.hidden
    fixed = torch.cat([annotations[-1][:n], annotations[0][n:]])
    # s_0 = tanh(W_s backward_1 + b_s), appendix A.2.2
    summary = annotations[0][-n:] if attends else fixed
    state = torch.tanh(cast(Tensor, decoder.initial_weight) @ summary + cast(Tensor, decoder.initial_bias))
    word_vector = state.new_zeros(config.embedding)  # no previous word, and no begin symbol
    log_probs, all_weights = [], []
    for word in target:
        context = fixed
        if attends:
            weights = attention_weights(cast(AdditiveAttention, decoder.attention), state, annotations)
            context = weighted_sum(weights, annotations)
            all_weights.append(weights)
        if config.order == "look-update-generate":  # section 3.1: s_i = f(s_{i-1}, y_{i-1}, c_i)
            state = cell_step(cast(PaperCell, decoder.cell), word_vector, state, context)
        log_probs.append(output(model, state, word_vector, context)[word])
        word_vector = model.target_embedding.weight[word] + model.target_embedding.bias
        if config.order == "look-generate-update":  # the released code
            state = cell_step(cast(PaperCell, decoder.cell), word_vector, state, context)
    return torch.stack(log_probs), torch.stack(all_weights) if attends else None


def annotate(model: TranslationModel, source: Sequence[int]) -> list[Tensor]:
    """The annotations h_j = [forward_j; backward_j] (equation 7), each of 2n numbers; n without the backward net."""
    embedding, cell = model.source_embedding, cast(PaperCell, cast(RecurrentEncoder, model.encoder).cell)
    vectors = [embedding.weight[word] + embedding.bias for word in source]
    forward = run_direction(cell, vectors, 0)
    if not model.config.bidirectional:
        return forward
    backward = run_direction(cell, vectors[::-1], 1)[::-1]
    return [torch.cat(halves) for halves in zip(forward, backward, strict=True)]


def run_direction(cell: PaperCell, vectors: Sequence[Tensor], direction: int) -> list[Tensor]:
    """The states of one direction of the encoder after each word vector."""
    states = [vectors[0].new_zeros(cell.size)]
    for vector in vectors:
        states.append(cell_step(cell, vector, states[-1], direction=direction))
    return states[1:]


def cell_step(
    cell: PaperCell, x: Tensor, state: Tensor, context: Tensor | None = None, direction: int | None = None
) -> Tensor:
    """The gated hidden unit (appendix A.1.1): s = (1 - z) * s' + z * tanh(W x + U (r * s') + C c + b)."""
    input_weight, recurrent_weight, bias = (
        cast(Tensor, parameter if direction is None else cast(Tensor, parameter)[direction])
        for parameter in (cell.input_weight, cell.recurrent_weight, cell.bias)
    )
    sums = input_weight @ x
    if context is not None:
        sums = sums + cast(Tensor, cell.context_weight) @ context
    (z_sum, r_sum, candidate_sum), (z_weight, r_weight, weight) = sums.chunk(3), recurrent_weight.chunk(3)
    z, r = sigmoid(z_sum + z_weight @ state), sigmoid(r_sum + r_weight @ state)
    return (1 - z) * state + z * torch.tanh(candidate_sum + weight @ (r * state) + bias)


def attention_weights(attention: AdditiveAttention, state: Tensor, annotations: Sequence[Tensor]) -> Tensor:
    """The softmax (equation 6) of the energies v_a . tanh(W_a s_{i-1} + U_a h_j) (appendix A.1.2)."""
    query = attention.query_weight @ state
    energies = [attention.vector @ torch.tanh(query + attention.key_weight @ annotation) for annotation in annotations]
    shares = torch.stack(energies).exp()
    return shares / shares.sum()


def weighted_sum(weights: Tensor, annotations: Sequence[Tensor]) -> Tensor:
    """The context (equation 5): the sum of the annotations by their weights."""
    return torch.stack([weight * annotation for weight, annotation in zip(weights, annotations, strict=True)]).sum(0)


def output(model: TranslationModel, state: Tensor, word_vector: Tensor, context: Tensor) -> Tensor:
    """Log-probabilities (K,): the maxout layer of U_o s + V_o e(y) + C_o c, then the softmax (appendix A.2.2)."""
    readout = model.readout
    sums = readout.state_weight @ state + readout.context_weight @ context + readout.bias
    sums = sums + cast(Tensor, readout.word_weight) @ word_vector
    hidden = torch.stack([torch.max(pair) for pair in sums.view(-1, 2)])
    if readout.factor is not None:
        hidden = readout.factor @ hidden
    logits = readout.output_weight @ hidden + readout.output_bias
    return logits - logits.exp().sum().log()


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + (-x).exp())


def check(model: TranslationModel) -> None:
    """Raises ValueError for a model that is not one of the article."""
    config = model.config
    papers: dict[str, object] = {
        "cell": "paper",
        "readout": "maxout",
        "attention_kind": "soft",
        "attention_span": "global",
    }
    papers |= {"coverage": "none", "copy": False, "readout_previous_word": True, "reverse_source": False}
    wrong = [name for name, value in papers.items() if getattr(config, name) != value]
    if wrong or config.order == "update-look-generate" or config.attention not in ("additive", "none"):
        raise ValueError(f"not a model of the article: {', '.join(wrong) or config.order + ', ' + config.attention}")
