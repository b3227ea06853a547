"""How other toolkits are installed, and their settings to train and use the same model: equal sizes, batches and text.

Each model is the nearest that the toolkit offers: a bidirectional GRU encoder, additive attention, a GRU decoder with
PyTorch's cell (Marian: its own). None has the paper's cell, order of operations, or factored output layer. A
Transformer is the same in all: pre-norm, sinusoids, ReLU, and one matrix of word vectors where both sides have the same
words.

All train for a number of updates with Adam, one constant rate, gradients clipped to a norm of 1, losses per token and
no dropout, report their dev loss, and never output `<unk>`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.texts import SIDES, Texts

CLIP_NORM = 1.0
LONGEST = 100  # words of a translation
BATCH = 128  # sentences of a translation; 32 are slower in both


@dataclass(frozen=True)
class Training:
    """The settings of all toolkits."""

    updates: int
    learning_rate: float
    beam: int
    seed: int
    report_every: int = 100  # updates


@dataclass(frozen=True)
class Job:
    """The task of a toolkit, in a separate folder."""

    texts: Texts
    folder: Path
    sentences: int  # per batch
    threads: int
    training: Training

    @property
    def one_vocabulary(self) -> bool:
        """Whether both sides have the same words."""
        return self.texts.words[0] == self.texts.words[1]

    @property
    def config(self) -> Path:
        """The toolkit's configuration, YAML of which JSON is a subset."""
        return self.folder / "config.yaml"

    @property
    def output(self) -> Path:
        """The translations of a toolkit that cannot write to stdout."""
        return self.folder / "output"

    def files(self, part: str) -> list[str]:
        """Returns the paths of the text files of a part, source and target."""
        return [str(self.texts.file(part, side)) for side in SIDES]

    def write_vocabularies(self, suffix: str, text: Callable[[list[str]], str]) -> list[str]:
        """Writes the words of each side as `text` gives them; returns the paths."""
        paths = [self.folder / f"vocabulary.{side}{suffix}" for side in SIDES]
        for path, words in zip(paths, self.texts.words, strict=True):
            path.write_text(text(words), encoding="utf-8")
        return [str(path) for path in paths]


@dataclass(frozen=True)
class Recipe:
    """A toolkit: how it is installed, trained and used, and patterns of its log.

    A command is a program of its environment with arguments; that which trains ends with the configuration.
    """

    name: str
    note: str
    installs: Sequence[Sequence[str]]  # the arguments of each pip call
    settings: Callable[[Job], dict[str, Any]]
    train: Sequence[str]
    translate: Callable[[Job, Path], list[str]]  # for a text
    perplexity: str  # on dev, per token (with `</s>`)
    parameters: str | None  # None = it does not print their number


def _joeynmt(job: Job) -> dict[str, Any]:
    """Vocabularies begin with JoeyNMT's special words."""
    training, most = job.training, job.texts.longest + 1
    vocabularies = job.write_vocabularies("", lambda words: "\n".join(["<unk>", "<pad>", "<s>", "</s>", *words]) + "\n")
    both = zip(SIDES, vocabularies, strict=True)
    src, tgt = ({"lang": side, "level": "word", "max_length": most, "voc_file": words} for side, words in both)
    data = {part: str(job.texts.folder / part) for part in ("train", "dev")}
    # It must report before it validates, and once more afterwards.
    reports = range(min(training.report_every, training.updates - 1), 1, -1)
    every = next((every for every in reports if training.updates % every == 0), 1)
    settings = {"optimizer": "adam", "learning_rate": training.learning_rate, "clip_grad_norm": CLIP_NORM}
    # A schedule is required; this one keeps the rate constant.
    settings |= {"scheduling": "exponential", "decrease_factor": 1.0, "normalization": "tokens"}
    settings |= {"batch_size": job.sentences, "batch_type": "sentence", "shuffle": True, "random_seed": training.seed}
    settings |= {"updates": training.updates, "epochs": 1000, "logging_freq": every, "overwrite": True}
    settings |= {"validation_freq": training.updates, "early_stopping_metric": "ppl", "patience": 1000}
    return {
        "name": "bench",
        "model_dir": str(job.folder / "model"),
        "use_cuda": False,
        "data": {**data, "dataset_type": "plain", "src": src, "trg": tgt},
        "testing": {"beam_size": 1, "eval_metrics": ["bleu"], "max_output_length": LONGEST, "generate_unk": False},
        "training": settings,
        "model": _joeynmt_model(job),
    }


def _joeynmt_model(job: Job) -> dict[str, Any]:
    model = job.texts.size.model
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


def _translate_joeynmt(job: Job, text: Path) -> list[str]:
    """JoeyNMT reads stdin."""
    config = json.loads(job.config.read_text(encoding="utf-8"))
    config["testing"] |= {"beam_size": job.training.beam, "beam_alpha": 1.0}
    config["testing"] |= {"batch_size": BATCH, "batch_type": "sentence"}
    path = job.folder / "translate.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return ["python", "-m", "joeynmt", "translate", str(path)]


