"""Given links between the words of training pairs, and the attention weights of a batch that they mark.

The file has one line of links in Pharaoh format for each line of the training text. Memory contains the links of the
pairs in the corpus: 2 bytes per link if no sentence has more than 256 words, and 8 bytes per pair. Links that count the
words between spaces of the raw text become links between the tokens of the corpus (`nmtalign.text.link_counting`).
"""

import dataclasses
import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nmtalign.alignment.link_files import SCORES, parse_links
from nmtalign.alignment.links import Link
from nmtalign.core.model import Batch
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError
from nmtalign.text.lines import counted, raw_lines, shown, strip_end
from nmtalign.text.link_counting import SAMPLE, SplitLine, SplitPair, converted_note, counts_words, token_links
from nmtalign.text.tokenizer import MosesWords

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Guide:
    """The links of every training pair; a call with a batch returns the batch with its `guide`.

    A link between two words links all their pieces.
    """

    links: npt.NDArray[np.unsignedinteger[Any]]  # (L, 2) source and target words
    offsets: Numbers  # (N + 1,) the links of pair i are links[offsets[i]:offsets[i + 1]]
    begins: Sequence[Flags]  # (K,) of each side, which ids begin a word
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
        source = _word_of_token(batch.source.numpy(), batch.source_mask.numpy(), self.begins[0])
        target = _word_of_token(batch.target.numpy(), batch.target_mask.numpy(), self.begins[1])
        cells = cells[np.arange(sentences)[:, None, None], target[:, :, None], source[:, None, :]]
        return dataclasses.replace(batch, guide=torch.from_numpy(cells), linked=int(cells.any(-1).sum()))


def _word_of_token(ids: Numbers, mask: Flags, begins: Flags) -> Numbers:
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
    file without a link of a training pair, or whose number of lines is not that of the training text.
    """
    train = corpus.splits["train"]
    tokenizers, vocabularies = corpus.tokenizers, (corpus.source_vocabulary, corpus.target_vocabulary)
    starts = tokenizers.source.starts_word, tokenizers.target.starts_word
    begins = [np.array([*map(own, words.words)]) for own, words in zip(starts, vocabularies, strict=True)]
    digest = hashlib.sha256()
    pairs = _read(path, corpus, digest)
    head = list(islice(pairs, SAMPLE))
    judged = ((links, _split_pair(corpus, index)) for index, (_, links) in enumerate(head))
    convert = tokenizers.kind == MosesWords.kind and counts_words(judged)
    longest = int(max(train.source.lengths.max(), train.target.lengths.max()))
    kept = array("B" if longest <= 1 << 8 else "H" if longest <= 1 << 16 else "I")
    offsets = np.zeros(len(train) + 1, dtype=np.int64)
    for index, (where, links) in enumerate(chain(head, pairs)):
        if not convert:  # a word between spaces may have no token, such as a no-break space
            _check_inside(links, where, train.pair(index), begins)
        own = token_links(links, _split_pair(corpus, index)) if convert else links
        kept.extend(chain.from_iterable(own))
        offsets[index + 1] = len(own)
    np.cumsum(offsets, out=offsets)
    if not len(kept):
        raise InputError(f"{shown(path)}: contains no link of a training pair; give the links of {corpus.folder}")
    note = converted_note(shown(path)) if convert else ""
    return Guide(np.frombuffer(kept, kept.typecode).reshape(-1, 2), offsets, begins, digest.hexdigest(), note)


def _check_inside(links: frozenset[Link], where: str, pair: tuple[Any, Any], begins: Sequence[Flags]) -> None:
    """Raises InputError for a link outside its pair."""
    # The first token of a sentence, which is not empty, always begins a word.
    lengths = [1 + int(own[ids[1:]].sum()) for ids, own in zip(pair, begins, strict=True)]
    for i, j in links:
        if i >= lengths[0] or j >= lengths[1]:
            raise InputError(
                f"{where}: {i}-{j} is outside the pair, which has {lengths[0]} source and {lengths[1]} target "
                "words; count from 0 the words that `nmtalign align --pharaoh` counts, source first"
            )


def _read(path: Path, corpus: Corpus, digest: Any) -> Iterator[tuple[str, frozenset[Link]]]:
    """Yields the place and the links of each training pair of the corpus; adds the text of all links to a digest."""
    train, index, number = corpus.splits["train"], 0, 0
    for number, raw in enumerate(raw_lines(path), 1):
        line, where = SCORES.sub("", strip_end(raw).decode(errors="replace")), f"{shown(path)}: line {number}"
        digest.update(f"{line}\n".encode())
        links = parse_links(line, where).possible
        if index < len(train) and train.lines[index] == number - 1:  # the corpus has a pair of this line
            yield where, links
            index += 1
    if number != train.text_lines:
        raise InputError(
            f"{shown(path)}: has {counted(number, 'line')}, but the training text of {corpus.folder} had "
            f"{train.text_lines:,}; give one line of links for each of its lines"
        )


def _split_pair(corpus: Corpus, index: int) -> SplitPair:
    """The tokens of a training pair with the words between spaces that consist of them.

    The corpus does not contain its text, which is detokenised.
    """
    ids, tokenizers = corpus.splits["train"].pair(index), corpus.tokenizers
    source, target = corpus.source_vocabulary.decode(ids[0]), corpus.target_vocabulary.decode(ids[1])
    lines = tokenizers.source.detokenize(source), tokenizers.target.detokenize(target)
    return SplitLine.of(lines[0], source), SplitLine.of(lines[1], target)
