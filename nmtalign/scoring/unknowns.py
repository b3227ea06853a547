"""Unknown words: the sentences without one (the second column of the article's Table 1), and how often they occur."""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY
from nmtalign.model_directory import check_files, read_settings
from nmtalign.scoring.texts import SystemTexts
from nmtalign.scoring.word_ids import TargetTexts, Tokenized
from nmtalign.scoring.words import Frequencies, UnknownRates, WordBreakdown, place_table, share_of, word_table
from nmtalign.settings.command_settings import ScoreConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.text.lines import STDIN, open_bytes
from nmtalign.text.moses import MosesWords
from nmtalign.text.tokenizer import TOKENIZER_FILE, SpacedWords, Tokenizer, Tokenizers
from nmtalign.text.vocabulary import Vocabulary, is_word

CORPUS = "corpus.h5"


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
                raise FormatError(
                    f"{folder}: no vocabularies here (no {name}); give a model with -m or a corpus with --data"
                )
        if (folder / CONFIG).exists():  # a corpus has none
            check_files(folder, read_settings(folder))  # refuses a vocabulary that was edited after training
        source = Vocabulary.load(folder / SOURCE_VOCABULARY)
        target = Vocabulary.load(folder / TARGET_VOCABULARY)
        return cls(source, target, Tokenizers.load(folder))


