"""`prep --clean` and sentences that are set aside: each noisy pair is counted under its reason, and no set leaks."""

import json
import random
import shutil
import unicodedata
from pathlib import Path

import pytest
from helpers.parallel_texts import files_of, prepare, write_pairs

from nmtalign.data.corpus import Corpus
from nmtalign.data.screening import _MARKUP, Cleaner, _foreign, _usual_scripts, bare
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import PrepConfig

LANGUAGES = ("en", "fr")
WORDS = ("red", "green", "old", "small", "quiet", "round", "tall", "blue", "white", "poor")
MOTS = ("rouge", "verte", "vieille", "petite", "calme", "ronde", "haute", "bleue", "blanche", "pauvre")
GOOD = [
    (f"The {WORDS[i]} {WORDS[j]} house is by the river.", f"La maison {MOTS[i]} {MOTS[j]} est au bord de l'eau.")
    for i in range(10)
    for j in range(10)
]
NOISE = {
    "broken text": [("It was hot.", "C'Ã©tait l'Ã©tÃ©."), ("A \ufffd dog.", "Un chien."), ("A\x07 cat.", "Un chat.")],
    "no letters": [("1990", "1990"), ("- ...", "Un point.")],
    "copy": [("The work", "The work."), ("ACME 12", "Acme"), ("É tu", unicodedata.normalize("NFD", "É tu"))],
    "wrong script": [("Привет, как дела?", "Bonjour, comment ça va ?"), ("How are you?", "Τι κάνεις σήμερα;")],
    "markup": [("<a href='x.html'><b>go</b></a>", "<a href='x.html'><b>va</b></a>"), ("www.a.org", "Le site")],
    "length ratio": [("Yes.", "Oui, et c'est pourquoi nous avons décidé de partir demain matin très tôt.")],
    "near-duplicate": [("the RED red house is by the river 7!", "La maison rouge rouge est au bord de l'eau, 7")],
}


def cleaned(folder, train, dev=None, **settings):
    config = PrepConfig(clean=True, workers=1, **settings)
    others = write_pairs(folder, "dev", dev) if dev else None
    summary = prepare(write_pairs(folder, "train", train), folder / "data", config, LANGUAGES, others, force=True)
    return dict(summary.splits["train"].dropped)


def test_each_filter_drops_its_noise_and_nothing_else(tmp_path):
    mixed = [*GOOD, *(pair for pairs in NOISE.values() for pair in pairs)]
    random.Random(1).shuffle(mixed)
    counts = {name: count for name, count in cleaned(tmp_path, mixed).items() if count}
    assert counts == {name: len(pairs) for name, pairs in NOISE.items()}
    kept = [mixed[line] for line in Corpus.open(tmp_path / "data").splits["train"].lines]
    assert {(bare(source), bare(target)) for source, target in kept} == {(bare(one), bare(two)) for one, two in GOOD}
    assert cleaned(tmp_path, GOOD) == dict.fromkeys(cleaned(tmp_path, GOOD), 0)


def test_addresses_and_tags_are_markup():
    for text in ("Write to ann.lee@mail.example.org today", "<ann@example.org>", "See www.example.org", "<br/> and"):
        assert _MARKUP.search(text)
    million = "@" * 1_000_000
    for text in ("a @ b. c", "4 < 5 > 3", ">a@b" * 100_000, "x@y", "a" * 1_000_000 + "@", f"a{million}", million):
        assert not _MARKUP.search(text)


def test_sentences_of_dev_leave_the_training_text_and_dev_is_never_changed(tmp_path):
    noisy = [(GOOD[3][0].upper(), "autre chose"), ("other", GOOD[5][1]), ("1990", "1990"), ("x", "x"), ("", "")]
    assert cleaned(tmp_path, GOOD, noisy)["in dev or test"] == 2
    assert json.loads((tmp_path / "data/summary.json").read_text("utf-8"))["splits"]["dev"]["kept"] == len(noisy)


def test_a_language_outside_the_table_has_the_script_of_its_text():
    sample = [("ᐃᓄᒃᑎᑐᑦ ᐅᖃᐅᓯᖅ", "one text")] * 9 + [("one", "another")]
    cleaner = Cleaner(("iu", "en"), sample)
    reasons = [cleaner.reason(pair, (bare(pair[0]), bare(pair[1]))) for pair in sample[-2:]]
    assert reasons == ["", "wrong script"]
    serbian = Cleaner(("uk", "en"), [("dobar dan", "good day")])  # text that is written in another script
    assert serbian.reason(("dobro jutro", "good morning"), ("dobrojutro", "goodmorning")) == ""
    japanese = ("日本語のテキストです", "this is a text in Japanese")
    assert Cleaner(("ja", "en"), [japanese]).reason(japanese, (bare(japanese[0]), bare(japanese[1]))) == ""


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("ja", "エラー"),
        ("ja", "ユーザーのスーパーマーケット"),
        ("ja", "人々"),
        ("vi", unicodedata.normalize("NFD", "Tôi không biết điều gì đã xảy ra ở đó.")),
        ("hi", "हिन्दी में लिखा हुआ"),
    ],
)
def test_letters_of_several_scripts_and_marks_are_not_foreign(language, line):
    assert _foreign(bare(line), _usual_scripts(language, [line] * 10)) == 0
    assert _foreign(bare("Привет"), _usual_scripts(language, [line] * 10)) == 1


