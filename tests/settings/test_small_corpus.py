"""Presets with a budget in epochs fit a small corpus; the presets of the article never change."""

import pytest

from nmtalign.settings.presets import AUTO, PRESETS, budget_of, fitted_to_corpus, preset
from nmtalign.training.budget import count_words, training_layers


@pytest.mark.parametrize("words", [1, 2_000, 25_000, 10**9])
def test_the_paper_presets_never_change(words):
    assert not any(fitted_to_corpus(name, words) for name in PRESETS if name.startswith("rnn"))


@pytest.mark.parametrize(("name", "updates", "enough"), [("small", 5000, 250_000), ("tiny", 2000, 160_000)])
def test_a_small_corpus_gets_more_updates(name, updates, enough):
    assert "epochs" not in fitted_to_corpus(name, enough)
    for words in (enough - 1, enough // 2, enough // 5, enough // 10):
        found = fitted_to_corpus(name, words)
        assert found["batch_size"] <= preset(name)["batch_size"]
        assert found["epochs"] >= preset(name)["epochs"]
        assert found["epochs"] * words / found["batch_size"] >= updates * 0.99
    assert fitted_to_corpus(name, 1)["epochs"] == 200


def test_larger_corpora_need_less_dropout_and_fewer_epochs():
    dropouts = [fitted_to_corpus("small", words).get("dropout", 0.2) for words in (10**4, 4 * 10**5, 4 * 10**6, 10**8)]
    assert dropouts == sorted(dropouts, reverse=True)
    assert [fitted_to_corpus("small", words).get("epochs", 20) for words in (10**6, 5 * 10**6)] == [20, 20]
    read = [words * fitted_to_corpus("small", words)["epochs"] for words in (6 * 10**6, 10**7, 2 * 10**7)]
    assert read == pytest.approx([1e8] * 3, rel=0.01)
    assert fitted_to_corpus("small", 10**10)["epochs"] == 3


def test_small_learns_faster_on_a_medium_corpus():
    for words, faster in ((300_000, True), (10**6 - 1, True), (10**6, False), (10**7, False)):
        assert (fitted_to_corpus("small", words).get("learning_rate") == 0.004) == faster
        assert "learning_rate" not in fitted_to_corpus("transformer", words)
        assert not fitted_to_corpus("tiny", words)


def test_the_budget_of_a_preset_in_words():
    assert budget_of("rnnsearch-50") == "288,000 updates"
    assert budget_of("small") == "20 epochs, on a small corpus 5,000 updates"


def test_the_fit_lies_between_the_preset_and_what_the_user_gives(reversal):
    layer, words = ("command line", {"epochs": 3.0}), count_words(reversal)
    fitted = f"preset tiny for a corpus of {words:,} words", fitted_to_corpus("tiny", words)
    layers = ("nmtalign.toml", {"init_from": "model"}), ("--set", {"init_from": ""})
    none = training_layers("tiny", layers, reversal.folder)
    assert none[1] == fitted
    for data in (reversal.folder, reversal.folder / "corpus.h5"):
        assert training_layers("tiny", (layer,), data) == (("preset tiny", preset("tiny")), fitted, layer)
    assert training_layers("tiny", (layer,), reversal.folder / "none") == (("preset tiny", preset("tiny")), layer)


@pytest.mark.parametrize("name", [name for name in PRESETS if "epochs" in preset(name) and name != AUTO])
def test_every_size_of_corpus_has_settings(name):
    for words in (1, 10**5, 5 * 10**5, 10**6, 10**7 + 1, 10**8, 10**10):
        epochs = {**preset(name), **fitted_to_corpus(name, words)}["epochs"]
        assert 3 <= epochs <= 200
        assert epochs == 3 or epochs * words <= 1.1e8
