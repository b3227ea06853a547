"""The optimisers and the learning rate's course."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from nmtalign.config import TrainingConfig


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """Adadelta as in the paper, Adam, or AdamW (decay on matrices alone)."""
    weights = list(parameters)
    if config.optimizer == "adadelta":
        return torch.optim.Adadelta(weights, lr=config.learning_rate, rho=config.rho, eps=config.epsilon)
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    cls = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    if config.optimizer == "adam":
        groups = [{"params": weights, "weight_decay": 0.0}]
    return cls(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)


def learning_rate(config: TrainingConfig, update: int, done: float) -> float:
    """The rate of update 1, 2, ...: a linear rise over `warmup`, then the schedule.

    `done` is the share of the budget gone by (0 to 1): "linear" falls with it to 0; "inverse-sqrt" needs no budget.
    """
    rise = min(1.0, update / config.warmup) if config.warmup else 1.0
    if config.schedule == "linear":
        return config.learning_rate * rise * max(0.0, 1.0 - done)
    if config.schedule == "inverse-sqrt":
        return config.learning_rate * rise * math.sqrt(max(1, config.warmup) / max(update, config.warmup, 1))
    return config.learning_rate * rise


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate
