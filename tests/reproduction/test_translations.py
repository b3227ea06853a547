"""The translation of a text by a model resumes after an interruption and is written as it is scored."""

import json
import shutil

import pytest
from helpers.reproductions import reach

from nmtalign.reproduction.running import Halted, TextTranslation
from nmtalign.translating.keeping import KeepingTranslator


def test_what_was_translated_before_an_interruption_is_not_translated_again(plan, tmp_path, monkeypatch):
    done = reach(plan(models="RNNsearch-50"))
    asked, key = done.plan, ("RNNsearch-50", 1234)
    lines, whole = done.outcome.tests[0].source.lines, done.outcome.translations[key]["test"]
    (written,) = (asked.work / "translations").glob("*.test.txt")
    assert written.name == "RNNsearch-50.seed-1234.test.txt"
    assert written.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in whole)
    model = asked.model_folder(asked.systems[0], 1234)
    shutil.rmtree(model / "translations")

    given = []
    make = KeepingTranslator.make
    monkeypatch.setattr(
        KeepingTranslator, "make", lambda self, lines, *more: (given.append(len(lines)), make(self, lines, *more))[1]
    )
    work = TextTranslation(model, asked.systems[0].search, lines, tmp_path / "out" / "one.txt")
    assert work.found() is None
    assert work.seconds() == 0

    def check():
        (partial,) = (tmp_path / "out").glob("*.partial")
        if len(partial.read_text(encoding="utf-8").splitlines()) == 5:
            raise Halted("interrupted")

    with pytest.raises(Halted):
        work.make(check)
    (partial,) = (tmp_path / "out").glob("*.partial")
    with partial.open("a", encoding="utf-8") as stream:
        stream.write("a line that was cut")  # by a kill
    progress = []
    work.make(lambda: None, progress.append)
    assert given == [12, 7]
    assert progress[0] == 5  # translated before
    assert sum(progress) == 12
    assert work.written() == whole
    assert not partial.exists()
    (record,) = (tmp_path / "out").glob("*.json")
    measured = json.loads(record.read_text())
    assert measured["lines"] == 7
    assert work.seconds() == pytest.approx(measured["seconds"] * 12 / 7)
    assert (tmp_path / "out" / "one.txt").read_text(encoding="utf-8").splitlines() == whole
