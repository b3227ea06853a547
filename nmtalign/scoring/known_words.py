"""Unknown words: the sentences without one (the second column of the article's Table 1), and how often they occur."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmtalign.errors import FormatError
from nmtalign.files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY
from nmtalign.model_directory import check_files, read_settings
from nmtalign.scoring.metrics import Lines
from nmtalign.scoring.report import Mask
from nmtalign.text.tokenizer import TOKENIZER_FILE, Tokenizer, Tokenizers, Vocabulary, is_word


@dataclass(frozen=True)
class UnknownRates:
    """The share of words that are not in the vocabulary, from 0 to 1."""

    source: float
    reference: float
    systems: tuple[float, ...]


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies and tokenisers of a model or a prepared corpus, without weights."""

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
                raise FormatError(f"{folder}: no vocabularies here (no {name}); give a model or a corpus with -m")
        if (folder / CONFIG).exists():  # a corpus has none
            check_files(folder, read_settings(folder))  # refuses a vocabulary that was edited after training
        source = Vocabulary.load(folder / SOURCE_VOCABULARY)
        target = Vocabulary.load(folder / TARGET_VOCABULARY)
        return cls(source, target, Tokenizers.load(folder))


class UnknownWords:
    """The words that the vocabularies of one or more models lack."""

    def __init__(self, vocabularies: Sequence[Vocabularies]) -> None:
        self._vocabularies = tuple(vocabularies)

    def without(self, source: Lines, references: Sequence[Lines]) -> Mask:
        """(N,) True for the sentences whose words are in all vocabularies, in the source and in every reference."""
        known = np.ones(len(source), dtype=np.bool_)
        for one in self._vocabularies:
            known &= _all_known(source, one.tokenizers.source, one.source)
            for lines in references:
                known &= _all_known(lines, one.tokenizers.target, one.target)
        return known

    def rates(self, source: Lines, references: Sequence[Lines], systems: Sequence[Lines]) -> UnknownRates:
        """The share of the texts' words (pieces where those are subwords) that the first vocabularies do not hold."""
        one = self._vocabularies[0]
        target = one.tokenizers.target, one.target
        every_reference = [line for lines in references for line in lines]
        return UnknownRates(
            _share([*source], one.tokenizers.source, one.source),
            _share(every_reference, *target),
            tuple(_share(lines, *target) for lines in systems),
        )


def _all_known(lines: Lines, tokenizer: Tokenizer, vocabulary: Vocabulary) -> Mask:
    return np.array([all(token in vocabulary for token in tokenizer.tokenize(line)) for line in lines], dtype=np.bool_)


def _share(lines: Lines, tokenizer: Tokenizer, vocabulary: Vocabulary) -> float:
    unknown = [token not in vocabulary for line in lines for token in tokenizer.tokenize(line) if is_word(token)]
    return sum(unknown) / max(1, len(unknown))
