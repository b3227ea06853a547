"""`prep --subwords`: the pieces that it chooses for a text, and the advice to use it."""

import random

import pytest
from helpers.parallel_texts import files_of, write_pairs

from nmtalign import prepare
from nmtalign.data.corpus import Corpus
from nmtalign.data.corpus_checks import subword_size
from nmtalign.errors import UsageError

LETTERS = {
    "en": "abcdefgh", "fr": "abcdefghé", "ru": "абвгдежз", "el": "αβγδεζηθ", "zh": "我喜欢读书和看电影",
    "ja": "私は本をよむのがすきなテレビー",
}  # fmt: skip


def line_in(language, chance):
    """A line of random words of a language, with a name in Latin letters, as texts of all languages have them."""
    words = ["".join(chance.choices(LETTERS[language], k=chance.randint(1, 5))) for _ in range(6)]
    return " ".join([*words, "Anna 1999."])


def pairs_in(source, target, count=100):
    chance = random.Random(1)
    return [(line_in(source, chance), line_in(target, chance)) for _ in range(count)]


def settings_of(folder, pairs, languages=("en", "fr"), **settings):
    """Prepares a corpus, and returns the settings that it records."""
    texts = write_pairs(folder, "train", pairs)
    prepare(*texts, folder / "data", languages=languages, force=True, workers=1, **settings)
    return Corpus.open(folder / "data").settings


def test_more_pairs_get_more_pieces():
    sizes = [subword_size(pairs) for pairs in (1, 100, 2_000, 10_000, 29_000, 400_000, 1_000_000, 10**9)]
    assert sizes == sorted(sizes)
    assert (subword_size(29_000), subword_size(1_000_000)) == (8_000, 16_000)
    assert sizes[0] >= 1_000
    assert sizes[-1] <= 16_000


@pytest.mark.parametrize(
    ("source", "target", "joint"),
    [("en", "fr", True), ("en", "ru", False), ("ru", "el", False), ("ja", "en", False), ("ja", "zh", True)],
)
def test_both_sides_have_the_same_pieces_if_they_have_the_same_script(tmp_path, source, target, joint):
    """The letters decide, and not the languages: transliterated text is Latin."""
    for languages in ((source, target), ("xx", "yy")):
        settings = settings_of(tmp_path, pairs_in(source, target), languages, subwords=True)
        assert settings["vocabulary"] == "unigram"
        assert settings.get("joint", False) == joint
        corpus = Corpus.open(tmp_path / "data")
        assert (corpus.source_vocabulary == corpus.target_vocabulary) == joint


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("target", ["fr", "zh"])
def test_a_short_text_gets_the_largest_possible_vocabulary(tmp_path, count, target):
    """The recorded settings give the same corpus, and one piece more is too many."""
    pairs = pairs_in("en", target, count)
    recorded = settings_of(tmp_path, pairs, subwords=True)
    corpus, files = Corpus.open(tmp_path / "data"), files_of(tmp_path / "data")
    sizes = [int(size) for size in recorded["size"].split(":")]
    assert (sizes[0], sizes[-1]) == (len(corpus.source_vocabulary), len(corpus.target_vocabulary))
    assert settings_of(tmp_path, pairs, **recorded) == recorded
    again = files_of(tmp_path / "data")
    del again["summary.json"], files["summary.json"]
    assert again == files
    for side, size in enumerate(sizes):
        larger = [str(one + (place == side)) for place, one in enumerate(sizes)]
        with pytest.raises(UsageError, match=rf"its text gives at most {size}$"):
            settings_of(tmp_path, pairs, **{**recorded, "size": ":".join(larger)})


