"""Tables of edit distances in bits: their distances and paths are those of tables of numbers."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import lib_ter

from nmtalign.scoring import edit_distance
from nmtalign.scoring.edit_distance import align, band_of, count_bits, fill_table, low_bits, pack, unpack, word_type

FLIP = {"i": "d", "d": "i"}


def tables(
    pairs: list[tuple[list[int], list[int]]],
) -> tuple[np.ndarray, list[tuple[list[bool], list[bool], list[int]]]]:
    """Distances, and the paths as (wrong, missed, places) of every pair; the longest hypothesis comes first."""
    lengths, sizes = (np.array([len(pair[side]) for pair in pairs]) for side in (0, 1))
    kind = word_type(int(sizes.max()))
    words = -(-int(sizes.max()) // (8 * kind.itemsize))
    equal = np.zeros((len(pairs), lengths[0], sizes.max()), dtype=bool)
    for number, (hypothesis, reference) in enumerate(pairs):
        equal[number, : len(hypothesis), : len(reference)] = np.array(hypothesis)[:, None] == reference
    bits = np.ascontiguousarray(np.moveaxis(pack(equal, words, kind), 1, 2))
    reference_bits = low_bits(sizes, words, kind)
    band = band_of(lengths, sizes, words, kind)
    table = fill_table(bits, lengths, reference_bits, band)
    path = align(bits, table, lengths, reference_bits, band)
    rows = zip(path.wrong, path.missed, path.places, lengths, sizes, strict=True)
    return table.distance, [
        (wrong[:m].tolist(), missed[:n].tolist(), places[: n + 1].tolist()) for wrong, missed, places, m, n in rows
    ]


def expected(hypothesis: list[int], reference: list[int]) -> tuple[int, tuple[list[bool], list[bool], list[int]]]:
    words = [[str(word) for word in side] for side in (hypothesis, reference)]
    count, trace = lib_ter.BeamEditDistance(words[1])(words[0])
    places, missed, wrong = lib_ter.trace_to_alignment("".join(FLIP.get(step, step) for step in trace))
    passed = [0, *(places[column] + 1 for column in range(len(reference)))]
    return count, ([bool(flag) for flag in wrong], [bool(flag) for flag in missed], passed)


@pytest.mark.parametrize("width", [1, 3, 25])
@pytest.mark.parametrize("longest", [8, 24, 32, 60, 64, 65, 140])
def test_distances_and_paths_are_sacrebleus(longest: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib_ter, "_BEAM_WIDTH", width)
    monkeypatch.setattr(edit_distance, "BAND", width)
    draw = random.Random(longest)
    pairs = []
    for _ in range(60 if longest < 60 else 12):
        most = draw.choice([2, 4, 30])
        sizes = draw.randrange(longest) + 1, draw.randrange(longest) + 1
        hypothesis, reference = ([draw.randrange(most) for _ in range(size)] for size in sizes)
        if draw.random() < 0.5:
            hypothesis = [word for word in reference if draw.random() < 0.8] or [0]
        pairs.append((hypothesis, reference))
    pairs.append(([draw.randrange(4) for _ in range(longest)], [draw.randrange(4) for _ in range(longest)]))
    pairs.sort(key=lambda pair: -len(pair[0]))
    distances, paths = tables(pairs)
    for pair, distance, path in zip(pairs, distances.tolist(), paths, strict=True):
        assert (distance, path) == expected(*pair)


@pytest.mark.parametrize("kind", ["<u4", "<u8"])
def test_bits_are_packed_and_counted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = np.random.default_rng(1).random((3, 5, 90)) < 0.5
    words = 3 if kind == "<u4" else 2
    packed = pack(flags, words, np.dtype(kind))
    assert packed.shape == (words, 3, 5)
    np.testing.assert_array_equal(unpack(packed)[..., :90], flags)
    np.testing.assert_array_equal(count_bits(packed), flags.sum(axis=-1))
    monkeypatch.delattr(np, "bitwise_count", raising=False)  # numpy 1
    np.testing.assert_array_equal(count_bits(packed), flags.sum(axis=-1))
    np.testing.assert_array_equal(
        count_bits(low_bits(np.array([0, 1, 31, 32, 64, 90]), words, np.dtype(kind))), [0, 1, 31, 32, 64, 90]
    )
