"""The settings and files on which a kept translation depends."""

import dataclasses
from pathlib import Path

import pytest

from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.translating import keeping
from nmtalign.translating.keeping import key_of, options_that_count, origin_of

PLAIN = TranslateConfig(device="cpu")


def test_every_setting_counts_but_those_that_change_no_word() -> None:
    counted = set(options_that_count(PLAIN))
    known = {field.name for field in dataclasses.fields(TranslateConfig)}
    assert known - counted == {
        "n_best", "sample", "temperature", "top_k", "seed", "ensemble", "format", "input_format", "word_scores",
        "alignment", "batch_size", "max_memory", "threads",
    }  # fmt: skip


def test_a_lexicon_counts_by_its_content_and_where_it_is_used(tmp_path: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("x")
    other.write_text("x")
    used = [
        options_that_count(TranslateConfig(lexicon=str(name), candidates=9, device="cpu")) for name in (path, other)
    ]
    assert used[0] == used[1]
    path.write_text("y")
    assert options_that_count(TranslateConfig(lexicon=str(path), candidates=9, device="cpu")) != used[0]
    assert options_that_count(TranslateConfig(lexicon=str(path), device="cpu")) == options_that_count(PLAIN)


def test_the_machine_counts_by_how_it_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "has_gpu", lambda: False)
    assert options_that_count(TranslateConfig(device="auto")) == options_that_count(PLAIN)
    monkeypatch.setattr(keeping, "has_gpu", lambda: True)
    assert options_that_count(TranslateConfig(device="auto"))["device"] == "cuda"
    for name in ("bf16", "int8", "fp32"):
        monkeypatch.setattr(keeping, "fastest_precision", lambda name=name: name)
        assert options_that_count(TranslateConfig(device="cpu", precision="auto"))["precision"] == name


def test_a_hidden_gpu_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not keeping.has_gpu()


def test_the_key_is_of_all_that_counts() -> None:
    origin = origin_of("m", ["a", "b"], PLAIN)
    others = [
        origin_of("n", ["a", "b"], PLAIN),
        origin_of("m", ["a b"], PLAIN),
        origin_of("m", ["a", "b", ""], PLAIN),
        origin_of("m", ["a", "b"], dataclasses.replace(PLAIN, beam=1)),
        {**origin, "nmtalign_version": "1.1"},
    ]
    assert len({key_of(each) for each in (origin, *others)}) == 6
