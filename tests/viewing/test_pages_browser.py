"""The pages of alignments, of a model and of a report in a real browser; skipped where chromium is not installed."""

import re

import numpy as np
import pytest
from helpers import browser as driver
from helpers.core_models import spread

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.link_files import read_links
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.live import write_live_page
from nmtalign.report.document import DataTable, Document, Figure, Heading, NamedText, SentenceTexts, Span
from nmtalign.report.html_page import to_page
from nmtalign.viewing.alignment_page import write_page

pytestmark = [driver.needs_browser, pytest.mark.timeout(900)]

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
def live(folder, random_model_directory):
    words = ["the", "red", "car", "house", "is", "big", "a", "in", HOSTILE]
    lines = ["the red car is big", "a house", f"the {HOSTILE} house", "a red car is a big red car in the big red house"]

    def adjust(model):
        spread(model)
        model.readout.output_bias[0] -= 5  # translations with several words

    models = [random_model_directory(folder / "search", words, words, adjust)]
    models.append(random_model_directory(folder / "fixed", words, words, adjust, attention="none", seed=5))
    (folder / "test.en").write_text("".join(line + "\n" for line in lines))
    write_live_page(models, [folder / "test.en"] * 2, folder / "live.html")
    return folder / "live.html"


@pytest.fixture(scope="module")
def report(folder):
    figures = ("a", "2.5 *"), ("c", "–"), ("b", "1,000"), ("d", "[3.00, 4.00]")
    rows = [(Span(f"{name}{HOSTILE}", "name"), "1", number) for name, number in figures]
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="300"><style>* { stroke: red }</style></svg>'
    texts = [NamedText("source", Span("x" * 300)), NamedText("a", (Span("word", "wrong", HOSTILE),))]
    blocks = [
        Heading("Scores"),
        DataTable(
            ("system", *(["n"] * 12), "bar", "BLEU"),
            [(row[0], *([row[1]] * 12), "██", row[2]) for row in rows],
            "word " * 99,
        ),
        Figure("", "A figure", svg),
        Figure("", "A heat map", svg.replace("</svg>", '<image href="data:," /></svg>')),
        SentenceTexts("Line 1", texts),
    ]
    (folder / "report.html").write_text(to_page(Document("Report", blocks)), encoding="utf-8")
    return folder / "report.html"


def text(browser, selector):
    return browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def change(browser, selector, value):
    """Gives an input or a select another value, and the focus."""
    script = "const e = document.querySelector(arguments[0]); e.focus(); e.value = arguments[1];"
    browser.run(f"{script} for (const name of ['input', 'change']) e.dispatchEvent(new Event(name))", selector, value)


@pytest.mark.parametrize("name", ["small", "live", "report"])
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
    wide = "e => e.textContent && e.offsetWidth > e.closest('.scroll').clientWidth"
    assert not browser.run(f"return [...document.querySelectorAll('caption')].some({wide})")
    assert browser.requests() == []
    assert browser.log() == []
    script = "return [document.title.includes('hit'), document.querySelector('img:not([alt])')]"
    assert browser.run(script) == [False, None]
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == (scheme == "dark")
    filters = browser.run("return [...document.images].map(e => getComputedStyle(e).filter.slice(0, 6))")
    assert name != "report" or filters == ["invert" if scheme == "dark" else "none", "none"]
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
    counted = "return document.querySelector('.map').querySelectorAll('.{}').length"
    kinds = [browser.run(counted.format(kind)) for kind in ("link", "sure", "possible")]
    assert kinds == [3, 2, 1]
    assert "AER 0.60" in text(browser, ".card .quiet")  # 1 - (1 + 1) / (3 + 2)
    assert len(browser.texts("#panes .card")) == 2
    assert len(browser.texts(".words.target .word")) == 2 * 4
    # In a line from right to left, </s> is still written from left to right, and its brackets are not mirrored.
    places = browser.run(
        "const line = document.querySelector('.words.target'), letters = line.lastElementChild.firstChild;"
        "line.dir = 'rtl'; const range = new Range(); return [0, 3].map(place => {"
        "range.setStart(letters, place); range.setEnd(letters, place + 1); return range.getBoundingClientRect().x })"
    )
    assert places[0] < places[1]
    write_page([("a", small.with_name("a.h5"))], small.with_name("bare.html"), end=False)
    browser.open(small.with_name("bare.html"))
    assert browser.texts(".words.target .word") == ["la", "voiture", "rouge"]
    browser.point(".words.target .word", index=2)
    assert text(browser, ".reading") == "rouge reads car 0.80, the 0.07, red 0.07"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_word_with_the_largest_weight_and_a_placeholder_are_legible(browser, small, scheme):
    def luminance(colour):
        linear = [((c / 255 + 0.055) / 1.055) ** 2.4 if c > 10 else c / 255 / 12.92 for c in colour[:3]]
        return np.dot(linear, [0.2126, 0.7152, 0.0722]) + 0.05

    browser.media(prefers_color_scheme=scheme)
    browser.open(small)
    browser.run("document.querySelector('.word').style.setProperty('--w', 1)")
    browser.run("document.querySelector('#query').placeholder = 'hint'")
    names = [(".word", "color"), ("#query", "color", "::placeholder")]
    names += [(".word", "backgroundColor"), (".card", "backgroundColor")]
    colour = "return getComputedStyle(document.querySelector(arguments[0]), arguments[2])[arguments[1]]"
    ink, hint, mark, card = (np.array(re.findall(r"[\d.]+", browser.run(colour, *name)), float) for name in names)
    around = mark[3] * mark[:3] + (1 - mark[3]) * card[:3]
    for pair in ((ink, around), (hint, card)):
        darker, lighter = sorted(map(luminance, pair))
        assert lighter / darker >= 4.5  # WCAG 2, level AA
    browser.media()


