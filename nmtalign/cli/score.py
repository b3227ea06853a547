"""`nmtalign score`: BLEU, chrF and other metrics of one or several systems, with confidence, by length, by words."""

import dataclasses
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmtalign.cli.common import QuietOption, bound_caches, choose_wait_policy, json_text, notifier, say
from nmtalign.cli.naming import name_files, named
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.cli.stopping import Signals
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, check_output
from nmtalign.settings.command_settings import AlignConfig, ScoreConfig
from nmtalign.settings.definition import TABLES, naming
from nmtalign.settings.presets import all_layers, translate_config
from nmtalign.settings.workspace import Workspace
from nmtalign.text.lines import STDIN

if TYPE_CHECKING:
    from nmtalign.alignment.heatmap import Panel
    from nmtalign.scoring.scoring_run import ScoreRequest, ScoreResult
    from nmtalign.scoring.unknowns import WordSources

DIFFERENCES = 10  # on a page, unless another number is given
MODELS = "Models"


def _option(help: str, metavar: str | None = None, names: str = "", panel: str | None = None) -> Any:
    """An option of `--help`, or if it has a panel, of `--help-all` only."""
    title = f"Advanced: {panel}" if panel else None
    return typer.Option(*names.split(), help=help, metavar=metavar, hidden=bool(panel), rich_help_panel=title)


Hypotheses = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[NAME=]HYP...",
        help="Translations to score, one per system: text or .gz files, - for stdin; or model directories.",
        show_default=False,
    ),
]
References = Annotated[list[Path] | None, _option("Reference; may be repeated.", "FILE", "--reference -r")]
Source = Annotated[Path | None, _option("Source text of the translations.", "FILE", "--source -s")]
Model = Annotated[
    Path | None, _option("Model that translates the source, or whose words are known.", "DIR", "--model -m")
]
AllModels = Annotated[bool, _option("Translate with every model under models/.", names="--all")]
SegmentScores = Annotated[
    list[str] | None,
    _option("Scores of another program, one number per line; repeat it for each system.", "METRIC=FILE"),
]
Plot = Annotated[Path | None, _option("Draw the article's Figure 2: scores by length.", "FILE.png|svg|pdf")]
Html = Annotated[Path | None, _option("Write one page with all tables and plots.", "FILE.html")]
FailUnder = Annotated[
    float | None, _option("Exit with 1 if the BLEU (or else the first metric) of a system is lower.", "X")
]
Attention = Annotated[
    bool,
    _option("Draw the attention of the systems in the sentences of --differences.", panel=TABLES, names="--attention"),
]
AttentionFrom = Annotated[
    list[str] | None,
    _option("Alignment file of a system, unless a model gives its attention.", "[NAME=]FILE.h5", panel=TABLES),
]
Data = Annotated[Path | None, _option("Corpus whose words are known, instead of -m.", "DIR", panel=TABLES)]
TrainText = Annotated[
    Path | None, _option("Training text of the target language, for --by-frequency.", "FILE", panel=TABLES)
]
SaveTranslation = Annotated[Path | None, _option("Also write the translation of the model.", "FILE", panel=MODELS)]
Beam = Annotated[int | None, _option("Width of the beam.", "N", panel=MODELS)]
Device = Annotated[str | None, _option("Where models translate.", "auto|cpu|cuda", panel=MODELS)]


