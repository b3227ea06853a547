"""The equations of all recurrent systems, slowly: one sentence and one word at a time, a plain loop, meant for float64.

Tests compare the models with it. Equations, sections and appendices are those of Bahdanau et al. (2015).
"""

import torch

from nmtalign.core.attention import (
    FERTILITY_LIMIT,
    AdditiveAttention,
    Attention,
    CoverageAttention,
    GeneralAttention,
    LocalAttention,
)
from nmtalign.core.cells import CudnnCell, LightCell, LstmCell, MinimalCell, PaperCell
from nmtalign.core.decoder import RecurrentDecoder
from nmtalign.core.model import RecurrentEncoder
from nmtalign.text.tokenizer import UNK_ID


def log_probs_and_weights(model, source, target, copies=None, change=lambda _, context: context):
    """(log p of each target word (Ty,), weights (Ty, Tx) or None) of a pair of ids that end with `</s>`.

    `copies` (Tx,) are the ids that a copying model copies from each place. `change` receives the step and its context
    and returns the context to use, so that tests can ask "what if".
    """
    config, (_, decoder) = model.config, recurrent_parts(model)
    if decoder.initial_weight is None or decoder.initial_bias is None:
        return stack_log_probs_and_weights(model, source, target, copies)
    annotations, fixed, finals = annotate(model, source)
    attends = isinstance(decoder.attention, Attention)
    # s_0 = tanh(W_s backward_1 + b_s), appendix A.2.2
    n = config.hidden
    state = torch.tanh(decoder.initial_weight @ (finals[0][:n] if attends else fixed) + decoder.initial_bias)
    word_vector = torch.zeros(config.embedding, dtype=state.dtype)  # no previous word, and no begin symbol
    coverage = torch.zeros(len(annotations), dtype=state.dtype)
    log_probs, weights = [], []
    for step, word in enumerate(target):
        context = fixed
        if attends:
            row, shares = attention_weights(decoder, config, state[:n], annotations, coverage, step)
            context = sum_of(share * annotation for share, annotation in zip(shares, annotations, strict=True))
            coverage = next_coverage(decoder, coverage, row, annotations)
            weights.append(row)
        context = change(step, context)
        if config.order == "look-update-generate":  # section 3.1: s_i = f(s_{i-1}, y_{i-1}, c_i)
            state = cell_step(decoder.cell, word_vector, state, context)
        seen = attentional_vector(decoder, context, state[:n]), word_vector, context
        log_probs.append(word_log_prob(model, word, seen, copies, weights[-1] if attends else None, annotations))
        word_vector = embedded(model, word)
        if config.order == "look-generate-update":  # the released code
            state = cell_step(decoder.cell, word_vector, state, context)
    return torch.stack(log_probs), torch.stack(weights) if attends else None


def stack_log_probs_and_weights(model, source, target, copies):
    """As `log_probs_and_weights`, in the order update-look-generate (Luong et al. 2015, Wu et al. 2016)."""
    config, n, (_, decoder) = model.config, model.config.hidden, recurrent_parts(model)
    annotations, fixed, states = annotate(model, source)
    cells = [*decoder.lower.cells, decoder.cell, *decoder.upper.cells]
    attending, attends = len(decoder.lower.cells), isinstance(decoder.attention, Attention)
    context = torch.zeros_like(fixed) if attends else fixed
    feeds_vectors = config.input_feeding == "attentional"
    feeding = 0 if feeds_vectors else attending  # the layer that gets something of the step before
    fed = fixed.new_zeros(n) if feeds_vectors else context
    word_vector = torch.zeros(config.embedding, dtype=fixed.dtype)
    log_probs, weights = [], []
    coverage = torch.zeros(len(annotations), dtype=fixed.dtype)
    for step, word in enumerate(target):
        x = word_vector
        for layer, cell in enumerate(cells):
            given = torch.cat([x, context]) if layer > attending else x
            states[layer] = cell_step(cell, given, states[layer], fed if layer == feeding else None)
            x = states[layer][:n] + x if config.residual and layer > 1 else states[layer][:n]
            if layer == attending and attends:
                row, shares = attention_weights(decoder, config, states[layer][:n], annotations, coverage, step)
                context = sum_of(share * annotation for share, annotation in zip(shares, annotations, strict=True))
                coverage = next_coverage(decoder, coverage, row, annotations)
                weights.append(row)
        x = attentional_vector(decoder, context, x)
        seen = x, word_vector, context
        log_probs.append(word_log_prob(model, word, seen, copies, weights[-1] if weights else None, annotations))
        fed = x if feeds_vectors else context
        word_vector = embedded(model, word)
    return torch.stack(log_probs), torch.stack(weights) if weights else None


