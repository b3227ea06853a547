"""The HDF5 file: written records are read back in any process, complete or not at all."""

import errno
import multiprocessing
import os
from functools import partial
from operator import itemgetter

import h5py
import numpy as np
import pytest
from helpers.records import add
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.errors import FormatError, ResourceError, UsageError
from nmtalign.hdf5 import seal

WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=6), max_size=6)
NUMBERED = st.tuples(WORDS, WORDS, st.integers(0, 2**62))
PAIRS = st.lists(NUMBERED, max_size=5, unique_by=itemgetter(2)).map(partial(sorted, key=itemgetter(2)))


def random_weights(source, target, seed=0):
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.ones(len(source) + 1), len(target) + 1).astype(np.float32)


def write(path, pairs, *dtype):
    with AlignmentWriter(path, {"model_hash": "abc", "direction": "en-fr"}, *dtype) as file:
        for number, (source, target) in enumerate(pairs):
            add(file, source, target, random_weights(source, target, number), -1.5 * number)


def numbered(count):
    return [([f"s{i}"] * (i % 7), [f"t{i}"] * (i % 5)) for i in range(count)]


def within(links, source, target):
    return [(i, j) for i, j in links if i < len(source) and j < len(target)]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=PAIRS, links=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4))
def test_entries_that_are_written_are_read_back(tmp_path, pairs, links):
    path = tmp_path / "a.h5"
    with AlignmentWriter(path, {}, "float32") as file:
        for number, (source, target, sentence_id) in enumerate(pairs):
            weights = random_weights(source, target, number)
            log_probs = np.linspace(-3, -1, len(target) + 1, dtype=np.float32)
            add(file, source, target, weights, -0.1 * number, sentence_id, within(links, source, target), log_probs)
        assert file.records == len(pairs)
    with AlignmentFile(path) as records:
        assert len(records) == len(pairs)
        for number, (record, (source, target, sentence_id)) in enumerate(zip(records, pairs, strict=True)):
            assert (record.source, record.target) == (tuple(source), tuple(target))
            assert record.sentence_id == sentence_id
            assert record.log_prob == -0.1 * number
            assert record.links() == within(links, source, target)
            np.testing.assert_array_equal(record.weights, random_weights(source, target, number))
            np.testing.assert_array_equal(record.token_log_probs, np.linspace(-3, -1, len(target) + 1, dtype="f4"))


def test_links_are_those_of_the_exact_weights_and_what_is_left_out_has_a_default(tmp_path):
    weights = np.array([[0.30001, 0.30002, 0.39997], [0.49999, 0.50001, 0.0], [0.2, 0.2, 0.6]], dtype=np.float32)
    with AlignmentWriter(tmp_path / "a.h5", {}) as file:
        add(file, ["a", "b"], ["c", "d"], weights, -1)
        add(file, ["a", "b"], ["c", "d"], weights, -1, sentence_id=7)
    with AlignmentFile(tmp_path / "a.h5") as records:
        assert records[0].links() == [(1, 1)]
        assert [record.sentence_id for record in records] == [0, 7]
        assert np.isnan(records[0].token_log_probs).all()


def test_a_file_of_several_pages_is_read_in_every_way(tmp_path):
    pairs = numbered(2500)
    pairs[1500] = (["s"] * 1500, ["t"] * 1500)  # more cells than are read together
    write(tmp_path / "a.h5", pairs)
    with AlignmentFile(tmp_path / "a.h5") as file:
        assert [(record.source, record.target) for record in file] == [(tuple(s), tuple(t)) for s, t in pairs]
        for number, record in zip(range(1000, 2100, 50), file[1000:2100][::50], strict=True):
            exact = random_weights(*pairs[number], number)
            np.testing.assert_allclose(record.weights, exact, atol=0.00025)  # float16 is the default
            assert record.weights.dtype == np.float32
            np.testing.assert_array_equal(record.weights, file[number].weights)


def test_words_and_links_are_read_without_the_weights(tmp_path):
    write(tmp_path / "a.h5", numbered(1500))
    expected = [(one.source, one.target, one.hard_links, one.sentence_id) for one in AlignmentFile(tmp_path / "a.h5")]
    with h5py.File(tmp_path / "a.h5") as stored:
        place, size = (stored["weights"].id.get_chunk_info(0).byte_offset, stored["weights"].id.get_chunk_info(0).size)
    raw = bytearray((tmp_path / "a.h5").read_bytes())
    raw[place : place + size] = bytes(size)  # weights that cannot be unpacked
    (tmp_path / "a.h5").write_bytes(raw)
    seal(tmp_path / "a.h5")
    with AlignmentFile(tmp_path / "a.h5") as file:
        assert [(one.source, one.target, one.links, one.sentence_id) for one in file.links()] == expected
        with pytest.raises(FormatError, match="damaged"):
            list(file)


