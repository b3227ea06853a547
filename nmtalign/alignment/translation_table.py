"""A translation table of words, p(target | source): learned from sentence pairs, or counted from links."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import is_hdf5
from nmtalign.alignment.links import Link, LinkedPair, parse_links
from nmtalign.alignment.model1 import Bitext, corpus_bitext, learn, read_bitext, tokenized
from nmtalign.data.corpus import CORPUS_FILE, Corpus
from nmtalign.data.pipeline import Side, WordIndex, worker_count
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.command_settings import LexiconConfig
from nmtalign.text.direction import TextFit, check_pairs
from nmtalign.text.lines import STDIN, read_lines, read_pairs, shown
from nmtalign.text.link_counting import SplitLine, SplitPair, converted_note, counts_words, token_links
from nmtalign.text.tokenizer import Subwords, TextBytes, Tokenizers
from nmtalign.text.vocabulary import EOS, NO_WORD, UNK

Progress = Callable[[str], object]  # is called with a description of the current step
_NOT_WORDS = frozenset((EOS, UNK)) | NO_WORD
_BLANKS = frozenset(" \t\r\n")


@dataclass(frozen=True)
class LexiconEntry:
    """A line of a lexicon."""

    source: str
    target: str
    probability: float

    def line(self) -> str:
        """Returns the line of a file: fields separated by tabs."""
        return f"{self.source}\t{self.target}\t{self.probability:.5g}\n"


@dataclass(frozen=True)
class Lexicon:
    """p(target | source) of N word pairs; for each source word they sum to at most 1.

    `sources` and `targets` (N,) are places in the lists of words, `probabilities` (N,). `pairs` were used and
    `left_out` were not, because they are empty or too long; `links` were counted, None if the table was learned.
    """

    source_words: Sequence[str]
    target_words: Sequence[str]
    sources: NDArray[np.integer]
    targets: NDArray[np.integer]
    probabilities: NDArray[np.floating]
    pairs: int = 0
    left_out: int = 0
    links: int | None = None

    def entries(self, top: int, least: float) -> list[LexiconEntry]:
        """Returns at most `top` translations per word, with a probability of at least `least`.

        Sorted by source word (code points), then by falling probability, then by target word. The special names
        `</s>`, `<unk>`, `NULL` and `<eps>`, and words that a line of the file cannot contain, are left out.
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
        return list(map(LexiconEntry, *names, values[order[place < top]].tolist()))


def _writable(words: Sequence[str]) -> NDArray[np.bool_]:
    """Returns (words,) whether each is a word without blanks; alignments of other programs may have others."""
    fit = (word not in _NOT_WORDS and bool(word) and _BLANKS.isdisjoint(word) for word in words)
    return np.fromiter(fit, np.bool_, len(words))


