"""The matrix products of a forward and backward pass, at the shapes of a batch: the least work of any implementation.

Products of all steps that do not depend on each other are one product. A recurring product is one per step. The
gradient of a weight is one product over all steps. Everything else (gates, softmax, tanh of the attention) is left out.
The time of these products only is the floor of any implementation. A product has 2 m k n floating-point operations.
"""

from dataclasses import dataclass

DECODER = "decoder recurrence"


@dataclass(frozen=True)
class Product:
    """`count` products of `batch` pairs of matrices, (m, k) by (k, n); transposed = stored by columns.

    Products of the same `turn` are computed one after the other at each step of a recurrence; "" = not recurrent.
    """

    name: str
    m: int
    k: int
    n: int
    count: int = 1
    batch: int = 1
    left_transposed: bool = False
    right_transposed: bool = False
    turn: str = ""

    @property
    def flops(self):
        """Floating-point operations of all `count` products; multiplications and additions are counted separately."""
        return 2 * self.m * self.k * self.n * self.count * self.batch


def products_of(config, shape):
    """Returns all products of a forward and backward pass over a batch."""
    if config.architecture == "transformer":
        return [*_transformer(config, shape)]
    return [*_encoder(config, shape), *_decoder(config, shape), *_attention(config, shape), *_readout(config, shape)]


def flops_of(config, shape):
    """Returns the floating-point operations of those products."""
    return sum(product.flops for product in products_of(config, shape))


def _layer(name, rows, inner, outer, steps=1, copies=1, net=""):
    """Yields the products of `copies` weights (outer, inner) at `steps` steps of `rows` rows: forward, both gradients.

    `net` names the recurrence that contains the weight.
    """
    there, back = (f"{net} forward", f"{net} backward") if net else ("", "")
    yield Product(f"{name}: forward", rows, inner, outer, steps * copies, right_transposed=True, turn=there)
    yield Product(f"{name}: input gradient", rows, outer, inner, steps * copies, turn=back)
    yield Product(f"{name}: weight gradient", outer, rows * steps, inner, copies, left_transposed=True)


def _blocks(config):
    """Returns the number of blocks of n columns in the inputs of a cell."""
    return {"lstm": 4, "minimal": 2}.get(config.cell, 3)


def _recurrent(config, name, rows, steps, copies=1):
    """Yields the recurrent products of a cell; the candidate state of the paper's cell needs its reset gate first."""
    n = config.hidden
    if config.cell == "paper":
        yield from _layer(f"{name} gates", rows, n, 2 * n, steps, copies, name)
        yield from _layer(f"{name} candidate", rows, n, n, steps, copies, name)
    elif config.cell not in ("light", "minimal"):  # these have no recurrent product
        yield from _layer(name, rows, n, _blocks(config) * n, steps, copies, name)


def annotation_size(config):
    """Returns the size of an annotation: 2n, or n with one direction; n if layers are above the first."""
    return (2 if config.bidirectional and config.layers == 1 else 1) * config.hidden


def _encoder(config, shape):
    directions, n, width = 2 if config.bidirectional else 1, config.hidden, _blocks(config) * config.hidden
    positions = shape.sentences * shape.source
    yield from _layer("encoder inputs", positions, config.embedding, directions * width)
    yield from _recurrent(config, "encoder recurrence", shape.sentences, shape.source, directions)
    for number in range(1, config.layers):
        below = directions * n if number == 1 else n
        yield from _layer(f"inputs of encoder layer {number + 1}", positions, below, width)
        yield from _recurrent(config, f"encoder recurrence {number + 1}", shape.sentences, shape.source)


def _decoder(config, shape):
    attends, n, width = config.attention != "none", config.hidden, _blocks(config) * config.hidden
    size = annotation_size(config)
    # look-generate-update: no word is generated after the last update, so it is not computed.
    updates = shape.target - (config.order == "look-generate-update")
    if config.order != "update-look-generate":
        yield from _layer("decoder start", shape.sentences, n if attends else size, n)
    fed = config.input_feeding == "attentional"
    yield from _layer("decoder inputs", shape.sentences * updates, config.embedding, width)
    if fed:
        yield from _layer("fed vectors", shape.sentences, n, width, updates, net=DECODER)
    yield from _recurrent(config, DECODER, shape.sentences, updates)
    for number in range(1, config.layers):
        name, above = f"inputs of decoder layer {number + 1}", config.attention_layer == "first"
        sizes = n + size * above, width
        if fed:
            yield from _layer(name, shape.sentences, *sizes, updates, net=DECODER)
        else:
            yield from _layer(name, shape.sentences * updates, *sizes)
        net = DECODER if fed else f"{DECODER} {number + 1}"
        yield from _layer(net, shape.sentences, n, width, updates, net=net)
    # A fixed context is multiplied once per sentence.
    context = (shape.sentences, size, width)
    if config.input_feeding == "context":
        steps = {"steps": updates, "net": DECODER} if attends else {}
        yield from _layer("decoder context", *context, **steps)
    if config.readout == "attentional":
        joined = size + n, n
        if fed:
            yield from _layer("attentional vectors", shape.sentences, *joined, updates, net=DECODER)
        else:
            yield from _layer("attentional vectors", shape.words, *joined)


