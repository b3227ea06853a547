"""`nmtalign score`: BLEU, chrF and other metrics of one or several systems, with confidence, by length, by words."""

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nmtalign.cli.common import (
    QuietOption,
    Signals,
    bound_caches,
    check_inputs,
    choose_wait_policy,
    json_text,
    name_files,
    named,
    notifier,
    open_output,
    own_argument,
    own_option,
    say,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import ResourceError, UsageError
from nmtalign.figures import check_figure_name, need_matplotlib
from nmtalign.files import stays_in_place
from nmtalign.settings.command_settings import AlignConfig, ScoreConfig, TranslateConfig
from nmtalign.settings.definition import TABLES, resolve
from nmtalign.settings.workspace import given as given_flags
from nmtalign.text.lines import STDIN, STDOUT

if TYPE_CHECKING:
    from nmtalign.scoring.models import Notify
    from nmtalign.scoring.scoring_run import ScoreRequest, ScoreResult
    from nmtalign.scoring.system_attention import Panels

DIFFERENCES = 10  # on a page, unless another number is given


Hypotheses = Annotated[
    list[Path] | None,
    own_argument(
        "[NAME=]HYP...", "Translations to score, one per system: text or .gz files, - for stdin; or model directories."
    ),
]
References = Annotated[list[Path] | None, own_option("Reference; may be repeated.", "FILE", "--reference -r")]
Source = Annotated[Path | None, own_option("Source text of the translations.", "FILE", "--source -s")]
Model = Annotated[
    Path | None, own_option("Model that translates the source, or whose words are known.", "DIR", "--model -m")
]
AllModels = Annotated[bool, own_option("Translate with every model under models/.", names="--all")]
SegmentScores = Annotated[
    list[Path] | None,
    own_option("Scores of another program, one number per line; repeat it for each system.", "METRIC=FILE"),
]
Plot = Annotated[
    Path | None,
    own_option("Draw the article's Figure 2: scores by length.", "FILE.png|svg|pdf", callback=writes("a file")),
]
Html = Annotated[
    Path | None,
    own_option(
        "Write one page with all tables and plots; - writes it to stdout.",
        "FILE.html",
        callback=writes("a file", stdout=True),
    ),
]
AttentionFrom = Annotated[
    list[Path] | None,
    own_option("Alignment file of a system, unless a model gives its attention.", "[NAME=]FILE.h5", panel=TABLES),
]
Data = Annotated[Path | None, own_option("Corpus whose words are known, instead of -m.", "DIR", panel=TABLES)]
TrainText = Annotated[
    Path | None, own_option("Training text of the target language, for --by-frequency.", "FILE", panel=TABLES)
]
SaveTranslation = Annotated[
    Path | None,
    own_option(
        "Also write the translation of the model.", "FILE", panel="Models", callback=writes("a file", stdout=True)
    ),
]
Beam = Annotated[int | None, own_option("Width of the beam.", "N", panel="Models")]
Device = Annotated[str | None, own_option("Where models translate.", "auto|cpu|cuda|mps", panel="Models")]


@with_settings(ScoreConfig)
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
    inputs = _Inputs(hypotheses or [], reference or [], source, model, all_models, data, train_text)
    search = {name: value for name, value in (("beam", beam), ("device", device)) if value is not None}
    outputs = _Outputs(html, plot, save_translation)
    with Signals(), chosen.naming():
        request = _request(chosen, inputs, _segment_files(segment_scores or []), search)
        _check(request, chosen.typed, search, attention_from)
        outputs.check(request)
        sources = _attention_sources(request, model, attention_from or [])
        result = _run(outputs.extended(request), quiet)
        panels = _panels(result, sources, chosen.workspace.resolve(AlignConfig, "align", search)) if sources else {}
        outputs.write(result, panels, request, notifier(quiet))
        taken = STDOUT in (html, save_translation)
        with contextlib.redirect_stdout(sys.stderr) if taken else contextlib.nullcontext():
            _print(result, request.settings, bool(plot), panels)
        if chosen.settings.fail_under is not None:
            _judge(result, chosen.settings.fail_under)


class _Inputs(NamedTuple):
    """The texts, models and words that the command line names."""

    hypotheses: Sequence[Path]
    references: Sequence[Path]
    source: Path | None
    model: Path | None
    all_models: bool
    data: Path | None
    train_text: Path | None


def _request(
    chosen: Chosen[ScoreConfig], given: _Inputs, segments: Mapping[str, Sequence[Path]], search: Mapping[str, Any]
) -> "ScoreRequest":
    """What is to be scored; the test set and the models of the workspace are the defaults."""
    from nmtalign.scoring.models import models_to_score, texts_to_score
    from nmtalign.scoring.scoring_run import ScoreRequest
    from nmtalign.scoring.unknowns import WordSources

    workspace = chosen.workspace
    references, source = texts_to_score(workspace, given.references, given.source, optional=bool(given.hypotheses))
    if given.hypotheses or (given.references and given.model is None and not given.all_models):
        if given.all_models:
            raise UsageError("--all scores the models under models/; leave out HYP")
        if not given.hypotheses and sys.stdin.isatty():
            raise UsageError("nothing to score: give HYP, a translation on stdin, or -m to translate the source")
        systems = dict(name_files(given.hypotheses or [STDIN]))
    elif source is None:
        raise UsageError("nothing to translate: give the source with -s")
    else:
        systems = models_to_score(workspace, given.model, given.all_models, source, say)
    folder = given.data or given.model
    folders = [folder] if folder else [path for path in systems.values() if path.is_dir()]
    fixed = "score", {"n_best": 1, "sample": False}
    return ScoreRequest(
        systems,
        references,
        source,
        chosen.settings,
        segments,
        WordSources.of(workspace, folders, given.train_text),
        resolve(TranslateConfig, workspace.section("translate"), fixed, given_flags(search)),
        skip_models=given.all_models,
        language=workspace.target_language or "",
    )


def _segment_files(arguments: Sequence[Path]) -> Mapping[str, Sequence[Path]]:
    """The files of each metric, in the order of the systems."""
    files: dict[str, list[Path]] = {}
    for metric, path in map(named, arguments):
        if not metric:
            raise UsageError(f"--segment-scores {path}: give METRIC=FILE")
        files.setdefault(metric, []).append(path)
    return files


def _check(
    request: "ScoreRequest", given: Mapping[str, Any], search: Mapping[str, Any], attention_from: Sequence[Path] | None
) -> None:
    """Raises UsageError for options that do not go together."""
    settings = request.settings
    if search and not request.models:
        raise UsageError("--beam and --device are for a translation made here; leave them out, or HYP and -r")
    if len(request.systems) < 2 and (alone := {"differences", "significance"} & {*given}):
        raise UsageError(f"--{min(alone)}: compares systems; give two or more")
    names = {name.strip().lower() for name in settings.metrics.split(",")}
    if settings.fail_under is not None and names == {"ter"} and not request.segment_scores:
        raise UsageError("--fail-under: a lower TER is better; give a metric of which more is better, such as bleu")
    if attention_from and not settings.draw_attention:
        raise UsageError("--attention-from is for --attention; give it too")
    if settings.draw_attention and request.source is None:
        raise UsageError("--attention: give the source with -s")


def _attention_sources(request: "ScoreRequest", model: Path | None, given: Sequence[Path]) -> Mapping[str, Path]:
    from nmtalign.scoring.system_attention import attention_sources

    if not request.settings.draw_attention:
        return {}
    folders = {name: request.models.get(name, model) for name in request.systems}
    return attention_sources(folders, list(map(named, given)))


def _run(request: "ScoreRequest", quiet: bool) -> "ScoreResult":
    from nmtalign.cli.score_output import progress
    from nmtalign.scoring.scoring_run import run_scoring

    if request.models or request.settings.draw_attention:
        choose_wait_policy()
        bound_caches()
    return run_scoring(request, notify=notifier(quiet), warn=say, track=progress(quiet))


def _panels(result: "ScoreResult", sources: Mapping[str, Path], settings: AlignConfig) -> "Panels":
    """The attention of the first two systems in the sentences in which they differ most."""
    from nmtalign.scoring.system_attention import attention_panels

    first = {name: sources[name] for name in [*result.texts.systems][:2]}
    return attention_panels(result.texts, [one.line for one in result.report.differences], first, settings, say)


def _check_output(path: Path) -> None:
    """Raises UsageError or ResourceError if a file cannot be written here."""
    if path == STDOUT or stays_in_place(path):
        return
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise ResourceError(f"{path}: cannot write: no permission for the folder {path.parent}")


@dataclass(frozen=True)
class _Outputs:
    """The files that are written."""

    html: Path | None
    plot: Path | None
    save_translation: Path | None

    def check(self, request: "ScoreRequest") -> None:
        """Raises for every output that could not be written after long work."""
        settings = request.settings
        if settings.draw_attention and not (self.html or (settings.differences and settings.format == "text")):
            raise UsageError("--attention is drawn with --differences N, as text or on the page of --html; give these")
        if self.save_translation and len(request.models) != 1:
            raise UsageError("--save-translation is for the translation of one model; give only this one, with -m")
        if self.plot:
            check_figure_name(self.plot)
        if self.plot or self.html:
            need_matplotlib()
        if self.html and self.html != STDOUT and self.html.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{self.html}: a page's name ends in .html; give such a name to --html")
        if self.html == self.save_translation == STDOUT:
            raise UsageError("only one of --html and --save-translation can be stdout")
        for output in filter(None, (self.plot, self.html, self.save_translation)):
            _check_output(output)
        of_models = Path(request.translation.lexicon), Path(request.translation.glossary)
        check_inputs(*request.paths, *request.words.others, *(of_models if request.models else ()))

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

    def write(self, result: "ScoreResult", panels: "Panels", request: "ScoreRequest", note: "Notify") -> None:
        """Writes the files; `note` is called with a line for each."""
        if self.save_translation:
            (text,) = (result.texts.systems[name] for name in request.models)
            with open_output(self.save_translation) as stream:
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
            with open_output(self.html) as stream:
                stream.write(result.to_html(facts, svgs(panels)))
            note(f"wrote {'the page to stdout' if self.html == STDOUT else self.html}")


def _print(result: "ScoreResult", settings: ScoreConfig, lengths: bool, panels: "Panels") -> None:
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
    low = [
        f"{name} {value:.2f}" if round(value, 2) < least else f"{name} {value!r}"
        for name, value in values.items()
        if value is not None and value < least
    ]
    if low:
        sys.stdout.flush()
        say(f"{metric} below {least:g}: {', '.join(low)}")
        raise typer.Exit(1)
