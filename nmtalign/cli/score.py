"""`nmtalign score`: BLEU, chrF and other metrics of one or several systems, with confidence, by length, by words."""

import contextlib
import functools
import itertools
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import nmtalign
from nmtalign.cli import common
from nmtalign.cli.common import QUIET, own_argument, own_option, writes
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.figures import check_figure_name, need_matplotlib
from nmtalign.model_directory import read_settings
from nmtalign.settings.command_settings import ScoreConfig, TranslateConfig
from nmtalign.settings.definition import Workspace, resolve
from nmtalign.text.lines import STDIN, STDOUT, as_json

if TYPE_CHECKING:
    from nmtalign.scoring.scoring_run import ScoreResult


@with_settings(ScoreConfig)
def score(
    chosen: Chosen[ScoreConfig],
    hypotheses: list[Path] | None = own_argument(
        "[NAME=]HYP...", "Translations to score, one per system: text or .gz files, - for stdin; or model directories."
    ),
    reference: list[Path] | None = own_option("Reference; may be repeated.", "FILE", "--reference -r"),
    source: Path | None = own_option("Source text of the translations.", "FILE", "--source -s"),
    model: list[Path] | None = own_option(
        "Model that translates the source; with HYP, model or corpus whose words are known.", "DIR", "--model -m"
    ),
    segment_scores: list[Path] | None = own_option(
        "Scores of another program, one number per line; repeat it for each system.", "METRIC=FILE"
    ),
    html: Path | None = own_option(
        "Write a page with the same tables, and Figure 2 with --by-length; - writes it to stdout.",
        "FILE.html",
        "--html",
        callback=writes("a file", stdout=True),
    ),
    plot: Path | None = own_option(
        "Draw the article's Figure 2: scores by length.", "FILE.png|svg|pdf", "--plot", callback=writes("a file")
    ),
    quiet: bool = QUIET,
) -> None:
    """Score translations with sacreBLEU's BLEU, chrF and chrF++, and their signatures.

    Without HYP and -r, nmtalign translates the test set of the workspace. With only -r, HYP is stdin. Several systems
    are compared in every table; p is against the first.

    Examples:
      nmtalign score out.fr -r test.fr -s test.en --by-length --known-words -m model/
      nmtalign score ours=a.fr theirs=b.fr -r test.fr --differences 5 --html report.html
      nmtalign score out.fr -r test.fr --segment-scores COMET=comet.txt --format json
    """
    workspace = chosen.workspace
    words = model[0] if model else None
    if model and len(model) > 1:
        raise UsageError("-m is given more than once: give models that are compared as arguments, nmtalign score A B")
    references, source = _texts(workspace, reference or [], source, optional=bool(hypotheses))
    systems = _systems(workspace, hypotheses or [], words, only_references=bool(reference))
    scores: dict[str, list[Path]] = {}  # the files of each metric, in the order of the systems
    for metric, path in map(common.named, segment_scores or ()):
        if not metric:
            raise UsageError(f"--segment-scores {path}: give METRIC=FILE")
        scores.setdefault(metric, []).append(path)
    common.check_inputs(*references, source, *systems.values(), *itertools.chain(*scores.values()))
    _check(chosen, len(systems), html, plot)
    translation = None
    if any(path.is_dir() for path in systems.values()):
        fixed = "score", {"n_best": 1, "sample": False}
        translation = resolve(TranslateConfig, workspace.section("translate"), fixed)
        common.check_inputs(Path(translation.lexicon), Path(translation.glossary))
        common.sleep_beside_others()
        common.bound_caches()
    if chosen.settings.known_words and hypotheses and not words:
        folders = (workspace.model, workspace.data)
        words = next((folder for folder in folders if (folder / "tokenizer.json").is_file()), None)
    result = nmtalign.score(
        systems,
        references,
        source,
        model=words if hypotheses else None,
        segment_scores=scores,
        translation=translation,
        config=chosen.settings,
        notify=common.say,
        progress=functools.partial(common.advancing, quiet),
    )
    if plot:
        from nmtalign.scoring.figure import draw_by_length

        common.say(*draw_by_length(result.report, plot))
    if html:
        with common.open_output(html) as stream:
            stream.write(result.to_html({"command": shlex.join(["nmtalign", *sys.argv[1:]])}))
    if not quiet:
        common.say(*(f"wrote {path}" for path in (plot, html) if path and path != STDOUT))
    with contextlib.redirect_stdout(sys.stderr) if html == STDOUT else contextlib.nullcontext():
        if chosen.settings.format == "json":
            sys.stdout.write(as_json(result.to_dict(), indent=2) + "\n")
        elif chosen.settings.format == "csv":
            sys.stdout.write(result.to_csv())
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
            sys.stdout.write(result.to_text(width, colour=common.has_colour()))
    if chosen.settings.fail_under is not None:
        _judge(result, chosen.settings.fail_under)


def _texts(
    workspace: Workspace, references: Sequence[Path], source: Path | None, optional: bool
) -> tuple[Sequence[Path], Path | None]:
    """The references and the source: those given, or the test set of the workspace; its source needs its reference.

    With `optional` a source that is not there is left out.
    """
    test_source, test_reference = workspace.test_files or (None, None)
    references = references or ([test_reference] if test_reference else [])
    if not references:
        raise UsageError('no reference: give it with -r, or in nmtalign.toml: [corpus] test = ["test.en", "test.fr"]')
    if source or not test_source or not test_reference:
        return references, source
    same = any(one.exists() and test_reference.exists() and one.samefile(test_reference) for one in references)
    return references, test_source if same and (test_source.exists() or not optional) else None


def _systems(
    workspace: Workspace, hypotheses: Sequence[Path], model: Path | None, only_references: bool
) -> Mapping[str, Path]:
    """The translations, or the model that translates, by name."""
    if not hypotheses and (model or not only_references):
        model = model or workspace.model
        read_settings(model)
        return {model.resolve().name: model}
    if not hypotheses and sys.stdin.isatty():
        raise UsageError("nothing to score: give HYP, a translation on stdin, or -m to translate the source")
    return {common.escaped(name): path for name, path in common.name_files(hypotheses or [STDIN])}


def _check(chosen: Chosen[ScoreConfig], systems: int, html: Path | None, plot: Path | None) -> None:
    """Raises UsageError for options that do not go together, and for names that a file cannot have."""
    settings = chosen.settings
    if systems < 2 and (alone := {"differences", "significance"} & {*chosen.typed}):
        raise UsageError(f"--{min(alone)} compares systems; give two or more")
    if settings.fail_under is not None and {name.strip().lower() for name in settings.metrics.split(",")} == {"ter"}:
        raise UsageError("--fail-under: a lower TER is better; give a metric where higher is better, such as bleu")
    if plot:
        check_figure_name(plot)
        if not settings.by_length:
            raise UsageError("--plot draws scores by length: add --by-length")
    if html and html != STDOUT and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{html}: a page's name ends in .html; give such a name to --html")
    if plot or (html and settings.by_length):
        need_matplotlib()


def _judge(result: "ScoreResult", least: float) -> None:
    """Exits with 1, after one line that says why, if a system's BLEU (or else first metric) is below `least`."""
    metrics = [name for name in result.report.metrics if name != "TER"]
    metric = "BLEU" if "BLEU" in metrics else metrics[0]
    low = [
        f"{name} {value:.2f}" if round(value, 2) < least else f"{name} {value!r}"
        for name in result.systems
        if (value := result.value(metric, name)) is not None and value < least
    ]
    if low:
        sys.stdout.flush()
        common.say(f"{metric} below {least:g}: {', '.join(low)}")
        raise typer.Exit(1)
