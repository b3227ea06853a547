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
| training_state.safetensors          | the last checkpoint, to resume training (nmtalign.training.checkpoints)      |
| training_state.previous.safetensors | the previous checkpoint                                                |
| train.jsonl                         | the events of the training, one per line                               |
| translations                        | translations that `nmtalign score` keeps (nmtalign.translating.keeping)|

`export_model` copies a model without the files of its training; config.json of the copy has the key `exported`.
"""

import filecmp
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nmtalign.core.devices import inference_precision, pick_device
from nmtalign.core.inference import in_dtype
from nmtalign.core.int8 import in_int8
from nmtalign.core.model import TranslationModel
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_path, atomic_text, disk_errors, make_folder, sha256_of, sweep
from nmtalign.model_files import (
    AVERAGED,
    BEST,
    CALIBRATION,
    CONFIG,
    LOG,
    PREVIOUS_BEST,
    PREVIOUS_STATE,
    SOURCE_VOCABULARY,
    STATE,
    TARGET_VOCABULARY,
    Which,
    check_files,
    find_weights,
    hash_of,
    model_config,
    read_settings,
)
from nmtalign.settings.command_settings import StoredWeights
from nmtalign.settings.definition import Device, InferencePrecision, select
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.tensor_file import (
    FORMAT,
    FORMAT_VERSION,
    int8_rows,
    load_tensors,
    read_metadata,
    save_tensors,
)
from nmtalign.text.direction import TextFit
from nmtalign.text.tokenizer import MODEL_FILES, Tokenizers
from nmtalign.text.vocabulary import Vocabulary, load_vocabularies, pair_ids
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
    calibration: str = ""  # of the confidence in its translations (nmtalign.translating.confidence)

    @property
    def source_language(self) -> str:
        """The source language, such as "en"."""
        return str(self.settings["source_language"])

    @property
    def target_language(self) -> str:
        """The target language."""
        return str(self.settings["target_language"])

    def ids(self, source: Sequence[str], target: Sequence[str] = ()) -> tuple[list[int], list[int], list[int]]:
        """The ids of the tokens of a pair, as the model reads them (see `pair_ids`)."""
        return pair_ids((self.source_vocabulary, self.target_vocabulary), source, target, self.model.config.copy)

    def text_fit(self, side: int = 0, tokenized: bool = False) -> TextFit:
        """Compares a text that should be in the source language (side 0) or the target language with both."""
        return TextFit(self.tokenizers, (self.source_vocabulary, self.target_vocabulary), side, tokenized)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the model; see `hash_of`."""
        return hash_of(self.folder, sha256_of(self.weights_file))


def create_model_directory(
    folder: Path,
    corpus: "Corpus",
    preset: str,
    model: ModelConfig,
    training: TrainingConfig,
    given: Mapping[str, str] | None = None,
) -> None:
    """Writes all files except the weights; config.json is written last, so that a folder with it is complete.

    `given` are the hashes of the files with which the training begins, by setting. Removes the checkpoints of another
    run and incomplete files first.
    """
    make_folder(folder)
    with disk_errors(folder):
        for name in (STATE, PREVIOUS_STATE, PREVIOUS_BEST):
            (folder / name).unlink(missing_ok=True)
    sweep(folder)
    names = [SOURCE_VOCABULARY, TARGET_VOCABULARY, *corpus.tokenizers.files()]
    hashes = json.loads(corpus.attributes["sha256"]) if corpus.folder != folder else {}
    for name in names if corpus.folder != folder else ():
        with atomic_path(folder / name, follow=False) as temporary:
            shutil.copyfile(corpus.folder / name, temporary)
            if name in hashes and sha256_of(temporary) != hashes[name]:
                raise FormatError(f"{corpus.folder / name}: was replaced just now; repeat the command")
    for name in {*MODEL_FILES} - {*names}:  # of the tokeniser of an earlier corpus
        (folder / name).unlink(missing_ok=True)
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
        "given": dict(given or {}),
        "files": {name: hashes.get(name) or sha256_of(folder / name) for name in names},
    }
    _write_settings(folder, settings)


