"""Settings: frozen dataclasses, validated where they are made; and how layers of them are laid over each other."""

import dataclasses
import difflib
import os
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nmtalign.checks import (
    Layer,
    SettingError,
    above_zero,
    at_least,
    at_most,
    byte_count,
    finite,
    fraction,
    interval,
    naming,
    pair_of_sizes,
    seconds,
    written,
)
from nmtalign.errors import UsageError

T = TypeVar("T")

_WIDEST = 2**20  # of a layer: the number of bytes of any weight fits in 64 bits

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


@dataclass(frozen=True)
class PrepConfig:
    """How two text files become a prepared corpus (section [prep] of nmtalign.toml)."""

    vocabulary: VocabularyKind = "word"
    shortlist: str = "30000"  # ids a side, `</s>` and `<unk>` counted; N or N:M (source:target)
    min_count: int = 1
    size: str = "8000"  # subword pieces a side, N or N:M
    max_length: int = 50  # tokens, `</s>` not counted; 0 = no limit
    drop_duplicates: bool = False
    workers: int = 0  # processes that tokenise; 0 = one a core

    def __post_init__(self) -> None:
        pair_of_sizes("shortlist", self.shortlist)
        pair_of_sizes("size", self.size)
        at_least(1, min_count=self.min_count)
        at_least(0, max_length=self.max_length, workers=self.workers)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of the model (PAPER sections 1-3); the defaults are the paper's RNNsearch."""

    source_vocabulary_size: int = 30000  # K, `</s>` and `<unk>` counted
    target_vocabulary_size: int = 30000
    embedding: int = 620  # m
    hidden: int = 1000  # n, each encoder direction and the decoder
    attention_hidden: int = 1000  # n'
    maxout: int = 500  # l; twice as many pre-activations
    output_rank: int = 620  # width between maxout layer and softmax; 0 = direct
    cell: Cell = "paper"
    order: Order = "look-generate-update"
    attention: Attention = "additive"
    attention_temperature: float = 1.0  # what energies are divided by; below 1 the weights are sharper
    coverage: Coverage = "none"  # linguistic: each look sees how much of every source word has been read (Tu et al.)
    bidirectional: bool = True
    reverse_source: bool = False  # an encoder of one direction reads from the last word to the first
    readout_previous_word: bool = True  # the readout sees it beside state and context: V_o
    dropout: float = 0.0  # of embeddings, annotations and the maxout layer
    initialisation: Initialisation = "paper"

    def __post_init__(self) -> None:
        at_least(1, embedding=self.embedding, hidden=self.hidden, maxout=self.maxout)
        at_least(1, attention_hidden=self.attention_hidden)
        at_least(2, source_vocabulary_size=self.source_vocabulary_size)
        at_least(2, target_vocabulary_size=self.target_vocabulary_size)
        at_least(0, output_rank=self.output_rank)
        at_most(_WIDEST, embedding=self.embedding, hidden=self.hidden, maxout=self.maxout)
        at_most(_WIDEST, attention_hidden=self.attention_hidden, output_rank=self.output_rank)
        at_most(2**31 - 1, source_vocabulary_size=self.source_vocabulary_size)
        at_most(2**31 - 1, target_vocabulary_size=self.target_vocabulary_size)
        fraction(dropout=self.dropout)
        at_least(0.01, attention_temperature=self.attention_temperature)
        at_most(100, attention_temperature=self.attention_temperature)
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
                "only an encoder of one direction can read from the last word to the first",
                reverse_source=True,
                bidirectional=True,
            )


