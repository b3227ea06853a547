"""Which weights of a forced pass say what a target word comes from.

- "current": those of the step that writes the word.
- "shifted" (Chen et al. 2020): those of the step in which the word is the input, as they know which word it is. In the
  order look-generate-update (PAPER section 2) the look of step t + 1 reads the first state that has taken up word t:
  word t reads the weights of step t + 1, and the last word those of the step that writes `</s>`. In the order
  look-update-generate a look comes before its step's update: word t is taken up in step t + 1, after its look, and the
  look of step t + 2 is the first that knows it. For the last word the decoder then goes one step beyond `</s>`.
  `</s>` itself, which is nowhere an input, keeps the weights of its own step.
- "posterior": those of the step that writes the word, by Bayes' rule given that word (`force_posterior`).
- "auto": current with one model, as the paper shows them; posterior with one of each direction.

Steps are those of the model's own tokens: pieces, where it has them, before they are merged to words.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.config import AlignConfig, Order, Reading, SoftSymmetrization
from nmtalign.core.model import Forced, TranslationModel
from nmtalign.data.batches import Batch
from nmtalign.text.vocabulary import EOS_ID

# How many steps after the one that writes a word a look knows it.
STEPS_AHEAD: Mapping[Order, int] = {"look-generate-update": 1, "look-update-generate": 2}


def force(model: TranslationModel, batch: Batch, reading: Reading) -> Forced:
    """Forced decoding of a batch on the model's device: log-probabilities (B, Ty), and weights (B, Ty, Tx) as read."""
    return READINGS[reading](model, batch)


def chosen(config: AlignConfig, models: int) -> AlignConfig:
    """The settings with the reading and the method of links that they stand for with so many models.

    A threshold is that of the links, unless a method that combines the weights of two models uses it.
    """
    if config.reading == "auto":
        config = replace(config, reading="current" if models == 1 else "posterior")
    if config.links is None:
        of_links = config.threshold > 0 and (models == 1 or config.symmetrize not in get_args(SoftSymmetrization))
        config = replace(config, links="threshold" if of_links else "argmax")
    return config


def _current(model: TranslationModel, batch: Batch) -> Forced:
    return model.force(batch.source, batch.source_mask, batch.target, batch.target_mask)


def _shifted(model: TranslationModel, batch: Batch) -> Forced:
    ahead = STEPS_AHEAD[model.config.order]
    # The last word of the longest sentence is to have its step, too: `</s>` has one, and what lies beyond is padding.
    target = F.pad(batch.target, (0, ahead - 1), value=EOS_ID)
    mask = F.pad(batch.target_mask, (0, ahead - 1), value=False)
    forced = model.force(batch.source, batch.source_mask, target, mask)
    if forced.weights is None:
        return forced
    steps = batch.target.shape[1]
    return Forced(forced.log_probs[:, :steps], shifted(forced.weights, batch.target_mask, ahead))


def _posterior(model: TranslationModel, batch: Batch) -> Forced:
    return model.force_posterior(batch.source, batch.source_mask, batch.target, batch.target_mask)


def shifted(weights: Tensor, mask: Tensor, ahead: int) -> Tensor:
    """Weights (B, Ty + ahead - 1, Tx) of steps as those (B, Ty, Tx) of words, each `ahead` steps after its own.

    mask (B, Ty) is True at the words and at `</s>`, the last of each sentence, which keeps its step.
    """
    last = mask.sum(1) - 1
    own = torch.arange(mask.shape[1], device=mask.device)
    step = torch.where(own < last[:, None], own + ahead, own)
    return weights.gather(1, step[..., None].expand(-1, -1, weights.shape[2]))


READINGS: Mapping[Reading, Callable[[TranslationModel, Batch], Forced]] = {
    "current": _current,
    "shifted": _shifted,
    "posterior": _posterior,
}
