"""COMET with a stand-in for its package, and with the package itself where that is installed."""

import importlib.util
import logging
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import sha256_of
from nmtalign.scoring.comet import check_comet, comet_scores, comet_statistics, comet_steps

SOURCE = ["one two", "three", "four five six"]
FIRST = ["un deux", "", "quatre cinq six"]
SECOND = ["un", "trois", "quatre cinq six"]
REFERENCE = ["un deux", "trois", "quatre"]


class Metric(torch.nn.Module):
    """Scores a hypothesis by its length over that of source and reference."""

    made = None  # the list of those that were made

    def __init__(self, scale=1.0, pretrained_model="", load_pretrained_weights=True, local_files_only=False):
        super().__init__()
        if pretrained_model == "elsewhere":
            raise OSError("not found in the cache, and\nmany lines more")
        self.hparams = SimpleNamespace(scale=scale)
        self.arguments = load_pretrained_weights, local_files_only
        self.weight = torch.nn.Linear(1, 1, bias=False)
        self.batches = []
        self.made.append(self)
        logging.getLogger("comet").info("made")

    def requires_references(self):
        return True

    def prepare_sample(self, samples, stage):
        assert stage == "predict"
        self.batches.append(samples)
        lengths = [len(sample["mt"]) / max(len(sample["src"]) + len(sample["ref"]), 1) for sample in samples]
        return {"lengths": torch.tensor(lengths), "other": [torch.zeros(1), 3]}

    def predict_step(self, batch):
        return {"scores": self.weight(batch["lengths"].view(-1, 1)).view(-1) * self.hparams.scale}


class Estimator(Metric):
    """Needs no reference."""

    def requires_references(self):
        return False

    def prepare_sample(self, samples, stage):
        return super().prepare_sample(
            [{**sample, "ref": "" if "ref" not in sample else 1 / 0} for sample in samples], stage
        )


class Unified(Metric):
    """Needs no reference, but reads it."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.hparams.input_segments = ["mt", "src", "ref"]

    def requires_references(self):
        return False


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """A package named comet."""
    models = ModuleType("comet.models")
    models.str2model = {"regression_metric": Metric, "estimator": Estimator, "unified": Unified}
    monkeypatch.setitem(sys.modules, "comet", ModuleType("comet"))
    monkeypatch.setitem(sys.modules, "comet.models", models)
    monkeypatch.setattr(Metric, "made", [])


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "wmt-tiny")


def write_model(folder, kind="regression_metric", weight=0.5, more=None, **settings):
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint = {
        "hyper_parameters": {"class_identifier": kind, "validation_data": ["a.csv"], "batch_size": 4, **settings},
        "state_dict": {"weight.weight": torch.full((1, 1), weight), "train_metrics.spearman": torch.zeros(1)},
        "pytorch-lightning_version": "1.8.2",
        **(more or {}),
    }
    torch.save(checkpoint, folder / "checkpoints" / "model.ckpt")
    return folder


def by_hand(source, hypothesis, reference):
    return 0.5 * len(hypothesis) / (len(source) + len(reference))


def test_comet_is_the_mean_of_the_scores_of_sentences(model):
    (found,) = comet_statistics(model, SOURCE, [FIRST], [REFERENCE])
    expected = [by_hand(*texts) for texts in zip(SOURCE, FIRST, REFERENCE, strict=True)]
    assert found.rows == pytest.approx(np.array([[score, 1] for score in expected]))
    assert found.score().value == pytest.approx(100 * sum(expected) / 3)
    assert found.score(np.array([2])).value == pytest.approx(100 * expected[2])
    assert found.values(found.rows) == pytest.approx(100 * np.array(expected))
    assert found.higher_is_better
    assert found.length_ratio() is None


def test_the_signature_tells_model_and_number_of_references(model):
    digits = sha256_of(model / "checkpoints" / "model.ckpt")[:12]
    found = comet_scores(model, SOURCE, FIRST, [REFERENCE, FIRST])
    assert found.signature.startswith(f"COMET|nrefs:2|model:wmt-tiny|sha256:{digits}|scale:100|version:")
    assert found.signed(1000).startswith("COMET|nrefs:2|bs:1000|seed:12345|model:")
    assert found.score().signature == found.signature


def test_of_several_references_the_mean_counts(model):
    one, other = (comet_scores(model, SOURCE, FIRST, [held]) for held in (REFERENCE, SECOND))
    both = comet_scores(model, SOURCE, FIRST, [REFERENCE, SECOND])
    assert both.rows == pytest.approx((one.rows + other.rows) / 2)


@pytest.mark.parametrize("given", ["folder", "checkpoint", "folder of the checkpoint"])
def test_a_model_is_given_by_its_folder_or_its_checkpoint(model, given):
    path = {"folder": model, "checkpoint": model / "checkpoints/model.ckpt"}.get(given, model / "checkpoints")
    assert comet_scores(path, SOURCE, FIRST, [REFERENCE]).score().value > 0


def test_the_model_is_loaded_once_and_equal_sentences_are_scored_once(model):
    done = []
    first, second = comet_statistics(model, SOURCE, [FIRST, SECOND], [REFERENCE], advance=done.append)
    assert len(Metric.made) == 1
    assert Metric.made[0].arguments == (False, True)  # no weights but the checkpoint's, nothing from elsewhere
    assert sum(map(len, Metric.made[0].batches)) == sum(done) == 5 <= comet_steps(2, 1, 3)
    assert first.rows[2].tolist() == second.rows[2].tolist()


def test_settings_of_the_checkpoint_are_taken(tmp_path):
    plain, scaled = (write_model(tmp_path / f"m{scale}", scale=scale) for scale in (1.0, 3.0))
    one, other = (comet_scores(path, SOURCE, FIRST, [REFERENCE]).rows[:, 0] for path in (plain, scaled))
    assert other == pytest.approx(3 * one)


def test_a_model_without_references_is_not_shown_any(tmp_path):
    found = comet_scores(write_model(tmp_path / "qe", "estimator"), SOURCE, FIRST, [REFERENCE, SECOND])
    assert found.signature.startswith("COMET|nrefs:0|")
    assert found.rows[0, 0] == pytest.approx(0.5)


def test_a_model_that_can_do_without_references_is_shown_them(tmp_path):
    found = comet_scores(write_model(tmp_path / "unified", "unified"), SOURCE, FIRST, [REFERENCE])
    assert found.signature.startswith("COMET|nrefs:1|")
    assert found.rows[0, 0] == pytest.approx(by_hand(SOURCE[0], FIRST[0], REFERENCE[0]))


def test_what_cannot_be_read_is_found_before_the_model_is_made(model, tmp_path):
    check_comet(model)
    assert not Metric.made
    (tmp_path / "m.ckpt").write_bytes(b"text")
    for path, message in ((tmp_path / "m.ckpt", "not a COMET checkpoint"), (tmp_path / "x", "no COMET model here")):
        with pytest.raises(FormatError, match=message):
            check_comet(path)


def test_the_program_stays_as_it_was(model, monkeypatch, capfd):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    root = logging.getLogger()
    before = dict(os.environ), root.handlers[:], root.level, root.manager.disable
    comet_scores(model, SOURCE, FIRST, [REFERENCE])
    assert (dict(os.environ), root.handlers[:], root.level, root.manager.disable) == before
    assert capfd.readouterr() == ("", "")


class Intruder:
    """An object whose reading makes a folder."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("switch", [None, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"])
