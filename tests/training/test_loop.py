"""The training loop on the reversing corpus: it learns, resumes exactly, stops on request, and keeps its files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import trainings
from helpers.parallel_texts import prepared
from sacrebleu.metrics import BLEU

from nmtalign.core.model import make_batch
from nmtalign.errors import TrainingError, UsageError
from nmtalign.files import folder_lock
from nmtalign.model_directory import load_tensors
from nmtalign.settings.presets import SYSTEMS
from nmtalign.training.budget import BudgetAdvice
from nmtalign.training.checkpoints import find_checkpoint
from nmtalign.training.distributed import World
from nmtalign.training.dry_run import DryRun
from nmtalign.training.events import Finished, Noticed, Progressed, Saved, Skipped, Started, Validated, Working
from nmtalign.training.trainer import Meter
from nmtalign.training.updates import TrainingSetup
from nmtalign.translating.rescoring import score_pairs
from nmtalign.translating.translator import Translator

CONFIG, sizes, train, weights = trainings.CONFIG, trainings.sizes, trainings.train, trainings.weights
make_trainer = trainings.make_trainer


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_events_files_and_settings(reversal, tmp_path):
    events = train(reversal, tmp_path / "model")
    kinds = [type(event) for event in events]
    assert kinds[0] is Started
    assert kinds[-1] is Finished
    assert events[-1].complete
    assert [event.update for event in events if isinstance(event, Progressed)] == [3, 6, 9, 12]
    assert [event.update for event in events if isinstance(event, Validated)] == [6, 12]
    assert any(isinstance(event, Saved) for event in events)
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {
        *("config.json", "source.vocabulary.txt", "target.vocabulary.txt", "tokenizer.json", "train.jsonl"),
        *("best.safetensors", "last.safetensors"),
        *("training_state.safetensors", "training_state.previous.safetensors"),
    }
    logged = [json.loads(line) for line in (tmp_path / "model/train.jsonl").read_text().splitlines()]
    assert logged == [json.loads(json.dumps(event.as_dict())) for event in events]
    settings = json.loads((tmp_path / "model/config.json").read_text())
    assert settings["training"]["learning_rate"] == 5e-3
    assert settings["model"]["hidden"] == 32
    # Its validations have translated too few sentences for a confidence.
    assert next(Translator.load(tmp_path / "model", device="cpu").translate(["w1"])).confidence is None


def test_two_trainings_at_once_in_one_folder_are_refused(reversal, tmp_path):
    train(reversal, tmp_path / "model", stop_at=3)
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    with folder_lock(tmp_path / "model"):
        for restart in (False, True):
            with pytest.raises(UsageError, match="another process is working in this folder; wait for it"):
                train(reversal, tmp_path / "model", restart=restart)
        assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
        train(reversal, tmp_path / "other", stop_at=3)
    assert train(reversal, tmp_path / "model")[-1].complete


def test_a_training_that_is_refused_leaves_no_folder(reversal, tmp_path):
    with pytest.raises(UsageError, match="links can guide only"):
        train(reversal, tmp_path / "model", replace(CONFIG, guided_alignment="links"), attention="none")
    assert not list(tmp_path.iterdir())


def test_a_warm_up_bounded_by_the_budget_resumes_exactly_and_does_not_begin_again(reversal, tmp_path):
    config = replace(CONFIG, max_updates=0, epochs=0.4, warmup=100, log_every=1)
    whole = train(reversal, tmp_path / "whole", config)
    assert not train(reversal, tmp_path / "parts", config, stop_at=2)[-1].complete
    assert train(reversal, tmp_path / "parts", config)[0].resumed
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    more = train(reversal, tmp_path / "parts", replace(config, epochs=0.0, max_updates=40))
    rates = [event.learning_rate for event in whole + more if isinstance(event, Progressed)]
    highest = rates.index(max(rates))
    assert highest < len(whole) / 5
    assert {*rates[highest:]} == {5e-3}


@pytest.mark.parametrize(
    ("settings", "stop_at", "model"),
    [
        ({"optimizer": "adamw"}, 3, {"attention_kind": "hard"}),
        ({"optimizer": "adadelta"}, 9, SYSTEMS["luong-local-p"]),
        (
            {"optimizer": "adam", "batch_size": 10, "accumulate": 4},
            9,
            {"attention_kind": "marginal", "attention_positions": 2, "shared_embeddings": True},
        ),
    ],
    ids=str,
)
def test_resumed_equals_uninterrupted_bit_for_bit(reversal, tmp_path, settings, stop_at, model):
    config = replace(CONFIG, **settings, schedule="linear", warmup=4, max_updates=16)
    train(reversal, tmp_path / "whole", config, dropout=0.2, **model)
    first = train(reversal, tmp_path / "parts", config, stop_at=stop_at, dropout=0.2, **model)
    assert not first[-1].complete
    assert first[-1].update == stop_at
    second = train(reversal, tmp_path / "parts", config, dropout=0.2, **model)
    assert second[0].resumed
    assert second[-1].complete
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert same(weights(tmp_path / "whole", "best"), weights(tmp_path / "parts", "best"))


def test_a_copying_model_resumes_exactly_and_copies_in_validations_and_translations(tmp_path):
    generator = np.random.default_rng(3)
    words = [f"w{number}" for number in generator.zipf(1.3, 1200) % 90]
    lines = [words[start : start + 1 + start % 7] for start in range(0, 1190, 4)]
    pairs = [(" ".join(line), " ".join(reversed(line))) for line in lines]
    corpus = prepared(tmp_path, pairs, pairs, ("xx", "yy"), vocabulary="none", shortlist="9:7")
    settings = {"dropout": 0.2, "copy": True}
    done = train(corpus, tmp_path / "whole", CONFIG, **settings)
    assert not train(corpus, tmp_path / "parts", CONFIG, stop_at=5, **settings)[-1].complete
    assert train(corpus, tmp_path / "parts", CONFIG, **settings)[0].resumed
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    validated = [event for event in done if isinstance(event, Validated)]
    translator = Translator.load(tmp_path / "whole", beam=1, tokenized=True, allow_unk=True)
    scored = list(score_pairs(translator, pairs))
    loss = -sum(pair.log_prob for pair in scored) / sum(len(pair.token_log_probs) for pair in scored)
    assert loss == pytest.approx(min(event.loss for event in validated), rel=1e-4)
    found = [line.text for line in translator.translate(first for first, _ in pairs[:5])]
    best = min(validated, key=lambda event: event.loss)
    assert best.bleu == pytest.approx(BLEU().corpus_score(found, [[second for _, second in pairs[:5]]]).score)
    copied = " ".join(line.text for line in translator.translate(first for first, _ in pairs)).split()
    assert set(copied) - set(corpus.target_vocabulary.words)


class Killed(BaseException):
    """The end of a process."""


def validations(folder):
    events = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [{**event, "seconds": 0} for event in events if event["event"] == "validated"]


def interrupt(corpus, folder, config, number, kill, **model):
    """Stops or kills a training at its `number`-th report from a validation; returns the update of this validation."""
    reports = []

    def listen(event):
        if isinstance(event, Working) and event.doing == "validating":
            reports.append(event.update)
            if len(reports) == number and kill:
                raise Killed
            if len(reports) == number:
                trainer.stop("interrupted")

    trainer = make_trainer(corpus, folder, sizes(corpus, **model), config, listen)
    if kill:
        with pytest.raises(Killed):
            trainer.run()
    else:
        assert not trainer.run().complete
        assert len(reports) < number + 2  # it did not wait for the end
    return reports[-1]


@pytest.mark.parametrize(
    ("number", "settings", "kill"),
    [
        (1, {}, True),  # in the loss
        (4, {"bleu_sentences": 60}, False),  # in the translations
        (4, {"metric": "bleu", "patience": 1, "learning_rate": 1e-12}, True),
    ],
    ids=str,
)
def test_a_validation_that_is_interrupted_loses_no_update_and_is_made_again(reversal, tmp_path, number, settings, kill):
    config = replace(CONFIG, max_updates=12, checkpoint_every="100", **settings)
    ended = train(reversal, tmp_path / "whole", config, dropout=0.2)[-1]
    assert interrupt(reversal, tmp_path / "parts", config, number, kill, dropout=0.2) == 6
    assert find_checkpoint(tmp_path / "parts").position.update == 6
    seldom = config if config.patience == 1 else replace(config, validate_every="1h")  # it is made all the same
    events = train(reversal, tmp_path / "parts", seldom, dropout=0.2)
    assert (events[0].resumed, events[0].update) == (True, 6)
    assert replace(events[-1], seconds=0) == replace(ended, seconds=0)
    assert validations(tmp_path / "parts") == validations(tmp_path / "whole")
    for path in (tmp_path / "whole").rglob("*.safetensors"):
        if "training_state" not in path.name:
            found = load_tensors(tmp_path / "parts" / path.relative_to(tmp_path / "whole"))[0]
            assert same(load_tensors(path)[0], found), path


def test_a_finished_run_is_left_as_it_is_and_continues_with_a_larger_budget(reversal, tmp_path):
    ended = train(reversal, tmp_path / "model")[-1]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "model").rglob("*.safetensors")}
    again = train(reversal, tmp_path / "model")
    assert [type(event) for event in again] == [Started, Finished]
    assert again[-1] == ended  # the time that it took too
    assert before == {path: path.stat().st_mtime_ns for path in before}
    more = train(reversal, tmp_path / "model", replace(CONFIG, max_updates=18))
    assert more[-1].update == 18


def test_other_settings_are_refused(reversal, tmp_path):
    train(reversal, tmp_path / "model")
    with pytest.raises(UsageError, match=r"other settings: learning_rate was [\d.]+, is 0\.001; to continue.*--force"):
        train(reversal, tmp_path / "model", replace(CONFIG, learning_rate=1e-3, log_every=CONFIG.log_every + 1))


def change_losses(monkeypatch, trainer, updates, part, factor):
    """Multiplies a part of the loss, such as its objective, in some updates."""
    whole = trainer.setup.model.loss

    def loss(*arguments, **options):
        found = whole(*arguments, **options)
        changed = replace(found, **{part: getattr(found, part) * factor})
        return changed if trainer.position.update in updates else found

    monkeypatch.setattr(trainer.setup.model, "loss", loss)


def test_a_loss_that_is_not_finite_changes_nothing_and_ten_end_the_run(reversal, tmp_path, monkeypatch):
    events = []
    config = replace(CONFIG, checkpoint_every="100", validate_every="100", max_updates=20)
    train(reversal, tmp_path / "whole", replace(config, max_updates=3))
    trainer = make_trainer(reversal, tmp_path / "model", sizes(reversal), config, events.append)
    change_losses(monkeypatch, trainer, range(4, 100), "objective", torch.nan)
    said = r"10 times in a row.* update 13 .*training pairs \d+, .*diverged.*lower learning_rate"
    with pytest.raises(TrainingError, match=said) as raised:
        trainer.run()
    assert "\n" not in str(raised.value)
    assert [event.in_a_row for event in events if isinstance(event, Skipped)] == list(range(1, 11))
    assert "continue" not in str(raised.value)
    # The state of the last good update is kept, and the same command would continue with the next minibatches.
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "model"))
    more = train(reversal, tmp_path / "model", config)
    assert (more[0].resumed, more[0].update) == (True, 13)
    assert more[-1].complete


@pytest.mark.parametrize(("first", "part"), [(1, "objective"), (4, "objective"), (6, "nll")])
def test_a_training_whose_last_losses_are_not_finite_has_diverged(reversal, tmp_path, monkeypatch, first, part):
    config = replace(CONFIG, max_updates=6, validate_every="100")
    trainer = make_trainer(reversal, tmp_path / "model", sizes(reversal), config, lambda event: None)
    change_losses(monkeypatch, trainer, range(first, 100), part, torch.nan)
    assert trainer.run().diverged


def advice(events):
    """The lines of a training on what to do."""
    return [event.text for event in events if isinstance(event, Noticed) and "--" in event.text]


def test_a_training_far_above_guessing_has_diverged(reversal, tmp_path):
    config = replace(CONFIG, learning_rate=30.0)
    events = train(reversal, tmp_path / "model", config, stop_at=9)
    assert (events[-1].complete, events[-1].diverged) == (False, True)
    events = train(reversal, tmp_path / "model", config)
    assert (events[-1].complete, events[-1].diverged) == (True, True)
    (line,) = advice(events)
    assert line.startswith("the training has diverged; lower learning_rate (it was 30)")
    assert "best weights" not in line
    again = train(reversal, tmp_path / "model", config)
    assert ([type(event) for event in again], again[-1].diverged) == ([Started, Finished], True)
    longer = replace(config, max_updates=20)
    setup = TrainingSetup(reversal, tmp_path / "model", sizes(reversal), longer, World(torch.device("cpu")))
    assert DryRun(setup, "tiny", 0, seconds=0.01).advice == [line]


def test_a_training_that_diverges_after_a_good_start_names_the_weights_before(reversal, tmp_path, monkeypatch):
    config, events = replace(CONFIG, max_updates=18, log_every=1, patience=1), []
    trainer = make_trainer(reversal, tmp_path / "model", sizes(reversal), config, events.append)
    monkeypatch.setattr(BudgetAdvice, "check_budget", lambda *arguments, **keywords: None)
    change_losses(monkeypatch, trainer, range(7, 100), "nll", 10)
    finished = trainer.run()
    assert (finished.update, finished.complete, finished.diverged) == (12, True, True)
    (line,) = advice(events)
    assert f"the best weights, of update 6 with dev loss {finished.best_loss:.3f}, are kept" in line
    assert load_tensors(tmp_path / "model/best.safetensors")[1]["update"] == "6"
    for found, kind in ((trainer._advice.on_dev, Validated), (trainer._advice.on_train, Progressed)):
        assert found == [event.loss for event in events if isinstance(event, kind)] != []


def test_means_are_of_the_updates_that_were_made():
    # With </s>: source 4 and 2 words in 2 x 4 places, target 2 and 3 in 2 x 3.
    batch = make_batch([([5, 6, 7], [5]), ([5], [5, 6])])
    meter = Meter()
    meter.add(2.0, [(batch, torch.tensor(10.0))])
    meter.add(4.0, [(batch, torch.tensor(30.0)), (batch, torch.tensor(20.0))])
    means = meter.means(World(torch.device("cpu")))
    expected = {"loss": 60 / 15, "loss_sentence": 60 / 6, "gradient_norm": 3.0, "padding": 1 - 11 / 14}
    assert {name: means[name] for name in expected} == pytest.approx(expected)
    assert means["source_words_per_second"] / means["target_words_per_second"] == pytest.approx(6 / 5)


def test_accumulated_minibatches_make_one_update_and_an_epoch_ends_with_what_is_left(reversal, tmp_path, monkeypatch):
    plans, batches = [], TrainingSetup.batches
    monkeypatch.setattr(TrainingSetup, "batches", lambda setup, plan: plans.append(plan) or batches(setup, plan))
    config = replace(CONFIG, batch_size=400, accumulate=3, max_updates=0, epochs=2.0, validate_every="epoch")
    events = train(reversal, tmp_path / "model", config)
    assert events[-1].update == 2 * 3  # 8 minibatches an epoch: 3, 3 and 2 to an update
    assert [event.update for event in events if isinstance(event, Validated)] == [3, 6]
    first, second = map(np.concatenate, plans)
    assert sorted(first) == sorted(second)  # each epoch has all pairs, in another order
    assert list(first) != list(second)


def test_the_last_update_of_a_falling_rate_trains(reversal, tmp_path):
    for name, rate in (("none", 1e-30), ("one", 1e-3)):
        train(reversal, tmp_path / name, replace(CONFIG, schedule="linear", max_updates=1, learning_rate=rate))
    before, after = weights(tmp_path / "none"), weights(tmp_path / "one")
    assert any((before[name] - after[name]).abs().max() > 1e-4 for name in before)


def test_the_seed_fixes_all_and_another_changes_all(reversal, tmp_path):
    config = replace(CONFIG, max_updates=4, batch_size=60)
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        torch.manual_seed(len(name))  # numbers drawn earlier do not matter
        train(reversal, tmp_path / name, replace(config, seed=seed), dropout=0.3)
    assert same(weights(tmp_path / "one"), weights(tmp_path / "again"))
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "other"))


def test_tiny_learns_to_reverse_with_an_anti_diagonal_alignment(reversal, tmp_path):
    course = {"schedule": "linear", "warmup": 20, "learning_rate": 1e-2}
    config = replace(CONFIG, max_updates=220, validate_every="220", checkpoint_every="1000", **course)
    events = train(reversal, tmp_path / "model", config)
    assert events[-1].best_loss < 0.1
    assert trainings.share_on_diagonal(tmp_path / "model", reversal.splits["dev"]) > 0.9
