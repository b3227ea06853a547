"""TranslateBatch and AlignBatch: columns in, columns out, in any process, with the texts that the commands print."""

import math
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import nmtalign
from nmtalign import AlignBatch, TranslateBatch, columns
from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel

SOURCE_WORDS = ["the", "fox", "sees", "a", "red", "boat", ".", "7"]
TARGET_WORDS = ["le", "renard", "voit", "un", "bateau", "rouge", ".", "7"]
LINES = ["the fox sees a boat .", "", "a red boat", " \t ", "7", "the the the a", "a red boat"]


def copied(function):
    """As a worker gets it."""
    return pickle.loads(pickle.dumps(function))  # noqa: S301


def sharpen(model):
    for parameter in model.parameters():
        parameter.mul_(3)
    model.readout.output_bias[0] -= 6  # words rather than none


@pytest.fixture(scope="module")
def model(tmp_path_factory, random_model_directory) -> Path:
    return random_model_directory(tmp_path_factory.mktemp("model"), SOURCE_WORDS, TARGET_WORDS, sharpen)


@pytest.fixture(scope="module")
def backward(tmp_path_factory, random_model_directory) -> Path:
    folder = random_model_directory(tmp_path_factory.mktemp("backward"), TARGET_WORDS, SOURCE_WORDS, sharpen, seed=4)
    config = folder / "config.json"
    turned = config.read_text().replace('"source_language": "en"', '"source_language": "fr"')
    config.write_text(turned.replace('"target_language": "fr"', '"target_language": "en"'))
    return folder


@pytest.fixture(scope="module")
def expected(model) -> list[str]:
    """The translations by the translator."""
    texts = [each.text for each in nmtalign.Translator.load(model, beam=3).translate(LINES)]
    assert len(set(texts)) > 4
    return texts


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_text_has_the_same_translation_in_every_batch(model, expected, size) -> None:
    translate, found = TranslateBatch(model, beam=3), []
    for at in range(0, len(LINES), size):
        batch = {"id": [7] * size, "text": LINES[at : at + size], "other": object()}
        result = translate(batch)
        assert (list(result), "translation" in batch) == (["id", "text", "other", "translation"], False)
        assert (result["id"], result["other"]) == (batch["id"], batch["other"])
        found += result["translation"]
    assert found == expected


def test_links_are_those_of_the_command(model, backward) -> None:
    targets = ["le renard voit un bateau .", "", "un bateau rouge", "le", "7", "", "un"]
    for models, settings in ((model, {"reading": "shifted"}), ([model, backward], {"symmetrize": "union"})):
        records = nmtalign.align(models, zip(LINES, targets, strict=True), **settings)
        links = [" ".join(f"{i}-{j}" for i, j in record.hard_links) for record in records]
        assert len("".join(links)) > 20
        align = copied(AlignBatch(models, **settings))
        assert align({"source": LINES, "target": np.array(targets, object)})["links"] == links
    with pytest.raises(nmtalign.UsageError, match="the columns source, target have 6 and 7 rows"):
        align({"source": LINES, "target": targets[:-1]})


def test_columns_may_be_arrays_and_have_any_names(model, expected) -> None:
    translate = TranslateBatch(model, beam=3, text_column="a b", output_column="x")
    for values in (np.array(LINES, object), np.array(LINES), tuple(LINES)):
        assert translate({"a b": values})["x"] == expected
    result = translate({"a b": np.array(LINES, object)})["x"]
    assert {type(text) for text in result} == {str}


def test_missing_texts_stay_missing_and_others_are_refused(model, expected) -> None:
    texts = [None, LINES[0], float("nan"), LINES[2], np.float32("nan"), type("NAType", (), {})()]
    assert TranslateBatch(model, beam=3)({"text": texts})["translation"] == [
        *(None, expected[0], None, expected[2], None, None)
    ]
    batch = {"source": ["a", None, "a"], "target": [math.nan, "le", "le"]}
    assert AlignBatch(model)(batch)["links"][:2] == [None, None]
    for values, row in (([LINES[0], 7], 1), (np.array([1.5, math.nan]), 0), ([b"a"], 0), ([["a"]], 0)):
        with pytest.raises(nmtalign.InputError, match=f"column 'text', row {row} of the batch: .* is not a text"):
            TranslateBatch(model)({"text": values})


def test_a_text_is_one_line(model, expected) -> None:
    text = "\n".join(["the fox", "sees a\r", "boat ."])
    assert TranslateBatch(model, beam=3)({"text": [text, "\n"]})["translation"] == [expected[0], ""]


