"""A typed way to call PyTorch's autograd functions, whose `apply` carries no types."""

from typing import Any

import torch


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply(*arguments)`."""
    return function.apply(*arguments)
