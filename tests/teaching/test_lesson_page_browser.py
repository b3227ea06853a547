"""The page of `nmtalign explain` in a real headless browser; skipped where Debian's chromium is not installed."""

import json
import re

import pytest
from helpers import browser as driver
from helpers.core_models import spread

from nmtalign.teaching import lesson_page
from nmtalign.teaching.lesson import Lesson
from nmtalign.teaching.lesson_page import Preset, write_lesson

pytestmark = [
    pytest.mark.skipif(not (driver.CHROMIUM and driver.DRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.timeout(900),
]
HOSTILE = "</script><img src=x onerror=\"document.title='hit'\">"
LINES = ["the red car is big", "a house", f"the {HOSTILE} house", "a red car is a big red car in the big red house"]


@pytest.fixture(scope="module")
def page(tmp_path_factory, random_model_directory):
    """A page of two models, with a reordered phrase and a preset that is not there."""
    folder = tmp_path_factory.mktemp("lesson")
    words = ["the", "red", "car", "house", "is", "big", "a", "in", HOSTILE]
    search = random_model_directory(folder / "search", words, words, spread)
    fixed = random_model_directory(folder / "fixed", words, words, spread, attention="none", seed=5)
    (folder / "test.en").write_text("".join(line + "\n" for line in LINES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson_page, "_monotonic", lambda shown: Preset("Monotonic", "none was found"))
        patch.setattr(lesson_page, "_reordered", lambda shown: Preset("Reordered phrase", "see", shown[3], 2))
        test = folder / "test.en", folder / "test.en"
        write_lesson(Lesson(search, fixed), test, folder / "page.html", ["a big house"])
    return folder / "page.html"


@pytest.fixture(scope="module")
def data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])


@pytest.fixture(scope="module")
def browser(page):
    with driver.Browser(page.parent) as opened:
        yield opened


@pytest.fixture(autouse=True)
def opened(browser, page):
    browser.size(1280, 900)
    browser.log()
    browser.open(page)
    yield
    assert browser.log() == []


def text(browser, selector) -> str:
    return browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def texts(browser, selector) -> list[str]:
    return browser.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)


def focus(browser, selector) -> None:
    browser.run("document.querySelector(arguments[0]).focus()", selector)


def shown(number: float, digits: int = 2) -> str:
    return f"{number:.{digits}f}".replace("-", "−")


def test_it_loads_nothing_and_hostile_words_stay_words(browser, page):
    browser.requests()
    browser.open(page)
    asked = [address for address in browser.requests() if not address.startswith(("file:", "data:", "about:"))]
    assert asked == []
    focus(browser, "#length")
    browser.press("Home", "Right", "Right")
    assert browser.run("return [document.title.includes('hit'), document.images.length]") == [False, 0]


def test_the_length_slider_chooses_a_sentence_with_arrow_keys(browser, data):
    focus(browser, "#length")
    browser.press("Home")
    for sentence in data["sentences"]:
        assert text(browser, "#length-value") == f"{len(sentence['source']) - 1} words"
        assert " ".join(sentence["source"][:-1]) in text(browser, ".card.plain")
        assert str(sentence["RNNencdec"]["size"]) in text(browser, ".card.RNNencdec")
        unknown = sentence["unknown"]
        bars = ["unknown" if unknown[k] else shown(c) for k, c in enumerate(sentence["RNNencdec"]["changes"])]
        assert texts(browser, "#fading .number") == bars
        last = texts(browser, "#log li")[-1]
        assert f"wrote “{' '.join(sentence['RNNencdec']['words'])}”" in last
        value = browser.run("return document.getElementById('length').getAttribute('aria-valuetext')")
        assert value.startswith(f"{len(sentence['source']) - 1} words: ")
        browser.press("Right")


def test_the_step_in_slow_motion_shows_the_numbers_of_the_model(browser, data):
    browser.point("#presets button", index=1, click=True)
    sentence = data["sentences"][data["presets"][1]["example"]]
    step = sentence["steps"][2]
    assert text(browser, "#step-value") == f"3 of {len(sentence['target'])}: {sentence['target'][2]}"
    rows = "#energies tbody tr td:nth-child({}) .number"
    assert texts(browser, rows.format(2)) == [shown(energy) for energy in step["energies"]]
    assert [float(p.strip("< ")) for p in texts(browser, rows.format(4))] == pytest.approx(step["weights"], abs=1.1e-3)
    assert f"{shown(step['entropy'])} nats; it would be {shown(sentence['most_entropy'])}" in text(browser, "#entropy")
    widths = browser.run("return [...document.querySelectorAll('#context span')].map(e => parseFloat(e.style.width))")
    assert widths == pytest.approx([100 * weight for weight in step["weights"]], abs=0.01)
    assert texts(browser, "#next tbody th") == [word for word, _ in step["top"]]
    visible = "return [...document.querySelectorAll('#energies tbody tr:first-child td > div')].map(e => !e.hidden)"
    for stage, count in enumerate((1, 2, 3, 3, 3)):
        browser.point("#stages button", index=stage, click=True)
        assert sum(browser.run(visible)) == count
        assert texts(browser, "#log li")[-1].startswith("Step 3, ")
    browser.point("#play", click=True)
    browser.until("return document.getElementById('step').value === '3'", seconds=60)
    browser.point("#play", click=True)
    assert text(browser, "#play") == "Play"


