"""Tokenisers and vocabularies: raw text to tokens, tokens to ids, and back. Lexicons of words and their translations.

The tokens are Moses words, sentencepiece pieces, bytes, or words between spaces.

Moses words are those of sacremoses without XML escapes, found faster. Back to text, they get the spacing of a language
and of a training text. Each token of a line has a role: a word, a number, a mark, or a mark in one of its uses. The
role of a mark is the mark itself, unless its use depends on the tokens around it: quotation marks, apostrophes,
parentheses, colons between numbers, degrees. Two wishes decide about each gap: one of the role of the token before it,
one of the role of the token behind it. No space wins over a space, and a no-break space over a plain one. A training
text can overrule the wish of a role ("any ;", "« any") or of a pair of roles ("a –"); `tokenizer.json` contains these.

An apostrophe or a straight quotation mark between two words may have a separate spacing with certain words: the role of
the apostrophe of Maltese "ta' Malta" is "=both'←ta", that of Dutch "Anna 's avonds" is "=both'→s→avonds". A role
without a learned spacing has that of its shorter name: "=both'", then "=both".
"""

import heapq
import json
import math
import re
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import Any, Literal, Self

import regex

from nmtalign import files
from nmtalign.errors import FormatError, InputError
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.lines import BLANK, read_lines

Tokens = tuple[str, ...]
SPACES = ("", " ", "\u00a0", "\u202f")
Counts = Counter[tuple[str, str, str]]  # role before the gap, role behind it, text of the gap

CACHED = 1 << 17  # words whose tokens are kept, and different strings of these tokens
JUNK = re.compile(r"[\x00-\x08\x0e-\x1b]")  # sacremoses removes these from the middle of words
_SYMBOL = "☺"  # always a separate token
_FULL_STOPS = (".", "'")  # after these endings the tokens of a word depend on the next word
_END = "$"  # the context of the last word of a line
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
_FREQUENT = 1000  # pieces, the first of a model, which tell whether its text had spaces between words
_BYTES_PER_TOKEN = 10  # a word between spaces has about 6 bytes with its space in English, 7 in German, 13 in Russian

# Han, kana, bopomofo, Thai, Lao, Tibetan, Burmese and Khmer letters: scripts that do not write spaces between words.
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u312f\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
# A letter and what belongs to it, such as marks; marks without a letter before them belong to the one behind them.
# `\X` leaves out some vowel signs of Burmese, and takes the square of the time for flags, so these are before it.
CLUSTER = r"(?:[\U0001f1e6-\U0001f1ff]{2}[\p{GCB=EX}\p{GCB=ZWJ}\p{GCB=SM}]*|\X)"
_MARKED = regex.compile(r"\P{M}*\p{M}{0,30}")  # no language has more marks in a row
_LETTER = regex.compile(rf"(?:\A[\p{{M}}\u200c\u200d]+)?({CLUSTER})\p{{M}}*")


def letters_of(word: str) -> list[str]:
    """Splits a word into letters as Unicode defines them, each with its marks; a flag or a Korean syllable is one."""
    return [match[0] for match in _LETTER.finditer(word)]


def bare(word: str) -> str:
    """The word with one character for each of its letters, without what belongs to them."""
    return word if word.isascii() else "".join(match[1][0] for match in _LETTER.finditer(word))


def normalized(form: Literal["NFC", "NFD"], text: str) -> str:
    """The text in a normal form; of a long row of marks, which Python sorts in quadratic time, parts are sorted."""
    parts = _MARKED.findall(text) if len(text) > 1000 else [text]
    return "".join([unicodedata.normalize(form, part) for part in parts])


def blanks_to_spaces(line: str) -> str:
    """Replaces each run of ASCII blanks by one space."""
    return _BLANKS.sub(" ", line) if _UNEVEN.search(line) else line


# One string object for each token. `sys.intern` is not used: from Python 3.12 on, it may keep a string for ever.
_strings: dict[str, str] = {}


class TokenCache(dict[str, Tokens]):
    """The tokens of each text that was looked up, which a function finds; a full cache is emptied.

    Equal tokens become the same string object, which saves memory and makes them faster to count.
    """

    def __init__(self, find: Callable[[str], Iterable[str]]) -> None:
        self._find = find

    def __missing__(self, text: str) -> Tokens:
        if len(self) >= CACHED:
            self.clear()
        if len(_strings) >= CACHED:
            _strings.clear()
        kept = self[text] = tuple(_strings.setdefault(token, token) for token in self._find(text))
        return kept


