"""Metrics: their options, the statistics of each sentence, and the scores of sums of these statistics.

A corpus score is a function of the sum of the sentences' statistics. Every bucket, subset and bootstrap sample costs
therefore only one sum. `values_of` turns many sums into scores at once, with the operations of sacreBLEU's own code.
"""

import difflib
import functools
import importlib.metadata
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.errors import InputError, NmtalignError
from nmtalign.settings.definition import SettingError
from nmtalign.text.languages import has_no_spaces, in_unspaced_script, main_language
from nmtalign.version import __version__

METRICS = ("bleu", "chrf", "chrf++", "ter", "multi-bleu")
DEFAULT_METRICS = ("bleu", "chrf", "chrf++")  # TER is slow; multi-bleu needs the language
MULTI_BLEU = "multi-bleu"
TOKENIZE = ("13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab")  # sacreBLEU's; the last two need MeCab
_CHINESE = frozenset(("zh", "yue", "wuu", "lzh"))
_JUDGED = 2000  # lines of a reference that show whether its script has spaces
Values = NDArray[Any]  # (S,) floats
_LOG_OF_ZERO = -9999999999  # sacreBLEU's
_PRIVATE = ("_extract_corpus_statistics", "_compute_score_from_stats", "get_signature")


@dataclass(frozen=True)
class MetricOptions:
    """The metrics to compute, and sacreBLEU's options of BLEU (chrF and chrF++ keep sacreBLEU's defaults)."""

    metrics: tuple[str, ...] = DEFAULT_METRICS
    lowercase: bool = False  # of BLEU and multi-bleu, as sacreBLEU's -lc
    tokenize: str = "13a"  # of BLEU; with "none", multi-bleu does not tokenise either
    language: str = ""  # of the translations: multi-bleu uses its Moses tokeniser, TER splits Han characters

    def __post_init__(self) -> None:
        if not self.metrics:
            raise SettingError(f"give one or more of {','.join(METRICS)}", metrics="")
        object.__setattr__(self, "metrics", tuple(dict.fromkeys(self.metrics)))  # a name given twice is one metric
        for name in self.metrics:
            _one_of("metrics", name, METRICS)
        _one_of("tokenize", self.tokenize, TOKENIZE)
        if self.tokenize.endswith("-mecab") and not has_tokenizer(self.tokenize):
            rule = f"MeCab or its dictionary is missing or does not work; install sacrebleu[{self.tokenize[:2]}]"
            raise SettingError(rule, tokenize=self.tokenize)
        if MULTI_BLEU in self.metrics and not self.language and self.tokenize != "none":
            raise SettingError(
                "multi-bleu needs the language of the translation, or the tokeniser none for tokenised text",
                metrics=",".join(self.metrics),
            )


def _one_of(setting: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.0)[0]
        rule = f"unknown {value!r}; the nearest known one is {near!r} (of {', '.join(known)})"
        raise SettingError(rule, **{setting: value})


def tokenizer_for(language: str, reference: Sequence[str] = ()) -> str:
    """sacreBLEU's tokeniser for BLEU of a target language.

    13a splits at spaces and at marks of Western scripts. Where a language, or else the script of the reference, has no
    spaces between words, this would make one token of a clause.
    """
    main = main_language(language)
    if main in _CHINESE:
        return "zh"
    if main in ("ja", "ko"):
        return f"{main}-mecab" if has_tokenizer(f"{main}-mecab") else "char"
    return "char" if has_no_spaces(main) or in_unspaced_script("".join(reference[:_JUDGED])) else "13a"


@functools.cache
def has_tokenizer(name: str) -> bool:
    """Whether sacreBLEU's tokeniser works here: those for Japanese and Korean need further packages."""
    try:
        return bool(BLEU(tokenize=name).tokenizer("a"))
    except Exception:  # whatever a package raises that is missing, broken or of another version
        return False


