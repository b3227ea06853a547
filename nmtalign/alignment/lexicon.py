"""A translation table of words, p(target | source): learned from sentence pairs, or counted over links."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.bitext import Bitext, tokenized
from nmtalign.alignment.links import parse_links
from nmtalign.alignment.model1 import learn
from nmtalign.alignment.record import Link
from nmtalign.alignment.store import AlignmentFile
from nmtalign.data.pipeline import LengthLimit, Side, WordIndex
from nmtalign.errors import InputError
from nmtalign.text.lines import read_lines, read_pairs, shown
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import EOS, NO_WORD, UNK

LinkedPair = tuple[Sequence[str], Sequence[str], Sequence[Link]]  # source words, target words, links

_NOT_WORDS = frozenset((EOS, UNK)) | NO_WORD
_BLANKS = frozenset(" \t\r\n")
_BUFFER = 1 << 20  # links that are counted together


@dataclass(frozen=True)
class Entry:
    """A line of a lexicon."""

    source: str
    target: str
    probability: float

    def line(self) -> str:
        """As a file holds it: fields set apart by tabs."""
        return f"{self.source}\t{self.target}\t{self.probability:.5g}\n"


@dataclass(frozen=True)
class Lexicon:
    """p(target | source) of pairs of words; for one source word they sum to at most 1.

    sources, targets and probabilities (N,) are those of each pair, sources and targets as places in the words.
    """

    source_words: Sequence[str]
    target_words: Sequence[str]
    sources: NDArray[np.integer]
    targets: NDArray[np.integer]
    probabilities: NDArray[np.floating]

    def entries(self, top: int, least: float) -> list[Entry]:
        """At most `top` translations a word, of probability `least` or more.

        By source word (code points), then falling probability, then target word. The special names `</s>`, `<unk>`,
        `NULL` and `<eps>`, which stand for no word, are left out, and what a line of the file cannot hold.
        """
        kept = self.probabilities >= least
        kept &= _writable(self.source_words)[self.sources] & _writable(self.target_words)[self.targets]
        sources, targets, values = self.sources[kept], self.targets[kept], self.probabilities[kept]
        ranks = _ranks(self.source_words)[sources]
        order = np.lexsort((_ranks(self.target_words)[targets], -values, ranks))
        ranks = ranks[order]
        place = np.arange(len(order)) - np.searchsorted(ranks, ranks)  # among the translations of its word
        columns = ((sources, self.source_words), (targets, self.target_words))
        names = [[words[number] for number in ids[order[place < top]].tolist()] for ids, words in columns]
        return list(map(Entry, *names, values[order[place < top]].tolist()))


def _writable(words: Sequence[str]) -> NDArray[np.bool_]:
    """(words,) whether each is a word, and has no blank in it, as one may in alignments of another origin."""
    fit = (word not in _NOT_WORDS and bool(word) and _BLANKS.isdisjoint(word) for word in words)
    return np.fromiter(fit, np.bool_, len(words))


def _ranks(words: Sequence[str]) -> NDArray[np.int64]:
    """The place of each word in the order of code points."""
    ranks = np.empty(len(words), np.int64)
    ranks[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    return ranks


def learn_lexicon(
    bitext: Bitext, iterations: int = 5, progress: Callable[[int, float], None] = lambda iteration, share: None
) -> Lexicon:
    """The probabilities of IBM Model 1 after some iterations; raises InputError for a bitext without pairs."""
    if not len(bitext):
        raise InputError("no pairs to learn from: all are empty or too long; give aligned text")
    found = learn(bitext, iterations, progress=progress)
    return Lexicon(bitext.source.words, bitext.target.words, found.sources, found.targets, found.probabilities)


def count_links(pairs: Iterable[LinkedPair]) -> Lexicon:
    """p(f | e) = links between e and f / links of e, over all pairs."""
    source_index, target_index = WordIndex(), WordIndex()
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[int] = []
    for sources, targets, links in pairs:
        for i, j in links:
            waiting.append(source_index[sources[i]] << 32 | target_index[targets[j]])
        if len(waiting) > _BUFFER:
            keys, counts = _add(keys, counts, waiting)
            waiting = []
    keys, counts = _add(keys, counts, waiting)
    found, partners = keys >> 32, keys & 0xFFFFFFFF
    totals = np.bincount(found, counts)
    return Lexicon(list(source_index), list(target_index), found, partners, counts / totals[found])


def _add(
    keys: NDArray[np.int64], counts: NDArray[np.int64], waiting: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    more, numbers = np.unique(np.asarray(waiting, np.int64), return_counts=True)
    merged, places = np.unique(np.concatenate((keys, more)), return_inverse=True)
    return merged, np.bincount(places, np.concatenate((counts, numbers)), len(merged)).astype(np.int64)


def stored_links(path: Path, every: int = 1) -> Iterator[LinkedPair]:
    """The words and hard links of a file of `nmtalign align`, or of every n-th record; FormatError if it is damaged."""
    with AlignmentFile(path) as file:
        for record in file:
            if record.sentence_id % every == 0:
                yield record.source, record.target, record.hard_links


def pharaoh_links(
    texts: tuple[Path, Path], links: Path, tokenizers: Tokenizers, every: int = 1, workers: int = 1
) -> Iterator[LinkedPair]:
    """The words of two texts with the links of a file in Pharaoh's format, a line a pair; or every n-th pair.

    Raises InputError naming file and line: for texts or links of unequal length, for what is no link, and for a link
    that points outside its pair.
    """
    lines, number = read_lines(links), 1
    chosen = islice(read_pairs(*texts), 0, None, every)
    for _, chunk in tokenized(chosen, tokenizers, LengthLimit(keep_empty=True), workers):
        for source, target in zip(_sentences(chunk.source), _sentences(chunk.target), strict=True):
            line = next(lines, None)
            if line is None:
                raise InputError(f"{shown(links)}: has no line {number}; give one line of links a pair")
            where = f"{shown(links)}: line {number}"
            yield source, target, _inside(parse_links(line, where), source, target, where)
            number += 1 + sum(1 for _ in islice(lines, every - 1))
    if rest := sum(1 for _ in lines):
        raise InputError(f"{shown(links)}: has {rest} lines more than {shown(texts[0])}; give one line of links a pair")


def _sentences(side: Side) -> Iterator[list[str]]:
    words = side.words()
    tokens = [words[number] for number in side.ids.tolist()]
    start = 0
    for length in side.lengths.tolist():
        yield tokens[start : start + length]
        start += length


def _inside(links: list[Link], source: Sequence[str], target: Sequence[str], where: str) -> list[Link]:
    for i, j in links:
        if i >= len(source) or j >= len(target):
            raise InputError(
                f"{where}: link {i}-{j} points outside the pair, which has {len(source)} source and {len(target)} "
                "target words counted from 0; if the text is tokenised as the links count it, give --tokenized"
            )
    return links
