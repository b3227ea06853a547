"""The attention of systems in the sentences in which they differ most, by their models or from alignment files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.errors import InputError, UsageError
from nmtalign.model_directory import read_settings
from nmtalign.scoring.texts import SystemTexts
from nmtalign.settings.command_settings import AlignConfig

if TYPE_CHECKING:
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.viewing.heatmap import Panel

Pair = tuple[int, str, str]  # line from 1, source, translation
Panels = Mapping[int, Sequence[tuple[str, "Panel"]]]  # line from 1: (system, what is drawn)


def attention_sources(systems: Mapping[str, Path | None], given: Sequence[tuple[str, Path]]) -> dict[str, Path]:
    """The file or model that has the attention of each system; raises UsageError if the first two do not have any.

    `systems` are names with the directory of a model, if there is one. `given` are (system, alignment file); files
    without a name belong to the systems in their order.
    """
    found = {name: folder for name, folder in systems.items() if folder}
    unnamed = iter(systems)
    for name, path in given:
        name = name or next(unnamed, "")
        if name not in systems:
            raise UsageError(f"--attention-from {path}: no system has this name; they are {', '.join(systems)}")
        if not path.exists():
            raise UsageError(f"--attention-from {path}: no such file; give one of `nmtalign align` or `translate`")
        found[name] = path
    for name in [*systems][:2]:
        if name not in found:
            raise UsageError(f"--attention: nothing has the attention of {name}; give --attention-from {name}=FILE.h5")
    return found


def attention_panels(
    texts: SystemTexts,
    lines: Sequence[int],
    sources: Mapping[str, Path],
    settings: AlignConfig,
    warn: Callable[[str], None],
) -> Panels:
    """What is to be drawn of some lines (from 1), for each system in `sources` that has attention.

    `sources` are model directories, or HDF5 files of alignments whose sentence numbers are lines from 0. `warn` is
    called for a model without attention. A sentence without words is left out. Raises UsageError if no system has
    attention, InputError for a file of other sentences, FormatError for a damaged file.
    """
    from nmtalign.viewing.heatmap import Panel

    found: dict[int, list[tuple[str, Panel]]] = {line: [] for line in lines}
    attending = []
    for name, where in sources.items():
        if where.is_dir() and read_settings(where)["model"].get("attention") == "none":
            warn(f"{where}: this model has no attention: there is no picture of it")
        else:
            attending.append((name, where))
    if lines and not attending:
        raise UsageError(
            "--attention: no system has attention; leave it out, or give alignment files with --attention-from"
        )
    source = texts.source_lines or []
    for name, where in attending:
        pairs = [(line, source[line - 1], texts.systems[name].lines[line - 1]) for line in lines]
        records = _from_model(where, pairs, settings) if where.is_dir() else _from_file(where, pairs)
        for line, record in zip(lines, records, strict=True):
            if not record.empty():
                found[line].append((name, Panel(record, name)))
    return found


def drawn(panels: "Sequence[tuple[str, Panel]]", width: int, *, colour: bool = False) -> str:
    """Lines for the terminal: the pictures of one sentence, beside each other if they fit into the width."""
    from nmtalign.viewing.heatmap import render_text

    return render_text([panel for _, panel in panels], width, colour=colour) if panels else ""


def svgs(found: Panels) -> dict[int, list[tuple[str, str]]]:
    """(system, SVG) of each sentence for the page, by line; raises UsageError without matplotlib."""
    from nmtalign.viewing.heatmap import heatmap_svg

    return {
        line: [
            (name, heatmap_svg([replace(panel, caption="")], f"attention of {name}, line {line}"))
            for name, panel in panels
        ]
        for line, panels in found.items()
        if panels
    }


def _from_model(folder: Path, pairs: Sequence[Pair], settings: AlignConfig) -> "list[AlignmentRecord]":
    from nmtalign.alignment.aligning import align, load_models

    settings = replace(settings, tokenized=False)
    records = align(load_models([folder], settings), [(source, text) for _, source, text in pairs], settings)
    return [replace(record, sentence_id=line - 1) for (line, _, _), record in zip(pairs, records, strict=True)]


def _from_file(path: Path, pairs: Sequence[Pair]) -> "list[AlignmentRecord]":
    from nmtalign.alignment.alignment_file import AlignmentFile

    records = []
    with AlignmentFile(path) as file:
        for line, source, text in pairs:
            record = next(iter(file.sentence(line - 1)), None)
            if record is None:
                raise InputError(
                    f"{path}: has no alignment of line {line} (sentence {line - 1}); "
                    "give the file that `nmtalign translate --save-alignments` wrote with this translation"
                )
            for side, words, expected in (("source", record.source, source), ("translation", record.target, text)):
                if _letters("".join(words)) != _letters(expected):
                    raise InputError(
                        f"{path}: sentence {line - 1} has another {side} than line {line} of what is scored "
                        f"({_short(' '.join(words))!r}, not {_short(expected)!r}); give the file of this translation"
                    )
            records.append(record)
    return records


def _letters(text: str) -> str:
    """Only the letters and digits, because tokenisers separate and join words differently."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
