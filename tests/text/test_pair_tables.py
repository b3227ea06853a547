"""Parquet files, which nobody has to trust."""

import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.commands import run as nmtalign

from nmtalign import prepare
from nmtalign.errors import InputError, UsageError
from nmtalign.text.pair_tables import split_tables
from nmtalign.text.parallel import ParallelText, languages_of_columns

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
PAIRS = [("one", "un"), ("", "deux\r\u2028"), ("three", "trois")]
TEXTS = {"en": [pair[0] for pair in PAIRS], "fr": [pair[1] for pair in PAIRS]}


def translations(pairs=PAIRS) -> dict[str, list]:
    """The convention of Hugging Face: one column with the pair of each row."""
    return {"id": ["x"] * len(pairs), "translation": [dict(zip(("en", "fr"), pair, strict=True)) for pair in pairs]}


def parquet_file(folder: Path, columns) -> Path:
    path = folder / "texts.parquet"
    parquet.write_table(columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns), path)
    return path


def read(path: Path, columns: str = "", languages: tuple[str, str] = ("en", "fr")) -> list[tuple[str, str]]:
    return list(ParallelText(path, None, languages, columns))


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (TEXTS, ""),
        ({"id": [1, 2, 3], "fr-FR": TEXTS["fr"], "en": TEXTS["en"]}, ""),
        ({"target": TEXTS["fr"], "score": [1.0] * 3, "source": TEXTS["en"]}, ""),
        ({"a": TEXTS["fr"], "b.c": TEXTS["en"]}, "b.c,a"),
        ({"a": TEXTS["fr"], "number": [1] * 3, "b": TEXTS["en"]}, "2,1"),  # numbers count columns of text
        (translations(), ""),
        (translations(), "en,fr"),
        (pyarrow.table(TEXTS, pyarrow.schema([("en", pyarrow.large_string()), ("fr", pyarrow.string())])), ""),
    ],
)
def test_tables(tmp_path: Path, table, columns: str) -> None:
    assert read(parquet_file(tmp_path, table), columns) == PAIRS


def test_a_table_has_several_files_and_the_choice_is_told(tmp_path: Path) -> None:
    for number, columns in enumerate((TEXTS, {"fr": ["quatre"], "en": ["four"]})):
        parquet.write_table(pyarrow.table(columns), tmp_path / f"x-0000{number}-of-00002.parquet")
    path = tmp_path / "x-00000-of-00002.parquet"
    text = ParallelText(path, None, ("fr", "en"))
    assert list(text) == [pair[::-1] for pair in [*PAIRS, ("four", "quatre")]]
    assert text.note == f"{path}: column 2 (fr) is the source, column 1 (en) the target"
    assert languages_of_columns(path, "") == ("en", "fr")
    assert languages_of_columns(parquet_file(tmp_path, translations()), "") == ("en", "fr")


@pytest.mark.parametrize(
    ("table", "columns", "error", "message"),
    [
        (
            {"a": ["x"], "b": ["y"]},
            "",
            UsageError,
            "2 columns, and their names .a, b. do not tell en and fr; .*columns=1,2",
        ),
        (TEXTS, "en,de", UsageError, "has no column de; it has 2 columns: en, fr"),
        ({**TEXTS, "n": [1, 2, 3]}, "en,n", UsageError, "has no column n"),
        ({"n": [1], "list": [["x"]]}, "", InputError, "no column contains text; its columns are n, list"),
        ({"en": ["a", "b"], "fr": ["c", None]}, "", InputError, r"row 2: .* fr is missing \(null\); remove"),
        (translations([("a", "b"), (None, "d")]), "", InputError, "row 2: .*column translation.en is missing"),
        ({"en": ["a\nb"], "fr": ["c"]}, "", InputError, "row 1: .*column en has a line break"),
        ({"en": ["a" * (5 << 20)], "fr": ["c"]}, "", InputError, "row 1: .*column en .*is too long"),
    ],
)
def test_what_is_refused(tmp_path: Path, table, columns: str, error: type[Exception], message: str) -> None:
    path = parquet_file(tmp_path, table)
    with pytest.raises(error, match=message) as caught:
        read(path, columns)
    assert str(path) in str(caught.value)


