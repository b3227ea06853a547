"""What `nmtalign align` does once its options are known."""

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from nmtalign.alignment.agreement import THRESHOLDS
from nmtalign.alignment.both import SOFT_METHODS, align_both, check_directions, what_weights_are
from nmtalign.alignment.forced import align_pairs, window_size
from nmtalign.alignment.gold import GoldFile
from nmtalign.alignment.links import THRESHOLD, format_links
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.store import AlignmentWriter
from nmtalign.cli.align_options import Task
from nmtalign.cli.common import notifier, say
from nmtalign.cli.counting import counted
from nmtalign.cli.stopping import Signals
from nmtalign.config import AlignConfig
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import sha256_of
from nmtalign.model_directory import LoadedModel
from nmtalign.text.lines import read_pairs
from nmtalign.version import __version__

# What the records do not depend on, or the writer compares itself: a run may go on with other values.
_OF_THE_MACHINE = ("device", "threads", "weights")


@dataclass
class Tally:
    """Counts over all pairs."""

    pairs: int = 0
    links: int = 0
    target_words: int = 0  # of pairs that were given to the model
    end_mass: float = 0.0

    def count(self, record: AlignmentRecord) -> None:
        """One more."""
        self.pairs += 1
        self.links += len(record.hard_links)
        if not record.empty():
            self.target_words += len(record.target)
            self.end_mass += record.end_mass()

    def figures(self) -> dict[str, Any]:
        """Counts, and the mean weight of a target word on the source's `</s>`."""
        mean = self.end_mass / self.target_words if self.target_words else 0.0
        return {"pairs": self.pairs, "links": self.links, "end_mass": mean}


