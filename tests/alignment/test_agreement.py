"""Learning word alignment from a bitext: links that are found, resuming, threads, new words, and the lexicon."""

import itertools
import shutil
import unicodedata
from collections import Counter

import numpy as np
import pytest

from nmtalign.alignment import agreement, word_aligner
from nmtalign.alignment.agreement import ITERATIONS, LONGEST, MODEL_1, AgreeingModels, Sentences
from nmtalign.alignment.aligning import align, read_windows
from nmtalign.alignment.lexical import LexicalModel, folded, pieces_of
from nmtalign.alignment.link_files import LinkFigures, count_links, read_links
from nmtalign.alignment.linking import read_sides, write_table
from nmtalign.alignment.links import format_scored
from nmtalign.alignment.word_aligner import Pieces, StoredWords, in_pieces, load_aligner, save_aligner
from nmtalign.errors import FormatError
from nmtalign.files import ALIGNER
from nmtalign.model_directory import map_arrays, save_tensors
from nmtalign.sample.sample_corpus import write_sample
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.lines import read_pairs
from nmtalign.text.tokenizer import read_entries


def sides_of(pairs):
    parts = [in_pieces(list(side.index), side.sentences(), Pieces(lambda word: False)) for side in read_sides(pairs)]
    return (parts[0][1], parts[1][1]), (parts[0][2], parts[1][2])


def learned(sides, threads=1, iterations=ITERATIONS):
    learning = AgreeingModels(*sides, threads)
    while learning.done < iterations:
        learning.iterate()
    return learning


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder, 600, 3, force=False)
    return folder


@pytest.fixture(scope="module")
def pairs(sample):
    return list(read_pairs(sample / "train.en", sample / "train.fr"))