def _opennmt(job: Job) -> dict[str, Any]:
    """OpenNMT-py's encoder size is that of both directions together, so it computes less."""
    training, model = job.training, job.texts.size.model
    vocabularies = job.write_vocabularies("", lambda words: "".join(f"{word}\t1\n" for word in words))
    texts = {"corpus": job.files("train"), "valid": job.files("dev")}
    data = {name: {"path_src": source, "path_tgt": target} for name, (source, target) in texts.items()}
    settings = {"data": data, "src_vocab": vocabularies[0], "tgt_vocab": vocabularies[1]}
    settings |= {"src_vocab_size": model.source_vocabulary_size, "tgt_vocab_size": model.target_vocabulary_size}
    settings |= {**_opennmt_model(job), "word_vec_size": model.embedding, "dropout": [0.0]}
    settings |= {"optim": "adam", "learning_rate": training.learning_rate, "max_grad_norm": CLIP_NORM}
    settings |= {"batch_size": job.sentences, "batch_type": "sents", "normalization": "tokens", "seed": training.seed}
    settings |= {"bucket_size": 262144, "num_workers": 0, "train_steps": training.updates}
    settings |= {"valid_steps": training.updates, "valid_batch_size": job.sentences}
    settings |= {"save_model": str(job.folder / "model"), "save_checkpoint_steps": training.updates}
    return {**settings, "keep_checkpoint": 1, "report_every": training.report_every}


def _opennmt_model(job: Job) -> dict[str, Any]:
    model = job.texts.size.model
    if model.architecture == "transformer":
        shared = {"share_vocab": job.one_vocabulary, "share_embeddings": job.one_vocabulary}
        layers = {"layers": model.layers, "heads": model.heads, "attention_dropout": [0.0]}
        layers |= {"hidden_size": model.embedding, "transformer_ff": model.hidden, "position_encoding": True}
        layers |= {"encoder_type": "transformer", "decoder_type": "transformer"}
        # Its own rule for the weights of recurrent nets suits no Transformer.
        return {**layers, **shared, "share_decoder_embeddings": True, "param_init": 0.0, "param_init_glorot": True}
    nets = {"encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "GRU", "layers": 1}
    return {**nets, "hidden_size": model.hidden, "global_attention": "mlp"}


def _translate_opennmt(job: Job, text: Path) -> list[str]:
    """OpenNMT-py cannot write to stdout."""
    model = job.folder / f"model_step_{job.training.updates}.pt"
    return [
        *("onmt_translate", "-model", str(model), "-src", str(text), "-gpu", "-1"),
        *("-output", str(job.output), "-beam_size", str(job.training.beam), "-length_penalty", "avg"),
        *("-batch_size", str(BATCH), "-batch_type", "sents", "-max_length", str(LONGEST), "-ban_unk_token"),
    ]


def _marian(job: Job) -> dict[str, Any]:
    """Marian's threads on a CPU are workers with a part of the batch each."""
    training, model = job.training, job.texts.size.model
    updates = f"{training.updates}u"

    def numbered(words: list[str]) -> str:
        return json.dumps({word: number for number, word in enumerate(["</s>", "<unk>", *words])}, indent=0)

    settings = {"type": "s2s", "enc-cell": "gru", "enc-depth": 1, "dec-cell": "gru", "dec-depth": 1}
    settings |= {"dim-emb": model.embedding, "dim-rnn": model.hidden, "cpu-threads": job.threads}
    settings |= {"train-sets": job.files("train"), "vocabs": job.write_vocabularies(".yml", numbered)}
    settings |= {"valid-sets": job.files("dev"), "valid-metrics": ["perplexity"], "valid-mini-batch": job.sentences}
    settings |= {"mini-batch": job.sentences, "maxi-batch": 100, "max-length": job.texts.longest + 1}
    settings |= {"optimizer": "adam", "learn-rate": training.learning_rate, "clip-norm": CLIP_NORM}
    settings |= {"cost-type": "ce-mean-words", "seed": training.seed, "disp-freq": f"{training.report_every}u"}
    settings |= {"after": updates, "valid-freq": updates, "save-freq": updates}
    return {**settings, "model": str(job.folder / "model.npz"), "overwrite": True}


def _translate_marian(job: Job, text: Path) -> list[str]:
    vocabularies = [str(job.folder / f"vocabulary.{side}.yml") for side in SIDES]
    return [
        *("pymarian", "decode", "-m", str(job.folder / "model.npz"), "--vocabs", *vocabularies),
        *("-i", str(text), "--beam-size", str(job.training.beam), "--normalize", "1"),
        *("--cpu-threads", str(job.threads), "--mini-batch", str(BATCH), "--maxi-batch", "100"),
        *("--maxi-batch-sort", "src", "--quiet", "--max-length", str(LONGEST)),
    ]


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
        Recipe(
            name="joeynmt",
            note="JoeyNMT 2.3.0",
            installs=[torch, ["--no-deps", "joeynmt==2.3.0"], joeynmt],
            settings=_joeynmt,
            train=["python", "-m", "joeynmt", "train", "--skip-test"],
            translate=_translate_joeynmt,
            perplexity=r"Evaluation result \(greedy\).*ppl:\s*([\d.]+)",
            parameters=r"Total params: (\d+)",
        ),
        Recipe(
            name="opennmt",
            note="OpenNMT-py 3.5.1, half the encoder size",
            installs=[torch, ["--no-deps", "OpenNMT-py==3.5.1"], ["--only-binary=:all:", *opennmt]],
            settings=_opennmt,
            train=["onmt_train", "-config"],
            translate=_translate_opennmt,
            perplexity=r"Validation perplexity: ([\d.]+)",
            parameters=r"number of parameters: (\d+)",
        ),
        Recipe(
            name="marian",
            note="Marian 1.12.42, the Python wheel",
            installs=[["pymarian==1.12.42", "pyyaml"]],
            settings=_marian,
            train=["pymarian", "--config"],
            translate=_translate_marian,
            perplexity=r"perplexity : ([\d.]+)",
            parameters=None,
        ),
    ]
    return {recipe.name: recipe for recipe in found}
