"""The options of `nmtalign score`, one type each."""

from pathlib import Path
from typing import Annotated, Any

import typer

_TEXTS, _LENGTH, _WORDS, _TABLES, _METRICS, _SURE, _OUT, _MODELS = (
    "Texts",
    "By length",
    "Words, known and unknown",
    "Sentences",
    "Metrics",
    "Confidence and significance",
    "What comes out",
    "Models: what they translate, and which words they know",
)


def _option(panel: str, help: str, metavar: str | None = None, names: str = "", **more: Any) -> Any:
    return typer.Option(*names.split(), help=help, metavar=metavar, rich_help_panel=panel, **more)


Hypotheses = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[NAME=]HYP...",
        help="Translations to score, one per system: text or .gz files, - for stdin.",
        show_default=False,
    ),
]
References = Annotated[list[Path] | None, _option(_TEXTS, "Reference; may be repeated.", "FILE", "--reference -r")]
Source = Annotated[Path | None, _option(_TEXTS, "Source text of the translation.", "FILE", "--source -s")]

ByLength = Annotated[
    bool | None, _option(_LENGTH, "Scores by the number of words of the source.", names="--by-length/--no-by-length")
]
LengthOf = Annotated[str | None, _option(_LENGTH, "Whose words count: source, reference, hypothesis.", "SIDE")]
Buckets = Annotated[str | None, _option(_LENGTH, "Upper limits of the rows (10,20,...,60).", "N,N,...")]
Cumulative = Annotated[
    bool | None, _option(_LENGTH, "Each row counts all lines up to its limit.", names="--cumulative/--apart")
]
NoUnk = Annotated[
    bool | None,
    _option(
        _WORDS,
        "Also score only the sentences without unknown words, by the words of -m or --data.",
        names="--known-words/--all-words",
    ),
]
Table1 = Annotated[
    bool,
    _option(_WORDS, "The paper's Table 1: BLEU with and without unknown words.", names="--table1"),
]
ByFrequency = Annotated[
    bool | None,
    _option(_WORDS, "F1 of words by their frequency in training.", names="--by-frequency/--no-by-frequency"),
]
TrainText = Annotated[Path | None, _option(_WORDS, "Training text of the target language, instead of --data.", "FILE")]
ByPlace = Annotated[
    bool | None,
    _option(
        _TABLES,
        "By place of sentences in the text, of words in sentences.",
        names="--by-place/--no-by-place",
    ),
]
Differences = Annotated[
    int, _option(_TABLES, "The N sentences in which the first two systems differ most.", "N", min=0)
]
Attention = Annotated[
    bool, _option(_TABLES, "Also draw the attention of the systems in these sentences.", names="--attention")
]
AttentionFrom = Annotated[
    list[str] | None,
    _option(_TABLES, "Alignment file of a system, unless -m gives its model.", "[NAME=]FILE.h5"),
]

Metrics = Annotated[
    str | None,
    _option(
        _METRICS,
        "Some of bleu, chrf, chrf++, multi-bleu, ter (slow), or all. By default all but ter; "
        "multi-bleu needs a known language.",
        "NAME,...",
    ),
]
SegmentScores = Annotated[
    list[str] | None,
    _option(
        _METRICS,
        "Also a metric of another program, such as COMET: one number per line, higher is better. "
        "Give it once for each system, in their order.",
        "METRIC=FILE",
    ),
]
Lowercase = Annotated[bool | None, _option(_METRICS, "Compute BLEU on lower-cased text.", names="--lowercase/--cased")]
Tokenize = Annotated[str | None, _option(_METRICS, "sacreBLEU's tokeniser of BLEU (13a).", "13a|none|intl|char|zh")]
Tokenized = Annotated[bool, _option(_METRICS, "Old name of multi-bleu.", names="--tokenized", hidden=True)]
TargetLanguage = Annotated[
    str | None,
    _option(_METRICS, "Language of multi-bleu (the model's, or the ending of -r).", "LANG"),
]

Confidence = Annotated[
    bool | None,
    _option(
        _SURE,
        "95% bootstrap intervals (where figures are compared).",
        names="--confidence/--no-confidence",
    ),
]
Bootstrap = Annotated[int | None, _option(_SURE, "Bootstrap samples (1000).", "N")]
Seed = Annotated[int | None, _option(_SURE, "Seed of samples and trials ($SACREBLEU_SEED, or 12345).", "N")]
Significance = Annotated[
    str | None,
    _option(
        _SURE,
        "Paired bootstrap, approximate randomisation (bs).",
        "bs|ar|both|none",
    ),
]
Trials = Annotated[int | None, _option(_SURE, "Trials of ar (10000).", "N")]

Format = Annotated[str | None, _option(_OUT, "Format of the output (text).", "text|json|csv")]
Plot = Annotated[Path | None, _option(_OUT, "Draw the paper's Figure 2: scores by length.", "FILE.png|svg|pdf")]
Html = Annotated[Path | None, _option(_OUT, "Write one page with all tables and plots.", "FILE.html")]
FailUnder = Annotated[
    float | None, _option(_OUT, "Exit with 1 if the BLEU (or else the first metric) of a system is below X.", "X")
]

AllModels = Annotated[bool, _option(_MODELS, "Translate with every model under models/.", names="--all")]
Model = Annotated[Path | None, _option(_MODELS, "Model that translates (the only one here).", "DIR", "--model -m")]
Data = Annotated[Path | None, _option(_MODELS, "Corpus instead of -m for --known-words, --by-frequency.", "DIR")]
SaveTranslation = Annotated[Path | None, _option(_MODELS, "Write the translation of the model here, too.", "FILE")]
Beam = Annotated[int | None, _option(_MODELS, "Width of the beam.")]
Device = Annotated[str | None, _option(_MODELS, "Where to translate.", "auto|cpu|cuda")]
