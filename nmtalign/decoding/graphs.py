"""The steps of a search on a GPU, replayed from CUDA graphs.

A step is some sixty launches, each of which takes longer on the host than on the card. A graph replays them at one
launch, over the same tensors of the same shapes: so a batch's sentences and hypotheses keep their places in a bucket
until half of them are done, and places that are empty are computed for nothing. Every bucket is recorded when it first
comes, and its first results are compared with those of the plain way.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.inference import Encoded, Inference, SearchState
from nmtalign.decoding.candidates import Candidates
from nmtalign.decoding.scorer import Choice, ModelSession, Session, Softmax, Step

LEAST, LENGTHS = 16, 4  # at least so many sentences have places; source positions are rounded up to multiples
LIMIT = 64  # graphs kept, the least recently used one dropped
TOLERANCE = 0.05  # of log-probabilities, for bf16 products; a wrong graph is far off


class Recorder(Protocol):
    """What makes something that can be done again of something that has been done."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What does the work again on the same tensors; raises RuntimeError where that is not possible."""


class CudaRecorder:
    """Records CUDA graphs, with one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """See `Recorder`."""
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            work()  # so that nothing is set up for the first time while it is recorded
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


@dataclass(frozen=True)
class Bucket:
    """The places of a graph: sentences, hypotheses of each, source positions."""

    sentences: int
    rows: int
    length: int

    @classmethod
    def of(cls, sentences: int, rows: int, length: int) -> "Bucket":
        """The smallest that holds so many."""
        places = LEAST
        while places < sentences:  # 16, 24, 32, 48, 64, 96, ...
            places = places * 3 // 2 if places & (places - 1) == 0 else places * 4 // 3
        return cls(places, rows, -(-length // LENGTHS) * LENGTHS)


class _Memory:
    """The tensors that all graphs share, each as large as the largest that was asked for: only one runs at a time."""

    def __init__(self) -> None:
        self._flat: dict[str, Tensor] = {}
        self.moved = False  # whether a tensor has grown, so that earlier graphs write where nobody reads

    def of(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Room of a shape, all zeros."""
        cells = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or flat.numel() < cells:
            self.moved = self.moved or flat is not None
            self._flat[name] = flat = torch.zeros(cells, dtype=dtype, device=device)
        return flat[:cells].zero_().view(shape)


