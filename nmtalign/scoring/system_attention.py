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

Pair = tuple[int, str, str]  # line from 1, source, translation


@dataclass(frozen=True)
class Attending:
    """A system whose attention is to be drawn, and its translation of every line."""

    name: str
    where: Path  # a model directory, or an HDF5 file of alignments whose sentence numbers are lines from 0
    lines: Sequence[str]


def attention_panels(
    systems: Sequence[Attending],
    source: Sequence[str],
    numbers: Sequence[int],
    settings: AlignConfig,
    warn: Callable[[str], None],
) -> "dict[int, list[tuple[str, Panel]]]":
    """(system, panel to draw) of each line, numbered from 1, for each system that has attention.

    `warn` is called for a model without attention. A sentence without words is left out. Raises UsageError if no system
    has attention, and as `attention` does.
    """
    from nmtalign.alignment.heatmap import Panel

    found: dict[int, list[tuple[str, Panel]]] = {number: [] for number in numbers}
    attending = []
    for system in systems:
        if system.where.is_dir() and read_settings(system.where)["model"].get("attention") == "none":
            warn(f"{system.where}: this model has no attention: there is no picture of it")
        else:
            attending.append(system)
    if not attending:
        raise UsageError(
            "--attention: no system has attention; leave it out, or give alignment files with --attention-from"
        )
    for system in attending:
        pairs = [(number, source[number - 1], system.lines[number - 1]) for number in numbers]
        for number, record in zip(numbers, attention(system.where, pairs, settings), strict=True):
            if not record.empty():
                found[number].append((system.name, Panel(record, system.name)))
    return found


def attention(where: Path, pairs: Sequence[Pair], settings: AlignConfig) -> "list[AlignmentRecord]":
    """The records of chosen lines, in order: by forced decoding with a model, or from a file of alignments.

    Raises UsageError for a model without attention, InputError for a file of other sentences, FormatError for a damaged
    file.
    """
    return _from_model(where, pairs, settings) if where.is_dir() else _from_file(where, pairs)


def drawn(panels: "Sequence[tuple[str, Panel]]", width: int, *, colour: bool = False) -> str:
    """Lines for the terminal: the pictures of one sentence, beside each other if they fit into the width."""
    from nmtalign.alignment.terminal import render_text

    return render_text([panel for _, panel in panels], width, colour=colour) if panels else ""


def svgs(found: "Mapping[int, Sequence[tuple[str, Panel]]]") -> dict[int, list[tuple[str, str]]]:
    """(system, SVG) of each sentence for the page, by line; raises UsageError without matplotlib."""
    from nmtalign.alignment.heatmap import heatmap_svg

    return {
        line: [
            (name, heatmap_svg([replace(panel, caption="")], f"attention of {name}, line {line}"))
            for name, panel in panels
        ]
        for line, panels in found.items()
        if panels
    }


def _from_model(folder: Path, pairs: Sequence[Pair], settings: AlignConfig) -> "list[AlignmentRecord]":
    check_ahead([folder])
    from nmtalign.alignment.forced import align_pairs
    from nmtalign.core.devices import use_threads
    from nmtalign.model_directory import load_model

    use_threads(settings.threads)
    loaded = load_model(folder, device=settings.device, precision=settings.precision)
    records = align_pairs(loaded, [(source, text) for _, source, text in pairs], settings)
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
