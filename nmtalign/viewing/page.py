"""The page kit: one HTML file with everything in it, for alignments, the live page, reports and the server.

A page loads nothing, and its content security policy runs only its own script, so text of a corpus can start nothing.
page.css is the style of all pages. page.js has the parts that they share: pairs of linked words, heat maps, tables,
sliders and bars.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from typing import Any

from nmtalign.text.lines import whole_text


def page(
    title: str,
    content: str,
    scripts: Sequence[str] = (),
    data: Iterable[tuple[str, str]] = (),
    connect: str = "'none'",
    workers: str = "'none'",
) -> Iterator[str]:
    """Yields the parts of a page, so that a large one is never in memory at once.

    `title` is literal text. `content` is HTML: a file of this package, or text that a template has escaped. `scripts`
    are names of files of this package, which run after page.js. `data` are (kind, text), which the scripts read with
    `stored(kind)`: base64, or the result of `inert_json`. `connect` are the addresses that the page may ask,
    `workers` those of its workers.
    """
    heading = escape(whole_text(title))  # the name of a file may have any bytes
    script = '"use strict";\n' + "\n".join(part(name) for name in ("page.js", *scripts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    yield f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-{digest}'; \
style-src 'unsafe-inline'; img-src data:; connect-src {connect}; worker-src {workers}; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{heading}</title>
<link rel="icon" href="data:,">
<style>
{part("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<h1 dir="auto">{heading}</h1>
<main id="main">
{content}</main>
<noscript><p>This page needs JavaScript. It loads nothing from a network.</p></noscript>
"""
    for kind, text in data:
        yield f'<script type="text/plain" data-kind="{kind}">{text}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def part(name: str) -> str:
    """The text of a file of this package."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def inert_json(value: Any) -> str:
    """JSON in which no HTML element can end or begin."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
