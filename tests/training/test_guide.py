"""Given links: their pairs, their distribution over pieces, and errors."""

import gzip

import numpy as np
import pytest
from helpers.parallel_texts import prepare, prepared
from helpers.pieces import words_of
from helpers.raw_links import write_raw_links

from nmtalign.data.batches import eligible, load_batches, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.guide import read_guide

# Lines 1 (blank), 3 (too long) and 4 (said before) are dropped where duplicates are.
PAIRS = [
    ("unhappy cats sleep", "les chats malheureux dorment"),
    ("", "rien"),
    ("cats sleep", "les chats dorment"),
    ("cats " * 9, "chats " * 9),
    ("cats sleep", "les chats dorment"),
    ("unhappy", "malheureux"),
]
LINKS = ["0-2 1-0 1-1 2-3", "", "0-0 0-1 1-2", "7-7", "0-1", "0-0"]


def write_links(folder, links):
    path = folder / "links"
    path.write_text("".join(f"{line}\n" for line in links))
    return path


def with_links(folder, pairs=PAIRS, links=LINKS, **settings):
    settings = {"max_length": 8, "drop_duplicates": True, **settings}
    return prepared(folder, pairs, **settings), write_links(folder, links)


def guided(corpus, guide, indices):
    return next(load_batches(corpus.splits["train"], [np.array(indices)], additions=[guide]))


def cells(batch):
    """(pair, source, target) of all linked cells."""
    return sorted((int(b), int(i), int(j)) for b, j, i in batch.guide.nonzero())


@pytest.mark.parametrize("vocabulary", ["word", "none"])
def test_links_of_words_are_those_of_their_line(tmp_path, vocabulary):
    corpus, path = with_links(tmp_path, vocabulary=vocabulary)
    batch = guided(corpus, read_guide(path, corpus), [2, 0, 1])
    assert batch.guide.shape == (3, 5, 4)  # `</s>` has a row and a column
    expected = [(0, 0, 0), (1, 0, 2), (1, 1, 0), (1, 1, 1), (1, 2, 3), (2, 0, 0), (2, 0, 1), (2, 1, 2)]
    assert cells(batch) == expected
    assert batch.linked == 1 + 4 + 3
    assert [tensor.shape for tensor in batch.inputs()][4] == (3, 5, 4)


@pytest.mark.parametrize(
    ("vocabulary", "settings"),
    [
        ("bpe", {"size": "40", "max_length": 9}),
        ("unigram", {"size": "40", "max_length": 9}),
        ("bytes", {"max_length": 3}),
    ],
)
def test_links_spread_over_all_pieces_of_both_words(tmp_path, vocabulary, settings):
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice(list("abcdé"), draw.integers(1, 7))) for _ in range(60)]
    pairs = [tuple(" ".join(draw.choice(words, draw.integers(0, 7))) for _ in range(2)) for _ in range(400)]
    sizes = [tuple(len(side.split()) for side in pair) for pair in pairs]
    links = [
        {(int(draw.integers(s)), int(draw.integers(t))) for _ in range(draw.integers(0, 6))} if s and t else set()
        for s, t in sizes
    ]
    lines = [" ".join(f"{i}-{j}" for i, j in sorted(line)) for line in links]
    corpus, path = with_links(tmp_path, pairs, lines, vocabulary=vocabulary, **settings)
    train, guide = corpus.splits["train"], read_guide(path, corpus)
    assert len(train) < sum(min(size) > 0 for size in sizes)  # some are dropped for their length
    plan = plan_epoch(train, eligible(train, 0), TrainingConfig(batch_size=7, shuffle="epoch", seed=0), 0)
    seen = 0
    for batch in load_batches(train, plan, additions=[guide]):
        for row, index in enumerate(batch.indices):
            vocabularies = corpus.source_vocabulary, corpus.target_vocabulary
            tokenizers = corpus.tokenizers.source, corpus.tokenizers.target
            sides = zip(train.pair(int(index)), vocabularies, tokenizers, strict=True)
            source, target = (words_of(side, words.decode(ids)) for ids, words, side in sides)
            line = links[train.lines[index]]
            expected = [[(i, j) in line for i in source] for j in target]
            found = batch.guide[row]
            assert found[: len(target), : len(source)].tolist() == expected
            assert int(found.sum()) == sum(map(sum, expected))
            seen += len(line)
    assert seen > 50


