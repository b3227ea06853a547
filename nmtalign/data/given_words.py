"""The vocabularies and tokenisers of a model or of a prepared corpus, with which other texts are prepared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nmtalign.data.corpus import CORPUS_FILE, Corpus
from nmtalign.errors import FormatError, UsageError
from nmtalign.model_files import CONFIG, check_files, model_config, read_settings
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import SettingError, resolve
from nmtalign.settings.presets import OF_VOCABULARIES
from nmtalign.text.languages import language_code
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import Vocabulary, load_vocabularies


@dataclass(frozen=True)
class GivenWords:
    """What `prep --vocabulary-from` takes from a model directory or from a prepared corpus."""

    folder: Path
    languages: tuple[str, str]
    tokenizers: Tokenizers
    vocabularies: tuple[Vocabulary, Vocabulary]
    settings: Mapping[str, Any]  # those of the `prep` that chose the vocabularies

    @classmethod
    def read(cls, folder: Path) -> "GivenWords":
        """Reads a folder after checking its files; raises FormatError if it is missing, foreign or damaged."""
        if (folder / CONFIG).exists():
            return cls._of_model(folder)
        if not folder.is_file() and not (folder / CORPUS_FILE).exists():
            raise FormatError(f"{folder}: contains neither a model ({CONFIG}) nor a prepared corpus ({CORPUS_FILE})")
        corpus = Corpus.open(folder)
        languages = corpus.source_language, corpus.target_language
        words = corpus.source_vocabulary, corpus.target_vocabulary
        return cls(folder, languages, corpus.tokenizers, words, corpus.settings)

    @classmethod
    def _of_model(cls, folder: Path) -> "GivenWords":
        settings = read_settings(folder)
        check_files(folder, settings)
        words = load_vocabularies(folder, model_config(folder, settings))
        languages = settings["source_language"], settings["target_language"]
        return cls(folder, languages, Tokenizers.load(folder), words, settings.get("prep", {}))

    def check(self, output: Path, languages: tuple[str, str]) -> None:
        """Raises UsageError if texts of these languages cannot be prepared with these words in the folder `output`."""
        if output.resolve() == (self.folder.parent if self.folder.is_file() else self.folder).resolve():
            raise SettingError(
                "the new corpus would replace files of this folder; give another one with -o",
                vocabulary_from=str(self.folder),
            )
        source, target = map(_code, self.languages)
        if all(there in ("", here) for there, here in zip((source, target), languages, strict=True)):
            return
        if languages == (target, source):
            fix = f"give the {source} text first, then the {target} text"
        else:
            fix = f"give texts in {source} and {target}, or correct --source-language and --target-language"
        raise UsageError(
            f"{self.folder}: its words are those of {source}-{target}, and the texts are {'-'.join(languages)}; {fix}"
        )

    def adopted_by(self, config: PrepConfig) -> PrepConfig:
        """The settings with those that chose these vocabularies; raises FormatError if they are damaged."""
        there = {name: self.settings[name] for name in OF_VOCABULARIES if name in self.settings}
        try:
            chosen = asdict(resolve(PrepConfig, (f"{self.folder}: prep", there)))
        except UsageError as error:
            raise FormatError(str(error)) from None
        return replace(config, **{name: chosen[name] for name in OF_VOCABULARIES})


def _code(language: str) -> str:
    """The code of a language in a model or a corpus; earlier versions also stored other names."""
    try:
        return language_code(language)
    except UsageError:
        return language
