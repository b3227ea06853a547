"""Budgets, intervals and the learning rate's course."""

import pytest

from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.budget import (
    BudgetAdvice,
    Every,
    TrainingBudget,
    duration,
    learning_rate,
    updates_needed,
    warm_up,
)


def test_the_nearest_limit_counts():
    budget = TrainingBudget(TrainingConfig(max_updates=100, epochs=2.0, max_time="1m"))
    assert [budget.done(50, 0.1, 1.0), budget.done(1, 1.5, 1.0)] == [0.5, 0.75]
    reached = [budget.reached(*at) for at in ((99, 1.9, 59.0), (100, 0.0, 0.0), (0, 2.0, 0.0), (0, 0.0, 60.0))]
    assert reached == [None, "100 updates", "2 epochs", "60 s"]
    endless = TrainingBudget(TrainingConfig())
    assert (endless.done(10**9, 1e6, 1e9), endless.reached(10**9, 1e6, 1e9)) == (0, None)


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_updates": 100}, 90 * 2.0),
        ({"epochs": 2}, 30 * 2.0),  # 2 epochs of 20 updates
        ({"epochs": 1.53}, 21 * 2.0),  # the update in which the limit is reached counts
        ({"max_updates": 100, "epochs": 2, "max_time": "50s"}, 30.0),
        ({"max_updates": 5}, 0.0),
        ({}, None),
    ],
)
def test_the_time_left_is_that_to_the_nearest_limit(limits, left):
    budget = TrainingBudget(TrainingConfig(**limits))
    found = budget.seconds_left(update=10, elapsed=20.0, updates_in_epoch=20, update_seconds=2.0)
    assert found == (None if left is None else pytest.approx(left))


@pytest.mark.parametrize(
    ("text", "moments", "expected"),
    [
        ("3", [(1, 0, False), (3, 1, False), (4, 2, True), (6, 3, False)], [False, True, False, True]),
        ("10s", [(1, 9, False), (2, 10, False), (3, 11, True)], [False, True, False]),
        ("epoch", [(1, 99, False), (2, 99, True)], [False, True]),
    ],
)
def test_every(text, moments, expected):
    every = Every("validate_every", text, 0.0)
    assert [every.due(*moment) for moment in moments] == expected


def test_the_rate_rises_over_the_warm_up_or_a_tenth_of_the_budget():
    config = TrainingConfig(warmup=20)
    assert [warm_up(config, update, update / 10**6) for update in (1, 10, 20, 30)] == [1 / 20, 0.5, 1.0, 1.0]
    assert [warm_up(config, update, update / 40) for update in (1, 2, 4, 5)] == [0.25, 0.5, 1.0, 1.0]
    assert warm_up(TrainingConfig(), 1, 0.0) == 1.0


def test_the_rate_falls_with_the_schedule():
    linear = TrainingConfig(learning_rate=2.0, schedule="linear")
    assert [learning_rate(linear, 50, done, 1.0) for done in (0.0, 0.5, 1.0)] == [2.0, 1.0, 0.0]
    assert learning_rate(linear, 5, 0.0, 0.5) == 1.0
    inverse = TrainingConfig(learning_rate=2.0, warmup=10, schedule="inverse-sqrt")
    assert [learning_rate(inverse, update, 0.9, 1.0) for update in (4, 10, 40)] == [2.0, 2.0, 1.0]
    assert learning_rate(TrainingConfig(), 1, 0.7, 1.0) == 1.0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epochs": 20.0}, "20 epochs = 2,340 updates, stops early after 10 validations without progress"),
        ({"max_updates": 1170, "patience": 0}, "1,170 updates = 10 epochs"),
        ({"max_updates": 257_400, "patience": 0}, "257,400 updates = 2,200 epochs"),
        ({"epochs": 0.5, "max_time": "40m", "patience": 0}, "0.5 epochs = 59 updates, at most 40m"),
        ({"max_time": "90s", "patience": 0}, "90s"),
        ({"max_time": "3h", "patience": 0}, "3h"),
        ({"patience": 0}, "no limit"),
    ],
)
def test_a_budget_in_words(settings, text):
    config = TrainingConfig(**settings)
    assert TrainingBudget(config).describe(117, config.patience) == text


