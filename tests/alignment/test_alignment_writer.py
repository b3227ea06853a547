"""The writer of alignments: after any interruption at any place, the resumed file is equal to an uninterrupted one."""

import contextlib
import errno
import os
import struct
import zlib

import numpy as np
import pytest
from helpers.records import add
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmtalign.alignment.alignment_file import COMMIT, AlignmentFile, AlignmentWriter
from nmtalign.errors import FormatError, ResourceError, UsageError

ATTRIBUTES = {"model_hash": "abc", "direction": "en-fr", "options": '{"beam": 12, "threads": 1}'}
COUNT = 400  # records: a few chunks of weights


class CutOffError(Exception):
    """Ends a run before its end."""


def record(number):
    """Words, weights and log-probabilities, the same for the same number."""
    generator = np.random.default_rng(number)
    source, target = ([f"{side}{n}é" for n in range(int(generator.integers(0, 30)))] for side in "st")
    weights = generator.dirichlet(np.ones(len(source) + 1), len(target) + 1).astype(np.float32)
    return source, target, weights, generator.normal(size=len(target) + 1).astype(np.float32)


RECORDS = [record(number) for number in range(COUNT)]


def feed(file, stop=COUNT, n_best=1):
    """Adds the records that are still missing from `count`; with n-best lists a sentence has several of them."""
    for number in range(file.records, stop):
        source, target, weights, log_probs = RECORDS[number]
        rank = number % n_best
        add(file, source, target, weights, -number, number // n_best, None, log_probs, rank)


def written(path, n_best=1, **options):
    with AlignmentWriter(path, ATTRIBUTES, **options) as file:
        feed(file, n_best=n_best)
    return path.read_bytes()


def resumed(path, attributes=ATTRIBUTES, **options):
    return AlignmentWriter(path, attributes, resume=True, **options)


def cut_off(path, stop, n_best=1, resume=True):
    """Runs until it fails after a total number of records."""
    with contextlib.suppress(CutOffError), AlignmentWriter(path, ATTRIBUTES, resume=resume) as file:
        feed(file, stop, n_best)
        raise CutOffError


def test_a_run_that_failed_again_and_again_ends_as_one_that_did_not(tmp_path):
    whole = written(tmp_path / "whole.h5")
    for stop in (40, 41, 250, 399, 400):
        cut_off(tmp_path / "a.h5", stop)
        assert not (tmp_path / "a.h5").exists()
        with pytest.raises(FormatError, match="it is the beginning of an alignment file, which --resume completes"):
            AlignmentFile(tmp_path / "a.h5.partial")
    with resumed(tmp_path / "a.h5") as file:
        assert file.records == file.sentences == (COUNT - 1) // COMMIT * COMMIT
        feed(file)
    assert (tmp_path / "a.h5").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "whole.h5"]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_journal_cut_at_any_byte_is_continued(tmp_path, data):
    whole, partial = tmp_path / "whole.h5", tmp_path / "a.h5.partial"
    if not whole.exists():
        written(whole)
        cut_off(tmp_path / "b.h5", COUNT)
    journal = bytearray((tmp_path / "b.h5.partial").read_bytes())
    cut = data.draw(st.integers(0, len(journal)))
    journal = journal[:cut]
    if cut > 100:  # a power failure may leave other bytes behind
        journal += data.draw(st.binary(max_size=40))
        journal[data.draw(st.integers(100, cut - 1))] ^= 64
    partial.write_bytes(journal)
    (tmp_path / "a.h5").unlink(missing_ok=True)  # of the example before
    with resumed(tmp_path / "a.h5") as file:
        assert 0 <= file.records < COUNT
        feed(file)
    assert (tmp_path / "a.h5").read_bytes() == whole.read_bytes()


def test_n_best_lists_are_never_cut(tmp_path):
    whole = written(tmp_path / "whole.h5", n_best=5)
    cut_off(tmp_path / "a.h5", 203, n_best=5)
    with resumed(tmp_path / "a.h5") as file:
        assert (file.records, file.sentences) == (5 * COMMIT, COMMIT)
        feed(file, n_best=5)
        assert (file.records, file.sentences) == (400, 80)
    assert (tmp_path / "a.h5").read_bytes() == whole
    with AlignmentFile(tmp_path / "a.h5") as records:
        assert records.sentence_count() == 80
        assert [entry.rank for entry in records.sentence(79)] == [0, 1, 2, 3, 4]
        assert records.sentence(79)[2].source == tuple(RECORDS[397][0])
        assert records.sentence(80) == records.sentence(-1) == []
        assert records.attributes["sentence_ids_rise"]


