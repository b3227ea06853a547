"""The optimiser's step on the gradients of a real batch: ours beside PyTorch's own, which take turns."""

import statistics

import torch

from bench.timing import take_turns
from bench.variants import VARIANTS, make_model, use_sparse_embeddings
from bench.workload import Workload
from nmtalign.config import TrainingConfig
from nmtalign.core.model import TranslationModel
from nmtalign.training.optimizers import make_optimizer


def step_seconds(workload: Workload, repeats: int) -> dict[str, float]:
    """Median seconds of a step, gradients given: "ours" and "torch" (PyTorch's optimiser with its defaults)."""
    training = workload.size.training
    steps = {}
    for name in ("ours", "torch"):
        model = make_model(workload)
        use_sparse_embeddings(model, name == "ours")
        optimizer = make_optimizer(model.parameters(), training) if name == "ours" else _of_torch(model, training)
        batch = workload.batches[0]
        (VARIANTS["ours-fp32"].loss(model, batch) / len(batch.source)).backward()
        steps[name] = optimizer.step
    return {name: statistics.median(seconds) for name, seconds in take_turns(steps, repeats).items()}


def _of_torch(model: TranslationModel, training: TrainingConfig) -> torch.optim.Optimizer:
    """The optimiser of that name as PyTorch makes it."""
    if training.optimizer == "adadelta":
        return torch.optim.Adadelta(model.parameters(), lr=1.0, rho=training.rho, eps=training.epsilon)
    cls = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    return cls(model.parameters(), lr=training.learning_rate, betas=(training.beta1, training.beta2))
