"""What is trained and compared: the paper's four models, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """A model, or a search with a model, by what makes it another one than its preset says."""

    name: str  # of the system in every table, and of its folder
    preset: str
    base: str = ""  # the experiment that it is compared with
    ablation: str = ""  # the question that it helps to answer
    what: str = ""  # how it differs from its base, in words
    changed: Mapping[str, Any] = field(default_factory=dict)  # settings of model and training
    prep: Mapping[str, Any] = field(default_factory=dict)  # of the corpus: another one is prepared
    search: Mapping[str, Any] = field(default_factory=dict)


BASELINE, FLAGSHIP = "RNNencdec-50", "RNNsearch-50"
PAPER_MODELS = (
    Experiment("RNNencdec-30", "rnnencdec-30", what="fixed vector, training pairs of at most 30 words"),
    Experiment("RNNsearch-30", "rnnsearch-30", BASELINE, what="attention, training pairs of at most 30 words"),
    Experiment(BASELINE, "rnnencdec-50", what="fixed vector, training pairs of at most 50 words"),
    Experiment(FLAGSHIP, "rnnsearch-50", BASELINE, what="attention, training pairs of at most 50 words"),
)
