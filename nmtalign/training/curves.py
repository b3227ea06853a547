"""Learning curves: loss, perplexity, dev BLEU and speed from the log of a training, over updates, epochs or time.

The log may be from a running training and end within a line, from a resumed one, from one without a dev set, with
losses that are not finite, or from an earlier version. Values that it does not have are nan.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from nmtalign.errors import FormatError, UsageError
from nmtalign.model_files import LOG
from nmtalign.training.events import perplexity
from nmtalign.untrusted import parse_json

Axis = Literal["updates", "epochs", "hours", "words"]
AXES: tuple[Axis, ...] = get_args(Axis)
_FIX = "give a model directory that `nmtalign train` has written, or its train.jsonl"


@dataclass(frozen=True)
class Point:
    """A moment of a training; `words` is the approximate number of target words until then, nan if unknown."""

    update: int
    epoch: float
    seconds: float
    words: float

    def at(self, axis: Axis) -> float:
        """The coordinate on an axis."""
        return {"updates": self.update, "epochs": self.epoch, "hours": self.seconds / 3600, "words": self.words}[axis]


@dataclass(frozen=True)
class _LossPoint(Point):
    loss: float  # in nats per target word
    loss_sentence: float

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return perplexity(self.loss) if math.isfinite(self.loss) else math.nan


@dataclass(frozen=True)
class ProgressPoint(_LossPoint):
    """Means over the updates since the last such point."""

    words_per_second: float  # target words
    learning_rate: float


@dataclass(frozen=True)
class ValidationPoint(_LossPoint):
    """One validation."""

    bleu: float
    signature: str
    best: bool  # the best so far, by the metric of the training


@dataclass(frozen=True)
class Curves:
    """All curves of one model, in the order of the updates."""

    path: Path
    progress: Sequence[ProgressPoint]
    validations: Sequence[ValidationPoint]
    last: Point  # the last event
    ended: str  # the reason, or "" for a training that runs or was interrupted
    start: Mapping[str, Any]  # the last event of a start: device, parameters, versions
    ends: Sequence[int]  # updates at which a budget was used up; several if the budget was increased afterwards

    @property
    def best(self) -> ValidationPoint | None:
        """The validation whose weights were kept as the best."""
        return next((point for point in reversed(self.validations) if point.best), None)

    @property
    def signature(self) -> str:
        """The signature of dev BLEU, or ""."""
        return next((point.signature for point in reversed(self.validations) if point.signature), "")


@dataclass(frozen=True)
class CurveTrace:
    """A line of a panel; nan is a gap."""

    model: int
    dev: bool
    x: Sequence[float]
    y: Sequence[float]
    best: tuple[float, float] | None = None  # the validation whose weights were kept


@dataclass(frozen=True)
class CurvePanel:
    """The content of one pair of axes."""

    title: str
    traces: Sequence[CurveTrace]
    log: bool = False  # a logarithmic scale
    from_zero: bool = False

    @property
    def values(self) -> list[float]:
        """All finite values of all traces."""
        return [y for trace in self.traces for y in trace.y if math.isfinite(y)]


def panels(curves: Sequence[Curves], axis: Axis = "updates") -> list[CurvePanel]:
    """Loss, perplexity, dev BLEU and speed, each over `axis`; a panel without values is left out.

    Raises UsageError if the axis is words and a log does not contain their number.
    """
    for each in curves:
        if axis == "words" and all(math.isnan(point.words) for point in (*each.progress, *each.validations)):
            raise UsageError(f"{each.path}: has too little to count words; give --x updates, epochs or hours")
    loss = _trained(curves, axis, lambda point: point.loss) + _dev(curves, axis, lambda point: point.loss)
    perplexity = _trained(curves, axis, lambda point: point.perplexity)
    perplexity += _dev(curves, axis, lambda point: point.perplexity)
    speed = _trained(curves, axis, lambda point: point.words_per_second)
    drawn = [
        CurvePanel("loss per word", loss),
        CurvePanel("perplexity", perplexity, log=True),
        CurvePanel("dev BLEU", _dev(curves, axis, lambda point: point.bleu)),
        CurvePanel("target words per second", speed, from_zero=True),
    ]
    return [panel for panel in drawn if panel.values]


def _trained(curves: Sequence[Curves], axis: Axis, value: Callable[[ProgressPoint], float]) -> list[CurveTrace]:
    return [
        CurveTrace(model, False, [point.at(axis) for point in each.progress], [value(point) for point in each.progress])
        for model, each in enumerate(curves)
    ]


def _dev(curves: Sequence[Curves], axis: Axis, value: Callable[[ValidationPoint], float]) -> list[CurveTrace]:
    traces = []
    for model, each in enumerate(curves):
        best = (each.best.at(axis), value(each.best)) if each.best else None
        points = each.validations
        xs, ys = [point.at(axis) for point in points], [value(point) for point in points]
        traces.append(CurveTrace(model, True, xs, ys, best if best and math.isfinite(best[1]) else None))
    return traces


def signatures(curves: Sequence[Curves], names: Sequence[str]) -> list[str]:
    """The signatures of dev BLEU: one line if they are all equal, else one line each."""
    models: dict[str, list[str]] = {}
    for each, name in zip(curves, names, strict=True):
        if each.signature:
            models.setdefault(each.signature, []).append(name)
    if len(models) == 1:
        return [f"dev BLEU, greedy: {next(iter(models))}"]
    return [f"dev BLEU, greedy, of {', '.join(named)}: {signature}" for signature, named in models.items()]


def short(value: float) -> str:
    """A number with at most about four digits, for an axis: 0.05, 12.5, 800, 2.5k, 1.5M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{name}"
    return f"{value:.4g}"


