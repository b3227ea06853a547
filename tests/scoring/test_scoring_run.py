"""The public function `score`: from lines and settings to every figure."""

import csv
import io

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from nmtalign import score
from nmtalign.errors import InputError, UsageError
from nmtalign.scoring.metrics import tokenizer_for


def test_one_system_has_the_figures_of_sacrebleu(texts):
    result = score(texts.systems[0], texts.references[0], metrics="bleu")
    metric = BLEU()
    assert result.value() == metric.corpus_score(texts.systems[0], [texts.references[0]]).score
    assert result.report.signatures == {"BLEU": f"BLEU|{metric.get_signature()}"}  # nothing is drawn
    assert result.to_dict()["systems"][0]["scores"]["BLEU"]["value"] == result.value()
    (row,) = csv.DictReader(io.StringIO(result.to_csv()))
    assert float(row["value"]) == result.value()
    assert texts.references[0][0] not in repr(result)  # a notebook prints it
    assert result.report.resampling is None
    assert "differ most" not in result.to_text()
    settings = {"by_length": True, "length_of": "reference", "confidence": False, "differences": 2}
    by_reference = score(texts.systems[0], texts.references[0], **settings)
    assert by_reference.report.systems[0].everything.lengths


def test_systems_references_lengths_and_given_scores(texts):
    systems = dict(zip("abc", texts.systems, strict=True))
    given = {"COMET": [[float(number)] * 200 for number in range(3)]}
    settings = {"by_length": True, "bootstrap": 50, "metrics": "bleu,chrf,chrf++,multi-bleu", "target_language": "fr"}
    result = score(systems, texts.references, texts.source, segment_scores=given, **settings)
    assert result.report.metrics == ("BLEU", "chrF2", "chrF2++", "multi-bleu", "COMET")
    assert [result.value("COMET", name) for name in "abc"] == [0, 1, 2]
    assert result.value(system="c") > result.value(system="a")
    assert result.report.systems[2].everything.whole.scores["BLEU"].mark == "winner"
    assert len(result.report.systems[0].everything.lengths) == 7
    assert "by words of the source" in result.to_text()
    tested = score(systems, texts.references, confidence=False, significance="ar", trials=10, metrics="bleu")
    assert tested.report.resampling.tests == ("ar",)


def test_files_lines_and_models_score_alike(texts, tmp_path):
    for name, lines in (("out.fr", texts.systems[0]), ("ref.fr", texts.references[0]), ("src.en", texts.source)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    lines = score(texts.systems[0], texts.references[0], texts.source, by_length=True, bootstrap=50)
    arrays = map(np.array, (texts.systems[0], texts.references[0], texts.source))
    assert score(*arrays, by_length=True, bootstrap=50).report == lines.report
    system, reference, source = tmp_path / "out.fr", tmp_path / "ref.fr", tmp_path / "src.en"
    for references in (str(reference), [reference]):
        files = score({"hypothesis": system}, references, str(source), by_length=True, bootstrap=50)
        assert files.report == lines.report
    (tmp_path / "comet").write_text("0.5\n" * len(texts.source))
    given = score(str(system), str(reference), segment_scores={"COMET": [str(tmp_path / "comet")]}, metrics="bleu")
    assert given.value("COMET") == 0.5


CHINESE = ["今天，那个老的老师看见猫。", "昨天，国王喜欢红色的房子。", "现在，学生卖书。"]


@pytest.mark.parametrize(
    ("name", "settings", "tokenizer"),
    [
        ("test.zh", {}, "zh"),
        ("ref.zh-CN.txt", {}, "zh"),
        ("test.zh", {"tokenize": "char"}, "char"),
        ("test.zh", {"target_language": "th"}, "char"),
        ("reference", {"target_language": "zh_Hant"}, "zh"),
        ("reference", {}, "char"),
        ("reference.fr", {}, "char"),
        ("test.km", {}, "char"),
    ],
)
def test_bleu_of_chinese_is_that_of_sacrebleu(tmp_path, name, settings, tokenizer):
    reference, messages = tmp_path / name, []
    reference.write_text("".join(f"{line}\n" for line in CHINESE))
    given = [line.replace("老", "小") for line in CHINESE]
    result = score({"one": given, "two": CHINESE}, [reference], notify=messages.append, **settings, bootstrap=5)
    assert result.value(system="one") == BLEU(tokenize=tokenizer).corpus_score(given, [CHINESE]).score < 95
    assert result.value(system="two") == pytest.approx(100)
    assert f"|tok:{tokenizer}|" in result.to_dict()["signatures"]["BLEU"]
    assert messages == []


def test_the_ending_of_the_translation_chooses_the_tokeniser_if_nothing_else_does(tmp_path):
    for name in ("out.ko", "reference", "out.fr"):
        (tmp_path / name).write_text("나는 집에 갑니다 .\n")
    korean, french = (score(tmp_path / name, tmp_path / "reference") for name in ("out.ko", "out.fr"))
    assert f"|tok:{tokenizer_for('ko')}|" in korean.to_dict()["signatures"]["BLEU"]
    assert "|tok:13a|" in french.to_dict()["signatures"]["BLEU"]


def test_bleu_that_is_0_for_equal_texts_is_reported():
    for lines, settings in ((CHINESE, {"tokenize": "13a"}), (["un chat", "deux"], {})):
        messages = []
        assert score(lines, lines, notify=messages.append, target_language="zh", **settings).value() == 0
        assert len(messages) == 1
        assert "tokenize=char" in messages[0]


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "message"),
    [
        (([], []), {}, InputError, "no sentence to score"),
        ((["a"], ["a", "b"]), {}, InputError, "hypothesis: has no line 2, but reference 1 has 2 lines"),
        ((["a"], ["a"]), {"segment_scores": {"x": [[1.0, 2.0]]}}, InputError, "one finite number for each of 1 line"),
        ((["a"], ["a"]), {"segment_scores": {"x": [[float("nan")]]}}, InputError, "x: give one finite number"),
        ((["a"], iter(["a"])), {"segment_scores": {"x": [[None]]}}, InputError, "x: give one finite number"),
        ((["a", None], ["a", "b"]), {}, UsageError, "hypothesis: line 2: 'None' is not a text"),
        ((["a", "b"], [float("nan"), "b"]), {}, UsageError, "reference 1: line 1: 'nan' is not a text"),
        ((["a"], ["a"]), {"bootstrap": 1}, UsageError, "bootstrap = 1: must be at least 2"),
    ],
)
def test_what_cannot_be_scored_is_refused(arguments, settings, error, message):
    with pytest.raises(error, match=message):
        score(*arguments, **settings)


def test_a_metric_or_system_that_is_not_there_is_named():
    result = score(["a b c d"], ["a b c d"])
    for given, message in (({"metric": "TER"}, "no metric 'TER'"), ({"system": "x"}, "no system 'x'")):
        with pytest.raises(UsageError, match=message):
            result.value(**given)
