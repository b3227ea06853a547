"""Writes the sample workspace: three disjoint parts with their tokens and gold links, and a configuration."""

import filecmp
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, disk_errors, make_folder
from nmtalign.sample.draft import Example
from nmtalign.sample.grammar import generate
from nmtalign.settings.command_settings import SampleConfig

CONFIGURATION = """\
# The sample workspace: run `nmtalign prep`, `nmtalign train`, ... in this folder.
source_language = "en"
target_language = "fr"
data = "data"
model = "model"

[corpus]
train = ["train.en", "train.fr"]
dev = ["dev.en", "dev.fr"]
test = ["test.en", "test.fr"]
gold = "test.align"

[prep]
shortlist = 2000

[train]
preset = "tiny"
"""

FEW = """\
# A small corpus is seen many times: these settings keep the model from learning it by heart.
dropout = 0.2
label_smoothing = 0.1
batch_size = 250
validate_every = "200"
"""
"""Further settings for a corpus of 5,000 training pairs or fewer."""

HELD_OUT = 500
"""Sentences in dev and in test of a corpus that is not small."""

_TRIES = 1000  # draws of one training sentence before a repetition is accepted


@dataclass(frozen=True, slots=True)
class SampleSummary:
    """Number of sentence pairs in each part, and the lengths of the training sentences in tokens."""

    train: int
    dev: int
    test: int
    mean_source: float
    mean_target: float
    longest: int
    shortest: int


@dataclass(slots=True)
class _Lengths:
    """Lengths of the sentences of a part, counted while it is written."""

    pairs: int = 0
    source: int = 0
    target: int = 0
    longest: int = 0
    shortest: int = 0

    def add(self, example: Example) -> None:
        source, target = len(example.source_tokens), len(example.target_tokens)
        self.shortest = min(source, target, self.shortest or source)
        self.longest = max(source, target, self.longest)
        self.pairs += 1
        self.source += source
        self.target += target


def write_sample(folder: Path, pairs: int, seed: int = SampleConfig.seed, *, force: bool = False) -> SampleSummary:
    """Write `pairs` training pairs, dev, test, gold links and `nmtalign.toml` into a folder, created if missing.

    Raises UsageError for a wrong number and, without `force`, if a file with other content exists; then nothing is
    written.
    """
    SampleConfig(pairs, seed)
    make_folder(folder)
    with disk_errors(folder), TemporaryDirectory(prefix=".sample-", dir=folder) as work:
        summary = _write(Path(work), pairs, seed)
        other = [path for path in sorted(Path(work).iterdir()) if not _is_there(path, folder)]
        lost = [path.name for path in other if os.path.lexists(folder / path.name)]
        if lost and not force:
            raise UsageError(
                f"{folder}: other content would be lost, that of {', '.join(lost)}; give another folder, or "
                "--force to replace these files"
            )
        for path in other:
            path.replace(Path(os.path.realpath(folder / path.name)))
    return summary


def _is_there(path: Path, folder: Path) -> bool:
    """Whether the folder has a file of this name and content."""
    there = folder / path.name
    return there.is_file() and filecmp.cmp(path, there, shallow=False)


def _write(folder: Path, pairs: int, seed: int) -> SampleSummary:
    dev = _distinct(generate(seed, "dev"), HELD_OUT, ())
    test = _distinct(generate(seed, "test"), HELD_OUT, dev)
    kept = held_out(pairs)
    tally = _write_part(folder, "train", _training(seed, pairs, [*dev, *test]))
    _write_part(folder, "dev", dev[:kept])
    _write_part(folder, "test", test[:kept])
    with atomic_text(folder / "nmtalign.toml") as stream:
        stream.write(configuration(pairs))
    return SampleSummary(pairs, kept, kept, tally.source / pairs, tally.target / pairs, tally.longest, tally.shortest)


def configuration(pairs: int) -> str:
    """`nmtalign.toml` for so many training pairs: in few epochs, a small corpus would not give enough updates."""
    epochs = max(6, round(60_000 / pairs))
    return f"{CONFIGURATION}epochs = {epochs}\n" + (FEW if pairs <= 5000 else "")


def held_out(pairs: int) -> int:
    """The number of sentences in dev and in test: a tenth of a small corpus."""
    return min(HELD_OUT, max(1, pairs // 10))


def _distinct(examples: Iterator[Example], count: int, others: Iterable[Example]) -> list[Example]:
    """Take the first `count` pairs of which neither sentence occurs before or in `others`."""
    sources = {example.source for example in others}
    targets = {example.target for example in others}
    taken: list[Example] = []
    while len(taken) < count:
        example = next(examples)
        if example.source not in sources and example.target not in targets:
            sources.add(example.source)
            targets.add(example.target)
            taken.append(example)
    return taken


def _training(seed: int, pairs: int, reserved: list[Example]) -> Iterator[Example]:
    """Yield different training pairs without the reserved sentences.

    A small corpus leaves out all reserved sentences although it writes only some of them to dev and test. Thus a larger
    corpus of the same seed starts with the smaller one.
    """
    sources = {example.source for example in reserved}
    targets = {example.target for example in reserved}
    seen: set[int] = set()
    examples = generate(seed)
    for _ in range(pairs):
        for attempt in range(_TRIES):
            example = next(examples)
            mark = int.from_bytes(blake2b(example.source.encode(), digest_size=8).digest(), "big")
            fresh = mark not in seen or attempt == _TRIES - 1
            if fresh and example.source not in sources and example.target not in targets:
                break
        seen.add(mark)
        yield example


def _write_part(folder: Path, name: str, examples: Iterable[Example]) -> _Lengths:
    """Write the five files of one part (text, tokens, links) with one line per sentence."""
    endings = ("en", "fr", "tok.en", "tok.fr", "align")
    tally = _Lengths()
    with ExitStack() as stack:
        english, french, source, target, links = (
            stack.enter_context(atomic_text(folder / f"{name}.{ending}")) for ending in endings
        )
        for example in examples:
            english.write(example.source + "\n")
            french.write(example.target + "\n")
            source.write(" ".join(example.source_tokens) + "\n")
            target.write(" ".join(example.target_tokens) + "\n")
            links.write(" ".join([f"{i}-{j}" for i, j in example.links]) + "\n")
            tally.add(example)
    return tally