def read_curves(path: Path) -> Curves:
    """The curves of a model directory, or of its train.jsonl.

    Raises FormatError with the file and the line if it is not such a log.
    """
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder; {_FIX}")
    file = path / LOG if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise FormatError(f"{path}: no {LOG} in it; {_FIX}")
    reader = _Reader()
    try:
        for line, event in _events(file):
            try:
                reader.take(event)
            except (KeyError, TypeError, ValueError, OverflowError):
                raise FormatError(f"{file}: line {line}: not an event of a training; {_FIX}") from None
    except OSError as error:
        raise FormatError(f"{file}: cannot read: {error.strerror}; {_FIX}") from None
    if reader.last is None:
        raise FormatError(f"{file}: has no event yet; {_FIX}")
    return Curves(
        file,
        reader.progress,
        reader.validations,
        reader.last,
        reader.ended,
        reader.start,
        sorted(reader.ends),
    )


def _events(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, event); an incomplete last line is left out."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                event = parse_json(line.decode())
            except ValueError:
                if number > 1 and not line.endswith(b"\n"):
                    return
                event = None
            if not isinstance(event, dict):
                raise FormatError(f"{file}: line {number}: not an event of a training; {_FIX}")
            yield number, event


@dataclass
class _Reader:
    """Takes the events of a log in order."""

    progress: list[ProgressPoint] = field(default_factory=list)
    validations: list[ValidationPoint] = field(default_factory=list)
    last: Point | None = None
    ended: str = ""
    start: Mapping[str, Any] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)
    _pairs: float = math.nan
    _counted: tuple[float, float] = (0.0, 0.0)  # (epoch, words until then)
    _words_per_sentence: float = math.nan

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds one event; raises KeyError, TypeError or ValueError if it is not an event."""
        name, when = event["event"], (int(event["update"]), float(event["epoch"]), float(event["seconds"]))
        if name == "started":
            self._start(event, when[0])
        elif name == "progressed":
            self._progress(event, when)
        elif name == "validated":
            self.validations.append(
                ValidationPoint(
                    *when,
                    words=self._words(when[1]),
                    loss=_number(event, "loss"),
                    loss_sentence=_number(event, "loss_sentence"),
                    bleu=_number(event, "bleu"),
                    signature=str(event.get("signature") or ""),
                    best=bool(event.get("best")),
                )
            )
        self.last = Point(*when, self._words(when[1]))
        self.ended = str(event.get("reason", "")) if name == "finished" else ""
        self.ended += ", diverged" if event.get("diverged") else ""
        if name == "finished" and event.get("complete"):
            self.ends.add(when[0])

    def _start(self, event: Mapping[str, Any], update: int) -> None:
        """Drops what an earlier run wrote after the checkpoint from which this one resumes."""
        self._pairs, self.start = _number(event, "pairs"), dict(event)
        self.progress = [point for point in self.progress if point.update <= update]
        self.validations = [point for point in self.validations if point.update <= update]
        self._counted = (self.progress[-1].epoch, self.progress[-1].words) if self.progress else (0.0, 0.0)

    def _progress(self, event: Mapping[str, Any], when: tuple[int, float, float]) -> None:
        """Adds a point. Words per sentence are the ratio of the two losses."""
        loss, loss_sentence = _number(event, "loss"), _number(event, "loss_sentence")
        speed, rate = _number(event, "target_words_per_second"), _number(event, "learning_rate")
        if loss > 0 and math.isfinite(loss_sentence):
            self._words_per_sentence = loss_sentence / loss
        words = self._words(when[1])
        self._counted = (when[1], words)
        self.progress.append(ProgressPoint(*when, words, loss, loss_sentence, speed, rate))

    def _words(self, epoch: float) -> float:
        since, words = self._counted
        return words if epoch <= since else words + (epoch - since) * self._pairs * self._words_per_sentence


def _number(event: Mapping[str, Any], name: str) -> float:
    """A number of an event; nan if it is missing, or null, which means a number that is not finite."""
    value = event.get(name)
    return math.nan if value is None else float(value)
