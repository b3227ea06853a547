"""A report as one page for a browser: `build_page` puts all its tables, figures and sentences into a single HTML text.

`markup` escapes and writes elements, `pictures` makes an SVG fit to stand in the page; `scores`, `buckets`, `words`,
`sentences` and `about` each write sections of it, and `page` puts them together with page.html, page.css and page.js.
"""

from nmtalign.scoring.page.page import build_page

__all__ = ["build_page"]
