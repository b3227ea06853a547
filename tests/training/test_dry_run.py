"""A dry run: it counts what a training will do, measures a few updates, and writes nothing."""

from dataclasses import replace

import pytest
import torch
from helpers.trainings import CONFIG, sizes, train, weights

from nmtalign.errors import UsageError
from nmtalign.training.distributed import World
from nmtalign.training.dry_run import DryRun, process_peak
from nmtalign.training.updates import TrainingSetup


def rehearse(corpus, folder, config=CONFIG, model=None, **settings):
    setup = TrainingSetup(corpus, folder, model or sizes(corpus), config, World(torch.device("cpu")))
    return DryRun(setup, "tiny", process_peak(), seconds=0.05, **settings), setup


def test_it_counts_what_the_training_will_do_and_writes_nothing(reversal, tmp_path):
    config = replace(CONFIG, max_updates=0, epochs=2.0)
    found, setup = rehearse(reversal, tmp_path / "model", config)
    assert list(tmp_path.iterdir()) == []
    assert sum(found.parameters.values()) == sum(weight.numel() for weight in setup.model.parameters())
    assert set(found.parameters) == {"source embedding", "target embedding", "encoder", "decoder", "readout"}
    assert (found.updates, found.updates_in_epoch) == (2 * 75, 75)  # 3,000 pairs in batches of 40
    assert found.seconds == pytest.approx(150 * found.update_seconds)
    assert found.budget.startswith("2 epochs = 150 updates")
    assert "a useful model needs" in found.advice[0]
    assert found.memory["parameters"] == 4 * sum(found.parameters.values())
    assert found.memory["optimiser"] == pytest.approx(2 * found.memory["parameters"], abs=500)  # and the steps


def test_a_dry_run_of_a_resumed_run_reports_what_remains_and_changes_no_file(reversal, tmp_path):
    train(reversal, tmp_path / "model")
    before = {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    found, setup = rehearse(reversal, tmp_path / "model", replace(CONFIG, max_updates=30))
    assert (found.done.update, found.updates) == (12, 30)
    assert found.seconds == pytest.approx(18 * found.update_seconds)
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    kept = weights(tmp_path / "model")
    assert all(torch.equal(value, kept[name]) for name, value in setup.model.state_dict().items())
    again, _ = rehearse(reversal, tmp_path / "model", replace(CONFIG, max_updates=30), restart=True)
    assert again.done.update == 0
    with pytest.raises(UsageError, match="--force"):  # another run, as by a training
        rehearse(reversal, tmp_path / "model", replace(CONFIG, learning_rate=1e-3))


def test_nothing_remains_of_a_finished_run_even_if_the_next_epoch_has_more_updates(reversal, tmp_path):
    config = replace(CONFIG, max_updates=0, epochs=1.0, batch_unit="tokens", batch_size=200, validate_every="epoch")
    train(reversal, tmp_path / "model", config)
    found, _ = rehearse(reversal, tmp_path / "model", config)
    assert found.updates_in_epoch > found.done.update == found.updates
    assert found.seconds == 0


def test_nothing_remains_of_a_run_that_stopped_early(reversal, tmp_path):
    config = replace(CONFIG, max_updates=30, patience=1, learning_rate=1e-30)
    train(reversal, tmp_path / "model", config)
    found, _ = rehearse(reversal, tmp_path / "model", config)
    assert (found.done.update, found.updates) == (12, 12)


def test_a_time_limit_gives_the_updates_that_fit_into_it(reversal, tmp_path):
    limited = (replace(CONFIG, max_updates=0, max_time=time) for time in ("10h", "1s"))
    enough, short = (rehearse(reversal, tmp_path / "model", config)[0] for config in limited)
    assert enough.seconds == pytest.approx(36000)
    assert enough.updates == pytest.approx(36000 / enough.update_seconds)
    assert not enough.advice
    assert "the budget ends after" in short.advice[0]
    assert "inf" not in short.advice[0]
