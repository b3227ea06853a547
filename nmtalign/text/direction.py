"""Whether texts are in the languages that a model or a corpus expects, and are raw text.

The language is judged by the vocabularies of the two sides.

A word of rank r is taken to have the probability 1/r (Zipf), and an unknown word a smaller one than any other. The side
that gives the tokens of a text the larger product of probabilities fits the text better. This is also true for subword
pieces, most of which are known on both sides: the wrong side cuts words into more and rarer pieces. Names, numbers and
unknown words cost the same on both sides and decide nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nmtalign.errors import UsageError
from nmtalign.files import SOURCE_VOCABULARY, TARGET_VOCABULARY
from nmtalign.text.languages import has_no_spaces, is_unspaced, suffix_language, word_count
from nmtalign.text.letters import bare
from nmtalign.text.lines import shown
from nmtalign.text.moses import MosesWords
from nmtalign.text.tokenizer import WORD_START, SentencePieces, TextBytes, Tokenizer, Tokenizers
from nmtalign.text.vocabulary import UNK_ID, Vocabulary

Notify = Callable[[str], object]
MOST_UNKNOWN = 0.4  # a larger share of unknown words is always reported
_SAMPLE = 400  # words by which a text is judged
_LINES = 100  # pairs by which two texts are judged
_ENOUGH, _FEW = 20, 5  # words that are needed to judge a text, and if the names of the files say the same
# Nats per word by which the other side must fit better. Measured with six vocabularies on texts in three languages:
# 20 lines fit their own side better by at least 2.8 nats per word, and no line of 20 words fits the other side better
# by more than 1.4.
_CLEAR = 2.0
_MORE_KNOWN = 0.5  # share of words that only the other side knows; it is enough even if none of them is frequent
_FREQUENT = 200  # words of a vocabulary, among which are those that every text has


class _Trace(NamedTuple):
    """What another program leaves in a text: its name, what to do, and the share of the lines that must have it."""

    name: str
    fix: str
    pattern: re.Pattern[str]
    share: float = 0.03


_ESCAPES, _CUT, SPACED_MARKS = "escapes of Moses or XML", "pieces of subword-nmt", "spaces before punctuation"
_TRACES = (
    _Trace(_ESCAPES, "unescape it", re.compile(r"&(?:[A-Za-z]{2,8}|#[0-9]{1,5}|#x[0-9A-Fa-f]{1,5});")),
    _Trace(_CUT, "join its pieces", re.compile(r"\w{1,20}@@(?=\s|$)")),
    _Trace("pieces of SentencePiece", "join its pieces", re.compile(r"(?<!\S)▁\w{0,20}")),
    _Trace("joiners of OpenNMT", "join its pieces", re.compile(r"\w{0,20}￭\w{0,20}")),
    _Trace("pieces of WordPiece", "join its pieces", re.compile(r"(?<=\w\s)##[^\W_]{1,20}")),
    _Trace("split hyphens", "detokenise it", re.compile(r"(?<=\w\s)@[-/]@(?=\s\w)")),
    _Trace("factors", "remove its factors", re.compile(r"^(?:[^\s|￨]+[|￨]\S+(?:\s+|$)){2,}$"), 0.5),
)
_MARKUP = (
    _Trace("unknown words", "put in the words", re.compile(r"<unk>", re.IGNORECASE)),
    _Trace("HTML tags", "remove its tags", re.compile(r"</?(?:[abiup]|br|div|span|em|strong|li|img)\b[^<>]*>"), 0.05),
)
# French writes spaces before ? ! : ; but no language does before these marks.
_SPACED, _JOINED = re.compile(r"(?<=\w)\s[.,。，、](?=\s|$)"), re.compile(r"\w[.,。，、](?=\s|$)")
_FEWEST, _FEWEST_SPACED = 3, 5  # lines
_OF_RAW_TEXT = frozenset((MosesWords.kind, SentencePieces.kind, TextBytes.kind))  # tokenisers


Traces = Mapping[str, tuple[str, str]]  # by name: the name with examples, such as "escapes (&apos;)", and what to do


def traces(lines: Iterable[str], markup: bool = False) -> Traces:
    """What shows that a text is not raw; with `markup` also <unk> and HTML tags."""
    texts = [line for line in lines if line and not line.isspace()]
    found = {}
    for trace in (*_TRACES, *(_MARKUP if markup else ())):
        having = [line for line in texts if trace.pattern.search(line)]
        if len(having) >= max(_FEWEST, trace.share * len(texts)):
            examples = Counter(match[0] for line in having[:100] for match in trace.pattern.finditer(line))
            two = " ".join(one for one, _ in examples.most_common(2) if len(one) <= 25)
            found[trace.name] = f"{trace.name}{f' ({two})' if two else ''}", trace.fix
    spaced, joined = (sum(mark.search(line) is not None for line in texts) for mark in (_SPACED, _JOINED))
    if spaced >= max(_FEWEST_SPACED, joined, 0.03 * len(texts)):
        found[SPACED_MARKS] = SPACED_MARKS, "detokenise it"
    return found


def not_raw(texts: Iterable[tuple[str, Traces]], instead: str = "") -> Iterator[str]:
    """Warnings that texts, (name, traces), are not raw: one for all texts that have the same traces.

    `instead` is what else to do with such a text.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Traces]]] = {}
    for name, found in texts:
        groups.setdefault(tuple(found), []).append((name, found))
    for kinds, group in groups.items():
        if kinds:
            names = [*dict.fromkeys(name for name, _ in group)]
            others = [name for other in groups if other != kinds for name, _ in groups[other]]
            what, fixes = zip(*group[0][1].values(), strict=True)
            yield (
                f"warning: {_joined(names)}: not raw text{f' (unlike {_joined(others)})' if others else ''}, but text "
                f"with {_joined(what)}; {_joined([*dict.fromkeys(fixes)])}{instead}"
            )


