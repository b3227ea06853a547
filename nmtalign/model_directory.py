"""The model directory: all files of a model, relocatable, with checksums and without pickled objects.

| file                                | content                                                                |
|-------------------------------------|------------------------------------------------------------------------|
| config.json                         | format number, version, all settings, SHA-256 of the next four entries |
| source.vocabulary.txt               | one word per line; the id is the line number - 1                       |
| target.vocabulary.txt               | the same                                                               |
| tokenizer.json                      | the settings of the tokenisers                                         |
| source.spm, target.spm              | the SentencePiece models, if the model uses them                       |
| best.safetensors                    | the weights of the best validation                                     |
| best.previous.safetensors           | the weights of the previous best validation                            |
| last.safetensors                    | the weights of the last checkpoint                                     |
| training_state.safetensors          | the last checkpoint, to resume training (nmtalign.training.state)      |
| training_state.previous.safetensors | the previous checkpoint                                                |
| train.jsonl                         | the events of the training, one per line                               |
| translations                        | translations that `nmtalign score` keeps (nmtalign.translating.keeping)|
| backward                            | the model of the other direction, if both were trained together        |
"""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nmtalign.core.devices import pick_device, picks_bf16
from nmtalign.core.model import TranslationModel
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_path, atomic_text, disk_errors, make_folder, sha256_of, sweep
from nmtalign.model_files import (
    BEST,
    CONFIG,
    FORMAT,
    FORMAT_VERSION,
    LAST,
    PREVIOUS_BEST,
    PREVIOUS_STATE,
    SOURCE_VOCABULARY,
    STATE,
    TARGET_VOCABULARY,
    Which,
    check_files,
    find_weights,
    hash_of,
    read_settings,
)
from nmtalign.settings.definition import Device, Precision, resolve
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.tensor_file import check_tensors, load_tensors, read_shapes
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.untrusted import parse_json
from nmtalign.version import __version__

if TYPE_CHECKING:
    from nmtalign.data.corpus import Corpus  # not imported at run time: translating needs no HDF5


@dataclass(frozen=True)
class LoadedModel:
    """A model with its vocabularies and tokenisers, ready to translate or to align."""

    folder: Path
    weights_file: Path
    model: TranslationModel
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    tokenizers: Tokenizers
    settings: Mapping[str, Any]
    device: torch.device

    @property
    def source_language(self) -> str:
        """The source language, such as "en"."""
        return str(self.settings["source_language"])

    @property
    def target_language(self) -> str:
        """The target language."""
        return str(self.settings["target_language"])

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the model; see `hash_of`."""
        return hash_of(self.folder, sha256_of(self.weights_file))


def create_model_directory(
    folder: Path, corpus: "Corpus", preset: str, model: ModelConfig, training: TrainingConfig
) -> None:
    """Writes all files except the weights; config.json is written last, so that a folder with it is complete.

    Removes the checkpoints of another run and incomplete files first.
    """
    make_folder(folder)
    with disk_errors(folder):
        for name in (STATE, PREVIOUS_STATE, PREVIOUS_BEST):
            (folder / name).unlink(missing_ok=True)
    sweep(folder)
    names = [SOURCE_VOCABULARY, TARGET_VOCABULARY, *corpus.tokenizers.files()]
    for name in names if corpus.folder != folder else ():
        with atomic_path(folder / name) as temporary:
            shutil.copyfile(corpus.folder / name, temporary)
    settings = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "nmtalign_version": __version__,
        "preset": preset,
        "source_language": corpus.source_language,
        "target_language": corpus.target_language,
        "model": asdict(model),
        "training": asdict(training),
        "prep": dict(corpus.settings),
        "corpus": corpus.hash,
        "files": {name: sha256_of(folder / name) for name in names},
    }
    with atomic_text(folder / CONFIG) as stream:
        stream.write(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def model_config(folder: Path, settings: Mapping[str, Any]) -> ModelConfig:
    """The model's sizes and options in config.json; raises FormatError."""
    try:
        return resolve(ModelConfig, (f"{folder / CONFIG}: model", settings["model"]))
    except UsageError as error:
        raise FormatError(str(error)) from None


def load_model(
    folder: Path, device: Device = "auto", precision: Precision = "fp32", which: Which = "best"
) -> LoadedModel:
    """Loads a model for inference in float32 or bf16; its weights are mapped into memory.

    Raises FormatError with the file name for anything missing, foreign, damaged or edited.
    """
    settings = read_settings(folder)
    check_files(folder, settings)
    config = model_config(folder, settings)
    source, target = (Vocabulary.load(folder / name) for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY))
    if (len(source), len(target)) != (config.source_vocabulary_size, config.target_vocabulary_size):
        raise FormatError(f"{folder}: the vocabularies do not have the sizes that {CONFIG} records")
    weights_file = find_weights(folder, which)
    with torch.device("meta"):
        model = TranslationModel(config)
    chosen = pick_device(device)
    assign_weights(model, weights_file, chosen)
    if picks_bf16(precision, chosen):
        model.to(torch.bfloat16)
    model.eval().requires_grad_(False)
    tokenizers = Tokenizers.load(folder)
    return LoadedModel(folder, weights_file, model, source, target, tokenizers, settings, chosen)


def assign_weights(model: TranslationModel, path: Path, device: torch.device) -> None:
    """Assigns the weights of a file to a model; on the CPU they are mapped, not copied."""
    expected = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
    try:
        fits = read_shapes(path) == expected
        tensors = load_tensors(path, str(device))[0] if fits else {}
    except FormatError as error:
        raise FormatError(f"{error}; `nmtalign info {path.parent}` reports which files are intact") from None
    if not fits:
        raise FormatError(f"{path}: does not contain the weights of the model that {CONFIG} describes")
    model.load_state_dict(tensors, assign=True)


def describe_model(folder: Path) -> dict[str, Any]:
    """The description of a model directory for `nmtalign info`; reads all files and verifies their checksums.

    For a damaged file of tensors the key "damaged" describes the damage. Any other damage raises FormatError.
    """
    settings = read_settings(folder)
    check_files(folder, settings)
    files = {path.name: _describe_tensors(path) for path in sorted(folder.glob("*.safetensors"))}
    parameters = next((files[name]["parameters"] for name in (BEST, LAST) if "parameters" in files.get(name, {})), 0)
    return {
        "kind": "model",
        "format_version": settings["format_version"],
        "nmtalign_version": settings.get("nmtalign_version"),
        "preset": settings.get("preset"),
        "languages": f"{settings['source_language']}-{settings['target_language']}",
        "parameters": parameters,
        "files": files,
        "model": settings["model"],
        "training": settings["training"],
        "prep": settings.get("prep", {}),
    }


def _describe_tensors(path: Path) -> dict[str, Any]:
    """Describes a file of weights or a checkpoint after checking all its bytes."""
    try:
        metadata = check_tensors(path)
        if "position" in metadata:
            return {**parse_json(metadata["position"]), "checksum": "matches"}
        counted = sum(math.prod(shape) for _, shape in read_shapes(path).values())
        return {"parameters": counted, "update": int(metadata.get("update", 0)), "checksum": "matches"}
    except (TypeError, ValueError):
        return {"damaged": "its metadata is invalid"}
    except FormatError as error:
        return {"damaged": str(error).removeprefix(f"{path}: ").removeprefix("damaged: ")}
