"""The translator of lines: raw text in, raw text out, one for one and in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmtalign.config import TranslateConfig
from nmtalign.data.batches import make_source
from nmtalign.decoding.pieces import cut, join
from nmtalign.decoding.search import Hypothesis, SearchOptions, beam_search
from nmtalign.decoding.unknowns import read_lexicon, replace_unknowns
from nmtalign.errors import ResourceError, UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.text.tokenizer import WORD_START, SentencePieces, SpacedWords
from nmtalign.text.vocabulary import UNK_ID

WINDOW_BATCHES = 40  # batches' worth of lines that are read ahead and sorted by length
WINDOW_CHARACTERS = 4_000_000  # and their text
_MEAN_LENGTH = 64  # a batch of longer sentences holds fewer of them, so that memory stays bounded
_LINE_ENDS = str.maketrans("\r\n", "  ")
_NOTHING = Hypothesis((), 0.0, 0.0, (0.0,), np.zeros((1, 1), np.float32))


@dataclass(frozen=True)
class Translation:
    """What became of one line; texts, target_tokens and hypotheses run side by side, best first, at least one.

    A blank line has one empty translation. `target_tokens` are those of the text: unknown words are replaced where that
    was asked for. `source_unknown` counts the source tokens that the model does not know. A line in more than one
    piece has one hypothesis, joined of theirs.
    """

    source_line: str
    source_tokens: tuple[str, ...]
    source_unknown: int
    texts: tuple[str, ...]
    target_tokens: tuple[tuple[str, ...], ...]
    hypotheses: tuple[Hypothesis, ...]
    pieces: int = 1

    @property
    def text(self) -> str:
        """The best translation, without any end of line in it."""
        return self.texts[0]


@dataclass(frozen=True)
class _Line:
    text: str
    tokens: list[str]
    ids: list[int]
    pieces: list[slice]  # none for a blank line


def search_options(config: TranslateConfig, keep_weights: bool = False) -> SearchOptions:
    """What `config` means for the search; raises UsageError for an n_best that is larger than the beam."""
    return SearchOptions(
        beam=config.beam,
        length_penalty=config.length_penalty,
        n_best=config.n_best,
        allow_unk=config.allow_unk or config.replace_unk,
        max_length_ratio=config.max_length_ratio,
        keep_weights=keep_weights or config.replace_unk,
    )


class Translator:
    """Translates lines with one model.

    `keep_weights` keeps the alignment weights of every hypothesis. Raises UsageError for what the model cannot do, and
    FormatError for a lexicon that cannot be read.
    """

    def __init__(self, loaded: LoadedModel, config: TranslateConfig, keep_weights: bool = False) -> None:
        self.loaded = loaded
        self.config = config
        self.options = search_options(config, keep_weights)
        if self.options.keep_weights and loaded.model.config.attention == "none":
            raise UsageError("this model has no attention: it can neither replace unknown words nor give alignments")
        self._lexicon = read_lexicon(Path(config.lexicon)) if config.replace_unk and config.lexicon else {}
        source, target = loaded.tokenizers.source, loaded.tokenizers.target
        self._subwords = isinstance(source, SentencePieces)
        self._tokenize = SpacedWords().tokenize if config.tokenized else source.tokenize
        self._detokenize = SpacedWords().detokenize if config.tokenized else target.detokenize

    def translate(self, lines: Iterable[str]) -> Iterator[Translation]:
        """One translation a line, in order.

        Lines are read ahead, sorted by length and translated in batches; memory is bounded by the window.
        """
        for window in self._windows(lines):
            yield from self._translate_window(window)

    @property
    def window(self) -> int:
        """How many lines are read ahead at most."""
        return WINDOW_BATCHES * self.config.batch_size

    def _windows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        window: list[str] = []
        characters = 0
        for line in lines:
            window.append(line)
            characters += len(line)
            if len(window) == self.window or characters > WINDOW_CHARACTERS:
                yield window
                window, characters = [], 0
        if window:
            yield window

    def _translate_window(self, texts: Sequence[str]) -> Iterator[Translation]:
        lines = [self._read(text) for text in texts]
        found = iter(self._search_all([line.ids[piece] for line in lines for piece in line.pieces]))
        for line in lines:
            yield self._translation(line, [next(found) for _ in line.pieces])

    def _read(self, text: str) -> _Line:
        tokenizers, limit = self.loaded.tokenizers, self.config.max_source_length
        tokens = self._tokenize(text)
        pieces = [slice(0, len(tokens))] if tokens else []
        if len(tokens) > limit:
            pieces = cut(tokens, tokenizers.source.word_index(tokens), limit)
        return _Line(text, tokens, self.loaded.source_vocabulary.encode(tokens), pieces)

    def _search_all(self, sentences: Sequence[list[int]]) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        for batch in self._batches([len(sentence) + 1 for sentence in sentences]):
            for place, hypotheses in zip(batch, self._search([sentences[i] for i in batch]), strict=True):
                found[place] = hypotheses
        return found

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Batches of at most batch_size sentences of about one length; fewer where they are long."""
        size, batch = self.config.batch_size, list[int]()
        for place in sorted(range(len(lengths)), key=lengths.__getitem__):
            if batch and (len(batch) == size or (len(batch) + 1) * lengths[place] > size * _MEAN_LENGTH):
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def _search(self, sentences: Sequence[list[int]]) -> list[list[Hypothesis]]:
        """Searches a batch, in halves where memory runs out; raises ResourceError where one sentence is too much."""
        source, mask = (part.to(self.loaded.device) for part in make_source(sentences))
        try:
            return beam_search(self.loaded.model, source, mask, self.options)
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
        if len(sentences) == 1:
            raise ResourceError(
                f"out of memory with one sentence of {len(sentences[0])} tokens; "
                "give a smaller --beam or --max-source-length"
            )
        half = len(sentences) // 2
        return self._search(sentences[:half]) + self._search(sentences[half:])

    def _translation(self, line: _Line, found: Sequence[list[Hypothesis]]) -> Translation:
        if not found:
            hypotheses = [_NOTHING]
        elif len(found) == 1:
            hypotheses = found[0]
        else:
            hypotheses = [join([best for best, *_ in found], self.config.length_penalty)]
        tokens = [self._target_tokens(line, hypothesis) for hypothesis in hypotheses]
        return Translation(
            source_line=line.text,
            source_tokens=tuple(line.tokens),
            source_unknown=line.ids.count(UNK_ID),
            texts=tuple(self._detokenize(part).translate(_LINE_ENDS) for part in tokens),
            target_tokens=tuple(tuple(part) for part in tokens),
            hypotheses=tuple(hypotheses),
            pieces=max(1, len(found)),
        )

    def _target_tokens(self, line: _Line, hypothesis: Hypothesis) -> list[str]:
        tokens = self.loaded.target_vocabulary.decode(hypothesis.tokens)
        if not self.config.replace_unk or UNK_ID not in hypothesis.tokens or hypothesis.weights is None:
            return tokens
        tokenizer = self.loaded.tokenizers.source
        names = tokenizer.words(line.tokens)
        words = [names[word] for word in tokenizer.word_index(line.tokens)]
        copies, word_start = words, ""
        if self._subwords:
            # A piece that is unknown itself is copied alone: its neighbours have their own places in the translation.
            word_start = WORD_START
            known = (number != UNK_ID for number in line.ids)
            copies = [word_start + w if k else t for w, k, t in zip(words, known, line.tokens, strict=True)]
        weights = hypothesis.weights
        return replace_unknowns(hypothesis.tokens, tokens, weights, words, copies, self._lexicon, word_start)


def _out_of_memory(error: Exception) -> bool:
    """Whether PyTorch means that, whichever class it says it with."""
    told = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or ("memory" in told and "alloc" in told)
