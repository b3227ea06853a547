"""The attention of systems in the sentences in which they differ most, by their models or from alignment files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.errors import InputError, UsageError
from nmtalign.model_files import check_ahead, read_settings
from nmtalign.settings.command_settings import AlignConfig

if TYPE_CHECKING:
    from nmtalign.alignment.heatmap import Panel
    from nmtalign.alignment.links import AlignmentRecord

Line = tuple[int, str, str]  # number from 0, source, translation


@dataclass(frozen=True)
class Attending:
    """A system whose attention is to be shown, and its translation of every line."""

    name: str
    where: Path  # a model directory, or an HDF5 file of alignments whose sentence numbers are lines from 0
    lines: Sequence[str]


def attention(where: Path, lines: Sequence[Line], settings: AlignConfig) -> "list[AlignmentRecord]":
    """The records of chosen lines, in order: by forced decoding with a model, or from a file of alignments.

    Raises UsageError for a model without attention, InputError for a file of other sentences, FormatError for what is
    damaged.
    """
    return _from_model(where, lines, settings) if where.is_dir() else _from_file(where, lines)


def attention_panels(
    systems: Sequence[Attending],
    source: Sequence[str],
    numbers: Sequence[int],
    settings: AlignConfig,
    warn: Callable[[str], None],
) -> "dict[int, list[tuple[str, Panel]]]":
    """(system, panel to draw) of each line, numbered from 0, for each system that has attention.

    `warn` is called for a model without attention. A sentence without words is left out. Raises UsageError if no system
    has attention, and as `attention` does.
    """
    from nmtalign.alignment.heatmap import Panel

    found: dict[int, list[tuple[str, Panel]]] = {number: [] for number in numbers}
    attending = [system for system in systems if not _lacks_attention(system.where)]
    for system in systems:
        if system not in attending:
            warn(f"{system.where}: this model has no attention: there is no picture of it")
    if not attending:
        raise UsageError(
            "--attention: no system has attention; leave it out, or give alignment files with --attention-from"
        )
    for system in attending:
        records = attention(system.where, [(n, source[n], system.lines[n]) for n in numbers], settings)
        for number, record in zip(numbers, records, strict=True):
            if not record.empty():
                found[number].append((system.name, Panel(record, system.name)))
    return found


def drawn(panels: "Sequence[tuple[str, Panel]]", width: int, *, colour: bool = False) -> str:
    """Lines for the terminal: the pictures of one sentence, beside each other if they fit into the width."""
    from nmtalign.alignment.terminal import render_text

    return render_text([panel for _, panel in panels], width, colour=colour) if panels else ""


def svgs(found: "Mapping[int, Sequence[tuple[str, Panel]]]") -> dict[int, list[tuple[str, str]]]:
    """(system, SVG) of each sentence, by its line from 1, for the page; raises UsageError without matplotlib."""
    from nmtalign.alignment.heatmap import heatmap_svg

    return {
        number + 1: [
            (name, heatmap_svg([replace(panel, caption="")], f"attention of {name}, line {number + 1}"))
            for name, panel in panels
        ]
        for number, panels in found.items()
        if panels
    }


def _lacks_attention(where: Path) -> bool:
    return where.is_dir() and read_settings(where)["model"].get("attention") == "none"


def _from_model(folder: Path, lines: Sequence[Line], settings: AlignConfig) -> "list[AlignmentRecord]":
    check_ahead([folder])
    from nmtalign.alignment.aligning import align, load_models

    settings = replace(settings, tokenized=False)
    records = align(load_models([folder], settings), [(source, text) for _, source, text in lines], settings)
    return [replace(record, sentence_id=number) for (number, _, _), record in zip(lines, records, strict=True)]


def _from_file(path: Path, lines: Sequence[Line]) -> "list[AlignmentRecord]":
    from nmtalign.alignment.alignment_file import AlignmentFile

    records = []
    with AlignmentFile(path) as file:
        for number, source, text in lines:
            record = next(iter(file.sentence(number)), None)
            if record is None:
                raise InputError(
                    f"{path}: holds no alignment of line {number + 1} (sentence {number}); "
                    "give the file that `nmtalign translate --alignments` wrote with this translation"
                )
            for side, words, said in (("source", record.source, source), ("translation", record.target, text)):
                if _letters("".join(words)) != _letters(said):
                    raise InputError(
                        f"{path}: sentence {number} has another {side} than line {number + 1} of what is scored "
                        f"({_short(' '.join(words))!r}, not {_short(said)!r}); give the file of this translation"
                    )
            records.append(record)
    return records


def _letters(text: str) -> str:
    """Only the letters and digits, because tokenisers separate and join words differently."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
