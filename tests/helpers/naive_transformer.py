"""The Transformer, slowly: one vector at a time, a plain loop, meant for float64 (Vaswani et al. 2017)."""

import math

import torch
from helpers import naive_recurrent
from torch import nn


def log_probs_and_weights(model, source, target, copies=None):
    """Those of `naive_recurrent`, for models of any architecture."""
    if model.config.architecture == "transformer":
        return transformer_log_probs_and_weights(model, source, target)
    return naive_recurrent.log_probs_and_weights(model, source, target, copies)


def transformer_log_probs_and_weights(model, source, target):
    """As `log_probs_and_weights`, of a Transformer (Vaswani et al. 2017, section 3)."""
    config, heads = model.config, model.config.heads
    vectors = [model.source_embedding.weight[word] + model.source_embedding.bias for word in source]
    before = [model.target_embedding.weight[word] + model.target_embedding.bias for word in target[:-1]]
    annotations, _ = transformer_stack(model.encoder, heads, vectors)
    states, rows = transformer_stack(model.decoder, heads, [torch.zeros_like(vectors[0]), *before], annotations)
    pairs = zip(states, target, strict=True)
    log_probs = [naive_recurrent.output(model.readout, config, state, state, state)[word] for state, word in pairs]
    aligned = rows[config.alignment_layer - 1]  # of the last layer if the setting is 0
    return torch.stack(log_probs), aligned[:, config.alignment_head - 1] if config.alignment_head else aligned.mean(1)


def transformer_stack(stack, heads, vectors, annotations=None):
    """(outputs, weights (Ty, A, Tx) of each layer) of the encoder, or of the decoder over annotations."""
    size, pre = len(vectors[0]), not isinstance(stack.norm, nn.Identity)
    x, weights = [math.sqrt(size) * vector + position(place, size) for place, vector in enumerate(vectors)], []

    def entry(norm, x):
        return [normalised(norm, vector) if pre else vector for vector in x]

    def exit_(norm, x, changes):
        sums = [vector + change for vector, change in zip(x, changes, strict=True)]
        return sums if pre else [normalised(norm, vector) for vector in sums]

    for number, layer in enumerate(stack.layers):
        h = entry(layer.norms[0], x)
        seen = [h if annotations is None else h[: place + 1] for place in range(len(h))]
        found = [multi_head(heads, *pair, layer.self_weight) for pair in zip(h, seen, strict=True)]
        x = exit_(layer.norms[0], x, [layer.self_output @ context for context, _ in found])
        if annotations is not None:
            matrices = layer.source_weight, *stack.memory_weight[number]
            found = [multi_head(heads, vector, annotations, matrices) for vector in entry(layer.norms[1], x)]
            x = exit_(layer.norms[1], x, [layer.source_output @ context for context, _ in found])
            weights.append(torch.stack([row for _, row in found]))
        inner = [(layer.inner_weight @ vector + layer.inner_bias).clamp(min=0) for vector in entry(layer.norms[-1], x)]
        x = exit_(layer.norms[-1], x, [layer.outer_weight @ vector + layer.outer_bias for vector in inner])
    return entry(stack.norm, x), weights


def position(place, size):
    """The sinusoids (m,) of a position: section 3.5 of that article."""
    angles = [place / 10_000 ** ((i - i % 2) / size) for i in range(size)]
    return torch.tensor([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)], dtype=torch.float64)


def multi_head(heads, query, seen, matrices):
    """(contexts of all heads (m,), weights (A, T)) for one query, with the matrices W^Q, W^K and W^V (section 3.2)."""
    contexts, rows = [], []
    for of_query, of_key, of_value in zip(*(matrix.chunk(heads) for matrix in matrices), strict=True):
        energies = [(of_query @ query) @ (of_key @ vector) / math.sqrt(len(of_key)) for vector in seen]
        shares = torch.stack(energies).exp()
        rows.append(shares / shares.sum())
        terms = (weight * (of_value @ vector) for weight, vector in zip(rows[-1], seen, strict=True))
        contexts.append(naive_recurrent.sum_of(terms))
    return torch.cat(contexts), torch.stack(rows)


def normalised(norm, vector):
    """Layer normalisation (Ba et al. 2016)."""
    apart = vector - vector.mean()
    return norm.scale * apart / (apart.square().mean() + 1e-5).sqrt() + norm.shift