def test_a_printed_sentence_begins_on_the_first_page_in_its_full_width(browser, small):
    browser.size(1100, 900)  # landscape
    browser.open(small)
    browser.command("Emulation.setEmulatedMedia", media="print")
    left, top, width = browser.run(
        "const r = document.querySelector('article').getBoundingClientRect(); return [r.x, r.y, r.width]"
    )
    browser.command("Emulation.setEmulatedMedia", media="")
    assert (left, width) == (0, 1100)
    assert top < 150


def test_words_from_right_to_left_have_their_order_in_the_list_in_the_line_and_for_the_arrow_keys(browser, folder):
    with AlignmentWriter(folder / "rtl.h5", {"direction": "en-he"}) as writer:
        writer.add(record(0, 0, ["😀" * 30, *["word"] * 79], ["שלום", "(", "abc", ")"] * 20))
    write_page([("rtl", folder / "rtl.h5")], folder / "rtl.html")
    browser.size(1280, 900)
    browser.open(folder / "rtl.html")
    styles = "return [...document.querySelectorAll('.target .word')].map(e => getComputedStyle(e)).map({})"
    assert set(browser.run(styles.format("style => style.direction"))) == {"rtl"}
    bases = ["plaintext", "isolate", "plaintext", "isolate"] * 20 + ["plaintext"]  # the last is </s>
    assert browser.run(styles.format("style => style.unicodeBidi")) == bases
    first_letter, entry = browser.run(
        "const range = new Range(), entry = document.querySelector('#list a');"
        "range.setStart(entry.lastElementChild.firstChild, 0); range.setEnd(entry.lastElementChild.firstChild, 1);"
        "return [range, entry].map(one => one.getBoundingClientRect().right)"
    )
    assert entry - 20 < first_letter < entry  # the first word is the rightmost one, and is visible
    browser.run("document.querySelector('.target .word').focus()")
    browser.press("Left", "Left")
    assert browser.run("return document.activeElement.textContent") == "abc"
    assert browser.texts(".reading bdi")[:2] == ["abc", "word"]
    assert f"{'😀' * 27}…" in browser.texts(".map text")  # cut between two emoji, not inside one


def test_sentences_are_found_ordered_and_stepped_through(browser, small):
    browser.open(small)

    def find(query, order="file"):
        change(browser, "#order", order)
        change(browser, "#query", query)
        return ",".join(browser.texts("#list b"))

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
    browser.run("document.querySelector('.skip').click(); document.querySelector('.target .word').focus()")
    browser.press("End", "Right")
    assert browser.run("return document.activeElement.textContent") == "</s>"  # nothing is behind it
    assert text(browser, "#where") == "Sentence 1"
    assert browser.run("return document.getElementById('where').ariaLive") == "polite"  # it is spoken
    browser.open(small, "#5")
    browser.size(400, 900)
    browser.run("document.querySelector('[aria-label=\"Heat map\"]').focus()")
    browser.press("Right")
    browser.until("return document.activeElement.scrollLeft")
    assert text(browser, "#where") == "Sentence 5"
    browser.size(400, 400)
    browser.open(small)
    browser.run("document.getElementById('next').scrollIntoView()")
    before = browser.run("return scrollY")
    browser.point("#next", click=True)
    browser.until("return document.getElementById('where').textContent === 'Sentence 1'")
    assert browser.run("return scrollY") == before > 0  # the button is where it was
    browser.open(small, "#3")
    assert "one side has no words" in text(browser, "#panes")


