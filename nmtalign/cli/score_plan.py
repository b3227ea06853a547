"""What `nmtalign score` is to do: its options over the workspace, and every mistake that can be found before work."""

import dataclasses
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtalign.cli.common import name_files, named, say
from nmtalign.errors import ResourceError, UsageError
from nmtalign.files import stays_in_place
from nmtalign.settings.command_settings import ScoreConfig, TranslateConfig
from nmtalign.settings.definition import naming
from nmtalign.settings.presets import translate_config
from nmtalign.settings.workspace import Workspace, load_workspace
from nmtalign.text.lines import STDIN

if TYPE_CHECKING:
    from nmtalign.scoring.metrics import MetricOptions
    from nmtalign.scoring.unknowns import WordSources

DIFFERENCES = 10  # on a page, unless another number is given
_AS_GIVEN = ("table1", "differences", "attention", "plot", "html", "fail_under", "all_models", "device", "quiet")
_NOT_FOR_FILES = (
    "--save-translation, --beam and --device are for a translation made here; leave them out, or HYP and -r"
)


@dataclass(frozen=True)
class ScoreTask:
    """Everything that is to be done."""

    workspace: Workspace
    systems: tuple[tuple[str, Path], ...]  # (name, file); none = models translate the source
    references: tuple[Path, ...]
    source: Path | None
    segment_scores: Mapping[str, Sequence[Path]]  # metric: a file for each system
    settings: ScoreConfig
    options: "MetricOptions"
    words: "WordSources"
    models: tuple[tuple[str, Path], ...]  # (name, folder) of those that translate
    search: TranslateConfig
    save_translation: Path | None
    attention_from: tuple[str, ...]
    model_given: bool  # by -m
    table1: bool
    differences: int
    attention: bool
    plot: Path | None
    html: Path | None
    fail_under: float | None
    all_models: bool
    device: str | None
    quiet: bool
    page_only: frozenset[str] = frozenset()  # parts that only the page of --html shows, because nobody asked for them

    @property
    def several(self) -> bool:
        """Whether several systems are scored."""
        return len(self.systems) + len(self.models) > 1

    @property
    def intervals(self) -> bool:
        """Whether every figure has its interval: unless a setting says so, where figures are compared."""
        from nmtalign.scoring.evaluation import wants_intervals

        page = self.html is not None and self.settings.confidence is None
        return page or wants_intervals(self.settings, self.several)


def make_task(given: Mapping[str, Any]) -> ScoreTask:
    """The task that the options, by their names, and the workspace ask for; raises UsageError for what cannot be."""
    workspace = load_workspace(given["config"])
    with naming(*workspace.layers("score", _flags(given))):
        return _task(workspace, given)


def _task(workspace: Workspace, given: Mapping[str, Any]) -> ScoreTask:
    from nmtalign.scoring.evaluation import find_language, metric_options, resampling_of
    from nmtalign.scoring.metrics import METRICS, MULTI_BLEU
    from nmtalign.scoring.texts import group_segment_scores
    from nmtalign.scoring.unknowns import WordSources

    systems, references, source = _texts(workspace, given)
    settings = workspace.resolve(ScoreConfig, "score", _flags(given))
    if systems and given["all_models"]:
        raise UsageError("--all scores the models under models/; leave out HYP")
    if systems and any(given[name] is not None for name in ("save_translation", "beam", "device")):
        raise UsageError(_NOT_FOR_FILES)
    models = () if systems else _models(workspace, given, source)
    folders = _words(workspace, given["data"] or given["model"], models)
    if given["tokenized"]:
        say(f"--tokenized is now --metrics ...,{MULTI_BLEU}; the old name works only in this release")
        usual = settings.metrics or "bleu,chrf,chrf++"
        settings = dataclasses.replace(settings, metrics=f"{usual},{MULTI_BLEU}")
    language = find_language(given["target_language"] or workspace.target_language or "", folders, references[0])
    task = ScoreTask(
        workspace=workspace,
        systems=systems,
        references=references,
        source=source,
        segment_scores=group_segment_scores(
            [named(Path(one)) for one in given["segment_scores"] or ()],
            len(systems) or len(models),
            [*METRICS, "chrF2", "chrF2++"],
        ),
        settings=settings,
        options=metric_options(settings, language),
        words=WordSources(
            folders,
            given["train_text"],
            workspace.data,
            workspace.pairs["train"][1] if "train" in workspace.pairs else None,
            "" if settings.tokenize == "none" else language,
        ),
        models=models,
        search=_search(workspace, given),
        save_translation=given["save_translation"],
        attention_from=tuple(given["attention_from"] or ()),
        model_given=given["model"] is not None,
        **{name: given[name] for name in _AS_GIVEN},
    )
    _check(task, given)
    task = _with_page(task, given) if task.html else task
    if task.intervals or task.several:
        resampling_of(task.settings)  # a wrong seed is an error before long work
    return task


