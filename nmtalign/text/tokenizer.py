"""Tokenisers: raw text to tokens and back. Moses words, sentencepiece pieces, bytes, or words between spaces."""

import functools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Protocol

from nmtalign.errors import FormatError
from nmtalign.files import atomic_path, atomic_text, read_json, read_regular
from nmtalign.text.moses import MosesWords, Tokens, WholeWords, keep
from nmtalign.text.spacing import SPACES, Counts

# Only ASCII blanks separate words: in tokenised text no-break spaces, U+0085 and U+2028 are parts of words.
_BLANKS = re.compile(r"[ \t\r\f\v\n]+")
_UNEVEN = re.compile(r"[\t\r\f\v\n]| {2}")
WORD_START = "▁"
TOKENIZER_FILE = "tokenizer.json"
MODEL_FILES = ("source.spm", "target.spm")
# The token of each byte: the space is "▁", printable ASCII characters are themselves, other bytes are "<00>" to "<FF>".
BYTE_TOKENS = tuple(
    WORD_START if byte == 32 else chr(byte) if 32 < byte < 127 else f"<{byte:02X}>" for byte in range(256)
)
_BYTES_PER_TOKEN = 10  # a word between spaces has about 6 bytes with its space in English, 7 in German, 13 in Russian


def blanks_to_spaces(line: str) -> str:
    """Replaces each run of ASCII blanks by one space."""
    return _BLANKS.sub(" ", line) if _UNEVEN.search(line) else line


class Tokenizer(Protocol):
    """The interface of all tokenisers; tokens contain neither spaces nor `\\n`."""

    @property
    def kind(self) -> str:
        """The name of the tokeniser in tokenizer.json."""

    def tokenize(self, line: str) -> list[str]:
        """The tokens of one line of text."""

    def detokenize(self, tokens: Sequence[str]) -> str:
        """One line of text."""

    def word_index(self, tokens: Sequence[str]) -> list[int]:
        """The 0-based index of the word to which each token belongs."""

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The words that consist of these tokens, in the order of `word_index`."""


class SpacedWords(WholeWords):
    """Words between blanks, for text that is already tokenised."""

    kind = "spaced"

    def tokenize(self, line: str) -> list[str]:
        """The words between blanks (ASCII only)."""
        return [word for word in _BLANKS.split(line) if word]

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The words with one space between them."""
        return " ".join(tokens)


class Subwords(Tokenizer, ABC):
    """A tokeniser whose tokens are parts of words; a token that starts with "▁" starts a word."""

    @abstractmethod
    def pieces(self) -> Sequence[str]:
        """All tokens of the tokeniser, without the unknown one."""

    def word_index(self, tokens: Sequence[str]) -> list[int]:
        """A token that starts with "▁" starts a word, and so does the first token."""
        starts = (position == 0 or token.startswith(WORD_START) for position, token in enumerate(tokens))
        return [number - 1 for number in accumulate(starts)]

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The text of each word, without the "▁" before it."""
        starts = [place for place, token in enumerate(tokens) if token.startswith(WORD_START) or place == 0]
        return [self._word(tokens[start:stop]) for start, stop in pairwise((*starts, len(tokens)))]

    def _word(self, tokens: Sequence[str]) -> str:
        return self.detokenize(tokens)


class TextBytes(Subwords):
    """The bytes of the text in UTF-8, each in a visible form (`BYTE_TOKENS`); no word of any text is unknown.

    The text is not tokenised. Each word between blanks starts with "▁". Detokenised text equals the original except for
    runs of blanks. Bytes that are not UTF-8, and those of ASCII blanks except the space, which no text gives, become
    U+FFFD.
    """

    kind = "bytes"

    def pieces(self) -> Sequence[str]:
        """The tokens of all bytes, in the order of the bytes."""
        return BYTE_TOKENS

    def tokenize(self, line: str) -> list[str]:
        """The tokens of the bytes, with one "▁" before each word."""
        line = blanks_to_spaces(line).strip(" ")
        return [BYTE_TOKENS[byte] for byte in f" {line}".encode("utf-8", "surrogatepass")] if line else []

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The text of the bytes; a token that is not the token of a byte is text itself."""
        raw = b"".join(
            _BYTES.get(token) or token.replace(WORD_START, " ").encode("utf-8", "surrogatepass") for token in tokens
        )
        return raw.decode("utf-8", "replace").strip(" ")


