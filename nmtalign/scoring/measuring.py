"""The statistics of complete systems, counted in blocks of sentences and in several processes.

sacreBLEU recomputes a sample of the sentences of every system. If a figure differs, an error names it: no score is
reported that the installed sacreBLEU would not report.
"""

import functools
import importlib.metadata
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.pipeline import process_pool, worker_count
from nmtalign.errors import InputError, NmtalignError
from nmtalign.scoring.metrics import METRICS, MULTI_BLEU, MetricOptions, Score, Statistics, make_metric
from nmtalign.scoring.sentence_counts import Counting, Lines, Rows, moses_tokens
from nmtalign.text.tokenizer import MosesWords

SAMPLE = 20  # sentences of each system that sacreBLEU recomputes
_BLOCK = 1_000  # sentences: their keys fit into the cache of a core
_TER_BLOCK = 50  # sentences: sacreBLEU's TER takes milliseconds for each
_CHARACTERS = 1_000_000  # of a block in all texts together: a process takes some 100 bytes for each
_PARALLEL_FROM = 20_000  # steps; fewer take less time than starting processes
_TER_WEIGHT = 100  # TER takes as long as this number of other metrics
_IN_FLIGHT = 3  # blocks per process
_KILLED = "a process that scores was killed (out of memory?); score fewer systems at a time"

Block = tuple[list[Lines], list[Lines]]  # lines of every system, of every reference
Counts = list[dict[str, Rows]]  # for every system the rows of each metric


def corpus_scores(
    hypotheses: Sequence[str], *references: Sequence[str], options: MetricOptions | None = None
) -> list[Score]:
    """The scores of the complete corpus against one or more references, with signatures."""
    return [statistics.score() for statistics in measure(hypotheses, references, options)]


def bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    """sacreBLEU's BLEU of the corpus against one reference, counted in this process (training uses the cores)."""
    return measure(hypotheses, [references], MetricOptions(("bleu",), lowercase, tokenize), processes=1)[0].score()


def measure(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: MetricOptions | None = None,
    *,
    processes: int = 0,
) -> list[Statistics]:
    """The statistics of one system by every metric of `options`, in the order of METRICS; else as `measure_systems`."""
    return measure_systems([hypotheses], references, options, processes=processes)[0]


def measure_systems(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    options: MetricOptions | None = None,
    *,
    processes: int = 0,
    advance: Callable[[int], None] | None = None,
) -> list[list[Statistics]]:
    """For each system its statistics by every metric of `options`, in the order of METRICS.

    `references` contains one or more sequences of lines. `processes` 0 means one per core, if there is enough to do.
    `advance` is called with the number of steps done since the last call; `steps` gives their sum. Raises InputError if
    there is nothing to score or the line counts differ, NmtalignError if sacreBLEU's figures for a sample differ,
    ResourceError if a process was killed.
    """
    options = options or MetricOptions()
    _check_lines(systems, references)
    columns: list[dict[str, NDArray[np.float64]]] = [{} for _ in systems]
    start, size = 0, len(systems[0])
    workers = worker_count(processes)
    weight = _TER_WEIGHT if "ter" in options.metrics else 1
    if not processes and weight * steps(len(systems), size, options) < _PARALLEL_FROM:
        workers = 1
    blocks = _blocks(systems, references, _TER_BLOCK if "ter" in options.metrics else _BLOCK)
    here = itertools.starmap(Counting(options).rows, blocks)
    for counts in here if workers == 1 else _in_processes(options, blocks, workers):
        for column, found in zip(columns, counts, strict=True):
            for name, rows in found.items():
                column.setdefault(name, np.empty((size, rows.shape[1])))[start : start + len(rows)] = rows
        done = len(next(iter(counts[0].values())))
        start += done
        if advance:
            advance(done * len(counts) * len(counts[0]))
    checker = _Checker(options, references)
    return [
        [checker.checked(name, lines, column[name]) for name in METRICS if name in column]
        for lines, column in zip(systems, columns, strict=True)
    ]


def steps(systems: int, sentences: int, options: MetricOptions) -> int:
    """The sum of what `measure_systems` passes to `advance`: one step is one sentence of a system by one metric."""
    return systems * sentences * len(set(options.metrics))


