"""The figures of a scoring: every subset of the sentences is scored as a separate corpus, with intervals and p-values.

Subsets are buckets of sentence lengths (Figure 2 of Bahdanau et al. 2015) and the sentences without unknown words. The
intervals and p-values are those of sacreBLEU for files with only the lines of the subset: paired bootstrap and paired
approximate randomisation. sacreBLEU keeps all draws in memory: 1,000 samples of 100,000 sentences are 800 MB of
indices. Here the same random numbers are drawn in slices. Each slice becomes the number of times that each sentence was
drawn, and the sums are a matrix product. Statistics are whole numbers, so that their sums are exact in any order.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import TER

from nmtalign.scoring.differences import Difference
from nmtalign.scoring.metrics import Lines, Rows, Statistics
from nmtalign.settings.definition import SettingError
from nmtalign.text.languages import word_count
from nmtalign.text.lines import finite
from nmtalign.version import __version__

Mask = NDArray[np.bool_]  # (N,) the sentences of a subset
Mark = Literal["winner", "tie", ""]
Test = Literal["bs", "ar"]  # paired bootstrap, paired approximate randomisation
Scores = NDArray[np.floating[Any]]  # (samples,) or (trials,)
_DRAWS = 2**21  # sentences drawn at once: 16 MB of indices
_COINS = 2**22  # coins tossed at once: 32 MB
_WORD = 32  # numpy makes this number of booleans from one random number, and drops those that a call does not need
_FEWEST = 2  # sentences that can be tested
Record = dict[str, Any]


def by_length(lines: Lines, ends: Sequence[int]) -> dict[str, Mask]:
    """The sentences of each bucket by its label, such as `0`, `11-20` or `>60`; words are not tokenised (`word_count`).

    `ends` are the upper ends of the buckets, of which the first is 0: lines without a word.
    """
    lengths = np.array(list(map(word_count, lines)), np.int64)
    parts = {
        str(high) if low + 1 == high else f"{low + 1}-{high}": (low < lengths) & (lengths <= high)
        for low, high in itertools.pairwise((-1, *ends))
    }
    return {**parts, f">{ends[-1]}": lengths > ends[-1]}


def parse_buckets(text: str) -> list[int]:
    """The upper ends of "10,20" and the 0 before them; raises SettingError unless they are whole numbers that rise."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise SettingError("give the upper ends as whole numbers, as in 10,20,30", buckets=text)
    ends = [0, *map(int, parts)]
    if any(second <= first for first, second in itertools.pairwise(ends)):
        raise SettingError("each upper end must be greater than the one before, the first at least 1", buckets=text)
    return ends


@dataclass(frozen=True)
class Resampling:
    """How intervals and p-values are drawn; the defaults are those of sacreBLEU."""

    samples: int = 1000  # bootstrap samples, of intervals and of the test bs
    trials: int = 10_000  # trials of the test ar
    seed: int = 12345
    level: float = 0.05  # p-values below it are significant
    tests: tuple[Test, ...] = ()  # of all systems against the first one
    intervals: bool = True  # of every figure


@dataclass(frozen=True)
class Estimate:
    """The score of some sentences by one metric, and what was drawn of it; None is what does not exist."""

    value: float | None  # None if there is no sentence
    mean: float | None = None  # over the bootstrap samples; low and high end their 95% interval, as in sacreBLEU
    low: float | None = None
    high: float | None = None
    # Of each test against the first system; {} for the first system and where nothing was tested.
    p_values: Mapping[Test, float | None] = field(default_factory=dict)
    # Empty without tests. A winner is better than every other system, significantly by every test. A tie is not the
    # winner, but not significantly worse than the best system by some test. All systems are ties if there are too few
    # sentences for a decision (2 / 2**sentences is not below the level).
    mark: Mark = ""


@dataclass(frozen=True)
class Part:
    """The corpus scores of some of the sentences."""

    label: str  # `11-20`, `all`
    sentences: int
    scores: Mapping[str, Estimate]  # by metric
    length_ratio: float | None  # tokens of the hypotheses over tokens of the references, as BLEU counts them