class Tokenizer(ABC):
    """A tokeniser whose tokens, which contain neither spaces nor `\\n`, are words unless a subclass says otherwise."""

    kind: str  # the name of the tokeniser in tokenizer.json
    unspaced = False  # whether its text has no spaces between words

    @abstractmethod
    def tokenize(self, line: str) -> list[str]:
        """The tokens of one line of text."""

    def rules(self) -> dict[str, Any]:
        """All that another program needs to tokenise alike, as JSON."""
        return {"kind": self.kind}

    def detokenize(self, tokens: Sequence[str]) -> str:
        """One line of text: the words with one space between them."""
        return " ".join(tokens)

    def starts_word(self, token: str) -> bool:
        """Whether a word starts with this token wherever it is; the first token of a line always starts one."""
        return True

    def word_starts(self, tokens: Sequence[str]) -> list[int] | None:
        """The first token of each word, and the place behind the last token; None if each token is a word."""
        starts = [place for place, token in enumerate(tokens) if place == 0 or self.starts_word(token)]
        return [*starts, len(tokens)] if len(starts) < len(tokens) else None

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The words that consist of these tokens, in their order."""
        return list(tokens)


class SpacedWords(Tokenizer):
    """Words between blanks, for text that is already tokenised."""

    kind = "spaced"

    def tokenize(self, line: str) -> list[str]:
        return [word for word in _BLANKS.split(line) if word]


class Subwords(Tokenizer):
    """A tokeniser whose tokens are parts of words; a token that starts with "▁" starts a word.

    In text without spaces between words (`unspaced`), each token is a word.
    """

    @abstractmethod
    def pieces(self) -> Sequence[str]:
        """All tokens of the tokeniser, without the unknown one."""

    def starts_word(self, token: str) -> bool:
        """Whether it has a "▁", or its script has no spaces."""
        return self.unspaced or token.startswith(WORD_START)

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The text of each word, without the "▁" before it, which may also be a word."""
        starts = self.word_starts(tokens) or range(len(tokens) + 1)
        return [self.detokenize(tokens[start:stop]) or WORD_START for start, stop in pairwise(starts)]


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
            self._numbers = [one for one in range(len(self._processor)) if not self._processor.is_unknown(one)]
            frequent = self.pieces()[:_FREQUENT]  # raises ValueError for a piece that is not UTF-8
        except (RuntimeError, ValueError, OSError):
            raise FormatError("not a sentencepiece model") from None
        # The share is less than a fifth in most texts without spaces, a quarter if their sentences are short, and
        # nearly half in segmented text, because rare letters are pieces, too.
        starting = sum(piece.startswith(WORD_START) for piece in frequent)
        letters = sum(UNSPACED_LETTER.search(piece) is not None for piece in frequent)
        self.unspaced = 2 * letters > len(frequent) > 3 * starting
        self._words = TokenCache(partial(self._processor.encode, out_type=str)) if self._is_word_by_word() else None

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieces, (self.model,)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a model file. Raises FormatError naming the file."""
        try:
            return cls(files.read_regular(path))
        except OSError as error:
            raise FormatError(f"{path}: cannot read the sentencepiece model: {error.strerror}") from None
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    def rules(self) -> dict[str, Any]:
        """The pieces in the order of their merges; for a model that sums scores instead, also the scores."""
        rules: dict[str, Any] = {"kind": self.kind, "pieces": self.pieces()}
        if self._words is None:
            rules["scores"] = list(map(self._processor.get_score, self._numbers))
        return rules

    def pieces(self) -> list[str]:
        """The pieces of the model in the order of their ranks, without the unknown one."""
        return list(map(self._processor.id_to_piece, self._numbers))

    def tokenize(self, line: str) -> list[str]:
        """The pieces; a character that the model does not know is a piece itself."""
        line = blanks_to_spaces(line)
        if self._words is None or WORD_START in line:
            pieces: list[str] = self._processor.encode(line, out_type=str)
            return pieces
        words = line.strip(" ")
        return list(chain.from_iterable(map(self._words.__getitem__, words.split(" ")))) if words else []

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The joined pieces, with a space for each "▁"."""
        return "".join(tokens).replace(WORD_START, " ").strip(" ")

    def _is_word_by_word(self) -> bool:
        """Whether the pieces of a word never depend on its neighbours, so that they can be cached.

        This is the case if the model merges pairs by rank (bpe: its scores are 0, -1, -2, ...), no piece contains a
        space inside, and the space is a piece. A unigram model sums rounded scores over the complete line.
        """
        return (
            self._processor.piece_to_id(WORD_START) in self._numbers
            and all(self._processor.get_score(number) == -rank for rank, number in enumerate(self._numbers))
            and not any(WORD_START in piece[1:] for piece in self.pieces())
        )


class MosesWords(Tokenizer):
    """The words of a language ("en", "fr", ...) by the rules of Moses, or by those for English if it has none.

    `spacing` contains the learned exceptions from the rules of detokenising (see Spacing).
    """

    kind = "moses"

    def __init__(self, language: str, spacing: Mapping[str, str] | None = None) -> None:
        self.language, self.spacing = language, Spacing(language, spacing)

    @cached_property
    def _words(self) -> "_TokensOfWords":
        """Created for the first line, because the import of sacremoses takes a third of a second."""
        return _TokensOfWords(self.language)

    def __reduce__(self) -> tuple[Any, ...]:
        return MosesWords, (self.language, self.spacing.learned)

    def tokenize(self, line: str) -> list[str]:
        """The words and punctuation marks of one line: those of sacremoses, with the marks of letters at their letters.

        The rules inspect one word between blanks and the first character behind it, so the tokens of a word can be
        cached. sacremoses tokenises the complete line if they may inspect more.
        """
        words = line.split()
        if not words:
            return []
        if "  " in line or not line.isprintable():
            if JUNK.search(line):
                return self._words.of_line(line)
            line = " ".join(words)
        if words[0][0] in ",'" or "' '" in line:
            return self._words.of_line(line)
        last = f"{words.pop()} {_END}"
        if ". " in line or "' " in line:
            words = self._words.with_context(words, [*words, last][1:])
        words.append(last)
        return list(chain.from_iterable(map(self._words.__getitem__, words)))

    def rules(self) -> dict[str, Any]:
        """The language, its abbreviations, and sacremoses's classes of characters as ranges of code points."""
        moses = self._words.tokenizer
        ranges = {"letters": moses.IsAlnum, "alphabetic": moses.IsAlpha, "lower": moses.IsLower, "numbers": moses.IsN}
        rules = {"kind": self.kind, "language": self.language}
        prefixes = {"prefixes": sorted(moses.NONBREAKING_PREFIXES), "numeric": sorted(moses.NUMERIC_ONLY_PREFIXES)}
        return {**rules, **prefixes, **{name: _code_points(characters) for name, characters in ranges.items()}}

    def detokenize(self, tokens: Sequence[str]) -> str:
        return self.spacing.join(tokens)


