"""The models whose translations are scored: which ones, and their translations, which are kept for the next time."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtalign.errors import FormatError, NmtalignError, ResourceError, UsageError
from nmtalign.model_files import BEST, CONFIG, FORMAT, PREVIOUS_BEST, check_files, read_settings
from nmtalign.scoring.evaluation import Track, untracked
from nmtalign.scoring.texts import Text
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.translating.keeping import KeepingTranslator
from nmtalign.untrusted import read_json

Model = tuple[str, Path]  # name of the system, model directory
MODELS = "models"  # the folder of many models, beside nmtalign.toml


class Unguarded:
    """Lets signals interrupt everything."""

    def __enter__(self) -> "Unguarded":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def whole(self) -> contextlib.AbstractContextManager[None]:
        """A block that signals may interrupt, too."""
        return contextlib.nullcontext()


def _silent(message: str) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Surroundings:
    """How a program follows and protects a translation that may take long."""

    warn: Callable[[str], None] = _silent  # called for each model that is left out
    notify: Callable[[str], None] = _silent
    track: Track = untracked
    before_torch: Callable[[], None] = lambda: None  # called before PyTorch is imported
    guard: Callable[[], Any] = Unguarded  # makes the context of a translation; its `whole()` is not to be interrupted


def models_to_score(
    workspace: Workspace,
    model: Path | None,
    every: bool,
    source: Path | None = None,
    warn: Callable[[str], None] = _silent,
) -> list[Model]:
    """The models that translate: `model`; or with `every` all models under models/; else the only one there is.

    The model that nmtalign.toml names counts as the only one. `source` is the text: a model of the other direction is
    left out. `warn` is called with a line for each model that is left out. Raises UsageError if several models remain
    and none is named, UsageError or FormatError if no model remains.
    """
    if every:
        if model is not None:
            raise UsageError(f"--all scores the models under {MODELS}/, and -m names one: leave out one of the two")
        return _every_model(workspace, source, warn)
    reads = _language(workspace, source)
    if model is not None:
        if problem := _turned(read_settings(model), reads):
            raise UsageError(f"{model}: {problem}: give another model, or its own texts with -s and -r")
        return [(_name(model), model)]
    return [_only_model(workspace, reads, warn)]


def _every_model(workspace: Workspace, source: Path | None, warn: Callable[[str], None]) -> list[Model]:
    home = _home(workspace)
    folders = _model_folders(home)
    if not folders:
        raise FormatError(
            f"{home}: holds no model; train one with `nmtalign train -o {home / 'NAME'}`, or name it with -m"
        )
    reads = _language(workspace, source)
    chosen: list[Model] = []
    for folder in folders:
        try:
            settings = _checked(folder)
            if not reads[0]:
                reads = settings["source_language"], settings["target_language"]
            if problem := _turned(settings, reads):
                raise UsageError(f"{folder}: {problem}")
        except NmtalignError as error:
            warn(f"{error}; it is left out")
        else:
            chosen.append((_name(folder), folder))
    if not chosen:
        raise FormatError(f"{home}: holds no model that can be scored; the lines above say why")
    return chosen


def _only_model(workspace: Workspace, reads: tuple[str, str], warn: Callable[[str], None]) -> Model:
    """The model that nmtalign.toml names, else the only one in the workspace."""
    if workspace.model != Workspace().model:
        read_settings(workspace.model)
        return _name(workspace.model), workspace.model
    found: list[Path] = []
    for folder in _candidates(workspace):
        try:
            if problem := _turned(read_settings(folder), reads):
                raise UsageError(f"{folder}: {problem}")
            found.append(folder)
        except NmtalignError as error:
            warn(f"{error}; it is left out")
    if len(found) > 1:
        names = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
        raise UsageError(
            f"{len(found)} models here ({names}); name one with -m, or compare those of {MODELS}/ with --all"
        )
    if not found:
        read_settings(workspace.model)
    folder = found[0] if found else workspace.model
    return _name(folder), folder


def _candidates(workspace: Workspace) -> list[Path]:
    folders = [workspace.model] if _is_model(workspace.model) else []
    there = {folder.resolve() for folder in folders}
    return [*folders, *(folder for folder in _model_folders(_home(workspace)) if folder.resolve() not in there)]


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
        return _best(folder) is not None
    except (OSError, ValueError):
        return True
    return isinstance(settings, dict) and settings.get("format") == FORMAT


def _best(folder: Path) -> Path | None:
    return next((folder / name for name in (BEST, PREVIOUS_BEST) if (folder / name).is_file()), None)


def _checked(folder: Path) -> dict[str, Any]:
    """The settings of a model that has all its files and best weights; raises FormatError."""
    settings = read_settings(folder)
    check_files(folder, settings)
    if _best(folder) is None:
        raise FormatError(f"{folder}: has no best weights yet; let `nmtalign train` reach its first validation")
    return settings


def _name(folder: Path) -> str:
    return folder.name or folder.resolve().name


def _language(workspace: Workspace, source: Path | None) -> tuple[str, str]:
    """(language of the text, language of its translation); "" if it is not known."""
    test = workspace.pairs.get("test")
    if test is not None and source in (None, test[0]):
        return workspace.source_language or _suffix(test[0]), workspace.target_language or _suffix(test[1])
    return (_suffix(source) if source else ""), ""


def _suffix(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2]


def _turned(settings: dict[str, Any], reads: tuple[str, str]) -> str:
    """Says why a model of the other direction does not fit the text; "" if nothing is known to be wrong."""
    language, other = settings["source_language"], settings["target_language"]
    if reads[0] == other != language and reads[1] in ("", language):
        return f"reads {language} and writes {other}, and the text to translate is in {other}"
    return ""


@dataclass(frozen=True)
class Translated:
    """A text as a model has translated it."""

    name: str
    folder: Path
    text: Text


def translate_with(
    models: Sequence[Model],
    source: Text,
    settings: TranslateConfig,
    *,
    every: bool = False,
    around: Surroundings | None = None,
) -> list[Translated]:
    """The best translation of each line by each model: as it is kept in the model's folder, or made and kept there.

    `settings` are those of section [translate], without n-best lists and drawn words. With `every`, a model that is
    damaged, or cannot do what is asked for, is left out with a warning.
    """
    settings = dataclasses.replace(settings, n_best=1, sample=False, alignment="none", word_scores=False)
    around = around or Surroundings()
    done: list[Translated] = []
    for name, folder in models:
        try:
            lines = _Maker(name, folder, settings, around).translate(source)
        except (FormatError, UsageError) as error:
            if not every:
                raise
            around.warn(f"{error}; it is left out")
        else:
            done.append(Translated(name, folder, Text(f"the translation of {source.name} by {folder}", lines)))
    if not done:
        raise FormatError("no model could translate; the lines above say why")
    return done


@dataclass(frozen=True)
class _Maker:
    """Finds or makes the translation of one model."""

    name: str
    folder: Path
    settings: TranslateConfig
    around: Surroundings

    def translate(self, source: Text) -> list[str]:
        """The lines of the translation."""
        keeping = KeepingTranslator(self.folder, self.settings)
        if not keeping.has_best:
            self.around.notify(f"{self.folder}: has no best weights yet: its last ones translate")
        lines = keeping.find(source.lines)
        if lines is not None:
            where = keeping.path(source.lines)
            self.around.notify(f"the translation of {source.name} by {self.folder} is kept in {where}")
            return lines
        return self._make(source, keeping)

    def _make(self, source: Text, keeping: KeepingTranslator) -> list[str]:
        self.around.before_torch()
        with self.around.guard() as guard:
            self.around.notify(f"translating {len(source.lines):,} lines of {source.name} with {self.folder}")
            with self.around.track(f"translating: {self.name}", len(source.lines)) as advance:
                lines = list(_counted(keeping.make(source.lines), advance))
            with guard.whole():
                self._keep(keeping, source, lines)
        return lines

    def _keep(self, keeping: KeepingTranslator, source: Text, lines: list[str]) -> None:
        try:
            keeping.keep(source.lines, lines, source.name)
        except ResourceError as error:
            self.around.notify(f"{error}; the translation is scored, but not kept for the next time")


def _counted(lines: Iterable[str], advance: Callable[[float], None] | None) -> Iterator[str]:
    for line in lines:
        if advance:
            advance(1)
        yield line
