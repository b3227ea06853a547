"""The events of a training, for the display and for train.jsonl."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from nmtalign.files import LOG, atomic_text, disk_errors, parse_json
from nmtalign.text.lines import finite

NO_PROGRESS = "no progress on dev"  # the beginning of the reason of a training that stopped early


@dataclass(frozen=True)
class Event:
    """Something that happened at an update."""

    recorded: ClassVar[bool] = True  # in train.jsonl; other events are for displays, and depend on the clock
    update: int
    epoch: float  # epochs completed, with the fraction of the current one
    seconds: float  # training time, over all runs of the command

    def as_dict(self) -> dict[str, Any]:
        """The event as JSON fields; "event" is its name in lower case, and a number that is not finite is null."""
        return {"event": type(self).__name__.lower(), **finite(asdict(self))}


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Started(Event):
    """Training begins, or resumes after an interruption."""

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
    budget: str = ""  # in words


@dataclass(frozen=True)
class Figures(Event):
    """Means over some updates; losses are in nats, and target words include `</s>`."""

    loss: float  # per target word
    loss_sentence: float
    perplexity: float
    source_words_per_second: float
    target_words_per_second: float
    gradient_norm: float
    learning_rate: float
    padding: float  # share of all computed positions, source and target, that were padding
    done: float  # share of the budget that is used up, 0 to 1
    seconds_left: float | None
    skipped: int  # updates left out since the start because the loss was not finite
    alignment_loss: float | None = None  # loss of the attention weights per linked target token, in guided training


@dataclass(frozen=True)
class Progressed(Figures):
    """Means over the updates since the last such event, every `log_every` updates."""


@dataclass(frozen=True)
class Underway(Figures):
    """Means over the updates since the last such event, about every second and at the end."""

    recorded: ClassVar[bool] = False


@dataclass(frozen=True)
class Working(Event):
    """Work other than updates, such as a validation, has begun or progressed."""

    recorded: ClassVar[bool] = False
    doing: str
    done: float | None = None  # share of the work, 0 to 1


@dataclass(frozen=True)
class Validated(Event):
    """Results on the dev set without dropout: the losses in the precision of the training, BLEU in fp32."""

    loss: float  # per target word
    loss_sentence: float
    perplexity: float
    bleu: float | None
    signature: str | None
    best: bool
    patience_left: int | None
    sample_source: str
    sample_translation: str
    sample_reference: str


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint was written."""

    path: str


@dataclass(frozen=True)
class Damaged(Event):
    """The newest checkpoint, or the best weights, cannot be used."""

    problem: str  # which file, what is wrong with it, and what follows


@dataclass(frozen=True)
class Noticed(Event):
    """A line for the user: training differs from its settings or is slower than it could be, advice, or a result."""

    text: str


@dataclass(frozen=True)
class Skipped(Event):
    """An update was left out because its loss or its gradient was not finite."""

    in_a_row: int


@dataclass(frozen=True)
class Finished(Event):
    """Training has ended."""

    reason: str
    complete: bool  # False after an interruption: the same command resumes
    best_loss: float | None
    best_bleu: float | None
    diverged: bool = False  # the loss is far above that of guessing, or far above its lowest value


def perplexity(loss: float) -> float:
    """exp of a loss per word, limited where it would overflow."""
    return math.exp(min(loss, 700.0))


class EventLog:
    """Appends events to train.jsonl; first it removes events after the checkpoint of an interrupted run."""

    def __init__(self, folder: Path, update: int, validation_due: bool = False) -> None:
        """`update` is that of the checkpoint; `validation_due` tells that its validation is made again."""
        self._path = folder / LOG
        lines = self._path.read_bytes().split(b"\n") if update and self._path.is_file() else []
        with atomic_text(self._path, follow=False) as stream:
            stream.writelines(f"{line.decode()}\n" for line in lines if _is_before(line, update, validation_due))

    def write(self, event: Event) -> None:
        """Appends one event as a complete line."""
        # A file name may have any bytes.
        with disk_errors(self._path), self._path.open("a", encoding="utf-8", errors="replace", newline="\n") as stream:
            stream.write(json.dumps(event.as_dict(), ensure_ascii=False) + "\n")


def _is_before(line: bytes, update: int, validation_due: bool) -> bool:
    """Whether a line of the log was written before the checkpoint of this update; False for a line that was cut off."""
    try:
        event = parse_json(line.decode())
        again = validation_due and event["event"] == "validated"
        return bool(event["update"] < update + (not again))
    except (ValueError, KeyError, TypeError):
        return False
