"""What it takes to go on: one safetensors file with weights, optimiser, random generators and position."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtalign.core.model import TranslationModel
from nmtalign.errors import FormatError
from nmtalign.model_directory import load_tensors, save_tensors

STATE = "training_state.safetensors"


@dataclass
class Position:
    """Where training stands."""

    update: int = 0
    epoch: int = 0  # whole epochs gone by
    batch: int = 0  # batches gone by in the present epoch
    seconds: float = 0.0
    skipped: int = 0
    bad_in_a_row: int = 0
    best: float | None = None  # the metric of the best validation, higher is better
    best_loss: float | None = None
    best_bleu: float | None = None
    since_best: int = 0
    finished: str | None = None


def save_state(
    folder: Path, model: TranslationModel, optimizer: torch.optim.Optimizer, position: Position, fingerprint: str
) -> Path:
    """Writes the state, whole or not at all; `fingerprint` says which run it belongs to."""
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    scalars: dict[str, float] = {}
    for index, slots in optimizer.state_dict()["state"].items():
        for name, value in slots.items():
            key = f"optimizer.{index}.{name}"
            if isinstance(value, Tensor):
                tensors[key] = value
            else:
                scalars[key] = value
    tensors["generator.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["generator.cuda"] = torch.cuda.get_rng_state()
    metadata = {
        "position": json.dumps(dataclasses.asdict(position)),
        "scalars": json.dumps(scalars),
        "fingerprint": fingerprint,
    }
    path = folder / STATE
    save_tensors(path, tensors, metadata)
    return path


def read_position(folder: Path) -> tuple[Position, str] | None:
    """(position, fingerprint) of the state in a folder, or None where there is none."""
    path = folder / STATE
    if not path.is_file():
        return None
    _, metadata = load_tensors(path)
    return _position(path, metadata), metadata.get("fingerprint", "")


def load_state(folder: Path, model: TranslationModel, optimizer: torch.optim.Optimizer) -> Position:
    """Puts weights, optimiser and random generators back as they were; returns the position."""
    path = folder / STATE
    tensors, metadata = load_tensors(path)
    try:
        model.load_state_dict(_part(tensors, "model."))
        slots: dict[int, dict[str, Any]] = {}
        values = {**_part(tensors, "optimizer."), **_part(json.loads(metadata["scalars"]), "optimizer.")}
        for key, value in values.items():
            index, name = key.split(".", 1)
            slots.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(tensors["generator.cpu"])
        if torch.cuda.is_available() and "generator.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["generator.cuda"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise FormatError(f"{path}: does not fit this model: {' '.join(str(error).split())[:200]}") from None
    return _position(path, metadata)


def _part(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _position(path: Path, metadata: dict[str, str]) -> Position:
    try:
        return Position(**json.loads(metadata["position"]))
    except (KeyError, TypeError, ValueError):
        raise FormatError(f"{path}: holds no training position; train anew with --restart") from None