def test_links_count_the_pieces_of_text_without_spaces(tmp_path):
    pairs = [("cats sleep here", "猫はここで眠る。"), ("cats see dogs", "猫は犬を見る。"), ("dogs see", "犬は見る。")]
    settings = {"vocabulary": "bpe", "size": "18:18", "max_length": 30}
    corpus, path = with_links(tmp_path, pairs, ["0-1 1-3", "", "0-0"], **settings)
    source, target = corpus.source_vocabulary.decode(corpus.splits["train"].pair(0)[0]), corpus.tokenizers.target
    words = words_of(corpus.tokenizers.source, source)
    found = cells(guided(corpus, read_guide(path, corpus), [0]))
    assert target.unspaced
    assert found == [(0, place, {0: 1, 1: 3}[word]) for place, word in enumerate(words) if word < 2]


def test_forms_of_one_file_give_the_same_links(tmp_path):
    corpus, path = with_links(tmp_path)
    plain, text = read_guide(path, corpus), path.read_bytes()
    packed, scored, possible = (tmp_path / name for name in ("links.gz", "scored", "possible"))
    packed.write_bytes(gzip.compress(text))
    scored.write_bytes(b"".join(line + b"\t" + b"0.5 " * line.count(b"-") + b"\r\n" for line in text.splitlines()))
    possible.write_bytes(text.replace(b"-", b"p"))
    path.write_bytes(text.removesuffix(b"\n"))
    for other in (packed, scored, possible, path):
        guide = read_guide(other, corpus)
        assert cells(guided(corpus, guide, [2, 0, 1])) == cells(guided(corpus, plain, [2, 0, 1]))
        assert (guide.hash == plain.hash) == (other != possible)


@pytest.fixture(scope="module", params=[{}, {"vocabulary": "bpe", "size": "30"}])
def words_and_pieces(request, tmp_path_factory):
    """The corpus of PAIRS with each vocabulary; read only."""
    return with_links(tmp_path_factory.mktemp("corpus"), **request.param)[0]


@pytest.mark.parametrize(
    ("line", "links", "message"),
    [
        (5, "0-0 1-", "line 6: '1-' is not a link; write 0-0 2-1"),
        (1, "0", "line 2: '0' is not a link"),
        (2, "0-0 2-1", "line 3: 2-1 is outside the pair, which has 2 source and 3 target words"),
        (5, "0-1", "line 6: 0-1 is outside the pair, which has 1 source and 1 target words"),
    ],
)
def test_a_wrong_link_is_named_by_file_and_line(words_and_pieces, tmp_path, line, links, message):
    path = write_links(tmp_path, [*LINKS[:line], links, *LINKS[line + 1 :]])
    with pytest.raises(InputError, match=message) as raised:
        read_guide(path, words_and_pieces)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("links", [LINKS[:-1], [*LINKS, ""], [], [""] * len(LINKS)])
def test_a_file_of_other_lines_or_without_links_is_refused(words_and_pieces, tmp_path, links):
    path = write_links(tmp_path, links)
    wrong = "no link" if len(links) == len(LINKS) else f"has {len(links)} lines, but the training text of .* had 6"
    with pytest.raises(InputError, match=wrong):
        read_guide(path, words_and_pieces)


def test_links_that_count_words_between_spaces_guide_the_tokens_of_the_corpus(tmp_path):
    by_tokens, by_words = write_raw_links(tmp_path)
    # A no-break space is a word between spaces, and no token.
    added = {"train.en": "Hello \u00a0", "train.fr": "Bonjour \u00a0", by_tokens: "0-0", by_words: "0-0 1-1"}
    for name, line in added.items():
        with (tmp_path / name).open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
    prepare((tmp_path / "train.en", tmp_path / "train.fr"), tmp_path / "data", PrepConfig(), ("en", "fr"))
    corpus = Corpus.open(tmp_path / "data")
    right, converted = (read_guide(path, corpus) for path in (by_tokens, by_words))
    assert right.note == ""
    assert converted.note.startswith(f"{by_words}: counts the words between spaces")
    every = range(len(corpus.splits["train"]))
    expected, found = (set(cells(guided(corpus, guide, every))) for guide in (right, converted))
    assert len(expected & found) > 0.9 * max(len(expected), len(found))
