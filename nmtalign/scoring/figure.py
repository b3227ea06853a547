"""Pictures of a report: scores over sentence length (the paper's Figure 2), over the place, F1 over frequency."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.figures import check_figure_name, need_matplotlib, save, svg_for_page, usual_settings
from nmtalign.scoring.report import Report
from nmtalign.scoring.words import WordTable


def draw_by_length(report: Report, path: Path, metric: str = "BLEU") -> list[str]:
    """Writes the paper's Figure 2 to a .png, .svg or .pdf file: a metric of the report over length, a line a system.

    Returns what its reader should know, a sentence each. Raises UsageError for a name without a known ending, for a
    report without that metric or without lengths, and where matplotlib is missing.
    """
    raise NotImplementedError


def by_length_svg(report: Report, metric: str = "BLEU") -> str:
    """The figure of `draw_by_length` as an `<svg>` element for a page of HTML; raises as that does."""
    raise NotImplementedError


def by_place_svg(report: Report, metric: str = "BLEU") -> str:
    """The same over the place of the sentences in the text."""
    raise NotImplementedError


def words_svg(table: WordTable, names: Sequence[str]) -> str:
    """F1 of words as bars, a group a row of the table and a bar a system, as an `<svg>` element for a page of HTML."""
    raise NotImplementedError
