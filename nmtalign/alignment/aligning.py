"""Aligning sentence pairs with one model, or with a forward and a backward one: records, files, and their summary."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from nmtalign.alignment.alignment_writer import AlignmentWriter
from nmtalign.alignment.evaluation import turned_note
from nmtalign.alignment.forced import Aligner, Lines, window_size, windows
from nmtalign.alignment.link_files import ErrorRates, GoldFile
from nmtalign.alignment.links import THRESHOLD, AlignmentRecord
from nmtalign.alignment.symmetrization import SOFT_METHODS, THRESHOLDS, join, what_weights_are
from nmtalign.core.devices import precision_notices, use_threads
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import sha256_of
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.settings.alignment_settings import AlignConfig
from nmtalign.text.direction import check_pairs
from nmtalign.text.languages import language_code, suffix_language
from nmtalign.text.lines import read_pairs, shown
from nmtalign.text.shard import Shard
from nmtalign.text.tokenizer import Subwords
from nmtalign.version import __version__

# Settings on which the records do not depend, or which the writer compares itself: a resumed run may change them.
_OF_THE_MACHINE = ("device", "threads", "weights")


def align(
    models: Sequence[LoadedModel], pairs: Iterable[Lines], config: AlignConfig | None = None, *, first: int = 0
) -> Iterator[AlignmentRecord]:
    """Yields one record per pair (source line, target line), in order, numbered from `first`.

    `models` is one model, or a forward model (source to target) and a backward model (target to source), whose records
    are joined by `config.symmetrize`. Lines are tokenised as each model's training text was, and subword pieces are
    merged to words. Pairs are read in windows and sorted by length into batches; a pair with an empty side is not given
    to the model. Raises UsageError for a model without attention and for models of other directions, InputError, naming
    the line, if two models split a text into different words.
    """
    config = without_auto(config or AlignConfig(), len(models), have_posteriors(models))
    if len(models) > 1:
        check_directions(*models)
    aligners = [Aligner(loaded, config, turned=bool(place)) for place, loaded in enumerate(models)]
    found = (
        [aligner.records(part) for aligner, part in zip(aligners, window, strict=True)]
        for window in windows(aligners, pairs, config, first)
    )
    if len(models) == 1:
        return (record for (records,) in found for record in records)
    return (
        join(forward, backward, config.symmetrize, config.threshold)
        for directions in found
        for forward, backward in zip(*directions, strict=True)
    )


def load_models(
    folders: Sequence[Path], config: AlignConfig, which: Literal["best", "last"] = "best"
) -> list[LoadedModel]:
    """Loads the models of `align` on the device of the settings; raises FormatError for a damaged model directory."""
    use_threads(config.threads)
    return [load_model(folder, config.device, config.precision, which) for folder in folders]


def have_posteriors(models: Sequence[LoadedModel]) -> bool:
    """Returns whether every model has the weights of the reading "posterior"."""
    return all(loaded.model.has_posterior for loaded in models)


def without_auto(config: AlignConfig, models: int, posteriors: bool = True) -> AlignConfig:
    """Returns the settings with automatic values replaced by those for one model or two, with or without posteriors.

    A threshold without a method of links means that of the links, unless a soft method of symmetrization uses it.
    """
    if config.reading == "auto":
        config = replace(config, reading="current" if models == 1 else "posterior" if posteriors else "shifted")
    if config.links is None:
        of_links = config.threshold > 0 and (models == 1 or config.symmetrize not in SOFT_METHODS)
        config = replace(config, links="threshold" if of_links else "argmax")
    return config


def check_directions(forward: LoadedModel, backward: LoadedModel) -> None:
    """Raises UsageError unless the backward model has the source and target language of the forward one exchanged."""
    ahead = forward.source_language, forward.target_language
    back = backward.source_language, backward.target_language
    if list(map(language_code, back)) != list(map(language_code, ahead[::-1])):
        raise UsageError(
            f"{backward.folder}: translates {'-'.join(back)}, and {forward.folder} {'-'.join(ahead)}: the backward "
            f"model reads the target and writes the source; give one of {'-'.join(ahead[::-1])}"
        )


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
    file appears when the block ends without an error; otherwise FILE.h5.partial keeps the records, and `left()` returns
    how many.

    The texts have one sentence per line, plain or .gz. `models` and `config` are those of `align`. With `resume` the
    summary and the gold links cover only the rest. Positions in `gold` count from `gold_base` (0 or 1; None: as usual
    in its format); with `reverse_gold` it has the target first. With a `shard` only its block of the pairs is aligned.
    The first `done` pairs are left out, because the caller has their records.
    `notify` is called with warnings. Raises also InputError for texts of unequal length and gold links that do not fit,
    ResourceError if the disk is full, and UsageError if the file was begun with other settings, texts or models, or if
    the texts are clearly exchanged.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        source: Path,
        target: Path,
        config: AlignConfig | None = None,
        *,
        output: Path | None = None,
        resume: bool = False,
        gold: Path | None = None,
        gold_base: int | None = None,
        reverse_gold: bool = False,
        notify: Callable[[str], object] = lambda message: None,
        shard: Shard | None = None,
        done: int = 0,
    ) -> None:
        self._notify = notify
        self._models, self._source, self._target = models, source, target
        self._shard, self._block = shard, _block(shard, source, target)
        self.config = without_auto(config or AlignConfig(), len(models), have_posteriors(models))
        for notice in precision_notices(self.config.precision, models[0].device):
            notify(notice)
        self._check_languages()
        self.summary = AlignmentSummary(done_before=done)
        self._gold = GoldFile(gold, gold_base, reverse_gold) if gold else None
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
            if note := turned_note(self._gold.file, self._gold.counts, self._gold.turned):
                self._notify(note)
            self.summary.signature = self._signature(self._gold)

    def note(self) -> str:
        """Returns where an older FILE.h5.partial is now, from which a run could have resumed; "" if there was none."""
        if self._writer is None or self._writer.kept is None:
            return ""
        kept = self._writer.kept
        return f"{self._writer.partial} existed; it is now {kept}, and --resume would have continued it"

    def left(self) -> str:
        """Returns what remains after an interruption, for the end of a message; "" if nothing."""
        return self._writer.left() if self._writer is not None else ""

    def _records(self, done: int) -> Iterator[AlignmentRecord]:
        """Yields the records after the first `done` ones. A window that is done in part is aligned again, as before."""
        size = window_size(self.config)
        first = done // size * size
        begin = self._block.start + first
        forward, texts = self._models[0], (self._source, self._target)
        # A subword model splits the words of tokenised text as those of any other text.
        spaced = self.config.tokenized and not isinstance(forward.tokenizers.source, Subwords)
        fits = [forward.text_fit(side, spaced) for side in (0, 1)]
        pairs = islice(read_pairs(*texts), begin, self._block.stop)
        records = align(
            self._models, check_pairs(pairs, texts, fits, self._notify, ahead=True), self.config, first=begin
        )
        return islice(records, done - first, None)

    def _check_languages(self) -> None:
        """Raises UsageError if two models do not fit each other, or the endings of the texts name the other order."""
        if len(self._models) == 1:
            return
        check_directions(*self._models)
        forward = self._models[0]
        languages = forward.source_language, forward.target_language
        named = suffix_language(self._source), suffix_language(self._target)
        if named == languages[::-1] != languages:
            raise UsageError(
                f"{forward.folder}: reads {languages[0]} and writes {languages[1]}, and {self._source} comes first: "
                "exchange the models, or the texts"
            )

    def _open_writer(self, output: Path, resume: bool) -> AlignmentWriter:
        config, forward = self.config, self._models[0]
        stored = {name: value for name, value in asdict(config).items() if name not in _OF_THE_MACHINE}
        options = {**stored, "weights_of": forward.weights_file.name}
        options |= {"shard": str(self._shard)} if self._shard else {}
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
        name = f"{gold.path.name}{',target-first' if gold.reverse else ''}"
        return (
            f"AER|{'|'.join(parts)}|gold:{name}|pairs:{gold.pairs}|sure:{counts.sure}|model:{hashes}"
            f"|nmtalign:{__version__}"
        )


def _block(shard: Shard | None, source: Path, target: Path) -> range:
    """Returns the numbers of the pairs to align, from 0; raises UsageError for a shard of what is not a file."""
    if shard is None:
        return range(sys.maxsize)
    for path in (source, target):
        if not path.is_file():
            raise UsageError(f"a shard needs files, because their lines are counted first: {shown(path)} is none")
    return shard.block(sum(1 for _ in read_pairs(source, target)))


def _sha256(path: Path) -> str:
    """Returns the SHA-256 of a text, "" for a stream that can be read only once."""
    return sha256_of(path) if path.is_file() else ""
