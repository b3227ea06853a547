"""The settings of align, aer, lexicon and plot: frozen dataclasses, validated when they are made."""

from dataclasses import dataclass
from typing import Literal

from nmtalign.settings.definition import (
    ALIGNMENT,
    BUDGET,
    DEVICE_HELP,
    INFERENCE_PRECISION_HELP,
    MACHINE,
    MEASURES,
    MODEL,
    TABLES,
    TEXT,
    Device,
    InferencePrecision,
    SettingError,
    check_settings,
    seconds,
    section,
    setting,
    threads_setting,
)

LinkMethod = Literal["argmax", "threshold"]
Reading = Literal["auto", "current", "shifted", "posterior", "occlusion"]
HardSymmetrization = Literal[
    "intersection", "union", "grow-diag", "grow-diag-strict", "grow-diag-final", "grow-diag-final-and"
]
SoftSymmetrization = Literal["product", "mutual", "agreement", "bayes-risk"]
Symmetrization = Literal[HardSymmetrization, SoftSymmetrization]

_GOLD_BASE = "0; 1 if each line has one link"


@section("align")
@dataclass(frozen=True)
class AlignConfig:
    """How `align` reads the attention weights (section [align])."""

    links: LinkMethod | None = setting(
        None,
        "How weights become links.",
        ALIGNMENT,
        common=True,
        unset="threshold if a threshold is given, else argmax",
    )
    threshold: float = setting(0.0, "Smallest weight of a link; 0 = automatic.", ALIGNMENT, common=True, at_most=1)
    reading: Reading = setting(
        "auto",
        "Weights that align a word: those of its step (current), of the next step (shifted), given the word "
        "(posterior), or the effect of each source word on it (occlusion). auto: current for one model, posterior or "
        "shifted for two.",
        ALIGNMENT,
        common=True,
    )
    temperature: float = setting(
        1.0, "Raise weights to the power 1 / temperature.", ALIGNMENT, at_least=0.01, at_most=100
    )
    drop_end: bool = setting(False, "Remove </s> from the weights.", ALIGNMENT, flags="--drop-end/--keep-end")
    symmetrize: Symmetrization | None = setting(
        None,
        "How two directions are combined: intersection, union, grow-diag, grow-diag-strict, grow-diag-final, "
        "grow-diag-final-and (of links), product, mutual, agreement, bayes-risk (of weights).",
        ALIGNMENT,
        common=True,
        metavar="METHOD",
        unset="agreement; product with a word aligner",
    )
    batch_size: int = setting(80, "Pairs per batch.", MACHINE, at_least=1)
    weights: Literal["float16", "float32"] = setting("float16", "Type of the stored weights.", TEXT)
    device: Device = setting("auto", DEVICE_HELP, MACHINE, common=True)
    precision: InferencePrecision = setting("fp32", INFERENCE_PRECISION_HELP, MACHINE)
    threads: int = threads_setting()
    tokenized: bool = setting(
        False, "The texts are tokenised: split them at spaces.", TEXT, common=True, flags="--tokenized/--raw"
    )

    def __post_init__(self) -> None:
        check_settings(self)


@section("link")
@dataclass(frozen=True)
class LinkConfig:
    """How `link` aligns a bitext (section [link])."""

    max_time: str = setting(
        "",
        "Finish in about this time: 2m, 1h.",
        BUDGET,
        common=True,
        form=seconds,
        metavar="TIME",
        unset="as long as the corpus needs",
    )
    quick: bool = setting(
        False, "Fewer iterations, and at most 50,000 pairs.", BUDGET, common=True, flags="--quick/--thorough"
    )
    tokenized: bool = setting(
        False,
        "The texts are tokenised: split them only at spaces. Texts whose commas stand between spaces are recognised.",
        TEXT,
        common=True,
        flags="--tokenized/--raw",
    )
    threads: int = threads_setting()

    def __post_init__(self) -> None:
        check_settings(self)


