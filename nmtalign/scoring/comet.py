"""COMET, a learned metric, where its package is installed and its model is on disk: nothing is ever downloaded.

A checkpoint of COMET is a pickle, which may run code when it is read, and the loader that COMET uses may import what a
checkpoint names. So the file is read here, by PyTorch's reader of weights and plain values, which refuses anything else
(told explicitly: no environment variable changes that); COMET's own classes are then filled with what was read.
"""

import contextlib
import importlib
import importlib.metadata
import inspect
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmtalign.config import Device
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import sha256_of
from nmtalign.scoring.metrics import Statistics

COMET = "COMET"
_CHECKPOINT = Path("checkpoints") / "model.ckpt"  # in a model's folder, as COMET lays it out
_PARTS = ("hyper_parameters", "state_dict")  # of a checkpoint
_BATCH = 16  # sentences, COMET's own
_HASH_DIGITS = 12
# What a model has beside its weights: figures of its training, and positions that newer versions compute.
_NOT_WEIGHTS = ("train_metrics.", "val_metrics.", "train_corr", "dev_corr")
# Nothing of its training is needed, and nothing may be downloaded.
_FIXED = {"load_pretrained_weights": False, "local_files_only": True, "train_data": [], "validation_data": []}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

Sample = tuple[str, str, str]  # source, hypothesis, reference


class _Value(NamedTuple):
    score: float
    name: str = COMET


class MeanOfSentences:
    """Makes a score of summed rows [sentence scores, sentences], as sacreBLEU's metrics do of theirs."""

    def _compute_score_from_stats(self, stats: Sequence[float]) -> _Value:
        return _Value(100 * stats[0] / stats[1] if stats[1] else 0.0)


@dataclass(frozen=True)
class _Loaded:
    model: Any  # COMET's
    device: Any
    signature: str  # all of it after the number of references

    @property
    def compares(self) -> bool:
        """Whether the model reads references; some of COMET's can do without and are better with them."""
        segments = getattr(self.model.hparams, "input_segments", ())
        return bool(self.model.requires_references()) or "ref" in segments


def comet_statistics(
    path: Path,
    source: Sequence[str] | None,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    device: Device = "auto",
    advance: Callable[[int], None] | None = None,
) -> list[Statistics]:
    """For each system its COMET, 100 times the mean of its sentences' scores; of several references the mean of each.

    `path` is a checkpoint (.ckpt) or the folder of a model. A model without references (a quality estimator) leaves
    them out, as its signature says. `advance` is called with the number of sentences scored since, `comet_steps` of
    them in all at most (equal ones are scored once). Rows are (N, 2): score, 1.

    Raises UsageError where COMET is not installed or the source is missing, FormatError where the path holds no model,
    one that needs code of its own, or one whose tokeniser is not on disk.
    """
    if source is None:
        raise UsageError("COMET compares with the source, too: give it with -s")
    if not references or any(len(lines) != len(source) for lines in (*systems, *references)):
        raise InputError("COMET: source, translations and references must have one line for each other's")
    loaded = _load(path, device)
    against = list(references) if loaded.compares else [[""] * len(source)]
    samples = [[list(zip(source, lines, held, strict=True)) for held in against] for lines in systems]
    scores = _score(loaded, dict.fromkeys(one for system in samples for held in system for one in held), advance)
    _check_numbers(path, scores)
    signature = f"{COMET}|nrefs:{len(references) if loaded.compares else 0}|{loaded.signature}"
    return [_statistics(system, scores, signature) for system in samples]


def comet_scores(
    path: Path, source: Sequence[str] | None, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Statistics:
    """COMET of one system; else as `comet_statistics`."""
    return comet_statistics(path, source, [hypotheses], references)[0]


def check_comet(path: Path) -> None:
    """Raises what `comet_statistics` would, as far as it can be told without making the model: before long work."""
    file = _checkpoint_file(path)
    with _quiet():
        _import_comet()
        _read(file)


def comet_steps(systems: int, references: int, sentences: int) -> int:
    """What `comet_statistics` tells `advance` at most in all."""
    return systems * references * sentences


def _statistics(system: Sequence[Sequence[Sample]], scores: Mapping[Sample, float], signature: str) -> Statistics:
    held = np.array([[scores[sample] for sample in samples] for samples in system], dtype=np.float64)
    rows: NDArray[np.float64] = np.stack([held.mean(axis=0), np.ones(held.shape[1])], axis=1)
    return Statistics(COMET, signature, rows, MeanOfSentences())


def _score(
    loaded: _Loaded, samples: Mapping[Sample, None], advance: Callable[[int], None] | None
) -> dict[Sample, float]:
    """The score of each different sample; those of like length go together, so that little is padding."""
    import torch

    ordered = sorted(samples, key=lambda sample: (sum(map(len, sample)), sample))
    keys = ("src", "mt", "ref") if loaded.compares else ("src", "mt")
    scores: dict[Sample, float] = {}
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inputs = loaded.model.prepare_sample(
                [dict(zip(keys, sample, strict=False)) for sample in batch], stage="predict"
            )
            found = loaded.model.predict_step(_moved(inputs, loaded.device))["scores"]
        scores.update(zip(batch, found.view(-1).tolist(), strict=True))
        if advance:
            advance(len(batch))
    return scores


def _check_numbers(path: Path, scores: Mapping[Sample, float]) -> None:
    """One score that is not a number would make every mean one."""
    for (_, hypothesis, _), score in scores.items():
        if not math.isfinite(score):
            raise FormatError(f"{path}: its score of a sentence is {score} (hypothesis {hypothesis[:40]!r})")


def _moved(inputs: Any, device: Any) -> Any:
    """Tensors in dictionaries and lists, on the device."""
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, list | tuple):
        return type(inputs)(_moved(value, device) for value in inputs)
    return inputs.to(device) if hasattr(inputs, "to") else inputs


