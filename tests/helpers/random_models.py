"""Random weights of small models, and words for them."""

import torch

ENGLISH = ["the", "fox", "sees", "a", "red", "boat", "."]
FRENCH = ["le", "renard", "voit", "un", "bateau", "rouge", "."]


def disturb(model):
    """Weights that are large enough for different translations of several words."""
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 6  # words rather than none
