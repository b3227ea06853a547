"""The sentences without an unknown word in source and reference (PAPER: the second column of Table 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import FormatError
from nmtalign.model_files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY, check_files, read_settings
from nmtalign.scoring.word_ids import Tokenized
from nmtalign.scoring.words import UnknownRates
from nmtalign.text.tokenizer import TOKENIZER_FILE, Tokenizer, Tokenizers
from nmtalign.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Vocabularies:
    """What a model or a prepared corpus knows of words: both vocabularies, both tokenizers; no weights."""

    source: Vocabulary
    target: Vocabulary
    tokenizers: Tokenizers

    @classmethod
    def load(cls, folder: Path) -> "Vocabularies":
        """Reads them from a model folder, a corpus folder or the path of its corpus.h5.

        Raises FormatError where one of the files is missing, damaged, or not as the model was trained with it.
        """
        folder = folder.parent if folder.is_file() else folder
        for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY, TOKENIZER_FILE):
            if not (folder / name).is_file():
                raise FormatError(
                    f"{folder}: no vocabularies here (no {name}); give a model with -m or a corpus with --data"
                )
        _refuse_edited(folder)
        source = Vocabulary.load(folder / SOURCE_VOCABULARY)
        target = Vocabulary.load(folder / TARGET_VOCABULARY)
        return cls(source, target, Tokenizers.load(folder))

    def without_unknowns(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """(N,) True for the sentences all of whose words are known, in the source and in every reference."""
        return UnknownWords([self]).without(sources, references)


class UnknownWords:
    """The words that vocabularies of one or more models lack; `tokenized` keeps the texts for what else is asked."""

    def __init__(self, vocabularies: Sequence[Vocabularies], tokenized: Tokenized | None = None) -> None:
        self._vocabularies = tuple(vocabularies)
        self._tokenized = tokenized or Tokenized()

    def without(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """(N,) True for the sentences all of whose words all vocabularies hold, in the source and every reference."""
        known = np.ones(len(sources), dtype=np.bool_)
        for one in self._vocabularies:
            known &= self._all_known(one.tokenizers.source, one.source, sources)
            for lines in references:
                known &= self._all_known(one.tokenizers.target, one.target, lines)
        return known

    def rates(
        self, sources: Sequence[str] | None, references: Sequence[Sequence[str]], systems: Sequence[Sequence[str]]
    ) -> UnknownRates:
        """The share of the texts' tokens (pieces where those are subwords) that the first vocabularies do not hold."""
        one = self._vocabularies[0]
        unknown = [self._unknown(one.tokenizers.target, one.target, lines) for lines in (*references, *systems)]
        of_source = None if sources is None else _share([self._unknown(one.tokenizers.source, one.source, sources)])
        count = len(references)
        return UnknownRates(of_source, _share(unknown[:count]), tuple(_share([text]) for text in unknown[count:]))

    def _all_known(self, tokenizer: Tokenizer, vocabulary: Vocabulary, lines: Sequence[str]) -> NDArray[np.bool_]:
        tokens = self._tokenized.ids(lines, tokenizer)
        unknown = self._unknown(tokenizer, vocabulary, lines)
        known: NDArray[np.bool_] = np.bincount(tokens.sentences[unknown], minlength=len(tokens)) == 0
        return known

    def _unknown(self, tokenizer: Tokenizer, vocabulary: Vocabulary, lines: Sequence[str]) -> NDArray[np.bool_]:
        """(tokens,) True for the tokens that the vocabulary does not hold."""
        tokens = self._tokenized.ids(lines, tokenizer)
        words = self._tokenized.index(tokenizer)
        return np.fromiter((word not in vocabulary for word in words), np.bool_, len(words))[tokens.ids]


def _share(parts: Sequence[NDArray[np.bool_]]) -> float:
    total = sum(len(part) for part in parts)
    return sum(int(part.sum()) for part in parts) / total if total else 0.0


def _refuse_edited(folder: Path) -> None:
    if (folder / CONFIG).exists():  # a corpus has none
        check_files(folder, read_settings(folder))
