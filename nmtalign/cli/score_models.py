"""The models whose translations `nmtalign score` makes or finds: which ones, and what they say of a text."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nmtalign.cli.common import bound_caches, choose_wait_policy, notifier, say
from nmtalign.cli.stopping import Signals
from nmtalign.config import TranslateConfig
from nmtalign.errors import FormatError, NmtalignError, ResourceError, UsageError
from nmtalign.model_files import BEST, CONFIG, FORMAT, PREVIOUS_BEST, check_files, read_settings
from nmtalign.scoring.texts import Text
from nmtalign.translating.keeping import KeepingTranslator
from nmtalign.untrusted import read_json
from nmtalign.workspace import Workspace

T = TypeVar("T")
Model = tuple[str, Path]  # name of the system, model directory
MODELS = "models"  # the folder of many models, beside nmtalign.toml


def models_to_score(
    workspace: Workspace, model: Path | None, every: bool, source: Path | None = None, *, quiet: bool = False
) -> list[Model]:
    """The models that translate: `model`; else with `every` those under models/ by name, else the newest best one.

    `source` is the text: a model that writes its language, and reads another, is left out. Each one that is left out is
    said in a line on stderr. Raises UsageError or FormatError where no model remains.
    """
    if every:
        if model is not None:
            raise UsageError(f"--all scores the models under {MODELS}/, and -m names one: leave out one of the two")
        return _every_model(workspace, source)
    reads = _language(workspace, source)
    if model is not None:
        if problem := _turned(read_settings(model), reads):
            raise UsageError(f"{model}: {problem}: give another model, or its own texts with -s and -r")
        return [(_name(model), model)]
    return [_newest(workspace, reads, notifier(quiet))]


def _every_model(workspace: Workspace, source: Path | None) -> list[Model]:
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
            left_out(error)
        else:
            chosen.append((_name(folder), folder))
    if not chosen:
        raise FormatError(f"{home}: holds no model that can be scored; the lines above say why")
    return chosen


def _newest(workspace: Workspace, reads: tuple[str, str], tell: Callable[[str], None]) -> Model:
    """The model with the newest best weights; without any, the workspace's with what it has."""
    times: dict[Path, int] = {}
    for folder in _candidates(workspace):
        if (weights := _best(folder)) is None:
            continue
        try:
            if problem := _turned(read_settings(folder), reads):
                raise UsageError(f"{folder}: {problem}")
            times[folder] = weights.stat().st_mtime_ns
        except (NmtalignError, OSError) as error:
            left_out(error)
    if not times:
        read_settings(workspace.model)
        return _name(workspace.model), workspace.model
    newest = max(times, key=lambda folder: times[folder])  # of two at once the first: the workspace's, then by name
    if len(times) > 1:
        tell(f"{newest}: has the newest best weights of {len(times)} models; --all scores every one under {MODELS}/")
    return _name(newest), newest


def _candidates(workspace: Workspace) -> list[Path]:
    folders = [workspace.model] if _is_model(workspace.model) else []
    there = {folder.resolve() for folder in folders}
    return [*folders, *(folder for folder in _model_folders(_home(workspace)) if folder.resolve() not in there)]


def _home(workspace: Workspace) -> Path:
    """Where the many models are."""
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
    """Whether a folder is a model of ours, be it a damaged one."""
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
    """(what the text is in, what its translation should be in), "" for what is not known."""
    test = workspace.pairs.get("test")
    if test is not None and source in (None, test[0]):
        return workspace.source_language or _suffix(test[0]), workspace.target_language or _suffix(test[1])
    return (_suffix(source) if source else ""), ""


def _suffix(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2]


def _turned(settings: dict[str, Any], reads: tuple[str, str]) -> str:
    """What is wrong with a model that writes what is to be read; "" where nothing is known to be."""
    language, other = settings["source_language"], settings["target_language"]
    if reads[0] == other != language and reads[1] in ("", language):
        return f"reads {language} and writes {other}, and the text to translate is in {other}"
    return ""


def left_out(error: Exception) -> None:
    """Says that a model is not scored."""
    say(f"{error}; it is left out")


@dataclass(frozen=True)
class Translated:
    """What a model makes of a text."""

    name: str
    folder: Path
    text: Text


def translate_with(
    models: Sequence[Model], source: Text, settings: TranslateConfig, *, every: bool = False, quiet: bool = False
) -> list[Translated]:
    """The best translation of each line by each model: as it is kept in the model's folder, or made and kept there.

    `settings` are those of section [translate], without n-best lists and drawn words. With `every`
    a model that is damaged, or cannot do what is asked for, is left out with a line on stderr.
    """
    settings = dataclasses.replace(settings, n_best=1, sample=False, alignment="none", word_scores=False)
    done: list[Translated] = []
    for name, folder in models:
        try:
            lines = _Maker(name, folder, settings, quiet).translate(source)
        except (FormatError, UsageError) as error:
            if not every:
                raise
            left_out(error)
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
    quiet: bool

    def translate(self, source: Text) -> list[str]:
        """The lines of the translation."""
        keeping = KeepingTranslator(self.folder, self.settings)
        if not keeping.has_best:
            notifier(self.quiet)(f"{self.folder}: has no best weights yet: its last ones translate")
        lines = keeping.find(source.lines)
        if lines is not None:
            where = keeping.path(source.lines)
            notifier(self.quiet)(f"the translation of {source.name} by {self.folder} is kept in {where}")
            return lines
        return self._make(source, keeping)

    def _make(self, source: Text, keeping: KeepingTranslator) -> list[str]:
        choose_wait_policy()
        bound_caches()
        with Signals() as signals:
            notifier(self.quiet)(f"translating {len(source.lines):,} lines of {source.name} with {self.folder}")
            making = keeping.make(source.lines)
            lines = list(_progress(making, f"translating: {self.name}", len(source.lines), self.quiet))
            with signals.whole():
                self._keep(keeping, source, lines)
        return lines

    def _keep(self, keeping: KeepingTranslator, source: Text, lines: list[str]) -> None:
        try:
            keeping.keep(source.lines, lines, source.name)
        except ResourceError as error:
            notifier(self.quiet)(f"{error}; the translation is scored, but not kept for the next time")


def _progress(items: Iterable[T], what: str, total: int, quiet: bool) -> Iterable[T]:
    """The items, with a bar on stderr where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=what, total=total, console=Console(stderr=True), transient=True)
