"""The sentences without an unknown word in source and reference (PAPER: the second column of Table 1)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import FormatError
from nmtalign.files import sha256_of
from nmtalign.text.tokenizer import TOKENIZER_FILE, Tokenizer, Tokenizers
from nmtalign.text.vocabulary import UNK_ID, Vocabulary

SOURCE_VOCABULARY = "source.vocabulary.txt"
TARGET_VOCABULARY = "target.vocabulary.txt"
MODEL_CONFIG = "config.json"  # of a model; a corpus has none


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
        known = _all_known(self.tokenizers.source, self.source, sources)
        for lines in references:
            known &= _all_known(self.tokenizers.target, self.target, lines)
        return known


def _refuse_edited(folder: Path) -> None:
    # nmtalign.model_directory checks the same, but importing it loads torch.
    config = folder / MODEL_CONFIG
    if not config.is_file():
        return
    try:
        hashes = dict(json.loads(config.read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(f"{config}: not the settings of a model; the model folder is damaged") from None
    for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY, TOKENIZER_FILE):
        if hashes.get(name) != sha256_of(folder / name):
            raise FormatError(f"{folder / name}: was changed after training; put the original back")


def _all_known(tokenizer: Tokenizer, vocabulary: Vocabulary, lines: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([UNK_ID not in vocabulary.encode(tokenizer.tokenize(line)) for line in lines], dtype=np.bool_)
