"""One side of a sentence pair on its way to the model: its words, and the pieces of which the model knows the ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmtalign.text.moses import Tokens, keep
from nmtalign.text.tokenizer import WORD_START, SentencePieces, SpacedWords, Tokenizer
from nmtalign.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Side:
    """The ids of what the model reads, the words, and where each word starts: None where each id is a word.

    `starts` (words + 1,) are places in `ids`; the last one is that of `</s>`, after them all.
    """

    ids: Sequence[int]
    words: tuple[str, ...]
    starts: NDArray[np.int64] | None


class SideReader:
    """Reads lines as a model's side does.

    Lines are tokenised as its training text was; where they are `tokenized` they are split at spaces only, and the
    words are just these.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, tokenized: bool) -> None:
        self._in_pieces = isinstance(tokenizer, SentencePieces)
        self._tokenizer: Tokenizer = SpacedWords() if tokenized and not self._in_pieces else tokenizer
        self._encode = vocabulary.encode
        self._spaced = SpacedWords().tokenize if tokenized and self._in_pieces else None
        self._pieces: dict[str, Tokens] = {}

    def read(self, line: str) -> Side:
        """One line."""
        if self._spaced is not None:
            return self._of_words(self._spaced(line))
        tokens = self._tokenizer.tokenize(line)
        if not self._in_pieces:
            return Side(self._encode(tokens), tuple(tokens), None)
        starts = [place for place, token in enumerate(tokens) if token.startswith(WORD_START) or place == 0]
        words = "".join(tokens).split(WORD_START)
        if words and not words[0]:
            del words[0]
        if len(words) != len(starts):  # pieces that hold the mark inside
            words = self._tokenizer.words(tokens)
        return Side(self._encode(tokens), tuple(words), np.array([*starts, len(tokens)]))

    def _of_words(self, words: list[str]) -> Side:
        """The pieces word by word, so that the words stay those of the text, as its gold links count them."""
        pieces = self._pieces
        parts = [pieces.get(word) or self._found(word) for word in words]
        tokens = [piece for part in parts for piece in part]
        starts = np.cumsum([0, *map(len, parts)])
        return Side(self._encode(tokens), tuple(words), starts)

    def _found(self, word: str) -> Tokens:
        """The pieces of a word that is new.

        One of which the tokeniser leaves nothing (a control character, say) stands for itself, unknown.
        """
        return keep(self._pieces, word, self._tokenizer.tokenize(word) or [word])