@pytest.fixture(scope="module")
def aligner(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligner")
    save_aligner(folder, learned(sides_of(pairs)), ("en", "fr"), tokenized=False)
    return load_aligner(folder)


def test_links_of_other_pairs_agree_with_the_gold_links(sample, aligner):
    """The gold links count words between spaces in the tokenised text of the sample."""
    texts = [sample / f"test.tok.{language}" for language in ("en", "fr")]
    records = align(aligner, read_pairs(texts[0], texts[1]))
    gold = read_links(sample / "test.align").pairs
    figures = (count_links(record.hard_links, own) for record, own in zip(records, gold, strict=True))
    assert sum(figures, LinkFigures()).aer < 0.1


def test_the_weights_of_each_direction_are_probabilities(pairs, aligner):
    window = aligner.read(list(enumerate(pairs[:50])))
    for forward, backward in aligner.records([window], AlignConfig()):
        for record, other in ((forward, backward), (backward, forward)):
            assert record.weights.shape == (len(record.target) + 1, len(record.source) + 1)
            np.testing.assert_allclose(record.weights.sum(1), 1, atol=1e-4)
            assert record.source == other.target
            assert record.log_prob == pytest.approx(float(record.token_log_probs.sum()), rel=1e-5)
            assert record.log_prob < 0


def test_a_pair_has_the_same_links_alone_and_among_others(pairs, aligner):
    several = [*pairs[:40], ("", "rien"), ("zyx Unheard words, 3.14!", "zyx mots inconnus, 3.14 !")]
    together = list(align(aligner, several))
    for number, (pair, record) in enumerate(zip(several, together, strict=True)):
        (alone,) = align(aligner, [pair])
        assert alone.hard_links == record.hard_links, number
        np.testing.assert_allclose(alone.weights, record.weights, atol=2e-4)  # NULL is the root of a small difference
    assert (0, 0) in together[-1].hard_links, "an unknown word that is equal on both sides"
    assert together[-2].hard_links == ()


def test_links_without_records_are_those_of_the_records(pairs, aligner):
    some = [("", "rien"), ("Don't stop, please!", "Ne t'arrête pas, s'il te plaît !"), *pairs[:50]]
    found = aligner.links(read_windows(aligner.read, some, AlignConfig(), 0), 1)
    assert [format_scored(*one) for one in found] == [record.scored_links() for record in align(aligner, some)]


def test_the_stored_numbers_of_a_pair_are_those_of_the_full_tables(pairs, aligner):
    stored = aligner._counts
    occurrences = [own[:-1].astype(np.float64) for own in stored.occurrences]
    full = LexicalModel([own.names for own in aligner._words], occurrences, stored.keys)
    counts = full.counted([stored.counts[0][:-1].astype(np.float64)] * 2, [own[:-1] for own in stored.null_counts])
    tables, seen = counts.tables(full.cells, full.words), 0
    for pair in pairs[:50]:
        _, words = aligner.read([(0, pair)])
        cells = stored.find(words, *map(np.ravel, np.indices(tuple(map(len, words)))))
        places = np.flatnonzero(cells.places >= 0)
        for direction, own in enumerate(stored.tables(cells, words)):
            table = tables[direction]
            np.testing.assert_array_equal(own.counts[places], table.counts[cells.places[places]])
            np.testing.assert_array_equal(own.totals[:-1], table.totals[words[direction].numbers])
            np.testing.assert_array_equal(own.null[:-1], table.null[words[1 - direction].numbers])
        seen += len(places)
    assert seen > 400


def test_words_and_their_stems_are_found():
    names = sorted(["a", "nation", "nati", "nationalité", "été", "étérnel", "z", "人民", "𝒳x", "ﬀ"])
    stems = [["a", "nati", "z", "été", "étér", "人民", "ﬀ", "𝒳x"].index(name[:4]) for name in names]
    words = StoredWords(np.frombuffer("\n".join(names).encode(), np.uint8), np.array([*stems, -1], np.int32))
    assert [words.find(name) for name in names] == list(enumerate(stems))
    assert words.names == names
    assert [words.find(name)[0] for name in ("", "b", "nat", "zz", "\ud800", "étér")] == [-1] * 6
    assert words.find("nations") == (-1, 1)
    assert words.find("étérnité") == (-1, 4)
    assert words.find("nat") == (-1, -1)
    assert words.find("人") == words.find("人口") == (-1, 5), "an ideograph is a stem"
    without = StoredWords(np.zeros(0, np.uint8), np.array([-1], np.int32))
    assert not len(without)
    assert without.find("a") == without.find("nations") == (-1, -1)


def test_an_aligner_is_read_once_until_it_is_replaced(aligner, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(word_aligner, "map_arrays", lambda path: (read.append(path), map_arrays(path))[1])
    shutil.copy(aligner.folder / ALIGNER, tmp_path)
    assert load_aligner(tmp_path).hash == load_aligner(tmp_path).hash == aligner.hash
    assert len(read) == 1
    tensors, facts = map_arrays(tmp_path / ALIGNER)
    save_tensors(tmp_path / ALIGNER, tensors, {**facts, "source": "xx"})
    assert load_aligner(tmp_path).source_language == "xx"


def test_threads_and_a_resumed_run_change_nothing(pairs, tmp_path):
    sides = sides_of(pairs[:200])
    whole = learned(sides)
    for stop in (2, MODEL_1, MODEL_1 + 2):
        first = learned(sides, threads=2, iterations=stop)
        save_tensors(tmp_path / "state", first.state(), {})
        rest = AgreeingModels(*sides, 3)
        rest.restore(map_arrays(tmp_path / "state")[0])
        assert rest.done == stop
        while rest.done < ITERATIONS:
            rest.iterate()
        np.testing.assert_array_equal(rest.jumps, whole.jumps)
        for name in ("counts", "null_counts"):
            for own, other in zip(getattr(rest.counts, name), getattr(whole.counts, name), strict=True):
                np.testing.assert_array_equal(own, other)


def test_a_pair_leaves_out_what_it_has_contributed_to_the_counts():
    """The probabilities of a pair are those of a model without its own counts."""
    pairs = [("red car", "rouge voiture"), ("old car", "vieille voiture"), ("red sky", "ciel rouge")]
    learning = learned(sides_of(pairs), iterations=MODEL_1 + 2)
    (batch,), tables = learning._batches, learning.tables()
    own = learning._own.reshape(batch.places.shape).astype(np.float32)
    (forward, _), _ = agreement.word_probabilities(batch, tables, own)
    for row, (place, word) in itertools.product(range(3), itertools.product(range(2), repeat=2)):
        cell = batch.places[row, place, word]
        count = float(tables[0].counts[cell]) - float(own[row, place, word])
        total = float(tables[0].totals[batch.source[row, word]]) - float(own[row, :, word].sum())
        assert float(forward[row, place, word]) == pytest.approx(count / total, rel=1e-4)
    once = {name: side.index(name) for side, name in zip(learning.model.names, ("sky", "ciel"), strict=True)}
    key = once["sky"] * len(learning.model.names[1]) + once["ciel"]
    kept = learning.counts.counts[0][int(np.searchsorted(learning.model.keys, key))]
    assert kept == pytest.approx(float(own[batch.rows.tolist().index(2), 0, 1])), "the count itself is kept"
    assert kept > 0


@pytest.mark.parametrize("iterations", [1, MODEL_1])
def test_expected_links_and_missing_links_of_a_word_sum_to_its_occurrences(iterations):
    """In IBM Model 1 the posteriors of each target word, and in the other direction of each source word, sum to 1."""
    sides = sides_of([("red car", "rouge voiture rouge"), ("old car", "vieille voiture"), ("sky", "ciel rouge")])
    learning = learned(sides, iterations=iterations)
    for direction, written in enumerate((1, 0)):
        links = np.bincount(learning.model.cells[written], learning.counts.counts[direction][:-1])
        absent = learning.counts.null_counts[direction][:-1]
        np.testing.assert_allclose(links + absent, np.bincount(sides[1][written].ids), rtol=1e-3)
        assert (absent > 0).all()


def test_translation_probabilities_are_the_documented_mixture():
    """t(f | e) for words whose counts, stems and spellings are chosen by hand."""
    names = ["nation", "nations", "cat"], ["nation", "nations", "chat"]
    keys = np.array([0, 1, 2, 3, 4, 8])
    model = LexicalModel(names, [np.array([4.0, 1.0, 2.0]), np.array([3.0, 2.0, 2.0])], keys)
    counts = np.array([3.0, 0.5, 0.5, 0.0, 1.0, 2.0])
    table = model.counted([counts, counts], [np.zeros(3), np.zeros(3)]).tables(model.cells, model.words)[0]
    # nation -> nations: without its own 0.5, the stem "nati" has 4 of 4.5 counts with "nati", whose words occur 5
    # times, and 2 that the 3 words share; nation has 2 cognates.
    spelled = 0.7 * (4 * (2 / 5) + 2 / 3) / (4.5 + 2) + 0.3 / 2
    assert table.counts[1] / table.totals[0] == pytest.approx((0.5 + 5 * spelled) / (4 + 5), rel=1e-5)
    # nation -> chat: no other pair of words has these stems, and no cognates.
    spelled = 0.7 * (2 / 3) / (4.5 + 2)
    assert table.counts[2] / table.totals[0] == pytest.approx((0.5 + 5 * spelled) / (4 + 5), rel=1e-5)
    np.testing.assert_allclose(table.null, [1 / 3, 1 / 3, 1 / 3, 1], rtol=1e-6)


def test_long_and_empty_pairs_are_not_learned_from():
    long = [("a " * (LONGEST + 1), "b"), ("a. " * LONGEST, "b"), ("a " * LONGEST, "b")]
    sides = sides_of([("a", "b"), ("", "b"), ("a", ""), *long])[1]
    assert len(sides[0].lengths()) == 3  # an empty side and too many words were left out when the texts were read
    assert agreement.usable(sides).tolist() == [0, 2]
    nothing = learned(sides_of([("", ""), ("", "x")]))
    assert nothing.cells == 0


def test_long_pairs_are_aligned_up_to_a_limit(aligner):
    words = " ".join(f"w{number}" for number in range(500))
    (record,) = align(aligner, [(words, words)])
    assert len(set(record.hard_links) & {(place, place) for place in range(500)}) > 490
    short, *long = align(aligner, [("a", "b"), ("a " * 4000, "b " * 3000), ("a", "b " * 3000)])
    assert not short.empty()
    assert all((one.source, one.target, one.hard_links) == ((), (), ()) and np.isnan(one.log_prob) for one in long)


SPLIT = ["L' été .", "speaker 's", "'s", "( Hello )", "1,000.5", "vice-président", "qu’ il", "« Non » ,", "हिन्दी"]


@pytest.mark.parametrize("pieces", [*SPLIT, "b2b", "\x01"])
def test_words_are_split_into_pieces_that_contain_all_of_them(pieces):
    word = pieces.replace(" ", "")
    for form in ("NFC", "NFD"):  # composed and decomposed accents are the same
        written = unicodedata.normalize(form, word)
        assert Pieces(lambda word: False).of[written] == tuple(pieces.casefold().split(" "))
        assert Pieces(lambda word: True).of[written] == (word.casefold(),)


def test_an_untrusted_file_in_which_no_word_occurs_aligns_without_a_warning(aligner, tmp_path):
    tensors, facts = map_arrays(aligner.folder / ALIGNER)
    zeros = {name: tensor * 0 if name.endswith("occurrences") else tensor for name, tensor in tensors.items()}
    save_tensors(tmp_path / ALIGNER, zeros, facts)
    (record,) = align(load_aligner(tmp_path), [("the old bank", "la vieille banque")])
    assert np.isfinite(record.weights).all()


def test_an_untrusted_file_is_refused_or_harmless(aligner, pairs, tmp_path):
    tensors, facts = map_arrays(aligner.folder / ALIGNER)
    changes = [
        {"keys": tensors["keys"].astype(np.int32)},
        {"counts": tensors["counts"][1:]},
        {"counts": tensors["counts"] + np.float32(1e6)},
        {"counts": tensors["counts"] - np.float32(1e6)},
        {"counts": tensors["counts"] + np.float32(np.nan)},
        {"stem_counts": tensors["stem_counts"] + 1e300},
        {"jumps": tensors["jumps"][:, 1:]},
        {"jumps": tensors["jumps"] * 0},
        {"jumps": tensors["jumps"] * 1e300},
        {"source.words": np.zeros_like(tensors["source.words"]) + np.uint8(0xFF)},
        {"target.words": tensors["target.words"][tensors["target.words"].tolist().index(ord("\n")) + 1 :]},
        {"source.null": tensors["target.null"]},
        {"source.null": tensors["source.null"] + np.float32(np.inf)},
        {"source.occurrences": tensors["target.occurrences"]},
        {"source.totals": tensors["source.totals"] * -1},
        {"source.stems": tensors["source.stems"] + np.int32(10**6)},
        {"source.stems": tensors["source.stems"] - np.int32(1)},
        {"source.cognates": tensors["source.cognates"] * 0},
        *({name: tensors[name][:, None]} for name in ("keys", "counts", "target.cognates")),
        {"source.words": tensors["source.words"].astype(np.float32)},
    ]
    for change in changes:
        save_tensors(tmp_path / ALIGNER, {**tensors, **change}, facts)
        with pytest.raises(FormatError, match="damaged"):
            list(align(load_aligner(tmp_path), pairs))
    for change in ({"keys": tensors["keys"][::-1]}, {"stem_keys": tensors["stem_keys"] + 10**15}):
        save_tensors(tmp_path / ALIGNER, {**tensors, **change}, facts)
        assert all(np.isfinite(record.weights).all() for record in align(load_aligner(tmp_path), pairs))
    for missing in tensors:
        save_tensors(tmp_path / ALIGNER, {name: own for name, own in tensors.items() if name != missing}, facts)
        with pytest.raises(FormatError, match="not a word aligner"):
            load_aligner(tmp_path)
    save_tensors(tmp_path / ALIGNER, tensors, {**facts, "version": "2"})
    with pytest.raises(FormatError, match="made by an older version of nmtalign; link the texts again"):
        load_aligner(tmp_path)
    save_tensors(tmp_path / ALIGNER, tensors, {**facts, "kind": "model"})
    with pytest.raises(FormatError, match="not a word aligner"):
        load_aligner(tmp_path)


def make_table(source, target, counts):
    """The table of words that all share sentence pairs, with these counts of each pair (source, target)."""
    model = LexicalModel((source, target), [counts.sum(1), counts.sum(0)], np.arange(counts.size))
    counted = model.counted([counts.ravel()] * 2, [np.zeros(len(target)), np.zeros(len(source))])
    return model.cells, counted.tables(model.cells, model.words)[0]


def test_entries_are_written_as_in_the_texts(tmp_path):
    table = make_table(["the", "fox", "null"], ["le", "renard", "</s>"], np.diag([800.0, 900.0, 700.0]))
    spellings = [
        [Counter({"the": 3, "The": 1}), Counter({"fox": 4}), Counter({"NULL": 4, "null": 4})],
        [Counter({"le": 3, "Le": 1}), Counter({"renard": 4}), Counter({"</s>": 4})],
    ]
    write_table(tmp_path / "lexicon.tsv", *table, spellings)
    entries = list(read_entries(tmp_path))
    best = {source: target for source, target, _ in reversed(entries)}
    assert best["The"] == best["the"] == "le"
    assert best["fox"] == "renard"
    assert [source for source, _, _ in entries] == sorted(source for source, _, _ in entries)
    assert not {"NULL", "</s>"} & {word for entry in entries for word in entry[:2]}
    shares = {(source, target): value for source, target, value in entries}
    assert shares["the", "le"] == pytest.approx(3 * shares["the", "Le"], rel=1e-4)
    for source in best:
        assert sum(value for own, _, value in entries if own == source) <= 1


def test_a_word_has_few_translations_of_some_probability(tmp_path):
    words = [f"w{number}" for number in range(40)]
    table = make_table(["a"], words, 100 * np.arange(1.0, 41)[None])
    write_table(tmp_path / "lexicon.tsv", *table, [[Counter({"a": 1})], [Counter({word: 1}) for word in words]])
    assert [target for _, target, _ in read_entries(tmp_path)] == words[: -20 - 1 : -1]


@pytest.mark.parametrize(
    ("word", "spellings"), [("L'Été.", ["L'", "Été", "."]), ("NASA", ["NASA"]), ("Straße", ["Straße"]), ("3", ["3"])]
)
def test_pieces_are_spelled_as_in_the_word(word, spellings):
    assert pieces_of(word) == spellings
    found, pieces, _ = in_pieces([word], Sentences(np.zeros(2, np.int32), np.array([0, 2])), Pieces(lambda word: False))
    assert found == [Counter({spelling: 2}) for spelling in spellings]
    assert pieces == [folded(spelling) for spelling in spellings]
