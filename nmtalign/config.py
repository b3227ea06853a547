"""The settings: frozen dataclasses, one field for each setting, validated when they are made.

Each field states the default, one sentence of help, the panel of `--help-all`, and the bounds.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from nmtalign.checks import (
    SettingError,
    byte_count,
    check_settings,
    interval,
    pair_of_sizes,
    seconds,
    section,
    setting,
)

T = TypeVar("T")

Cell = Literal["paper", "cudnn"]
Order = Literal["look-generate-update", "look-update-generate"]
Attention = Literal["additive", "dot", "general", "none"]
Coverage = Literal["none", "linguistic"]
Initialisation = Literal["paper", "lecun", "xavier"]
OptimizerName = Literal["adadelta", "adam", "adamw"]
Schedule = Literal["constant", "linear", "inverse-sqrt"]
Normalization = Literal["sentences", "tokens", "sum"]
BatchUnit = Literal["sentences", "tokens"]
VocabularyKind = Literal["word", "bpe", "unigram", "none"]
Precision = Literal["auto", "fp32", "bf16"]
Device = Literal["auto", "cpu", "cuda"]
Metric = Literal["loss", "bleu"]
GuidedLoss = Literal["cross-entropy", "sum"]
GuidedReading = Literal["current", "shifted"]
Search = Literal["beam", "paper"]
LinkMethod = Literal["argmax", "threshold"]
Reading = Literal["auto", "current", "shifted", "posterior"]
HardSymmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
SoftSymmetrization = Literal["product", "mutual", "agreement", "bayes-risk"]
LengthOf = Literal["source", "reference", "hypothesis"]
Significance = Literal["bs", "ar", "both", "none"]
Symmetrization = Literal[HardSymmetrization, SoftSymmetrization]

TEXT, VOCABULARY, MODEL, ATTENTION, ALIGNMENT = "Text", "Vocabulary", "Model", "Attention", "Alignment"
OPTIMISER, BATCHES, BUDGET, MACHINE = "Optimiser", "Batches", "Budget and validation", "Machine"
SEARCH, UNKNOWN, SAMPLING = "Search", "Unknown words", "Sampling"
MEASURES, TABLES, CONFIDENCE = "Metrics", "Tables", "Confidence"

_WIDEST = 2**20  # units of a layer: the number of bytes of any weight fits in 64 bits
_DEVICE = "Device: auto uses a GPU if there is one."
_PRECISION = "Precision of matrix products; auto is bf16 where the processor computes it natively, else fp32."


def _units(default: int, help: str, panel: str, **details: Any) -> int:  # noqa: A002
    return setting(default, help, panel, **{"at_least": 1, "at_most": _WIDEST, **details})


def _words(default: int, help: str) -> int:  # noqa: A002
    return setting(default, help, VOCABULARY, internal=True, at_least=2, at_most=2**31 - 1)


def _threads() -> int:
    return setting(0, "CPU threads; 0 lets PyTorch choose.", MACHINE, at_most=1000)


def _seed(help: str, panel: str, common: bool = False) -> int:  # noqa: A002
    return setting(1234, help, panel, common=common, at_least=-(2**63), at_most=2**63 - 1)


@section("prep")
@dataclass(frozen=True)
class PrepConfig:
    """How two text files become a prepared corpus (section [prep] of nmtalign.toml)."""

    vocabulary: VocabularyKind = setting(
        "word",
        "Units: words (Moses), bpe or unigram pieces (sentencepiece), or none: tokens already.",
        VOCABULARY,
        common=True,
    )
    shortlist: str = setting(
        "30000",
        "Word ids per side, </s> and <unk> included.",
        VOCABULARY,
        common=True,
        form=pair_of_sizes,
        metavar="N|N:M",
    )
    min_count: int = setting(1, "Words seen less often are unknown.", VOCABULARY, common=True, at_least=1)
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


@section("train")
@dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of the model; the defaults are RNNsearch (Bahdanau et al. 2015, section 3, appendix A)."""

    source_vocabulary_size: int = _words(30000, "Source word ids K, </s> and <unk> included.")
    target_vocabulary_size: int = _words(30000, "Target word ids K, </s> and <unk> included.")
    embedding: int = _units(620, "Size m of word embeddings.", MODEL, common=True)
    hidden: int = _units(1000, "Hidden units n of the decoder and of each encoder direction.", MODEL, common=True)
    attention_hidden: int = _units(1000, "Hidden units n' of the alignment model.", ATTENTION)
    maxout: int = _units(500, "Maxout units l, each the larger of two values.", MODEL)
    output_rank: int = _units(620, "Width between maxout and softmax; 0 connects them directly.", MODEL, at_least=0)
    cell: Cell = setting("paper", "Gated unit: the paper's, or the one of cuDNN.", MODEL)
    order: Order = setting(
        "look-generate-update", "look-generate-update (the paper's code) or look-update-generate (its text).", MODEL
    )
    attention: Attention = setting("additive", "Attention energy; none encodes a fixed-length vector.", ATTENTION)
    attention_temperature: float = setting(1.0, "Below 1, weights are sharper.", ATTENTION, at_least=0.01, at_most=100)
    coverage: Coverage = setting("none", "linguistic: each step sees earlier weights (Tu et al. 2016).", ATTENTION)
    bidirectional: bool = setting(True, "Encode in both directions.", MODEL, flags="--bidirectional/--unidirectional")
    reverse_source: bool = setting(False, "A unidirectional encoder reads from the last word to the first.", MODEL)
    readout_previous_word: bool = setting(
        True, "Readout sees the previous word.", MODEL, flags="--readout-word/--no-readout-word"
    )
    dropout: float = setting(0.0, "Share of units set to 0.", MODEL, common=True, below=1)
    initialisation: Initialisation = setting("paper", "Distribution of the first weights.", MODEL)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.attention == "none" and self.attention_temperature != 1:
            raise SettingError(
                "the temperature needs a model with attention",
                attention_temperature=self.attention_temperature,
                attention=self.attention,
            )
        if self.coverage != "none" and self.attention != "additive":
            raise SettingError("coverage needs additive attention", coverage=self.coverage, attention=self.attention)
        if self.reverse_source and self.bidirectional:
            raise SettingError(
                "only a unidirectional encoder can read from the last word to the first",
                reverse_source=True,
                bidirectional=True,
            )