def test_pieces_are_learned_from_long_lines_too(tmp_path):
    """sentencepiece leaves out lines of more than 4192 bytes."""
    pairs = pairs_in("en", "ru", 400)
    long = [" ".join(side) + mark for side, mark in zip(zip(*pairs, strict=True), ("ж", "ё"), strict=True)]
    settings_of(tmp_path, [(long[0], long[1])] * 3, subwords=True, max_length=0)
    settings_of(tmp_path, [*pairs, (long[0], long[1])], subwords=True, max_length=0)
    corpus = Corpus.open(tmp_path / "data")
    assert {"ж", "é"} & {*"".join(corpus.source_vocabulary.words)} == {"ж"}
    assert "ё" in "".join(corpus.target_vocabulary.words)


def test_a_language_without_spaces_needs_no_size_for_a_short_text(tmp_path):
    pairs = pairs_in("zh", "en", 20)
    settings = settings_of(tmp_path, pairs, ("zh", "en"))
    assert settings["vocabulary"] == "unigram"
    assert "joint" not in settings
    assert settings["size"] == settings_of(tmp_path, pairs, ("zh", "en"), subwords=True)["size"]


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        ({"vocabulary": "bpe"}, {"vocabulary": "bpe", "joint": True}),
        ({"vocabulary": "auto"}, {"vocabulary": "unigram", "joint": True}),
        ({"size": "90"}, {"size": "90", "joint": True}),
        ({"size": "90:80"}, {"size": "90:80", "joint": False}),
        ({"joint": False}, {"joint": False}),
        ({"joint": True, "target": "ru"}, {"joint": True}),
        ({"subwords": False}, {"vocabulary": "word", "size": "8000", "joint": False}),
    ],
    ids=str,
)
def test_explicit_settings_are_kept(tmp_path, given, recorded):
    given = {"subwords": True, **given}
    settings = settings_of(tmp_path, pairs_in("en", given.pop("target", "fr")), **given)
    assert {name: settings.get(name, False) for name in recorded} == recorded


def test_a_corpus_without_subwords_records_what_it_always_did(tmp_path):
    pairs = pairs_in("en", "fr")
    always = {"shortlist": "30000", "min_count": 1, "size": "8000", "max_length": 50, "drop_duplicates": False}
    assert settings_of(tmp_path, pairs) == {"vocabulary": "word", **always}
    assert settings_of(tmp_path, pairs, vocabulary="bytes", joint=True)["joint"] is True
    assert settings_of(tmp_path, pairs, joint=False) == {"vocabulary": "word", **always}
    pieces = settings_of(tmp_path, pairs, subwords=True)
    assert pieces == {"vocabulary": "unigram", **always, "size": pieces["size"], "joint": True}


def test_the_same_command_replaces_its_corpus_and_no_other(tmp_path):
    texts = write_pairs(tmp_path, "train", pairs_in("en", "fr"))
    for _ in range(2):
        prepare(*texts, tmp_path / "data", languages=("en", "fr"), subwords=True)
    for settings in ({"subwords": True, "size": "70"}, {}):
        with pytest.raises(UsageError, match="a corpus of other text or settings"):
            prepare(*texts, tmp_path / "data", languages=("en", "fr"), **settings)


def notes(folder, pairs, **settings):
    train = write_pairs(folder, "train", pairs)
    options = {"languages": ("en", "fr"), "force": True, "workers": 1}
    return prepare(*train, folder / "data", **options, **settings).notes


PAIRS = [("one two three", "un deux trois")] * 400


def test_one_note_says_what_subwords_gain(tmp_path):
    many = [(" ".join(f"w{number}x{word}" for word in range(40)), "un deux") for number in range(800)]
    for pairs, settings, left_out in (
        (PAIRS, {}, False),
        (many[:700], {}, False),
        (many, {}, True),
        (many, {"shortlist": "5"}, True),
        (many, {"vocabulary": "word"}, None),
    ):
        found = [note for note in notes(tmp_path, pairs, **settings) if "--subwords" in note]
        assert len(found) == (left_out is not None), settings
        assert all(("% of those of the training text" in note) == left_out for note in found), settings