def _ranks(words: Sequence[str]) -> NDArray[np.int64]:
    """Returns the place of each word in the order of code points."""
    ranks = np.empty(len(words), np.int64)
    ranks[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    return ranks


def make_lexicon(
    source: Path,
    target: Path | None = None,
    links: Path | None = None,
    config: LexiconConfig | None = None,
    model: Path | None = None,
    progress: Progress = lambda step: None,
    notify: Progress = lambda message: None,
) -> Lexicon:
    """Returns the table of two texts, or of a prepared corpus or an alignment file (`source` without `target`).

    It is learned with IBM Model 1 from texts and from a corpus. Links are counted: those of an alignment file, or those
    of the texts in `links`, in Pharaoh's format. Texts are tokenised as the text of `model` (or of a prepared corpus).
    `notify` is called with warnings on their languages.
    Raises UsageError if it is not known how to read the texts, InputError for texts that cannot be read and without
    pairs or links, FormatError for a damaged model, corpus or alignment file.
    """
    config = config or LexiconConfig()
    if target is None:
        if links is not None:
            raise UsageError("--links is for two texts: give SRC TGT")
        if source == STDIN or (source.is_file() and not is_hdf5(source)):
            raise UsageError(f"{shown(source)}: one text is given; give the source and its translation: SRC TGT")
        is_file = source.is_file() or (source.suffix == ".h5" and not source.exists())
        if is_file and source.name != CORPUS_FILE:
            return _count(stored_links(source, config.every), source, config, progress)
        return learn_lexicon(corpus_bitext(Corpus.open(source), config.every), config, progress)
    if [source, target, links].count(STDIN) > 1:
        raise UsageError("only one of SRC, TGT and --links can be stdin")
    tokenizers, workers = _tokenizers(model, config, links is not None), worker_count(config.workers)
    if links is not None:
        pairs = pharaoh_links((source, target), links, tokenizers, config.every, workers, notify)
        return _count(pairs, links, config, progress)
    texts = read_pairs(source, target)
    if model is not None and not config.tokenized:
        fits = [TextFit.load(model, side) for side in (0, 1)]
        texts = check_pairs(texts, (source, target), fits, notify, ahead=True)
    lines = islice(texts, 0, None, config.every)
    bitext = read_bitext(lines, tokenizers, workers, lambda read: progress(f"reading: {read:,} pairs"))
    return learn_lexicon(bitext, config, progress)


def _tokenizers(model: Path | None, config: LexiconConfig, links: bool) -> Tokenizers:
    """Returns how texts become words: as the text of a model or a corpus, or at spaces.

    Links count words between spaces if the model has subwords or bytes, so its texts are then split at spaces.
    """
    if config.tokenized:
        return Tokenizers.spaced()
    if model is None:
        raise UsageError("it is not known how to tokenise: give a model or corpus with -m, or --tokenized")
    found = Tokenizers.load(model)
    return Tokenizers.spaced() if isinstance(found.source, Subwords if links else TextBytes) else found


def learn_lexicon(
    bitext: Bitext, config: LexiconConfig | None = None, progress: Progress = lambda step: None
) -> Lexicon:
    """Learns the probabilities of IBM Model 1; raises InputError for a bitext without pairs."""
    config = config or LexiconConfig()
    if not len(bitext):
        raise InputError("no pairs to learn from: all are empty or too long; give aligned text")
    bitext = bitext.reversed() if config.reverse else bitext

    def report(iteration: int, share: float) -> None:
        progress(f"iteration {iteration} of {config.iterations}: {share:.0%}")

    found = learn(bitext, config.iterations, progress=report)
    return Lexicon(bitext.source.words, bitext.target.words, *found, len(bitext), bitext.left_out)


def _count(pairs: Iterable[LinkedPair], origin: Path, config: LexiconConfig, progress: Progress) -> Lexicon:
    made = lexicon_of_links((pair.turned() for pair in pairs) if config.reverse else pairs, progress=progress)
    if not made.links:
        raise InputError(f"{shown(origin)}: no links to count")
    return made


def lexicon_of_links(
    pairs: Iterable[LinkedPair], at_once: int = 1 << 20, progress: Progress = lambda step: None
) -> Lexicon:
    """Returns p(f | e) = (links between e and f) / (links of e) over all pairs, counting `at_once` links together."""
    source_index, target_index = WordIndex(), WordIndex()
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[int] = []
    number = 0
    for number, pair in enumerate(pairs, 1):
        for i, j in pair.links:
            waiting.append(source_index[pair.source[i]] << 32 | target_index[pair.target[j]])
        if len(waiting) > at_once:
            keys, counts = _add(keys, counts, waiting)
            waiting = []
        if number % 1000 == 0:
            progress(f"counting: {number:,} pairs")
    keys, counts = _add(keys, counts, waiting)
    found, partners = keys >> 32, keys & 0xFFFFFFFF
    probabilities = counts / np.bincount(found, counts)[found]
    words = list(source_index), list(target_index)
    return Lexicon(*words, found, partners, probabilities, pairs=number, links=int(counts.sum()))


def _add(
    keys: NDArray[np.int64], counts: NDArray[np.int64], waiting: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    more, numbers = np.unique(np.asarray(waiting, np.int64), return_counts=True)
    merged, places = np.unique(np.concatenate((keys, more)), return_inverse=True)
    return merged, np.bincount(places, np.concatenate((counts, numbers)), len(merged)).astype(np.int64)


def stored_links(path: Path, every: int = 1) -> Iterator[LinkedPair]:
    """Yields the best record of each sentence of an alignment file, or of every n-th one, without weights.

    Raises FormatError if the file is damaged.
    """
    with AlignmentFile(path) as file:
        for pair in file.links():
            if pair.rank == 0 and pair.sentence_id % every == 0:
                yield pair


def pharaoh_links(
    texts: tuple[Path, Path],
    links: Path,
    tokenizers: Tokenizers,
    every: int = 1,
    workers: int = 1,
    notify: Progress = lambda message: None,
) -> Iterator[LinkedPair]:
    """Yields the words of two texts with the links of a file in Pharaoh's format, or every n-th pair.

    Links that count the words between spaces become links between tokens, and `notify` is called with a line about it.
    Raises InputError naming file and line for texts or links of unequal length, for a line that is not made of links,
    and for a link outside its pair.
    """
    lines, number, pairs = read_lines(links), 1, 0

    def counted() -> Iterator[tuple[str, str]]:
        nonlocal pairs
        for pair in read_pairs(*texts):
            pairs += 1
            yield pair

    chosen = islice(counted(), 0, None, every)
    convert: bool | None = None  # as the first pairs tell
    for block, chunk in tokenized(chosen, tokenizers, None, workers):
        found = list[LinkedPair]()
        for source, target in zip(_sentences(chunk.source), _sentences(chunk.target), strict=True):
            line = next(lines, None)
            if line is None:
                raise InputError(f"{shown(links)}: has no line {number}; give one line of links per pair")
            where = f"{shown(links)}: line {number}"
            own = _inside(parse_links(line, where), source, target, where)
            found.append(LinkedPair(source, target, own, number - 1))
            number += 1 + sum(1 for _ in islice(lines, every - 1))
        if convert is None:
            split = zip(found, block, strict=True)
            convert = counts_words((pair.links, _split(pair, raw)) for pair, raw in split) or False
            if convert:
                notify(converted_note(shown(links)))
        for pair, raw in zip(found, block, strict=True):
            yield pair._replace(links=tuple(token_links(pair.links, _split(pair, raw)))) if convert else pair
    number += sum(1 for _ in lines)
    if number <= pairs:
        raise InputError(f"{shown(links)}: has no line {number}; give one line of links per pair")
    if rest := number - 1 - pairs:
        raise InputError(
            f"{shown(links)}: has {rest} lines more than {shown(texts[0])}; give one line of links per pair"
        )


def _split(pair: LinkedPair, lines: tuple[str, str]) -> SplitPair:
    return SplitLine.of(lines[0], pair.source), SplitLine.of(lines[1], pair.target)


def _sentences(side: Side) -> Iterator[tuple[str, ...]]:
    words = side.words()
    tokens = [words[number] for number in side.ids.tolist()]
    start = 0
    for length in side.lengths.tolist():
        yield tuple(tokens[start : start + length])
        start += length


def _inside(links: list[Link], source: Sequence[str], target: Sequence[str], where: str) -> tuple[Link, ...]:
    for i, j in links:
        if i >= len(source) or j >= len(target):
            raise InputError(
                f"{where}: link {i}-{j} points outside the pair, which has {len(source)} source and {len(target)} "
                "target words counted from 0; if the text is tokenised as the links count it, give --tokenized"
            )
    return tuple(links)
