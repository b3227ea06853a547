"""Documents with markup after translation: each tag and each placeholder once, and nested as before."""

import itertools
import random
import re
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from helpers.marked_documents import TAG, DocumentMaker, ShufflingTranslator, nesting, translated, translation_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from nmtalign.text.markup import read_markup, units_of
from nmtalign.translating.documents import DocumentTexts, put_back, unit_weights
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Alternative

SEEDS = st.integers(0, 2**32)
PLACEHOLDER = re.compile(r"\{n\d+\}")
SCRIPT = re.compile(r"<script>.*?</script>|<pre>.*?</pre>|title=\"a > b\"", re.DOTALL)


@settings(max_examples=100)
@given(SEEDS)
def test_html_keeps_its_tags(seed):
    maker = DocumentMaker(seed)
    source = maker.html()
    found = translated(source.encode(), "html", ShufflingTranslator(maker.chance))
    for pattern in (TAG, PLACEHOLDER, SCRIPT):
        assert Counter(pattern.findall(found)) == Counter(pattern.findall(source)), source
    bare_source, bare_found = (SCRIPT.sub("", text) for text in (source, found))
    comments = re.compile(r"<!--.*?-->", re.DOTALL)
    before = nesting(comments.sub("", bare_source))
    assert before is not None
    assert nesting(comments.sub("", bare_found)) == before, source


@settings(max_examples=100)
@given(SEEDS)
def test_broken_html_keeps_its_tags(seed):
    maker = DocumentMaker(seed)
    source = maker.html()
    for _ in range(3):
        places = [match.span() for match in TAG.finditer(source)] or [(0, 0)]
        start, stop = maker.chance.choice(places)
        source = source[:start] + maker.chance.choice(["", "</p>", "<b", "<"]) + source[stop:]
    found = translated(source.encode(), "html", ShufflingTranslator(maker.chance))
    names = re.compile(r"</?(?:b|i|a|em|span|p|div|li|td|img|br|wbr|hr|section|code|pre|script)\b")
    assert Counter(names.findall(found)) == Counter(names.findall(source)), source


@settings(max_examples=100)
@given(SEEDS)
def test_xliff_keeps_its_codes(seed):
    maker = DocumentMaker(seed)
    source = maker.xliff()
    found = translated(source.encode(), "xliff", ShufflingTranslator(maker.chance))
    root = etree.fromstring(found.encode())
    assert root.find("{*}file").get("target-language") == "fr"
    for unit in root.iter("{*}trans-unit"):
        sides = (unit.find(f"{{*}}{side}") for side in ("source", "target"))
        texts = [etree.tostring(side, method="c14n", with_tail=False).decode() for side in sides]
        before, after = (re.sub(r"</?(source|target)\b[^>]*>", "", text) for text in texts)
        for pattern in (TAG, PLACEHOLDER, re.compile(r"&lt;/?i&gt;"), re.compile(r"<ph.*?</ph>")):
            assert Counter(pattern.findall(before)) == Counter(pattern.findall(after)), source


@settings(max_examples=100)
@given(SEEDS, st.sampled_from(["srt", "vtt"]))
def test_subtitles_keep_their_times(seed, markup):
    maker = DocumentMaker(seed)
    source = maker.cues(markup)
    found = translated(source.encode(), markup, ShufflingTranslator(maker.chance))
    tags = re.compile(r"</?[biv][^>]*>|\{[^{}]*\}")
    assert Counter(tags.findall(found)) == Counter(tags.findall(source)), source
    times = re.compile(r"(?:\A|\n)\d+\n\d\d:.*-->.*\n|NOTE the fox\nsees\n|STYLE\n.*\n")
    assert times.findall(found) == times.findall(source), source
    blocks = [re.split(r"\n\n+", text.strip("\n")) for text in (source, found)]
    assert len(blocks[0]) == len(blocks[1]), source  # no blank line has come into a cue


