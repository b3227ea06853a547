"""Phrases that a translation must contain: the progress of each hypothesis, and beam search with phrase banks.

Dynamic beam allocation (Post and Vilar 2018): a hypothesis belongs to the bank of the number of phrase words that it
contains. Besides the best continuations, the words that continue a phrase are tried for every hypothesis. Half the beam
is divided equally among the banks that have a continuation; the other half goes to the most probable continuations.
The published method divides the complete beam among all banks and passes unused places down. A beam that is hardly
wider than the number of banks then inserts a phrase wherever it can, which costs up to 19 BLEU (tests/bench/LOG.md).
Without banks, phrases appear at the length limit, after everything else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import regex
import torch
from torch import Tensor

from nmtalign.search.beam_search import (
    BeamSearch,
    Continuations,
    Flags,
    Hypothesis,
    Integers,
    Session,
    Sources,
    largest,
)
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.tokenizer import EOS_ID, UNK_ID

Symbols = tuple[int, ...]
_BEFORE = "\n"  # put before the text of a translation
_BYTES = frozenset(map(chr, range(0xDC80, 0xDD00)))  # bytes of incomplete characters, as Python escapes them


@dataclass(frozen=True)
class RequiredPhrase:
    """How a translation may contain a phrase: `pattern` finds it in the text, however its tokens are cut.

    `reach` is the length of its longest occurrence in characters. `ways` are symbols that write it as separate words,
    `joined` those that write it directly behind other text, as languages without spaces do. Symbols are word ids, but
    a word that the model does not know has a negative symbol.
    """

    pattern: regex.Pattern[str]
    reach: int
    ways: tuple[Symbols, ...]
    joined: tuple[Symbols, ...] = ()

    @property
    def every_way(self) -> tuple[Symbols, ...]:
        """All ways to write the phrase."""
        return self.joined + self.ways

    @cached_property
    def size(self) -> int:
        """The most words that are needed to write the phrase."""
        return max(map(len, self.every_way))


class Phrases:
    """The phrases of one sentence; its translation must contain each of them.

    Phrases may share words: "a b c" contains "a b" and "b c". A phrase that is given twice must occur twice. Symbol -1
    represents the first of the `unknown` words, -2 the second. `text_of` gives the text of a symbol, with its space.
    """

    def __init__(
        self,
        phrases: Sequence[RequiredPhrase] = (),
        text_of: Callable[[int], str] = str,
        unknown: Sequence[str] = (),
        prefix: Symbols = (),
    ) -> None:
        """Each translation begins with the `prefix`, which may contain phrases."""
        self._all, self._prefix, counts = phrases, prefix, Counter(phrases)
        self.unknown, self.text_of = unknown, text_of
        self.words = sum(phrase.size * times for phrase, times in counts.items())
        self.ids = {max(symbol, UNK_ID) for phrase in counts for way in phrase.every_way for symbol in way}
        self.longest = max((phrase.size for phrase in counts), default=1)
        progress = PhraseProgress(self, tuple(_Part(phrase, n, n, _BEFORE) for phrase, n in counts.items()), ())
        progress = reduce(PhraseProgress.after, prefix, progress)
        self.start = PhraseProgress(self, progress.parts, progress.recent, len(prefix))

    def lacking(self, translations: Iterable[Symbols]) -> "Phrases":
        """The phrases that not every one of these translations contains."""
        lack = set[RequiredPhrase]()
        for tokens in translations if self.words else ():
            lack |= {part.phrase for part in reduce(PhraseProgress.after, tokens, self.start).parts if part.missing}
        own = [phrase for phrase in self._all if phrase in lack]
        return Phrases(own, self.text_of, self.unknown, self._prefix) if lack else NO_PHRASES


class _Part(NamedTuple):
    """The progress with one phrase: the occurrences still missing, and the end of the text.

    More text can destroy an occurrence at the very end: "cat" is not in "cats". `left` still includes it, `missing`
    does not.
    """

    phrase: RequiredPhrase
    left: int
    missing: int
    text: str

    def read(self, more: str) -> "_Part":
        """The progress after more text."""
        if not self.left or not more:
            return self
        text, start, left, missing, kept = self.text + more, 1, self.left, self.left, 0
        if not _BYTES.isdisjoint(self.text[-1] + more):
            text = whole_characters(text)
        whole = text[:-3] + text[-3:].rstrip("".join(_BYTES)) if text[-1] in _BYTES else text
        while missing and (found := self.phrase.pattern.search(whole, start)):
            missing, start = missing - 1, found.start() + 1
            if found.end() + 2 <= len(whole):  # enough text to decide that the last word is complete
                left, kept = left - 1, found.start()
        # The first character that is kept is only context: the search begins after it.
        return _Part(self.phrase, left, missing, text[max(kept, len(text) - self.phrase.reach - 4) :])


def whole_characters(text: str) -> str:
    """A text in which the escaped bytes of complete characters are replaced by the characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


