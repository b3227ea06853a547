"""How other toolkits are installed, and their settings to train the same model: equal sizes, batches and text.

Each model is the nearest that the toolkit offers: a bidirectional GRU encoder, additive attention, a GRU decoder with
PyTorch's cell (Marian: its own), Adam. None has the paper's cell, order of operations, or factored output layer. A
Transformer is the same in all: pre-norm, sinusoids, ReLU, and one matrix of word vectors where both sides have the same
words.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.texts import Texts
from bench.workload import Size


@dataclass(frozen=True)
class Job:
    """The task of a toolkit, in a separate folder."""

    texts: Texts
    folder: Path
    sentences: int  # per batch
    threads: int

    @property
    def size(self) -> Size:
        """The sizes of the model."""
        return self.texts.size

    @property
    def one_vocabulary(self) -> bool:
        """Whether both sides have the same words."""
        return self.texts.words[0] == self.texts.words[1]

    @property
    def output(self) -> Path:
        """The translations of a toolkit that cannot write to stdout."""
        return self.folder / "output"

    def file(self, part: str, side: str) -> str:
        """Returns the path of a text file."""
        return str(self.texts.file(part, side))


@dataclass(frozen=True)
class Recipe:
    """A toolkit: the arguments of each pip call, and how to train."""

    name: str
    installs: Sequence[Sequence[str]]
    train_command: Callable[[Path, Job], list[str]]
    note: str


def _write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def _joeynmt(bin_folder: Path, job: Job) -> list[str]:
    """Writes JoeyNMT's configuration, YAML of which JSON is a subset; vocabularies begin with its special words."""
    specials = ["<unk>", "<pad>", "<s>", "</s>"]
    sides = {}
    for side, words in zip(("src", "tgt"), job.texts.words, strict=True):
        vocabulary = _write(job.folder / f"vocabulary.{side}", "\n".join([*specials, *words]) + "\n")
        sides[side] = {"lang": side, "level": "word", "max_length": job.texts.longest + 1, "voc_file": vocabulary}
    training = {"optimizer": "adam", "learning_rate": 0.001, "scheduling": "exponential", "decrease_factor": 0.99}
    training |= {"batch_size": job.sentences, "batch_type": "sentence"}
    training |= {"epochs": 1000, "validation_freq": 10**9, "logging_freq": 2, "overwrite": True}
    config = {
        "name": "bench",
        "model_dir": str(job.folder / "model"),
        "use_cuda": False,
        "data": {
            "train": str(job.texts.folder / "train"),
            "dev": str(job.texts.folder / "dev"),
            "dataset_type": "plain",
            "src": sides["src"],
            "trg": sides["tgt"],
        },
        "testing": {"beam_size": 1, "eval_metrics": ["bleu"], "max_output_length": job.texts.longest + 1},
        "training": training,
        "model": _joeynmt_model(job),
    }
    path = _write(job.folder / "config.yaml", json.dumps(config))
    return [str(bin_folder / "python"), "-m", "joeynmt", "train", path, "--skip-test"]


def _joeynmt_model(job: Job) -> dict[str, Any]:
    model = job.size.model
    embeddings = {"embedding_dim": model.embedding, "dropout": 0.0}
    if model.architecture == "transformer":
        layers = {"type": "transformer", "num_layers": model.layers, "num_heads": model.heads, "layer_norm": model.norm}
        layers |= {"hidden_size": model.embedding, "ff_size": model.hidden, "dropout": 0.0}
        layers["embeddings"] = {**embeddings, "scale": True}
        return {"encoder": layers, "decoder": layers, "tied_embeddings": job.one_vocabulary, "tied_softmax": True}
    recurrent = {"type": "recurrent", "rnn_type": "gru", "hidden_size": model.hidden, "num_layers": 1, "dropout": 0.0}
    recurrent["embeddings"] = embeddings
    attends = {"attention": "bahdanau", "hidden_dropout": 0.0, "input_feeding": True, "init_hidden": "bridge"}
    return {"encoder": {**recurrent, "bidirectional": True}, "decoder": {**recurrent, **attends}}


