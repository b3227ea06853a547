"""A document as one page of HTML with everything in it, which asks no network for anything."""

from importlib import resources
from string import Template

from nmtalign.reproduction.document import Block, Commands, Document, Figure, Heading, Paragraph, Sentence, Table
from nmtalign.scoring.page.markup import apart, row, table, tag, text
from nmtalign.scoring.page.pictures import framed

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$style
td, tbody th { white-space: nowrap; }
td.text, th.text { text-align: start; }
td.text { white-space: normal; overflow-wrap: normal; min-width: 8rem; }
figure.natural svg { width: auto; max-width: 100%; height: auto; }
td.text code { overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
section > p, main > p { max-width: 50rem; margin: .6rem 0; }
.natural .scroll { background: white; padding: .6rem; }
dl.texts > div { display: grid; grid-template-columns: 9rem 1fr; gap: .2rem 1rem; margin: .4rem 0; }
dl.texts dt { color: var(--muted); }
dl.texts dd { margin: 0; }
@media (max-width: 40rem) { dl.texts > div { display: block; } }
</style>
</head>
<body>
<header>
<h1>$title</h1>
<nav aria-label="Contents"><ul role="list">$contents</ul></nav>
</header>
<main id="main">
$body
</main>
</body>
</html>
""")


def to_page(document: Document) -> str:
    """The whole document; its figures are drawn as SVG."""
    sections: list[str] = []
    links: list[str] = []
    for number, block in enumerate(document.blocks):
        if isinstance(block, Heading) and block.level == 2:
            links.append(tag("li", tag("a", text(block.text), href=f"#part-{number}")))
            sections.append("</section>" if len(links) > 1 else "")
            sections.append(
                f'<section aria-labelledby="part-{number}">{tag("h2", text(block.text), id=f"part-{number}")}'
            )
        else:
            sections.append(_block(block, number))
    sections.append("</section>" if links else "")
    style = resources.files("nmtalign.scoring.page").joinpath("page.css").read_text(encoding="utf-8")
    parts = {"title": text(document.title), "style": style, "contents": "".join(links), "body": "\n".join(sections)}
    return _PAGE.substitute(parts)


def _block(block: Block, number: int) -> str:
    match block:
        case Heading():
            return tag(f"h{block.level}", _inline(block.text))
        case Paragraph():
            return tag("p", _inline(block.text))
        case Table():
            return _table(block, number)
        case Figure():
            return framed(block.svg, f"figure-{number}", block.caption, "natural" if block.natural else "plot")
        case Commands():
            return tag("pre", tag("code", text("\n".join(block.lines))))
        case Sentence():
            pairs = (tag("dt", apart(name)) + tag("dd", text(said or "–"), dir="auto") for name, said in block.texts)
            items = [tag("div", pair) for pair in pairs]
            return tag("h3", _inline(block.title)) + tag("dl", "".join(items), class_="texts")


def _inline(value: str) -> str:
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return text(value)
    return "".join(tag("code", text(part)) if number % 2 else text(part) for number, part in enumerate(parts))


def _table(block: Table, number: int) -> str:
    def style(column: int) -> str | None:
        return "text" if column < block.words else None

    head = row(tag("th", _inline(cell), scope="col", class_=style(i)) for i, cell in enumerate(block.head))
    rows = [
        row(
            tag("th", _inline(cell), scope="row") if i == 0 else tag("td", _inline(cell), class_=style(i))
            for i, cell in enumerate(cells)
        )
        for cells in block.rows
    ]
    return table(f"table-{number}", _inline(block.caption), [head], [tag("tbody", "".join(rows))])
