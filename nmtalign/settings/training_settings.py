"""The settings of the model and of its training: frozen dataclasses, validated when they are made."""

from typing import Any, ClassVar, Literal, get_args

from nmtalign.settings.definition import (
    DEVICE_HELP,
    PRECISION_HELP,
    Device,
    Precision,
    Rules,
    Settings,
    common,
    interval,
    seconds,
    setting,
    threads_setting,
)

Architecture = Literal["recurrent", "transformer"]
Cell = Literal["paper", "cudnn", "lstm", "light", "minimal"]
Order = Literal["look-generate-update", "look-update-generate", "update-look-generate"]
Attention = Literal["additive", "concat", "dot", "general", "none"]
Coverage = Literal["none", "linguistic"]
Initialisation = Literal["paper", "lecun", "xavier"]

_WIDEST = 2**20  # units of a layer: the number of bytes of any weight fits in 64 bits


def _units(default: int, help: str, **details: Any) -> int:  # noqa: A002
    return setting(default, help, **{"at_least": 1, "at_most": _WIDEST, **details})


def _words(default: int, help: str) -> int:  # noqa: A002
    return setting(default, help, internal=True, at_least=2, at_most=2**31 - 1, adaptable=True)


_SCORES, _GLOBAL = tuple(score for score in get_args(Attention) if score != "none"), ("global",)
_LUONG = ("update-look-generate",)


