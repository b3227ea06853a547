"""Tables of parallel texts: Parquet files, and data sets that the library `datasets` has saved to a folder.

pyarrow reads them in batches. Nothing in a folder is executed, and its list of files can name only files of the folder.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from nmtalign.errors import InputError, UsageError
from nmtalign.files import open_regular, read_json
from nmtalign.text.lines import LONGEST_LINE

_LIST, _SPLITS = "state.json", "dataset_dict.json"  # of a data set: its files; of a folder with a data set per split
_SETS = {"train": "train", "dev": "validation", "test": "test"}
_FIRST = re.compile(r"(.+)-0{5}-of-(\d{5})\.parquet")  # the first file of a table in several, as Hugging Face names it
_PAIRS = "translation."  # begins the names of the texts in a column of pairs, a convention of Hugging Face
_TEXT = ("string", "large_string", "string_view")  # types of a column
_ROWS, _BUFFER = 1000, 1 << 20  # rows of a batch; bytes that are read at once


def is_table(path: Path) -> bool:
    """Whether a path is a Parquet file, or the folder of a data set."""
    if not path.is_file():
        return (path / _LIST).is_file()
    with contextlib.suppress(OSError), open_regular(path) as stream:
        return stream.read(5) == b"PAR1\x15"  # a TSV file may begin with PAR1, too
    return False


def split_folders(folder: Path) -> dict[str, Path]:
    """The tables train, dev and test of a folder with a data set, or Parquet files, per split; {} for other folders."""
    found = {name: folder / split for name, split in _SETS.items() if (folder / split / _LIST).is_file()}
    if not (folder / _SPLITS).is_file():
        found = {name: path for name, split in _SETS.items() for path in folder.glob(f"{split}-00000-of-*.parquet")}
    return found if "train" in found else {}


def text_columns(path: Path) -> Mapping[str, str]:
    """The columns with text: their names for the user, and their names in the file.

    If there is a column `translation` of pairs, they are its texts. Raises InputError for a table without text.
    """
    with _errors(path):
        schema = next(_batches(path)).schema
    kinds = {one.name: str(one.type).removeprefix("dictionary<values=").partition(",")[0] for one in schema}
    texts = [name for name, kind in kinds.items() if kind in _TEXT]
    if not texts:
        raise InputError(f"{path}: no column contains text; its columns are {', '.join(schema.names)[:200]}")
    parts = {name.removeprefix(_PAIRS): name for name in texts if name.startswith(_PAIRS)}
    return parts or {name: name for name in texts}


def column_pairs(path: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The texts of two columns, by their names in the file.

    Raises InputError naming the row for a missing text or one that is no line, and for a damaged table.
    """
    with _errors(path):
        batches = (batch.select(columns).columns for batch in _batches(path, columns))
        rows = chain.from_iterable(zip(*(column.to_pylist() for column in batch), strict=True) for batch in batches)
        for row, pair in enumerate(rows, 1):
            for name, text in zip(columns, pair, strict=True):
                if not isinstance(text, str) or "\n" in text or len(text) > LONGEST_LINE:
                    fault = "has a line break, or is too long" if text else "is missing (null)"
                    raise InputError(f"{path}: row {row}: the text of column {name} {fault}; remove or change the row")
            yield pair


def _batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The rows in batches, as tables whose columns have no parts; before the rows of each file an empty table."""
    import pyarrow
    from pyarrow import parquet

    for file in _files(path):
        with open_regular(file) as stream:
            if path.is_file():
                table = parquet.ParquetFile(stream, buffer_size=_BUFFER)
                schema, batches = table.schema_arrow, table.iter_batches(_ROWS, columns=columns)
            else:
                batches = pyarrow.ipc.open_stream(stream)
                schema = batches.schema
            yield schema.empty_table().flatten()
            for batch in batches:
                batch.validate(full=True)  # the offsets of a damaged file may point outside of its memory
                yield pyarrow.Table.from_batches([batch]).flatten()


def _files(path: Path) -> list[Path]:
    """The files of a table, in their order; the first of several Parquet files stands for all."""
    if match := _FIRST.fullmatch(path.name):
        return [path.with_name(f"{match[1]}-{number:05}-of-{match[2]}.parquet") for number in range(int(match[2]))]
    if path.is_file():
        return [path]
    names = [one["filename"] for one in read_json(path / _LIST)["_data_files"]]
    if not names or any(Path(name).name != name for name in names):
        raise ValueError(f"{_LIST} names no files of this folder")
    return [path / name for name in names]


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turns the errors of pyarrow, and of a list of files that is damaged, into one InputError."""
    try:
        yield
    except ImportError:
        raise UsageError(f'{path}: tables need pyarrow: pip install "nmtalign[datasets]"') from None
    except (OSError, ValueError, LookupError, TypeError, NotImplementedError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: cannot be read as a table: {reason}; is it complete?") from None
