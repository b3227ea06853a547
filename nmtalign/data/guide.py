"""Given links between the words of training pairs, and the attention weights of a batch that they mark.

The file has one line of links in Pharaoh format for each line of the training text. Memory contains the links of the
pairs in the corpus: 2 bytes per link if no sentence has more than 256 words, and 8 bytes per pair. Links that count the
words between spaces of the raw text become links between the tokens of the corpus (`nmtalign.text.link_counting`).
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nmtalign.core.model import Batch
from nmtalign.data.corpus import Corpus, SplitSide
from nmtalign.data.pipeline import blocks_of
from nmtalign.errors import InputError
from nmtalign.text.lines import raw_lines, shown
from nmtalign.text.link_counting import SplitLine, SplitPair, converted_note, counts_words, token_links
from nmtalign.text.tokenizer import WORD_START, MosesWords, Subwords

Numbers = npt.NDArray[np.int64]
Begins = npt.NDArray[np.bool_] | None
_LINKS = re.compile(rb"\s*+(?:\d{1,9}-\d{1,9}\s++)*+")
_LINK = re.compile(rb"\d{1,9}-\d{1,9}")
_SCORES = re.compile(rb"\t[0-9. ]*(?=\r?\n?$)")  # the second column of `nmtalign link --scores`


@dataclass(frozen=True, eq=False)
class Guide:
    """The links of every training pair; a call with a batch returns the batch with its `guide`.

    A link between two words links all their pieces.
    """

    links: npt.NDArray[np.unsignedinteger[Any]]  # (L, 2) source and target words
    offsets: Numbers  # (N + 1,) the links of pair i are links[offsets[i]:offsets[i + 1]]
    begins: tuple[Begins, Begins]  # (K,) of each side, which ids begin a word; None = all of them
    hash: str  # the SHA-256 of the text of the links
    note: str = ""  # for the user

    def __call__(self, batch: Batch) -> Batch:
        """Returns the batch with its linked weights (B, Ty, Tx) and the number of target tokens that have a link."""
        starts = self.offsets[batch.indices]
        counts = self.offsets[batch.indices + 1] - starts
        rows = np.repeat(np.arange(len(counts)), counts)
        links = self.links[np.arange(len(rows)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)]
        (sentences, length), width = batch.target.shape, batch.source.shape[1]
        cells = np.zeros((sentences, length, width), dtype=np.bool_)
        cells[rows, links[:, 1], links[:, 0]] = True
        source_begins, target_begins = self.begins
        if source_begins is not None and target_begins is not None:
            source = _word_of_token(batch.source.numpy(), batch.source_mask.numpy(), source_begins)
            target = _word_of_token(batch.target.numpy(), batch.target_mask.numpy(), target_begins)
            cells = cells[np.arange(sentences)[:, None, None], target[:, :, None], source[:, None, :]]
        return dataclasses.replace(batch, guide=torch.from_numpy(cells), linked=int(cells.any(-1).sum()))


def _word_of_token(ids: Numbers, mask: npt.NDArray[np.bool_], begins: npt.NDArray[np.bool_]) -> Numbers:
    """(B, T) the word of each piece, from 0; -1, a place without a word, at `</s>` and padding."""
    marks = begins[ids]
    marks[:, 0] = True
    words = np.cumsum(marks, axis=1) - 1
    words[:, :-1][~mask[:, 1:]] = -1
    words[:, -1] = -1
    return words


def read_guide(path: Path, corpus: Corpus) -> Guide:
    """Reads a file of links (plain or compressed) for the training pairs of a corpus.

    Raises InputError, which names file and line, for text that is not a link, for a link outside its pair, and for a
    file whose number of lines is not that of the training text.
    """
    train = corpus.splits["train"]
    begins: tuple[Begins, Begins] = None, None
    if isinstance(corpus.tokenizers.source, Subwords):
        words = corpus.source_vocabulary.words, corpus.target_vocabulary.words
        source, target = (np.array([word.startswith(WORD_START) for word in side]) for side in words)
        begins = source, target
    longest = int(max(train.source.lengths.max(), train.target.lengths.max()))
    dtype = np.dtype(np.uint8 if longest <= 1 << 8 else np.uint16 if longest <= 1 << 16 else np.uint32)
    kept, digest, first = bytearray(), hashlib.sha256(), 0
    convert: bool | None = None if corpus.tokenizers.kind == MosesWords.kind else False  # as the first pairs tell
    offsets = np.zeros(len(train) + 1, dtype=np.int64)
    for raw in blocks_of(_SCORES.sub(b"", line).removesuffix(b"\n") + b"\n" for line in raw_lines(path)):
        # Bounds of another type would convert the complete array.
        low, high = np.searchsorted(train.lines, np.array([first, first + len(raw)], dtype=train.lines.dtype))
        links, pairs = _read(path, raw, first, train.lines[low:high] - first)
        sides = zip((train.source, train.target), begins, strict=True)
        sizes = [_word_counts(side, begin, low, high) for side, begin in sides]
        outside = (links >= np.stack(sizes, 1)[pairs]).any(1)
        if outside.any():
            (i, j), pair = links[outside.argmax()], pairs[outside.argmax()]
            raise InputError(
                f"{shown(path)}: line {train.lines[low + pair] + 1}: {i}-{j} is outside the pair, which has "
                f"{sizes[0][pair]} source and {sizes[1][pair]} target words; count from 0 the words that "
                "`nmtalign align --pharaoh` counts, source first"
            )
        if convert is None and high > low:
            convert = counts_words(_by_pair(links, pairs, corpus, range(low, high))) or False
        if convert:
            lines = [token_links(*one) for one in _by_pair(links, pairs, corpus, range(low, high))]
            links = np.array([link for line in lines for link in line], np.int64).reshape(-1, 2)
            pairs = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
        offsets[low + 1 : high + 1] = np.bincount(pairs, minlength=high - low)
        kept += links.astype(dtype).tobytes()
        digest.update(b"".join(raw))
        first += len(raw)
    if first != train.text_lines:
        raise InputError(
            f"{shown(path)}: has {first:,} lines, but the training text of {corpus.folder} had {train.text_lines:,}; "
            "give one line of links for each of its lines"
        )
    np.cumsum(offsets, out=offsets)
    note = converted_note(shown(path)) if convert else ""
    return Guide(np.frombuffer(kept, dtype).reshape(-1, 2), offsets, begins, digest.hexdigest(), note)


def _by_pair(
    links: Numbers, pairs: Numbers, corpus: Corpus, indices: range
) -> Iterator[tuple[list[tuple[int, int]], SplitPair]]:
    """Yields the links of each training pair, and its tokens with the words between spaces that consist of them.

    The corpus does not contain its text, which is detokenised.
    """
    train, tokenizers = corpus.splits["train"], corpus.tokenizers
    bounds = np.searchsorted(pairs, np.arange(len(indices) + 1)).tolist()
    for place, index in enumerate(indices):
        source = corpus.source_vocabulary.decode(train.source.sentence(index))
        target = corpus.target_vocabulary.decode(train.target.sentence(index))
        split = (
            SplitLine.of(tokenizers.source.detokenize(source), source),
            SplitLine.of(tokenizers.target.detokenize(target), target),
        )
        yield [(i, j) for i, j in links[bounds[place] : bounds[place + 1]].tolist()], split


def _read(path: Path, raw: Sequence[bytes], first: int, wanted: npt.NDArray[np.int32]) -> tuple[Numbers, Numbers]:
    """(links (L, 2), which of the wanted lines each is on (L,)) of the lines that follow line `first`, from 0.

    Raises InputError for text that is not a link, on any line.
    """
    text = b"".join(raw)
    if not _LINKS.fullmatch(text):
        number, line = next((number, line) for number, line in enumerate(raw, 1) if not _LINKS.fullmatch(line))
        part = next(part for part in line.split() if not _LINK.fullmatch(part)).decode(errors="replace")
        raise InputError(
            f"{shown(path)}: line {first + number}: {part!r} is not a link; write source-target, counted from 0, as in "
            "0-0 2-1"
        )
    numbers = text.replace(b"-", b" ").strip()  # NumPy would read a number from only white space
    links = (np.fromstring(numbers, dtype=np.int64, sep=" ") if numbers else np.empty(0, np.int64)).reshape(-1, 2)
    places = np.full(len(raw), -1)
    places[wanted] = np.arange(len(wanted))
    pairs = np.repeat(places, [line.count(b"-") for line in raw])
    return links[pairs >= 0], pairs[pairs >= 0]


def _word_counts(side: SplitSide, begins: Begins, low: int, high: int) -> Numbers:
    """(high - low,) the number of words of the sentences `low` to `high`."""
    bounds = side.offsets[low : high + 1].astype(np.int64)
    if begins is None:
        return np.asarray(np.diff(bounds))
    places = bounds - bounds[0]
    marks = begins[side.ids[bounds[0] : bounds[-1]]]
    marks[places[:-1]] = True
    return np.asarray(np.add.reduceat(marks, places[:-1], dtype=np.int64))  # no training sentence is empty
