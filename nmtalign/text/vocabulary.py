"""Vocabularies: words and their ids, kept as plain text, a word a line."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nmtalign.errors import FormatError
from nmtalign.files import atomic_text
from nmtalign.untrusted import read_regular

EOS, UNK = "</s>", "<unk>"
EOS_ID, UNK_ID = 0, 1
_SPECIALS = (EOS, UNK)


class Vocabulary:
    """Words with ids 0 to K-1: `</s>`, `<unk>`, then words by falling frequency.

    `encode` never gives the id of `</s>`: text that holds a special name holds an unknown word. Raises FormatError for
    words that cannot be told apart in a file of one word a line.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if self.words[:2] != _SPECIALS:
            raise FormatError(f"line 1: a vocabulary starts with {EOS} and {UNK}, each on a line of its own")
        # Neither special is a key, so a word of that name is unknown.
        self._ids = {word: number for number, word in enumerate(self.words[2:], 2)}
        if len(self._ids) != len(self.words) - 2 or not self._ids.keys().isdisjoint(("", *_SPECIALS)):
            raise self._first_fault()
        if any("\n" in word for word in self._ids):
            raise self._first_fault()

    def _first_fault(self) -> FormatError:
        seen: dict[str, int] = {}
        for line, word in enumerate(self.words, 1):
            if not word:
                return FormatError(f"line {line}: an empty word")
            if "\n" in word:
                return FormatError(f"line {line}: {word!r} holds the end of a line")
            if word in seen:
                return FormatError(f"line {line}: {word!r} stands on line {seen[word]} already")
            seen[word] = line
        return FormatError("a word is unusable")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        """Whether text with this word keeps it (`</s>` and `<unk>` in text are unknown words)."""
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words)} words)"

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of tokens, UNK_ID for those not in the vocabulary; no `</s>` is added."""
        ids = self._ids
        return [ids.get(token, UNK_ID) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of ids, specials included."""
        words = self.words
        return [words[number] for number in ids]

    def save(self, path: Path) -> None:
        """Writes one word a line; the line number less one is the id."""
        with atomic_text(path) as stream:
            stream.writelines(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Reads what `save` wrote; raises FormatError naming file and line for anything else."""
        try:
            text = read_regular(path).decode("utf-8")
        except OSError as error:
            raise FormatError(f"{path}: cannot read the vocabulary: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise FormatError(f"{path}: line {line}: not UTF-8") from None
        try:
            return cls(text.removesuffix("\n").split("\n"))
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    @classmethod
    def shortlist(
        cls, counts: Mapping[str, int] | Iterable[tuple[str, int]], size: int, min_count: int = 1
    ) -> "Vocabulary":
        """The `size` - 2 most frequent words (ties by code point) of those seen `min_count` times, and the specials."""
        pairs = counts.items() if isinstance(counts, Mapping) else counts
        ranked = ((-count, word) for word, count in pairs if count >= min_count and word not in _SPECIALS)
        return cls([*_SPECIALS, *(word for _, word in heapq.nsmallest(size - 2, ranked))])
