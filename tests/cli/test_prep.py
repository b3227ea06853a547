import gzip
import json
import re

import pytest
from helpers.commands import run as nmtalign

from nmtalign.data.corpus import Corpus


def write_pairs(folder, name, count=30):
    house, maison = ("house", "maison") if name == "train" else ("garden", "forêt")  # no pair of dev is in train
    (folder / f"{name}.en").write_text("".join(f"the {house} number {i} is red.\n" for i in range(count)))
    (folder / f"{name}.fr").write_text("".join(f"la {maison} numéro {i} est rouge.\n" for i in range(count)), "utf-8")
    return [f"{name}.en", f"{name}.fr"]


def test_prep_with_only_options(tmp_path):
    texts, dev = write_pairs(tmp_path, "train"), write_pairs(tmp_path, "dev", 5)
    done = nmtalign(tmp_path, "prep", *texts, "--dev", *dev, "--test", *dev, "--shortlist", "10:8", "-o", "my data")
    assert done.returncode == 0, done.stderr
    assert "vocabularies: 10 source and 8 target ids; coverage is that of the words with letters\n" in done.stdout
    rows = {tuple(line.split()[:2]): line.split() for line in done.stdout.splitlines()}
    assert rows["train", "30"] == ["train", "30", "30", "0", "0", "0"]
    assert rows["train", "source"][2:5] == ["en", "210", "36"]
    assert rows["test", "target"][2] == "fr"
    few, chosen, end = done.stderr.splitlines()
    assert "the vocabulary is words; --subwords makes it pieces, and no word is unknown" in chosen
    assert few == "nmtalign: only 30 training pairs: expect poor translations of other text"
    assert end == "nmtalign: the corpus is in my data; next: nmtalign train 'my data'"
    assert sorted(Corpus.open(tmp_path / "my data").splits) == ["dev", "test", "train"]


def test_prep_without_arguments_in_a_workspace_and_options_over_it(tmp_path):
    write_pairs(tmp_path, "train")
    write_pairs(tmp_path, "dev", 5)
    (tmp_path / "nmtalign.toml").write_text(
        'source_language = "en"\ntarget_language = "fr"\ndata = "prepared"\n'
        '[corpus]\ntrain = ["train.en", "train.fr"]\ndev = ["dev.en", "dev.fr"]\n[prep]\nshortlist = 12\n'
    )
    done = nmtalign(tmp_path, "prep")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("next: nmtalign train\n")
    assert len(Corpus.open(tmp_path / "prepared").source_vocabulary) == 12
    done = nmtalign(tmp_path, "prep", "--shortlist", "9", "--quiet", "--force")
    assert (done.returncode, done.stderr) == (0, "")
    corpus = Corpus.open(tmp_path / "prepared")
    assert (len(corpus.source_vocabulary), sorted(corpus.splits)) == (9, ["dev", "train"])


def test_standard_input_and_the_numbers_in_the_folder(tmp_path):
    texts = write_pairs(tmp_path, "train")
    options = ["--source-language", "en", "-o", "d"]
    done = nmtalign(tmp_path, "prep", "-", texts[1], *options, stdin=(tmp_path / texts[0]).read_bytes())
    assert done.returncode == 0, done.stderr
    assert "nmtalign: no dev set: " in done.stderr
    summary = json.loads((tmp_path / "d/summary.json").read_text(encoding="utf-8"))
    assert summary["splits"]["train"]["kept"] == 30
    assert summary["splits"]["train"]["source"]["unknown_rate"] == 0
    assert (summary["source_language"], summary["target_language"]) == ("en", "fr")


def test_what_it_says_of_few_pairs_and_few_words_helps(tmp_path):
    texts = write_pairs(tmp_path, "train")
    messages = nmtalign(tmp_path, "prep", *texts, "--shortlist", "3", "-o", "d").stderr
    assert "is the text in" not in messages  # the shortlist leaves these words out
    advice = re.search("--dev-lines [0-9]+", messages)
    assert advice, messages
    messages = nmtalign(tmp_path, "prep", *texts, *advice.group().split(), "-o", "e").stderr
    assert "the corpus is in e;" in messages
    messages = nmtalign(tmp_path, "prep", *write_pairs(tmp_path, "one", 1), "-o", "f").stderr
    assert "nmtalign: only 1 training pair: expect poor translations of other text" in messages
    assert messages.count("give --dev SRC TGT\n") == 1  # nothing can be set aside


def test_a_language_without_rules_is_reported_once(tmp_path):
    write_pairs(tmp_path, "train")
    (tmp_path / "train.fr").rename(tmp_path / "train.tgt")
    done = nmtalign(tmp_path, "prep", "train.en", "train.tgt", "-o", "d")
    assert done.returncode == 0
    assert done.stderr.count("no Moses rules for language 'tgt': those for English are used") == 1


def test_the_other_direction_of_a_workspace_is_prepared(tmp_path):
    source, target = write_pairs(tmp_path, "train")
    (tmp_path / "nmtalign.toml").write_text('source_language = "en"\ntarget_language = "fr"\n')
    done = nmtalign(tmp_path, "prep", target, source, "-o", "back")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "back/summary.json").read_text())["source_language"] == "fr"


def table_of(output, head):
    """The rows of the table that begins with this head: the first column and the next one."""
    lines = output[output.index(head) :].split("\n\n")[0].splitlines()[1:]
    return {line[: len(head)].strip(): line[len(head) :].split()[0] for line in lines}


