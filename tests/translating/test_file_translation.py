"""A run of `nmtalign translate`: its counts and reports, and lines that a translator loses or doubles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmtalign import Translator
from nmtalign.errors import NmtalignError
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.translating.file_translation import FileTranslation, Inputs


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory, random_model_directory: Callable[..., Path]) -> Translator:
    folder = random_model_directory(tmp_path_factory.mktemp("model"), ["the", "fox"], ["le"], lambda model: None)
    return Translator.load(folder, beam=2, threads=1)


@pytest.fixture
def files(tmp_path: Path) -> FileTranslation:
    (tmp_path / "in.en").write_text("the fox\n\na boat\n")
    return FileTranslation(Inputs((tmp_path / "in.en",)), tmp_path / "out.fr", TranslateConfig(beam=2))


def test_every_line_is_counted_and_reported(translator: Translator, files: FileTranslation, tmp_path: Path) -> None:
    reported: list[int] = []
    assert not files.is_done()
    files.run(translator, lambda run: reported.append(run.end))
    assert reported == [0, 8, 9, 16]
    assert (files.lines, files.words, files.unknown, files.done) == (3, 4, 2, 0)
    assert (tmp_path / "out.fr").read_text().count("\n") == 3
    again = FileTranslation(Inputs((tmp_path / "in.en",)), tmp_path / "out.fr", TranslateConfig(beam=2), resume=True)
    assert again.is_done()
    assert again.done == 3


class FaultyTranslator:
    """Loses or doubles translations."""

    def __init__(self, translator: Translator, fault: Callable[[list[Any]], list[Any]]) -> None:
        self.loaded, self._translator, self._fault = translator.loaded, translator, fault
        self.notices, self.alignments = translator.notices, True
        self.config, self.models = translator.config, translator.models

    def translate_numbered(self, *arguments: Any) -> list[Any]:
        return self._fault(list(self._translator.translate_numbered(*arguments)))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda found: found[:-1], "1 lines were read, but not translated"),
        (lambda found: [], "3 lines were read, but not translated"),
        (lambda found: [found[0], found[2]], "line 2 of the input has no translation"),
        (lambda found: [*found, found[2]], "line 4 of the input has no translation"),
    ],
)
def test_a_line_that_is_lost_or_doubled_is_an_error(
    translator: Translator,
    files: FileTranslation,
    tmp_path: Path,
    fault: Callable[[list[Any]], list[Any]],
    message: str,
) -> None:
    with pytest.raises(NmtalignError, match=f"{message}; this is a bug of nmtalign"):
        files.run(FaultyTranslator(translator, fault))
    assert not (tmp_path / "out.fr").exists()
