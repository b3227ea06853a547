"""Loss and gradient of a batch, launched operation by operation or replayed from a CUDA graph of the batch's bucket.

A pass over 30 words, forward and backward, is some 1,100 launches with the fused kernels and 2,900 without. Each takes
about 10 us of the host's time, where the card needs 2 to 5: for the paper's batch of 80 that is 11 ms of the host's,
and 4 of the card's. A graph replays them all at one launch, but only over the same tensors of the same shapes. So
lengths and rows are rounded up to a bucket, padding has weight 0, and a graph is recorded for each bucket that comes
again. All graphs share one pool of memory: they run one after the other, and what they leave (loss and gradients) is
copied out of it. Whoever calls cannot tell one way from the other.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import Batch
from nmtalign.training.both import BothWays

# A batch's inputs to (objective, sums over the real words of what is reported, the nll first).
Objective = Callable[..., tuple[Tensor, Tensor]]

Model = TranslationModel | BothWays

LENGTHS = 4  # lengths are rounded up to multiples of it: 5% more positions at 30 words, and about 30 buckets in use
ROWS = 16  # rows likewise: a batch of 80 sentences stays as it is
LIMIT = 128  # graphs kept, the least recently used one dropped; each takes some 10 MB
# Relative, for bf16 products of other shapes; a wrong graph is far off. A weight's gradient is held against its own
# norm, or, where that is next to nothing, against so much of the whole gradient's.
LOSS_TOLERANCE, GRADIENT_TOLERANCE, NEXT_TO_NOTHING = 1e-3, 0.2, 1e-3


class LossAndGradient(Protocol):
    """What both ways do."""

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """Adds the gradient of weight * objective to the parameters' `grad`, as `backward` does; returns the sums."""
        ...


class EagerLoss:
    """Operation by operation; `loss` may be a module that reduces gradients over processes."""

    def __init__(self, loss: Objective, device: torch.device) -> None:
        self._loss, self._device = loss, device

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """As `LossAndGradient` says; a loss that is not finite makes the whole gradient so."""
        objective, sums = self._loss(*batch.to(self._device).inputs())
        objective.backward(objective.detach() * 0 + weight)
        return sums.detach()


@dataclass(frozen=True)
class Bucket:
    """The shape that batches are padded to."""

    rows: int
    source: int
    target: int

    @classmethod
    def of(cls, batch: Batch, lengths: int = LENGTHS, rows: int = ROWS) -> "Bucket":
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
    """Zeros (`</s>`, False) to the right and below."""
    columns = length - tensor.shape[1]
    return F.pad(tensor, (0, columns, 0, rows)) if columns or rows else tensor


