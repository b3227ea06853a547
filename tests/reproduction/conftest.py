"""A reproduction in seconds: models of a few units, a few updates, the sample corpus."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.reproductions import make_plan_in

from nmtalign.reproduction.experiments import SCALES, Scale
from nmtalign.reproduction.plan import ReproductionPlan
from nmtalign.sample.sample_corpus import write_sample

SMALLEST = {"embedding": 8, "hidden": 8, "attention_hidden": 5, "maxout": 4, "output_rank": 4, "dropout": 0.0}
SEARCH = "\n[translate]\nmax_length_ratio = 1.0\n[score]\nbootstrap = 20\n"


@pytest.fixture(scope="session")
def smallest() -> Scale:
    tiny = SCALES["tiny"]
    settings = {**tiny.settings, **SMALLEST, "threads": 1, "precision": "fp32", "device": "cpu", "bleu_sentences": 2}
    return dataclasses.replace(tiny, settings=settings, few_words="60", many_words="90", pieces="200")


@pytest.fixture(scope="session")
def make_sample(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes a workspace of the sample grammar, with 12 sentences to test on."""

    def make() -> Path:
        folder = tmp_path_factory.mktemp("sample") / "demo"
        write_sample(folder, 300)
        for name in ("dev.en", "dev.fr", "test.en", "test.fr", "test.align"):
            lines = (folder / name).read_text().splitlines(keepends=True)
            (folder / name).write_text("".join(lines[:12]))
        with (folder / "nmtalign.toml").open("a") as stream:
            stream.write(SEARCH)
        return folder

    return make


@pytest.fixture
def workspace(make_sample: Callable[[], Path]) -> Path:
    """A workspace for one test."""
    return make_sample()


@pytest.fixture
def plan(smallest: Scale, workspace: Path) -> Callable[..., ReproductionPlan]:
    """Makes a plan for the workspace; the arguments are those of `make_plan_in`."""
    return functools.partial(make_plan_in, workspace, smallest)
