"""Links that count words between spaces are distinguished from links that count tokens, and converted."""

import random
import re

import pytest
from helpers.raw_links import write_raw_links

from nmtalign.errors import InputError
from nmtalign.text.link_counting import SplitLine, check_alike, counts_words, token_links
from nmtalign.text.tokenizer import Tokenizers

MOSES = Tokenizers.moses("en", "fr")


def split(source, target):
    return SplitLine.of(source, MOSES.source.tokenize(source)), SplitLine.of(target, MOSES.target.tokenize(target))


def links_of(path):
    return [[(int(i), int(j)) for i, j in re.findall(r"(\d+)-(\d+)", line)] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("line", "words", "count"),
    [
        ("The friend, here.", [0, 1, 1, 2, 2], 3),
        ("  two\u00a0parts  x. ", [0, 0, 1, 1], 2),
        ("", [], 0),
        ("already split .", [0, 1, 2], 3),
        ("no \u00a0 token. \u00a0", [0, 2, 2], 4),
        ("a\x01nd, \x02 x.", [0, 0, 2, 2], 3),
    ],
)
def test_each_token_knows_its_word(line, words, count):
    found = SplitLine.of(line, MOSES.source.tokenize(line))
    assert (list(found.words), found.word_count) == (words, count)


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("The friend sees.", "L'ami voit.", "0-0 1-0 2-1", "0-0 1-1 2-2 3-3"),  # in order, and the full stops
        ("Friend sees", "L'ami voit", "0-0 1-1", "0-1 1-2"),  # the longest token
        ("Claire's cat", "le chat de Claire", "0-2 0-3 1-1", "0-3 1-2 2-1"),  # equal words first
        ("yes, no", "oui, non", "0-0 1-1", "0-0 1-1 2-2"),
        ("yes no", "oui ; non", "0-0 1-1", "0-0"),  # a mark is no translation of a word
    ],
)
def test_words_become_tokens(source, target, links, expected):
    given = [(int(i), int(j)) for i, j in re.findall(r"(\d+)-(\d+)", links)]
    found = token_links(given, split(source, target))
    assert " ".join(f"{i}-{j}" for i, j in found) == expected


def test_the_counting_of_a_file_is_recognised_and_its_links_are_nearly_those_of_the_tokens(tmp_path):
    by_tokens, by_words = map(links_of, write_raw_links(tmp_path))
    texts = [(tmp_path / f"train.{language}").read_text().splitlines() for language in ("en", "fr")]
    pairs = list(map(split, *texts))
    content = [  # as an aligner that leaves out punctuation marks
        [(i, j) for i, j in links if pair[0].tokens[i].isalpha() and pair[1].tokens[j].isalpha()]
        for links, pair in zip(by_tokens, pairs, strict=True)
    ]
    for links, expected in ((by_words, True), (by_tokens, False), (content, False)):
        assert counts_words(zip(links, pairs, strict=True)) is expected
    assert counts_words(zip(by_words[:4], pairs[:4], strict=True)) is None  # too few to be sure
    tokenised = [tuple(SplitLine.of(" ".join(side.tokens), side.tokens) for side in pair) for pair in pairs]
    assert counts_words(zip(by_tokens, tokenised, strict=True)) is None  # there both countings are the same
    converted = [set(token_links(links, pair)) for links, pair in zip(by_words, pairs, strict=True)]
    right = sum(len(found & set(gold)) for found, gold in zip(converted, by_tokens, strict=True))
    assert right > 0.9 * max(sum(map(len, converted)), sum(map(len, by_tokens)))
    unconverted = sum(len(set(found) & set(gold)) for found, gold in zip(by_words, by_tokens, strict=True))
    assert unconverted < 0.7 * right


def test_few_links_a_third_of_which_are_wrong_count_alike(tmp_path):
    chance = random.Random(1)
    for whole in map(links_of, write_raw_links(tmp_path)):
        for _ in range(50):
            few = [[(i, j + (chance.random() < 0.3)) for i, j in links if chance.random() < 0.1] for links in whole]
            check_alike("a", "b", zip(few, whole, strict=True))


def test_files_that_count_differently_are_recognised_without_their_texts(tmp_path):
    by_tokens, by_words = map(links_of, write_raw_links(tmp_path))
    few = [[(i, j) for i, j in links if (i + j) % 3] for links in by_tokens]  # as of a cautious aligner
    check_alike("a", "b", zip(by_tokens, few, strict=True))
    check_alike("a", "b", zip(by_words, by_words, strict=True))
    check_alike("a", "b", zip(by_words[:5], by_tokens[:5], strict=True))  # too few to be sure
    check_alike("a", "b", [([(0, 0)], [(0, 0), (1, 1), (2, 2)])] * 10)  # nothing later in the line
    for names, files in (("ab", (by_words, by_tokens)), ("ba", (by_tokens, by_words))):
        with pytest.raises(InputError, match="a: counts the words between spaces, and b counts tokens"):
            check_alike(*names, zip(*files, strict=True))
