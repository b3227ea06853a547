"""`bench quality`: how well toolkits translate after training on equally many words, with models of equal sizes.

All toolkits get the same tokens, vocabularies, sentences per batch and number of updates.
"""

import dataclasses
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from sacrebleu.metrics import BLEU

from bench.machine import ROOT, describe_machine, environment, in_words
from bench.peers import PeerError, chosen, install, limits, softly
from bench.recipes import CLIP_NORM, Job, Training
from bench.report import Table, complaint_in, figure, say, show
from bench.texts import SIDES, Texts, training_options
from bench.workload import FIRST_WORD, Size
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.files import atomic_text
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.viewing.curves import read_curves

EQUAL = "same optimiser"
CELL = "cell=paper"
# nmtalign: with the optimiser of the others, in both forms of the decoder, and with the settings of its preset.
OURS = {
    f"nmtalign, {EQUAL}": (),
    f"nmtalign, the paper's cell and order, {EQUAL}": ("--set", CELL, "--set", "order=look-generate-update"),
    "nmtalign, its preset's optimiser": (),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """The task of all toolkits."""

    texts: Texts  # train, dev and test as tokens
    corpus: Path
    reference: Sequence[str]  # as tokens
    training: Training
    sentences: int
    threads: int

    def job(self, name):
        """Returns the job of another toolkit, whose folder has this name."""
        return Job(self.texts, self.texts.folder / name, self.sentences, self.threads, self.training)


def run(given):
    """Runs the subcommand with its options by name, prints tables, and returns the results."""
    machine = describe_machine()
    recipes = chosen(given["peers"]) if given["peers"] else []
    with tempfile.TemporaryDirectory() as temporary:
        task, words = make_task(given, (given["folder"] or Path(temporary)).resolve())
        environments = (given["peer_env"] or ROOT / ".venv-peers").resolve()
        updates = task.training.updates
        say(f"{in_words(machine)}; {updates:,} updates of {task.sentences} sentences, {words:,.0f} target words each")
        work = {
            name: partial(_ours, task, number, name)
            for number, name in enumerate(OURS)
            if not given["peers_only"] and (CELL not in OURS[name] or task.texts.size.model.architecture == "recurrent")
        }
        work |= {recipe.note: partial(_theirs, task, recipe, environments / recipe.name) for recipe in recipes}
        with ThreadPoolExecutor(given["jobs"]) as pool:
            futures = {name: pool.submit(softly, one) for name, one in work.items()}
            found = {name: future.result() for name, future in futures.items()}
        results = {"benchmark": "quality", "machine": machine, "corpus": str(given["data"]), "words": words}
        results |= {"training": dataclasses.asdict(task.training), "sentences": task.sentences, "found": found}
    show([quality_table(results)])
    return results


def make_task(given, folder):
    """Returns the task and the number of target words (with `</s>`) of its updates; writes files to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus.open(given["data"])
    if "dev" not in corpus.splits:
        raise UsageError(f"{given['data']}: the corpus has no dev set; prepare it with --dev")
    size = Size.of(given["size"]).with_vocabularies(len(corpus.source_vocabulary), len(corpus.target_vocabulary))
    vocabularies = corpus.source_vocabulary, corpus.target_vocabulary
    longest = 0
    for part in ("train", "dev"):
        split = corpus.splits[part]
        longest = max(longest, int(split.source.lengths.max()), int(split.target.lengths.max()))
        for side, (name, vocabulary) in enumerate(zip(SIDES, vocabularies, strict=True)):
            lines = (vocabulary.decode(split.pair(index)[side].tolist()) for index in range(len(split)))
            _write(folder / f"{part}.{name}", (" ".join(tokens) for tokens in lines))
    tokenizers = Tokenizers.load(corpus.folder)
    both = tokenizers.source, tokenizers.target
    sides = [_tokens(path, tokenizer) for path, tokenizer in zip(given["test"], both, strict=True)]
    if len(sides[0]) != len(sides[1]):
        raise InputError(f"{given['test'][1]}: {len(sides[1])} lines, but {given['test'][0]} has {len(sides[0])}")
    for name, lines in zip(SIDES, sides, strict=True):
        _write(folder / f"test.{name}", lines)
    train = corpus.splits["train"]
    words_a_pair = float(train.target.lengths.mean()) + 1
    updates = max(1, round(given["words"] / words_a_pair / given["batch"]))
    words = tuple(list(vocabulary.words[FIRST_WORD:]) for vocabulary in vocabularies)
    training = Training(updates, given["learning_rate"], given["beam"], given["seed"])
    texts = Texts(folder, (words[0], words[1]), size, longest)
    task = Task(texts, given["data"].resolve(), sides[1], training, given["batch"], given["threads"])
    return task, updates * words_a_pair * given["batch"]


def _tokens(path, tokenizer):
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}") from None
    return [" ".join(tokenizer.tokenize(line)) for line in lines]


def _write(path, lines):
    with atomic_text(path) as stream:
        stream.writelines(f"{line}\n" for line in lines)


def our_settings(task, name):
    """Returns the [train] section of a variant of nmtalign in `OURS`."""
    if EQUAL not in name:
        return "[train]\n"
    training = task.training
    return (
        f'[train]\noptimizer = "adam"\nlearning_rate = {training.learning_rate}\nbeta2 = 0.999\n'
        f'schedule = "constant"\nwarmup = 0\nloss_normalization = "tokens"\nclip_norm = {CLIP_NORM}\n'
        "bleu_sentences = 0\n"
    )


def _ours(task, number, name):
    """Runs `nmtalign train` and `nmtalign translate`, as the other toolkits are run."""
    folder, training = task.texts.folder / f"ours-{number}", task.training
    program, own = [sys.executable, "-m", "nmtalign"], Path(f"{folder}.toml")
    own.write_text(our_settings(task, name), encoding="utf-8")
    settings = {"max_updates": training.updates, "validate_every": training.updates, "seed": training.seed}
    settings |= {"epochs": 0, "max_time": "1000h", "patience": 0}
    budget = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    options = [*training_options(task.texts.size, task.sentences, task.threads), *OURS[name], *budget]
    began = time.perf_counter()
    call([*program, "train", str(task.corpus), "-o", str(folder), "--config", str(own), *options], name, task)
    seconds = time.perf_counter() - began
    translate = [*program, "translate", "-m", str(folder), "--config", str(own), "--beam", str(training.beam)]
    translate += ["--tokenized", "--quiet", "--set", f"threads={task.threads}"]
    lines, rate = _translated(task, name, lambda text: [*translate, str(text)], None)
    curves = read_curves(folder)
    if curves.best is None:
        raise NmtalignError(f"{name}: no validation on dev in {folder}")
    figures = {"dev_loss": curves.best.loss, "parameters": int(curves.start.get("parameters", 0)), "seconds": seconds}
    return {**figures, "lines_per_second": rate, **_scores(task, name, lines)}


def their_training(recipe, bin_folder, job):
    """Returns the command that trains another toolkit. Empties the job's folder and writes the configuration there."""
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir()
    job.config.write_text(json.dumps(recipe.settings(job)), encoding="utf-8")
    program, *arguments = recipe.train
    return [str(bin_folder / program), *arguments, str(job.config)]


def _translated(task, name, command, output):
    """Translates the test set as tokens; returns the lines, and lines per second without the time for loading."""
    source = task.texts.file("test", "src")
    one = task.texts.folder / "one.src"
    one.write_text(source.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
    seconds = []
    for text in (one, source):
        began = time.perf_counter()
        said = call(command(text), name, task, text)
        seconds.append(time.perf_counter() - began)
    lines = output.read_text(encoding="utf-8").splitlines() if output and output.exists() else said
    return lines, (len(lines) - 1) / max(1e-3, seconds[1] - seconds[0])


def _theirs(task, recipe, folder):
    install(recipe, folder)
    job = task.job(recipe.name)
    kept = job.folder / "figures.json"
    if kept.exists():  # from an earlier run in the same folder
        return json.loads(kept.read_text(encoding="utf-8"))
    command = their_training(recipe, folder / "bin", job)
    began = time.perf_counter()
    said = "\n".join(call(command, recipe.name, task, errors=True))
    seconds = time.perf_counter() - began
    perplexities = re.findall(recipe.perplexity, said)
    parameters = re.findall(recipe.parameters, said) if recipe.parameters else [None]
    if not perplexities or not parameters:
        raise PeerError(f"{recipe.name}: no loss on dev in its log: {complaint_in(said.splitlines())}")
    figures = {"dev_loss": math.log(float(perplexities[-1])), "seconds": seconds}
    figures["parameters"] = parameters[-1] and int(parameters[-1])

    def translation(text):
        program, *arguments = recipe.translate(job, text)
        return [str(folder / "bin" / program), *arguments]

    lines, figures["lines_per_second"] = _translated(task, recipe.name, translation, job.output)
    figures |= _scores(task, recipe.name, lines)
    kept.write_text(json.dumps(figures), encoding="utf-8")
    return figures


def call(command, name, task, stdin=None, *, errors=False):
    """Returns the lines of its stdout, with `errors` also of stderr; raises PeerError if it failed."""
    say(f"{name}: {' '.join(Path(part).name for part in command[:4])} ...")
    given = stdin.read_bytes() if stdin else b""
    extra = {**environment(), **limits(name, task.threads)}
    done = subprocess.run(list(command), input=given, capture_output=True, cwd=task.texts.folder, env=extra)
    out, err = (text.decode("utf-8", "replace").splitlines() for text in (done.stdout, done.stderr))
    if done.returncode:
        raise PeerError(f"{name}: ended with {done.returncode}: {complaint_in([*out, *err])}")
    return [*out, *err] if errors else out


def _scores(task, name, lines):
    """Returns BLEU on tokens, which are the same for all toolkits."""
    if len(lines) != len(task.reference):
        raise PeerError(f"{name}: {len(task.reference)} lines in, {len(lines)} out")
    metric = BLEU(tokenize="none", force=True)
    bleu = metric.corpus_score(list(lines), [list(task.reference)])
    return {"bleu": bleu.score, "signature": str(metric.get_signature())}


def quality_table(results):
    """Returns a table with one row per toolkit: BLEU, dev loss in nats per word, perplexity, parameters, minutes."""
    heads = ["", "BLEU", "dev loss", "dev ppl", "parameters", "minutes", "lines/s"]
    table = Table(f"After {results['words']:,.0f} target words of {results['corpus']}", heads)
    for name, figures in results["found"].items():
        if "failed" in figures:
            table.rows.append([name, "failed", *["-"] * 5])
            continue
        loss = figures["dev_loss"]
        cells = [figure(figures["bleu"], 2), figure(loss, 3), figure(math.exp(loss), 2), figure(figures["parameters"])]
        cells += [figure(figures["seconds"] / 60, 1), figure(figures["lines_per_second"], 1)]
        table.rows.append([name, *cells])
    table.note = "\n".join(figures["failed"] for figures in results["found"].values() if "failed" in figures)
    return table
