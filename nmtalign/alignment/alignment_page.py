"""One HTML page with everything in it: records, script and style, written block by block in constant memory.

The page loads nothing from a network, and its content security policy forbids it to. `page_data` chooses and packs the
records; view/ contains the template, the style and the script.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import LinkCounts, check_gold, count_links, read_links
from nmtalign.alignment.page_data import (
    BLOCK_CELLS,
    BLOCK_ENTRIES,
    PageEntry,
    pack_weights,
    pack_words,
    sentences,
)
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text, check_other
from nmtalign.report.html_page import content_policy, inert_json
from nmtalign.version import __version__

SCRIPTS = (  # in this order; each uses those before it
    "data", "search", "list", "finder", "curves", "words", "matrix", "reading", "pane", "player", "address", "keys",
    "commands", "app",
)  # fmt: skip
# Attributes of a file that the page shows.
_SHOWN = ("direction", "made_by", "reading", "links_method", "symmetrization", "model_hash", "nmtalign_version")


@dataclass
class PageSummary:
    """Counts of the contents of a page."""

    sentences: int = 0
    entries: int = 0
    bytes: int = 0
    complete: bool = True  # whether the limit left out no sentence
    counts: list[LinkCounts] = field(default_factory=list)  # of each file, with gold links

    def count(self, entries: Sequence[PageEntry]) -> None:
        """Counts a sentence."""
        self.sentences += 1
        self.entries += len(entries)
        for entry in entries:
            if entry.gold is not None:
                self.counts[entry.model] += count_links(entry.record.hard_links, entry.gold)


def write_page(
    files: Sequence[Path],
    output: Path,
    *,
    title: str = "",
    names: Sequence[str] = (),
    numbers: Sequence[range] | None = None,
    limit: int = 0,
    gold: Path | None = None,
    gold_base: int | None = None,
    reverse_gold: bool = False,
) -> PageSummary:
    """Writes the page of one or several alignment files, atomically.

    `names` are those of the files, in their order (default: the file names); the default title is the file names. The
    page shows the sentences `numbers` (as `parse_numbers` returns them; None: all), at most `limit` (0: no limit).
    Raises UsageError if the output is an input, for a number of names other than that of files, and if there is no
    sentence to show; also the errors of `AlignmentFile` and `sentences`.
    """
    if not files:
        raise UsageError("no alignments: give a file of `nmtalign align`")
    if names and len(names) != len(files):
        raise UsageError(f"{len(names)} names for {len(files)} files; give one per file, in their order")
    check_other(output, (*files, gold))
    gold_links = read_links(gold, "gold", gold_base, reverse_gold) if gold else None
    summary = PageSummary(counts=[LinkCounts() for _ in files])
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(AlignmentFile(path)) for path in files]
        if gold_links is not None:
            check_gold(gold_links, opened[0])
        chosen = sentences(opened, numbers, gold_links)
        title = title or ", ".join(path.name for path in files)
        before, after = _template(title)
        with atomic_text(output) as stream:
            for piece in chain([before], _blocks(_limited(chosen, limit, summary))):
                summary.bytes += len(piece.encode())
                stream.write(piece)
            if not summary.sentences:
                raise UsageError(f"{files[0]}: no sentence to show")
            about = _about(opened, names or _short_names(files), title, gold, summary)
            rest = _data("about", inert_json(about)) + after
            summary.bytes += len(rest.encode())
            stream.write(rest)
    return summary


def _limited(found: Iterable[list[PageEntry]], limit: int, summary: PageSummary) -> Iterator[list[PageEntry]]:
    """Yields and counts the first sentences."""
    remaining = iter(found)
    for entries in islice(remaining, limit) if limit else remaining:
        summary.count(entries)
        yield entries
    summary.complete = next(remaining, None) is None


def _blocks(found: Iterable[list[PageEntry]]) -> Iterator[str]:
    """Yields two data elements per block; a sentence stays in one block."""
    block: list[PageEntry] = []
    for entries in found:
        if block and not _fits([*block, *entries]):
            yield _elements(block)
            block = []
        block += entries
    if block:
        yield _elements(block)


def _fits(block: Sequence[PageEntry]) -> bool:
    return len(block) <= BLOCK_ENTRIES and sum(entry.cells() for entry in block) <= BLOCK_CELLS


def _elements(block: Sequence[PageEntry]) -> str:
    return _data("words", pack_words(block)) + _data("weights", pack_weights(block))


def _data(kind: str, text: str) -> str:
    """Returns an element that a browser stores and does not run."""
    return f'<script type="text/plain" data-kind="{kind}">{text}</script>\n'


def _about(
    files: Sequence[AlignmentFile], names: Sequence[str], title: str, gold: Path | None, summary: PageSummary
) -> Mapping[str, Any]:
    """Returns the facts that the page shows about itself."""
    return {
        "title": title,
        "version": __version__,
        "sentences": summary.sentences,
        "entries": summary.entries,
        "complete": summary.complete,
        "records": len(files[0]),
        "gold": gold.name if gold else None,
        "models": [
            {
                "name": name,
                "file": file.path.name,
                "records": len(file),
                "attributes": {
                    key: str(file.attributes[key])
                    for key in _SHOWN
                    if str(file.attributes.get(key, "")) not in ("", "none")
                },
                "counts": {**asdict(counts), **asdict(counts.rates())} if gold else None,
            }
            for name, file, counts in zip(names, files, summary.counts, strict=True)
        ],
    }


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Returns the file names without their ending, with their folders if they are not distinct."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path.with_suffix("")) for path in paths]


def _template(title: str) -> tuple[str, str]:
    """Returns the page before and after the data; the security policy names script and style by their hashes."""
    style, script = _part("page.css"), _script()
    page = Template(_part("page.html"), autoescape=True, keep_trailing_newline=True)
    policy = content_policy(style, script)
    text = page.render(title=title, policy=Markup(policy), style=Markup(style), script=Markup(script))  # noqa: S704
    before, after = text.split("<!-- blocks -->")
    return before, after


def _script() -> str:
    bodies = "\n".join(_part(f"script/{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{bodies}}})();\n'


def _part(name: str) -> str:
    return resources.files(__package__).joinpath("view", name).read_text(encoding="utf-8")
