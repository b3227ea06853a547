"""The live page: its model in JavaScript gives the numbers of PyTorch, and splits text as Python does."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.core_models import spread
from helpers.trainings import train

from nmtalign.core.inference import Inference
from nmtalign.core.model import make_batch, make_source
from nmtalign.data.prepare import _train_pieces as train_pieces
from nmtalign.errors import FormatError, UsageError
from nmtalign.live import packed, write_live_page
from nmtalign.model_directory import SCALE, int8_rows, load_model
from nmtalign.search.beam_search import BeamSearch, ModelSession, Sources
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.tokenizer import MosesWords, SentencePieces, SpacedWords, TextBytes, Tokenizers

NODE = shutil.which("node")
# Runs the page's own code on its own data, without a browser.
DRIVER = r"""
const [page, requests] = process.argv.slice(1).map((path) => require("fs").readFileSync(path, "utf8"));
const stored = (kind) => [...page.matchAll(new RegExp(`data-kind="${kind}">([^<]*)<`, "g"))].map((one) => one[1]);
const script = page.match(/<script>("use strict"[^]*?)<\/script>/)[1], start = script.indexOf("function liveEngine()");
const text = script.slice(start, script.indexOf("\n}\n", start) + 3);
const engine = new Function(`"use strict"; ${text} return liveEngine();`)();
const weights = stored("live-weights");
stored("live-model").forEach((model, k) => engine.load({ model: JSON.parse(model), weights: weights[k] }));
const plain = (key, value) => (ArrayBuffer.isView(value) ? [...value] : value);
const answers = JSON.parse(requests).map(({ name, ...request }) => engine[name](request));
process.stdout.write(JSON.stringify(answers, plain));
"""
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")
ENGLISH = ["the", "red", "car", "house", "is", "big", "a", "small", ".", ",", "'s", "Euro"]
FRENCH = ["la", "voiture", "rouge", "maison", "est", "grande", "une", "petite", "."]
HOSTILE = "</script><img src=x onerror=alert(1)>"
AWKWARD = [
    "The red car's house isn't big, is it?",
    "  Dr. Smith paid 1,234.50 € (about $1.3m) on 3. May; e.g. no. 5 and No. 7 ... \t",
    "l'homme n'a qu'une vie : « c'est ça ! »",
    "She said: \"It's 10:30.\" 'Tis the '90s, rock 'n' roll...",
    "cafe\u0301 au lait, café, Å, ﬁn, ǅ, İstanbul, naïve, œuvre",
    "日本語のテキスト, 中文。 한국어! العربية؟ עברית हिन्दी ไทย",
    "👩‍💻 👍🏽 🇫🇷 🇩🇪🇫 ☺ ™ ½ ² x² 5°C",
    "www.example.org/path?x=1&y=2#z me@mail.example @name #tag </s> <unk> <b>",
    "a.b. U.S.A. i.e., etc. A.M. it. End.' 'x'",
    "non\u00a0breaking\u202fspace\u3000wide\u2028line\u0085next\x07bell\x1cfile",
    "DON'T SHOUT -- a-b - c–d—e _under_ `quoted` ``twice''",
    "",
    "   ",
    ". , ' '' \" - .. ... .... ,,",
    "ı̇ e\u0301\u0302 \u0301alone a\u0328\u0301 ḍ̇",
    "x▁y ▁ z  two  spaces",
    "\u1019\u103c\u1014\u103a\u1019\u102c \u0e19\u0e49\u0e33 \u0ea5\u0eb3 \u1112\u1161\u11ab",
    "\u200dx a\u200db \U0001f466\u200d\u0301",
    "5,000,000 , 3,a b,4 7, ,8",
    "\ufeffa line of a file from Windows\ufeff",
    "\u200b\u200e",
    "the last word is a ▁",
    "Mr. mr. St. st. M. Mme. Nr. 5 Art. 7 bzw. usw.",
]
KINDS = {
    "rnnsearch-50": {"output_rank": 5},
    "rnnencdec of tiny": {"cell": "cudnn", "attention": "none", "bidirectional": False},
    "auto": {"cell": "cudnn", "shared_embeddings": True},
    "the order of Luong": {"order": "update-look-generate", "cell": "cudnn"},
    "Luong without attention": {"order": "update-look-generate", "attention": "none"},
    "both ways without attention": {"attention": "none"},
    "one way with attention": {"bidirectional": False, "order": "look-update-generate", "attention": "concat"},
    "dot": {"attention": "dot"},
    "dot, one way": {"attention": "dot", "bidirectional": False, "order": "update-look-generate"},
    "general": {"attention": "general"},
    "no previous word": {"readout_previous_word": False},
}


def ask(page, requests):
    """The answers of the model of a page; `name` of a request is the function that it calls."""
    asked = page.with_suffix(".requests.json")
    asked.write_text(json.dumps(requests))
    command = [str(NODE), "-e", DRIVER, str(page), str(asked)]
    found = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def sentences(count, words=ENGLISH, seed=1):
    chosen = random.Random(seed)
    return [" ".join(chosen.choices([*words, "zebra"], k=chosen.randint(1, 12))) for _ in range(count)]


def in_double(folder):
    """The model with the weights that the page has, in float64."""
    loaded = load_model(folder, "cpu")
    rows = int8_rows(loaded.model.state_dict())
    for name, old in loaded.model.state_dict().items():
        same = rows[name].float() * rows[name + SCALE][..., None] if name + SCALE in rows else rows[name]
        old.copy_(same)
    loaded.model.double()
    return loaded


def page_of(tmp_path, *models, texts=(), **details):
    write_live_page(models, texts, tmp_path / "live.html", **details)
    return tmp_path / "live.html"


@needs_node
@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_the_numbers_equal_those_of_pytorch(random_model_directory, tmp_path, settings):
    models = [random_model_directory(tmp_path / "one", ENGLISH, FRENCH, spread, **settings)]
    if settings.get("attention") == "none":  # a page needs a model with attention, too
        models.insert(0, random_model_directory(tmp_path / "search", ENGLISH, FRENCH, spread))
    compare(page_of(tmp_path, *models), in_double(models[-1]), len(models) - 1, sentences(12))


@needs_node
def test_the_numbers_of_a_trained_model(reversal, tmp_path):
    train(reversal, tmp_path / "model", cell="cudnn")
    lines = sentences(20, reversal.source_vocabulary.words[2:])
    compare(page_of(tmp_path, tmp_path / "model"), in_double(tmp_path / "model"), 0, lines)


def compare(page, loaded, number, lines):
    """Greedy search, beam search and forced decoding of lines give the same words and numbers on the page."""
    source = loaded.source_vocabulary, loaded.tokenizers.source
    ids = [source[0].encode(source[0].known_tokens(line, source[1].tokenize)) for line in lines]
    scorer = partial(ModelSession, Inference(loaded.model))
    references = sentences(len(lines), loaded.target_vocabulary.words[2:], seed=2)
    asked = [{"name": "translate", "number": number, "text": line, "beam": beam} for beam in (1, 5) for line in lines]
    both = zip(lines, references, strict=True)
    asked += [{"name": "loss", "number": number, "text": line, "reference": reference} for line, reference in both]
    answers = iter(ask(page, asked))
    for beam in (1, 5):
        config = TranslateConfig(beam=beam)
        for each in ids:
            one = next(answers)
            other = BeamSearch(Sources(*make_source([each])), config, keep_weights=True).run(scorer)[0][0]
            assert one["numbers"] == [*other.tokens, 0]
            assert one["score"] == pytest.approx(other.score, abs=1e-4)
            np.testing.assert_allclose(one["logProbs"], other.token_log_probs, atol=1e-4)
            if other.weights is not None:
                np.testing.assert_allclose([step["weights"] for step in one["steps"]], other.weights, atol=1e-4)
    for one, source_ids in zip(answers, ids, strict=True):
        batch = make_batch([(source_ids, one["ids"][:-1])])
        forced = loaded.model.force(batch.source, batch.source_mask, batch.target, batch.target_mask)
        np.testing.assert_allclose(one["logProbs"], forced.log_probs[0], atol=1e-4)


@needs_node
def test_tokens_and_ids_equal_those_of_python(random_model_directory, tmp_path):
    for language in ("en", "fr", "de"):
        check_tokens(random_model_directory, tmp_path / language, Tokenizers.moses(language, "fr"))
    for both in (SpacedWords(), TextBytes()):
        check_tokens(random_model_directory, tmp_path / both.kind, Tokenizers(both, both, "en", "fr"))


@needs_node
def test_pieces_equal_those_of_sentencepiece(random_model_directory, tmp_path):
    (tmp_path / "text").write_text("".join(line + "\n" for line in [*AWKWARD[::2], *sentences(200)]))
    for kind in ("bpe", "unigram"):
        pieces = SentencePieces(train_pieces([tmp_path / "text"], "text", kind, 250, any_size=True))
        check_tokens(random_model_directory, tmp_path / kind, Tokenizers(pieces, pieces, "en", "fr"))


def check_tokens(make_directory, root, tokenizers):
    words = [*dict.fromkeys(token for line in AWKWARD[::2] for token in tokenizers.source.tokenize(line))]
    known = [word for word in words if word not in ("</s>", "<unk>")]
    folder = make_directory(root, known, FRENCH, spread, tokenizers=tokenizers)
    loaded = load_model(folder, "cpu")
    asked = [{"name": "tokenize", "text": line} for line in AWKWARD]
    for line, answer in zip(AWKWARD, ask(page_of(root, folder), asked), strict=True):
        tokens = loaded.source_vocabulary.known_tokens(line, tokenizers.source.tokenize)
        assert answer == {"tokens": tokens, "ids": loaded.source_vocabulary.encode(tokens)}, line


@needs_node
def test_words_are_joined_as_python_joins_them(random_model_directory, tmp_path):
    tokenizers = Tokenizers.moses("en", "fr")
    tokenizers = replace(tokenizers, target=MosesWords("fr", {"any :": "\u00a0"}))
    line = "l' homme n' a qu' une vie : « c' est ça ! » ( dit -il , 5 % ) www.a.org / b ... <b> l ’ eau."
    words = [*dict.fromkeys(line.split())]
    folder = random_model_directory(tmp_path / "words", ENGLISH, words, spread, tokenizers=tokenizers)
    ids = load_model(folder, "cpu").target_vocabulary.encode(line.split())
    (found,) = ask(page_of(tmp_path, folder), [{"name": "translate", "text": "the car", "forced": [*ids, 0]}])
    assert found["target"] == [*line.split(), "</s>"]
    assert found["text"] == tokenizers.target.detokenize(line.split())


@needs_node
def test_the_text_of_bytes_and_of_pieces_keeps_wide_and_no_break_spaces(random_model_directory, tmp_path):
    line = "\ufeff\u3000the\u00a0"
    (tmp_path / "text").write_text(f"{line}\n" * 9)
    pieces = SentencePieces(train_pieces([tmp_path / "text"], "text", "bpe", 250, any_size=True))
    for both, tokens in ((TextBytes(), ["<0A>", *TextBytes().tokenize(line), "<FF>"]), (pieces, pieces.tokenize(line))):
        folder = tmp_path / both.kind
        random_model_directory(folder, ENGLISH, both.pieces(), spread, tokenizers=Tokenizers(both, both, "en", "fr"))
        ids = load_model(folder / "model", "cpu").target_vocabulary.encode(tokens)
        (found,) = ask(page_of(folder, folder / "model"), [{"name": "translate", "text": "the", "forced": [*ids, 0]}])
        assert found["text"] == both.detokenize(tokens)


def test_the_page_is_inert_and_says_what_it_contains(random_model_directory, tmp_path):
    search = random_model_directory(tmp_path / "search", [*ENGLISH, HOSTILE], FRENCH, spread)
    (tmp_path / "test.en").write_text(f"the red {HOSTILE}\nthe car\n" + "the " * 50 + "\n\n")
    (tmp_path / "test.fr").write_text("la\nla voiture\nla\nla\n")
    notes = []
    texts = [tmp_path / "test.en", tmp_path / "test.fr"]
    page = page_of(tmp_path, search, texts=texts, title="A <title>", notify=notes.append).read_text()
    assert HOSTILE not in page
    assert "connect-src 'none'; worker-src blob:" in page
    assert "<title>A &lt;title&gt;</title>" in page
    assert "examples: 2" in notes[0]
    assert samples_of(page) == [["the car", "la voiture"], [f"the red {HOSTILE}", "la"]]
    assert samples_of(page_of(tmp_path, search).read_text()) == []
    for path in texts:  # in text without spaces, two letters are a word
        path.write_text(f"{'的' * 82}\n你好世界\n你好\n")
    assert samples_of(page_of(tmp_path, search, texts=texts).read_text()) == [["你好"] * 2, ["你好世界"] * 2]


def test_the_command_takes_the_model_and_the_test_set_of_the_workspace(random_model_directory, nmtalign, tmp_path):
    random_model_directory(tmp_path, ENGLISH, FRENCH, spread)
    for name in ("test.en", "test.fr"):
        (tmp_path / name).write_text("the car\n")
    nmtalign("view", "--live", "-m", "model", "-o", "without.html")
    assert samples_of((tmp_path / "without.html").read_text()) == []
    (tmp_path / "nmtalign.toml").write_text('[corpus]\ntest = ["test.en", "test.fr"]\n')
    done = nmtalign("view", "--live", "-o", "live.html")
    assert b"examples: 1" in done.stderr
    assert samples_of((tmp_path / "live.html").read_text()) == [["the car", "the car"]]


def samples_of(page):
    return json.loads(re.search(r'data-kind="live">(.*?)</script>', page, re.S)[1])["samples"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "lstm"}, "cannot run cell = lstm; it supports paper or cudnn"),
        ({"copy": True}, "cannot run copy = True; it supports False"),
        ({"layers": 2, "order": "update-look-generate"}, "cannot run layers = 2; it supports 1"),
    ],
)
def test_models_that_the_page_cannot_run(random_model_directory, tmp_path, settings, message):
    folder = random_model_directory(tmp_path / "other", ENGLISH, FRENCH, spread, **settings)
    with pytest.raises(UsageError, match=re.escape(f"{folder}: the live page {message}")):
        page_of(tmp_path, folder)
    assert not (tmp_path / "live.html").exists()


def test_wrong_models_and_texts(random_model_directory, tmp_path):
    search = random_model_directory(tmp_path / "search", ENGLISH, FRENCH, spread)
    fixed = random_model_directory(tmp_path / "fixed", ENGLISH, FRENCH, spread, attention="none")
    for models in ([fixed], [search, search], [search, fixed, fixed]):
        with pytest.raises(UsageError, match="needs one model with attention, and at most one without"):
            page_of(tmp_path, *models)
    weights = search / "best.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(FormatError, match=r"best\.safetensors"):
        page_of(tmp_path, search)
    loaded = load_model(fixed, "cpu")
    loaded.model.readout.state_weight[0, 0] = float("nan")
    with pytest.raises(FormatError, match="not finite"):
        packed(loaded.model)
