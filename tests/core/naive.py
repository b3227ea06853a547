"""The equations of the paper's model, one sentence and one word at a time, in float64: slow and plain on purpose."""

import torch
from torch import Tensor

from nmtalign.core.model import TranslationModel


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def cell_step(cell, kind, x, s, c=None, direction=None):
    """One step of the gated unit for single vectors."""

    def pick(p):
        return p if direction is None else p[direction]

    W, U, n = pick(cell.input_weight), pick(cell.recurrent_weight), len(s)
    C = cell.context_weight
    a = W @ x + (C @ c if c is not None else 0)
    if kind == "paper":
        z = sigmoid(a[:n] + U[:n] @ s)
        r = sigmoid(a[n : 2 * n] + U[n : 2 * n] @ s)
        candidate = torch.tanh(a[2 * n :] + U[2 * n :] @ (r * s) + pick(cell.bias))
        return (1 - z) * s + z * candidate
    a = a + pick(cell.bias)
    h = U @ s + pick(cell.recurrent_bias)
    r = sigmoid(a[:n] + h[:n])
    z = sigmoid(a[n : 2 * n] + h[n : 2 * n])
    new = torch.tanh(a[2 * n :] + r * h[2 * n :])
    return (1 - z) * new + z * s


def read_source(model, source):
    """(annotations (Tx, D) as a list, the last states of both directions joined, the last state of the last one)."""
    config = model.config
    E_x = [model.source_embedding.weight[w] + model.source_embedding.bias for w in source]
    turned = [False, True] if config.bidirectional else [config.reverse_source]
    ways, last = [], []
    for direction, backward in enumerate(turned):
        s, states = torch.zeros(config.hidden, dtype=torch.float64), []
        for x in reversed(E_x) if backward else E_x:
            s = cell_step(model.encoder.cell, config.cell, x, s, direction=direction)
            states.append(s)
        ways.append(states[::-1] if backward else states)
        last.append(s)
    return [torch.cat(states) for states in zip(*ways, strict=True)], torch.cat(last), last[-1]


def energies(decoder, config, s, h, covered):
    """(Tx,) of a state s."""
    a, n = decoder.attention, config.hidden
    if config.attention == "general":
        found = [s @ a.key_weight @ h_j for h_j in h]
    elif config.attention == "dot":
        found = [s @ (h_j[:n] + h_j[n:] if config.bidirectional else h_j) for h_j in h]
    else:
        reads = [a.query_weight @ s + a.key_weight @ h_j for h_j in h]
        if decoder.coverage is not None:
            v = decoder.coverage.coverage_weight[:, 0]
            reads = [read + v * c_j for read, c_j in zip(reads, covered, strict=True)]
        found = [a.vector @ torch.tanh(read) for read in reads]
    return torch.stack(found) / config.attention_temperature


def output(r, config, s, e, c):
    """Log-probabilities (K,) of a state s, the previous word's vector e and a context c, by the readout r."""
    t = r.state_weight @ s + r.context_weight @ c + r.bias
    if config.readout_previous_word:
        t = t + r.word_weight @ e
    t = torch.stack([torch.max(t[2 * i], t[2 * i + 1]) for i in range(config.maxout)])
    if r.factor is not None:
        t = r.factor @ t
    logits = r.output_weight @ t + r.output_bias
    return logits - logits.exp().sum().log()


def naive_log_probs(model: TranslationModel, source: list[int], target: list[int], change=lambda step, c: c):
    """(log p of each target word (Ty,), weights (Ty, Tx)) for one pair of ids that end with `</s>`.

    `change` is given each step's context and returns what is read in its place.
    """
    config, decoder, attends = model.config, model.decoder, model.config.attention != "none"
    h, fixed, summary = read_source(model, source)
    s = torch.tanh(decoder.initial_weight @ (summary if attends else fixed) + decoder.initial_bias)
    covered = torch.zeros(len(h), dtype=torch.float64)

    def look(s):
        nonlocal covered
        if not attends:
            return fixed, None
        e = energies(decoder, config, s, h, covered)
        weights = e.exp() / e.exp().sum()
        if decoder.coverage is not None:
            fertility = torch.stack([2 * sigmoid(decoder.coverage.fertility_weight[0] @ h_j) for h_j in h])
            covered = covered + weights / fertility
        return sum(w * h_j for w, h_j in zip(weights, h, strict=True)), weights

    e = torch.zeros(config.embedding, dtype=torch.float64)
    results, looks = [], []
    for step, word in enumerate(target):
        c, weights = look(s)
        c = change(step, c)
        if config.order == "look-update-generate":
            s = cell_step(decoder.cell, config.cell, e, s, c)
            results.append(output(model.readout, config, s, e, c)[word])
            e = model.target_embedding.weight[word] + model.target_embedding.bias
        else:
            results.append(output(model.readout, config, s, e, c)[word])
            e = model.target_embedding.weight[word] + model.target_embedding.bias
            s = cell_step(decoder.cell, config.cell, e, s, c)
        looks.append(weights)
    return torch.stack(results), torch.stack(looks) if attends else None
