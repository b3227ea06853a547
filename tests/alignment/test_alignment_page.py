"""The page of `nmtalign view`, read back without a browser: its contents, its packing, and its errors."""

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.alignment_page import PageSummary, write_page
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.alignment.page_data import BLOCK_ENTRIES, PageEntry, pack_weights, pack_words, parse_numbers
from nmtalign.errors import FormatError, InputError, UsageError


def make_record(number=0, source=("the", "cat"), target=("le", "chat", "noir"), rank=0, end=True, seed=0):
    generator = np.random.default_rng(seed + number)
    shape = (len(target) + end, len(source) + end)
    weights = generator.dirichlet(np.full(shape[1], 0.5), shape[0]).astype(np.float32)
    log_probs = np.log(generator.uniform(0.1, 1, len(target) + 1)).astype(np.float32)
    log_probs[0] = np.nan
    return AlignmentRecord(
        tuple(source), tuple(target), weights, -1.25, number, log_probs, ((0, 0), (1, 1)), rank=rank, end=end
    )


def write_file(path: Path, sentences: int = 3, *, words: int = 2, title: str = "") -> Path:
    with AlignmentWriter(path, {"direction": "en-fr", "model_hash": "abc"}) as writer:
        for number in range(sentences):
            source, target = [f"s{number}{title}"] * words, [f"t{number}{title}"] * words
            writer.append(source, target, np.eye(words + 1), -1.0 * number, number)
    return path


def elements(page: str, kind: str) -> list[str]:
    return re.findall(rf'<script type="text/plain" data-kind="{kind}">(.*?)</script>', page, re.S)


def unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)


def unpack_weights(text: str) -> tuple[dict, bytes]:
    data = unpack(text)
    length = int.from_bytes(data[:4], "little")
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def about(page: str) -> dict:
    return json.loads(elements(page, "about")[0])


# --- packing ---


def test_words_come_back_as_they_were():
    words = ("a b", "", '"', "\\", "</script>", "<!--", "é", "e\u0301", "中文", "שלום", "\u2028", "🙂", "\r")
    records = [make_record(7, words, (), end=False), make_record(8, (), words, rank=3)]
    columns = json.loads(unpack(pack_words([PageEntry(records[0]), PageEntry(records[1], model=1, first=False)])))
    assert tuple(columns["source"][0].split("\n")[:-1]) == words
    assert tuple(columns["target"][1].split("\n")[:-1]) == words
    assert (columns["source"][1], columns["target"][0]) == ("", "")
    assert [columns[name] for name in ("id", "rank", "model", "first", "end")] == [
        [7, 8],
        [0, 3],
        [0, 1],
        [1, 0],
        [0, 1],
    ]
    assert columns["log_prob"] == [-1.25, -1.25]
    assert columns["aer"] == [None, None]


def test_weights_come_back_to_within_half_a_step():
    records = [make_record(k, ("x",) * (k + 1), ("y",) * (3 * k + 1), end=k % 2 == 0) for k in range(4)]
    columns, cells = unpack_weights(pack_weights([PageEntry(record) for record in records]))
    start = 0
    for record, drawn, surprise in zip(records, columns["drawn"], columns["surprise"], strict=True):
        size = record.weights.size
        back = np.frombuffer(cells[start : start + size], np.uint8).reshape(record.weights.shape) / 255
        assert np.abs(back - record.weights).max() <= 0.5 / 255 + 1e-6
        start += size
        assert drawn == 1
        assert surprise[0] == 255  # not known
        assert np.abs(np.array(surprise[1:]) / -20 - record.token_log_probs[1:]).max() <= 0.025 + 1e-6
    assert start == len(cells)
    assert columns["links"] == [[0, 0, 1, 1]] * 4
    assert columns["sure"] == columns["possible"] == [None] * 4


def test_a_weight_that_is_no_number_and_one_out_of_range_do_no_harm():
    record = make_record()
    record.weights[0] = np.nan, 7, -1
    _, cells = unpack_weights(pack_weights([PageEntry(record)]))
    assert list(cells[:3]) == [0, 255, 0]


def test_a_sentence_too_long_to_draw_keeps_its_words_and_links():
    records = [make_record(0, ("x",) * 500, ("y",) * 500), make_record(1, ("a",), ("b",))]
    columns, cells = unpack_weights(pack_weights([PageEntry(record) for record in records]))
    assert columns["drawn"] == [0, 1]
    assert len(cells) == records[1].weights.size
    assert columns["links"][0] == [0, 0, 1, 1]


