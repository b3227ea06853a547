"""Phrases that a translation must contain: the progress of each hypothesis, and beam search with phrase banks.

Dynamic beam allocation (Post and Vilar 2018): a hypothesis belongs to the bank of the number of phrase words that it
contains. Besides the best continuations, the words that continue a phrase are tried for every hypothesis. Half the beam
is divided equally among the banks that have a continuation; the other half goes to the most probable continuations.
The published method divides the whole beam among all banks and passes unused places down. A beam that is hardly wider
than the number of banks then inserts a phrase wherever it can: with 1 to 4 phrases of up to 3 words from the
references, this costs a beam of 5 between 0.4 and 19 BLEU, and a beam of 12 up to 8 BLEU (4 phrases of 3 words).
Without banks, phrases appear at the length limit, after everything else.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from torch import Tensor

from nmtalign.search.hypotheses import Flags, Floats, Hypothesis, Integers
from nmtalign.search.restrictions import Restrictions
from nmtalign.search.selection import Beams, Chosen, largest
from nmtalign.text.vocabulary import EOS_ID, UNK_ID

Symbols = tuple[int, ...]
_Parts = tuple[tuple[int, int], ...]


class Phrases:
    """The phrases of one sentence; its translation must contain each of them as adjacent words.

    Phrases may share words: "a b c" contains "a b" and "b c". A phrase that is given twice must occur twice. Symbols
    are word ids, but each `<unk>` of a phrase has its own negative symbol, because it represents its own word.
    """

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        unknown = count(-1, -1)
        self.phrases = [tuple(next(unknown) if word == UNK_ID else word for word in phrase) for phrase in phrases]
        counts = Counter(phrase for phrase in self.phrases if phrase)
        self.patterns = [_Pattern(phrase) for phrase in counts]
        self.words = sum(map(len, self.phrases))
        self.alphabet = {symbol for phrase in counts for symbol in phrase}
        self._known: dict[_Parts, PhraseProgress] = {}
        self.start = self.progress(tuple((0, times) for times in counts.values()))

    def progress(self, parts: _Parts) -> "PhraseProgress":
        """The only object for this progress: for each pattern (words matched, number of occurrences still missing)."""
        if parts not in self._known:
            self._known[parts] = PhraseProgress(self, parts)
        return self._known[parts]

    def places(self, symbols: Symbols) -> tuple[int, ...]:
        """The first position of each phrase in a translation that contains all of them; -1 for an empty phrase."""
        found: dict[Symbols, int] = {(): -1}
        result = []
        for phrase in self.phrases:
            start = found.get(phrase, -1) + 1
            while phrase and symbols[start : start + len(phrase)] != phrase:
                start += 1
            found[phrase] = start if phrase else -1
            result.append(found[phrase])
        return tuple(result)


class PhraseProgress:
    """How much of the phrases a translation contains; translations with equal progress share one object.

    `missing`: the largest number of words that complete all phrases. `wanted`: the symbols that continue a phrase.
    `bound`: only a wanted symbol may follow, because the last word is an `<unk>` of an unfinished phrase.
    """

    def __init__(self, phrases: Phrases, parts: _Parts) -> None:
        self._phrases, self._parts = phrases, parts
        self._after: dict[int | None, PhraseProgress] = {}
        pairs = list(zip(parts, phrases.patterns, strict=True))
        incomplete = [(matched, pattern.symbols) for (matched, times), pattern in pairs if times]
        begun = max((matched for matched, _ in incomplete), default=0)
        self.missing = sum(times * len(pattern.symbols) for (_, times), pattern in pairs) - begun
        # While one phrase is unfinished, the others wait.
        wanted = [symbols[matched] for matched, symbols in incomplete if matched or not begun]
        # At most one phrase is bound, because its negative symbol occurs in no other.
        bound = [symbols[matched] for matched, symbols in incomplete if min(symbols[:matched], default=0) < 0]
        self.wanted, self.bound = tuple(dict.fromkeys(bound or wanted)), bool(bound)

    def after(self, symbol: int | None) -> "PhraseProgress":
        """The progress after one more word; None represents a word that occurs in no phrase."""
        key = symbol if symbol in self._phrases.alphabet else None
        if key not in self._after:
            pairs = zip(self._parts, self._phrases.patterns, strict=True)
            parts = tuple(pattern.advance(matched, times, key) for (matched, times), pattern in pairs)
            self._after[key] = self._phrases.progress(parts)
        return self._after[key]


class _Pattern:
    """Finds a phrase (Knuth, Morris and Pratt): after a mismatch, continues with the longest border that still fits."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self._borders = [0, 0]  # for each prefix, the length of its longest proper prefix that is also its suffix
        for length in range(2, len(symbols) + 1):
            self._borders.append(self._extend(self._borders[-1], symbols[length - 1]))

    def advance(self, matched: int, times: int, symbol: int | None) -> tuple[int, int]:
        """(words matched, number of occurrences still missing) after one more word."""
        if not times:
            return 0, 0
        matched = self._extend(matched, symbol)
        if matched < len(self.symbols):
            return matched, times
        return (self._borders[matched] if times > 1 else 0), times - 1

    def _extend(self, matched: int, symbol: int | None) -> int:
        while matched and self.symbols[matched] != symbol:
            matched = self._borders[matched]
        return matched + (self.symbols[matched] == symbol)


