"""Metrics of sacreBLEU: their options, the statistics of each sentence, and the scores of sums of these statistics.

sacreBLEU counts each sentence once. A corpus score is a function of the sum of the sentences' statistics, so every
bucket, subset and bootstrap sample costs only one sum. sacreBLEU has no public function for these statistics. Where an
installed version lacks the private ones, `Statistics` keeps the lines, and each score is a public `corpus_score`.
"""

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.data.pipeline import process_count, process_pool
from nmtalign.errors import InputError
from nmtalign.settings.command_settings import ScoreConfig
from nmtalign.settings.definition import SettingError
from nmtalign.text.languages import has_no_spaces, in_unspaced_script, main_language
from nmtalign.text.lines import blocks
from nmtalign.text.tokenizer import MosesWords
from nmtalign.version import __version__

METRICS: Mapping[str, str] = {  # the setting: the name that is printed, which is sacreBLEU's
    "bleu": "BLEU",
    "chrf": "chrF2",
    "chrf++": "chrF2++",
    "ter": "TER",
    "multi-bleu": "multi-bleu",
}
MULTI_BLEU = "multi-bleu"
TOKENIZE = ("13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab")  # sacreBLEU's; the last two need MeCab
_CHINESE = frozenset(("zh", "yue", "wuu", "lzh"))
_JUDGED = 2000  # lines of a reference that show whether its script has spaces
_PRIVATE = ("_extract_corpus_statistics", "_compute_score_from_stats")
_BLOCK, _CHARACTERS = 200, 200_000  # sentences and characters that a process counts at a time, which needs much memory
_PARALLEL_FROM = 2_000  # sentences of all systems; fewer take less time than starting processes
_KILLED = "a process that scores was killed (out of memory?); score fewer systems at a time"

Lines = Sequence[str]
Rows = NDArray[np.float64]  # (N, D) statistics of sentences


@dataclass(frozen=True)
class MetricOptions:
    """The metrics to compute, and sacreBLEU's options of BLEU (chrF and chrF++ keep sacreBLEU's defaults)."""

    metrics: tuple[str, ...] = ("bleu", "chrf", "chrf++")  # TER is slow; multi-bleu needs the language
    lowercase: bool = False  # of BLEU and multi-bleu, as sacreBLEU's -lc
    tokenize: str = "13a"  # of BLEU; with "none", multi-bleu does not tokenise either
    language: str = ""  # of the translations: multi-bleu uses its Moses tokeniser, TER splits Han characters

    def __post_init__(self) -> None:
        chosen = [("metrics", name, METRICS) for name in self.metrics] + [("tokenize", self.tokenize, TOKENIZE)]
        for setting, value, known in chosen:
            if value not in known:
                raise SettingError(f"unknown {value!r}; give one of {', '.join(known)}", **{setting: value})
        if self.tokenize.endswith("-mecab") and not has_tokenizer(self.tokenize):
            rule = f"MeCab or its dictionary is missing or does not work; install sacrebleu[{self.tokenize[:2]}]"
            raise SettingError(rule, tokenize=self.tokenize)
        if MULTI_BLEU in self.metrics and not self.language and self.tokenize != "none":
            rule = "multi-bleu needs the language of the translation, or the tokeniser none for tokenised text"
            raise SettingError(rule, metrics=",".join(self.metrics))

    @classmethod
    def of(cls, settings: ScoreConfig, language: str) -> Self:
        """The setting `metrics` is such as "bleu,chrf", "all" (multi-bleu only if the language is known), or ""."""
        names = [name.strip().lower() for name in settings.metrics.split(",")] if settings.metrics else cls.metrics
        if "all" in names:
            # Moses finds no words where there are no spaces.
            usual = settings.tokenize == "none" or (bool(language) and not has_no_spaces(language))
            names = [*filter("all".__ne__, names), *(name for name in METRICS if name != MULTI_BLEU or usual)]
        return cls(tuple(names), settings.lowercase, settings.tokenize or cls.tokenize, language)


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


