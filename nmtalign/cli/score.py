"""`nmtalign score`: BLEU, chrF and TER of a translation, by source length and without unknown words."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from nmtalign.cli.common import ConfigOption, QuietOption, bound_caches, choose_wait_policy, notifier
from nmtalign.config import ScoreConfig, TranslateConfig
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.presets import translate_config
from nmtalign.workspace import Workspace, given, load_workspace

if TYPE_CHECKING:
    from nmtalign.scoring.metrics import MetricOptions
    from nmtalign.scoring.report import Report
    from nmtalign.scoring.texts import Text
    from nmtalign.scoring.unknowns import Vocabularies

T = TypeVar("T")
STDIN = Path("-")
_TEXTS, _FIGURES, _BLEU, _TRANSLATION = "Texts", "What to print", "BLEU", "Where nothing is given to score"

Hypothesis = Annotated[
    Path | None,
    typer.Argument(metavar="HYP|-", help="The translation to score: a text or .gz file, `-` for stdin."),
]
References = Annotated[
    list[Path] | None,
    typer.Option("--reference", "-r", metavar="FILE", help="Reference; may be repeated.", rich_help_panel=_TEXTS),
]
Source = Annotated[
    Path | None,
    typer.Option("--source", "-s", metavar="FILE", help="Source text of the translation.", rich_help_panel=_TEXTS),
]
ByLength = Annotated[
    bool | None,
    typer.Option("--by-length/--no-by-length", help="A table by words of the source line.", rich_help_panel=_FIGURES),
]
Buckets = Annotated[
    str | None,
    typer.Option(metavar="N,N,...", help="Upper ends of its rows (10,20,30,40,50,60).", rich_help_panel=_FIGURES),
]
NoUnk = Annotated[
    bool | None,
    typer.Option(
        "--no-unk/--with-unk",
        help="Also the sentences without an unknown word in source and reference.",
        rich_help_panel=_FIGURES,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Corpus whose words --no-unk knows, in place of -m.", rich_help_panel=_FIGURES),
]
Metrics = Annotated[str, typer.Option(metavar="NAME,...", help="Which metrics.", rich_help_panel=_FIGURES)]
Format = Annotated[str | None, typer.Option(metavar="text|json", help="How to print.", rich_help_panel=_FIGURES)]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="BLEU of lower-cased text.", rich_help_panel=_BLEU)]
Tokenize = Annotated[
    str,
    typer.Option(metavar="13a|none|intl|char", help="sacreBLEU's tokeniser.", rich_help_panel=_BLEU),
]
Tokenized = Annotated[
    bool,
    typer.Option(
        "--tokenized",
        help="Also BLEU of the text as Moses tokenises it, as older papers report it.",
        rich_help_panel=_BLEU,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(metavar="LANG", help="For --tokenized (default: the model's).", rich_help_panel=_BLEU),
]
Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        help="Model that translates, and whose words --no-unk knows.",
        rich_help_panel=_TRANSLATION,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Keep the translation.", rich_help_panel=_TRANSLATION),
]
Beam = Annotated[int | None, typer.Option(help="Width of the beam.", rich_help_panel=_TRANSLATION)]
Device = Annotated[
    str | None, typer.Option(metavar="auto|cpu|cuda", help="Where to translate.", rich_help_panel=_TRANSLATION)
]


@dataclass(frozen=True)
class _Plan:
    """Which texts are read; `hypothesis` None = translate the source."""

    hypothesis: Path | None
    references: tuple[Path, ...]
    source: Path | None


def score(
    hypothesis: Hypothesis = None,
    reference: References = None,
    source: Source = None,
    by_length: ByLength = None,
    buckets: Buckets = None,
    no_unk: NoUnk = None,
    data: Data = None,
    metrics: Metrics = "bleu,chrf,ter",
    format: Format = None,
    lowercase: Lowercase = False,
    tokenize: Tokenize = "13a",
    tokenized: Tokenized = False,
    target_language: TargetLanguage = None,
    model: Model = None,
    output: Output = None,
    beam: Beam = None,
    device: Device = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Score a translation: sacreBLEU's BLEU, chrF and TER with their signatures.

    Without HYP and -r the test set of the workspace is translated and scored. With -r alone (and no -m) HYP is stdin.

    Examples:

      nmtalign score --by-length

      nmtalign score out.fr -r test.fr -s test.en --by-length --no-unk -m model/

      nmtalign translate < test.en | tee out.fr | nmtalign score - -r test.fr -s test.en --by-length

      nmtalign score out.fr -r test.fr --tokenized --lowercase --target-language fr --format json
    """
    from nmtalign.cli.score_output import print_json, print_text
    from nmtalign.scoring.metrics import MetricOptions

    workspace = load_workspace(config)
    flags = {"by_length": by_length, "buckets": buckets, "no_unk": no_unk, "format": format}
    settings = workspace.resolve(ScoreConfig, "score", flags)
    plan = _plan(workspace, hypothesis, tuple(reference or ()), source, model)
    if plan.hypothesis is not None and any(value is not None for value in (output, beam, device)):
        raise UsageError("--output, --beam and --device are for a translation made here; leave them out, or HYP and -r")
    folder = _words_folder(workspace, data or model)
    language = _language(workspace, target_language, folder) if tokenized else ""
    names = tuple(name.strip().lower() for name in metrics.split(","))
    options = MetricOptions(names, lowercase, tokenize, language)
    searched: dict[str, Any] = {"beam": beam, "device": device, "n_best": 1, "sample": False}
    search = translate_config(workspace.section("translate"), given(searched))
    maker = _Maker(model or workspace.model, search, output, quiet)
    report = _report(plan, settings, options, folder, maker)
    (print_json if settings.format == "json" else print_text)(report)


