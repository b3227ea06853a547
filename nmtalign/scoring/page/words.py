"""How well words are translated, by training frequency and by place, and how many are unknown."""

from collections.abc import Callable

from nmtalign.scoring.page.grids import Group, bar, grid, top_of, value_cell
from nmtalign.scoring.page.markup import apart, count, figure, row, section, table, tag, text
from nmtalign.scoring.report import Report
from nmtalign.scoring.words import UnknownRates, WordCounts, WordTable

Value = Callable[[WordCounts], float | None]


def word_tables(report: Report) -> str:
    """A section a table: F1, precision and recall of every bucket and system."""
    pieces = [
        section(f"words-{number}", words.title[:1].upper() + words.title[1:], _table(report, f"words-{number}", words))
        for number, words in enumerate(report.words)
    ]
    return "".join(pieces)


def _table(report: Report, key: str, words: WordTable) -> str:
    labels = [each.label for each in words.rows]
    sizes = [each.counts[0].reference if each.counts else 0 for each in words.rows]
    groups = [
        _group(words, "F1", lambda counts: counts.f1, lambda counts: ""),
        _group(
            words, "Precision", lambda counts: counts.precision, lambda counts: _of(counts.matches, counts.hypothesis)
        ),
        _group(words, "Recall", lambda counts: counts.recall, lambda counts: _of(_found(counts), counts.reference)),
    ]
    caption = f"F1, precision and recall in percent: {text(words.title)}"
    return grid(f"{key}-table", caption, report, (words.heading, labels), ("reference words", sizes), groups)


def _of(matches: float, words: float) -> str:
    return tag("span", f"{_number(matches)} of {_number(words)}")


def _found(counts: WordCounts) -> float:
    return counts.matches if counts.found is None else counts.found


def _number(words: float) -> str:
    """A number of words, which by place in the sentence need not be a whole one."""
    return count(int(words)) if float(words).is_integer() else f"{words:,.1f}"


def _group(words: WordTable, title: str, value: Value, small: Callable[[WordCounts], str]) -> Group:
    top = top_of(value(counts) for each in words.rows for counts in each.counts)

    def cell(counts: WordCounts) -> str:
        number = value(counts)
        if number is None:
            return value_cell(None)
        shown = tag("div", tag("span", figure(number), class_="value"), class_="score")
        return value_cell(shown, bar(number, top), small(counts))

    return Group(title, [[cell(counts) for counts in each.counts] for each in words.rows])


def unknown_rates(report: Report) -> str:
    """The share of words that are not in the vocabulary, a row a text."""
    rates = report.unknown
    if rates is None:
        return ""
    rows = [row([tag("th", name, scope="row"), tag("td", _percent(rate))]) for name, rate in _texts(report, rates)]
    head = row([tag("th", "Text", scope="col"), tag("th", "Unknown words", scope="col")])
    caption = "Share of words that are not in the vocabulary"
    body = tag("tbody", "".join(rows))
    return section("unknown", "Unknown words", table("unknown-table", caption, [head], [body], class_="scores narrow"))


def _texts(report: Report, rates: UnknownRates) -> list[tuple[str, float]]:
    given = [("Source", rates.source)] if rates.source is not None else []
    systems = zip(report.systems, rates.systems, strict=True)
    return [*given, ("References", rates.reference), *((apart(system.name), rate) for system, rate in systems)]


def _percent(rate: float) -> str:
    return f"{100 * rate:.2f}%"