@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained (PAPER section 4); the defaults are the paper's."""

    optimizer: OptimizerName = "adadelta"
    learning_rate: float = 1.0
    rho: float = 0.95  # Adadelta
    epsilon: float = 1e-6
    beta1: float = 0.9  # Adam
    beta2: float = 0.98
    weight_decay: float = 0.0  # AdamW
    schedule: Schedule = "constant"
    warmup: int = 0  # updates
    clip_norm: float = 1.0  # 0 = no clipping
    loss_normalization: Normalization = "sentences"
    label_smoothing: float = 0.0
    batch_size: int = 80
    batch_unit: BatchUnit = "sentences"
    accumulate: int = 1  # minibatches whose gradients are summed to one update
    window: int = 20  # minibatches read at a time, sorted by length and cut
    shuffle: Literal["once", "epoch"] = "once"
    max_length: int = 50  # pairs longer on either side are left out; 0 = no limit
    max_updates: int = 0  # 0 = no limit, likewise below
    epochs: float = 0.0
    max_time: str = ""  # 60s, 15m, 2h
    patience: int = 10  # validations without progress; 0 = never stop early
    metric: Metric = "loss"  # what "best" means
    validate_every: str = "1000"  # updates, or a time such as 10m, or `epoch`
    bleu_sentences: int = 500  # of dev, translated at each validation; 0 = none
    checkpoint_every: str = "10m"  # updates or a time
    log_every: int = 100  # updates
    init_from: str = ""  # model directory whose weights are the first ones
    guided_alignment: str = ""  # file of links that the weights are to follow
    guided_weight: float = 0.5  # of the loss of the weights, which is summed and divided as that of the words is
    guided_loss: GuidedLoss = "cross-entropy"
    guided_reading: GuidedReading = "current"  # shifted: a word's links are asked of the step that has it as its input
    agreement: bool = False  # a model of the other direction is trained too, so that the weights of both agree
    agreement_weight: float = 1.0  # of what it costs that they do not
    seed: int = 1234
    device: Device = "auto"
    precision: Precision = "auto"
    threads: int = 0  # 0 = PyTorch's choice

    def __post_init__(self) -> None:
        at_least(0, warmup=self.warmup, window=self.window, max_length=self.max_length, threads=self.threads)
        at_least(0, max_updates=self.max_updates, epochs=self.epochs, patience=self.patience)
        at_most(1000, threads=self.threads)
        at_least(0, clip_norm=self.clip_norm, weight_decay=self.weight_decay, bleu_sentences=self.bleu_sentences)
        at_least(1, batch_size=self.batch_size, accumulate=self.accumulate, log_every=self.log_every)
        at_least(0, guided_weight=self.guided_weight, agreement_weight=self.agreement_weight)
        at_most(1e6, guided_weight=self.guided_weight, agreement_weight=self.agreement_weight)
        fraction(label_smoothing=self.label_smoothing, rho=self.rho, beta1=self.beta1, beta2=self.beta2)
        above_zero(learning_rate=self.learning_rate, epsilon=self.epsilon)
        if self.max_time:
            seconds("max_time", self.max_time)
        interval("checkpoint_every", self.checkpoint_every)
        interval("validate_every", self.validate_every)


@dataclass(frozen=True)
class TranslateConfig:
    """How `translate` searches and what it prints (section [translate])."""

    beam: int = 12
    search: Search = "beam"
    length_penalty: float = 1.0  # score = log-probability / length ** length_penalty
    word_penalty: float = 0.0  # taken from the log-probability for each word
    coverage_penalty: float = 0.0  # weight of the penalty for source words that were hardly read
    min_length_ratio: float = 0.0  # at least this many times the source length
    max_length_ratio: float = 3.0  # at most this many times the source length, `</s>` counted
    n_best: int = 1
    sample: bool = False  # words are drawn, not searched for
    temperature: float = 1.0
    top_k: int = 0  # words to draw from; 0 = all
    seed: int = 1234
    ensemble: Literal["probability", "log"] = "probability"  # what is averaged over several models
    allow_unk: bool = False
    replace_unk: bool = False
    lexicon: str = ""
    candidates: int = 0  # most frequent words that are allowed beside the lexicon's; 0 = all words are allowed
    format: Literal["text", "json"] = "text"
    input_format: Literal["text", "json"] = "text"
    word_scores: bool = False
    alignment: Literal["none", "hard", "soft"] = "none"  # what is printed with each translation
    tokenized: bool = False
    batch_size: int = 0  # source words, `</s>` and padding counted; 0 = what is fastest for the beam
    max_source_length: int = 500  # longer lines are translated in pieces
    max_memory: str = ""  # such as 2G; "" = a tenth of the machine's
    device: Device = "auto"
    precision: Precision = "fp32"
    threads: int = 0

    def __post_init__(self) -> None:
        at_least(1, beam=self.beam, n_best=self.n_best, max_source_length=self.max_source_length)
        at_least(0, batch_size=self.batch_size, length_penalty=self.length_penalty)
        at_least(0, coverage_penalty=self.coverage_penalty, threads=self.threads)
        at_least(0, min_length_ratio=self.min_length_ratio, top_k=self.top_k, candidates=self.candidates)
        finite(word_penalty=self.word_penalty, temperature=self.temperature)
        # Far beyond what is of use to anybody; above it numbers overflow, or the machine has no such threads.
        at_most(50, length_penalty=self.length_penalty)
        at_most(1e6, coverage_penalty=self.coverage_penalty, word_penalty=abs(self.word_penalty))
        at_most(1000, max_length_ratio=self.max_length_ratio, threads=self.threads)
        above_zero(max_length_ratio=self.max_length_ratio, temperature=self.temperature)
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
        if self.max_memory:
            byte_count("max_memory", self.max_memory)