class _Places:
    """The tensors that a graph reads and writes."""

    def __init__(self, inference: Inference, bucket: Bucket, like: Encoded, memory: _Memory) -> None:
        self._inference, self.bucket = inference, bucket
        device, narrow, wide = like.hidden.device, like.values.dtype, like.hidden.dtype
        rows, size = bucket.sentences * bucket.rows, inference.config.hidden

        def room(name: str, dtype: torch.dtype, *shape: int) -> Tensor:
            return memory.of(name, shape, dtype, device)

        def of_source(name: str, like: Tensor) -> Tensor:
            positions = (bucket.length, *like.shape[2:]) if like.dim() == 3 else like.shape[1:]
            return room(name, like.dtype, bucket.sentences, *positions)

        self.encoded = Encoded(
            None if like.keys is None else of_source("keys", like.keys),
            of_source("values", like.values),
            room("padding", torch.bool, bucket.sentences, bucket.length),
            like.hidden,
            None if like.shares is None else room("shares", wide, bucket.sentences, bucket.length),
        )
        self.hidden = room("hidden", wide, rows, size)
        self.context = room("context", narrow, rows, 3 * size)
        self.coverage = None if like.shares is None else room("coverage", wide, rows, bucket.length)
        self.sources = room("sources", torch.int64, rows)  # the row that each goes on from
        self.words = room("words", torch.int64, rows)
        self.logits = room("logits", narrow, rows, len(inference.output_bias))
        self.weights = room("weights", wide, rows, bucket.length)

    def load(self, encoded: Encoded) -> None:
        """Puts sentences into the first places; the others keep one position each, so that no weight is NaN."""
        count, length = len(encoded.hidden), encoded.values.shape[1]
        there = self.encoded
        if there.keys is not None and encoded.keys is not None:
            there.keys[:count, :length] = encoded.keys
        if encoded.values.dim() == 3:
            there.values[:count, :length] = encoded.values
        else:
            there.values[:count] = encoded.values
        if there.padding is not None and encoded.values.dim() == 3:
            there.padding.fill_(True)
            there.padding[:, 0] = False
            there.padding[:count, :length] = False if encoded.padding is None else encoded.padding
        if there.shares is not None and encoded.shares is not None:
            there.shares[:count, :length] = encoded.shares

    def put(self, state: SearchState, at: Tensor) -> None:
        """Puts the states of rows into their places (indices)."""
        self.hidden[at] = state.hidden
        if state.context is not None:
            self.context[at] = state.context
        if self.coverage is not None and state.coverage is not None:
            self.coverage[at, : state.coverage.shape[1]] = state.coverage

    def state(self, rows: Tensor) -> SearchState:
        """The states of some rows (indices)."""
        context = self.context if self._inference.update_first else None
        return SearchState(self.hidden, context, self.coverage).select(rows)

    def carried(self) -> list[Tensor]:
        """What a step reads and overwrites."""
        return [self.hidden, self.context, *([] if self.coverage is None else [self.coverage])]

    def compute(self) -> None:
        """One step of every place."""
        state = self.state(self.sources)
        state, features, weights = self._inference.step(self.encoded, state, self.words)
        self.hidden.copy_(state.hidden)
        if state.context is not None:
            self.context.copy_(state.context)
        if self.coverage is not None and state.coverage is not None:
            self.coverage.copy_(state.coverage)
        torch.mm(features, self._inference.output_weight.t(), out=self.logits)
        if weights is not None:
            self.weights.copy_(weights)


@dataclass(frozen=True)
class _Recording:
    places: _Places
    replay: Callable[[], None]


class GraphedScorer:
    """Scores of one model by graphs; where they cannot be had, by the plain way, and `problem` says why."""

    def __init__(self, inference: Inference, recorder: Recorder | None = None, limit: int = LIMIT) -> None:
        inference.settle()
        self.inference, self.problem = inference, ""
        self._recorder = recorder or CudaRecorder(inference.device)
        self._limit, self._memory = limit, _Memory()
        self._recordings: OrderedDict[Bucket, _Recording] = OrderedDict()

    def start(self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None) -> Session:
        """See `Scorer`; with candidates each batch has an output layer of its own, which no graph knows."""
        if candidates is not None or self.problem:
            return ModelSession(self.inference, source, source_mask, candidates)
        return GraphedSession(self, source, source_mask)

    def recording(self, bucket: Bucket, encoded: Encoded) -> _Recording | None:
        """The graph of a bucket; None where graphs have been given up."""
        found = self._recordings.get(bucket)
        if found is None and not self.problem:
            try:
                places = _Places(self.inference, bucket, encoded, self._memory)
                if self._memory.moved:
                    self._recordings.clear()
                    self._memory.moved = False
                places.load(encoded)
                found = _Recording(places, self._recorder.record(places.compute))
                self._check(found)
            except RuntimeError as error:
                self.give_up(str(error).strip().partition("\n")[0] or type(error).__name__)
                return None
            self._recordings[bucket] = found
            if len(self._recordings) > self._limit:
                self._recordings.popitem(last=False)
        if found is not None:
            self._recordings.move_to_end(bucket)
        return found

    def give_up(self, problem: str) -> None:
        """Leaves graphs be from now on."""
        self.problem = problem
        self._recordings.clear()

    def _check(self, recording: _Recording) -> None:
        """Compares a replay with the plain way, from the same states."""
        places = recording.places
        kept = [tensor.clone() for tensor in places.carried()]
        recording.replay()
        replayed = places.logits.float().log_softmax(-1)
        torch._foreach_copy_(places.carried(), kept)
        places.compute()
        if not torch.allclose(replayed, places.logits.float().log_softmax(-1), atol=TOLERANCE, equal_nan=True):
            raise RuntimeError("a replayed step gives other probabilities")


