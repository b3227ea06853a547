"""Readings: which attention weights of forced decoding align a target word.

- "current": those of the step that writes the word.
- "shifted" (Chen et al. 2020): those of the step that has the word as input, because its state knows the word. In the
  order look-generate-update (the paper's code) the attention of step t + 1 uses the first state that contains word t:
  word t takes the weights of step t + 1, and the last word those of the step that writes `</s>`. In the order
  look-update-generate (the paper's text) the attention of a step precedes its update: word t enters the state in step
  t + 1, after its attention, and step t + 2 is the first to use it. For the last word the decoder then runs one step
  past `</s>`. `</s>` itself, which is never an input, keeps the weights of its own step.
- "posterior": those of the step that writes the word, by Bayes' rule given that word (`force_posterior`).
- "auto": current with one model, as in the paper's figures; posterior with two models, one per direction.

Steps are those of the model's tokens, before pieces are merged to words.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.model import Forced, TranslationModel
from nmtalign.data.batches import Batch
from nmtalign.settings.command_settings import AlignConfig, Reading, SoftSymmetrization
from nmtalign.settings.training_settings import Order
from nmtalign.text.vocabulary import EOS_ID

# The number of steps after which the attention depends on a word, counted from the step that writes it.
STEPS_AHEAD: Mapping[Order, int] = {"look-generate-update": 1, "look-update-generate": 2}


def force(model: TranslationModel, batch: Batch, reading: Reading) -> Forced:
    """Decodes a batch on the model's device: log-probabilities (B, Ty), and weights (B, Ty, Tx) of the reading."""
    return READINGS[reading](model, batch)


def chosen(config: AlignConfig, models: int) -> AlignConfig:
    """Returns the settings with "auto" values replaced by those for one model or two.

    A threshold without a method of links means that of the links, unless a soft method of symmetrization uses it.
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
    # The last word of the longest sentence needs a step too: that of `</s>`, or one more of padding.
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
    """Returns the weights (B, Ty, Tx) of words, each `ahead` steps after its own, from those of steps.

    weights (B, Ty + ahead - 1, Tx). mask (B, Ty) is True at the words and at `</s>`, which keeps its step.
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
