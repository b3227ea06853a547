"""Learning curves: loss, perplexity, dev BLEU and speed from the log of a training, over updates, epochs or time.

The log may belong to a running training and end within a line, to a resumed one, to one without a dev set, with losses
that are not finite, or to an earlier version. Values that it does not have are nan.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from nmtalign.errors import FormatError, UsageError
from nmtalign.training.events import LOG
from nmtalign.untrusted import parse_json

Axis = Literal["updates", "epochs", "hours", "words"]
AXES: tuple[Axis, ...] = get_args(Axis)
_BACKWARD = "backward"  # the folder of the other direction, whose curves are in the first one's log
_MEND = "give a model directory that `nmtalign train` has written, or its train.jsonl"


@dataclass(frozen=True)
class Point:
    """A moment of a training; `words` is about the number of target words until then, or nan if it is unknown."""

    update: int
    epoch: float
    seconds: float
    words: float

    def at(self, axis: Axis) -> float:
        """The coordinate on an axis."""
        return {"updates": self.update, "epochs": self.epoch, "hours": self.seconds / 3600, "words": self.words}[axis]


@dataclass(frozen=True)
class ProgressPoint(Point):
    """Means over the updates since the last such point; the loss is in nats per target word."""

    loss: float
    words_per_second: float  # of the target
    learning_rate: float
    loss_sentence: float = math.nan

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return _exp(self.loss)


@dataclass(frozen=True)
class Look(Point):
    """One validation."""

    loss: float
    bleu: float
    signature: str
    best: bool  # of all until then, by the metric of the training
    loss_sentence: float = math.nan

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return _exp(self.loss)


@dataclass(frozen=True)
class Curves:
    """All curves of one model, in the order of the updates."""

    path: Path
    progress: tuple[ProgressPoint, ...]
    looks: tuple[Look, ...]
    last: Point  # the last event
    ended: str  # the reason, or "" for a training that runs or was interrupted
    has_backward: bool  # the log has the curves of the other direction too
    start: Mapping[str, Any] = field(default_factory=dict)  # the last event of a start: device, parameters, versions
    ends: tuple[int, ...] = ()  # updates at which a budget was spent; several where it was made larger afterwards

    @property
    def best(self) -> Look | None:
        """The validation whose weights were kept as the best."""
        return next((look for look in reversed(self.looks) if look.best), None)

    @property
    def signature(self) -> str:
        """Of dev BLEU, or ""."""
        return next((look.signature for look in reversed(self.looks) if look.signature), "")


@dataclass(frozen=True)
class CurveTrace:
    """A line of a panel; nan where there is a gap."""

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


def read_curves(path: Path) -> Curves:
    """The curves of a model directory, of its train.jsonl, or of model/backward where both directions were trained.

    Raises FormatError naming file and line for what is no such log.
    """
    file, backward = _log_of(path)
    reader = _Reader(backward)
    try:
        for line, event in _events(file):
            try:
                reader.take(event)
            except (KeyError, TypeError, ValueError):
                raise FormatError(f"{file}: line {line}: not an event of a training; {_MEND}") from None
    except OSError as error:
        raise FormatError(f"{file}: cannot read: {error.strerror}; {_MEND}") from None
    if reader.last is None:
        raise FormatError(f"{file}: holds no event yet; {_MEND}")
    if backward and not reader.has_backward:
        raise FormatError(f"{file}: has no curves of the other direction; {_MEND}")
    return Curves(
        file,
        tuple(reader.progress),
        tuple(reader.looks),
        reader.last,
        reader.ended,
        reader.has_backward and not backward,
        reader.start,
        tuple(sorted(reader.ends)),
    )


def panels(curves: Sequence[Curves], axis: Axis = "updates") -> list[CurvePanel]:
    """Loss, perplexity, dev BLEU and speed, each over `axis`; a panel of which nothing is known is left out.

    Raises UsageError where the axis is words and a log does not say how many there were.
    """
    for each in curves:
        if axis == "words" and all(math.isnan(point.words) for point in (*each.progress, *each.looks)):
            raise UsageError(f"{each.path}: says too little to count words; give --x updates, epochs or hours")
    loss = _traces(curves, axis, lambda point: point.loss) + _dev(curves, axis, lambda look: look.loss)
    perplexity = _traces(curves, axis, lambda point: point.perplexity)
    perplexity += _dev(curves, axis, lambda look: look.perplexity)
    drawn = [
        CurvePanel("loss a word", loss),
        CurvePanel("perplexity", perplexity, log=True),
        CurvePanel("dev BLEU", _dev(curves, axis, lambda look: look.bleu)),
        CurvePanel(
            "target words a second", _traces(curves, axis, lambda point: point.words_per_second), from_zero=True
        ),
    ]
    return [panel for panel in drawn if panel.values]


def signatures(curves: Sequence[Curves], names: Sequence[str]) -> list[str]:
    """The signatures of dev BLEU: one line if they are all equal, else one line each."""
    named = [(each.signature, name) for each, name in zip(curves, names, strict=True) if each.signature]
    different = list(dict.fromkeys(signature for signature, _ in named))
    if len(different) == 1:
        return [f"dev BLEU, greedy: {different[0]}"]
    return [
        f"dev BLEU, greedy, of {', '.join(name for other, name in named if other == signature)}: {signature}"
        for signature in different
    ]


def short(value: float) -> str:
    """A number of at most about four digits, for an axis: 0.05, 12.5, 800, 2.5k, 1.5M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{name}"
    return f"{value:.4g}"


