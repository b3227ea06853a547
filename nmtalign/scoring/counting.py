"""The statistics of every metric for a block of sentences of several systems; what they share is made once."""

import importlib.metadata
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.errors import NmtalignError
from nmtalign.scoring.characters import (
    CHARACTER_ORDER,
    WORD_ORDER,
    character_codes,
    of_best_reference,
    order_counts,
    with_small_codes,
    words_and_marks,
)
from nmtalign.scoring.edits import ter_statistics
from nmtalign.scoring.ngrams import Ints, Numbered, matches
from nmtalign.scoring.numbering import END, BleuTokens, Cuts, Words, new_index, number, split
from nmtalign.scoring.options import METRICS, MetricOptions
from nmtalign.text.moses import MosesWords

Rows = NDArray[Any]  # (N, D)
Lines = Sequence[str]
_INSIDE = ("_extract_corpus_statistics", "_compute_score_from_stats", "get_signature")
_BLEU_ORDER = 4
_MOST_WORDS = 300_000  # known from one block of sentences to the next


def make_metric(name: str, options: MetricOptions) -> Any:
    """sacreBLEU's object of a metric; NmtalignError for a sacreBLEU that is not as this code knows it."""
    metric: Any = TER()
    if name == "bleu":
        # force only silences a warning that the command gives in its own words (looks_tokenized).
        metric = BLEU(lowercase=options.lowercase, tokenize=options.tokenize, force=True)
    elif name == "multi-bleu":
        metric = BLEU(lowercase=options.lowercase, tokenize="none", smooth_method="none", force=True)
    elif name != "ter":
        metric = CHRF(word_order=WORD_ORDER if name == "chrf++" else 0)
    missing = [name for name in _INSIDE if not hasattr(metric, name)]
    if missing:
        version = importlib.metadata.version("sacrebleu")
        raise NmtalignError(f"sacrebleu {version} has no {missing[0]}; install sacrebleu 2.4 or a later 2.x")
    return metric


class Counting:
    """Counts blocks of sentences; what is known of a word is kept from block to block."""

    def __init__(self, options: MetricOptions) -> None:
        self.options = options
        self._moses = MosesWords(options.language)
        self._forget()

    def _forget(self) -> None:
        self._index = new_index()
        self._marks = Cuts(self._index, words_and_marks)
        self._bleu = BleuTokens(make_metric("bleu", self.options), self._index)
        self._multi_bleu = BleuTokens(make_metric("multi-bleu", self.options), self._index)

    def rows(self, systems: Sequence[Lines], references: Sequence[Lines]) -> list[dict[str, Rows]]:
        """For each system the rows of each metric: (N, D), equal to those of sacreBLEU's _extract_corpus_statistics."""
        if len(self._index) > _MOST_WORDS:
            self._forget()
        texts = [*systems, *references]
        words = [[split(line) for line in lines] for lines in texts]
        numbered = [number(self._index, lines) for lines in words]
        count, wanted = len(systems), self.options.metrics
        found: dict[str, Sequence[Rows]] = {}
        if "bleu" in wanted:
            found["bleu"] = _bleu_rows(self._bleu.of(texts, numbered), count)
        if "chrf" in wanted or "chrf++" in wanted:
            found.update(self._chrf_rows(words, numbered, count))
        if "ter" in wanted:
            # All systems at once: that is faster, and each reference is looked at once.
            lines = list(itertools.chain.from_iterable(systems))
            found["ter"] = np.split(ter_statistics(lines, [[*text] * count for text in references]), count)
        if "multi-bleu" in wanted:
            found["multi-bleu"] = _bleu_rows(self._multi_bleu_tokens(texts, numbered), count)
        return [{name: found[name][number] for name in METRICS if name in found} for number in range(count)]

    def _multi_bleu_tokens(self, texts: Sequence[Lines], numbered: Sequence[Numbered]) -> list[Numbered]:
        if self.options.tokenize != "none":
            tokens = [[[*self._moses.tokenize(line), END] for line in lines] for lines in texts]
            numbered = [number(self._index, lines) for lines in tokens]
            texts = [[" ".join(line) for line in lines] for lines in tokens] if self.options.lowercase else texts
        return self._multi_bleu.of(texts, numbered)

    def _chrf_rows(
        self, lines: Sequence[Sequence[Words]], numbered: Sequence[Numbered], count: int
    ) -> dict[str, Sequence[Rows]]:
        """Of chrF and chrF++ what was asked for; their characters are the same."""
        characters = with_small_codes([character_codes(text) for text in lines])
        parts = [order_counts(characters[:count], text, CHARACTER_ORDER) for text in characters[count:]]
        found: dict[str, Sequence[Rows]] = {}
        if "chrf" in self.options.metrics:
            found["chrf"] = [of_best_reference(by_reference) for by_reference in zip(*parts, strict=True)]
        if "chrf++" in self.options.metrics:
            words = [self._marks.of(text) for text in numbered]
            more = [order_counts(words[:count], text, WORD_ORDER) for text in words[count:]]
            joined = [
                [np.concatenate(pair, axis=1) for pair in zip(one, other, strict=True)]
                for one, other in zip(parts, more, strict=True)
            ]
            found["chrf++"] = [of_best_reference(by_reference) for by_reference in zip(*joined, strict=True)]
        return found


def _bleu_rows(texts: Sequence[Numbered], count: int) -> list[Rows]:
    """Lengths of hypothesis and reference, matches, and n-grams of the hypothesis, of `count` systems."""
    systems, references = texts[:count], texts[count:]
    return [
        np.column_stack(
            [
                system.lengths,
                _closest(system.lengths, [text.lengths for text in references]),
                found,
                *(system.ngrams(order) for order in range(1, _BLEU_ORDER + 1)),
            ]
        )
        for system, found in zip(systems, matches(systems, references, _BLEU_ORDER), strict=True)
    ]


def _closest(lengths: Ints, wanted: Sequence[Ints]) -> Ints:
    """(N,) the reference length nearest to the hypothesis's, the shorter one of two as near."""
    table = np.sort(np.stack(wanted), axis=0)
    nearest: Ints = np.abs(table - lengths).argmin(axis=0)
    chosen: Ints = np.take_along_axis(table, nearest[None], axis=0)[0]
    return chosen
