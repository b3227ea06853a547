"""Files of tensors: equal after reading; every changed bit is detected."""

import hashlib
import json
import os
import random
import struct
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from nmtalign import model_directory
from nmtalign.errors import FormatError, ResourceError
from nmtalign.model_directory import DIGEST_PLACE, int8_rows, load_tensors, map_arrays, read_metadata, save_tensors
from nmtalign.training.dry_run import process_peak

READERS = (read_metadata, map_arrays, load_tensors)

TENSORS = {
    "matrix": torch.arange(15.0).reshape(3, 5),
    "turned": torch.arange(12.0).reshape(3, 4).t(),
    "scalar": torch.tensor(3.5, dtype=torch.float64),
    "empty": torch.zeros(0, 4),
    "half": torch.tensor([1.5, -2.0, 3.0], dtype=torch.float16),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.tensor([2**40, -1]),
    "bytes": torch.arange(7, dtype=torch.uint8),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some.safetensors"
    save_tensors(path, TENSORS, {"update": "7", "accent": "é"})
    return path


def same(loaded):
    return loaded.keys() == TENSORS.keys() and all(torch.equal(loaded[name], TENSORS[name]) for name in TENSORS)


def test_every_type_and_shape_comes_back(path):
    tensors, metadata = load_tensors(path)
    assert same(tensors)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {n: t.dtype for n, t in TENSORS.items()}
    arrays, again = map_arrays(path)
    assert again == metadata
    assert {name: x.shape for name, x in arrays.items()} == {name: tuple(x.shape) for name, x in TENSORS.items()}
    assert read_metadata(path) == metadata == {"update": "7", "accent": "é"}


def test_equal_tensors_give_equal_bytes(path):
    before = path.read_bytes()
    save_tensors(path, dict(reversed(TENSORS.items())), {"update": "7", "accent": "é"})
    assert path.read_bytes() == before


def test_the_format_is_safetensors(path):
    with safe_open(path, "pt") as opened:
        assert same({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 - not a mapping
        assert list(opened.metadata()) == ["nmtalign"]


def test_any_flipped_bit_is_noticed(path, tmp_path):
    data = path.read_bytes()
    damaged = tmp_path / "damaged.safetensors"
    chance = random.Random(5)
    places = {*range(200), *chance.sample(range(len(data)), 200), *range(len(data) - 100, len(data))}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        damaged.write_bytes(changed)
        for read in (map_arrays, load_tensors):
            with pytest.raises(FormatError, match=r"damaged\.safetensors: (damaged|written by another|has the format)"):
                read(damaged)


def test_a_file_cut_off_anywhere_is_noticed_without_reading_all(path, tmp_path):
    data = path.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for size in [0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1]:
        cut.write_bytes(data[:size])
        for read in READERS:
            with pytest.raises(FormatError, match=r"cut\.safetensors: damaged"):
                read(cut)


def write_header(path, entries, data=b"", **more):
    """A file with any header and a checksum that fits."""
    marks = json.dumps({"sha256": "0" * 64, "format_version": "2", **more}, separators=(",", ":"))
    text = json.dumps({"__metadata__": {"nmtalign": marks}, **entries}, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text + data
    digest = hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(content[:DIGEST_PLACE] + digest + content[DIGEST_PLACE + 64 :])


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "entries",
    [
        {"a": entry([2], 0, 8), "b": entry([2], 4, 12)},  # an overlap
        {"a": entry([2], 0, 8), "b": entry([2], 12, 20)},  # a gap
        {"a": entry([3], 0, 8)},
        {"a": entry([2], 0, 8, "F64")},
        {"a": entry([2**63, 0], 0, 0)},
        {"a": entry([-1, -2], 0, 8)},
        {"a": entry([2**62, 2**62], 0, 8)},
        {"a": entry([2], 8, 0)},
        {"a": entry([2], 0, 8), "b": entry([2], 2**70, 2**70 + 8)},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, entries):
    ends = [entry["data_offsets"][1] for entry in entries.values() if entry["data_offsets"][1] < 100]
    write_header(tmp_path / "f", entries, bytes(max(ends, default=0)))
    with pytest.raises(FormatError, match=r"f: damaged, or not a safetensors file \(.{5,200}\)$"):
        load_tensors(tmp_path / "f")


@pytest.mark.parametrize("marks", ["", "[]", "{", "[" * 9999, '{"update":7}', '{"format_version":"1"}', None])
def test_a_file_of_another_program_or_version_is_refused(tmp_path, marks):
    metadata = {"format": "nmtalign model"} if marks is None else {"nmtalign": marks}
    save_file({"a": torch.ones(2)}, tmp_path / "f", metadata)
    for read in READERS:
        with pytest.raises(FormatError, match=r"f: (damaged|has the format|written by another program, or by an ear)"):
            read(tmp_path / "f")


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "f")
    for read in READERS:
        with pytest.raises(FormatError, match="cannot be read: not a regular file"):
            read(tmp_path / "f")


def test_the_tensors_of_a_file_that_is_replaced_are_those_that_were_checked(path, monkeypatch):
    def replaced(*arguments):
        save_tensors(path, {"a": torch.ones(1)}, {}, keep=path.with_name("older"))
        return safe_open(*arguments)

    monkeypatch.setattr(model_directory, "safe_open", replaced)
    loaded = load_tensors(path)[0]
    assert same(loaded)
    assert read_metadata(path) == {}


def test_a_refused_write_leaves_the_file_that_was_there_and_nothing_incomplete(path, small_disk):
    with small_disk(4096), pytest.raises(ResourceError, match=r"some\.safetensors: cannot write: File too large"):
        save_tensors(path, {"a": torch.ones(9999)}, {}, keep=path.with_name("older"))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert same(load_tensors(path)[0])


def test_writing_copies_no_tensor(tmp_path):
    large = torch.ones(16 << 20)
    save_tensors(tmp_path / "f", {"small": torch.ones(3)}, {})
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = process_peak()
    save_tensors(tmp_path / "f", {"large": large}, {})
    assert process_peak() - before < large.nbytes / 2


def test_matrices_in_eight_bits_come_back_near_what_they_were(tmp_path):
    torch.manual_seed(1)
    tensors = {
        "matrix": torch.randn(30, 50) * torch.logspace(-6, 6, 30)[:, None],
        "both": torch.randn(2, 9, 40),
        "zeros": torch.zeros(3, 5),
        "least": torch.full((1, 2), 1e-44),
        "vector": torch.randn(7),
        "cell.bias": torch.randn(2, 9),  # one vector per direction
        "count": torch.tensor([[3, 4]]),
    }
    path = tmp_path / "f"
    save_tensors(path, int8_rows(tensors), {"weights": "int8"})
    assert read_metadata(path) == {"weights": "int8"}
    found, metadata = load_tensors(path)
    assert not metadata
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        if name in ("vector", "cell.bias", "count"):
            assert torch.equal(found[name], tensor)
        else:
            largest = tensor.abs().amax(-1, keepdim=True)
            assert bool(((found[name] - tensor).abs() <= largest / 253 + 1e-37).all())
    with safe_open(path, "pt") as opened:  # the layout, read by another program
        whole, scale = opened.get_tensor("both"), opened.get_tensor("both.scale")
    assert (whole.dtype, whole.abs().amax(-1).tolist(), scale.shape) == (torch.int8, [[127] * 9] * 2, (2, 9))
    assert torch.equal(found["both"], whole.float() * scale[..., None])
    save_tensors(path, int8_rows(found), {"weights": "int8"})
    assert all(torch.allclose(load_tensors(path)[0][name], found[name], rtol=1e-5) for name in tensors)
    with pytest.raises(ValueError, match="matrix has a value that is not finite"):
        int8_rows({"matrix": torch.tensor([[1.0, torch.nan]])})


@pytest.mark.parametrize(
    "entries",
    [
        {"a": entry([2, 3], 0, 6, "I8")},  # no scale
        {"a": entry([2, 2], 0, 4, "I8"), "a.scale": entry([1], 4, 8)},
        {"a": entry([2, 2], 0, 4, "I8"), "a.scale": entry([2, 2], 4, 20)},
        {"a": entry([], 0, 1, "I8"), "a.scale": entry([], 1, 5)},
        {"a": entry([2**40, 0], 0, 0, "I8"), "a.scale": entry([2**40], 0, 8)},
    ],
)
def test_scales_that_do_not_fit_are_refused(tmp_path, entries):
    write_header(tmp_path / "f", entries, bytes(max(e["data_offsets"][1] for e in entries.values())), weights="int8")
    with pytest.raises(FormatError, match="f: damaged"):
        load_tensors(tmp_path / "f")


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 3e38])
def test_scales_that_are_no_numbers_are_refused(tmp_path, scale):
    entries = {"a": entry([1, 4], 0, 4, "I8"), "a.scale": entry([1], 4, 8)}
    write_header(tmp_path / "f", entries, bytes(4) + struct.pack("<f", scale), weights="int8")
    with pytest.raises(FormatError, match="f: damaged: the scales of a are not finite numbers from 0"):
        load_tensors(tmp_path / "f")