def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, monkeypatch, switch):
    if switch:
        monkeypatch.setenv(switch, "1")
    model = write_model(tmp_path / "model", more={"callbacks": Intruder(tmp_path / "mark")})
    with pytest.raises(FormatError, match=r"model\.ckpt: refused: not a checkpoint of weights") as caught:
        comet_scores(model, SOURCE, FIRST, [REFERENCE])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mark").exists()


def test_a_checkpoint_in_the_old_format_is_refused_too(tmp_path):
    torch.save(
        {"state_dict": {"a": Intruder(tmp_path / "mark")}}, tmp_path / "m.ckpt", _use_new_zipfile_serialization=False
    )
    with pytest.raises(FormatError, match=r"m\.ckpt: "):
        comet_scores(tmp_path / "m.ckpt", SOURCE, FIRST, [REFERENCE])
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a COMET checkpoint"),
        (b"plain text\n", "not a COMET checkpoint"),
        ({"weights": torch.zeros(1)}, "it lacks hyper_parameters or state_dict"),
        (torch.zeros(2), "it lacks hyper_parameters or state_dict"),
    ],
)
def test_what_is_not_a_checkpoint_is_named_in_one_line(tmp_path, content, message):
    path = tmp_path / "m.ckpt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(FormatError, match=message) as caught:
        comet_scores(path, SOURCE, FIRST, [REFERENCE])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_truncated_checkpoint_is_named(model):
    file = model / "checkpoints/model.ckpt"
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(FormatError, match=r"model\.ckpt: not a COMET checkpoint"):
        comet_scores(model, SOURCE, FIRST, [REFERENCE])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "other"}, "not a model that COMET knows \\(class_identifier 'other'\\)"),
        ({"kind": ["x"]}, "not a model that COMET knows"),
        (
            {"pretrained_model": "elsewhere"},
            r"tokeniser \(elsewhere\) are not on this machine, and nothing is downloaded",
        ),
    ],
)
def test_models_that_cannot_be_made_are_named(tmp_path, settings, message):
    with pytest.raises(FormatError, match=message) as caught:
        comet_scores(write_model(tmp_path / "model", **settings), SOURCE, FIRST, [REFERENCE])
    assert "\n" not in str(caught.value)


