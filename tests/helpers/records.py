"""Records of alignment files for tests, with usual values for what a test does not care about."""

import numpy as np

from nmtalign.alignment.links import AlignmentRecord, argmax_links


def add(writer, source, target, weights, log_prob, sentence_id=None, links=None, token_log_probs=None, rank=0):
    """Adds a record; by default of the next sentence, or of the last one if it has a rank, with the argmax links."""
    if sentence_id is None:
        sentence_id = writer.sentences - (rank > 0)
    log_probs = np.full(len(target) + 1, np.nan) if token_log_probs is None else np.array(token_log_probs)
    chosen = tuple(argmax_links(weights) if links is None else links)
    writer.add(AlignmentRecord(tuple(source), tuple(target), weights, log_prob, sentence_id, log_probs, chosen, rank))
