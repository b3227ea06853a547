"""Crafted and damaged HDF5 files: no link is followed, no size is trusted, and each is one FormatError.

`bin/test faults --only mutations` changes random bytes of these files.
"""

import errno
import os
import signal
import struct
import zlib

import h5py
import numpy as np
import pytest
from helpers.parallel_texts import prepared
from helpers.records import add

from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.alignment.export_formats import json_line
from nmtalign.data.corpus import Corpus
from nmtalign.errors import FormatError, ResourceError
from nmtalign.hdf5 import created, damage, format_of, seal


@pytest.fixture
def alignments(tmp_path):
    path = tmp_path / "a.h5"
    with AlignmentWriter(path, {"model_hash": "abc", "direction": "en-fr"}) as file:
        for number in range(5):
            weights = np.full((number + 1, 3), 1 / 3, np.float32)
            add(file, ["s", "t"], ["u"] * number, weights, -1.0, links=[(1, j) for j in range(number)])
    return path


@pytest.fixture
def corpus(tmp_path):
    pairs = [("the cat", "le chat"), ("the dog", "le chien")]
    return prepared(tmp_path, pairs, pairs).folder / "corpus.h5"


def read_alignments(path):
    with AlignmentFile(path) as file:
        file.info()
        return [json_line(record, file.dtype) for record in file], sorted(map(str, file.attributes.items()))


def read_corpus(path):
    opened = Corpus.open(path)
    pairs = [[ids.tolist() for ids in split.pair(k)] for split in opened.splits.values() for k in range(len(split))]
    texts = [opened.splits["dev"].source.text(k) for k in range(len(opened.splits["dev"]))]
    return pairs, texts, opened.splits["train"].lines.tolist(), opened.info()


def test_other_programs_may_have_a_file_open(alignments, corpus):
    with h5py.File(alignments) as plain, AlignmentFile(alignments) as file:
        assert len(file) == len(plain["rank"])
    with AlignmentFile(alignments) as file, h5py.File(alignments) as plain:
        assert len(file) == len(plain["rank"])
    with h5py.File(corpus):
        assert Corpus.open(corpus).splits
        assert format_of(corpus)


def test_a_disk_without_locks_is_read(alignments, monkeypatch):
    plain = h5py.File

    def without_locks(path, mode, locking=None):
        if locking is None:
            raise OSError("unable to lock file, errno = 37, error message = 'No locks available'")
        return plain(path, mode, locking=locking)

    monkeypatch.setattr(h5py, "File", without_locks)
    with AlignmentFile(alignments) as file:
        assert len(file) == 5


def new_text(file, **options):
    """Replaces the source text of alignments."""
    del file["source/text"]
    file.create_dataset("source/text", **options)


def change(place, index, value):
    def craft(file, _):
        file[place][index] = value

    return craft


def external_link(file, secret):
    with h5py.File(secret.with_suffix(".h5"), "w") as other:
        other["x"] = np.zeros(20, np.uint8)
    del file["source/text"]
    file["source/text"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "x")


def committed_type(file, _):
    file["kind"] = np.dtype("u1")
    new_text(file, data=file["source/text"][:], dtype=file["kind"])
    del file["kind"]


def declared_weights(file, _):
    file["weights"].resize(10**13, axis=0)
    file["weight_offsets"][-1] = 10**13


NUMBERED = {f"x{number}": number for number in range(100)}
CRAFTED = {
    "an external link": external_link,
    "external storage": lambda file, secret: new_text(file, shape=20, dtype="u1", external=[(str(secret), 0, 20)]),
    "a committed type": committed_type,
    "many objects": lambda file, _: [*map(file.create_group, NUMBERED)],
    "many attributes": lambda file, _: file.attrs.update(NUMBERED),
    "another filter": lambda file, _: new_text(file, data=np.zeros(20, "u1"), chunks=(20,), compression="lzf"),
    "large chunks": lambda file, _: new_text(file, shape=2**31, dtype="u1", chunks=(2**31,), compression="gzip"),
    "a chunk that grows": lambda file, _: file["weights"].id.write_direct_chunk((0,), zlib.compress(bytes(1 << 28), 1)),
    "missing chunks": lambda file, _: file["weights"].resize(40_000, axis=0),
    "declared weights": declared_weights,
    "too few values": lambda file, _: file["log_prob"].resize(3, axis=0),
    "too few weights": lambda file, _: file["weights"].resize(3, axis=0),
    "a missing column": lambda file, _: file.pop("log_prob"),
    "a negative number of a sentence": change("sentence_id", 0, -5),
    "falling numbers of sentences": change("sentence_id", 0, 2),
    "falling offsets": change("weight_offsets", 2, 10**9),
    "falling offsets of links": change("link_offsets", 3, 0),
    "a link outside": change("links", 0, (7, 0)),
    "a link outside the target": change("links", 0, (0, 7)),
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED)
def test_crafted_alignments_are_refused(alignments, craft, edit_hdf5, tmp_path):
    (tmp_path / "secret.txt").write_text("one secret line in a file\n")
    with edit_hdf5(alignments) as file:
        craft(file, tmp_path / "secret.txt")
    with pytest.raises(FormatError, match=r"a\.h5: damaged alignment file \(.+\); write it again") as error:
        read_alignments(alignments)
    assert "secret" not in str(error.value)


