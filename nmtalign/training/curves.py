"""Learning curves: loss, perplexity, dev BLEU and speed from the log of a training, over updates, epochs or time.

The log may be from a running training and end within a line, from a resumed one, from one without a dev set, with
losses that are not finite, or from an earlier version. Values that it does not have are nan.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import LOG, parse_json
from nmtalign.training.events import perplexity

Axis = Literal["updates", "epochs", "hours", "words"]
AXES: tuple[Axis, ...] = get_args(Axis)
_FIX = "give a model directory that `nmtalign train` has written, or its train.jsonl"


@dataclass(frozen=True)
class Point:
    """A moment of a training: a report of means over some updates, a validation, or its last event."""

    update: int
    epoch: float
    seconds: float
    words: float  # the approximate number of target words until then
    loss: float = math.nan  # in nats per target word
    loss_sentence: float = math.nan
    words_per_second: float = math.nan  # target words
    learning_rate: float = math.nan
    bleu: float = math.nan
    signature: str = ""
    best: bool = False  # the best validation so far, by the metric of the training

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return perplexity(self.loss) if math.isfinite(self.loss) else math.nan

    def at(self, axis: Axis) -> float:
        """The coordinate on an axis."""
        return {"updates": self.update, "epochs": self.epoch, "hours": self.seconds / 3600, "words": self.words}[axis]


@dataclass
class Curves:
    """All curves of one model, in the order of the updates; `take` adds an event of the log."""

    path: Path
    progress: list[Point] = field(default_factory=list)
    validations: list[Point] = field(default_factory=list)
    last: Point = Point(0, 0.0, 0.0, 0.0)  # the last event
    ended: str = ""  # the reason, or "" for a training that runs or was interrupted
    start: Mapping[str, Any] = field(default_factory=dict)  # the last event of a start: device, parameters, versions
    ends: list[int] = field(default_factory=list)  # updates at which a budget was used up; several if it was increased
    _counted: tuple[float, float] = (0.0, 0.0)  # (epoch, words until then)
    _words_per_sentence: float = math.nan

    @property
    def best(self) -> Point | None:
        """The validation whose weights were kept as the best."""
        return next((point for point in reversed(self.validations) if point.best), None)

    @property
    def signature(self) -> str:
        """The signature of dev BLEU, or ""."""
        return next((point.signature for point in reversed(self.validations) if point.signature), "")

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds one event; raises KeyError, TypeError or ValueError if it is not an event."""
        name, when = event["event"], (int(event["update"]), float(event["epoch"]), float(event["seconds"]))
        if name == "started":  # drops what an earlier run wrote after the checkpoint from which this one resumes
            self.start = dict(event)
            self.progress = [point for point in self.progress if point.update <= when[0]]
            self.validations = [point for point in self.validations if point.update <= when[0]]
            self._counted = (self.progress[-1].epoch, self.progress[-1].words) if self.progress else (0.0, 0.0)
        elif name in ("progressed", "validated"):
            loss, loss_sentence = _number(event, "loss"), _number(event, "loss_sentence")
            if name == "progressed" and loss > 0 and math.isfinite(loss_sentence):
                self._words_per_sentence = loss_sentence / loss
            point = Point(
                *when,
                self._words(when[1]),
                loss,
                loss_sentence,
                _number(event, "target_words_per_second"),
                _number(event, "learning_rate"),
                _number(event, "bleu"),
                str(event.get("signature") or ""),
                bool(event.get("best")),
            )
            if name == "progressed":
                self._counted = (point.epoch, point.words)
                self.progress.append(point)
            else:
                self.validations.append(point)
        self.last = Point(*when, self._words(when[1]))
        self.ended = str(event.get("reason", "")) if name == "finished" else ""
        self.ended += ", diverged" if event.get("diverged") else ""
        if name == "finished" and event.get("complete"):
            self.ends = sorted({*self.ends, when[0]})

    def _words(self, epoch: float) -> float:
        since, words = self._counted
        pairs = _number(self.start, "pairs")
        return words if epoch <= since else words + (epoch - since) * pairs * self._words_per_sentence


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
    drawn = [
        CurvePanel("loss per word", _traces(curves, axis, "loss", "loss")),
        CurvePanel("perplexity", _traces(curves, axis, "perplexity", "perplexity"), log=True),
        CurvePanel("dev BLEU", _traces(curves, axis, "", "bleu")),
        CurvePanel("target words per second", _traces(curves, axis, "words_per_second", ""), from_zero=True),
    ]
    return [panel for panel in drawn if panel.values]


def _traces(curves: Sequence[Curves], axis: Axis, of_training: str, of_dev: str) -> list[CurveTrace]:
    """The lines of a panel, first all of training, then all of dev; the names are those of values of a point."""
    traces = []
    for dev, name in ((False, of_training), (True, of_dev)):
        for model, each in enumerate(curves if name else ()):
            points = each.validations if dev else each.progress
            best = (each.best.at(axis), getattr(each.best, name)) if dev and each.best else None
            x, y = [point.at(axis) for point in points], [getattr(point, name) for point in points]
            traces.append(CurveTrace(model, dev, x, y, best if best and math.isfinite(best[1]) else None))
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
    curves, line = Curves(path / LOG if path.is_dir() else path), 0
    if not curves.path.is_file() and path.is_dir():
        raise FormatError(f"{path}: no {LOG} in it; {_FIX}")
    try:
        for line, event in _events(curves.path):
            try:
                curves.take(event)
            except (KeyError, TypeError, ValueError, OverflowError):
                raise FormatError(f"{curves.path}: line {line}: not an event of a training; {_FIX}") from None
    except OSError as error:
        raise FormatError(f"{curves.path}: cannot read: {error.strerror}; {_FIX}") from None
    if not line:
        raise FormatError(f"{curves.path}: has no event yet; {_FIX}")
    return curves


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


def _number(event: Mapping[str, Any], name: str) -> float:
    """A number of an event; nan if it is missing, or null, which means a number that is not finite."""
    value = event.get(name)
    return math.nan if value is None else float(value)
