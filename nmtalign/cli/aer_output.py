"""How `aer` prints: tables, a JSON object a system, or comma-separated values."""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nmtalign.alignment.error_analysis import TypeCounts, count_pairs, count_types, total, worst
from nmtalign.alignment.gold import GoldLinks, LinkCounts, f_measure
from nmtalign.alignment.record import Link
from nmtalign.cli.common import escaped, json_text
from nmtalign.cli.tables import Table as Columns
from nmtalign.cli.tables import aligned
from nmtalign.scoring.lengths import Bucket

Table = list[list[str]]
_RATES = ("precision", "recall", "aer", "f1")


@dataclass(frozen=True)
class Wanted:
    """What is printed beside the figures of the whole."""

    buckets: Sequence[Bucket] | None
    by_type: bool
    worst: int
    alpha: float | None


@dataclass(frozen=True)
class System:
    """The links of one file, beside the gold links."""

    name: str
    found: Sequence[frozenset[Link]]
    gold: Sequence[GoldLinks]
    lengths: Sequence[tuple[int, int]]
    lengths_from: str
    sides: Sequence[Any]  # words of the source and of the target, a line a pair, or None
    signature: str

    @cached_property
    def counts(self) -> list[LinkCounts]:
        """Of each pair."""
        return count_pairs(self.found, self.gold)

    def rows(self, wanted: Wanted) -> Iterator[dict[str, Any]]:
        """The figures of each bucket of source lengths; that of lines without a word only where there are any."""
        lengths = np.array([source for source, _ in self.lengths], dtype=np.int64)
        for bucket in wanted.buckets or ():
            members = np.flatnonzero(bucket.members(lengths))
            if len(members) or bucket.label != "0":
                parts = [self.counts[number] for number in members]
                yield {"words": bucket.label, **_figures(parts, wanted.alpha)}

    def whole(self, wanted: Wanted) -> dict[str, Any]:
        """The figures of all pairs."""
        return _figures(self.counts, wanted.alpha)

    def types(self) -> dict[str, TypeCounts]:
        """The counts of each type of link."""
        return count_types(self.found, self.gold, self.lengths)

    def worst(self, wanted: Wanted) -> Iterator[dict[str, Any]]:
        """The worst sentences, lines counted from 1, links as text."""
        for one in worst(self.found, self.gold, wanted.worst):
            links = {
                name: [self._shown(one.number, link) for link in getattr(one, name)] for name in ("wrong", "missed")
            }
            yield {"line": one.number + 1, **_figures([one.counts], wanted.alpha), **links}

    def _shown(self, number: int, link: Link) -> str:
        """`i-j`, and the words where they are known: `3-4 red-rouge`."""
        text = f"{link[0]}-{link[1]}"
        if any(words is None for words in self.sides):
            return text
        return text + " " + "-".join(words[number][at] for words, at in zip(self.sides, link, strict=True))


def _figures(parts: Sequence[LinkCounts], alpha: float | None) -> dict[str, Any]:
    counts = total(parts)
    rates = counts.rates()
    figures: dict[str, Any] = {
        "pairs": len(parts),
        "sure": counts.sure,
        "links": counts.links,
        "links_sure": counts.links_sure,
        "links_possible": counts.links_possible,
    }
    figures |= {name: getattr(rates, name) if counts.links or counts.sure else None for name in _RATES}
    if alpha is not None:
        figures["f_alpha"] = f_measure(rates.precision, rates.recall, alpha) if counts.links or counts.sure else None
    return figures


def print_json(systems: Sequence[System], wanted: Wanted) -> None:
    """An object a line, one a system."""
    for system in systems:
        record: dict[str, Any] = {"name": system.name, **system.whole(wanted)}
        if wanted.alpha is not None:
            record["alpha"] = wanted.alpha
        if wanted.buckets is not None:
            record |= {"lengths_from": system.lengths_from, "by_length": list(system.rows(wanted))}
        if wanted.by_type:
            record |= {"lengths_from": system.lengths_from, "by_type": list(_type_records(system))}
        if wanted.worst:
            record["worst"] = list(system.worst(wanted))
        record["signature"] = system.signature
        sys.stdout.write(json_text(record) + "\n")