def test_links_that_are_not_needed_are_not_followed(alignments, edit_hdf5, tmp_path):
    expected = read_alignments(alignments)
    with edit_hdf5(alignments) as file:
        file["source/again"] = file["/"]
        file["source/other"] = h5py.ExternalLink(str(tmp_path / "none.h5"), "x")
        file["source/soft"] = h5py.SoftLink("/source/soft")
    assert read_alignments(alignments) == expected


def test_a_text_that_is_not_utf8_is_refused_when_it_is_read(corpus, edit_hdf5):
    with edit_hdf5(corpus) as file:
        file["dev/source/text"][3] = 255
    with pytest.raises(FormatError, match=r"corpus\.h5: damaged: text 1 is not UTF-8; run nmtalign prep again"):
        read_corpus(corpus)


@pytest.mark.parametrize(("kind", "read"), [("alignments", read_alignments), ("corpus", read_corpus)])
def test_a_file_without_a_checksum_is_refused(kind, read, request):
    path = request.getfixturevalue(kind)
    path.write_bytes(bytes(512) + path.read_bytes()[512:])
    with pytest.raises(FormatError, match=r"\.h5: damaged .* \(not written by this version of nmtalign, or edited"):
        read(path)


def test_a_named_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "corpus.h5")
    with pytest.raises(FormatError, match="not an alignment file"):
        AlignmentFile(tmp_path / "corpus.h5")
    with pytest.raises(FormatError, match="no prepared corpus here"):
        Corpus.open(tmp_path)


def test_only_info_compares_the_checksum_of_a_large_file(alignments):
    raw = bytearray(alignments.read_bytes())
    raw[raw.index(b"abc")] ^= 1  # the model's hash, which nothing else would miss
    alignments.write_bytes(raw)
    with pytest.raises(FormatError, match="does not match its SHA-256"):
        AlignmentFile(alignments)
    os.truncate(alignments, (64 << 20) + 1)  # HDF5 ignores bytes after its content
    with AlignmentFile(alignments) as file, pytest.raises(FormatError, match="does not match its SHA-256"):
        file.info()


@pytest.mark.parametrize(("kind", "read"), [("alignments", read_alignments), ("corpus", read_corpus)])
def test_a_heap_of_texts_without_an_end_is_not_followed(kind, read, request, edit_hdf5):
    path = request.getfixturevalue(kind)
    with edit_hdf5(path) as file:
        file.attrs["format"] = file.attrs["format"].decode()  # a text of variable length, which is in a heap
    data = path.read_bytes()
    first = data.index(b"GCOL") + 16  # number, references, size and text of the first text
    path.write_bytes(data[:first] + struct.pack("<H6xQ", 0, 0) + data[first + 16 :])  # HDF5 would read it for ever
    seal(path)
    with pytest.raises(FormatError, match="'format' is a text of variable length"):
        read(path)
    assert format_of(path) == ""


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_what_the_system_refuses_is_no_damage(tmp_path, number):
    path = tmp_path / "a.h5"
    with pytest.raises(ResourceError, match=r"a\.h5: cannot read: "), damage(path, "corpus", "make it again"):
        raise OSError(number, os.strerror(number), str(path))
    with pytest.raises(FormatError, match="damaged corpus"), damage(path, "corpus", "make it again"):
        raise OSError("truncated file")


def test_a_signal_waits_until_the_file_is_written(tmp_path):
    """An exception within the calls of HDF5 could end the process with a crash."""
    before, written = signal.signal(signal.SIGUSR1, signal.default_int_handler), []
    try:
        with pytest.raises(KeyboardInterrupt), created(tmp_path / "a.h5") as file:  # noqa: PT012
            signal.raise_signal(signal.SIGUSR1)
            file["a"] = np.zeros(5)
            written.append("a")
        assert written
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
