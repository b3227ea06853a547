"""The lesson: its numbers are those of the models, and its presets show what they promise."""

import json
import re

import numpy as np
import pytest
import torch
from helpers import naive_recurrent
from helpers.core_models import spread

from nmtalign import lesson
from nmtalign.errors import InputError, UsageError
from nmtalign.lesson import kept_words, reordered_phrase, vector_changes, write_lesson
from nmtalign.model_directory import load_model
from nmtalign.translating.translator import Translator

ENGLISH = ["the", "red", "car", "house", "is", "big", "a", "small"]
FRENCH = ["la", "voiture", "rouge", "maison", "est", "grande", "une", "petite"]
LINES = ["the red car is big", "a house", "the small house is red", "a red car is a big car", "the zebra is small"]
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, random_model_directory):
    root = tmp_path_factory.mktemp("lesson")
    search = random_model_directory(root / "search", ENGLISH, FRENCH, spread)
    fixed = random_model_directory(root / "fixed", ENGLISH, FRENCH, spread, attention="none", seed=5)
    (root / "test.en").write_text("".join(line + "\n" for line in [*LINES, f"the {HOSTILE}"]))
    (root / "test.fr").write_text("la voiture rouge est grande\nune maison\nla petite maison\nune\nla\nla\n")
    return root, search, fixed


def written(folders, tmp_path, models, **details):
    root, *_ = folders
    notes = []
    texts = [root / "test.en", root / "test.fr"]
    write_lesson(models, texts, tmp_path / "page.html", notify=notes.append, **details)
    page = (tmp_path / "page.html").read_text()
    return json.loads(re.search(r'data-kind="lesson">(.*?)</script>', page, re.S)[1]), page, notes


def test_the_numbers_are_those_of_the_translations(folders, tmp_path):
    _, search, fixed = folders
    data, page, notes = written(folders, tmp_path, [fixed, search])  # in any order
    assert HOSTILE not in page
    assert "open it in a browser" in notes[0]
    sentences = {sentence["name"]: sentence for sentence in data["sentences"]}
    first = sentences["test.en, line 1"]
    found, other = (next(Translator.load(model, device="cpu").translate([LINES[0]])) for model in (search, fixed))
    assert first["source"] == [*LINES[0].split(), "</s>"]
    assert first["target"] == [*found.tokens, "</s>"]
    np.testing.assert_allclose(first["weights"], found.alignment, rtol=1e-3)
    np.testing.assert_allclose(first["probabilities"], np.exp(found.n_best[0].token_log_probs), rtol=1e-3)
    assert [text["words"] for text in first["texts"]] == [found.text.split(), other.text.split()]
    np.testing.assert_allclose(first["changes"], vector_changes(load_model(fixed, "cpu"), LINES[0].split()), rtol=1e-3)
    assert [len(sentence["source"]) for sentence in data["sentences"]] == sorted(
        len(sentence["source"]) for sentence in data["sentences"]
    )
    for name, note, number in data["presets"]:
        assert name
        assert note
        assert data["sentences"][number]


def test_without_a_model_without_attention(folders, tmp_path):
    data, _, _ = written(folders, tmp_path, [folders[1]], limit=2, title="A title")
    assert len(data["models"]) == 1
    assert {len(sentence["texts"]) for sentence in data["sentences"]} == {1}
    assert not any("changes" in sentence for sentence in data["sentences"])
    assert {sentence["name"] for sentence in data["sentences"]} == {"test.en, line 1", "test.en, line 2"}
    assert "<title>A title</title>" in (tmp_path / "page.html").read_text()


@torch.no_grad()
def test_the_change_of_the_fixed_vector_equals_the_loop(folders):
    loaded = load_model(folders[2], "cpu")
    words = LINES[0].split()
    ids = [*loaded.source_vocabulary.encode(words), 0]
    model = loaded.model.double()
    _, vector, _ = naive_recurrent.annotate(model, ids)
    for place, change in enumerate(vector_changes(load_model(folders[2], "cpu"), words)):
        _, other, _ = naive_recurrent.annotate(model, [*ids[:place], 1, *ids[place + 1 :]])
        assert change == pytest.approx(float((other - vector).norm() / vector.norm()), abs=1e-3)


def test_presets_are_found_where_they_show(monkeypatch, folders, tmp_path):
    monkeypatch.setattr(lesson, "links_of", lambda found: [(k, k) for k in range(len(found.source_tokens))])
    data, _, _ = written(folders, tmp_path, [folders[1]])
    assert [name for name, _, _ in data["presets"]] == ["Monotonic"]
    monkeypatch.setattr(lesson, "links_of", lambda found: [(1, 0), (0, 1)])
    data, _, _ = written(folders, tmp_path, [folders[1], folders[2]])
    assert [name for name, _, _ in data["presets"]] == ["Reordered phrase", "Fixed vector"]


def test_reordered_phrases_and_kept_words():
    assert reordered_phrase([(0, 0), (3, 1), (2, 2), (1, 3), (4, 4)]) == [(3, 1), (2, 2), (1, 3)]
    assert reordered_phrase([(0, 0), (1, 1)]) == []
    assert reordered_phrase([]) == []
    assert kept_words("the red car", "a red big car") == [False, True, True]
    assert kept_words("", "a") == []


def test_wrong_models_and_texts(folders, tmp_path):
    root, search, fixed = folders
    page, texts = tmp_path / "page.html", [root / "test.en", root / "test.fr"]
    for models in ([fixed], [search, search], [search, fixed, fixed]):
        with pytest.raises(UsageError, match="needs one model with attention, and at most one without"):
            write_lesson(models, texts, page)
    (tmp_path / "long").write_text("the " * 50 + "\n")
    with pytest.raises(UsageError, match="long: has no sentence of 1 to 40 tokens"):
        write_lesson([search], [tmp_path / "long"] * 2, page)
    with pytest.raises(InputError, match="long: has no line 2"):
        write_lesson([search], [root / "test.en", tmp_path / "long"], page)
    assert not page.exists()
