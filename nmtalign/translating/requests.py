"""Requests become lines of tokens, in the pieces that are searched: sentences, and parts of long sentences."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.sentences import SentenceSplitter
from nmtalign.text.tokenizer import SpacedWords
from nmtalign.text.vocabulary import UNK_ID, WORD_BITS
from nmtalign.translating.glossary import Glossary
from nmtalign.translating.pieces import Piece, cut
from nmtalign.translating.translation import Request

Tokens = Sequence[str]


@dataclass(frozen=True)
class TokenizedLine:
    """A request with the tokens of its text and of the target text that its translation must contain."""

    request: Request
    tokens: Tokens
    ids: Sequence[int]
    prefix: Tokens  # begins the translation
    phrases: Sequence[Tokens]  # in the order of the pieces
    pieces: Sequence[Piece]  # none for a blank line


class RequestReader:
    """Tokenises requests, and cuts them as the settings require."""

    def __init__(self, loaded: LoadedModel, config: TranslateConfig) -> None:
        """Raises InputError for a glossary that cannot be read, UsageError if the sentence splitter is missing."""
        self._loaded, self._limit = loaded, config.max_source_length
        spaced, tokenizers = SpacedWords(), loaded.tokenizers
        self._source = spaced if config.tokenized else tokenizers.source
        self._target = spaced if config.tokenized else tokenizers.target
        self._splitter = SentenceSplitter(loaded.source_language) if config.split_sentences else None
        self._glossary = Glossary.read(Path(config.glossary), config.tokenized) if config.glossary else None
        self._glossary_file = config.glossary

    def read(self, number: int, line: str | Request) -> TokenizedLine:
        """The line with this number, from 0.

        The prefix and the phrases of the request belong to its first piece, those of the glossary to the piece that
        contains the term. A phrase of both is required once. Raises UsageError for what is not a line.
        """
        request = line if isinstance(line, Request) else Request(line)
        if not isinstance(request.text, str):
            raise UsageError(f"line {number + 1}: {str(line)[:60]!r} is not a line; give text or a Request")
        prefix = self._target.tokenize(request.prefix) if request.prefix else []
        given = [self._target.tokenize(phrase) for phrase in request.phrases]
        encode, copying = self._loaded.target_vocabulary.encode, self._loaded.model.config.copy
        tokens, ids, phrases, pieces = list[str](), list[int](), list[Tokens](), list[Piece]()
        for sentence, text, part in self._parts(request.text):
            required = [*([] if pieces else given), *self._terms(text, [] if pieces else given)]
            own, copied = self._loaded.ids(part)[0], part if copying else ()
            pieces.append(
                Piece(
                    tuple(own),
                    prefix=() if pieces else tuple(encode(prefix, copied)),
                    phrases=tuple(tuple(encode(phrase, copied)) for phrase in required),
                    number=number,
                    part=len(pieces),
                    sentence=sentence,
                )
            )
            tokens.extend(part)
            ids.extend(number & WORD_BITS for number in own)
            phrases.extend(required)
        return TokenizedLine(request, tokens, ids, prefix, phrases, pieces)

    def _parts(self, line: str) -> Iterator[tuple[int, str, Tokens]]:
        """The number of the sentence, the text and the tokens of each piece of a line."""
        tokenizer = self._loaded.tokenizers.source
        for number, sentence in enumerate(self._splitter.split(line) if self._splitter else [line]):
            tokens = self._loaded.source_vocabulary.known_tokens(sentence, self._source.tokenize)
            if len(tokens) > self._limit:
                for part in cut(tokens, tokenizer.word_index(tokens), self._limit):
                    yield number, self._source.detokenize(tokens[part]), tokens[part]
            elif tokens:
                yield number, sentence, tokens

    def _terms(self, text: str, given: Sequence[Tokens]) -> list[Tokens]:
        """The target phrases that the glossary requires for a text, without those that are given."""
        if self._glossary is None:
            return []
        found = [self._target.tokenize(target) for target in self._glossary.targets(text)]
        counts = Counter(map(tuple, given))
        left = list[Tokens]()
        for phrase in found:
            if counts[tuple(phrase)]:
                counts[tuple(phrase)] -= 1
            else:
                left.append(phrase)
        return left

    def notices(self) -> list[str]:
        """What a user should know before the first line: at most one line about the glossary."""
        if self._glossary is None:
            return []
        if not self._glossary.terms:
            return [f"{self._glossary_file}: contains no term"]
        known, unknown = self._loaded.target_vocabulary, list[tuple[int, str]]()
        for term in self._glossary.terms.values():
            words = self._target.tokenize(term.target)
            missing = (word for word, number in zip(words, known.encode(words), strict=True) if number == UNK_ID)
            unknown += [(term.line, word) for word in islice(missing, 1)]
        if not unknown:
            return []
        line, word = min(unknown)
        return [
            f"{self._glossary_file}: {len(unknown):,} of {len(self._glossary.terms):,} translations have words that "
            f"the model does not know, first in line {line}: {word!r}; it can only guess where such a word belongs"
        ]
