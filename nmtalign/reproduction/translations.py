"""The translation of a test set by one model. It is kept when complete; an interrupted one resumes at the next line."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nmtalign.files import atomic_text, disk_errors
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.vocabulary import UNK
from nmtalign.translating.keeping import KeepingTranslator
from nmtalign.untrusted import read_json

UNKNOWN = "UNK"  # replaces `<unk>`, because every tokeniser of a metric takes it for one word


class TextTranslation:
    """The translation of some lines by a model with the settings of a search."""

    def __init__(self, model: Path, search: TranslateConfig, lines: Sequence[str], path: Path) -> None:
        """The complete translation is also written to `path`, and how long it took to a file beside it."""
        self._translator, self._lines, self._path = KeepingTranslator(model, search), lines, path

    def found(self) -> list[str] | None:
        """Returns the complete translation with UNK for `<unk>`, or None if there is none yet."""
        found = self._translator.find(self._lines) if self._lines else []
        return None if found is None else [line.replace(UNK, UNKNOWN) for line in found]

    def written(self) -> list[str]:
        """Writes the complete translation as it is scored, and returns it."""
        lines = self.found() or []
        with atomic_text(self._path) as stream:
            stream.writelines(f"{line}\n" for line in lines)
        return lines

    def make(self, check: Callable[[], None]) -> None:
        """Translates the missing lines; it calls `check` after each line, which may raise to end it."""
        partial = self._beside(".partial")
        done = partial.read_text(encoding="utf-8").split("\n")[:-1] if partial.exists() else []
        began, new = time.perf_counter(), list[str]()
        with atomic_text(partial) as stream:  # without an incomplete last line
            stream.writelines(f"{line}\n" for line in done)
        with disk_errors(partial), partial.open("a", encoding="utf-8", newline="\n") as stream:
            for line in self._translator.make(self._lines[len(done) :]):
                new.append(line)
                stream.write(f"{line}\n")
                stream.flush()
                check()
        seconds = time.perf_counter() - began
        self._translator.keep(self._lines, [*done, *new], self._path.name)
        with atomic_text(self._beside(".json")) as stream:
            stream.write(json.dumps({"lines": len(new), "seconds": seconds}) + "\n")
        partial.unlink()

    def seconds(self) -> float:
        """Estimates the time for all lines from the lines that the last call translated; 0 if it is not known."""
        try:
            record: Mapping[str, float] = read_json(self._beside(".json"))
            return float(record["seconds"]) * len(self._lines) / float(record["lines"])
        except (OSError, ValueError, KeyError, ZeroDivisionError):
            return 0.0

    def _beside(self, ending: str) -> Path:
        """A file named after model, search and text, so that systems that share a translation also share its time."""
        return self._path.with_name(self._translator.path(self._lines).stem + ending)
