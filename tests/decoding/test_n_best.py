"""Moses n-best lists that come in."""

from pathlib import Path

import pytest

from nmtalign.decoding.n_best import NBestLine, best_first, check_feature_name, parse_n_best, read_n_best
from nmtalign.decoding.results import ScoredPair
from nmtalign.errors import InputError, UsageError


def test_a_line_is_kept_as_it_is() -> None:
    for line in (
        "0 ||| le chat ||| LogProb= -1.5 Length= 3 ||| -0.5",
        "12 ||| le  chat  | noir ||| lm= -1 -2 ||| -0.5 ||| 0-0 1-1 ||| more",
        "3 |||  ||| LogProb= 0 ||| 0 ||| ",
        "3 ||| un | | | deux",
    ):
        assert str(parse_n_best(line, "")) == line
    assert parse_n_best("12 ||| le  chat ||| a= 1", "").text == "le  chat"
    assert parse_n_best("4|||x|||a= 1|||2", "") == NBestLine(4, ("4", "x", "a= 1", "2"))
    assert parse_n_best("4 |||  ||| a= 1", "").text == ""


@pytest.mark.parametrize("line", ["", "le chat", "-1 ||| x", "a ||| x ||| b= 1 ||| 2", "1.5 ||| x", "9" * 5000 + "|||"])
def test_what_is_no_line_of_a_list_is_named(line: str) -> None:
    with pytest.raises(InputError, match=r"^list: line 3: not a line of an n-best list; write `id \|\|\| "):
        parse_n_best(line, "list: line 3")


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("LogProb= -1.5", "LogProb= -1.5 x= -2.000000"),
        ("", "x= -2.000000"),
        ("x= -1", "x= -2.000000"),
        ("a= 1 x= 4 5e-3 -inf b= 2", "a= 1 b= 2 x= -2.000000"),
        ("xx= 1 x=", "xx= 1 x= -2.000000"),
        ("ax= 1 x.= 2", "ax= 1 x.= 2 x= -2.000000"),
    ],
)
def test_a_feature_is_added_or_replaced(features: str, expected: str) -> None:
    line = parse_n_best(f"0 ||| le chat ||| {features} ||| -0.5 ||| 0-0", "")
    assert str(line.with_feature("x", [-2])) == f"0 ||| le chat ||| {expected} ||| -0.5 ||| 0-0"


def test_fields_that_are_missing_are_made() -> None:
    bare = parse_n_best("0 ||| le chat", "")
    assert str(bare.with_feature("x", [-1, 2])) == "0 ||| le chat ||| x= -1.000000 2.000000"
    assert str(bare.with_feature("x", [-1]).with_score(-0.25)) == "0 ||| le chat ||| x= -1.000000 ||| -0.250000"
    assert str(bare.with_score(-0.25)) == "0 ||| le chat |||  ||| -0.250000"
    assert str(parse_n_best("0 ||| a ||| b= 1 ||| 7 ||| 0-0", "").with_score(2)).endswith(" ||| 2.000000 ||| 0-0")


@pytest.mark.parametrize("name", ["", "a b", "a=", "a|b", "a\t"])
def test_names_of_features(name: str) -> None:
    check_feature_name("nmtalign.1")
    with pytest.raises(UsageError, match="cannot name a feature"):
        check_feature_name(name)


def written(folder: Path, source: str, lines: list[str]) -> tuple[Path, Path]:
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    (folder / "in").write_text(source)
    return folder / "list", folder / "in"


def test_lines_find_their_sources(tmp_path: Path) -> None:
    files = written(tmp_path, "a\nb\nc\nd\n", ["0 ||| x", "0 ||| y", "2 ||| z", "3 ||| w"])
    assert [(line.text, source) for line, source in read_n_best(*files)] == [
        ("x", "a"), ("y", "a"), ("z", "c"), ("w", "d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0 ||| x", "2 ||| y", "1 ||| z"], r"list: line 3: id 1 comes after id 2; sort the list by id"),
        (["0 ||| x", "3 ||| y"], r"list: line 2: id 3 needs line 4 of .*in, which has 3 lines; ids count"),
        (["0 ||| x", ""], r"list: line 2: not a line of an n-best list"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(read_n_best(*written(tmp_path, "a\nb\nc\n", lines)))


def test_the_best_come_first_sentence_by_sentence() -> None:
    scores = [(0, -2.0), (0, -1.0), (0, -2.0), (1, -9.0), (2, -3.0), (2, 0.0)]
    entries = [
        (NBestLine(sentence, (str(sentence), str(place))), ScoredPair(place, "", "", (), (), 0, 0, 0, score, (0,)))
        for place, (sentence, score) in enumerate(scores)
    ]
    assert [line.text for line, _ in best_first(entries)] == ["1", "0", "2", "3", "5", "4"]