def _joined(names: Sequence[str]) -> str:
    parts = [*names[:4], *([f"{len(names) - 4} others"] if len(names) > 4 else [])]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


class _SideFit:
    """How a text fits the tokeniser and the vocabulary of one side."""

    def __init__(self, language: str, tokenizer: Tokenizer, vocabulary: Vocabulary, unknown_cost: float) -> None:
        self.language, self._tokenizer, self._vocabulary = language, tokenizer, vocabulary
        self._unknown_cost = unknown_cost
        self.tokens = self.words = self.unknown = 0  # all tokens, the words among them, the unknown words
        self._in_pieces = tokenizer.kind == SentencePieces.kind
        self._unspaced = self._in_pieces and has_no_spaces(language)
        start = WORD_START if self._in_pieces and not self._unspaced else ""
        frequent = (word.removeprefix(start) for word in vocabulary.words[2:_FREQUENT] if word.startswith(start))
        shortest = 1 if self._unspaced else 2
        self._frequent = {
            word for word in frequent if len(word) >= shortest and bare(word).isalpha()
        }  # such as articles
        self.cost = 0.0  # the negative natural logarithm of the product of probabilities, except for a constant
        self.frequent = 0

    def add(self, line: str) -> float:
        """Counts a line and returns its cost."""
        tokens = self._vocabulary.known_tokens(line, self._tokenizer.tokenize)
        ids = self._vocabulary.encode(tokens)
        missing = [token for token, number in zip(tokens, ids, strict=True) if number == UNK_ID]
        unknown = len("".join(missing) if self._in_pieces else missing)  # adjacent unknown characters are one piece
        cost = sum(math.log(number) for number in ids if number != UNK_ID) + unknown * self._unknown_cost
        words, unknown_words = self._vocabulary.count_words(tokens)
        self.tokens, self.words, self.cost = self.tokens + len(ids), self.words + words, self.cost + cost
        self.unknown += unknown_words
        parts = tokens if self._unspaced else self._tokenizer.words(tokens)
        self.frequent += sum(word in self._frequent for word in parts)
        return cost

    @property
    def share(self) -> float:
        """The share of words that are unknown."""
        return self.unknown / max(self.words, 1)


