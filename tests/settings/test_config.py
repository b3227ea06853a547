"""Settings, workspace file and presets: precedence, small corpora, and errors that name the most similar name."""

import os
import re

import pytest

from nmtalign.errors import UsageError
from nmtalign.settings.definition import Workspace, load_workspace, resolve, seconds
from nmtalign.settings.presets import AUTO, PRESETS, budget_of, fitted_to_corpus, preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.budget import count_words, training_layers

TOML = """
source_language = "en"
target_language = "fr"
data = "prepared"

[corpus]
train = ["train.en", "train.fr"]
gold = "test.align"

[train]
preset = "tiny"
hidden = 48
learning_rate = 1
"""


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "work" / "nmtalign.toml"
    path.parent.mkdir()
    path.write_text(TOML)
    return path


def test_paths_are_resolved_against_the_files_folder(workspace):
    loaded = load_workspace(workspace)
    assert loaded.data == workspace.parent / "prepared"
    assert loaded.pairs["train"] == (workspace.parent / "train.en", workspace.parent / "train.fr")
    assert loaded.gold == workspace.parent / "test.align"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nhiden = 3", r"nmtalign.toml: line 2: \[train\]: unknown setting 'hiden'.*'hidden'"),
        ("data = 'd'\n\n[trian]\nhidden = 3", r"nmtalign.toml: line 3: unknown setting 'trian'.*'train'"),
        ("[train]\nhidden = 3\n[prep]\nbeam = 4", r"nmtalign.toml: line 4: \[prep\]: 'beam' belongs in \[translate\]"),
        ("\ufeffbeam = 4", r"nmtalign.toml: line 1: 'beam' belongs in \[translate\]"),  # as Windows' editor saves it
        ("\ufeffpreset = tiny", r"a text is written in quotes: preset = \"tiny\"$"),
        ("# mine\nbeam = 4", r"nmtalign.toml: line 2: 'beam' belongs in \[translate\]"),
        ("preset = 'tiny'", r"line 1: 'preset' belongs in \[train\]$"),
        ("gold = 'test.align'", r"line 1: 'gold' belongs in \[corpus\]$"),
        ("train = ['a', 'b']", r"nmtalign.toml: 'train' names texts, and belongs in \[corpus\]$"),
        ("model = '-'", 'nmtalign.toml: model = "-": cannot be the name of a file'),
        ("[corpus]\ntest = ['-', 'b']", r'nmtalign.toml: \[corpus\] test = "-": cannot be the name of a file'),
        ('[corpus]\ngold = "a\\u0000b"', r"nmtalign.toml: \[corpus\] gold = .*: cannot be the name of a file"),
        ("[prep]\nsource_language = 'en'", r"line 2: \[prep\]: 'source_language' belongs before the first \[section\]"),
        ("[train]\npreset = tiny", r"not a TOML file: .*at line 2.*; a text is written in quotes: preset = \"tiny\"$"),
        ("[train]\nmax_time = 15m", r"at line 2.*; a text is written in quotes: max_time = \"15m\"$"),
        ("[train]\nbidirectional = True", r"at line 2.*; write bidirectional = true$"),
        ("[train]\nhidden: 3", r"at line 2.*; write hidden = 3$"),
        ("data = data/", r"at line 1.*; a text is written in quotes: data = \"data/\"$"),
        ("[train]\nhidden = '3'", r'hidden = "3": must be a whole number'),
        ("[train]\ncell = 'rnn'", r'cell = "rnn": must be one of paper, cudnn'),
        ("[train]\npreset = 'smal'", r'\[train\] preset = "smal": must be one of rnnsearch-50, .*tiny'),
        ("[corpus]\ntrain = ['a']", "must be two files"),
        ("[corpus]\ntrain = 3", "must be two files"),
        ("[corpus]\ntrian = ['a', 'b']", "nearest known one is 'train'"),
        ("train = 3", "must be a table"),
        ("data = ", "not a TOML file"),
        ("[train]\nsource_vocabulary_size = 7", "unknown setting"),
        ("a = " + "[" * 100_000, "not a TOML file: nested too deeply"),
        ("\n" * (1 << 20) + "a = 1", "not a TOML file: larger than 1 MiB"),
        ("[train]\nhidden = 1000000000", "hidden = 1000000000: must be at most 1048576"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_in_one_line(tmp_path, text, message):
    path = tmp_path / "nmtalign.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as raised:
        resolve(ModelConfig, load_workspace(path).section("train"))
    assert re.match(rf"{path}: .+\Z", str(raised.value))


def test_a_pipe_in_the_place_of_the_file_does_not_hang(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("nmtalign.toml")
    with pytest.raises(UsageError, match=r"nmtalign\.toml: cannot read: not a regular file"):
        load_workspace(None)


def test_a_missing_config_is_an_error_only_if_it_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_workspace(None) == Workspace()
    with pytest.raises(UsageError, match=r"absent\.toml"):
        load_workspace(tmp_path / "absent.toml")
    (tmp_path / "nmtalign.toml").symlink_to("absent.toml")
    with pytest.raises(UsageError, match=r"nmtalign\.toml: cannot read: No such file"):
        load_workspace(None)


def test_the_papers_presets_are_the_papers_for_every_corpus():
    updates = {"rnnsearch-50": 288_000, "rnnsearch-30": 471_000, "rnnencdec-50": 600_000, "rnnencdec-30": 846_000}
    for name, count in updates.items():
        model, training = (resolve(cls, (name, preset(name))) for cls in (ModelConfig, TrainingConfig))
        assert (model.hidden, model.embedding, model.maxout, model.output_rank) == (1000, 620, 500, 620)
        assert (model.cell, model.order) == ("paper", "look-generate-update")
        assert (model.attention == "additive") == model.bidirectional == name.startswith("rnnsearch")
        assert (training.optimizer, training.rho, training.epsilon, training.clip_norm) == ("adadelta", 0.95, 1e-6, 1)
        assert (training.batch_size, training.batch_unit, training.window) == (80, "sentences", 20)
        assert training.max_length == int(name[-2:])
        assert (training.max_updates, training.epochs, training.patience) == (count, 0, 0)
        assert not any(fitted_to_corpus(name, words) for words in (1, 2_000, 25_000, 10**9))


@pytest.mark.parametrize(
    "text", ["5400s", "90m", "1.5h", "1h30m", "1h 30min", "90min", "90 minutes", "1.5 H", "1 hour 1800 s", "01:30:00"]
)
def test_an_hour_and_a_half_in_every_spelling(text):
    assert seconds("max_time", text) == 5400


@pytest.mark.parametrize("text", ["", "90", "0s", "1:30", "h", "5 days", "1h 2h", "-5m", "1e3s", "30m1h"])
def test_what_is_no_time(text):
    with pytest.raises(UsageError, match="give a time such as 60s, 15m, 2h or 1h30m"):
        seconds("max_time", text)


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