@with_settings(ScoreConfig, section="score")
def score(
    chosen: Chosen[ScoreConfig],
    hypotheses: Hypotheses = None,
    reference: References = None,
    source: Source = None,
    model: Model = None,
    all_models: AllModels = False,
    segment_scores: SegmentScores = None,
    html: Html = None,
    plot: Plot = None,
    fail_under: FailUnder = None,
    attention: Attention = False,
    attention_from: AttentionFrom = None,
    data: Data = None,
    train_text: TrainText = None,
    save_translation: SaveTranslation = None,
    beam: Beam = None,
    device: Device = None,
    quiet: QuietOption = False,
) -> None:
    """Score translations with sacreBLEU's BLEU, chrF and chrF++, and their signatures.

    Without HYP and -r, nmtalign translates the test set of the workspace. With
    only -r, HYP is stdin. Several systems are compared in every table; p is
    against the first. The exit code does not depend on scores, except with
    --fail-under.

    Examples:

      nmtalign score out.fr -r test.fr -s test.en --by-length --known-words -m model/

      nmtalign score ours=a.fr theirs=b.fr -r test.fr --differences 5 --html report.html

      nmtalign score out.fr -r test.fr --segment-scores COMET=comet.txt --format json
    """
    inputs = _Inputs(
        hypotheses or [], reference or [], source, model, all_models, segment_scores or [], data, train_text
    )
    outputs = _Outputs(html, plot, save_translation, fail_under, quiet)
    with Signals(), naming(*all_layers(ScoreConfig, *chosen.layers)):
        request = _request(chosen, inputs, {"beam": beam, "device": device})
        if len(request.systems) < 2 and (alone := {"differences", "significance"} & {*chosen.layers[-1][1]}):
            raise UsageError(f"--{min(alone)}: compares systems; give two or more")
        outputs.check(request)
        if attention_from and not attention:
            raise UsageError("--attention-from is for --attention; give it too")
        attending = _attending(request, model, attention_from or [], html) if attention else {}
        result = _run(outputs.extended(request), quiet)
        panels = _panels(result, attending, chosen.workspace.resolve(AlignConfig, "align", {"device": device}))
        outputs.write(result, request, panels)


@dataclass(frozen=True)
class _Inputs:
    """The texts, models and words that the command line names."""

    files: Sequence[Path]
    references: Sequence[Path]
    source: Path | None
    model: Path | None
    all_models: bool
    segment_scores: Sequence[str]
    data: Path | None
    train_text: Path | None


def _request(chosen: Chosen[ScoreConfig], inputs: _Inputs, search: Mapping[str, Any]) -> "ScoreRequest":
    """What is to be scored; the test set, the model and the vocabularies of the workspace are the defaults."""
    from nmtalign.scoring.models import models_to_score
    from nmtalign.scoring.scoring_run import ScoreRequest

    workspace, settings = chosen.workspace, chosen.settings
    references, source = _references_and_source(workspace, inputs)
    if inputs.files or (inputs.references and not inputs.model and not inputs.all_models):
        if inputs.all_models:
            raise UsageError("--all scores the models under models/; leave out HYP")
        if not inputs.files and sys.stdin.isatty():
            raise UsageError("nothing to score: give HYP, a translation on stdin, or -m to translate the source")
        systems: Mapping[str, Path] = dict(name_files(inputs.files or [STDIN]))
    else:
        if source is None:
            raise UsageError("nothing to translate: give the source with -s")
        systems = models_to_score(workspace, inputs.model, inputs.all_models, source, say)
    segments: dict[str, list[Path]] = {}
    for metric, path in (named(Path(one)) for one in inputs.segment_scores):
        if not metric:
            raise UsageError(f"--segment-scores {path}: give METRIC=FILE")
        segments.setdefault(metric, []).append(path)
    section, (origin, flags) = workspace.layers("translate", search)
    request = ScoreRequest(
        systems,
        references,
        source,
        dataclasses.replace(settings, target_language=settings.target_language or workspace.target_language or ""),
        segments,
        translation=translate_config(section, ("score", {"n_best": 1, "sample": False}), (origin, flags)),
        skip_models=inputs.all_models,
    )
    if not request.models and flags:
        raise UsageError("--beam and --device are for a translation made here; leave them out, or HYP and -r")
    return dataclasses.replace(request, words=_word_sources(workspace, inputs, request))


