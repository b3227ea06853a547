"""Rows of a product with all words, each computed when its word is first met."""

import threading

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_BLOCK = 4096  # words whose rows are computed together at most


class WordTable:
    """What weights (out, m) and bias (out,) make of each word's vector; no gradient.

    A translation meets a few thousand words of a large vocabulary: only theirs are computed, and only their pages of
    the table take memory. Threads may share a table. On a GPU, where asking would cost more than it saves, all rows are
    computed at once.
    """

    def __init__(self, embedding: nn.Module, weight: Tensor, bias: Tensor) -> None:
        self._embedding, self._weight, self._bias = embedding, weight, bias
        words = len(next(embedding.parameters()))
        self._rows = weight.new_empty(words, len(bias))
        self._known = torch.zeros(words, dtype=torch.bool, device=weight.device)
        self._lock = threading.Lock()
        self._whole = weight.is_cuda
        if self._whole:
            self.fill()

    def nothing(self, rows: int) -> Tensor:
        """The row of no word, whose vector is 0, so many times (rows, out)."""
        return self._bias.expand(rows, -1)

    def __call__(self, words: Tensor) -> Tensor:
        """The rows (R, out) of word ids (R,)."""
        if not self._whole and not bool(self._known[words].all()):
            self._fill(words)
        return self._rows[words]

    def fill(self) -> None:
        """Computes the rows of all words, so that none is asked for any more."""
        for words in torch.arange(len(self._known), device=self._weight.device).split(_BLOCK):
            self._fill(words)
        self._whole = True

    def _fill(self, words: Tensor) -> None:
        with self._lock:
            new = torch.unique(words[~self._known[words]])
            if len(new):
                vectors = self._embedding(new).to(self._weight.dtype)
                self._rows[new] = F.linear(vectors, self._weight, self._bias)
                self._known[new] = True