class PhraseProgress:
    """How much of the phrases a translation contains.

    `missing`: the most words that are still needed to complete all phrases. `wanted`: the symbols that continue a
    phrase. `bound`: only a wanted symbol may follow, because an unfinished phrase already has an unknown word.
    `recent` are the last symbols. The progress stays the same for the next `given` symbols, which are the prefix.
    """

    def __init__(self, phrases: Phrases, parts: tuple[_Part, ...], recent: Symbols, given: int = 0) -> None:
        self._phrases, self._given, self.parts, self.recent = phrases, given, parts, recent
        self._after: dict[int, PhraseProgress] = {}
        self.bound = False
        self._begun, self.missing = list[tuple[Symbols, int, int]](), self._need(parts)
        if self.missing and recent:
            begun = [each for each in self._unfinished() if each[2] < self.missing]
            unknown = [each for each in begun if min(each[0][: each[1]]) < 0]
            self._begun, self.bound = unknown or begun, bool(unknown) and not given
            self.missing = min((missing for _, _, missing in self._begun), default=self.missing)

    def _need(self, parts: Sequence[_Part]) -> int:
        """The most words that write all missing occurrences."""
        return sum(part.missing * part.phrase.size for part in parts)

    def _read(self, text: str) -> tuple[_Part, ...]:
        return tuple(part.read(text) for part in self.parts)

    def _unfinished(self) -> Iterator[tuple[Symbols, int, int]]:
        """Each way that the last symbols begin to write a missing phrase.

        For each: the number of these symbols, and the most words that complete this phrase and then the others.
        """
        for part in self.parts:
            for way in part.phrase.every_way if part.missing else ():
                for matched in range(min(len(way) - 1, len(self.recent)), 0, -1):
                    if self.recent[-matched:] == way[:matched]:
                        rest = way[matched:]
                        parts = self._read("".join(map(self._phrases.text_of, rest)))
                        yield way, matched, len(rest) + self._need(parts)

    @cached_property
    def wanted(self) -> Symbols:
        """While one phrase is unfinished, the others wait. If none is missing: the symbols that keep it so."""
        if not self.missing:
            unsure = [part.phrase for part in self.parts if part.left]
            safe = [way[0] for own in unsure for way in own.every_way if not self.after(way[0]).missing]
            return (EOS_ID, *dict.fromkeys(safe)) if unsure else ()
        found = dict.fromkeys(way[matched] for way, matched, missing in self._begun if missing == self.missing)
        for part in self.parts if not self._begun else ():
            joined = part.phrase.joined if part.text != _BEFORE else ()
            for ways in (joined, part.phrase.ways) if part.missing else ():
                useful = [way[0] for way in ways if self.after(way[0]).missing < self.missing]
                found |= dict.fromkeys(useful)
                if useful:
                    break
        return tuple(found)

    def after(self, symbol: int) -> "PhraseProgress":
        """The progress after one more word."""
        if self._given:
            return PhraseProgress(self._phrases, self.parts, self.recent, self._given - 1)
        if not any(part.left for part in self.parts):
            return self
        if symbol not in self._after:
            recent = (*self.recent, symbol)[-self._phrases.longest :]
            self._after[symbol] = PhraseProgress(self._phrases, self._read(self._phrases.text_of(symbol)), recent)
        return self._after[symbol]