def make_metric(name: str, options: MetricOptions) -> Any:
    """Returns sacreBLEU's object for a metric; raises NmtalignError if this sacreBLEU lacks a method that we call."""
    # sacreBLEU's TER takes a clause of Chinese as one word, unless it splits Han characters.
    han = main_language(options.language) in {*_CHINESE, "ja"}
    metric: Any = TER(normalized=han, asian_support=han)
    if name == "bleu":
        # `force` only silences a warning that our command words differently (see not_raw).
        metric = BLEU(lowercase=options.lowercase, tokenize=options.tokenize, force=True)
    elif name == MULTI_BLEU:
        metric = BLEU(lowercase=options.lowercase, tokenize="none", smooth_method="none", force=True)
    elif name != "ter":
        metric = CHRF(word_order=2 if name == "chrf++" else 0)
    for method in _PRIVATE:
        if not hasattr(metric, method):
            version = importlib.metadata.version("sacrebleu")
            raise NmtalignError(f"sacrebleu {version} has no {method}; install sacrebleu 2.4 or a later 2.x")
    return metric


@dataclass(frozen=True)
class Score:
    """A corpus score and sacreBLEU's signature, which says how to reproduce it."""

    name: str  # BLEU, chrF2, chrF2++, TER, multi-bleu, or the name of given segment scores
    value: float
    signature: str
    too_short: bool = False  # no reference has a 4-gram, so that BLEU is 0 even for a text that equals the reference


@dataclass(frozen=True)
class Statistics:
    """The sufficient statistics of one system by one metric, one row per sentence."""

    name: str
    signature: str
    rows: NDArray[np.float64]  # (N, D); for BLEU the first two columns are the lengths of hypothesis and reference
    metric: Any = field(repr=False)  # sacreBLEU's object, or None for given scores: rows are [score, 1]

    @classmethod
    def of_segments(cls, name: str, scores: Sequence[float]) -> "Statistics":
        """The statistics of scores that were computed elsewhere, one per sentence; the corpus score is their mean."""
        rows = np.stack([np.asarray(scores, np.float64), np.ones(len(scores))], axis=1)
        return cls(name, f"{name}|scores:given|mean:sentences|nmtalign:{__version__}", rows, None)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def higher_is_better(self) -> bool:
        """False for TER, which counts edits."""
        return not isinstance(self.metric, TER)

    def score(self, subset: NDArray[Any] | None = None) -> Score:
        """The corpus score of a subset: (N,) bool, or indices (a sentence may occur more than once); None = all.

        Raises InputError if the subset is empty.
        """
        rows = self.rows if subset is None else self.rows[subset]
        if not len(rows):
            raise InputError("no sentence to score")
        value = float(self.values(np.add.reduce(rows, axis=0)[None])[0])
        too_short = isinstance(self.metric, BLEU) and bool(rows[:, 1].max() < self.metric.max_ngram_order)
        return Score(self.name, value, self.signature, too_short)

    def values(self, sums: NDArray[Any]) -> Values:
        """(S,) scores of (S, D) sums of rows, bit for bit those of sacreBLEU for sums of that type."""
        if self.metric is None:
            means: Values = sums[:, 0] / np.maximum(sums[:, 1], 1)
            return means
        return values_of(self.metric, sums)

    def length_ratio(self, subset: NDArray[Any] | None = None) -> float | None:
        """Tokens of the hypotheses / tokens of the references, as BLEU counts them; None for other metrics."""
        rows = self.rows if subset is None else self.rows[subset]
        if not isinstance(self.metric, BLEU) or not rows[:, 1].sum():
            return None
        return float(rows[:, 0].sum() / rows[:, 1].sum())

    def signed(self, n_bootstrap: int = 0, seed: int | None = 12345, n_trials: int = 0) -> str:
        """The signature with the numbers of bootstrap samples and of trials, as sacreBLEU prints it; 0 = not drawn."""
        drawn = [*([f"bs:{n_bootstrap}"] if n_bootstrap else []), *([f"ar:{n_trials}"] if n_trials else [])]
        if not drawn:
            return self.signature
        name, references, *others = self.signature.split("|")
        return "|".join([name, references, *drawn, f"seed:{'none' if seed is None else seed}", *others])