def attentional_vector(decoder, context, output):
    """tanh(W_c [context; output]) (Luong et al. 2015, equation 5), or the output of a decoder without W_c."""
    weight = decoder.attentional_weight
    return output if weight is None else torch.tanh(weight @ torch.cat([context, output]))


def annotate(model, source):
    """(annotations h_j (equation 7), the last outputs of all directions joined, the last state of each layer).

    The last state of a bidirectional layer is that of its backward net.
    """
    config, embedding = model.config, model.source_embedding
    vectors = [embedding.weight[number] + embedding.bias for number in source]
    from_the_end = [False, True] if config.bidirectional else [config.reverse_source]
    finals = []
    encoder, _ = recurrent_parts(model)
    for layer, cell in enumerate([encoder.cell, *encoder.upper.cells]):
        directions, last = [], []
        for direction, backward in enumerate(from_the_end[:1] if layer else from_the_end):
            state = torch.zeros(cell.state_size, dtype=embedding.weight.dtype)
            outputs = []
            for vector in reversed(vectors) if backward else vectors:
                state = cell_step(cell, vector, state, direction=direction)
                outputs.append(state[: config.hidden] + vector if config.residual and layer > 1 else state[: cell.size])
            directions.append(outputs[::-1] if backward else outputs)
            last.append(state)
        vectors = [torch.cat(outputs) for outputs in zip(*directions, strict=True)]
        finals.append(last[-1])
    end = [0 if backward else -1 for backward in (from_the_end if len(finals) == 1 else from_the_end[:1])]
    halves = [vector.split(config.hidden) for vector in vectors]
    return vectors, torch.cat([halves[place][way] for way, place in enumerate(end)]), finals


def recurrent_parts(model):
    """The encoder and the decoder; raises TypeError for a Transformer, whose equations are others."""
    if isinstance(model.encoder, RecurrentEncoder) and isinstance(model.decoder, RecurrentDecoder):
        return model.encoder, model.decoder
    raise TypeError("a Transformer is not recurrent")


def cell_step(cell, x, state, context=None, direction=None):
    """One step of the gated hidden unit (appendix A.1.1), or of another cell, for single vectors."""

    def of(parameter):
        return parameter if direction is None else parameter[direction]

    n = cell.size
    sums = of(cell.input_weight) @ x
    if context is not None and cell.context_weight is not None:
        sums = sums + cell.context_weight @ context
    if isinstance(cell, LightCell):  # Zhang & Sennrich (2019): no matrix multiplies the state
        key, query, value = (sums + of(cell.bias)).split(n)
        return torch.tanh(sigmoid(key + state) * value + sigmoid(query - state) * state)
    if isinstance(cell, MinimalCell):  # Feng et al. (2024): neither the gate nor the candidate depends on the state
        z_sum, candidate = (sums + of(cell.bias)).split(n)
        return (1 - sigmoid(z_sum)) * state + sigmoid(z_sum) * candidate
    recurrent = of(cell.recurrent_weight)
    if isinstance(cell, LstmCell):
        entry, forget, gate, candidate = (sums + recurrent @ state[:n] + of(cell.bias)).split(n)
        kept = sigmoid(forget) * state[n:] + sigmoid(entry) * torch.tanh(candidate)
        return torch.cat([sigmoid(gate) * torch.tanh(kept), kept])
    if isinstance(cell, PaperCell):
        z = sigmoid(sums[:n] + recurrent[:n] @ state)
        r = sigmoid(sums[n : 2 * n] + recurrent[n : 2 * n] @ state)
        candidate = torch.tanh(sums[2 * n :] + recurrent[2 * n :] @ (r * state) + of(cell.bias))
        return (1 - z) * state + z * candidate
    if not isinstance(cell, CudnnCell):
        raise TypeError(f"no equations for {type(cell).__name__}")
    sums = sums + of(cell.bias)
    products = recurrent @ state + of(cell.recurrent_bias)
    r = sigmoid(sums[:n] + products[:n])
    z = sigmoid(sums[n : 2 * n] + products[n : 2 * n])
    candidate = torch.tanh(sums[2 * n :] + r * products[2 * n :])
    return (1 - z) * candidate + z * state