def make_metric(name: str, options: MetricOptions, references: Sequence[Lines]) -> Any:
    """Returns sacreBLEU's object for a metric, which has counted the references."""
    if name in ("bleu", MULTI_BLEU):
        own = {"tokenize": "none", "smooth_method": "none"} if name == MULTI_BLEU else {"tokenize": options.tokenize}
        # `force` only silences a warning that our command words differently.
        return BLEU(lowercase=options.lowercase, force=True, references=references, **own)
    if name == "ter":
        # sacreBLEU's TER takes a clause of Chinese as one word, unless it splits Han characters.
        han = main_language(options.language) in {*_CHINESE, "ja"}
        return TER(normalized=han, asian_support=han, references=references)
    return CHRF(word_order=2 if name == "chrf++" else 0, references=references)


@dataclass(frozen=True)
class Statistics:
    """The sufficient statistics of one system by one metric, one row per sentence."""

    name: str  # BLEU, chrF2, chrF2++, TER, multi-bleu, or the name of given segment scores
    signature: str  # sacreBLEU's, which says how to reproduce the score
    rows: Rows  # (N, D); for BLEU the first two columns are the lengths of hypothesis and reference
    metric: Any = field(repr=False)  # sacreBLEU's object, or None for given scores: rows are [score, 1]
    # (hypotheses, each reference) for a sacreBLEU that does not give its statistics; then the rows are empty.
    lines: Sequence[Lines] = field(default=(), repr=False)

    @classmethod
    def of_segments(cls, name: str, scores: Sequence[float]) -> "Statistics":
        """The statistics of scores that were computed elsewhere, one per sentence; the corpus score is their mean."""
        rows = np.stack([np.asarray(scores, np.float64), np.ones(len(scores))], axis=1)
        return cls(name, f"{name}|scores:given|mean:sentences|nmtalign:{__version__}", rows, None)

    def score(self, subset: NDArray[Any] | slice = slice(None)) -> float:
        """The corpus score of all, or of a subset that is not empty: a mask, or indices."""
        if self.lines:
            hypotheses, *references = (np.array(lines, object)[subset].tolist() for lines in self.lines)
            return float(self.metric.corpus_score(hypotheses, references).score)
        return float(self.values(np.add.reduce(self.rows[subset], axis=0)[None])[0])

    @property
    def too_short(self) -> bool:
        """Whether no reference has a 4-gram, so that BLEU is 0 even for a text that equals the reference."""
        counted = isinstance(self.metric, BLEU) and not self.lines
        return counted and bool(self.rows[:, 1].max() < self.metric.max_ngram_order)

    def values(self, sums: NDArray[Any]) -> NDArray[Any]:
        """(S,) scores of (S, D) sums of rows; sacreBLEU continues in float32 where the sums are float32."""
        if self.metric is None:
            means: NDArray[Any] = sums[:, 0] / np.maximum(sums[:, 1], 1)
            return means
        rows = sums if sums.dtype == np.float32 else sums.tolist()
        return np.array([self.metric._compute_score_from_stats(row).score for row in rows])

    def length_ratio(self, subset: NDArray[Any]) -> float | None:
        """Tokens of the hypotheses / tokens of the references, as BLEU counts them; None for other metrics."""
        rows = self.rows[subset]
        if not isinstance(self.metric, BLEU) or self.lines or not rows[:, 1].sum():
            return None
        return float(rows[:, 0].sum() / rows[:, 1].sum())

    def signed(self, samples: int, trials: int, seed: int) -> str:
        """The signature with the numbers of bootstrap samples and of trials, as sacreBLEU prints it; 0 = not drawn."""
        drawn = [f"{name}:{number}" for name, number in (("bs", samples), ("ar", trials)) if number]
        name, references, *others = self.signature.split("|")
        return "|".join([name, references, *drawn, f"seed:{seed}", *others]) if drawn else self.signature


