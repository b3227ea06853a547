"""Budgets, intervals and the learning rate's course."""

import re
from dataclasses import replace

import pytest

from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.budget import BudgetAdvice, Every, Schedule, TrainingBudget, learning_rate, updates_needed
from nmtalign.training.checkpoints import Position


def test_the_nearest_limit_counts():
    budget = TrainingBudget.of(TrainingConfig(max_updates=100, epochs=2.0, max_time="1m"))
    assert budget.done(50, 0.1, 1.0) == 0.5
    assert budget.done(1, 1.5, 1.0) == 0.75
    assert budget.reached(99, 1.9, 59.0) is None
    assert budget.reached(100, 0.0, 0.0) == "100 updates"
    assert budget.reached(0, 2.0, 0.0) == "2 epochs"
    assert budget.reached(0, 0.0, 60.0) == "60 s"


def test_without_limits_nothing_is_ever_reached():
    budget = TrainingBudget.of(TrainingConfig())
    assert budget.done(10**9, 1e6, 1e9) == 0
    assert budget.reached(10**9, 1e6, 1e9) is None


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


def test_the_rate_rises_over_the_warm_up_and_falls_with_the_budget():
    config = TrainingConfig(learning_rate=2.0, warmup=10, schedule="linear")
    assert learning_rate(config, 5, 0.0, 10) == 1.0
    assert learning_rate(config, 10, 0.0, 10) == 2.0
    assert learning_rate(config, 50, 0.5, 10) == 1.0
    assert learning_rate(config, 100, 1.0, 10) == 0.0
    inverse = TrainingConfig(learning_rate=2.0, warmup=10, schedule="inverse-sqrt")
    assert learning_rate(inverse, 10, 0.0, 10) == 2.0
    assert learning_rate(inverse, 40, 0.9, 10) == 1.0
    assert learning_rate(inverse, 4, 0.9, 4) == 2.0
    assert learning_rate(TrainingConfig(), 1, 0.7, 0) == 1.0


def make_schedule(notices=None, **settings):
    config = TrainingConfig(learning_rate=1.0, warmup=20, **settings)
    return Schedule(config, TrainingBudget.of(config), (notices if notices is not None else []).append)


def run(schedule, position, updates, seconds=(1.0,), batches_in_epoch=10):
    """The rates of further updates, of which each takes the next of `seconds`, the last of them for all others."""
    rates = []
    for number in range(updates):
        position.update += 1
        rates.append(schedule.rate(position, 0.0, batches_in_epoch))
        took = seconds[min(number, len(seconds) - 1)]
        position.seconds += took
        schedule.measure(took)
    return rates


TENTH_IS_FOUR = [
    {"max_updates": 40},
    {"epochs": 4.0},
    {"epochs": 8.0, "accumulate": 2},
    {"max_updates": 40, "epochs": 90.0},
    {"max_updates": 900, "epochs": 4.0, "max_time": "10m"},
]


@pytest.mark.parametrize("settings", TENTH_IS_FOUR, ids=str)
def test_the_warm_up_is_a_tenth_of_the_limit_that_binds(settings):
    notices, position = [], Position()
    rates = run(make_schedule(notices, **settings), position, 8)
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert position.warmup == 4
    (notice,) = notices
    assert notice == "the learning rate rose until update 4, a tenth of the budget, not until update 20 (warmup)"


@pytest.mark.parametrize("settings", [{}, {"max_updates": 200}, {"epochs": 20.0}, {"max_time": "10m"}], ids=str)
def test_a_large_budget_leaves_the_warm_up_as_it_is_set(settings):
    notices, position = [], Position()
    rates = run(make_schedule(notices, **settings), position, 30)
    assert rates == [min(1.0, update / 20) for update in range(1, 31)]
    assert (position.warmup, notices) == (20, [])


def test_without_a_warm_up_nothing_rises():
    config, position = TrainingConfig(learning_rate=1.0, max_updates=1000), Position()
    assert run(Schedule(config, TrainingBudget.of(config), [].append), position, 3) == [1.0] * 3


@pytest.mark.parametrize("seconds", [(1.0,), (10.0, 10.0, 1.0)], ids=["even", "the first ones slow"])
def test_under_a_time_limit_the_warm_up_follows_the_measured_time_of_an_update(seconds):
    notices, position = [], Position()
    rates = run(make_schedule(notices, max_time="80s"), position, 12, seconds)
    assert rates[:3] == [1 / 20, 2 / 20, 3 / 20]  # too little has been measured
    assert rates.index(1.0) + 1 == position.warmup
    assert 6 <= position.warmup <= 8
    assert len(notices) == 1


