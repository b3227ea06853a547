"""An SVG file made fit to stand in the page beside others: no script, nothing from elsewhere, its ids its own."""

import re
from xml.etree import ElementTree

from nmtalign.errors import UsageError
from nmtalign.scoring.page.markup import tag, text

_DROPPED = {"script", "metadata", "title", "foreignObject", "iframe", "a"}
_LOCAL = re.compile(r"url\(\s*(['\"]?)#([^)'\"]+)\1\s*\)")
_ELSEWHERE = re.compile(r"url\(\s*['\"]?(?!#)|@import", re.IGNORECASE)


def inline_svg(svg: str, key: str, label: str) -> str:
    """The <svg> element of a picture file, its ids begun with `key`, named `label` for those who cannot see it.

    Raises UsageError where the text is no SVG.
    """
    try:
        root = ElementTree.fromstring(svg.strip())  # noqa: S314 - a picture that this program drew
    except ElementTree.ParseError as error:
        raise UsageError(f"{label}: the picture is not an SVG: {error}") from None
    if _local(root.tag) != "svg":
        raise UsageError(f"{label}: the picture is not an SVG, but {_local(root.tag)}")
    _clean(root, key)
    root.attrib.update({"id": key, "role": "img", "aria-label": label})
    root.tail = None
    return ElementTree.tostring(root, encoding="unicode", method="xml")


def framed(svg: str, key: str, caption: str, kind: str) -> str:
    """A figure: the picture in a frame that scrolls where it must, its caption under it."""
    frame = tag(
        "div", inline_svg(svg, f"{key}-svg", caption), class_="scroll", tabindex=0, role="group", aria_label=caption
    )
    return tag("figure", frame + tag("figcaption", text(caption), dir="auto"), id=key, class_=kind)


def _clean(element: ElementTree.Element, key: str) -> None:
    element.tag = _local(element.tag)
    for child in list(element):
        if not isinstance(child.tag, str) or _local(child.tag) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, key)
    if element.tag == "style":  # its rules would hold for the whole page
        rules = element.text or ""
        element.text = "" if _ELSEWHERE.search(rules) else f"#{key} {{ {_renamed(rules, key)} }}"
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    element.attrib.update({name: _value(name, value, key) for name, value in attributes.items() if _kept(name, value)})


def _kept(name: str, value: str) -> bool:
    if name == "href":
        return value.startswith(("#", "data:image/"))
    return not name.lower().startswith("on") and not _ELSEWHERE.search(value)


def _value(name: str, value: str, key: str) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{key}-{value[1:]}"
    return _renamed(value, key)


def _renamed(value: str, key: str) -> str:
    return _LOCAL.sub(rf"url(#{key}-\2)", value)


def _local(name: str) -> str:
    """The name without its namespace, which the page's own kind of SVG has anyway."""
    return name.rpartition("}")[2]