def _write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    with atomic_text(folder / CONFIG, follow=False) as stream:
        stream.write(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def load_model(
    folder: Path, device: Device = "auto", precision: InferencePrecision = "fp32", which: Which = "best"
) -> LoadedModel:
    """Loads a model for inference; its weights are mapped into memory.

    Raises FormatError with the file name for anything missing, foreign, damaged or edited, and ResourceError for a
    device or a precision that the machine does not have.
    """
    settings = read_settings(folder)
    check_files(folder, settings)
    config = model_config(folder, settings)
    source, target = load_vocabularies(folder, config)
    weights_file = find_weights(folder, which)
    with torch.device("meta"):
        model = TranslationModel(config)
    chosen = pick_device(device)
    products = inference_precision(precision, chosen)
    metadata = assign_weights(model, weights_file, chosen)
    if products == "bf16":
        model = in_dtype(model, torch.bfloat16)
    model.eval().requires_grad_(False)
    if products == "int8":
        model = in_int8(model)
    tokenizers = Tokenizers.load(folder)
    calibration = metadata.get(CALIBRATION, "")
    return LoadedModel(folder, weights_file, model, source, target, tokenizers, settings, chosen, calibration)


def assign_weights(model: TranslationModel, path: Path, device: torch.device) -> dict[str, str]:
    """Assigns the weights of a file to a model; on the CPU they are mapped, not copied. Returns the file's metadata."""
    try:
        tensors, metadata = load_tensors(path)
    except FormatError as error:
        raise FormatError(f"{error}; `nmtalign info {path.parent}` reports which files are intact") from None
    sizes, expected = ({name: (x.dtype, x.shape) for name, x in part.items()} for part in (tensors, model.state_dict()))
    if sizes != expected:
        raise FormatError(f"{path}: does not contain the weights of the model that {CONFIG} describes")
    model.load_state_dict({name: tensor.to(device) for name, tensor in tensors.items()}, assign=True)
    return metadata


def export_model(
    model: Path, folder: Path, weights: StoredWeights = "fp32", force: bool = False, average: Sequence[Path] = ()
) -> None:
    """Writes a copy of a model without the files of its training; `folder` appears only when it is complete.

    The copy has the best weights: exactly, or with `weights` = int8 in eight bits (`nmtalign.tensor_file.int8_rows`).
    With `average` it has the mean of these weights and of those of other model directories or files of weights.
    The other files are copied, too, except hidden files, train.jsonl, HDF5 files, and symbolic links that config.json
    does not name.
    An earlier export in `folder` is replaced with `force`; any other folder with files is never replaced. Raises
    UsageError for such a folder, FormatError for a damaged model.
    """
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise UsageError(f"{folder}: is a file; give the name of a folder with -o")
    make_folder(target.parent)
    with disk_errors(folder), tempfile.TemporaryDirectory(".partial", f".{target.name}.", target.parent) as work:
        new = Path(work) / "new"
        _export(model, new, weights, average)
        if not target.exists() or _may_replace(folder, new, force):
            if target.exists():
                target.replace(Path(work) / "old")
            new.replace(target)


def _export(model: Path, folder: Path, weights: StoredWeights, average: Sequence[Path]) -> None:
    loaded = load_model(model, device="cpu")
    tensors, metadata = loaded.model.state_dict(), read_metadata(loaded.weights_file)
    metadata.pop("weights", None)
    if average:  # its confidence is not calibrated
        tensors, metadata = _mean_of(loaded, average), {AVERAGED: str(1 + len(average))}
    if weights == "int8":
        try:
            tensors, metadata["weights"] = int8_rows(tensors), weights
        except ValueError as error:
            raise FormatError(f"{loaded.weights_file}: {error}; export it with fp32 weights") from None
    make_folder(folder)
    save_tensors(folder / BEST, tensors, metadata)
    named = loaded.settings["files"]
    for path in sorted(model.iterdir()):
        if not _is_of_training(path) and (path.name in named or (path.is_file() and not path.is_symlink())):
            with atomic_path(folder / path.name, follow=False) as temporary:
                shutil.copyfile(path, temporary)
    _write_settings(folder, {**loaded.settings, "exported": weights})


def _mean_of(loaded: LoadedModel, others: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights, summed in float64 and rounded once; raises UsageError for weights of another model."""
    own = loaded.model.state_dict()
    total = {name: tensor.double() for name, tensor in own.items()}
    for path in others:
        if path.is_dir():
            other = load_model(path, device="cpu")
            tensors, fits = other.model.state_dict(), _identity(other) == _identity(loaded)
        else:
            tensors, _ = load_tensors(path)
            fits = {name: x.shape for name, x in tensors.items()} == {name: x.shape for name, x in own.items()}
        if not fits:
            raise UsageError(f"{path}: is of another model than {loaded.folder}, so their weights have no mean")
        for name, tensor in tensors.items():
            total[name] += tensor
    return {name: (value / (1 + len(others))).to(own[name].dtype) for name, value in total.items()}


def _identity(loaded: LoadedModel) -> tuple[Any, ...]:
    """What must be equal for weights to have the same meaning."""
    fixed = select(ModelConfig, lambda one: not one.adaptable)  # words are compared instead of the vocabularies' sizes
    settings = {name: getattr(loaded.model.config, name) for name in fixed}
    return settings, loaded.source_vocabulary, loaded.target_vocabulary


def _is_of_training(path: Path) -> bool:
    """Whether a file of a model directory is not needed to use the model: weights, states, logs, and its corpus."""
    return path.name in (CONFIG, LOG) or path.name.startswith(".") or path.suffix in (".safetensors", ".h5")


def _may_replace(folder: Path, new: Path, force: bool) -> bool:
    """Whether a finished export replaces the existing folder; False if both are equal. Raises UsageError."""
    files = {path.relative_to(new) for path in new.rglob("*") if path.is_file()}
    if all((folder / file).is_file() and filecmp.cmp(folder / file, new / file, False) for file in files):
        return False
    if not any(folder.iterdir()):
        return True
    try:
        replaceable = "exported" in read_settings(folder)
    except FormatError:
        replaceable = False
    if not replaceable:
        raise UsageError(f"{folder}: contains other files, which would be lost; give a new folder with -o")
    if not force:
        raise UsageError(
            f"{folder}: contains another exported model, which would be lost; give another folder with -o, or --force "
            "to replace it"
        )
    return True
