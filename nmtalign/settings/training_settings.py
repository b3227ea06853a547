"""The settings of the model and of its training: frozen dataclasses, validated when they are made."""

from dataclasses import dataclass
from typing import Any, Literal

from nmtalign.settings.definition import (
    ALIGNMENT,
    ATTENTION,
    BATCHES,
    BUDGET,
    DEVICE_HELP,
    MACHINE,
    MODEL,
    OPTIMISER,
    PRECISION_HELP,
    VOCABULARY,
    Device,
    Precision,
    SettingError,
    check_settings,
    interval,
    seconds,
    section,
    setting,
    threads_setting,
)

Architecture = Literal["recurrent", "transformer"]
Cell = Literal["paper", "cudnn", "lstm", "light", "minimal"]
Order = Literal["look-generate-update", "look-update-generate", "update-look-generate"]
Attention = Literal["additive", "concat", "dot", "general", "none"]
AttentionKind = Literal["soft", "marginal", "hard"]
AttentionSpan = Literal["global", "local-m", "local-p"]
AttentionLayer = Literal["first", "last"]
InputFeeding = Literal["context", "attentional", "none"]
ReadoutKind = Literal["maxout", "attentional", "direct"]
Coverage = Literal["none", "linguistic"]
Norm = Literal["pre", "post"]
Initialisation = Literal["paper", "lecun", "xavier"]
OptimizerName = Literal["adadelta", "adam", "adamw"]
Schedule = Literal["constant", "linear", "inverse-sqrt"]
Normalization = Literal["sentences", "tokens", "sum"]
BatchUnit = Literal["sentences", "tokens"]
Metric = Literal["loss", "bleu"]

_WIDEST = 2**20  # units of a layer: the number of bytes of any weight fits in 64 bits


def _units(default: int, help: str, panel: str, **details: Any) -> int:  # noqa: A002
    return setting(default, help, panel, **{"at_least": 1, "at_most": _WIDEST, **details})


def _words(default: int, help: str) -> int:  # noqa: A002
    return setting(default, help, VOCABULARY, internal=True, at_least=2, at_most=2**31 - 1)