def test_the_live_page_translates_what_is_typed(browser, live):
    browser.size(1280, 900)
    browser.log()
    browser.requests()
    browser.open(live)
    sentence = "a big red car is in the house the car is red"
    change(browser, "#text", sentence)
    browser.until("return document.querySelector('#log').value.includes(arguments[0])", f"{sentence}\u2069”: ")
    assert text(browser, "#translation")
    assert browser.texts("#weights th[scope=row]") == [*sentence.split(), "</s>"]
    change(browser, "#text", f"the zebra {HOSTILE}")
    browser.until("return document.querySelector('#status').textContent.includes('zebra')")
    assert not browser.run("return document.title.includes('hit')")
    browser.until("return document.documentElement.dataset.examples")
    assert "Long sentence" in browser.texts("#preset option")
    browser.point("#hide", click=True)
    assert "are hidden" in text(browser, "#verdict")
    for blank in ("", "\u200b"):
        change(browser, "#text", blank)
        browser.until("return document.querySelector('#status').textContent === 'Type a sentence.'")
        assert not browser.run("return document.querySelector('#map').checkVisibility()")
        change(browser, "#text", "the car")
        browser.until("return document.querySelector('#translation').textContent")
        assert browser.run("return document.querySelector('#map').checkVisibility()")
        assert text(browser, "#verdict") == ""
    change(browser, "#preset", len(browser.texts("#preset option")) - 2)  # the first option is empty
    browser.until("return document.querySelector('#log').value.includes('example')")
    assert text(browser, "#note") == "The longest of the examples."
    assert HOSTILE in browser.run("return document.querySelector('#text').value")
    assert browser.requests() == []
    assert browser.log() == []


def test_nothing_can_be_done_before_there_is_a_sentence(browser, folder, live):
    (config,) = (folder / "search").rglob("config.json")
    write_live_page([config.parent], [], folder / "empty.html")
    browser.log()
    browser.open(folder / "empty.html")
    for button in ("equal", "hide", "check", "undo", "measure"):
        browser.run("document.getElementById(arguments[0]).click()", button)
    assert browser.log() == []
    assert browser.texts("#lengths tbody tr") == []
    change(browser, "#text", "the red car")
    browser.until("return document.querySelector('#log').value.includes('typed')")
    browser.run("document.getElementById('equal').click()")
    browser.until("return document.querySelector('#changes').textContent.includes('weights of step 1')")


def test_the_live_page_needs_no_worker(browser, live):
    browser.open(live)
    usual = text(browser, "#translation")
    source = "window.Worker = class { constructor() { throw new Error('none') } }"
    added = browser.command("Page.addScriptToEvaluateOnNewDocument", source=source)
    browser.open(live)
    assert usual
    assert text(browser, "#translation") == usual
    browser.command("Page.removeScriptToEvaluateOnNewDocument", **added)


def test_a_weight_that_is_changed_with_the_keyboard_changes_the_translation(browser, live):
    browser.size(1280, 900)
    browser.open(live)
    before = text(browser, "#translation")
    changed = False
    for place in range(6):
        for key in ("End", "Home"):
            browser.run("document.querySelectorAll('#weights input')[arguments[0]].focus()", place)
            entries = "return document.querySelector('#log').value.split('translation:').length"
            before_it = browser.run(entries)
            browser.press(key)
            browser.until(f"{entries} > arguments[0]", before_it)
            weights = [float(number) for number in browser.texts("#weights td:nth-child(3)")]
            assert sum(weights) == pytest.approx(1, abs=0.01)
            assert weights[place] == (key == "End")
            changed = changed or text(browser, "#translation") != before
    assert changed
    assert "weights of step 1" in text(browser, "#changes")
    browser.point("#undo", click=True)
    browser.until("return document.querySelector('#log').value.includes('undone')")
    assert text(browser, "#translation") == before


def test_the_live_page_compares_the_letters_of_a_text_without_spaces(browser, live):
    browser.open(live)
    for text, reference, same in (
        ("我们去IBM 的。", "我去 IBM", [True, False, True, True, False, True]),
        ("हिन्दी है", "है न ह द", [False, True]),  # vowel signs are parts of words
        ("la maison rouge.", "Rouge la", [True, False, True]),
    ):
        assert browser.run("return kept(...arguments)", text, reference) == same


