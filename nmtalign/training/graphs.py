"""Loss and gradient of a batch, replayed from a CUDA graph of the batch's bucket. Not yet run on a card.

A pass over 30 words, forward and backward, is some 1,100 launches with the fused kernels and 2,900 without. Each takes
about 10 us of the host's time, where the card needs 2 to 5: for the paper's batch of 80 that is 11 ms of the host's
time, and 4 ms of the card's. A graph replays them all with one launch, but only over the same tensors of the same
shapes. So lengths and rows are rounded up to a bucket, padding has weight 0, and a graph is recorded for each bucket
that comes a second time. All graphs share one pool of memory: they run one after the other, and their results (sums
and gradients) are copied out of it. Several processes replay the same graphs: they sum the gradients afterwards.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import get_total_norm

from nmtalign.data.batches import Batch

# From the inputs of a batch to (objective, sums over its real words, the negative log-likelihood first).
Objective = Callable[..., tuple[Tensor, Tensor]]

LENGTHS = 4  # lengths are rounded up to multiples of it: 5% more positions at 30 words, and about 30 buckets in use
ROWS = 16  # rows likewise: a batch of 80 sentences stays as it is
LIMIT = 128  # graphs that are kept, some 10 MB each; the least recently used one is dropped
TOLERANCE = 1e-2  # relative distance between the results of a graph and those of the same operations; for sums in bf16


@dataclass(frozen=True)
class BatchBucket:
    """The shape that batches are padded to."""

    rows: int
    source: int
    target: int

    @classmethod
    def of(cls, batch: Batch, lengths: int = LENGTHS, rows: int = ROWS) -> "BatchBucket":
        """The smallest bucket that holds the batch."""
        return cls(
            _round_up(len(batch.source), rows),
            _round_up(batch.source.shape[1], lengths),
            _round_up(batch.target.shape[1], lengths),
        )

    def pad(self, batch: Batch) -> Batch:
        """The batch padded to this shape; a row of padding has one real source word, `</s>`, and no target word."""
        more = self.rows - len(batch.source)
        source, source_mask = (_pad(x, self.source, more) for x in (batch.source, batch.source_mask))
        target, target_mask = (_pad(x, self.target, more) for x in (batch.target, batch.target_mask))
        if more:
            source_mask[len(batch.source) :, 0] = True
        guide = batch.guide
        if guide is not None:
            guide = F.pad(guide, (0, self.source - guide.shape[2], 0, self.target - guide.shape[1], 0, more))
        return replace(
            batch, source=source, source_mask=source_mask, target=target, target_mask=target_mask, guide=guide
        )


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _pad(tensor: Tensor, length: int, rows: int) -> Tensor:
    """Adds zeros (`</s>`, False) to the right and below."""
    columns = length - tensor.shape[1]
    return F.pad(tensor, (0, columns, 0, rows)) if columns or rows else tensor


class Recorder(Protocol):
    """Records work, so that it can be repeated on the same tensors."""

    def warm_up(self, work: Callable[[], None]) -> None:
        """Does the work once, so that nothing is set up for the first time while it is recorded."""
        ...

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """A function that repeats the work on the same tensors; raises RuntimeError where that is not possible."""
        ...


class CudaRecorder:
    """Records CUDA graphs on its own stream, with one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Callable[[], None]) -> None:
        """Does the work on the stream that records, because the libraries keep a workspace per stream."""
        present = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            work()
        present.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """A graph of the work, which is not done now; other threads may use the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


@dataclass(frozen=True)
class _Recording:
    inputs: tuple[Tensor, ...]
    replay: Callable[[], None]


class GraphedLoss:
    """Replays a graph for every bucket that has come before; where recording fails, it reports this and stops.

    The parameters must stay where they are, and their gradients must be dense. Dropout draws new numbers at every
    replay, from the generator of the device. The first results of each graph are compared with those of the operations
    that it has recorded.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Objective,
        eager: Callable[[Batch, float], Tensor],
        notice: Callable[[str], None],
        *,
        recorder: Recorder | None = None,
        limit: int = LIMIT,
    ) -> None:
        """`eager` computes a batch without a graph. `notice` is called with one line where graphs are given up."""
        self._model, self._loss, self._eager, self._notice = model, loss, eager, notice
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._device = self._parameters[0].device
        self._recorder, self._limit = recorder or CudaRecorder(self._device), limit
        self._recordings: OrderedDict[tuple[BatchBucket, bool], _Recording] = OrderedDict()
        self._met: set[tuple[BatchBucket, bool]] = set()
        self._given_up = False
        self._weight = torch.ones((), device=self._device, dtype=self._parameters[0].dtype)
        # The static tensors that all graphs write: the sums, and the gradient of each parameter (None = no part in it).
        self._sums = torch.empty(0)
        self._gradients: list[Tensor | None] = [None] * len(self._parameters)

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """Adds the gradient of weight * objective to that of the parameters, and returns the sums of the loss."""
        bucket = BatchBucket.of(batch)
        key = bucket, self._model.training
        if self._given_up or key not in self._met:
            self._met.add(key)  # a bucket that never comes again is not worth a graph
            return self._eager(batch, weight)
        inputs, before = bucket.pad(batch).inputs(), self._take_gradients()
        self._weight.fill_(weight)
        recording = self._recordings.get(key)
        if recording is None:
            if not self._record(key, inputs):
                self._restore(before)
                return self._eager(batch, weight)
        else:
            self._recordings.move_to_end(key)
            for kept, new in zip(recording.inputs, inputs, strict=True):
                unpinned = kept.is_cuda and not new.is_cuda and not new.is_pinned()
                kept.copy_(new.pin_memory() if unpinned else new, non_blocking=True)
            recording.replay()
        return self._hand_over(before)

    def _record(self, key: tuple[BatchBucket, bool], inputs: tuple[Tensor, ...]) -> bool:
        """Records a graph and compares it; leaves its results, or gives graphs up and returns False."""
        static = tuple(tensor.to(self._device, copy=True) for tensor in inputs)
        drawn = _random_state(self._device)

        def work() -> None:
            self._compute(static)

        try:
            self._recorder.warm_up(work)
            recording = _Recording(static, self._recorder.record(work))
            distance = self._distance(work, recording.replay, drawn)
            problem = "" if distance <= TOLERANCE else f"a graph's results differ by {distance:.1e}"
        except RuntimeError as error:
            problem = str(error).strip().partition("\n")[0] or type(error).__name__
        if problem:
            self._given_up = True
            self._recordings.clear()
            _set_random_state(self._device, drawn)
            self._notice(f"CUDA graphs are off: {problem}; training continues without them, slower")
            return False
        if bool(self._sums.isfinite().all()):  # otherwise nothing was compared
            self._recordings[key] = recording
            if len(self._recordings) > self._limit:
                self._recordings.popitem(last=False)
        return True

    def _compute(self, inputs: tuple[Tensor, ...]) -> None:
        """Writes sums and gradients into the static tensors; the first call allocates them."""
        objective, sums = self._loss(*inputs)
        start = objective.detach() * 0 + self._weight
        found = torch.autograd.grad(objective, self._parameters, start, allow_unused=True)
        if not self._sums.numel():
            self._sums = torch.empty_like(sums)
            pairs = zip(self._parameters, found, strict=True)
            self._gradients = [None if gradient is None else torch.empty_like(weight) for weight, gradient in pairs]
        self._sums.copy_(sums.detach())
        kept, new = ([tensor for tensor in part if tensor is not None] for part in (self._gradients, found))
        torch._foreach_copy_(kept, new)

    def _distance(self, work: Callable[[], None], replay: Callable[[], None], drawn: Tensor) -> float:
        """The largest relative distance of a sum, or of the whole gradient, between the work and its replay."""
        results = []
        for compute in (work, replay):
            self._sums.fill_(torch.nan)
            _set_random_state(self._device, drawn)
            compute()
            results.append([self._sums.clone(), *(g.clone() for g in self._gradients if g is not None)])
        (sums, *gradients), (again, *replayed) = results
        norm = _norm(gradients)
        if not bool((sums.isfinite() | again.isfinite()).all() & norm.isfinite()):
            return 0.0  # there is nothing to compare
        of_gradient = _norm([ours - theirs for ours, theirs in zip(replayed, gradients, strict=True)])
        of_gradient = of_gradient / norm.clamp_min(1e-30)
        return float(torch.maximum(((again - sums).abs() / sums.abs().clamp_min(1e-30)).max(), of_gradient))

    def _take_gradients(self) -> list[Tensor | None]:
        """The gradients that are there already, safe from being overwritten."""
        present = [parameter.grad for parameter in self._parameters]
        return [
            gradient.clone() if gradient is not None and gradient is kept else gradient
            for gradient, kept in zip(present, self._gradients, strict=True)
        ]

    def _restore(self, gradients: list[Tensor | None]) -> None:
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient

    def _hand_over(self, before: list[Tensor | None]) -> Tensor:
        """Leaves the static gradients on the parameters, added to those before; returns the sums."""
        for parameter, kept, held in zip(self._parameters, self._gradients, before, strict=True):
            if kept is not None and held is not None:
                kept += held
            parameter.grad = held if kept is None else kept
        return self._sums.clone()


def _norm(tensors: list[Tensor]) -> Tensor:
    return get_total_norm([tensor.double() for tensor in tensors])


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
