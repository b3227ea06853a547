"""The same work as text files, for programs that train from files, including `nmtalign train`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.workload import FIRST_WORD, SIZES, Size
from nmtalign.files import atomic_text

PAIRS = 4000
SIDES = ("src", "tgt")


@dataclass(frozen=True)
class Texts:
    """Text files of several parts in a folder, and the words of both sides (no `</s>`, no `<unk>`)."""

    folder: Path
    words: tuple[list[str], list[str]]
    size: Size
    longest: int  # words of the longest line

    def file(self, part: str, side: str) -> Path:
        """A text file: part such as "train", side "src" or "tgt"."""
        return self.folder / f"{part}.{side}"


def random_texts(folder: Path, size: Size, length: int, pairs: int = PAIRS, seed: int = 0) -> Texts:
    """Writes train.src and train.tgt, lines of `length` random words with `</s>`: every word, if there is room."""
    generator = np.random.default_rng(seed)
    config = size.model
    words: list[list[str]] = []
    for side, count in zip(SIDES, (config.source_vocabulary_size, config.target_vocabulary_size), strict=True):
        side_words = [f"{side[0]}{number}" for number in range(count - FIRST_WORD)]
        cells = pairs * (length - 1)
        ids = np.concatenate([generator.permutation(len(side_words)), generator.integers(0, len(side_words), cells)])
        with atomic_text(folder / f"train.{side}") as stream:
            for row in ids[:cells].reshape(pairs, -1):
                stream.write(" ".join(side_words[index] for index in row) + "\n")
        words.append(side_words)
    return Texts(folder, (words[0], words[1]), size, length - 1)


def training_options(size: Size, sentences: int, threads: int) -> list[str]:
    """Returns the options of `nmtalign train` for a size, with the given number of sentences per batch."""
    model = size.model
    names = ("cell", "order", "attention", "hidden", "embedding", "attention_hidden", "maxout", "output_rank")
    pairs = [f"{name}={getattr(model, name)}" for name in (*names, "dropout")]
    pairs += [f"bidirectional={str(model.bidirectional).lower()}", f"batch_size={sentences}", "batch_unit=sentences"]
    pairs += ["max_length=0", "label_smoothing=0", f"threads={threads}"]
    return ["--preset", SIZES[size.name][0], *(part for pair in pairs for part in ("--set", pair))]
