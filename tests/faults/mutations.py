"""Files that are damaged or hostile: every reader gives a correct result or raises one of nmtalign's errors.

An attempt changes the bytes of one file and calls the reader of the library, in a process that handles many attempts
with limits of time and memory. A file with a checksum must give the same result as the original, or an error. "Forged"
files have a correct checksum after the change, as those of an attacker.
"""

import contextlib
import gzip
import hashlib
import json
import lzma
import resource
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import zstandard
from faults.campaign import Part
from faults.processes import needed

import nmtalign
from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import count_links, read_links
from nmtalign.alignment.linking import LinkRun
from nmtalign.core.model import TranslationModel
from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError
from nmtalign.hdf5 import seal
from nmtalign.model_directory import BLANK_DIGEST, DIGEST_PLACE, load_model, model_config, read_settings
from nmtalign.settings import command_settings
from nmtalign.settings.definition import load_workspace, resolve
from nmtalign.settings.presets import DEFAULT_PRESET, preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.text.lines import read_lines
from nmtalign.text.parallel import ParallelText
from nmtalign.text.tokenizer import Tokenizers, Vocabulary, read_entries
from nmtalign.training.checkpoints import find_checkpoint, load_state
from nmtalign.training.optimizers import make_optimizer
from nmtalign.translating.file_translation import Inputs
from nmtalign.translating.glossary import Glossary
from nmtalign.translating.rescoring import read_n_best, scored_line
from nmtalign.viewing.curves import panels, read_curves, render_curves

_MEMORY = 1 << 30  # bytes that a process may use in addition to those of its start
_LIMIT = 20.0  # seconds
# Parts of text on which readers might stumble.
_WORDS = b"""nan -inf 1e999 -1 0 0x7f 1e-400 -0.0 99999999 ] } " ' \\u0000 \\ud800 null true {} [] ||| </s> <unk> 0-0
1p1 999999999-1 ../ /dev/zero sha256 =""".split()
_BYTES = (b"\0", b"\n", b"\r\n", b"\t", b" ", b"", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe")
_MAGIC = (b"\x1b[2J", b"\xd9\xa3", b"\x1f\x8b", b"\x89HDF\r\n\x1a\n", b"PK\3\4", b"<!ENTITY a 'b'>", b"\xe2\x80\xa8")
_LONG = (b"9" * 30, b"9" * 5000, b"[" * 300, b"{" * 300, b'{"a":' * 300, b"a" * 10_000)
_VALUES = (None, True, -1, 2**31, 2**62, 10**400, float("inf"), float("nan"), "", "x", "../x", "\ud800", [], {}, [[]])
_TOKENS = (*_WORDS, *_BYTES, *_MAGIC, *_LONG)


def _nothing(folder):
    """Makes no file."""


@dataclass
class Format:
    """A kind of file: `read` gets the folder with the file `name`, and returns what must not change silently.

    `forge` repairs the checksum of a changed file. In place of a `checked` file, another complete file with a correct
    checksum may be read.
    """

    name: str
    file: str
    read: Callable[[Path], object]
    inputs: tuple[str, ...] = ()
    make: Callable[[Path], object] = _nothing  # makes the file, if it is none of the workspace
    checked: bool = False
    forge: Callable[[Path], object] | None = None
    _state: dict[str, Any] = field(default_factory=dict)

    def attempt(self, workspace, chance):
        """Changes the file and reads it."""
        if not self._state:
            self._begin(workspace)
        folder, path, data = self._state["folder"], self._state["path"], self._state["data"]
        changed = mutated(data, self._state["others"], chance)
        path.unlink(missing_ok=True)  # an earlier one may be mapped into memory
        path.write_bytes(changed)
        if self.forge is not None:
            with contextlib.suppress(Exception):
                self.forge(path)
        try:
            found = self.read(folder)
        except NmtalignError:
            return ""
        except BaseException as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if self.checked and changed not in (data, *self._state["others"]) and found != self._state["value"]:
            return "read without an error, and the result is another one"
        return ""

    def _begin(self, workspace):
        """Makes the files of this process; later allocations are limited."""
        folder = workspace.folder / f"mutated {self.name}"
        path, original = folder / self.file, folder / "original"
        if not folder.exists():
            folder.mkdir()
            for name in self.inputs:
                there = workspace.home / name
                shutil.copytree(there, folder / name) if there.is_dir() else shutil.copy(there, folder / name)
            self.make(folder)
            original.write_bytes(path.read_bytes())
        data = original.read_bytes()
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        others = [each.read_bytes() for each in sorted(workspace.home.rglob("*")) if each.is_file()]
        warnings.simplefilter("error")  # a warning would be lines of another program on stderr
        self._state.update(folder=folder, path=path, data=data, others=others, value=self.read(folder))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, resource.RLIM_INFINITY))