@pytest.mark.parametrize("name", ["corpus.en-fr.tsv", "-my corpus.en-fr.tmx", "corpus.en-fr.tsv.gz"])
def test_one_file_with_both_languages_cleaned_and_divided(tmp_path, name):
    pairs = [(f"the {word} house is red.", f"la maison {word} est rouge.") for word in "abcdefghijklmnopqrstuvwxyz"]
    pairs += [("Hello", "Hello"), ("Привет, мир", "Bonjour")]
    if ".tmx" in name:
        unit = "<tu><tuv lang='en-GB'><seg>{}</seg></tuv><tuv lang='fr'><seg>{}</seg></tuv></tu>\n"
        units = "".join(unit.format(*pair) for pair in pairs)
        content = f"<tmx>{units}<tu><tuv lang='fr'><seg>seul</seg></tuv></tu></tmx>".encode("utf-8-sig")
    else:
        content = "".join(f"{a}\t{b}\n" for a, b in [("en", "fr"), *pairs]).encode("utf-16")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    done = nmtalign(tmp_path, "prep", "--clean", "--dev-lines", "4", "--test-lines", "3", "--", name)
    assert done.returncode == 0, done.stderr
    left_out = table_of(done.stdout, "left out of train")
    assert (left_out["copy"], left_out["wrong script"], left_out["set aside"]) == ("1", "1", "7")
    assert left_out.get("no translation") == ("1" if ".tmx" in name else None)
    corpus = Corpus.open(tmp_path / "data")
    assert {split: len(pairs) for split, pairs in corpus.splits.items()} == {"train": 19, "dev": 4, "test": 3}
    lines = [(tmp_path / f"data/test.{language}").read_text("utf-8").splitlines() for language in ("en", "fr")]
    assert [corpus.splits["test"].source.text(i) for i in range(3)] == lines[0]
    assert set(zip(*lines, strict=True)) < set(pairs)
    assert "the test text is in data/test.en and data/test.fr" in done.stderr
    # Later commands find the test set.
    (tmp_path / "translation.fr").write_text("".join(f"{line}\n" for line in lines[1]), "utf-8")
    scored = nmtalign(tmp_path, "score", "translation.fr", "--format", "json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["sentences"] == 3


def test_text_that_is_not_raw_is_reported_in_one_line(tmp_path):
    for name in ("train.en", "train.fr"):
        (tmp_path / name).write_text("".join(f"number {i} &apos;s in@@ side , here .\n" for i in range(30)))
    done = nmtalign(tmp_path, "prep", "train.en", "train.fr", "-o", "d", "--quiet")
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("nmtalign: warning: train.en and train.fr: not raw text, but text with escapes of Moses")
    assert all(part in warning for part in ("&apos;", "in@@", "spaces before punctuation", "--vocabulary none"))
    done = nmtalign(tmp_path, "prep", "train.en", "train.fr", "-o", "d2", "--quiet", "--vocabulary", "none")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_content_and_not_the_name_says_that_a_file_has_both_languages(tmp_path):
    (tmp_path / "opus-en-de.tsv").write_text("en-US\ten-GB\tde\ngray\tgrey\tgrau\ncolor\tcolour\tFarbe\n")
    words = (("de", "rot"), ("en-US", "red"), ("en-GB", "pink"))
    unit = "".join(f"<tuv lang='{language}'><seg>{word}</seg></tuv>" for language, word in words)
    alone = "<tu><tuv lang='de'><seg>allein</seg></tuv></tu>"
    (tmp_path / "Projekt.de").write_bytes(gzip.compress(f"<tmx><tu>{unit}</tu>{alone}</tmx>".encode()))
    languages = ("--source-language", "en_GB", "--target-language", "de-DE")
    done = nmtalign(tmp_path, "prep", "opus-en-de.tsv", *languages, "--dev", "Projekt.de", "-o", "d")
    assert done.returncode == 0, done.stderr
    assert "opus-en-de.tsv: column 2 (en-GB) is the source, column 3 (de) the target" in done.stderr
    assert (tmp_path / "d/dev.en").read_text() == "pink\n"
    assert table_of(done.stdout, "left out of dev") == {"no translation": "1"}
    assert sorted(Corpus.open(tmp_path / "d").source_vocabulary.words[2:]) == ["colour", "grey"]


def test_dev_as_one_file_and_the_training_text_from_a_pipe(tmp_path):
    texts = write_pairs(tmp_path, "train")
    sides = [(tmp_path / name).read_text("utf-8").splitlines() for name in texts]
    rows = "".join(f"{a}\t{b}\n" for a, b in zip(*sides, strict=True))
    (tmp_path / "dev.tsv").write_text(f"x\t{rows.splitlines()[0]}\n", "utf-8")
    languages = ("--source-language", "English", "--target-language", "fr_FR")
    options = [*languages, "--dev=dev.tsv", "--set", "columns=1, 2", "-o", "d"]
    (tmp_path / "config.json").touch()  # of another program, not of a model with these vocabularies
    done = nmtalign(tmp_path, "prep", "-", *options, stdin=rows.encode())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d/dev.en").read_text() == "x\n"
    assert done.stderr.endswith("the corpus is in d; next: nmtalign train d\n")
    settings = 'source_language = "en"\ntarget_language = "fr"\n[corpus]\ntrain = "c.tsv"\n'
    (tmp_path / "nmtalign.toml").write_text(settings)
    (tmp_path / "c.tsv").write_text(rows, "utf-8")
    done = nmtalign(tmp_path, "prep")
    assert done.returncode == 0, done.stderr
    assert len(Corpus.open(tmp_path / "data").splits["train"]) == 30