def _with_page(task: ScoreTask, given: Mapping[str, Any]) -> ScoreTask:
    """The task with what a page shows without being asked: scores by length and by place, differences."""
    more: dict[str, Any] = {}
    for name in ("by_length", "by_place"):
        possible = name == "by_place" or task.source or task.settings.length_of != "source"
        if given[name] is None and not getattr(task.settings, name) and possible:
            more[name] = True
    added = {*more, *(["differences"] if task.several and not task.differences else [])}
    return dataclasses.replace(
        task,
        settings=dataclasses.replace(task.settings, **more),
        differences=task.differences or (DIFFERENCES if task.several else 0),
        page_only=frozenset(added),
    )


def _flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the options, and those that other options imply."""
    flags = {name: value for name, value in given.items() if name in ScoreConfig.__dataclass_fields__}
    for name, asked in (("by_length", "plot"), ("no_unk", "table1"), ("by_frequency", "train_text")):
        if given[asked] and flags[name] is None:
            flags[name] = True
    return flags


def _texts(
    workspace: Workspace, given: Mapping[str, Any]
) -> tuple[tuple[tuple[str, Path], ...], tuple[Path, ...], Path | None]:
    """(systems, references, source); HYP beside -r is stdin, and -r and -s are the workspace's test set."""
    systems = [*(given["hypotheses"] or ())]
    references, source = tuple(given["reference"] or ()), given["source"]
    translating = given["model"] is not None or given["all_models"]
    if not systems and references and not translating:
        if sys.stdin.isatty():
            raise UsageError("nothing to score: give HYP, a translation on stdin, or -m to translate the source")
        systems = [STDIN]
    if not references:
        if "test" not in workspace.pairs:
            raise UsageError(
                'no reference: give it with -r, or a test set in nmtalign.toml: [corpus] test = ["test.en", "test.fr"]'
            )
        test_source, test_reference = workspace.pairs["test"]
        references = (test_reference,)
        if source is None and (not systems or test_source.exists()):
            source = test_source
    elif source is None and not translating:
        source = _source_beside(workspace, references)
    chosen = name_files(systems)
    segments = [named(Path(one))[1] for one in given["segment_scores"] or ()]
    if [source, given["train_text"], *references, *segments, *(path for _, path in chosen)].count(STDIN) > 1:
        raise UsageError("only one of HYP, -r and -s can be stdin")
    return chosen, references, source


def _source_beside(workspace: Workspace, references: Sequence[Path]) -> Path | None:
    """The workspace's source, if the reference is the one that belongs to it."""
    source, reference = workspace.pairs.get("test", (None, None))
    if source is None or reference is None or not source.exists() or not reference.exists():
        return None
    same = any(path.exists() and path.samefile(reference) for path in references if path != STDIN)
    return source if same else None


def _models(workspace: Workspace, given: Mapping[str, Any], source: Path | None) -> tuple[tuple[str, Path], ...]:
    from nmtalign.scoring.models import models_to_score

    if source is None:
        raise UsageError("nothing to translate: give the source with -s")
    return tuple(models_to_score(workspace, given["model"], given["all_models"], source, say))


def _search(workspace: Workspace, given: Mapping[str, Any]) -> TranslateConfig:
    section, flags = workspace.layers("translate", {name: given[name] for name in ("beam", "device")})
    return translate_config(section, ("score", {"n_best": 1, "sample": False}), flags)


