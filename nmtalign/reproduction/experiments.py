"""What can be trained and compared: the four models of Bahdanau et al. (2015), their ablations, and the scales."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nmtalign.errors import UsageError
from nmtalign.settings.training_settings import ModelConfig

ScaleName = Literal["tiny", "small", "paper"]
Unit = Literal["updates", "words", "hours"]


@dataclass(frozen=True)
class EqualBudget:
    """How much training every model gets: updates, target words seen, or hours."""

    unit: Unit
    amount: float

    def __post_init__(self) -> None:
        if not 0 < self.amount < 1e15:
            raise UsageError(f"--{self.unit} {self.amount:g}: must be greater than 0")

    def __str__(self) -> str:
        return f"{self.amount:,.10g} {'target words' if self.unit == 'words' else self.unit}"


@dataclass(frozen=True)
class Scale:
    """Settings that override the preset of every model, a default budget, and vocabulary sizes for the ablations."""

    name: ScaleName
    what: str
    settings: Mapping[str, Any]
    budget: EqualBudget  # unless the user gives one
    few_words: str  # a vocabulary that is too small
    many_words: str
    pieces: str  # subwords per side


# The cells, the order of the decoder's operations and the batches are the article's. The optimiser is not: within a few
# hours, Adadelta from the article's small initial weights hardly begins to learn.
_QUICK: Mapping[str, Any] = {
    "initialisation": "lecun",
    "optimizer": "adamw",
    "learning_rate": 2e-3,
    "epsilon": 1e-8,
    "schedule": "linear",
    "warmup": 200,
    "loss_normalization": "tokens",
}
SCALES: Mapping[str, Scale] = {
    "tiny": Scale(
        "tiny",
        "sizes of the preset tiny, trained with AdamW: minutes on a laptop",
        {
            **_QUICK,
            "embedding": 64,
            "hidden": 128,
            "attention_hidden": 128,
            "maxout": 64,
            "output_rank": 64,
            "warmup": 100,
            "batch_size": 40,
        },
        EqualBudget("words", 3_000_000),
        few_words="500",
        many_words="2000",
        pieces="1000",
    ),
    "small": Scale(
        "small",
        "sizes of the preset small, trained with AdamW: hours on a laptop",
        {
            **_QUICK,
            "initialisation": "xavier",  # of the report in examples/reproduction/large
            "embedding": 256,
            "hidden": 512,
            "attention_hidden": 512,
            "maxout": 256,
            "output_rank": 256,
        },
        EqualBudget("words", 10_000_000),
        few_words="5000",
        many_words="30000",
        pieces="8000",
    ),
    "paper": Scale(
        "paper",
        "the paper's own sizes and training",
        {},
        EqualBudget("hours", 110),
        few_words="5000",
        many_words="30000",
        pieces="30000",
    ),
}
# The article's training (section 4.2, appendix B.2), for the ablation of the loss; the initial weights are the scale's.
PAPER_TRAINING: Mapping[str, Any] = {
    "optimizer": "adadelta",
    "learning_rate": 1.0,
    "epsilon": 1e-6,
    "schedule": "constant",
    "warmup": 0,
    "clip_norm": 1.0,
}


def scale(name: str) -> Scale:
    """Returns the scale of that name; raises UsageError if there is none."""
    try:
        return SCALES[name]
    except KeyError:
        raise UsageError(f"--scale {name}: choose one of {', '.join(SCALES)}") from None


@dataclass(frozen=True)
class Experiment:
    """A model, or a model with another search: the differences from its preset."""

    name: str  # in every table, and of its folder
    preset: str
    base: str = ""  # the experiment with which it is compared
    ablation: str = ""  # the name of the ablation it belongs to
    what: str = ""  # how it differs from its base, in words
    changed: Mapping[str, Any] = field(default_factory=dict)  # settings of model and training
    prep: Mapping[str, Any] = field(default_factory=dict)  # settings of its own prepared corpus
    search: Mapping[str, Any] = field(default_factory=dict)


BASELINE, FLAGSHIP = "RNNencdec-50", "RNNsearch-50"
PAPER_MODELS = (
    Experiment("RNNencdec-30", "rnnencdec-30", what="fixed vector, training pairs of at most 30 words"),
    Experiment("RNNsearch-30", "rnnsearch-30", BASELINE, what="attention, training pairs of at most 30 words"),
    Experiment(BASELINE, "rnnencdec-50", what="fixed vector, training pairs of at most 50 words"),
    Experiment(FLAGSHIP, "rnnsearch-50", BASELINE, what="attention, training pairs of at most 50 words"),
)
_PRESETS = {FLAGSHIP: "rnnsearch-50", BASELINE: "rnnencdec-50"}


def ablations(scale: Scale) -> Mapping[str, Sequence[Experiment]]:
    """Returns the experiments of every ablation, by the name of the ablation, in the order of the report."""
    hidden = scale.settings.get("hidden", ModelConfig.hidden)
    longer = {"max_length": 75}  # about as many sentences have 75 pieces as have 50 words
    return {
        "encoder": [_variant("encoder", "encoder-forward", "encoder reads forward only", {"bidirectional": False})],
        "context": [_variant("context", "context-fixed", "one context for all words", {"attention": "none"})],
        "score": [
            _variant("score", f"score-{name}", f"{name} score in place of the additive one", {"attention": name})
            for name in ("dot", "general")
        ]
        + [
            # A bilinear score sums n products. Without the division Adam's steps make its weights sharp too early.
            _variant(
                "score",
                "score-general-scaled",
                "general score, divided by the root of n",
                {"attention": "general", "attention_temperature": round(math.sqrt(hidden), 1)},
            )
        ],
        "order": [_variant("order", "order-update-first", "update, then generate", {"order": "look-update-generate"})],
        "cell": [_variant("cell", "cell-cudnn", "cuDNN's gated unit", {"cell": "cudnn"})],
        "readout": [
            _variant(
                "readout", "readout-state-only", "readout without the previous word", {"readout_previous_word": False}
            )
        ],
        "reverse": [
            _variant("reverse", "source-reversed", "source read from its end", {"reverse_source": True}, BASELINE)
        ],
        "output-rank": [_variant("output-rank", "output-direct", "no factored output layer", {"output_rank": 0})],
        "vocabulary": [
            _words("words-few", scale.few_words),
            _words("words-many", scale.many_words),
            _variant(
                "vocabulary",
                "subwords",
                f"{scale.pieces} subwords a side",
                longer,
                prep={"vocabulary": "bpe", "size": scale.pieces, **longer},
            ),
        ],
        "beam": [
            _variant("beam", f"beam-{size}", f"beam of {size}, the same model", search={"beam": size})
            for size in (1, 5, 12)
        ],
        "loss": [
            _variant("loss", "loss-sum", "the paper's training, loss summed", _paper("sum")),
            _variant("loss", "loss-mean", "the paper's training, mean over sentences", _paper("sentences"), "loss-sum"),
        ],
    }


def chosen_ablations(names: str, scale: Scale) -> list[Experiment]:
    """Returns the experiments of `all`, `none` or comma-separated names; raises UsageError for an unknown name."""
    known = ablations(scale)
    if names in ("", "none"):
        return []
    wanted = list(known) if names == "all" else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise UsageError(f"--ablations {name}: unknown; give all, none, or some of {','.join(known)}")
    return [experiment for name in known if name in wanted for experiment in known[name]]


def _variant(
    ablation: str,
    name: str,
    what: str,
    changed: Mapping[str, Any] | None = None,
    base: str = FLAGSHIP,
    *,
    prep: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
) -> Experiment:
    preset = _PRESETS.get(base, _PRESETS[FLAGSHIP])
    return Experiment(name, preset, base, ablation, what, changed or {}, prep or {}, search or {})


def _words(name: str, shortlist: str) -> Experiment:
    prep = {"vocabulary": "word", "shortlist": shortlist}
    return _variant("vocabulary", name, f"{int(shortlist):,} words a side", prep=prep)


def _paper(normalization: str) -> dict[str, Any]:
    return {**PAPER_TRAINING, "loss_normalization": normalization}
