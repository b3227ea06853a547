"""A run of `nmtalign translate`: its counts and reports."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nmtalign import Translator
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
