"""The page of a report in a real headless browser; skipped where Debian's chromium is not installed."""

import dataclasses
from pathlib import Path

import pytest
from helpers import browser as driver
from helpers import score_example as example

from nmtalign.scoring.score_document import build_page

pytestmark = [
    pytest.mark.skipif(not (driver.CHROMIUM and driver.DRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.timeout(900),
]

LOADED = "document.readyState === 'complete'"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="300" viewBox="0 0 900 300">'
    '<style>* { stroke: red }</style><g style="fill: green"><rect width="900" height="300"/></g></svg>'
)
# Elements that extend beyond the right edge and are not in a scrolling frame.
OUTSIDE = """
return [...document.querySelectorAll('body *')].filter((element) =>
  !element.parentElement.closest('.scroll') && element.getBoundingClientRect().right > innerWidth + 1
).map((element) => element.outerHTML.slice(0, 99));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def browser(folder):
    with driver.Browser(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(folder) -> Path:
    path = folder / "report.html"
    pictures = {42: [("rnnencdec-50", SVG), ("rnnsearch-30", SVG)]}
    text = build_page(example.report(), title="Report", figures=[("Figure 2", SVG)], pictures=pictures)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def many(folder) -> Path:
    """Ten systems with long names."""
    report = example.report()
    systems = [
        dataclasses.replace(report.systems[i % 3], name=f"a-system-of-a-rather-long-name-{i}") for i in range(10)
    ]
    words = [
        dataclasses.replace(
            table, rows=tuple(dataclasses.replace(row, counts=(row.counts * 4)[:10]) for row in table.rows)
        )
        for table in report.words
    ]
    unknown = dataclasses.replace(report.unknown, systems=(0.01,) * 10)
    report = dataclasses.replace(report, systems=tuple(systems), words=tuple(words), unknown=unknown)
    path = folder / "many.html"
    path.write_text(build_page(report, title="x" * 200), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [320, 400, 1280])
@pytest.mark.parametrize("name", ["page", "many"])
def test_nothing_but_tables_is_wider_than_the_window(browser, request, name, width):
    browser.size(width, 800)
    browser.open(request.getfixturevalue(name), ready=LOADED)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(OUTSIDE) == []


def test_it_asks_for_nothing_and_complains_of_nothing(browser, page):
    browser.log()
    browser.requests()
    browser.open(page, ready=LOADED)
    asked = [address for address in browser.requests() if not address.startswith(("file:", "data:", "about:"))]
    assert asked == []
    assert browser.log() == []
    assert browser.run("return document.title") == "Report"


def test_the_first_column_stays_when_a_table_is_scrolled(browser, many):
    browser.size(500, 800)
    browser.open(many, ready=LOADED)
    places = browser.run(
        "const frame = document.querySelector('#length-0 .scroll');"
        "const place = (name) => frame.querySelector(name).getBoundingClientRect().left;"
        "const before = [place('tbody th.short'), place('td:last-child')]; frame.scrollLeft = 300;"
        "return [...before, place('tbody th.short'), place('td:last-child')];"
    )
    assert places[2] == pytest.approx(places[0], abs=1)
    assert places[3] == pytest.approx(places[1] - 300, abs=1)


def test_the_style_of_a_picture_does_not_reach_the_page(browser, page):
    browser.open(page, ready=LOADED)
    stroke = "return getComputedStyle(document.querySelector(arguments[0])).stroke"
    assert browser.run(stroke, "#figure-0-svg rect") == "none"
    assert browser.run(stroke, ".bar rect") == "none"


def test_a_table_is_sorted_by_a_key_and_put_back(browser, page):
    browser.open(page, ready=LOADED)

    def names():
        return browser.run("return [...document.querySelectorAll('#scores tbody bdi')].map((e) => e.textContent)")

    first = names()
    for order, expected in (("descending", first[::-1]), ("ascending", first), (None, first)):
        browser.run("document.querySelector('#scores .sort').focus()")
        browser.press("Enter")
        assert names() == expected
        found = "return document.querySelector('#scores th:nth-child(2)').getAttribute('aria-sort')"
        assert browser.run(found) == order


def test_a_signature_is_selected_to_be_copied(browser, page):
    browser.size(1280, 800)
    browser.open(page, ready=LOADED)
    browser.run("document.querySelector('button[data-copies]').click()")
    assert browser.run("return getSelection().toString()").strip() == example.SIGNATURES[0]


def test_dark_and_light_pages_have_different_colours(browser, page):
    browser.open(page, ready=LOADED)
    papers = []
    for scheme in ("light", "dark"):
        browser.media(prefers_color_scheme=scheme)
        papers.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert papers == ["rgb(247, 245, 240)", "rgb(21, 23, 27)"]
