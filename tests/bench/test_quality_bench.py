"""Tests `bench quality`: nmtalign at a tiny size, a fake toolkit, and the settings of the real toolkits."""

import dataclasses
import json
import math
import re
import sys

import pytest
from helpers.parallel_texts import prepare

from bench import quality
from bench.cli import main
from bench.recipes import Recipe, Training, recipes
from nmtalign import Translator
from nmtalign.sample.sample_corpus import write_sample
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.text.tokenizer import Tokenizers

# A fake toolkit: it repeats its input and prints the last lines of a training log.
TRAINS = "print('Total params: 17'); print('dev ppl: 9.00'); print('dev ppl: 4.00')"
TRANSLATES = "import sys; sys.stdout.write(sys.stdin.read())"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A prepared corpus of the sample grammar, and its test set of 20 sentences."""
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder, 300)
    files = {name: (folder / f"{name}.en", folder / f"{name}.fr") for name in ("train", "dev", "test")}
    for path in files["test"]:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:20]))
    prepare(files["train"], folder / "data", PrepConfig(shortlist="500", workers=1), ("en", "fr"), files["dev"])
    return folder


def quality_of(sample, folder, *more):
    test = [str(sample / f"test.{language}") for language in ("en", "fr")]
    options = ["--data", str(sample / "data"), "--test", *test, "--size", "tiny", "--threads", "1", *more]
    return main(["quality", *options, "--folder", str(folder), "--json", str(folder / "found.json")])


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """Makes a toolkit that is already installed."""

    recipe = Recipe(
        *("fake", "Fake 1", []),
        settings=lambda job: {"updates": job.training.updates},
        train=[sys.executable, "-c", TRAINS],
        translate=lambda *_: [sys.executable, "-c", TRANSLATES],
        perplexity=r"dev ppl: ([\d.]+)",
        parameters=r"Total params: (\d+)",
    )
    monkeypatch.setattr(quality, "chosen", lambda text: [recipe])
    folder = tmp_path / "environments" / "fake"
    folder.mkdir(parents=True)
    (folder / "installed").touch()
    return recipe


@pytest.mark.slow
def test_ours_and_a_toolkit_are_measured_alike(sample, tmp_path, capsys, monkeypatch, toolkit):
    name = next(iter(quality.OURS))
    monkeypatch.setattr(quality, "OURS", {name: quality.OURS[name]})
    folder = tmp_path / "work"
    more = ("--peers", "fake", "--peer-env", str(tmp_path / "environments"), "--words", "3000", "--beam", "2")
    assert quality_of(sample, folder, *more, "--batch", "40") == 0
    results = json.loads((folder / "found.json").read_text())
    ours, theirs = results["found"][name], results["found"]["Fake 1"]
    updates = results["training"]["updates"]
    log = [json.loads(line) for line in (folder / "ours-0" / "train.jsonl").read_text().splitlines()]
    assert log[-1]["update"] == updates
    assert json.loads((folder / "fake" / "config.yaml").read_text()) == {"updates": updates}
    config = json.loads((folder / "ours-0" / "config.json").read_text())
    assert (config["training"]["optimizer"], config["training"]["beta2"]) == ("adam", 0.999)
    assert config["training"]["batch_size"] == 40
    assert ours["dev_loss"] == pytest.approx(next(event["loss"] for event in log if event["event"] == "validated"))
    assert theirs["dev_loss"] == math.log(4)
    assert theirs["parameters"] == 17
    assert theirs["bleu"] == pytest.approx(_bleu(sample, (folder / "test.src").read_text().splitlines()), abs=1e-6)
    assert "tok:none" in ours["signature"]
    translator = Translator.load(folder / "ours-0", beam=2)
    lines = (sample / "test.en").read_text().splitlines()
    assert ours["bleu"] == pytest.approx(_bleu(sample, [" ".join(t.tokens) for t in translator.translate(lines)]))
    said = capsys.readouterr().out
    assert "Fake 1" in said
    assert "1.386" in said


def _bleu(sample, lines):
    """BLEU of tokens against the tokens of the test set."""
    import sacrebleu

    target = Tokenizers.load(sample / "data").target
    reference = [" ".join(target.tokenize(line)) for line in (sample / "test.fr").read_text().splitlines()]
    return sacrebleu.corpus_bleu(lines, [reference], tokenize="none", force=True).score


def test_one_that_fails_costs_one_line(sample, tmp_path, capsys, monkeypatch, toolkit):
    broken = dataclasses.replace(toolkit, perplexity="nothing like it")
    monkeypatch.setattr(quality, "chosen", lambda text: [broken])
    more = ("--peers", "fake", "--peers-only", "--peer-env", str(tmp_path / "environments"), "--words", "1")
    assert quality_of(sample, tmp_path / "work", *more) == 0
    assert "fake: no loss on dev in its log: dev ppl: 4.00" in capsys.readouterr().out


def test_texts_of_other_lengths_and_a_corpus_without_dev(sample, tmp_path, capsys):
    short = tmp_path / "short.fr"
    short.write_text("Un renard .\n")
    options = ["quality", "--data", str(sample / "data"), "--size", "tiny", "--folder", str(tmp_path / "work")]
    assert main([*options, "--test", str(sample / "test.en"), str(short)]) == 3
    assert "short.fr: 1 lines, but" in capsys.readouterr().err
    assert main([*options, "--test", str(sample / "test.en"), str(tmp_path / "none")]) == 3


def test_commands_and_settings_of_the_other_toolkits(tmp_path, sample):
    given = {"data": sample / "data", "size": "tiny", "words": 3000, "batch": 40, "learning_rate": 0.002, "beam": 3}
    given |= {"seed": 5, "threads": 1, "test": [sample / "test.en", sample / "test.fr"]}
    task, words = quality.make_task(given, tmp_path)
    assert words == pytest.approx(3000, rel=0.2)
    assert len((tmp_path / "test.src").read_text().splitlines()) == 20
    model = task.texts.size.model
    for name, recipe in recipes("2.0").items():
        job = dataclasses.replace(task.job(name), training=Training(826, 0.002, 3, 5))
        quality.their_training(recipe, tmp_path, job)
        messages = job.config.read_text()
        assert re.search(rf'(dim-rnn|hidden_size)": {model.hidden}\b', messages)
        assert re.search(rf'(dim-emb|embedding_dim|word_vec_size)": {model.embedding}\b', messages)
        assert re.search(r'(mini-batch|batch_size)": 40\b', messages)
        config = json.loads(messages)
        settings = config.get("training", config)
        assert settings["learn-rate" if name == "marian" else "learning_rate"] == 0.002
        assert 826 in (settings.get("updates"), settings.get("train_steps"), int(settings.get("after", "0u")[:-1]))
        if "logging_freq" in settings:  # JoeyNMT requires that it divides, and a report before the last update
            assert 1 < settings["logging_freq"] < 826
            assert 826 % settings["logging_freq"] == 0
        assert settings["cost-type"] == "ce-mean-words" if name == "marian" else settings["normalization"] == "tokens"
        command = recipe.translate(job, tmp_path / "test.src")
        said = " ".join(command) + "".join(path.read_text() for path in job.folder.glob("translate.yaml"))
        assert re.search(r'beam[_-]size"?:? 3\b', said)