@pytest.mark.parametrize("width", [360, 800])
def test_each_word_has_one_line_and_each_weight_can_be_dragged_to_1(browser, live, width):
    browser.size(width, 800)
    browser.open(live)
    change(browser, "#text", f"the agricultural house {'x' * 60}")
    browser.until("return document.querySelectorAll('#weights tbody tr').length === 5")
    rows = browser.run("return [...document.querySelectorAll('#weights tbody tr')].map(e => e.offsetHeight)")
    assert max(rows[:3]) - min(rows[:3]) <= 1
    right = "return Math.max(...[...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect().right))"
    assert browser.run(right, "#weights input") <= browser.run(right, ".scroll:has(#weights)")


def test_a_word_is_forced_and_the_search_explains_itself(browser, live):
    browser.size(1280, 900)
    browser.open(live)
    chosen = browser.texts("#next button")[3]
    browser.run("document.querySelectorAll('#next button')[3].focus()")
    browser.press("Enter")
    browser.until("return document.querySelector('#log').value.includes('forced at step 1')")
    assert text(browser, "#translation").split(" ")[0] == chosen.split(" ")[0]
    assert "first words are kept" in text(browser, "#changes")
    browser.run("document.querySelector('.tree [tabindex=\"0\"]').focus()")
    browser.press("Right", "Down")
    assert re.match(r"Step 2, “.+”: p = 0\.\d+, total log-probability −\d", text(browser, "#fate"))
    fates = browser.run("return [...document.querySelectorAll('.tree .node')].map(e => e.getAttribute('aria-label'))")
    assert any("this is the translation" in fate for fate in fates)
    assert any("not kept, because its total" in fate for fate in fates)


def test_attention_off_comparison_and_exercises(browser, live):
    browser.size(1280, 900)
    browser.open(live)
    assert len(browser.texts("#texts .card")) == 4  # the source, and three decoders
    browser.point("#measure", click=True)
    browser.until("return document.querySelectorAll('#lengths tbody tr').length === 6")
    change(browser, "#second", "the house is red")
    browser.until("return document.querySelectorAll('#pair .card').length === 2")
    assert "Cosine of the annotations" in text(browser, "#alike")
    assert "</s>" not in text(browser, "#alike")
    change(browser, "#text", "שלום עולם")
    change(browser, "#second", "שלום")
    browser.until("return document.querySelector('#alike').textContent.includes('שלום')")
    place = (
        "const node = document.querySelector('#alike').firstChild, range = new Range();"
        "const at = node.data.search(arguments[0]);"
        "range.setStart(node, at); range.setEnd(node, at + 1); return range.getBoundingClientRect().left"
    )
    assert browser.run(place, "ש") < browser.run(place, r"\d\.\d\d")  # the number is behind its word
    browser.point("#hide", click=True)
    assert set(browser.texts("#weights td:nth-child(3)")) == {"?"}
    spoken = "return [...document.querySelectorAll('#weights input')].map(e => e.ariaValueText)"
    assert set(browser.run(spoken)) == {"hidden"}
    browser.point("#check", click=True)
    assert re.match("Right|No", text(browser, "#verdict"))
    change(browser, "#reference", "the house")
    browser.until("return document.querySelectorAll('#nats tbody tr').length === 3")
    assert re.match(r"Loss of the model: \d+\.\d+ nats", text(browser, "#loss"))
    change(browser, "#reference", browser.texts("#texts .card:nth-child(2) .words")[0])
    browser.until("return document.querySelector('#texts .card:nth-child(2) .quiet').textContent.startsWith('100 %')")
    change(browser, "#system", 2)
    browser.until("return document.querySelector('#log').value.includes('decoder fixed vector')")
    assert set(browser.texts("#weights td:nth-child(3)")) == {"–"}
    assert "no attention" in text(browser, "#map")


def test_the_tables_of_a_report_are_sorted_by_their_numbers(browser, report):
    browser.size(1280, 900)
    browser.open(report, ready="document.readyState === 'complete'")
    for order, expected in (("descending", "bdac"), ("ascending", "adbc"), (None, "acbd")):
        browser.run("document.querySelector('th:last-child .sort').click()")
        assert "".join(name[0] for name in browser.texts("tbody bdi")) == expected
        assert browser.run("return document.querySelector('th:last-child').ariaSort") == order
    assert browser.texts("thead th:not(:has(.sort))") == ["system", "bar"]
    assert browser.run("const i = document.images[0]; return [i.naturalWidth, i.alt]") == [900, "A figure"]
