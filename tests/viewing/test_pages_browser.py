"""The pages of alignments, of a lesson and of a report in a real browser; skipped where chromium is not installed."""

import json
import re

import numpy as np
import pytest
from helpers import browser as driver
from helpers.core_models import spread

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.link_files import read_links
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.lesson import write_lesson
from nmtalign.report.document import DataTable, Document, Figure, Heading, NamedText, SentenceTexts, Span
from nmtalign.report.html_page import to_page
from nmtalign.viewing.alignment_page import write_page

pytestmark = [
    pytest.mark.skipif(not (driver.CHROMIUM and driver.DRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.timeout(900),
]

HOSTILE = "</script><img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
SMALL = [  # (sentence, rank, source, target)
    (0, 0, ["the", "red", "car"], ["la", "voiture", "rouge"]),
    (1, 0, ["a", "house"], ["une", "maison"]),
    (1, 1, ["a", "house"], ["la", "maison", "là"]),
    (2, 0, [HOSTILE, "&amp;"], ["{{script}}", HOSTILE]),
    (3, 0, [], ["rien"]),
    (5, 0, ["été"] * 80, ["word"] * 80),
]


def record(number, rank, source, target):
    """Each target word reads mostly the source word of the same place."""
    rows, columns = len(target) + 1, len(source) + 1
    weights = np.full((rows, columns), 0.2 / max(columns - 1, 1), dtype=np.float32)
    weights[np.arange(rows), np.arange(rows) % columns] = 0.8
    weights *= bool(source and target)
    links = tuple((j, j) for j in range(min(len(source), len(target))))
    log_probs = np.full(rows, -0.5, np.float32)
    return AlignmentRecord(tuple(source), tuple(target), weights, -1.5 - rank, number, log_probs, links, rank=rank)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def browser(folder):
    with driver.Browser(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def small(folder):
    """A page of two files with sentences of every kind, with gold links."""
    for name, entries in (("a", SMALL), ("b", SMALL[:1])):
        with AlignmentWriter(folder / f"{name}.h5", {"direction": "en-fr"}) as writer:
            for entry in entries:
                writer.add(record(*entry))
    (folder / "gold").write_text("0-0 1-2 2p1\n0-0 1-1\n\n\n\n\n")
    gold = read_links(folder / "gold", "gold")
    files = [("a", folder / "a.h5"), ("b", folder / "b.h5")]
    write_page(files, folder / "small.html", gold=gold, title="A <b>title</b>")
    return folder / "small.html"


@pytest.fixture(scope="module")
def lesson(folder, random_model_directory):
    words = ["the", "red", "car", "house", "is", "big", "a", "in", HOSTILE]
    lines = ["the red car is big", "a house", f"the {HOSTILE} house", "a red car is a big red car in the big red house"]
    models = [random_model_directory(folder / "search", words, words, spread)]
    models.append(random_model_directory(folder / "fixed", words, words, spread, attention="none", seed=5))
    (folder / "test.en").write_text("".join(line + "\n" for line in lines))
    write_lesson(models, [folder / "test.en"] * 2, folder / "lesson.html")
    return folder / "lesson.html"


@pytest.fixture(scope="module")
def report(folder):
    rows = [
        (Span(f"{name}{HOSTILE}", "name"), "1", number) for name, number in (("a", "2.5 *"), ("b", "1,000"), ("c", "–"))
    ]
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="300"><style>* { stroke: red }</style></svg>'
    texts = [NamedText("source", Span("x" * 300)), NamedText("a", (Span("word", "wrong", HOSTILE),))]
    blocks = [
        Heading("Scores"),
        DataTable(("system", *(["n"] * 12), "BLEU"), [(row[0], *([row[1]] * 12), row[2]) for row in rows]),
        Figure("", "A figure", svg),
        SentenceTexts("Line 1", texts),
    ]
    (folder / "report.html").write_text(to_page(Document("Report", blocks)), encoding="utf-8")
    return folder / "report.html"


def text(browser, selector):
    return browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def texts(browser, selector):
    return browser.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)


def change(browser, selector, value):
    """Gives an input or a select another value, and the focus."""
    script = "const e = document.querySelector(arguments[0]); e.focus(); e.value = arguments[1];"
    browser.run(f"{script} for (const name of ['input', 'change']) e.dispatchEvent(new Event(name))", selector, value)


@pytest.mark.parametrize("name", ["small", "lesson", "report"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_pages_fit_ask_for_nothing_and_have_two_colour_schemes(browser, request, name, width, scheme):
    browser.size(width, 800)
    browser.media(prefers_color_scheme=scheme)
    browser.requests()
    browser.log()
    page = request.getfixturevalue(name)
    for fragment in ("", "#2", "#5"):
        browser.open(page, fragment, ready="document.readyState === 'complete'")
        assert browser.run("return document.documentElement.scrollWidth") == width
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:", "about:"))] == []
    assert browser.log() == []
    assert browser.run("return [document.title.includes('hit'), document.querySelector('img:not([alt])')]") == [
        False,
        None,
    ]
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == (scheme == "dark")
    unnamed = (
        "return [...document.querySelectorAll('input, button, select, [role=region], [role=img]')].filter(e =>"
        " !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)"
    )
    assert browser.run(unnamed) == []
    browser.media()


def test_a_word_shows_what_it_read_in_the_words_and_in_the_heat_map(browser, small):
    browser.size(1280, 900)
    browser.open(small)
    assert browser.run("return document.title") == "A <b>title</b>"
    words = "return [...document.querySelectorAll('.words.source .word')].slice(0, 4)"
    weights = f"{words}.map(w => +w.style.getPropertyValue('--w'))"
    browser.point(".words.target .word", index=1)
    assert browser.run(weights) == pytest.approx([0.067, 0.8, 0.067, 0.067], abs=0.01)
    assert text(browser, ".reading") == "voiture reads red 0.80, the 0.07, car 0.07, </s> 0.07"
    frame = "return ['y', 'visibility'].map(n => document.querySelector('.map .chosen').getAttribute(n))"
    top, visible = browser.run(frame)
    assert visible == "visible"
    browser.point(".words.source .word", index=2)
    assert text(browser, ".reading").startswith("car is read by rouge 0.80")
    assert browser.run(frame)[0] != top
    browser.point("h1")
    browser.until("return document.querySelector('.reading').textContent.startsWith('Point at a word')")
    greys = browser.run("return [...document.querySelectorAll('.map rect[fill]')].map(r => r.getAttribute('fill'))")
    assert {greys[0], greys[1]} == {"rgb(204,204,204)", "rgb(17,17,17)"}
    kinds = [
        browser.run(f"return document.querySelector('.map').querySelectorAll('.{kind}').length")
        for kind in ("link", "sure", "possible")
    ]
    assert kinds == [3, 2, 1]
    assert "AER 0.60" in text(browser, ".card .quiet")  # 1 - (1 + 1) / (3 + 2)
    assert len(texts(browser, "#panes .card")) == 2


def test_sentences_are_found_ordered_and_stepped_through(browser, small):
    browser.open(small)

    def find(query, order="file"):
        change(browser, "#order", order)
        change(browser, "#query", query)
        return ",".join(texts(browser, "#list b"))

    assert find("maison") == find("UNE") == "1"
    assert find("la") == "0,1"
    assert find("ETE") == "5"  # été
    assert find("red rouge") == "0"
    assert find("5") == "5"
    assert find("", "long") == "5,0,1,2,3"
    assert find("", "aer") == "0,1,3,2,5" or find("", "aer").startswith("2")
    assert find("") == "0,1,2,3,5"
    browser.run("document.activeElement.blur()")
    for key, number in (("Right", 1), ("Right", 2), ("Left", 1)):
        browser.press(key)
        browser.until(f"return location.hash === '#{number}'")
        browser.until(f"return document.getElementById('where').textContent === 'Sentence {number}'")
    browser.until("return document.querySelector('#panes select')")
    change(browser, "#panes select", 1)
    browser.until("return document.querySelectorAll('.words.target .word').length === 4")
    browser.open(small, "#3")
    assert "one side has no words" in text(browser, "#panes")


def test_the_lesson_shows_the_numbers_of_each_step(browser, lesson):
    data = json.loads(re.search(r'data-kind="lesson">(.*?)</script>', lesson.read_text(), re.S)[1])
    browser.size(1280, 900)
    browser.open(lesson)
    browser.run("document.querySelector('#length input').focus()")
    browser.press("Home")
    for sentence in data["sentences"]:
        assert text(browser, "#length output") == f"{len(sentence['source']) - 1} words"
        assert texts(browser, "#energies th[scope=row]") == sentence["source"]
        assert " ".join(sentence["source"][:-1]) in text(browser, "#texts .card")
        changes = [f"{change:.2f}" for change in sentence["changes"]]
        assert texts(browser, "#changes td:nth-child(2)") == changes
        browser.press("Right")
    browser.run("document.querySelector('#step input').focus()")
    browser.press("Right")
    shown = [float(number) for number in texts(browser, "#energies td:nth-child(3)")]
    assert shown == pytest.approx(data["sentences"][-1]["weights"][1], abs=1e-3)
    assert f"“{data['sentences'][-1]['target'][1]}” with the probability" in text(browser, "#written")
    change(browser, "#preset", len(data["presets"]) - 1)
    assert text(browser, "#note") == data["presets"][-1][1]


def test_the_tables_of_a_report_are_sorted_by_their_numbers(browser, report):
    browser.size(1280, 900)
    browser.open(report, ready="document.readyState === 'complete'")
    for order, expected in (("descending", "bac"), ("ascending", "abc"), (None, "abc")):
        browser.run("document.querySelector('th:last-child .sort').click()")
        assert "".join(name[0] for name in texts(browser, "tbody bdi")) == expected
        assert browser.run("return document.querySelector('th:last-child').ariaSort") == order
    assert browser.run("return document.querySelector('thead th .sort').closest('th').cellIndex") == 1
    assert browser.run("const i = document.images[0]; return [i.naturalWidth, i.alt]") == [900, "A figure"]
