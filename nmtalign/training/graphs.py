"""Loss and gradient of a batch, replayed from a CUDA graph for batches of the same shape.

A pass over 30 words, forward and backward, is more than a thousand launches. Each takes about 10 us of the host's time,
where the GPU needs 2 to 5. A graph replays them all with one launch, but only over the same tensors of the same
shapes. So a batch is padded to a bucket, where padding has weight 0, and a graph is recorded for each shape that comes
a second time. All graphs share one pool of memory, because they run one after the other. Several processes sum the
gradients after the replay.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.model import Batch
from nmtalign.core.numerics import LEAST, Fusion

Shape = tuple[int, ...]  # rows, and lengths of source and target
# From the inputs of a batch to (objective, sums over its real words, the negative log-likelihood first).
Objective = Callable[..., tuple[Tensor, Tensor]]

LENGTHS = 4  # lengths are rounded up to multiples of it: 5% more positions at 30 words, and about 30 buckets in use
ROWS = 16  # rows likewise: a batch of 80 sentences stays as it is
CPU_ROWS = 8  # rows on a CPU in bf16, which has no graphs, and takes longer for each row of padding
LIMIT = 128  # graphs that are kept, some 10 MB each; the least recently used one is dropped
TOLERANCE = 1e-2  # relative distance between the results of a graph and those of the same operations; for sums in bf16


def pad_to_bucket(batch: Batch, step: int) -> Batch:
    """The batch padded to its bucket: a multiple of `step` rows, and lengths that are multiples of LENGTHS.

    With CPU_ROWS fewer rows than that become a power of 2, because batches of very long pairs have few. A row of
    padding has one real source word, `</s>`, and no target word.
    """
    (rows, source_length), target_length = batch.source.shape, batch.target.shape[1]
    if step == CPU_ROWS:
        step = min(step, 1 << (rows - 1).bit_length())
    more, right, end = -rows % step, -source_length % LENGTHS, -target_length % LENGTHS
    if not (more or right or end):
        return batch
    source, source_mask = (F.pad(tensor, (0, right, 0, more)) for tensor in (batch.source, batch.source_mask))
    source_mask[rows:, 0] = True
    target, target_mask = (F.pad(tensor, (0, end, 0, more)) for tensor in (batch.target, batch.target_mask))
    guide = None if batch.guide is None else F.pad(batch.guide, (0, right, 0, end, 0, more))
    copies = None if batch.copies is None else F.pad(batch.copies, (0, right, 0, more))
    return replace(
        batch,
        source=source,
        source_mask=source_mask,
        target=target,
        target_mask=target_mask,
        guide=guide,
        copies=copies,
    )


class CudaRecorder:
    """Records CUDA graphs on its own stream, with one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Does the work once, and returns a function that repeats it on the same tensors.

        The work is done on the stream that records, because the libraries set up a workspace per stream. Other threads
        may use the device meanwhile. Raises RuntimeError for work that cannot be recorded.
        """
        present = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            work()
        present.wait_stream(self._stream)
        graph, generator = torch.cuda.CUDAGraph(), torch.cuda.default_generators[present.device_index]
        drawn = generator.clone_state()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError:  # PyTorch leaves its generator and its stream as they are during a recording
            generator.graphsafe_set_state(drawn)
            torch.cuda.set_stream(present)
            raise
        return graph.replay


class GraphedLoss:
    """Replays a graph for every shape of batch that has come before; where recording fails, it reports this and stops.

    The parameters must stay where they are, and their gradients must be dense. Dropout draws new numbers at every
    replay, from the generator of the device. The first replay of each graph is compared with the same operations.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Objective,
        eager: Callable[[Batch, float], Tensor],
        notice: Callable[[str], None],
        recorder: CudaRecorder | None = None,
    ) -> None:
        """`eager` computes a batch without a graph. `notice` is called with one line where graphs are given up."""
        self._loss, self._eager, self._notice = loss, eager, notice
        self._parameters = list(model.parameters())
        self._device = self._parameters[0].device
        self._recorder, self._generator = recorder or CudaRecorder(self._device), torch.default_generator
        if self._device.type == "cuda":
            self._generator = torch.cuda.default_generators[torch.cuda.current_device()]
        self._recordings = OrderedDict[Shape, tuple[Sequence[Tensor], Callable[[], None]]]()
        self._met, self._given_up = set[Shape](), False
        self._weight = torch.ones((), device=self._device, dtype=self._parameters[0].dtype)
        # The tensors that all graphs write: the sums, and the gradient of each parameter (None = no part in the loss).
        self._sums = torch.empty(0)
        self._gradients: list[Tensor | None] = []

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """Adds the gradient of weight * objective to that of the parameters, and returns the sums of the loss."""
        shape = *batch.source.shape, batch.target.shape[1]
        if recording := self._recordings.get(shape):
            self._recordings.move_to_end(shape)
            inputs, replay = recording
            for kept, new in zip(inputs, batch.inputs(), strict=True):
                kept.copy_(new, non_blocking=True)
            self._weight.fill_(weight)
            self._share_gradients()
            replay()
            return self._sums.clone()
        first_time = shape not in self._met  # a shape that never comes again is not worth a graph
        self._met.add(shape)
        accumulates = any(parameter.grad is not None for parameter in self._parameters)
        if first_time or accumulates or self._given_up or not self._record(shape, batch, weight):
            return self._eager(batch, weight)
        return self._sums.clone()

    def _record(self, shape: Shape, batch: Batch, weight: float) -> bool:
        """Records a graph and replays it for the batch, or gives graphs up and returns False."""
        inputs = tuple(tensor.to(self._device, copy=True) for tensor in batch.inputs())
        self._weight.fill_(weight)
        self._share_gradients()
        drawn = self._generator.get_state()
        try:
            replay = self._recorder.record(lambda: self._compute(inputs))
            expected = self._results()
            self._remove_gradients()
            self._share_gradients()
            self._generator.set_state(drawn)
            replay()
            pairs = zip(self._results(), expected, strict=True)
            distances = [(one - other).norm() / other.norm().clamp_min(LEAST) for one, other in pairs]
            distance, compared = float(torch.stack(distances).max()), all(part.isfinite().all() for part in expected)
            problem = f"a graph's results differ by {distance:.1e}" if compared and not distance <= TOLERANCE else ""
        except RuntimeError as error:
            problem = str(error).strip().partition("\n")[0] or type(error).__name__
        if Fusion.problem and not self._recordings:
            self._notice(f"GPU kernels are not compiled: {Fusion.problem}; training continues, slower")
        if problem:
            self._given_up = True
            self._recordings.clear()
            self._remove_gradients()
            self._generator.set_state(drawn)
            self._notice(f"CUDA graphs are off: {problem}; training continues without them, slower")
            return False
        if compared:
            self._recordings[shape] = inputs, replay
            if len(self._recordings) > LIMIT:
                self._recordings.popitem(last=False)
        return True

    def _compute(self, inputs: Sequence[Tensor]) -> None:
        """Writes the sums, and adds the gradients, to the tensors of all graphs; the first call allocates them."""
        objective, sums = self._loss(*inputs)
        start = objective.detach() * 0 + self._weight
        found = torch.autograd.grad(objective, self._parameters, start, allow_unused=True)
        if not self._gradients:
            self._sums = torch.empty_like(sums)
            pairs = zip(self._parameters, found, strict=True)
            self._gradients = [None if gradient is None else torch.zeros_like(weight) for weight, gradient in pairs]
            self._share_gradients()
        self._sums.copy_(sums.detach())
        kept, new = ([tensor for tensor in part if tensor is not None] for part in (self._gradients, found))
        torch._foreach_add_(kept, new)

    def _results(self) -> tuple[Tensor, Tensor]:
        """The sums, and the norm of each gradient."""
        gradients = [gradient for gradient in self._gradients if gradient is not None]
        return self._sums.clone(), torch.stack(torch._foreach_norm(gradients))

    def _share_gradients(self) -> None:
        """Makes the tensors of all graphs the gradients of the parameters, with the same values."""
        for parameter, kept in zip(self._parameters, self._gradients, strict=bool(self._gradients)):
            if kept is not None and parameter.grad is not kept:
                kept.zero_() if parameter.grad is None else kept.copy_(parameter.grad)
                parameter.grad = kept

    def _remove_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
