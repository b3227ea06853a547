"""A model that translates whole texts and keeps what it wrote, so that the next time it is there at once."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nmtalign.config import TranslateConfig
from nmtalign.decoding.cached import KeptTranslations, Origin
from nmtalign.model_files import LAST, check_files, find_weights, read_settings


class KeepingTranslator:
    """The best translation of each line by one model, as it is kept in the model's folder, or made and kept there.

    PyTorch is loaded only to make one. Raises FormatError for a model that is missing, damaged or has no weights.
    """

    def __init__(self, folder: Path, settings: TranslateConfig) -> None:
        check_files(folder, read_settings(folder))
        self._folder, self._settings = folder, settings
        self._weights = find_weights(folder, "best")
        self._kept = KeptTranslations(folder, self._weights)
        self._same = True

    @property
    def has_best(self) -> bool:
        """Whether the weights are those of the best validation, or those before them, and not the last ones."""
        return self._weights.name != LAST

    def path(self, lines: Sequence[str]) -> Path:
        """Where the translation of the lines is kept, or would be."""
        return self._kept.path(self._origin(lines))

    def find(self, lines: Sequence[str]) -> list[str] | None:
        """The translation, if it is kept."""
        found = self._kept.find(self._origin(lines))
        return found if found is not None and len(found) == len(lines) else None

    def make(self, lines: Sequence[str]) -> Iterator[str]:
        """Yields the translations as they are made; UsageError for what the model cannot do."""
        from nmtalign.decoding.translator import Translator, load_models

        translator = Translator(load_models([self._folder], self._settings), self._settings, alignments=False)
        self._same = self._kept.is_current()  # else training has put better weights there, and these may be loaded
        for translation in translator.translate(lines):
            yield translation.text

    def keep(self, lines: Sequence[str], translation: Sequence[str], source_name: str) -> None:
        """Keeps what `make` gave, unless the weights have changed since; ResourceError for what the disk refuses."""
        if self._same:
            self._kept.keep(self._origin(lines), translation, source_name)

    def _origin(self, lines: Sequence[str]) -> Origin:
        return self._kept.origin(lines, self._settings)
