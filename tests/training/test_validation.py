"""Training reports the same figures of the dev set as `nmtalign score` for the same model."""

import dataclasses
import math
from contextlib import nullcontext

import pytest
from helpers import trainings
from helpers.parallel_texts import prepared
from sacrebleu.metrics import BLEU, CHRF

from nmtalign import Translator
from nmtalign.model_directory import describe_model, export_model
from nmtalign.scoring import metrics
from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.scoring_run import Text, translation_of
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.training.checkpoints import Position
from nmtalign.training.events import Noticed, Validated
from nmtalign.training.validation import Validation
from nmtalign.translating.translator import Calibration

COUNT = 50  # sentences
CONFIG = dataclasses.replace(trainings.CONFIG, bleu_sentences=COUNT, max_updates=60, validate_every="30")


@pytest.fixture(scope="module")
def trained(reversal, tmp_path_factory):
    """A model and the events of its training; read only."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    return folder, trainings.train(reversal, folder, CONFIG)


def test_bleu_of_a_validation_is_that_of_score(reversal, trained):
    folder, events = trained
    best = [event for event in events if isinstance(event, Validated) and event.best][-1]
    dev = reversal.splits["dev"]
    source = Text("dev", [dev.source.text(index) for index in range(COUNT)])
    references = [dev.target.text(index) for index in range(COUNT)]
    greedy = TranslateConfig(beam=1, allow_unk=True, threads=1)
    done = translation_of(source, folder, greedy, print, lambda doing, total: nullcontext(lambda done: None))
    ((score,),) = metrics.measure_systems([done.lines], [references], metrics.MetricOptions(("bleu",)))
    assert (best.bleu, best.signature) == (score.score(), score.signature)
    assert score.score() == BLEU().corpus_score(list(done.lines), [references]).score > 0


def test_dev_bleu_of_chinese_counts_characters(tmp_path):
    pairs = [("a b c", "那个猫。"), ("b c d", "看见狗和猫。"), ("c d e", "老师喜欢。")] * 20
    corpus = prepared(tmp_path, pairs, pairs, ("en", "zh"), vocabulary="bytes")
    config = dataclasses.replace(trainings.CONFIG, max_updates=2, validate_every="1")
    events = trainings.train(corpus, tmp_path / "new", config)
    assert {event.signature.split("|tok:")[1][:3] for event in events if isinstance(event, Validated)} == {"zh|"}
    assert not any("4-gram" in event.text for event in events if isinstance(event, Noticed))


def test_a_dev_set_without_4_grams_is_reported_once(tmp_path):
    pairs = [("un chat", "un chat"), ("deux chats", "deux chats")] * 20
    events = trainings.train(prepared(tmp_path, pairs, pairs), tmp_path / "model")
    assert sum("4-gram" in event.text for event in events if isinstance(event, Noticed)) == 1


@pytest.mark.parametrize(("max_length", "messages"), [(0, 0), (3, 1), (4, 0)])
def test_dev_sentences_far_longer_than_those_of_the_training_are_reported(tmp_path, max_length, messages):
    corpus = prepared(tmp_path, [("un chat", "un chat")] * 20, [("un chat", "un chat " * 20)])
    config = dataclasses.replace(trainings.CONFIG, max_updates=1, max_length=max_length)
    events = trainings.train(corpus, tmp_path / "model", config)
    assert sum("up to 40 tokens" in event.text for event in events if isinstance(event, Noticed)) == messages


def test_the_loss_decides_if_bleu_is_equal_or_not_of_the_same_sentences():
    config = dataclasses.replace(trainings.CONFIG, metric="bleu", patience=2)
    position, best = Position(), []
    for bleu, loss in (
        *((0.0, 6.0), (0.0, 5.0), (0.0, 5.5), (1.0, 5.6), (1.0, 5.6), (0.5, 4.0)),
        *((None, 5.7), (None, 5.5), (None, math.nan), (2.0, 5.6), (2.0, 5.4), (3.0, 5.9)),  # bleu_sentences was 0
    ):
        score = None if bleu is None else Statistics.of_segments("BLEU", [bleu])
        validation = Validation(loss, loss * 5, score, ("", "", ""), references=["un chat"] * (3 if score else 0))
        best.append(validation.judge(position, config, (1, 0.1, 1.0)).best)
    assert best[:6] == [True, True, False, True, False, False]
    assert best[6:] == [False, True, False, False, True, True]
    assert (position.best_bleu, position.best_loss, position.since_best) == (3.0, 5.9, 0)
    for bleu, loss, count, better in ((9.0, 6.0, 2, False), (1.0, 5.8, 2, True), (1.5, 6.0, 2, True)):
        validation = Validation(
            loss, loss * 5, Statistics.of_segments("BLEU", [bleu]), ("", "", ""), (), (), [""] * count
        )
        assert validation.judge(position, config, (1, 0.1, 1.0)).best == better


def test_a_trained_model_knows_its_confidence(reversal, trained, tmp_path, rounding):
    folder, events = trained
    assert [event for event in events if isinstance(event, Validated)][-1].best
    dev = reversal.splits["dev"]
    translator = Translator.load(folder, beam=1, allow_unk=True, threads=1, device="cpu")
    found = list(translator.translate([dev.source.text(index) for index in range(COUNT)]))
    chrf = [CHRF().sentence_score(each.text, [dev.target.text(index)]).score / 100 for index, each in enumerate(found)]
    confidence = [each.confidence for each in found]
    assert all(0 < each < 1 for each in confidence)
    assert sum(confidence) / COUNT == pytest.approx(sum(chrf) / COUNT, abs=0.02)
    calibration = Calibration.fit([math.exp(each.score) for each in found], chrf)
    assert translator.loaded.metadata["calibration"] == str(calibration)
    export_model(folder, tmp_path / "slim")
    exported = Translator.load(tmp_path / "slim", beam=1, allow_unk=True, threads=1, device="cpu")
    (alone,) = exported.translate([dev.source.text(0)])
    rounding.assert_same(alone.confidence, confidence[0], 1e-6)
    assert describe_model(folder)["files"]["best.safetensors"]["calibration"]["sentences"] == COUNT
    trainings.train(reversal, tmp_path / "again", CONFIG, stop_at=40)
    trainings.train(reversal, tmp_path / "again", CONFIG)
    best = [(model / "best.safetensors").read_bytes() for model in (folder, tmp_path / "again")]
    assert best[0] == best[1]


def test_blank_lines_of_the_dev_set_do_not_count_for_the_confidence(tmp_path):
    pairs = [(f"w{n} w{n % 3} w{n % 5}",) * 2 for n in range(40)]
    corpus = prepared(tmp_path, pairs, [*pairs, *[("", ""), ("", "un chat")] * 5])
    trainings.train(corpus, tmp_path / "model", dataclasses.replace(CONFIG, max_updates=1))
    assert describe_model(tmp_path / "model")["files"]["best.safetensors"]["calibration"]["sentences"] == 40
