"""Guided alignment: what it costs that the weights do not follow given links (Chen et al. 2016, Guided Alignment)."""

from dataclasses import dataclass

from torch import Tensor

from nmtalign.config import GuidedLoss, GuidedReading, TrainingConfig

LEAST = 1e-30  # a weight below it counts as this: far above what float32 still holds apart from 0


@dataclass(frozen=True)
class Guidance:
    """How the loss of the weights is computed, and what it counts beside that of the words."""

    weight: float
    loss: GuidedLoss
    reading: GuidedReading = "current"

    @classmethod
    def of(cls, config: TrainingConfig) -> "Guidance":
        """What the settings of a training say."""
        return cls(config.guided_weight, config.guided_loss, config.guided_reading)

    def cost(self, weights: Tensor, guide: Tensor) -> Tensor:
        """Nats summed over the target tokens that are linked, of weights (Ty, B, Tx) and guide (B, Ty, Tx) bool.

        "cross-entropy": of the uniform distribution over a token's linked cells. "sum": minus the logarithm of what all
        of its linked cells weigh together. Tokens without links cost nothing; no shape depends on what the guide holds.
        The reading "shifted" asks it of the step after, of which the token is the input.
        """
        linked = guide.transpose(0, 1)
        if self.reading == "shifted":
            weights, linked = weights[1:], linked[:-1]  # the last token, `</s>` or padding, has no links
        if self.loss == "sum":
            together = (weights * linked).sum(-1).clamp_min(LEAST).log()
            return -(together * linked.any(-1)).sum()
        shares = linked / linked.sum(-1, keepdim=True).clamp_min(1)
        return -(weights.clamp_min(LEAST).log() * shares.to(weights.dtype)).sum()
