"""The ablations: what is taken out of a model or exchanged in it, one thing at a time, to see how much it matters."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nmtalign.config import ModelConfig
from nmtalign.errors import UsageError
from nmtalign.reproduction.experiment import BASELINE, FLAGSHIP, Experiment
from nmtalign.reproduction.scales import PAPER_TRAINING, Scale

_PRESETS = {FLAGSHIP: "rnnsearch-50", BASELINE: "rnnencdec-50"}


def ablations(scale: Scale) -> Mapping[str, Sequence[Experiment]]:
    """The experiments of every ablation, by its name, in the order of the report."""
    hidden = scale.settings.get("hidden", ModelConfig.hidden)
    longer = {"max_length": 75}  # pieces: about as many sentences as have 50 words
    return {
        "encoder": [_variant("encoder", "encoder-forward", "encoder reads forward only", {"bidirectional": False})],
        "context": [_variant("context", "context-fixed", "one context for all words", {"attention": "none"})],
        "score": [
            _variant("score", f"score-{name}", f"{name} score in place of the additive one", {"attention": name})
            for name in ("dot", "general")
        ]
        + [
            # Adam's steps of a bilinear score add up over n products: without this it looks at few words too early.
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
    """The experiments of `all`, `none` or names with commas; raises UsageError for an unknown name."""
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