def _traces(curves: Sequence[Curves], axis: Axis, value: Callable[[ProgressPoint], float]) -> list[CurveTrace]:
    return [
        CurveTrace(model, False, [point.at(axis) for point in each.progress], [value(point) for point in each.progress])
        for model, each in enumerate(curves)
    ]


def _dev(curves: Sequence[Curves], axis: Axis, value: Callable[[Look], float]) -> list[CurveTrace]:
    traces = []
    for model, each in enumerate(curves):
        best = (each.best.at(axis), value(each.best)) if each.best else None
        xs, ys = [look.at(axis) for look in each.looks], [value(look) for look in each.looks]
        traces.append(CurveTrace(model, True, xs, ys, best if best and math.isfinite(best[1]) else None))
    return traces


def _log_of(path: Path) -> tuple[Path, bool]:
    """(the log, whether the other direction is meant)."""
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder; {_MEND}")
    if not path.is_dir():
        return path, False
    if (path / LOG).is_file():
        return path / LOG, False
    folder = path.resolve()
    if folder.name == _BACKWARD and (folder.parent / LOG).is_file():
        return path.parent / LOG if path.name == _BACKWARD else folder.parent / LOG, True
    raise FormatError(f"{path}: no {LOG} in it; {_MEND}")


def _events(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number of the line, event); a last line that was cut off is left out."""
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
                raise FormatError(f"{file}: line {number}: not an event of a training; {_MEND}")
            yield number, event


@dataclass
class _Reader:
    """Takes the events of a log in turn."""

    backward: bool
    progress: list[ProgressPoint] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    last: Point | None = None
    ended: str = ""
    has_backward: bool = False
    start: Mapping[str, Any] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)
    _pairs: float = math.nan
    _counted: tuple[float, float] = (0.0, 0.0)  # (epoch, words seen until then)
    _a_sentence: float = math.nan  # words

    def take(self, event: Mapping[str, Any]) -> None:
        """Notes one event; raises KeyError, TypeError or ValueError for what is none."""
        name, when = event["event"], (int(event["update"]), float(event["epoch"]), float(event["seconds"]))
        self.has_backward |= event.get("backward_loss") is not None
        if name == "started":
            self._start(event, *when)
        elif name == "progressed":
            self._progress(event, when)
        elif name == "validated":
            loss, bleu = ("backward_loss", "backward_bleu") if self.backward else ("loss", "bleu")
            signature = str(event.get("signature") or "")
            best = bool(event.get("best"))
            point = (*when, self._words(when[1]))
            a_sentence = math.nan if self.backward else _number(event, "loss_sentence")
            self.looks.append(Look(*point, _number(event, loss), _number(event, bleu), signature, best, a_sentence))
        self.last = Point(*when, self._words(when[1]))
        self.ended = str(event.get("reason", "")) if name == "finished" else ""
        if name == "finished" and event.get("complete"):
            self.ends.add(when[0])

    def _start(self, event: Mapping[str, Any], update: int, epoch: float, seconds: float) -> None:
        """Drops what an earlier run wrote after the checkpoint from which this one resumes."""
        self._pairs, self.start = _number(event, "pairs"), dict(event)
        self.progress = [point for point in self.progress if point.update <= update]
        self.looks = [look for look in self.looks if look.update <= update]
        self._counted = (self.progress[-1].epoch, self.progress[-1].words) if self.progress else (0.0, 0.0)

    def _progress(self, event: Mapping[str, Any], when: tuple[int, float, float]) -> None:
        """The words of an epoch are its sentences times the mean words per sentence, the ratio of the two losses."""
        loss, a_sentence = _number(event, "loss"), _number(event, "loss_sentence")
        speed, source_speed = _number(event, "target_words_per_second"), _number(event, "source_words_per_second")
        if loss > 0 and math.isfinite(a_sentence):
            self._a_sentence = a_sentence / loss * (source_speed / speed if self.backward and speed else 1)
        words = self._words(when[1])
        self._counted = (when[1], words)
        if self.backward:
            loss, speed, a_sentence = _number(event, "backward_loss"), source_speed, math.nan
        self.progress.append(ProgressPoint(*when, words, loss, speed, _number(event, "learning_rate"), a_sentence))

    def _words(self, epoch: float) -> float:
        since, words = self._counted
        return words if epoch <= since else words + (epoch - since) * self._pairs * self._a_sentence


def _number(event: Mapping[str, Any], name: str) -> float:
    """A number of an event; nan where it is missing or null, as a number that is not finite is written."""
    value = event.get(name)
    return math.nan if value is None else float(value)


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0)) if math.isfinite(loss) else math.nan
