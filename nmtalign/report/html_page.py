"""A document as one HTML page. The page contains everything it needs and loads nothing, which its policy also forbids.

The template is templates/report.html. Jinja2 escapes every text (autoescape); only pictures, which `inline_svg` has
cleaned, and the page's own style and script are inserted as they are.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nmtalign.errors import UsageError
from nmtalign.report.document import NOTHING, Block, Document, Figure, Heading, plain, printable, spans

Part = tuple[str, str, Any]  # kind, key, block; figures that follow each other are one part
_DROPPED = {"script", "style", "metadata", "title", "foreignObject", "iframe", "a"}  # elements of an SVG
_LOCAL = re.compile(r"url\(\s*(['\"]?)#([^)'\"]+)\1\s*\)")
_ELSEWHERE = re.compile(r"url\(\s*['\"]?(?!#)", re.IGNORECASE)


def to_page(document: Document) -> str:
    """The complete page; equal documents give equal bytes. Raises UsageError for a picture that is no SVG."""
    script = _file("report.js")
    return _environment().get_template("report.html").render(
        document=document,
        top=_parts(document.top, "top"),
        sections=list(_sections(document.blocks)),
        style=Markup(_file("report.css")),  # noqa: S704 - the package's own file
        script=Markup(script),  # noqa: S704
        script_hash=_hash(script).removeprefix("sha256-"),
    )  # fmt: skip


def _sections(blocks: Sequence[Block]) -> Iterator[tuple[str, Heading | None, list[Part]]]:
    """(key, heading of level 2, parts) of each section; blocks before the first heading have no heading."""
    sections: list[tuple[Heading | None, list[Block]]] = [(None, [])]
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2:
            sections.append((block, []))
        else:
            sections[-1][1].append(block)
    for number, (heading, inside) in enumerate(sections):
        if heading or inside:
            key = (heading.key if heading else "") or f"part-{number}"
            yield key, heading, _parts(inside, key)


def _parts(blocks: Sequence[Block], section: str) -> list[Part]:
    parts: list[Part] = []
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
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters.update(spans=spans, plain=plain, svg=_svg)
    environment.globals.update(nothing=NOTHING)
    return environment


def _svg(figure: Figure, key: str) -> Markup:
    return Markup(inline_svg(figure.svg, f"{key}-svg", printable(figure.caption)))  # noqa: S704 - cleaned


def _file(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def content_policy(style: str, script: str) -> str:
    """The policy of a page that runs only its own style and script, and loads nothing."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def inert_json(value: Any) -> str:
    """JSON in which no HTML element can end or begin."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def inline_svg(svg: str, key: str, label: str) -> str:
    """Returns the <svg> element of a picture without scripts, styles and addresses outside of the page.

    Every id in it begins with `key`, so that it differs from those of other pictures. Screen readers read `label`.
    Raises UsageError if the text is not an SVG.
    """
    try:
        root = ElementTree.fromstring(svg.strip())  # noqa: S314 - this program drew the picture
    except ElementTree.ParseError as error:
        raise UsageError(f"{label}: the picture is not an SVG: {error}") from None
    if _local(root.tag) != "svg":
        raise UsageError(f"{label}: the picture is not an SVG, but {_local(root.tag)}")
    _clean(root, key)
    root.attrib.update({"id": key, "role": "img", "aria-label": label})
    root.tail = None
    return ElementTree.tostring(root, encoding="unicode", method="xml")


def _clean(element: ElementTree.Element, key: str) -> None:
    element.tag = _local(element.tag)
    for child in list(element):
        if not isinstance(child.tag, str) or _local(child.tag) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, key)
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib = {name: _renamed(name, value, key) for name, value in attributes.items() if _is_safe(name, value)}


def _is_safe(name: str, value: str) -> bool:
    if name == "href":
        return value.startswith(("#", "data:image/"))
    return not name.lower().startswith("on") and not _ELSEWHERE.search(value)


def _renamed(name: str, value: str, key: str) -> str:
    """The value of an attribute with the new name of each id."""
    if name == "id":
        return f"{key}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{key}-{value[1:]}"
    return _LOCAL.sub(rf"url(#{key}-\2)", value)


def _local(name: str) -> str:
    """The name without its namespace; inside HTML an SVG needs none."""
    return name.rpartition("}")[2]
