"""Output formats: text, Moses n-best lists, JSON lines that are always valid."""

import itertools
import json
import math

import numpy as np
import pytest
from helpers.marked_documents import translation_of
from helpers.pieces import learned_pieces

from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.translating.file_translation import OutputFormat
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Alternative

WEIGHTS = np.array([[0.125, 0.75, 0.125], [0.25, 0.25, 0.5], [0, 0.99999, 0.00001]], np.float32)  # 2 + 1 by 2 + 1


def translation(*texts, extra=None, weights=None):
    """With alternative n of n words, each `a`."""
    each = enumerate(texts, 1)
    found = (Alternative(text, ("a",) * n, -n / 7, -n / 3, (-0.25,) * (n + 1), weights) for n, text in each)
    return translation_of(Request("a\u2028 \x00b", extra=extra or {}), ("a", "\x00b"), 1, *found)


def aligned(text="le chat"):
    alternative = Alternative(text, ("le", "chat"), -0.5, -1.5, (-0.5, -0.75, -0.25), WEIGHTS)
    return translation_of(Request("the cat"), ("the", "cat"), 0, alternative)


def written(number, found, tokenizers=None, **settings):
    return OutputFormat(TranslateConfig(**settings), tokenizers).lines(number, found)


def read_back(number, found, tokenizers=None, **settings):
    return json.loads(written(number, found, tokenizers, format="json", **settings))


def test_word_scores_and_alignments_in_moses_lines():
    scores = "LogProb= -1.500000 Length= 3 WordScores= -0.500000 -0.750000 -0.250000"
    found = written(3, aligned(), word_scores=True, alignment="hard")
    # The largest weight of the second word is on `</s>`: it has no link.
    assert found == f"3 ||| le chat ||| {scores} ||| -0.500000 ||| 1-0\n"
    found = written(3, aligned(), alignment="soft")
    assert found.split(" ||| ")[-1] == "0.125,0.75,0.125 0.25,0.25,0.5 0,1,0\n"
    # The field is present even if it is empty.
    assert written(0, translation(""), alignment="hard").endswith(" ||| \n")
    blank = translation("", weights=np.zeros((1, 1), np.float32))
    assert written(0, blank, alignment="hard").endswith("-0.142857 ||| \n")
    assert written(0, blank, alignment="soft").endswith("-0.142857 ||| 0\n")
    # No bars of the text separate fields.
    for bars in range(3, 12):
        fields = written(0, translation("|" * bars, "a"), n_best=2).splitlines()[0].split("|||")
        assert len(fields) == 4
        assert fields[1] == f" {' '.join('|' * bars)} "


def test_a_line_of_json():
    line = written(7, translation("un |||| deux", 'é "\u2028'), format="json")
    assert "é" in line
    assert len(line.splitlines()) == 1
    source = {"id": 7, "source": "a\u2028 \x00b", "source_tokens": ["a", "\x00b"], "source_unknown": 1}
    best = {"translation": "un |||| deux", "score": -0.142857, "log_prob": -0.333333, "tokens": ["a"]}
    second = {"translation": 'é "\u2028', "score": -0.285714, "log_prob": -0.666667, "tokens": ["a", "a"]}
    assert json.loads(line) == {**source, **best, "n_best": [best, second]}


def test_word_scores_alignments_and_pieces_in_json():
    found = read_back(0, aligned(), word_scores=True, alignment="hard")
    assert found["token_log_probs"] == found["n_best"][0]["token_log_probs"] == [-0.5, -0.75, -0.25]
    assert found["alignment"] == found["n_best"][0]["alignment"] == [[1, 0]]
    assert "pieces" not in found
    (alternative,) = aligned().n_best
    found = read_back(0, translation_of(Request("x"), ("the", "cat"), 0, alternative, pieces=3), alignment="soft")
    assert found["alignment"] == [[0.125, 0.75, 0.125], [0.25, 0.25, 0.5], [0.0, 1.0, 0.0]]
    assert found["pieces"] == 3
    assert "token_log_probs" not in found
    assert read_back(0, translation("a"), alignment="soft")["alignment"] is None


def test_other_keys_pass_through_and_the_id_stays():
    extra = {"doc": {"n": [1, None, "é"]}, "id": "s-1", "score": "mine", "words": 5, "big": 10**30}
    found = read_back(7, translation("x", extra=extra))
    assert (found["id"], found["doc"], found["big"], found["words"]) == ("s-1", {"n": [1, None, "é"]}, 10**30, 5)
    assert found["score"] == -0.142857
    assert list(found)[:2] == ["id", "doc"]


def test_json_is_valid_whatever_it_holds():
    def refuse(name):
        raise ValueError(name)

    alternative = Alternative("x", ("x",), math.nan, -math.inf, (math.nan, -1.0), np.full((2, 2), np.nan, np.float32))
    extra = {"a": [math.inf, {"b": math.nan}], "half": "\ud800 and \U0001f98a", "ends": "\x85\u2028\u2029\r\n\x0b"}
    odd = translation_of(Request("s", extra=extra), ("s",), 0, alternative)
    line = written(0, odd, format="json", word_scores=True, alignment="soft")
    assert len(line.splitlines()) == 1
    found = json.loads(line.encode("utf-8"), parse_constant=refuse)
    assert (found["score"], found["log_prob"], found["token_log_probs"]) == (None, None, [None, -1.0])
    assert found["alignment"] == [[None, None], [None, None]]
    assert found["a"] == [None, {"b": None}]
    assert (found["half"], found["ends"]) == (extra["half"], extra["ends"])


@pytest.fixture(scope="module")
def pieces():
    return learned_pieces(map(" ".join, itertools.permutations(["cats", "boat", "boats", "sees"], 3)), 20)


def test_alignments_of_pieces_are_between_words(pieces):
    # Three words of two pieces and two words of one; each piece attends to the pieces of the previous word.
    source, target = ("▁c", "ats", "▁b", "oat"), ("▁bo", "ats", "▁cats")
    weights = np.array(
        [[0.1, 0.2, 0.3, 0.3, 0.1], [0, 0.1, 0.5, 0.3, 0.1], [0.35, 0.25, 0.4, 0, 0], [0, 0, 0, 0, 1]], np.float32
    )
    alternative = Alternative("boats cats", target, -1.0, -4.0, (-1.0,) * 4, weights)
    found = translation_of(Request("cats boat"), source, 0, alternative)
    tokenizers = Tokenizers(pieces, pieces)
    # Of single pieces the last one's largest weight is on `▁b`; of words, `cats` has more.
    assert written(0, found, tokenizers, alignment="hard").split(" ||| ")[-1] == "1-0 0-1\n"
    assert written(0, found, tokenizers, alignment="soft").split(" ||| ")[-1] == "0.2,0.7,0.1 0.6,0.4,0 0,0,1\n"
    line = read_back(0, found, tokenizers, alignment="hard", word_scores=True)
    assert line["alignment"] == [[1, 0], [0, 1]]
    assert (line["source_words"], line["words"]) == (["cats", "boat"], ["boats", "cats"])
    assert (line["source_tokens"], line["tokens"]) == (list(source), list(target))
    assert len(line["token_log_probs"]) == 4
    # If pieces are written, pieces are aligned.
    tokenized = {"alignment": "hard", "tokenized": True}
    assert written(0, found, tokenizers, **tokenized).split(" ||| ")[-1] == "2-0 2-1 2-2\n"
    line = read_back(0, found, tokenizers, **tokenized)
    assert line["alignment"] == [[2, 0], [2, 1], [2, 2]]
    assert "words" not in line