def _words(workspace: Workspace, given: Path | None, models: Sequence[tuple[str, Path]]) -> tuple[Path, ...]:
    """The models or the corpus that say what a word is; () if there is none."""
    if given or models:
        return (given,) if given else tuple(folder for _, folder in models)
    found = next((path for path in (workspace.model, workspace.data) if (path / "tokenizer.json").is_file()), None)
    return (found,) if found else ()


def attention_files(task: ScoreTask) -> dict[str, Path]:
    """The alignment file of each given system, or else the model of -m."""
    names = [name for name, _ in task.systems]
    found: dict[str, Path] = dict.fromkeys(names, task.words.folders[0]) if task.model_given else {}
    unnamed = iter(names)
    for argument in task.attention_from:
        name, path = named(Path(argument))
        name = name or next(unnamed, "")  # files without a name belong to the systems in their order
        if name not in names:
            known = ", ".join(names[:5]) or "none"
            raise UsageError(f"--attention-from {argument}: no system has this name; the systems are {known}")
        if not path.exists():
            raise UsageError(f"--attention-from {argument}: no such file; give one of `nmtalign align` or `translate`")
        found[name] = path
    for name in names[:2]:
        if name not in found:
            raise UsageError(
                f"--attention: nothing holds the attention of {name}; give --attention-from {name}=FILE.h5"
            )
    return found


def _check(task: ScoreTask, given: Mapping[str, Any]) -> None:
    """Raises for every mistake that would otherwise be found only after long work."""
    from nmtalign.scoring.buckets import parse_buckets

    settings = task.settings
    parse_buckets(settings.buckets, settings.cumulative)
    if task.source is None:
        if settings.by_length and settings.length_of == "source":
            option = "--by-length" if given["by_length"] or not task.plot else "--plot"
            raise UsageError(f"{option}: give the source with -s, or --length-of reference")
        if settings.no_unk:
            raise UsageError(f"{'--table1' if task.table1 else '--known-words'}: give the source with -s")
    for name in ("differences", "significance"):
        if given[name] and not task.several:
            raise UsageError(f"--{name}: compares systems; give two or more")
    _check_attention(task)
    if task.save_translation and len(task.models) > 1:
        raise UsageError("--save-translation is for one model; --all keeps all translations in the models' folders")
    if task.fail_under is not None and task.options.metrics == ("ter",) and not task.segment_scores:
        raise UsageError("--fail-under: a lower TER is better; give a metric of which more is better, such as bleu")
    if task.fail_under is not None and math.isnan(task.fail_under):
        raise UsageError("--fail-under nan: no score is below that; give a number")
    _check_outputs(task)


def _check_attention(task: ScoreTask) -> None:
    if task.attention_from and not task.attention:
        raise UsageError("--attention-from is for --attention; give it too")
    if not task.attention:
        return
    if not task.differences and not task.html:
        raise UsageError("--attention is drawn of --differences N; give it too")
    if task.settings.format != "text" and not task.html:
        raise UsageError(f"--attention is drawn as text and on the page of --html, not as {task.settings.format}")
    if task.source is None:
        raise UsageError("--attention: give the source with -s")


def _check_outputs(task: ScoreTask) -> None:
    if task.plot:
        from nmtalign.figures import check_figure_name

        check_figure_name(task.plot)
    if task.plot or task.html:
        from nmtalign.figures import need_matplotlib

        need_matplotlib()
    if task.html and task.html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{task.html}: a page's name ends in .html; give such a name to --html")
    segments = [path for paths in task.segment_scores.values() for path in paths]
    read = [*(path for _, path in task.systems), *task.references, task.source, task.words.train_text, *segments]
    for output in (task.plot, task.html, task.save_translation):
        if output is None or stays_in_place(output):
            continue
        if output.exists() and any(path and path.exists() and output.samefile(path) for path in read):
            raise UsageError(f"{output}: is read here and would be replaced; give another name")
        if output.is_dir():
            raise UsageError(f"{output}: is a folder; give the name of a file")
        if not output.parent.is_dir():
            raise UsageError(f"{output}: there is no folder {output.parent}; make it first")
        if not os.access(output.parent, os.W_OK):
            raise ResourceError(f"{output}: cannot write: no permission for the folder {output.parent}")
