"""The settings of sample and reproduce: frozen dataclasses, validated when they are made."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from nmtalign.settings.definition import (
    BUDGET,
    DEVICE_HELP,
    MACHINE,
    MODEL,
    PRECISION_HELP,
    SEARCH,
    TEXT,
    Device,
    Precision,
    SettingError,
    check_settings,
    section,
    setting,
)

_OF_TRAIN = "that of [train]"


@section("sample")
@dataclass(frozen=True)
class SampleConfig:
    """The size of a sample corpus (section [sample])."""

    pairs: int = setting(20_000, "Training pairs.", TEXT, common=True, at_least=1)
    seed: int = setting(1, "Another seed gives other sentences.", TEXT, common=True, at_most=2**63 - 1)

    def __post_init__(self) -> None:
        check_settings(self)


def line_numbers(name: str, text: str) -> tuple[int, ...]:
    """(3, 17) of "3,17"."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(re.fullmatch(r"0*[1-9][0-9]{0,8}", part) for part in parts):
        raise SettingError("give lines of the test set, counted from 1, as in 3,17", **{name: text})
    return tuple(map(int, parts))


def _budget(help: str) -> Any:  # noqa: A002
    return setting(None, help, BUDGET, common=True, above=0, at_most=1e15, unset="by scale")


@section("reproduce")
@dataclass(frozen=True)
class ReproduceConfig:
    """Which experiments of the article are repeated, and what their report contains (section [reproduce])."""

    scale: Literal["tiny", "small", "paper"] = setting(
        "small", "Sizes: minutes or hours on a laptop, or the paper's own.", MODEL, common=True
    )
    models: str = setting(
        "", "Which of the article's models.", MODEL, common=True, unset="all; with --systems none", metavar="NAME,..."
    )
    systems: str = setting(
        "none", "Systems around the article, compared in one table.", MODEL, common=True, metavar="all|none|NAME,..."
    )
    ablations: str = setting("none", "What is removed or replaced.", MODEL, common=True, metavar="all|none|NAME,...")
    seeds: int = setting(1, "Models of each kind.", MODEL, common=True, at_least=1)
    updates: int | None = _budget("Budget of each model: updates.")
    words: float | None = _budget("Budget of each model: target words, such as 1e7.")
    hours: float | None = _budget("Budget of each model: hours of training.")
    beam: int | None = setting(None, "Width of the beam.", SEARCH, common=True, at_least=1, unset="that of [translate]")
    sentences: str = setting(
        "", "Lines of the test set to show, counted from 1.", TEXT, common=True, form=line_numbers, metavar="N,..."
    )
    long: int = setting(3, "Longest sentences whose translations are compared.", TEXT)
    reordered: int = setting(4, "Most reordered sentences that are drawn.", TEXT)
    text: bool = setting(True, "The report contains sentences of the corpus.", TEXT, common=True)
    jobs: int = setting(1, "Models trained at the same time, each by a process.", MACHINE, common=True, at_least=1)
    device: Device | None = setting(None, DEVICE_HELP, MACHINE, common=True, unset=_OF_TRAIN)
    precision: Precision | None = setting(None, PRECISION_HELP, MACHINE, unset=_OF_TRAIN)
    threads: int | None = setting(
        None, "CPU threads; 0 lets PyTorch choose.", MACHINE, common=True, at_most=1000, unset=_OF_TRAIN
    )

    def __post_init__(self) -> None:
        check_settings(self)
        budgets = {name: getattr(self, name) for name in ("updates", "words", "hours") if getattr(self, name)}
        if len(budgets) > 1:
            raise SettingError("give one budget, the same for every model", **budgets)