def _references_and_source(workspace: Workspace, inputs: _Inputs) -> tuple[Sequence[Path], Path | None]:
    """-r and -s, or the test set of the workspace; its source belongs to its reference."""
    test_source, test_reference = workspace.pairs.get("test", (None, None))
    references = inputs.references or ([test_reference] if test_reference else [])
    if not references:
        raise UsageError(
            'no reference: give it with -r, or a test set in nmtalign.toml: [corpus] test = ["test.en", "test.fr"]'
        )
    if inputs.source or not test_source or not test_reference:
        return references, inputs.source
    same = any(
        one == test_reference or (one.exists() and test_reference.exists() and one.samefile(test_reference))
        for one in references
    )
    return references, test_source if same and (test_source.exists() or not inputs.files) else None


def _word_sources(workspace: Workspace, inputs: _Inputs, request: "ScoreRequest") -> "WordSources":
    """The models or the corpus that say which words are known, and where words are counted."""
    from nmtalign.scoring.unknowns import WordSources

    given = inputs.data or inputs.model
    folders = (given,) if given else tuple(request.models.values())
    if not folders:
        folders = tuple(one for one in (workspace.model, workspace.data) if (one / "tokenizer.json").is_file())[:1]
    return WordSources(folders, inputs.train_text, (workspace.data, *workspace.pairs.get("train", ())[1:]))


def _attending(
    request: "ScoreRequest", model: Path | None, given: Sequence[str], html: Path | None
) -> Mapping[str, Path]:
    """The alignment file or the model that has the attention of each system; raises UsageError if none can be drawn."""
    if not request.settings.differences and not html:
        raise UsageError("--attention is drawn of --differences N; give it too")
    if request.settings.format != "text" and not html:
        raise UsageError(f"--attention is drawn as text and on the page of --html, not as {request.settings.format}")
    if request.source is None:
        raise UsageError("--attention: give the source with -s")
    names = [*request.systems]
    found = {**(dict.fromkeys(names, model) if model else {}), **request.models}
    unnamed = iter(names)
    for argument in given:
        name, path = named(Path(argument))
        name = name or next(unnamed, "")  # files without a name belong to the systems in their order
        if name not in names:
            known = ", ".join(names[:5])
            raise UsageError(f"--attention-from {argument}: no system has this name; the systems are {known}")
        if not path.exists():
            raise UsageError(f"--attention-from {argument}: no such file; give one of `nmtalign align` or `translate`")
        found[name] = path
    for name in names[:2]:
        if name not in found:
            raise UsageError(f"--attention: nothing has the attention of {name}; give --attention-from {name}=FILE.h5")
    return found


def _run(request: "ScoreRequest", quiet: bool) -> "ScoreResult":
    from nmtalign.cli.score_output import progress
    from nmtalign.scoring.scoring_run import run_scoring

    if request.models:
        choose_wait_policy()
        bound_caches()
    return run_scoring(request, notify=notifier(quiet), warn=say, track=progress(quiet))


def _panels(
    result: "ScoreResult", attending: Mapping[str, Path], settings: AlignConfig
) -> "Mapping[int, Sequence[tuple[str, Panel]]]":
    """The attention of the first two systems in the sentences in which they differ most, by line from 1."""
    texts, lines = result.texts, [one.line for one in result.report.differences]
    if not attending or not lines or texts.source is None:
        return {}
    from nmtalign.scoring.system_attention import Attending, attention_panels

    systems = [Attending(name, attending[name], text.lines) for name, text in [*texts.systems.items()][:2]]
    return attention_panels(systems, texts.source.lines, lines, settings, say)