def test_weights_that_are_missing_or_of_another_shape_are_named(tmp_path):
    lacking = write_model(tmp_path / "a", more={"state_dict": {"other": torch.zeros(1)}})
    with pytest.raises(FormatError, match=r"damaged: it lacks weight.weight and 0 more"):
        comet_scores(lacking, SOURCE, FIRST, [REFERENCE])
    unfit = write_model(tmp_path / "b", more={"state_dict": {"weight.weight": torch.zeros(2, 2)}})
    with pytest.raises(FormatError, match=r"its weights do not fit its settings"):
        comet_scores(unfit, SOURCE, FIRST, [REFERENCE])


def test_a_score_that_is_not_a_number_is_named(tmp_path):
    model = write_model(tmp_path / "model", weight=float("nan"))
    with pytest.raises(FormatError, match=r"model: its score of a sentence is nan \(hypothesis ''\)"):
        comet_scores(model, ["", "a"], ["", "b"], [["", "c"]])


def test_a_path_without_a_model_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"nowhere: no COMET model here \(no such file\)"):
        comet_scores(tmp_path / "nowhere", SOURCE, FIRST, [REFERENCE])
    with pytest.raises(FormatError, match=r"no COMET model here \(no checkpoints/model.ckpt in it\)"):
        comet_scores(tmp_path, SOURCE, FIRST, [REFERENCE])


def test_the_source_is_needed_and_one_line_a_sentence(model):
    with pytest.raises(UsageError, match="give it with -s"):
        comet_scores(model, None, FIRST, [REFERENCE])
    with pytest.raises(InputError, match="one line for each"):
        comet_scores(model, SOURCE, FIRST[:2], [REFERENCE])


def test_where_comet_is_not_installed_the_error_says_how_to(model, monkeypatch):
    monkeypatch.delitem(sys.modules, "comet.models")
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(UsageError, match=r'^COMET is not installed: pip install "nmtalign\[comet\]"$'):
        comet_scores(model, SOURCE, FIRST, [REFERENCE])


def test_a_package_that_comet_lacks_is_named(model, monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "comet.models":
                raise ModuleNotFoundError("No module named 'pkg_resources'", name="pkg_resources")

    monkeypatch.delitem(sys.modules, "comet.models")
    sys.modules["comet"].__path__ = []
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(UsageError, match=r"^COMET needs pkg_resources: pip install"):
        comet_scores(model, SOURCE, FIRST, [REFERENCE])


@pytest.mark.skipif(importlib.util.find_spec("comet") is None, reason="COMET is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["RegressionMetric", "ReferencelessRegression", "UnifiedMetric"])
def test_scores_are_those_of_comet_itself(tmp_path, monkeypatch, kind):
    monkeypatch.undo()  # the real package
    comet = importlib.import_module("comet.models")
    encoder = write_encoder(tmp_path / "encoder")
    settings = {"pretrained_model": encoder, "load_pretrained_weights": False, "hidden_sizes": [8, 4]}
    settings |= {"layer_norm": False, "local_files_only": True, "layer_transformation": "sparsemax"}
    settings |= (
        {"input_segments": ["mt", "src", "ref"], "word_level_training": False} if kind == "UnifiedMetric" else {}
    )
    torch.manual_seed(3)
    original = getattr(comet, kind)(**settings)
    names = {"RegressionMetric": "regression_metric", "UnifiedMetric": "unified_metric"}
    hyper_parameters = {**original.hparams, "class_identifier": names.get(kind, "referenceless_regression_metric")}
    path = tmp_path / "model.ckpt"
    torch.save({"hyper_parameters": hyper_parameters, "state_dict": original.state_dict()}, path)
    keys = ("src", "mt") if kind == "ReferencelessRegression" else ("src", "mt", "ref")
    samples = [dict(zip(keys, texts, strict=False)) for texts in zip(SOURCE, FIRST, REFERENCE, strict=True)]
    expected = original.predict(samples, gpus=0, progress_bar=False, num_workers=0)["scores"]
    found = comet_scores(path, SOURCE, FIRST, [REFERENCE])
    assert found.rows[:, 0] == pytest.approx(np.array(expected), abs=1e-6)


def write_encoder(folder: Path) -> str:
    """A tiny encoder's settings and tokeniser."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import XLMRobertaConfig, XLMRobertaTokenizerFast

    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    settings = {"vocab_size": 60, "special_tokens": specials, "unk_token": "<unk>", "show_progress": False}
    trainer = trainers.UnigramTrainer(**settings)
    pieces.train_from_iterator([*SOURCE, *SECOND], trainer)
    pieces.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = XLMRobertaTokenizerFast(tokenizer_object=pieces)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
    XLMRobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes).save_pretrained(folder)
    return str(folder)
