"""Elements and escaped text: everything that comes from outside passes through `text` or an attribute of `tag`."""

import html
from collections.abc import Iterable

# Marks that no page may hold: a control character is shown by its picture, half a surrogate pair is none at all.
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys((0x7F, *range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD),
}
NO_VALUE = '<span class="none">–</span>'


def text(value: str) -> str:
    """The text with nothing left in it that a browser could take for markup."""
    return html.escape(value.translate(_SHOWN))


def tag(name: str, content: str = "", **attributes: str | int | bool | None) -> str:
    """An element around markup; `class_` is class and `aria_label` aria-label, True stands bare, None and False not."""
    opening = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    return f"<{name}{opening}>{content}</{name}>"


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


def apart(value: str) -> str:
    """A name that may be written from right to left and disturbs nothing around it."""
    return tag("bdi", text(value))


def count(number: int) -> str:
    """1,234."""
    return f"{number:,}"


def sentences(number: int) -> str:
    """`1 sentence`, `1,234 sentences`."""
    return f"{number:,} sentence{'' if number == 1 else 's'}"


def figure(value: float | None) -> str:
    """Two decimals, as sacreBLEU prints a score; a dash where there is none."""
    return NO_VALUE if value is None else f"{value:.2f}"


def row(cells: Iterable[str], **attributes: str | int | bool | None) -> str:
    """A row of cells."""
    return tag("tr", "".join(cells), **attributes)


def table(
    key: str, caption: str, head: Iterable[str], bodies: Iterable[str], style: str | None = None, **attributes: str
) -> str:
    """A table that scrolls within its own frame (of that style), which the keyboard reaches; `key` is its caption's."""
    inside = tag("caption", tag("span", caption), id=key) + tag("thead", "".join(head)) + "".join(bodies)
    frame = {"class_": "scroll", "role": "region", "aria_labelledby": key, "tabindex": "0", "style": style}
    return tag("div", tag("table", inside, **attributes), **frame)


def section(key: str, title: str, *content: str) -> str:
    """A section of the page under its heading."""
    heading = tag("h2", text(title), id=f"{key}-title")
    return tag("section", heading + "".join(content), id=key, aria_labelledby=f"{key}-title")
