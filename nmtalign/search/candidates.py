"""Candidate lists: the target words that the translation of a sentence may use."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import InputError
from nmtalign.text.tokenizer import UNK_ID, WORD_START, Vocabulary, read_entries


@dataclass(frozen=True)
class Candidates:
    """The candidates of B sentences: `words` (U,) ascending, the union; `allowed` (B, U), True for a sentence's own."""

    words: NDArray[np.int64]
    allowed: NDArray[np.bool_]


class CandidateLists:
    """For each source word its translations in a lexicon; any sentence may also use `</s>`, `<unk>` and frequent words.

    `pairs` (N, 2) are source and target ids. `frequent` is the number of frequent target words, which are the first
    words of the vocabulary.
    """

    def __init__(self, pairs: NDArray[np.int64], source_size: int, target_size: int, frequent: int) -> None:
        sources, self._targets = np.divmod(np.sort(pairs[:, 0] * target_size + pairs[:, 1]), target_size)
        self._ends = np.cumsum(np.bincount(sources, minlength=source_size))
        self._counts = np.diff(self._ends, prepend=0)
        self._target_size = target_size
        self._always = min(UNK_ID + 1 + frequent, target_size)

    @classmethod
    def read(cls, path: Path, source: Vocabulary, target: Vocabulary, frequent: int) -> "CandidateLists":
        """Reads a lexicon; ignores entries with a word that is not in its vocabulary.

        Raises InputError with file and line for a damaged file, and with the file for a lexicon of the other
        direction, of words where the model uses subword pieces, or without any word of the vocabularies.
        """
        pairs, entries, swapped, pieces = list[tuple[int, int]](), 0, 0, 0
        for entries, (left, right, _) in enumerate(read_entries(path), 1):  # noqa: B007
            if left in source and right in target:
                pairs += zip(source.encode([left]), target.encode([right]), strict=True)
            swapped += left in target and right in source
            pieces += left.startswith(WORD_START)
        reads_pieces = 10 * sum(word.startswith(WORD_START) for word in source.words) > len(source)
        fault = ""  # even a wrong lexicon shares a few words with the model
        if not entries:
            fault = "no entries"
        elif reads_pieces and not pieces:
            fault = (
                "a lexicon of complete words, and this model reads subword pieces: first split the texts by its "
                "source.spm and target.spm, and add --tokenized"
            )
        elif not reads_pieces and 2 * pieces > entries:
            fault = "a lexicon of subword pieces, and this model reads complete words"
        elif 4 * len(pairs) < swapped:
            fault = "a lexicon of the other direction"
        elif not pairs:
            fault = f"none of its {entries} entries has both words in the model's vocabularies"
        if fault:
            raise InputError(f"{path}: {fault}; make one from the training texts: nmtalign link SRC TGT -o FOLDER")
        return cls(np.array(pairs), len(source), len(target), frequent)

    def of(self, sentences: Sequence[Sequence[int]], more: Sequence[Collection[int]] = ()) -> Candidates:
        """The candidates of a batch, given the source ids of its sentences, and of each `more` target words."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        tokens = np.fromiter(chain.from_iterable(sentences), np.int64, int(lengths.sum()))
        counts = self._counts[tokens]
        places = np.repeat(self._ends[tokens] - np.cumsum(counts), counts)
        places += np.arange(len(places))
        rows = np.repeat(np.repeat(np.arange(len(lengths)), lengths), counts)
        found = self._targets[places]
        if any(more):
            rows = np.append(rows, np.repeat(np.arange(len(lengths)), list(map(len, more))))
            found = np.append(found, np.fromiter(chain.from_iterable(more), np.int64))
        member = np.zeros(max(self._target_size, found.max(initial=0) + 1), np.bool_)
        member[: self._always] = member[found] = True
        words = np.flatnonzero(member)
        columns = np.cumsum(member) - 1
        allowed = np.zeros((len(lengths), len(words)), np.bool_)
        allowed[:, : self._always] = True
        allowed[rows, columns[found]] = True
        return Candidates(words, allowed)
