"""From lines to pieces: requests become tokens, cut into the pieces that are searched, with the text they must contain.

A piece is a sentence, or a part of a long one. A translation must contain the prefix and the phrases of its request,
and the translations of the terms of a glossary.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.search.phrases import NO_PHRASES, Phrases, RequiredPhrase, Symbols, whole_characters
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.languages import WIDE_ENDS, has_no_spaces
from nmtalign.text.lines import whole_text
from nmtalign.text.sentences import SentenceSplitter
from nmtalign.text.tokenizer import BYTE_TOKENS, UNK_ID, WORD_START, Subwords, TextBytes, letters_of, normalized
from nmtalign.translating.glossary import GivenPhrase, Glossary, spelling

Tokens = Sequence[str]
_UNKNOWN = "\ufffd"  # the text of an unknown word, which no phrase contains
_BYTES = {token: bytes([byte]).decode("utf-8", "surrogateescape") for byte, token in enumerate(BYTE_TOKENS)}
_BYTES[WORD_START] = " "
_ENDS_OF_WORDS = frozenset(".!?;")  # these marks end a sentence only at the end of a word: not in 3.5
_WIDE_MARKS = ("…", *WIDE_ENDS)
_WIDE_ENDS = (*_WIDE_MARKS, *("".join(TextBytes().tokenize(mark)[1:]) for mark in _WIDE_MARKS))  # two or three bytes


@dataclass(frozen=True)
class Request:
    """A line to translate, and target text that its translation must contain.

    The translation begins with `prefix` and contains each of `phrases`. `extra` is passed on to the result unchanged;
    it contains the other keys of a JSON line.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Piece:
    """A line, or a part of it, as it is searched: source and copied ids without `</s>` (`pair_ids`), prefix, phrases.

    `number` is the number of the line in the complete input, `part` the number of the piece in its line. Samples depend
    only on these two, the seed and the text. `sentence` is the number of the sentence in its line.
    """

    source: tuple[int, ...]
    copies: tuple[int, ...] = ()  # of a copying model
    prefix: tuple[int, ...] = ()
    phrases: Phrases = NO_PHRASES
    number: int = 0
    part: int = 0
    sentence: int = 0


@dataclass(frozen=True)
class TokenizedLine:
    """A request with the tokens of its text, and the target text that its translation must contain."""

    request: Request
    tokens: Tokens
    prefix: Tokens  # begins the translation
    begin: Sequence[GivenPhrase]  # the text of the prefix, if it has one
    # For each phrase: the number of its sentence, and whether it begins with a capital at the start of a sentence.
    phrases: Sequence[tuple[int, GivenPhrase, bool]]
    pieces: Sequence[Piece]  # none for a blank line


