"""Forced decoding of sentence pairs: readings, order, padding, batches, empty sides, pieces merged to words."""

import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.pieces import learned_pieces, words_of
from helpers.score_tables import TRANSFORMER, small_model

from nmtalign.alignment.aligning import AlignmentRun, align, window_size, without_auto
from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.forced_decoding import SideReader, force
from nmtalign.alignment.links import argmax_links
from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.core.numerics import in_int8
from nmtalign.errors import InputError, ResourceError, UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.settings import presets
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import Tokenizers, Vocabulary

SOURCE = Vocabulary(["</s>", "<unk>", "the", "fox", "sees", "red", "boats"])
TARGET = Vocabulary(["</s>", "<unk>", "le", "renard", "voit", "des", "bateaux", "rouges"])
PAIRS = [("the fox", "le renard"), ("", ""), ("the fox sees red boats", "le renard voit des bateaux rouges")]
PAIRS += [("", "le renard"), ("the heron", "le héron"), ("fox", ""), ("   ", "\t"), ("boats", "des bateaux")]

SYSTEMS = {**presets.SYSTEMS, "marginal": {"attention_kind": "marginal"}, "hard": {"attention_kind": "hard"}}
ATTENDING = [name for name, settings in SYSTEMS.items() if settings.get("attention") != "none"]


