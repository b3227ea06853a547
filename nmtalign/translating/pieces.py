"""Pieces of lines: how long lines are cut, how pieces are searched, and how their translations are joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from nmtalign.core.devices import in_halves
from nmtalign.data.batches import make_source
from nmtalign.search.beam_search import Array, Hypothesis, Scoring, SearchOptions
from nmtalign.search.candidates import CandidateLists, Candidates
from nmtalign.search.phrases import NO_PHRASES, Phrases, phrase_search
from nmtalign.search.sampling import Draws, sample
from nmtalign.search.scorer import Scorer
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import SettingError
from nmtalign.text.tokenizer import TextBytes, letters_of

_Chosen = tuple[Any, Hypothesis]  # the chain of the pieces before, or None, and the hypothesis of the last piece
_ENDS_OF_WORDS = frozenset(".!?;")  # these marks end a sentence only at the end of a word: not in 3.5
_WIDE_MARKS = ("…", "。", "\uff01", "\uff1f")
_WIDE_ENDS = (*_WIDE_MARKS, *("".join(TextBytes().tokenize(mark)[1:]) for mark in _WIDE_MARKS))  # three bytes each


@dataclass(frozen=True)
class Piece:
    """A line, or a part of it, as it is searched: source and copied ids without `</s>` (`pair_ids`), prefix, phrases.

    `number` is the number of the line in the complete input, `part` the number of the piece in its line. Samples depend
    only on these two, the seed and the text. `sentence` is the number of the sentence in its line.
    """

    source: tuple[int, ...]
    copies: tuple[int, ...] = ()  # of a copying model
    prefix: tuple[int, ...] = ()
    phrases: Phrases = NO_PHRASES
    number: int = 0
    part: int = 0
    sentence: int = 0


class PieceDecoder:
    """Finds the hypotheses of pieces by beam search or by sampling, as the settings require."""

    def __init__(
        self,
        scorer: Scorer,
        options: SearchOptions,
        config: TranslateConfig,
        device: torch.device,
        candidates: CandidateLists | None,
    ) -> None:
        self._scorer, self._options = scorer, options
        self._device, self._candidates = device, candidates
        self._draws = Draws(config.n_best, config.temperature, config.top_k, config.seed) if config.sample else None

    def search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        """The hypotheses of each piece, best first, or samples in the order in which they were drawn.

        A batch that does not fit into memory is halved. Raises ResourceError if one piece does not fit, and UsageError
        for phrases in a sample.
        """
        return in_halves(self._search, pieces, self._too_much)

    def _too_much(self, piece: Piece) -> str:
        fewer = "--n-best" if self._draws else "--beam"
        size = f"one sentence of {len(piece.source)} tokens"
        return f"out of memory with {size}; give a smaller {fewer} or --max-source-length"

    def _search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        if not self._draws:
            found = self._beam_search(pieces, [NO_PHRASES] * len(pieces))
            # Phrases that a translation already contains are not required, unless it loses them with the other ones.
            for every in (False, True):
                texts = ([each.tokens for each in own] for own in found)
                lack = [piece.phrases.lacking(own) for piece, own in zip(pieces, texts, strict=True)]
                places = [place for place, phrases in enumerate(lack) if phrases.words]
                required = [pieces[place].phrases if every else lack[place] for place in places]
                again = self._beam_search([pieces[place] for place in places], required)
                for place, own in zip(places, again, strict=True):
                    found[place] = own
            return found
        if any(piece.phrases.words for piece in pieces):
            raise SettingError("a sample cannot be made to contain given phrases; leave out one of them", sample=True)
        source, mask, candidates, copies = self._source(pieces)
        prefixes, numbers = [piece.prefix for piece in pieces], [(piece.number, piece.part) for piece in pieces]
        return sample(self._scorer, source, mask, self._options, self._draws, numbers, candidates, prefixes, copies)

    def _beam_search(self, pieces: Sequence[Piece], phrases: Sequence[Phrases]) -> list[list[Hypothesis]]:
        if not pieces:
            return []
        source, mask, candidates, copies = self._source(pieces)
        prefixes = [piece.prefix for piece in pieces]
        return phrase_search(self._scorer, source, mask, self._options, phrases, candidates, prefixes, copies)

    def _source(
        self, pieces: Sequence[Piece]
    ) -> tuple[torch.Tensor, torch.Tensor, Candidates | None, torch.Tensor | None]:
        """The source ids, their mask, the candidates and the copied ids of pieces."""
        source, mask = (part.to(self._device) for part in make_source([piece.source for piece in pieces]))
        required = [piece.phrases.ids.union(piece.prefix) for piece in pieces]
        candidates = None
        if self._candidates:
            candidates = self._candidates.of([piece.source for piece in pieces])
            copied = [set(piece.copies) for piece in pieces]
            if any(copied) or any(required):
                candidates = candidates.with_words([own | more for own, more in zip(copied, required, strict=True)])
        copies = None
        if any(piece.copies for piece in pieces):
            copies = make_source([piece.copies for piece in pieces])[0].to(self._device)
        return source, mask, candidates, copies


def cut(tokens: Sequence[str], word_index: Sequence[int], limit: int) -> list[slice]:
    """Cuts tokens into pieces of at most `limit`.

    A piece ends after the last sentence end in its second half, else after the last complete word, else at
    the limit, but not inside a letter: not inside its bytes, nor before its marks.
    """
    pieces, start = [], 0
    while len(tokens) - start > limit:
        stop = start + limit
        half = range(stop, start + limit // 2, -1)
        words = [place for place in half if word_index[place] != word_index[place - 1]]
        ends = [place for place in words if tokens[place - 1].lstrip("▁") in _ENDS_OF_WORDS]
        ends += [place for place in half if "".join(tokens[max(0, place - 3) : place]).endswith(_WIDE_ENDS)]
        stop = max(ends, default=0) or max(words, default=0) or min(half, key=partial(_inside, tokens))
        pieces.append(slice(start, stop))
        start = stop
    return [*pieces, slice(start, len(tokens))]


def _inside(tokens: Sequence[str], place: int) -> int:
    """2 for a place inside the bytes of a character (at most four), 1 between a letter and its marks, 0 for others."""
    before, here = (TextBytes().detokenize(tokens[max(0, start) : start + 4]) for start in (place - 4, place))
    return 2 if here.startswith("\ufffd") else int(before != "" and len(letters_of(before[-1:] + here[:1])) == 1)


def combine(found: Sequence[Sequence[Hypothesis]], count: int, sampled: bool) -> list[list[Hypothesis]]:
    """The translations of a line, each a hypothesis for each piece: at most `count`, by the sum of their scores.

    The first one consists of the best hypotheses. Of samples, the first belong together, then the second, and so on.
    """
    if sampled or count == 1:
        return [list(chosen) for chosen in zip(*found, strict=False)]
    best: list[tuple[float, _Chosen | None]] = [(0.0, None)]
    for hypotheses in found:
        longer = [(total + each.score, (chosen, each)) for total, chosen in best for each in hypotheses]
        best = [*sorted(longer, key=itemgetter(0), reverse=True)[:count]]
    return [_unrolled(chosen) for _, chosen in best]


def _unrolled(chosen: "_Chosen | None") -> list[Hypothesis]:
    """The hypotheses of a chain; a chain takes less memory than a list for each of the combinations."""
    found = list[Hypothesis]()
    while chosen is not None:
        chosen, hypothesis = chosen
        found.append(hypothesis)
    return found[::-1]


def join(hypotheses: Sequence[Hypothesis], scoring: Scoring, keep_weights: bool = True) -> Hypothesis:
    """Joins the hypotheses of the pieces of a line.

    The log-probability of a `</s>` between two pieces is added to the word after it. The weights form a block diagonal;
    the last column is that of all `</s>`, the last row that of the final `</s>`. They take 1.6 GB for 20,000 words, so
    they are joined only with `keep_weights`.
    """
    if len(hypotheses) == 1:
        return hypotheses[0]
    tokens = tuple(token for hypothesis in hypotheses for token in hypothesis.tokens)
    token_log_probs, end = [], 0.0
    for hypothesis in hypotheses:
        first, *rest = hypothesis.token_log_probs
        *words, end = first + end, *rest
        token_log_probs += words
    log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses)
    score = scoring.score(log_prob, len(tokens) + 1)
    weights = _join_weights(hypotheses) if keep_weights else None
    starts = accumulate((len(hypothesis.tokens) for hypothesis in hypotheses), initial=0)
    given = {
        start + place: word
        for start, hypothesis in zip(starts, hypotheses, strict=False)
        for place, word in hypothesis.given.items()
    }
    return Hypothesis(tokens, log_prob, score, (*token_log_probs, end), weights, given)


def _join_weights(hypotheses: Sequence[Hypothesis]) -> Array | None:
    parts = [hypothesis.weights for hypothesis in hypotheses if hypothesis.weights is not None]
    if len(parts) < len(hypotheses):
        return None
    rows, columns = (sum(part.shape[axis] - 1 for part in parts) for axis in (0, 1))
    joined = np.zeros((rows + 1, columns + 1), np.float32)
    row = column = 0
    for part in parts:
        height, width = part.shape[0] - 1, part.shape[1] - 1
        # The first word of the next piece overwrites the row of this `</s>`. The zeros elsewhere are never written:
        # the system allocates no memory for pages that are not touched.
        joined[row, :] = 0
        joined[row : row + height + 1, column : column + width] = part[:, :-1]
        joined[row : row + height + 1, -1] = part[:, -1]
        row, column = row + height, column + width
    return joined
