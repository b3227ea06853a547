"""Scores of given translations: the log-probability of each target token of sentence pairs and of n-best lists."""

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmtalign.core.devices import in_halves
from nmtalign.data.batches import make_source
from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.search.beam_search import Array
from nmtalign.search.scorer import force
from nmtalign.text.direction import check_pairs
from nmtalign.text.lines import checked_pairs, read_lines, read_pairs, shown
from nmtalign.text.tokenizer import SpacedWords
from nmtalign.text.vocabulary import UNK_ID
from nmtalign.translating.batching import Workers
from nmtalign.translating.inputs import are_files
from nmtalign.translating.stream import windows
from nmtalign.translating.translation import ScoredPair
from nmtalign.translating.translator import Translator, search_options

_WINDOW_BATCHES = 10  # the size of a window, in batches; the pairs of a window are sorted by length
_PAIR_CHARACTERS = 12  # characters of a source word and a target word
_ID = re.compile(r"\d{1,15}", re.ASCII)
_NAME = re.compile(r"[^\s=|]+")

Pair = tuple[str, str]


@dataclass(frozen=True)
class _TokenizedPair:
    """A pair of lines; the ids are without `</s>`."""

    number: int
    texts: Pair
    tokens: tuple[tuple[str, ...], tuple[str, ...]]
    source: Sequence[int]
    target: Sequence[int]
    copies: Sequence[int]  # of a copying model

    def scored(self, log_probs: Array, score: float) -> ScoredPair:
        """The result, given the log-probabilities (Ty + 1,) of the target tokens and `</s>`."""
        return ScoredPair(
            number=self.number,
            source=self.texts[0],
            target=self.texts[1],
            source_tokens=self.tokens[0],
            target_tokens=self.tokens[1],
            source_unknown=list(self.source).count(UNK_ID),
            target_unknown=list(self.target).count(UNK_ID),
            log_prob=float(log_probs.sum()),
            score=score,
            token_log_probs=tuple(log_probs.tolist()),
        )

    def length(self) -> int:
        return max(len(self.source), len(self.target)) + 1

    def too_much(self) -> str:
        sizes = f"{len(self.source)} and {len(self.target)} tokens"
        return f"line {self.number + 1}: out of memory with one pair of {sizes}; leave it out, or split it"


