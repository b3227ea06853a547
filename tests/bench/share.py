"""Updates by several processes under torchrun, each with its share of the same batch."""

import os
import time

import torch

from bench.variants import make_model
from bench.workload import Workload
from nmtalign.data.batches import Batch
from nmtalign.training.optimizers import Descent, make_optimizer


def updates_together(workload: Workload, bf16: bool, repeats: int) -> list[float] | None:
    """Seconds of each update, one not counted before; None from all ranks but the first."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from nmtalign.training.updates import BatchLoss

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group("gloo")
    try:
        model = make_model(workload)
        model.use_bf16(bf16)
        model.use_sparse_gradients(False)  # what is reduced over processes is dense
        training = workload.size.training
        descent = Descent(make_optimizer(model.parameters(), training), training.clip_norm)
        loss = DistributedDataParallel(BatchLoss(model, 0.0), broadcast_buffers=False, gradient_as_bucket_view=True)
        mine = [_share(batch, rank, size) for batch in workload.batches]
        seconds = []
        for number in range(repeats + 1):
            distributed.barrier()
            began = time.perf_counter()
            for batch in mine:
                objective, _ = loss(batch.source, batch.source_mask, batch.target, batch.target_mask)
                (objective / len(batch.source)).backward()
                descent.step(training.learning_rate)
            distributed.barrier()
            if number:
                seconds.append(time.perf_counter() - began)
        return seconds if rank == 0 else None
    finally:
        distributed.destroy_process_group()


def _share(batch: Batch, rank: int, size: int) -> Batch:
    """Every `size`-th sentence, from the rank's own on."""
    rows = torch.arange(rank, len(batch.source), size)
    from nmtalign.data.batches import make_batch

    pairs = [
        (batch.source[row][batch.source_mask[row]][:-1].numpy(), batch.target[row][batch.target_mask[row]][:-1].numpy())
        for row in rows
    ]
    return make_batch(pairs)
