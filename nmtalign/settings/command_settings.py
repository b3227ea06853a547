"""The settings of the commands from prep to lexicon: frozen dataclasses, validated when they are made."""

from dataclasses import dataclass
from typing import Literal

from nmtalign.settings.definition import (
    ALIGNMENT,
    CONFIDENCE,
    DEVICE_HELP,
    MACHINE,
    MEASURES,
    MODEL,
    PRECISION_HELP,
    SAMPLING,
    SEARCH,
    TABLES,
    TEXT,
    UNKNOWN,
    VOCABULARY,
    Device,
    Precision,
    SettingError,
    byte_count,
    check_settings,
    pair_of_sizes,
    section,
    seed_setting,
    setting,
    threads_setting,
)

VocabularyKind = Literal["word", "bpe", "unigram", "none"]
Search = Literal["beam", "paper"]
LinkMethod = Literal["argmax", "threshold"]
Reading = Literal["auto", "current", "shifted", "posterior"]
HardSymmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
SoftSymmetrization = Literal["product", "mutual", "agreement", "bayes-risk"]
LengthOf = Literal["source", "reference", "hypothesis"]
Significance = Literal["bs", "ar", "both", "none"]
Symmetrization = Literal[HardSymmetrization, SoftSymmetrization]
_GOLD_BASE = "0; 1 if each line has one link"


@section("prep")
@dataclass(frozen=True)
class PrepConfig:
    """How two text files become a prepared corpus (section [prep])."""

    vocabulary: VocabularyKind = setting(
        "word",
        "word (Moses), bpe or unigram (sentencepiece), or none: the text is tokenised.",
        VOCABULARY,
        common=True,
    )
    shortlist: str = setting(
        "30000",
        "Word ids per side, including </s> and <unk>.",
        VOCABULARY,
        common=True,
        form=pair_of_sizes,
        metavar="N|N:M",
    )
    min_count: int = setting(1, "Less frequent words are unknown.", VOCABULARY, common=True, at_least=1)
    size: str = setting(
        "8000", "Subword pieces per side.", VOCABULARY, common=True, form=pair_of_sizes, metavar="N|N:M"
    )
    max_length: int = setting(50, "Drop pairs with more tokens on either side; 0 keeps all.", TEXT, common=True)
    drop_duplicates: bool = setting(
        False, "Drop repeated training pairs.", TEXT, flags="--drop-duplicates/--keep-duplicates"
    )
    workers: int = setting(0, "Processes that tokenise; 0 starts one per core.", MACHINE)

    def __post_init__(self) -> None:
        check_settings(self)


@section("translate")
@dataclass(frozen=True)
class TranslateConfig:
    """How `translate` searches and what it prints (section [translate])."""

    beam: int = setting(12, "Width of the beam.", SEARCH, common=True, at_least=1)
    search: Search = setting("beam", "beam, or the search of the paper's released code.", SEARCH)
    length_penalty: float = setting(1.0, "A in score = log-probability / length^A.", SEARCH, common=True, at_most=50)
    word_penalty: float = setting(
        0.0, "Subtracted for each word from the log-probability.", SEARCH, at_least=-1e6, at_most=1e6
    )
    coverage_penalty: float = setting(0.0, "Penalty for source words with little attention.", SEARCH, at_most=1e6)
    min_length_ratio: float = setting(0.0, "Smallest length, as a multiple of the source length.", SEARCH)
    max_length_ratio: float = setting(
        3.0, "Largest length, as a multiple of the source length.", SEARCH, above=0, at_most=1000
    )
    n_best: int = setting(1, "Translations printed per line.", TEXT, common=True, at_least=1)
    sample: bool = setting(False, "Draw words at random instead of searching.", SAMPLING)
    temperature: float = setting(1.0, "Below 1, sampling is sharper.", SAMPLING, above=0, at_most=1e6)
    top_k: int = setting(0, "Draw from the K most probable words; 0 = all.", SAMPLING)
    seed: int = seed_setting("Seed of sampling.", SAMPLING)
    ensemble: Literal["probability", "log"] = setting("probability", "What several models average.", SEARCH)
    allow_unk: bool = setting(False, "Let the search generate <unk>.", UNKNOWN)
    replace_unk: bool = setting(
        False, "Replace <unk> by its aligned source word or that word's translation.", UNKNOWN, common=True
    )
    lexicon: str = setting(
        "",
        "Word translations: for replace_unk, or to restrict the search.",
        UNKNOWN,
        common=True,
        is_path=True,
        metavar="FILE",
    )
    candidates: int = setting(0, "Search only the lexicon's and the N most frequent words; 0 = all.", UNKNOWN)
    format: Literal["text", "json"] = setting("text", "Print text, or one JSON object per line.", TEXT, common=True)
    input_format: Literal["text", "json"] = setting(
        "text", 'Read text, or JSON objects with "text", "prefix" and "phrases".', TEXT
    )
    word_scores: bool = setting(False, "Also print the log-probability of each word.", TEXT)
    alignment: Literal["none", "hard", "soft"] = setting(
        "none", "Also print links i-j or all weights.", TEXT, common=True
    )
    tokenized: bool = setting(
        False, "The text is tokenised: split it at spaces, print tokens.", TEXT, common=True, flags="--tokenized/--raw"
    )
    batch_size: int = setting(0, "Source words searched together; 0 = automatic.", MACHINE)
    max_source_length: int = setting(500, "Translate longer lines in pieces.", SEARCH, at_least=1)
    max_memory: str = setting(
        "",
        "Memory of the search, such as 2G.",
        MACHINE,
        form=byte_count,
        metavar="SIZE",
        unset="a tenth of the machine's",
    )
    device: Device = setting("auto", DEVICE_HELP, MACHINE, common=True)
    precision: Precision = setting("fp32", PRECISION_HELP, MACHINE)
    threads: int = threads_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.min_length_ratio > self.max_length_ratio:
            raise SettingError(
                "the smallest ratio of lengths must not be above the largest",
                min_length_ratio=self.min_length_ratio,
                max_length_ratio=self.max_length_ratio,
            )
        if not self.sample and self.n_best > self.beam:
            raise SettingError(
                "a search finds at most as many translations as the beam is wide", n_best=self.n_best, beam=self.beam
            )
        if self.candidates and not self.lexicon:
            raise SettingError("needs a lexicon, too (`nmtalign lexicon` makes one)", candidates=self.candidates)


