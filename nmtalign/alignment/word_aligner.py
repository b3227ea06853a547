"""The word aligner of `nmtalign link`: its file, and the alignments that it gives for pairs.

The file `aligner.safetensors` contains what `AgreeingModels` has learned: the words of both sides and how often they
occur, the expected counts of pairs of words and of NULL, and the weights of the distances.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import add
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmtalign.alignment.agreement import (
    AgreeingModels,
    CellBatch,
    Sentences,
    blocks,
    in_order,
    make_batches,
    posteriors,
)
from nmtalign.alignment.hmm import FARTHEST, Posteriors
from nmtalign.alignment.lexical import Counts, LexicalModel, Words, pieces_of, spelled
from nmtalign.alignment.links import (
    SIDES,
    AlignmentRecord,
    Lines,
    Matrix,
    ModelPair,
    ModelSide,
    empty_record,
    make_record,
)
from nmtalign.errors import FormatError
from nmtalign.files import ALIGNER, sha256_of
from nmtalign.model_directory import load_tensors, save_tensors
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.languages import TextFit
from nmtalign.text.tokenizer import EOS, UNK, SpacedWords, Tokenizers, Tokens, Vocabulary, WholeWords, keep

_KIND = "word aligner"
_LEAST = 1e-3  # a pair of words with a smaller count is not kept, unless the words are cognates
LONGEST = 2_900  # pieces of a side of a pair; the memory for a pair grows with the square of its longer side
_CELLS_OF_PART = 1 << 20  # of the pairs that a thread aligns together


class Pieces(WholeWords):
    """Words, numbers and marks without upper case; with `tokenized`, all that is between spaces is one word."""

    kind = "pieces"

    def __init__(self, tokenized: bool) -> None:
        self._split, self._tokenized = SpacedWords().tokenize, tokenized
        self._known: dict[str, Tokens] = {}

    def of(self, word: str) -> Tokens:
        """Returns the pieces of a word between spaces, at least one."""
        if self._tokenized:
            return (word.casefold(),)
        return self._known.get(word) or keep(self._known, word, pieces_of(word))

    def tokenize(self, line: str) -> list[str]:
        """Returns the pieces of all words."""
        return [piece for word in self._split(line) for piece in self.of(word)]

    def read(self, line: str) -> tuple[list[str], NDArray[np.int64] | None, list[str]]:
        """Returns the words between spaces, the first piece of each (None: each has one piece), and the pieces."""
        words = self._split(line)
        parts = list(map(self.of, words))
        pieces = [piece for part in parts for piece in part]
        return words, None if len(pieces) == len(words) else np.cumsum([0, *map(len, parts)]), pieces


def in_pieces(words: Sequence[str], side: Sentences, pieces: Pieces) -> tuple[list[Counter[str]], list[str], Sentences]:
    """Returns one side of a bitext, whose ids number `words`, in pieces.

    These are the spellings of each different piece and how often they occur, the different pieces, and their numbers in
    the sentences.
    """
    numbers: dict[str, int] = {}
    spellings: list[Counter[str]] = []
    parts = []
    for word, count in zip(words, np.bincount(side.ids, minlength=len(words)).tolist(), strict=True):
        own = pieces.of(word)
        parts.append([numbers.setdefault(piece, len(numbers)) for piece in own])
        spellings += [Counter() for _ in range(len(numbers) - len(spellings))]
        for place, spelling in zip(parts[-1], spelled(word, own), strict=True):
            spellings[place][spelling] += count
    sizes = np.array([len(part) for part in parts] or [0], np.int64)
    firsts = np.cumsum(sizes) - sizes
    own_sizes = sizes[side.ids]
    ends = np.concatenate(([0], np.cumsum(own_sizes)))
    places = np.repeat(firsts[side.ids] - ends[:-1], own_sizes) + np.arange(ends[-1])
    flat = np.fromiter(chain.from_iterable(parts), np.int32, int(sizes.sum()))
    return spellings, list(numbers), Sentences(flat[places], ends[side.offsets])


def save_aligner(folder: Path, learned: AgreeingModels, languages: tuple[str, str], tokenized: bool) -> None:
    """Writes what was learned into a folder; raises ResourceError if the disk refuses."""
    model = learned.model
    kept = model.alike | (model.counts[0][:-1] >= _LEAST)
    tensors = {
        "keys": torch.from_numpy(model.keys[kept]),
        "counts": torch.from_numpy(model.counts[0][:-1][kept].astype(np.float32)),
        "jumps": torch.stack(learned.jumps),
    }
    for side, name in enumerate(SIDES):
        text = np.frombuffer("\n".join(model.names[side]).encode(), np.uint8)
        tensors[f"{name}.words"] = torch.from_numpy(text.copy())
        tensors[f"{name}.occurrences"] = torch.from_numpy(model.words[side].occurrences.astype(np.int64))
        tensors[f"{name}.null"] = torch.from_numpy(model.null_counts[1 - side].astype(np.float32))
    facts = {"kind": _KIND, **dict(zip(SIDES, languages, strict=True)), "tokenized": str(tokenized)}
    save_tensors(folder / ALIGNER, tensors, facts)


def load_aligner(folder: Path) -> "WordAligner":
    """Reads the aligner of a folder; raises FormatError if its file is foreign or damaged."""
    path = folder / ALIGNER
    tensors, facts = load_tensors(path)
    try:
        if facts["kind"] != _KIND:
            raise ValueError
        jumps = tensors["jumps"]
        if jumps.shape != (2, 2 * FARTHEST + 1) or not bool((jumps.isfinite() & (jumps > 0)).all()):
            raise ValueError
        return WordAligner(folder, _model(tensors), list(jumps.double()), facts)
    except (KeyError, RuntimeError, TypeError, ValueError):
        raise FormatError(f"{path}: not a word aligner of `nmtalign link`, or damaged; link the texts again") from None


def _model(tensors: Mapping[str, Tensor]) -> LexicalModel:
    """Returns the counts in a file; raises KeyError or ValueError if they make no sense."""
    texts = [tensors[f"{side}.words"].numpy().tobytes().decode() for side in SIDES]
    names = [text.split("\n") if text else [] for text in texts]
    if any(len(set(own)) < len(own) or "" in own for own in names):
        raise ValueError
    occurrences, null = (
        [_counts(tensors[f"{side}.{what}"], len(own)) for side, own in zip(SIDES, names, strict=True)]
        for what in ("occurrences", "null")
    )
    keys = tensors["keys"].numpy()
    rising = np.diff(keys, prepend=-1, append=len(names[0]) * len(names[1])) > 0
    if keys.dtype != np.int64 or keys.ndim != 1 or not rising.all():
        raise ValueError
    model = LexicalModel((names[0], names[1]), occurrences, keys)
    model.count([_counts(tensors["counts"], len(keys))] * 2, null[::-1])
    return model


def _counts(tensor: Tensor, length: int) -> Counts:
    """Returns numbers from 0; raises ValueError for a tensor of another length and for other numbers."""
    if tensor.shape != (length,) or not bool((tensor.isfinite() & (tensor >= 0)).all()):
        raise ValueError
    return tensor.double().numpy()


class _Window(NamedTuple):
    """Pairs whose words have numbers, and what the models need of these words, new ones included, on both sides."""

    pairs: Sequence[ModelPair]
    words: Sequence[Words]


class WordAligner:
    """Aligns pairs in both directions with the models that `nmtalign link` has learned.

    It stands for a forward and a backward model, and has the attributes of a `LoadedModel` that aligning needs. A pair
    with more than `LONGEST` words, numbers and marks on a side has a record without words and links.
    """

    device = torch.device("cpu")

    def __init__(self, folder: Path, model: LexicalModel, jumps: Sequence[Tensor], facts: Mapping[str, str]) -> None:
        """Raises KeyError if the metadata of the file, `facts`, are those of another kind of file."""
        self.folder, self.weights_file = folder, folder / ALIGNER
        self._model, self._jumps = model, jumps
        self.source_language, self.target_language = (facts[side] for side in SIDES)
        self._pieces = Pieces(facts["tokenized"] == "True")
        self.tokenizers = Tokenizers(self._pieces, self._pieces, self.source_language, self.target_language)
        self._numbers = [{name: number for number, name in enumerate(own)} for own in model.names]
        self._left_out: set[int] = set()  # the numbers of the pairs that were too long to be aligned

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the file."""
        return sha256_of(self.weights_file)

    def text_fit(self, side: int = 0, tokenized: bool = False) -> TextFit:
        """Compares a text that should be in the source language (side 0) or the target language with both."""
        return TextFit(self.tokenizers, self._vocabularies, side)

    @cached_property
    def _vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """The words of both sides by falling frequency."""
        sides = []
        for own, names in zip(self._model.words, self._model.names, strict=True):
            order = np.argsort(-own.occurrences, kind="stable").tolist()
            sides.append(Vocabulary([EOS, UNK, *(names[place] for place in order if names[place] not in (EOS, UNK))]))
        return sides[0], sides[1]

    def facts(self) -> dict[str, object]:
        """Returns what `nmtalign info` shows."""
        source, target = map(len, self._model.names)
        return {
            "kind": _KIND,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "source_words": source,
            "target_words": target,
            "translations": len(self._model.keys),
            "sha256": self.hash,
        }

    def left_out(self) -> str:
        """Returns which lines were too long to be aligned, for a warning; "" if none was."""
        lines, count = ", ".join(f"{number + 1:,}" for number in sorted(self._left_out)[:5]), len(self._left_out)
        fault = f"no links, because a side has more than {LONGEST:,} words ({count:,} pairs); split them"
        return f"line {lines}: {fault}" if count else ""

    def read(self, window: Sequence[tuple[int, Lines]]) -> _Window:
        """Reads the numbered lines of a window, and looks up the probabilities of their words."""
        model = self._model
        new: tuple[dict[str, int], dict[str, int]] = {}, {}  # the words that the training text does not have
        pairs = []
        for number, lines in window:
            source, target = map(self._side, lines, self._numbers, new)
            if max(len(source.ids), len(target.ids)) > LONGEST:  # too much memory: its record has no words and links
                self._left_out.add(number)
                source = target = ModelSide([], (), None, [])
            pairs.append(ModelPair(number, source, target))
        added = model.words_of([list(own) for own in new], [np.ones(len(own)) for own in new])
        return _Window(pairs, list(map(add, model.words, added)))

    def _side(self, line: str, numbers: Mapping[str, int], new: dict[str, int]) -> ModelSide:
        words, starts, pieces = self._pieces.read(line)
        known = len(numbers)
        ids = [numbers[piece] if piece in numbers else new.setdefault(piece, known + len(new)) for piece in pieces]
        return ModelSide(ids, tuple(words), starts, pieces)

    def records(
        self, windows: Iterable[_Window], config: AlignConfig
    ) -> Iterator[tuple[AlignmentRecord, AlignmentRecord]]:
        """Yields the records of both directions of each pair, in order."""
        sized = (
            (window, [(pair, len(pair.source.ids) * len(pair.target.ids)) for pair in window.pairs])
            for window in windows
        )
        parts = (window._replace(pairs=part) for window, pairs in sized for part in blocks(pairs, _CELLS_OF_PART))
        for window, aligned in in_order(self._align, parts, torch.get_num_threads()):
            found: dict[int, tuple[list[Matrix], list[Matrix]]] = {}
            for batch, ahead, back in aligned:
                both = [[tensor.numpy() for tensor in own[:3]] for own in (ahead, back)]
                for row, place in enumerate(batch.rows.tolist()):
                    found[place] = [array[row] for array in both[0]], [array[row] for array in both[1]]
            for place, pair in enumerate(window.pairs):
                turned = ModelPair(pair.number, pair.target, pair.source)
                if place in found:
                    yield _record(pair, found[place][0], config), _record(turned, found[place][1], config)
                else:
                    yield empty_record(pair), empty_record(turned)

    def _align(self, window: _Window) -> tuple[_Window, list[tuple[CellBatch, Posteriors, Posteriors]]]:
        """Returns the posteriors of the pairs that have words on both sides, in batches."""
        pairs = window.pairs
        sides = _sentences([pair.source for pair in pairs]), _sentences([pair.target for pair in pairs])
        sizes = len(window.words[0]), len(window.words[1])
        batches, keys = make_batches(sides, sizes, np.flatnonzero([not pair.empty() for pair in pairs]))
        cells = self._model.find(window.words, *np.divmod(keys, max(sizes[1], 1)))
        tables = self._model.tables(cells, window.words)
        return window, [(batch, *posteriors(batch, tables, self._jumps)) for batch in batches]


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
