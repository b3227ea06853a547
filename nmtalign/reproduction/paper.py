"""The results of Bahdanau et al. (2015), Tables 1 and 2, which a report shows beside its own."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """A row of Tables 1 and 2; None where the article has no number."""

    bleu: float  # tokenised BLEU of all sentences of newstest2014
    no_unk: float  # of the sentences without an unknown word, where the model must not write <unk>
    updates: int | None = None
    epochs: float | None = None
    hours: int | None = None
    device: str = ""
    train_loss: float | None = None  # nats per sentence
    dev_loss: float | None = None


PAPER: Mapping[str, PaperRow] = {
    "RNNencdec-30": PaperRow(13.93, 24.19, 846_000, 6.4, 109, "TITAN BLACK", 28.1, 53.0),
    "RNNsearch-30": PaperRow(21.50, 31.44, 471_000, 3.6, 113, "TITAN BLACK", 26.7, 47.2),
    "RNNencdec-50": PaperRow(17.82, 26.71, 600_000, 4.5, 108, "Quadro K-6000", 44.0, 43.6),
    "RNNsearch-50": PaperRow(26.75, 34.16, 288_000, 2.2, 111, "Quadro K-6000", 40.7, 38.1),
}
# A model that was trained until it stopped improving on dev, and the phrase-based system.
LONGER = "RNNsearch-50*"
MOSES = "Moses"
OTHERS: Mapping[str, PaperRow] = {
    LONGER: PaperRow(28.45, 36.15, 667_000, 5.0, 252, "Quadro K-6000", 36.7, 35.2),
    MOSES: PaperRow(33.30, 35.63),
}
DATA = (
    "The paper's numbers are of another experiment: WMT14 English-French, 348M words chosen from 850M, 30,000 words a "
    "side, layers of 1,000 units, about 110 hours on a GPU for each model, tested on the 3,003 sentences of "
    "newstest2014. They say which shape to look for, and not which number."
)
MOSES_CAVEAT = (
    "Moses, the phrase-based system of the paper, had 418M words of monolingual text more than the neural models."
)