@dataclass(frozen=True)
class _Pool:
    """Continuations (N,) of one sentence; `missing` counts the phrase words that are missing after each of them."""

    hypotheses: Integers
    symbols: Integers
    gains: Floats
    totals: Floats
    missing: Integers

    def select(self, places: Integers) -> "_Pool":
        """The continuations at these places, in this order."""
        hypotheses, symbols, missing = (part[places] for part in (self.hypotheses, self.symbols, self.missing))
        return _Pool(hypotheses, symbols, self.gains[places], self.totals[places], missing)

    def fitting(self, steps: int) -> Integers:
        """The possible continuations after which `steps` suffice for the missing words and `</s>`, best first."""
        fits = np.isfinite(self.totals) & (self.missing + (self.symbols != EOS_ID) <= steps)
        places = np.nonzero(fits)[0]
        return places[np.argsort(-self.totals[places], kind="stable")]


class PhraseBanks:
    """The phrases of a batch of sentences, and the progress of each row of the search.

    Sentences without phrases are searched as usual. In a sentence with phrases, the missing words of each row always
    fit below the length limit, and no row ends before it contains all phrases.
    """

    def __init__(self, phrases: Sequence[Phrases], restrictions: Restrictions) -> None:
        self._phrases, self._restrictions = phrases, restrictions
        self._rows: list[PhraseProgress] = [each.start for each in phrases]  # for each row of the step
        # For each row of a sentence with phrases: wanted symbols, and best words, with their log-probabilities.
        self._wanted: dict[int, list[tuple[int, float]]] = {}
        self._best: dict[int, tuple[Integers, Floats]] = {}

    def read_wanted(self, logits: Tensor, log_sums: Tensor, rows: slice, sentences: Integers, step: int) -> Flags:
        """Stores the log-probabilities of wanted words, given logits (r, U) in which no word is banned yet.

        Returns which rows (r,) are incomplete and therefore must not end.
        """
        progress = self._rows[rows]
        after_prefix = self._restrictions.prefix_lengths[sentences] <= step
        wanted = [each.wanted if free else () for each, free in zip(progress, after_prefix, strict=True)]
        symbols = np.array([symbol for each in wanted for symbol in each], np.int64)
        owners = np.repeat(np.arange(len(wanted)), [len(each) for each in wanted])
        columns = self._restrictions.columns(np.where(symbols < 0, UNK_ID, symbols))
        at = [torch.from_numpy(part).to(logits.device) for part in (owners, columns)]
        gains = iter((logits[at[0], at[1]] - log_sums[at[0], 0]).double().tolist())
        for row, each in enumerate(wanted, rows.start):
            self._wanted[row] = [(symbol, next(gains)) for symbol in each]
        return np.array([each.missing > 0 for each in progress])

    def read_best(self, logits: Tensor, log_sums: Tensor, rows: slice, sentences: Integers, width: int) -> None:
        """Stores the `width` best words of each row whose sentence has phrases."""
        own = np.nonzero([self._phrases[sentence].words > 0 for sentence in sentences])[0]
        at = torch.from_numpy(own).to(logits.device)
        gains, columns = largest(logits[at] - log_sums[at], width)
        words, word_gains = self._restrictions.words(columns.cpu().numpy()), gains.double().cpu().numpy()
        self._best.update(zip((own + rows.start).tolist(), zip(words, word_gains, strict=True), strict=True))

    def allocate(self, chosen: Chosen, beams: Beams, step: int) -> Chosen:
        """Replaces the continuations of sentences with phrases by a selection from all banks."""
        chosen = chosen.padded(int(beams.widths.max()))
        rows = beams.totals.shape[1]
        for place, (sentence, width) in enumerate(zip(beams.sentences, beams.widths, strict=True)):
            phrases = self._phrases[sentence]
            if phrases.words:
                pool = self._pool(phrases, place * rows, beams.totals[place], int(width))
                steps_left = self._restrictions.limits[sentence] - step - 1
                selected = _divide(pool.select(pool.fitting(steps_left)), phrases.words, int(width))
                chosen.totals[place] = -np.inf
                at = place, slice(len(selected.totals))
                chosen.totals[at], chosen.gains[at] = selected.totals, selected.gains
                chosen.rows[at], chosen.tokens[at] = place * rows + selected.hypotheses, selected.symbols
        self._wanted, self._best = {}, {}
        return chosen

    def extend(self, rows: Integers, symbols: Integers) -> Integers:
        """Updates the progress for the next rows, each a row of this step plus a symbol; returns the word ids."""
        pairs = zip(rows.tolist(), symbols.tolist(), strict=True)
        self._rows = [self._rows[row].after(symbol) for row, symbol in pairs]
        return np.where(symbols < 0, UNK_ID, symbols)

    def resolve(self, found: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
        """Replaces symbols by word ids in hypotheses and adds the positions of the phrases."""
        return [
            [
                replace(
                    hypothesis,
                    tokens=tuple(max(symbol, UNK_ID) for symbol in hypothesis.tokens),
                    phrase_at=phrases.places(hypothesis.tokens),
                )
                for hypothesis in each
            ]
            for each, phrases in zip(found, self._phrases, strict=True)
        ]

    def _pool(self, phrases: Phrases, start: int, totals: Floats, width: int) -> _Pool:
        """The best and the wanted continuations of the hypotheses (R,) of the sentence whose first row is `start`."""
        rows = range(start, start + len(totals))
        progress = self._rows[start : rows.stop]
        words = np.stack([self._best[row][0][:width] for row in rows])
        gains = np.stack([self._best[row][1][:width] for row in rows])
        for number, each in enumerate(progress):
            if each.bound:
                gains[number, words[number] != each.wanted[0]] = -np.inf
        missing = np.repeat([[each.after(None).missing] for each in progress], words.shape[1], axis=1)
        for row, column in np.argwhere(np.isin(words, list(phrases.alphabet))):
            missing[row, column] = progress[row].after(int(words[row, column])).missing
        wanted = [
            (number, symbol, gain, progress[number].after(symbol).missing)
            for number, row in enumerate(rows)
            for symbol, gain in self._wanted[row]
            if symbol not in words[number]
        ]
        more_hypotheses, more_symbols, more_gains, more_missing = zip(*wanted, strict=True) if wanted else [()] * 4
        hypotheses = np.append(np.repeat(np.arange(len(rows)), words.shape[1]), np.array(more_hypotheses, np.int64))
        all_gains = np.append(gains, more_gains)
        return _Pool(
            hypotheses,
            np.append(words, np.array(more_symbols, np.int64)),
            all_gains,
            totals[hypotheses] + all_gains,
            np.append(missing, np.array(more_missing, np.int64)),
        )


def _divide(pool: _Pool, words: int, width: int) -> _Pool:
    """Selects `width` continuations from a sorted pool, best first; there are `words` + 1 banks."""
    banks = words - pool.missing
    counts = np.bincount(banks, minlength=words + 1)
    by_bank = np.argsort(banks, kind="stable")
    ranks = np.empty(len(banks), np.int64)
    ranks[by_bank] = np.arange(len(banks)) - np.repeat(np.cumsum(counts) - counts, counts)
    reserved = ranks < bank_shares(counts, width)[banks]
    most_probable = np.nonzero(~reserved)[0][: width - reserved.sum()]
    return pool.select(np.sort(np.append(np.nonzero(reserved)[0], most_probable)))


def bank_shares(counts: Integers, width: int) -> Integers:
    """The number of places that are reserved for each bank, given the number of its continuations.

    Half the beam is divided equally, but each bank gets at least one place, the banks with more phrase words first.
    """
    share = max(1, width // (2 * max(1, int((counts > 0).sum()))))
    wanted = np.minimum(counts, share)
    before = np.cumsum(wanted[::-1])[::-1] - wanted  # the places of the banks with more phrase words
    return np.asarray(np.clip(width - before, 0, wanted))