@section("aer")
@dataclass(frozen=True)
class AerConfig:
    """How `aer` reads links and what it prints (section [aer])."""

    gold_base: int | None = setting(None, "First position in GOLD.", TEXT, common=True, at_most=1, unset=_GOLD_BASE)
    links_base: int | None = setting(None, "First position in LINKS.", TEXT, common=True, at_most=1, unset=_GOLD_BASE)
    reverse_gold: bool = setting(
        False, "GOLD has the target first.", TEXT, common=True, flags="--reverse-gold/--keep-gold"
    )
    reverse_links: bool = setting(
        False, "LINKS have the target first.", TEXT, common=True, flags="--reverse-links/--keep-links"
    )
    links_method: LinkMethod | None = setting(
        None, "Read the links of an .h5 from its weights.", TEXT, common=True, unset="the stored links"
    )
    threshold: float | None = setting(
        None, "Smallest weight of a link of an .h5.", TEXT, common=True, at_most=1, unset="the stored links"
    )
    by_length: bool = setting(False, "Also compare by words of the source.", TABLES, common=True)
    buckets: str | None = setting(
        None, "Upper ends of the rows of --by-length.", TABLES, metavar="N,...", unset="10,20,30,40,50,60"
    )
    by_type: bool = setting(False, "Also compare by type: monotone, many-to-one, NULL, ...", TABLES, common=True)
    worst: int = setting(0, "Also print the N sentences with the highest AER.", TABLES, common=True)
    alpha: float | None = setting(
        None, "Also compute F = 1 / (A / precision + (1 - A) / recall).", MEASURES, at_most=1, metavar="A", unset="none"
    )
    format: Literal["text", "json", "csv"] = setting("text", "Format of the result.", TABLES, common=True)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.threshold is not None and self.links_method == "argmax":
            raise SettingError(
                "argmax has no threshold; leave one of them out", threshold=self.threshold, links_method="argmax"
            )


@section("lexicon")
@dataclass(frozen=True)
class LexiconConfig:
    """How `lexicon` makes a translation table (section [lexicon])."""

    iterations: int = setting(5, "Iterations of IBM Model 1.", MODEL, common=True, at_least=1)
    top: int = setting(20, "Largest number of translations per source word.", TABLES, common=True, at_least=1)
    min_probability: float = setting(
        0.001, "Smallest probability of a translation.", TABLES, common=True, below=1, metavar="P"
    )
    reverse: bool = setting(False, "Translate from target to source.", TABLES, common=True)
    tokenized: bool = setting(
        False, "The texts are tokenised: split them at spaces.", TEXT, common=True, flags="--tokenized/--raw"
    )
    every: int = setting(1, "Use only every N-th pair.", TEXT, common=True, at_least=1)
    workers: int = setting(0, "Processes that tokenise; 0 starts one per core.", MACHINE)

    def __post_init__(self) -> None:
        check_settings(self)


@section("plot")
@dataclass(frozen=True)
class PlotConfig:
    """How `plot` draws alignments and learning curves (section [plot])."""

    rank: int = setting(0, "Place in the n-best list, if the file has one.", TABLES, common=True)
    hard_links: bool = setting(
        False, "Also draw the hard links of the file.", ALIGNMENT, common=True, flags="--links/--no-links"
    )
    gold_base: int | None = setting(
        None, "First position in the gold links.", TEXT, common=True, at_most=1, unset=_GOLD_BASE
    )
    reverse_gold: bool = setting(
        False, "The gold links have the target first.", TEXT, common=True, flags="--reverse-gold/--keep-gold"
    )
    end: bool = setting(True, "Draw the row and the column of </s>.", ALIGNMENT, common=True)
    colorbar: bool = setting(False, "Draw a scale of grey beside the picture.", ALIGNMENT)
    x: Literal["updates", "epochs", "hours", "words"] = setting(
        "updates", "The x axis of learning curves.", MEASURES, common=True
    )
    width: int | None = setting(None, "Columns of the terminal.", MACHINE, at_least=10, unset="all")

    def __post_init__(self) -> None:
        check_settings(self)
