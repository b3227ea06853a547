"""What `nmtalign score` knows of words: which ones are unknown, and how often training saw them."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.cli.common import notifier
from nmtalign.cli.score_task import Read, Task
from nmtalign.errors import FormatError, UsageError
from nmtalign.text.lines import STDIN, open_bytes

if TYPE_CHECKING:
    from nmtalign.scoring.cuts import Mask
    from nmtalign.scoring.frequencies import Frequencies
    from nmtalign.scoring.unknowns import UnknownWords, Vocabularies
    from nmtalign.scoring.word_ids import TargetTexts
    from nmtalign.scoring.words import UnknownRates, WordTable
    from nmtalign.text.tokenizer import Tokenizer

CORPUS = "corpus.h5"


class KnownWords:
    """The vocabularies and counts that a task needs; made before long work begins, so that it fails early."""

    def __init__(self, task: Task) -> None:
        """Raises UsageError where nothing says which words are known, FormatError where what says it is damaged."""
        settings = task.settings
        self._task = task
        self._vocabularies: list[Vocabularies] = []
        wanted = settings.no_unk or settings.by_frequency or settings.by_place
        if settings.no_unk and not task.words:
            option = "--table1" if task.table1 else "--no-unk"
            raise UsageError(
                f"{option}: no model or corpus here; give a model with -m or a prepared corpus with --data"
            )
        self._unknown: UnknownWords | None = None
        if wanted:
            from nmtalign.scoring.word_ids import Tokenized

            self._tokenized = Tokenized()  # unknown words and tables ask for the same texts
        if wanted and task.words:
            from nmtalign.scoring import unknowns

            needed = settings.no_unk or settings.by_frequency
            # Places need no more than to know what a word is, and can do without that folder.
            with contextlib.suppress(*(() if needed else (FormatError,))):
                self._vocabularies = [unknowns.Vocabularies.load(folder) for folder in task.words]
            if needed:
                self._unknown = unknowns.UnknownWords(self._vocabularies, self._tokenized)
        self._counted = self._counts() if settings.by_frequency else None
        if settings.no_unk and self._vocabularies[0].tokenizers.kind == "sentencepiece":
            notifier(task.quiet)(
                f"{task.words[0]}: its vocabulary is of subword pieces, in which hardly anything is unknown: the "
                "sentences without an unknown word are all, or nearly all"
            )

    def without_unknowns(self, read: Read) -> "Mask | None":
        """(N,) True for the sentences without an unknown word in source and references; None if not asked for."""
        if not self._task.settings.no_unk or self._unknown is None or read.source is None:
            return None
        return self._unknown.without(read.source.lines, read.reference_lines)

    def tables(self, read: Read) -> "tuple[tuple[WordTable, ...], UnknownRates | None]":
        """(words by frequency and by place in the sentence, shares of unknown words), as far as they are asked for."""
        source = read.source.lines if read.source else None
        rates = self._unknown.rates(source, read.reference_lines, read.system_lines) if self._unknown else None
        tables = []
        texts = None
        if self._counted:
            from nmtalign.scoring.frequencies import word_table

            frequencies, texts = self._frequencies(read)
            tables.append(word_table(texts, frequencies))
            rates = rates or frequencies.unknown_rates(texts)
        if self._task.settings.by_place:
            from nmtalign.scoring.places import place_table

            tables.append(place_table(texts or self._texts(read)))
        return tuple(tables), rates

    def _counts(self) -> Path:
        """The training text or the corpus folder in which words are counted."""
        task = self._task
        if task.train_text:
            if task.train_text != STDIN:
                open_bytes(task.train_text).close()  # it is read only when all else is done
            return task.train_text
        for folder in (*task.words, task.workspace.data):
            if (folder / CORPUS).is_file() or folder.name == CORPUS:
                return folder
        if "train" in task.workspace.pairs and task.workspace.pairs["train"][1].is_file():
            return task.workspace.pairs["train"][1]
        raise UsageError(
            "--by-frequency: nothing here says how often training saw a word; give a prepared corpus with --data, or "
            "the training text of the target language with --train-text"
        )

    def _frequencies(self, read: Read) -> "tuple[Frequencies, TargetTexts]":
        from nmtalign.scoring.frequencies import Frequencies

        counted = self._counted or Path()
        if counted.is_dir() or counted.name == CORPUS:
            frequencies = Frequencies.from_corpus(counted)
            return frequencies, self._texts(read, frequencies.tokenizer)
        texts = self._texts(read)
        vocabulary = self._vocabularies[0].target if self._vocabularies else None
        notifier(self._task.quiet)(f"counting the words of {counted}")
        only = frozenset(texts.words)
        return Frequencies.from_text(counted, self._tokenizer(), vocabulary=vocabulary, only=only), texts

    def _texts(self, read: Read, tokenizer: "Tokenizer | None" = None) -> "TargetTexts":
        from nmtalign.scoring.word_ids import TargetTexts

        cutter = tokenizer or self._tokenizer()
        return TargetTexts(read.reference_lines, read.system_lines, cutter, self._tokenized)

    def _tokenizer(self) -> "Tokenizer":
        """What a word of the target language is: the model's or corpus's, else Moses's, else what stands apart."""
        from nmtalign.text.moses import MosesWords
        from nmtalign.text.tokenizer import SpacedWords

        if self._vocabularies:
            return self._vocabularies[0].tokenizers.target
        if self._task.language and self._task.settings.tokenize != "none":
            return MosesWords(self._task.language)
        return SpacedWords()
