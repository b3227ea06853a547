"""The addresses of the server, asked over real connections on this machine; the oracle is the command line."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import chain
from urllib.parse import urlencode

import pytest
from helpers.command_line import run_nmtalign
from helpers.parallel_texts import write_pairs
from helpers.pieces import learned_pieces
from helpers.random_models import ENGLISH
from helpers.servers import PATIENCE, Client, assert_same, serving

import nmtalign
from nmtalign import application
from nmtalign.alignment.word_aligner import load_aligner
from nmtalign.core.numerics import Abandoned, abandoned_if
from nmtalign.errors import InputError, ResourceError, UsageError
from nmtalign.serving.application import bind, make_application, make_server
from nmtalign.serving.served_models import ServedModel, ServedModels
from nmtalign.settings.command_settings import AlignConfig, ServeConfig
from nmtalign.settings.presets import SYSTEMS
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.translating.requests import Request as Line
from nmtalign.translating.translator import Translator

LINES = ["the fox sees a red boat .", "a boat", "", "the Fox & the boat sees.", "unknown words here", "a " * 30]
LINES += ["The fox sees. A boat sees."]
FORM = "application/x-www-form-urlencoded"


def text_request(line):
    return {"q": line, "source": "en", "target": "fr"}


@pytest.fixture(scope="module")
def translate(english, tmp_path_factory):
    """The lines that `nmtalign translate` prints."""
    folder = tmp_path_factory.mktemp("expected")

    @cache
    def run(text, model, options):
        command = "translate", "-m", model, "--threads", "1", "-q", *options
        result = run_nmtalign(*command, cwd=folder, stdin=text.encode())
        assert result.returncode == 0, result.stderr
        return result.stdout.decode().removesuffix("\n").split("\n")

    return lambda lines, *options, model=english: run("".join(f"{line}\n" for line in lines), model, options)


# LibreTranslate


def test_a_text_and_a_list_of_texts_as_libretranslate(client, translate):
    expected = translate(LINES)
    assert len(set(expected)) > 3
    status, found, headers = client.ask("translate", {"q": LINES[0], "source": "en", "target": "fr", "api_key": "x"})
    assert (status, found) == (200, {"translatedText": expected[0]})
    assert headers["content-type"] == "application/json"
    assert "access-control-allow-origin" not in headers
    _, found, _ = client.ask("translate", {"q": LINES, "source": "en", "target": "fr", "format": "text"})
    assert found == {"translatedText": expected}
    _, found, _ = client.ask("translate", {"q": "\r\n".join(LINES), "source": "en", "target": "fr"})
    assert found == {"translatedText": "\n".join(expected)}
    assert client.ask("translate/", {"q": [], "source": "en", "target": "fr"})[:2] == (200, {"translatedText": []})
    assert client.ask("languages/")[:2] == client.ask("languages")[:2]


def test_a_form_as_libretranslate(client, translate):
    kind = f"{FORM.upper()}; charset=utf-8"
    fields = {"q": LINES[3], "source": "en", "target": "fr", "alternatives": ""}
    _, found, _ = client.raw("translate", urlencode(fields).encode(), kind)
    assert json.loads(found) == {"translatedText": translate(LINES)[3]}
    fields["q"] = LINES[:2]
    _, found, _ = client.raw("translate", urlencode(fields, doseq=True).encode(), kind)
    assert json.loads(found) == {"translatedText": translate(LINES)[:2]}


def test_alternatives_are_those_of_the_n_best_list(client, translate):
    body = {"q": [LINES[0], LINES[1]], "source": "en", "target": "fr", "alternatives": 3}
    _, found, _ = client.ask("translate", body)
    lists = [json.loads(line)["n_best"] for line in translate(LINES[:2], "--n-best", "4", "--format", "json")]
    texts = [[entry["translation"] for entry in entries] for entries in lists]
    assert found["translatedText"] == [entries[0] for entries in texts]
    assert found["alternatives"] == [list(dict.fromkeys(entries))[1:] for entries in texts]
    _, found, _ = client.ask("translate", {**body, "q": LINES[0]})
    assert found["alternatives"] == list(dict.fromkeys(texts[0]))[1:]


def test_the_direction_is_that_of_the_request(client, translate, french):
    line = "le renard voit un bateau rouge ."
    _, found, _ = client.ask("translate", {"q": line, "source": "fr-CA", "target": "English"})
    assert found == {"translatedText": translate([line], model=french)[0]}


def test_the_language_is_detected(client, translate, french):
    english_line, french_line = "the fox sees a boat", "le renard voit un bateau"
    _, found, _ = client.ask("detect", {"q": french_line.split()})
    assert found[0] == {"confidence": 100.0, "language": "fr"}
    assert found[1] == {"confidence": 0.0, "language": "en"}
    _, found, _ = client.ask("translate", {"q": french_line, "source": "auto", "target": "en"})
    expected = translate([french_line], model=french)[0]
    assert found == {"translatedText": expected, "detectedLanguage": {"confidence": 100.0, "language": "fr"}}
    _, found, _ = client.ask("translate", {"q": [english_line] * 2, "source": "auto", "target": "fr"})
    assert found["translatedText"] == translate([english_line] * 2)
    assert found["detectedLanguage"] == [{"confidence": 100.0, "language": "en"}] * 2


@pytest.mark.parametrize("joint", [False, True])
def test_pieces_know_every_word_and_so_their_frequencies_tell_the_language(random_model_directory, tmp_path, joint):
    """What fits both languages of the models, or none of them, has no high confidence."""
    texts = {"en": "the cat sleeps in the house and the dog eats", "de": "wir wollten gestern zum neuen Bahnhof gehen"}
    texts["fr"] = "le chat dort dans la maison et le chien mange"
    letters = " ".join("abcdefghijklmnopqrstuvwxyzB")
    lines = [[texts["en"]] * 50 + [letters], [texts["fr"]] * 50 + [letters]]
    sides = [learned_pieces(own, 60) for own in ([[*lines[0], *lines[1]]] * 2 if joint else lines)]
    counts = [Counter(chain(*map(side.tokenize, own))) for side, own in zip(sides, lines, strict=True)]
    words = [[word for word, _ in own.most_common()] for own in ([sum(counts, Counter())] * 2 if joint else counts)]
    tokenizers = Tokenizers(*sides, source_language="en", target_language="fr")
    with serving(random_model_directory(tmp_path, *words, tokenizers=tokenizers)) as client:
        for text, language in ((texts["en"], "en"), (texts["fr"], "fr"), (texts["de"], ""), ("12, 3!", "")):
            found = client.ask("detect", {"q": text})[1]
            unknown = 33.3 if text[0] == "1" else 0.0
            expected = {one: 100.0 if one == language else unknown for one in ("en", "fr")}
            if joint and language:
                expected = {"en": 50.0, "fr": 50.0}
            assert {one["language"]: one["confidence"] for one in found} == expected, text
            assert joint or not language or found[0]["language"] == language


def test_each_text_of_a_list_is_detected_by_itself(french, random_model_directory, translate, tmp_path):
    """Two models translate into English: each text gets the one that knows its words."""
    words = ["der", "fuchs", "sieht", "ein", "rotes", "boot", "."]
    german = random_model_directory(tmp_path, words, ENGLISH, seed=5, languages=("de", "en"))
    texts = ["le renard voit un bateau", "der fuchs sieht ein boot", "un bateau\nle renard", "", "rotes boot"]
    folders = [french, german, french, french, german]
    with serving(french, german) as client:
        _, found, _ = client.ask("translate", {"q": texts, "source": "auto", "target": "en", "alternatives": 2})
        assert [one["language"] for one in found["detectedLanguage"]] == ["fr", "de", "fr", "fr", "de"]
        asked = zip(texts, folders, strict=True)
        expected = ["\n".join(translate(text.split("\n"), model=folder)) for text, folder in asked]
        assert found["translatedText"] == expected
        assert len(set(expected)) > 3
        assert list(map(len, found["alternatives"]))[:2] == [2, 2]
        found = client.lines([{"text": text, "id": text} for text in texts], source="auto", target="en")
        assert [one["id"] for one in found] == texts
        assert [one["translation"] for one in found][:2] == expected[:2]


def test_a_text_in_the_target_language_comes_back_unchanged(english, translate):
    """LibreTranslate does so; `nmtalign serve` has no model for it."""
    text = "le renard voit un\tbateau .\r\nun bateau  "
    with serving(english) as client:
        for source in ("fr", "fr-CA", "French"):
            status, found, _ = client.ask("translate", {"q": text, "source": source, "target": "fr"})
            assert (status, found) == (200, {"translatedText": text})
        texts = [text, LINES[0], "le zébu mange un bon fruit"]  # of which no model knows most words
        body = {"q": texts, "source": "auto", "target": "fr", "alternatives": 1}
        _, found, _ = client.ask("translate", body)
        assert found["translatedText"] == [text, translate([LINES[0]])[0], texts[2]]
        assert [one["language"] for one in found["detectedLanguage"]] == ["fr", "en", "fr"]
        assert list(map(len, found["alternatives"])) == [0, 1, 0]
        assert client.ask("detect", {"q": text})[1][0] == {"confidence": 100.0, "language": "fr"}
        assert client.ask("translate", {"q": text, "source": "en", "target": "en"})[1] == {"translatedText": text}
        assert client.ask("translate", {"q": text, "source": "de", "target": "de"})[0] == 400


# JSON lines and alignments


OBJECTS = [
    {"text": LINES[0], "prefix": "le bateau", "reviewer": "Ann"},
    {"source": LINES[1], "phrases": ["rouge"], "id": "x7"},
    {"text": ""},
    {"text": LINES[3], "constraints": ["un", "voit"], "prefix": None},
]


def test_json_lines_are_those_of_the_command(client, translate):
    lines = [json.dumps(one) for one in OBJECTS]
    expected = translate(lines, "--set", "input_format=json", "--format", "json")
    direction = {"source": "en", "target": "fr"}
    body = "".join(f"{line}\n" for line in lines).encode()
    status, found, _ = client.raw(f"translate/json?{urlencode(direction)}", body)
    assert status == 200
    objects = [json.loads(line) for line in expected]
    assert_same([json.loads(line) for line in found.decode().splitlines()], objects)
    _, found, _ = client.ask("translate/json", OBJECTS, **direction)
    assert_same(found, objects)
    pretty = json.dumps(OBJECTS[0], indent=2).encode()
    _, found, _ = client.raw(f"translate/json?{urlencode(direction)}", pretty)
    assert_same([json.loads(line) for line in found.decode().splitlines()], objects[:1])


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({"beam": 1}, ["--beam", "1"]),
        ({"beam": 4, "length_penalty": "0.3"}, ["--beam", "4", "--set", "length_penalty=0.3"]),
        ({"alignment": "soft", "word_scores": "true"}, ["--alignment", "soft", "--set", "word_scores=true"]),
        ({"alignment": "hard", "search": "paper"}, ["--alignment", "hard", "--set", "search=paper"]),
        ({"replace_unk": "true", "tokenized": "true"}, ["--replace-unk", "--tokenized"]),
        ({"split_sentences": "true"}, ["--split-sentences"]),
        ({"sample": "true", "seed": 3, "n_best": 20}, ["--set", "sample=true", "--set", "seed=3", "--n-best", "20"]),
    ],
)
def test_settings_of_a_request_are_those_of_the_command(client, translate, query, options):
    expected = [json.loads(line) for line in translate(LINES, "--format", "json", *options)]
    assert_same(client.lines([{"text": line} for line in LINES], source="en", target="fr", **query), expected)


PAIRS = [("the fox sees a boat .", "le renard voit un bateau ."), ("a red boat", "un bateau rouge"), ("", "le")]


@pytest.mark.parametrize("around", [("", " "), (" ", ""), ("", "\r\n"), ("{\r\n", "\r\n}\r\n")])
def test_blanks_around_one_value_are_no_lines(client, translate, around):
    body = json.dumps({"text": LINES[0]})
    body = around[0] + (body[1:-1] if "{" in around[0] else body) + around[1]
    status, found, _ = client.raw("translate/json?source=en&target=fr", body.encode(), "application/json")
    assert (status, json.loads(found)["translation"]) == (200, translate([LINES[0]])[0])


def test_a_word_aligner_aligns_and_does_not_translate(aligner):
    pairs = [("a red boat", "un bateau rouge"), ("the fox", "le renard"), ("", "un")]
    with serving(aligner) as client:
        status, found, _ = client.ask("align", [{"source": one, "target": other} for one, other in pairs])
        assert status == 200
        for own, record in zip(found, nmtalign.align(aligner, pairs), strict=True):
            assert [tuple(link) for link in own["links"]] == record.links()
            assert (tuple(own["source"]), tuple(own["target"])) == (record.source, record.target)
            assert own["scores"] == [round(score, 4) for score in record.link_scores]
        assert found[0]["links"] == [[0, 0], [2, 1], [1, 2]]
        long = [{"source": "a", "target": "un"}] * 2 + [{"source": "a " * 2901, "target": "un"}]
        status, refused, _ = client.ask("align", long)
        assert (status, refused["error"][:54]) == (400, "line 3: no links, because a side has more than 2,900 w")
        query = {"source": "en", "target": "fr"}
        one = client.ask("align", {"source": "the fox", "target": "le renard"}, **query, threshold=0.99)
        assert (one[0], one[1]["source"]) == (200, ["the", "fox"])
        status, refused, _ = client.ask("align", {"source": "a", "target": "un"}, reading="current")
        assert (status, str(aligner) in refused["error"]) == (400, False)  # no client may learn of the server's files
        assert client.ask("health")[1]["models"][0]["source"] == "en"
        assert client.ask("languages")[1] == []
        bodies = {"translate": {"q": "a", **query}, "translate/json": {"text": "a"}, "detect": {"q": "a"}}
        for path, body in bodies.items():
            status, refused, _ = client.ask(path, body)
            assert (status, "the models are en-fr (only /align)" in refused["error"]) == (400, True)


def test_a_word_aligner_aligns_beside_a_model_that_translates(aligner, english):
    with serving(english, aligner) as client:
        assert client.ask("translate", {"q": "a fox", "source": "en", "target": "fr"})[0] == 200
        found = client.ask("align", {"source": "a red boat", "target": "un bateau rouge"})[1]
        assert found["links"] == [[0, 0], [2, 1], [1, 2]]
    served = ServedModels([Translator.load(english)], AlignConfig(), [load_aligner(aligner)])
    assert served.directions() == ["en-fr"]
    with pytest.raises(InputError, match="no model translates en-de"):
        served.aligner("en", "de")
    with pytest.raises(UsageError, match="give one word aligner per direction"):
        ServedModels([], AlignConfig(), [load_aligner(aligner)] * 2)
    with pytest.raises(UsageError, match="there is no model to serve"):
        ServedModels([], AlignConfig())


@pytest.mark.parametrize("options", [{}, {"reading": "posterior", "links": "threshold", "alignment_type": "float32"}])
def test_alignments_are_those_of_the_command(client, english, tmp_path, options):
    write_pairs(tmp_path, "a", PAIRS)
    flags = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    assert run_nmtalign("align", "a.en", "a.fr", "-m", english, *flags, cwd=tmp_path).returncode == 0
    result = run_nmtalign("export", "alignments.h5", "--format", "json", cwd=tmp_path)
    expected = [json.loads(line) for line in result.stdout.decode().splitlines()]
    assert any(one["links"] for one in expected)
    objects = [{"source": source, "target": target} for source, target in PAIRS]
    query = {"source": "en", "target": "fr", **options}
    status, found, _ = client.ask("align", objects, **query)
    assert status == 200
    assert_same(found, expected)
    body = "".join(json.dumps(one) + "\n" for one in objects).encode()
    _, found, _ = client.raw(f"align?{urlencode(query)}", body)
    assert_same([json.loads(line) for line in found.decode().splitlines()], expected)


def test_html_is_translated_with_its_tags(client, english, tmp_path):
    page = "<p title='a' lang=en-US>the <b>fox</b> sees a red boat. The Fox sees.</p>\r\n<pre>the fox</pre> {n}<br>"
    asked = {"source": "en", "target": "fr", "format": "html"}
    status, found, _ = client.ask("translate", {"q": page, **asked})
    assert status == 200
    expected = run_nmtalign("translate", "-m", english, "-q", "--markup", "html", cwd=tmp_path, stdin=page.encode())
    assert found == {"translatedText": expected.stdout.decode()}
    assert found["translatedText"].startswith("<p title='a' lang=fr>")
    assert client.ask("translate", {"q": [page, "", "<br>"], **asked})[1] == {
        "translatedText": [found["translatedText"], "", "<br>"]
    }
    unchanged = {"q": page, **asked, "source": "fr"}  # it is in the target language already
    assert client.ask("translate", unchanged)[1] == {"translatedText": page}
    # The language is that of the text, not that of tags and styles.
    pages = [f"<style>{'le un ' * 400}</style>{page}", "<p class='le' id='un' title='bateau' lang=en>fox</p>"]
    detected = client.ask("translate", {"q": pages, **asked, "source": "auto"})[1]
    assert detected["translatedText"] == client.ask("translate", {"q": pages, **asked})[1]["translatedText"]
    assert [one["language"] for one in detected["detectedLanguage"]] == ["en", "en"]


# What is refused


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("translate", {}, '"q" is missing'),
        ("translate", {"text": "a"}, "/translate/json"),
        ("translate", {"q": "a", "target": "fr"}, '"source" and "target" must be languages'),
        ("translate", {**text_request("a"), "target": "de"}, "no model translates en-de; the models are en-fr, fr-en"),
        ("translate", {"q": "a", "source": "auto", "target": "\ud800"}, "is not a language"),
        ("translate", text_request(3), '"q" is not a text'),
        ("translate", text_request(["a", None]), '"q" is not a text'),
        ("translate", {**text_request("a"), "source": ["en"]}, '"source" is not a text'),
        ("translate", {**text_request("<b>"), "format": "xml"}, '"format" must be "text" or "html"'),
        ("translate", {**text_request("a"), "format": "html", "alternatives": 2}, '"alternatives" are for "format":'),
        ("translate", {**text_request("a"), "alternatives": -1}, '"alternatives" must be a number'),
        ("translate", {**text_request("a"), "alternatives": True}, '"alternatives" must be a number'),
        ("translate", {**text_request("a"), "alternatives": []}, '"alternatives" must be a number'),
        ("translate", {**text_request("a"), "alternatives": 100}, '"alternatives" must be at most 99'),
        ("translate", ["a"], "not an object"),
        ("translate", b"", 'not JSON (Expecting value at column 1); write {"q": "...", "source": "en", "target":'),
        ("translate", b"{", "not JSON"),
        ("translate", b'{"q": NaN}', "NaN is no number"),
        ("translate", b"caf\xe9", "not UTF-8: byte 0xe9 at position 3"),
        ("translate/json", b"", "the body is empty"),
        ("translate/json", b'{"text": "a"}\nnonsense\n', "line 2: not JSON"),
        ("translate/json", b'{"text": "a"}\n{"texts": "a"}\n', 'line 2: the object has no "text"'),
        ("translate/json", b'[{"text": "a"}, 7]', "entry 2: not an object"),
        ("translate/json", b'{"text": ["a"]}', 'line 1: "text" is not a text'),
        ("align", b'{"source": "a"}', "line 1: not a pair"),
        ("align", b'{"source": "a", "target": 3}', 'line 1: "target" is not a text'),
        ("translate/json?beams=3", b'{"text": "a"}', "unknown setting 'beams'; the nearest known one is 'beam'"),
        ("translate/json?beam=0", b'{"text": "a"}', "request: beam = 0: must be at least 1"),
        ("translate/json?beam=101", b'{"text": "a"}', "must be at most 100"),
        ("translate/json?n_best=20", b'{"text": "a"}', "at most as many translations as the beam is wide"),
        ("translate/json?sample=yes", b'{"text": "a"}', "must be true or false"),
        ("translate/json?lexicon=/etc/passwd", b'{"text": "a"}', "unknown setting 'lexicon'"),
        ("translate/json?threads=9", b'{"text": "a"}', "unknown setting 'threads'"),
        ("translate/json?precision=int8", b'{"text": "a"}', "unknown setting 'precision'"),
        ("translate/json?sample=true", b'{"text": "a", "phrases": ["b"]}', "a sample cannot be made to contain"),
        ("align?precision=bf16", b'{"source": "a", "target": "b"}', "unknown setting 'precision'"),
        ("align?reading=nonsense", b'{"source": "a", "target": "b"}', "must be one of"),
    ],
)
def test_a_wrong_request_gets_one_clear_sentence(client, path, body, message):
    direction = "" if path == "translate" else f"{'&' if '?' in path else '?'}source=en&target=fr"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, found, _ = client.raw(path + direction, data, "application/json")
    error = json.loads(found)
    assert (status, list(error)) == (400, ["error"])
    assert message in error["error"]
    assert "\n" not in error["error"]
    assert "Traceback" not in error["error"]


def test_other_refusals(client):
    assert client.ask("nothing")[0] == 404
    assert client.raw("translate")[0] == 405
    assert client.raw("translate", b"x", "multipart/form-data; boundary=x")[0] == 415
    assert client.raw("translate", b"q=%FF", FORM)[0] == 400
    assert client.raw("translate", b"\x1f\x8b", FORM, Content_Encoding="gzip")[0] == 415
    status, found, _ = client.raw("translate/json", b'{"text": "a"}')
    assert (status, json.loads(found)["error"][:18]) == (400, "several models fit")
    status, found, _ = client.raw("translate/../../../etc/passwd")
    assert status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1@evil", ""])
def test_other_host_names_are_refused(client, host):
    """A foreign page whose host name changes its address to this machine (DNS rebinding) reaches nothing."""
    status, found, _ = client.raw("health", Host=host)
    assert (status, list(json.loads(found))) == (400, ["error"])
    assert "is no name of this server; allow it with --set allowed_hosts=NAME" in json.loads(found)["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "http://["},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Origin": "http://localhost:3000"},
    ],
    ids=str,
)
def test_pages_of_other_sites_are_refused(client, headers):
    """A browser sends this type of body without asking the server first."""
    body = json.dumps({"q": "a", "text": "a", "source": "en", "target": "fr"}).encode()
    for path in ("translate", "translate/json", "detect", "align"):
        status, found, received = client.raw(f"{path}?source=en&target=fr", body, "text/plain", **headers)
        assert (status, list(json.loads(found))) == (403, ["error"]), path
        assert "access-control-allow-origin" not in received


def test_the_page_of_the_server_and_other_programs_are_accepted(client):
    own = f"{client.host}:{client.port}"
    body = json.dumps(text_request("the fox")).encode()
    for headers in (
        {},
        {"Origin": f"http://{own}"},
        {"Origin": f"http://{own}", "Sec_Fetch_Site": "same-origin"},
        {"Origin": "https://proxy.example", "Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
    ):
        assert client.raw("translate", body, "text/plain", **headers)[0] == 200, headers
    assert client.raw("", Sec_Fetch_Site="cross-site")[0] == 200  # a link to the page


def test_names_that_are_allowed(english):
    with serving(english, allowed_hosts="translate.example, *.inside.example") as client:
        for host in ("translate.example", "a.inside.example:9"):
            assert client.raw("health", Host=host)[0] == 200
        assert client.raw("health", Host="example")[0] == 400
        body = json.dumps(text_request("a")).encode()
        for host in ("translate.example", "a.inside.example:9"):
            assert client.raw("translate", body, FORM, Origin=f"https://{host}")[0] == 200, host
        for host in ("example", "b.translate.example", "evil.example/.inside.example"):
            assert client.raw("translate", body, FORM, Origin=f"https://{host}")[0] == 403, host
    with serving(english, allowed_hosts="*") as client:
        assert client.raw("translate", body, FORM, Host="example", Origin="https://example")[0] == 200
        status, _, headers = client.raw("translate", body, FORM, Origin="https://evil.example")
        assert (status, headers["access-control-allow-origin"]) == (403, None)


def test_a_page_that_is_allowed_may_read_the_answer(english):
    """A browser asks first, because of the type of the body."""
    own = {"Origin": "https://app.example:8443"}
    asks = {**own, "Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    body = json.dumps(text_request("a")).encode()
    with serving(english, allowed_hosts="app.example") as client:
        status, _, headers = client.raw("translate", method="OPTIONS", **asks)
        assert (status, headers["access-control-allow-headers"]) == (200, "content-type")
        assert client.raw("translate", method="OPTIONS", **{**asks, "Origin": "https://other.example"})[0] == 400
        for path, expected in (("translate", 200), ("nothing", 404)):
            status, _, headers = client.raw(path, body, "application/json", **own)
            assert (status, headers["access-control-allow-origin"]) == (expected, own["Origin"])


def test_a_program_may_name_no_host(client):
    """HTTP/1.0 of a proxy that asks for the health of the server."""
    with socket.create_connection((client.host, client.port), PATIENCE) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(1000)


def test_limits_of_size(english):
    with serving(english, max_body="4K", max_lines=3, max_characters=50) as client:
        language = {"source": "en", "target": "fr"}
        assert client.ask("translate", {"q": ["a"] * 3, **language})[0] == 200
        status, found, _ = client.ask("translate", {"q": ["a"] * 4, **language})
        assert (status, found) == (413, {"error": "4 lines: send at most 3 in one request"})
        status, found, _ = client.ask("translate", {"q": "a\n" + "a" * 51, **language})
        assert (status, found) == (413, {"error": "line 2: longer than 50 characters"})
        for size in (5000, 3_000_000):
            status, found, _ = client.ask("translate", {"q": "a" * size, **language})
            assert (status, found) == (413, {"error": "the body is larger than 4096 bytes"})
        status, found, _ = client.ask("align", {"source": "a", "target": "b" * 51})
        assert status == 413
        status, found, _ = client.ask("translate/json", {"text": "a", "prefix": "b" * 1001})
        assert (status, found["error"][:7]) == (413, "line 1:")
        for phrases in (["b" * 10] * 34, ["b"] * 48, ["b" * 1000]):
            status, found, _ = client.ask("translate/json", {"text": "a", "phrases": phrases})
            assert (status, found["error"][:8]) == (413, "line 1: ")
        assert client.ask("health")[0] == 200


def test_alignments_that_are_too_large_are_refused(english):
    with serving(english) as client:
        line = {"text": "the " * 2000, "source": "the " * 2000, "target": "le " * 3000}
        for path in ("translate/json?alignment=soft", "align?alignment_type=float32"):
            status, found, _ = client.ask(path, line)
            assert (status, found["error"][:35]) == (413, "the alignments would be too large; "), path
        assert client.ask("translate/json?alignment=soft", {"text": "the fox"})[0] == 200


@pytest.mark.parametrize("query", ["beam=100&n_best=100", "beam=50", "sample=true&n_best=100"])
def test_a_wide_search_is_for_shorter_lines(english, query):
    with serving(english, max_characters=120) as client:
        body = [{"text": "a"}, {"text": "the fox " * 14}]
        assert client.ask("translate/json", body)[0] == 200
        status, found, _ = client.ask(f"translate/json?{query}", body)
        most = 28 if "50" in query else 14
        assert (status, found["error"][:24]) == (413, f"line 2: longer than {most} c")
        assert client.ask(f"translate/json?{query}", {"text": "the fox"})[0] == 200


def test_a_declared_length_that_is_too_large_is_not_read(english):
    with serving(english) as client, socket.create_connection((client.host, client.port), PATIENCE) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in connection.recv(1000)


def test_a_model_without_attention(blind_model):
    with serving(blind_model) as client:
        assert client.ask("health")[1]["models"][0]["alignments"] is False
        assert client.ask("translate", {"q": "a", "source": "en", "target": "fr"})[0] == 200
        for path in ("align", "translate/json?alignment=soft"):
            status, found, _ = client.ask(path, {"source": "a", "target": "b", "text": "a"})
            assert (status, found["error"][:27]) == (400, "this model has no attention")


def test_a_port_belongs_to_one_server_before_its_model_is_loaded(english):
    """Requests that come in the meantime are answered as soon as the model is loaded."""
    config = ServeConfig(port=0)
    with bind(config) as bound:
        port = bound.getsockname()[1]
        reported = rf"port {port}: address already in use; give another --port \(0 chooses a free one\) or --host$"
        with pytest.raises(ResourceError, match=reported):
            bind(ServeConfig(port=port))
        early = in_thread(lambda: Client(f"http://127.0.0.1:{port}/").ask("health")[0])
        models = ServedModels([Translator.load(english)], AlignConfig())
        server = make_server(make_application(models, config, print), config)
        serve = in_thread(lambda: server.run([bound]))
        assert early() == 200
        server.should_exit = True
        serve()
    bind(ServeConfig(port=port)).close()


def test_the_application_from_python(english, blind_model):
    """It is an ASGI application with keyword arguments for the settings of section [serve]."""
    with pytest.raises(UsageError, match=r"application: unknown setting 'max_bdy'"):
        application([Translator.load(blind_model)], max_bdy="1K")
    with pytest.raises(UsageError, match=r"allowed_hosts = \"a\*b\": give names such as translate.example"):
        application([Translator.load(blind_model)], allowed_hosts="a*b")
    with pytest.raises(UsageError, match='max_body = "x"'):
        application([Translator.load(blind_model)], max_body="x")
    app = application([Translator.load(english, device="cpu", beam=2)], allowed_hosts="inside.example", max_lines=1)
    sent: list[dict] = []

    async def ask(path, body, host=b"inside.example"):
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive():
            found = next(messages, None)
            return found if found else await asyncio.sleep(PATIENCE)

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", host)], "query_string": b""}
        await app({**scope, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}, receive, send)
        return sent[-2]["status"], sent[-1]["body"]

    line = LINES[0]
    status, body = asyncio.run(ask("/translate/json", json.dumps({"text": line}).encode()))
    assert status == 200
    expected = next(Translator.load(english, device="cpu").translate([line], beam=2))
    assert json.loads(body)["translation"] == expected.text
    assert asyncio.run(ask("/translate/json", b'[{"text": "a"}, {"text": "b"}]'))[0] == 413
    assert asyncio.run(ask("/translate/json", b"", b"elsewhere.example"))[0] == 400


# Time


class Held(Translator):
    """A translator that waits before each batch until `free` is set; `batches` records the lines."""

    def hold(self):
        self.free, self.begun, self.batches = threading.Event(), threading.Event(), []
        return self

    def changed(self, *arguments, **more):
        return self

    def translate(self, lines, **settings):
        self.batches.append([line.text for line in lines])
        self.begun.set()
        assert self.free.wait(PATIENCE)
        return super().translate(lines)


@pytest.fixture
def held(english):
    """A translator whose batches wait."""
    found = Held.load(english, device="cpu").hold()
    yield found
    found.free.set()


def test_lines_that_require_many_phrases_are_few_in_a_batch(held):
    """The time of their steps grows with the square of the number of phrases."""
    lines = [{"text": f"line {n}", "phrases": ["un"] * 40} for n in range(3)]
    held.free.set()
    with serving(translators=[held]) as client:
        assert client.ask("translate/json", lines)[0] == 200
        assert client.ask("translate/json", [{"text": "a", "phrases": ["un"]}] * 3)[0] == 200
    assert held.batches == [["line 0"], ["line 1"], ["line 2"], ["a"] * 3]


def in_thread(work):
    """Starts work; returns a function that waits for its result."""
    pool = ThreadPoolExecutor(1)
    started = pool.submit(work)
    pool.shutdown(wait=False)
    return partial(started.result, PATIENCE)


def test_a_request_that_takes_too_long_is_refused_and_dropped(held):
    with serving(translators=[held], time_limit="1s") as client:
        while not held.begun.is_set():  # on a busy machine a second may pass before a request is in its batch
            client.ask("translate", text_request("first"))
        status, found, _ = client.ask("translate", text_request("late"))
        assert (status, found["error"][:27]) == (504, "no result within 1 seconds;")
        assert client.ask("health")[1]["lines"] == 0
        held.free.set()
        while client.ask("translate", text_request("next"))[0] != 200:
            pass
    assert held.batches[0] == ["first"]
    assert ["late"] not in held.batches


def test_short_lines_do_not_wait_for_a_long_one(held, aligner):
    with serving(aligner, translators=[held]) as client:
        first = in_thread(lambda: client.ask("translate", text_request("a " * 1000)))
        assert held.begun.wait(PATIENCE)
        assert client.ask("align", {"source": "the fox", "target": "le renard"}, source="en", target="fr")[0] == 200
        assert client.ask("detect", {"q": "the fox"})[0] == 200
        held.begun.clear()
        other = in_thread(lambda: client.ask("translate", text_request("a fox")))
        assert held.begun.wait(PATIENCE)
        assert client.ask("health")[1]["lines"] == 2
        held.free.set()
        assert [first()[0], other()[0]] == [200, 200]


WORK = [("lines", {}), ("lines", {"sample": "true"}), ("pairs", {})]
WORK += [("pairs", {"reading": reading}) for reading in ("posterior", "shifted")]


@pytest.mark.parametrize("system", ["rnnsearch", "transformer", "copy"])
@pytest.mark.parametrize(("method", "settings"), WORK, ids=str)
def test_work_for_no_waiting_client_ends_at_its_next_step(random_model_directory, tmp_path, method, settings, system):
    folder = random_model_directory(tmp_path, **SYSTEMS[system])
    model = ServedModel(Translator.load(folder, device="cpu"), AlignConfig())
    line = "the fox sees a boat " * 10
    try:
        if method == "lines":
            work = partial(model.lines(tuple(settings.items())).translate, [(0, Line(line))])
        else:
            work = partial(model.pairs(tuple(settings.items()))[0], [(0, (line, line))])
        assert len(work()) == 1
    except UsageError:
        pytest.skip("this system has no such weights")
    looks = []
    with pytest.raises(Abandoned), abandoned_if(lambda: looks.append(None) or len(looks) > 5):
        work()
    assert len(looks) == 6


def test_the_request_of_a_client_that_has_gone_is_dropped(held):
    with serving(translators=[held]) as client:
        first = in_thread(lambda: client.ask("translate", text_request("first")))
        assert held.begun.wait(PATIENCE)
        body = json.dumps(text_request("gone")).encode()
        with socket.create_connection((client.host, client.port), PATIENCE) as connection:
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            while client.ask("health")[1]["requests"] < 2:
                time.sleep(0.01)
        while client.ask("health")[1]["requests"] > 1:
            time.sleep(0.01)
        held.free.set()
        assert first()[0] == 200
    assert held.batches == [["first"]]


SLOW = {  # what a connection sends, and whether it is answered
    b"": False,
    b"POST /translate HT": False,
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nX: ": False,
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{": True,
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{": True,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HT": False,
}


def test_connections_that_send_too_slowly_are_closed(english):
    notes: list[str] = []
    with serving(english, time_limit="1s", notes=notes) as client, contextlib.ExitStack() as stack:
        address = client.host, client.port
        large = json.dumps({**text_request("&" * 900_000), "format": "html"}).encode()  # 5 MB fill the buffers
        while client.raw("translate", large)[0] != 200:  # on a busy machine not within a second
            pass
        connections = []
        for sent in SLOW:
            connections.append(stack.enter_context(socket.create_connection(address, PATIENCE)))
            connections[-1].sendall(sent)
        for connection, (sent, answered) in zip(connections, SLOW.items(), strict=True):
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(10_000):
                    received += part
            assert (b" 408 " in received) == answered, sent
        assert client.ask("health")[0] == 200
    assert notes == []


def test_a_small_answer_is_sent_at_once(client):
    """TCP would send its second part when the client has confirmed the first one, after 40 ms on Linux."""
    with socket.create_connection((client.host, client.port), PATIENCE) as connection:

        def answered_soon():
            began = time.monotonic()
            connection.sendall(b"GET /languages HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while not received.endswith(b"]\n"):
                received += connection.recv(10_000)
            return time.monotonic() - began < 0.03

        for _ in range(5):  # TCP confirms the first parts at once
            answered_soon()
        assert any(answered_soon() for _ in range(2000))  # on a busy machine few


def test_a_file_of_the_server_is_none_of_the_clients(english, tmp_path):
    (tmp_path / "terms.tsv").write_text("fox\tboat\n")
    notes = []
    translator = Translator.load(english, device="cpu", glossary=tmp_path / "terms.tsv")
    (tmp_path / "terms.tsv").unlink()
    with serving(translators=[translator], notes=notes) as client:
        assert client.ask("translate?beam=2", text_request("a fox"))[0] == 200
        status, found, _ = client.ask("translate?tokenized=true", text_request("a fox"))
    assert (status, found) == (500, {"error": "an error inside the server, which reports it"})
    assert "terms.tsv: cannot read" in notes[0]


def test_an_error_inside_is_reported_without_details(english, monkeypatch):
    def fail(self, lines):
        raise RuntimeError("secret\x1b[31m of the machine")

    monkeypatch.setattr("nmtalign.serving.served_models.LineTranslator.translate", fail)
    notes: list[str] = []
    with serving(english, notes=notes) as client:
        status, found, _ = client.ask("translate", text_request("a"))
    assert (status, found) == (500, {"error": "an error inside the server, which reports it"})
    assert len(notes) == 1
    assert notes[0].startswith("POST /translate: RuntimeError: secret")


def test_connections_beyond_the_limit_of_open_files_wait_and_are_reported_once(english, monkeypatch):
    accept, refused = socket.socket.accept, iter(range(3))

    def accept_later(listening):
        if next(refused, None) is not None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    notes: list[str] = []
    with serving(english, notes=notes) as client:
        assert client.ask("health")[0] == 200
    assert len(notes) == 1
    assert "Too many open files" in notes[0]


def test_a_body_that_is_not_http_is_no_error_inside(english):
    notes: list[str] = []
    with serving(english, notes=notes) as client:
        with socket.create_connection((client.host, client.port), PATIENCE) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n")
            received = b"".join(iter(lambda: connection.recv(10_000), b""))
        assert client.ask("health")[0] == 200
    assert (received.count(b"HTTP/1.1 "), notes) == (1, [])


def test_a_server_that_ends_answers_what_waits(held):
    with serving(translators=[held]) as client:
        first = in_thread(lambda: client.ask("translate", text_request("a")))
        assert held.begun.wait(PATIENCE)
        threading.Timer(1, held.free.set).start()
    assert first()[0] == 200


def test_a_server_that_ends_drops_what_takes_too_long(held):
    with serving(translators=[held], shutdown_time="1s") as client:
        first = in_thread(lambda: client.ask("translate", text_request("a")))
        assert held.begun.wait(PATIENCE)
    status, found, _ = first()
    assert (status, found) == (503, {"error": "the server is shutting down"})