@pytest.mark.parametrize("words", [{}, {"vocabulary": "bpe", "size": "90"}])
def test_sets_that_are_set_aside_share_no_sentence_with_the_training_text(tmp_path, words):
    pairs = [*GOOD, *(("Yes.", f"Oui, {i}.") for i in range(20)), *GOOD[:30], ("", "x")]
    config = PrepConfig(dev_lines=20, test_lines=15, workers=1, **words)
    texts = write_pairs(tmp_path, "train", pairs)
    summary = prepare(texts, tmp_path / "data", config, LANGUAGES)
    sets = {}
    for name in ("dev", "test"):
        sides = [(tmp_path / f"data/{name}.{one}").read_text("utf-8").splitlines() for one in LANGUAGES]
        sets[name] = list(zip(*sides, strict=True))
        assert all(pair in pairs for pair in sets[name])
    drawn = sets["dev"] + sets["test"]
    assert (len(sets["dev"]), len(sets["test"]), len(set(drawn))) == (20, 15, 35)
    rest = [p for p in pairs if p[0] and p[0] not in {s for s, _ in drawn} and p[1] not in {t for _, t in drawn}]
    train = summary.splits["train"]
    assert (train.pairs, train.kept, train.dropped["set aside"]) == (len(pairs), len(rest), 35)
    assert train.dropped["in dev or test"] == len(pairs) - 1 - 35 - len(rest)
    assert {name: split.kept for name, split in summary.splits.items()} == {"train": len(rest), "dev": 20, "test": 15}
    prepare(texts, tmp_path / "again", config, LANGUAGES)
    assert files_of(tmp_path / "data") == files_of(tmp_path / "again")


def test_near_duplicates_of_sets_that_are_set_aside_are_dropped_with_clean(tmp_path):
    good = [(source, target.replace("est", "était")) for source, target in GOOD]
    others = [(source.upper() + " 1", unicodedata.normalize("NFD", target) + " !") for source, target in good]
    pairs = [pair for both in zip(good, others, strict=True) for pair in both]
    counts = cleaned(tmp_path, pairs, dev_lines=10)
    assert (counts["near-duplicate"], counts["set aside"], counts["in dev or test"]) == (100, 10, 0)


def test_what_cannot_be_set_aside(tmp_path):
    texts = write_pairs(tmp_path, "train", GOOD)
    with pytest.raises(UsageError, match="dev_lines = 90 does not go with test_lines = 10: too large for 100 diff"):
        prepare(texts, tmp_path / "data", PrepConfig(dev_lines=90, test_lines=10), LANGUAGES)
    with pytest.raises(UsageError, match="dev_lines = 1: too large for 1 different pair of training text"):
        prepare(write_pairs(tmp_path, "one", GOOD[:1]), tmp_path / "data", PrepConfig(dev_lines=1), LANGUAGES)
    with pytest.raises(UsageError, match="dev_lines = 5: there is a dev text, too"):
        prepare(texts, tmp_path / "data", PrepConfig(dev_lines=5), LANGUAGES, texts)
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    for language in LANGUAGES:
        (tmp_path / f"data/dev.{language}").write_text("mine\n")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"data/dev\.en and .*dev\.fr: would be replaced, .* move or"):
            prepare(texts, tmp_path / "data", PrepConfig(dev_lines=5), LANGUAGES, force=force)


def test_texts_of_an_earlier_corpus_are_removed_unless_they_are_given_or_changed(tmp_path):
    texts, folder = write_pairs(tmp_path, "train", GOOD), tmp_path / "data"
    own = [folder / f"{name}.{language}" for name in ("dev", "test") for language in LANGUAGES]

    def prepared(dev=None, **sets):
        prepare(texts, folder, PrepConfig(**sets), LANGUAGES, dev, force=True)
        return [path.exists() for path in own]

    assert all(prepared(dev_lines=5, test_lines=5))
    assert not any(prepared())
    prepared(dev_lines=5, test_lines=5)
    own[0].unlink()  # by the user
    assert all(prepared(dev_lines=6, test_lines=5))
    own[2].write_text("mine\n")
    with pytest.raises(UsageError, match=r"test\.en: would be replaced"):
        prepared(test_lines=5)
    assert prepared(dev=(own[0], own[1])) == [True, True, True, False]


@pytest.mark.parametrize("again", [False, True])
def test_a_prep_that_is_interrupted_while_it_puts_files_in_their_places_can_be_repeated(tmp_path, monkeypatch, again):
    texts, folder, place = write_pairs(tmp_path, "train", GOOD), tmp_path / "data", Path.replace
    for stop_at in range(1, 8):
        if again:
            prepare(texts, folder, PrepConfig(dev_lines=7), LANGUAGES, force=True)
        placed = []

        def replace(path, target, stop_at=stop_at, placed=placed):
            placed.extend([target] if target.parent == folder else [])
            if len(placed) == stop_at:
                raise KeyboardInterrupt
            return place(path, target)

        monkeypatch.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            prepare(texts, folder, PrepConfig(dev_lines=5), LANGUAGES, force=again)
        monkeypatch.undo()
        prepare(texts, folder, PrepConfig(dev_lines=5), LANGUAGES, force=again)
        assert len(Corpus.open(folder).splits["dev"]) == len((folder / "dev.en").read_text("utf-8").splitlines()) == 5
        shutil.rmtree(folder)


def test_new_settings_at_their_defaults_are_not_recorded():
    assert set(PrepConfig(dev_lines=3).identity()) - set(PrepConfig().identity()) == {"dev_lines"}
    assert not {"clean", "dev_lines", "test_lines", "columns", "workers"} & set(PrepConfig().identity())
