"""Unknown words: the sentences without one (the second column of the article's Table 1), and how often they occur."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nmtalign.errors import FormatError
from nmtalign.files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY
from nmtalign.model_directory import check_files, read_settings
from nmtalign.scoring.metrics import Lines
from nmtalign.scoring.report import Mask, UnknownRates
from nmtalign.text.tokenizer import TOKENIZER_FILE, Tokenizer, Tokenizers, Vocabulary, is_word

SideWords = tuple[Tokenizer, Vocabulary]
KnownWords = tuple[SideWords, SideWords]
"""The tokenisers and vocabularies of source and target, of a model or a prepared corpus."""


def read_words(folder: Path) -> KnownWords:
    """Reads the words of a model or a corpus; raises FormatError for a file that is missing, damaged or changed."""
    folder = folder.parent if folder.is_file() else folder
    for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY, TOKENIZER_FILE):
        if not (folder / name).is_file():
            raise FormatError(f"{folder}: no vocabularies here (no {name}); give a model or a corpus with -m")
    if (folder / CONFIG).exists():  # a corpus has none
        check_files(folder, read_settings(folder))  # refuses a vocabulary that was edited after training
    source, target = (Vocabulary.load(folder / name) for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY))
    tokenizers = Tokenizers.load(folder)
    return (tokenizers.source, source), (tokenizers.target, target)


def without_unknown_words(models: Sequence[KnownWords], source: Lines, references: Sequence[Lines]) -> Mask:
    """(N,) True for the sentences whose words all models know, in the source and in every reference."""
    known = np.ones(len(source), dtype=np.bool_)
    for of_source, of_target in models:
        for (tokenizer, vocabulary), lines in ((of_source, source), *((of_target, lines) for lines in references)):
            known &= [all(token in vocabulary for token in tokenizer.tokenize(line)) for line in lines]
    return known


def unknown_rates(
    model: KnownWords, source: Lines, references: Sequence[Lines], systems: Mapping[str, Lines]
) -> UnknownRates:
    """The share of the words of the texts (pieces where those are subwords) that the model does not know."""

    def share(side: int, texts: Sequence[Lines]) -> float:
        tokenizer, vocabulary = model[side]
        words = [word for lines in texts for line in lines for word in tokenizer.tokenize(line) if is_word(word)]
        return sum(word not in vocabulary for word in words) / max(1, len(words))

    translations = {name: share(1, [lines]) for name, lines in systems.items()}
    return UnknownRates(share(0, [source]), share(1, references), translations)
