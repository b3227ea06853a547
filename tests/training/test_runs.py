"""The model in a folder: a run resumes only its own model, and never replaces another one unless told so."""

from dataclasses import asdict

import pytest

from nmtalign.core.model import TranslationModel
from nmtalign.errors import UsageError
from nmtalign.model_directory import create_model_directory
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.tensor_file import save_tensors
from nmtalign.training import runs
from nmtalign.training.optimizers import make_optimizer
from nmtalign.training.runs import LATER, find_run, fingerprint_of
from nmtalign.training.state import Position, save_best, save_last, save_state

RUN, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def folder(reversal, tmp_path):
    create_model_directory(tmp_path / "m", reversal, "tiny", ModelConfig(), TrainingConfig())
    return tmp_path / "m"


@pytest.fixture
def model():
    return TranslationModel(ModelConfig(7, 9, embedding=3, hidden=4, attention_hidden=3, maxout=2))


def test_a_folder_without_a_model_or_without_weights_holds_no_run(reversal, folder, tmp_path):
    assert find_run(tmp_path, RUN, reversal) is None
    assert find_run(folder, RUN, reversal) is None


def test_a_run_that_was_cut_off_before_its_first_checkpoint_begins_again(reversal, folder, model):
    save_best(folder, model, 4, RUN)
    assert find_run(folder, RUN, reversal) is None


@pytest.mark.parametrize("save", [save_best, save_last])
def test_weights_whose_checkpoints_are_gone_are_not_trained_over(reversal, folder, model, save):
    save(folder, model, 4, OTHER)
    with pytest.raises(UsageError, match=r"contains a model trained with other settings.*--restart"):
        find_run(folder, RUN, reversal)


def test_weights_that_do_not_tell_whose_they_are_are_not_trained_over(reversal, folder, model):
    save_tensors(folder / "best.safetensors", model.state_dict(), {})
    with pytest.raises(UsageError, match="--restart"):
        find_run(folder, RUN, reversal)


def test_its_own_checkpoint_is_found_and_another_ones_refused(reversal, folder, model):
    save_state(folder, model, make_optimizer(model.parameters(), TrainingConfig()), Position(update=3), RUN)
    assert find_run(folder, RUN, reversal).position.update == 3
    with pytest.raises(UsageError, match=r"other settings.*--restart"):
        find_run(folder, OTHER, reversal)


def test_runs_of_earlier_versions_go_on_unless_a_later_setting_says_otherwise(reversal, monkeypatch):
    now = fingerprint_of(reversal, ModelConfig(), TrainingConfig())
    assert {name: asdict(ModelConfig())[name] for name in LATER} == LATER
    for changed in (
        {"coverage": "linguistic"},
        {"attention": "dot"},
        {"readout_previous_word": False},
        {"bidirectional": False, "reverse_source": True},
    ):
        assert fingerprint_of(reversal, ModelConfig(**changed), TrainingConfig()) != now
    assert fingerprint_of(reversal, ModelConfig(), TrainingConfig(learning_rate=0.1)) != now
    assert fingerprint_of(reversal, ModelConfig(), TrainingConfig(average=3)) == now  # changes no update
    later = {*LATER, "average"}
    monkeypatch.setattr(runs, "asdict", lambda config: {k: v for k, v in asdict(config).items() if k not in later})
    assert fingerprint_of(reversal, ModelConfig(), TrainingConfig()) == now
