"""Aligning sentence pairs with one model, or with a forward and a backward one: records, files, and their summary."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from nmtalign.alignment.alignment_writer import AlignmentWriter
from nmtalign.alignment.error_rates import ErrorRates, GoldFile
from nmtalign.alignment.forced import Lines, align_both, align_pairs, check_directions, window_size
from nmtalign.alignment.links import THRESHOLD, AlignmentRecord
from nmtalign.alignment.readings import chosen
from nmtalign.alignment.symmetrization import SOFT_METHODS, THRESHOLDS, what_weights_are
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import sha256_of
from nmtalign.model_directory import LoadedModel
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.lines import read_pairs
from nmtalign.version import __version__

# Settings on which the records do not depend, or which the writer compares itself: a resumed run may change them.
_OF_THE_MACHINE = ("device", "threads", "weights")


def align(
    models: Sequence[LoadedModel],
    pairs: Iterable[Lines],
    config: AlignConfig | None = None,
    *,
    tokenized: bool = False,
    first: int = 0,
) -> Iterator[AlignmentRecord]:
    """Yields one record per pair (source line, target line), in order, numbered from `first`.

    `models` is one model, or a forward model (source to target) and a backward model (target to source), whose records
    are joined by `config.symmetrize`. Lines are tokenised as each model's training text was; `tokenized` lines are only
    split at spaces. Raises UsageError for a model without attention and for models of other directions, InputError,
    naming the line, if two models split a text into different words.
    """
    config = chosen(config or AlignConfig(), len(models))
    if len(models) == 1:
        return align_pairs(models[0], pairs, config, tokenized=tokenized, first=first)
    forward, backward = models
    return align_both(forward, backward, pairs, config, tokenized=tokenized, first=first)


@dataclass
class AlignmentSummary:
    """Counts over the pairs that a run has aligned, and how their links compare with gold links."""

    pairs: int = 0
    links: int = 0
    target_words: int = 0  # of pairs without an empty side
    end_total: float = 0.0  # sum of their weights on the source's `</s>`
    done_before: int = 0  # pairs that were in the file when the run began
    rates: ErrorRates | None = None
    signature: str | None = None  # everything that reproduces the rates

    @property
    def end_mass(self) -> float:
        """The mean weight of a target word on the source's `</s>`."""
        return self.end_total / self.target_words if self.target_words else 0.0

    def count(self, record: AlignmentRecord) -> None:
        """Counts a record."""
        self.pairs += 1
        self.links += len(record.hard_links)
        if not record.empty():
            self.target_words += len(record.target)
            self.end_total += record.end_mass()


