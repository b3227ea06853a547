"""The same work as text files, for programs that train from files, including `nmtalign train`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.workload import FIRST_WORD, Size
from nmtalign.files import atomic_text

PAIRS = 4000
DEV_PAIRS = 20
SIDES = ("src", "tgt")


@dataclass(frozen=True)
class Texts:
    """train.src, train.tgt, dev.src and dev.tgt in a folder, and the words of both sides (no `</s>`, no `<unk>`)."""

    folder: Path
    words: tuple[list[str], list[str]]
    size: Size
    longest: int  # words of the longest line

    def file(self, part: str, side: str) -> Path:
        """A text file: part "train" or "dev", side "src" or "tgt"."""
        return self.folder / f"{part}.{side}"


def random_texts(folder: Path, size: Size, length: int, pairs: int = PAIRS, seed: int = 0) -> Texts:
    """Writes lines of `length` random words, with `</s>`; every word of the vocabulary occurs if there is room."""
    generator = np.random.default_rng(seed)
    config = size.model
    words: list[list[str]] = []
    for side, count in zip(SIDES, (config.source_vocabulary_size, config.target_vocabulary_size), strict=True):
        side_words = [f"{side[0]}{number}" for number in range(count - FIRST_WORD)]
        cells = pairs * (length - 1)
        ids = np.concatenate([generator.permutation(len(side_words)), generator.integers(0, len(side_words), cells)])
        lines = [" ".join(side_words[index] for index in row) for row in ids[:cells].reshape(pairs, -1)]
        _write(folder, side, lines)
        words.append(side_words)
    return Texts(folder, (words[0], words[1]), size, length - 1)


def _write(folder: Path, side: str, lines: list[str]) -> None:
    for part, chosen in (("train", lines), ("dev", lines[:DEV_PAIRS])):
        with atomic_text(folder / f"{part}.{side}") as stream:
            stream.writelines(f"{line}\n" for line in chosen)


def training_options(size: Size, sentences: int, threads: int) -> list[str]:
    """Returns the options of `nmtalign train` for a size, with the given number of sentences per batch."""
    from bench.workload import SIZES

    model = size.model
    names = (
        "cell",
        "order",
        "attention",
        "hidden",
        "embedding",
        "attention_hidden",
        "maxout",
        "output_rank",
        "dropout",
    )
    pairs = [f"{name}={getattr(model, name)}" for name in names]
    pairs += [f"bidirectional={str(model.bidirectional).lower()}", f"batch_size={sentences}", "batch_unit=sentences"]
    pairs += ["max_length=0", "label_smoothing=0", f"threads={threads}"]
    return ["--preset", SIZES[size.name][0], *(part for pair in pairs for part in ("--set", pair))]
