"""What `nmtalign score` is to do, when options and workspace have been read; and the texts, when they have been."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.config import ScoreConfig, TranslateConfig
from nmtalign.workspace import Workspace

if TYPE_CHECKING:
    from nmtalign.scoring.metrics import MetricOptions
    from nmtalign.scoring.report import Resampling, Test
    from nmtalign.scoring.texts import Text


@dataclass(frozen=True)
class Texts:
    """Which texts are read; no system = a model translates the source."""

    systems: tuple[tuple[str, Path], ...]  # (name, file)
    references: tuple[Path, ...]
    source: Path | None


@dataclass(frozen=True)
class Task:
    """All that is to be done."""

    workspace: Workspace
    texts: Texts
    settings: ScoreConfig
    options: "MetricOptions"
    resampling: "Resampling | None"
    words: tuple[Path, ...]  # the models or the corpus that say which words are known
    train_text: Path | None
    table1: bool
    differences: int
    attention: bool
    alignments: tuple[str, ...]
    comet: Path | None
    plot: Path | None
    html: Path | None
    fail_under: float | None
    models: tuple[tuple[str, Path], ...]  # that translate, where no system is given
    all_models: bool
    search: TranslateConfig
    model_given: bool  # by -m
    device: str | None
    output: Path | None
    quiet: bool
    page_only: frozenset[str]  # what was not asked for, and stands on the page of --html all the same

    @property
    def language(self) -> str:
        """The language of the translations; "" where it is not known."""
        return self.options.language

    @property
    def confident(self) -> bool:
        """Whether intervals are wanted: where it is not said, where figures are compared."""
        if self.settings.confidence is not None:
            return self.settings.confidence
        return self.several or self.settings.by_length or self.settings.by_place or self.html is not None

    @property
    def several(self) -> bool:
        """Whether several systems are scored."""
        return len(self.texts.systems) + len(self.models) > 1

    def tests(self, systems: int) -> "tuple[Test, ...]":
        """The tests of significance between that many systems."""
        chosen = self.settings.significance
        if systems < 2 or chosen == "none":
            return ()
        return ("bs", "ar") if chosen == "both" else (chosen,)


@dataclass(frozen=True)
class Read:
    """The texts, as many lines each."""

    names: tuple[str, ...]
    systems: "tuple[Text, ...]"
    references: "tuple[Text, ...]"
    source: "Text | None"
    folders: Mapping[str, Path]  # of systems: the model that made it, or a file of its alignments; as far as known

    @property
    def reference_lines(self) -> list[Sequence[str]]:
        """The lines of each reference."""
        return [reference.lines for reference in self.references]

    @property
    def system_lines(self) -> list[Sequence[str]]:
        """The lines of each system."""
        return [system.lines for system in self.systems]
