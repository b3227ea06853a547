"""The numbers of the teaching page equal plain loops in float64, and its presets show what they promise."""

import base64
import copy
import json
import re

import numpy as np
import pytest
import torch
from helpers import naive_recurrent
from helpers.core_models import spread

from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import make_batch
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.scoring.measuring import bleu
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.teaching import lesson_page
from nmtalign.teaching.lesson import Lesson, energies_of, kept_words, links_of, reordered_phrase
from nmtalign.teaching.lesson_page import SourceSentence, write_lesson
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Alternative, Translation, Translator

ENGLISH = ["the", "red", "car", "house", "is", "big", "a", "small"]
FRENCH = ["la", "voiture", "rouge", "maison", "est", "grande", "une", "petite"]
LINES = ["the red car is big", "a house", "the small house is red", "a red car is a big car", "the zebra is small"]
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, random_model_directory):
    root = tmp_path_factory.mktemp("lesson")
    search = random_model_directory(root / "search", ENGLISH, FRENCH, spread)
    fixed = random_model_directory(root / "fixed", ENGLISH, FRENCH, spread, attention="none", seed=5)
    (root / "test.en").write_text("".join(line + "\n" for line in LINES))
    (root / "test.fr").write_text("la voiture rouge est grande\nune maison\nla petite maison\nune voiture\nla petite\n")
    return root, search, fixed


@pytest.fixture(scope="module")
def lesson(folders):
    return Lesson(folders[1], folders[2])


def data_of(path) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])


def sentence_of(lesson, line, gold="la voiture est grande"):
    found, fixed = (next(Translator(loaded).translate([line])) for loaded in lesson.models.values())
    return found, fixed, lesson.sentence(found, fixed, gold)


