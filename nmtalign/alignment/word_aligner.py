"""The word aligner of `nmtalign link`: its file, and the alignments that it gives for pairs.

The file `aligner.safetensors` contains what `AgreeingModels` has learned: the words of both sides and how often they
occur, the expected counts of pairs of words and of NULL, and the weights of the distances.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment import lexical
from nmtalign.alignment.agreement import AgreeingModels, CellBatch, Sentences, make_batches, posteriors
from nmtalign.alignment.hmm import FARTHEST, Posteriors
from nmtalign.alignment.links import (
    AlignmentRecord,
    Link,
    Matrix,
    ModelPair,
    ModelSide,
    Pair,
    empty_record,
    in_order,
    make_record,
    merge_pieces,
)
from nmtalign.alignment.symmetrization import mean_links
from nmtalign.data.pipeline import worker_count
from nmtalign.errors import FormatError
from nmtalign.files import ALIGNER, sha256_of
from nmtalign.model_directory import map_arrays, save_tensors
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.languages import TextFit
from nmtalign.text.lines import SIDES, blocks, counted
from nmtalign.text.tokenizer import EOS, UNK, SpacedWords, TokenCache, Tokenizer, Tokenizers, Vocabularies, Vocabulary

_KIND, _VERSION = "word aligner", "3"
_LEAST = 1e-3  # a pair of words with a smaller count is not kept, unless the words are cognates
LONGEST = 2_900  # pieces of a side of a pair; the memory for a pair grows with the square of its longer side
_CELLS_OF_PART = 1 << 20  # cells of the pairs that a thread aligns together
_MOST = 1.001  # the largest probability, with rounding
# The arrays of a side by word, and their smallest values.
_BY_WORD = {
    "occurrences": (np.int64, 0),
    "stems": (np.int32, -1),
    "cognates": (np.int64, 1),
    "totals": (np.float64, 0),
    "null": (np.float32, 0),
}


class Pieces(Tokenizer):
    """Words, numbers and marks, each `folded`; text between spaces is one word if its folded form `is_one`."""

    kind = "pieces"

    def __init__(self, is_one: Callable[[str], bool]) -> None:
        self._split = SpacedWords().tokenize
        fold, split = lexical.folded, lexical.pieces_of
        self.of = TokenCache(lambda word: [fold(word)] if is_one(fold(word)) else map(fold, split(word)))

    def tokenize(self, line: str) -> list[str]:
        return [piece for word in self._split(line) for piece in self.of[word]]

    def read(self, line: str) -> tuple[list[str], NDArray[np.int64] | None, list[str]]:
        """Returns the words between spaces, the first piece of each (None: each has one piece), and the pieces."""
        words = self._split(line)
        parts = list(map(self.of.__getitem__, words))
        pieces = [piece for part in parts for piece in part]
        return words, None if len(pieces) == len(words) else np.cumsum([0, *map(len, parts)]), pieces


def in_pieces(words: Sequence[str], side: Sentences, pieces: Pieces) -> tuple[list[Counter[str]], list[str], Sentences]:
    """Returns one side of a bitext in pieces: their spellings with counts, the different pieces, and the sentences."""
    numbers: dict[str, int] = {}
    spellings: list[Counter[str]] = []
    parts = []
    for word, count in zip(words, np.bincount(side.ids, minlength=len(words)).tolist(), strict=True):
        own = pieces.of[word]
        parts.append([numbers.setdefault(piece, len(numbers)) for piece in own])
        spellings += [Counter() for _ in range(len(numbers) - len(spellings))]
        for place, spelling in zip(parts[-1], [word] if len(own) == 1 else lexical.pieces_of(word), strict=True):
            spellings[place][spelling] += count
    sizes = np.array([len(part) for part in parts], np.int64)
    firsts = np.cumsum(sizes) - sizes
    own_sizes = sizes[side.ids]
    ends = np.concatenate(([0], np.cumsum(own_sizes)))
    places = np.repeat(firsts[side.ids] - ends[:-1], own_sizes) + np.arange(ends[-1])
    flat = np.fromiter(chain.from_iterable(parts), np.int32, int(sizes.sum()))
    return spellings, list(numbers), Sentences(flat[places], ends[side.offsets])


def save_aligner(folder: Path, learned: AgreeingModels, languages: tuple[str, str], tokenized: bool) -> None:
    """Writes what was learned into a folder, with sorted words; raises ResourceError if it cannot be written."""
    model, learned_counts = learned.model, learned.counts.counts[0][:-1]
    orders = [np.array(sorted(range(len(own)), key=own.__getitem__), np.int64) for own in model.names]
    names = [[own[place] for place in order] for own, order in zip(model.names, orders, strict=True)]
    kept = model.alike | (learned_counts >= _LEAST)
    source, target = (np.argsort(order)[ids[kept]] for order, ids in zip(orders, model.cells[:2], strict=True))
    keys = source * len(names[1]) + target
    by_key = np.argsort(keys)
    occurrences = [own[order] for own, order in zip(learned.counts.occurrences, orders, strict=True)]
    counts = learned_counts[kept][by_key].astype(np.float32)
    null = [own[order].astype(np.float32) for own, order in zip(learned.counts.null_counts, orders[::-1], strict=True)]
    stored = lexical.LexicalModel(names, occurrences, keys[by_key]).counted([counts.astype(np.float64)] * 2, null)
    arrays: dict[str, NDArray[Any]] = {
        "keys": stored.keys,
        "counts": np.append(counts, np.float32(0)),
        "stem_keys": stored.stem_keys,
        "stem_counts": stored.stem_counts[0],
        "jumps": np.stack(learned.jumps),
    }
    by_word: list[Sequence[NDArray[Any]]]
    by_word = [stored.occurrences, stored.stems, stored.cognates, stored.totals, stored.null_counts[::-1]]
    for (what, (kind, _)), sides in zip(_BY_WORD.items(), by_word, strict=True):
        arrays |= {f"{name}.{what}": own.astype(np.dtype(kind)) for name, own in zip(SIDES, sides, strict=True)}
    for name, own in zip(SIDES, names, strict=True):
        arrays[f"{name}.words"] = np.frombuffer("\n".join(own).encode(), np.uint8)
    facts = {"kind": _KIND, "version": _VERSION, "tokenized": str(tokenized)}
    facts |= dict(zip(SIDES, languages, strict=True))
    save_tensors(folder / ALIGNER, arrays, facts)


def load_aligner(folder: Path) -> "WordAligner":
    """Opens the aligner of a folder; raises FormatError if its file is missing, foreign or damaged.

    The file is mapped into memory. The last ones stay open for the next call, unless the file was replaced.
    """
    path = folder / ALIGNER
    if not path.is_file():
        raise FormatError(f"{folder}: no word aligner here (no {ALIGNER}); give the folder of `nmtalign link`")
    facts = path.stat()
    return _opened(path, (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns))


@lru_cache(4)
def _opened(path: Path, state: object) -> "WordAligner":
    """Opens a file of `save_aligner`; `state` differs if the file was replaced."""
    arrays, facts = map_arrays(path)
    if facts.get("kind") == _KIND and facts.get("version") != _VERSION:
        raise FormatError(f"{path}: made by an older version of nmtalign; link the texts again")
    try:
        if facts["kind"] != _KIND or not {*SIDES, "tokenized"} <= facts.keys():
            raise ValueError
        words = [StoredWords(arrays[f"{side}.words"], arrays[f"{side}.stems"]) for side in SIDES]
        sizes = [(side, len(own) + 1) for side, own in zip(SIDES, words, strict=True)]
        occurrences, stems, cognates, totals, null = (
            [_array(arrays, f"{side}.{name}", kind, (size,), least) for side, size in sizes]
            for name, (kind, least) in _BY_WORD.items()
        )
        keys, stem_keys = (_array(arrays, name, np.int64, (len(arrays[name]),)) for name in ("keys", "stem_keys"))
        counted = _array(arrays, "counts", np.float32, (len(keys) + 1,))
        stem_counts = _array(arrays, "stem_counts", np.float64, (len(stem_keys) + 1,))
        jumps = _array(arrays, "jumps", np.float64, (2, 2 * FARTHEST + 1), np.finfo(np.float64).tiny)
        if any(own.max() >= len(own) for own in stems) or jumps.max() > 1:
            raise ValueError
        expected = [counted] * 2, [stem_counts] * 2, totals, null[::-1]
        counts = lexical.LexicalCounts(keys, stem_keys, occurrences, stems, cognates, *expected)
        return WordAligner(path.parent, counts, words, list(jumps), facts)
    except (KeyError, RuntimeError, TypeError, ValueError):
        raise _damaged(path) from None


def _array(
    arrays: Mapping[str, NDArray[Any]], name: str, kind: type, shape: tuple[int, ...], least: float | None = None
) -> NDArray[Any]:
    """Returns an array of a file; raises KeyError or ValueError for another one, and for values below `least`."""
    own = arrays[name]
    if own.dtype != kind or own.shape != shape or not (least is None or ((own >= least) & np.isfinite(own)).all()):
        raise ValueError
    return own


def _damaged(path: Path) -> FormatError:
    return FormatError(f"{path}: not a word aligner of `nmtalign link`, or damaged; link the texts again")


class StoredWords:
    """The sorted words of one side, and the numbers of their stems."""

    def __init__(self, text: NDArray[np.uint8], stems: lexical.Ids) -> None:
        """`text` has one word per line. Raises ValueError if it is not UTF-8."""
        self.names = text.tobytes().decode().split("\n") if len(text) else []
        self._stems = stems

    def __len__(self) -> int:
        return len(self.names)

    def find(self, word: str) -> tuple[int, int]:
        """Returns the numbers of a word and of its stem, -1 for one that is not there."""
        number = bisect_left(self.names, word)
        if self.names[number : number + 1] == [word]:
            return number, int(self._stems[number])
        size = lexical.stem_size(word)
        first = bisect_left(self.names, word[:size])  # the words with this stem follow each other
        known = len(word) >= size and first < len(self.names) and self.names[first].startswith(word[:size])
        return -1, int(self._stems[first]) if known else -1


def _vocabulary(words: StoredWords, occurrences: NDArray[Any]) -> Vocabulary:
    """Returns the words of a side, the most frequent first."""
    order = np.argsort(-occurrences[:-1], kind="stable").tolist()
    known = dict.fromkeys(map(words.names.__getitem__, order))  # an untrusted file may repeat words
    return Vocabulary([EOS, UNK, *(word for word in known if word not in (EOS, UNK, ""))])


# Pairs whose words have numbers, and the data of these words of both sides that the models need.
_Window = tuple[Sequence[ModelPair], Sequence[lexical.Words]]


class WordAligner:
    """Aligns pairs in both directions with the models that `nmtalign link` has learned.

    It replaces a forward and a backward model, and has the attributes of a `LoadedModel` that aligning needs. A pair
    with more than `LONGEST` words, numbers and marks on a side has a record without words and links.
    """

    def __init__(
        self,
        folder: Path,
        counts: lexical.LexicalCounts,
        words: Sequence[StoredWords],
        jumps: Sequence[lexical.Counts],
        facts: Mapping[str, str],
    ) -> None:
        self.folder, self.weights_file = folder, folder / ALIGNER
        self._counts, self._words, self._jumps = counts, words, jumps
        self.source_language, self.target_language = (facts[side] for side in SIDES)
        tokenized = facts["tokenized"] == "True"  # if so, words that occur in the learned texts are not split
        self._pieces = Pieces(lambda word: tokenized and any(side.find(word)[0] >= 0 for side in words))
        self.tokenizers = Tokenizers(self._pieces, self._pieces, self.source_language, self.target_language)
        self.too_long: set[int] = set()  # the numbers of the pairs that the last run did not align

    @cached_property
    def hash(self) -> str:
        return sha256_of(self.weights_file)

    def text_fit(self, side: int = 0, tokenized: bool = False, raw: bool = True) -> TextFit:
        """Compares a text that should be in the source language (side 0) or the target language with both."""
        return TextFit(self.tokenizers, self._vocabularies, side)

    @cached_property
    def _vocabularies(self) -> Vocabularies:
        source, target = map(_vocabulary, self._words, self._counts.occurrences)
        return source, target

    def facts(self) -> dict[str, object]:
        """Returns what `nmtalign info` shows."""
        source, target = map(len, self._words)
        return {
            "kind": _KIND,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "source_vocabulary": source,
            "target_vocabulary": target,
            "translations": len(self._counts.keys),
            "sha256": self.hash,
        }

    def left_out(self) -> str:
        """Returns which lines were too long to be aligned, for a warning; "" if none was."""
        lines = ", ".join(f"{number + 1:,}" for number in sorted(self.too_long)[:5])
        long = f"a side has more than {LONGEST:,} words and marks ({counted(len(self.too_long), 'pair')}); split them"
        return f"line {lines}: no links, because {long}" if lines else ""

    def read(self, window: Sequence[tuple[int, Pair]]) -> _Window:
        """Reads the numbered lines of a window, and looks up their words."""
        split = []
        for number, lines in window:
            sides = list(map(self._pieces.read, lines))
            if max(len(pieces) for _, _, pieces in sides) > LONGEST:  # too much memory: no words and links
                self.too_long.add(number)
                sides = [([], None, [])] * 2
            split.append((number, sides))
        names = [sorted({piece for _, sides in split for piece in sides[side][2]}) for side in (0, 1)]
        places = [{name: place for place, name in enumerate(own)} for own in names]
        pairs = [ModelPair(number, *map(_side, sides, places)) for number, sides in split]
        found = [list(map(own.find, side)) for own, side in zip(self._words, names, strict=True)]
        numbers, stems = zip(*(np.array(own, np.int32).reshape(-1, 2).T for own in found), strict=True)
        occurrences = [own[ids] for own, ids in zip(self._counts.occurrences, numbers, strict=True)]
        return pairs, lexical.words_of(names, numbers, occurrences, stems)

    def records(
        self, windows: Iterable[_Window], config: AlignConfig
    ) -> Iterator[tuple[AlignmentRecord, AlignmentRecord]]:
        """Yields the records of both directions of each pair, in order."""
        for pair, found in self._posteriors(windows, config.threads):
            turned = ModelPair(pair.number, pair.target, pair.source)
            if found is None:
                yield empty_record(pair), empty_record(turned)
            else:
                yield _record(pair, found[0], config), _record(turned, found[1], config)

    def links(self, windows: Iterable[_Window], threads: int) -> Iterator[tuple[list[Link], list[float]]]:
        """Yields the links that the method "mean" gives each pair, and the probability of each; makes no records."""
        for pair, found in self._posteriors(windows, threads):
            if found is None:
                yield [], []
                continue
            rows, columns = len(pair.target.ids), len(pair.source.ids)
            ahead, back = found[0][0][:rows, :columns], found[1][0][:columns, :rows]
            source, target = (None if side.starts is None else side.starts[:-1] for side in (pair.source, pair.target))
            ahead, back = merge_pieces(ahead, source, target), merge_pieces(back, target, source)
            chosen, likely = mean_links(ahead, back.T)
            yield chosen, [float(likely[j, i]) for i, j in chosen]

    def _posteriors(
        self, windows: Iterable[_Window], threads: int
    ) -> Iterator[tuple[ModelPair, tuple[list[Matrix], list[Matrix]] | None]]:
        """Yields each pair, in order, with links, NULL and log-probabilities of both models; None for an empty side."""
        self.too_long.clear()
        sized = (([(one, len(one.source.ids) * len(one.target.ids)) for one in own], words) for own, words in windows)
        parts = ((part, words) for own, words in sized for part in blocks(own, _CELLS_OF_PART))
        for pairs, aligned in in_order(self._align, parts, worker_count(threads)):
            found: dict[int, tuple[list[Matrix], list[Matrix]]] = {}
            for batch, ahead, back in aligned:
                for row, place in enumerate(batch.rows.tolist()):
                    found[place] = [array[row] for array in ahead[:3]], [array[row] for array in back[:3]]
            for place, pair in enumerate(pairs):
                yield pair, found.get(place)

    def _align(self, window: _Window) -> tuple[Sequence[ModelPair], list[tuple[CellBatch, Posteriors, Posteriors]]]:
        """Returns the pairs, and in batches the posteriors of those that have words on both sides."""
        pairs, words = window
        sides = _sentences([pair.source for pair in pairs]), _sentences([pair.target for pair in pairs])
        sizes = len(words[0]), len(words[1])
        batches, keys = make_batches(sides, sizes, np.flatnonzero([not pair.empty() for pair in pairs]))
        cells = self._counts.find(words, *np.divmod(keys, max(sizes[1], 1)))
        with np.errstate(all="ignore"):  # only an untrusted file has numbers that overflow or are negative
            tables = self._counts.tables(cells, words)
            for table, ids in zip(tables, cells[:2], strict=True):
                counts = table.counts[:-1]
                if not ((counts >= 0) & (counts <= _MOST * table.totals[ids])).all():
                    raise _damaged(self.weights_file)
        return pairs, [(batch, *posteriors(batch, tables, self._jumps, count_jumps=False)) for batch in batches]


def _side(read: tuple[list[str], NDArray[np.int64] | None, list[str]], places: Mapping[str, int]) -> ModelSide:
    words, starts, pieces = read
    return ModelSide([places[piece] for piece in pieces], tuple(words), starts, pieces)


def _sentences(sides: Sequence[ModelSide]) -> Sentences:
    lengths = [len(side.ids) for side in sides]
    ids = np.fromiter(chain.from_iterable(side.ids for side in sides), np.int32, sum(lengths))
    return Sentences(ids, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))


def _record(pair: ModelPair, found: Sequence[Matrix], config: AlignConfig) -> AlignmentRecord:
    """Returns the record of one direction: NULL is the column of `</s>`, and the length has no probability."""
    rows, columns = len(pair.target.ids), len(pair.source.ids)
    links, null, log_probs = found
    weights = np.zeros((rows + 1, columns + 1), np.float32)
    weights[:rows, :columns], weights[:rows, columns], weights[rows, columns] = links[:rows, :columns], null[:rows], 1
    own = np.append(log_probs[:rows], np.float32(0))
    return make_record(pair, weights, own, float(log_probs[:rows].sum(dtype=np.float64)), config)
