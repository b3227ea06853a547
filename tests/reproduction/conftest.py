"""A reproduction in seconds: models of a few units, a few updates, the sample corpus."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from nmtalign.reproduction.experiments import SCALES, EqualBudget, Scale
from nmtalign.reproduction.plan import ReproductionPlan, ReproductionRequest, make_plan
from nmtalign.reproduction.reproduction_report import begin_folder, write_report
from nmtalign.reproduction.reproduction_results import Results, gather
from nmtalign.reproduction.running import Happening, Reproduction
from nmtalign.sample import write_sample
from nmtalign.workspace import load_workspace

SMALLEST = {"embedding": 6, "hidden": 8, "attention_hidden": 5, "maxout": 4, "output_rank": 4, "dropout": 0.0}
SEARCH = "\n[translate]\nmax_length_ratio = 1.0\n[score]\nbootstrap = 20\n"
Made = Callable[..., ReproductionPlan]


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
    """A workspace of one's own."""
    return make_sample()


@pytest.fixture
def plan(smallest: Scale, workspace: Path) -> Made:
    """A plan for the workspace; by default four models, three updates each, a beam of one."""
    return functools.partial(make_plan_in, workspace, smallest)


def make_plan_in(
    workspace: Path, scale: Scale, budget: EqualBudget | None = None, folder: str = "reproduction", **more: object
) -> ReproductionPlan:
    request = ReproductionRequest(
        scale,
        budget or EqualBudget("updates", 3),
        folder=workspace / folder,
        flags={"beam": 1, "threads": 1},
        **more,  # type: ignore[arg-type]
    )
    return make_plan(request, load_workspace(workspace / "nmtalign.toml"))


def reach(plan: ReproductionPlan, said: list[Happening] | None = None) -> Results:
    """Runs a plan and writes its report."""
    begin_folder(plan)
    heard = said if said is not None else []
    reproduction = Reproduction(plan, heard.append, lambda folder: contextlib.nullcontext(lambda event: None))
    results = gather(reproduction.run())
    write_report(results)
    return results
