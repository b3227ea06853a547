"""A prepared corpus read the other way: its target text is the source, and its source text the target."""

import functools
from pathlib import Path

from nmtalign.data.corpus import VOCABULARY_FILES, Corpus
from nmtalign.text.tokenizer import Tokenizers


class ReversedCorpus(Corpus):
    """What a model of the other direction is trained on; `folder` is where `write` puts its words."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.folder, self.attributes, self.settings = folder, corpus.attributes, corpus.settings
        self.splits = {name: split.reversed() for name, split in corpus.splits.items()}
        self.source_language, self.target_language = corpus.target_language, corpus.source_language
        self.source_vocabulary, self.target_vocabulary = corpus.target_vocabulary, corpus.source_vocabulary
        self._corpus = corpus

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenisers, each on the other side."""
        return self._corpus.tokenizers.reversed()

    @functools.cached_property
    def hash(self) -> str:
        """That of the corpus, which holds the same text."""
        return self._corpus.hash

    def write(self) -> None:
        """Writes vocabularies and tokenisers into the folder, as `nmtalign prep` would for this direction."""
        self.tokenizers.save(self.folder)
        for name, words in zip(VOCABULARY_FILES, (self.source_vocabulary, self.target_vocabulary), strict=True):
            words.save(self.folder / name)