def measure_systems(
    systems: Sequence[Lines],
    references: Sequence[Lines],
    options: MetricOptions | None = None,
    *,
    processes: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> list[list[Statistics]]:
    """For each system its statistics by every metric of `options`, in the order of METRICS.

    All texts have the same number of lines. `processes` 0 means one per core, if there is enough to do. `advance` is
    called with the number of sentences counted since the last call. Raises InputError if there is nothing to score,
    ResourceError if a process was killed.
    """
    options = options or MetricOptions()
    if not systems or not references or not references[0] or not all(systems):
        raise InputError("no sentence to score")
    names = [name for name in METRICS if name in options.metrics]
    weight = 20 if "ter" in names else 1  # TER takes that many times as long
    small = not processes and weight * len(systems) * len(systems[0]) < _PARALLEL_FROM
    workers = 1 if small else process_count(processes)
    sized = ((lines, sum(map(len, lines))) for lines in zip(*systems, *references, strict=True))
    parts, counted = (list(zip(*rows, strict=True)) for rows in blocks(sized, _CHARACTERS, _BLOCK)), []
    with process_pool(workers, killed=_KILLED) if workers > 1 else contextlib.nullcontext() as pool:
        work = functools.partial(_count, options, names, len(systems))
        for block in pool.map(work, parts) if pool else map(work, parts):
            counted.append(block)
            advance(len(block[0][names[0]]))
    return [
        [
            _statistics(name, options, np.concatenate([block[number][name] for block in counted]), [lines, *references])
            for name in names
        ]
        for number, lines in enumerate(systems)
    ]


def _count(options: MetricOptions, names: Sequence[str], systems: int, texts: Sequence[Lines]) -> list[dict[str, Rows]]:
    """For each system the rows of each metric, as sacreBLEU counts them; `texts` are the systems, then the references.

    With one reference the statistics of chrF are the first ones of chrF++.
    """
    counted: list[dict[str, Rows]] = [{} for _ in range(systems)]
    shared = {"chrf", "chrf++"} <= {*names} and len(texts) - systems == 1
    for name in names:
        if shared and name == "chrf":
            continue
        prepared = _prepared(name, options, texts)
        metric = make_metric(name, options, prepared[systems:])
        for lines, rows in zip(prepared, counted, strict=False):
            found = metric._extract_corpus_statistics(lines, None) if gives_statistics(metric) else [[]] * len(lines)
            rows[name] = np.array(found, dtype=np.float64)
            if shared and name == "chrf++":
                rows["chrf"] = rows[name][:, : 3 * metric.char_order]
    return counted


def gives_statistics(metric: Any) -> bool:
    """Whether this version of sacreBLEU has the private functions for the statistics of sentences."""
    return all(hasattr(metric, name) for name in _PRIVATE)


_moses = functools.lru_cache(maxsize=1)(MosesWords)  # it keeps the tokens of words from block to block


def _prepared(name: str, options: MetricOptions, texts: Sequence[Lines]) -> Sequence[Lines]:
    """The texts as a metric gets them: multi-bleu needs words between spaces."""
    if name != MULTI_BLEU or options.tokenize == "none":
        return texts
    moses = _moses(options.language)
    return [[" ".join(moses.tokenize(line)) for line in lines] for lines in texts]


def _statistics(name: str, options: MetricOptions, rows: Rows, texts: Sequence[Lines]) -> Statistics:
    """The statistics of a system by one metric; `texts` are its lines and those of each reference."""
    metric = make_metric(name, options, [lines[:1] for lines in texts[1:]])
    signature = str(metric.get_signature().format())
    if name == MULTI_BLEU and options.tokenize != "none":
        *fields, last = signature.replace("|tok:none|", f"|tok:moses-{options.language}|").split("|")
        signature = "|".join([*fields, f"sacremoses:{importlib.metadata.version('sacremoses')}", last])
    kept = () if gives_statistics(metric) else _prepared(name, options, texts)
    return Statistics(METRICS[name], f"{METRICS[name]}|{signature}", rows, metric, kept)
