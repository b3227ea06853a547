"""The page: one HTML file with everything in it, written block by block in constant memory."""

import base64
import contextlib
import hashlib
import html
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nmtalign.alignment.gold import LinkCounts, count_links
from nmtalign.alignment.store import AlignmentFile
from nmtalign.alignment.view.packing import BLOCK_CELLS, BLOCK_ENTRIES, Entry, pack_weights, pack_words
from nmtalign.alignment.view.sentences import GoldLines, sentences
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.version import __version__

SCRIPTS = (  # in this order, each uses those before it
    "data", "search", "list", "finder", "curves", "words", "matrix", "reading", "pane", "player", "address", "keys",
    "commands", "app",
)  # fmt: skip
_BLOCKS = "<!-- blocks -->"


@dataclass(frozen=True)
class PageOptions:
    """What goes into the page and what it is called."""

    title: str = ""  # the names of the files where there is none
    names: Sequence[str] = ()  # of the files, in their order; the files' own where there are none
    numbers: Sequence[range] | None = None  # sentences, as `parse_numbers` gives them
    limit: int = 0  # sentences at the most; 0 = all
    gold: Path | None = None
    gold_base: int | None = None


@dataclass
class PageSummary:
    """What a page holds."""

    sentences: int = 0
    entries: int = 0
    bytes: int = 0
    complete: bool = True  # no sentence was left out because of the limit
    counts: list[LinkCounts] = field(default_factory=list)  # of each file, where there is gold

    def count(self, entries: Sequence[Entry]) -> None:
        """Takes a sentence in."""
        self.sentences += 1
        self.entries += len(entries)
        for entry in entries:
            if entry.gold is not None:
                self.counts[entry.model] += count_links(entry.record.hard_links, entry.gold)


def write_page(files: Sequence[Path], output: Path, options: PageOptions | None = None) -> PageSummary:
    """Writes the page of one or several alignment files, whole or not at all.

    Raises UsageError where the output is one of the inputs, where there are more names than files or no sentence, and
    what `AlignmentFile` and `sentences` raise for a file.
    """
    options = options or PageOptions()
    _check(files, output, options)
    gold = GoldLines(options.gold, options.gold_base) if options.gold else None
    summary = PageSummary(counts=[LinkCounts() for _ in files])
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(AlignmentFile(path)) for path in files]
        chosen = sentences(opened, options.numbers, gold)
        title = options.title or ", ".join(path.name for path in files)
        before, after = _template(title)
        with atomic_text(output) as stream:
            for piece in chain([before], _blocks(_limited(chosen, options.limit, summary))):
                summary.bytes += len(piece.encode())
                stream.write(piece)
            if not summary.sentences:
                raise UsageError(f"{files[0]}: no sentence to show")
            rest = _data("about", _inert(_about(opened, title, options, summary))) + after
            summary.bytes += len(rest.encode())
            stream.write(rest)
    return summary


def _check(files: Sequence[Path], output: Path, options: PageOptions) -> None:
    if not files:
        raise UsageError("no alignments: give a file that nmtalign align wrote")
    if options.names and len(options.names) != len(files):
        raise UsageError(f"{len(options.names)} names for {len(files)} files; give one a file, in their order")
    for path in (*files, options.gold):
        if path and output.exists() and path.exists() and os.path.samefile(path, output):  # noqa: PTH121
            raise UsageError(f"{output}: is read and cannot be written; give the page another name with -o")


def _limited(found: Iterable[list[Entry]], limit: int, summary: PageSummary) -> Iterator[list[Entry]]:
    """The first sentences, counted."""
    remaining = iter(found)
    for entries in islice(remaining, limit) if limit else remaining:
        summary.count(entries)
        yield entries
    summary.complete = next(remaining, None) is None


def _blocks(found: Iterable[list[Entry]]) -> Iterator[str]:
    """Data elements, two a block; a sentence stays in one block."""
    block: list[Entry] = []
    for entries in found:
        if block and not _fits([*block, *entries]):
            yield _elements(block)
            block = []
        block += entries
    if block:
        yield _elements(block)


def _fits(block: Sequence[Entry]) -> bool:
    return len(block) <= BLOCK_ENTRIES and sum(entry.cells() for entry in block) <= BLOCK_CELLS


def _elements(block: Sequence[Entry]) -> str:
    return _data("words", pack_words(block)) + _data("weights", pack_weights(block))


def _data(kind: str, text: str) -> str:
    """An element that a browser keeps and does not run."""
    return f'<script type="text/plain" data-kind="{kind}">{text}</script>\n'


def _inert(value: Any) -> str:
    """JSON in which no element can end or begin."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _about(files: Sequence[AlignmentFile], title: str, options: PageOptions, summary: PageSummary) -> Mapping[str, Any]:
    """What the page says of itself."""
    names = options.names or _short_names([file.path for file in files])
    return {
        "title": title,
        "version": __version__,
        "sentences": summary.sentences,
        "entries": summary.entries,
        "complete": summary.complete,
        "records": len(files[0]),
        "gold": options.gold.name if options.gold else None,
        "models": [
            {
                "name": name,
                "file": file.path.name,
                "records": len(file),
                "attributes": _known(file.attributes),
                "counts": {**asdict(counts), **asdict(counts.rates())} if options.gold else None,
            }
            for name, file, counts in zip(names, files, summary.counts, strict=True)
        ],
    }


def _known(attributes: Mapping[str, Any]) -> dict[str, str]:
    """What a file says of how it came about."""
    values = {key: str(attributes.get(key, "")) for key in _SHOWN}
    return {key: value for key, value in values.items() if value not in ("", "none")}


_SHOWN = ("direction", "made_by", "reading", "links_method", "symmetrization", "model_hash", "nmtalign_version")


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The files' names without their ending, or with their folders where these are the same."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path.with_suffix("")) for path in paths]


# --- the parts that come with the package ---


def _template(title: str) -> tuple[str, str]:
    """The page before and after the data; script and style are named by their hashes in the security policy."""
    style, script = _part("page.css"), _script()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"title": html.escape(title), "policy": policy, "style": style, "script": script}
    page = _part("page.html")
    before, after = page.split(_BLOCKS)
    return _filled(before, parts), _filled(after, parts)


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """The text with each `{{name}}` replaced, and nothing that comes in looked at again."""
    pieces = text.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        filled += [parts[name], rest]
    return "".join(filled)


def _script() -> str:
    bodies = "\n".join(_part(f"script/{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{bodies}}})();\n'


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