class Recorder(Protocol):
    """What makes something that can be done again of something that has been done."""

    def warm_up(self, work: Callable[[], None]) -> None:
        """Does the work once, so that nothing is set up for the first time while it is recorded."""
        ...

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What does the work again on the same tensors; raises RuntimeError where that is not possible."""
        ...


class CudaRecorder:
    """Records CUDA graphs, on a stream of its own and with one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Callable[[], None]) -> None:
        """Does the work on the stream that records: the libraries keep workspaces a stream."""
        present = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            work()
        present.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """A graph of the work, which is not done now; threads that read ahead may go on meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


@dataclass(frozen=True)
class _Recording:
    inputs: tuple[Tensor, ...]
    replay: Callable[[], None]


class GraphedLoss:
    """Replays a graph for every bucket that has come before; what cannot be recorded is computed eagerly, and said.

    The parameters must stay where they are, and their gradients must be dense. Dropout draws new numbers at every
    replay, from the device's generator. Each graph's first results are compared with those of the plain way.
    """

    def __init__(
        self,
        model: Model,
        loss: Objective,
        say: Callable[[str], None],
        *,
        recorder: Recorder | None = None,
        limit: int = LIMIT,
    ) -> None:
        """`loss` calls `model.loss`; `say` is told in one line where graphs are given up."""
        self._model, self._loss, self._say, self._limit = model, loss, say, limit
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        device, dtype = self._parameters[0].device, self._parameters[0].dtype
        self._device, self._eager = device, EagerLoss(loss, device)
        self._recorder = recorder or CudaRecorder(device)
        self._recordings: OrderedDict[tuple[Bucket, bool], _Recording] = OrderedDict()
        self._met: set[tuple[Bucket, bool]] = set()
        self._given_up = False
        self._weight = torch.ones((), device=device, dtype=dtype)
        self._sums: Tensor | None = None
        self._gradients: list[Tensor | None] = [None] * len(self._parameters)

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """As `LossAndGradient` says."""
        bucket = Bucket.of(batch)
        key = bucket, self._model.training
        if self._given_up or key not in self._met:
            self._met.add(key)  # a bucket that never comes again is not worth a graph
            return self._eager(batch, weight)
        recording = self._recordings.get(key)
        if recording is None:
            return self._first(key, batch, weight)
        self._recordings.move_to_end(key)
        before = self._take_gradients()
        self._load(recording.inputs, bucket.pad(batch).inputs(), weight)
        recording.replay()
        return self._hand_over(before)

    def _first(self, key: tuple[Bucket, bool], batch: Batch, weight: float) -> Tensor:
        """Records a graph and checks it; gives graphs up where that fails."""
        before, drawn = self._take_gradients(), _random_state(self._device)
        try:
            recording = self._record(key[0], batch, weight)
            problem = self._disagreement(recording, batch, weight, drawn)
        except RuntimeError as error:
            recording, problem = None, str(error).strip().partition("\n")[0] or type(error).__name__
        if problem or recording is None:
            self._give_up(problem)
            self._restore(before)
            _set_random_state(self._device, drawn)
            return self._eager(batch, weight)
        if bool(self._kept().isfinite().all()):  # else nothing was compared
            self._recordings[key] = recording
            if len(self._recordings) > self._limit:
                self._recordings.popitem(last=False)
        return self._hand_over(before)

    def _give_up(self, problem: str) -> None:
        self._given_up = True
        self._recordings.clear()
        self._say(f"CUDA graphs are off: {problem}; training goes on without them, slower")

    def _record(self, bucket: Bucket, batch: Batch, weight: float) -> _Recording:
        inputs = tuple(tensor.to(self._device, copy=True) for tensor in bucket.pad(batch).inputs())
        self._weight.fill_(weight)

        def work() -> None:
            self._compute(inputs)

        self._recorder.warm_up(work)
        return _Recording(inputs, self._recorder.record(work))

    def _compute(self, inputs: tuple[Tensor, ...]) -> None:
        """Sums and gradients into the tensors kept for them; the first call makes room for them."""
        objective, sums = self._loss(*inputs)
        start = objective.detach() * 0 + self._weight
        found = torch.autograd.grad(objective, self._parameters, start, allow_unused=True)
        if self._sums is None:
            self._sums = torch.empty_like(sums)
        self._sums.copy_(sums.detach())
        for number, gradient in enumerate(found):
            if gradient is not None and self._gradients[number] is None:
                self._gradients[number] = torch.empty_like(self._parameters[number])
        pairs = [(kept, new) for kept, new in zip(self._gradients, found, strict=True) if kept is not None]
        torch._foreach_copy_([kept for kept, _ in pairs], [new for _, new in pairs if new is not None])

    def _disagreement(self, recording: _Recording, batch: Batch, weight: float, drawn: Tensor) -> str:
        """What differs between the graph's results and the plain way's, or nothing; leaves the graph's results.

        With dropout the plain way reads the padded batch too, since the random numbers must fall on the same places.
        """
        self._restore([None] * len(self._parameters))
        _set_random_state(self._device, drawn)
        if self._model.training and self._model.config.dropout:
            self._compute(recording.inputs)
            sums, expected = self._kept().clone(), [None if g is None else g.clone() for g in self._gradients]
        else:
            sums, expected = self._eager(batch, weight), [parameter.grad for parameter in self._parameters]
        self._kept().fill_(torch.nan)
        _set_random_state(self._device, drawn)
        recording.replay()
        found = self._kept()
        if not bool((sums.isfinite() | found.isfinite()).all()):
            return ""
        loss_error = float(((found - sums).abs() / sums.abs().clamp_min(1e-30)).max())
        gradient_error = _relative_error(self._gradients, expected)
        if loss_error <= LOSS_TOLERANCE and gradient_error <= GRADIENT_TOLERANCE:
            return ""
        return f"a graph's loss differs by {loss_error:.1e} and its gradient by {gradient_error:.1e}"

    def _kept(self) -> Tensor:
        """The tensor of sums that every graph writes."""
        if self._sums is None:
            raise RuntimeError("no batch has been computed yet")
        return self._sums

    def _load(self, inputs: tuple[Tensor, ...], batch: tuple[Tensor, ...], weight: float) -> None:
        self._weight.fill_(weight)
        for kept, new in zip(inputs, batch, strict=True):
            pinned = kept.is_cuda and not new.is_cuda and not new.is_pinned()
            kept.copy_(new.pin_memory() if pinned else new, non_blocking=True)

    def _take_gradients(self) -> list[Tensor | None]:
        """The gradients that were there before, safe from being overwritten."""
        present = [parameter.grad for parameter in self._parameters]
        return [
            gradient.clone() if gradient is not None and gradient is kept else gradient
            for gradient, kept in zip(present, self._gradients, strict=True)
        ]

    def _restore(self, gradients: list[Tensor | None]) -> None:
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient

    def _hand_over(self, before: list[Tensor | None]) -> Tensor:
        """Leaves what was found on the parameters, added to what was there; returns the sums."""
        for number, (parameter, kept) in enumerate(zip(self._parameters, self._gradients, strict=True)):
            held = before[number]
            if kept is not None and held is not None:
                kept += held
            parameter.grad = held if kept is None else kept
        return self._kept().clone()


def pick_loss(
    model: Model, loss: Objective, device: torch.device, processes: int, say: Callable[[str], None]
) -> LossAndGradient:
    """Graphs on a GPU that trains alone, else the plain way (gradients are reduced by hooks, which no graph holds)."""
    if device.type == "cuda" and processes == 1:
        return GraphedLoss(model, loss, say)
    return EagerLoss(loss, device)


def _relative_error(found: list[Tensor | None], expected: list[Tensor | None]) -> float:
    """The largest of: the norm of a gradient's difference over the norm that was expected; inf where one is missing."""
    if any((ours is None) != (theirs is None) for ours, theirs in zip(found, expected, strict=True)):
        return torch.inf
    pairs = [(x, y) for x, y in zip(found, expected, strict=True) if x is not None and y is not None]
    norms = [float(theirs.norm()) for _, theirs in pairs]
    errors = [float((ours - theirs).norm()) for ours, theirs in pairs]
    least = max(NEXT_TO_NOTHING * math.hypot(*norms), 1e-30)
    return max(error / max(norm, least) for error, norm in zip(errors, norms, strict=True))


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
