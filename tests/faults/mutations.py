"""Files that are damaged or hostile: every reader gives a correct result or raises one of nmtalign's errors.

An attempt changes the bytes of one file and calls the reader of the library, in a process that handles many attempts
with limits of time and memory. A file with a checksum must give the same result as the original, or an error. "Forged"
files have a correct checksum after the change, as those of an attacker.
"""

import contextlib
import gzip
import hashlib
import lzma
import random
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.campaign import Part
from faults.processes import Workspace, needed

from nmtalign.errors import NmtalignError

_MEMORY = 1 << 30  # bytes that a process may use in addition to those of its start
_LIMIT = 20.0  # seconds
# Parts of text on which readers might stumble.
_TOKENS = (
    *(
        b"\0",
        b"\n",
        b"\r\n",
        b"\t",
        b" ",
        b"",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\x1b[2J",
    ),
    *(
        b"nan",
        b"-inf",
        b"1e999",
        b"-1",
        b"0",
        b"9" * 30,
        b"9" * 5000,
        b"0x7f",
        b"1e-400",
        b"-0.0",
        b"99999999",
        b"\xd9\xa3",
    ),
    *(
        b"[" * 300,
        b"{" * 300,
        b'{"a":' * 300,
        b"]",
        b"}",
        b'"',
        b"'",
        b"\\u0000",
        b"\\ud800",
        b"null",
        b"true",
        b"{}",
        b"[]",
    ),
    *(
        b"|||",
        b"</s>",
        b"<unk>",
        b"<!ENTITY a 'b'>",
        b"0-0",
        b"1p1",
        b"999999999-1",
        b"../",
        b"/dev/zero",
        b"sha256",
        b"=",
    ),
    *("\u2028\u202e\u200b\u0301".encode(), b"a" * 10_000, b"\x1f\x8b", b"\x89HDF\r\n\x1a\n", b"PK\3\4"),
)


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
    checked: bool = False
    forge: Callable[[Path], object] | None = None
    full: int = 5000
    make: Callable[[Path], object] = lambda folder: None  # makes the file, if it is none of the workspace
    _state: dict[str, Any] = field(default_factory=dict)

    def attempt(self, workspace: Workspace, chance: random.Random) -> str:
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

    def prepare(self, workspace: Workspace, folder: Path) -> None:
        """Makes a folder with the file, a copy named "original", and what is read with it."""
        folder.mkdir()
        for name in self.inputs:
            path = workspace.home / name
            shutil.copytree(path, folder / name) if path.is_dir() else shutil.copy(path, folder / name)
        self.make(folder)
        (folder / "original").write_bytes((folder / self.file).read_bytes())

    def _begin(self, workspace: Workspace) -> None:
        """Makes the files of this process; later allocations are limited."""
        folder = workspace.folder / f"mutated {self.name}"
        if not folder.exists():
            self.prepare(workspace, folder)
        path, data = folder / self.file, (folder / "original").read_bytes()
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        others = [each.read_bytes() for each in sorted(workspace.home.rglob("*")) if each.is_file()]
        warnings.simplefilter("error")  # a warning would be lines of another program on stderr
        self._state.update(folder=folder, path=path, data=data, others=others, value=self.read(folder))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, resource.RLIM_INFINITY))


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Returns other bytes: one to four changes, or another file."""
    if chance.random() < 0.01:
        return chance.choice(others)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_MUTATORS)(data, others, chance)
    return data


def _place(data: bytes, chance: random.Random) -> int:
    """A place in a file; half of the places are in its first KB, where headers are."""
    return chance.randint(0, min(len(data), 1024) if chance.random() < 0.5 else len(data))


def _flip(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if data else 0):
        changed[min(_place(data, chance), len(data) - 1)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return data[: _place(data, chance)]


def _splice(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Puts a part of this file or another one in place of a part."""
    other = chance.choice((data, chance.choice(others)))
    begin, size = _place(other, chance), chance.choice((1, 4, 8, 64, 1000))
    at = _place(data, chance)
    return data[:at] + other[begin : begin + size] + data[at + chance.choice((0, size)) :]


def _drop(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at + chance.choice((1, 2, 8, 100)) :]


