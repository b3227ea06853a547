"""Which run a model directory holds, and whether it goes on with the settings at hand."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.data.corpus import Corpus
from nmtalign.errors import UsageError
from nmtalign.model_files import CONFIG, check_files, read_settings
from nmtalign.training.state import Checkpoint, find_checkpoint, run_of_weights

MAY_CHANGE = frozenset(
    {"max_updates", "epochs", "max_time", "patience", "log_every"}
    | {"validate_every", "checkpoint_every", "bleu_sentences", "device", "threads"}
)
# Files whose content counts, wherever they are, and settings that say nothing without such a file.
_FILES = frozenset({"guided_alignment", "init_from"})
_GUIDED = frozenset({"guided_weight", "guided_loss", "guided_reading"})
_AGREEING = frozenset({"agreement", "agreement_weight"})
# Settings of the model that earlier versions did not have, and what those did: their runs go on.
LATER: Mapping[str, object] = {
    "attention_temperature": 1.0,
    "coverage": "none",
    "readout_previous_word": True,
    "reverse_source": False,
}


def fingerprint_of(
    corpus: Corpus, model: ModelConfig, config: TrainingConfig, files: Mapping[str, str] | None = None
) -> str:
    """What must be the same for a run to go on: corpus, model, and the settings that shape the updates.

    `files` are the hashes of the files that settings name, by setting.
    """
    files = files or {}
    left_out = MAY_CHANGE | _FILES | (frozenset() if "guided_alignment" in files else _GUIDED)
    left_out |= frozenset() if config.agreement else _AGREEING
    fixed = {name: value for name, value in asdict(config).items() if name not in left_out} | dict(files)
    shaping = {name: value for name, value in asdict(model).items() if LATER.get(name) != value}
    text = json.dumps([corpus.hash, shaping, fixed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find_run(folder: Path, fingerprint: str, corpus: Corpus) -> Checkpoint | None:
    """The checkpoint from which a folder's run goes on with these settings, or None for a folder that holds no run.

    Raises UsageError if it holds another.
    """
    if not (folder / CONFIG).exists():
        return None
    settings = read_settings(folder)
    found = find_checkpoint(folder, fingerprint)
    held = found.fingerprint if found else run_of_weights(folder)
    if held is None or (found is None and held == fingerprint):
        return None  # cut off before its first checkpoint: nothing to lose
    check_files(folder, settings)
    if held == fingerprint:
        return found
    what = "another corpus" if settings.get("corpus") != corpus.hash else "other settings"
    raise UsageError(
        f"{folder}: holds a model trained on {what}; give another folder with -o, or train anew over it with --restart"
    )
