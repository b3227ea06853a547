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


def naive_log_probs(model: TranslationModel, source: list[int], target: list[int], change=lambda step, c: c):
    """(log p of each target word (Ty,), weights (Ty, Tx)) for one pair of ids that end with `</s>`.

    `change` is given each step's context and returns what is read in its place.
    """
    config = model.config
    E_x = [model.source_embedding.weight[w] + model.source_embedding.bias for w in source]
    n = config.hidden
    zero = torch.zeros(n, dtype=torch.float64)
    forward, backward, s = [], [], zero
    for x in reversed(E_x) if config.reverse_source else E_x:
        s = cell_step(model.encoder.cell, config.cell, x, s, direction=0)
        forward.append(s)
    last = forward[-1]
    if config.reverse_source:
        forward.reverse()
    if config.bidirectional:
        s = zero
        for x in reversed(E_x):
            s = cell_step(model.encoder.cell, config.cell, x, s, direction=1)
            backward.insert(0, s)
        h = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
    else:
        h = forward
    decoder, attends = model.decoder, config.attention != "none"
    fixed = torch.cat([last, backward[0]]) if config.bidirectional else last
    first = fixed if not attends else (backward[0] if config.bidirectional else last)
    s = torch.tanh(decoder.initial_weight @ first + decoder.initial_bias)

    covered = torch.zeros(len(h), dtype=torch.float64)

    def look(s):
        nonlocal covered
        if not attends:
            return fixed, None
        weights = energies(s).softmax(0)
        if decoder.coverage is not None:
            fertility = torch.stack([2 * sigmoid(decoder.coverage.fertility_weight[0] @ h_j) for h_j in h])
            covered = covered + weights / fertility
        return sum(w * h_j for w, h_j in zip(weights, h, strict=True)), weights

    def energies(s):
        a = decoder.attention
        if config.attention == "general":
            return torch.stack([s @ a.key_weight @ h_j for h_j in h]) / config.attention_temperature
        if config.attention == "dot":
            halves = [h_j[:n] + h_j[n:] if config.bidirectional else h_j for h_j in h]
            return torch.stack([s @ h_j for h_j in halves]) / config.attention_temperature
        reads = [a.query_weight @ s + a.key_weight @ h_j for h_j in h]
        if decoder.coverage is not None:
            v = decoder.coverage.coverage_weight[:, 0]
            reads = [read + v * c_j for read, c_j in zip(reads, covered, strict=True)]
        return torch.stack([a.vector @ torch.tanh(read) for read in reads]) / config.attention_temperature

    def output(s, e, c):
        r = model.readout
        t = r.state_weight @ s + r.context_weight @ c + r.bias
        if config.readout_previous_word:
            t = t + r.word_weight @ e
        t = torch.stack([torch.max(t[2 * i], t[2 * i + 1]) for i in range(config.maxout)])
        if r.factor is not None:
            t = r.factor @ t
        logits = r.output_weight @ t + r.output_bias
        return logits - logits.exp().sum().log()

    e = torch.zeros(config.embedding, dtype=torch.float64)
    results, looks = [], []
    for step, word in enumerate(target):
        c, weights = look(s)
        c = change(step, c)
        if config.order == "look-update-generate":
            s = cell_step(decoder.cell, config.cell, e, s, c)
            results.append(output(s, e, c)[word])
            e = model.target_embedding.weight[word] + model.target_embedding.bias
        else:
            results.append(output(s, e, c)[word])
            e = model.target_embedding.weight[word] + model.target_embedding.bias
            s = cell_step(decoder.cell, config.cell, e, s, c)
        looks.append(weights)
    return torch.stack(results), torch.stack(looks) if attends else None