class UnknownWords:
    """The words that the vocabularies of one or more models lack; `tokenized` keeps the texts for other uses."""

    def __init__(self, vocabularies: Sequence[Vocabularies], tokenized: Tokenized | None = None) -> None:
        self._vocabularies = tuple(vocabularies)
        self._tokenized = tokenized or Tokenized()

    def without(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """(N,) True for the sentences whose words are in all vocabularies, in the source and in every reference."""
        known = np.ones(len(sources), dtype=np.bool_)
        for one in self._vocabularies:
            known &= self._all_known(one.tokenizers.source, one.source, sources)
            for lines in references:
                known &= self._all_known(one.tokenizers.target, one.target, lines)
        return known

    def rates(
        self, sources: Sequence[str] | None, references: Sequence[Sequence[str]], systems: Sequence[Sequence[str]]
    ) -> UnknownRates:
        """The share of the texts' words (pieces where those are subwords) that the first vocabularies do not hold."""
        one = self._vocabularies[0]
        target = partial(self._share, one.tokenizers.target, one.target)
        of_source = None if sources is None else self._share(one.tokenizers.source, one.source, [sources])
        return UnknownRates(of_source, target(references), tuple(target([lines]) for lines in systems))

    def _share(self, tokenizer: Tokenizer, vocabulary: Vocabulary, texts: Sequence[Sequence[str]]) -> float:
        names = self._tokenized.index(tokenizer)
        unknown = np.concatenate([self._unknown(tokenizer, vocabulary, lines) for lines in texts])
        words = np.fromiter(map(is_word, names), np.bool_, len(names))
        return share_of(unknown, np.concatenate([words[self._tokenized.ids(lines, tokenizer).ids] for lines in texts]))

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


@dataclass(frozen=True)
class WordSources:
    """The files that say which words are known, and how often each occurs in the training text."""

    folders: tuple[Path, ...] = ()  # models, or a prepared corpus
    train_text: Path | None = None  # training text of the target language, in which words are counted
    others: tuple[Path, ...] = ()  # corpora and texts in which words are counted if the files above are missing

    @classmethod
    def of(cls, workspace: Workspace, folders: Sequence[Path], train_text: Path | None = None) -> "WordSources":
        """These files, and those of the workspace for files that are not given."""
        usual = (one for one in (workspace.model, workspace.data) if (one / TOKENIZER_FILE).is_file())
        others = (workspace.data, *workspace.file_pairs.get("train", ())[1:])
        return cls(tuple(folders or itertools.islice(usual, 1)), train_text, others)


class KnownWords:
    """The vocabularies and counts that a scoring needs; made before long work begins, so that it fails early."""

    def __init__(
        self, settings: ScoreConfig, sources: WordSources, language: str, notify: Callable[[str], None]
    ) -> None:
        """`language` is that of the translations. `notify` is called with lines for the user.

        Raises UsageError if no file says which words are known, FormatError if such a file is damaged.
        """
        self._settings, self._sources, self._notify = settings, sources, notify
        self._language = "" if settings.tokenize == "none" else language
        self._vocabularies: list[Vocabularies] = []
        if settings.no_unk and not sources.folders:
            raise UsageError(
                "--known-words: no model or corpus here; give a model with -m or a prepared corpus with --data"
            )
        self._unknown: UnknownWords | None = None
        self._tokenized = Tokenized()  # unknown words and tables need the same texts
        needed = settings.no_unk or settings.by_frequency
        if sources.folders and (needed or settings.by_place):
            # Tables by place need the folder only for its tokeniser, and can do without it.
            with contextlib.suppress(*(() if needed else (FormatError,))):
                self._vocabularies = [Vocabularies.load(folder) for folder in sources.folders]
            if needed:
                self._unknown = UnknownWords(self._vocabularies, self._tokenized)
        self._counted = self._counts() if settings.by_frequency else None
        if settings.no_unk and self._vocabularies[0].tokenizers.kind in ("sentencepiece", "bytes"):
            notify(
                f"{sources.folders[0]}: its vocabulary consists of subwords, which are hardly ever unknown: "
                "nearly all sentences are without an unknown word"
            )

    def known(self, texts: SystemTexts) -> NDArray[np.bool_] | None:
        """(N,) True for the sentences without an unknown word in source and references; None if not requested."""
        if not self._settings.no_unk or self._unknown is None or texts.source is None:
            return None
        return self._unknown.without(texts.source.lines, texts.reference_lines)

    def tables(self, texts: SystemTexts) -> tuple[tuple[WordBreakdown, ...], UnknownRates | None]:
        """(words by frequency and by place in the sentence, rates of unknown words), as far as they are requested."""
        rates, tables, target = None, [], None
        if self._unknown:
            rates = self._unknown.rates(texts.source_lines, texts.reference_lines, texts.system_lines)
        if self._counted:
            frequencies, target = self._frequencies(self._counted, texts)
            tables.append(word_table(target, frequencies))
            rates = rates or frequencies.unknown_rates(target)
        if self._settings.by_place:
            tables.append(place_table(target or self._target(texts, self._tokenizer())))
        return tuple(tables), rates

    def _counts(self) -> Path:
        """The training text or the corpus in which words are counted."""
        sources = self._sources
        if sources.train_text:
            if sources.train_text != STDIN:
                open_bytes(sources.train_text).close()  # reports an error now, although the text is read last
            return sources.train_text
        for path in (*sources.folders, *sources.others):
            if path.is_file() or (path / CORPUS).is_file():
                return path
        raise UsageError(
            "--by-frequency: nothing here says how often training saw a word; give a prepared corpus with --data, or "
            "the training text of the target language with --train-text"
        )

    def _frequencies(self, counted: Path, texts: SystemTexts) -> tuple[Frequencies, TargetTexts]:
        if counted.is_dir() or counted.name == CORPUS:
            frequencies = Frequencies.from_corpus(counted)
            return frequencies, self._target(texts, frequencies.tokenizer)
        target = self._target(texts, self._tokenizer())
        vocabulary = self._vocabularies[0].target if self._vocabularies else None
        self._notify(f"counting the words of {counted}")
        only = frozenset(target.words)
        return Frequencies.from_text(counted, self._tokenizer(), vocabulary=vocabulary, only=only), target

    def _target(self, texts: SystemTexts, tokenizer: Tokenizer) -> TargetTexts:
        return TargetTexts(texts.reference_lines, texts.system_lines, tokenizer, self._tokenized)

    def _tokenizer(self) -> Tokenizer:
        """The tokeniser of the target language: the model's or corpus's, else Moses's, else spaces separate words."""
        if self._vocabularies:
            return self._vocabularies[0].tokenizers.target
        return MosesWords(self._language) if self._language else SpacedWords()