def test_an_empty_batch_needs_no_model() -> None:
    assert TranslateBatch("missing")({"text": [], "id": []}) == {"text": [], "id": [], "translation": []}
    assert AlignBatch("missing")({"source": [None], "target": ["a"]})["links"] == [None]
    with pytest.raises(nmtalign.FormatError, match="missing"):
        TranslateBatch("missing")({"text": ["a"]})


def test_columns_that_do_not_fit_are_named(model) -> None:
    for batch, message in (
        ({"txt": ["a"], "id": [1]}, "the batch has no column 'text', only txt, id; name it with text_column"),
        ({"text": "the fox"}, r"column 'text' is one text, .*batched=True"),
        ({"text": ["a"], "translation": ["b"]}, "has a column 'translation' already; .* output_column"),
    ):
        with pytest.raises(nmtalign.UsageError, match=message):
            TranslateBatch(model)(batch)


def test_wrong_settings_are_refused_before_any_batch() -> None:
    for make, settings, message in (
        (TranslateBatch, {"beem": 3}, r"nmtalign.TranslateBatch: unknown setting 'beem'; .* 'beam'"),
        (TranslateBatch, {"beam": 0}, "nmtalign.TranslateBatch: beam = 0: must be at least 1"),
        (TranslateBatch, {"sample": True}, "nmtalign.TranslateBatch: sample = true: a column has the best translation"),
        (TranslateBatch, {"n_best": 5}, "n_best = 5: a column has the best translation"),
        (AlignBatch, {"beam": 3}, "nmtalign.AlignBatch: unknown setting 'beam'"),
        (AlignBatch, {"threshold": 2.0}, "nmtalign.AlignBatch: threshold = 2.0: must be at most 1"),
    ):
        with pytest.raises(nmtalign.UsageError, match=message):
            make("model/", **settings)


def test_paths_are_those_of_the_folder_where_it_was_made(model, expected, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(model.parent)
    Path("words.tsv").write_text("fox\trenard\t1.0\n")
    translate = TranslateBatch(model.name, beam=3, lexicon="words.tsv", candidates=10)
    monkeypatch.chdir(tmp_path)
    assert translate({"text": LINES})["translation"] == expected


def test_the_state_is_the_same_before_and_after_a_batch(model, expected) -> None:
    """`datasets` finds its earlier results by the state; and no worker gets a model that it could load."""
    translate = TranslateBatch(model, beam=3)
    before = pickle.dumps(translate)
    translate({"text": LINES})
    assert pickle.dumps(translate) == before
    assert len(before) < 2000
    assert copied(translate)({"text": LINES})["translation"] == expected


def test_each_process_loads_the_model_once(model, monkeypatch) -> None:
    from nmtalign.translating import translator

    loaded = []
    load_model = translator.load_model
    monkeypatch.setattr(translator, "load_model", lambda *given, **also: loaded.append(1) or load_model(*given, **also))
    columns._translator.cache_clear()
    for _ in range(3):
        copied(TranslateBatch(model, beam=2))({"text": LINES})
    assert len(loaded) == 1


@pytest.mark.parametrize(
    ("settings", "variable", "threads"), [({}, "", 1), ({}, "3", 3), ({}, "2,1", 1), ({"threads": 2}, "3", 2)]
)
def test_a_worker_uses_the_threads_that_it_is_given(model, monkeypatch, settings, variable, threads) -> None:
    used, encode, of_model = [], Inference.encode, TranslationModel.encode
    monkeypatch.setattr(Inference, "encode", lambda *given: used.append(torch.get_num_threads()) or encode(*given))
    monkeypatch.setattr(
        TranslationModel, "encode", lambda *given: used.append(torch.get_num_threads()) or of_model(*given)
    )
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    columns._translator.cache_clear()
    torch.set_num_threads(4)
    TranslateBatch(model, **settings)({"text": ["the fox"]})
    AlignBatch(model, **settings)({"source": ["the fox"], "target": ["le renard"]})
    assert used == [threads, threads]
    assert torch.get_num_threads() == 4  # of the caller
    columns._translator.cache_clear()


def test_several_threads_share_one_model(model, expected) -> None:
    translate, found = TranslateBatch(model, beam=3), {}

    def work(number):
        found[number] = translate({"text": LINES * 3})["translation"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(4)] == [expected * 3] * 4


def test_the_process_that_only_makes_it_does_not_import_torch() -> None:
    code = (
        "import sys, nmtalign; nmtalign.TranslateBatch('m'); nmtalign.AlignBatch('m'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