def score_pairs(translator: Translator, pairs: Iterable[Pair], available: bool = False) -> Iterator[ScoredPair]:
    """Scores pairs of lines with the models and settings of a translator; one result per pair, in order.

    A translation gets the log-probability and the score that the search gave it, except for rounding: probabilities are
    over all words including `<unk>`, and penalties apply. This is true for equal tokens. Text that is detokenised and
    tokenised again may differ, and so may a line that was translated in pieces, replaced words, and a search with
    candidates, whose probabilities are normalised over the candidates. An empty source or target consists of `</s>`.
    A pair without any token is not scored; its log-probability is 0, like that of the translation of a blank line.
    Pairs are read as `Translator.translate` reads lines; `available` ones, such as those of files, in large windows.
    Raises UsageError for what is not a pair, ResourceError with the line if one pair does not fit into memory.
    """
    scorer = _PairScorer(translator)
    words = scorer.limits.words * _WINDOW_BATCHES
    available = available or isinstance(pairs, Sequence)
    with Workers(translator.loaded.device, available, translator.config.threads) as workers:
        read = windows(checked_pairs(pairs), max(1, words // 4), words * _PAIR_CHARACTERS, _characters, available)
        for results in workers.read_ahead(scorer.window(window, workers) for window in read):
            yield from results


class _PairScorer:
    def __init__(self, translator: Translator) -> None:
        loaded = translator.loaded
        self._pairs = 0  # that were read so far
        self._device, self._scorer = loaded.device, translator.scorer
        self._scoring = search_options(translator.config).scoring
        spaced, tokenizers = SpacedWords(), (loaded.tokenizers.source, loaded.tokenizers.target)
        self._tokenizers = [spaced] * 2 if translator.config.tokenized else tokenizers
        self._vocabularies, self._ids = (loaded.source_vocabulary, loaded.target_vocabulary), loaded.ids
        self._copies = loaded.model.config.copy
        self.limits = translator.batch_limits(1, len(loaded.target_vocabulary), 1.0, keep_weights=False)

    def window(self, pairs: Sequence[Pair], workers: Workers) -> Iterator[ScoredPair]:
        """Starts the work on a window at once; the iterator then waits for its results."""
        read = [self._read(number, pair) for number, pair in enumerate(pairs, self._pairs)]
        self._pairs += len(read)
        with_tokens = [pair for pair in read if any(pair.tokens)]
        forced = workers.run(self._force_all, with_tokens, [pair.length() for pair in with_tokens], self.limits)
        return (next(forced) if any(pair.tokens) else pair.scored(np.zeros(1), 0.0) for pair in read)

    def _read(self, number: int, texts: Pair) -> _TokenizedPair:
        sides = zip(self._vocabularies, texts, self._tokenizers, strict=True)
        source, target = (tuple(words.known_tokens(text, side.tokenize)) for words, text, side in sides)
        return _TokenizedPair(number, texts, (source, target), *self._ids(source, target))

    def _force_all(self, batch: Sequence[_TokenizedPair]) -> list[ScoredPair]:
        return in_halves(self._force, batch, _TokenizedPair.too_much)

    @torch.inference_mode()
    def _force(self, batch: Sequence[_TokenizedPair]) -> list[ScoredPair]:
        """Forces the targets of a batch, sorted by decreasing length for `force`."""
        order = sorted(range(len(batch)), key=lambda place: -len(batch[place].target))
        pairs = [batch[place] for place in order]
        source, mask = (part.to(self._device) for part in make_source([pair.source for pair in pairs]))
        target, _ = (part.to(self._device) for part in make_source([pair.target for pair in pairs]))
        copies = None
        if self._copies:  # also for sources without any token, which consist of `</s>`
            copies = make_source([pair.copies for pair in pairs])[0].to(self._device)
        lengths = [len(pair.target) + 1 for pair in pairs]
        log_probs, coverage = force(self._scorer, source, mask, target, lengths, copies)
        scored: dict[int, ScoredPair] = {}
        for row, (place, pair) in enumerate(zip(order, pairs, strict=True)):
            gains = log_probs[row, : len(pair.target) + 1]
            covered = None if coverage is None else coverage[row, : len(pair.source)]
            scored[place] = pair.scored(gains, self._scoring.score(float(gains.sum()), len(gains), covered))
        return [scored[place] for place in range(len(batch))]


def _characters(pair: Pair) -> int:
    return sum(map(len, pair))


@dataclass(frozen=True)
class NBestLine:
    """A line of a Moses n-best list: `id ||| text`, then optional features and score; further fields are kept."""

    sentence: int  # the id: the number of the source line, from 0
    fields: tuple[str, ...]

    @property
    def text(self) -> str:
        """The translation."""
        return self.fields[1]

    def with_feature(self, name: str, values: Sequence[float]) -> "NBestLine":
        """The line with the feature `name= value ...` at the end of its features; it replaces one of the same name."""
        fields = [*self.fields, *[""] * (3 - len(self.fields))]
        kept = re.sub(rf"(?<!\S){re.escape(name)}=(?:\s+[^\s=]+(?!\S))*\s*", "", fields[2]).strip(" ")
        feature = f"{name}= {' '.join(f'{value:.6f}' for value in values)}"
        fields[2] = f"{kept} {feature}" if kept else feature
        return NBestLine(self.sentence, tuple(fields))

    def with_score(self, score: float) -> "NBestLine":
        """The line with this score."""
        fields = [*self.fields, *[""] * (4 - len(self.fields))]
        fields[3] = f"{score:.6f}"
        return NBestLine(self.sentence, tuple(fields))

    def __str__(self) -> str:
        """The line without a line break."""
        return " ||| ".join(self.fields)


def parse_n_best(line: str, where: str) -> NBestLine:
    """Splits a line into fields; raises InputError, which begins with `where` (file and line)."""
    fields = tuple(field.removeprefix(" ").removesuffix(" ") for field in line.split("|||"))
    number = fields[0].strip(" \t")
    if len(fields) < 2 or not _ID.fullmatch(number):
        raise InputError(
            f"{where}: not a line of an n-best list; write `id ||| translation ||| features ||| score`, "
            "the id the number of the source line, from 0"
        )
    return NBestLine(int(number), fields)


def read_n_best(n_best: Path, source: Path) -> Iterator[tuple[NBestLine, str]]:
    """The lines of a list, each with its source; a source line may have no line in the list.

    Raises InputError with file and line for a line that is not an n-best line, for a decreasing id (the sources are
    read in parallel and not kept), and for an id without a source line.
    """
    sources = enumerate(read_lines(source))
    at, text = -1, ""
    for number, line in enumerate(read_lines(n_best), 1):
        where = f"{shown(n_best)}: line {number}"
        parsed = parse_n_best(line, where)
        if parsed.sentence < at:
            raise InputError(
                f"{where}: id {parsed.sentence} comes after id {at}; sort the list by id (sort -s -n -k 1,1)"
            )
        while at < parsed.sentence:
            before, (at, text) = at, next(sources, (-1, ""))
            if at < 0:
                raise InputError(
                    f"{where}: id {parsed.sentence} needs line {parsed.sentence + 1} of {shown(source)}, which has "
                    f"{before + 1} lines; ids count its lines from 0"
                )
        yield parsed, text


def score_files(
    translator: Translator, source: Path, target: Path, notify: Callable[[str], object] = lambda message: None
) -> Iterator[ScoredPair]:
    """Scores two files line by line; see `score_pairs` and `read_pairs`. `notify` gets warnings on their languages.

    Raises UsageError for files that are clearly exchanged.
    """
    available = are_files(source, target)
    fits = [translator.loaded.text_fit(side, translator.config.tokenized) for side in (0, 1)]
    pairs = check_pairs(read_pairs(source, target), (source, target), fits, notify, ahead=available)
    scored = score_pairs(translator, pairs, available)
    for number, pair in enumerate(scored):
        if pair.number != number:
            raise NmtalignError(f"pair {number} came out as {pair.number}; this is a bug of nmtalign")
        yield pair


def score_n_best_list(
    translator: Translator, n_best: Path, source: Path, feature: str, sort: bool = False, word_scores: bool = False
) -> Iterator[tuple[NBestLine, ScoredPair]]:
    """Scores a Moses n-best list; each line gets the log-probability as the feature of this name.

    With `sort`, the models' scores replace those of the list, and the lines of each sentence are sorted, best first.
    With `word_scores`, there is a second feature, WordScores. Raises UsageError for an impossible name, and InputError
    as `read_n_best` does.
    """
    if not _NAME.fullmatch(feature):
        raise UsageError(f"{feature!r} cannot name a feature: give a name without spaces, = and |")
    found = _scored_lines(translator, read_n_best(n_best, source), are_files(source, n_best))
    for line, pair in best_first(found) if sort else found:
        line = line.with_feature(feature, [pair.log_prob])
        if word_scores:
            line = line.with_feature("WordScores", pair.token_log_probs)
        yield line.with_score(pair.score) if sort else line, pair


def _scored_lines(
    translator: Translator, entries: Iterable[tuple[NBestLine, str]], available: bool
) -> Iterator[tuple[NBestLine, ScoredPair]]:
    waiting: deque[NBestLine] = deque()

    def pairs() -> Iterator[Pair]:
        for line, source in entries:
            waiting.append(line)
            yield source, line.text

    return ((waiting.popleft(), pair) for pair in score_pairs(translator, pairs(), available))


def best_first(found: Iterable[tuple[NBestLine, ScoredPair]]) -> Iterator[tuple[NBestLine, ScoredPair]]:
    """Sorts the lines of each sentence by decreasing score of the models; equal scores keep their order."""
    for _, group in itertools.groupby(found, key=lambda entry: entry[0].sentence):
        yield from sorted(group, key=lambda entry: -entry[1].score)
