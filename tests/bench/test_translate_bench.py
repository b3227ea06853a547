"""Tests the translation benchmark at tiny sizes: compares its naive decoder with nmtalign's, and runs all parts."""

import dataclasses
import itertools
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))

from bench import translate_peers  # noqa: E402
from bench.cli import main  # noqa: E402
from bench.contest import contestants  # noqa: E402
from bench.contestants import NAMES  # noqa: E402
from bench.naive import NaiveLoop  # noqa: E402
from bench.naive_search import NaiveSearch  # noqa: E402
from bench.random_model import SPREAD, spread_logits, write_lexicon  # noqa: E402
from bench.recipes import Job, Recipe  # noqa: E402
from bench.search_products import SearchShape, search_flops_of  # noqa: E402
from bench.texts import random_texts  # noqa: E402
from bench.translate_recipes import COMMANDS, keep_open  # noqa: E402
from bench.translate_tables import tables  # noqa: E402
from bench.workload import Size  # noqa: E402
from nmtalign.core.inference import Inference  # noqa: E402
from nmtalign.core.model import TranslationModel  # noqa: E402
from nmtalign.data.batches import make_source  # noqa: E402
from nmtalign.errors import NmtalignError  # noqa: E402
from nmtalign.search.beam_search import SearchOptions, beam_search  # noqa: E402
from nmtalign.search.scorer import ModelScorer  # noqa: E402