def _opennmt(bin_folder: Path, job: Job) -> list[str]:
    """Writes OpenNMT-py's configuration. Its encoder size is that of both directions together, so it computes less."""
    model = job.size.model
    names = []
    for side, words in zip(("src", "tgt"), job.texts.words, strict=True):
        names.append(_write(job.folder / f"vocabulary.{side}", "".join(f"{word}\t1\n" for word in words)))
    config = {
        "data": {"corpus": {"path_src": job.file("train", "src"), "path_tgt": job.file("train", "tgt")}},
        "src_vocab": names[0],
        "tgt_vocab": names[1],
        "src_vocab_size": model.source_vocabulary_size,
        "tgt_vocab_size": model.target_vocabulary_size,
        "save_model": str(job.folder / "model"),
        **_opennmt_model(job),
        "word_vec_size": model.embedding,
        "dropout": [0.0],
        "optim": "adam",
        "learning_rate": 0.001,
        "batch_size": job.sentences,
        "batch_type": "sents",
        "bucket_size": 4000,
        "num_workers": 0,
        "train_steps": 10**6,
        "save_checkpoint_steps": 10**6,
        "report_every": 2,
    }
    return [str(bin_folder / "onmt_train"), "-config", _write(job.folder / "config.yaml", json.dumps(config))]


def _opennmt_model(job: Job) -> dict[str, Any]:
    model = job.size.model
    if model.architecture == "transformer":
        shared = {"share_vocab": job.one_vocabulary, "share_embeddings": job.one_vocabulary}
        layers = {"layers": model.layers, "heads": model.heads, "attention_dropout": [0.0]}
        layers |= {"hidden_size": model.embedding, "transformer_ff": model.hidden, "position_encoding": True}
        layers |= {"encoder_type": "transformer", "decoder_type": "transformer"}
        # Its own rule for the weights of recurrent nets suits no Transformer.
        return {**layers, **shared, "share_decoder_embeddings": True, "param_init": 0.0, "param_init_glorot": True}
    nets = {"encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "GRU", "layers": 1}
    return {**nets, "hidden_size": model.hidden, "global_attention": "mlp"}


def _marian(bin_folder: Path, job: Job) -> list[str]:
    """Writes Marian's configuration. Its threads on a CPU are workers with a part of the batch each."""
    model = job.size.model
    vocabularies = []
    for side, words in zip(("src", "tgt"), job.texts.words, strict=True):
        ids = {word: number for number, word in enumerate(["</s>", "<unk>", *words])}
        vocabularies.append(_write(job.folder / f"vocabulary.{side}.yml", json.dumps(ids, indent=0)))
    config = {
        "type": "s2s",
        "cpu-threads": job.threads,
        "train-sets": [job.file("train", "src"), job.file("train", "tgt")],
        "vocabs": vocabularies,
        "model": str(job.folder / "model.npz"),
        "overwrite": True,
        "dim-emb": model.embedding,
        "dim-rnn": model.hidden,
        "enc-cell": "gru",
        "enc-depth": 1,
        "dec-cell": "gru",
        "dec-depth": 1,
        "mini-batch": job.sentences,
        "maxi-batch": 1,
        "max-length": job.texts.longest + 1,
        "optimizer": "adam",
        "learn-rate": 0.001,
        "disp-freq": "2u",
        "save-freq": "1000000u",
        "after": "1000e",
    }
    return [str(bin_folder / "pymarian"), "--config", _write(job.folder / "config.yaml", json.dumps(config))]


def recipes(torch_version: str) -> dict[str, Recipe]:
    """Returns the toolkits by name; they use the same version of PyTorch as nmtalign.

    JoeyNMT's requirements lack a module that it imports and ask for an old protobuf. OpenNMT-py's requirements ask for
    PyTorch 2.2, which it does not need. Both are therefore installed without their requirements, with the packages that
    they import.
    """
    torch = ["torch==" + torch_version.partition("+")[0]]
    joeynmt = ["numpy", "pyyaml", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt", "tensorboard"]
    joeynmt += ["matplotlib", "packaging", "importlib_metadata", "setuptools<81"]
    opennmt = ["configargparse", "pyyaml", "sacrebleu", "rapidfuzz", "pyahocorasick", "six", "tensorboard", "pyonmttok"]
    opennmt += ["ctranslate2>=4,<5", "spacy", "flask", "waitress", "fasttext-wheel", "setuptools<81"]
    found = [
        Recipe("joeynmt", [torch, ["--no-deps", "joeynmt==2.3.0"], joeynmt], _joeynmt, "JoeyNMT 2.3.0"),
        Recipe(
            "opennmt",
            [torch, ["--no-deps", "OpenNMT-py==3.5.1"], ["--only-binary=:all:", *opennmt]],
            _opennmt,
            "OpenNMT-py 3.5.1, half the encoder size",
        ),
        Recipe("marian", [["pymarian==1.12.42", "pyyaml"]], _marian, "Marian 1.12.42, the Python wheel"),
    ]
    return {recipe.name: recipe for recipe in found}
