"""`bench translate` compares nmtalign's translator with the naive decoder and the floor on the same model and text.

A Transformer is compared with CTranslate2, and with nmtalign's recurrent model.

All sentences have one length, and so have their translations: all variants do the same work.
"""

import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from bench.cli import as_settings
from bench.floor import Floor
from bench.machine import describe_machine, in_words
from bench.naive_search import NaiveSearch
from bench.random_model import write_lexicon, write_model
from bench.report import Table, figure, percent, say, show, times
from bench.search_products import SearchShape, search_products_of
from bench.texts import PAIRS, random_texts
from bench.timing import spread, steady, take_turns
from bench.workload import SYSTEM_SIZES, Size
from nmtalign import export
from nmtalign.core.numerics import inference_precision, pick_device
from nmtalign.errors import ResourceError, UsageError
from nmtalign.model_directory import load_model
from nmtalign.translating.translator import Translator, default_words

SENTENCES = {"paper": 128, "small": 256, "tiny": 16, "transformer-tiny": 256}
WORDS = {"paper": 30000, "small": 30000, "tiny": 2000, "transformer-tiny": 8000}  # vocabulary size per side
NAIVE_LINES = 4  # lines that the naive decoder translates in each round
NAIVE_BATCH = 16
OURS = {"ours-fp32": "fp32", "ours-bf16": "bf16", "ours-int8": "int8", "ours-candidates": "bf16"}
TITLES = {
    "released": "as the released code: one sentence at a time, keys at each step",
    "naive": "naive: one sentence at a time, keys once",
    "naive-batch": f"naive, {NAIVE_BATCH} sentences per batch",
    "ours-fp32": "ours, fp32",
    "ours-bf16": "ours, bf16",
    "ours-int8": "ours, int8",
    "ours-candidates": "ours, bf16, candidate words",
}
# Of a Transformer: CTranslate2 decodes the same weights. The recurrent model has the same vocabulary.
TRANSFORMER_TITLES = {
    "ours-fp32": "ours, fp32",
    "ours-int8": "ours, int8",
    "ctranslate2-fp32": "CTranslate2, fp32",
    "ctranslate2-int8": "CTranslate2, int8",
    "small-int8": "RNN `small`, ours, int8",
}
CTRANSLATE2_BATCH = 32  # sentences; each thread decodes a batch
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


