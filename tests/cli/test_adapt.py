"""A model is adapted to other texts: their corpus has its vocabularies, and the training its architecture."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from helpers.commands import run
from helpers.parallel_texts import write_pairs

import nmtalign as api
from nmtalign.data.corpus import Corpus
from nmtalign.errors import FormatError, UsageError
from nmtalign.model_directory import load_tensors, read_settings
from nmtalign.text.tokenizer import Tokenizers

SIZES = {"hidden": 16, "embedding": 8, "attention_hidden": 12, "maxout": 8, "dropout": 0.3}
QUICK = {"preset": "tiny", "epochs": 0, "bleu_sentences": 0, "metric": "loss", "device": "cpu", "threads": 1}
PAIRS = [("The old fox runs.", "Le vieux renard court."), ("A dog, two dogs!", "Un chien, deux chiens !")]
PAIRS += [("It's a red boat.", "C'est un bateau rouge."), ("The boat sees the fox.", "Le bateau voit le renard.")]
NEWS = [("The red dog sees a zebra.", "Le chien rouge voit un zèbre."), ("Two boats.", "Deux bateaux.")]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with the corpus `data`, the model `model` of it, and the texts of another domain."""
    folder = tmp_path_factory.mktemp("base")
    texts = write_pairs(folder, "train", PAIRS * 20)
    api.prepare(*texts, folder / "data", languages=("en", "fr"), vocabulary="bpe", size="60", workers=1)
    api.train(folder / "data", folder / "model", max_updates=3, **QUICK, **SIZES)
    write_pairs(folder, "news", NEWS * 10)
    return folder


def prepared(base, folder, of, languages=("en", "fr")):
    texts = base / "news.en", base / "news.fr"
    return api.prepare(*texts, folder, languages=languages, vocabulary_from=base / of, workers=1)


def test_another_corpus_has_the_same_words(base, tmp_path):
    summary = prepared(base, tmp_path / "news", "model")
    first, news = Corpus.open(base / "data"), Corpus.open(tmp_path / "news")
    assert news.source_vocabulary == first.source_vocabulary
    assert news.target_vocabulary == first.target_vocabulary
    names = ("vocabulary", "size", "shortlist", "min_count")
    assert [news.settings[name] for name in names] == [first.settings[name] for name in names]
    for name in ("source.vocabulary.txt", "target.vocabulary.txt", *first.tokenizers.files()):
        assert (tmp_path / "news" / name).read_bytes() == (base / "data" / name).read_bytes()
    tokenizers = Tokenizers.load(base / "model")
    tokens = [tokenizers.source.tokenize(line) for line, _ in NEWS]
    found = [news.source_vocabulary.decode(news.splits["train"].source.sentence(i)) for i in range(2)]
    unknown = [[token if token in first.source_vocabulary else "<unk>" for token in line] for line in tokens]
    assert found == unknown
    assert summary.splits["train"].source.unknown_rate > 0  # the zebra
    prepared(base, tmp_path / "same", "data")
    assert (tmp_path / "same/corpus.h5").read_bytes() == (tmp_path / "news/corpus.h5").read_bytes()


def test_two_commands_adapt_a_model(base, tmp_path, nmtalign):
    shutil.copytree(base / "model", tmp_path / "model")
    shown = nmtalign("prep", base / "news.en", base / "news.fr", "--vocabulary-from", "model", "-o", "news")
    assert "next: nmtalign train news --init-from model -o OTHER" in shown.stderr.decode()
    assert "coverage" in shown.stdout.decode()
    options = "--preset tiny --epochs 0 --max-updates 2 --device cpu --set learning_rate=0.001"
    nmtalign("train", "news", "-o", "adapted", "--init-from", "model", *options.split())
    assert read_settings(tmp_path / "adapted")["model"] == read_settings(tmp_path / "model")["model"]
    assert nmtalign("translate", "-m", "adapted", stdin=b"The fox.\n").stdout.count(b"\n") == 1