class ModelConfig(Settings, section="train"):
    """Sizes and options of the model; the defaults are RNNsearch (Bahdanau et al. 2015, section 3, appendix A).

    The order of the steps is that of the released code, not that of the article's text.
    """

    source_vocabulary_size: int = _words(30000, "Source word ids K, </s> and <unk> included.")
    target_vocabulary_size: int = _words(30000, "Target word ids K, </s> and <unk> included.")
    one_embedding: bool = setting(False, "Whether both sides share word vectors.", internal=True)
    architecture: Architecture = setting("recurrent", "Recurrent nets, or a Transformer (Vaswani et al. 2017).")
    embedding: int = _units(620, "Size m of word embeddings, and of all layers of a Transformer.")
    hidden: int = _units(
        1000, "Hidden units n of the decoder, and of each encoder direction; of feed-forward nets in a Transformer."
    )
    attention_hidden: int = _units(1000, "Hidden units n' of the alignment model.")
    maxout: int = _units(500, "Maxout units l, each the larger of two values.")
    output_rank: int = _units(620, "Width between maxout and softmax; 0 connects them directly.", at_least=0)
    layers: int = setting(1, "Layers of the encoder, and of the decoder.", at_least=1, at_most=64)
    heads: int = setting(4, "Heads of each attention of a Transformer.", at_least=1, at_most=_WIDEST)
    norm: Literal["pre", "post"] = setting(
        "pre", "Where a Transformer normalises: pre or post (the article) each sublayer."
    )
    shared_embeddings: bool = setting(
        False, "The softmax and the target word vectors share weights; both sides do if their words are equal."
    )
    alignment_layer: int = setting(0, "Decoder layer whose weights align, in a Transformer; 0 = last.")
    alignment_head: int = setting(0, "Head whose weights align, in a Transformer; 0 = mean of all.")
    residual: bool = setting(False, "Residual connections from the third layer on.")
    cell: Cell = setting("paper", "Gated unit: the paper's, cuDNN's GRU, LSTM; light, minimal: no recurrent product.")
    order: Order = setting(
        "look-generate-update",
        "look-generate-update (the paper's code), look-update-generate (its text) or update-look-generate (Luong's).",
    )
    attention: Attention = setting(
        "additive", "Attention energy; concat is additive; none encodes a fixed-length vector."
    )
    attention_kind: Literal["soft", "marginal", "hard"] = setting(
        "soft", "marginal and hard: each word comes from one source position, which is latent.", adaptable=True
    )
    attention_positions: int = setting(
        6,
        "Positions that marginal attention sums over; the others share one term.",
        at_least=1,
        at_most=1000,
        adaptable=True,
    )
    attention_layer: Literal["first", "last"] = setting("last", "Decoder layer that attends to the source.")
    attention_span: Literal["global", "local-m", "local-p"] = setting(
        "global",
        "local-m attends to a window around the number of the step, local-p around a predicted position (Luong et al. "
        "2015).",
    )
    attention_window: int = setting(
        10, "Source words on each side of the position of local attention.", at_least=1, at_most=10**6
    )
    input_feeding: Literal["context", "attentional", "none"] = setting(
        "context", "What each step of the decoder gets from the step before: its context or its attentional vector."
    )
    readout: Literal["maxout", "attentional", "direct"] = setting(
        "maxout",
        "Layer between the decoder's state and the softmax: maxout (the paper), attentional (Luong et al. 2015), or "
        "direct (none).",
    )
    coverage: Coverage = setting("none", "linguistic: each step sees earlier weights (Tu et al. 2016).")
    bidirectional: bool = setting(True, "Encode in both directions.")
    reverse_source: bool = setting(False, "A unidirectional encoder reads from the last word to the first.")
    readout_previous_word: bool = setting(True, "Readout sees the previous word.")
    copy: bool = setting(False, "Also copy source words, so that no word is unknown (See et al. 2017).")
    dropout: float = setting(0.0, "Share of units set to 0.", below=1, adaptable=True)
    initialisation: Initialisation = setting("paper", "Distribution of the first weights.", adaptable=True)

    needs = (
        ("coverage", ("linguistic",), {"attention": ("additive", "concat")}),
        ("copy", (True,), {"attention": _SCORES, "attention_span": _GLOBAL}),
        ("attention_span", ("local-m", "local-p"), {"attention": _SCORES, "coverage": ("none",)}),
        # The word must depend on the context through the readout, and the weights must be the factors of the context.
        (
            "attention_kind",
            ("marginal", "hard"),
            {"attention": _SCORES, "architecture": ("recurrent",), "attention_span": _GLOBAL, "readout": ("maxout",)},
        ),
        ("reverse_source", (True,), {"bidirectional": (False,)}),
        ("norm", ("post",), {"architecture": ("transformer",)}),
        ("readout", ("attentional",), {"attention": _SCORES}),
        ("input_feeding", ("attentional",), {"readout": ("attentional",), "order": _LUONG}),
        ("architecture", ("transformer",), {"readout": ("direct",), "output_rank": (0,), "order": _LUONG}),
        ("architecture", ("transformer",), {"coverage": ("none",), "copy": (False,), "attention_span": _GLOBAL}),
        ("architecture", ("transformer",), {"attention": _SCORES}),
    )
    rules: ClassVar[Rules] = {
        "layers order": (
            "the orders of the paper have one layer",
            lambda own: own.layers > 1 and own.order != "update-look-generate" and own.architecture == "recurrent",
        ),
        "input_feeding attention_layer": (
            "attentional vectors are fed where the last layer attends",
            lambda own: own.layers > 1 and own.input_feeding == "attentional" and own.attention_layer == "first",
        ),
        "attention input_feeding readout": (
            "no part of the model reads the context",
            lambda own: (
                (own.attention != "none" and own.input_feeding == "none" and own.readout == "direct")
                and (own.layers == 1 or own.attention_layer == "last")
                and own.architecture == "recurrent"
                and not own.copy
            ),
        ),
        "shared_embeddings embedding": (
            "the softmax has vectors of another size; output_rank = {0.embedding} makes them equal",
            lambda own: (
                (own.shared_embeddings and own.architecture == "recurrent")
                and own.embedding != (own.output_rank or (own.maxout if own.readout == "maxout" else own.hidden))
            ),
        ),
        "heads embedding": (
            "the heads must divide the embedding",
            lambda own: own.architecture == "transformer" and own.embedding % own.heads > 0,
        ),
        "alignment_layer layers architecture": (
            "there is no such layer of a Transformer",
            lambda own: own.alignment_layer > own.layers * (own.architecture == "transformer"),
        ),
        "alignment_head heads architecture": (
            "there is no such head of a Transformer",
            lambda own: own.alignment_head > own.heads * (own.architecture == "transformer"),
        ),
    }
    # A size of a part that a model lacks is no mistake: experiments with several models have the same sizes.
    unused: ClassVar[Rules] = {
        "heads": ("only a Transformer has heads", lambda own: own.architecture != "transformer"),
        "cell bidirectional reverse_source residual attention attention_layer input_feeding readout_previous_word": (
            "a Transformer does not use it",
            lambda own: own.architecture == "transformer",
        ),
        "readout_previous_word": ("only maxout uses it", lambda own: own.readout != "maxout"),
        "residual": ("the first two layers have no such connections", lambda own: own.layers < 3),
        "attention_layer": ("there is only one layer", lambda own: own.layers == 1),
        "attention_window": ("global attention has no window", lambda own: own.attention_span == "global"),
        "attention_positions": ("soft attention sums over all positions", lambda own: own.attention_kind == "soft"),
    }