# --- the page ---


def test_a_page_holds_every_sentence_and_nothing_from_elsewhere(tmp_path):
    source = write_file(tmp_path / "x.h5", 300)
    summary = write_page([source], tmp_path / "page.html")
    data = (tmp_path / "page.html").read_bytes()
    page = data.decode()
    assert summary == PageSummary(300, 300, len(data), True, summary.counts)
    blocks = [json.loads(unpack(text)) for text in elements(page, "words")]
    assert [len(block["id"]) for block in blocks] == [BLOCK_ENTRIES, BLOCK_ENTRIES, 300 - 2 * BLOCK_ENTRIES]
    assert [number for block in blocks for number in block["id"]] == list(range(300))
    assert len(elements(page, "weights")) == 3
    attributes = about(page)["models"][0]["attributes"]
    assert {key: attributes[key] for key in ("direction", "model_hash")} == {"direction": "en-fr", "model_hash": "abc"}
    assert not {"", "none"} & set(attributes.values())
    markup = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", markup)
    assert not re.search(r"\s(src|srcset|action|on\w+)=", markup)
    assert "not why" in markup


def test_the_policy_lets_in_this_script_and_this_style_and_nothing_else(tmp_path):
    write_page([write_file(tmp_path / "x.h5")], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    code = {
        "script-src": re.search(r"<script>(.*?)</script>", page, re.S)[1],
        "style-src": re.search(r"<style>(.*?)</style>", page, re.S)[1],
    }
    for name, text in code.items():
        assert rules.pop(name) == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert page.index("Content-Security-Policy") < page.index("<style")
    assert "innerHTML" not in page
    assert "eval(" not in page


def test_hostile_words_titles_and_names_are_inert(tmp_path):
    hostile = "</script><script>alert(1)</script><!-- \"&'"
    path = tmp_path / "x.h5"
    with AlignmentWriter(path, {"direction": hostile}) as writer:
        writer.append([hostile], [hostile], np.eye(2), 0.0)
    write_page([path], tmp_path / "page.html", title=hostile + "{{script}}", names=[hostile])
    page = (tmp_path / "page.html").read_text()
    assert "alert(1)</script>" not in page
    assert page.count("<script>") == 1
    assert page.count("<script") == page.count("</script>") == 4
    assert hostile + "{{script}}" == html.unescape(re.search("<title>(.*) · alignments</title>", page)[1])
    assert about(page)["models"][0]["name"] == hostile
    assert about(page)["title"] == hostile + "{{script}}"


def test_the_same_file_gives_the_same_page(tmp_path):
    source = write_file(tmp_path / "x.h5")
    for name in ("1.html", "2.html"):
        write_page([source], tmp_path / name)
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


def test_some_sentences(tmp_path):
    source = write_file(tmp_path / "x.h5", 10)
    summary = write_page([source], tmp_path / "page.html", numbers=parse_numbers("7-20, 2"), limit=3)
    assert (summary.sentences, summary.complete) == (3, False)
    block = json.loads(unpack(elements((tmp_path / "page.html").read_text(), "words")[0]))
    assert block["id"] == [2, 7, 8]
    assert not about((tmp_path / "page.html").read_text())["complete"]


def test_a_sentence_that_only_the_first_file_has(tmp_path):
    sources = [write_file(tmp_path / "x.h5", 10), write_file(tmp_path / "y.h5", 5)]
    summary = write_page(sources, tmp_path / "page.html", numbers=parse_numbers("7,2"))
    assert summary.sentences == 2
    with pytest.raises(UsageError, match=r"y\.h5: no sentence 7"):
        write_page(sources[::-1], tmp_path / "page.html", numbers=parse_numbers("7"))


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("3", [range(3, 4)]),
        ("5-9,0-2", [range(3), range(5, 10)]),
        ("0-4,5,2-3", [range(6)]),
    ],
)
def test_numbers(text, ranges):
    assert parse_numbers(text) == ranges


@pytest.mark.parametrize("text", ["", "a", "3-1", "-2", "1,,2", "1.5"])
def test_numbers_that_are_none(text):
    with pytest.raises(UsageError, match="--sentences"):
        parse_numbers(text)


def test_places_of_an_n_best_list_are_one_sentence(tmp_path):
    with AlignmentWriter(tmp_path / "x.h5", {}) as writer:
        for number, rank in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 0), (3, 0), (3, 2)]:
            writer.add(make_record(number, rank=rank))
    summary = write_page([tmp_path / "x.h5"], tmp_path / "page.html")
    assert (summary.sentences, summary.entries) == (4, 7)
    block = json.loads(unpack(elements((tmp_path / "page.html").read_text(), "words")[0]))
    assert block["first"] == [1, 0, 0, 1, 1, 1, 0]
    assert block["rank"] == [0, 1, 2, 0, 0, 0, 2]


