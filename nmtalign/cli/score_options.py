"""The options of `nmtalign score`, a type each."""

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
        help="Translations to score, one a system: text or .gz files, - for stdin.",
        show_default=False,
    ),
]
References = Annotated[list[Path] | None, _option(_TEXTS, "Reference; may be repeated.", "FILE", "--reference -r")]
Source = Annotated[Path | None, _option(_TEXTS, "Source text of the translation.", "FILE", "--source -s")]

ByLength = Annotated[
    bool | None, _option(_LENGTH, "A table by words of the source line.", names="--by-length/--no-by-length")
]
LengthOf = Annotated[str | None, _option(_LENGTH, "Whose words count: source, reference, hypothesis.", "SIDE")]
Buckets = Annotated[str | None, _option(_LENGTH, "Upper ends of the rows (10,20,...,60).", "N,N,...")]
Cumulative = Annotated[
    bool | None, _option(_LENGTH, "A row holds all lines up to its end.", names="--cumulative/--apart")
]
NoUnk = Annotated[
    bool | None,
    _option(
        _WORDS,
        "Also the sentences of known words alone, in source and reference, by -m or --data.",
        names="--no-unk/--with-unk",
    ),
]
Table1 = Annotated[bool, _option(_WORDS, "The paper's Table 1: BLEU of all, and of those.", names="--table1")]
ByFrequency = Annotated[
    bool | None,
    _option(_WORDS, "F1 of words by how often training saw them.", names="--by-frequency/--no-by-frequency"),
]
TrainText = Annotated[Path | None, _option(_WORDS, "Training text of the target language, in place of --data.", "FILE")]
ByPlace = Annotated[
    bool | None,
    _option(_TABLES, "By place of sentences in the text, of words in the sentence.", names="--by-place/--no-by-place"),
]
Differences = Annotated[
    int, _option(_TABLES, "The N sentences in which the first two systems differ most.", "N", min=0)
]
Attention = Annotated[
    bool, _option(_TABLES, "Draw the attention of the systems in those sentences, too.", names="--attention")
]
Alignments = Annotated[
    list[str] | None,
    _option(_TABLES, "Where the attention of a system is, if no model is known.", "[NAME=]FILE.h5"),
]

Metrics = Annotated[
    str | None,
    _option(_METRICS, "Of bleu, chrf, chrf++, ter, multi-bleu (all whose language is known).", "NAME,..."),
]
Comet = Annotated[Path | None, _option(_METRICS, "Also COMET, by the model in this file or folder.", "PATH")]
Lowercase = Annotated[bool | None, _option(_METRICS, "BLEU of lower-cased text.", names="--lowercase/--cased")]
Tokenize = Annotated[str | None, _option(_METRICS, "sacreBLEU's tokeniser of BLEU (13a).", "13a|none|intl|char|zh")]
Tokenized = Annotated[
    bool, _option(_METRICS, "Also multi-bleu: BLEU of Moses-tokenised text, as older papers.", names="--tokenized")
]
TargetLanguage = Annotated[
    str | None, _option(_METRICS, "Of multi-bleu (the model's, or what -r ends in: .fr).", "LANG")
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
Seed = Annotated[int | None, _option(_SURE, "Of all drawing ($SACREBLEU_SEED, or 12345).", "N")]
Significance = Annotated[
    str | None,
    _option(
        _SURE,
        "Paired bootstrap, approximate randomisation (bs).",
        "bs|ar|both|none",
    ),
]
Trials = Annotated[int | None, _option(_SURE, "Trials of ar (10000).", "N")]

Format = Annotated[str | None, _option(_OUT, "How to print.", "text|json|csv")]
Plot = Annotated[Path | None, _option(_OUT, "The paper's Figure 2: by length, all systems.", "FILE.png|svg|pdf")]
Html = Annotated[Path | None, _option(_OUT, "One page with all tables and plots.", "FILE.html")]
FailUnder = Annotated[
    float | None, _option(_OUT, "Exit with 1 if BLEU (or the first metric) of any system is below.", "X")
]

AllModels = Annotated[bool, _option(_MODELS, "Translate with every model under models/.", names="--all")]
Model = Annotated[Path | None, _option(_MODELS, "Model [dim](default: the newest best)[/dim].", "DIR", "--model -m")]
Data = Annotated[Path | None, _option(_MODELS, "Corpus in place of -m for --no-unk, --by-frequency.", "DIR")]
Output = Annotated[Path | None, _option(_MODELS, "Keep the translation.", "FILE", "--output -o")]
Beam = Annotated[int | None, _option(_MODELS, "Width of the beam.")]
Device = Annotated[str | None, _option(_MODELS, "Where to translate.", "auto|cpu|cuda")]
