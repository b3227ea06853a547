"""Scores of given pairs equal those of the search; order, batches, lack of memory; n-best lists."""

import pytest
import torch
from helpers.score_tables import WatchedScorer

from nmtalign import Translator
from nmtalign.alignment.aligning import align
from nmtalign.errors import InputError, NmtalignError, ResourceError, UsageError
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.translating.rescoring import ScoredPair, read_n_best, score_pairs, scored_line

LINES = ["the fox sees a boat .", "", "a heron", "a a a a red red red", "\t\u200b ", "fox", "the fox ."]
PAIRS = [("the fox", "le renard"), ("", ""), ("the fox sees a red boat .", "le renard voit un bateau rouge .")]
PAIRS += [("", "le renard"), ("a heron", "un héron"), ("fox", ""), (" \t\ufeff", "\u200b "), ("boat", "bateau")]


@pytest.fixture(scope="module")
def models(tmp_path_factory, random_model_directory):
    kinds = {"one": {}, "two": {}, "fixed": {"attention": "none"}, "copying": {"copy": True}}
    folders = {name: tmp_path_factory.mktemp(name) for name in kinds}
    return {name: random_model_directory(folders[name], seed=seed, **kinds[name]) for seed, name in enumerate(kinds, 3)}


def scored(translator, pairs=PAIRS):
    return list(score_pairs(translator, pairs))


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (["one"], {}),
        (["one"], {"length_penalty": 0.6, "word_penalty": 0.3, "coverage_penalty": 0.2}),
        (["one"], {"precision": "bf16"}),
        (["one", "two"], {"precision": "int8"}),
        (["one"], {"search": "paper"}),
        (["copying"], {}),
        (["fixed"], {"word_penalty": -0.3}),
        (["one", "two"], {}),
        (["one", "two"], {"ensemble": "log", "coverage_penalty": 0.2}),
        (["two", "fixed", "one"], {}),
    ],
)
def test_what_a_search_finds_is_scored_alike(models, names, settings, request):
    if settings.get("precision") == "int8":
        request.getfixturevalue("int8")
    folders = [models[name] for name in names]
    translator = Translator.load(*folders, beam=4, n_best=4, tokenized=True, threads=1, **settings)
    found = [(line.source, one) for line in translator.translate(LINES) for one in line.n_best]
    assert len(found) == 4 * 5 + 2
    pairs = [(source, " ".join(one.tokens)) for source, one in found]
    for (_, one), pair in zip(found, scored(translator, pairs), strict=True):
        assert pair.target_tokens == one.tokens
        assert pair.log_prob == pytest.approx(one.log_prob, rel=1e-6, abs=1e-5)
        assert pair.score == pytest.approx(one.score, rel=1e-6, abs=1e-5)
        assert pair.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-5)


def test_pairs_come_in_order_one_each(models):
    found = scored(Translator.load(models["one"], threads=1))
    assert [(pair.source, pair.target) for pair in found] == PAIRS
    assert [pair.number for pair in found] == list(range(len(PAIRS)))
    for pair in found:
        assert len(pair.token_log_probs) == len(pair.target_tokens) + 1
        assert pair.blank == (pair.number in (1, 6))
        # An empty side is only `</s>`; the model does not score a pair of two empty sides.
        assert (pair.log_prob == pair.score == 0) == pair.blank
    assert (found[4].source_unknown, found[4].target_unknown) == (1, 1)


@pytest.mark.parametrize("work", [scored, lambda one: list(align(one.models, PAIRS, AlignConfig()))])
def test_a_model_of_no_numbers_is_refused(models, work):
    translator = Translator.load(models["one"])
    translator.loaded.model.target_embedding.weight.fill_(torch.nan)
    with pytest.raises(NmtalignError, match="no finite probability"):
        work(translator)