@dataclass(frozen=True)
class Section:
    """The scores of a complete subset, and of its parts by length, in order."""

    whole: Part
    lengths: tuple[Part, ...] = ()

    def as_dict(self) -> Record:
        """The section as an object for JSON."""
        whole = dataclasses.asdict(self.whole)
        del whole["label"]
        return {**whole, "by_length": list(map(dataclasses.asdict, self.lengths))}


@dataclass(frozen=True)
class SystemReport:
    name: str
    everything: Section
    no_unk: Section | None = None  # of the sentences without an unknown word


@dataclass(frozen=True)
class UnknownRates:
    """The share of words that are not in the vocabulary, from 0 to 1."""

    source: float
    reference: float
    systems: Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """All figures of all systems; the first one is the baseline that the others are tested against."""

    # `by` is empty for a complete subset; rows of unknown words have no number of sentences.
    CSV_COLUMNS: ClassVar[Sequence[str]] = (
        *("system", "subset", "by", "label", "sentences", "metric", "value"),
        *("mean", "low", "high", "p_bs", "p_ar", "mark", "length_ratio", "signature"),
    )
    metrics: tuple[str, ...]  # names as printed: BLEU, chrF2, chrF2++, TER, multi-bleu
    signatures: Mapping[str, str]  # by metric
    systems: tuple[SystemReport, ...]
    resampling: Resampling | None = None  # None without intervals and p-values
    lengths: str = ""  # the title of the parts by length, such as `by words of the source`
    unknown: UnknownRates | None = None
    differences: tuple[Difference, ...] = ()  # of the first two systems, the most different sentences first

    def as_dict(self) -> Record:
        """The report as one object for JSON (docs/formats.md): always the same keys, numbers not rounded, no NaN."""
        if drawn := self.resampling and dataclasses.asdict(self.resampling):
            del drawn["intervals"]
        return {
            "nmtalign": __version__,
            "sentences": self.systems[0].everything.whole.sentences,
            "metrics": self.metrics,
            "signatures": self.signatures,
            "resampling": drawn,
            "titles": {"length": self.lengths} if self.lengths else {},
            "systems": [
                {"name": one.name, **one.everything.as_dict(), "no_unk": one.no_unk and one.no_unk.as_dict()}
                for one in self.systems
            ],
            "unknown": self.unknown and dataclasses.asdict(self.unknown),
            "differences": list(map(dataclasses.asdict, self.differences)),
        }

    def csv_rows(self) -> Iterator[Record]:
        """The report as the rows of one table, one number each, under the names of CSV_COLUMNS."""
        for system in self.systems:
            for subset, section in (("all", system.everything), ("no-unk", system.no_unk)):
                parts = [("", section.whole), *(("length", part) for part in section.lengths)] if section else []
                for by, part in parts:
                    for name, estimate in part.scores.items():
                        score = dataclasses.asdict(estimate)
                        p_values = {f"p_{test}": value for test, value in score.pop("p_values").items()}
                        common: Record = {"system": system.name, "subset": subset, "by": by, "label": part.label}
                        common |= {"sentences": part.sentences, "metric": name, "signature": self.signatures[name]}
                        yield {**common, **score, **p_values, "length_ratio": part.length_ratio}
        if self.unknown:
            shares = [("", "source", self.unknown.source), ("", "reference", self.unknown.reference)]
            shares += [(name, "translation", share) for name, share in self.unknown.systems.items()]
            for name, label, value in shares:
                one = {"system": name, "subset": "all", "by": "unknown", "label": label}
                yield {**one, "metric": "share", "value": value}


