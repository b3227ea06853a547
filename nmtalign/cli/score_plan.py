"""What `nmtalign score` is to do, by its options and the workspace."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtalign.checks import naming
from nmtalign.cli.naming import name_files
from nmtalign.cli.score_checks import check
from nmtalign.cli.score_task import Task, Texts
from nmtalign.config import ScoreConfig, TranslateConfig
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.presets import translate_config
from nmtalign.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.scoring.metrics import MetricOptions
    from nmtalign.scoring.report import Resampling

STDIN = Path("-")
DEFAULT_METRICS = ("bleu", "chrf", "chrf++", "ter")
MULTI_BLEU = "multi-bleu"
SEED = "SACREBLEU_SEED"
DIFFERENCES = 10  # on a page, where nothing else is said
_SHOWN = ("table1", "differences", "attention", "plot", "html", "fail_under")
_AS_GIVEN = (*_SHOWN, "train_text", "comet", "all_models", "device", "output", "quiet")
_NOT_FOR_FILES = "--output, --beam and --device are for a translation made here; leave them out, or HYP and -r"


def make_task(options: Mapping[str, Any]) -> Task:
    """The task that the options, by their names, and the workspace ask for; raises UsageError for what cannot be."""
    workspace = load_workspace(options["config"])
    with naming(*workspace.layers("score", _flags(options))):
        return _task(workspace, options)


def _task(workspace: Workspace, options: Mapping[str, Any]) -> Task:
    texts = _texts(workspace, options)
    settings = workspace.resolve(ScoreConfig, "score", _flags(options))
    if texts.systems and options["all_models"]:
        raise UsageError("--all scores the models under models/; leave out HYP")
    if texts.systems and any(options[name] is not None for name in ("output", "beam", "device")):
        raise UsageError(_NOT_FOR_FILES)
    models = () if texts.systems else _models(workspace, options, texts)
    words = _words(workspace, options["data"] or options["model"], models)
    task = Task(
        workspace=workspace,
        texts=texts,
        settings=settings,
        options=_metrics(workspace, settings, options, words, texts),
        resampling=None,
        words=words,
        models=models,
        search=_search(workspace, options),
        alignments=tuple(options["alignments"] or ()),
        model_given=options["model"] is not None,
        page_only=frozenset(),
        **{name: options[name] for name in _AS_GIVEN},
    )
    check(task, options)
    task = _with_page(task, options) if task.html else task
    return dataclasses.replace(task, resampling=_resampling(settings)) if task.confident or task.several else task


def _with_page(task: Task, options: Mapping[str, Any]) -> Task:
    """The task with what a page shows though it was not asked for: scores by length and by place, differences."""
    more: dict[str, Any] = {}
    for name in ("by_length", "by_place"):
        possible = name == "by_place" or task.texts.source or task.settings.length_of != "source"
        if options[name] is None and not getattr(task.settings, name) and possible:
            more[name] = True
    settings = dataclasses.replace(task.settings, **more)
    added = {*more}
    if task.several and not task.differences:
        added.add("differences")
    differences = task.differences or (DIFFERENCES if task.several else 0)
    return dataclasses.replace(task, settings=settings, differences=differences, page_only=frozenset(added))


def _flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the options, and those that options which are no settings ask for."""
    flags = {name: value for name, value in options.items() if name in ScoreConfig.__dataclass_fields__}
    for name, asked in (("by_length", "plot"), ("no_unk", "table1"), ("by_frequency", "train_text")):
        if options[asked] and flags[name] is None:
            flags[name] = True
    return flags


def _texts(workspace: Workspace, options: Mapping[str, Any]) -> Texts:
    """Fills in what was not given: stdin for HYP beside -r, the workspace's test set for -r and -s."""
    systems = [*(options["hypotheses"] or ())]
    references, source = tuple(options["reference"] or ()), options["source"]
    translating = options["model"] is not None or options["all_models"]
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
    if [source, options["train_text"], *references, *(path for _, path in chosen)].count(STDIN) > 1:
        raise UsageError("only one of HYP, -r and -s can be stdin")
    return Texts(chosen, references, source)


