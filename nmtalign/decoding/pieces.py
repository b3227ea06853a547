"""Lines that are too long for the model: cut into pieces, and the pieces' translations joined."""

from collections.abc import Sequence

import numpy as np

from nmtalign.decoding.trace import Array, Hypothesis, Scoring

_SENTENCE_ENDS = frozenset((".", "!", "?", ";", "…", "。", "!", "?"))


def cut(tokens: Sequence[str], word_index: Sequence[int], limit: int) -> list[slice]:
    """Pieces of at most `limit` tokens that cover all of them.

    A piece ends after the last sentence end in its second half, else after a whole word, else at the limit.
    """
    pieces, start = [], 0
    while len(tokens) - start > limit:
        stop = start + limit
        half = range(stop, start + limit // 2, -1)
        ends = (place for place in half if tokens[place - 1].lstrip("▁") in _SENTENCE_ENDS)
        words = (place for place in half if word_index[place] != word_index[place - 1])
        stop = next(ends, next(words, stop))
        pieces.append(slice(start, stop))
        start = stop
    return [*pieces, slice(start, len(tokens))]


def join(hypotheses: Sequence[Hypothesis], scoring: Scoring, keep_weights: bool = True) -> Hypothesis:
    """One hypothesis of those of the pieces of a line.

    The log-probability of a `</s>` between two pieces goes to the word after it; the weights stand block by block,
    with the columns of all `</s>` added up in the last, and the row of the last `</s>`: 1.6 GB for 20,000 words, unless
    they are not to be kept. Phrases are those of the first.
    """
    if len(hypotheses) == 1:
        return hypotheses[0]
    tokens = tuple(token for hypothesis in hypotheses for token in hypothesis.tokens)
    token_log_probs, end = [], 0.0
    for hypothesis in hypotheses:
        first, *rest = hypothesis.token_log_probs
        *words, end = first + end, *rest
        token_log_probs += words
    log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses)
    score = scoring.score(log_prob, len(tokens) + 1)
    weights, phrase_at = _join_weights(hypotheses) if keep_weights else None, hypotheses[0].phrase_at
    return Hypothesis(tokens, log_prob, score, (*token_log_probs, end), weights, phrase_at)


def _join_weights(hypotheses: Sequence[Hypothesis]) -> Array | None:
    parts = [hypothesis.weights for hypothesis in hypotheses if hypothesis.weights is not None]
    if len(parts) < len(hypotheses):
        return None
    rows, columns = (sum(part.shape[axis] - 1 for part in parts) for axis in (0, 1))
    joined = np.zeros((rows + 1, columns + 1), np.float32)
    row = column = 0
    for part in parts:
        height, width = part.shape[0] - 1, part.shape[1] - 1
        # The row of this `</s>` is overwritten by the next piece's first word; only the last one stays. Nothing else is
        # written to that need not be: of what was never touched the system keeps no page.
        joined[row, :] = 0
        joined[row : row + height + 1, column : column + width] = part[:, :-1]
        joined[row : row + height + 1, -1] = part[:, -1]
        row, column = row + height, column + width
    return joined
