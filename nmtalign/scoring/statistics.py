"""The sufficient statistics of a system by one metric, and what is told from their sums."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, TER

from nmtalign.errors import InputError
from nmtalign.scoring.sums import values_of


@dataclass(frozen=True)
class Score:
    """A corpus score and sacreBLEU's signature, which is what it takes to get it again."""

    name: str  # BLEU, chrF2, chrF2++, TER, multi-bleu
    value: float
    signature: str  # `BLEU|nrefs:1|case:mixed|...`


@dataclass(frozen=True)
class Statistics:
    """The sufficient statistics of one metric, one row a sentence: a corpus score is a function of their sum."""

    name: str
    signature: str
    rows: NDArray[np.float64]  # (N, D); of BLEU the first two are the lengths of hypothesis and reference
    metric: Any = field(repr=False)  # sacreBLEU's object, which turns a sum of rows into a score

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def higher_is_better(self) -> bool:
        """False for TER, which counts edits."""
        return not isinstance(self.metric, TER)

    def score(self, subset: NDArray[Any] | None = None) -> Score:
        """The corpus score of a subset: (N,) bool, or indices (a sentence may occur more than once); None = all.

        Raises InputError where the subset is empty.
        """
        rows = self.rows if subset is None else self.rows[subset]
        if not len(rows):
            raise InputError("no sentence to score")
        value = self.metric._compute_score_from_stats(np.add.reduce(rows, axis=0).tolist()).score
        return Score(self.name, float(value), self.signature)

    def values(self, sums: NDArray[Any]) -> NDArray[Any]:
        """(S,) scores of (S, D) sums of rows, bit for bit sacreBLEU's of sums of that type.

        float64, or float32 for chrF and TER of float32 sums, as are sacreBLEU's own of a bootstrap.
        """
        return values_of(self.metric, sums)

    def length_ratio(self, subset: NDArray[Any] | None = None) -> float | None:
        """Tokens of the hypotheses over tokens of the references as BLEU counts them; None if none, or not BLEU."""
        rows = self.rows if subset is None else self.rows[subset]
        if not isinstance(self.metric, BLEU) or not rows[:, 1].sum():
            return None
        return float(rows[:, 0].sum() / rows[:, 1].sum())

    def signed(self, n_bootstrap: int = 0, seed: int | None = 12345, n_trials: int = 0) -> str:
        """The signature with the bootstrap samples and the trials of approximate randomisation, 0 = none of them.

        As sacreBLEU prints it with --confidence and --paired-bs (`bs:1000|seed:12345`) or --paired-ar (`ar:10000`).
        """
        drawn = [*([f"bs:{n_bootstrap}"] if n_bootstrap else []), *([f"ar:{n_trials}"] if n_trials else [])]
        if not drawn:
            return self.signature
        name, references, *others = self.signature.split("|")
        return "|".join([name, references, *drawn, f"seed:{'none' if seed is None else seed}", *others])