class AlignmentRun:
    """Aligns two texts: `with AlignmentRun(models, source, target, output=path) as run: for record in run: ...`.

    Each record is counted in `summary`, compared with the gold links, and written to `output` (HDF5) if there is one.
    With `resume` the pairs that the file contains already are not aligned again. Iterate only once, and to the end: the
    file appears when the block ends without an error; otherwise FILE.h5.partial keeps the records, and `left()` tells
    how many. `kept` is the place of an older FILE.h5.partial. The arguments are those of `write_alignments`.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        source: Path,
        target: Path,
        config: AlignConfig | None = None,
        *,
        output: Path | None = None,
        tokenized: bool = False,
        resume: bool = False,
        gold: Path | None = None,
        gold_base: int | None = None,
    ) -> None:
        self._models, self._source, self._target, self._tokenized = models, source, target, tokenized
        self.config = chosen(config or AlignConfig(), len(models))
        self._check_languages()
        self.summary = AlignmentSummary()
        self._gold = GoldFile(gold, gold_base) if gold else None
        self._writer = self._open_writer(output, resume) if output else None

    def __enter__(self) -> Self:
        if self._writer is not None:
            self._writer.__enter__()
            self.summary.done_before = self._writer.sentences
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._writer is None:
            return
        try:
            self._writer.__exit__(kind, error, _)
        except NmtalignError as refused:
            error = refused
        if isinstance(error, NmtalignError):
            raise type(error)(f"{error}{self.left()}") from None

    def __iter__(self) -> Iterator[AlignmentRecord]:
        for record in self._records(self.summary.done_before):
            self.summary.count(record)
            if self._gold is not None:
                self._gold.compare(record.hard_links, len(record.source), len(record.target))
            if self._writer is not None:
                self._writer.add(record)
            yield record
        if self._gold is not None:
            self.summary.rates = self._gold.finish()
            self.summary.signature = self._signature(self._gold)

    @property
    def kept(self) -> Path | None:
        """FILE.h5.partial.old, if a FILE.h5.partial from which a run could resume was there."""
        return self._writer.kept if self._writer is not None else None

    @property
    def partial(self) -> Path | None:
        """FILE.h5.partial."""
        return self._writer.partial if self._writer is not None else None

    def left(self) -> str:
        """Returns what an interruption has left, for the end of a message; "" if nothing."""
        return self._writer.left() if self._writer is not None else ""

    def _records(self, done: int) -> Iterator[AlignmentRecord]:
        """Yields the records after the first `done` ones. A window that is done in part is aligned again, as before."""
        size = window_size(self.config)
        first = done // size * size
        pairs = islice(read_pairs(self._source, self._target), first, None)
        records = align(self._models, pairs, self.config, tokenized=self._tokenized, first=first)
        return islice(records, done - first, None)

    def _check_languages(self) -> None:
        """Raises UsageError if two models do not fit each other, or the endings of the texts name the other order."""
        if len(self._models) == 1:
            return
        check_directions(*self._models)
        forward = self._models[0]
        languages = forward.source_language, forward.target_language
        named = tuple(path.name.removesuffix(".gz").rpartition(".")[2] for path in (self._source, self._target))
        if named == languages[::-1] != languages:
            raise UsageError(
                f"{forward.folder}: reads {languages[0]} and writes {languages[1]}, and {self._source} comes first: "
                "exchange the models, or the texts"
            )

    def _open_writer(self, output: Path, resume: bool) -> AlignmentWriter:
        config, forward = self.config, self._models[0]
        stored = {name: value for name, value in asdict(config).items() if name not in _OF_THE_MACHINE}
        options = {**stored, "tokenized": self._tokenized, "weights_of": forward.weights_file.name}
        both = len(self._models) > 1
        attributes: dict[str, object] = {
            "model_hash": "+".join(loaded.hash for loaded in self._models),
            "direction": f"{forward.source_language}-{forward.target_language}",
            "made_by": "forced decoding in both directions" if both else "forced decoding",
            "links_method": config.links,
            "threshold": self._threshold(),
            "reading": config.reading,
            "temperature": config.temperature,
            "weights_are": f"{config.reading} weights of the model",
            "source_file": str(self._source),
            "target_file": str(self._target),
            "source_sha256": _sha256(self._source),
            "target_sha256": _sha256(self._target),
            "options": json.dumps(options),
        }
        if both:
            weights = f"{what_weights_are(config.symmetrize)}; {config.reading} weights of the models"
            attributes |= {"symmetrization": config.symmetrize, "weights_are": weights}
        return AlignmentWriter(output, attributes, config.weights, resume=resume, end=not config.drop_end)

    def _threshold(self) -> float:
        """Returns the threshold in use, 0 if there is none."""
        config = self.config
        if len(self._models) > 1 and config.symmetrize in SOFT_METHODS:
            return config.threshold or THRESHOLDS.get(config.symmetrize, 0.0)
        return (config.threshold or THRESHOLD) if config.links == "threshold" else 0.0

    def _signature(self, gold: GoldFile) -> str:
        config, counts = self.config, gold.counts
        parts = [f"links:{config.links}"]
        if len(self._models) > 1:
            parts = [*([] if config.symmetrize in SOFT_METHODS else parts), f"symmetrize:{config.symmetrize}"]
        if self._threshold():
            parts.append(f"threshold:{self._threshold():g}")
        if config.reading != "current":
            parts.append(f"reading:{config.reading}")
        if config.temperature != 1:
            parts.append(f"temperature:{config.temperature:g}")
        if config.drop_end:
            parts.append("without:</s>")
        hashes = "+".join(loaded.hash[:12] for loaded in self._models)
        return (
            f"AER|{'|'.join(parts)}|gold:{gold.path.name}|pairs:{gold.pairs}|sure:{counts.sure}|model:{hashes}"
            f"|nmtalign:{__version__}"
        )


def write_alignments(
    models: Sequence[LoadedModel],
    source: Path,
    target: Path,
    output: Path,
    config: AlignConfig | None = None,
    *,
    tokenized: bool = False,
    resume: bool = False,
    gold: Path | None = None,
    gold_base: int | None = None,
) -> AlignmentSummary:
    """Aligns two texts (one sentence per line, plain or .gz) into an alignment file; returns counts and error rates.

    `models`, `config` and `tokenized` are those of `align`. With `resume` an interrupted file is continued, and the
    summary and the gold links cover only the rest. Positions in `gold` count from `gold_base` (0 or 1; None: as
    usual in its format). Raises also InputError for texts of unequal length and gold links that do not fit,
    ResourceError where the disk refuses, and UsageError if the file was begun with other settings, texts or models.
    """
    run = AlignmentRun(
        models,
        source,
        target,
        config,
        output=output,
        tokenized=tokenized,
        resume=resume,
        gold=gold,
        gold_base=gold_base,
    )
    with run:
        for _ in run:
            pass
    return run.summary


def _sha256(path: Path) -> str:
    """Returns the SHA-256 of a text, "" for a stream that can be read only once."""
    return sha256_of(path) if path.is_file() else ""