@dataclass(frozen=True)
class _Outputs:
    """The files that are written, and the lowest score that is no failure."""

    html: Path | None
    plot: Path | None
    save_translation: Path | None
    fail_under: float | None
    quiet: bool

    def check(self, request: "ScoreRequest") -> None:
        """Raises for every output that could not be written after long work."""
        if self.save_translation and not request.models:
            raise UsageError("--save-translation is for a translation made here; leave it out, or HYP and -r")
        if self.save_translation and len(request.systems) > 1:
            raise UsageError("--save-translation is for one model; --all keeps all translations in the models' folders")
        if self.plot or self.html:
            from nmtalign.figures import check_figure_name, need_matplotlib

            if self.plot:
                check_figure_name(self.plot)
            need_matplotlib()
        if self.html and self.html.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{self.html}: a page's name ends in .html; give such a name to --html")
        for output in (self.plot, self.html, self.save_translation):
            if output:
                check_output(output, request.paths)
        if self.fail_under is not None and math.isnan(self.fail_under):
            raise UsageError("--fail-under nan: no score is below that; give a number")
        names = {name.strip().lower() for name in request.settings.metrics.split(",")}
        if self.fail_under is not None and names == {"ter"} and not request.segment_scores:
            raise UsageError("--fail-under: a lower TER is better; give a metric of which more is better, such as bleu")

    def extended(self, request: "ScoreRequest") -> "ScoreRequest":
        """The request with what a plot needs, and what a page shows without being asked."""
        settings = request.settings
        if self.plot:
            settings = dataclasses.replace(settings, by_length=True)
        if self.html:
            settings = dataclasses.replace(
                settings,
                by_length=settings.by_length or request.source is not None or settings.length_of != "source",
                by_place=True,
                differences=settings.differences or DIFFERENCES,
                confidence=settings.confidence is not False,
            )
        return dataclasses.replace(request, settings=settings)

    def write(
        self, result: "ScoreResult", request: "ScoreRequest", panels: "Mapping[int, Sequence[tuple[str, Panel]]]"
    ) -> None:
        """Writes the files, prints what the request asks for, and judges the scores."""
        note = notifier(self.quiet)
        if self.save_translation:
            (text,) = result.texts.systems.values()
            with atomic_text(self.save_translation) as stream:
                stream.writelines(f"{line}\n" for line in text.lines)
        if self.plot:
            from nmtalign.scoring.figure import draw_by_length

            for line in (*draw_by_length(result.report, self.plot, result.report.metrics[0]), f"wrote {self.plot}"):
                note(line)
        if self.html:
            from nmtalign.scoring.system_attention import svgs

            facts = {"command": shlex.join(["nmtalign", *sys.argv[1:]])}
            if request.words.folders and (request.settings.no_unk or request.settings.by_frequency):
                facts["known words"] = ", ".join(map(str, request.words.folders))
            with atomic_text(self.html) as stream:
                stream.write(result.to_html(facts, svgs(panels)))
            note(f"wrote {self.html}")
        _print(result, request.settings, bool(self.plot), panels)
        if self.fail_under is not None:
            _judge(result, self.fail_under)


def _print(
    result: "ScoreResult", settings: ScoreConfig, lengths: bool, panels: "Mapping[int, Sequence[tuple[str, Panel]]]"
) -> None:
    """Prints what was asked for: not what only the page of --html shows."""
    asked = {"length": settings.by_length or lengths, "place": settings.by_place, "differences": settings.differences}
    shown = dataclasses.replace(result, report=result.report.without([name for name in asked if not asked[name]]))
    if settings.format == "json":
        sys.stdout.write(json_text(shown.to_dict(), indent=2) + "\n")
    elif settings.format == "csv":
        sys.stdout.write(shown.to_csv())
    else:
        from nmtalign.cli.score_output import print_text

        print_text(shown.report, settings, panels)


def _judge(result: "ScoreResult", least: float) -> None:
    """Exits with 1, after one line that says why, if a system's BLEU (or else first metric) is below `least`."""
    metrics = [name for name in result.report.metrics if name != "TER"]
    metric = "BLEU" if "BLEU" in metrics else metrics[0]
    values = {name: result.value(metric, name) for name in result.texts.systems}
    low = [f"{name} {_below(value, least)}" for name, value in values.items() if value is not None and value < least]
    if low:
        sys.stdout.flush()
        say(f"{metric} below {least:g}: {', '.join(low)}")
        raise typer.Exit(1)


def _below(value: float, least: float) -> str:
    """The value with two digits, or with as many as show that it is less than `least`."""
    return next((text for digits in range(2, 16) if float(text := f"{value:.{digits}f}") < least), repr(value))
