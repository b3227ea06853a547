import json

import h5py
import numpy as np
import pytest
from helpers.parallel_texts import prepare, prepared, write_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.data.corpus import Corpus
from nmtalign.errors import FormatError
from nmtalign.hdf5 import write_attributes
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.text.lines import BLANK

TEXTS = st.text(st.one_of(st.sampled_from("ab \u2028\u0085\r\0é☃"), st.characters(exclude_categories=["Cs"])))
LINES = TEXTS.map(lambda text: text.translate({10: " ", 0: None}).strip("\r\ufeff"))  # NUL looks like UTF-16
SENTENCES = st.lists(LINES, min_size=1, max_size=12)


@pytest.fixture
def folder(tmp_path):
    pairs = [("the cat sleeps", "le chat dort"), ("the dog", "le chien"), ("a cat", "un chat gris")]
    return prepared(tmp_path, pairs, pairs).folder


@settings(max_examples=25)
@given(sources=SENTENCES, targets=SENTENCES)
def test_what_was_written_is_read(tmp_path_factory, sources, targets):
    folder = tmp_path_factory.mktemp("corpus")
    pairs = [*zip(sources, targets, strict=False), ("a b", "é")]
    train = write_pairs(folder, "train", pairs)
    dev = write_pairs(folder, "dev", pairs)
    summary = prepare(train, folder, PrepConfig(vocabulary="none", max_length=0), ("en", "fr"), dev)
    corpus = Corpus.open(folder)
    spaced = corpus.tokenizers.source
    kept = [pair for pair in pairs if all(map(spaced.tokenize, pair)) and not any(map(BLANK.fullmatch, pair))]
    split = corpus.splits["train"]
    assert len(split) == len(kept) == summary.splits["train"].kept
    for number, (source, target) in enumerate(kept):
        source_ids, target_ids = split.pair(number)
        known = corpus.source_vocabulary
        assert known.decode(source_ids.tolist()) == [w if w in known else "<unk>" for w in spaced.tokenize(source)]
        assert corpus.target_vocabulary.encode(spaced.tokenize(target)) == target_ids.tolist()
        assert (len(source_ids), len(target_ids)) == (split.source.lengths[number], split.target.lengths[number])
    assert len(corpus.splits["dev"]) == len(pairs)
    for number, pair in enumerate(pairs):
        assert (corpus.splits["dev"].source.text(number), corpus.splits["dev"].target.text(number)) == pair


def test_layout(folder):
    with h5py.File(folder / "corpus.h5") as file:
        assert file.attrs["format"] == b"nmtalign corpus"
        assert file.attrs["format_version"] == 2
        assert sorted(file) == ["dev", "train"]
        assert sorted(file["train/source"]) == ["ids", "offsets", "unknown", "unknown_at"]
        assert sorted(file["dev/target"]) == ["ids", "offsets", "text", "text_offsets", "unknown", "unknown_at"]
        for name, dtype in (("ids", "uint16"), ("offsets", "int64")):
            dataset = file[f"train/target/{name}"]
            assert dataset.dtype == np.dtype(dtype)
            assert dataset.chunks is None
        assert list(file["train/target/offsets"][()]) == [0, 3, 5, 8]
        assert bytes(file["dev/source/text"][()]) == b"the cat sleepsthe doga cat"


def test_the_hash_tells_texts_apart_that_have_one_vocabulary(tmp_path):
    hashes = set()
    for number, first in enumerate(("a b", "b a", "a b")):
        folder = tmp_path / str(number)
        folder.mkdir()
        hashes.add(prepared(folder, [(first, "x y"), ("a b", "y x")], workers=number + 1).hash)
    assert len(hashes) == 2


FILES = "source.vocabulary.txt", "target.vocabulary.txt", "tokenizer.json"


@pytest.mark.parametrize("name", FILES)
def test_a_changed_or_missing_file_is_named(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes() + b"more\n")
    with pytest.raises(FormatError, match=rf"{name}: changed since corpus\.h5 was made"):
        Corpus.open(folder)
    path.unlink()
    with pytest.raises(FormatError, match=rf"{name}: missing"):
        Corpus.open(folder)


def test_missing_foreign_and_damaged_files_are_refused(folder, tmp_path):
    with pytest.raises(FormatError, match="no prepared corpus here"):
        Corpus.open(tmp_path / "nowhere")
    path = folder / "corpus.h5"
    whole = path.read_bytes()
    for damaged in (b"", b"text\n", whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"corpus\.h5: damaged prepared corpus"):
            Corpus.open(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("format_version", 99, "corpus format 99, this nmtalign reads 2"),
        ("format", "x", "not a corpus"),
        ("settings", "{", "damaged prepared corpus"),
        ("settings", "[" * 10_000, "damaged prepared corpus .*nested too deeply"),
        ("settings", "[]", "its settings are not an object"),
        ("source_language", 7, "its attribute 'source_language' is not a text"),
        ("sha256", "{}", "it does not name the files beside it"),
        ("sha256", json.dumps(dict.fromkeys((*FILES, "../../../etc/passwd"), "")), "it does not name the files"),
        *((name, None, f"damaged .*{name}") for name in ("source_language", "settings", "sha256", "content_sha256")),
    ],
)
def test_a_changed_attribute_is_refused(folder, name, value, message, edit_hdf5):
    with edit_hdf5(folder / "corpus.h5") as file:
        del file.attrs[name]
        if value is not None:
            write_attributes(file, {name: value})
    with pytest.raises(FormatError, match=rf"corpus\.h5: .*{message}.*; run nmtalign prep"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("train/source/offsets", -1, 99, "the offsets do not fit train/source/ids"),
        ("train/source/offsets", 0, -1, "the offsets do not fit train/source/ids"),
        ("train/source/offsets", 1, 10**9, "the offsets of train/source/ids do not rise"),
        ("train/target/ids", -1, 999, "an id of train/target is not in the vocabulary"),
        ("train/line", 1, 0, "train/line does not rise"),
        ("train/line", -1, 3, "train/line does not fit the pairs"),
        ("train/line", None, None, "damaged prepared corpus .*train/line"),
        ("train/target/offsets", None, None, "damaged prepared corpus .*target/offsets"),
        ("train", None, None, "no training pairs"),
    ],
)
def test_changed_content_is_refused(folder, name, place, value, message, edit_hdf5):
    with edit_hdf5(folder / "corpus.h5") as file:
        if place is None:
            del file[name]
        else:
            file[name][place] = value
    with pytest.raises(FormatError, match=rf"corpus\.h5: .*{message}.*; run nmtalign prep again"):
        Corpus.open(folder)
