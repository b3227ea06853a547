"""How `nmtalign link` trains: settings and passes by the size of the corpus, and how a time limit is divided."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmtalign.settings.alignment_settings import LinkConfig
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.presets import preset, settings_of
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

PRESET = "small"
# (pairs, subwords per side, units of a layer): the sizes for a corpus of fewer pairs. A small text does not teach a
# model rare pieces, and a small model learns faster. The last sizes are those measured in tests/bench/README.md.
_SIZES = ((2_000, 1_000, 128), (10_000, 2_000, 128), (30_000, 4_000, 128), (math.inf, 8_000, 256))
_ALIGNING = 0.5  # the time of aligning all pairs, as a share of the time of a training pass over them


def prep_settings(pairs: int) -> PrepConfig:
    """Returns how the texts are prepared."""
    pieces = next(pieces for most, pieces, _ in _SIZES if pairs < most)
    return PrepConfig(vocabulary="bpe", size=str(pieces), max_length=100)


def passes(words: int, quick: bool = False) -> list[float]:
    """Returns the passes over a corpus of `words` target words in each round.

    A small corpus is seen often and a large one rarely, so that the time grows with the square root of the corpus. With
    4.5 million words there are 3 passes, and 1 in the second round.
    """
    first = 6400 / math.sqrt(max(words, 1000))
    return [first / 2] if quick else [first, first / 3]


def link_settings(
    config: LinkConfig, pairs: int, words: int, epochs: float, **more: Any
) -> tuple[ModelConfig, TrainingConfig]:
    """Returns the settings of the models, and of one round of their training with `epochs` passes.

    The corpus has `words` target words; `more` are further settings.
    """
    units = next(units for most, _, units in _SIZES if pairs < most)
    values = {
        **dict.fromkeys(("embedding", "hidden", "attention_hidden", "maxout"), units),
        "order": "look-generate-update",
        "dropout": 0.1,
        "agreement": True,
        "batch_size": min(1000, max(500, round(words * epochs / 5000))),
        "epochs": epochs,
        "max_length": 0,
        "checkpoint_every": "2m",
        "validate_every": "2m",  # without a dev set, this only saves the weights
        **{name: getattr(config, name) for name in ("seed", "device", "threads")},
        **more,
    }
    layers = ("preset", preset(PRESET)), ("link", values)
    return settings_of(ModelConfig, *layers), settings_of(TrainingConfig, *layers)


@dataclass
class LinkPlan:
    """The passes of each round, and the seconds of a pass and of aligning all pairs, as far as they are known.

    Step 1 prepares the texts; then each round has a step that trains and a step that aligns.
    """

    rounds: Sequence[float]
    budget: float | None = None  # seconds of all steps together
    epoch: float | None = None
    aligning: float | None = None

    def limit(self, step: int, spent: float) -> float | None:
        """Returns the seconds that the training of a step may take after `spent` seconds; None without a limit.

        Even where aligning needs most of the time, round 1 trains for a quarter of it.
        """
        if self.budget is None or self.epoch is None:
            return None
        later = self.rounds[step // 2 - 1 :]
        left = self.budget - spent - len(later) * self._aligning(self.epoch)
        return max(1.0, left * later[0] / sum(later), self.budget / 4 * later[0] / self.rounds[0])

    def shortened(self, spent: float) -> "LinkPlan":
        """Returns a plan of one round if aligning twice would take more time than is left for the training."""
        if self.budget is not None and self.epoch is not None and len(self.rounds) > 1:
            aligning = self._aligning(self.epoch)
            if self.budget - spent - len(self.rounds) * aligning < aligning:
                return LinkPlan(self.rounds[:1], self.budget, self.epoch, self.aligning)
        return self

    def later(self, step: int) -> float | None:
        """Returns the seconds of the steps after this one without a limit; None if they are not known."""
        if self.epoch is None:
            return None
        steps = [time for part in self.rounds for time in (part * self.epoch, self._aligning(self.epoch))]
        return sum(steps[step - 1 :])

    def _aligning(self, epoch: float) -> float:
        return _ALIGNING * epoch if self.aligning is None else self.aligning