def test_a_smaller_corpus_needs_more_passes_and_no_model_fewer_than_1000_updates():
    assert updates_needed(23_000, 92) == 1000
    passes = [updates_needed(words, 10**6) / 10**6 for words in (23_000, 400_000, 20_000_000)]
    assert passes == pytest.approx([10.55, 2.53, 0.358], rel=0.01)


def test_subwords_are_advised_only_to_a_model_of_words():
    for of_words in (True, False):
        advice, notices = advise(epochs=20.0)
        for loss in (3.0, 3.5):
            advice.on_dev.append(loss)
        advice.finish(8000, 3.0, of_words)
        assert ("--subwords" in notices[0]) == of_words


def advise(words=400_000, updates_in_epoch=400, preset="small", **settings):
    notices = []
    return BudgetAdvice(TrainingConfig(**settings), preset, words, updates_in_epoch, notices.append), notices


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"epochs": 1.0}, "give --epochs 3"),
        ({"max_updates": 100}, "give --max-updates 1100"),
        ({"epochs": 20.0, "max_time": "1m"}, "give --max-time 38m or the faster --preset tiny"),
        ({"max_time": "1m", "preset": "tiny"}, "give --max-time 38m"),
    ],
)
def test_a_budget_that_is_too_small_is_reported_once_with_one_that_suffices(settings, options):
    advice, notices = advise(**settings)
    timed = "max_time" in settings
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    assert bool(notices) != timed
    for update in (5, 6, 7):
        advice.check_budget(update, 2.0 * update, 2.0, is_known=update > 4)
    (notice,) = notices
    assert notice.endswith(options)
    assert "a useful model needs about 1,012 (2.5 times)" in notice


def test_a_duration_is_not_a_minute_longer_for_part_of_an_update():
    found = [duration(seconds) for seconds in (90.0, 360.4, 366.0, 10_801.0, 12_000.0)]
    assert found == ["90s", "6m", "7m", "3h", "4h"]


def test_the_end_advises_all_that_the_next_run_needs_and_no_shorter_time():
    for time, options in (("20s", "--max-time 74m --epochs 1000"), ("8h", "--epochs 1000")):
        advice, notices = advise(words=5, updates_in_epoch=1, epochs=200.0, max_time=time)
        for update in (0, 1, 10):
            advice.check_budget(update, 4.0 * update, 4.0 * bool(update), is_known=update > 1)
        advice.finish(10, 0.0)
        assert "needs about 1,000 (1,000 times): give --epochs 1000" in notices[0]
        assert notices[1].endswith(f"with {options}")


@pytest.mark.parametrize("settings", [{"max_updates": 252_000}, {"max_updates": 10, "init_from": "model"}], ids=str)
def test_the_papers_budget_and_that_of_another_models_weights_suffice(settings):
    advice, notices = advise(348_000_000, 150_000, "rnnsearch-50", **settings)
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    advice.finish(settings["max_updates"], 26.75)
    assert notices == []


@pytest.mark.parametrize(
    ("dev_losses", "bleu", "words", "updates"),
    [
        ([3.0, 2.5], 3.0, "BLEU is 3.0, and the loss has not risen: to continue, repeat the command with --ep", 8000),
        ([3.0, 2.5, 2.51], 3.0, "the loss has not risen", 8000),
        ([3.0, 3.5], 3.0, "dev BLEU is 3.0, and the loss on dev rose at the end", 8000),
        ([3.0, 3.5], 3.0, "", 300),  # less than a pass: no text is known by heart
        ([3.0, 2.5], 30.0, "", 8000),
        ([3.0, 2.5], None, "", 8000),
    ],
)
def test_the_end_of_a_poor_training_says_whether_the_loss_has_risen(dev_losses, bleu, words, updates):
    advice, notices = advise(epochs=20.0)
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    for loss in dev_losses:
        advice.on_dev.append(loss)
        advice.on_train.append(loss / 2)
    advice.finish(updates, bleu)
    assert bool(notices) == bool(words)
    assert words in "".join(notices)