class TextFit:
    """Compares a text with the side that should read it, and with the other side."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        vocabularies: tuple[Vocabulary, Vocabulary],
        side: int = 0,
        tokenized: bool = False,
    ) -> None:
        """`side` is 0 for a text that should be in the source language, 1 for the target language."""
        self.kind = tokenizers.kind
        used = Tokenizers.spaced() if tokenized else tokenizers
        cost = math.log(8 * max(map(len, vocabularies)))
        languages = tokenizers.source_language, tokenizers.target_language
        sides = list(map(_SideFit, languages, (used.source, used.target), vocabularies, (cost, cost)))
        self.own, self.other = sides[side], sides[1 - side]
        self._frequent = {word.removeprefix(WORD_START) for word in vocabularies[side].words[: 10 * _FREQUENT]}
        self._marks = {f"{WORD_START}.", f"{WORD_START},"} & {*vocabularies[side].words[:_FREQUENT]}
        self._used, self._lines = used.kind, list[str]()
        self.words = self._lines_of_other = 0

    @classmethod
    def load(cls, folder: Path, side: int = 0, tokenized: bool = False) -> "TextFit":
        """Reads the tokenisers and vocabularies of a model directory or a prepared corpus."""
        vocabularies = Vocabulary.load(folder / SOURCE_VOCABULARY), Vocabulary.load(folder / TARGET_VOCABULARY)
        return cls(Tokenizers.load(folder), vocabularies, side, tokenized)

    def add(self, line: str) -> None:
        """Counts a line of the text."""
        self.words += word_count(line) if self.kind == SentencePieces.kind else len(line.split())
        self._lines.append(line)
        self._lines_of_other += self.own.add(line) > self.other.add(line)

    @property
    def full(self) -> bool:
        """Whether enough words were counted to judge the text."""
        return self.words >= _SAMPLE

    def fits_other(self, enough: int = _ENOUGH) -> bool:
        """Whether the text is clearly in the language of the other side."""
        return (
            self.words >= enough
            and self.own.cost - self.other.cost > _CLEAR * self.words
            and self._lines_of_other >= 0.8 * len(self._lines)  # not a text in two languages
            # not names, numbers or code
            and (self.other.frequent >= 0.12 * self.words or self.own.share - self.other.share > _MORE_KNOWN)
        )

    def fits_own(self) -> bool:
        """Whether the text is clearly in the language of its side."""
        return self.words >= _FEW and self.other.cost - self.own.cost > _CLEAR * self.words

    def traces(self) -> Traces:
        """What shows that the text is not raw; nothing if the vocabulary shows that the training text was the same."""
        found = dict(traces(self._lines)) if self._used in _OF_RAW_TEXT else {}
        known = {_ESCAPES: {"apos", "quot", "&apos;", "&quot;"}, _CUT: {"@", "@@"}}
        for kind in (kind for kind in known if known[kind] & self._frequent):
            found.pop(kind, None)
        if self._used != SentencePieces.kind or self._marks:  # Moses words are the same without the spaces
            found.pop(SPACED_MARKS, None)
        return found

    def evidence(self) -> str:
        """The numbers that show in which language the text is."""
        own, other = self.own, self.other
        if self.kind == SentencePieces.kind and own.share <= MOST_UNKNOWN:
            pieces = [f"{side.tokens / max(self.words, 1):.1f}" for side in (own, other)]
            return f"a word has {pieces[0]} pieces as {own.language}, {pieces[1]} as {other.language}"
        known = [f"{1 - side.share:.0%}" for side in (own, other)]
        return f"{known[0]} of the words are known as {own.language}, {known[1]} as {other.language}"


class InputCheck:
    """Warns once if the text that a model translates is in its target language, or has many unknown words."""

    def __init__(self, fit: TextFit, name: str, notify: Notify) -> None:
        self._fit, self._name, self._notify = fit, name, notify
        self._judged = self._warned = False

    def add(self, line: str) -> None:
        """Counts a line that has been translated; judges the text as soon as enough is known."""
        if not self._judged:
            self._fit.add(line)
            if self._fit.full:
                self._judge(_ENOUGH)

    def add_all(self, lines: Iterable[str]) -> None:
        """Judges a text by its first lines, without waiting for their translations."""
        for line in lines:
            self.add(line)
            if self._judged:
                break
        self.finish(self._fit.own.words, self._fit.own.unknown)

    def finish(self, words: int, unknown: int) -> None:
        """Judges a short text at its end; `words` and `unknown` are counted over all lines."""
        many = unknown > MOST_UNKNOWN * words
        if not self._judged:
            self._judge(1 if many else _ENOUGH)
        if many and not self._warned:
            self._notify(unknown_words(self._name, unknown / words, self._fit.own.language))

    def _judge(self, enough: int) -> None:
        self._judged = True
        _report_traces([self._name], [self._fit], self._notify)
        if self._fit.fits_other(enough):
            self._warned = True
            own, other = self._fit.own.language, self._fit.other.language
            self._notify(
                f"warning: {self._name}: seems to be {other}, and the model translates {own} to {other}: "
                f"{self._fit.evidence()}; give a text in {own}, or with -m a model that translates {other} to {own}"
            )


def unknown_words(name: str, share: float, language: str) -> str:
    """The warning that many words of a text are unknown."""
    return (
        f"warning: {name}: {share:.0%} of the words are unknown: is the text in {language or 'the right language'}, "
        "and tokenised and cased like the training text?"
    )


def other_language(name: str, fit: TextFit) -> str:
    """The warning that a text is in the language of the other side."""
    return f"warning: {name}: seems to be {fit.other.language}, not {fit.own.language}: {fit.evidence()}"


def check_spaces(names: tuple[Path, Path], pairs: Sequence[tuple[str, str]], notify: Notify) -> None:
    """Warns of a text without spaces between words, given its first pairs: links of words cannot be found in it."""
    for name, lines in zip(names, zip(*pairs, strict=True), strict=False):
        if is_unspaced(lines):
            notify(
                f"warning: {shown(name)}: has no spaces between words, so links join whole lines; split it into words "
                "with a segmenter first, or into characters, for example with sed 's/./& /g'"
            )


def check_pairs(
    pairs: Iterable[tuple[str, str]], names: tuple[Path, Path], fits: Sequence[TextFit], notify: Notify, ahead: bool
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of two texts, and reports if the texts are exchanged, or one of them is in the other language.

    `ahead` reads the first pairs before it yields one, and raises UsageError if both the names and the words of the
    files say that they are exchanged. Without it, the pairs are never delayed, and there are only warnings.
    """
    if ahead:
        pairs = iter(pairs)
        first = list(islice(pairs, _LINES))
        for pair in first:
            _add(fits, pair)
        _report_pairs(names, fits, notify, stop=True)
        if fits[0].kind == "pieces":  # of a word aligner, which knows only words between spaces
            check_spaces(names, first, notify)
        yield from first
        yield from pairs
        return
    judged = False
    for pair in pairs:
        yield pair
        if not judged:
            _add(fits, pair)
            if judged := fits[0].full:
                _report_pairs(names, fits, notify)
    if not judged:
        _report_pairs(names, fits, notify)


