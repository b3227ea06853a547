"""Vocabularies (words and their ids) and lexicons (words and their translations), stored as plain text."""

import heapq
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from nmtalign.errors import FormatError, InputError
from nmtalign.files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY, atomic_text, read_regular
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.lines import read_lines

EOS, UNK = "</s>", "<unk>"
EOS_ID, UNK_ID = 0, 1
_SPECIALS = (EOS, UNK)
COPIES_NOTHING = -1  # the id that a copying model copies from a place that equals no target word
LEXICON = "lexicon.tsv"  # in the folder of `nmtalign link`
NO_WORD = frozenset(("NULL", "<eps>"))  # names of aligners for "no word" in lexicons


class Vocabulary:
    """Words with ids 0 to K-1: `</s>`, `<unk>`, then words by falling frequency.

    `encode` never returns the id of `</s>`: the names of the special words are unknown words in text. Raises
    FormatError for words that are empty, repeated or contain a line feed, because the file has one word per line.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if self.words[:2] != _SPECIALS:
            raise FormatError(f"line 1: a vocabulary starts with {EOS} and {UNK}, each on a separate line")
        # The special words are not keys, so their names are unknown words in text.
        self._ids = {word: number for number, word in enumerate(self.words[2:], 2)}
        unusable = not self._ids.keys().isdisjoint(("", *_SPECIALS)) or any("\n" in word for word in self._ids)
        if unusable or len(self._ids) != len(self.words) - 2:
            self._raise_fault()

    def _raise_fault(self) -> None:
        """Raises FormatError for the first word that is unusable."""
        seen: dict[str, int] = {}
        for line, word in enumerate(self.words, 1):
            if not word:
                raise FormatError(f"line {line}: an empty word")
            if "\n" in word:
                raise FormatError(f"line {line}: {word!r} contains a line feed")
            if word in seen:
                raise FormatError(f"line {line}: {word!r} is already on line {seen[word]}")
            seen[word] = line

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        """Whether this word of a text has an id (`</s>` and `<unk>` in text are unknown words)."""
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words)} words)"

    def encode(self, tokens: Iterable[str], source: Sequence[str] = ()) -> list[int]:
        """The ids of tokens, UNK_ID for tokens outside the vocabulary; `</s>` is not added.

        A copying model can also generate the tokens of its source: a token that is not one of K words, and is equal to
        source[j], gets the id K + j, where j is its first place.
        """
        ids = self._ids
        if not source:
            return [ids.get(token, UNK_ID) for token in tokens]
        copies = {token: len(self) + place for place, token in reversed(list(enumerate(source)))}
        return [ids.get(token) or copies.get(token, UNK_ID) for token in tokens]

    def count_words(self, tokens: Iterable[str]) -> tuple[int, int]:
        """How many tokens are words, and how many of these are unknown."""
        words = list(filter(is_word, tokens))
        return len(words), sum(word not in self._ids for word in words)

    def known_tokens(self, line: str, tokenize: Callable[[str], list[str]]) -> list[str]:
        """The tokens of a line, composed or decomposed (NFC or NFD) if fewer of them are unknown then."""
        tokens = tokenize(line)
        if line.isascii() or all(map(self._ids.__contains__, tokens)):
            return tokens
        forms = (tokenize(unicodedata.normalize(form, line)) for form in ("NFC", "NFD"))
        return min((tokens, *forms), key=lambda form: self.encode(form).count(UNK_ID))

    def decode(self, ids: Iterable[int], source: Sequence[str] = ()) -> list[str]:
        """The words of ids, including special words; an id from K is a token of the source."""
        words, size = self.words, len(self.words)
        return [words[number] if number < size else source[number - size] for number in ids]

    def save(self, path: Path) -> None:
        """Writes one word per line; the id is the line number minus one."""
        with atomic_text(path, follow=False) as stream:
            stream.writelines(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Reads the file of `save`. Raises FormatError naming file and line."""
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
    def shortlist(cls, counts: Iterable[tuple[str, int]], size: int, min_count: int = 1) -> "Vocabulary":
        """The special words and the `size` - 2 most frequent words with at least `min_count` occurrences.

        Words of equal frequency are in the order of their code points.
        """
        ranked = ((-count, word) for word, count in counts if count >= min_count and word not in _SPECIALS)
        return cls([*_SPECIALS, *(word for _, word in heapq.nsmallest(size - 2, ranked))])


def is_word(token: str) -> bool:
    """Whether a token has a letter. Numbers, marks and the bare "▁" before an unknown word are in all languages."""
    return any(map(str.isalpha, token))


def pair_ids(
    vocabularies: tuple[Vocabulary, Vocabulary], source: Sequence[str], target: Sequence[str] = (), copy: bool = False
) -> tuple[list[int], list[int], list[int]]:
    """(source ids, target ids, copied ids) of the tokens of a pair, without `</s>`, as a model reads them.

    With `copy` a target token may be a copy of a source token, and the copied ids are what a copying model copies from
    each place of the source: a target word, or the place (`Vocabulary.encode`). Else there are no copied ids.
    """
    words, others = vocabularies
    if not copy:
        return words.encode(source), others.encode(target), []
    return words.encode(source), others.encode(target, source), others.encode(source, source)


def lexicon_file(path: Path) -> Path:
    """The lexicon of a folder of `nmtalign link`; any other path itself."""
    return path / LEXICON if path.is_dir() else path


def read_entries(path: Path) -> Iterator[tuple[str, str, float]]:
    """Source word, target word and probability of each line of a lexicon, in the order of the file.

    `path` may be the folder of `nmtalign link`.

    Spaces or tabs separate the fields. A probability may be a logarithm; a line without one counts as certain. Lines
    for "no word" are skipped. Raises FormatError naming file and line.
    """
    path = lexicon_file(path)
    try:
        for number, line in enumerate(read_lines(path), 1):
            entry = _entry(path, number, line)
            if NO_WORD.isdisjoint(entry[:2]):
                yield entry
    except InputError as error:
        raise FormatError(str(error)) from None


def _entry(path: Path, number: int, line: str) -> tuple[str, str, float]:
    fields = [field for field in line.replace("\t", " ").split(" ") if field]
    if len(fields) not in (2, 3):
        raise FormatError(
            f"{path}: line {number}: {len(fields)} fields; a lexicon has `source target` or `source target probability`"
        )
    try:
        probability = float(fields[2]) if len(fields) == 3 else 1.0
    except ValueError:
        probability = math.nan
    if math.isnan(probability):
        raise FormatError(f"{path}: line {number}: {fields[2]!r} is not a probability")
    return fields[0], fields[1], probability


def load_vocabularies(folder: Path, config: ModelConfig) -> tuple[Vocabulary, Vocabulary]:
    """Reads both vocabularies of a model directory; raises FormatError if their sizes are not those of the model."""
    source, target = (Vocabulary.load(folder / name) for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY))
    if (len(source), len(target)) != (config.source_vocabulary_size, config.target_vocabulary_size):
        raise FormatError(f"{folder}: the vocabularies do not have the sizes that {CONFIG} records")
    return source, target