def test_a_warm_up_that_has_ended_is_not_begun_anew_by_a_larger_budget():
    notices, position = [], Position()
    run(make_schedule(notices, max_time="60s"), position, 10)
    assert run(make_schedule(notices, max_time="2h"), position, 3) == [1.0] * 3
    assert len(notices) == 1


def test_a_resumed_warm_up_continues_where_it_was():
    whole = run(make_schedule(max_time="60s"), Position(), 10)
    position = Position()
    parts = run(make_schedule(max_time="60s"), position, 3)
    parts += run(make_schedule(max_time="60s"), replace(position), 7)
    assert parts == whole


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epochs": 20.0}, "20 epochs = 2,340 updates, stops early after 10 validations without progress"),
        ({"max_updates": 1170, "patience": 0}, "1,170 updates = 10 epochs"),
        ({"epochs": 0.5, "max_time": "40m", "patience": 0}, "0.5 epochs = 59 updates or 40m"),
        ({"max_time": "90s", "patience": 0}, "90s"),
        ({"max_time": "3h", "patience": 0}, "3h"),
        ({"patience": 0}, "no limit"),
    ],
)
def test_a_budget_in_words(settings, text):
    config = TrainingConfig(**settings)
    assert TrainingBudget.of(config).describe(117, config.patience) == text


def test_a_smaller_corpus_needs_more_passes_and_no_model_fewer_than_1000_updates():
    assert updates_needed(23_000, 92) == 1000
    passes = [updates_needed(words, 10**6) / 10**6 for words in (23_000, 400_000, 20_000_000)]
    assert passes == pytest.approx([10.55, 2.53, 0.358], rel=0.01)


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
    assert "a useful model needs about 2.5 (1,012 updates)" in notice


def test_the_time_of_earlier_runs_counts():
    for seconds, total in ((600.0, 1200), (10.0, 2183)):  # 1,000 updates of 0.6 s each, most of them earlier
        advice, notices = advise(max_time="12m")
        advice.check_budget(1000, seconds, 0.6, is_known=True)
        assert bool(notices) == (total < updates_needed(400_000, 400)), notices
    advice, notices = advise(words=4_000_000, updates_in_epoch=4000, max_time="12m")
    advice.check_budget(1000, 600.0, 0.6, is_known=True)
    assert "(1,200 updates)" in notices[0]


def test_the_advice_of_a_run_of_seconds_names_a_budget():
    advice, notices = advise(max_time="5s")
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    advice.check_budget(3, 4.0, 1.3, is_known=False)
    advice.add_loss(3.0, on_dev=True)
    advice.finish(4, 0.0)
    assert re.search(r"repeat the command with --max-time \d+m$", notices[0])
    advice, notices = advise(max_time="5s")
    advice.finish(0, 0.0)
    assert notices[0].endswith("repeat the command with a larger budget")


@pytest.mark.parametrize("preset", ["rnnsearch-50", "rnnsearch-30", "rnnencdec-50", "rnnencdec-30"])
def test_the_paper_presets_on_the_paper_corpus_are_not_reported(preset):
    from nmtalign.settings.presets import PRESETS

    advice, notices = advise(348_000_000, 150_000, preset, max_updates=PRESETS[preset]["max_updates"])
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    advice.finish(PRESETS[preset]["max_updates"], 26.75)
    assert notices == []


def test_a_training_from_another_model_may_be_short():
    advice, notices = advise(max_updates=10, init_from="model")
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    assert notices == []


@pytest.mark.parametrize(
    ("dev_losses", "bleu", "words"),
    [
        (
            [3.0, 2.5],
            3.0,
            "dev BLEU is 3.0, and the loss has not risen: to continue, repeat the command with --epochs",
        ),
        ([3.0, 2.5, 2.51], 3.0, "the loss has not risen"),
        ([3.0, 3.5], 3.0, "dev BLEU is 3.0, and the loss on dev rose at the end"),
        ([3.0, 2.5], 30.0, ""),
        ([3.0, 2.5], None, ""),
    ],
)
def test_the_end_of_a_poor_training_says_whether_the_loss_has_risen(dev_losses, bleu, words):
    advice, notices = advise(epochs=20.0)
    advice.check_budget(0, 0.0, 0.0, is_known=False)
    for loss in dev_losses:
        advice.add_loss(loss, on_dev=True)
        advice.add_loss(loss / 2, on_dev=False)
    advice.finish(8000, bleu)
    assert bool(notices) == bool(words)
    assert words in "".join(notices)