class RequestReader:
    """Tokenises requests, and cuts them as the settings require."""

    def __init__(self, loaded: LoadedModel, config: TranslateConfig, glossary: Glossary | None) -> None:
        """Raises UsageError if the sentence splitter is missing."""
        self._loaded, self._config, self._words = loaded, config, loaded.target_vocabulary
        used = loaded.tokenizers.for_text(config.tokenized)
        self._source, self.target = used.source, used.target
        self._splitter = SentenceSplitter(loaded.source_language) if config.split_sentences else None
        self._glossary = glossary

    def read(self, number: int, line: str | Request) -> TokenizedLine:
        """The line with this number, from 0.

        The prefix and the phrases of the request belong to its first piece, those of the glossary to the piece that
        contains the term. The request decides how often a phrase of both is required.
        Raises UsageError for what is not a line.
        """
        request = line if isinstance(line, Request) else Request(line)
        listed = isinstance(request.phrases, list | tuple)
        texts = request.text, request.prefix or "", *(request.phrases if listed else ())
        if not (listed and all(isinstance(text, str) for text in texts)):
            rule = "give text or a Request of texts, its phrases in a list"
            raise UsageError(f"line {number + 1}: {str(line)[:60]!r} is not a line; {rule}")
        if (whole := list(map(whole_text, texts))) != [*texts]:
            request = replace(request, text=whole[0], prefix=whole[1], phrases=tuple(whole[2:]))
        prefix = self.target.tokenize(request.prefix) if request.prefix else []
        tokens, pieces = list[str](), list[Piece]()
        phrases = list[tuple[int, GivenPhrase, bool]]()
        for sentence, text, part, terms in self._parts(request.text):
            (own, _, copies), copied = self._loaded.ids(part), part if self._loaded.model.config.copy else ()
            first, required = () if pieces else prefix, NO_PHRASES
            given = () if pieces else request.phrases
            spellings = set(map(spelling, given))
            terms = [term for term in terms if spelling(term) not in spellings]
            if given or terms:
                of_request, of_terms = self._phrases(given, terms), self._phrases(terms, given)
                required = self._required([*of_request, *of_terms], first, copied)
                phrases += ((sentence, phrase, False) for phrase in of_request)
                capital = not next(filter(str.isalpha, text), "").islower()
                # A term that is not translated, such as `npm`, stays as it is.
                phrases += ((sentence, phrase, capital and phrase.text not in text) for phrase in of_terms)
            prefix_ids = tuple(self._words.encode(first, copied))
            pieces.append(Piece(tuple(own), tuple(copies), prefix_ids, required, number, len(pieces), sentence))
            tokens.extend(part)
        begin = self._phrases([request.prefix]) if request.prefix else []
        return TokenizedLine(request, tokens, prefix, begin, phrases, pieces)

    def _parts(self, line: str) -> Iterator[tuple[int, str, Tokens, list[str]]]:
        """For each piece of a line: the number of its sentence, its text, its tokens and the targets of its terms."""
        limit = self._config.max_source_length
        for number, sentence in enumerate(self._splitter.split(line) if self._splitter else [line]):
            tokens = self._loaded.source_vocabulary.known_tokens(sentence, self._source.tokenize)
            terms = self._glossary.targets(sentence) if self._glossary else []
            if len(tokens) <= limit:
                if tokens:
                    yield number, sentence, tokens, [target for _, target in terms]
                continue
            first, end, places = 0, 0, [place for place, _ in terms]
            parts = cut(tokens, self._source.starts_word, limit)
            for part in parts:
                text = self._source.detokenize(tokens[part])
                end += len("".join(spelling(text).split()))
                stop = len(terms) if part is parts[-1] else bisect_left(places, end)
                yield number, text, tokens[part], [target for _, target in terms[first:stop]]
                first = stop

    def _phrases(self, texts: Sequence[str], beside: Sequence[str] = ()) -> list[GivenPhrase]:
        """The phrases of one translation, which must also contain those `beside`."""
        spaced, every = self.target.kind == "spaced", (*texts, *beside)
        texts = [self.target.detokenize(self.target.tokenize(text)) if spaced else text for text in texts]
        plain = {text: self._plain(self._tokens(text)) for text in texts}
        language = self._loaded.target_language
        return [GivenPhrase.of(text, plain[text], every, language, spaced) for text in texts if plain[text].strip()]

    def _tokens(self, text: str) -> Tokens:
        """The tokens of a phrase, in the spelling with the fewest unknown tokens."""
        quotes = text, text.replace("’", "'"), text.replace("'", "’")
        spellings = (normalized(form, each) for each in quotes for form in ("NFC", "NFD"))
        every = map(self.target.tokenize, dict.fromkeys((text, *spellings)))
        return min(every, key=lambda tokens: len(self._unknown(tokens)))

    def _unknown(self, tokens: Tokens) -> list[str]:
        return [token for token in tokens if token not in self._words]

    def _text(self, token: str) -> str:
        """The text of a token with the space before it; the bytes of characters are escaped (see `Phrases`)."""
        if isinstance(self.target, TextBytes):
            return _BYTES.get(token, token)
        return token.replace(WORD_START, " ") if isinstance(self.target, Subwords) else f" {token}"

    def _plain(self, tokens: Tokens) -> str:
        """The text of tokens, before it is detokenised."""
        return whole_characters("".join(map(self._text, tokens)))

    def _required(self, phrases: Sequence[GivenPhrase], prefix: Tokens, source: Tokens) -> Phrases:
        """The phrases for the search, after a prefix; the tokens of the `source` can be copied."""
        unknown = dict[str, int]()

        def symbols(tokens: Tokens) -> Symbols:
            ids = zip(tokens, self._words.encode(tokens, source), strict=True)
            return tuple(unknown.setdefault(word, -1 - len(unknown)) if n == UNK_ID else n for word, n in ids)

        @cache
        def text_of(symbol: int) -> str:
            if symbol == UNK_ID:
                return _UNKNOWN
            return self._text(words[-1 - symbol] if symbol < 0 else self._words.decode([symbol], source)[0])

        required = [self._ways(phrase, symbols) for phrase in phrases]
        begin = symbols(prefix)
        words = [*unknown]
        return Phrases(required, text_of, words, begin)

    def _ways(self, phrase: GivenPhrase, symbols: Callable[[Tokens], Symbols]) -> RequiredPhrase:
        """The phrase with all ways to write it in symbols."""
        usual, capital = self._tokens(phrase.text), self._tokens(phrase.capital)
        # The search cannot distinguish unknown words; `GivenPhrase.written` restores the capital.
        as_known = set(self._unknown(capital)) <= set(self._unknown(usual))
        ways = [usual, capital] if as_known and phrase.pattern.search(self._plain(capital)) else [usual]
        unspaced = has_no_spaces(self._loaded.target_language)
        joined = [self._joined(usual)] if unspaced and isinstance(self.target, Subwords) else []
        each, behind = (tuple(dict.fromkeys(map(symbols, own))) for own in (ways, joined))
        return RequiredPhrase(phrase.pattern, 3 * max(len(self._plain(usual)), len(phrase.text)), each, behind)

    def _joined(self, tokens: Tokens) -> Tokens:
        """The tokens of a phrase without the space before it."""
        left, first = tokens[0].removeprefix(WORD_START), list[str]()
        while left:
            end = next((end for end in range(len(left), 1, -1) if left[:end] in self._words), 1)
            first.append(left[:end])
            left = left[end:]
        return [*first, *tokens[1:]] if tokens[0].startswith(WORD_START) else tokens

    def places(self, line: TokenizedLine, tokens: Tokens) -> set[int]:
        """The places of the words of a translation that belong to phrases of its line."""
        texts = list(map(self._text, tokens))
        text, starts = "".join(texts), list(accumulate(map(len, texts), initial=0))
        patterns = dict.fromkeys(phrase.pattern for _, phrase, _ in line.phrases)
        spans = (match.span() for pattern in patterns for match in pattern.finditer(text))
        return {at for first, end in spans for at in range(bisect_right(starts, first) - 1, bisect_left(starts, end))}

    def notices(self) -> list[str]:
        """What a user should know before the first line: at most one line about the glossary."""
        if self._glossary is None:
            return []
        if not self._glossary.terms:
            return [f"{self._config.glossary}: contains no term"]
        missing = ((term.line, self._unknown(self._tokens(term.target))) for term in self._glossary.terms.values())
        unknown = sorted((line, words[0]) for line, words in missing if words)
        return [
            f"{self._config.glossary}: {len(unknown):,} of {len(self._glossary.terms):,} translations have words that "
            f"the model does not know, first in line {line}: {word!r}; it can only guess where such a word belongs"
            for line, word in unknown[:1]
        ]