def values_of(metric: Any, sums: NDArray[Any]) -> Values:
    """(S,) scores of sums (S, D), bit for bit those that sacreBLEU's own code computes.

    sacreBLEU adds a bootstrap sample in float32 and continues in float32, except for BLEU's logarithms. The operations
    and their order here are sacreBLEU's, on arrays instead of numbers.
    """
    if not len(sums):
        return np.zeros(0)
    if (100.0 * sums.dtype.type(1)).dtype == _working_type(sums):  # before NumPy 2 float32 became float64 here
        if isinstance(metric, BLEU):
            return _bleu_values(sums, exponential=metric.smooth_method == "exp")
        if isinstance(metric, CHRF):
            return chrf_values(sums, metric.beta)
    return np.array([metric._compute_score_from_stats(row).score for row in sums.copy()])


def chrf_values(sums: NDArray[Any], beta: int = 2) -> Values:
    """(S,) chrF of sums of [hypothesis, reference, match] for each order: F of mean precision and mean recall."""
    kind, factor = _working_type(sums), beta**2
    counts = sums.reshape(len(sums), -1, 3)
    precision, recall, orders = np.zeros((3, len(sums)), kind)
    for order in range(counts.shape[1]):
        hypothesis, reference, match = (counts[:, order, part] for part in range(3))
        counted = (hypothesis > 0) & (reference > 0)
        precision += _quotient(match, hypothesis, counted, kind)
        recall += _quotient(match, reference, counted, kind)
        orders += counted
    precision, recall = (_quotient(total, orders, orders > 0, kind) for total in (precision, recall))
    some = precision + recall != 0
    scores = 100 * _quotient((1 + factor) * precision * recall, factor * precision + recall, some, kind)
    return scores if some.all() else scores.astype(np.float64)  # sacreBLEU's zero is Python's, which widens an array


def _bleu_values(sums: NDArray[Any], exponential: bool) -> Values:
    kind = _working_type(sums)
    orders = (sums.shape[1] - 2) // 2
    correct, total = sums[:, 2 : 2 + orders], sums[:, 2 + orders :]
    reached = np.logical_and.accumulate(total != 0, axis=1)  # sacreBLEU stops at the first order without an n-gram
    found = correct != 0
    precisions = _quotient(100 * correct.astype(kind), total, reached & found, kind)
    if exponential:
        missed = reached & ~found
        doubled = np.ldexp(np.ones(1, kind), np.cumsum(missed, axis=1).astype(np.int32))
        precisions += _quotient(np.full_like(precisions, 100), doubled * total.astype(kind), missed, kind)
    scores = [
        # Python's exponential and logarithm, because NumPy's may differ in the last bit.
        _penalty(int(length), int(wanted)) * math.exp(sum(math.log(p) if p else _LOG_OF_ZERO for p in row) / orders)
        for length, wanted, row in zip(sums[:, 0].tolist(), sums[:, 1].tolist(), precisions.tolist(), strict=True)
    ]
    return np.where(found.any(axis=1), np.array(scores), 0.0)


def _penalty(length: int, wanted: int) -> float:
    """BLEU's brevity penalty."""
    if length >= wanted:
        return 1.0
    return math.exp(1 - wanted / length) if length > 0 else 0.0


def _working_type(sums: NDArray[Any]) -> np.dtype[Any]:
    return sums.dtype if sums.dtype.kind == "f" else np.dtype(np.float64)


def _quotient(above: NDArray[Any], below: NDArray[Any], where: NDArray[np.bool_], kind: np.dtype[Any]) -> NDArray[Any]:
    """above / below at the places `where`, elsewhere 0."""
    quotients: NDArray[Any] = np.divide(above, below, out=np.zeros(where.shape, kind), where=where)
    return quotients
