"""Requests become lines of tokens, in the pieces that are searched: sentences, and parts of long sentences."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.search.phrases import NO_PHRASES, Phrases, RequiredPhrase, Symbols, whole_characters
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.languages import count_unspaced, has_no_spaces
from nmtalign.text.sentences import SentenceSplitter
from nmtalign.text.tokenizer import BYTE_TOKENS, WORD_START, SpacedWords, Subwords, TextBytes, Tokenizer
from nmtalign.text.vocabulary import UNK_ID
from nmtalign.translating.glossary import GivenPhrase, Glossary, spelling
from nmtalign.translating.pieces import Piece, cut
from nmtalign.translating.translation import Request

Tokens = Sequence[str]
_UNKNOWN = "\ufffd"  # the text of an unknown word, which no phrase contains
_BYTES = {token: bytes([byte]).decode("utf-8", "surrogateescape") for byte, token in enumerate(BYTE_TOKENS)}
_BYTES[WORD_START] = " "


@dataclass(frozen=True)
class TokenizedLine:
    """A request with the tokens of its text, and the target text that its translation must contain."""

    request: Request
    tokens: Tokens
    ids: Sequence[int]
    prefix: Tokens  # begins the translation
    begin: Sequence[GivenPhrase]  # the text of the prefix, if it has one
    # For each phrase: the number of its sentence, and whether it begins with a capital at the start of a sentence.
    phrases: Sequence[tuple[int, GivenPhrase, bool]]
    pieces: Sequence[Piece]  # none for a blank line


class PhraseWriter:
    """Writes phrases with the tokeniser and the words of a model."""

    def __init__(self, tokenizer: Tokenizer, loaded: LoadedModel) -> None:
        self._tokenizer, self._vocabulary = tokenizer, loaded.target_vocabulary
        self._language = loaded.target_language

    def phrases(self, texts: Sequence[str], beside: Sequence[str] = ()) -> list[GivenPhrase]:
        """The phrases of one translation, which must also contain those `beside`."""
        spaced, every = self._tokenizer.kind == "spaced", (*texts, *beside)
        texts = [self._tokenizer.detokenize(self._tokenizer.tokenize(text)) if spaced else text for text in texts]
        plain = {text: self.plain(self.tokens(text)) for text in texts}
        return [
            GivenPhrase.of(text, every, self._language, spaced).found_in(plain[text])
            for text in texts
            if plain[text].strip()
        ]

    def tokens(self, text: str) -> Tokens:
        """The tokens of a phrase in the spelling of which the model knows most."""
        quotes = text, text.replace("’", "'"), text.replace("'", "’")
        spellings = (unicodedata.normalize(form, each) for each in quotes for form in ("NFC", "NFD"))
        every = map(self._tokenizer.tokenize, dict.fromkeys((text, *spellings)))
        return min(every, key=lambda tokens: len(self.unknown(tokens)))

    def unknown(self, tokens: Tokens) -> list[str]:
        """The tokens that the model does not know."""
        return [token for token in tokens if token not in self._vocabulary]

    def text(self, token: str) -> str:
        """The text of a token with the space before it; the bytes of characters are escaped (see `Phrases`)."""
        if isinstance(self._tokenizer, TextBytes):
            return _BYTES.get(token, token)
        return token.replace(WORD_START, " ") if isinstance(self._tokenizer, Subwords) else f" {token}"

    def plain(self, tokens: Tokens) -> str:
        """The text of tokens, before it is detokenised."""
        return whole_characters("".join(map(self.text, tokens)))

    def required(self, phrases: Sequence[GivenPhrase], prefix: Tokens, source: Tokens) -> Phrases:
        """The phrases for the search, after a prefix; the tokens of the `source` can be copied."""
        if not phrases:
            return NO_PHRASES
        unknown = dict[str, int]()

        def symbols(tokens: Tokens) -> Symbols:
            ids = zip(tokens, self._vocabulary.encode(tokens, source), strict=True)
            return tuple(unknown.setdefault(word, -1 - len(unknown)) if n == UNK_ID else n for word, n in ids)

        @cache
        def text_of(symbol: int) -> str:
            if symbol == UNK_ID:
                return _UNKNOWN
            return self.text(words[-1 - symbol] if symbol < 0 else self._vocabulary.decode([symbol], source)[0])

        required = [self._required(phrase, symbols) for phrase in phrases]
        begin = symbols(prefix)
        words = [*unknown]
        return Phrases(required, text_of, words, begin)

    def _required(self, phrase: GivenPhrase, symbols: Callable[[Tokens], Symbols]) -> RequiredPhrase:
        usual, capital = self.tokens(phrase.text), self.tokens(phrase.capital)
        text, pattern = self.plain(usual), phrase.pattern
        ways = [usual]
        if pattern.search(self.plain(capital)) and len(self.unknown(capital)) <= len(self.unknown(usual)):
            ways.append(capital)
        joined = list[Tokens]()
        unspaced = has_no_spaces(self._language) if self._language else count_unspaced(phrase.text[:1]) > 0
        if isinstance(self._tokenizer, Subwords) and unspaced:
            joined = [self._joined(usual)]
        each, behind = (tuple(dict.fromkeys(map(symbols, own))) for own in (ways, joined))
        return RequiredPhrase(pattern, 3 * max(len(text), len(phrase.text)), each, behind)

    def _joined(self, tokens: Tokens) -> Tokens:
        """The tokens of a phrase without the space before it."""
        left, first = tokens[0].removeprefix(WORD_START), list[str]()
        while left:
            ends = (end for end in range(len(left), 1, -1) if left[:end] in self._vocabulary)
            end = next(ends, 1)
            first.append(left[:end])
            left = left[end:]
        return [*first, *tokens[1:]] if tokens[0].startswith(WORD_START) else tokens


class RequestReader:
    """Tokenises requests, and cuts them as the settings require."""

    def __init__(self, loaded: LoadedModel, config: TranslateConfig) -> None:
        """Raises InputError for a glossary that cannot be read, UsageError if the sentence splitter is missing."""
        self._loaded, self._limit = loaded, config.max_source_length
        spaced, tokenizers = SpacedWords(), loaded.tokenizers
        self._source = spaced if config.tokenized else tokenizers.source
        self._target = spaced if config.tokenized else tokenizers.target
        self._writer = PhraseWriter(self._target, loaded)
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
        encode, copying = self._loaded.target_vocabulary.encode, self._loaded.model.config.copy
        tokens, ids, pieces = list[str](), list[int](), list[Piece]()
        phrases = list[tuple[int, GivenPhrase, bool]]()
        for sentence, text, part, found in self._parts(request.text):
            given = () if pieces else request.phrases
            terms = _without(found, given)
            required = self._writer.phrases(given, terms), self._writer.phrases(terms, given)
            (own, _, copies), copied = self._loaded.ids(part), part if copying else ()
            first = () if pieces else prefix
            pieces.append(
                Piece(
                    tuple(own),
                    tuple(copies),
                    prefix=tuple(encode(first, copied)),
                    phrases=self._writer.required([*required[0], *required[1]], first, copied),
                    number=number,
                    part=len(pieces),
                    sentence=sentence,
                )
            )
            tokens.extend(part)
            ids.extend(own)
            phrases += ((sentence, phrase, False) for phrase in required[0])
            capital = not next(filter(str.isalpha, text), "").islower()
            # A term that is not translated, such as `npm`, stays as it is.
            phrases += ((sentence, phrase, capital and phrase.text not in text) for phrase in required[1])
        begin = self._writer.phrases([request.prefix] if request.prefix else [])
        return TokenizedLine(request, tokens, ids, prefix, begin, phrases, pieces)

    def _parts(self, line: str) -> Iterator[tuple[int, str, Tokens, list[str]]]:
        """For each piece of a line: the number of its sentence, its text, its tokens and the targets of its terms."""
        tokenizer = self._loaded.tokenizers.source
        for number, sentence in enumerate(self._splitter.split(line) if self._splitter else [line]):
            tokens = self._loaded.source_vocabulary.known_tokens(sentence, self._source.tokenize)
            long = len(tokens) > self._limit
            parts = cut(tokens, tokenizer.word_index(tokens), self._limit) if long else [slice(None)] if tokens else []
            terms, start = self._glossary.targets(sentence) if self._glossary else [], 0
            for part in parts:
                text = self._source.detokenize(tokens[part]) if long else sentence
                end = start + len("".join(spelling(text).split()))
                last = part is parts[-1]
                own = [target for place, target in terms if start <= place and (place < end or last)]
                yield number, text, tokens[part], own
                start = end

    def places(self, line: TokenizedLine, tokens: Tokens) -> set[int]:
        """The places of the words of a translation that belong to phrases of its line."""
        starts = [*accumulate(map(len, map(self._writer.text, tokens)), initial=0)]
        text = "".join(map(self._writer.text, tokens))
        found = [match.span() for _, phrase, _ in line.phrases for match in phrase.pattern.finditer(text)]
        places = enumerate(pairwise(starts))
        return {place for place, (start, stop) in places if any(start < end and first < stop for first, end in found)}

    def notices(self) -> list[str]:
        """What a user should know before the first line: at most one line about the glossary."""
        if self._glossary is None:
            return []
        if not self._glossary.terms:
            return [f"{self._glossary_file}: contains no term"]
        unknown = list[tuple[int, str]]()
        for term in self._glossary.terms.values():
            missing = self._writer.unknown(self._writer.tokens(term.target))
            unknown += [(term.line, word) for word in missing[:1]]
        if not unknown:
            return []
        line, word = min(unknown)
        return [
            f"{self._glossary_file}: {len(unknown):,} of {len(self._glossary.terms):,} translations have words that "
            f"the model does not know, first in line {line}: {word!r}; it can only guess where such a word belongs"
        ]


def _without(terms: Sequence[str], given: Sequence[str]) -> list[str]:
    """The phrases of terms without those that the request gives."""
    left, counts = list[str](), Counter(map(spelling, given))
    for phrase in terms:
        counts[spelling(phrase)] -= 1
        if counts[spelling(phrase)] < 0:
            left.append(phrase)
    return left