@pytest.mark.parametrize("settings", [{"batch_size": 1}, {"batch_size": 9}, {"threads": 2}, {"max_memory": "1K"}])
def test_batches_and_threads_change_nothing(models, settings):
    expected = scored(Translator.load(models["one"], threads=1), PAIRS * 5)
    found = scored(Translator.load(models["one"], **{"threads": 1, **settings}), PAIRS * 5)
    for one, other in zip(expected, found, strict=True):
        assert (one.number, one.source) == (other.number, other.source)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def test_a_batch_that_is_too_large_is_halved(models):
    loaded = Translator.load(models["one"], threads=1)
    room = 1

    def small_machine(source):
        if len(source) > room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    translator = Translator(loaded.models, loaded.config, scorer=WatchedScorer(loaded.scorer, small_machine))
    for one, other in zip(scored(loaded), scored(translator), strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
    room = 0
    with pytest.raises(ResourceError, match="line 3: out of memory with one pair of 7 and 7 tokens; leave it out"):
        scored(translator, PAIRS[1:2] * 2 + PAIRS[2:3])


@pytest.mark.parametrize(
    "wrong", ["plain string", "ab", ("one",), ("one", "two", "three"), None, ("a", None), ("a", 1.0)]
)
def test_what_is_not_a_pair_is_refused(models, wrong):
    with pytest.raises(UsageError, match="is not a pair of lines"):
        next(score_pairs(Translator.load(models["one"], threads=1), [wrong]))


PAIR = ScoredPair(0, "", "", (), (), 0, 0, log_prob=-2.0, score=-0.25, token_log_probs=(-1.5, -0.5))


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ("0 ||| le chat", {}, "0 ||| le chat ||| nmtalign= -2.000000"),
        ("12|||x ||| LogProb= -1.5", {}, "0 ||| x ||| LogProb= -1.5 nmtalign= -2.000000"),
        ("0 ||| x ||| a= 1 nmtalign= 4 5e-3 -inf b= 2 ||| 7", {}, "0 ||| x ||| a= 1 b= 2 nmtalign= -2.000000 ||| 7"),
        ("0 ||| x ||| xnmtalign= 1 nmtalign=", {}, "0 ||| x ||| xnmtalign= 1 nmtalign= -2.000000"),
        ("0 ||| x", {"rescore": True}, "0 ||| x ||| nmtalign= -2.000000 ||| -0.250000"),
        ("0 ||| x ||| ||| 7 ||| 0-0", {"rescore": True}, "0 ||| x ||| nmtalign= -2.000000 ||| -0.250000 ||| 0-0"),
        (  # of Marian, with --alignment and --word-scores
            "0 ||| x ||| 0-0 1-1 ||| WordScores= -1 -2 ||| F0= -3 F1= -1 ||| -1.5",
            {"rescore": True},
            "0 ||| x ||| 0-0 1-1 ||| WordScores= -1 -2 ||| F0= -3 F1= -1 nmtalign= -2.000000 ||| -0.250000",
        ),
        ("0 ||| x", {"word_scores": True}, "0 ||| x ||| nmtalign= -2.000000 WordScores= -1.500000 -0.500000"),
    ],
)  # fmt: skip
def test_a_line_of_a_list_gets_features(tmp_path, line, options, expected):
    files = written(tmp_path, "the cat\n" * 13, [line])
    ((found, _),) = read_n_best(*files)
    number = line.split("|||")[0].strip()
    given = {"rescore": False, "word_scores": False, **options}
    assert scored_line(found, PAIR, **given) == expected.replace("0", number, 1)


def written(folder, source, lines):
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    (folder / "in").write_text(source)
    return folder / "list", folder / "in"


def test_lines_of_a_list_have_their_sources(tmp_path):
    files = written(tmp_path, "a\nb\nc\nd\n", ["0 ||| x", "0 ||| y  z ", "2 |||  ||| z", "3|||w"])
    assert [texts for _, texts in read_n_best(*files)] == [("a", "x"), ("a", "y  z"), ("c", ""), ("d", "w")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0 ||| x", "2 ||| y", "1 ||| z"], r"list: line 3: id 1 comes after id 2; sort the list by id"),
        (["0 ||| x", "3 ||| y"], r"list: line 2: id 3 needs line 4 of .*in, which has 3 lines; ids count"),
        *(
            (["0 ||| x", line], r"list: line 2: not a line of an n-best list; write `id \|\|\| ")
            for line in ("", "le chat", "-1 ||| x", "1.5 ||| x", "9" * 5000 + "|||", "0 \x1e|||")
        ),
    ],
)
def test_what_is_no_list_of_the_source_is_named(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        list(read_n_best(*written(tmp_path, "a\nb\nc\n", lines)))
