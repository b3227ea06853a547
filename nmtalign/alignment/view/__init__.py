"""Alignments as one page for a browser: `write_page` puts records, script and style into a single HTML file.

`sentences` chooses what is shown, `packing` makes it small, `page` writes the file; page.html, page.css and script/
are what the browser gets. The page asks no network for anything, and its content security policy forbids it to.
"""

from nmtalign.alignment.view.page import PageOptions, PageSummary, write_page
from nmtalign.alignment.view.sentences import parse_numbers

__all__ = ["PageOptions", "PageSummary", "parse_numbers", "write_page"]
