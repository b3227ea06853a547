"""Parquet files and folders of data sets, which need not be trusted."""

import json
import sys
import tracemalloc
from itertools import pairwise

import pytest
from helpers.commands import run as nmtalign

from nmtalign import prepare
from nmtalign.errors import InputError, UsageError
from nmtalign.text.parallel import ParallelText, languages_of_columns, split_folders

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
PAIRS = [("one", "un"), ("", "deux\r\u2028"), ("three", "trois")]
TEXTS = {"en": [pair[0] for pair in PAIRS], "fr": [pair[1] for pair in PAIRS]}


def translations(pairs=PAIRS):
    """The convention of Hugging Face: one column with the pair of each row."""
    return {"id": ["x"] * len(pairs), "translation": [dict(zip(("en", "fr"), pair, strict=True)) for pair in pairs]}


def data_set(folder, *shards, files=None):
    """The folder that `save_to_disk` of the library `datasets` writes."""
    folder.mkdir(parents=True)
    names = [f"data-{number}.arrow" for number, _ in enumerate(shards)]
    for name, shard in zip(names, shards, strict=True):
        table = shard if isinstance(shard, pyarrow.Table) else pyarrow.table(shard)
        with pyarrow.ipc.new_stream(folder / name, table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    named = [{"filename": name} for name in (names if files is None else files)]
    (folder / "state.json").write_text(json.dumps({"_data_files": named, "_fingerprint": "0"}))
    return folder


def parquet_file(folder, columns):
    path = folder / "texts.parquet"
    parquet.write_table(columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns), path)
    return path


def read(path, columns="", languages=("en", "fr")):
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
        (pyarrow.table(TEXTS, pyarrow.schema([("en", pyarrow.large_string()), ("fr", pyarrow.string_view())])), ""),
        (pyarrow.table({name: pyarrow.array(texts).dictionary_encode() for name, texts in TEXTS.items()}), ""),
    ],
)
def test_tables(tmp_path, table, columns):
    assert read(data_set(tmp_path / "set", table), columns) == PAIRS
    if not isinstance(table, pyarrow.Table):
        assert read(parquet_file(tmp_path, table), columns) == PAIRS


def test_a_data_set_has_several_files_and_the_choice_is_reported(tmp_path):
    path = data_set(tmp_path / "set", TEXTS, {"fr": ["quatre"], "en": ["four"]})
    text = ParallelText(path, None, ("fr", "en"))
    assert list(text) == [pair[::-1] for pair in [*PAIRS, ("four", "quatre")]]
    assert text.note == f"{path}: column 2 (fr) is the source, column 1 (en) the target"
    assert languages_of_columns(path, "") == ("en", "fr")
    assert languages_of_columns(parquet_file(tmp_path, translations()), "") == ("en", "fr")


@pytest.mark.parametrize(
    ("table", "columns", "error", "message"),
    [
        ({"a": ["x"], "b": ["y"]}, "", UsageError, "2 columns, and their names .a, b. do not tell en and fr; .*=1,2"),
        (TEXTS, "en,de", UsageError, "has no column de; it has 2 columns: en, fr"),
        ({**TEXTS, "n": [1, 2, 3]}, "en,n", UsageError, "has no column n"),
        ({"n": [1], "list": [["x"]]}, "", InputError, "no column contains text; its columns are n, list"),
        ({"en": ["a", "b"], "fr": ["c", None]}, "", InputError, r"row 2: .* fr is missing \(null\); remove"),
        (translations([("a", "b"), (None, "d")]), "", InputError, "row 2: .*column translation.en is missing"),
        ({"en": ["a\nb"], "fr": ["c"]}, "", InputError, "row 1: .*column en has a line break"),
        ({"en": ["a" * (5 << 20)], "fr": ["c"]}, "", InputError, "row 1: .*column en .*is too long"),
    ],
)
def test_what_is_refused(tmp_path, table, columns, error, message):
    for path in (data_set(tmp_path / "set", table), parquet_file(tmp_path, table)):
        with pytest.raises(error, match=message) as caught:
            read(path, columns)
        assert str(path) in str(caught.value)


def test_a_pair_that_is_missing(tmp_path):
    column = pyarrow.array([{"en": "a", "fr": "b"}, None])
    for path in (data_set(tmp_path / "set", {"translation": column}), parquet_file(tmp_path, {"translation": column})):
        with pytest.raises(InputError, match=r"row 2: .*missing"):
            read(path)