def test_the_replaced_word_changes_what_has_read_it(browser, data):
    focus(browser, "#length")
    browser.press("End")
    focus(browser, "#word")
    browser.press("Home", "Right", "Right")
    sentence = data["sentences"][-1]
    for column, name in ((2, "forward"), (3, "backward")):
        numbers = texts(browser, f"#annotated td:nth-child({column}) .number")
        assert numbers == [shown(change, 3) for change in sentence[name]["changes"][2]]
    assert texts(browser, "#annotated td:nth-child(2) .number")[:2] == ["0.000", "0.000"]
    assert "2 forward and" in texts(browser, "#log li")[-1]


def test_the_heat_map_and_its_table_agree(browser, data):
    browser.point("#presets button", index=1, click=True)
    sentence = data["sentences"][data["presets"][1]["example"]]
    opacities = browser.run("return [...document.querySelectorAll('.cell')].map(c => +c.getAttribute('fill-opacity'))")
    weights = [weight for step in sentence["steps"] for weight in step["weights"]]
    assert opacities == pytest.approx(weights)
    focus(browser, "#map-part summary")
    browser.press("Enter")
    assert browser.run("return document.querySelector('#map-part details').open")
    assert texts(browser, "#weights td:not(:empty)") == [shown(weight) for weight in weights]
    assert len(texts(browser, "#weights th[scope=row]")) == len(sentence["target"])
    assert browser.run("return document.querySelectorAll('.phrase-frame').length") == bool(sentence["phrase"])
    browser.run("document.querySelector('[data-step=\"1\"]').dispatchEvent(new Event('click', {bubbles: true}))")
    assert text(browser, "#step-value").startswith("2 of ")


def test_the_marker_of_bleu_is_a_slider_for_mouse_and_keys(browser, data):
    buckets = data["bleu"]["buckets"]
    assert len(buckets) > 1
    focus(browser, "#marker")
    browser.press("End")
    marker = "const m = document.getElementById('marker');"
    marker += "return ['role', 'aria-valuenow', 'aria-valuetext'].map(n => m.getAttribute(n))"
    role, now, said = browser.run(marker)
    assert (role, now) == ("slider", str(len(buckets)))
    assert said == text(browser, "#bleu-value") == texts(browser, "#log li")[-1]
    assert f"RNNencdec {shown(buckets[-1]['RNNencdec'])} BLEU" in said
    assert browser.run("return document.activeElement.id") == "marker"
    browser.point("#bleu circle", index=0, click=True)
    assert browser.run(marker)[1] == "1"
    browser.press("Right")
    assert browser.run(marker)[1] == "2"
    dots = "[...document.querySelectorAll('.RNNsearch-dot')].map(c => c.getBoundingClientRect())"
    first, *_, last = browser.run(f"return {dots}.map(r => [r.x, r.y])")
    steps = (("mousePressed", first), ("mouseMoved", last), ("mouseMoved", first), ("mouseMoved", last))
    for kind, (x, y) in (*steps, ("mouseReleased", last)):
        browser.command("Input.dispatchMouseEvent", type=kind, x=x + 4, y=y + 4, button="left", buttons=1, clickCount=1)
    assert browser.run(marker)[1] == str(len(buckets))


def test_a_preset_that_was_not_found_says_so(browser):
    browser.point("#presets button", click=True)
    assert text(browser, "#note") == "There is no such sentence: none was found."


def test_names_focus_order_and_contrast(browser):
    unnamed = (
        "return [...document.querySelectorAll('input, button, [role=slider], [role=region], [role=img], [role=log]')]"
        ".filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') ||"
        " e.textContent.trim())).map(e => e.outerHTML)"
    )
    assert browser.run(unnamed) == []
    assert browser.run("return document.querySelectorAll('[tabindex]:not([tabindex=\"0\"])').length") == 0
    assert browser.run("return document.getElementById('log').getAttribute('aria-live')") == "polite"
    order = []
    browser.run("document.activeElement.blur()")
    for _ in range(30):
        browser.press("Tab")
        order.append(browser.run("return document.activeElement.id"))
    places = [order.index(name) for name in ("length", "word", "step", "play", "map", "marker")]
    assert places == sorted(places)
    ratio = (
        "const lit = c => {"
        "const v = c.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255).map(x => x <= .04045 ? x / 12.92"
        " : ((x + .055) / 1.055) ** 2.4); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };"
        "const paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;"
        " if (!c.endsWith(', 0)')) return c } };"
        "return Math.min(...[...document.querySelectorAll('p, li, h1, h2, h3, button, label, td, th, .number, .later')]"
        ".filter(e => e.offsetParent).map(e => { const [a, b] = [lit(getComputedStyle(e).color), lit(paper(e))]"
        ".sort((x, y) => y - x); return (a + .05) / (b + .05) }))"
    )
    for scheme in ("light", "dark"):
        browser.media(**{"prefers-color-scheme": scheme})
        assert browser.run(ratio) > 4.5
    browser.media()


@pytest.mark.parametrize("width", [320, 400])
def test_it_fits_a_narrow_screen_and_moves_less_where_that_is_wanted(browser, page, width):
    browser.size(width, 800)
    browser.media(**{"prefers-reduced-motion": "reduce"})
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") == width
    assert browser.run("return getComputedStyle(document.querySelector('.bar')).transitionDuration") == "0s"
    browser.media()