def _load(path: Path, device: Device) -> _Loaded:
    file = _checkpoint_file(path)
    with _quiet():
        classes, version = _import_comet()
        from nmtalign.core.devices import pick_device

        place = pick_device(device)
        checkpoint = _read(file)
        model = _build(file, classes, checkpoint["hyper_parameters"], checkpoint["state_dict"]).to(place).eval()
    name = (path.name if path.is_dir() else file.stem).replace("|", "_")
    digits = sha256_of(file)[:_HASH_DIGITS]
    return _Loaded(model, place, f"model:{name}|sha256:{digits}|scale:100|version:{version}")


def _checkpoint_file(path: Path) -> Path:
    file = path / _CHECKPOINT if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        found = sorted(path.glob("*.ckpt"))
        file = found[0] if len(found) == 1 else file
    if not file.is_file():
        missing = f"no {_CHECKPOINT} in it" if path.is_dir() else "no such file"
        raise FormatError(f"{path}: no COMET model here ({missing}); give the folder or the .ckpt of one on disk")
    return file


def _import_comet() -> tuple[Mapping[str, Any], str]:
    """COMET's classes by their names in checkpoints, and its version."""
    try:
        module = importlib.import_module("comet.models")
        return module.str2model, importlib.metadata.version("unbabel-comet")
    except importlib.metadata.PackageNotFoundError:
        return module.str2model, "unknown"
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "comet":
            raise UsageError('COMET is not installed: pip install "nmtalign[comet]"') from None
        raise UsageError(f'COMET needs {error.name}: pip install "nmtalign[comet]"') from None
    except (ImportError, AttributeError) as error:
        raise UsageError(f'COMET cannot be imported ({_line(error)}): pip install "nmtalign[comet]"') from None


def _read(file: Path) -> dict[str, Any]:
    """The checkpoint's weights and settings; FormatError where there is more in it, or less."""
    import torch

    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever a damaged file leads to
        if type(error).__name__ == "UnpicklingError":
            raise FormatError(
                f"{file}: refused: not a checkpoint of weights and plain settings alone (reading more could run code)"
            ) from None
        raise FormatError(f"{file}: not a COMET checkpoint ({_line(error)})") from None
    parts = [checkpoint.get(name) if isinstance(checkpoint, dict) else None for name in _PARTS]
    if not all(isinstance(part, dict) and part for part in parts):
        raise FormatError(f"{file}: not a COMET checkpoint (it lacks {' or '.join(_PARTS)})")
    return dict(zip(_PARTS, parts, strict=True))


def _build(file: Path, classes: Mapping[str, Any], settings: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
    """The model of a checkpoint's settings with its weights; its encoder's tokeniser comes from the disk."""
    kind = settings.get("class_identifier")
    if not isinstance(kind, str) or kind not in classes:
        raise FormatError(f"{file}: not a model that COMET knows (class_identifier {kind!r})")
    accepted = inspect.signature(classes[kind].__init__).parameters
    chosen = {name: value for name, value in settings.items() if name in accepted}
    for name, value in _FIXED.items():
        if name in accepted:
            chosen[name] = value
    if chosen.get("layer_transformation") == "sparsemax_patch":  # COMET 2.2.4 and later read it so
        chosen["layer_transformation"] = "softmax"
    try:
        model = classes[kind](**chosen)
    except OSError:
        encoder = settings.get("pretrained_model")
        raise FormatError(
            f"{file}: its encoder's settings and tokeniser ({encoder}) are not on this machine, and nothing is "
            "downloaded; put them into the Hugging Face cache"
        ) from None
    except Exception as error:  # settings of another version, or of none
        raise FormatError(f"{file}: its settings make no model ({_line(error)})") from None
    _fill(file, model, weights)
    return model


def _fill(file: Path, model: Any, weights: Mapping[str, Any]) -> None:
    try:
        missing, _ = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise FormatError(f"{file}: its weights do not fit its settings ({_line(error)})") from None
    lacking = [name for name in missing if not name.startswith(_NOT_WEIGHTS)]
    if lacking:
        raise FormatError(f"{file}: damaged: it lacks {lacking[0]} and {len(lacking) - 1} more")


def _line(error: Exception) -> str:
    """The first line of a message that may have many."""
    return str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Offline, and without what COMET's imports log and warn of; they set up logging for the whole program."""
    root, before = logging.getLogger(), {name: os.environ.get(name) for name in _OFFLINE}
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    os.environ.update(_OFFLINE)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.disable(disabled)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
