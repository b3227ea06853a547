"""The Python interface: from two texts to a model, its scores and its alignments."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from helpers.parallel_texts import write_pairs

import nmtalign
from nmtalign.translating.unknown_words import read_lexicon

PAIRS = [("the fox runs", "le renard court"), ("a dog sleeps", "un chien dort")] * 10
TINY = {"hidden": 8, "embedding": 4, "attention_hidden": 4, "maxout": 4, "device": "cpu", "threads": 1, "seed": 1}


def test_from_two_texts_to_scores(tmp_path) -> None:
    pair = source, target = write_pairs(tmp_path, "train", PAIRS)
    data, model = tmp_path / "data", tmp_path / "model"
    summary = nmtalign.prepare(*pair, data, languages=("en", "fr"), dev=pair, shortlist="9", workers=1)
    assert (summary.splits["train"].kept, summary.source_vocabulary_size) == (20, 8)
    events: list = []
    budget = {"max_updates": 3, "epochs": 0, "bleu_sentences": 0, "metric": "loss"}
    finished = nmtalign.train(data, model, preset="tiny", listen=events.append, **budget, **TINY)
    assert (finished.update, finished.complete, events[-1]) == (3, True, finished)
    translator = nmtalign.Translator.load(model, beam=2, threads=1)
    (translation,) = translator.translate(["the fox"])
    (scored,) = nmtalign.score_pairs(translator, [("the fox", "le renard")])
    assert isinstance(translation, nmtalign.Translation)
    assert {translation: 1}[next(translator.translate([nmtalign.Request("the fox")]))]
    assert math.isclose(scored.log_prob, sum(scored.token_log_probs), rel_tol=1e-5)
    assert nmtalign.describe(model).keys() != nmtalign.describe(data).keys()
    records = list(nmtalign.align(model, [("the fox", "le renard"), ("", "")], reading="posterior"))
    assert [record.weights.shape for record in records] == [(3, 3), (1, 1)]
    with pytest.raises(nmtalign.UsageError, match=r"pair 1: 'a line' is not a pair of lines"):
        list(nmtalign.align(model, ["a line"]))
    (gold := tmp_path / "gold").write_text("0-0 1-1 2-2\n" * 20)
    done = nmtalign.align_files(model, *pair, tmp_path / "a.h5", links="threshold", threshold=0.1)
    with nmtalign.AlignmentFile(tmp_path / "a.h5") as alignments:
        assert (done.pairs, len(alignments)) == (20, 20)
        for record in alignments:
            weights = enumerate(record.weights[:-1, :-1].tolist())
            expected = [(i, j) for j, row in weights for i, weight in enumerate(row) if weight >= 0.1]
            assert list(record.hard_links) == record.links("threshold", 0.1) == expected
            assert record.links("argmax") != expected
    compared = nmtalign.aer([("a", tmp_path / "a.h5")], gold, source=source, target=target)
    (system,) = compared.systems
    assert "GoldLinks" not in repr(compared)  # a notebook prints it
    assert (system.figures.links, system.name) == (done.links, "a")
    assert nmtalign.symmetrize([(0, 0), (1, 1)], [(0, 0), (1, 2)], "intersection") == [(0, 0)]
    links = nmtalign.link(*pair, tmp_path / "aligner", threads=1)
    assert nmtalign.symmetrize_files(links, links, tmp_path / "both", backward_order="source-target").pairs == 20
    assert read_lexicon(tmp_path / "aligner")["fox"] == "renard"
    same = ["le renard court vite"]
    assert math.isclose(nmtalign.score(same, same, metrics="bleu").value("BLEU"), 100)
    for call, message in (
        (lambda: nmtalign.train(data, model, hiden=3), "nmtalign.train: unknown setting 'hiden'"),
        (lambda: nmtalign.aer([], gold, links_base=2), "nmtalign.aer: links_base = 2: must be at most 1"),
        (lambda: nmtalign.aer([], gold, format="all"), 'nmtalign.aer: format = "all": must be one of text, json, csv'),
        (lambda: nmtalign.train(data, model, layers=0), "nmtalign.train: layers = 0: must be at least 1"),
        (lambda: nmtalign.prepare(*pair, data, languages=(), shortlist="2"), 'nmtalign.prepare: shortlist = "2": give'),
    ):
        with pytest.raises(nmtalign.UsageError, match=message):
            call()
    with pytest.raises(nmtalign.FormatError, match="no such file or folder"):
        nmtalign.describe(tmp_path / "absent")
    half = nmtalign.Request("the \udc80 fox", phrases=("le \ud800",))  # as text of files that are not UTF-8
    assert next(translator.translate([half])).source == "the \ufffd fox"
    alignments, out, replaces = tmp_path / "a.h5", tmp_path / "out", "is also an input"
    for call, message in (
        (lambda: nmtalign.translate_files(model, source, source), replaces),
        (lambda: nmtalign.translate_files(model, source, target, target=target), replaces),
        (lambda: nmtalign.align_files(model, *pair, target), replaces),
        (lambda: nmtalign.symmetrize_files(links, links, links), replaces),
        (lambda: nmtalign.align_files(model, *pair, resume=True), "--resume continues a file of alignments"),
        (lambda: nmtalign.export(alignments, out, average=model, force=True), "leave out --average and --force"),
        (lambda: nmtalign.translate_files([], source, out), "an empty list"),
        (lambda: nmtalign.translate_files(model, source, out, target=target, resume=True), "leave out --resume"),
        (lambda: nmtalign.translate_files(model, source, out, rescore=True), "give --n-best-list"),
        (lambda: nmtalign.align([], [("the fox", "le renard")]), "an empty list"),
        (lambda: nmtalign.Translator([]), "Translator.load takes their folders"),
        (lambda: nmtalign.Translator(str(model)), "Translator.load takes their folders"),
        (lambda: translator.translate(["<p>the</p>"], markup="html"), "translate_files takes documents"),
        (lambda: translator.translate(["the"], device="cpu"), "device is chosen when a model is loaded"),
        (lambda: nmtalign.view([]), "there is nothing to draw"),
        (lambda: nmtalign.export(alignments, out, format="xml"), "format = 'xml': give pharaoh, json"),
        (lambda: nmtalign.export(model, out, format="json"), "has no format 'json': give ctranslate2"),
        (lambda: nmtalign.symmetrize_files(links, links, out, backward_order="x"), "one of target-source, source-"),
    ):
        with pytest.raises(nmtalign.UsageError, match=message):
            call()
    assert (source.read_text()[:12], out.exists()) == ("the fox runs", False)
    nmtalign.prepare(*pair, tmp_path / "other", languages=("en", "fr"), dev=[*pair], shortlist="9", workers=1)


# Prints what a process has of the settings that the library must not change: after the imports, and after each step.
STATES = """if True:
    import ctypes, hashlib, json, os, random, signal, sys, warnings
    import h5py, matplotlib, numpy, sacrebleu, sympy, torch  # their own changes are theirs
    from pathlib import Path
    libc, mkl = ctypes.CDLL(None), ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]

    def is_mapped():
        # glibc's default maps an array of 60 MB, which lies beside the heap and not in it.
        large, mapped = libc.malloc(60_000_000), False
        for line in open("/proc/self/maps"):
            first, last = (int(each, 16) for each in line.split()[0].split("-"))
            if first <= large < last:
                mapped = large - first < 100 and "heap" not in line
        libc.free(large)
        return mapped

    def states():
        mode = [getattr(mkl, name)(-1) for name in ("MKL_CBWR_Get", "mkl_serv_cbwr_get") if hasattr(mkl, name)]
        found = {
            "torch": torch.get_rng_state().tolist(), "numpy": numpy.random.get_state(), "python": random.getstate(),
            "threads": torch.get_num_threads(), "dtype": torch.get_default_dtype(), "mkl": mode,
            "malloc": is_mapped(), "environment": dict(os.environ), "warnings": warnings.filters,
            "signals": [signal.getsignal(number) for number in signal.valid_signals()],
            "matmul": torch.get_float32_matmul_precision(), "gradients": torch.is_grad_enabled(),
            "tf32": torch.backends.cuda.matmul.allow_tf32, "limit": sys.getrecursionlimit(), "folder": os.getcwd(),
            "deterministic": torch.are_deterministic_algorithms_enabled(), "interop": torch.get_num_interop_threads(),
            "style": sorted(map(str, matplotlib.rcParams.items())), "errors": numpy.geterr(),
        }
        return {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in found.items()}

    def changed(name):
        seen.append([name, [key for key, value in states().items() if value != before[key]]])

    torch.set_num_threads(3)
    torch.manual_seed(99)
    random.seed(9)
    before, seen = states(), []
    import nmtalign, nmtalign.core, nmtalign.training.trainer
    changed("import")
    pair, tiny = ("a.en", "a.fr"), dict(hidden=8, embedding=4, attention_hidden=4, maxout=4, device="cpu", dropout=0.1)
    nmtalign.prepare(*pair, "data", languages=("en", "fr"), dev=pair, shortlist="9", workers=1)
    changed("prepare")
    budget = dict(max_updates=3, epochs=0, bleu_sentences=2, checkpoint_every="1", threads=1)
    nmtalign.train("data", "model", preset="tiny", **budget, **tiny)
    changed("train")
    try:
        nmtalign.train("data", "other", preset="tiny", learning_rate=1e38, clip_norm=0, optimizer="adam", warmup=0,
            max_updates=20, threads=1, **tiny)
    except nmtalign.TrainingError:
        changed("train that fails")
    translator = nmtalign.Translator.load("model", beam=2, threads=1)
    lines = ["the fox", "a dog sleeps"] * 9
    changed("load")
    list(translator.translate(lines))
    list(nmtalign.Translator.load("model", batch_size=2, threads=2).translate(lines))
    for _ in translator.translate(lines):
        break
    changed("translate")
    list(translator.translate(lines, sample=True))
    changed("sample")
    list(nmtalign.score_pairs(translator, [("the fox", "le renard")] * 9))
    changed("score_pairs")
    for record in nmtalign.align("model", [("the fox", "le renard")] * 3, threads=1):
        changed("align")
    nmtalign.link(*pair, "aligner", threads=1)
    list(nmtalign.align("aligner", [("the fox", "le renard")]))
    changed("link")
    nmtalign.align_files("model", *pair, "a.h5", threads=1)
    nmtalign.translate_files("model", pair[0], "translated.fr", threads=1)
    changed("translate_files")
    nmtalign.score(lines, lines, metrics="bleu,chrf")
    nmtalign.export("model", "small", weights="int8")
    nmtalign.link(*pair, threads=1)
    nmtalign.describe("model")
    changed("others")
    print(json.dumps(seen))