def make_report(
    names: Sequence[str],
    tables: Sequence[Sequence[Statistics]],
    *,
    parts: Mapping[str, Mask] | None = None,
    known: Mask | None = None,
    resampling: Resampling | None = None,
    advance: Callable[[float], object] = lambda share: None,
) -> Report:
    """Scores every system on all sentences and on every one of `parts`, and again on only its `known` (N,) ones.

    `tables` contains the statistics of each system, metrics in the same order. With `resampling` figures have intervals
    and p-values; its tests need two systems or more. `advance` is called with shares of the work done, which sum to 1.
    """
    subsets = [np.ones(len(tables[0][0].rows), np.bool_), *([] if known is None else [known])]
    plan, parts = resampling or Resampling(intervals=False), parts or {}
    share = 1 / (len(subsets) * (1 + len(parts)))
    samples = plan.samples if plan.intervals or "bs" in plan.tests else 0
    trials = plan.trials if "ar" in plan.tests else 0
    signatures = {one.name: one.signed(samples, trials, plan.seed) for one in tables[0]}
    found = []  # for each subset, the section of each system
    for subset in subsets:
        rows = []
        for label, mask in [("all", subset), *((label, mask & subset) for label, mask in parts.items())]:
            if label != "0" or np.any(mask):  # lines without a word are a part only if there are any
                rows.append(_parts(label, tables, mask, plan))
            advance(share)
        found.append([Section(whole, tuple(lengths)) for whole, *lengths in zip(*rows, strict=True)])
    systems = (SystemReport(name, *each) for name, *each in zip(names, *found, strict=True))
    return Report(tuple(signatures), signatures, tuple(systems), resampling)


def _parts(label: str, tables: Sequence[Sequence[Statistics]], mask: Mask, plan: Resampling) -> list[Part]:
    """The part of each system: scores, and what is drawn of them, with the same draws for all metrics."""
    size, columns = int(mask.sum()), list(zip(*tables, strict=True))  # for each metric, the statistics of all systems
    rows = [one.rows[mask] for column in columns for one in column]
    tests = plan.tests if size >= _FEWEST else ()
    sums = bootstrap(rows, plan.samples, plan.seed) if size and (plan.intervals or "bs" in tests) else []
    swapped = swaps(rows, plan.trials, plan.seed) if "ar" in tests else []
    scores: list[dict[str, Estimate]] = [{} for _ in tables]
    for number, column in enumerate(columns):
        own = slice(number * len(tables), (number + 1) * len(tables))
        values = [one.score(mask) if size else math.nan for one in column]
        samples = [one.values(each) for one, each in zip(column, sums[own], strict=False)]
        draws = _Draws(column, values, samples, swapped[own])
        for system, estimate in zip(scores, draws.estimates(plan, tests, size), strict=True):
            system[column[0].name] = estimate
    ratios = (next((ratio for one in table if (ratio := one.length_ratio(mask)) is not None), None) for table in tables)
    return [Part(label, size, found, ratio) for found, ratio in zip(scores, ratios, strict=True)]


@dataclass(frozen=True)
class _Draws:
    """The scores of every system by one metric for one subset, and those of all draws."""

    systems: Sequence[Statistics]
    values: Sequence[float]  # of each system; nan if there is no sentence
    samples: Sequence[Scores]  # of each system, in every bootstrap sample
    swapped: Sequence[Rows]  # of each system (2, trials, D): the sums of the sentences picked, and of the others

    def estimates(self, plan: Resampling, tests: Sequence[Test], size: int) -> Iterator[Estimate]:
        """One for each system; `tests` are those of the plan that were made, on `size` sentences."""
        marks: list[Mark] = self._marks(tests, plan.level, size) if tests else [""] * len(self.systems)
        for system, (value, mark) in enumerate(zip(self.values, marks, strict=True)):
            drawn = plan.intervals and self.samples
            mean, low, high = interval(self.samples[system], "bs" in tests) if drawn else (None, None, None)
            compared = plan.tests if system else ()
            p_values = {test: self._p_value(test, 0, system) if test in tests else None for test in compared}
            yield Estimate(finite(value), finite(mean), finite(low), finite(high), p_values, mark)

    def _marks(self, tests: Sequence[Test], level: float, size: int) -> list[Mark]:
        """For every system whether it is the winner or a tie, by the p-values below the level.

        N sentences have 2**N swaps, and the real one and its mirror have the greatest difference of all. If 2 / 2**N is
        not below the level, no system is called worse, even if the sampled p-value of so few sentences is lower.
        """
        better = -1 if isinstance(self.systems[0].metric, TER) else 1  # TER counts edits
        values = [better * value for value in self.values]
        best = values.index(max(values))
        worse = [
            value < values[best]
            and 2.0 ** (1 - size) < level
            and all(self._p_value(test, *sorted((best, system))) < level for test in tests)
            for system, value in enumerate(values)
        ]
        marks: list[Mark] = ["" if clearly else "tie" for clearly in worse]
        if sum(worse) == len(worse) - 1:
            marks[best] = "winner"
        return marks

    def _p_value(self, test: Test, first: int, second: int) -> float:
        """The share of draws with a greater difference than the real one, which counts as one more draw."""
        if test == "bs":
            gaps = np.abs(self.samples[second] - self.samples[first])
            drawn = gaps - gaps.mean()
        else:
            drawn = np.abs(self._shuffled(first, second) - self._shuffled(second, first))
        difference = abs(self.values[first] - self.values[second])
        return (int(np.count_nonzero(drawn > difference)) + 1) / (len(drawn) + 1)

    def _shuffled(self, first: int, second: int) -> Scores:
        """(trials,) scores of a system made of the sentences picked from one and left by the other."""
        return self.systems[first].values(self.swapped[first][0] + self.swapped[second][1])