_BYTES = {token: b"\xff" if 9 <= byte <= 13 else bytes([byte]) for byte, token in enumerate(BYTE_TOKENS)}


class SentencePieces(Subwords):
    """Subword pieces of a sentencepiece model, given as the bytes of its file.

    A piece that starts with "▁" starts a word. Detokenised text equals the original except for runs of blanks.
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self.model = model
        if not model:  # sentencepiece would take it for a model that is still to be loaded
            raise FormatError("not a sentencepiece model")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.pieces()  # raises ValueError for a piece that is not UTF-8
        except (RuntimeError, ValueError, OSError):
            raise FormatError("not a sentencepiece model") from None
        self._words = _PiecesOfWords(self._processor) if _word_by_word(self._processor) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieces, (self.model,)

    @classmethod
    def load(cls, path: Path) -> "SentencePieces":
        """Reads a model file. Raises FormatError naming the file."""
        try:
            return cls(read_regular(path))
        except OSError as error:
            raise FormatError(f"{path}: cannot read the sentencepiece model: {error.strerror}") from None
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    def pieces(self) -> list[str]:
        """The pieces of the model in the order of their ranks, without the unknown one."""
        processor = self._processor
        return [processor.id_to_piece(i) for i in range(len(processor)) if not processor.is_unknown(i)]

    def tokenize(self, line: str) -> list[str]:
        """The pieces; a character that the model does not know is a piece itself."""
        line = blanks_to_spaces(line)
        if self._words is None or WORD_START in line:
            pieces: list[str] = self._processor.encode(line, out_type=str)
            return pieces
        words = line.strip(" ")
        return list(chain.from_iterable(map(self._words.__getitem__, words.split(" ")))) if words else []

    @property
    def merges(self) -> bool:
        """Whether the pieces of a word are made by merges (BPE), so that `sample` can leave some out."""
        return self._words is not None

    def sample(self, sentences: Sequence[Sequence[str]], dropout: float, seed: int) -> list[list[str]]:
        """Other pieces of sentences of pieces: each merge is left out with the probability `dropout`.

        Equal arguments give equal pieces. Not for several threads at a time: sentencepiece has one seed for all.
        """
        import sentencepiece

        sentencepiece.set_random_generator_seed(seed)
        texts = ("".join(pieces).replace(WORD_START, " ").removeprefix(" ") for pieces in sentences)
        encode = functools.partial(self._processor.encode, out_type=str, enable_sampling=True, nbest_size=-1)
        return [encode(text, alpha=dropout) for text in texts]

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The joined pieces, with a space for each "▁"."""
        return "".join(tokens).replace(WORD_START, " ").strip(" ")

    def _word(self, tokens: Sequence[str]) -> str:
        return "".join(tokens).removeprefix(WORD_START)


