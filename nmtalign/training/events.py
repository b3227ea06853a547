"""What training says: one small dataclass an event, for the display and for train.jsonl alike."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happened at an update."""

    update: int
    epoch: float  # epochs gone by, with the fraction of the present one
    seconds: float  # of training, over all resumptions

    def as_dict(self) -> Mapping[str, Any]:
        """The event as JSON fields; "event" is its name in lower case, and null a number that is not finite."""
        fields = {name: None if _is_no_number(value) else value for name, value in asdict(self).items()}
        return {"event": type(self).__name__.lower(), **fields}


@dataclass(frozen=True)
class Started(Event):
    """Training begins, or goes on after an interruption."""

    resumed: bool
    parameters: int
    pairs: int
    left_out: int  # pairs longer than max_length
    device: str
    precision: str
    threads: int
    version: str
    torch: str
    seed: int
    processes: int = 1


@dataclass(frozen=True)
class Progressed(Event):
    """Means over the updates since the last such event; words are target words with `</s>`, in nats."""

    loss: float  # a word
    loss_sentence: float
    perplexity: float
    source_words_per_second: float
    target_words_per_second: float
    gradient_norm: float
    learning_rate: float
    padding: float  # share of all computed positions, source and target, that were padding
    done: float  # share of the budget, 0 to 1
    seconds_left: float | None
    skipped: int  # updates left out since the start because the loss was not finite
    alignment_loss: float | None = None  # of the weights a linked target token, where training is guided
    backward_loss: float | None = None  # of the other direction, where both are trained; a word of the source
    disagreement: float | None = None  # of both directions' weights, a sentence


@dataclass(frozen=True)
class Validated(Event):
    """The dev set, seen without dropout and in the training's own precision."""

    loss: float  # a word
    loss_sentence: float
    perplexity: float
    bleu: float | None
    signature: str | None
    best: bool
    patience_left: int | None
    sample_source: str
    sample_translation: str
    sample_reference: str
    backward_loss: float | None = None  # of the other direction, where both are trained; a word of the source
    backward_bleu: float | None = None


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint has been written."""

    path: str


@dataclass(frozen=True)
class Damaged(Event):
    """The newest checkpoint cannot be used, and training goes on from the one before it."""

    problem: str  # which file, and what is wrong with it


@dataclass(frozen=True)
class Noticed(Event):
    """Something goes on otherwise than it could."""

    text: str


@dataclass(frozen=True)
class Skipped(Event):
    """An update was left out because its loss, or the gradient of it, was not finite."""

    in_a_row: int


@dataclass(frozen=True)
class Finished(Event):
    """Training has come to its end."""

    reason: str
    complete: bool  # False after an interruption: the same command goes on
    best_loss: float | None
    best_bleu: float | None


def _is_no_number(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


Listener = Callable[[Event], None]