def make_loaded(tokenizers=None, vocabularies=(SOURCE, TARGET), **settings):
    torch.manual_seed(2)
    sizes = {"embedding": 6, "hidden": 8, "attention_hidden": 5, "maxout": 6, "output_rank": 0, "heads": 2}
    words = {"source_vocabulary_size": len(vocabularies[0]), "target_vocabulary_size": len(vocabularies[1])}
    model = TranslationModel(ModelConfig(**{**words, **sizes, "initialisation": "xavier", **settings})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    languages = {"source_language": "en", "target_language": "fr"}
    parts = model, *vocabularies, tokenizers or Tokenizers.spaced(), languages, torch.device("cpu")
    loaded = LoadedModel(Path("model"), Path("best.safetensors"), *parts)
    vars(loaded)["hash"] = "0123"  # there is no file of weights
    return loaded


def batch_of(loaded, source, target):
    """A pair of words as a batch."""
    source_ids, target_ids, copies = loaded.ids(source, target)
    return make_batch([(source_ids, target_ids)], copies=[copies] if loaded.model.config.copy else None)


def test_records_come_in_order_with_the_words_of_the_text():
    records = list(align([make_loaded()], iter(PAIRS), AlignConfig(batch_size=2)))
    assert [record.sentence_id for record in records] == list(range(len(PAIRS)))
    for record, (source, target) in zip(records, PAIRS, strict=True):
        assert (record.source, record.target) == (tuple(source.split()), tuple(target.split()))
        assert record.weights.shape == (len(record.target) + 1, len(record.source) + 1)
        assert len(record.token_log_probs) == len(record.target) + 1
        assert record.log_prob == pytest.approx(float(record.token_log_probs.sum()), abs=1e-5, nan_ok=True)
        assert np.isnan(record.log_prob) == record.empty()
        assert record.links() == argmax_links(record.weights)
        np.testing.assert_allclose(record.weights.sum(axis=1), 0 if record.empty() else 1, atol=1e-6)


def test_words_that_a_model_copies_count_in_the_alignment():
    """An unknown word of the target that is also in the source is more probable than another unknown word."""
    loaded = make_loaded(copy=True)
    with torch.no_grad():
        loaded.model.copying.bias -= 20  # it copies every word
    pair, other = align([loaded], [("the heron sees", "heron"), ("the heron sees", "crow")], AlignConfig())
    assert pair.target == ("heron",)
    assert float(np.exp(pair.token_log_probs[0])) == pytest.approx(float(pair.weights[0, 1]), rel=1e-4)
    assert other.token_log_probs[0] < pair.token_log_probs[0] - 5


def test_batches_and_windows_change_nothing(rounding):
    loaded = make_loaded()
    pairs = [*PAIRS, ("the fox " * 60, "le renard voit " * 40), *PAIRS * 7]  # more than one window of 20 batches
    together = list(align([loaded], pairs, AlignConfig(batch_size=80)))
    for size in (1, 2, 4):
        for left, right in zip(together, align([loaded], pairs, AlignConfig(batch_size=size)), strict=True):
            rows, columns = left.weights.shape
            error = rounding.of_steps(loaded.model, rows + columns)
            np.testing.assert_allclose(left.weights, right.weights, rtol=0, atol=error)
            assert left.log_prob == pytest.approx(right.log_prob, rel=0, abs=rows * error, nan_ok=True)
            assert left.sentence_id == right.sentence_id


@pytest.mark.parametrize("reading", ["current", "posterior"])
@pytest.mark.parametrize("name", ATTENDING)
def test_int8_aligns_nearly_as_float32_and_each_pair_alike_in_every_batch(name, reading, int8):
    sizes = {"embedding": 32, "hidden": 64, "attention_hidden": 32, "maxout": 32}
    loaded = make_loaded(**{**SYSTEMS[name], **sizes})
    if reading == "posterior" and not loaded.model.has_posterior:
        pytest.skip("this architecture has no posterior")
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.div_(3)  # as they are initialised: the energies of larger ones would be far from those of a model
    narrow = replace(loaded, model=in_int8(loaded.model))
    vars(narrow)["hash"] = "0123"
    exact = align([loaded], PAIRS, AlignConfig(reading=reading))
    found = list(align([narrow], PAIRS, AlignConfig(reading=reading)))
    alone = align([narrow], PAIRS, AlignConfig(reading=reading, batch_size=1))
    for record, expected, other in zip(found, exact, alone, strict=True):
        np.testing.assert_allclose(record.weights, expected.weights, rtol=0, atol=0.02)
        assert record.log_prob == pytest.approx(expected.log_prob, rel=0.01, abs=0.05, nan_ok=True)
        # Where float32 rounds differently, an input may become the next of its 127 steps.
        assert other.log_prob == pytest.approx(record.log_prob, rel=0, abs=0.02, nan_ok=True)


def test_a_stream_that_became_shorter_does_not_resume(tmp_path):
    def aligned(count, **options):
        ends = [os.pipe() for _ in range(2)]
        for side, (_, end) in enumerate(ends):
            os.write(end, "".join(f"{pair[side]}\n" for pair in PAIRS[:count]).encode())
            os.close(end)
        names = [Path(f"/dev/fd/{end}") for end, _ in ends]
        try:
            return AlignmentRun([make_loaded()], *names, output=tmp_path / "a.h5", **options).run()
        finally:
            for end, _ in ends:
                os.close(end)

    aligned(len(PAIRS))
    assert aligned(len(PAIRS), resume=True).done_before == len(PAIRS)
    with pytest.raises(InputError, match=rf"has 1 line, and the output has {len(PAIRS)}; give the input that"):
        aligned(1, resume=True)


@pytest.mark.parametrize("name", ATTENDING)
def test_the_file_of_every_system_contains_the_weights_of_forced_decoding(tmp_path, name):
    narrow = {"attention_window": 2} if "local" in name else {}
    loaded = make_loaded(**SYSTEMS[name], **narrow)
    loaded.model.double()  # so that a batch and a pair differ by no more than the rounding of the file
    for side, text in enumerate(("in.en", "out.fr")):
        (tmp_path / text).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    is_transformer = loaded.model.config.architecture == "transformer"
    others = ["posterior"] * loaded.model.has_posterior + ["shifted"] * is_transformer
    assert without_auto(AlignConfig(), [loaded, loaded]).reading == [*others, "current"][0]
    for reading in {"shifted", "posterior"}.difference(others):
        with pytest.raises(UsageError, match=f"is no Transformer|has no posterior; .* {[*others, 'current'][0]}"):
            next(align([loaded], PAIRS, AlignConfig(reading=reading)))
    for reading in ("current", *others):
        config = AlignConfig(alignment_type="float32", reading=reading)
        AlignmentRun([loaded], tmp_path / "in.en", tmp_path / "out.fr", config, output=tmp_path / reading).run()
        with AlignmentFile(tmp_path / reading) as file:
            for record, lines in zip(file, PAIRS, strict=True):
                tokens = [line.split() for line in lines]
                if not all(tokens):
                    assert not record.weights.any()
                    continue
                forced = force(loaded.model, batch_of(loaded, *tokens), reading)
                np.testing.assert_allclose(record.weights, forced.weights[0].numpy(), rtol=0, atol=1e-6)
                np.testing.assert_allclose(record.weights.sum(axis=1), 1, rtol=0, atol=1e-6)
                np.testing.assert_allclose(record.token_log_probs, forced.log_probs[0].numpy(), rtol=1e-6, atol=1e-6)
                assert record.log_prob == pytest.approx(float(forced.log_probs.sum()), rel=1e-6)


def test_pairs_are_read_a_window_at_a_time():
    config = AlignConfig(batch_size=2)
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield "the fox", "le renard"

    records = align([make_loaded()], endless(), config)
    assert not taken
    next(records)
    assert len(taken) == 2 * window_size(config)  # a window that is being aligned, and the one after it


@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - ATTENDING))
def test_a_system_without_attention_is_refused_at_once(name):
    with pytest.raises(UsageError, match="model: this model has no attention, so it cannot align"):
        align([make_loaded(**SYSTEMS[name])], PAIRS, AlignConfig())


