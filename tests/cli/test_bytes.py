"""A model of bytes in real pipes: any text goes in and comes out, and alignments are between words."""

import json

import pytest

import nmtalign as api
from nmtalign import AlignmentFile

PAIRS = [("Жук ест 3.5", "Un 😀 mange"), ("你好 мир", "Bonjour\u00a0! été"), ("cat\tдом", "chat ici"), ("a b", "c d")]
INPUT = "Жук 你好\n\n😀 a\u00a0b\tcat\u2028\n \t\n<unk> </s> ▁ <E2>\r\n".encode() + b"\xff\x00 a\n"
SIZES = {"embedding": 8, "hidden": 8, "attention_hidden": 6, "maxout": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    for side, name in enumerate(("text.ru", "text.fr")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS * 5), "utf-8")
    texts = folder / "text.ru", folder / "text.fr"
    api.prepare(*texts, folder / "data", languages=("ru", "fr"), vocabulary="bytes", workers=1)
    options = {"max_updates": 4, "epochs": 0, "batch_size": 200, "device": "cpu", "threads": 1}
    api.train(folder / "data", folder / "model", preset="tiny", **options, **SIZES)
    return folder


def test_one_line_for_each_line_of_any_text(folder, nmtalign):
    done = nmtalign("translate", "-m", "model", "--beam", "2", stdin=INPUT, cwd=folder)
    lines = done.stdout.decode().split("\n")
    assert len(lines) == 7
    assert [bool(line) for line in lines] == [True, False, True, False, True, True, False]
    assert "0.00% of the source bytes are unknown" in done.stderr.decode()
    assert "warning" not in done.stderr.decode()
    options = ["--beam", "2", "--format", "json", "--alignment", "hard"]
    found = nmtalign("translate", "-m", "model", *options, stdin=INPUT, cwd=folder).stdout
    entries = [json.loads(line) for line in found.decode().splitlines()]
    assert [entry["translation"] for entry in entries] == lines[:-1]
    assert entries[0]["source_words"] == ["Жук", "你好"]
    assert entries[0]["source_tokens"][:5] == ["▁", "<D0>", "<96>", "<D1>", "<83>"]
    assert entries[2]["source_words"] == ["😀", "a\u00a0b", "cat\u2028"]
    assert all(len(entry["words"]) == len(entry["alignment"]) for entry in entries)


def test_alignments_and_scores_are_of_words(folder, nmtalign):
    texts = ["text.ru", "text.fr"]
    nmtalign("align", *texts, "-m", "model", "-o", "words.h5", cwd=folder)
    with AlignmentFile(folder / "words.h5") as file:
        record = next(iter(file.links()))
    assert (record.source, record.target) == (("Жук", "ест", "3.5"), ("Un", "😀", "mange"))
    given = ("align", *texts, "-m", "model", "--pharaoh")
    plain, split = (nmtalign(*given, *more, cwd=folder) for more in ([], ["--tokenized"]))
    assert plain.stdout == split.stdout
    assert b"unknown" not in plain.stderr + split.stderr
    exported = nmtalign("export", "words.h5", "--format", "json", cwd=folder).stdout.decode().splitlines()
    assert json.loads(exported[1])["target"] == ["Bonjour\u00a0!", "été"]
    nmtalign("translate", texts[0], "--target", texts[1], "-m", "model", cwd=folder)
    (folder / "lexicon").write_text("a\tb\t1\n")
    refused = nmtalign("translate", "-m", "model", "--lexicon", "lexicon", stdin=b"a\n", cwd=folder, check=False)
    assert refused.returncode == 2
    assert "--lexicon lexicon: this model writes bytes" in refused.stderr.decode()


def test_required_phrases_and_replaced_words_are_text(folder, nmtalign):
    request = json.dumps({"text": "Жук ест", "prefix": "Été", "phrases": ["你好 😀"]}) + "\n"
    options = ["--set", "input_format=json", "--beam", "3"]
    found = nmtalign("translate", "-m", "model", *options, stdin=request.encode(), cwd=folder).stdout.decode()
    assert found.startswith("Été")
    assert " 你好 😀" in found
    replaced = nmtalign("translate", "-m", "model", "--set", "allow_unk=true", "--replace-unk", stdin=INPUT, cwd=folder)
    assert replaced.stdout.decode().count("\n") == 6