@pytest.mark.parametrize("name", ["../outside.arrow", "/etc/passwd", "..", "", "missing.arrow", 5, None])
def test_a_list_of_files_that_is_hostile(tmp_path, name):
    data_set(tmp_path / "inner", TEXTS)
    (tmp_path / "inner" / "data-0.arrow").rename(tmp_path / "outside.arrow")
    path = data_set(tmp_path / "set", TEXTS, files=[name])
    with pytest.raises(InputError, match="set: cannot be read as a table"):
        read(path)
    for text in ("[]", "{", '{"_data_files": 3}', '{"_data_files": []}'):
        (path / "state.json").write_text(text)
        with pytest.raises(InputError, match="set: cannot be read as a table"):
            read(path)


def test_damaged_tables(tmp_path):
    """Whatever is changed in a file, there is one error, or a text is read."""
    folder = data_set(tmp_path / "set", translations())
    for path, file in ((folder, folder / "data-0.arrow"), (tmp_path / "texts.parquet",) * 2):
        parquet_file(tmp_path, translations())
        whole = file.read_bytes()
        refused = 0
        for place in range(4, len(whole), 7):
            for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
                file.write_bytes(content)
                try:
                    read(path, languages=("en", "fr"))
                except (InputError, UsageError):
                    refused += 1
        assert refused > len(whole) / 14


def test_texts_that_are_not_utf_8(tmp_path):
    """pyarrow does not check them when it reads a table."""
    bad = pyarrow.array([b"a", b"\xff"]).cast(pyarrow.string(), safe=False)
    path = data_set(tmp_path / "set", pyarrow.table({"en": bad, "fr": ["c", "d"]}))
    with pytest.raises(InputError, match=r"set: cannot be read as a table.*UTF8"):
        read(path)


def test_a_long_table_takes_no_more_memory(tmp_path):
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


@pytest.mark.parametrize("kind", ["data sets", "Parquet"])
def test_prep_takes_the_splits_of_a_folder(tmp_path, kind):
    def lines(word, first, last):
        return translations([(f"the {word} {i} .", f"le {word} {i} .") for i in range(first, last)])

    folder = tmp_path / "all"
    for split, ends in (("train", (0, 25, 40)), ("validation", (0, 3)), ("test", (0, 2))):
        parts = [lines(split, *part) for part in pairwise(ends)]
        if kind == "data sets":
            data_set(folder / split, *parts)
            continue
        folder.mkdir(exist_ok=True)
        for number, part in enumerate(parts):
            parquet.write_table(pyarrow.table(part), folder / f"{split}-0000{number}-of-0000{len(parts)}.parquet")
    if kind == "data sets":
        (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    settings = {"languages": ("en", "fr"), "workers": 1, "shortlist": "50"}
    summary = prepare(folder, None, tmp_path / "data", **settings)
    assert {name: split.kept for name, split in summary.splits.items()} == {"train": 40, "dev": 3, "test": 2}
    assert (tmp_path / "data" / "test.fr").read_text() == "le test 0 .\nle test 1 .\n"
    drawn = prepare(folder, None, tmp_path / "drawn", dev_lines=5, test=split_folders(folder)["dev"], **settings)
    assert {name: split.kept for name, split in drawn.splits.items()} == {"train": 35, "dev": 5, "test": 3}
    if kind == "Parquet":
        (folder / "train-00001-of-00002.parquet").unlink()
        with pytest.raises(InputError, match=r"train-00000-of-00002\.parquet: .*train-00001-of-00002\.parquet"):
            prepare(folder, None, tmp_path / "missing", **settings)


def test_the_commands_take_tables_as_other_texts(tmp_path):
    parquet_file(tmp_path, {"id": ["x"] * 3, **TEXTS})
    done = nmtalign(tmp_path, "prep", "texts.parquet")
    messages = "nmtalign: error: texts.parquet: its name contains no language"
    assert (done.returncode, done.stderr.partition("; ")[0]) == (2, messages)
    languages = ("--source-language", "en", "--target-language", "fr")
    done = nmtalign(tmp_path, "prep", *languages, "--dev", "texts.parquet", "texts.parquet", "-o", "d")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d/dev.en").read_text() == "one\n\nthree\n"


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    path = parquet_file(tmp_path, TEXTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'texts.parquet: .*pip install "nmtalign\[datasets\]"'):
        read(path)


def test_the_library_itself_writes_such_folders(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(translations())
    datasets.DatasetDict(train=made, validation=made.select([2, 0])).save_to_disk(tmp_path / "all", num_shards=None)
    assert read(tmp_path / "all" / "train") == PAIRS
    assert read(tmp_path / "all" / "validation") == [PAIRS[2], PAIRS[0]]
    made.to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") == PAIRS
