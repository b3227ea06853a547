"""Makes an SVG file safe inside a page: no script, no address outside of the page, ids that no other picture has."""

import re
from xml.etree import ElementTree

from nmtalign.errors import UsageError

_DROPPED = {"script", "metadata", "title", "foreignObject", "iframe", "a"}
_LOCAL = re.compile(r"url\(\s*(['\"]?)#([^)'\"]+)\1\s*\)")
_ELSEWHERE = re.compile(r"url\(\s*['\"]?(?!#)|@import", re.IGNORECASE)


def inline_svg(svg: str, key: str, label: str) -> str:
    """Returns the <svg> element of a picture; every id in it begins with `key`, and screen readers read `label`.

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
    """Removes what could act or load, and renames ids, in this element and in all elements within it."""
    element.tag = _local(element.tag)
    for child in list(element):
        if not isinstance(child.tag, str) or _local(child.tag) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, key)
    if element.tag == "style":  # without the key in front its rules would apply to the whole page
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
    """The name without its namespace; inside HTML an SVG needs none."""
    return name.rpartition("}")[2]