def test_a_pair_that_is_missing(tmp_path: Path) -> None:
    column = pyarrow.array([{"en": "a", "fr": "b"}, None])
    with pytest.raises(InputError, match=r"row 2: .*missing"):
        read(parquet_file(tmp_path, {"translation": column}))


def test_damaged_tables(tmp_path: Path) -> None:
    """Whatever is changed in a file, there is one error, or a text is read."""
    path = parquet_file(tmp_path, translations())
    whole, refused = path.read_bytes(), 0
    for place in range(4, len(whole), 7):
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            path.write_bytes(content)
            try:
                read(path, languages=("en", "fr"))
            except (InputError, UsageError):
                refused += 1
    assert refused > len(whole) / 14


def test_texts_that_are_not_utf_8(tmp_path: Path) -> None:
    """pyarrow does not check them when it reads a table."""
    bad = pyarrow.array([b"a", b"\xff"]).cast(pyarrow.string(), safe=False)
    path = parquet_file(tmp_path, pyarrow.table({"en": bad, "fr": ["c", "d"]}))
    with pytest.raises(InputError, match=r"texts.parquet: cannot be read as a table.*UTF8"):
        read(path)


def test_a_long_table_takes_no_more_memory(tmp_path: Path) -> None:
    rows = 100_000
    path = parquet_file(tmp_path, {"en": [f"a rather long line {i}" * 5 for i in range(rows)], "fr": ["b"] * rows})
    before = pyarrow.total_allocated_bytes()
    tracemalloc.start()
    most = 0
    for number, _ in enumerate(ParallelText(path, None, ("en", "fr"))):
        if number % 1000 == 0:
            most = max(most, pyarrow.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == rows - 1
    assert peak + most < 8 << 20


def test_prep_takes_the_splits_of_a_folder(tmp_path: Path) -> None:
    def lines(word: str, first: int, last: int):
        return translations([(f"the {word} {i} .", f"le {word} {i} .") for i in range(first, last)])

    folder = tmp_path / "all"
    for split, ends in (("train", (0, 25, 40)), ("validation", (0, 3)), ("test", (0, 2))):
        parts = [lines(split, *part) for part in pairwise(ends)]
        folder.mkdir(exist_ok=True)
        for number, part in enumerate(parts):
            parquet.write_table(pyarrow.table(part), folder / f"{split}-0000{number}-of-0000{len(parts)}.parquet")
    settings = {"languages": ("en", "fr"), "workers": 1, "shortlist": "50"}
    summary = prepare(folder, None, tmp_path / "data", **settings)
    assert {name: split.kept for name, split in summary.splits.items()} == {"train": 40, "dev": 3, "test": 2}
    assert (tmp_path / "data" / "test.fr").read_text() == "le test 0 .\nle test 1 .\n"
    drawn = prepare(folder, None, tmp_path / "drawn", dev_lines=5, test=split_tables(folder)["dev"], **settings)
    assert {name: split.kept for name, split in drawn.splits.items()} == {"train": 35, "dev": 5, "test": 3}
    (folder / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(InputError, match=r"train-00000-of-00002\.parquet: .*train-00001-of-00002\.parquet"):
        prepare(folder, None, tmp_path / "missing", **settings)


def test_the_commands_take_tables_as_other_texts(tmp_path: Path) -> None:
    parquet_file(tmp_path, {"id": ["x"] * 3, **TEXTS})
    done = nmtalign(tmp_path, "prep", "texts.parquet")
    assert (done.returncode, done.stderr.partition("; ")[0]) == (
        2,
        "nmtalign: error: texts.parquet: its name tells no language",
    )
    languages = ("--source-language", "en", "--target-language", "fr")
    done = nmtalign(tmp_path, "prep", *languages, "--dev", "texts.parquet", "texts.parquet", "-o", "d")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d/dev.en").read_text() == "one\n\nthree\n"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet_file(tmp_path, TEXTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'texts.parquet: .*pip install "nmtalign\[datasets\]"'):
        read(path)


def test_the_library_datasets_writes_such_tables(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(translations()).to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") == PAIRS
