"""The page of `nmtalign view` in a real headless browser; skipped where Debian's chromium is not installed."""

import time

import numpy as np
import pytest
from helpers import browser as driver

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.alignment_page import write_page
from nmtalign.alignment.links import AlignmentRecord

pytestmark = [
    pytest.mark.skipif(not (driver.CHROMIUM and driver.DRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.timeout(900),
]

HOSTILE = "</script><img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
SMALL = [  # (sentence, rank, source, target)
    (0, 0, ["the", "red", "car"], ["la", "voiture", "rouge"]),
    (1, 0, ["a", "house"], ["une", "maison"]),
    (1, 1, ["a", "house"], ["la", "maison", "là"]),
    (2, 0, [HOSTILE, "&amp;", "<b>bold</b>"], ["{{script}}", HOSTILE]),
    (3, 0, [], ["rien"]),
    (4, 0, ["שלום", "עולם"], ["你好", "世界", "。"]),
    (5, 0, ["été"] * 80, ["word"] * 80),
]


def sharp(rows: int, columns: int) -> np.ndarray:
    """Each row reads mostly its own column."""
    weights = np.full((rows, columns), 0.2 / max(columns - 1, 1), dtype=np.float32)
    weights[np.arange(rows), np.arange(rows) % columns] = 0.8
    return weights


def record(number, rank, source, target) -> AlignmentRecord:
    weights = sharp(len(target) + 1, len(source) + 1) * bool(source and target)
    links = tuple((j, j) for j in range(min(len(source), len(target))))
    log_probs = np.full(len(target) + 1, -0.5, np.float32)
    return AlignmentRecord(tuple(source), tuple(target), weights, -1.5 - rank, number, log_probs, links, rank=rank)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def browser(folder):
    with driver.Browser(folder) as opened:
        yield opened


@pytest.fixture(autouse=True)
def of_usual_size(browser):
    browser.size(1500, 900)


@pytest.fixture(scope="module")
def small(folder):
    """A page of few sentences of every kind, with gold links."""
    with AlignmentWriter(folder / "small.h5", {"direction": "en-fr"}) as writer:
        for entry in SMALL:
            writer.add(record(*entry))
    (folder / "gold").write_text("0-0 1-2 2p1\n0-0 1-1\n\n\n\n\n")
    write_page([folder / "small.h5"], folder / "small.html", gold=folder / "gold", title="A <b>title</b>")
    return folder / "small.html"


@pytest.fixture(scope="module")
def large(folder):
    """10,000 sentences of 25 words."""
    generator = np.random.default_rng(0)
    words = np.array(["".join(generator.choice(list("abcdefghilmnoprstuv"), 3 + k % 6)) for k in range(2000)])
    weights = generator.dirichlet(np.full(26, 0.1), (40, 26)).astype(np.float16)
    with AlignmentWriter(folder / "large.h5", {}) as writer:
        for number in range(10_000):
            pair = words[(2000 * generator.random((2, 25)) ** 3).astype(int)].tolist()
            pair[1][3] = f"mot{number}"
            writer.append(*pair, weights[number % 40], -20.0, links=[])
    write_page([folder / "large.h5"], folder / "large.html")
    return folder / "large.html"


def reads(browser) -> list[float]:
    """The weights shown on the source words."""
    return browser.run(
        "return [...document.querySelectorAll('.line.source .word')].map(w => +w.style.getPropertyValue('--w'))"
    )


def text(browser, selector) -> str:
    return browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def fragment(browser) -> str:
    return browser.run("return location.hash")


def settle(browser) -> None:
    browser.run("return document.documentElement.offsetWidth")


def test_ten_thousand_sentences(browser, large, folder):
    """They load and are searched; the times are shown, and decide nothing."""
    browser.requests()
    loading = browser.open(large)
    megabytes = large.stat().st_size / 1e6
    assert large.stat().st_size < 12e6
    assert "10,000 sentences" in text(browser, "#facts")
    assert 5 < browser.run("return document.querySelectorAll('#list .row').length") < 60
    begun = time.perf_counter()
    browser.press("/", *"mot8765", "Enter")
    browser.until("return location.hash === '#sentence=8765'")
    print(
        f"\n10,000 sentences: {megabytes:.1f} MB, ready in {loading} ms, found in {time.perf_counter() - begun:.2f} s"
    )
    assert text(browser, "#found") == "1 of 10,000"
    assert text(browser, ".line.target .word:nth-child(4) .text") == "mot8765"
    searching = "const t = performance.now(); const q = document.getElementById('query'); q.value = 'ab'; "
    searching += "q.dispatchEvent(new Event('input')); return performance.now() - t"
    print(f"a search takes {browser.run(searching):.0f} ms")
    asked = [address for address in browser.requests() if not address.startswith(("file:", "data:", "about:"))]
    assert asked == []
    assert browser.log() == []


def test_a_word_under_the_pointer_shows_what_it_read(browser, small):
    browser.open(small)
    browser.point(".line.target .word", index=1)
    browser.until("return document.querySelector('.reading h3')")
    assert reads(browser) == pytest.approx([0.067, 0.8, 0.067, 0.067], abs=0.01)
    assert text(browser, ".reading h3") == "voiture read"
    assert "red" in text(browser, ".reading li")
    assert "0.80" in text(browser, ".reading li")
    assert "Probability 61 %" in text(browser, ".reading")
    browser.point(".line.source .word", index=2)
    browser.until("return document.querySelector('.reading h3').textContent === 'car was read by'")
    assert (
        browser.run("return document.querySelector('.line.target .word:nth-child(3)').style.getPropertyValue('--w')")[
            :3
        ]
        == "0.8"
    )
    browser.point("h1")
    browser.until("return !document.querySelector('.reading h3')")
    assert fragment(browser) == "#sentence=0"
    browser.point(".line.target .word", index=0, click=True)
    assert fragment(browser) == "#sentence=0&target=0"


def test_stepping_with_keys_and_playing(browser, small):
    browser.open(small)
    browser.press("Right", "Right")
    assert fragment(browser) == "#sentence=0&target=1"
    browser.until("return document.querySelector('.mark.across').classList.contains('on')")
    assert reads(browser)[1] == pytest.approx(0.8, abs=0.01)
    sliding = (
        "return +getComputedStyle(document.querySelector('.line.source .word:nth-child(3)')).getPropertyValue('--w')"
    )
    browser.press("Right")
    browser.until(f"{sliding} > 0.79")
    browser.press("Up")
    assert fragment(browser) == "#sentence=0&source=2"
    browser.press("Home", "t", "End")
    assert fragment(browser) == "#sentence=0&target=3"  # </s>
    browser.press("Escape")
    assert fragment(browser) == "#sentence=0"
    browser.run(
        "window.heard = []; const play = document.getElementById('play');"
        "new MutationObserver(() => heard.push(play.getAttribute('aria-pressed'))).observe(play, {attributes: true})"
    )
    browser.press("+", "+", "Space")
    browser.until("return heard.includes('true') && heard.at(-1) === 'false'")  # it played, and stopped at the end
    assert fragment(browser) == "#sentence=0&target=3"
    browser.press("j")
    browser.until("return location.hash === '#sentence=1'")
    browser.press("k")
    browser.until("return location.hash === '#sentence=0'")
    assert browser.log() == []


def test_less_motion_where_that_is_wanted(browser, small):
    browser.media(**{"prefers-reduced-motion": "reduce"})
    browser.open(small)
    browser.press("Right", "Right")
    assert browser.run("return getComputedStyle(document.querySelector('.word')).transitionDuration") == "0s"
    assert reads(browser)[1] == pytest.approx(0.8, abs=0.01)
    browser.media()


def test_entries_of_a_sentence_alone_and_side_by_side(browser, small):
    browser.open(small, "#sentence=1")
    tabs = "return [...document.querySelectorAll('#entries .tab')].map(t => t.getAttribute('aria-selected')).join()"
    assert browser.run(tabs) == "true,false"
    browser.press("2")
    browser.until("return location.hash === '#sentence=1&entry=1'")
    browser.until("return document.querySelectorAll('.line.target .word').length === 4")
    assert browser.run(tabs) == "false,true"
    browser.press("[")
    browser.until("return document.querySelectorAll('.line.target .word').length === 3")
    browser.press("c")
    browser.until("return document.querySelectorAll('.pane').length === 2")
    assert fragment(browser) == "#sentence=1&beside=1"
    browser.press("Right")
    assert browser.run("return document.querySelectorAll('.word.chosen').length") == 2
    browser.press("c")
    browser.until("return document.querySelectorAll('.pane').length === 1")


def test_gold_links_and_counts(browser, small):
    browser.open(small)
    kinds = "return [...document.querySelectorAll('.hard-links path')].map(p => p.classList[1]).sort().join()"
    assert browser.run(kinds) == "possible,right,sure,sure,wrong,wrong"
    figures = text(browser, ".figures")
    assert "AER 0.60" in figures  # 1 - (1 + 1) / (3 + 2)
    assert "3 links, 2 sure, 3 possible" in figures
    browser.press("g")
    assert browser.run(kinds) == "right,right,right"
    browser.press("h")
    assert browser.run(kinds) == ""
    browser.press("m", "w")
    assert browser.run("return document.querySelector('.matrix').hidden")


def test_the_heat_map_is_grey_from_black_to_white(browser, small):
    browser.open(small)
    browser.press("g", "h")
    shade = (
        "const c = document.querySelector('.cells'); const n = c.width / 4; return [...c.getContext('2d').getImageData("
    )
    shade += "(arguments[0] + .5) * n, (arguments[1] + .5) * n, 1, 1).data]"
    assert browser.run(shade, 1, 1) == [204, 204, 204, 255]
    assert browser.run(shade, 2, 1) == [17, 17, 17, 255]
    browser.point(".cells")
    browser.until("return document.querySelector('.reading li.here')")
    browser.log()  # chromium warns because this test reads pixels back


def test_light_and_dark(browser, small):
    paper = "return getComputedStyle(document.body).backgroundColor"
    browser.media(**{"prefers-color-scheme": "light"})
    browser.open(small)
    light = browser.run(paper)
    browser.press("d")
    dark = browser.run(paper)
    assert light != dark
    browser.media(**{"prefers-color-scheme": "dark"})
    browser.open(small)
    assert browser.run(paper) == dark
    browser.point("#theme", click=True)
    assert browser.run(paper) == light
    browser.media()


def test_search_by_number_word_and_side(browser, small):
    browser.open(small)

    def find(query):
        browser.press("/", *query)
        found = browser.run("return [...document.querySelectorAll('#list .row')].map(r => r.dataset.place).join()")
        browser.press("Escape")
        return found

    assert find("maison") == "1"
    assert find("ETE") == "5"  # été
    assert find('"la"') == "0,1"
    assert find("s:la") == ""
    assert find("世界") == "4"
    assert find("4") == "4"
    assert find("red car") == "0"
    browser.press("/", *"maison", "Enter")
    browser.until("return location.hash === '#sentence=1'")
    assert browser.run("return document.querySelectorAll('.word.found').length") == 1
    browser.run(
        "const order = document.getElementById('order'); order.value = 'long'; order.dispatchEvent(new Event('change'))"
    )
    browser.press("/", "Escape")
    assert browser.run("return document.querySelector('#list .row').dataset.place") == "5"


def test_hostile_words_are_only_words(browser, small):
    browser.open(small, "#sentence=2")
    assert browser.run("return document.title") == "A <b>title</b> · alignments"
    assert text(browser, ".line.source .word .text") == HOSTILE
    assert text(browser, ".line.source .word:nth-child(2) .text") == "&amp;"
    assert browser.run("return document.querySelectorAll('img, b b, main script, aside script').length") == 0
    browser.press("Right", "/", *"script", "Escape")
    assert browser.run("return document.title") == "A <b>title</b> · alignments"
    assert browser.log() == []


def test_a_policy_keeps_foreign_code_and_every_request_out(browser, small):
    browser.open(small)
    browser.requests()
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://example.invalid/x.png'; document.body.append(i);"
        "fetch('http://example.invalid/y').catch(() => {});"
    )
    browser.until("return true")
    assert browser.run("return window.hit ?? null") is None
    refused = browser.log()
    assert sum("Content Security Policy" in line for line in refused) >= 3, refused


def test_other_scripts_long_sentences_and_pairs_without_words(browser, small):
    browser.open(small, "#sentence=4")
    assert browser.run("return document.querySelector('.line.source').dir") == "rtl"
    places = browser.run(
        "return [...document.querySelectorAll('.line.source .word')].map(w => w.getBoundingClientRect().left)"
    )
    assert places[0] > places[1]
    browser.press("Home")
    assert browser.run("return getComputedStyle(document.querySelector('.line.source .amount')).direction") == "ltr"
    browser.open(small, "#sentence=3")
    assert "no words" in text(browser, ".figures")
    browser.press("Right", "Space", "Up")
    browser.open(small, "#sentence=5&target=79")
    assert browser.run("return document.querySelector('.stage').classList.contains('in-columns')")
    assert reads(browser)[79] == pytest.approx(0.8, abs=0.01)
    assert browser.run("const m = document.querySelector('main'); return m.scrollWidth <= m.clientWidth + 1")
    assert browser.log() == []


@pytest.mark.parametrize("width", [400, 1400])
def test_no_word_is_broken_in_columns(browser, small, width):
    browser.size(width, 800)
    browser.open(small, "#sentence=2")
    while not browser.run("return document.querySelector('.stage').classList.contains('in-columns')"):
        browser.press("o")
    texts = "return [...document.querySelectorAll('.word .text')]"
    heights = browser.run(f"{texts}.map(t => t.offsetHeight / parseFloat(getComputedStyle(t).fontSize))")
    assert max(heights) < 2
    assert browser.run("const w = document.querySelector('.words'); return w.scrollWidth <= w.clientWidth")
    browser.size(1280, 800)


def test_two_entries_stand_side_by_side(browser, small):
    browser.size(1400, 800)
    browser.open(small, "#sentence=1&beside=1")
    browser.until("return document.querySelectorAll('.pane').length === 2")
    tops = browser.run("return [...document.querySelectorAll('.pane')].map(p => p.getBoundingClientRect().top)")
    assert tops[0] == tops[1]
    browser.size(1280, 800)


def test_a_narrow_window(browser, small):
    browser.size(400, 800)
    browser.open(small)
    inside = "return document.documentElement.scrollWidth <= 400 && document.querySelector('main').scrollWidth <= 400"
    assert browser.run(inside)
    assert browser.run("return getComputedStyle(document.getElementById('side')).display") == "none"
    browser.press("/", *"maison", "Enter")
    browser.until("return location.hash === '#sentence=1'")
    assert browser.run("return getComputedStyle(document.getElementById('side')).display") == "none"
    browser.point(".line.target .word", index=1, click=True)
    assert fragment(browser) == "#sentence=1&target=1"


def test_help_and_everything_within_reach_of_the_keyboard(browser, small):
    browser.open(small)
    browser.press("?")
    assert browser.run("return document.getElementById('help').open")
    assert "not why" in text(browser, "#help")
    browser.press("Enter")
    assert not browser.run("return document.getElementById('help').open")
    names = browser.run(
        "return [...document.querySelectorAll('button, select, input')].filter(e => e.offsetParent"
        " && !(e.textContent + (e.labels?.[0]?.textContent ?? '')).trim()).map(e => e.outerHTML)"
    )
    assert names == []
    browser.point("#query", click=True)
    reached = set()
    for _ in range(25):
        browser.press("Tab")
        reached.add(
            browser.run(
                "const e = document.activeElement; return e.id || e.dataset.command || e.dataset.side || e.tagName"
            )
        )
    assert {"order", "list", "play", "soft", "matrix", "source", "target"} <= reached


def test_an_address_of_another_kind_shows_the_first_sentence(browser, small):
    for strange in ("#x", "#sentence=99", "#sentence=0&target=99&entry=7&beside=3", "#sentence=%3Cscript%3E"):
        browser.open(small, strange)
        assert text(browser, "#where") == "0"
        assert browser.log() == []
