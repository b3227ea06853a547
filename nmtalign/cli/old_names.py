"""Names of version 0.2, which work for one release with a note on stderr, and names that other programs have.

This file is read only if a command line has a name that nmtalign does not know.
"""

import difflib
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from nmtalign.cli.common import say
from nmtalign.errors import UsageError
from nmtalign.settings.definition import SECTIONS, SET, Setting, option

# Options whose replacement does not follow from the name of a setting.
_OPTIONS: Mapping[str, str] = {
    "--restart": "--force",
    "--method": "--symmetrize",
    "--forward": "--model",
    "--backward": "--model",
    "--sentences": "--sentence",
    "--links": f"{SET} hard_links=true",
    "--no-links": f"{SET} hard_links=false",
    "--separate": f"{SET} joint=false",
    "--keep-duplicates": f"{SET} drop_duplicates=false",
    "--unidirectional": f"{SET} bidirectional=false",
    "--readout-word": f"{SET} readout_previous_word=true",
    "--no-readout-word": f"{SET} readout_previous_word=false",
    "--apart": f"{SET} cumulative=false",
    "--cased": f"{SET} lowercase=false",
    "--keep-links": f"{SET} reverse_links=false",
}
# Settings, options and arguments of nmtalign, and what OpenNMT-py, Marian, fairseq, Sockeye, JoeyNMT, sacreBLEU and
# fast_align call them.
_OTHER_PROGRAMS = """
learning_rate: lr learn-rate
beam: b beam-size num-beams
n_best: n nbest
batch_size: b bs batch mini-batch max-tokens
epochs: e epoch max-epoch max-epochs num-epochs after-epochs
max_updates: steps max-steps train-steps max-update updates after-batches
max_time: time timeout max-hours
patience: early-stop early-stopping
validate_every: valid-freq valid-steps eval-steps
checkpoint_every: save-freq save-interval
optimizer: optim opt
clip_norm: clip clip-gradient max-grad-norm
hidden: rnn-size hidden-size dim-rnn
embedding: emb-size embedding-size word-vec-size dim-emb
length_penalty: lenpen length-norm normalize alpha
seed: random-seed seeds
precision: fp16 bf16
device: gpu gpus cuda cpu
threads: jobs j num-threads cpu-threads workers
dev: valid validation valid-sets validpref
test: testpref
shortlist: vocab-size dim-vocabs
vocabulary: subword bpe-codes
tokenize: tok tokenizer
source_language: src-lang source-lang
target_language: tgt-lang trg-lang target-lang l
reference: ref
model: m models checkpoint
output: o out save-model save-dir
source: src
target: tgt trg
force: f overwrite
lowercase: lc
symmetrize: sym heuristic
"""
# What other programs take as options, and nmtalign as arguments or in another way.
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("src", "source"), "give the source text as an argument"),
    **dict.fromkeys(("tgt", "trg", "target"), "give the translation as the second argument"),
    **dict.fromkeys(("input", "i"), "give the text as an argument"),
    **dict.fromkeys(("train-sets", "trainpref"), "give the two training texts as arguments"),
    **dict.fromkeys(("resume", "continue"), "the same command resumes an interrupted run"),
    **dict.fromkeys(("verbose", "v"), "progress is shown unless --quiet is given"),
    "data": "give the folder of the corpus as an argument",
    "hyp": "give the translation as an argument",
    "help-all": "--help lists the options, --show-settings the settings that --set changes",
    "comet": "compute COMET with its own command, and give its scores, one per line, with --segment-scores COMET=FILE",
}


_GONE: Mapping[str, str] = {
    "docs": f"the pages are in {Path(__file__).parents[1] / 'docs'}",
    "lexicon": "`nmtalign link SRC TGT -o FOLDER` learns a translation table, too: --lexicon FOLDER reads it",
}


def current_command(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """The command line that has replaced that of an old command; raises UsageError for any other unknown command."""
    name, *rest = arguments
    if name in _GONE:
        raise UsageError(f"`nmtalign {name}` is gone: {_GONE[name]}")
    new = {"doctor": ["info", *rest], "plot": ["view", *(one for one in rest if one != "--training")]}.get(name)
    if name == "explain":
        models = [] if {"-m", "--model"} & {*rest} else ["-m", "model"]
        new = ["view", *models, *("-m" if one == "--fixed" else one for one in rest)]
    elif name == "score-pairs":
        texts, options = _arguments(rest, ("-m", "--model", "-o", "--output", "--format", "--n-best-list", "--set"))
        texts = [one for one in texts if one not in ("-s", "--source")]  # the source of an n-best list
        new = ["translate", *texts[:1], *(["--target", texts[1]] if texts[1:] else []), *options]
    if new:
        say(f"`nmtalign {name}` is now `nmtalign {shlex.join(new)}`")
        return new
    near = difflib.get_close_matches(name, commands, n=1)
    advised = f"did you mean `nmtalign {near[0]}`?" if near else "`nmtalign --help` lists the commands"
    raise UsageError(f"no such command: {name}; {advised}")


def _arguments(words: Sequence[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """The arguments that are no options, and the options with their values."""
    texts: list[str] = []
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in with_value:
            options += [word, next(rest, "")]
        else:
            (options if word.startswith("--") and word != "--source" else texts).append(word)
    return texts, options


def current_options(arguments: Sequence[str], options: Collection[str], known: Mapping[str, Setting]) -> list[str]:
    """The arguments with new options in place of those of version 0.2, such as `--set layers=2` for `--layers 2`.

    `options` are those that the command has, `known` its settings.
    """
    result: list[str] = []
    changes: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        positive = name.removeprefix("no_")
        new = _OPTIONS.get(flag, "").split()
        if not flag.startswith("--") or flag in options:
            new = []
        elif name in known and known[name].base is not bool:
            new = [SET, f"{name}={value if equals else next(rest, '')}"]
        elif positive in known and known[positive].base is bool:
            new = [SET, f"{positive}={'true' if name == positive else 'false'}"]
        elif new and new[-1].partition("=")[0] not in (*options, *known):
            new = []
        changes += new
        result += new or [argument]
    if changes:
        say(f"options of version 0.2, which are to be written as: {' '.join(changes)}")
    return result


def advice(name: str, options: Collection[str], known: Mapping[str, Setting]) -> str:
    """What to give instead of an option that a command does not have; "" if nothing is known.

    `options` are those of the command, `known` its settings.
    """
    plain = name.lstrip("-").replace("_", "-").lower()
    lines = [line.partition(": ") for line in _OTHER_PROGRAMS.strip().split("\n")]
    for one in [plain.replace("-", "_"), *(ours for ours, _, theirs in lines if plain in theirs.split())]:
        if option(one) in options:
            return f"nmtalign calls it {option(one)}"
        if one in known:
            return f"nmtalign calls it {SET} {one}="
    if plain in _INSTEAD:
        return _INSTEAD[plain]
    if commands := [command for command, settings in SECTIONS.items() if plain.replace("-", "_") in settings]:
        return f"this is a setting of {' and '.join(f'`nmtalign {command}`' for command in commands)}"
    near = difflib.get_close_matches(plain.replace("-", "_"), known, n=1)
    return f"the nearest setting is {SET} {near[0]}=" if near else ""
