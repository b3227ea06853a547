"""Reads an HTML page without a browser."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr"}


class PageReader(HTMLParser):
    """The elements of a page with their attributes, the text of each element, and all nesting errors."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[tuple[str, str]] = []
        self.faults: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def words(self) -> str:
        """The text that a reader sees, without style and script."""
        return "".join(data for tag, data in self.text if tag not in {"style", "script", "title"})

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def check(self) -> None:
        """The page is well nested, loads nothing, runs only its own script, and its ids and links fit together."""
        assert not self.faults
        assert not self.open
        assert len(self.attributes("script")) == 1
        assert not [name for _, attributes in self.elements for name in attributes if name.startswith("on")]
        for _, attributes in self.elements:
            for name in ("href", "src", "xlink:href", "action", "srcset"):
                assert (attributes.get(name) or "#").startswith(("#", "data:"))
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(set(ids)) == len(ids)
        links = [each["href"][1:] for _, each in self.elements if (each.get("href") or "").startswith("#")]
        named = [attributes["aria-labelledby"] for _, attributes in self.elements if "aria-labelledby" in attributes]
        assert {*links, *named} <= set(ids)
