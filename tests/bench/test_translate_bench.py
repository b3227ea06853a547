"""Tests the translation benchmark at tiny sizes: compares its naive decoder with nmtalign's, and runs all parts."""

import importlib.util
import itertools
import json
from functools import partial

import pytest
import torch
from helpers.core_models import make_model, spread
from torch.utils.flop_counter import FlopCounterMode

from bench.naive import NaiveLoop
from bench.naive_search import NaiveSearch
from bench.random_model import SPREAD, spread_logits, write_lexicon
from bench.search_products import SearchShape, search_products_of
from bench.texts import random_texts
from bench.translate import TITLES
from bench.workload import Size
from nmtalign.core.inference import Inference
from nmtalign.core.model import make_source
from nmtalign.search.beam_search import BeamSearch, ModelSession, Sources
from nmtalign.settings.command_settings import TranslateConfig

SMALL = {"hidden": 16, "embedding": 12, "attention_hidden": 10, "maxout": 8}
CELLS, ORDERS = ("paper", "cudnn"), ("look-generate-update", "look-update-generate")
ATTENTIONS = (("additive", True), ("additive", False), ("none", True), ("none", False))
OPTIONS = list(itertools.product(CELLS, ORDERS, ATTENTIONS))


def random_model(cell, order, attention, rank=0):
    options = {"cell": cell, "order": order, "attention": attention[0], "bidirectional": attention[1]}
    model = make_model(Size.of("tiny", 60, **options, **SMALL, output_rank=rank).model, torch.float32).eval()
    with torch.no_grad():
        spread(model)
    return model


def random_sentences(*lengths):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(2, 60, (length,), generator=generator).tolist() for length in lengths]


@pytest.mark.parametrize(("cell", "order", "attention"), OPTIONS[::3])
def test_the_naive_decoder_finds_what_nmtalign_finds(cell, order, attention):
    model = random_model(cell, order, attention, rank=7 if cell == "paper" else 0)
    sentences = random_sentences(1, 7, 4, 9, 6)
    scorer, batch_of_all = partial(ModelSession, Inference(model)), make_source(sentences)
    for beam, ratios in itertools.product((1, 5), ((0.0, 3.0), (1.0, 1.0))):
        options = TranslateConfig(beam=beam, min_length_ratio=ratios[0], max_length_ratio=ratios[1])
        found = BeamSearch(Sources(*batch_of_all), options).run(scorer)
        for batch in (1, 3):
            naive = NaiveSearch(model, beam, *ratios, recompute_keys=batch == 1).translate(sentences, batch)
            for sentence, [ours], theirs in zip(sentences, found, naive, strict=True):
                assert theirs.tokens == ours.tokens
                assert theirs.score == pytest.approx(ours.score, abs=1e-4)
                if ratios == (1.0, 1.0):
                    assert len(theirs.tokens) == len(sentence)


@pytest.mark.parametrize(("cell", "order", "attention"), OPTIONS)
def test_operations_of_a_search_are_those_that_nmtalign_does(cell, order, attention):
    model = random_model(cell, order, attention, rank=7 if cell == "paper" else 0)
    source, mask = make_source(random_sentences(24, 24, 24, 24))
    inference, beam, steps = Inference(model), 4, 20
    words = torch.arange(60)
    with torch.inference_mode():
        encoded = inference.encode(source, mask)
        state = inference.start(encoded).select(torch.arange(4).repeat_interleave(beam))
        state, *_ = inference.step(encoded, state, None)
        inference.step(encoded, state, words[: 4 * beam])  # fills the table of word products
        with FlopCounterMode(display=False) as once:
            inference.encode(source, mask)
        with FlopCounterMode(display=False) as step:
            _, features, *_ = inference.step(encoded, state, words[: 4 * beam])
            torch.mm(features, inference.output_weight.t())
    counted = once.get_total_flops() + (steps - 1) * step.get_total_flops()
    products = search_products_of(model.config, SearchShape(4, 25, beam, steps, 60))
    assert sum(product.flops for product in products) == pytest.approx(counted, rel=0.01)


def test_logits_of_random_weights_spread():
    model = random_model(*OPTIONS[0])
    spread_logits(model)
    loop = NaiveLoop(model.config, dict(model.named_parameters()))
    with torch.inference_mode():
        memory = loop.remember(*make_source(random_sentences(9, 9, 9)))
        _, logits = loop.step(memory, loop.start(memory), torch.tensor([5, 6, 7]))
    assert 0.5 * SPREAD < float(logits.std()) < 2 * SPREAD


def test_the_lexicon_has_this_number_of_words_beside_the_most_frequent(tmp_path):
    texts = random_texts(tmp_path, Size.of("tiny", 60, **SMALL), 5, pairs=20)
    assert write_lexicon(tmp_path / "lexicon", texts, 10) == 10
    entries = [line.split() for line in (tmp_path / "lexicon").read_text().splitlines()]
    assert {source for source, _, _ in entries} == set(texts.words[0])
    assert {target for _, target, _ in entries} == set(texts.words[1][10:20])


def test_translate_measures_everything_and_writes_json(bench, tmp_path):
    result = bench(
        *("translate", "--size", "tiny", "--vocabulary", 90, "--set", "hidden=16", "--length", 5, "--sentences", 6),
        *("--threads", 1, "--repeats", 1, "--beam", "3", "--json", tmp_path / "out.json"),
    )
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert {"device", "threads", "date", "revision"} <= set(found["machine"])
    measured = found["beams"]["3"]
    variants = measured["variants"]
    assert {*TITLES} - {"ours-int8"} <= {*variants} <= {*TITLES}  # int8 is not on every machine
    for figures in variants.values():
        assert figures["words_per_second"] == pytest.approx(5 * figures["sentences_per_second"])
        naive = variants["naive"]["sentences_per_second"]
        assert figures["times_naive"] == pytest.approx(figures["sentences_per_second"] / naive)
    assert all(variants[name]["of_floor"] > 0 for name in variants if name.startswith("ours"))
    assert measured["agreement"]["same_text"] == measured["agreement"]["sentences"] == 4
    assert measured["agreement"]["score_difference"] < 1e-4
    assert "as the released code" in result.stdout


def test_a_transformer_is_measured_beside_ctranslate2(bench, tmp_path):
    names = ["ours-fp32", "small-int8"]
    if importlib.util.find_spec("ctranslate2"):
        names.insert(1, "ctranslate2-int8")
    result = bench(
        *("translate", "--size", "transformer-tiny", "--vocabulary", 90, "--length", 5, "--sentences", 6),
        *("--threads", 1, "--repeats", 1, "--beam", "1", "--json", tmp_path / "out.json"),
        *("--variants", ",".join(names)),
    )
    assert result.returncode == 0, result.stderr
    variants = json.loads((tmp_path / "out.json").read_text())["beams"]["1"]["variants"]
    assert {*names} - {"small-int8"} <= {*variants} <= {*names}
    for figures in variants.values():
        assert figures["words_per_second"] == pytest.approx(5 * figures["sentences_per_second"])