class GraphedSession:
    """One search by graphs: the first step, of one row a sentence, is taken plainly."""

    def __init__(self, scorer: GraphedScorer, source: Tensor, mask: Tensor) -> None:
        self._scorer, self._inference = scorer, scorer.inference
        self._encoded = self._inference.encode(source, mask)
        self._state = self._inference.start(self._encoded)
        self._bias = self._inference.output_bias[None]
        self._recording: _Recording | None = None
        self._slots: NDArray[np.int64] = np.arange(len(source))  # the place of each sentence that is still searched
        self._each = 1  # rows a sentence at the last step

    def step(self, choice: Choice | None) -> Step:
        """See `Session`."""
        if choice is None:
            return self._plainly(None)
        kept = None
        if choice.sentences is not None:
            kept = choice.sentences.cpu().numpy()
            self._encoded = self._encoded.select(choice.sentences)
        count = len(self._encoded.hidden)
        each = len(choice.rows) // count
        if self._recording is None or 2 * count <= self._recording.places.bucket.sentences > LEAST:
            return self._move(choice, each)
        slots = self._slots if kept is None else self._slots[kept]
        bucket = self._recording.places.bucket
        rows = choice.rows.cpu().numpy()
        sources = self._slots[rows // self._each] * bucket.rows + rows % self._each
        return self._replay(choice, slots, each, torch.from_numpy(sources).to(choice.rows.device))

    def _plainly(self, choice: Choice | None) -> Step:
        previous = None
        if choice is not None:
            self._state, previous = self._state.select(choice.rows), choice.words
        self._state, features, weights = self._inference.step(self._encoded, self._state, previous)
        return Step(Softmax(F.linear(features, self._inference.output_weight), self._bias), weights)

    def _move(self, choice: Choice, each: int) -> Step:
        """Goes over to the graph of another bucket, with all the states there are."""
        count = len(self._encoded.hidden)
        values = self._encoded.values
        length = values.shape[1] if values.dim() == 3 else 1
        if self._recording is not None:
            old = self._recording.places
            index = torch.from_numpy(self._slots).to(choice.rows.device)[choice.rows // self._each]
            index = index * old.bucket.rows + choice.rows % self._each
            self._state = old.state(index).shortened(length)
        else:
            self._state = self._state.select(choice.rows)
        self._recording = self._scorer.recording(Bucket.of(count, each, length), self._encoded)
        slots: NDArray[np.int64] = np.arange(count)
        own = torch.arange(len(choice.rows), device=choice.rows.device)
        if self._recording is None:
            self._slots, self._each = slots, each
            return self._plainly(Choice(None, own, choice.words))
        places = self._recording.places
        places.load(self._encoded)
        at = own // each * places.bucket.rows + own % each
        places.put(self._state, at)
        return self._replay(choice, slots, each, at)

    def _replay(self, choice: Choice, slots: NDArray[np.int64], each: int, sources: Tensor) -> Step:
        """One step of the graph; `sources` are the places that the rows go on from."""
        if self._recording is None:
            raise RuntimeError("there is no graph to replay")
        places = self._recording.places
        at = torch.from_numpy((slots[:, None] * places.bucket.rows + np.arange(each)).ravel()).to(sources.device)
        places.sources.zero_()
        places.sources[at] = sources
        places.words[at] = choice.words
        self._recording.replay()
        self._slots, self._each = slots, each
        values = self._encoded.values
        weights = None
        if self._encoded.keys is not None:
            weights = places.weights[at, : values.shape[1]]
        return Step(Softmax(places.logits[at], self._bias), weights)