SMALL = {"hidden": 16, "embedding": 12, "attention_hidden": 10, "maxout": 8}
OPTIONS = list(
    itertools.product(
        ("paper", "cudnn"),
        ("look-generate-update", "look-update-generate"),
        (("additive", True), ("additive", False), ("none", True), ("none", False)),
    )
)


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """Runs a subcommand in this process, in tmp_path; the processes that it starts are real."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=said.out, stderr=said.err)

    return run


def random_model(cell, order, attention, rank=0):
    options = {"cell": cell, "order": order, "attention": attention[0], "bidirectional": attention[1]}
    torch.manual_seed(1)
    model = TranslationModel(Size.of("tiny", 60, **options, **SMALL, output_rank=rank).model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def random_sentences(*lengths):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(2, 60, (length,), generator=generator).tolist() for length in lengths]


@pytest.mark.parametrize(("cell", "order", "attention"), OPTIONS)
def test_the_naive_decoder_finds_what_nmtalign_finds(cell, order, attention):
    model = random_model(cell, order, attention, rank=7 if cell == "paper" else 0)
    sentences = random_sentences(1, 7, 4, 9, 6)
    scorer, batch_of_all = ModelScorer(Inference(model)), make_source(sentences)
    for beam, ratios in itertools.product((1, 5), ((0.0, 3.0), (1.0, 1.0))):
        options = SearchOptions(beam=beam, min_length_ratio=ratios[0], max_length_ratio=ratios[1])
        found = beam_search(scorer, *batch_of_all, options)
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
    assert search_flops_of(model.config, SearchShape(4, 25, beam, steps, 60)) == pytest.approx(counted, rel=0.01)


def test_logits_of_random_weights_spread():
    model = random_model(*OPTIONS[0])
    spread_logits(model)
    loop = NaiveLoop(model.config, dict(model.named_parameters()))
    with torch.inference_mode():
        memory = loop.remember(*make_source(random_sentences(9, 9, 9)))
        _, logits = loop.step(memory, loop.start(memory), torch.tensor([5, 6, 7]))
    assert 0.5 * SPREAD < float(logits.std()) < 2 * SPREAD


def test_the_lexicon_names_so_many_words_beside_the_most_frequent(tmp_path):
    texts = random_texts(tmp_path, Size.of("tiny", 60, **SMALL), 5, pairs=20)
    assert write_lexicon(tmp_path / "lexicon", texts, 10) == 10
    entries = [line.split() for line in (tmp_path / "lexicon").read_text().splitlines()]
    assert {source for source, _, _ in entries} == set(texts.words[0])
    assert {target for _, target, _ in entries} == set(texts.words[1][10:20])


@pytest.mark.slow
def test_translate_measures_everything_and_writes_json(bench, tmp_path):
    result = bench(
        *("translate", "--size", "tiny", "--vocabulary", 90, "--hidden", 16, "--length", 5, "--sentences", 6),
        *("--threads", 1, "--repeats", 1, "--beam", "3,2", "--skip", "startup", "--json", tmp_path / "out.json"),
    )
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert {"device", "threads", "date", "revision"} <= set(found["machine"])
    assert set(found["speed"]["beams"]) == {"3", "2"}
    for measured in found["speed"]["beams"].values():
        variants = measured["variants"]
        int8 = [name for name in ("ours-int8", "ours-int8-candidates") if name in variants]  # not on every machine
        assert [name for name in variants if name not in int8] == [name for name in NAMES if "int8" not in name]
        for figures in variants.values():
            assert figures["words_per_second"] == pytest.approx(5 * figures["sentences_per_second"])
            naive = variants["naive"]["sentences_per_second"]
            assert figures["times_naive"] == pytest.approx(figures["sentences_per_second"] / naive)
            released = variants["released"]["sentences_per_second"]
            assert figures["times_released"] == pytest.approx(figures["sentences_per_second"] / released)
            assert figures["peak_mb"] > 50
        assert all(variants[name]["of_floor"] > 0 for name in variants if name.startswith("ours"))
        assert measured["agreement"]["same_text"] == measured["agreement"]["sentences"] == 4
        assert measured["agreement"]["score_difference"] < 1e-4
    assert re.search(r"ours, fp32 +[\d.]+ x +-", result.stdout)  # the target with a beam of 12 is 5.5 times
    assert "as the released code" in result.stdout


@pytest.mark.slow
def test_a_model_on_real_text_is_given_its_costs(bench, tmp_path, random_model_directory):
    words = [f"w{number}" for number in range(30)]
    model = random_model_directory(tmp_path / "made", words, words, lambda made: made.readout.output_weight.mul_(9))
    text, reference, lexicon = (tmp_path / name for name in ("text", "reference", "lexicon"))
    text.write_text("".join(f"w{number} w3 w{number + 9}\n" for number in range(20)))
    reference.write_text("w4 w5 w6 w7 w8\n" * 20)
    lexicon.write_text("".join(f"{word} {other} 0.5\n" for word in words for other in words))
    result = bench(
        *("translate", "--size", "tiny", "--vocabulary", 90, "--hidden", 16, "--length", 5, "--skip", "startup,speed"),
        *("--model", model, "--text", text, "--reference", reference, "--lexicon", lexicon, "--real-beam", 3),
        *("--threads", 1, "--repeats", 1, "--json", "-", "--variants", "naive,ours-fp32,ours-candidates"),
    )
    assert result.returncode == 0, result.stderr
    real = json.loads(result.stdout[result.stdout.index("{\n") :])["real"]
    assert real["sentences"] == 20
    assert real["signature"].startswith("BLEU|nrefs:1|")
    variants = real["beams"]["3"]["variants"]
    exact, limited = variants["ours-fp32"], variants["ours-candidates"]
    assert limited["cost"] == pytest.approx(exact["bleu"] - limited["bleu"])
    assert exact["same_as_fp32"] == 1
    assert limited["same_as_fp32"] > 0.5
    assert variants["naive"]["sentences"] == 8
    assert real["beams"]["3"]["agreement"]["score_difference"] < 1e-4
    assert "0.1" in next(line for line in result.stdout.splitlines() if line.startswith("ours, bf16, cand"))


def test_without_a_lexicon_there_are_no_candidates(bench, tmp_path, random_model_directory):
    model = random_model_directory(tmp_path / "made", ["a", "b"], ["c", "d"], lambda made: None)
    (tmp_path / "text").write_text("a b\n" * 3)
    result = bench(
        *("translate", "--size", "tiny", "--vocabulary", 90, "--hidden", 16, "--skip", "startup,speed"),
        *("--model", model, "--text", "text", "--real-beam", 2, "--threads", 1, "--variants", "ours-candidates"),
        *("--repeats", 1),
    )
    assert result.returncode == 0, result.stderr
    assert "no candidate words: give --lexicon FILE" in result.stdout


def test_a_process_that_ends_is_told_in_one_line(tmp_path):
    job = {"model": str(tmp_path / "nothing"), "text": "", "floor": (0, 0)}
    with (
        pytest.raises(NmtalignError, match=r"naive ended with 4: .*no nmtalign model here"),
        contestants(["naive"], job),
    ):
        pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "somewhere"], "give both or neither"),
        (["--reference", "somewhere"], "give --model and --text too"),
        (["--variants", "theirs"], "unknown variant 'theirs'"),
        (["--length", "1"], "at least 2"),
        (["--peers", "theirs"], "unknown toolkit 'theirs'"),
        (["--size", "gnmt"], "the plain decoder is RNNsearch"),
    ],
)
def test_a_wrong_option_is_one_line(bench, arguments, said):
    result = bench("translate", "--size", "tiny", *arguments)
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert said in line


FAKE = "import sys, time\nfor line in open(sys.argv[1]): time.sleep(0.002); print('a b')"


def fake_toolkit(tmp_path, monkeypatch, code=FAKE):
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "installed").touch()
    monkeypatch.setitem(COMMANDS, "fake", lambda folder, job, text, beam: [sys.executable, "-c", code, str(text)])
    monkeypatch.setattr(translate_peers, "LONGER", 0.3)
    train = [sys.executable, "-c", ""]
    return Recipe("fake", [], lambda folder: [], lambda folder, job: train, "", "Fake 1")


def run_toolkit(tmp_path, recipe):
    texts = random_texts(tmp_path, Size.of("tiny", 60, **SMALL), 5, pairs=400)
    job = Job(texts, tmp_path / "job", 4, 1, once=True)
    job.folder.mkdir()
    lines = texts.file("train", "src").read_text().splitlines()

    def measure(name, translate):
        return translate_peers._figures(lines, 50, [1, 3], tmp_path, name, translate)

    return translate_peers._run(recipe, tmp_path / "fake", job, measure)


def test_a_toolkit_is_given_lines_until_they_take_a_while(tmp_path, monkeypatch):
    found = run_toolkit(tmp_path, fake_toolkit(tmp_path, monkeypatch))["fake"]
    assert found["words"] == 2
    assert 0 < found["rates"][3] < 500
    table = translate_peers.peers_table({"nmtalign, fp32": {"rates": {1: 900.0, 3: 600.0}}, "fake": found})
    assert table.columns == ["", "beam 3", "ours fp32 is", "greedy", "ours fp32 is", "words out"]
    assert table.rows[1][0] == "Fake 1"
    assert table.rows[1][2].endswith(" x")


def test_a_toolkit_translates_in_all_its_ways(tmp_path, monkeypatch):
    recipe = fake_toolkit(tmp_path, monkeypatch, FAKE.replace("'a b'", "' '.join(['a', *sys.argv[2:]])"))
    monkeypatch.setitem(translate_peers.WAYS, "fake", {"": (), ", int8": ("packed", "8")})
    found = run_toolkit(tmp_path, recipe)
    assert {name: figures["words"] for name, figures in found.items()} == {"fake": 1, "fake, int8": 3}
    assert found["fake, int8"]["note"] == "Fake 1, int8"


def test_a_toolkit_that_cannot_train_is_not_timed(tmp_path, monkeypatch):
    recipe = fake_toolkit(tmp_path, monkeypatch)
    failing = dataclasses.replace(recipe, train_command=lambda folder, job: [sys.executable, "-c", "exit(3)"])
    [(name, figures)] = run_toolkit(tmp_path, failing).items()
    assert (name, list(figures)) == ("fake", ["failed"])


def test_a_toolkit_that_drops_lines_fails_alone(tmp_path, monkeypatch):
    recipe = fake_toolkit(tmp_path, monkeypatch, "print('a b')")
    found = run_toolkit(tmp_path, recipe)
    assert found == {"fake": {"note": "Fake 1", "failed": "fake: 50 lines in, 1 out"}}
    table = translate_peers.peers_table({"nmtalign, fp32": {"failed": "nmtalign: no"}, **found})
    assert table.note.splitlines() == ["nmtalign: no", "fake: 50 lines in, 1 out"]


@pytest.mark.parametrize("name", ["joeynmt", "opennmt", "marian"])
def test_a_toolkit_is_told_beam_and_length(name, tmp_path):
    texts = random_texts(tmp_path, Size.of("tiny", 60, **SMALL), 5, pairs=20)
    (tmp_path / "config.yaml").write_text('{"testing": {}}')
    command = COMMANDS[name](tmp_path, Job(texts, tmp_path, 3, 1), tmp_path / "text", 7)
    told = " ".join(command) + "".join(path.read_text() for path in tmp_path.glob("translate-7.yaml"))
    assert re.search(r"beam[-_]size\"?:? 7\b", told)
    assert re.search(r"min_length 4|main\(\)\n 4|max-length-factor 1", told)


def test_marians_model_is_kept_from_ending(tmp_path):
    job = Job(random_texts(tmp_path, Size.of("tiny", 60, **SMALL), 5, pairs=20), tmp_path, 3, 1)
    keep_open(job)  # the other toolkits save no such file
    np.savez(tmp_path / "model.npz", decoder_ff_logit_l2_b=np.zeros((1, 60), np.float32), other=np.ones(3, np.int8))
    keep_open(job)
    with np.load(tmp_path / "model.npz") as saved:
        assert saved["decoder_ff_logit_l2_b"].sum() == saved["decoder_ff_logit_l2_b"][0, 0] == -1e4
        assert saved["other"].tolist() == [1, 1, 1]


def test_start_up_is_set_beside_what_is_wanted():
    seconds = {"nmtalign translate --help": 0.25, "import torch": 1.3, "loading the model": 0.04}
    [table] = tables({"startup": {**seconds, 'echo "Hello ." | nmtalign translate, `small`': None}})
    assert [row[1:] for row in table.rows] == [["0.250", "0.30"], ["1.300", "-"], ["0.040", "0.05"], ["-", "3.00"]]