@section("score")
@dataclass(frozen=True)
class ScoreConfig:
    """What `score` measures and prints (section [score])."""

    by_length: bool = setting(False, "Also score by sentence length.", TABLES, common=True)
    length_of: LengthOf = setting("source", "Text whose lengths define the buckets.", TABLES)
    buckets: str = setting("10,20,30,40,50,60", "Upper ends of the buckets, in words.", TABLES, metavar="N,...")
    cumulative: bool = setting(
        False, "A bucket holds all sentences up to its end.", TABLES, flags="--cumulative/--apart"
    )
    by_place: bool = setting(False, "Also score by the place of a word in its sentence.", TABLES)
    by_frequency: bool = setting(False, "Also score by the frequency of a word in the training text.", TABLES)
    no_unk: bool = setting(
        False, "Also score sentences without unknown words.", TABLES, flags="--known-words/--all-words"
    )
    metrics: str = setting(
        "", "Metrics, separated by commas, or all.", MEASURES, unset="all but ter", common=True, metavar="NAME,..."
    )
    lowercase: bool = setting(False, "Lowercase texts before BLEU.", MEASURES, flags="--lowercase/--cased")
    tokenize: str = setting("13a", "sacreBLEU's tokeniser for BLEU.", MEASURES, metavar="NAME")
    confidence: bool | None = setting(
        None, "Print confidence intervals.", CONFIDENCE, unset="where systems, lengths or figures are compared"
    )
    bootstrap: int = setting(1000, "Bootstrap samples.", CONFIDENCE, at_least=2, at_most=1_000_000)
    trials: int = setting(10_000, "Trials of approximate randomisation.", CONFIDENCE, at_least=1, at_most=1_000_000)
    seed: int | None = setting(
        None, "Seed of the samples.", CONFIDENCE, unset="$SACREBLEU_SEED, or 12345", at_most=2**32 - 1
    )
    significance: Significance = setting("bs", "Paired bootstrap, approximate randomisation, both or none.", CONFIDENCE)
    format: Literal["text", "json", "csv"] = setting("text", "Format of the result.", TABLES, common=True)

    def __post_init__(self) -> None:
        check_settings(self)


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
    reading: Reading = setting("auto", "Decoder step whose weights align a word.", ALIGNMENT, common=True)
    temperature: float = setting(
        1.0, "Raise weights to the power 1 / temperature.", ALIGNMENT, at_least=0.01, at_most=100
    )
    drop_end: bool = setting(False, "Remove </s> from the weights.", ALIGNMENT, flags="--drop-end/--keep-end")
    symmetrize: Symmetrization = setting(
        "agreement",
        "How two directions are combined: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and (of "
        "links), product, mutual, agreement, bayes-risk (of weights).",
        ALIGNMENT,
        common=True,
        metavar="METHOD",
    )
    batch_size: int = setting(80, "Pairs per batch.", MACHINE, at_least=1)
    weights: Literal["float16", "float32"] = setting("float16", "Type of the stored weights.", TEXT)
    device: Device = setting("auto", DEVICE_HELP, MACHINE, common=True)
    precision: Precision = setting("fp32", PRECISION_HELP, MACHINE)
    threads: int = threads_setting()
    tokenized: bool = setting(
        False, "The texts are tokenised: split them at spaces.", TEXT, common=True, flags="--tokenized/--raw"
    )

    def __post_init__(self) -> None:
        check_settings(self)


@section("aer")
@dataclass(frozen=True)
class AerConfig:
    """How `aer` reads links and what it prints (section [aer])."""

    gold_base: int | None = setting(None, "First position in GOLD.", TEXT, common=True, at_most=1, unset=_GOLD_BASE)
    links_base: int | None = setting(None, "First position in LINKS.", TEXT, common=True, at_most=1, unset=_GOLD_BASE)
    reverse_gold: bool = setting(False, "GOLD has the target first.", TEXT, common=True)
    reverse_links: bool = setting(False, "LINKS have the target first.", TEXT, common=True)
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
    reverse_gold: bool = setting(False, "The gold links have the target first.", TEXT, common=True)
    end: bool = setting(True, "Draw the row and the column of </s>.", ALIGNMENT, common=True)
    colorbar: bool = setting(False, "Draw a scale of grey beside the picture.", ALIGNMENT)
    x: Literal["updates", "epochs", "hours", "words"] = setting(
        "updates", "The x axis of learning curves.", MEASURES, common=True
    )
    width: int | None = setting(None, "Columns of the terminal.", MACHINE, at_least=10, unset="all")

    def __post_init__(self) -> None:
        check_settings(self)