class _PiecesOfWords(dict[str, Tokens]):
    """The pieces of words seen before."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def __missing__(self, word: str) -> Tokens:
        return keep(self, word, self._processor.encode(word, out_type=str))


def _word_by_word(processor: Any) -> bool:
    """Whether the pieces of a word never depend on its neighbours, so that they can be cached.

    This is the case if the model merges pairs by rank (bpe: its scores are 0, -1, -2, ...), no piece contains a space
    inside, and the space is a piece. A unigram model sums rounded scores over the complete line.
    """
    numbers = [number for number in range(len(processor)) if not processor.is_unknown(number)]
    return (
        processor.piece_to_id(WORD_START) in numbers
        and all(processor.get_score(number) == -rank for rank, number in enumerate(numbers))
        and not any(WORD_START in processor.id_to_piece(number)[1:] for number in numbers)
    )


@dataclass(frozen=True)
class Tokenizers:
    """The tokenisers of source and target, stored with a corpus and with a model; both are of the same kind."""

    source: Tokenizer
    target: Tokenizer
    source_language: str = ""
    target_language: str = ""

    @classmethod
    def moses(
        cls,
        source_language: str,
        target_language: str,
        spacing: Mapping[str, str] | None = None,
        joins_marks: bool = True,
    ) -> "Tokenizers":
        """Moses words of two languages; `spacing` was learned from the target text (see MosesWords)."""
        source = MosesWords(source_language, joins_marks=joins_marks)
        target = MosesWords(target_language, spacing, joins_marks)
        return cls(source, target, source_language, target_language)

    @classmethod
    def spaced(cls, source_language: str = "", target_language: str = "") -> "Tokenizers":
        """Words between blanks on both sides."""
        return cls(SpacedWords(), SpacedWords(), source_language, target_language)

    @classmethod
    def of_bytes(cls, source_language: str = "", target_language: str = "") -> "Tokenizers":
        """Bytes on both sides."""
        return cls(TextBytes(), TextBytes(), source_language, target_language)

    def most_tokens(self, max_length: int) -> int:
        """The most tokens of a side that a setting `max_length` allows: 10 bytes count as one token. 0 = no limit."""
        return max_length * (_BYTES_PER_TOKEN if isinstance(self.source, TextBytes) else 1)

    def with_spacing(self, counts: Counts) -> "Tokenizers":
        """The same with the spacing of the target text; only Moses words lose spacing and need it."""
        return replace(self, target=self.target.with_spacing(counts)) if isinstance(self.target, MosesWords) else self

    @property
    def kind(self) -> str:
        """ "moses", "sentencepiece", "bytes" or "spaced"."""
        return self.source.kind

    def files(self) -> tuple[str, ...]:
        """Names of the files that `save` writes."""
        return (TOKENIZER_FILE, *(MODEL_FILES if self.kind == SentencePieces.kind else ()))

    def save(self, folder: Path) -> None:
        """Writes the files that `load` needs."""
        for name, side in zip(MODEL_FILES, (self.source, self.target), strict=True):
            if isinstance(side, SentencePieces):
                with atomic_path(folder / name, follow=False) as temporary:
                    temporary.write_bytes(side.model)
        settings: dict[str, object] = {"kind": self.kind}
        settings |= {"source_language": self.source_language, "target_language": self.target_language}
        if isinstance(self.target, MosesWords):
            settings |= {"spacing": self.target.spacing.learned} if self.target.spacing.learned else {}
            settings |= {"joins_marks": True} if self.target.joins_marks else {}  # earlier versions did not
        with atomic_text(folder / TOKENIZER_FILE, follow=False) as stream:
            json.dump(settings, stream, ensure_ascii=False, indent=2)
            stream.write("\n")

    @classmethod
    def load(cls, folder: Path) -> "Tokenizers":
        """Reads the files of `save`. Raises FormatError naming the file."""
        path = folder / TOKENIZER_FILE
        try:
            settings = read_json(path)
            kind = settings["kind"]
            languages = str(settings["source_language"]), str(settings["target_language"])
            spacing = _checked(settings.get("spacing", {}))
            joins_marks = settings.get("joins_marks", False) is True
        except OSError as error:
            raise FormatError(f"{path}: cannot read the tokeniser's settings: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FormatError(f"{path}: not the settings of a tokeniser") from None
        if kind == MosesWords.kind:
            return cls.moses(*languages, spacing, joins_marks)
        if kind == SpacedWords.kind:
            return cls.spaced(*languages)
        if kind == TextBytes.kind:
            return cls.of_bytes(*languages)
        if kind == SentencePieces.kind:
            source, target = (SentencePieces.load(folder / name) for name in MODEL_FILES)
            return cls(source, target, *languages)
        raise FormatError(f"{path}: unknown kind of tokeniser {kind!r}")


def _checked(spacing: dict[str, str]) -> dict[str, str]:
    """A possible result of `Spacing.learn`. Raises ValueError for anything else."""
    if not all(gap in SPACES and len(roles.split(" ")) == 2 for roles, gap in spacing.items()):
        raise ValueError
    return dict(spacing)
