"""The matrix products, with their shapes, that any beam search over a batch needs.

Products of the annotations are computed once per sentence, and products of target words are looked up. A step
multiplies the states of all hypotheses by the weights of query, gates and readout, the attention weights by the folded
annotations, and the features by the output weights.
"""

from dataclasses import dataclass

from bench.products import Product, annotation_size

STEP = "step"


@dataclass(frozen=True)
class SearchShape:
    """The number of sentences, their length including `</s>`, the beam, the steps, and the number of scored words."""

    sentences: int
    source: int
    beam: int
    steps: int
    words: int

    @property
    def rows(self):
        """The number of hypotheses of all sentences."""
        return self.sentences * self.beam


def search_products_of(config, shape):
    """Returns all products of the search; those of a step are in the order of computation.

    The first step, with one hypothesis per sentence, is omitted.
    """
    return [*_encoder(config, shape), *_once_a_sentence(config, shape), *_steps(config, shape)]


def _layer(name, rows, inner, outer, count=1, turn=""):
    """The product of rows with a weight (outer, inner)."""
    return Product(name, rows, inner, outer, count, right_transposed=True, turn=turn)


def _recurrent(config, name, rows, count, turn):
    """The recurrent products of a cell; the candidate of the paper's cell needs its reset gate first."""
    n = config.hidden
    if config.cell == "paper":
        yield _layer(f"{name} gates", rows, n, 2 * n, count, turn)
        yield _layer(f"{name} candidate", rows, n, n, count, turn)
    else:
        yield _layer(name, rows, n, 3 * n, count, turn)


def _encoder(config, shape):
    directions = 2 if config.bidirectional else 1
    yield _layer("encoder inputs", shape.sentences * shape.source, config.embedding, directions * 3 * config.hidden)
    yield from _recurrent(config, "encoder", shape.sentences, shape.source * directions, "encoder")


def _taken(config):
    """Returns the size of the folded annotations, which contain the inputs of cell and readout."""
    return 3 * config.hidden + 2 * config.maxout


def _once_a_sentence(config, shape):
    size, attends = annotation_size(config), config.attention == "additive"
    positions = shape.sentences * (shape.source if attends else 1)
    yield _layer("decoder start", shape.sentences, config.hidden if attends else size, config.hidden)
    yield _layer("context", positions, size, _taken(config))
    if attends:
        yield _layer("keys", positions, size, config.attention_hidden)


def _steps(config, shape):
    count, rows, rank = shape.steps - 1, shape.rows, config.output_rank
    if not count:
        return
    if config.attention == "additive":
        inner = config.attention_hidden
        yield _layer("query", rows, config.hidden, inner, count, STEP)
        yield Product("energies", rows * shape.source, inner, 1, count, turn=STEP)
        yield Product("looking", shape.beam, shape.source, _taken(config), count, shape.sentences, turn=STEP)
    yield from _recurrent(config, "decoder", rows, count, STEP)
    yield _layer("readout", rows, config.hidden, 2 * config.maxout, count, STEP)
    if rank:
        yield _layer("output factor", rows, config.maxout, rank, count, STEP)
    yield _layer("logits", rows, rank or config.maxout, shape.words, count, STEP)
