"""Confidence: the fit, its limits, and how lines in several pieces and models without calibration are treated."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.search.beam_search import Hypothesis
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.translating.file_translation import OutputFormat
from nmtalign.translating.translator import Calibration, Translator, mean_probability

NUMBERS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=20, max_size=60)


def hypothesis(words, probability):
    log_prob = (words + 1) * math.log(probability)
    return Hypothesis(tuple(range(2, 2 + words)), log_prob, log_prob, (log_prob / (words + 1),) * (words + 1))


def test_the_fit_finds_the_function_that_made_the_data():
    numbers = np.random.default_rng(3)
    probabilities = numbers.uniform(0.1, 1, 5000)
    truth = 1 / (1 + np.exp(-(-2 + 5 * probabilities)))
    calibration = Calibration.fit(probabilities.tolist(), numbers.binomial(1, truth).astype(float).tolist())
    assert calibration is not None
    assert (calibration.offset, calibration.slope) == (pytest.approx(-2, abs=0.2), pytest.approx(5, abs=0.4))
    found = calibration.of([hypothesis(9, 0.5)])
    assert found == pytest.approx(1 / (1 + math.exp(-(-2 + 5 * 0.5))), abs=0.03)


@given(NUMBERS)
def test_confidence_lies_between_0_and_1_and_grows_with_the_probability(numbers):
    calibration = Calibration.fit(*map(list, zip(*numbers, strict=True)))
    assert calibration is not None
    found = [calibration.of([hypothesis(4, probability)]) for probability in (1e-9, 0.1, 0.5, 0.99)]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] <= 1
    assert Calibration.parse(str(calibration)) == calibration
    mean = sum(calibration.of([hypothesis(4, max(p, 1e-300))]) for p, _ in numbers) / len(numbers)
    assert mean == pytest.approx(sum(quality for _, quality in numbers) / len(numbers), abs=0.02)


def test_pieces_count_by_their_tokens():
    calibration = Calibration(-1.0, 4.0, 100)
    parts = [hypothesis(9, 0.9), hypothesis(4, 0.2)]
    each = [calibration.of([part]) for part in parts]
    assert calibration.of(parts) == pytest.approx((10 * each[0] + 5 * each[1]) / 15)
    assert calibration.of([Hypothesis((), 0.0, 0.0, (0.0,))]) == 1
    assert mean_probability(parts[0]) == pytest.approx(0.9)


def test_another_text_is_no_calibration():
    right = {"version": 1, "offset": 0, "slope": 1, "sentences": 5}
    assert Calibration.parse(json.dumps(right)) == Calibration(0, 1, 5)
    changes = {"version": 2}, {"offset": "a"}, {"slope": -1}, {"offset": math.nan}, {"offset": math.inf}
    for text in ("", "x", "[]", "{}", *(json.dumps(right | change) for change in changes)):
        assert Calibration.parse(text) is None, text
    assert Calibration.parse(json.dumps(right).replace(', "sentences": 5', "")) is None


def test_only_one_calibrated_model_gives_a_confidence(tmp_path, random_model_directory):
    folder = random_model_directory(tmp_path / "model", ["the", "fox"], ["le", "renard"], lambda model: None)
    plain = Translator.load(folder, beam=2, threads=1)
    (without,) = plain.translate(["the fox"])
    assert without.confidence is None
    assert "confidence" not in json.loads(OutputFormat(TranslateConfig(format="json")).lines(0, without))
    loaded = replace(plain.loaded, metadata={"calibration": str(Calibration(-1.0, 4.0, 100))})
    found, blank = Translator(loaded, plain.config).translate(["the fox", ""])
    best = found.n_best[0]
    probability = math.exp(best.log_prob / (len(best.tokens) + 1))
    assert found.confidence == pytest.approx(1 / (1 + math.exp(1 - 4 * probability)))
    assert blank.confidence == 1
    written = json.loads(OutputFormat(TranslateConfig(format="json")).lines(0, found))
    assert written["confidence"] == round(found.confidence, 4)
    (both,) = Translator([loaded, loaded], plain.config).translate(["the fox"])
    assert both.confidence is None