@section("train")
@dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of the model; the defaults are RNNsearch (Bahdanau et al. 2015, section 3, appendix A).

    The order of the steps is that of the released code, not that of the article's text.
    """

    source_vocabulary_size: int = _words(30000, "Source word ids K, </s> and <unk> included.")
    target_vocabulary_size: int = _words(30000, "Target word ids K, </s> and <unk> included.")
    one_embedding: bool = setting(False, "Whether both sides share word vectors.", VOCABULARY, internal=True)
    architecture: Architecture = setting("recurrent", "Recurrent nets, or a Transformer (Vaswani et al. 2017).", MODEL)
    embedding: int = _units(620, "Size m of word embeddings, and of all layers of a Transformer.", MODEL)
    hidden: int = _units(
        1000,
        "Hidden units n of the decoder, and of each encoder direction; of feed-forward nets in a Transformer.",
        MODEL,
        common=True,
    )
    attention_hidden: int = _units(1000, "Hidden units n' of the alignment model.", ATTENTION)
    maxout: int = _units(500, "Maxout units l, each the larger of two values.", MODEL)
    output_rank: int = _units(620, "Width between maxout and softmax; 0 connects them directly.", MODEL, at_least=0)
    layers: int = setting(1, "Layers of the encoder, and of the decoder.", MODEL, at_least=1, at_most=64)
    heads: int = setting(4, "Heads of each attention of a Transformer.", ATTENTION, at_least=1, at_most=_WIDEST)
    norm: Norm = setting("pre", "Where a Transformer normalises: pre or post (the article) each sublayer.", MODEL)
    shared_embeddings: bool = setting(
        False, "The softmax and the target word vectors share weights; both sides do if their words are equal.", MODEL
    )
    alignment_layer: int = setting(0, "Decoder layer whose weights align, in a Transformer; 0 = last.", ATTENTION)
    alignment_head: int = setting(0, "Head whose weights align, in a Transformer; 0 = mean of all.", ATTENTION)
    residual: bool = setting(False, "Residual connections from the third layer on.", MODEL)
    cell: Cell = setting("paper", "Gated unit; light and minimal have no product with the state.", MODEL)
    order: Order = setting(
        "look-generate-update",
        "look-generate-update (the paper's code), look-update-generate (its text) or update-look-generate (Luong's).",
        MODEL,
    )
    attention: Attention = setting(
        "additive", "Attention energy; concat is additive; none encodes a fixed-length vector.", ATTENTION
    )
    attention_kind: AttentionKind = setting(
        "soft", "marginal and hard: each word comes from one source position, which is latent.", ATTENTION
    )
    attention_positions: int = setting(
        6,
        "Positions that marginal attention sums over; the others share one term.",
        ATTENTION,
        at_least=1,
        at_most=1000,
    )
    attention_layer: AttentionLayer = setting("last", "Decoder layer that attends to the source.", ATTENTION)
    attention_span: AttentionSpan = setting(
        "global",
        "local-m attends to a window around the number of the step, local-p around a predicted position (Luong et al. "
        "2015).",
        ATTENTION,
    )
    attention_window: int = setting(
        10, "Source words on each side of the position of local attention.", ATTENTION, at_least=1, at_most=10**6
    )
    input_feeding: InputFeeding = setting(
        "context",
        "What each step of the decoder gets from the step before: its context or its attentional vector.",
        MODEL,
    )
    readout: ReadoutKind = setting(
        "maxout",
        "Layer between the decoder's state and the softmax: maxout (the paper), attentional (Luong et al. 2015), or "
        "direct (none).",
        MODEL,
    )
    coverage: Coverage = setting("none", "linguistic: each step sees earlier weights (Tu et al. 2016).", ATTENTION)
    bidirectional: bool = setting(True, "Encode in both directions.", MODEL, flags="--bidirectional/--unidirectional")
    reverse_source: bool = setting(False, "A unidirectional encoder reads from the last word to the first.", MODEL)
    readout_previous_word: bool = setting(
        True, "Readout sees the previous word.", MODEL, flags="--readout-word/--no-readout-word"
    )
    copy: bool = setting(False, "Also copy source words, so that no word is unknown (See et al. 2017).", MODEL)
    dropout: float = setting(0.0, "Share of units set to 0.", MODEL, common=True, below=1)
    initialisation: Initialisation = setting("paper", "Distribution of the first weights.", MODEL)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.coverage != "none" and self.attention not in ("additive", "concat"):
            raise SettingError("coverage needs additive attention", coverage=self.coverage, attention=self.attention)
        if self.copy and (self.attention == "none" or self.attention_span != "global"):
            rule = "copying needs global attention"
            raise SettingError(rule, copy=True, attention=self.attention, attention_span=self.attention_span)
        self._check_span()
        self._check_kind()
        if self.reverse_source and self.bidirectional:
            raise SettingError(
                "only a unidirectional encoder can read from the last word to the first",
                reverse_source=True,
                bidirectional=True,
            )
        if self.architecture == "transformer":
            self._check_transformer()
        elif self.layers > 1 and self.order != "update-look-generate":
            raise SettingError("the orders of the paper have one layer", layers=self.layers, order=self.order)
        if self.readout == "attentional" and self.attention == "none":
            raise SettingError("attentional vectors need attention", readout=self.readout, attention=self.attention)
        if self.input_feeding == "attentional" and self.readout != "attentional":
            rule = "only the attentional readout has vectors that can be fed"
            raise SettingError(rule, input_feeding=self.input_feeding, readout=self.readout)
        if self.input_feeding == "attentional" and self.order != "update-look-generate":
            rule = "attentional vectors are fed in Luong's order"
            raise SettingError(rule, input_feeding=self.input_feeding, order=self.order)
        if self.input_feeding == "attentional" and self.attention_layer == "first" and self.layers > 1:
            rule = "attentional vectors are fed where the last layer attends"
            raise SettingError(rule, input_feeding=self.input_feeding, attention_layer=self.attention_layer)
        if self.shared_embeddings and self.softmax_size != self.embedding:
            rule = (
                f"the softmax has vectors of {self.softmax_size} units; --output-rank {self.embedding} makes them equal"
            )
            raise SettingError(rule, shared_embeddings=True, embedding=self.embedding)

    @property
    def softmax_size(self) -> int:
        """The size of the vectors that the softmax receives."""
        state_size = self.embedding if self.architecture == "transformer" else self.hidden
        return self.output_rank or (self.maxout if self.readout == "maxout" else state_size)

    def _check_span(self) -> None:
        """Raises SettingError for settings that do not go with the attention's span."""
        if self.attention_span == "global":
            if self.attention_window != 10:
                rule = "global attention has no window"
                raise SettingError(rule, attention_window=self.attention_window, attention_span=self.attention_span)
        elif self.attention == "none" or self.coverage != "none":
            rule = "local attention needs attention without coverage"
            raise SettingError(
                rule, attention_span=self.attention_span, attention=self.attention, coverage=self.coverage
            )

    def _check_kind(self) -> None:
        """Raises SettingError for settings that do not go with the kind of attention."""
        kind = self.attention_kind
        if kind == "soft":
            if self.attention_positions != 6:
                rule = "soft attention sums over all positions"
                raise SettingError(rule, attention_positions=self.attention_positions, attention_kind=kind)
            return
        # The word must depend on the context through the readout, and the weights must be the factors of the context.
        needed = {"architecture": "recurrent", "attention_span": "global", "readout": "maxout"}
        wrong = {name: getattr(self, name) for name, value in needed.items() if getattr(self, name) != value}
        if self.attention == "none" or wrong:
            rule = f"{kind} attention needs a recurrent model with global attention and the maxout readout"
            raise SettingError(rule, attention_kind=kind, **(wrong or {"attention": self.attention}))

    def _check_transformer(self) -> None:
        """Raises SettingError for settings that a Transformer cannot have."""
        needed = {"readout": "direct", "output_rank": 0, "order": "update-look-generate", "coverage": "none"}
        others = {"attention_span": "global", "copy": False}
        for name, value in {**needed, **others}.items():
            if getattr(self, name) != value:
                rule = f"a Transformer needs {name} = {value}"
                raise SettingError(rule, **{name: getattr(self, name)}, architecture=self.architecture)
        if self.attention == "none":
            raise SettingError("a Transformer has attention", attention="none", architecture=self.architecture)
        if self.embedding % self.heads:
            raise SettingError("the heads must divide the embedding", heads=self.heads, embedding=self.embedding)
        if self.alignment_layer > self.layers:
            raise SettingError("there is no such layer", alignment_layer=self.alignment_layer, layers=self.layers)
        if self.alignment_head > self.heads:
            raise SettingError("there is no such head", alignment_head=self.alignment_head, heads=self.heads)