@pytest.mark.parametrize("weights", ["fp32", "int8"])
def test_an_exported_model_begins_a_training_but_is_not_resumed(base, tmp_path, weights):
    slim = tmp_path / "slim"
    api.export(base / "model", slim, weights=weights)
    prepared(base, tmp_path / "news", "model")
    prepared(base, tmp_path / "again", "model")
    for budget in ({}, {"init_from": slim}):
        with pytest.raises(UsageError, match=r"slim: this model has no training state, .* give --init-from"):
            api.train(tmp_path / "news", slim, max_updates=2, **budget, **QUICK)
    api.train(tmp_path / "news", tmp_path / "m", max_updates=1, learning_rate=1e-60, init_from=slim, **QUICK)
    expected = load_tensors(slim / "best.safetensors")[0]
    trained = load_tensors(tmp_path / "m/last.safetensors")[0]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in trained.items())


def test_soft_attention_continues_as_marginal(base, tmp_path):
    settings = {**QUICK, "max_updates": 1, "learning_rate": 1e-12, "dropout": 0.0, "init_from": base / "model"}
    api.train(base / "data", tmp_path / "new", **settings, attention_kind="marginal", attention_positions=2)
    model = read_settings(tmp_path / "new")["model"]
    assert (model["attention_kind"], model["attention_positions"], model["dropout"]) == ("marginal", 2, 0.0)
    first, new = (load_tensors(folder / "last.safetensors")[0] for folder in (base / "model", tmp_path / "new"))
    for name, weight in first.items():
        torch.testing.assert_close(new[name], weight, rtol=0, atol=1e-9, msg=name)
    translator = api.Translator.load(tmp_path / "new", device="cpu")
    assert [t.text for t in translator.translate([line for line, _ in PAIRS])]


def test_words_and_architecture_must_be_those_of_the_model(base, tmp_path):
    texts = base / "news.en", base / "news.fr"
    api.prepare(*texts, tmp_path / "own", languages=("en", "fr"), shortlist="9", workers=1)
    with pytest.raises(UsageError, match=r"has other words .*: nmtalign prep \.\.\. --vocabulary-from .*model$"):
        api.train(tmp_path / "own", tmp_path / "m", init_from=base / "model", **QUICK)
    with pytest.raises(UsageError, match=r"nmtalign\.train: hidden = 17: the model .*model has hidden = 16"):
        api.train(tmp_path / "own", tmp_path / "m", init_from=base / "model", hidden=17, **QUICK)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("languages", [("fr", "en"), ("de", "fr")])
def test_other_languages_are_refused(base, tmp_path, languages):
    message = f"its words are those of en-fr, and the texts are {'-'.join(languages)}; give texts in en and fr, in this"
    with pytest.raises(UsageError, match=message):
        prepared(base, tmp_path / "x", "model", languages=languages)
    assert not list(tmp_path.iterdir())


def test_words_of_another_model_exclude_settings_of_the_workspace_for_them(base, tmp_path):
    words = "prep", base / "news.en", base / "news.fr"
    toml = tmp_path / "nmtalign.toml"
    toml.write_text(f'[prep]\nvocabulary_from = "{base}/data"\nsize = 50\n')
    result = run(tmp_path, *words)
    assert (result.returncode, "[prep] vocabulary_from =" in result.stderr) == (2, True)
    toml.write_text("[prep]\nsize = 50\nshortlist = 9\n")  # the command line has precedence
    assert run(tmp_path, *words, "--vocabulary-from", base / "data", "-o", "news").returncode == 0
    assert Corpus.open(tmp_path / "news").source_vocabulary == Corpus.open(base / "data").source_vocabulary


def test_a_folder_without_words_is_refused(base, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(base / "model", folder)
    with pytest.raises(UsageError, match="the new corpus would replace files of this folder; give another one with -o"):
        prepared(base, Path(f"{folder}/../copy"), folder)
    (folder / "source.vocabulary.txt").write_text("</s>\n<unk>\n")
    config = json.loads((base / "model/config.json").read_text())
    for changes, of, message in (
        ({}, folder, "was changed after training"),
        ({}, tmp_path, "contains neither a model"),
        ({}, "news.en", "news.en: "),
        ({"prep": {"size": [5]}}, folder, r"copy: prep: size = \[5\]: must be a text"),
        ({"model": {**config["model"], "source_vocabulary_size": 3}}, folder, "do not have the sizes"),
        ({"prep": []}, folder, "'prep' is not an object"),
    ):
        if changes:
            shutil.copy(base / "model/source.vocabulary.txt", folder)
            (folder / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(FormatError, match=message):
            prepared(base, tmp_path / "x", of)
    assert not (tmp_path / "x").exists()
