"""Writes the sample workspace: three disjoint parts with their tokens and gold links, and a configuration."""

import filecmp
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, work_folder
from nmtalign.sample.grammar import Example, generate
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

_WORDS = 12.7  # French tokens per pair, `</s>` included
_PAIRS = 80_000  # read in a minute and a half on one free core
_HELD_OUT = 500  # sentences in dev and in test of a corpus that is not small


def write_sample(folder: Path, pairs: int, seed: int = SampleConfig.seed, *, force: bool = False) -> int:
    """Write `pairs` training pairs, dev, test, gold links and `nmtalign.toml` into a folder, created if missing.

    Returns the number of pairs in dev, which is that in test. Raises UsageError, and writes nothing, if a file in the
    folder has other content and `force` is not given.
    """
    # A small corpus leaves out all held-out sentences although it writes only some of them to dev and test. Thus a
    # larger corpus of the same seed starts with the smaller one.
    seen, kept = set[int](), min(_HELD_OUT, max(1, pairs // 10))
    held_out = {name: list(islice(_new(generate(seed, name), seen), _HELD_OUT)) for name in ("dev", "test")}
    with work_folder(folder, ".sample") as work:
        for name, examples in held_out.items():
            _write_part(work, name, examples[:kept])
        _write_part(work, "train", islice(_new(generate(seed), seen), pairs))
        with atomic_text(work / "nmtalign.toml") as stream:
            stream.write(configuration(pairs))
        written = [(path, folder / path.name) for path in sorted(work.iterdir())]
        other = [path for path, old in written if not (old.is_file() and filecmp.cmp(path, old, shallow=False))]
        if (lost := [path.name for path in other if os.path.lexists(folder / path.name)]) and not force:
            fix = "give another folder, or --force to replace these files"
            raise UsageError(f"{folder}: contains other versions of {', '.join(lost)}, which would be lost; {fix}")
        for path in other:
            path.replace(Path(os.path.realpath(folder / path.name)))
    return kept


def _new(examples: Iterator[Example], seen: set[int]) -> Iterator[Example]:
    """Yield the pairs of which neither sentence was seen; `seen` has the hashes of the sentences of all parts."""
    for example in examples:
        hashes = {hash(example.source), hash(example.target)}
        if seen.isdisjoint(hashes):
            seen |= hashes
            yield example


def configuration(pairs: int) -> str:
    """`nmtalign.toml` for this number of training pairs: a minute or two of training, and at least 2 epochs."""
    small = fitted_to_corpus("tiny", round(_WORDS * pairs))
    if "batch_size" not in small:  # the corpus is not small
        epochs = max(2, round(_PAIRS / pairs, 1))
        return f"{_CONFIGURATION}epochs = {epochs:g}\nlearning_rate = 0.006  # for so few epochs\n"
    return f'{_CONFIGURATION}epochs = {small["epochs"]:g}\nmax_time = "150s"  # on a slow machine\n'


def _write_part(folder: Path, name: str, examples: Iterable[Example]) -> None:
    """Write the five files of one part (text, tokens, links) with one line per sentence."""
    endings = ("en", "fr", "tok.en", "tok.fr", "align")
    with ExitStack() as stack:
        streams = [stack.enter_context(atomic_text(folder / f"{name}.{ending}")) for ending in endings]
        for example in examples:
            links = [f"{i}-{j}" for i, j in example.links]
            lists = map(" ".join, (example.source_tokens, example.target_tokens, links))
            for stream, line in zip(streams, (example.source, example.target, *lists), strict=True):
                stream.write(f"{line}\n")