def test_ranks_follow_each_other(tmp_path):
    with AlignmentWriter(tmp_path / "a.h5", {}) as file:
        with pytest.raises(ValueError, match="sentence -5 comes after"):
            add(file, [], [], np.ones((1, 1)), 0.0, -5)
        for rank, sentence in ((1, None), (0, 7), (1, 8), (0, 7), (2, 7), (-1, 7), (1, 7)):
            follows = (sentence, rank) == (7, file.records)
            with contextlib.nullcontext() if follows else pytest.raises(ValueError, match=f"entry {rank}"):
                add(file, [], [], np.ones((1, 1)), 0.0, sentence, rank=rank)
        with pytest.raises(ValueError, match="sentence 6 comes after sentence 7"):
            add(file, [], [], np.ones((1, 1)), 0.0, 6)
    assert len(AlignmentFile(tmp_path / "a.h5")) == 2


def test_a_limit_of_sentences(tmp_path):
    whole = written(tmp_path / "whole.h5")
    cut_off(tmp_path / "a.h5", 300)
    with resumed(tmp_path / "a.h5", at_most=100) as file:
        assert file.sentences == 100 // COMMIT * COMMIT
        feed(file)
    assert (tmp_path / "a.h5").read_bytes() == whole
    with resumed(tmp_path / "a.h5", at_most=12) as file:
        assert file.records == 0
        feed(file)
    assert (tmp_path / "a.h5").read_bytes() == whole


def test_a_complete_file_is_left_alone(tmp_path):
    path = tmp_path / "a.h5"
    with AlignmentWriter(path, ATTRIBUTES) as file:
        feed(file, 120)
    before = path.stat()
    with resumed(path) as file:
        assert file.records == 120
    complete = r"a\.h5: is complete; the texts have more than its 120 pairs"
    with pytest.raises(UsageError, match=complete), resumed(path) as file:
        feed(file)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("left", ["a.h5.partial", "a.h5"])
def test_other_settings_are_refused(tmp_path, left):
    if left == "a.h5":
        written(tmp_path / "a.h5")
    else:
        cut_off(tmp_path / "a.h5", 100)
    before = (tmp_path / left).read_bytes()
    for attributes, options, message in (
        ({"model_hash": "def"}, {}, f"{left}: was begun with model_hash = abc, and now it is def"),
        ({"options": '{"beam": 5}'}, {}, r"options\.beam = 12, and now it is 5"),
        ({"source_sha256": "01"}, {}, "source_sha256 = nothing, and now it is 01"),
        ({"direction": ""}, {}, "direction = en-fr, and now it is nothing; resume"),
        ({}, {"dtype": "float32"}, "weights = float16, and now it is float32"),
    ):
        with pytest.raises(UsageError, match=message), resumed(tmp_path / "a.h5", ATTRIBUTES | attributes, **options):
            pass
        assert (tmp_path / left).read_bytes() == before
    same = ATTRIBUTES | {"options": '{"beam": 12, "threads": 2, "new": null}', "source_file": "elsewhere"}
    with resumed(tmp_path / "a.h5", same) as file:
        assert file.records


def test_without_resume_the_work_of_another_run_is_kept(tmp_path):
    path, old = tmp_path / "a.h5", tmp_path / "a.h5.partial.old"
    cut_off(path, 100)
    long_work = (tmp_path / "a.h5.partial").read_bytes()
    with contextlib.suppress(CutOffError), AlignmentWriter(path, ATTRIBUTES) as file:
        assert old.read_bytes() == long_work
        raise CutOffError
    assert (tmp_path / "a.h5.partial").read_bytes() == long_work  # this run left nothing better
    assert not old.exists()
    assert not file.left()
    messages: list[str] = []
    with contextlib.suppress(CutOffError), AlignmentWriter(path, ATTRIBUTES, notify=messages.append) as file:
        feed(file, 50)
        raise CutOffError
    assert messages == [f"{path}.partial existed; renamed to {old}; --resume would have continued it"]
    assert file.left() == f"; {path}.partial has {COMMIT} pairs, and --resume continues after them"
    assert old.read_bytes() == long_work
    with resumed(path) as file:
        assert file.records == COMMIT
    assert not old.exists()  # also when the run that set it aside was interrupted
    with AlignmentWriter(path, {}, notify=messages.append):
        assert len(messages) == 1
    cut_off(path, 1, resume=False)
    assert len(AlignmentFile(path)) == 0
    assert list(tmp_path.iterdir()) == [path]  # the old file, and nothing of a run that had no chunk yet


