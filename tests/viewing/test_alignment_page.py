"""The page of alignments, read back without a browser: its contents, its packing, its policy, and its errors."""

import base64
import hashlib
import html
import json
import re
import zlib

import numpy as np
import pytest
from helpers.records import add

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.link_files import read_links
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.viewing.alignment_page import BLOCK_ENTRIES, parse_numbers, write_page

ODD = ("a b", "", '"', "\\", "</script>", "<!--", "é", "e\u0301", "中文", "שלום", "\u2028", "🙂", "\r")


def make_record(number=0, source=("the", "cat"), target=("le", "chat", "noir"), rank=0):
    generator = np.random.default_rng(number)
    shape = (len(target) + 1, len(source) + 1)
    weights = generator.dirichlet(np.full(shape[1], 0.5), shape[0]).astype(np.float32)
    log_probs = np.zeros(len(target) + 1, np.float32)
    links = ((0, 0),) if source and target else ()
    return AlignmentRecord(tuple(source), tuple(target), weights, -1.25, number, log_probs, links, rank=rank)


def write_file(path, records):
    # The links of a soft method are not those of the method that reads the links of one direction.
    how = {"links_method": "argmax", "symmetrization": "mean", "threshold": 0.5, "reading": "posterior"}
    with AlignmentWriter(path, {"direction": "en-fr", "model_hash": "abc", **how}) as writer:
        for record in records:
            writer.add(record)
    return path.stem, path


def elements(page, kind):
    return re.findall(rf'<script type="text/plain" data-kind="{kind}">(.*?)</script>', page, re.S)


def unpack(text):
    return zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)


def made(tmp_path, *files, **details):
    """(summary, page, columns of the words of all blocks) of a page."""
    summary = write_page(files, tmp_path / "page.html", **details)
    page = (tmp_path / "page.html").read_bytes().decode()
    blocks = [json.loads(unpack(text)) for text in elements(page, "words")]
    return summary, page, {name: [value for block in blocks for value in block[name]] for name in blocks[0]}


def test_words_and_weights_come_back(tmp_path):
    records = [make_record(k, ODD * (k % 2), ("y",) * (3 * k)) for k in range(4)]
    records.append(make_record(4, ("x",) * 500, ("y",) * 500))  # too large to be drawn
    records.append(make_record(5, ODD, ODD))
    records[5].weights[0, :3] = np.nan, 7, -1
    _, page, columns = made(tmp_path, write_file(tmp_path / "x.h5", records))
    assert [tuple(text.split("\n")[:-1]) for text in columns["source"]] == [record.source for record in records]
    assert [tuple(text.split("\n")[:-1]) for text in columns["target"]] == [record.target for record in records]
    assert [columns[name] for name in ("id", "rank", "model")] == [list(range(6)), [0] * 6, [0] * 6]
    assert columns["log_prob"] == [-1.25] * 6
    assert columns["aer"] == [None] * 6
    assert (columns["links"][5], columns["sure"][5]) == ([0, 0], [])
    cells = np.frombuffer(b"".join(map(unpack, elements(page, "weights"))), np.uint8) / 255
    records[5].weights[0, :3] = 0, 1, 0
    expected = np.concatenate([records[k].weights.ravel() for k in (0, 1, 2, 3, 5)])
    assert cells.size == expected.size
    assert np.abs(cells - expected).max() <= 0.5 / 255 + 1e-3  # half a step, and the half precision of the file


def test_a_page_contains_every_sentence_and_nothing_from_elsewhere(tmp_path):
    source = write_file(tmp_path / "x.h5", map(make_record, range(300)))
    summary, page, columns = made(tmp_path, source)
    assert (summary.sentences, summary.complete) == (300, True)
    assert columns["id"] == list(range(300))
    blocks = [json.loads(unpack(text))["id"] for text in elements(page, "words")]
    assert list(map(len, blocks)) == [BLOCK_ENTRIES, BLOCK_ENTRIES, 300 - 2 * BLOCK_ENTRIES]
    (model,) = json.loads(elements(page, "about")[0])["models"]
    expected = {"direction": "en-fr", "model_hash": "abc", "links": "mean,0.5,posterior"}
    assert {key: model["about"][key] for key in expected} == expected
    assert "argmax" not in str(model["about"])
    assert not {"", "none"} & set(model["about"].values())
    markup = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    assert not re.search(r"https?://|\s(src|srcset|action|on\w+)=", markup)
    assert "not why" in markup.replace("\n", " ")
    assert made(tmp_path, source)[1] == page