@dataclass(frozen=True)
class ScoreConfig:
    """What `score` measures and prints (section [score])."""

    by_length: bool = False
    length_of: LengthOf = "source"
    buckets: str = "10,20,30,40,50,60"  # upper ends, in words
    cumulative: bool = False  # a bucket holds all sentences up to its end
    by_place: bool = False
    by_frequency: bool = False
    no_unk: bool = False
    metrics: str = ""  # names with commas, or all; "" = all but ter, multi-bleu if the target language is known
    lowercase: bool = False  # of BLEU
    tokenize: str = "13a"  # of BLEU
    confidence: bool | None = None  # None = by length, with several systems, and for figure and page
    bootstrap: int = 1000  # samples
    trials: int = 10_000  # of approximate randomisation
    seed: int | None = None  # None = $SACREBLEU_SEED, or 12345
    significance: Significance = "bs"  # of several systems
    format: Literal["text", "json", "csv"] = "text"

    def __post_init__(self) -> None:
        at_least(1, trials=self.trials)
        at_least(2, bootstrap=self.bootstrap)  # of one sample there is no interval
        at_most(1_000_000, bootstrap=self.bootstrap, trials=self.trials)
        if self.seed is not None:
            at_least(0, seed=self.seed)
            at_most(2**32 - 1, seed=self.seed)  # what numpy's generator takes


@dataclass(frozen=True)
class AlignConfig:
    """How `align` reads the weights (section [align])."""

    links: LinkMethod | None = None  # None = threshold where one is given for links, else argmax
    threshold: float = 0.0  # least weight of a link, where there is one; 0 = the method's own
    reading: Reading = "auto"  # current with one model, as in the paper; posterior with two, which then agree best
    temperature: float = 1.0  # weights to the power 1 / temperature
    drop_end: bool = False  # without `</s>`: rows are of words alone
    symmetrize: Symmetrization = "agreement"  # of two directions
    batch_size: int = 80
    weights: Literal["float16", "float32"] = "float16"
    device: Device = "auto"
    precision: Precision = "fp32"
    threads: int = 0

    def __post_init__(self) -> None:
        at_least(1, batch_size=self.batch_size)
        at_least(0, threads=self.threads, threshold=self.threshold)
        at_most(1000, threads=self.threads)
        at_most(1, threshold=self.threshold)
        at_least(0.01, temperature=self.temperature)
        at_most(100, temperature=self.temperature)


def field_names(*classes: type) -> list[str]:
    """The names of all settings of the dataclasses, in order."""
    return [field.name for cls in classes for field in dataclasses.fields(cls)]


def check_keys(origin: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first key that is not known, naming the nearest known one."""
    names = list(known)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.0)
            raise UsageError(f"{origin}: unknown setting '{key}'; the nearest known one is '{near[0]}'")


def resolve(cls: type[T], *layers: Layer) -> T:
    """Makes `cls` of layers (origin, values), later ones over earlier ones; keys of other classes are passed over.

    Values are converted to the fields' types. Raises UsageError that names each setting as its layer has it. Rules
    between settings are those of `nmtalign.presets.settings_of`.
    """
    hints = get_type_hints(cls)
    names = field_names(cls)
    merged: dict[str, Any] = {}
    for origin, values in layers:
        for key, value in values.items():
            if key in names:
                merged[key] = convert(origin, key, hints[key], value)
    with naming(*layers):
        return cls(**merged)


def convert(origin: str, key: str, hint: Any, value: Any) -> Any:
    """`value` as the type `hint`; raises UsageError that names the setting and what is allowed."""
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise UsageError(f"{written(origin, key, value)}: must be one of {', '.join(map(str, get_args(hint)))}")
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        return convert(origin, key, next(part for part in get_args(hint) if part is not type(None)), value)
    if hint is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise UsageError(f"{written(origin, key, value)}: is too large") from None
    if type(value) is hint:
        return value
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    raise UsageError(f"{written(origin, key, value)}: must be {kinds.get(hint, hint)}")