@pytest.mark.parametrize(
    ("source", "shape", "log_probs", "message"),
    [(["a"], (1, 1), None, "need"), (["a\nb"], (2, 2), None, "line feed"), (["a"], (2, 2), [0.0], "need")],
)
def test_what_does_not_fit_is_refused(tmp_path, source, shape, log_probs, message):
    with pytest.raises(ValueError, match=message), AlignmentWriter(tmp_path / "a.h5", {}) as file:
        add(file, source, ["b"], np.zeros(shape), 0.0, token_log_probs=log_probs)


def test_indices_and_slices_until_it_is_closed(tmp_path):
    write(tmp_path / "a.h5", numbered(10))
    with AlignmentFile(str(tmp_path / "a.h5")) as file:
        assert file[-1].sentence_id == 9
        assert [record.sentence_id for record in file[2:8:3]] == [2, 5]
        assert [record.sentence_id for record in file[-2:]] == [8, 9]
        for index in (10, -11):
            with pytest.raises(IndexError, match="it has 10"):
                file[index]
    with pytest.raises(UsageError, match=r"a\.h5: this AlignmentFile is closed"):
        file[0]


def test_an_empty_file_and_info(tmp_path):
    write(tmp_path / "none.h5", [])
    assert list(AlignmentFile(tmp_path / "none.h5")) == []
    assert AlignmentFile(tmp_path / "none.h5").info()["bytes_per_cell"] == 0
    write(tmp_path / "a.h5", [(["a", "b"], ["c"]), ([], ["d"])])
    info = AlignmentFile(tmp_path / "a.h5").info()
    counts = {name: info[name] for name in ("kind", "pairs", "source_words", "target_words", "cells", "weights")}
    sizes = {"pairs": 2, "source_words": 2, "target_words": 2, "cells": 2 * 3 + 2 * 1}
    assert counts == {"kind": "alignments", **sizes, "weights": "float16"}
    assert info["bytes"] == (tmp_path / "a.h5").stat().st_size
    assert info["attributes"]["direction"] == "en-fr"
    assert info["attributes"]["format_version"] == 4
    assert info["sentences"] == 2
    assert info["attributes"]["end_of_sentence_row"] is True


def test_the_file_is_what_the_layout_says(tmp_path):
    pairs = numbered(12)
    write(tmp_path / "a.h5", pairs, "float32")
    k, i, j = 11, 2, 0
    with h5py.File(tmp_path / "a.h5") as file:
        columns = len(pairs[k][0]) + 1
        assert file["source/word_offsets"][k + 1] - file["source/word_offsets"][k] == columns - 1
        cell = file["weights"][file["weight_offsets"][k] + j * columns + i]
        assert cell == random_weights(*pairs[k], k)[j, i]
        assert bytes(file["target/text"][()]).decode() == "".join(f"{word}\n" for _, ts in pairs for word in ts)
        assert len(file["token_log_prob"]) == file["target/word_offsets"][-1] + len(pairs)
        logs = [np.log(row, where=row > 0, out=np.zeros_like(row)) for row in random_weights(*pairs[k], k)]
        expected = [-(row * log).sum() for row, log in zip(random_weights(*pairs[k], k), logs, strict=True)]
        np.testing.assert_allclose(file["entropy"][-len(expected) :], expected, rtol=1e-5)
        assert file["links"].shape == (file["link_offsets"][-1], 2)
        kinds = set()
        file.visititems(lambda _, node: kinds.add(str(node.dtype)) if isinstance(node, h5py.Dataset) else None)
        assert kinds == {"float32", "int64", "uint8", "int32", "float64"}


def _first_word(file, index):
    record = file[index]
    return record.target[0], float(record.weights.sum())


@pytest.mark.filterwarnings("ignore:This process .* multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_may_read(tmp_path, method):
    write(tmp_path / "a.h5", [(["a", "b"], [f"t{i}", "u"]) for i in range(40)])
    with AlignmentFile(tmp_path / "a.h5") as file:
        expected = [_first_word(file, i) for i in range(40)]
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            found = pool.starmap(_first_word, [(file, i) for i in range(40)], chunksize=5)
        assert found == expected
        assert [_first_word(file, i) for i in range(40)] == expected


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refused(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    with h5py.File(tmp_path / "a.h5", "w"):
        pass
    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(h5py, "is_hdf5", refused)
    with pytest.raises(ResourceError, match=r"a\.h5: cannot read: Permission denied"):
        AlignmentFile(tmp_path / "a.h5")


def test_folders_and_newer_files_are_named(tmp_path, edit_hdf5):
    with pytest.raises(FormatError, match=r"not an alignment file \(it is a folder\)"):
        AlignmentFile(tmp_path)
    write(tmp_path / "newer.h5", [])
    with edit_hdf5(tmp_path / "newer.h5") as file:
        file.attrs["format_version"] = 99
    with pytest.raises(FormatError, match="version 99"):
        AlignmentFile(tmp_path / "newer.h5")
