"""Translating and aligning columns of a table, in the worker processes of Ray Data, Spark, datasets and the like.

Such an engine cuts a table into batches, gives each batch as a dict of columns to a function in one of its processes,
and repeats what a process did not finish. The classes here are such functions. They can be pickled at any time, because
they contain only paths and settings. Each process loads the model at its first batch, and keeps it for the others.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nmtalign.errors import InputError, UsageError
from nmtalign.model_directory import Which
from nmtalign.settings.command_settings import AlignConfig, TranslateConfig
from nmtalign.settings.definition import definitions, field_names, written
from nmtalign.settings.presets import settings_of
from nmtalign.settings.workspace import check_keys

if TYPE_CHECKING:
    from nmtalign.alignment.aligning import Models
    from nmtalign.translating.translator import Translator

Config = TypeVar("Config", TranslateConfig, AlignConfig)
StrPath = str | Path

# Settings of `translate` that print more than one text per line, or use the number of the line.
_OF_OUTPUT = ("n_best", "sample", "temperature", "top_k", "seed", "format", "input_format", "word_scores", "alignment")
_MODELS = 4  # the number of models, or ensembles, that a process keeps
_computing = threading.Lock()  # PyTorch's number of threads is a setting of the complete process


class _ColumnFunction(ABC):
    """Adds a column to a batch, computed from its other columns row by row."""

    _inputs: Mapping[str, str]  # the columns that are read, by the keyword arguments that name them
    _output: str

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Returns the columns of a batch and the new one, a list.

        Raises InputError, naming the row, for a value that is no text, and UsageError for columns that do not fit.
        """
        if self._output in batch:
            raise UsageError(f"the batch has a column {self._output!r} already; name another one with output_column")
        columns = [list(_texts(batch, *names)) for names in self._inputs.items()]
        if len(sizes := {len(column) for column in columns}) > 1:
            names, counts = ", ".join(self._inputs.values()), " and ".join(map(str, sorted(sizes)))
            raise UsageError(f"the columns {names} have {counts} rows; they must have the same number")
        rows = list(zip(*columns, strict=True))
        known = [row for row in rows if None not in row]
        with _computing:
            results = iter(self._results(known) if known else ())
        return {**batch, self._output: [None if None in row else next(results) for row in rows]}

    @abstractmethod
    def _results(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[str]:
        """The new text of each row."""


class TranslateBatch(_ColumnFunction):
    """Translates a column: `TranslateBatch("model/")({"text": texts})` returns the batch with a column "translation".

    A text is one line, and its translation is that of `nmtalign translate`, whatever else is in the batch. A line break
    in a text counts as a space. A missing text (None, NaN) has the translation None. All other columns are returned
    unchanged.
    """

    def __init__(
        self,
        model: StrPath,
        *more_models: StrPath,
        text_column: str = "text",
        output_column: str = "translation",
        which: Which = "best",
        **settings: Any,
    ) -> None:
        """Several models form an ensemble. `settings` are those of section [translate], such as beam=5.

        A process uses one thread, unless `threads` or the environment variable OMP_NUM_THREADS gives another number.
        Ray and Spark set that variable to the cores of a worker. Raises UsageError for a wrong setting.
        """
        self._config = _checked("nmtalign.TranslateBatch", TranslateConfig, settings, _OF_OUTPUT)
        self._models, self._which = _absolute(model, *more_models), which
        self._inputs, self._output = {"text_column": text_column}, output_column

    def _results(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[str]:
        translator = _translator(self._models, self._which, self._config)
        return [translation.text for translation in translator.translate([text for (text,) in rows])]


class AlignBatch(_ColumnFunction):
    """Aligns two columns: `AlignBatch("model/")({"source": texts, "target": texts})` adds a column "links".

    The links of a row are those that `nmtalign align --pharaoh` prints, such as "0-0 2-1"; None if a text is missing.
    In all else the class is like `TranslateBatch`.
    """

    def __init__(
        self,
        models: StrPath | Sequence[StrPath],
        *,
        source_column: str = "source",
        target_column: str = "target",
        output_column: str = "links",
        which: Which = "best",
        **settings: Any,
    ) -> None:
        """`models` is one model, the folder of `nmtalign link`, or a forward and a backward model.

        `settings` are those of section [align].
        """
        self._config = _checked("nmtalign.AlignBatch", AlignConfig, settings)
        self._models, self._which = _absolute(*([models] if isinstance(models, str | Path) else models)), which
        self._inputs, self._output = {"source_column": source_column, "target_column": target_column}, output_column

    def _results(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[str]:
        from nmtalign.alignment.aligning import align

        models = _aligners(self._models, self._which, self._config)
        pairs = [(source, target) for source, target in rows]
        return [record.pharaoh() for record in align(models, pairs, _with_threads(self._config))]


@lru_cache(_MODELS)
def _translator(models: Sequence[str], which: Which, config: TranslateConfig) -> "Translator":
    from nmtalign.translating.translator import Translator, load_models

    config = _with_threads(config)
    return Translator(load_models(models, config, which), config, alignments=False)


@lru_cache(_MODELS)
def _aligners(models: Sequence[str], which: Which, config: AlignConfig) -> "Models":
    from nmtalign.alignment.aligning import load_models

    return load_models(list(map(Path, models)), replace(config, which=which))


def _with_threads(config: Config) -> Config:
    """The settings of a worker, which gets one thread if nothing else is known: there is one per core."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return replace(config, threads=config.threads or (int(allowed) if allowed.isdecimal() else 1))


def _checked(origin: str, cls: type[Config], settings: Mapping[str, Any], without: Sequence[str] = ()) -> Config:
    """The settings, with absolute paths; raises UsageError for a wrong one, and for one of `without`."""
    check_keys(origin, settings, field_names(cls))
    for name in without:
        if name in settings:
            setting = written(origin, name, settings[name])
            raise UsageError(
                f"{setting}: a column has the best translation of each row; use nmtalign.Translator instead"
            )
    paths = [name for name, one in definitions(cls).items() if one.is_path and settings.get(name)]
    return settings_of(cls, (origin, {**settings, **{name: _absolute(settings[name])[0] for name in paths}}))


def _absolute(*paths: StrPath) -> tuple[str, ...]:
    """The paths for processes that work in other folders."""
    return tuple(str(Path(path).absolute()) for path in paths)


def _texts(batch: Mapping[str, Sequence[Any]], keyword: str, column: str) -> Iterator[str | None]:
    """The texts of a column; None for a missing one."""
    if column not in batch:
        raise UsageError(f"the batch has no column {column!r}, only {', '.join(batch)}; name it with {keyword}")
    values = batch[column]
    if isinstance(values, str):
        raise UsageError(f"column {column!r} is one text, not a list of texts; call with batches (batched=True)")
    for row, value in enumerate(values):
        missing = value is None or type(value).__name__ == "NAType"  # of pandas
        if missing or (isinstance(value, float | np.floating) and np.isnan(value)):
            yield None
        elif isinstance(value, str):
            yield str(value)
        else:
            raise InputError(f"column {column!r}, row {row} of the batch: {str(value)[:60]!r} is not a text")