def test_two_files_side_by_side(tmp_path):
    first, second = write_file(tmp_path / "a.h5", 4), write_file(tmp_path / "b.h5", 2, title="b")
    write_page([first, second], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    block = json.loads(unpack(elements(page, "words")[0]))
    assert block["id"] == [0, 0, 1, 1, 2, 3]
    assert block["model"] == [0, 1, 0, 1, 0, 0]
    assert block["first"] == [1, 0, 1, 0, 1, 1]
    assert [model["name"] for model in about(page)["models"]] == ["a", "b"]
    assert about(page)["title"] == "a.h5, b.h5"


def test_gold_links_are_counted_as_aer_counts_them(tmp_path):
    source = write_file(tmp_path / "x.h5", 2)
    gold = tmp_path / "gold"
    gold.write_text("0-0 1p0\n0-1 1?1\n")
    summary = write_page([source], tmp_path / "page.html", gold=gold)
    page = (tmp_path / "page.html").read_text()
    words, (weights, _) = json.loads(unpack(elements(page, "words")[0])), unpack_weights(elements(page, "weights")[0])
    assert weights["sure"] == [[0, 0], [0, 1]]
    assert weights["possible"] == [[0, 0, 1, 0], [0, 1, 1, 1]]
    assert words["aer"] == [round(1 - 2 / 3, 4), round(1 - 1 / 3, 4)]
    assert summary.counts[0].rates().aer == pytest.approx(1 - (1 + 2) / (4 + 2))
    assert about(page)["models"][0]["counts"]["aer"] == pytest.approx(0.5)
    assert about(page)["gold"] == "gold"


# --- errors ---


def test_the_input_is_never_written_over(tmp_path):
    source = write_file(tmp_path / "x.h5")
    before = source.read_bytes()
    (tmp_path / "link").symlink_to(source)
    for output in (source, tmp_path / "link", tmp_path / "." / "x.h5"):
        with pytest.raises(UsageError, match="give the output another name"):
            write_page([source], output)
    gold = tmp_path / "gold"
    gold.write_text("\n" * 3)
    with pytest.raises(UsageError, match="gold: is also an input"):
        write_page([source], gold, gold=gold)
    assert source.read_bytes() == before


def test_a_page_is_whole_or_not_there(tmp_path):
    source, page = write_file(tmp_path / "x.h5"), tmp_path / "page.html"
    page.write_text("old")
    gold = tmp_path / "gold"
    for lines, message in (("0-0\n", "has no line 2: it has 1"), ("0-0\n0-9\n\n", "line 2.*0-9.*outside")):
        gold.write_text(lines)
        with pytest.raises(InputError, match=message):
            write_page([source], page, gold=gold)
        assert page.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"x.h5", "page.html", "gold"}


def test_mistakes(tmp_path):
    source, empty = write_file(tmp_path / "x.h5"), write_file(tmp_path / "empty.h5", 0)
    page = tmp_path / "page.html"
    with pytest.raises(UsageError, match="no sentence to show"):
        write_page([empty], page)
    with pytest.raises(UsageError, match="no sentence 5; it has sentences 0 to 2"):
        write_page([source], page, numbers=parse_numbers("5"))
    with pytest.raises(UsageError, match="2 names for 1 files"):
        write_page([source], page, names=["a", "b"])
    with pytest.raises(FormatError, match=r"none\.h5"):
        write_page([tmp_path / "none.h5"], page)
    assert not page.exists()


def test_the_command(tmp_path):
    write_file(tmp_path / "alignments.h5", 4)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-m", "nmtalign", "view", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("--limit", "2")
    assert (done.returncode, done.stdout) == (0, "")
    assert "only its first 2 sentences" in done.stderr
    assert re.search(r"wrote page.html: 2 sentences, 0\.\d MB", done.stderr)
    done = run("-o", "-", "-q", "--title", "Ours")
    assert (done.returncode, done.stderr) == (0, "")
    assert "<title>Ours · alignments</title>" in done.stdout
    assert done.stdout.endswith("</html>\n")
    assert "wrote the page to stdout: " in run("-o", "-").stderr
    done = run("-o", "alignments.h5")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "alignments.h5: is also an input" in done.stderr
