"""Aligning sentence pairs with one model, or with a forward and a backward one: records, files, and their summary."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from nmtalign.alignment.alignment_writer import AlignmentWriter
from nmtalign.alignment.evaluation import turned_note
from nmtalign.alignment.forced import Aligner, Lines, window_size, windows
from nmtalign.alignment.link_files import ErrorRates, GoldFile
from nmtalign.alignment.links import THRESHOLD, AlignmentRecord
from nmtalign.alignment.symmetrization import SOFT_METHODS, join, least_weight, what_weights_are
from nmtalign.alignment.word_aligner import WordAligner, load_aligner
from nmtalign.core.devices import precision_notices, using_threads
from nmtalign.errors import NmtalignError, UsageError, with_more
from nmtalign.files import sha256_of
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.model_files import is_aligner
from nmtalign.settings.command_settings import AlignConfig, Symmetrization
from nmtalign.settings.definition import select
from nmtalign.text.direction import check_pairs
from nmtalign.text.languages import language_code, suffix_language
from nmtalign.text.lines import read_pairs, shown
from nmtalign.text.shard import Shard
from nmtalign.text.tokenizer import Subwords
from nmtalign.version import __version__

Models = Sequence[LoadedModel] | WordAligner
_METHOD: Symmetrization = "agreement"  # of two models, if none is given
ALIGNER_THRESHOLD = 0.35  # of a word aligner with the method "product", chosen on the dev set of the gold links
# Settings on which the records do not depend, or which the writer compares itself: a resumed run may change them.


def align(
    models: Models, pairs: Iterable[Lines], config: AlignConfig | None = None, *, first: int = 0
) -> Iterator[AlignmentRecord]:
    """Yields one record per pair (source line, target line), in order, numbered from `first`.

    `models` is one model, or a forward model (source to target) and a backward model (target to source), or a word
    aligner, which has both. The records of two directions are joined by `config.symmetrize`. Lines are tokenised as
    each model's training text was, and subword pieces are merged to words. Pairs are read in windows and sorted by
    length into batches; a pair with an empty side is not given to the model. Raises UsageError for a model without
    attention and for models of other directions, InputError, naming the line, if two models split a text into
    different words.
    """
    config = without_auto(config or AlignConfig(), models)
    method = config.symmetrize or _METHOD
    # Soft methods read the weights of both directions, which then need no links of their own.
    unread = _has_both(models) and method in SOFT_METHODS
    found = _directions(models, pairs, replace(config, links=None) if unread else config, first)
    records = (one[0] if len(one) == 1 else join(one[0], one[1], method, config.threshold) for one in found)
    return _made_with_threads(records, config.threads)


def _directions(
    models: Models, pairs: Iterable[Lines], config: AlignConfig, first: int
) -> Iterator[tuple[AlignmentRecord, ...]]:
    """Returns the records of each pair, one per direction; the models are checked before the first pair is read."""
    if isinstance(models, WordAligner):
        return models.records(windows(models.read, pairs, config, first), config)
    if len(models) > 1:
        check_directions(*models)
    aligners = [Aligner(loaded, config, turned=bool(place)) for place, loaded in enumerate(models)]
    return chain.from_iterable(
        zip(*(aligner.records(part) for aligner, part in zip(aligners, parts, strict=True)), strict=True)
        for parts in windows(lambda window: [aligner.read(window) for aligner in aligners], pairs, config, first)
    )


def load_models(folders: Sequence[Path], config: AlignConfig, which: Literal["best", "last"] = "best") -> Models:
    """Loads the models of `align` on the device of the settings, or the word aligner of `nmtalign link`.

    Raises FormatError for a damaged model directory, UsageError for a word aligner beside another model.
    """
    aligners = [folder for folder in folders if is_aligner(folder)]
    if aligners and len(folders) > 1:
        raise UsageError(f"{aligners[0]}: a word aligner has both directions; give only this folder, with -m")
    if aligners:
        return load_aligner(aligners[0])
    return [load_model(folder, config.device, config.precision, which) for folder in folders]


def forward_of(models: Models) -> LoadedModel | WordAligner:
    """Returns what has the languages and the tokenisers of the source and the target."""
    return models if isinstance(models, WordAligner) else models[0]


def _has_both(models: Models) -> bool:
    """Returns whether there are two directions."""
    return isinstance(models, WordAligner) or len(models) > 1


def without_auto(config: AlignConfig, models: Models) -> AlignConfig:
    """Returns the settings with automatic values replaced by those for these models.

    A threshold without a method of links means that of the links, unless a soft method of symmetrization uses it. One
    model has no method of symmetrization.
    Raises UsageError for a reading of attention weights if there are none.
    """
    both = _has_both(models)
    if isinstance(models, WordAligner):
        if config.reading not in ("auto", "posterior"):
            raise UsageError(
                f"--reading {config.reading}: {models.folder} has no attention weights; leave out --reading"
            )
        config = replace(config, reading="posterior", symmetrize=config.symmetrize or "product")
        if config.symmetrize == "product":
            config = replace(config, threshold=config.threshold or ALIGNER_THRESHOLD)
    elif config.reading == "auto":
        has_posterior = all(loaded.model.has_posterior for loaded in models)
        config = replace(config, reading="current" if not both else "posterior" if has_posterior else "shifted")
    config = replace(config, symmetrize=(config.symmetrize or _METHOD) if both else None)
    if config.symmetrize in SOFT_METHODS:  # which ignore the methods of links
        return replace(config, links="argmax")
    return replace(config, links=config.links or ("threshold" if config.threshold > 0 else "argmax"))


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

    The texts have one sentence per line, plain or compressed. `models` and `config` are those of `align`. With `resume`
    the summary and the gold links cover only the rest. Positions in `gold` count from `gold_base` (0 or 1; None: as
    usual in its format); with `reverse_gold` it has the target first. With a `shard` only its block of the pairs is
    aligned. The first `done` pairs are left out, because the caller has their records.
    `notify` is called with warnings. Raises also InputError for texts of unequal length and gold links that do not fit,
    ResourceError if the disk is full, and UsageError if the file was begun with other settings, texts or models, or if
    the texts are clearly exchanged.
    """

    def __init__(
        self,
        models: Models,
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
        self._forward, self._both = forward_of(models), _has_both(models)
        self._shard, self._block = shard, _block(shard, source, target)
        self.config = without_auto(config or AlignConfig(), models)
        for notice in precision_notices(self.config.precision, self._forward.device):
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
            raise with_more(error, self.left()) from None

    def __iter__(self) -> Iterator[AlignmentRecord]:
        if self._gold is not None:
            self._gold.pairs = self.summary.done_before
        for record in self._records(self.summary.done_before):
            self.summary.count(record)
            if self._gold is not None:
                self._gold.compare(record.hard_links, len(record.source), len(record.target))
            if self._writer is not None:
                self._writer.add(record)
            yield record
        if isinstance(self._models, WordAligner) and (note := self._models.left_out()):
            self._notify(f"warning: {shown(self._source)}: {note}")
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
        forward, texts = self._forward, (self._source, self._target)
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
        if not self._both:
            return
        if not isinstance(self._models, WordAligner):
            check_directions(*self._models)
        forward = self._forward
        languages = forward.source_language, forward.target_language
        named = suffix_language(self._source), suffix_language(self._target)
        if named == languages[::-1] != languages:
            raise UsageError(
                f"{forward.folder}: reads {languages[0]} and writes {languages[1]}, and {self._source} comes first: "
                "exchange the models, or the texts"
            )

    def _open_writer(self, output: Path, resume: bool) -> AlignmentWriter:
        config, forward = self.config, self._forward
        stored = {name: getattr(config, name) for name in select(AlignConfig, lambda one: one.affects == "result")}
        options = {**stored, "weights_of": forward.weights_file.name}
        options |= {"shard": str(self._shard)} if self._shard else {}
        both, made_by = self._both, "forced decoding"
        if both:
            aligner = isinstance(self._models, WordAligner)
            made_by = "hidden Markov models of both directions" if aligner else "forced decoding in both directions"
        attributes: dict[str, object] = {
            "model_hash": "+".join(self._hashes()),
            "direction": f"{forward.source_language}-{forward.target_language}",
            "made_by": made_by,
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
            weights = f"{what_weights_are(config.symmetrize or _METHOD)}; {config.reading} weights of the models"
            attributes |= {"symmetrization": config.symmetrize, "weights_are": weights}
        return AlignmentWriter(output, attributes, config.weights, resume=resume, end=not config.drop_end)

    def _hashes(self) -> list[str]:
        return [loaded.hash for loaded in ([self._models] if isinstance(self._models, WordAligner) else self._models)]

    def _threshold(self) -> float:
        """Returns the threshold in use, 0 if there is none."""
        config = self.config
        if self._both and config.symmetrize in SOFT_METHODS:
            return least_weight(config.symmetrize, config.threshold)
        return (config.threshold or THRESHOLD) if config.links == "threshold" else 0.0

    def _signature(self, gold: GoldFile) -> str:
        config, counts = self.config, gold.counts
        parts = [f"links:{config.links}"]
        if self._both:
            parts = [*([] if config.symmetrize in SOFT_METHODS else parts), f"symmetrize:{config.symmetrize}"]
        if self._threshold():
            parts.append(f"threshold:{self._threshold():g}")
        if config.reading != "current":
            parts.append(f"reading:{config.reading}")
        if config.temperature != 1:
            parts.append(f"temperature:{config.temperature:g}")
        if config.drop_end:
            parts.append("without:</s>")
        hashes = "+".join(found[:12] for found in self._hashes())
        name = f"{gold.path.name}{',target-first' if gold.reverse else ''}"
        pairs = gold.pairs - self.summary.done_before
        return (
            f"AER|{'|'.join(parts)}|gold:{name}|pairs:{pairs}|sure:{counts.sure}|model:{hashes}|nmtalign:{__version__}"
        )


def _block(shard: Shard | None, source: Path, target: Path) -> range:
    """Returns the numbers of the pairs to align, from 0; raises UsageError for a shard of what is not a file."""
    if shard is None:
        return range(sys.maxsize)
    for path in (source, target):
        if not path.is_file():
            raise UsageError(f"{shown(path)}: a shard needs a regular file, because its lines are counted first")
    return shard.block(sum(1 for _ in read_pairs(source, target)))


def _sha256(path: Path) -> str:
    """Returns the SHA-256 of a text, "" for a stream that can be read only once."""
    return sha256_of(path) if path.is_file() else ""


def _made_with_threads(items: Iterable[AlignmentRecord], threads: int) -> Iterator[AlignmentRecord]:
    """Yields items, each made with a number of threads (`using_threads`), which the caller does not see."""
    rest = iter(items)
    while True:
        with using_threads(threads):
            try:
                item = next(rest)
            except StopIteration:
                return
        yield item
