"""Records of alignment files for tests, with usual values for what a test does not care about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.links import AlignmentRecord, Link, argmax_links


def add(
    writer: AlignmentWriter,
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    log_prob: float,
    sentence_id: int | None = None,
    links: Sequence[Link] | None = None,
    token_log_probs: Any = None,
    rank: int = 0,
) -> None:
    """Adds a record; by default of the next sentence, or of the last one if it has a rank, with the argmax links."""
    if sentence_id is None:
        sentence_id = writer.sentences - (rank > 0)
    log_probs = np.full(len(target) + 1, np.nan) if token_log_probs is None else np.array(token_log_probs)
    chosen = tuple(argmax_links(weights) if links is None else links)
    writer.add(AlignmentRecord(tuple(source), tuple(target), weights, log_prob, sentence_id, log_probs, chosen, rank))