class TrainingConfig(Settings, section="train"):
    """How the model is trained.

    The defaults of optimizer, rho, epsilon, clip_norm, batch_size, window and shuffle are those of Bahdanau et al. 2015
    (appendix B.2), and that of max_length is RNNsearch-50's. The other defaults are not from the article, such as
    loss_normalization, patience and precision.
    """

    optimizer: Literal["adadelta", "adam", "adamw"] = setting("adadelta", "Optimiser; adadelta is the paper's.")
    learning_rate: float = setting(1.0, "Highest learning rate.", above=0)
    rho: float = setting(0.95, "Decay of Adadelta's averages.", below=1)
    epsilon: float = setting(1e-6, "Small constant of the optimiser's divisions.", above=0)
    beta1: float = setting(0.9, "Decay of Adam's average gradient.", below=1)
    beta2: float = setting(0.98, "Decay of Adam's average squared gradient.", below=1)
    weight_decay: float = setting(0.0, "Weight decay of AdamW.")
    schedule: Literal["constant", "linear", "inverse-sqrt"] = setting(
        "constant", "Learning rate over time; linear falls to 0 at the end."
    )
    warmup: int = setting(0, "Updates in which the learning rate rises linearly; at most a tenth of the budget.")
    clip_norm: float = setting(1.0, "Largest norm of the gradient; 0 does not clip.")
    loss_normalization: Literal["sentences", "tokens", "sum"] = setting(
        "sentences", "What the summed loss is divided by; sum = nothing."
    )
    label_smoothing: float = setting(0.0, "Share of probability spread over all words.", below=1)
    batch_size: int = common(80, "Sentences or tokens per minibatch.", at_least=1)
    batch_unit: Literal["sentences", "tokens"] = setting("sentences", "What batch_size counts.")
    accumulate: int = setting(1, "Minibatches whose gradients are summed for one update.", at_least=1)
    window: int = setting(20, "Minibatches that are sorted by length together; 0 is the same as 1.")
    shuffle: Literal["once", "epoch"] = setting("once", "Shuffle the pairs once, or before each epoch.")
    max_length: int = setting(
        50, "Skip pairs with more tokens on either side (of a bytes vocabulary: 10 times as many bytes); 0 keeps all."
    )
    max_updates: int = common(0, "Stop after this many updates; 0 = no limit.", affects="budget")
    epochs: float = common(0.0, "Stop after this many epochs; 0 = no limit.", at_most=1e9, affects="budget")
    max_time: str = common("", "Stop after this time: 60s, 15m, 2h.", form=seconds, metavar="TIME", affects="budget")
    patience: int = setting(10, "Stop after this many validations without progress; 0 = never.", affects="budget")
    metric: Literal["loss", "bleu"] = setting("loss", "Validation figure that selects the best weights.")
    validate_every: str = setting(
        "1000", "Validate every N updates, TIME or `epoch`.", form=interval, metavar="N|TIME|epoch", affects="budget"
    )
    bleu_sentences: int = setting(
        500, "Development sentences translated at each validation; 0 = none.", affects="budget"
    )
    checkpoint_every: str = setting(
        "10m", "Save state every N updates, TIME or `epoch`.", form=interval, metavar="N|TIME|epoch", affects="machine"
    )
    log_every: int = setting(100, "Updates between two lines of the log.", at_least=1, affects="printing")
    init_from: str = common("", "Model with the first weights and the architecture.", path="MODEL")
    guided_alignment: str = common("", "Word links to learn, as 0-0 2-1, one line per pair.", path="FILE")
    guided_weight: float = setting(0.5, "Weight of the loss of the links.", at_most=1e6)
    seed: int = common(1234, "Seed of weights, order and dropout.", at_most=2**63 - 1)
    device: Device = common("auto", DEVICE_HELP, affects="machine")
    precision: Precision = setting("auto", PRECISION_HELP, loading=True)
    threads: int = threads_setting(common=True)

    rules: ClassVar[Rules] = {
        "weight_decay optimizer": (
            "only adamw decays weights",
            lambda own: own.weight_decay > 0 and own.optimizer != "adamw",
        ),
    }
    unused: ClassVar[Rules] = {
        "rho": ("only adadelta uses it", lambda own: own.optimizer != "adadelta"),
        "beta1 beta2": ("only adam and adamw use it", lambda own: own.optimizer == "adadelta"),
        "guided_weight": ("there are no links to learn", lambda own: not own.guided_alignment),
        "metric": ("without translations the loss selects", lambda own: not own.bleu_sentences),
    }
