"""BLEU, chrF and TER by sacreBLEU, from sufficient statistics that are computed once a sentence.

A corpus score is a function of the sum of the sentences' statistics, so that every bucket, subset and resample
costs one sum. The figures are sacreBLEU's own: its code counts the matches and turns their sum into the score.
"""

import difflib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.text.moses import MosesWords

METRICS = ("bleu", "chrf", "ter")
TOKENIZE = ("13a", "none", "intl", "char")
_CHUNK = 1000  # sentences: sacreBLEU keeps the n-grams of all references that it is given in memory
_INSIDE = ("_extract_corpus_statistics", "_compute_score_from_stats", "get_signature")


@dataclass(frozen=True)
class Score:
    """A corpus score and sacreBLEU's signature, which is what it takes to get it again."""

    name: str  # sacreBLEU's: BLEU, chrF2, TER
    value: float
    signature: str  # `BLEU|nrefs:1|case:mixed|...`


@dataclass(frozen=True)
class MetricOptions:
    """Which metrics, and sacreBLEU's options of BLEU (chrF and TER keep sacreBLEU's defaults)."""

    metrics: tuple[str, ...] = METRICS
    lowercase: bool = False  # of BLEU, as sacreBLEU's own option
    tokenize: str = "13a"
    moses: str = ""  # a language: adds the BLEU of Moses-tokenised text

    def __post_init__(self) -> None:
        if not self.metrics:
            raise UsageError(f"metrics: give one or more of {','.join(METRICS)}")
        for name in self.metrics:
            _one_of("metrics", name, METRICS)
        _one_of("tokenize", self.tokenize, TOKENIZE)


@dataclass(frozen=True)
class Statistics:
    """The sufficient statistics of one metric, one row a sentence."""

    name: str
    signature: str
    rows: NDArray[np.float64]  # (N, D); of BLEU the first two are the lengths of hypothesis and reference
    metric: Any = field(repr=False)  # sacreBLEU's object, which turns a sum of rows into a score

    def __len__(self) -> int:
        return len(self.rows)

    def score(self, subset: NDArray[Any] | None = None) -> Score:
        """The corpus score of a subset: (N,) bool, or indices (a sentence may occur more than once); None = all.

        Raises InputError where the subset is empty.
        """
        rows = self.rows if subset is None else self.rows[subset]
        if not len(rows):
            raise InputError("no sentence to score")
        value = self.metric._compute_score_from_stats(np.add.reduce(rows, axis=0).tolist()).score
        return Score(self.name, float(value), self.signature)

    def length_ratio(self, subset: NDArray[Any] | None = None) -> float | None:
        """Tokens of the hypotheses over tokens of the references as BLEU counts them; None if none, or not BLEU."""
        rows = self.rows if subset is None else self.rows[subset]
        if not isinstance(self.metric, BLEU) or not rows[:, 1].sum():
            return None
        return float(rows[:, 0].sum() / rows[:, 1].sum())


def measure(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions | None = None
) -> list[Statistics]:
    """The statistics of every metric of `options`; `references` holds one or more sequences of lines.

    Raises InputError where there is nothing to score or the line counts differ.
    """
    options = options or MetricOptions()
    if not hypotheses or not references:
        raise InputError("no sentence to score")
    if any(len(lines) != len(hypotheses) for lines in references):
        counts = ", ".join(str(len(lines)) for lines in references)
        raise InputError(f"{len(hypotheses)} hypotheses, but {counts} references; give one line a sentence")
    table: list[Statistics] = []
    for name in METRICS:
        if name in options.metrics:
            table.append(_statistics(_sacrebleu(name, options), hypotheses, references))
        if name == "bleu" and options.moses:
            table.append(_moses_statistics(hypotheses, references, options))
    return table


def corpus_scores(
    hypotheses: Sequence[str], *references: Sequence[str], options: MetricOptions | None = None
) -> list[Score]:
    """BLEU, chrF and TER of the whole corpus against one or more references, with signatures."""
    return [statistics.score() for statistics in measure(hypotheses, references, options)]


def bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    """sacreBLEU's BLEU of the whole corpus against one reference."""
    return corpus_scores(hypotheses, references, options=MetricOptions(("bleu",), lowercase, tokenize))[0]


def looks_tokenized(hypotheses: Sequence[str]) -> int:
    """The number of lines that end in a period set apart, where there are 100 or more of them; else 0."""
    count = sum(line.endswith(" .") for line in hypotheses)
    return count if count >= 100 else 0  # sacreBLEU's own threshold


def _sacrebleu(name: str, options: MetricOptions) -> Any:
    if name == "bleu":
        # force only silences a warning that the command gives in its own words (looks_tokenized).
        return BLEU(lowercase=options.lowercase, tokenize=options.tokenize, force=True)
    return CHRF() if name == "chrf" else TER()


def _statistics(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
    missing = [name for name in _INSIDE if not hasattr(metric, name)]
    if missing:
        version = importlib.metadata.version("sacrebleu")
        raise NmtalignError(f"sacrebleu {version} has no {missing[0]}; install sacrebleu 2.4 or a later 2.x")
    parts = []
    for start in range(0, len(hypotheses), _CHUNK):
        window = slice(start, start + _CHUNK)
        counts = metric._extract_corpus_statistics(hypotheses[window], [lines[window] for lines in references])
        parts.append(np.array(counts, dtype=np.float64))
    rows = np.concatenate(parts)
    name = str(metric._compute_score_from_stats(rows[0].tolist()).name)
    return Statistics(name, f"{name}|{metric.get_signature().format()}", rows, metric)


def _moses_statistics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
) -> Statistics:
    """BLEU of text tokenised by Moses, as papers reported it before sacreBLEU (multi-bleu); lowercased after that."""
    words = MosesWords(options.moses)
    split = [[" ".join(words.tokenize(line)) for line in lines] for lines in (hypotheses, *references)]
    metric = BLEU(lowercase=options.lowercase, tokenize="none", force=True)
    plain = _statistics(metric, split[0], split[1:])
    version = importlib.metadata.version("sacremoses")
    signature = f"{plain.signature}|moses:{options.moses}|sacremoses:{version}"
    return Statistics("BLEU (Moses-tokenised)", signature, plain.rows, metric)


def _one_of(setting: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.0)[0]
        raise UsageError(f"{setting}: unknown {value!r}; the nearest known one is {near!r} (of {', '.join(known)})")
