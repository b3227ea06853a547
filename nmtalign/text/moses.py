"""Moses words: sacremoses's tokeniser and detokeniser, case kept, no XML escapes."""

from collections.abc import Sequence
from typing import Any

from nmtalign.text.spacing import mend_spacing


class MosesWords:
    """Words by the rules of Moses for a language ("en", "fr", ...); without rules for it, those for English."""

    kind = "moses"

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesTokenizer

        self.language = language
        self._tokenizer = _faster(MosesTokenizer(lang=language))
        self._detokenizer = MosesDetokenizer(lang=language)

    def __reduce__(self) -> tuple[Any, ...]:
        return MosesWords, (self.language,)

    def tokenize(self, line: str) -> list[str]:
        """The words and punctuation marks of one line."""
        tokens: list[str] = self._tokenizer.tokenize(line, escape=False)
        return tokens

    def detokenize(self, tokens: Sequence[str]) -> str:
        """One line of text, spaced as the language does."""
        text: str = self._detokenizer.detokenize(tokens, unescape=False)
        return mend_spacing(text, self.language)

    def word_index(self, tokens: Sequence[str]) -> list[int]:
        """Every token is a word."""
        return list(range(len(tokens)))

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The tokens."""
        return list(tokens)


def has_rules(language: str) -> bool:
    """Whether Moses has rules for the language; without them those for English are used."""
    from sacremoses.corpus import NonbreakingPrefixes

    return language in NonbreakingPrefixes().available_langs.values()


def _faster(tokenizer: Any) -> Any:
    """The same tokeniser with its look-ups made once, not at every full stop (the output is the same).

    sacremoses builds sets of all lower-case and of all alphabetic characters anew for each word with a full stop.
    """
    lower, alphabetic = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    tokenizer.islower = lambda text: lower.issuperset(text)
    tokenizer.isanyalpha = lambda text: not alphabetic.isdisjoint(text)
    tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
    tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
    return tokenizer