NO_PHRASES = Phrases()


class _Continuation(NamedTuple):
    """A hypothesis of a sentence with one more symbol."""

    total: float
    hypothesis: int
    symbol: int
    gain: float
    missing: int  # phrase words that are missing after it


class PhraseSearch(BeamSearch):
    """A beam search whose translations contain the phrases of their sentences, with the progress of each row.

    Sentences without phrases are searched as usual. In a sentence with phrases, the missing words of each row always
    fit below the length limit, and no row ends before it contains all phrases. The candidates must include the words of
    the phrases.
    """

    def __init__(
        self, sources: Sources, config: TranslateConfig, phrases: Sequence[Phrases], keep_weights: bool = False
    ) -> None:
        super().__init__(sources, config, keep_weights, [each.words for each in phrases])
        self._phrases = phrases
        self._rows: list[PhraseProgress] = [each.start for each in phrases]  # for each row of the step
        # For each row of a sentence with phrases: wanted symbols, and best words, with their log-probabilities.
        self._wanted: dict[int, list[tuple[int, float]]] = {}
        self._best: dict[int, list[tuple[int, float]]] = {}

    def restrict(self, log_probs: Tensor, rows: slice) -> None:
        """See `BeamSearch`; also stores the continuations from which `continuations` selects."""
        sentences, step = self.sentences[np.arange(rows.start, rows.stop) // self.totals.shape[1]], self.step
        progress = self._rows[rows]
        after_prefix = self.restrictions.prefix_lengths[sentences] <= step
        wanted = [each.wanted if free else () for each, free in zip(progress, after_prefix, strict=True)]
        may_end = self.restrictions.min_lengths[sentences] <= step
        wanted = [own if end else tuple(filter(None, own)) for own, end in zip(wanted, may_end, strict=True)]
        self._read_wanted(log_probs, rows.start, wanted)
        incomplete = np.array([each.missing > 0 for each in progress])
        self.restrictions.apply(log_probs, sentences, step, incomplete)
        own = np.nonzero([self._phrases[sentence].words > 0 for sentence in sentences])[0]
        gains, columns = largest(log_probs[torch.from_numpy(own).to(log_probs.device)], int(self.widths.max()))
        words = self.restrictions.words(columns.cpu().numpy()).tolist()
        for row, *best in zip((own + rows.start).tolist(), words, gains.cpu().double().tolist(), strict=True):
            self._best[row] = list(zip(*best, strict=True))

    def _read_wanted(self, log_probs: Tensor, start: int, wanted: Sequence[Symbols]) -> None:
        """Stores the log-probabilities of wanted words, given log_probs (r, U) in which no word is banned yet."""
        symbols = np.array([symbol for each in wanted for symbol in each], np.int64)
        owners = np.repeat(np.arange(len(wanted)), [len(each) for each in wanted])
        columns = self.restrictions.columns(np.where(symbols < 0, UNK_ID, symbols))
        at = [torch.from_numpy(part).to(log_probs.device) for part in (owners, columns)]
        gains = iter(log_probs[at[0], at[1]].cpu().double().tolist())
        for row, each in enumerate(wanted, start):
            self._wanted[row] = [(symbol, next(gains)) for symbol in each]

    def continuations(self, session: Session) -> Continuations:
        """See `BeamSearch`; those of sentences with phrases are selected from all banks."""
        found, totals = super().continuations(session), self.totals
        columns, rows = found.totals.shape[1], totals.shape[1]
        missing = (0, 0), (0, max(0, int(self.widths.max()) - columns))
        found = Continuations(*(np.pad(part, missing, mode="edge") for part in found))
        found.totals[:, columns:] = -np.inf
        for place, (sentence, width) in enumerate(zip(self.sentences.tolist(), self.widths.tolist(), strict=True)):
            phrases = self._phrases[sentence]
            if not phrases.words:
                continue
            steps = int(self.restrictions.limits[sentence]) - self.step - 1  # left for missing words and `</s>`
            pool = self._pool(phrases, place * rows, totals[place].tolist(), width, steps)
            pool.sort(key=itemgetter(0), reverse=True)
            found.totals[place] = -np.inf
            for column, each in enumerate(_divide(pool, phrases.words, width)):
                at = place, column
                found.totals[at], found.rows[at] = each.total, place * rows + each.hypothesis
                found.tokens[at], found.gains[at] = each.symbol, each.gain
        self._wanted, self._best = {}, {}
        return found

    def extend(self, found: Continuations, opened: Flags, kept: Integers) -> tuple[Integers, Integers]:
        """See `BeamSearch`; updates the progress for the next rows, each a row of this step plus a symbol."""
        rows, symbols = super().extend(found, opened, kept)
        pairs = zip(rows.tolist(), symbols.tolist(), strict=True)
        self._rows = [self._rows[row].after(symbol) for row, symbol in pairs]
        return rows, np.where(symbols < 0, UNK_ID, symbols)

    def results(self) -> list[list[Hypothesis]]:
        """See `BeamSearch`; replaces symbols by word ids, and adds the unknown words that they represent."""
        return [
            [
                replace(
                    hypothesis,
                    tokens=tuple(symbol if symbol >= 0 else UNK_ID for symbol in hypothesis.tokens),
                    given={at: phrases.unknown[-1 - s] for at, s in enumerate(hypothesis.tokens) if s < 0},
                )
                for hypothesis in each
            ]
            for each, phrases in zip(super().results(), self._phrases, strict=True)
        ]

    def _pool(
        self, phrases: Phrases, start: int, totals: Sequence[float], width: int, steps: int
    ) -> list[_Continuation]:
        """The best and the wanted continuations of the hypotheses (R,) of the sentence whose first row is `start`.

        Omits those after which `steps` do not suffice for the missing words and `</s>`.
        """
        best, wanted = list[_Continuation](), list[_Continuation]()
        for number, total in enumerate(totals):
            progress, own_best = self._rows[start + number], dict(self._best[start + number][:width])
            own_wanted = [pair for pair in self._wanted[start + number] if pair[0] not in own_best]
            if not progress.missing and phrases.words < steps:
                own_wanted = []  # there is room to write again what the next word destroys
            for pairs, pool in ((own_best.items(), best), (own_wanted, wanted)):
                for symbol, gain in pairs:
                    # An impossible word may have no text: a place behind the end of the source that could be copied.
                    if total + gain > -np.inf and (not progress.bound or symbol in progress.wanted):
                        missing = progress.after(symbol).missing
                        if missing + (symbol != EOS_ID) <= steps:
                            pool.append(_Continuation(total + gain, number, symbol, gain, missing))
        return best + wanted


def _divide(pool: Sequence[_Continuation], words: int, width: int) -> list[_Continuation]:
    """Selects `width` continuations from a sorted pool, best first; there are `words` + 1 banks."""
    banks = [words - each.missing for each in pool]
    left = bank_shares(np.bincount(banks, minlength=words + 1), width).tolist()
    reserved, others = list[int](), list[int]()
    for place, bank in enumerate(banks):
        (reserved if left[bank] > 0 else others).append(place)
        left[bank] -= 1
    return [pool[place] for place in sorted(reserved + others[: width - len(reserved)])]


def bank_shares(counts: Integers, width: int) -> Integers:
    """The number of places that are reserved for each bank, given the number of its continuations.

    Half the beam is divided equally, but each bank gets at least one place, the banks with more phrase words first.
    """
    share = max(1, width // (2 * max(1, int((counts > 0).sum()))))
    wanted = np.minimum(counts, share)
    before = np.cumsum(wanted[::-1])[::-1] - wanted  # the places of the banks with more phrase words
    return np.asarray(np.clip(width - before, 0, wanted))