def bootstrap(rows: Sequence[Rows], samples: int, seed: int) -> list[NDArray[np.float32]]:
    """For each of `rows`, (N, D) statistics, (samples, D) sums over samples of N sentences, drawn with replacement.

    The sums are float32 as in sacreBLEU, which is exact for whole numbers up to 16.7 million; above it sacreBLEU rounds
    after every sentence, this function once. Other numbers are added in the order drawn, as in sacreBLEU.
    """
    size = len(rows[0])
    generator = np.random.default_rng(seed)
    whole = [bool((one == np.rint(one)).all()) for one in rows]
    sums: list[list[NDArray[np.float32]]] = [[] for _ in rows]
    most = max(1, _DRAWS // size)
    for start in range(0, samples, most):
        drawn = generator.integers(size, size=(min(most, samples - start), size))
        counts = np.stack([np.bincount(sample, minlength=size) for sample in drawn]).astype(np.float64)
        for one, is_whole, each in zip(rows, whole, sums, strict=True):
            if is_whole:
                each.append((counts @ one).astype(np.float32))
            else:
                each.append(np.stack([one.astype(np.float32)[sample].sum(axis=0) for sample in drawn]))
    return [np.concatenate(each) for each in sums]


def swaps(rows: Sequence[Rows], trials: int, seed: int) -> list[Rows]:
    """For each of `rows`, (N, D) statistics, (2, trials, D) sums: over the sentences a fair coin picks, and the rest.

    Two systems exchange the sentences picked: the sums of one over them, and of the other over the rest, are those of
    a shuffled system. Sums of other than whole numbers have sacreBLEU's last bits, on which ties depend, only if the
    trials are one slice or the matrix product runs in one thread.
    """
    size = len(rows[0])
    generator = np.random.default_rng(seed)
    sums: list[list[Rows]] = [[] for _ in rows]
    most = max(1, _COINS // size // _WORD) * _WORD
    for start in range(0, trials, most):
        coins = generator.integers(2, size=(min(most, trials - start), size), dtype=np.bool_).astype(np.float64)
        for one, each in zip(rows, sums, strict=True):
            each.append(np.stack((coins @ one, (1 - coins) @ one)))
    return [np.concatenate(each, axis=1) for each in sums]


def interval(scores: Scores, paired: bool = False) -> tuple[float, float, float]:
    """The mean of (samples,) bootstrap scores, and the ends of their 95% interval, which leave out a fortieth each.

    sacreBLEU adds up the mean exactly for one system, but in the scores' own precision in a `paired` test.
    """
    ranked = np.sort(scores)
    out = len(ranked) // 40
    mean = scores.dtype.type(math.fsum(ranked.tolist()) / len(ranked))
    return float(ranked.mean() if paired else mean), float(ranked[out]), float(ranked[-out - 1])