def test_two_runs_do_not_write_one_file(tmp_path):
    with AlignmentWriter(tmp_path / "a.h5", {}), pytest.raises(UsageError, match="another run is writing this file"):
        AlignmentWriter(tmp_path / "a.h5", {}, resume=True).__enter__()
    assert len(AlignmentFile(tmp_path / "a.h5")) == 0


def test_foreign_files_are_not_touched(tmp_path):
    (tmp_path / "a.h5.partial").write_text("a novel\n" * 20)
    with pytest.raises(FormatError, match=r"a\.h5\.partial: is not a file of an interrupted run"):
        resumed(tmp_path / "a.h5").__enter__()
    with AlignmentWriter(tmp_path / "a.h5", {}):
        assert (tmp_path / "a.h5.partial.old").read_text().startswith("a novel")
    with pytest.raises(UsageError, match="is not a file that can be replaced"), AlignmentWriter(tmp_path, {}):
        pass


@pytest.mark.parametrize(("name", "size"), [("a.h5.partial", 200_000), ("a.h5", 10**9)])  # HDF5 is built at the end
def test_a_full_disk_is_one_line_and_the_work_is_resumed(tmp_path, monkeypatch, small_disk, name, size):
    path, whole = tmp_path / "a.h5", written(tmp_path / "whole.h5")
    build = AlignmentWriter._build

    def build_on_a_small_disk(writer):
        with small_disk(20_000):
            build(writer)

    monkeypatch.setattr(AlignmentWriter, "_build", build_on_a_small_disk)
    with pytest.raises(ResourceError) as raised, resumed(path) as file, small_disk(size):
        feed(file)
    monkeypatch.undo()
    assert str(raised.value) == f"{tmp_path / name}: cannot write: {os.strerror(errno.EFBIG)}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5.partial", "whole.h5"]
    with resumed(path) as file:
        assert file.records > 90
        feed(file)
    assert path.read_bytes() == whole


def test_half_a_character_becomes_a_question_mark(tmp_path):
    with AlignmentWriter(tmp_path / "a.h5", {}) as file:
        add(file, ["\ud800x"], ["é\udfff"], np.ones((2, 2)), 0.0)
    assert AlignmentFile(tmp_path / "a.h5")[0].source == ("?x",)


@pytest.mark.parametrize(
    ("settings", "block"),
    [
        (b"{", b""),
        (b"[" * 100_000, b""),
        (b"3", b""),
        (None, b""),
        (None, b"short"),
        (None, struct.pack("<Q", 2**63) + bytes(100)),
        (None, struct.pack("<Q6q", 1, -1, 0, 0, 0, 0, 0)),
        (None, struct.pack("<Q6q", 1, 10**15, 0, 0, 0, 0, 0) + bytes(24)),
        (None, struct.pack("<Q6q", 1, *[2**63 - 1] * 6) + bytes(24)),
        (None, struct.pack("<Q6q", 1, 0, 0, 0, 0, 0, 0) + bytes(29)),
    ],
)
def test_a_crafted_journal_is_refused(tmp_path, settings, block):
    path, partial = tmp_path / "a.h5", tmp_path / "a.h5.partial"
    cut_off(path, 50)
    journal = partial.read_bytes()
    if settings is not None:
        journal = journal[: journal.index(b"\n") + 1]
    for payload in [block] if settings is None else [settings, block]:
        journal += struct.pack("<QI", len(payload), zlib.crc32(payload)) + payload
    partial.write_bytes(journal)
    with pytest.raises(FormatError, match=r"a\.h5\.partial: damaged .*; move it away, or leave out --resume"):
        resumed(path).__enter__()
    assert partial.read_bytes() == journal
