"""Which metrics are counted, and how."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from nmtalign.checks import SettingError

METRICS = ("bleu", "chrf", "chrf++", "ter", "multi-bleu")
SACREBLEU = METRICS[:4]  # the metrics of today; multi-bleu is that of papers of 2015
TOKENIZE = ("13a", "none", "intl", "char", "zh")  # sacreBLEU's tokenisers that need no further package


@dataclass(frozen=True)
class MetricOptions:
    """Which metrics, and sacreBLEU's options of BLEU (chrF, chrF++ and TER keep sacreBLEU's defaults)."""

    metrics: tuple[str, ...] = SACREBLEU
    lowercase: bool = False  # of BLEU and multi-bleu, as sacreBLEU's -lc
    tokenize: str = "13a"  # of BLEU; with none, multi-bleu takes the text as tokenised already, too
    language: str = ""  # whose rules of Moses multi-bleu follows

    def __post_init__(self) -> None:
        if not self.metrics:
            raise SettingError(f"give one or more of {','.join(METRICS)}", metrics="")
        object.__setattr__(self, "metrics", tuple(dict.fromkeys(self.metrics)))  # a name given twice is one metric
        for name in self.metrics:
            _one_of("metrics", name, METRICS)
        _one_of("tokenize", self.tokenize, TOKENIZE)
        if "multi-bleu" in self.metrics and not self.language and self.tokenize != "none":
            raise SettingError(
                "multi-bleu needs the language of the translation, or the tokeniser none for tokenised text",
                metrics=",".join(self.metrics),
            )


def _one_of(setting: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.0)[0]
        rule = f"unknown {value!r}; the nearest known one is {near!r} (of {', '.join(known)})"
        raise SettingError(rule, **{setting: value})