def test_the_policy_lets_in_this_script_and_nothing_from_elsewhere(tmp_path):
    _, page, _ = made(tmp_path, write_file(tmp_path / "x.h5", [make_record()]))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    none = dict.fromkeys(("default-src", "connect-src", "base-uri", "form-action"), "'none'")
    own = {"script-src": f"'sha256-{digest}'", "style-src": "'unsafe-inline'"}
    assert rules == none | own | {"img-src": "data:", "worker-src": "'none'"}
    assert page.index("Content-Security-Policy") < page.index("<style")
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", page)


def test_hostile_words_titles_and_names_are_inert(tmp_path):
    hostile = "</script><script>alert(1)</script><!-- \"&'"
    with AlignmentWriter(tmp_path / "x.h5", {"direction": hostile}) as writer:
        add(writer, [hostile], [hostile], np.eye(2), 0.0)
    _, page, _ = made(tmp_path, (hostile, tmp_path / "x.h5"), title=hostile)
    assert "alert(1)</script>" not in page
    assert page.count("<script>") == 1
    assert page.count("<script") == page.count("</script>") == 4
    assert hostile == html.unescape(re.search("<title>(.*)</title>", page)[1])
    assert json.loads(elements(page, "about")[0])["models"][0]["name"] == hostile


def test_some_sentences_of_two_files_with_n_best_lists(tmp_path):
    first = write_file(tmp_path / "a.h5", [make_record(k, rank=rank) for k in range(6) for rank in range(1 + k % 2)])
    second = write_file(tmp_path / "b.h5", map(make_record, (0, 1, 9)))
    summary, page, columns = made(tmp_path, first, second)
    assert summary.sentences == 6
    assert list(zip(columns["id"], columns["rank"], columns["model"], strict=True)) == [
        (0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0), (3, 0, 0), (3, 1, 0), (4, 0, 0), (5, 0, 0),
        (5, 1, 0),
    ]  # fmt: skip
    assert [model["name"] for model in json.loads(elements(page, "about")[0])["models"]] == ["a", "b"]
    assert "<title>Alignments: a.h5, b.h5</title>" in page
    summary, page, columns = made(tmp_path, first, numbers=parse_numbers("4-20, 1"), limit=2)
    assert (summary.sentences, summary.complete, columns["id"]) == (2, False, [1, 1, 4])
    assert not json.loads(elements(page, "about")[0])["complete"]


def test_numbers():
    assert parse_numbers("") == []
    assert parse_numbers("3") == [range(3, 4)]
    assert parse_numbers("5-9,0-2") == [range(3), range(5, 10)]
    assert parse_numbers("0-4,5, 2-3") == [range(6)]
    for text in ("a", "3-1", "-2", "1,,2", "1.5"):
        with pytest.raises(UsageError, match="--sentence"):
            parse_numbers(text)


def test_gold_links_are_counted_as_aer_counts_them(tmp_path):
    source = write_file(tmp_path / "x.h5", [make_record(0), make_record(1)])
    (tmp_path / "gold").write_text("0-0 1p0\n0-1 1?1\n")
    _, page, columns = made(tmp_path, source, gold=read_links(tmp_path / "gold", "gold"))
    assert columns["sure"] == [[0, 0], [0, 1]]
    assert columns["possible"] == [[0, 0, 1, 0], [0, 1, 1, 1]]
    assert columns["aer"] == [0, 1]
    assert json.loads(elements(page, "about")[0])["models"][0]["aer"] == pytest.approx(0.5)


def test_a_page_is_complete_or_not_there(tmp_path):
    source, page = write_file(tmp_path / "x.h5", map(make_record, range(3))), tmp_path / "page.html"
    empty = write_file(tmp_path / "empty.h5", [])
    page.write_text("old")
    for lines, message in (("0-0\n", "has no line 2: it has 1"), ("0-0\n0-9\n\n", "line 2.*0-9.*outside")):
        (tmp_path / "gold").write_text(lines)
        with pytest.raises(InputError, match=message):
            write_page([source], page, gold=read_links(tmp_path / "gold", "gold"))
    with pytest.raises(UsageError, match=r"no sentence 0; it has none$"):
        write_page([empty], page)
    with pytest.raises(UsageError, match=r"no sentence 5; it has sentences 0 to 2, counted from 0$"):
        write_page([source], page, numbers=parse_numbers("5"))
    with pytest.raises(FormatError, match=r"none\.h5"):
        write_page([("none", tmp_path / "none.h5")], page)
    assert page.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"x.h5", "empty.h5", "page.html", "gold"}
