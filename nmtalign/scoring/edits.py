"""The statistics of TER, a sentence at a time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import TER


def ter_statistics(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """The least edits over the references and their mean length in words, (N, 2), as sacreBLEU's TER counts them."""
    if not hypotheses:
        return np.zeros((0, 2))
    return np.array(TER()._extract_corpus_statistics(hypotheses, references), dtype=np.float64)