@section("train")
@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained; the defaults are those of Bahdanau et al. 2015, appendix B."""

    optimizer: OptimizerName = setting("adadelta", "Optimiser; adadelta is the paper's.", OPTIMISER)
    learning_rate: float = setting(1.0, "Highest learning rate.", OPTIMISER, common=True, above=0)
    rho: float = setting(0.95, "Decay of Adadelta's averages.", OPTIMISER, below=1)
    epsilon: float = setting(1e-6, "Small constant of the optimiser's divisions.", OPTIMISER, above=0)
    beta1: float = setting(0.9, "Decay of Adam's average gradient.", OPTIMISER, below=1)
    beta2: float = setting(0.98, "Decay of Adam's average squared gradient.", OPTIMISER, below=1)
    weight_decay: float = setting(0.0, "Weight decay of AdamW.", OPTIMISER)
    schedule: Schedule = setting("constant", "Learning rate over time; linear falls to 0 at the end.", OPTIMISER)
    warmup: int = setting(0, "Updates in which the learning rate rises linearly.", OPTIMISER)
    clip_norm: float = setting(1.0, "Largest norm of the gradient; 0 does not clip.", OPTIMISER)
    loss_normalization: Normalization = setting("sentences", "What the summed loss is divided by.", OPTIMISER)
    label_smoothing: float = setting(0.0, "Share of probability spread over all words.", OPTIMISER, below=1)
    batch_size: int = setting(80, "Sentences or tokens per minibatch.", BATCHES, common=True, at_least=1)
    batch_unit: BatchUnit = setting("sentences", "What batch_size counts.", BATCHES)
    accumulate: int = setting(1, "Minibatches whose gradients are summed for one update.", BATCHES, at_least=1)
    window: int = setting(20, "Minibatches that are sorted by length together.", BATCHES)
    shuffle: Literal["once", "epoch"] = setting("once", "Shuffle the pairs once, or before each epoch.", BATCHES)
    max_length: int = setting(50, "Skip pairs with more tokens on either side; 0 keeps all.", BATCHES)
    max_updates: int = setting(0, "Stop after this many updates; 0 = no limit.", BUDGET, common=True)
    epochs: float = setting(0.0, "Stop after this many epochs; 0 = no limit.", BUDGET, common=True)
    max_time: str = setting(
        "", "Stop after this time: 60s, 15m, 2h.", BUDGET, common=True, form=seconds, metavar="TIME"
    )
    patience: int = setting(10, "Stop after this many validations without progress; 0 = never.", BUDGET, common=True)
    metric: Metric = setting("loss", "Validation figure that selects the best weights.", BUDGET)
    validate_every: str = setting("1000", "Updates, a time or `epoch`.", BUDGET, form=interval, metavar="N|TIME|epoch")
    bleu_sentences: int = setting(500, "Development sentences translated at each validation; 0 = none.", BUDGET)
    checkpoint_every: str = setting("10m", "Updates, a time or `epoch`.", BUDGET, form=interval, metavar="N|TIME|epoch")
    log_every: int = setting(100, "Updates between two lines of the log.", BUDGET, at_least=1)
    init_from: str = setting("", "Model directory with the first weights.", MODEL, is_path=True, metavar="DIR")
    guided_alignment: str = setting(
        "", "Word links to learn, as 0-0 2-1, one line per pair.", ALIGNMENT, common=True, is_path=True, metavar="FILE"
    )
    guided_weight: float = setting(0.5, "Weight of the loss of the links.", ALIGNMENT, at_most=1e6)
    guided_loss: GuidedLoss = setting(
        "cross-entropy", "sum: only the summed weight of the linked words counts.", ALIGNMENT
    )
    guided_reading: GuidedReading = setting(
        "current", "shifted: guide the step that has the word as its input.", ALIGNMENT
    )
    agreement: bool = setting(False, "Also train the other direction, so that both alignments agree.", ALIGNMENT)
    agreement_weight: float = setting(1.0, "Weight of the disagreement's loss.", ALIGNMENT, at_most=1e6)
    seed: int = _seed("Seed of weights, order and dropout.", MACHINE, common=True)
    device: Device = setting("auto", _DEVICE, MACHINE, common=True)
    precision: Precision = setting("auto", _PRECISION, MACHINE)
    threads: int = _threads()

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
    seed: int = _seed("Seed of sampling.", SAMPLING)
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
    device: Device = setting("auto", _DEVICE, MACHINE, common=True)
    precision: Precision = setting("fp32", _PRECISION, MACHINE)
    threads: int = _threads()

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
    symmetrize: Symmetrization = setting("agreement", "How two directions are combined.", ALIGNMENT, common=True)
    batch_size: int = setting(80, "Pairs per batch.", MACHINE, at_least=1)
    weights: Literal["float16", "float32"] = setting("float16", "Type of the stored weights.", TEXT)
    device: Device = setting("auto", _DEVICE, MACHINE, common=True)
    precision: Precision = setting("fp32", _PRECISION, MACHINE)
    threads: int = _threads()

    def __post_init__(self) -> None:
        check_settings(self)


def field_names(*classes: type) -> list[str]:
    """The names of all settings of the dataclasses, in order."""
    return [field.name for cls in classes for field in dataclasses.fields(cls)]
