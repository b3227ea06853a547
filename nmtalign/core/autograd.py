"""A typed way to call PyTorch's autograd functions, whose `apply` carries no types."""

from typing import Any

import torch


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply(*arguments)`."""
    return function.apply(*arguments)


def once(ctx: Any, name: str) -> Any:
    """What a forward pass left under `name` for its backward pass, which takes it away: it is freed when used up.

    PyTorch itself would keep it until the whole graph goes. Raises RuntimeError if it has been taken.
    """
    kept = getattr(ctx, name)
    setattr(ctx, name, None)
    if kept is None:
        raise RuntimeError("the gradient of this pass has been taken already; compute the loss again")
    return kept