def cut(tokens: Tokens, starts_word: Callable[[str], bool], limit: int) -> list[slice]:
    """Cuts tokens into pieces of at most `limit`.

    A piece ends after the last sentence end in its second half, else after the last complete word, else at
    the limit, but not inside a letter: not inside its bytes, nor before its marks.
    """
    pieces, start = [], 0
    while len(tokens) - start > limit:
        stop = start + limit
        half = range(stop, start + limit // 2, -1)
        words = [place for place in half if starts_word(tokens[place])]
        ends = [place for place in words if tokens[place - 1].lstrip("▁") in _ENDS_OF_WORDS]
        ends += [place for place in half if "".join(tokens[max(0, place - 3) : place]).endswith(_WIDE_ENDS)]
        stop = max(ends, default=0) or min(words or half, key=partial(_inside, tokens))
        pieces.append(slice(start, stop))
        start = stop
    return [*pieces, slice(start, len(tokens))]


def _inside(tokens: Sequence[str], place: int) -> int:
    """2 for a place inside the bytes of a character (at most four), 1 between a letter and its marks, 0 for others."""
    before, here = (TextBytes().detokenize(tokens[max(0, start) : start + 4]) for start in (place - 4, place))
    return 2 if here.startswith("\ufffd") else int(before != "" and len(letters_of(before[-1:] + here[:1])) == 1)
