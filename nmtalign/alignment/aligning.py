"""Aligning sentence pairs with one model, or with a forward and a backward one: records, files, and their counts.

Only models need PyTorch (`forced_decoding`); a word aligner does without.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.links import AlignmentRecord, Pair, in_order
from nmtalign.alignment.symmetrization import SOFT_METHODS, join, least_weight
from nmtalign.alignment.word_aligner import WordAligner, load_aligner
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import is_aligner, sha256_of
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.definition import select
from nmtalign.text.languages import check_pairs, language_code
from nmtalign.text.lines import SIDES, Shard, is_stream, lines_after, read_pairs, shown
from nmtalign.text.tokenizer import Subwords

T = TypeVar("T")

_WINDOW = 20  # batches that are read together and sorted by length
Models = Sequence[LoadedModel] | WordAligner


def window_size(config: AlignConfig) -> int:
    """Returns the number of pairs that are read together; a run from a multiple of it repeats those of a full run."""
    return config.batch_size * _WINDOW


def read_windows(
    read: Callable[[Sequence[tuple[int, Pair]]], T], pairs: Iterable[Pair], config: AlignConfig, first: int
) -> Iterator[T]:
    """Returns windows of pairs, read by a thread while the previous window is aligned."""
    numbered = enumerate(pairs, first)
    # Not read ahead as in `load_batches`: a thread would also read the texts, and Ctrl-C would wait for an idle pipe.
    cut = iter(lambda: list(islice(numbered, window_size(config))), [])
    return in_order(read, cut, 1, ahead=1)


def load_models(folders: Sequence[Path], config: AlignConfig) -> Models:
    """Loads the models of `align` on the device of the settings, or the word aligner of `nmtalign link`.

    Raises FormatError for a damaged model directory, UsageError for a word aligner beside another model.
    """
    if len(folders) > 2:
        raise UsageError("-m is given more than twice: give one model, or a forward and a backward one")
    aligners = [folder for folder in folders if is_aligner(folder)]
    if aligners and len(folders) > 1:
        raise UsageError(f"{aligners[0]}: a word aligner has both directions; give only this folder, with -m")
    if aligners:
        return load_aligner(aligners[0])
    return [load_model(folder, config.device, config.precision, config.threads) for folder in folders]


def align(
    models: Models, pairs: Iterable[Pair], config: AlignConfig | None = None, *, first: int = 0
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
    method = config.symmetrize
    # Soft methods join the weights of both directions, so no links are read from a single direction.
    own = replace(config, links=None) if method in SOFT_METHODS else config
    directions: Iterator[tuple[AlignmentRecord, ...]]
    if isinstance(models, WordAligner):
        directions = models.records(read_windows(models.read, pairs, own, first), own)
    else:
        from nmtalign.alignment.forced_decoding import Aligner
        from nmtalign.core.numerics import using_threads

        if len(models) > 1:
            check_directions(*models)
        aligners = [Aligner(loaded, own, turned=bool(place)) for place, loaded in enumerate(models)]
        read = read_windows(lambda window: [aligner.read(window) for aligner in aligners], pairs, own, first)
        found = chain.from_iterable(
            zip(*(aligner.records(part) for aligner, part in zip(aligners, parts, strict=True)), strict=True)
            for parts in read
        )
        # The number of threads changes only while records are computed, not while the caller works on them.
        directions = iter(using_threads(config.threads)(lambda: next(found, None)), None)
    return (one[0] if method is None else join(one[0], one[1], method, config.threshold) for one in directions)


def without_auto(config: AlignConfig, models: Models) -> AlignConfig:
    """Returns the settings with automatic values replaced by those for these models.

    A threshold without a method of links means that of the links, unless a soft method of symmetrization uses it. One
    model has no method of symmetrization. Raises UsageError for a reading of attention weights if there are none.
    """
    if isinstance(models, WordAligner):
        if config.reading not in ("auto", "posterior"):
            raise UsageError(f"--reading {config.reading}: a word aligner has no attention weights; leave it out")
        config = replace(config, reading="posterior", symmetrize=config.symmetrize or "mean")
    elif len(models) == 1:
        config = replace(config, symmetrize=None, reading="current" if config.reading == "auto" else config.reading)
    else:
        config = replace(config, symmetrize=config.symmetrize or "agreement")
        if config.reading == "auto":
            posterior = all(loaded.model.has_posterior for loaded in models)
            shifted = not posterior and all(loaded.model.config.architecture == "transformer" for loaded in models)
            config = replace(config, reading="posterior" if posterior else "shifted" if shifted else "current")
    if config.symmetrize in SOFT_METHODS:  # the links of soft methods are those above a threshold
        return replace(config, links="threshold")
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
    """Counts over the pairs that a run has aligned."""

    pairs: int = 0
    links: int = 0
    done_before: int = 0  # pairs that were in the file when the run began


class AlignmentRun:
    """Aligns two texts: `AlignmentRun(models, source, target, output=path).run()`.

    Each record is counted in `summary`, and written to `output` (HDF5) if there is one. The file appears when all is
    done without an error; otherwise FILE.h5.partial keeps the records, and `left()` returns how many. With `resume`
    only the rest is aligned and counted, with a `shard` only its block of the pairs.

    `models` and `config` are those of `align`, `notify` is called with warnings. Raises also InputError for texts of
    unequal length, ResourceError if the disk is full, and UsageError if the file was begun with other settings, texts
    or models, or if the texts are clearly exchanged.
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
        notify: Callable[[str], object] = lambda message: None,
        shard: Shard | None = None,
    ) -> None:
        self._models, self._texts, self._notify = models, (source, target), notify
        loaded = [models] if isinstance(models, WordAligner) else models
        self._forward = loaded[0]  # it has the languages and the tokenisers of the source and the target
        self._block = range(sys.maxsize)  # the numbers of the pairs to align, from 0
        if shard is not None:
            if stream := next(filter(is_stream, self._texts), None):
                raise UsageError(f"{shown(stream)}: a shard needs a regular file, because its lines are counted first")
            self._block = shard.block(sum(1 for _ in read_pairs(source, target)))
        self.config = without_auto(config or AlignConfig(), models)
        if not isinstance(models, WordAligner):
            from nmtalign.core.numerics import precision_notices

            for notice in precision_notices(self.config.precision, models[0].device):
                notify(notice)
        self.summary = AlignmentSummary()
        self._writer: AlignmentWriter | None = None
        if output is not None:
            origin, kind = self._origin("+".join(one.hash for one in loaded), shard), self.config.alignment_type
            self._writer = AlignmentWriter(output, origin, kind, resume=resume, notify=notify)

    def run(self, watch: "Callable[[AlignmentRun], Iterable[AlignmentRecord]]" = iter) -> AlignmentSummary:
        """Aligns all pairs; `watch` is called with the run, and yields its records while they are made."""
        try:
            with self._writer or contextlib.nullcontext():
                self.summary.done_before = self._writer.sentences if self._writer is not None else 0
                for _ in watch(self):
                    pass
        except NmtalignError as error:
            raise type(error)(f"{error}{self.left()}") from None
        return self.summary

    def __iter__(self) -> Iterator[AlignmentRecord]:
        done, size = self.summary.done_before, window_size(self.config)
        if self._writer is not None and self._writer.complete and all(path.is_file() for path in self._texts):
            return  # these texts have the checksums of those of the file
        first = done // size * size  # a window that is done in part is aligned again, as before
        begin = self._block.start + first
        # A subword model splits the words of tokenised text as those of any other text.
        spaced = self.config.tokenized and not isinstance(self._forward.tokenizers.source, Subwords)
        fits = [self._forward.text_fit(side, spaced, raw=not self.config.tokenized) for side in (0, 1)]
        names = " and ".join(map(shown, self._texts))
        # A stream has no hash that would show whether it has become shorter.
        texts = lines_after(read_pairs(*self._texts), 0, self._block.start + done, names)
        pairs = check_pairs(islice(texts, begin, self._block.stop), self._texts, fits, self._notify)
        for record in islice(align(self._models, pairs, self.config, first=begin), done - first, None):
            self.summary.pairs += 1
            self.summary.links += len(record.hard_links)
            if self._writer is not None:
                self._writer.add(record)
            yield record
        if isinstance(self._models, WordAligner) and (note := self._models.left_out()):
            self._notify(f"warning: {shown(self._texts[0])}: {note}")

    def left(self) -> str:
        """Returns what remains after an interruption, for the end of a message; "" if nothing."""
        return self._writer.left() if self._writer is not None else ""

    def _origin(self, model_hash: str, shard: Shard | None) -> dict[str, object]:
        config, forward, method = self.config, self._forward, self.config.symmetrize
        stored = {name: getattr(config, name) for name in select(AlignConfig, lambda one: one.affects == "result")}
        options = {**stored, "weights_of": forward.weights_file.name}
        options |= {"shard": str(shard)} if shard else {}
        threshold = least_weight(method, config.threshold) if config.links == "threshold" else 0.0
        made_by, weights = "forced decoding", f"{config.reading} weights of the model"
        if method is not None:
            aligner = isinstance(self._models, WordAligner)
            made_by = "hidden Markov models of both directions" if aligner else "forced decoding in both directions"
            mean = f"{'geometric' if method == 'agreement' else 'arithmetic'} mean of both directions"
            weights = f"{mean}; each row, NULL included, sums to 1; {config.reading} weights of the models"
        return {
            "model_hash": model_hash,
            "direction": f"{forward.source_language}-{forward.target_language}",
            "made_by": made_by,
            "links_method": config.links,
            "threshold": threshold,
            "reading": config.reading,
            "weights_are": weights,
            **{f"{side}_file": str(path) for side, path in zip(SIDES, self._texts, strict=True)},
            # A stream can be read only once.
            "source_sha256": sha256_of(self._texts[0]) if self._texts[0].is_file() else "",
            "target_sha256": sha256_of(self._texts[1]) if self._texts[1].is_file() else "",
            "options": json.dumps(options),
            "symmetrization": method or "none",
            "seed": 0,
        }
