"""Updates by several processes under torchrun, each with a share of the same batch."""

import time

import numpy as np
import torch

from bench.variants import make_model
from bench.workload import Workload
from nmtalign.data.batches import Batch, make_batch
from nmtalign.training.distributed import World, open_world
from nmtalign.training.optimizers import descend, make_optimizer
from nmtalign.training.updates import BatchLoss, add_gradient


def updates_together(workload: Workload, bf16: bool, repeats: int) -> list[float] | None:
    """Returns the seconds of each update after a warm-up update; None on all ranks except the first."""
    world = open_world("cpu")
    with world.reporting_once():
        model, training = make_model(workload), workload.size.training
        parameters = list(model.parameters())
        optimizer, loss = (
            make_optimizer(parameters, training),
            BatchLoss(model, 0.0, dtype=torch.bfloat16 if bf16 else None),
        )
        mine = [_share(batch, world) for batch in workload.batches]
        seconds = []
        for number in range(repeats + 1):
            world.all_reduce_max([0.0])
            began = time.perf_counter()
            for batch, whole in zip(mine, workload.batches, strict=True):
                add_gradient(loss, world.device, batch, 1 / whole.sentences)
                world.reduce_gradients(parameters)
                descend(optimizer, training.learning_rate, training.clip_norm)
            world.all_reduce_max([0.0])
            if number:
                seconds.append(time.perf_counter() - began)
        world.close()
    return seconds if world.is_main else None


def _share(batch: Batch, world: World) -> Batch:
    """Returns the sentences of a batch that a process computes."""
    pairs = [
        (batch.source[row][batch.source_mask[row]][:-1].numpy(), batch.target[row][batch.target_mask[row]][:-1].numpy())
        for row in world.share(np.arange(batch.sentences))
    ]
    return make_batch(pairs)