def test_memory_that_runs_out_is_one_clear_line(monkeypatch):
    loaded = make_loaded()

    def fail(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(loaded.model, "force", fail)
    with pytest.raises(ResourceError, match="line 1: out of memory with one pair of 5 and 6 tokens; leave it out"):
        list(align([loaded], PAIRS[2:3], AlignConfig()))


@pytest.fixture(scope="module")
def pieces():
    lines = ["the fox sees red boats", "foxes see the reddest boat", "a boat sees a fox", "sees, seeing; boats."] * 20
    return learned_pieces(lines, 40)


def subword_model(pieces):
    vocabulary = Vocabulary(["</s>", "<unk>", *(piece for piece in pieces.pieces() if piece not in ("</s>", "<s>"))])
    return make_loaded(tokenizers=Tokenizers(pieces, pieces), vocabularies=(vocabulary, vocabulary))


def test_pieces_are_merged_to_words(pieces):
    loaded = subword_model(pieces)
    source, target = "the reddest boat", "foxes seeing boats"
    tokens = [pieces.tokenize(source), pieces.tokenize(target)]
    assert len(tokens[0]) > 3
    assert len(tokens[1]) > 3
    (record,) = align([loaded], [(source, target)], AlignConfig())
    assert (record.source, record.target) == (("the", "reddest", "boat"), ("foxes", "seeing", "boats"))
    ids = [loaded.source_vocabulary.encode(part) for part in tokens]
    batch = make_batch([(ids[0], ids[1])])
    exact = loaded.model.force(*batch.inputs())
    rows = [np.array(words_of(pieces, tokens[1])) == word for word in range(3)]
    columns = [np.array(words_of(pieces, tokens[0])) == word for word in range(3)]
    raw = exact.weights[0].numpy()
    for j in range(3):
        for i in range(3):
            expected = raw[:-1, :-1][rows[j]][:, columns[i]].sum(axis=1).mean()
            assert record.weights[j, i] == pytest.approx(expected, abs=1e-6)
        assert record.token_log_probs[j] == pytest.approx(exact.log_probs[0].numpy()[:-1][rows[j]].sum(), abs=1e-5)
    np.testing.assert_allclose(record.weights.sum(axis=1), 1, atol=1e-5)
    assert record.log_prob == pytest.approx(float(exact.log_probs.sum()), rel=1e-6)


def test_tokenized_text_keeps_its_words_in_a_subword_model(pieces, tmp_path):
    # A control character vanishes in sentencepiece's normalisation; as a word of the text it stays one.
    text = "foxes , \x01 seeing"
    (record,) = align([subword_model(pieces)], [(text, text)], AlignConfig(tokenized=True))
    assert record.source == record.target == ("foxes", ",", "\x01", "seeing")
    assert record.weights.shape == (5, 5)
    np.testing.assert_allclose(record.weights.sum(axis=1), 1, atol=1e-5)
    (tmp_path / "text").write_text("a boat sees a fox .\n" * 9)
    for tokenized in (False, True):  # the warning that a text is not raw helps only where it should be
        heard = []
        texts, config = (tmp_path / "text", tmp_path / "text"), AlignConfig(tokenized=tokenized)
        AlignmentRun([subword_model(pieces)], *texts, config, notify=heard.append).run()
        assert any("spaces before punctuation" in one for one in heard) != tokenized


def test_without_a_file_nothing_is_hashed(tmp_path, monkeypatch):
    monkeypatch.setattr("nmtalign.alignment.aligning.sha256_of", pytest.fail)
    monkeypatch.setattr(LoadedModel, "hash", property(pytest.fail))
    (tmp_path / "text").write_text("the fox\n")
    assert AlignmentRun([make_loaded()], tmp_path / "text", tmp_path / "text").run().pairs == 1


def test_tokenized_text_may_have_decomposed_accents():
    pieces = learned_pieces(["un café noir", "le café", "des cafés"] * 20, 30, normalization_rule_name="identity")
    reader = SideReader(pieces, subword_model(pieces).source_vocabulary, tokenized=True)
    word = unicodedata.normalize("NFD", "café")
    assert reader.read(word).ids == reader.read("café").ids
    assert reader.read(word).words == (word,)


def test_text_without_spaces_has_a_word_for_each_piece_or_those_of_tokenized_text():
    words = [text.split() for text in ("彼 は 東京 に 住む 。", "東京 は 広い 。", "猫 は 広い 東京 を 見る 。")]
    pieces = learned_pieces(["".join(line) for line in words] * 20, 60, character_coverage=1.0)
    loaded, line = subword_model(pieces), words[2]
    raw = "".join(line)
    tokens = pieces.tokenize(raw)
    (record,) = align([loaded], [(raw, raw)], AlignConfig())
    assert record.source == record.target == tuple(token.removeprefix("▁") or "▁" for token in tokens)
    # Words inside the line are read without "▁", which only begins the line.
    reader = SideReader(pieces, loaded.source_vocabulary, tokenized=True)
    side = reader.read(" ".join(line))
    assert side.words == tuple(line)
    assert "".join(side.tokens) == f"▁{raw}"
    assert not set(side.tokens) - set(loaded.source_vocabulary.words)
    (record,) = align([loaded], [(" ".join(line), " ".join(line))], AlignConfig(tokenized=True))
    assert record.source == record.target == tuple(line)
    assert not learned_pieces([" ".join(line) for line in words] * 20, 60, character_coverage=1.0).unspaced


def test_tokenized_text_is_not_tokenised_again():
    loaded = make_loaded(tokenizers=Tokenizers.moses("en", "fr"))
    (raw,) = align([loaded], [("fox, boats", "l'bateaux")], AlignConfig())
    (given,) = align([loaded], [("fox, boats", "l'bateaux")], AlignConfig(tokenized=True))
    assert (raw.source, raw.target) == (("fox", ",", "boats"), ("l'", "bateaux"))
    assert (given.source, given.target) == (("fox,", "boats"), ("l'bateaux",))


def test_a_shifted_word_has_the_weights_of_the_first_step_that_depends_on_it():
    """Changing word t changes the shifted weights of word t, and those of no word before it."""
    model = small_model(seed=3, **TRANSFORMER).requires_grad_(False)
    source, words = [2, 3, 4], [3, 2, 4, 3]
    before = force(model, make_batch([(source, words)]), "shifted").weights[0]
    for place in range(len(words)):
        changed = [*words[:place], 1, *words[place + 1 :]]
        after = force(model, make_batch([(source, changed)]), "shifted").weights[0]
        same = (before - after).abs().amax(1) < 1e-7
        assert same[:place].all()
        assert not same[place]
        # The weights of the step that writes the word do not depend on it.
        current = [force(model, make_batch([(source, each)]), "current").weights[0] for each in (words, changed)]
        assert torch.equal(current[0][place], current[1][place])