def _add(fits: Sequence[TextFit], pair: tuple[str, str]) -> None:
    for fit, line in zip(fits, pair, strict=True):
        fit.add(line)


def _report_pairs(names: tuple[Path, Path], fits: Sequence[TextFit], notify: Notify, stop: bool = False) -> None:
    problem, words_agree, names_agree = exchanged(names, fits)
    if words_agree and names_agree and stop:
        raise UsageError(f"{problem}; give the two files in the other order")
    if problem:
        notify(f"warning: {problem}; if so, give the two files in the other order")
        return
    _report_traces(list(map(shown, names)), fits, notify)
    for name, fit in zip(map(shown, names), fits, strict=True):
        if fit.fits_other():
            notify(other_language(name, fit))
        elif fit.own.share > MOST_UNKNOWN:
            notify(unknown_words(name, fit.own.share, fit.own.language))


def _report_traces(names: Sequence[str], fits: Sequence[TextFit], notify: Notify) -> None:
    instead = ", or give --tokenized if these are the tokens of the model" if fits[0].kind == MosesWords.kind else ""
    for warning in not_raw([(name, fit.traces()) for name, fit in zip(names, fits, strict=True)], instead):
        notify(warning)


def exchanged(names: tuple[Path, Path], fits: Sequence[TextFit]) -> tuple[str, bool, bool]:
    """Why source and target seem to be exchanged ("" if they do not), whether the words say so, and the names."""
    languages = fits[0].own.language, fits[1].own.language
    found = suffix_language(names[0]), suffix_language(names[1])
    named = found == languages[::-1] != languages
    if any(fit.fits_own() for fit in fits) or languages[0] == languages[1]:
        return "", False, False
    worded = all(fit.fits_other(_FEW if named else _ENOUGH) for fit in fits)
    if not (named or worded):
        return "", False, False
    texts = f"{shown(names[0])} and {shown(names[1])}"
    problem = f"{texts} seem to be {languages[1]} and {languages[0]}, and {'-'.join(languages)} is expected"
    return f"{problem} ({fits[0].evidence()})" if worded else f"{problem}, by their names", worded, named
