"""The model in a folder: a run resumes only its own model, and replaces another one only if the user asks for it."""

import json

import pytest

from nmtalign.core.model import TranslationModel
from nmtalign.errors import UsageError
from nmtalign.model_directory import save_tensors
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.checkpoints import create_run, find_run, fingerprint_of, save_weights

RUN, OTHER, STATE = "a" * 64, "b" * 64, "training_state.safetensors"


@pytest.fixture
def folder(reversal, tmp_path):
    create_run(tmp_path / "m", reversal, "tiny", ModelConfig(), TrainingConfig())
    return tmp_path / "m"


@pytest.fixture
def model():
    return TranslationModel(ModelConfig(7, 9, embedding=3, hidden=4, attention_hidden=3, maxout=2))


@pytest.fixture
def find(reversal):
    return lambda folder, run: find_run(folder, run, reversal, ModelConfig(), TrainingConfig())


def test_a_folder_without_a_checkpoint_of_another_run_begins_anew(find, folder, model, tmp_path):
    assert find(tmp_path, RUN) is None
    assert find(folder, RUN) is None
    save_weights(folder / "last.safetensors", model, 4, RUN)
    assert find(folder, RUN) is None


@pytest.mark.parametrize(
    ("save", "reason"),
    [
        (lambda f, model: save_weights(f / "best.safetensors", model, 4, RUN), "has no training state"),
        (lambda f, model: save_weights(f / "last.safetensors", model, 4, OTHER), "trained with other settings"),
        (lambda f, model: save_tensors(f / "last.safetensors", model.state_dict(), {}), "with other settings"),
        (lambda f, _: (f / "config.json").replace(f / STATE), f"contains {STATE}, but no config.json"),
    ],
    ids=["best", "last", "unknown", "without config.json"],
)
def test_weights_whose_checkpoints_are_gone_are_not_trained_over(find, folder, model, save, reason):
    save(folder, model)
    with pytest.raises(UsageError, match=rf"{reason}.*--force"):
        find(folder, RUN)


def test_a_run_of_another_version_is_refused_in_one_line(find, folder):
    settings = json.loads((folder / "config.json").read_text())
    settings["training"]["forgotten"] = 1
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UsageError, match=r"m: contains a model of another version of nmtalign.*--force$"):
        find(folder, RUN)


def test_settings_that_change_the_updates_change_the_fingerprint(reversal):
    now = fingerprint_of(reversal, ModelConfig(), TrainingConfig())
    assert fingerprint_of(reversal, ModelConfig(coverage="linguistic"), TrainingConfig()) != now
    assert fingerprint_of(reversal, ModelConfig(), TrainingConfig(learning_rate=0.1)) != now
    assert fingerprint_of(reversal, ModelConfig(), TrainingConfig(patience=3)) == now
