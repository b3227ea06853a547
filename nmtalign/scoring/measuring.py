"""The statistics of whole systems: blocks of sentences over the cores, counted once for all that follows."""

import importlib.metadata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.pipeline import process_pool, worker_count
from nmtalign.errors import InputError
from nmtalign.scoring.counting import Counting, Lines, Rows, make_metric
from nmtalign.scoring.options import METRICS, MetricOptions
from nmtalign.scoring.statistics import Statistics

_BLOCK = 1_000  # sentences: their keys stay in a core's cache
_CHARACTERS = 1_000_000  # of a block in all texts together: a process takes some 100 bytes for each
_PARALLEL_FROM = 20_000  # sentences times systems times metrics; fewer are counted before processes have started
_IN_FLIGHT = 3  # blocks a process
_KILLED = "a process that scores was killed (out of memory?); score fewer systems at a time"

Block = tuple[list[Lines], list[Lines]]  # of every system, of every reference
Counts = list[dict[str, Rows]]  # of every system, by metric


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

    `references` holds one or more sequences of lines; `processes` 0 = one for each core where there is enough to do.
    `advance` is called with the number of steps done since, `steps` in all. Raises InputError where there is nothing to
    score or the line counts differ, ResourceError where a process was killed.
    """
    options = options or MetricOptions()
    _check(systems, references)
    columns = [_Columns(options, len(hypotheses)) for hypotheses in systems]
    start = 0
    workers = worker_count(processes)
    if not processes and steps(len(systems), len(systems[0]), options) < _PARALLEL_FROM:
        workers = 1
    blocks = _blocks(systems, references)
    counted = _here(options, blocks) if workers == 1 else _in_processes(options, blocks, workers)
    for counts in counted:
        for column, found in zip(columns, counts, strict=True):
            column.put(start, found)
        done = len(next(iter(counts[0].values())))
        start += done
        if advance:
            advance(done * len(counts) * len(counts[0]))
    first = [lines[:1] for lines in references]
    return [column.statistics(hypotheses[:1], first) for column, hypotheses in zip(columns, systems, strict=True)]


def steps(systems: int, sentences: int, options: MetricOptions) -> int:
    """What `measure_systems` tells `advance` in all: one step is a sentence of a system by a metric."""
    return systems * sentences * len(set(options.metrics))


def _check(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> None:
    if not systems or not references or not references[0] or not all(systems):
        raise InputError("no sentence to score")
    for hypotheses in systems:
        if any(len(lines) != len(hypotheses) for lines in references):
            counts = ", ".join(str(len(lines)) for lines in references)
            raise InputError(f"{len(hypotheses)} hypotheses, but {counts} references; give one line a sentence")


@dataclass
class _Columns:
    """The rows of one system as they come in."""

    options: MetricOptions
    count: int

    def __post_init__(self) -> None:
        self._rows: dict[str, NDArray[np.float64]] = {}

    def put(self, start: int, found: dict[str, Rows]) -> None:
        """Rows of the sentences from `start` on."""
        for name, rows in found.items():
            if name not in self._rows:
                self._rows[name] = np.empty((self.count, rows.shape[1]))
            self._rows[name][start : start + len(rows)] = rows

    def statistics(self, hypothesis: Lines, references: Sequence[Lines]) -> list[Statistics]:
        """All rows with the objects that make scores of them; the texts are the first sentence's."""
        return [self._one(name, hypothesis, references) for name in METRICS if name in self._rows]

    def _one(self, name: str, hypothesis: Lines, references: Sequence[Lines]) -> Statistics:
        metric = make_metric(name, self.options)
        metric._extract_corpus_statistics(hypothesis, references)  # its signature tells the number of references
        rows = self._rows[name]
        printed = str(metric._compute_score_from_stats(rows[0].tolist()).name) if name != "multi-bleu" else name
        signature = f"{printed}|{metric.get_signature().format()}"
        if name == "multi-bleu" and self.options.tokenize != "none":
            signature = _with_moses(signature, self.options.language)
        return Statistics(printed, signature, rows, metric)


def _with_moses(signature: str, language: str) -> str:
    version = importlib.metadata.version("sacremoses")
    *fields, last = signature.replace("|tok:none|", f"|tok:moses-{language}|").split("|")
    return "|".join([*fields, f"sacremoses:{version}", last])


def _blocks(systems: Sequence[Lines], references: Sequence[Lines]) -> Iterator[Block]:
    """The sentences in order; fewer at a time where there are many systems or the lines are long."""
    texts, start, size = [*systems, *references], 0, 0
    for end in range(1, len(texts[0]) + 1):
        size += sum(len(lines[end - 1]) for lines in texts)
        if end - start == _BLOCK or size >= _CHARACTERS or end == len(texts[0]):
            window = slice(start, end)
            yield [lines[window] for lines in systems], [lines[window] for lines in references]
            start, size = end, 0


def _here(options: MetricOptions, blocks: Iterator[Block]) -> Iterator[Counts]:
    counting = Counting(options)
    for systems, references in blocks:
        yield counting.rows(systems, references)


def _in_processes(options: MetricOptions, blocks: Iterator[Block], workers: int) -> Iterator[Counts]:
    waiting: deque[Future[Counts]] = deque()
    with process_pool(workers, killed=_KILLED) as pool:
        for block in blocks:
            waiting.append(_submitted(pool, options, block))
            if len(waiting) >= _IN_FLIGHT * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _submitted(pool: ProcessPoolExecutor, options: MetricOptions, block: Block) -> Future[Counts]:
    return pool.submit(_work, options, *block)


_counting: dict[MetricOptions, Counting] = {}  # of a worker


def _work(options: MetricOptions, systems: list[Lines], references: list[Lines]) -> Counts:
    if options not in _counting:
        _counting[options] = Counting(options)
    return [
        {name: _narrow(rows) for name, rows in found.items()} for found in _counting[options].rows(systems, references)
    ]


def _narrow(rows: Rows) -> NDArray[Any]:
    """Whole numbers in as few bytes as hold them, for the way between processes."""
    return rows.astype(np.min_scalar_type(int(rows.max(initial=0)))) if rows.dtype.kind == "i" else rows