def _code_points(characters: str) -> list[tuple[int, int]]:
    """The first and the last code point of each run of characters."""
    numbers = sorted(set(map(ord, characters)))
    firsts = [number for before, number in pairwise([-2, *numbers]) if number != before + 1]
    lasts = [number for number, after in pairwise([*numbers, -1]) if after != number + 1]
    return list(zip(firsts, lasts, strict=True))


def has_rules(language: str) -> bool:
    """Whether Moses has rules for the language; if not, MosesWords uses those for English."""
    languages: Mapping[str, str] = _sacremoses().corpus.NonbreakingPrefixes().available_langs
    return language in languages.values()


def _sacremoses() -> Any:
    """Imports sacremoses without the warning of its joblib on a system that has no semaphores, or no room for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sacremoses
        import sacremoses.corpus
    return sacremoses


class _TokensOfWords(TokenCache):
    """sacremoses, and the tokens of single words, by the word or by "word context".

    The context of a word that ends with a full stop is the class of the first character of the next word: "a" for a
    lower-case letter, "0" for a digit, "A" for anything else. The context of the last word of a line is "$".
    """

    def __init__(self, language: str) -> None:
        self.tokenizer = tokenizer = _sacremoses().MosesTokenizer(lang=language)
        # sacremoses builds the sets of all lower-case and all alphabetic characters again for each word with a full
        # stop. With these sets its output is the same.
        self._lower, alphabetic = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
        tokenizer.islower = self._lower.issuperset
        tokenizer.isanyalpha = lambda text: not alphabetic.isdisjoint(text)
        tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
        tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
        self._prefixes = tokenizer.NONBREAKING_PREFIXES | tokenizer.NUMERIC_ONLY_PREFIXES
        self._known = frozenset(tokenizer.IsAlnum)
        ranges = "".join(f"{chr(first)}-{chr(last)}" for first, last in _code_points(tokenizer.IsAlnum))
        letters = rf"[{ranges}`\-]+"  # to compile a class of single characters takes ten times as long
        self._letters = re.compile(letters)
        self._plain = re.compile(rf"\.?{letters}(?:\.{letters})*")

    def _find(self, key: str) -> Iterable[str]:
        """The tokens of a word.

        The rules never split letters, digits and single full stops between them. They split off a comma behind them,
        and a full stop behind letters unless the letters are an abbreviation or the next word starts in lower case.
        """
        word, _, context = key.partition(" ")
        core, mark = word[:-1], word[-1]
        if "MULTI" not in word:  # sacremoses uses DOTDOTMULTI internally for dots
            if self._plain.fullmatch(word):
                return [word]
            if mark == "," and self._plain.fullmatch(core):
                return [core, mark]
            if mark == "." and core not in self._prefixes and self._letters.fullmatch(core):
                return [word] if context == "a" else [core, mark]
        if tokens := self._with_marks(key, self.__getitem__):
            return tokens
        pad, padded = self.tokenizer.PAD_NOT_ISALNUM
        parts = str(pad.sub(padded, word)).split()  # at the characters that are always separate tokens
        if context == _END:
            return self.of_line(f"x {word}")[1:]
        if len(parts) > 1:
            last = f"{parts[-1]} {context}" if context else parts[-1]
            return chain.from_iterable(map(self.__getitem__, [*self.with_context(parts[:-1], parts[1:]), last]))
        return self.of_line(f"x {word} {context or 'A'}")[1:-1]

    def of_line(self, line: str) -> list[str]:
        tokens = self._with_marks(JUNK.sub("", " ".join(line.split())), self.of_line)
        return list(self.tokenizer.tokenize(line, escape=False)) if tokens is None else tokens

    def with_context(self, words: Sequence[str], following: Sequence[str]) -> list[str]:
        """The words; those that end with a full stop are followed by a space and their context."""
        return [
            f"{word} {self._context(after[0])}" if word.endswith(_FULL_STOPS) else word
            for word, after in zip(words, following, strict=True)
        ]

    def _context(self, first: str) -> str:
        return "a" if first in self._lower else "0" if "0" <= first <= "9" else "A"

    def _with_marks(self, text: str, tokens_of: Callable[[str], Iterable[str]]) -> list[str] | None:
        """The tokens of a text with marks that sacremoses would split off; None for a text without such marks.

        They are the tokens of the text with one character for each letter, in which the letters are put back.
        """
        if text.isascii():
            return None
        letters = [letter for word in text.split(" ") for letter in (*letters_of(word), " ")]
        if all(len(letter) == 1 or self._known.issuperset(letter) for letter in letters):
            return None
        tokens = tokens_of("".join(map(_character_for, letters)).rstrip(" "))
        left = filter(" ".__ne__, letters)
        return [joined for token in tokens if (joined := "".join(islice(left, len(token))))]


def _character_for(letter: str) -> str:
    """A character that sacremoses treats as it would treat a letter with its marks, if it knew them."""
    if len(letter) == 1:
        return letter
    first = bare(normalized("NFC", letter))[0]
    return _SYMBOL if unicodedata.category(first)[0] in "MS" else first


WORD, NUMBER, GROUP, CJK = "a", "0", "000", "漢"  # GROUP: three digits, which may follow a number and a space
CONTRACTION, ELISION = "'s", "l'"  # English; French, Italian, Irish
JOIN, LEFT, RIGHT = "=both", "=left", "=right"  # attached to both neighbours, to the left one, to the right one
_CLOSERS = frozenset(".,;:!?)]}»”…،؛؟۔।॥։") | {"", "..."}  # marks that follow a word, and the end of the line

_GROUP = re.compile(r"\d{3}(?:[.,]\d+)?")
_ENUMERATOR = re.compile(r"(?:\d{1,3}|([a-z])\1{0,2}|[A-Z]|[ivxlc]{1,6}|[IVXLC]{1,6})(?:\.\d+)?")
_TERM = re.compile(r"\w|[\d.,]+")  # of a sum: `x + 1`
_CUT_OFF = {"it": "po"}  # `un po' di`
_SUFFIXES = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
_SPLIT_AT_APOSTROPHES = frozenset(("en", "fr", "it"))  # Moses attaches the apostrophe to one part
_KINDS = {mark: kind for kind in ('"', "'", "„“”", "«»", "‚‘’") for mark in kind}  # quotation marks
_LOW_QUOTES = frozenset(("bg", "cs", "de", "et", "is", "lt", "mk", "sk", "sl"))  # languages that write „so“ and ‚so‘

_JOINED = (JOIN, *"/_@\\", "0:0", "0′N")  # no space on either side
_BEHIND_WORDS = ("0(", ")(", "f(")  # parentheses that follow a word, a number or a parenthesis without a space
_CLOSING = (LEFT, CONTRACTION, '")', *",.;:!?%)]}”»…™®،؛؟۔।॥։", "...", ")a)", "0′", "n°", *_BEHIND_WORDS)
_OPENING = (RIGHT, ELISION, '"(', *"([{“‘«„‚¿¡#~", "°C", ")a)", *_BEHIND_WORDS)
_PAIRS = (("!", "!"), ("?", "?"), ("!", "?"), ("?", "!"), ("0′", NUMBER), ("0′", GROUP))
_LONGEST_NAMES = 4, 2  # letters of a word behind an apostrophe that names its role, alone and with the next word
_AMBIGUOUS = frozenset("'’\"׳״´")
_EVIDENCE = 20  # smallest number of gaps between two roles from which their spacing is learned
_MAJORITY, _BEFORE_WORD = 0.6, 0.9  # smallest share of these gaps that are alike, and if a name has a word behind it
_ANY = "any"
_PLAIN = frozenset((WORD, NUMBER, GROUP))


class Spacing:
    """Joins the tokens of a language to text. `learned` is the result of `learn` on text of the same kind."""

    def __init__(self, language: str, learned: Mapping[str, str] | None = None) -> None:
        self.language, self.learned = language, dict(learned or {})
        self._gaps = _Gaps(language, self.learned)
        self._names = frozenset(chain.from_iterable(map(str.split, self.learned)))

    def join(self, tokens: Sequence[str]) -> str:
        words = " ".join(tokens).split()
        if not words:
            return ""
        gaps = map(self._gaps.__getitem__, pairwise(_roles(words, self.language, self._names)))
        return words[0] + "".join(chain.from_iterable(zip(gaps, words[1:], strict=True)))

    def count(self, line: str, tokens: Sequence[str], counts: Counts) -> None:
        """Adds the gaps between the tokens of a line, except those between two words."""
        end, before, names_before = 0, "", list[str]()
        roles = _roles(list(tokens), self.language)
        line_of_tokens = None if _AMBIGUOUS.isdisjoint(tokens) else _LineOfTokens(list(tokens), roles, self.language)
        for place, (token, role) in enumerate(zip(tokens, roles, strict=True)):
            start = line.find(token, end)
            if start < 0:  # the tokeniser removed characters from the middle of a word
                return
            names = line_of_tokens.names(place) if line_of_tokens else []
            if before and not (role == WORD == before):
                for pair in ((before, role), *((one, role) for one in names_before), *((before, one) for one in names)):
                    counts[*pair, line[end:start]] += 1
            end, before, names_before = start + len(token), role, names

    def learn(self, counts: Counts) -> dict[str, str]:
        """The spacings in which a text deviates from the rules, by "role role" (see the module)."""
        learned: dict[str, str] = {}
        sides, pairs = _tallies(counts)
        levels = [list(level) for _, level in groupby(sorted(sides.items(), key=_depth), _depth)]
        for tallies in (*levels, pairs.items()):  # a longer name or a pair is learned only if it deviates
            rules = _Gaps(self.language, learned)
            for (before, after), tally in sorted(tallies):
                pair = (WORD if before == _ANY else before), (WORD if after == _ANY else after)
                usual, share = _usual(tally), _BEFORE_WORD if "→" in before + after else _MAJORITY
                if tally.total() >= _EVIDENCE and tally[usual] >= share * tally.total() and usual != rules[pair]:
                    learned[f"{before} {after}"] = usual
        return learned


class _Gaps(dict[tuple[str, str], str]):
    """The text between two roles."""

    def __init__(self, language: str, learned: Mapping[str, str]) -> None:
        self._before = dict.fromkeys((*_JOINED, *_CLOSING), "")  # the wish of a role for the gap before it
        self._after = dict.fromkeys((*_JOINED, *_OPENING), "")
        if language == "fr":
            self._before |= dict.fromkeys(":;!?%»", " ")
            self._after["«"] = " "
        if language == "en":
            self._before["°C"] = self._after["$"] = ""
        for key, gap in learned.items():
            before, _, after = key.partition(" ")
            if after == _ANY:
                self._after[before] = gap
            elif before == _ANY:
                self._before[after] = gap
            else:
                self[before, after] = gap
        if language != "ko":
            self.setdefault((CJK, CJK), "")
        for pair in _PAIRS:
            self.setdefault(pair, "")

    def __missing__(self, pair: tuple[str, str]) -> str:
        wishes = zip((self._after, self._before), pair, strict=True)
        before, after = (next((of[name] for name in _names(role) if name in of), " ") for of, role in wishes)
        gap = self[pair] = "" if "" in (before, after) else max(before, after)
        return gap


def _names(role: str) -> Iterator[str]:
    """The role and its shorter names, the longest first."""
    yield role
    if (last := max(role.rfind("←"), role.rfind("→"))) > 0:
        yield from _names(role[:last])
    elif role[0] in _KINDS and role[1:] in ("(", ")"):
        yield f'"{role[1]}'
    else:
        yield from (name for name in (JOIN, LEFT, RIGHT) if role.startswith(name))


def _depth(side: tuple[tuple[str, str], object]) -> int:
    """The number of names of the mark of a side."""
    return max(len(list(_names(role))) for role in side[0])


_Tallies = dict[tuple[str, str], Counter[str]]


def _tallies(counts: Counts) -> tuple[_Tallies, _Tallies]:
    """How often each gap is between a mark and any word or number beside it, and between any two roles."""
    sides: _Tallies = defaultdict(Counter)
    pairs: _Tallies = defaultdict(Counter)
    for (before, after, text), count in counts.items():
        gap = text if text in SPACES else " "
        pairs[before, after][gap] += count
        if before in _PLAIN and after not in _PLAIN:
            sides[_ANY, after][gap] += count
        elif after in _PLAIN and before not in _PLAIN:
            sides[before, _ANY][gap] += count
    return sides, pairs


def _usual(tally: Counter[str]) -> str:
    """No space if most gaps have none, else the most frequent kind of space."""
    spaces = [(tally[space], -place, space) for place, space in enumerate(SPACES) if space]
    return "" if 2 * tally[""] > tally.total() else max(spaces)[2]


@lru_cache(CACHED)
def _role_by_itself(token: str) -> str:
    from sacremoses.util import is_cjk

    token = bare(token)
    if len(token) > 1:
        if token[0].isdecimal() or (token[0] in "-+.," and token[1].isdecimal()):
            return GROUP if _GROUP.fullmatch(token) else NUMBER
        if token[0] == "'" and token[1].isalpha():
            return CONTRACTION
        if token[-1] == "'" and token[-2].isalpha():
            return ELISION
        if not token.strip("."):
            return "..."
        return CJK if is_cjk(token[0]) and is_cjk(token[-1]) else WORD
    category = unicodedata.category(token)
    if category == "Nd":
        return NUMBER
    if is_cjk(token) or "\uff01" <= token <= "\uff60":
        return CJK
    if category in ("No", "Mn", "Me"):
        return LEFT + token  # superscripts, fractions, accents
    if category == "Cf" or token in ("\u2010", "\u2011", "·"):
        return JOIN + token  # joiners, soft hyphens, hyphens and the middle dot occur inside words
    if category == "Sc":
        return "$"
    return token if category[0] in "PS" else WORD


def _roles(tokens: list[str], language: str, names: Collection[str] = ()) -> list[str]:
    """The role of each token of a line; `names` are the names of roles whose spacing was learned."""
    roles = list(map(_role_by_itself, tokens))
    return roles if _USES.keys().isdisjoint(roles) else _LineOfTokens(tokens, roles, language).with_uses(names)


class _LineOfTokens:
    """Finds the roles of the tokens of a line in context, from left to right."""

    def __init__(self, tokens: list[str], roles: list[str], language: str) -> None:
        self.tokens, self.roles, self.language = tokens, roles, language
        self._opened: dict[str, str] = {}  # the mark that opened a quotation, by its kind
        self._left = Counter(roles)  # those behind the last quotation mark
        if tokens[0].startswith("'") and len(tokens[0]) > 1:
            self._opened["'"] = "'"
        self._parentheses: list[bool] = []  # for each open one: whether it is around a number or a letter
        self._numbered = False  # the same for the last closed one

    def with_uses(self, names: Collection[str]) -> list[str]:
        for place, role in enumerate(list(self.roles)):
            if (use := _USES.get(role)) is not None:
                found = use(self, place)
                self.roles[place] = found + role if found in (JOIN, LEFT, RIGHT) else found
                if names:
                    self.roles[place] = next(filter(names.__contains__, self.names(place)), self.roles[place])
        return self.roles

    def names(self, place: int) -> list[str]:
        """The names of the role of an apostrophe or a straight quotation mark beside a word, the longest first."""
        if self.tokens[place] not in _AMBIGUOUS:
            return []
        role, left, right, last = self.roles[place], *map(self._name, (place - 1, place + 1, place + 2))
        alone, with_next = (0 < len(right) <= longest for longest in _LONGEST_NAMES)
        names = [f"{role}→{right}→{last}"] if with_next and last else []
        return names + [f"{role}←{left}"] * bool(left) + [f"{role}→{right}"] * alone

    def _name(self, place: int) -> str:
        return "" if not self._is_word(place) else NUMBER if self.is_number(place) else self.token(place).lower()

    def token(self, place: int) -> str:
        return self.tokens[place] if 0 <= place < len(self.tokens) else ""

    def _is(self, place: int, *roles: str) -> bool:
        return 0 <= place < len(self.roles) and self.roles[place] in roles

    def _is_word(self, place: int) -> bool:
        return self._is(place, WORD, NUMBER, GROUP, ELISION, CJK)

    def is_number(self, place: int) -> bool:
        return self._is(place, NUMBER, GROUP)

    def _open(self, i: int) -> str:
        mark = self._opened[_KINDS[self.roles[i]]] = self.roles[i]
        return mark if mark in _OPENING else f"{mark}("

    def _close(self, i: int) -> str:
        mark, after = self.roles[i], self.token(i + 1)
        self._opened.pop(_KINDS[mark], None)
        if after[:1] == "-" and after[1:].isalpha():
            return JOIN  # German `„Hallo“-Ruf`
        return mark if mark in _CLOSING else f"{mark})"

    def quotation_mark(self, i: int) -> str:
        """Closes what a mark of its kind opened: „so“, “so”, «so», »so«, ”so”, "so".

        Else it is used as usual, but opens if it begins the line or an odd number of its kind follows, and closes if it
        cannot open, or if the language writes „so“ and the quotation began in another line.
        """
        mark, before, after = self.roles[i], self.token(i - 1), self.token(i + 1)
        kind, usual, opened = _KINDS[mark], mark in _OPENING, self._opened.get(_KINDS[mark])
        self._left[mark] -= 1
        if opened and mark not in "„‚" and not (usual and mark == opened and self._left[kind[-1]]):
            return self._close(i)
        if usual:
            ends = not after or (self.language in _LOW_QUOTES and mark in "“‘" and not self._left[kind[-1]])
            return self._close(i) if i and ends and mark not in "„‚" else self._open(i)
        ends = self.is_number(i - 1) or after in _CLOSERS or (before in ",." and after[0].islower())  # 7"
        odd = sum(map(self._left.__getitem__, kind)) % 2
        return self._open(i) if not i or odd or not (ends or mark in _CLOSING) else self._close(i)

    def single_quote(self, i: int) -> str:
        """An apostrophe, feet (`6'`) or a quotation mark; a pair of marks ends what `` begins."""
        before, after = (normalized("NFC", self.token(place)) for place in (i - 1, i + 1))
        self._left["'"] -= 1
        if "'" in (before, after) or before.startswith("`"):
            return LEFT
        if "'" in self._opened:
            return self._close(i)
        if self.token(i + 2) == "'":
            return self._open(i)
        last = not self._left["'"] and not self.tokens[-1].endswith("'")
        short = before.isalpha() and after.isalpha() and min(len(before), len(after)) <= 2
        inside = short or (last and self._is_word(i - 1) and self._is_word(i + 1)) or after[:1] in ("я", "ю", "є", "ї")
        if inside and self.language not in _SPLIT_AT_APOSTROPHES:
            return JOIN  # German `geht's`
        cut_off = before.lower().endswith("s") if self.language == "en" else self.language == "it" and before.isalpha()
        ends = last and (cut_off or (before in (",", ".") and after.isalpha()))
        if i and (ends or self.is_number(i - 1) or after in _CLOSERS or before.lower() == _CUT_OFF.get(self.language)):
            return LEFT
        return self._open(i)

    def curly_apostrophe(self, i: int) -> str:
        """The mark is both the apostrophe and the end of a single quotation."""
        before, after = self.token(i - 1).lower(), self.token(i + 1).lower()
        suffix = self._is_word(i - 1) and after in _SUFFIXES
        if "‚‘’" in self._opened and not suffix and (len(before) > 2 or self._is(i - 2, "‘", "‚")):
            return self._close(i)
        cut_off = (before.endswith(("s", "x")) and len(before) > 1) or before == _CUT_OFF.get(self.language)
        inside = self._is_word(i - 1) and self._is_word(i + 1) and not cut_off
        return JOIN if suffix or inside else LEFT if i else RIGHT

    def open_parenthesis(self, i: int) -> str:
        """Function calls `f()` and numbered sections `83(1)(b)`; other parentheses follow a space."""
        inner, alone = self.token(i + 1), self.token(i + 2) == ")"
        numbered = alone and _ENUMERATOR.fullmatch(inner) is not None
        self._parentheses.append(numbered)
        if self._is_word(i - 1) and inner == ")":
            return "f("
        if numbered and self.is_number(i - 1) and not self._is(i - 2, RIGHT + "+"):
            return "0("
        return ")(" if numbered and self.token(i - 1) == ")" and self._numbered else "("

    def close_parenthesis(self, i: int) -> str:
        """Numbered sections continue without a space: `83(1)b)`, `a)(i)`."""
        self._numbered = self._parentheses.pop() if self._parentheses else True
        another = self._numbered and self.token(i + 2) == ")" and _ENUMERATOR.fullmatch(self.token(i + 1))
        return ")a)" if another else ")"

    def degree(self, i: int) -> str:
        """Degrees, minutes and seconds: `48°25′N`, `20 °C`, `n° 5`."""
        after = self.token(i + 1).rstrip(".")
        if self.tokens[i] == "°" and after in ("C", "F"):
            return "°C"
        if self.is_number(i - 1):
            return "0′N" if len(after) == 1 and after in "NSEWO" else "0′"
        return "n°" if self.tokens[i] == "°" and self.token(i - 1) in ("n", "N") else self.tokens[i]


_USES: dict[str, Callable[[_LineOfTokens, int], str]] = {
    **dict.fromkeys('"“”„«»‘‚', _LineOfTokens.quotation_mark),
    "'": _LineOfTokens.single_quote,
    "’": _LineOfTokens.curly_apostrophe,
    "(": _LineOfTokens.open_parenthesis,
    ")": _LineOfTokens.close_parenthesis,
    "+": lambda line, i: RIGHT if line.is_number(i + 1) and not _TERM.fullmatch(line.token(i - 1)) else "+",  # `+1`
    ":": lambda line, i: "0:0" if line.is_number(i - 1) and line.is_number(i + 1) else ":",  # `10:30`
    **dict.fromkeys("°′″", _LineOfTokens.degree),
    **dict.fromkeys("׳״´", lambda line, i: line.tokens[i]),  # their use is learned
}


@dataclass(frozen=True)
class Tokenizers:
    """The tokenisers of source and target, stored with a corpus and with a model; both are of the same kind."""

    source: Tokenizer
    target: Tokenizer
    source_language: str = ""
    target_language: str = ""

    @classmethod
    def moses(cls, source_language: str, target_language: str, spacing: Mapping[str, str] | None = None) -> Self:
        """Moses words of two languages; `spacing` was learned from the target text (see MosesWords)."""
        target = MosesWords(target_language, spacing)
        return cls(MosesWords(source_language), target, source_language, target_language)

    @classmethod
    def spaced(cls, source_language: str = "", target_language: str = "") -> Self:
        return cls(SpacedWords(), SpacedWords(), source_language, target_language)

    def for_text(self, tokenized: bool) -> "Tokenizers":
        """Those of a text: if it is tokenised, words between spaces, else these."""
        return Tokenizers.spaced() if tokenized else self

    def most_tokens(self, max_length: int) -> int:
        """The most tokens of a side that a setting `max_length` allows: 10 bytes count as one token. 0 = no limit."""
        return max_length * (_BYTES_PER_TOKEN if isinstance(self.source, TextBytes) else 1)

    @property
    def kind(self) -> str:
        """ "moses", "sentencepiece", "bytes" or "spaced"."""
        return self.source.kind

    def files(self) -> tuple[str, ...]:
        """Names of the files that `save` writes."""
        return (TOKENIZER_FILE, *(MODEL_FILES if self.kind == SentencePieces.kind else ()))

    def save(self, folder: Path) -> None:
        for name, side in zip(MODEL_FILES, (self.source, self.target), strict=True):
            if isinstance(side, SentencePieces):
                with files.atomic_path(folder / name, follow=False) as temporary:
                    temporary.write_bytes(side.model)
        settings: dict[str, object] = {"kind": self.kind}
        settings |= {"source_language": self.source_language, "target_language": self.target_language}
        if isinstance(self.target, MosesWords):
            settings |= {"spacing": self.target.spacing.learned} if self.target.spacing.learned else {}
        with files.atomic_text(folder / TOKENIZER_FILE, follow=False) as stream:
            json.dump(settings, stream, ensure_ascii=False, indent=2)
            stream.write("\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads the files of `save`. Raises FormatError naming the file."""
        path = folder / TOKENIZER_FILE
        try:
            settings = files.read_json(path)
            kind = settings["kind"]
            languages = str(settings["source_language"]), str(settings["target_language"])
            spacing = settings.get("spacing", {})
            if not all(gap in SPACES and len(roles.split(" ")) == 2 for roles, gap in spacing.items()):
                raise ValueError("not a possible result of `Spacing.learn`")
        except OSError as error:
            raise FormatError(f"{path}: cannot read the tokeniser's settings: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FormatError(f"{path}: not the settings of a tokeniser") from None
        if kind == MosesWords.kind:
            return cls.moses(*languages, spacing)
        if kind in (SpacedWords.kind, TextBytes.kind):
            both = TextBytes() if kind == TextBytes.kind else SpacedWords()
            return cls(both, both, *languages)
        if kind == SentencePieces.kind:
            source, target = (SentencePieces.load(folder / name) for name in MODEL_FILES)
            return cls(source, target, *languages)
        raise FormatError(f"{path}: unknown kind of tokeniser {kind!r}")


EOS, UNK = "</s>", "<unk>"
EOS_ID, UNK_ID = 0, 1
_SPECIALS = (EOS, UNK)
LEXICON = "lexicon.tsv"  # in the folder of `nmtalign link`
NO_WORD = frozenset(("NULL", "<eps>"))  # names of aligners for "no word" in lexicons


class Vocabulary:
    """Words with ids 0 to K-1: `</s>`, `<unk>`, then words by falling frequency.

    `encode` never returns the id of `</s>`: the names of the special words are unknown words in text. Raises
    FormatError for words that are empty or repeated. No word contains a line feed: the file has one word per line.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if self.words[:2] != _SPECIALS:
            raise FormatError(f"line 1: a vocabulary starts with {EOS} and {UNK}, each on a separate line")
        ids: dict[str, int] = {}
        for line, word in enumerate(self.words, 1):
            if not word:
                raise FormatError(f"line {line}: an empty word")
            if word in ids:
                raise FormatError(f"line {line}: {word!r} is already on line {ids[word] + 1}")
            ids[word] = line - 1
        del ids[EOS], ids[UNK]  # their names are unknown words in text
        self._ids: Mapping[str, int] = ids

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        """Whether this word of a text has an id (`</s>` and `<unk>` in text are unknown words)."""
        return word in self._ids

    def __hash__(self) -> int:
        return len(self)  # a vocabulary is the key of what was read for it: equal ones have as many words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

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

    def known_tokens(self, line: str, tokenize: Callable[[str], list[str]]) -> list[str]:
        """The tokens of a line, composed or decomposed (NFC or NFD) if fewer are unknown then; none of a blank line."""
        tokens = [] if BLANK.fullmatch(line) else tokenize(line)
        if line.isascii() or all(map(self._ids.__contains__, tokens)):
            return tokens
        forms = (tokenize(normalized(form, line)) for form in ("NFC", "NFD"))
        return min((tokens, *forms), key=lambda form: sum(token not in self._ids for token in form))

    def decode(self, ids: Iterable[int], source: Sequence[str] = ()) -> list[str]:
        """The words of ids, including special words; an id from K is a token of the source."""
        words, size = self.words, len(self.words)
        return [words[number] if number < size else source[number - size] for number in ids]

    def save(self, path: Path) -> None:
        """Writes one word per line; the id is the line number minus one."""
        with files.atomic_text(path, follow=False) as stream:
            stream.writelines(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the file of `save`. Raises FormatError naming file and line."""
        try:
            return cls(files.read_regular(path).decode("utf-8").removesuffix("\n").split("\n"))
        except OSError as error:
            raise FormatError(f"{path}: cannot read the vocabulary: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise FormatError(f"{path}: line {line}: not UTF-8") from None
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    @classmethod
    def shortlist(cls, counts: Iterable[tuple[str, int]], size: int, min_count: int = 1) -> Self:
        """The special words and the `size` - 2 most frequent words with at least `min_count` occurrences.

        Words of equal frequency are in the order of their code points.
        """
        ranked = ((-count, word) for word, count in counts if count >= min_count and word not in _SPECIALS)
        return cls([*_SPECIALS, *(word for _, word in heapq.nsmallest(size - 2, ranked))])


Vocabularies = tuple[Vocabulary, Vocabulary]  # of source and target


def is_word(token: str) -> bool:
    """Whether a token has a letter. Numbers, marks and the bare "▁" before an unknown word are in all languages."""
    return any(map(str.isalpha, token))


def is_word_or_number(token: str) -> bool:
    """Whether a token has a letter or a digit."""
    return any(map(str.isalnum, token))


def pair_ids(
    vocabularies: Vocabularies, source: Sequence[str], target: Sequence[str] = (), copy: bool = False
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

    `path` may be the folder of `nmtalign link`. Spaces or tabs separate the fields. A probability may be a logarithm; a
    line without one counts as certain. Lines for "no word" are skipped. Raises InputError naming file and line.
    """
    path = lexicon_file(path)
    for number, line in enumerate(read_lines(path), 1):
        where, fields = f"{path}: line {number}", [field for field in line.replace("\t", " ").split(" ") if field]
        if len(fields) not in (2, 3):
            rule = "a lexicon has `source target` or `source target probability`"
            raise InputError(f"{where}: {len(fields)} fields; {rule}")
        try:
            probability = float(fields[2]) if len(fields) == 3 else 1.0
        except ValueError:
            probability = math.nan
        if math.isnan(probability):
            raise InputError(f"{where}: {fields[2]!r} is not a probability; write a number such as 0.5")
        if NO_WORD.isdisjoint(fields[:2]):
            yield fields[0], fields[1], probability


def load_vocabularies(folder: Path, config: ModelConfig) -> Vocabularies:
    """Reads both vocabularies of a model directory; raises FormatError if their sizes are not those of the model."""
    source, target = (Vocabulary.load(folder / name) for name in (files.SOURCE_VOCABULARY, files.TARGET_VOCABULARY))
    if (len(source), len(target)) != (config.source_vocabulary_size, config.target_vocabulary_size):
        raise FormatError(f"{folder}: the vocabularies do not have the sizes that {files.CONFIG} records")
    return source, target
