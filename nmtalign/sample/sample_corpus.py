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
from nmtalign.settings.presets import fitted_to_corpus

_CONFIGURATION = """\
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

_WORDS = 12.5  # French tokens per pair, `</s>` included
_PAIRS = 120_000  # read in two minutes on 2 free cores
_HELD_OUT = 500  # sentences in dev and in test of a corpus that is not small
_TRIES = 1000  # draws of one training sentence before a repetition is accepted


@dataclass(frozen=True, slots=True)
class SampleSummary:
    """The number of sentence pairs in each part."""

    train: int
    dev: int
    test: int


def write_sample(folder: Path, pairs: int, seed: int = SampleConfig.seed, *, force: bool = False) -> SampleSummary:
    """Write `pairs` training pairs, dev, test, gold links and `nmtalign.toml` into a folder, created if missing.

    Raises SettingError if `pairs` is less than 1. Raises UsageError, and writes nothing, if a file in the folder has
    other content and `force` is not given.
    """
    SampleConfig(pairs, seed)
    make_folder(folder)
    with disk_errors(folder), TemporaryDirectory(prefix=".sample-", dir=folder) as work:
        summary = _write(Path(work), pairs, seed)
        other = [path for path in sorted(Path(work).iterdir()) if not _is_there(path, folder / path.name)]
        lost = [path.name for path in other if os.path.lexists(folder / path.name)]
        if lost and not force:
            raise UsageError(
                f"{folder}: contains other versions of {', '.join(lost)}, which would be lost; give another folder, or "
                "--force to replace these files"
            )
        for path in other:
            path.replace(Path(os.path.realpath(folder / path.name)))
    return summary


def _is_there(path: Path, there: Path) -> bool:
    """Whether a file with the same content is there."""
    return there.is_file() and filecmp.cmp(path, there, shallow=False)


def _write(folder: Path, pairs: int, seed: int) -> SampleSummary:
    dev = _distinct(generate(seed, "dev"), _HELD_OUT, ())
    test = _distinct(generate(seed, "test"), _HELD_OUT, dev)
    kept = min(_HELD_OUT, max(1, pairs // 10))
    _write_part(folder, "train", _training(seed, pairs, [*dev, *test]))
    _write_part(folder, "dev", dev[:kept])
    _write_part(folder, "test", test[:kept])
    with atomic_text(folder / "nmtalign.toml") as stream:
        stream.write(configuration(pairs))
    return SampleSummary(pairs, kept, kept)


def configuration(pairs: int) -> str:
    """`nmtalign.toml` for this number of training pairs: about two minutes of training, and at least 2 epochs."""
    small = fitted_to_corpus("tiny", round(_WORDS * pairs))
    if "batch_size" not in small:  # the corpus is not small
        return f"{_CONFIGURATION}epochs = {max(2, round(_PAIRS / pairs))}\n"
    return f'{_CONFIGURATION}epochs = {small["epochs"]:g}\nmax_time = "150s"  # on a slow machine\n'


def _distinct(examples: Iterator[Example], count: int, others: Iterable[Example]) -> list[Example]:
    """Take the first `count` pairs; neither sentence of a pair occurs in an earlier pair or in `others`."""
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


def _write_part(folder: Path, name: str, examples: Iterable[Example]) -> None:
    """Write the five files of one part (text, tokens, links) with one line per sentence."""
    endings = ("en", "fr", "tok.en", "tok.fr", "align")
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