def _source_beside(workspace: Workspace, references: Sequence[Path]) -> Path | None:
    """The workspace's source where the reference is the one that belongs to it."""
    source, reference = workspace.pairs.get("test", (None, None))
    if source is None or reference is None or not source.exists() or not reference.exists():
        return None
    same = any(path.exists() and path.samefile(reference) for path in references if path != STDIN)
    return source if same else None


def _models(workspace: Workspace, options: Mapping[str, Any], texts: Texts) -> tuple[tuple[str, Path], ...]:
    """(name, folder) of each model that translates."""
    from nmtalign.cli.score_models import models_to_score

    if texts.source is None:
        raise UsageError("nothing to translate: give the source with -s")
    model, every = options["model"], options["all_models"]
    return tuple(models_to_score(workspace, model, every, texts.source, quiet=options["quiet"]))


def _search(workspace: Workspace, options: Mapping[str, Any]) -> TranslateConfig:
    section, flags = workspace.layers("translate", {name: options[name] for name in ("beam", "device")})
    return translate_config(section, ("score", {"n_best": 1, "sample": False}), flags)


def _words(workspace: Workspace, given: Path | None, models: Sequence[tuple[str, Path]]) -> tuple[Path, ...]:
    """The models or the corpus that say what a word is; () where there is none."""
    if given or models:
        return (given,) if given else tuple(folder for _, folder in models)
    found = next((path for path in (workspace.model, workspace.data) if (path / "tokenizer.json").is_file()), None)
    return (found,) if found else ()


def _metrics(
    workspace: Workspace, settings: ScoreConfig, options: Mapping[str, Any], words: Sequence[Path], texts: Texts
) -> "MetricOptions":
    """Which metrics; the language is found also for what else goes by words."""
    from nmtalign.scoring.metrics import MetricOptions

    names = [name.strip().lower() for name in settings.metrics.split(",")] if settings.metrics else []
    asked = options["tokenized"] or MULTI_BLEU in names
    language = ""
    if asked or not names or settings.by_frequency or settings.by_place or options["html"]:
        language = _language(workspace, options["target_language"], words, texts.references[0])
    if asked and not language and settings.tokenize != "none":
        origin = "--tokenized" if options["tokenized"] else "multi-bleu"
        raise UsageError(f"{origin}: give the language of the translation with --target-language")
    chosen = names or [*DEFAULT_METRICS]
    if (asked or (language and not names)) and MULTI_BLEU not in chosen:
        chosen.append(MULTI_BLEU)
    return MetricOptions(tuple(chosen), settings.lowercase, settings.tokenize, language)


def _language(workspace: Workspace, given: str | None, words: Sequence[Path], reference: Path) -> str:
    """The language of the translation: as it is given, the workspace's, the model's, the ending of the reference."""
    from nmtalign.text.moses import has_rules
    from nmtalign.text.tokenizer import Tokenizers

    language = given or workspace.target_language or ""
    if not language and words:
        with contextlib.suppress(NmtalignError):  # whoever needs the model's words meets the same error
            language = Tokenizers.load(words[0]).target_language or ""
    if not language:
        ending = reference.name.removesuffix(".gz").rpartition(".")[2].lower()
        language = ending if ending.isalpha() and has_rules(ending) else ""
    return language


def _resampling(settings: ScoreConfig) -> "Resampling":
    from nmtalign.scoring.report import Resampling

    seed = settings.seed
    if seed is None:
        text = os.environ.get(SEED, "12345")
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"{SEED} = {text!r}: must be a whole number; set it so, or give --seed")
        seed = int(text)
    return Resampling(settings.bootstrap, settings.trials, seed)
