"""What a translator says of given pairs: the log-probability of each target token (forced decoding)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmtalign.core.devices import in_halves, picks_bf16
from nmtalign.data.batches import make_source
from nmtalign.decoding.batching import BatchLimits, default_words, memory_limit
from nmtalign.decoding.results import ScoredPair
from nmtalign.decoding.scorer import Choice, Scorer, WordScores, parts
from nmtalign.decoding.stream import AtHand, windows
from nmtalign.decoding.trace import Array, Scoring
from nmtalign.decoding.translator import Translator, search_options
from nmtalign.decoding.workers import Workers
from nmtalign.text.tokenizer import SpacedWords
from nmtalign.text.vocabulary import UNK_ID

_WINDOW_BATCHES = 10  # batches' worth of pairs that are read and sorted by length together
_PAIR_CHARACTERS = 12  # of two words

Pair = tuple[str, str]


@dataclass(frozen=True)
class _Read:
    """A pair of lines, tokenised; the ids are without `</s>`."""

    number: int
    texts: Pair
    tokens: tuple[tuple[str, ...], tuple[str, ...]]
    source: Sequence[int]
    target: Sequence[int]

    def length(self) -> int:
        return max(len(self.source), len(self.target)) + 1

    def too_much(self) -> str:
        sizes = f"{len(self.source)} and {len(self.target)} tokens"
        return f"line {self.number + 1}: out of memory with one pair of {sizes}; leave it out, or split it"


@dataclass(frozen=True)
class _Forced:
    log_probs: Array  # (Ty+1,), float64
    score: float


def score_pairs(translator: Translator, pairs: Iterable[Pair]) -> Iterator[ScoredPair]:
    """The pairs (lines of text) with their scores by the models and settings of a translator, in order, one each.

    What a search finds has here the log-probability and the score that it had there, to rounding: probabilities are
    those over all words, `<unk>` among them, and penalties count. That holds for the same tokens: a text that is
    detokenised and tokenised again can differ, and so do a line that was translated in pieces, words that were
    replaced, and a search over candidates, whose probabilities are among these. A target without words is `</s>` alone,
    and so is a source; where neither has any, nothing is asked and the log-probability is 0, as that of a blank line's
    translation. Pairs are read as `Translator.translate` reads lines. Raises ResourceError naming the line where one
    pair is too much for the memory.
    """
    scorer = _PairScorer(translator)
    words, at_hand = scorer.limits.words * _WINDOW_BATCHES, isinstance(pairs, Sequence | AtHand)
    with Workers(translator.loaded.device, ahead=at_hand) as workers:
        tasks = (
            scorer.window(window, workers)
            for window in windows(pairs, max(1, words // 4), words * _PAIR_CHARACTERS, _characters)
        )
        for results in workers.in_order(tasks):
            yield from results


class _PairScorer:
    def __init__(self, translator: Translator) -> None:
        self._loaded, self._config = translator.loaded, translator.config
        self._pairs = 0  # read so far
        self._scorer: Scorer = translator.scorer
        self._scoring: Scoring = search_options(translator.config).scoring
        tokenizers, spaced = self._loaded.tokenizers, SpacedWords()
        tokenized = self._config.tokenized
        self._sides = [spaced] * 2 if tokenized else [tokenizers.source, tokenizers.target]
        self._vocabularies = self._loaded.source_vocabulary, self._loaded.target_vocabulary
        device = self._loaded.device
        memory = memory_limit(self._config.max_memory, device) // Workers.count(device) // len(translator.models)
        self.limits = BatchLimits(
            words=self._config.batch_size or default_words(1, device),
            memory=memory,
            model=self._loaded.model.config,
            beam=1,
            itemsize=2 if picks_bf16(self._config.precision, device) else 4,
            scored=len(self._loaded.target_vocabulary),
            length_ratio=1.0,
            keep_weights=False,
        )

    def window(self, pairs: Sequence[Pair], workers: Workers) -> Iterator[ScoredPair]:
        """Hands the batches of a window to the workers; the iterator then waits for them."""
        lines = [self._read(number, pair) for number, pair in enumerate(pairs, self._pairs)]
        self._pairs += len(lines)
        asked = [line for line in lines if any(line.tokens)]
        batches = self.limits.cut([line.length() for line in asked], workers.at_least(len(asked)))
        tasks = workers.submit(lambda batch: self._force_all([asked[place] for place in batch]), batches)

        def results() -> Iterator[ScoredPair]:
            found = {asked[place].number: one for batch, each in tasks for place, one in zip(batch, each, strict=True)}
            nothing = _Forced(np.zeros(1), 0.0)
            yield from (_scored(line, found.get(line.number, nothing)) for line in lines)

        return results()

    def _read(self, number: int, texts: Pair) -> _Read:
        source, target = (tuple(side.tokenize(text)) for side, text in zip(self._sides, texts, strict=True))
        ids = [words.encode(side) for words, side in zip(self._vocabularies, (source, target), strict=True)]
        return _Read(number, texts, (source, target), *ids)

    def _force_all(self, batch: Sequence[_Read]) -> list[_Forced]:
        return in_halves(self._force, batch, _Read.too_much)

    @torch.inference_mode()
    def _force(self, batch: Sequence[_Read]) -> list[_Forced]:
        """Steps along the targets, the longest first, so that those that have ended are the last rows."""
        order = sorted(range(len(batch)), key=lambda place: -len(batch[place].target))
        lines, device = [batch[place] for place in order], self._loaded.device
        source, mask = (part.to(device) for part in make_source([line.source for line in lines]))
        target, _ = (part.to(device) for part in make_source([line.target for line in lines]))
        log_probs, coverage = force(self._scorer, source, mask, target, [len(line.target) + 1 for line in lines])
        forced: list[_Forced | None] = [None] * len(batch)
        for row, (place, line) in enumerate(zip(order, lines, strict=True)):
            gains = log_probs[row, : len(line.target) + 1]
            read = None if coverage is None else coverage[row, : len(line.source)]
            forced[place] = _Forced(gains, self._scoring.score(float(gains.sum()), len(gains), read))
        return [one for one in forced if one is not None]


def force(
    scorer: Scorer, source: Tensor, source_mask: Tensor, target: Tensor, lengths: Sequence[int]
) -> tuple[Array, Array | None]:
    """Log-probabilities (B, Ty) of given target words, float64, 0 at padding, and coverage (B, Tx) or None.

    source (B, Tx) and target (B, Ty) end with `</s>`; lengths, the targets' with it, must not rise. Coverage is the sum
    of a target's weights on each source word; None without attention.
    """
    session = scorer.start(source, source_mask)
    steps, coverage, choice, before = list[Tensor](), None, None, len(lengths)
    for place in range(lengths[0]):
        rows = sum(length > place for length in lengths)
        if place:
            kept = torch.arange(rows, device=source.device)
            choice = Choice(kept if rows < before else None, kept, target[:rows, place - 1])
        step = session.step(choice)
        steps.append(_of_words(step.scores, target[:rows, place]))
        if step.weights is not None:
            coverage = source.new_zeros(source.shape, dtype=torch.float32) if coverage is None else coverage
            coverage[:rows] += step.weights.float()
        before = rows
    log_probs = np.zeros(target.shape)
    for place, gains in enumerate(steps):
        log_probs[: len(gains), place] = gains.double().cpu().numpy()
    return log_probs, None if coverage is None else coverage.cpu().numpy()


def _of_words(scores: WordScores, words: Tensor) -> Tensor:
    """The log-probability (R,) of one word (R,) in each row; on a processor by parts that its cache holds."""
    found = []
    for rows in parts(scores.shape, words.device.type == "cpu"):
        logits, log_sums = scores.logits(rows)
        found.append((logits.gather(1, words[rows, None]) - log_sums).squeeze(1))
    return torch.cat(found)


def _scored(line: _Read, forced: _Forced) -> ScoredPair:
    return ScoredPair(
        number=line.number,
        source=line.texts[0],
        target=line.texts[1],
        source_tokens=line.tokens[0],
        target_tokens=line.tokens[1],
        source_unknown=list(line.source).count(UNK_ID),
        target_unknown=list(line.target).count(UNK_ID),
        log_prob=float(forced.log_probs.sum()),
        score=forced.score,
        token_log_probs=tuple(forced.log_probs.tolist()),
    )


def _characters(pair: Pair) -> int:
    return len(pair[0]) + len(pair[1])