@section("train")
@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained.

    The defaults of optimizer, rho, epsilon, clip_norm, batch_size, window and shuffle are those of Bahdanau et al. 2015
    (appendix B.2), and that of max_length is RNNsearch-50's. The other defaults are not from the article, such as
    loss_normalization, patience and precision.
    """

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
    max_length: int = setting(
        50,
        "Skip pairs with more tokens on either side (of a bytes vocabulary: 10 times as many bytes); 0 keeps all.",
        BATCHES,
    )
    max_updates: int = setting(0, "Stop after this many updates; 0 = no limit.", BUDGET, common=True)
    epochs: float = setting(0.0, "Stop after this many epochs; 0 = no limit.", BUDGET, common=True, at_most=1e9)
    max_time: str = setting(
        "", "Stop after this time: 60s, 15m, 2h.", BUDGET, common=True, form=seconds, metavar="TIME"
    )
    patience: int = setting(10, "Stop after this many validations without progress; 0 = never.", BUDGET, common=True)
    metric: Metric = setting("loss", "Validation figure that selects the best weights.", BUDGET)
    validate_every: str = setting("1000", "Updates, a time or `epoch`.", BUDGET, form=interval, metavar="N|TIME|epoch")
    average: int = setting(
        0, "At the end, also validate the mean of the weights of this many last validations; 0 = none.", BUDGET
    )
    bleu_sentences: int = setting(500, "Development sentences translated at each validation; 0 = none.", BUDGET)
    checkpoint_every: str = setting("10m", "Updates, a time or `epoch`.", BUDGET, form=interval, metavar="N|TIME|epoch")
    log_every: int = setting(100, "Updates between two lines of the log.", BUDGET, at_least=1)
    init_from: str = setting(
        "", "Model with the first weights and the architecture.", MODEL, is_path=True, metavar="MODEL"
    )
    guided_alignment: str = setting(
        "", "Word links to learn, as 0-0 2-1, one line per pair.", ALIGNMENT, common=True, is_path=True, metavar="FILE"
    )
    guided_weight: float = setting(0.5, "Weight of the loss of the links.", ALIGNMENT, at_most=1e6)
    agreement: bool = setting(False, "Also train the other direction, so that both alignments agree.", ALIGNMENT)
    agreement_weight: float = setting(1.0, "Weight of the disagreement's loss.", ALIGNMENT, at_most=1e6)
    seed: int = setting(1234, "Seed of weights, order and dropout.", MACHINE, common=True, at_most=2**63 - 1)
    device: Device = setting("auto", DEVICE_HELP, MACHINE, common=True)
    precision: Precision = setting("auto", PRECISION_HELP, MACHINE)
    threads: int = threads_setting()

    def __post_init__(self) -> None:
        check_settings(self)