def _attention(config, shape):
    """Yields the products of query, keys, energies and contexts, and of the gradient of each.

    The gradient of the query is the sum, over the source words, of the gradient of the energies times the derivative of
    tanh: one product per sentence.
    """
    if config.attention == "none":
        return
    additive = config.attention in ("additive", "concat")
    size, inner = annotation_size(config), config.attention_hidden if additive else config.hidden
    sentences, source, target = shape.sentences, shape.source, shape.target
    there, back = f"{DECODER} forward", f"{DECODER} backward"
    if config.attention != "dot":
        yield from _layer("keys", sentences * source, size, inner)
    if additive:
        yield from _layer("query", sentences, config.hidden, inner, target, net=DECODER)
        yield Product("energies: forward", sentences * source, inner, 1, target, turn=there)
        yield Product("energies: weight gradient", 1, sentences * source, inner, target, turn=back)
    else:
        yield Product("energies: forward", 1, inner, source, target, sentences, right_transposed=True, turn=there)
        yield Product("energies: gradient of the keys", source, target, inner, 1, sentences)
    if config.attention_span == "local-p":
        yield from _layer("positions", sentences, config.hidden, config.attention_hidden, target, net=DECODER)
    yield Product("context: forward", 1, source, size, target, sentences, turn=there)
    yield Product("context: gradient of the weights", source, size, 1, target, sentences, turn=back)
    yield Product("energies: gradient of the query", 1, source, inner, target, sentences, turn=back)
    yield Product("context: gradient of the annotations", source, target, size, 1, sentences)


def _readout(config, shape):
    attends = config.attention != "none"
    pre_activations, rank, width = 2 * config.maxout, config.output_rank, config.maxout
    if config.readout == "maxout":
        yield from _layer("readout of the state", shape.words, config.hidden, pre_activations)
        yield from _layer("readout of the word", shape.words, config.embedding, pre_activations)
        rows = shape.words if attends else shape.sentences
        yield from _layer("readout of the context", rows, annotation_size(config), pre_activations)
    else:
        width = config.hidden
    if rank:
        yield from _layer("output factor", shape.words, width, rank)
    yield from _layer("logits", shape.words, rank or width, config.target_vocabulary_size)


def _transformer(config, shape):
    """Yields the products of a Transformer: those of a sublayer are the same in all layers."""
    m, layers = config.embedding, config.layers
    source, target = shape.sentences * shape.source, shape.sentences * shape.target
    for net, rows, length in (("encoder", source, shape.source), ("decoder", target, shape.target)):
        yield from _layer(f"{net} queries, keys and values", rows, m, 3 * m, copies=layers)
        yield from _heads(f"{net} self-attention", config, shape, length, length)
        yield from _layer(f"{net} outputs of self-attention", rows, m, m, copies=layers)
        yield from _layer(f"{net} inner", rows, m, config.hidden, copies=layers)
        yield from _layer(f"{net} outer", rows, config.hidden, m, copies=layers)
    yield from _layer("keys and values of the source", source, m, 2 * m * layers)
    yield from _layer("queries to the source", target, m, m, copies=layers)
    yield from _heads("attention to the source", config, shape, shape.target, shape.source)
    yield from _layer("outputs of attention to the source", target, m, m, copies=layers)
    yield from _layer("logits", shape.words, m, config.target_vocabulary_size)


def _heads(name, config, shape, queries, keys):
    """Yields the products of queries and keys, and of weights and values, of all heads, and their gradients."""
    width, count, batch = config.embedding // config.heads, config.layers, shape.sentences * config.heads
    for part in ("energies: forward", "contexts: gradient of the weights"):
        yield Product(f"{name}, {part}", queries, width, keys, count, batch, right_transposed=True)
    for part in ("contexts: forward", "energies: gradient of the queries"):
        yield Product(f"{name}, {part}", queries, keys, width, count, batch)
    for part in ("energies: gradient of the keys", "contexts: gradient of the values"):
        yield Product(f"{name}, {part}", keys, queries, width, count, batch, left_transposed=True)