def _check_lines(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> None:
    if not systems or not references or not references[0] or not all(systems):
        raise InputError("no sentence to score")
    for hypotheses in systems:
        if any(len(lines) != len(hypotheses) for lines in references):
            counts = ", ".join(str(len(lines)) for lines in references)
            raise InputError(f"{len(hypotheses)} hypotheses, but {counts} references; give one line per sentence")


@dataclass(frozen=True)
class _Checker:
    """Makes statistics of rows, after sacreBLEU has recomputed a sample of them."""

    options: MetricOptions
    references: Sequence[Lines]

    def checked(self, name: str, hypotheses: Lines, rows: NDArray[np.float64]) -> Statistics:
        """The statistics of a system by one metric; raises NmtalignError if a figure of the sample is wrong."""
        metric = make_metric(name, self.options)
        places = np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(np.int64))
        hypothesis, *references = ([lines[i] for i in places] for lines in (hypotheses, *self.references))
        if name == MULTI_BLEU and self.options.tokenize != "none":
            moses = moses_tokens(MosesWords(self.options.language), [hypothesis, *references])
            hypothesis, *references = ([" ".join(words[:-1]) for words in lines] for lines in moses)
        theirs = np.array(metric._extract_corpus_statistics(hypothesis, references), dtype=np.float64)
        score = metric._compute_score_from_stats(theirs.sum(axis=0).tolist())  # its name and signature are used too
        printed = name if name == MULTI_BLEU else str(score.name)
        statistics = Statistics(printed, f"{printed}|{self._signature(name, metric)}", rows, metric)
        wrong = (rows[places] != theirs).any(axis=1) if rows[places].shape == theirs.shape else np.array([True])
        if wrong.any():
            _disagree(f"the counts of {printed} in line {places[int(wrong.argmax())] + 1}")
        if float(statistics.values(theirs.sum(axis=0)[None])[0]) != float(score.score):
            _disagree(f"the {printed} of {len(places)} sentences")
        return statistics

    def _signature(self, name: str, metric: Any) -> str:
        signature = str(metric.get_signature().format())
        if name != MULTI_BLEU or self.options.tokenize == "none":
            return signature
        version = importlib.metadata.version("sacremoses")
        *fields, last = signature.replace("|tok:none|", f"|tok:moses-{self.options.language}|").split("|")
        return "|".join([*fields, f"sacremoses:{version}", last])


def _disagree(what: str) -> None:
    version = importlib.metadata.version("sacrebleu")
    raise NmtalignError(
        f"nmtalign and sacrebleu {version} disagree on {what}; nothing is reported. "
        "Install another sacrebleu 2.x (from 2.4), and please report this"
    )


def _blocks(systems: Sequence[Lines], references: Sequence[Lines], sentences: int) -> Iterator[Block]:
    """The sentences in order; fewer at a time if there are many systems or the lines are long."""
    texts, start, size = [*systems, *references], 0, 0
    for end in range(1, len(texts[0]) + 1):
        size += sum(len(lines[end - 1]) for lines in texts)
        if end - start == sentences or size >= _CHARACTERS or end == len(texts[0]):
            window = slice(start, end)
            yield [lines[window] for lines in systems], [lines[window] for lines in references]
            start, size = end, 0


def _in_processes(options: MetricOptions, blocks: Iterator[Block], workers: int) -> Iterator[Counts]:
    waiting: deque[Future[Counts]] = deque()
    with process_pool(workers, killed=_KILLED) as pool:
        for block in blocks:
            waiting.append(pool.submit(_work, options, *block))
            if len(waiting) >= _IN_FLIGHT * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_counting = functools.lru_cache(maxsize=1)(Counting)  # of a worker process


def _work(options: MetricOptions, systems: list[Lines], references: list[Lines]) -> Counts:
    rows = _counting(options).rows(systems, references)
    return [{name: _narrow(counts) for name, counts in found.items()} for found in rows]


def _narrow(rows: Rows) -> NDArray[Any]:
    """Whole numbers in as few bytes as possible, because the rows are sent between processes."""
    return rows.astype(np.min_scalar_type(int(rows.max(initial=0)))) if rows.dtype.kind == "i" else rows