def run(given):
    """Runs the subcommand with its options by name, prints tables, and returns the results."""
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    names = _check(given)
    words = given["vocabulary"] or WORDS[given["size"]]
    size = Size.of(given["size"], words, **as_settings(given["set"]), initialisation="xavier")
    sentences = given["sentences"] or SENTENCES[given["size"]]
    results = {"benchmark": "translate", "machine": describe_machine(), "beams": {}}
    say(in_words(results["machine"]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = random_texts(folder, size, given["length"], max(PAIRS, sentences))
        model = write_model(folder / "random", texts)
        given |= {"folder": folder, "texts": texts}
        frequent = min(given["candidates"], words // 4)
        write_lexicon(folder / "lexicon", texts, frequent)
        given |= {"frequent": frequent, "sentences": sentences, "lexicon": folder / "lexicon"}
        lines = texts.file("train", "src").read_text(encoding="utf-8").splitlines()[:sentences]
        for beam in given["beam"]:
            say(f"beam {beam}")
            results["beams"][beam] = compare(given, names, model, lines, beam)
    title = f"Translating `{given['size']}`, {words:,} words, {sentences} random sentences, {given['length']} words"
    show([_table(f"{title}, beam {beam}", found, _titles(given)) for beam, found in results["beams"].items()])
    return results


def _check(given):
    """The names of the variants; raises UsageError for a wrong option before anything is measured."""
    titles = _titles(given)
    if given["size"] in SYSTEM_SIZES and titles is TITLES:
        raise UsageError(
            f"--size {given['size']}: the plain decoder is RNNsearch; choose paper, small or tiny, or transformer-tiny "
            "beside CTranslate2"
        )
    if given["length"] < 2:
        raise UsageError(f"--length {given['length']}: give at least 2, because `</s>` is counted")
    names = [name.strip() for name in (given["variants"] or ",".join(titles)).split(",")]
    for name in names:
        if name not in titles:
            raise UsageError(f"--variants: unknown variant '{name}'; choose from {', '.join(titles)}")
    try:
        inference_precision("int8", pick_device(given["device"]))
    except ResourceError as error:
        say(str(error))
        names = [name for name in names if name not in ("ours-int8", "small-int8")]
    return names


def _titles(given):
    """The variants of a size, and their titles."""
    return TRANSFORMER_TITLES if given["size"].startswith("transformer") else TITLES


def compare(given, names, model, lines, beam):
    """Times the variants and the floors in turns: {"variants": {name: figures}, "agreement": ...}."""
    found = {}
    variants = {name: _variant(given, name, model, lines, beam) for name in names}

    def translate(name):
        found[name] = variants[name]()

    tasks = {name: partial(translate, name) for name in names}
    floors = {}
    if given["device"] == "cpu":
        for name in names:
            if name in OURS and _titles(given) is TITLES:
                tasks[f"floor of {name}"], floors[name] = _floor(given, name, model, beam)
    seconds = take_turns(tasks, given["repeats"])
    figures = {}
    for name in names:
        rate = len(found[name]) / statistics.median(seconds[name])
        figures[name] = {
            "sentences_per_second": rate,
            "words_per_second": rate * sum(words for _, _, words in found[name]) / len(found[name]),
            "spread": spread(seconds[name]),
            "of_floor": floors[name]() * rate if name in floors else None,
        }
    for slow in {"released", "naive"} & set(figures):
        for each in figures.values():
            ratio = each["sentences_per_second"] / figures[slow]["sentences_per_second"]
            each[f"times_{slow}"] = steady(ratio, each["spread"], figures[slow]["spread"])
    return {"variants": figures, "agreement": _agreement(found)}


def _variant(given, name, model, lines, beam):
    if name.startswith("ctranslate2"):
        return _ctranslate2(given, name.partition("-")[2], model, lines, beam)
    if name == "small-int8":
        texts = replace(given["texts"], size=Size.of("small", given["texts"].size.model.target_vocabulary_size))
        if not (given["folder"] / "small").exists():
            write_model(given["folder"] / "small", texts)
        name, model = "ours-int8", given["folder"] / "small" / "model"
    if name in OURS:
        settings = {"precision": OURS[name], "threads": given["threads"], "device": given["device"], "tokenized": True}
        settings |= {"length_penalty": 1.0, "min_length_ratio": 1.0, "max_length_ratio": 1.0, "beam": beam}
        if name == "ours-candidates":
            settings |= {"lexicon": str(given["lexicon"]), "candidates": given["frequent"]}
        translator = Translator.load(model, alignments=False, **settings)
        return lambda: [(one.text, one.score, len(one.tokens) + 1) for one in translator.translate(lines)]
    loaded = load_model(model, device=given["device"], precision="fp32")
    search = NaiveSearch(loaded.model, beam, 1.0, 1.0, recompute_keys=name == "released")
    batch = NAIVE_BATCH if name == "naive-batch" else 1
    ids = [loaded.source_vocabulary.encode(line.split()) for line in lines[: max(batch, NAIVE_LINES)]]

    def translate():
        best = search.translate(ids, batch)
        words = loaded.target_vocabulary
        return [(" ".join(words.decode(one.tokens)), one.score, len(one.tokens) + 1) for one in best]

    return translate


def _ctranslate2(given, precision, model, lines, beam):
    """CTranslate2 with the same weights, and translations of the same length."""
    folder = model.with_name("ctranslate2")
    export(model, folder, format="ctranslate2")
    import ctranslate2

    kind = {"fp32": "float32", "int8": "int8"}[precision]
    threads = {"inter_threads": given["threads"], "intra_threads": 1}
    translator = ctranslate2.Translator(str(folder), given["device"], compute_type=kind, **threads)
    lengths = {"min_decoding_length": given["length"], "max_decoding_length": given["length"]}
    options = {"beam_size": beam, "length_penalty": 1, "disable_unk": True, "return_scores": True, **lengths}
    sentences = [line.split() for line in lines]

    def translate():
        found = translator.translate_batch(sentences, max_batch_size=CTRANSLATE2_BATCH, **options)
        best = [(one.hypotheses[0], one.scores[0]) for one in found]
        return [(" ".join(words), score, len(words)) for words, score in best]

    return translate


def _floor(given, name, model, beam):
    """A task that times the matrix products of a batch on all threads, and its seconds per sentence."""
    config, length = load_model(model, device="cpu").model.config, given["length"]
    threads = given["threads"]
    together = max(1, min(default_words(beam, torch.device("cpu")) // length, -(-given["sentences"] // threads)))
    scored = 2 * given["frequent"] if name == "ours-candidates" else config.target_vocabulary_size
    products = search_products_of(config, SearchShape(together, length, beam, length, scored))
    floors = [Floor([products], _DTYPES[OURS[name]]) for _ in range(threads)]

    def measure():
        torch.set_num_threads(1)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(Floor.measure, floors))
        torch.set_num_threads(threads)

    return measure, lambda: statistics.mean(floor.seconds for floor in floors) / (threads * together)


def _agreement(found):
    """Compares our fp32 variant with the naive decoder on the lines that both translated; None if one is missing.

    Scores differ by rounding; texts may differ if two hypotheses have nearly equal scores.
    """
    if not {"naive", "ours-fp32"} <= set(found):
        return None
    pairs = list(zip(found["ours-fp32"], found["naive"], strict=False))
    same = sum(ours[0] == theirs[0] for ours, theirs in pairs)
    difference = max(abs(ours[1] - theirs[1]) for ours, theirs in pairs)
    return {"sentences": len(pairs), "same_text": same, "score_difference": difference}


def _table(title, found, titles):
    table = Table(title, ["", "x released", "x naive", "sentences/s", "words/s", "spread", "of floor"])
    for name, figures in found["variants"].items():
        cells = [times(figures.get("times_released")), times(figures.get("times_naive"))]
        cells += [figure(figures["sentences_per_second"], 1), figure(figures["words_per_second"])]
        table.rows.append([titles[name], *cells, percent(figures["spread"]), percent(figures["of_floor"])])
    if agreement := found["agreement"]:
        table.note = (
            f"ours in fp32 and naive: {agreement['same_text']} of {agreement['sentences']} texts are equal, scores "
            f"differ by at most {agreement['score_difference']:.1e}"
        )
    return table
