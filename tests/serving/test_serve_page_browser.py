"""The page of `nmtalign serve` in a real headless browser; skipped where Debian's chromium is not installed."""

import pytest
from helpers import browser as driver
from helpers.servers import serving

from nmtalign.translating.translator import Translator

pytestmark = [driver.needs_browser, pytest.mark.timeout(900)]

LINE = "the fox sees a red boat ."
HOSTILE = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


@pytest.fixture(scope="module")
def expected(english):
    """The translation of a line, with its weights."""
    return next(Translator.load(english, device="cpu").translate([LINE]))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with driver.Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def translate(browser, client, text):
    """Opens the page, types a text and waits for its translation."""
    browser.size(1200, 900)
    browser.open(client.url)
    browser.run("document.getElementById('text').value = arguments[0]", text)
    browser.point("#translate", click=True)
    browser.until("return !document.getElementById('translate').disabled && document.querySelector('#result .card')")


def weights(browser, side):
    words = "return [...document.querySelectorAll(`.words.${arguments[0]} .word`)]"
    return browser.run(f"{words}.map(e => +e.style.getPropertyValue('--w'))", side)


def test_a_text_is_translated_and_a_word_shows_its_weights(browser, client, expected):
    browser.requests()
    translate(browser, client, LINE)
    assert browser.texts(".text") == [expected.text]
    assert browser.texts("[role=status]")[0] == "Translated."
    assert browser.texts(".words.source .word") == list(expected.source_tokens)
    assert browser.texts(".words.target .word") == list(expected.tokens)
    browser.point(".words.target .word", index=1)
    assert weights(browser, "source") == pytest.approx(expected.alignment[1, :-1].tolist(), abs=1e-3)
    browser.point(".words.source .word", index=2)
    assert weights(browser, "target") == pytest.approx(expected.alignment[:-1, 2].tolist(), abs=1e-3)
    assert [url for url in browser.requests() if not url.startswith(client.url)] == []
    browser.run("const s = document.createElement('script'); s.text = 'document.title = 1'; document.body.append(s)")
    assert browser.run("return document.title") == "nmtalign"
    assert any("Content Security Policy" in line for line in browser.log())


def test_the_keyboard_suffices(browser, client, expected):
    browser.open(client.url)
    assert browser.run("return document.activeElement.id") == "text"
    browser.press(*LINE, "Tab", "Enter")
    browser.until("return document.querySelector('#result .card')")
    browser.press("Tab", "Tab")
    assert browser.run("return document.activeElement.textContent") == expected.source_tokens[0]
    browser.press("Right")
    assert browser.run("return document.activeElement.textContent") == expected.source_tokens[1]
    browser.press("Down")
    assert browser.run("return document.activeElement.textContent") == expected.tokens[0]
    assert browser.texts(".reading")[0].startswith(f"{expected.tokens[0]} reads ")


def test_markup_is_text(browser, client):
    translate(browser, client, f"{HOSTILE}\n\n{LINE}")
    assert len(browser.texts(".card")) == 3
    assert browser.run("return document.title") == "nmtalign"
    assert browser.run("return document.querySelectorAll('#result img, #result script').length") == 0
    assert browser.log() == []


def test_a_page_that_may_not_copy_reports_it(browser, client):
    """A browser offers no clipboard to a page that another machine sends without HTTPS."""
    translate(browser, client, LINE)
    browser.run("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    browser.point("#copy", click=True)
    browser.until("return document.getElementById('status').textContent.includes('does not allow copying')")


def test_the_other_direction_the_beam_and_an_error(browser, client, french):
    line = "le renard voit un bateau"
    browser.open(client.url)
    assert browser.texts("#model option") == ["en → fr", "fr → en"]
    browser.run("document.getElementById('model').value = 'fr-en'; document.getElementById('beam').value = 2")
    browser.run("document.getElementById('text').value = arguments[0]", line)
    browser.point("#translate", click=True)
    browser.until("return document.querySelector('.text')")
    assert browser.texts(".text") == [next(Translator.load(french, device="cpu").translate([line], beam=2)).text]
    browser.run("document.getElementById('text').value = 'a\\n'.repeat(1001)")
    browser.point("#translate", click=True)
    browser.until("return document.querySelector('#status.error')")
    assert browser.texts("#status") == ["1,002 lines: send at most 1,000 in one request"]
    browser.run("document.getElementById('text').value = 'x'.repeat(8000)")
    browser.point("#translate", click=True)
    browser.until("return document.getElementById('status').textContent.startsWith('The text is too long to show')")
    assert (len(browser.texts("#result .text")), browser.texts(".word")) == (1, [])
    browser.log()


@pytest.mark.parametrize("beside", [[], ["aligner"]])
def test_a_model_without_attention_has_only_text(browser, blind_model, beside, request):
    with serving(blind_model, *map(request.getfixturevalue, beside)) as client:
        browser.open(client.url)
        assert browser.texts("#model option") == ["en → fr"]
        translate(browser, client, LINE)
        assert len(browser.texts(".text")) == 1
        assert browser.texts(".word") == []
        assert browser.log() == []


def test_a_phone(browser, client):
    translate(browser, client, f"{LINE}\n{'x' * 300}")
    browser.size(360, 700)
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    browser.size(1200, 900)