def attention_weights(decoder, config, state, annotations, coverage, step):
    """(weights (Tx,) of a state, factors (Tx,) of the context): the softmax of the energies (equation 6), twice.

    Local attention is that of Luong et al. (2015), section 3.2: positions outside a window have the weight 0. In
    local-p the factors are multiplied by a Gaussian, and the weights are the factors, normalised.
    """
    energies = [energy(decoder, config, state, h, covered) for h, covered in zip(annotations, coverage, strict=True)]
    shares = torch.stack(energies).exp()
    if config.attention_span == "global":
        return shares / shares.sum(), shares / shares.sum()
    length, window = len(annotations), config.attention_window
    center = torch.tensor(min(step, length - 1), dtype=state.dtype)
    position = decoder.attention.position
    if position is not None:
        center = length * sigmoid(position.vector @ torch.tanh(position.weight @ state))
    offsets = torch.arange(length) - center
    shares = shares * (offsets.abs() <= window)
    shares = shares / shares.sum()
    if position is not None:
        shares = shares * torch.exp(-(offsets**2) / (2 * (window / 2) ** 2))
    return shares / shares.sum(), shares


def energy(decoder, config, state, annotation, covered):
    """The energy of a state and an annotation: v_a . tanh(W_a s + U_a h) (appendix A.1.2), or Luong et al.'s scores."""
    attention, n = decoder.attention, config.hidden
    if isinstance(attention, LocalAttention):
        attention = attention.score
    if isinstance(attention, AdditiveAttention):
        inner = attention.query_weight @ state + attention.key_weight @ annotation
        if isinstance(attention, CoverageAttention):
            inner = inner + attention.coverage_weight[:, 0] * covered
        return attention.vector @ torch.tanh(inner)
    if isinstance(attention, GeneralAttention):
        return state @ attention.key_weight @ annotation
    return state @ (annotation[:n] + annotation[n:] if len(annotation) > n else annotation)


def next_coverage(decoder, coverage, weights, annotations):
    """Linguistic coverage (Tu et al. 2016): the weights over the fertilities are added."""
    if not isinstance(decoder.attention, CoverageAttention):
        return coverage
    products = torch.stack([decoder.attention.fertility_weight[0] @ annotation for annotation in annotations])
    return coverage + weights / (FERTILITY_LIMIT * sigmoid(products))


def embedded(model, word):
    """The vector (m,) of a target word; that of `<unk>` for a copied word beyond the vocabulary."""
    embedding = model.target_embedding
    return embedding.weight[word if word < len(embedding.weight) else UNK_ID] + embedding.bias


def word_log_prob(model, word, given, copies, weights, annotations):
    """log p of a word given (state, previous word's vector, context); See et al. (2017), equations 8 and 9."""
    state, word_vector, context = given
    log_terms, copying = [], model.copying
    for weight, one, _ in contexts(model.config, context, weights, annotations):
        log_probs = output(model.readout, model.config, state, word_vector, one)
        log_terms.append(weight.log() + log_probs[word] if word < len(log_probs) else torch.tensor(-torch.inf))
    if copying is None or copies is None or weights is None:
        return torch.stack(log_terms).logsumexp(0)
    sums = copying.context_weight @ context + copying.state_weight @ state + copying.word_weight @ word_vector
    p_gen = sigmoid(sums + copying.bias)[0]
    equal = torch.tensor([number == word for number in copies])
    return (p_gen * torch.stack(log_terms).exp().sum() + (1 - p_gen) * (weights * equal).sum()).log()


def contexts(config, context, weights, annotations):
    """(probability, context, positions) of each context from which a word may be generated.

    Soft attention has one, the context of equation 5. Marginal attention has the annotation of each of the most
    probable positions, and the mean of the others by their weights; hard attention the most probable one.
    """
    if config.attention_kind == "soft" or weights is None:
        return [(torch.ones(()), context, list(range(len(annotations))))]
    order = weights.argsort(descending=True).tolist()
    if config.attention_kind == "hard":
        return [(torch.ones(()), annotations[order[0]], order[:1])]
    found = [(weights[place], annotations[place], [place]) for place in order[: config.attention_positions]]
    if others := order[config.attention_positions :]:
        mass = sum_of(weights[place] for place in others)
        found.append((mass, sum_of(weights[place] / mass * annotations[place] for place in others), others))
    return found


def output(readout, config, state, word_vector, context):
    """Log-probabilities (K,): the maxout layer, then the softmax (appendix A.2.2)."""
    hidden = state
    if readout.has_maxout:
        sums = readout.state_weight @ state + readout.context_weight @ context + readout.bias
        if readout.word_weight is not None:
            sums = sums + readout.word_weight @ word_vector
        hidden = torch.stack([torch.max(sums[2 * i], sums[2 * i + 1]) for i in range(config.maxout)])
    if readout.factor is not None:
        hidden = readout.factor @ hidden
    logits = readout.output_weight @ hidden + readout.output_bias
    return logits - logits.exp().sum().log()


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + (-x).exp())


def sum_of(terms):
    """The sum of tensors."""
    return torch.stack(list(terms)).sum(0)
