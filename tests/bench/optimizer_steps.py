"""The step of the optimiser on the gradients of a real batch: nmtalign's, PyTorch's own, and the memory alone."""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from bench.timing import Task, take_turns
from bench.variants import make_model
from bench.workload import Workload
from nmtalign.core.model import TranslationModel
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.optimizers import descend, make_optimizer


def step_seconds(workload: Workload, repeats: int) -> dict[str, float]:
    """Returns the median seconds of the step only, and of clipping and step as in training, for nmtalign and PyTorch.

    nmtalign's optimiser gets the gradients of the embeddings by rows, as in training. PyTorch's, with its default
    settings, gets dense gradients. "memory" reads and writes as many bytes as a step on dense gradients must.
    """
    tasks = {**_ours(workload), **_of_torch(workload), "memory": _memory_alone(workload)}
    return {name: statistics.median(seconds) for name, seconds in take_turns(tasks, repeats).items()}


def _ours(workload: Workload) -> dict[str, Task]:
    training = workload.size.training
    alone = make_optimizer(_with_gradients(workload).parameters(), training)
    model = _with_gradients(workload)
    optimizer = make_optimizer(model.parameters(), training)
    give_again = _keep_gradients(model)

    def clipped() -> None:
        give_again()  # one assignment per weight, because a step of nmtalign's optimiser removes the gradients
        descend(optimizer, training.learning_rate, training.clip_norm)

    return {"ours": partial(alone.descend, training.learning_rate), "ours with clipping": clipped}


def _of_torch(workload: Workload) -> dict[str, Task]:
    """Returns PyTorch's optimiser of that name."""
    training, model = workload.size.training, _with_gradients(workload)
    optimizer = _torch_optimizer(model, training)

    def clipped() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm or torch.inf)
        optimizer.step()

    return {"torch": optimizer.step, "torch with clipping": clipped}


def _memory_alone(workload: Workload) -> Task:
    """A step reads four numbers per weight (weight, gradient, two means) and writes three in place: 28 bytes."""
    weights = sum(parameter.numel() for parameter in make_model(workload).parameters())
    return torch.zeros(weights * 7 // 2).neg_  # reads and writes each number: 8 bytes


def _torch_optimizer(model: TranslationModel, training: TrainingConfig) -> torch.optim.Optimizer:
    if training.optimizer == "adadelta":
        return torch.optim.Adadelta(model.parameters(), lr=1.0, rho=training.rho, eps=training.epsilon)
    cls = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    return cls(model.parameters(), lr=training.learning_rate, betas=(training.beta1, training.beta2))


def _with_gradients(workload: Workload) -> TranslationModel:
    """Returns a model after a backward pass over a batch."""
    model, batch = make_model(workload), workload.batches[0]
    objective = model.loss(*batch.inputs()).objective
    (objective / len(batch.source)).backward()
    return model


def _keep_gradients(model: TranslationModel) -> Callable[[], None]:
    """Returns a function that restores the present gradients."""
    kept = [(parameter, parameter.grad) for parameter in model.parameters()]

    def give_again() -> None:
        for parameter, gradient in kept:
            parameter.grad = gradient

    return give_again
