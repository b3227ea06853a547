"""What can be trained and compared: the models of Bahdanau et al. (2015), ablations, other systems, and the scales."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nmtalign.errors import UsageError
from nmtalign.settings.presets import SYSTEMS, preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

Settings = Mapping[str, Any]
BASELINE, FLAGSHIP, FIRST_SYSTEM = "RNNencdec-50", "RNNsearch-50", "rnnsearch"


@dataclass(frozen=True)
class EqualBudget:
    """How much training every model gets: updates, target words seen, or hours."""

    unit: Literal["updates", "words", "hours"]
    amount: float

    def __post_init__(self) -> None:
        if not 0 < self.amount < 1e15:
            raise UsageError(f"--{self.unit} {self.amount:g}: must be greater than 0")

    def __str__(self) -> str:
        return f"{self.amount:,.10g} {'target words' if self.unit == 'words' else self.unit}"


@dataclass(frozen=True)
class Scale:
    """Settings that override the preset of every model, a default budget, and vocabulary sizes for the ablations."""

    name: Literal["tiny", "small", "paper"]
    what: str
    settings: Settings
    budget: EqualBudget  # unless the user gives one
    few_words: str  # a vocabulary that is too small
    many_words: str
    pieces: str  # subwords per side


def _quick(sizes: str, warmup: int) -> Settings:
    """The sizes of a preset and a faster training.

    The cells and the order of the decoder's operations are the article's. The optimiser is not: within a few hours,
    Adadelta from the article's small initial weights hardly begins to learn. Batches are half as large, which gives
    twice the updates.
    """
    values = {name: preset(sizes)[name] for name in ("embedding", "hidden", "attention_hidden", "maxout")}
    training = {
        "initialisation": "lecun",
        "optimizer": "adamw",
        "learning_rate": 2e-3,
        "epsilon": 1e-8,
        "schedule": "linear",
        "warmup": warmup,
        "loss_normalization": "tokens",
        "batch_size": 40,
    }
    return {**values, "output_rank": values["embedding"], **training}


SCALES: Mapping[str, Scale] = {
    "tiny": Scale(
        "tiny",
        "sizes of the preset tiny, trained with AdamW: minutes on a laptop",
        _quick("tiny", warmup=100),
        EqualBudget("words", 3_000_000),
        few_words="500",
        many_words="2000",
        pieces="1000",
    ),
    "small": Scale(
        "small",
        "sizes of the preset small, trained with AdamW: hours on a laptop",
        _quick("small", warmup=200),
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


@dataclass(frozen=True)
class Experiment:
    """A model, or a model with another search: the differences from its preset."""

    name: str  # in every table, and of its folder
    what: str  # the difference from its base, in words
    base: str = ""  # the experiment with which it is compared
    ablation: str = ""  # the name of the ablation to which it belongs
    changed: Settings = field(default_factory=dict)  # settings of model and training
    prep: Settings = field(default_factory=dict)  # settings of its own prepared corpus
    search: Settings = field(default_factory=dict)
    system: bool = False  # whether it is one of the systems of `--systems`

    @property
    def preset(self) -> str:
        """The preset of the model: that of a model of the article, or of RNNencdec-50 or RNNsearch-50."""
        changes = self.system or self.ablation
        name = self.name if not changes else BASELINE if self.base == BASELINE else FLAGSHIP
        return name.lower()


PAPER_MODELS = (
    Experiment("RNNencdec-30", "fixed vector, training pairs of at most 30 words"),
    Experiment("RNNsearch-30", "attention, training pairs of at most 30 words", BASELINE),
    Experiment(BASELINE, "fixed vector, training pairs of at most 50 words"),
    Experiment(FLAGSHIP, "attention, training pairs of at most 50 words", BASELINE),
)


def _variant(ablation: str, name: str, what: str, base: str = FLAGSHIP, **changed: Any) -> Experiment:
    return Experiment(name, what, base, ablation, changed)


_KINDS_OF_ATTENTION = (
    _variant("attention", "attention-marginal", "latent position, all summed", attention_kind="marginal"),
    _variant("attention", "attention-hard", "latent position, one drawn", attention_kind="hard"),
)


def ablations(scale: Scale) -> Sequence[Experiment]:
    """Returns the experiments of all ablations, in the order of the report."""
    hidden = scale.settings.get("hidden", ModelConfig.hidden)
    longer = {"max_length": 75}  # about as many sentences have 75 pieces as have 50 words
    # The article's training (section 4.2, appendix B.2) is that of the defaults; the initial weights are the scale's.
    replaced = ("optimizer", "learning_rate", "epsilon", "schedule", "warmup", "clip_norm")
    paper = {name: getattr(TrainingConfig, name) for name in replaced}

    def words(name: str, size: str) -> Experiment:
        prep = {"vocabulary": "word", "shortlist": size}
        return Experiment(name, f"{int(size):,} words per side", FLAGSHIP, "vocabulary", prep=prep)

    return (
        _variant("encoder", "encoder-forward", "encoder reads forward only", bidirectional=False),
        _variant("context", "context-fixed", "one context for all words", attention="none"),
        _variant("score", "score-dot", "dot score in place of the additive one", attention="dot"),
        _variant("score", "score-general", "general score in place of the additive one", attention="general"),
        *_KINDS_OF_ATTENTION,
        _variant("order", "order-update-first", "update, then generate", order="look-update-generate"),
        _variant("cell", "cell-cudnn", "cuDNN's gated unit", cell="cudnn"),
        _variant("readout", "readout-state-only", "readout without the previous word", readout_previous_word=False),
        _variant("width", "vector-2", "fixed vector and states of twice the width", BASELINE, hidden=2 * hidden),
        _variant("width", "vector-4", "fixed vector and states of 4 times the width", BASELINE, hidden=4 * hidden),
        _variant("reverse", "source-reversed", "source read from its end", BASELINE, reverse_source=True),
        _variant("output-rank", "output-direct", "no factored output layer", output_rank=0),
        words("words-few", scale.few_words),
        words("words-many", scale.many_words),
        Experiment(
            "subwords",
            f"{scale.pieces} subwords per side",
            FLAGSHIP,
            "vocabulary",
            longer,
            {"vocabulary": "bpe", "size": scale.pieces, **longer},
        ),
        *(
            Experiment(f"beam-{size}", f"beam of {size}, the same model", FLAGSHIP, "beam", search={"beam": size})
            for size in (1, 5, 12)
        ),
        _variant("loss", "loss-sum", "the paper's training, loss summed", **paper, loss_normalization="sum"),
        _variant(
            "loss",
            "loss-mean",
            "the paper's training, mean over sentences",
            "loss-sum",
            **paper,
            loss_normalization="sentences",
        ),
    )


def chosen_ablations(names: str, scale: Scale) -> list[Experiment]:
    """Returns the experiments of `all`, `none` or comma-separated names; raises UsageError for an unknown name."""
    experiments = ablations(scale)
    wanted = _chosen("ablations", names, (experiment.ablation for experiment in experiments))
    return [experiment for experiment in experiments if experiment.ablation in wanted]


# Training settings of systems that need others than those of a scale, which suit RNNsearch.
_OWN_TRAINING: Mapping[str, Settings] = {"transformer": {"warmup": 800}}
_BYTES = Experiment("bytes", "vocabulary = bytes", prep={"vocabulary": "bytes"}, system=True)


def chosen_systems(names: str) -> list[Experiment]:
    """Returns the systems of `all`, `none` or comma-separated names; raises UsageError for an unknown name."""
    settings = {name: {**changed, **_OWN_TRAINING.get(name, {})} for name, changed in SYSTEMS.items()}
    known = [Experiment(name, _described(changed), system=True, changed=changed) for name, changed in settings.items()]
    known.append(_BYTES)
    wanted = _chosen("systems", names, (system.name for system in known))
    return [system for system in known if system.name in wanted]


def _described(changed: Settings) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changed.items()) or "none"


def _chosen(option: str, names: str, known: Iterable[str]) -> list[str]:
    known = list(dict.fromkeys(known))
    if names in ("", "none"):
        return []
    wanted = known if names == "all" else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise UsageError(f"--{option} {name}: unknown; give all, none, or some of {','.join(known)}")
    return wanted
