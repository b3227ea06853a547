"""What of a workspace is scored: the test set, the models, and their translations, which are kept for the next time."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmtalign.errors import FormatError, NmtalignError, ResourceError, UsageError
from nmtalign.files import CONFIG, read_json
from nmtalign.model_directory import BEST, PREVIOUS_BEST, check_files, read_settings
from nmtalign.scoring.texts import Text
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.tensor_file import FORMAT
from nmtalign.text.languages import language_code, suffix_language
from nmtalign.translating.keeping import KeepingTranslator

MODELS = "models"  # the folder of many models, beside nmtalign.toml

Languages = tuple[str, str]  # of the text, of its translation; "" if unknown
Notify = Callable[[str], None]  # called with one line for the user
Advance = Callable[[float], None]  # called with the amount of work done since the last call
# Shows progress: its arguments are the finished and the total amount of work.
Track = Callable[[str, float], contextlib.AbstractContextManager[Advance | None]]


@contextlib.contextmanager
def untracked(doing: str, total: float) -> Iterator[None]:
    """Shows no progress."""
    yield None


def ignore(message: str) -> None:
    """Ignores the message."""


def texts_to_score(
    workspace: Workspace, references: Sequence[Path], source: Path | None, optional: bool = False
) -> tuple[Sequence[Path], Path | None]:
    """The references and the source: those given, or the test set of the workspace; its source needs its reference.

    With `optional` a source that is not there is left out. Raises UsageError if there is no reference.
    """
    test_source, test_reference = workspace.test_files or (None, None)
    references = references or ([test_reference] if test_reference else [])
    if not references:
        raise UsageError(
            'no reference: give it with -r, or a test set in nmtalign.toml: [corpus] test = ["test.en", "test.fr"]'
        )
    if source or not test_source or not test_reference:
        return references, source
    same = any(
        one == test_reference or (one.exists() and test_reference.exists() and one.samefile(test_reference))
        for one in references
    )
    return references, test_source if same and (test_source.exists() or not optional) else None


def models_to_score(
    workspace: Workspace, model: Path | None, every: bool, source: Path | None = None, warn: Notify = ignore
) -> dict[str, Path]:
    """The models that translate, by name: `model`; or with `every` all models under models/; else the only one.

    The model that nmtalign.toml names counts as the only one. `source` is the text: a model of the other direction is
    left out. `warn` is called with a line for each model that is left out. Raises UsageError if several models remain
    and none is named, UsageError or FormatError if no model remains.
    """
    languages = _languages(workspace, source)
    if every:
        if model is not None:
            raise UsageError(f"--all scores the models under {MODELS}/, and -m names one: leave out one of the two")
        return _every_model(workspace, languages, warn)
    if model is None:
        model = _only_model(workspace, languages, warn)
    elif problem := _direction_problem(read_settings(model), languages):
        raise UsageError(f"{model}: {problem}: give another model, or its own texts with -s and -r")
    return {_name(model): model}


def _every_model(workspace: Workspace, languages: Languages, warn: Notify) -> dict[str, Path]:
    home = _home(workspace)
    folders = _model_folders(home)
    if not folders:
        raise FormatError(f"{home}: has no model; train one with `nmtalign train -o {home / 'NAME'}`, or use -m")
    chosen = _fitting(folders, languages, warn, every=True)
    if not chosen:
        raise FormatError(f"{home}: has no model that can be scored; the lines above say why")
    return {_name(folder): folder for folder in chosen}


def _only_model(workspace: Workspace, languages: Languages, warn: Notify) -> Path:
    """The model that nmtalign.toml names, else the only one in the workspace."""
    if workspace.model != Workspace().model:
        read_settings(workspace.model)
        return workspace.model
    folders = [workspace.model] if _is_model(workspace.model) else []
    there = {folder.resolve() for folder in folders}
    folders += [folder for folder in _model_folders(_home(workspace)) if folder.resolve() not in there]
    found = _fitting(folders, languages, warn)
    if len(found) > 1:
        names = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        raise UsageError(
            f"{len(found)} models here ({names}); name one with -m, or compare those of {MODELS}/ with --all"
        )
    if not found:
        read_settings(workspace.model)
    return found[0] if found else workspace.model


def _fitting(folders: Iterable[Path], languages: Languages, warn: Notify, *, every: bool = False) -> list[Path]:
    """The folders whose model translates in the right direction.

    With `every` a model must have all its files, and if no language is known, the first model decides the direction.
    """
    chosen = []
    for folder in folders:
        try:
            settings = _complete_settings(folder) if every else read_settings(folder)
            if every and not languages[0]:
                languages = settings["source_language"], settings["target_language"]
            if problem := _direction_problem(settings, languages):
                raise UsageError(f"{folder}: {problem}")
        except NmtalignError as error:
            warn(f"{error}; it is left out")
        else:
            chosen.append(folder)
    return chosen


def _home(workspace: Workspace) -> Path:
    """The folder of the models."""
    return workspace.file.parent / MODELS if workspace.file else Path(MODELS)


def _model_folders(home: Path) -> list[Path]:
    """The model directories in a folder, by name."""
    try:
        return sorted(path for path in home.iterdir() if not path.name.startswith(".") and _is_model(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ResourceError(f"{home}: cannot be read: {error.strerror}") from None


def _is_model(folder: Path) -> bool:
    """Whether a folder is a model of nmtalign, even a damaged one."""
    if not folder.is_dir():
        return False
    try:
        settings = read_json(folder / CONFIG)
    except FileNotFoundError:
        return _has_best(folder)
    except (OSError, ValueError):
        return True
    return isinstance(settings, dict) and settings.get("format") == FORMAT


def _has_best(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (BEST, PREVIOUS_BEST))


def _complete_settings(folder: Path) -> dict[str, Any]:
    """The settings of a model that has all its files and best weights; raises FormatError."""
    settings = read_settings(folder)
    check_files(folder, settings)
    if not _has_best(folder):
        raise FormatError(f"{folder}: has no best weights yet; let `nmtalign train` reach its first validation")
    return settings


def _name(folder: Path) -> str:
    return folder.name or folder.resolve().name


def _languages(workspace: Workspace, source: Path | None) -> Languages:
    test = workspace.test_files
    if test is not None and source in (None, test[0]):
        named = workspace.source_language, workspace.target_language
        source_language, target_language = (language_code(name) if name else "" for name in named)
        return source_language or suffix_language(test[0]), target_language or suffix_language(test[1])
    return (suffix_language(source) if source else ""), ""


def _direction_problem(settings: dict[str, Any], languages: Languages) -> str:
    """Why a model of the other direction does not fit the text; "" if nothing is known to be wrong."""
    source, target = settings["source_language"], settings["target_language"]
    if languages[0] == target != source and languages[1] in ("", source):
        return f"reads {source} and writes {target}, and the text to translate is in {target}"
    return ""


def translation_of(
    source: Text, folder: Path, settings: TranslateConfig, *, notify: Notify = ignore, track: Track = untracked
) -> Text:
    """The best translation of each line by a model: the one that is kept in its folder, or a new one, which is kept.

    `settings` are those of section [translate], without n-best lists and sampling. Raises FormatError for a damaged
    model, UsageError if the settings do not fit the model.
    """
    settings = dataclasses.replace(settings, n_best=1, sample=False, alignment="none", word_scores=False)
    keeping = KeepingTranslator(folder, settings)
    if not keeping.has_best:
        notify(f"{folder}: has no best weights yet; the last weights translate")
    lines = keeping.find(source.lines)
    if lines is None:
        notify(f"translating {len(source.lines):,} lines of {source.name} with {folder}")
        with track(f"translating: {_name(folder)}", len(source.lines)) as advance:
            lines = list(keeping.make(source.lines, advance))
        try:
            keeping.keep(source.lines, lines, source.name)
        except ResourceError as error:
            notify(f"{error}; the translation is scored, but not kept for the next time")
    else:
        notify(f"the translation of {source.name} by {folder} is kept in {keeping.path(source.lines)}")
    return Text(f"the translation of {source.name} by {folder}", lines)