@dataclass(frozen=True)
class Job:
    """One run of `nmtalign align`: one model, or a forward and a backward one."""

    task: Task
    models: tuple[LoadedModel, ...]
    settings: AlignConfig
    quiet: bool

    def run(self, signals: Signals) -> None:
        """Aligns all pairs, each result going where it belongs as it comes, and prints the figures."""
        self._check_suffixes()
        task = self._without_foreign_gold()
        tally, gold = Tally(), GoldFile(task.gold, task.gold_base) if task.gold else None
        writer, printing = self._writer(), task.pharaoh
        with _telling_what_is_left(writer, signals), writer or contextlib.nullcontext():
            done = self._begun(writer)
            for record in self._counted(done):
                tally.count(record)
                if gold:
                    gold.compare(record.hard_links, len(record.source), len(record.target))
                if writer is not None:
                    writer.add(record)
                printing = printing and self._print(record)
            if gold:
                gold.finish()
        self._report(tally, gold, done)

    def _begun(self, writer: AlignmentWriter | None) -> int:
        """How many pairs are done already."""
        if writer is None:
            return 0
        if writer.kept is not None:
            say(f"{writer.partial} was there; kept as {writer.kept}, and --resume would have gone on with it")
        return writer.sentences

    def _print(self, record: AlignmentRecord) -> bool:
        """Prints the links of a pair; False if nobody reads them any more, but a file is to become whole."""
        try:
            sys.stdout.write(format_links(record.hard_links) + "\n")
        except BrokenPipeError:
            if self.task.output is None:
                raise
            return False
        return True

    def _counted(self, done: int) -> Iterator[AlignmentRecord]:
        quiet = self.quiet or (self.task.pharaoh and sys.stdout.isatty())
        return counted(self._records(done), "aligning", "pairs", quiet)

    def _records(self, done: int) -> Iterator[AlignmentRecord]:
        """The records after those that are done; a window that is done in part is aligned as a whole, as it was."""
        task, settings = self.task, self.settings
        first = done // window_size(settings) * window_size(settings)
        pairs = islice(read_pairs(task.source, task.target), first, None)
        if len(self.models) == 1:
            records = align_pairs(self.models[0], pairs, settings, tokenized=task.tokenized, first=first)
        else:
            forward, backward = self.models
            records = align_both(forward, backward, pairs, settings, tokenized=task.tokenized, first=first)
        return islice(records, done - first, None)

    def _check_suffixes(self) -> None:
        """Raises UsageError where both models are of the other direction than the names of the texts say."""
        if len(self.models) == 1:
            return
        check_directions(*self.models)
        forward = self.models[0]
        languages = forward.source_language, forward.target_language
        named = tuple(path.name.removesuffix(".gz").rpartition(".")[2] for path in (self.task.source, self.task.target))
        if named == languages[::-1] != languages:
            raise UsageError(
                f"{forward.folder}: reads {languages[0]} and writes {languages[1]}, and {self.task.source} comes "
                "first: give the models the other way round, or the texts"
            )

    def _without_foreign_gold(self) -> Task:
        """The task without the workspace's gold links where the model's words are not those that the links count.

        A subword model reads raw text, so its words stand between spaces; the gold links are over Moses words.
        """
        task, loaded = self.task, self.models[0]
        if task.gold is None or task.gold_was_given or task.tokenized or loaded.tokenizers.kind != "sentencepiece":
            return task
        notifier(self.quiet)(
            f"{task.gold}: not compared: its links count Moses words, and a subword model's words stand between spaces"
        )
        return replace(task, gold=None)

    def _writer(self) -> AlignmentWriter | None:
        """The file of soft alignments, or nothing."""
        task, settings, forward = self.task, self.settings, self.models[0]
        if task.output is None:
            return None
        kept = {name: value for name, value in asdict(settings).items() if name not in _OF_THE_MACHINE}
        options = {**kept, "tokenized": task.tokenized, "weights_of": forward.weights_file.name}
        attributes = {
            "model_hash": "+".join(loaded.hash for loaded in self.models),
            "direction": f"{forward.source_language}-{forward.target_language}",
            "made_by": "forced decoding" if len(self.models) == 1 else "forced decoding in both directions",
            "links_method": settings.links,
            "threshold": self._threshold(),
            "reading": settings.reading,
            "temperature": settings.temperature,
            "weights_are": f"{settings.reading} weights of the model",
            "source_file": str(task.source),
            "target_file": str(task.target),
            "source_sha256": _hash(task.source),
            "target_sha256": _hash(task.target),
            "options": json.dumps(options),
        }
        if len(self.models) > 1:
            attributes |= {
                "symmetrization": settings.symmetrize,
                "weights_are": f"{what_weights_are(settings.symmetrize)}; {settings.reading} weights of the models",
            }
        end = not settings.drop_end
        return AlignmentWriter(task.output, attributes, settings.weights, resume=task.resume, end=end)

    def _threshold(self) -> float:
        """The one in use, or 0 where none is."""
        settings = self.settings
        if len(self.models) > 1 and settings.symmetrize in SOFT_METHODS:
            return settings.threshold or THRESHOLDS.get(settings.symmetrize, 0.0)
        return (settings.threshold or THRESHOLD) if settings.links == "threshold" else 0.0

    def _report(self, tally: Tally, gold: GoldFile | None, done: int) -> None:
        task, tell = self.task, notifier(self.quiet)
        figures = tally.figures() | (self._rates(gold) if gold else {})
        if gold or task.format == "json":
            _print_figures(figures, task.format, sys.stderr if task.pharaoh else sys.stdout)
        if done and not tally.pairs:
            tell(f"{task.output}: already done: it holds the alignments of all {done:,} pairs")
            return
        if not (gold or task.format == "json"):
            after = f" after the {done:,} that were there" if done else ""
            tell(f"{tally.pairs} pairs{after}, {tally.links} links, </s> mass {figures['end_mass']:.3f}")
        if task.output:
            tell(f"wrote {task.output}")

    def _rates(self, gold: GoldFile) -> dict[str, Any]:
        counts, settings = gold.counts, self.settings
        parts = [f"links:{settings.links}"]
        if len(self.models) > 1:
            parts = [*([] if settings.symmetrize in SOFT_METHODS else parts), f"symmetrize:{settings.symmetrize}"]
        if self._threshold():
            parts.append(f"threshold:{self._threshold():g}")
        if settings.reading != "current":
            parts.append(f"reading:{settings.reading}")
        if settings.temperature != 1:
            parts.append(f"temperature:{settings.temperature:g}")
        if settings.drop_end:
            parts.append("without:</s>")
        hashes = "+".join(loaded.hash[:12] for loaded in self.models)
        signature = (
            f"AER|{'|'.join(parts)}|gold:{gold.path.name}|pairs:{gold.pairs}|sure:{counts.sure}|model:{hashes}"
            f"|nmtalign:{__version__}"
        )
        return {**asdict(counts.rates()), "signature": signature}


def _hash(path: Path) -> str:
    """The SHA-256 of a text, or nothing for what can be read only once."""
    return sha256_of(path) if path.is_file() else ""


@contextlib.contextmanager
def _telling_what_is_left(writer: AlignmentWriter | None, signals: Signals) -> Iterator[None]:
    """Adds to the message of an interruption, or of an error, what of the file is kept."""
    if writer is None:
        yield
        return
    signals.detail = writer.left
    try:
        yield
    except NmtalignError as error:
        raise type(error)(f"{error}{writer.left()}") from None


def _print_figures(figures: dict[str, Any], format: str, stream: Any) -> None:
    if format == "json":
        stream.write(json.dumps(figures) + "\n")
        return
    names = {"end_mass": "</s> mass", "aer": "AER", "f1": "F1"}
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        stream.write(f"{names.get(name, name):<10} {shown}\n")