def _type_records(system: System) -> Iterator[dict[str, Any]]:
    for name, counts in system.types().items():
        yield {
            "type": name,
            "gold": counts.gold,
            "recalled": counts.recalled,
            "recall": counts.recall,
            "found": counts.found,
            "right": counts.right,
            "precision": counts.precision,
        }


def print_csv(systems: Sequence[System], wanted: Wanted) -> None:
    """A line a figure's row: `part` says what it is of (all, length, type, sentence), `label` of which one."""
    figures = ["pairs", "sure", "links", "links_sure", "links_possible", *_RATES]
    figures += ["f_alpha"] if wanted.alpha is not None else []
    names = ["name", "part", "label", *figures, "signature"]
    writer = csv.DictWriter(sys.stdout, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for system in systems:
        writer.writerow({"name": system.name, "part": "all", **system.whole(wanted), "signature": system.signature})
        for row in system.rows(wanted):
            writer.writerow({"name": system.name, "part": "length", "label": row["words"], **row})
        for name, counts in system.types().items() if wanted.by_type else ():
            row = {"sure": counts.gold, "links": counts.found, "links_sure": counts.recalled}
            row |= {"links_possible": counts.right, "precision": counts.precision, "recall": counts.recall}
            writer.writerow({"name": system.name, "part": "type", "label": name, **row})
        for one in system.worst(wanted):
            writer.writerow({"name": system.name, "part": "sentence", "label": one["line"], **one})


def print_text(systems: Sequence[System], wanted: Wanted) -> None:
    """A row a system, their signatures, then the other tables of each."""
    head, keys = _columns(wanted)
    first = systems[0].whole(wanted)
    possible = sum(len(pair.possible) for pair in systems[0].gold)
    sys.stdout.write(f"pairs: {first['pairs']}  gold: {first['sure']} sure links, {possible} with the possible ones\n")
    rows = [[escaped(system.name), *_cells(system.whole(wanted), keys)] for system in systems]
    _print_table([["links of", *head], *rows])
    sys.stdout.writelines(f"{escaped(system.signature)}\n" for system in systems)
    for system in systems:
        of = f" of {escaped(system.name)}" if len(systems) > 1 else ""
        if wanted.buckets is not None:
            sys.stdout.write(f"\nby words of the source ({escaped(system.lengths_from)}){of}:\n")
            lengths = [[row["words"], *_cells(row, ("pairs", "sure", *keys))] for row in system.rows(wanted)]
            _print_table([["words", "pairs", "sure", *head], *lengths])
        if wanted.by_type:
            _print_types(system, of)
        if wanted.worst:
            _print_worst(system, wanted, of)


def _columns(wanted: Wanted) -> tuple[list[str], tuple[str, ...]]:
    """(headings, keys of the figures)."""
    head, keys = ["found", "precision", "recall", "AER", "F1"], ("links", *_RATES)
    if wanted.alpha is None:
        return head, keys
    return [*head, f"F({wanted.alpha:g})"], (*keys, "f_alpha")


def _print_types(system: System, of: str) -> None:
    sys.stdout.write(f"\nby type of link, and words without one ({escaped(system.lengths_from)}){of}:\n")
    keys = ("gold", "recalled", "recall", "found", "right", "precision")
    _print_table([["type", *keys], *([row["type"], *_cells(row, keys)] for row in _type_records(system))])


def _print_worst(system: System, wanted: Wanted, of: str) -> None:
    rows = list(system.worst(wanted))
    sys.stdout.write(f"\nthe worst sentences{of}:\n" if rows else f"\nno sentence{of} has a mistake\n")
    for row in rows:
        sys.stdout.write(f"line {row['line']}  AER {row['aer']:.4f}\n")
        for name in ("wrong", "missed"):
            sys.stdout.write(f"  {name}: {escaped(', '.join(row[name])) or '-'}\n")


def _cells(figures: dict[str, Any], keys: Sequence[str]) -> list[str]:
    values = [figures[key] for key in keys]
    return ["-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value) for value in values]


def _print_table(table: Table) -> None:
    """The first column to the left, figures to the right."""
    head, *rows = table
    sys.stdout.writelines(f"{line}\n" for line in aligned(Columns(head, rows)))