def _plan(
    workspace: Workspace, hypothesis: Path | None, references: tuple[Path, ...], source: Path | None, model: Path | None
) -> _Plan:
    """Fills in what was not given: stdin for HYP beside -r, the workspace's test set for -r and -s."""
    if hypothesis is None and references and model is None:
        if sys.stdin.isatty():
            raise UsageError("nothing to score: give HYP, a translation on stdin, or -m to translate the source")
        hypothesis = STDIN
    if not references:
        if "test" not in workspace.pairs:
            raise UsageError(
                'no reference: give it with -r, or a test set in nmtalign.toml: [corpus] test = ["test.en", "test.fr"]'
            )
        test_source, test_reference = workspace.pairs["test"]
        references = (test_reference,)
        if source is None and (hypothesis is None or test_source.exists()):
            source = test_source
    if [hypothesis, source, *references].count(STDIN) > 1:
        raise UsageError("only one of HYP, -r and -s can be stdin")
    return _Plan(hypothesis, references, source)


def _words_folder(workspace: Workspace, given: Path | None) -> Path | None:
    """The model or corpus that says what a word is; None where there is none."""
    if given:
        return given
    return next((path for path in (workspace.model, workspace.data) if (path / "tokenizer.json").is_file()), None)


def _vocabularies(folder: Path | None) -> "Vocabularies":
    from nmtalign.scoring.unknowns import Vocabularies

    if folder is None:
        raise UsageError("--no-unk: no model or corpus here; give a model with -m or a prepared corpus with --data")
    return Vocabularies.load(folder)


def _language(workspace: Workspace, given: str | None, folder: Path | None) -> str:
    """The language whose rules --tokenized follows."""
    from nmtalign.text.tokenizer import Tokenizers

    language = given or workspace.target_language
    if not language and folder:
        language = Tokenizers.load(folder).target_language
    if not language:
        raise UsageError("--tokenized: give the language of the translation with --target-language")
    return language


@dataclass(frozen=True)
class _Maker:
    """Makes the translation that is not given."""

    model: Path
    search: TranslateConfig
    output: Path | None
    quiet: bool

    def translate(self, source: "Text") -> "Text":
        """Translates every line; keeps the translation in `output` where that is given."""
        choose_wait_policy()
        bound_caches()
        from nmtalign.decoding.translator import Translator, load_models
        from nmtalign.scoring.texts import Text

        models = load_models([self.model], self.search)
        notifier(self.quiet)(f"translating {len(source.lines)} lines of {source.name} with {self.model}")
        translations = Translator(models, self.search, alignments=False).translate(source.lines)
        lines = [translation.text for translation in _progress(translations, len(source.lines), self.quiet)]
        if self.output:
            with atomic_text(self.output) as stream:
                stream.writelines(f"{line}\n" for line in lines)
        return Text(f"the translation of {source.name}", lines)


def _report(
    plan: _Plan, settings: ScoreConfig, options: "MetricOptions", folder: Path | None, maker: _Maker
) -> "Report":
    """Reads or makes the texts and scores them."""
    from nmtalign.scoring.lengths import parse_buckets, word_counts
    from nmtalign.scoring.metrics import looks_tokenized, measure
    from nmtalign.scoring.report import make_report

    buckets = parse_buckets(settings.buckets)
    if plan.source is None and (settings.by_length or settings.no_unk):
        raise UsageError(f"{'--by-length' if settings.by_length else '--no-unk'}: give the source with -s")
    vocabularies = _vocabularies(folder) if settings.no_unk else None
    hypothesis, references, source = _texts(plan, maker)
    if options.tokenize != "none" and (count := looks_tokenized(hypothesis.lines)):
        notifier(maker.quiet)(
            f"{hypothesis.name}: {count} lines end in ' .': it looks tokenised, and such a BLEU cannot be compared; "
            "score raw text, or give --tokenize none"
        )
    lines = [reference.lines for reference in references]
    table = measure(hypothesis.lines, lines, options)
    lengths = word_counts(source.lines) if source and settings.by_length else None
    known = vocabularies.without_unknowns(source.lines, lines) if source and vocabularies else None
    return make_report(table, lengths, buckets, known)


def _texts(plan: _Plan, maker: _Maker) -> tuple["Text", list["Text"], "Text | None"]:
    """(hypothesis, references, source); what is at hand is checked before a translation that may be long in coming."""
    from nmtalign.scoring.texts import check_aligned, read_text

    references = [read_text(path) for path in plan.references]
    source = read_text(plan.source) if plan.source else None
    check_aligned([*references, *([source] if source else [])])
    if plan.hypothesis:
        hypothesis = read_text(plan.hypothesis)
    elif source:
        hypothesis = maker.translate(source)
    else:
        raise UsageError("nothing to translate: give the source with -s")
    check_aligned([references[0], hypothesis])
    return hypothesis, references, source


def _progress(items: Iterable[T], total: int, quiet: bool) -> Iterable[T]:
    """The items, with a bar on stderr where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description="translating", total=total, console=Console(stderr=True))