def _token(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + chance.choice(_TOKENS) + data[at + chance.choice((0, 1, 3)) :]


def _number(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Overwrites 1 to 8 bytes by a number of extreme size, in little-endian order."""
    at, size = _place(data, chance), chance.choice((1, 2, 4, 8))
    value = chance.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), chance.randrange(2 ** (8 * size))))
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def _word(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Replaces, repeats or exchanges the words of a line of text."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    words = lines[at].split(b" ")
    words[chance.randrange(len(words))] = chance.choice((*_TOKENS, chance.choice(words)))
    chance.shuffle(words) if chance.random() < 0.2 else None
    lines[at : at + 1] = [b" ".join(words)] * chance.choice((0, 1, 1, 1, 2))
    return b"\n".join(lines)


_MUTATORS = (_flip, _flip, _cut, _splice, _drop, _token, _token, _number, _word)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


def _tensors(model: Any) -> str:
    import torch

    hashed = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        hashed.update(name.encode() + tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _read_model(folder: Path) -> object:
    from nmtalign.model_directory import load_model

    loaded = load_model(folder / "model", "cpu")
    tokens = loaded.tokenizers.source.tokenize("The cat, sleeps.")
    return _tensors(loaded.model), loaded.ids(tokens, tokens), loaded.tokenizers.target.detokenize(tokens)


_models: list[Any] = []  # of this process; a state replaces all its weights


def _read_state(folder: Path) -> object:

    from nmtalign.core.model import TranslationModel
    from nmtalign.model_directory import model_config, read_settings
    from nmtalign.settings.training_settings import TrainingConfig
    from nmtalign.training.checkpoints import find_checkpoint, load_state
    from nmtalign.training.optimizers import make_optimizer

    path = folder / "model"
    if not _models:
        _models.append(TranslationModel(model_config(path, read_settings(path))))
    model = _models[0]
    found = find_checkpoint(path, None)
    if found is None:
        return None
    position = load_state(found, model, make_optimizer(model.parameters(), TrainingConfig(optimizer="adamw")))
    return vars(position), _tensors(model)


def _read_corpus(folder: Path) -> object:
    from nmtalign.data.corpus import Corpus

    corpus = Corpus.open(folder / "data")
    pairs = [
        (name, source.tolist(), target.tolist(), split.source_text(i) if name != "train" else "")
        for name, split in corpus.splits.items()
        for i, (source, target) in ((i, split.pair(i)) for i in range(len(split)))
    ]
    return _digest((pairs, corpus.info()))


def _read_alignments(folder: Path) -> object:
    from nmtalign.alignment.alignment_file import AlignmentFile

    with AlignmentFile(folder / "alignments.h5") as file:
        records = [(one.source, one.target, one.weights.tobytes(), one.links(), one.log_prob) for one in file]
        return _digest((records, list(file.links()), file.sentence(3), file.info()))


def _read_vocabulary(folder: Path) -> object:
    from nmtalign.text.vocabulary import Vocabulary

    return Vocabulary.load(folder / "words.txt").encode(["a", "the"])


def _read_tokenizers(folder: Path) -> object:
    from nmtalign.text.tokenizer import Tokenizers

    both = Tokenizers.load(folder / "data")
    tokens = [
        side.tokenize("The cat's \u201cwords\u201d, e.g. 3.5\u00a0% of it (all).")
        for side in (both.source, both.target)
    ]
    return [(both.target.detokenize(one), both.target.word_index(one), both.target.words(one)) for one in tokens]


def _make_pieces(folder: Path) -> None:
    needed("prep -q train.en train.fr --vocabulary bpe --size 200 -o data", folder)


def _read_lexicon(folder: Path) -> object:
    from nmtalign.text.vocabulary import read_entries

    return list(read_entries(folder / "lexicon.txt"))


def _read_links(folder: Path) -> object:
    from nmtalign.alignment.link_files import count_links, read_links

    found = [read_links(folder / "test.align", role) for role in ("links", "gold")]
    return [count_links(pair.sure, pair) for file in found for pair in file.pairs]


def _make_numbered(folder: Path) -> None:
    lines = [line.split() for line in (folder / "test.align").read_text().splitlines()]
    rows = [
        f"{n} {int(i) + 1} {int(j) + 1} S"
        for n, line in enumerate(lines, 1)
        for i, _, j in (x.partition("-") for x in line)
        if j
    ]
    (folder / "test.align").write_text("\n".join(rows) + "\n")


def _make_n_best(folder: Path) -> None:
    lines = (folder / "test.fr").read_text("utf-8").splitlines()
    rows = [f"{n} ||| {line} ||| LogProb= -3.21 Length= 7 ||| -3.21 ||| 0-0" for n, line in enumerate(lines)]
    (folder / "nbest.txt").write_text("\n".join(rows) + "\n", "utf-8")


def _read_n_best(folder: Path) -> object:
    from nmtalign.translating.rescoring import read_n_best

    entries = read_n_best(folder / "nbest.txt", folder / "test.en")
    return [str(line.with_feature("nmtalign", [1.5]).with_score(2.5)) for line, _ in entries]


def _make_toml(folder: Path) -> None:
    more = '[translate]\nbeam = 5\nlexicon = "lexicon.txt"\n[score]\nmetrics = "bleu"\n[align]\nlinks = "argmax"\n'
    text = (folder / "workspace.toml").read_text()
    (folder / "workspace.toml").write_text(
        f'{text}[link]\nquick = true\n{more}[corpus.tests]\nnew = ["a.en", "a.fr"]\n'
    )


def _read_toml(folder: Path) -> object:
    from nmtalign.settings.command_settings import (
        AlignConfig,
        LinkConfig,
        PrepConfig,
        ScoreConfig,
        TranslateConfig,
    )
    from nmtalign.settings.presets import preset
    from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
    from nmtalign.settings.workspace import load_workspace

    found = load_workspace(folder / "workspace.toml")
    sections: Mapping[str, type] = {
        "prep": PrepConfig,
        "translate": TranslateConfig,
        "score": ScoreConfig,
        "align": AlignConfig,
        "link": LinkConfig,
    }
    settings = [found.resolve(kind, name, {}) for name, kind in sections.items()]
    from nmtalign.settings.presets import settings_of

    layers = ("preset", preset(found.preset(None))), found.section("train")
    return settings, settings_of(TrainingConfig, *layers), settings_of(ModelConfig, *layers), found.file_pairs


def _make_jsonl(folder: Path) -> None:
    import json

    lines = (folder / "test.en").read_text("utf-8").splitlines()
    objects = (
        {"text": line, "prefix": "Le", "phrases": ["chat", "é"], "id": n, "x": {"y": [1.5, None]}}
        for n, line in enumerate(lines)
    )
    (folder / "in.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in objects))


def _read_jsonl(folder: Path) -> object:
    import json

    from nmtalign.translating.file_translation import Inputs

    found = list(Inputs((folder / "in.jsonl",), "json"))
    return json.dumps([one.extra for one in found]).encode(), [one.text.encode() for one in found], found


def _packed(name: str, pack: Callable[[bytes], bytes]) -> Format:
    def make(folder: Path) -> None:
        (folder / name).write_bytes(pack((folder / "train.en").read_bytes()))

    def read(folder: Path) -> object:
        from nmtalign.text.lines import read_lines

        return list(read_lines(folder / name))

    return Format(f"text {name.partition('.')[2]}", name, read, ("train.en",), make=make)


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _read_aligner(folder: Path) -> object:
    from nmtalign import align

    pairs = [("The cat sleeps .", "Le chat dort ."), ("an old bank", "une vieille banque"), ("", "x")]
    return [(one.links(), one.weights.tobytes()) for one in align(folder / "aligner", pairs)]


def _read_link_run(folder: Path) -> object:
    from nmtalign.alignment.linking import LinkRun

    return LinkRun(folder / "train.en", folder / "train.fr", folder / "aligner").was_complete


def _read_curves(folder: Path) -> object:
    from nmtalign.viewing.curves import panels, read_curves, render_curves

    curves = read_curves(folder / "model")
    return [panels([curves], axis) for axis in ("updates", "epochs", "hours")], render_curves([curves], "a", 80)


def _make_glossary(folder: Path) -> None:
    (folder / "terms.tsv").write_text(
        "# terms\nbank\tbanque\nEuropean bank\tbanque européenne\n\nlaw\tloi\n" * 1, "utf-8"
    )


def _read_glossary(folder: Path) -> object:
    from nmtalign.translating.glossary import Glossary

    return [
        Glossary.read(folder / "terms.tsv", split).targets("The European bank accepted the law")
        for split in (False, True)
    ]


def _make_tmx(folder: Path) -> None:
    pairs = zip(*((folder / f"test.{side}").read_text("utf-8").splitlines() for side in ("en", "fr")), strict=True)
    sides = '<tu><tuv xml:lang="en"><seg>{} <bpt i="1">x</bpt></seg></tuv><tuv xml:lang="fr"><seg>{}</seg></tuv></tu>\n'
    units = "".join(sides.format(*pair) for pair in pairs)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header/>'
    (folder / "test.tmx").write_text(f"{head}<body>\n{units}</body></tmx>\n", "utf-8")


def _make_tsv(folder: Path) -> None:
    pairs = zip(*((folder / f"test.{side}").read_text("utf-8").splitlines() for side in ("en", "fr")), strict=True)
    (folder / "test.tsv").write_text("id\ten\tfr\n" + "".join(f"1\t{en}\t{fr}\n" for en, fr in pairs), "utf-8")


def _parallel(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from nmtalign.text.parallel import ParallelText

        return list(ParallelText(folder / name, None, ("en", "fr")))

    return read


def _forge_tensors(path: Path) -> None:
    from nmtalign.tensor_file import BLANK_DIGEST, DIGEST_PLACE

    data = path.read_bytes()
    end = DIGEST_PLACE + len(BLANK_DIGEST)
    digest = hashlib.sha256(data[:DIGEST_PLACE] + BLANK_DIGEST + data[end:]).hexdigest().encode()
    path.write_bytes(data[:DIGEST_PLACE] + digest + data[end:])


def _forge_hdf5(path: Path) -> None:
    from nmtalign.hdf5 import seal

    seal(path)


def _make_int8(folder: Path) -> None:
    needed("export model -o slim --weights int8", folder)
    shutil.rmtree(folder / "model")
    (folder / "slim").rename(folder / "model")


def _make_state(folder: Path) -> None:
    (folder / "model" / "training_state.previous.safetensors").unlink(missing_ok=True)


def _make_words(folder: Path) -> None:
    shutil.copy(folder / "data" / "target.vocabulary.txt", folder / "words.txt")


def formats() -> list[Format]:
    """All formats."""
    model, data, best, state = ("model",), ("data",), "model/best.safetensors", "model/training_state.safetensors"
    pairs, aligner, hdf5 = ("test.en", "test.fr"), ("train.en", "train.fr", "aligner"), "alignments.h5"
    learned, words = "aligner/aligner.safetensors", "model/source.vocabulary.txt"
    pieces = ("train.en", "train.fr")
    return [
        Format("weights", best, _read_model, model, checked=True),
        Format("weights, forged", best, _read_model, model, forge=_forge_tensors),
        Format("int8 weights", best, _read_model, model, checked=True, make=_make_int8),
        Format("int8 weights, forged", best, _read_model, model, forge=_forge_tensors, make=_make_int8),
        Format("training state", state, _read_state, model, checked=True, make=_make_state),
        Format("training state, forged", state, _read_state, model, forge=_forge_tensors, make=_make_state),
        Format("config.json", "model/config.json", _read_model, model),
        Format("vocabulary of a model", words, _read_model, model, checked=True),
        Format("vocabulary, forged", "words.txt", _read_vocabulary, data, make=_make_words),
        Format("tokenizer.json of a model", "model/tokenizer.json", _read_model, model, checked=True),
        Format("tokenizer.json, forged", "data/tokenizer.json", _read_tokenizers, data),
        Format("sentencepiece of a corpus", "data/source.spm", _read_corpus, pieces, checked=True, make=_make_pieces),
        Format("sentencepiece, forged", "data/source.spm", _read_tokenizers, pieces, make=_make_pieces),
        Format("corpus", "data/corpus.h5", _read_corpus, data, checked=True),
        Format("corpus, forged", "data/corpus.h5", _read_corpus, data, forge=_forge_hdf5),
        Format("alignments", hdf5, _read_alignments, (hdf5,), checked=True),
        Format("alignments, forged", hdf5, _read_alignments, (hdf5,), forge=_forge_hdf5),
        Format("lexicon", "lexicon.txt", _read_lexicon, ("lexicon.txt",)),
        Format("links and gold", "test.align", _read_links, ("test.align",)),
        Format("numbered gold links", "test.align", _read_links, ("test.align",), make=_make_numbered),
        Format("n-best list", "nbest.txt", _read_n_best, pairs, make=_make_n_best),
        Format("nmtalign.toml", "workspace.toml", _read_toml, ("workspace.toml",), make=_make_toml),
        Format("JSON lines", "in.jsonl", _read_jsonl, pairs, make=_make_jsonl),
        _packed("a.gz", gzip.compress),
        _packed("a.xz", lzma.compress),
        _packed("a.zst", _zstd),
        Format("aligner", learned, _read_aligner, aligner, checked=True),
        Format("aligner, forged", learned, _read_aligner, aligner, forge=_forge_tensors),
        Format("link.json", "aligner/link.json", _read_link_run, aligner),
        Format("train.jsonl", "model/train.jsonl", _read_curves, model),
        Format("glossary", "terms.tsv", _read_glossary, make=_make_glossary),
        Format("TMX", "test.tmx", _parallel("test.tmx"), pairs, make=_make_tmx),
        Format("TSV", "test.tsv", _parallel("test.tsv"), pairs, make=_make_tsv),
    ]


def parts(workspace: Workspace) -> Iterator[Part]:
    """One part for each format."""
    for one in formats():
        yield Part(
            f"mutations: {one.name}",
            lambda chance, one=one: one.attempt(workspace, chance),
            full=one.full,
            quick=10,
            limit=_LIMIT,
        )
