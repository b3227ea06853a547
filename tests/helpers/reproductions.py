"""Makes plans of tiny models, runs them and writes their reports."""

import contextlib
import re
from pathlib import Path

from nmtalign.reproduction.experiments import EqualBudget, Scale
from nmtalign.reproduction.plan import ReproductionPlan, ReproductionRequest, make_plan
from nmtalign.reproduction.reproduction_report import begin_folder, write_report
from nmtalign.reproduction.reproduction_results import Results, gather
from nmtalign.reproduction.running import Reproduction
from nmtalign.settings.workspace import load_workspace

TWO = "RNNencdec-50,RNNsearch-50"


def make_plan_in(
    workspace: Path,
    scale: Scale,
    budget: EqualBudget | None = None,
    folder: str = "reproduction",
    threads: int = 1,
    **more: object,
) -> ReproductionPlan:
    """A plan for the workspace; by default four models, three updates each, a beam of one."""
    budget = budget or EqualBudget("updates", 3)
    flags = {"beam": 1, "threads": threads}
    request = ReproductionRequest(scale, budget, folder=workspace / folder, flags=flags, **more)  # type: ignore[arg-type]
    return make_plan(request, load_workspace(workspace / "nmtalign.toml"))


def reach(plan: ReproductionPlan, heard: list[str] | None = None) -> Results:
    """Runs a plan and writes its report; `heard` gets the messages."""
    begin_folder(plan)
    listen = (heard if heard is not None else []).append
    results = gather(Reproduction(plan, listen, lambda folder: contextlib.nullcontext(lambda event: None)).run())
    write_report(results)
    return results


def rows_of(text: str, head: str) -> list[list[str]]:
    """The cells of the Markdown table whose head line begins so."""
    lines = text[text.index(head) :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]
