"""The naive decoder: beam search like the released code of Bahdanau et al. (2015), the baseline of the benchmark.

Every hypothesis has a copy of the annotations and keys of its sentence. Each step reorders copies of the states,
computes the log-probabilities of all words for every hypothesis, and selects the best of all. This is plain PyTorch in
float32. The released code translates one sentence at a time; a batch, which keeps all sentences until the last one
ends, is the obvious next step. A finished hypothesis leaves the beam, which shrinks by one; the search ends when the
beam is empty. Two rules are those of nmtalign, so that results can be compared: hypotheses that are open at the
greatest length must end, and the best hypothesis is the one with the highest score. With `recompute_keys` the keys of
all copies are computed at each step, as in the released code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bench.naive import NaiveLoop
from nmtalign.core.model import make_source
from nmtalign.text.tokenizer import EOS_ID, UNK_ID


@dataclass(frozen=True)
class NaiveHypothesis:
    """A finished translation: word ids without `</s>`, and log-probability / length including `</s>`."""

    tokens: tuple[int, ...]
    score: float


@dataclass
class _Beams:
    """The open hypotheses of B sentences, W per sentence; missing ones have a total of -inf."""

    totals: Tensor  # (B, W) log-probabilities
    words: Tensor  # (B * W, steps)
    widths: list[int]  # the beam minus the number of finished hypotheses


class NaiveSearch(NaiveLoop):
    """Beam search with `<unk>` banned and a length penalty of 1; ratios refer to the source length including `</s>`."""

    def __init__(self, model, beam, min_ratio=0.0, max_ratio=3.0, recompute_keys=False):
        super().__init__(model.config, dict(model.named_parameters()), recompute_keys)
        self.beam = beam
        self.min_ratio, self.max_ratio = min_ratio, max_ratio

    def translate(self, sentences, batch=1):
        """The best translation of each sentence (ids without `</s>`), in batches of `batch` in the given order."""
        device = self["encoder.cell.bias"].device
        found = []
        with torch.inference_mode():
            for start in range(0, len(sentences), batch):
                source, mask = make_source(sentences[start : start + batch])
                found += self._search(source.to(device), mask.to(device))
        return found

    def _search(self, source, mask):
        lengths = mask.sum(1).tolist()
        limits = [max(1, int(self.max_ratio * length)) for length in lengths]
        ended: list[list[NaiveHypothesis]] = [[] for _ in lengths]
        own = self.remember(source, mask)
        memory, state, previous = own, self.start(own), None
        beams = _Beams(
            torch.zeros(len(lengths), 1, device=source.device),
            torch.zeros(len(lengths), 0, dtype=torch.int64, device=source.device),
            [self.beam] * len(lengths),
        )
        for step in range(1, max(limits) + 1):
            state, logits = self.step(memory, state, previous)
            rows, log_probs = beams.totals.shape[1], logits.log_softmax(-1)
            self._restrict(log_probs.view(len(lengths), rows, -1), step, lengths, limits)
            parents = self._advance(beams, log_probs, ended, step)
            beams.widths = [width if step < limit else 0 for width, limit in zip(beams.widths, limits, strict=True)]
            if not any(beams.widths):
                break
            state, previous = state.select(parents), beams.words[:, -1]
            memory = own.select(parents // rows)
        return [max(hypotheses, key=lambda hypothesis: hypothesis.score) for hypotheses in ended]

    def _restrict(self, log_probs, step, lengths, limits):
        """Bans `<unk>`, `</s>` below the minimum length, and all words except `</s>` at the limit."""
        log_probs[:, :, UNK_ID] = -torch.inf
        for number, (length, limit) in enumerate(zip(lengths, limits, strict=True)):
            if step == limit:
                log_probs[number, :, EOS_ID + 1 :] = -torch.inf
            elif step <= int(self.min_ratio * length):
                log_probs[number, :, EOS_ID] = -torch.inf

    def _advance(self, beams, log_probs, ended, step):
        """Selects the best continuations of each beam; returns the row of this step that each next row continues."""
        (count, rows), size = beams.totals.shape, log_probs.shape[1]
        totals = (beams.totals.view(-1, 1) + log_probs).view(count, -1)
        best, places = totals.topk(min(max(beams.widths), totals.shape[1]), dim=1)
        parents = torch.arange(count, device=places.device)[:, None] * rows + places // size
        words = places % size
        going: list[list[int]] = [[] for _ in range(count)]
        for number, (sums, ids) in enumerate(zip(best.tolist(), words.tolist(), strict=True)):
            for column, (total, word) in enumerate(zip(sums[: beams.widths[number]], ids, strict=False)):
                if total == -torch.inf:
                    continue
                if word != EOS_ID:
                    going[number].append(column)
                    continue
                history = tuple(beams.words[parents[number, column]].tolist())
                ended[number].append(NaiveHypothesis(history, total / step))
                beams.widths[number] -= 1
        return _go_on(beams, going, best, parents, words)

    def _read(self, source, mask, direction, order):
        """Like the loop's method, with one product for the inputs of all words."""
        inputs = self._inputs("encoder.cell", self._embed("source_embedding", source), direction)
        state = inputs.new_zeros(len(source), self.config.hidden)
        states = []
        for j in order:
            new = self._cell("encoder.cell", inputs[:, j], state, None, direction)
            state = torch.where(mask[:, j, None], new, state)
            states.append(state)
        return states


def _go_on(beams, going, best, parents, words):
    """Keeps the open columns of each sentence in the beams; returns the rows that they continue."""
    width = max(map(len, going))
    columns = torch.tensor([own + [0] * (width - len(own)) for own in going], dtype=torch.int64, device=words.device)
    spare = torch.tensor([[column >= len(own) for column in range(width)] for own in going], device=words.device)
    beams.totals = best.gather(1, columns).masked_fill(spare.bool(), -torch.inf)
    chosen = parents.gather(1, columns).flatten()
    beams.words = torch.cat([beams.words[chosen], words.gather(1, columns).view(-1, 1)], 1)
    return chosen
