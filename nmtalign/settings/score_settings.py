"""The settings of score: a frozen dataclass, validated when it is made."""

from dataclasses import dataclass
from typing import Literal

from nmtalign.settings.definition import CONFIDENCE, MEASURES, TABLES, check_settings, section, setting

LengthOf = Literal["source", "reference", "hypothesis"]
Significance = Literal["bs", "ar", "both", "none"]


@section("score")
@dataclass(frozen=True)
class ScoreConfig:
    """What `score` measures and prints (section [score])."""

    by_length: bool = setting(False, "Also score by sentence length.", TABLES, common=True)
    length_of: LengthOf = setting("source", "Text whose lengths define the buckets.", TABLES)
    buckets: str = setting("10,20,30,40,50,60", "Upper ends of the buckets, in words.", TABLES, metavar="N,...")
    cumulative: bool = setting(
        False, "Each bucket contains all sentences up to its upper end.", TABLES, flags="--cumulative/--apart"
    )
    by_place: bool = setting(
        False, "Also score by the place of sentences in the text and of words in their sentence.", TABLES
    )
    by_frequency: bool = setting(False, "Also print the F1 of words by their frequency in the training text.", TABLES)
    no_unk: bool = setting(
        False,
        "Also score only the sentences without unknown words.",
        TABLES,
        common=True,
        flags="--known-words/--all-words",
    )
    table1: bool = setting(False, "Print the article's Table 1: BLEU with and without unknown words.", TABLES)
    differences: int = setting(
        0, "Print the N sentences in which the first two systems differ most.", TABLES, common=True
    )
    draw_attention: bool = setting(
        False, "Draw the attention of the systems in these sentences.", TABLES, flags="--attention/--no-attention"
    )
    metrics: str = setting(
        "",
        "Some of bleu, chrf, chrf++, multi-bleu, ter (slow), or all.",
        MEASURES,
        unset="all but ter",
        common=True,
        metavar="NAME,...",
    )
    lowercase: bool = setting(False, "Lowercase texts before BLEU.", MEASURES, flags="--lowercase/--cased")
    tokenize: str = setting("13a", "sacreBLEU's tokeniser for BLEU.", MEASURES, metavar="NAME")
    target_language: str = setting(
        "",
        "Language of the translations, for multi-bleu.",
        MEASURES,
        unset="the workspace's, the model's, or the ending of the reference",
        metavar="LANG",
    )
    confidence: bool | None = setting(
        None,
        "Print 95% confidence intervals.",
        CONFIDENCE,
        common=True,
        unset="where systems, lengths or places are compared",
    )
    bootstrap: int = setting(1000, "Bootstrap samples.", CONFIDENCE, at_least=2, at_most=1_000_000)
    trials: int = setting(10_000, "Trials of approximate randomisation.", CONFIDENCE, at_least=1, at_most=1_000_000)
    seed: int | None = setting(
        None, "Seed of the samples.", CONFIDENCE, unset="$SACREBLEU_SEED, or 12345", at_most=2**32 - 1
    )
    significance: Significance = setting(
        "bs", "Paired bootstrap (bs), approximate randomisation (ar), both or none.", CONFIDENCE, common=True
    )
    format: Literal["text", "json", "csv"] = setting("text", "Format of the result.", TABLES, common=True)
    fail_under: float | None = setting(
        None,
        "Exit with 1 if the BLEU (or else the first metric) of a system is lower.",
        TABLES,
        common=True,
        at_least=-1e9,
        at_most=1e9,
        unset="no limit",
    )

    def __post_init__(self) -> None:
        check_settings(self)