@settings(max_examples=50)
@given(SEEDS)
def test_cues_keep_the_number_of_their_lines(seed):
    chance = random.Random(seed)
    cues = ["the old", "<i>fox\n</i> sees", "the <b>red\nboat</b> and", "a\n<b>red\n<i>boat\n</i></b>was", "is <i>\nso"]
    source = "\n\n".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{chance.choice(cues)}" for n in range(4))
    found = translated(source.encode(), "srt", ShufflingTranslator(chance))
    lines, own = ([cue.count("\n") - 1 for cue in text.split("\n\n")] for text in (source, found))
    assert own == lines or len(re.findall("[a-z]+", TAG.sub("", found))) < sum(lines), source


@pytest.mark.parametrize("text", ["the {<b>fox</b>} sees", "the fox@<i>a.org</i> sees", "the $%sFOX sees"])
def test_a_placeholder_that_cannot_be_taken_out_may_change(text):
    work = DocumentTexts([read_markup(f"<p>{text}</p>".encode(), "html")])
    for _ in range(2):
        source = ("the", "fox")
        best = Alternative("le renard", ("le", "renard"), 0.0, 0.0, (0.0,), np.eye(3, dtype=np.float32))
        for key, line in work.lines():
            work.add(key, translation_of(Request(line), source, 0, best))
    assert work.lines() == []
    (found,) = work.documents()
    assert Counter(TAG.findall(found)) == Counter(TAG.findall(f"<p>{text}</p>"))


def test_placeholders_may_touch():
    parts = ["%s", "<b>%s</b>", "%d", "$V", "{x}", "5", "&shy;", "a@b.org", "<i>https://a.org</i>", "%V%"]
    page = "".join(f"<p>{''.join(some)}</p>" for some in itertools.product(parts, repeat=3))
    found = translated(page.encode(), "html", ShufflingTranslator(random.Random(1)))
    assert Counter(TAG.findall(found)) == Counter(TAG.findall(page))


def test_a_placeholder_may_touch_a_number_beyond_a_tag():
    page = "<p>the fox 5<i></i>%s sees</p>" * 20
    assert translated(page.encode(), "html", ShufflingTranslator(random.Random(1))).count("%s") == 20


def test_a_large_document_takes_little_memory():
    page = b"<p>the fox sees a red boat, and the <b>boat</b> sees it.</p>\n" * 200
    translator = ShufflingTranslator(random.Random(1))
    tracemalloc.start()
    translated(page, "html", translator)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * len(page)  # 24; with all tokens and translations 96


def test_attention_between_tokens_becomes_attention_between_words():
    tokens, source = ("▁l", "'", "homme", "."), ("▁the", "▁m", "an", ".")
    weights = np.array([[1, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0.3, 0.7, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]])
    best = Alternative("l'homme.", tokens, 0.0, 0.0, (0.0,), weights.astype(np.float32))
    found = translation_of(Request("the man."), source, 0, best)
    words = [units_of(text) for text in ("the man.", "l'homme.")]
    np.testing.assert_allclose(unit_weights(found, *words), [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]], atol=1e-6)


def test_bytes_become_words():
    tokens = ("▁", "<C3>", "<A9>", "a", "▁", "b")
    best = Alternative("éa b", tokens, 0.0, 0.0, (0.0,), np.eye(7, 4, dtype=np.float32))
    found = translation_of(Request("x y z"), ("▁x", "▁y", "▁z"), 0, best)
    assert unit_weights(found, units_of("x y z"), units_of("éa b")).shape == (2, 3)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (("▁医生", "读", "书", "。"), "医生读\n书。"),  # not before the full stop, where the words behind are linked
        (("▁医生", "读书", "。"), "医生\n读书。"),
        (("▁医", "生", "「", "书", "」"), "医\n生「书」"),
        (("▁医生", "read", "."), "医生\nread."),
    ],
)
def test_a_line_of_text_without_spaces_ends_before_a_token_that_begins_with_a_letter(tokens, found):
    (segment,) = (one for one in read_markup(b"00:01.000 --> 00:02.000\nx y z\nw\n", "vtt") if not isinstance(one, str))
    weights = np.full((len(tokens) + 1, 5), 0.1, np.float32)
    weights[: len(tokens) - 1, 2] = weights[len(tokens) - 1, 3] = 0.6
    text = "".join(tokens).removeprefix("▁")
    best = Alternative(text, tokens, 0, 0, (), weights)
    translation = translation_of(Request("x y z w"), ("x", "y", "z", "w"), 0, best)
    assert put_back(segment, translation) == found