"""


def test_the_modes_of_pytorch_that_the_caller_has_chosen_change_nothing(tmp_path) -> None:
    """A notebook may work in inference mode, without gradients, with autocast, on another device, or in float64."""
    source, _ = write_pairs(tmp_path, "a", PAIRS)
    nmtalign.prepare(source, source, tmp_path / "data", languages=("en", "fr"), dev=(source, source), workers=1)

    def results(name) -> tuple:
        model = tmp_path / name
        finished = nmtalign.train(tmp_path / "data", model, preset="tiny", max_updates=3, bleu_sentences=0, **TINY)
        (translation,) = nmtalign.Translator.load(model, device="cpu").translate(["the fox"])
        (pair,) = nmtalign.align(model, [("the fox", "a dog")], reading="posterior", device="cpu")
        return finished.best_loss, translation.score, pair.log_prob, pair.weights.tolist()

    usual = results("usual")
    modes = torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta")
    for number, mode in enumerate(modes):
        with mode:
            assert results(str(number)) == usual
    try:
        torch.set_default_dtype(torch.float64)
        assert results("float64") == usual
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and settings of glibc")
def test_the_library_leaves_the_process_as_it_is(tmp_path) -> None:
    write_pairs(tmp_path, "a", PAIRS)
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    call = [sys.executable, "-c", STATES]
    result = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    steps = json.loads(result.stdout)
    assert [name for name, _ in steps[:3]] == ["import", "prepare", "train"]
    assert not [(name, changed) for name, changed in steps if changed]


FORKED = """if True:
    import multiprocessing, sys
    import nmtalign, torch

    def use(precision):
        options = {"threads": 1, "device": "cpu", "precision": precision}
        translator = nmtalign.Translator.load("model", **options)
        found = [t.text for t in translator.translate(["the fox"], beam=2)]
        return found, [record.links() for record in nmtalign.align("model", [("the fox", "le renard")], **options)]

    torch.set_num_threads(2)
    data, pair = "data", ("a.en", "a.fr")
    nmtalign.prepare(*pair, data, languages=("en", "fr"), dev=pair, workers=1)
    sizes = {"hidden": 128, "attention_hidden": 128, "maxout": 64, "embedding": 8}
    nmtalign.train(data, "model", preset="tiny", max_updates=1, bleu_sentences=0, threads=1, device="cpu", **sizes)
    for precision in ("fp32", "bf16", "int8"):
        used = use(precision)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(use, [precision]).get() == used
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_a_forked_process_works_after_the_use_of_one_thread(tmp_path) -> None:
    write_pairs(tmp_path, "a", PAIRS)
    result = subprocess.run([sys.executable, "-c", FORKED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
