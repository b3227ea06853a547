"""A document as one HTML page. The page contains everything it needs and loads nothing, which its policy also forbids.

The template is templates/report.html. Jinja2 escapes every text (autoescape); only pictures, which `inline_svg` has
cleaned, and the page's own style and script are inserted as they are.
"""

import base64
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nmtalign.report.document import NOTHING, SIGNS, Block, Document, Figure, Heading, plain, printable, spans
from nmtalign.report.inline_svg import inline_svg


@dataclass
class _Section:
    """A section of the page; the blocks before the first heading are a section without a title."""

    key: str
    heading: Heading | None
    parts: list[tuple[str, str, Any]] = field(default_factory=list)  # (kind, key, block or figures)


def to_page(document: Document) -> str:
    """The whole document, the same bytes for the same document; raises UsageError for a picture that is no SVG."""
    script = _file("report.js")
    return _environment().get_template("report.html").render(
        document=document,
        top=_parts(document.top, "top"),
        sections=list(_sections(document.blocks)),
        style=Markup(_file("report.css")),  # noqa: S704 - the package's own file
        script=Markup(script),  # noqa: S704
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
    )  # fmt: skip


def _sections(blocks: Sequence[Block]) -> Iterator[_Section]:
    """The blocks under their headings of level 2."""
    number, opened = 0, list[Block]()
    heading: Heading | None = None
    for block in (*blocks, None):
        if block is not None and not (isinstance(block, Heading) and block.level == 2):
            opened.append(block)
            continue
        if heading or opened:
            key = (heading.key if heading else "") or f"part-{number}"
            yield _Section(key, heading, _parts(opened, key))
        number, opened, heading = number + 1, [], block


def _parts(blocks: Sequence[Block], section: str) -> list[tuple[str, str, Any]]:
    """(kind, key, block), with figures that follow each other as one part."""
    parts: list[tuple[str, str, Any]] = []
    for is_figure, group in groupby(blocks, lambda block: isinstance(block, Figure)):
        for block in [list(group)] if is_figure else group:
            kind = "Figures" if isinstance(block, list) else type(block).__name__
            parts.append((kind, getattr(block, "key", "") or f"{section}-{len(parts)}", block))
    return parts


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nmtalign.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_writable,
    )
    environment.filters.update(spans=spans, plain=plain, svg=_svg)
    environment.globals.update(signs=SIGNS, nothing=NOTHING)
    return environment


def _writable(value: Any) -> Any:
    """The value as HTML may contain it."""
    return value if isinstance(value, Markup) else printable(str(value))


def _svg(figure: Figure, key: str) -> Markup:
    label = printable(figure.caption)
    return Markup(inline_svg(figure.svg, f"{key}-svg", label))  # noqa: S704 - cleaned


def _file(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")