def mutated(data, others, chance):
    """Returns other bytes: one to four changes, or another file."""
    if chance.random() < 0.01:
        return chance.choice(others)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_MUTATORS)(data, others, chance)
    return data


def _place(data, chance):
    """A place in a file; half of the places are in its first KB, where headers are."""
    return chance.randint(0, min(len(data), 1024) if chance.random() < 0.5 else len(data))


def _flip(data, others, chance):
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if data else 0):
        changed[min(_place(data, chance), len(data) - 1)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data, others, chance):
    return data[: _place(data, chance)]


def _splice(data, others, chance):
    """Puts a part of this file or another one in place of a part."""
    other = chance.choice((data, chance.choice(others)))
    begin, size = _place(other, chance), chance.choice((1, 4, 8, 64, 1000))
    at = _place(data, chance)
    return data[:at] + other[begin : begin + size] + data[at + chance.choice((0, size)) :]


def _drop(data, others, chance):
    at = _place(data, chance)
    return data[:at] + data[at + chance.choice((1, 2, 8, 100)) :]


def _token(data, others, chance):
    at = _place(data, chance)
    return data[:at] + chance.choice(_TOKENS) + data[at + chance.choice((0, 1, 3)) :]


def _number(data, others, chance):
    """Overwrites 1 to 8 bytes by a number of extreme size, in little-endian order."""
    at, size = _place(data, chance), chance.choice((1, 2, 4, 8))
    value = chance.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), chance.randrange(2 ** (8 * size))))
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def _word(data, others, chance):
    """Replaces, repeats or exchanges the words of a line of text."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    words = lines[at].split(b" ")
    words[chance.randrange(len(words))] = chance.choice((*_TOKENS, chance.choice(words)))
    chance.shuffle(words) if chance.random() < 0.2 else None
    lines[at : at + 1] = [b" ".join(words)] * chance.choice((0, 1, 1, 1, 2))
    return b"\n".join(lines)


def _part(data, others, chance):
    """Removes, renames or replaces a part of JSON: of the whole file, or of the header of a file of tensors."""
    start = 8 if data[8:9] == b"{" else 0
    end = start + int.from_bytes(data[:8], "little") if start else len(data)
    try:
        value = json.loads(data[start:end])
    except (ValueError, RecursionError):
        return _token(data, others, chance)
    inside, key = [value], 0
    while isinstance(inside[key], dict | list) and inside[key] and chance.random() < 0.8:
        inside = inside[key]
        key = chance.choice([*inside] if isinstance(inside, dict) else range(len(inside)))
    kept = inside[key]
    inside[key] = chance.choice(_VALUES)
    if isinstance(inside, dict) and chance.random() < 0.6:
        del inside[key]
        inside |= {str(chance.choice(_VALUES)): kept} if chance.random() < 0.5 else {}
    text = json.dumps(value, separators=(",", ":")).encode()
    return (len(text).to_bytes(8, "little") if start else b"") + text + data[end:]


_MUTATORS = (_flip, _flip, _cut, _splice, _drop, _token, _token, _number, _word, _part)


def _digest(value):
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


def _tensors(model):
    hashed = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        hashed.update(name.encode() + tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _read_model(folder):
    loaded = load_model(folder / "model", "cpu")
    tokens = loaded.tokenizers.source.tokenize("The cat, sleeps.")
    return _tensors(loaded.model), loaded.ids(tokens, tokens), loaded.tokenizers.target.detokenize(tokens)


@cache
def _model(path):
    """The model of this process; a state replaces all its weights."""
    return TranslationModel(model_config(path, read_settings(path)))


def _read_state(folder):
    model, found = _model(folder / "model"), find_checkpoint(folder / "model")
    if found is None:
        return None
    load_state(found.path, model, make_optimizer(model.parameters(), TrainingConfig(optimizer="adamw")))
    position = found.position
    return vars(position), _tensors(model)


def _read_corpus(folder):
    corpus = Corpus.open(folder / "data")
    rows = [(name, split, i) for name, split in corpus.splits.items() for i in range(len(split))]
    pairs = [(name, *map(list, split.pair(i)), name != "train" and split.source.text(i)) for name, split, i in rows]
    return _digest((pairs, corpus.info()))


def _read_alignments(folder):
    with AlignmentFile(folder / "alignments.h5") as file:
        records = [(one.source, one.target, one.weights.tobytes(), one.links(), one.log_prob) for one in file]
        return _digest((records, list(file.links()), file.sentence(3), file.info()))


def _read_tokenizers(folder):
    both = Tokenizers.load(folder / "data")
    line = "The cat's \u201cwords\u201d, e.g. 3.5\u00a0% of it (all)."
    tokens = [side.tokenize(line) for side in (both.source, both.target)]
    return [(both.target.detokenize(one), both.target.word_starts(one), both.target.words(one)) for one in tokens]


def _read_links(folder):
    found = [read_links(folder / "test.align", role) for role in ("links", "gold")]
    return [count_links(pair.sure, pair) for file in found for pair in file.pairs]


def _read_n_best(folder):
    entries = read_n_best(folder / "nbest.txt", folder / "test.en")
    scores = SimpleNamespace(log_prob=-1.5, score=-2.5, token_log_probs=(-1.0,))
    return [(scored_line(fields, scores, rescore=True, word_scores=True), pair) for fields, pair in entries]


def _read_toml(folder):
    found = load_workspace(folder / "workspace.toml")
    sections = ("prep", "translate", "score", "align", "link")
    kinds = [getattr(command_settings, f"{name.capitalize()}Config") for name in sections]
    settings = [resolve(kind, found.section(name)) for kind, name in zip(kinds, sections, strict=True)]
    layers = ("preset", preset(found.section("train")[1].get("preset", DEFAULT_PRESET))), found.section("train")
    return settings, resolve(TrainingConfig, *layers), resolve(ModelConfig, *layers), found.pairs


def _read_jsonl(folder):
    found = list(Inputs((folder / "in.jsonl",), "json"))
    return json.dumps([one.extra for one in found]).encode(), [one.text.encode() for one in found], found


def _read_aligner(folder):
    pairs = [("The cat sleeps .", "Le chat dort ."), ("an old bank", "une vieille banque"), ("", "x")]
    return [(one.links(), one.weights.tobytes()) for one in nmtalign.align(folder / "aligner", pairs)]


def _read_link_run(folder):
    texts, config = (folder / "train.en", folder / "train.fr"), command_settings.LinkConfig()
    return LinkRun(*texts, folder / "aligner", config, print, print).links.name


def _read_curves(folder):
    curves = read_curves(folder / "model")
    return [panels([curves], axis) for axis in ("updates", "epochs", "hours")], render_curves([curves], "a", 80)


def _read_glossary(folder):
    both = [Glossary.read(folder / "terms.tsv", split) for split in (False, True)]
    return [one.targets("The European bank accepted the law") for one in both]


def _read_parallel(name, folder):
    return list(ParallelText(folder / name, None, ("en", "fr")))


def _forge_tensors(path):
    data = path.read_bytes()
    end = DIGEST_PLACE + len(BLANK_DIGEST)
    digest = hashlib.sha256(data[:DIGEST_PLACE] + BLANK_DIGEST + data[end:]).hexdigest().encode()
    path.write_bytes(data[:DIGEST_PLACE] + digest + data[end:])


def _make_pieces(folder):
    needed("prep -q train.en train.fr --vocabulary bpe --size 200 -o data", folder)


def _make_int8(folder):
    needed("export model -o slim --weights int8", folder)
    shutil.rmtree(folder / "model")
    (folder / "slim").rename(folder / "model")


def _make_state(folder):
    (folder / "model" / "training_state.previous.safetensors").unlink(missing_ok=True)


def _make_toml(folder):
    more = '[translate]\nbeam = 5\nlexicon = "lexicon.txt"\n[score]\nmetrics = "bleu"\n[align]\nlinks = "argmax"\n'
    text = (folder / "workspace.toml").read_text()
    tests = '[corpus.tests]\nnew = ["a.en", "a.fr"]\n'
    (folder / "workspace.toml").write_text(f"{text}[link]\nlearn_from = 30\n{more}{tests}")


def _made(name, row, head="", end=""):
    """Makes a file with a row for each pair of the test set."""

    def make(folder):
        sides = ((folder / f"test.{side}").read_text("utf-8").splitlines() for side in ("en", "fr"))
        rows = "".join(f"{row(number, *pair)}\n" for number, pair in enumerate(zip(*sides, strict=True)))
        (folder / name).write_text(f"{head}{rows}{end}", "utf-8")

    return make


def _json_row(number, source, target):
    return json.dumps({"text": source, "prefix": "Le", "phrases": ["chat", "é"], "id": number, "x": {"y": [1.5, None]}})


def _tmx_row(number, source, target):
    tuv = '<tuv xml:lang="{}"><seg>{} <bpt i="1">x</bpt></seg></tuv>'
    return f"<tu>{tuv.format('en', source)}{tuv.format('fr', target)}</tu>"


_TMX = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><body>\n'


def _packed(suffix, pack):
    def make(folder):
        (folder / f"a.{suffix}").write_bytes(pack((folder / "train.en").read_bytes()))

    return Format(f"text {suffix}", f"a.{suffix}", lambda f: list(read_lines(f / f"a.{suffix}")), ("train.en",), make)


def formats():
    """All formats."""
    model, data, pairs, texts = ("model",), ("data",), ("test.en", "test.fr"), ("train.en", "train.fr")
    state, hdf5, terms = "model/training_state.safetensors", "alignments.h5", "bank\tbanque\nthe law\tla loi\n\n"
    for name, file, read, inputs, make, forge in (
        ("weights", "model/best.safetensors", _read_model, model, _nothing, _forge_tensors),
        ("int8 weights", "model/best.safetensors", _read_model, model, _make_int8, _forge_tensors),
        ("training state", state, _read_state, model, _make_state, _forge_tensors),
        ("corpus", "data/corpus.h5", _read_corpus, data, _nothing, seal),
        ("alignments", hdf5, _read_alignments, (hdf5,), _nothing, seal),
        ("aligner", "aligner/aligner.safetensors", _read_aligner, (*texts, "aligner"), _nothing, _forge_tensors),
    ):
        yield Format(name, file, read, inputs, make, checked=True)
        yield Format(f"{name}, forged", file, read, inputs, make, forge=forge)
    yield Format("vocabulary of a model", "model/source.vocabulary.txt", _read_model, model, checked=True)
    yield Format("tokenizer.json of a model", "model/tokenizer.json", _read_model, model, checked=True)
    yield Format("sentencepiece of a corpus", "data/source.spm", _read_corpus, texts, _make_pieces, checked=True)
    yield Format("sentencepiece, forged", "data/source.spm", _read_tokenizers, texts, _make_pieces)
    yield Format("tokenizer.json, forged", "data/tokenizer.json", _read_tokenizers, data)
    words = "data/target.vocabulary.txt"
    yield Format("vocabulary, forged", words, lambda f: Vocabulary.load(f / words).encode(["a", "the"]), data)
    yield Format("config.json", "model/config.json", _read_model, model)
    yield Format("lexicon", "lexicon.txt", lambda f: list(read_entries(f / "lexicon.txt")), ("lexicon.txt",))
    yield Format("links and gold", "test.align", _read_links, ("test.align",))
    numbered = _made("test.align", lambda n, *_: f"{n + 1} 1 1 S\n{n + 1} 2 1 P")
    yield Format("numbered gold links", "test.align", _read_links, pairs, numbered)
    n_best = _made("nbest.txt", lambda n, s, t: f"{n} ||| {t} ||| LogProb= -3.21 Length= 7 ||| -3.21 ||| 0-0")
    yield Format("n-best list", "nbest.txt", _read_n_best, pairs, n_best)
    yield Format("nmtalign.toml", "workspace.toml", _read_toml, ("workspace.toml",), _make_toml)
    yield Format("JSON lines", "in.jsonl", _read_jsonl, pairs, _made("in.jsonl", _json_row))
    yield Format("link.json", "aligner/link.json", _read_link_run, (*texts, "aligner"))
    yield Format("train.jsonl", "model/train.jsonl", _read_curves, model)
    yield Format("glossary", "terms.tsv", _read_glossary, make=lambda f: (f / "terms.tsv").write_text(f"# a\n{terms}"))
    tmx = _made("a.tmx", _tmx_row, _TMX, "</body></tmx>\n")
    yield Format("TMX", "a.tmx", partial(_read_parallel, "a.tmx"), pairs, tmx)
    tsv = _made("a.tsv", lambda n, s, t: f"{n}\t{s}\t{t}", "id\ten\tfr\n")
    yield Format("TSV", "a.tsv", partial(_read_parallel, "a.tsv"), pairs, tsv)
    yield _packed("gz", gzip.compress)
    yield _packed("xz", lzma.compress)
    yield _packed("zst", zstandard.ZstdCompressor().compress)


def parts(workspace):
    """One part for each format."""
    for one in formats():
        yield Part(f"mutations: {one.name}", partial(one.attempt, workspace), 5000, quick=25, limit=_LIMIT)
