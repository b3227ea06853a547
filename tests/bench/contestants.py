"""The processes of `bench translate`: the naive decoder, nmtalign's translator, and the products of the floor."""

import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.machine import tree_mb

NAIVE_BATCH = 16
FLOOR = "floor"
OURS = {
    "ours-fp32": "fp32",
    "ours-bf16": "bf16",
    "ours-int8": "int8",
    "ours-candidates": "bf16",
    "ours-int8-candidates": "int8",
}
WITH_CANDIDATES = ("ours-candidates", "ours-int8-candidates")
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
NAMES = ("released", "naive", "naive-batch", *OURS)


@dataclass(frozen=True)
class Job:
    """The inputs of all variants; paths are absolute."""

    model: str
    text: str
    lexicon: str = ""  # "" = no lexicon, and no variant with candidates
    candidates: int = 1000  # most frequent words, added to the lexicon's
    tokenized: bool = True
    min_ratio: float = 0.0
    max_ratio: float = 3.0
    threads: int = 2
    device: str = "cpu"
    floor: tuple[int, int] = (0, 0)  # (words per sentence, sentences) of the floor


@dataclass(frozen=True)
class Found:
    """A translation: its text, its score, and its number of words with `</s>`."""

    text: str
    score: float
    words: int


class Variant(Protocol):
    """A way to translate lines."""

    def prepare(self, beam: int) -> None:
        """Prepares for a beam size; this is not timed."""

    def translate(self, lines: Sequence[str]) -> list[Found]:
        """Returns one translation per line."""


class Naive:
    """The naive decoder; its input is tokenised beforehand."""

    def __init__(self, job: Job, batch: int, recompute_keys: bool) -> None:
        import torch

        from nmtalign.core.devices import use_threads
        from nmtalign.model_directory import load_model
        from nmtalign.text.tokenizer import SpacedWords

        use_threads(job.threads)
        self._job, self._batch, self._recompute_keys = job, batch, recompute_keys
        self._loaded = load_model(Path(job.model), device=job.device, precision="fp32")  # type: ignore[arg-type]
        with torch.no_grad():  # a copy, because weights that are mapped from a file are read more slowly
            for parameter in self._loaded.model.parameters():
                parameter.data = parameter.data.clone()
        spaced = SpacedWords()
        tokenizers = self._loaded.tokenizers
        self._tokenize = spaced.tokenize if job.tokenized else tokenizers.source.tokenize
        self._detokenize = spaced.detokenize if job.tokenized else tokenizers.target.detokenize

    def prepare(self, beam: int) -> None:
        """See `Variant`."""
        from bench.naive_search import NaiveSearch

        ratios = self._job.min_ratio, self._job.max_ratio
        self._search = NaiveSearch(self._loaded.model, beam, *ratios, self._recompute_keys)

    def translate(self, lines: Sequence[str]) -> list[Found]:
        """See `Variant`."""
        source, target = self._loaded.source_vocabulary, self._loaded.target_vocabulary
        found = self._search.translate([source.encode(self._tokenize(line)) for line in lines], self._batch)
        return [Found(self._detokenize(target.decode(best.tokens)), best.score, len(best.tokens) + 1) for best in found]


class Ours:
    """nmtalign as its users run it: `Translator.translate`, from lines to text, without alignments."""

    def __init__(self, job: Job, name: str) -> None:
        self._path = Path(job.model)
        self._settings: dict[str, Any] = {"precision": OURS[name], "threads": job.threads, "device": job.device}
        self._settings |= {"tokenized": job.tokenized, "length_penalty": 1.0}
        self._settings |= {"min_length_ratio": job.min_ratio, "max_length_ratio": job.max_ratio}
        if name in WITH_CANDIDATES:
            self._settings |= {"lexicon": job.lexicon, "candidates": job.candidates}

    def prepare(self, beam: int) -> None:
        """See `Variant`."""
        from nmtalign.translating.translator import Translator

        self._translator = Translator.load(self._path, alignments=False, beam=beam, **self._settings)

    def translate(self, lines: Sequence[str]) -> list[Found]:
        """See `Variant`."""
        found = self._translator.translate(lines)
        return [Found(each.text, each.score, len(each.tokens) + 1) for each in found]


def serve(task: str) -> None:
    """Answers requests from stdin, one line of JSON each, on stdout, until stdin ends.

    {} is answered when the process is ready. {"beam": 12, "lines": [0, 1]} is answered with the seconds that these
    lines of the text took, their translations, and the peak memory so far; the floor answers with the seconds of each
    of its variants.
    """
    given = json.loads(task)
    name = given.pop("variant")
    job = Job(**{**given, "floor": tuple(given["floor"])})
    answer = _floor_answers(job) if name == FLOOR else _answers(job, name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def _answers(job: Job, name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    batch = NAIVE_BATCH if name == "naive-batch" else 1
    variant: Variant = Ours(job, name) if name in OURS else Naive(job, batch, recompute_keys=name == "released")
    text = read_text(Path(job.text))
    ready = 0

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal ready
        if not request:
            return {}
        if request["beam"] != ready:
            ready = request["beam"]
            variant.prepare(ready)
        lines = [text[place] for place in request["lines"]]
        began = time.perf_counter()
        found = variant.translate(lines)
        seconds = time.perf_counter() - began
        peak = tree_mb(os.getpid(), "VmHWM")
        return {"seconds": seconds, "found": [dataclasses.astuple(each) for each in found], "peak_mb": peak}

    return answer


def _floor_answers(job: Job) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns the seconds per sentence of the matrix products, for each variant of nmtalign: the products of its
    batches, computed side by side on the same number of threads."""
    import torch

    from bench.floor import Floor
    from bench.search_products import SearchShape, search_products_of
    from nmtalign.model_directory import model_config, read_settings
    from nmtalign.translating.translator import default_words

    torch.set_num_threads(1)
    config = model_config(Path(job.model), read_settings(Path(job.model)))
    (length, sentences), threads = job.floor, job.threads or os.cpu_count() or 1
    floors: dict[str, list[Floor]] = {}
    together, ready = 1, 0

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal together, ready
        if not request:
            return {}
        if request["beam"] != ready:
            ready = request["beam"]
            together = max(1, min(default_words(ready, torch.device("cpu")) // length, -(-sentences // threads)))
            for name, precision in OURS.items():
                scored = 2 * job.candidates if name in WITH_CANDIDATES else config.target_vocabulary_size
                products = search_products_of(config, SearchShape(together, length, ready, length, scored))
                dtype = getattr(torch, _DTYPES[precision])
                floors[name] = [Floor([products], dtype) for _ in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            for each in floors.values():
                list(pool.map(Floor.measure, each))
        return {
            name: statistics.mean(floor.seconds for floor in each) / (threads * together)
            for name, each in floors.items()
        }

    return answer


def read_text(path: Path) -> list[str]:
    """Returns the lines of a text file; raises InputError with file and line if it cannot be read."""
    from nmtalign.text.lines import read_lines

    return list(read_lines(path))