def test_every_number_of_a_step_equals_the_loop(lesson, monkeypatch):
    found, _, numbers = sentence_of(lesson, LINES[0])
    model = copy.deepcopy(lesson.search.model).double()
    source = [*lesson.search.source_vocabulary.encode(found.source_tokens), 0]
    target = [*lesson.search.target_vocabulary.encode(found.tokens), 0]
    energies, plain = [], naive_recurrent.energy
    monkeypatch.setattr(naive_recurrent, "energy", lambda *given: energies.append(plain(*given)) or energies[-1])
    log_probs, weights = naive_recurrent.log_probs_and_weights(model, source, target)
    energies = torch.stack(energies).view(weights.shape)
    steps = numbers["steps"]
    assert [len(steps), len(steps[0]["weights"])] == list(weights.shape)
    np.testing.assert_allclose([step["energies"] for step in steps], energies, atol=2e-3, rtol=1e-3)
    np.testing.assert_allclose([step["weights"] for step in steps], weights, atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose([step["probability"] for step in steps], log_probs.exp(), atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose([step["entropy"] for step in steps], -(weights * weights.log()).sum(1), atol=1e-3)
    shares = (energies - energies.amax(1, keepdim=True)).exp()
    np.testing.assert_allclose([step["exponentials"] for step in steps], shares, atol=1e-4, rtol=1e-2)
    np.testing.assert_allclose([step["sum"] for step in steps], shares.sum(1), rtol=1e-2)
    assert sum(step["probability"] == step["top"][0][1] for step in steps) > 0
    assert numbers["most_entropy"] == pytest.approx(np.log(len(source)), abs=1e-3)
    assert numbers["RNNsearch"]["log_prob"] == pytest.approx(float(log_probs.sum()), rel=1e-4)


def test_annotations_change_only_where_they_have_read_the_word(lesson):
    found, _, numbers = sentence_of(lesson, LINES[0])
    ids = [*lesson.search.source_vocabulary.encode(found.source_tokens), 0]
    for loaded, of in ((lesson.search, numbers), (lesson.fixed, numbers["RNNencdec"])):
        model = copy.deepcopy(loaded.model).double()
        for place in range(len(ids) - 1):
            (plain, vector, _), (changed, other, _) = (
                naive_recurrent.annotate(model, line) for line in (ids, [*ids[:place], 1, *ids[place + 1 :]])
            )
            if "steps" not in of:
                expected = float((other - vector).norm() / vector.norm())
                assert of["changes"][place] == pytest.approx(expected, abs=1e-3)
                continue
            for name, half in (("forward", slice(None, 8)), ("backward", slice(8, None))):
                expected = [
                    float((b[half] - a[half]).norm() / a[half].norm()) for a, b in zip(plain, changed, strict=True)
                ]
                assert of[name]["changes"][place] == pytest.approx(expected, abs=1e-3, rel=1e-3)
    assert all(change == 0 for k, row in enumerate(numbers["forward"]["changes"]) for change in row[:k])
    assert all(change == 0 for k, row in enumerate(numbers["backward"]["changes"]) for change in row[k + 1 :])
    units = np.frombuffer(base64.b64decode(numbers["forward"]["units"]), np.int8).reshape(len(ids), 8) / 127
    plain, vector, _ = naive_recurrent.annotate(copy.deepcopy(lesson.search.model).double(), ids)
    np.testing.assert_allclose(units, torch.stack(plain)[:, :8].detach(), atol=0.005)
    assert numbers["RNNencdec"]["size"] == len(vector)


def test_bleu_of_a_reference_without_spaces_counts_its_characters(lesson, folders, tmp_path):
    root, _, _ = folders
    (tmp_path / "test.zh").write_text("那个红色的汽车很大。\n" * len(LINES))
    write_lesson(lesson, (root / "test.en", tmp_path / "test.zh"), tmp_path / "page.html")
    assert "|tok:char|" in data_of(tmp_path / "page.html")["bleu"]["signature"]


def test_bleu_and_sentences_of_the_page(lesson, folders, tmp_path):
    root, _, _ = folders
    notes = write_lesson(lesson, (root / "test.en", root / "test.fr"), tmp_path / "page.html", ["a big house"])
    data = data_of(tmp_path / "page.html")
    gold = (root / "test.fr").read_text().splitlines()
    for name, loaded in lesson.models.items():
        texts = [found.text for found in Translator(loaded).translate(LINES)]
        assert data["bleu"]["all"][name] == pytest.approx(bleu(texts, gold).value, abs=0.01)
        short = [k for k, line in enumerate(LINES) if len(line.split()) <= 5]
        expected = bleu([texts[k] for k in short], [gold[k] for k in short]).value
        assert data["bleu"]["buckets"][0] == {**data["bleu"]["buckets"][0], "words": "1-5", "sentences": 4}
        assert data["bleu"]["buckets"][0][name] == pytest.approx(expected, abs=0.01)
        assert next(m for m in data["models"] if m["name"] == name)["hash"] == loaded.hash[:12]
    lengths = [len(one["source"]) for one in data["sentences"]]
    assert lengths == sorted(lengths)
    own = data["presets"][-1]
    assert data["sentences"][own["example"]]["source"] == ["a", "big", "house", "</s>"]
    assert data["sentences"][own["example"]]["reference"] is None
    missing = [preset["name"] for preset in data["presets"] if preset["example"] is None]
    assert [note.split("'")[1] for note in notes] == missing


def made(source, target, links, text="", log_prob=-0.1) -> Translation:
    source, target = tuple(source.split()), tuple(target.split())
    weights = np.full((len(target) + 1, len(source) + 1), 0.01, np.float32)
    weights[range(len(target)), links] = 0.9
    best = Alternative(text or " ".join(target), target, 0.0, log_prob, (-0.1,) * (len(target) + 1), weights)
    return Translation(Request(" ".join(source)), source, 0, (best,))


def test_presets_are_what_they_say():
    straight = made("the cat sees a dog .", "le chat voit un chien .", [0, 1, 2, 3, 4, 5])
    turned = made("the European Economic Area grows .", "la zone économique européenne croît .", [0, 3, 2, 1, 4, 5])
    wrong = made("the cat sees a dog .", "le chien", [0, 4])
    shown = [SourceSentence(str(k), one, wrong, one.text) for k, one in enumerate((straight, turned))]
    assert lesson_page._monotonic(shown).example is shown[0]
    preset = lesson_page._reordered(shown)
    assert (preset.example, preset.step) == (shown[1], 1)
    assert "“zone économique européenne” reads “European Economic Area”" in preset.note
    assert "source words 4, 3, 2" in preset.note
    assert lesson_page._reordered(shown[:1]).example is None
    assert lesson_page._fixed_vector(shown).example in shown
    assert lesson_page._fixed_vector([SourceSentence("", straight, None, "")]).example is None
    assert reordered_phrase(links_of(made("a b ?", "x y", [2, 1]))) == []  # the mark is no word
    assert kept_words("le chat noir", "le gros chat") == [True, True, False]


def test_an_agreement_is_another_form_of_a_word_far_from_the_change():
    boy, straight = "the boy in the old town is happy .", list(range(9))
    one = made(boy.replace("boy", "girl"), "la fille de la vieille ville est heureuse .", straight)
    two = made(boy, "le garçon de la vieille ville est heureux .", straight)
    assert lesson_page._far(one, two) == (7, 1, 7)
    assert lesson_page._far(one, made(boy, "le garçon de la vieille ville est content .", straight)) is None
    elsewhere = [*straight[:7], 1, 8]
    assert lesson_page._far(one, made(boy, "le garçon de la vieille ville est heureux .", elsewhere)) is None

    class Fake:
        def translate(self, lines):
            return [two if line == two.source else made(line, "rien", [0]) for line in lines]

    shown = [SourceSentence("1", one, None, one.text), SourceSentence("2", two, None, two.text)]
    preset = lesson_page._agreement(shown, Fake())
    assert (preset.example, preset.step) == (shown[0], 7)
    assert "“boy” in place of “girl”, 6 words away" in preset.note


def test_hostile_text_stays_text(random_model_directory, tmp_path):
    model = random_model_directory(tmp_path / "m", [HOSTILE, "b"], [HOSTILE, "d"], spread)
    (tmp_path / "a").write_text(f"{HOSTILE} b\n")
    write_lesson(Lesson(model), (tmp_path / "a", tmp_path / "a"), tmp_path / "p.html", [f"b {HOSTILE}"])
    text = (tmp_path / "p.html").read_text()
    assert "<img" not in text
    assert HOSTILE in " ".join(data_of(tmp_path / "p.html")["presets"][-1]["note"].split())
    assert text.count("<script") == text.count("</script>") == 2
    assert not re.search(r"(src|href)=[\"']?(https?:|//)|@import|url\(", text)
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text


def test_mistakes_are_one_clear_line(folders, lesson, tmp_path, nmtalign):
    root, search, fixed = folders
    for given, message in (
        ((fixed, search), "this model has no attention; give an RNNsearch model with -m"),
        ((search, search), "has attention; --fixed needs one without"),
    ):
        with pytest.raises(UsageError, match=message):
            Lesson(*given)
    with pytest.raises(FormatError):
        Lesson(tmp_path)
    test = root / "test.en", root / "test.fr"
    with pytest.raises(UsageError, match="--sentence ' '"):
        write_lesson(lesson, test, tmp_path / "p.html", [" "])
    with pytest.raises(InputError, match="none"):
        write_lesson(lesson, (root / "none", root / "test.fr"), tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


def test_the_command_writes_the_page_and_names_what_is_missing(folders, nmtalign, tmp_path):
    root, search, _ = folders
    result = nmtalign("explain", root / "test.en", root / "test.fr", "-m", search, "-o", "p.html")
    assert b"no preset 'Fixed vector': no model without attention was given with --fixed" in result.stderr
    assert b"wrote p.html" in result.stderr
    assert data_of(tmp_path / "p.html")["models"][0]["name"] == "RNNsearch"
    result = nmtalign("explain", "-m", search, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"nmtalign: error: no test set: give SRC TGT")


@pytest.mark.parametrize("order", ["look-generate-update", "look-update-generate"])
@pytest.mark.parametrize("attention", [{"attention": "additive"}, {"attention": "general"}, {"coverage": "linguistic"}])
def test_the_softmax_of_the_energies_are_the_weights(order, attention):
    sizes = {"embedding": 6, "hidden": 8, "attention_hidden": 5, "maxout": 6}
    words = {"source_vocabulary_size": 9, "target_vocabulary_size": 9}
    torch.manual_seed(0)
    model = TranslationModel(ModelConfig(**words, **sizes, order=order, initialisation="xavier", **attention)).double()
    batch = make_batch([([2, 3, 4], [5, 6]), ([7, 8, 2], [3, 4])])
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source_mask)
        words = torch.cat([torch.zeros(1, 2, 6).double(), model.target_embedding(batch.target.t()[:-1])])
        run = model.decoder.unroll(memory, words)
        energies = energies_of(model.decoder, run)
    np.testing.assert_allclose(energies.softmax(-1), run.weights, atol=1e-12)
