"""Names of version 0.2, which work for one release with a note on stderr, and names that other programs have.

This file is read only if a command line has a name that nmtalign does not know.
"""

import difflib
import itertools
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nmtalign
from nmtalign.cli.common import open_output, say
from nmtalign.errors import UsageError
from nmtalign.settings.definition import SECTIONS, SET, Setting, option
from nmtalign.text.lines import STDOUT
from nmtalign.text.tokenizer import LEXICON

_WHICH = "give the file of the last weights: -m MODEL/last.safetensors"
_JSON = (
    'give each line as JSON, with --set input_format=json: {"text": "a fox", "prefix": "un", "phrases": ["le renard"]}'
)
_OF_TRANSLATE = "set it in section [translate] of nmtalign.toml"
_OF_TRAIN = "set it in section [train] of nmtalign.toml"
# What has replaced the options of version 0.2 that are not settings of the same name: options, in which {} is the
# value, or advice.
_SETTINGS = """
prep --keep-duplicates drop_duplicates=false; prep --separate joint=false; train --unidirectional bidirectional=false;
train --readout-word readout_previous_word=true; train --no-readout-word readout_previous_word=false;
translate --weights alignment_type={}; align --weights alignment_type={};
score --cased lowercase=false; aer --keep-links reverse_links=false;
view --links hard_links=true; view --no-links hard_links=false
"""
_OPTIONS: Mapping[str, str] = {
    **{f"{command} {old}": f"{SET} {new}" for command, old, new in map(str.split, _SETTINGS.split(";"))},
    "train --restart": "--force",
    "train --average": "average weights after the training: `nmtalign export MODEL --average WEIGHTS -o OUT`",
    "link --quick": "--learn-from 50000",
    "link --max-time": "give --learn-from N; the time grows with N",
    "translate --feature": "the feature in the list is always nmtalign=",
    **dict.fromkeys(("translate --prefix-file", "translate --phrase-file"), _JSON),
    **dict.fromkeys(("translate --which", "align --which", "serve --which"), _WHICH),
    "score --all": "give the folders of the models as HYP",
    "score --all-words": "--no-known-words",
    **dict.fromkeys(("score --beam", "score --device", "reproduce --beam"), _OF_TRANSLATE),
    **dict.fromkeys(("score --data", "align --backward", "align --forward"), "--model {}"),
    "score --save-translation": "translate with `nmtalign translate -o FILE`, and give FILE as HYP",
    "score --table1": "--known-words",
    **dict.fromkeys(("aer --links-method", "aer --threshold"), f"align again with {SET} links= or threshold="),
    **dict.fromkeys(("align --gold", "align -g"), "compare with gold links: `nmtalign aer FILE.h5 GOLD`"),
    "symmetrize --method": "--symmetrize {}",
    "view --name": "give NAME=FILE",
    "view --sentences": "--sentence {}",
    "reproduce --ablations": "train a model per change, as examples/ablations.sh does, and compare them with `score`",
    "reproduce --updates": "give --words or --hours",
    "reproduce --sentences": "draw other lines with `nmtalign view --sentence`",
    **dict.fromkeys((f"reproduce --{name}" for name in ("device", "precision", "threads")), _OF_TRAIN),
}
# Options of version 0.2 that have no replacement, without `--` and `no-`.
_GONE: Mapping[str, str] = {
    "prep": "format",
    "train": "agreement agreement-weight attention-temperature bpe-dropout guided-loss guided-reading r-drop "
    "soft-start word-dropout",
    "score": "apart attention attention-from by-frequency by-place cumulative table1 train-text",
    "align": "temperature drop-end keep-end gold-base reverse-gold format",
    "aer": "alpha by-length by-type worst",
    "view": "colorbar",
    "export": "entries",
    "reproduce": "long reordered text",
}
# Settings, options and arguments of nmtalign, and what OpenNMT-py, Marian, fairseq, Sockeye, JoeyNMT, sacreBLEU and
# fast_align call them.
_OTHER_PROGRAMS = """
learning_rate=lr,learn-rate beam=b,beam-size,num-beams n_best=n,nbest,nbest-size
batch_size=b,bs,batch,mini-batch,max-tokens epochs=e,epoch,max-epoch,max-epochs,num-epochs,after-epochs
max_updates=steps,max-steps,train-steps,max-update,updates,after-batches max_time=time,timeout,max-hours
patience=early-stop,early-stopping,max-num-checkpoint-not-improved
validate_every=valid-freq,valid-steps,eval-steps,checkpoint-interval checkpoint_every=save-freq,save-interval
optimizer=optim,opt clip_norm=clip,clip-gradient,max-grad-norm hidden=rnn-size,hidden-size,dim-rnn
embedding=emb-size,embedding-size,word-vec-size,dim-emb length_penalty=lenpen,length-norm,normalize,alpha,beam-alpha
seed=random-seed,seeds precision=fp16,bf16 device=gpu,gpus,cuda,cpu threads=jobs,j,num-threads,cpu-threads,workers
dev=valid,validation,valid-sets,validpref test=testpref shortlist=vocab-size,dim-vocabs,src-vocab-size,tgt-vocab-size
subwords=subword,bpe,bpe-codes,sentencepiece tokenize=tok,tokenizer source_language=src-lang,source-lang
target_language=tgt-lang,trg-lang,target-lang,l reference=ref model=m,models,checkpoint output=o,out,save-model,save-dir
source=src target=tgt,trg force=f,overwrite lowercase=lc symmetrize=sym,heuristic,c significance=paired-bs,paired-ar
accumulate=optimizer-delay,update-interval,update-freq guided_weight=guided-alignment-weight alignment=report-align
lexicon=phrase-table,restrict-lexicon tensorboard=tensorboard-log-dir max_length=src-seq-length,tgt-seq-length
loss_normalization=cost-type sample=output-sampling format=output-type,with-score input_format=json-input
"""
# What other programs take as options, and nmtalign as arguments or in another way.
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("src", "source"), "give the source text as an argument"),
    **dict.fromkeys(("tgt", "trg", "target"), "give the translation as the second argument"),
    **dict.fromkeys(("input", "i"), "give the text as an argument"),
    **dict.fromkeys(("train-sets", "trainpref"), "give the two training texts as arguments"),
    **dict.fromkeys(("resume", "continue", "train-from", "load-model"), "the same command resumes an interrupted run"),
    **dict.fromkeys(("verbose", "v"), "progress is shown unless --quiet is given"),
    **dict.fromkeys(("world-size", "gpu-ranks", "num-gpus"), "torchrun starts one process per GPU"),
    "data": "give the folder of the corpus as an argument",
    "hyp": "give the translation as an argument",
    "help-all": "--help lists the options, --show-settings the settings that --set changes",
    "comet": "compute COMET with its own command, and give its scores, one per line, with --segment-scores COMET=FILE",
}
# Options of the old commands that have no value.
_SWITCHES = """
--training --links --no-links --reverse-gold --keep-gold --end --no-end --colorbar --no-colorbar --rescore
--word-scores --tokenized --raw --quiet -q --show-settings --help -h --reverse --no-reverse
"""


def current_command(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """The command line that has replaced that of an old command; [] if the work of the old command is done here.

    Raises UsageError for any other unknown command.
    """
    name, *rest = arguments
    match name:
        case "doctor":
            new = ["info", *rest]
        case "plot":
            files, options = _arguments(rest)
            curves = "--training" in options
            new = ["view", *(files or ["model"] * curves), *(one for one in options if one != "--training")]
        case "explain":
            if {"-s", "--sentence"} & {*rest}:
                raise UsageError("the live page translates any sentence: leave out -s, and type it there")
            models = [] if {"-m", "--model"} & {*rest} else ["-m", "model"]
            page = [] if {"-o", "--output"} & {*rest} else ["-o", "explain.html"]
            new = ["view", "--live", *models, *(re.sub("^--fixed(?=$|=)", "--model", one) for one in rest), *page]
        case "score-pairs":
            texts, options = _arguments(rest)
            # The source of an n-best list was an option.
            sources = [value for flag, value in itertools.pairwise(options) if flag in ("-s", "--source")]
            if not (texts or sources):
                raise UsageError("no texts to score: give nmtalign translate SOURCE --target TARGET")
            options = [one for one in options if one not in ("-s", "--source", *sources)]
            new = ["translate", *(sources or texts[:1]), *(["--target", texts[1]] if texts[1:] else []), *options]
        case "docs":
            pages = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
            sys.stdout.writelines(f"{page}\n" for page in pages if not rest or page.stem == Path(rest[0]).stem)
            return []
        case "lexicon":
            _write_lexicon(rest)
            return []
        case _:
            near = difflib.get_close_matches(name, commands, n=1)
            advised = f"did you mean `nmtalign {near[0]}`?" if near else "`nmtalign --help` lists the commands"
            raise UsageError(f"no such command: {name}; {advised}")
    say(f"`nmtalign {name}` is now `nmtalign {shlex.join(new)}`")
    return new


def _arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments that are no options, and the options with their values."""
    texts, options, rest = list[str](), list[str](), iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            texts.append(word)
        elif word in _SWITCHES.split() or "=" in word:
            options.append(word)
        else:
            options += [word, next(rest, "")]
    return texts, options


def _write_lexicon(arguments: Sequence[str]) -> None:
    """Does what `nmtalign lexicon SRC TGT [-o FILE] [--tokenized]` did, with the aligner of `nmtalign link`."""
    texts, options = _arguments(arguments)
    now = "`nmtalign link SRC TGT -o FOLDER` learns a translation table, FOLDER/lexicon.tsv"
    files = [value for flag, value in itertools.pairwise(options) if flag in ("-o", "--output")]
    known = {"--tokenized", "--raw", "-q", "--quiet", "-o", "--output", *files}
    if other := [one for one in options if one not in known]:
        raise UsageError(f"`nmtalign lexicon {other[0]}` is gone: {now}")
    if len(texts) != 2:
        raise UsageError(f"`nmtalign lexicon` of anything but two texts is gone: {now}")
    source, target = texts
    say(f"`nmtalign lexicon` is now a part of `nmtalign link`: {now}, and `translate --lexicon FOLDER` reads it")
    with TemporaryDirectory() as folder:
        nmtalign.link(source, target, folder, tokenized="--tokenized" in options)
        text = (Path(folder) / LEXICON).read_text(encoding="utf-8")
    with open_output(Path(files[0]) if files else STDOUT) as stream:
        stream.write(text)


def current_options(
    command: str, arguments: Sequence[str], options: Collection[str], known: Mapping[str, Setting]
) -> list[str]:
    """The arguments with new options in place of those of version 0.2, such as `--set layers=2` for `--layers 2`.

    `options` are those that the command has, `known` its settings.
    """
    result, changes, rest = list[str](), list[str](), iter(arguments)
    backward: list[str] = []  # the second of two models
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        plain = flag.replace("_", "-")
        switch = next((one for one in known.values() if one.base is bool and plain in one.options), None)
        replaced = _OPTIONS.get(f"{command} {flag}", "")
        new = []
        if not flag.startswith("--") or flag in options:
            pass
        elif replaced.startswith("-"):
            value = value if equals or "{}" not in replaced else next(rest, "")
            new = [word.replace("{}", value) for word in replaced.split()]
        elif plain in options:
            new = [plain + equals + value]
        elif switch:
            new = [SET, f"{switch.name}={'true' if plain == switch.options[0] else 'false'}"]
        elif name in known:
            new = [SET, f"{name}={value if equals else next(rest, '')}"]
        changes += new
        if flag == "--backward":
            backward = new
        else:
            result += new or [argument]
    if changes:
        say(f"from the next release on, write: {shlex.join(changes)}")
    return [*result, *backward]


def advice(command: str, name: str, options: Collection[str], known: Mapping[str, Setting]) -> str:
    """What to give instead of an option that a command does not have.

    `options` are those of the command, `known` its settings.
    """
    if old := _OPTIONS.get(f"{command} {name}"):
        return old
    plain = name.lstrip("-").replace("_", "-").lower()
    if plain.removeprefix("no-") in _GONE.get(command, "").split():
        return "it was removed after version 0.2; leave it out"
    entries, bare = [entry.split("=") for entry in _OTHER_PROGRAMS.split()], plain.replace("-", "_")
    same = [ours for ours, theirs in entries if plain in theirs.split(",")]
    for one in [bare, *same, f"{bare}s", bare.removesuffix("s")]:
        if option(one) in options:
            return f"nmtalign calls it {option(one)}"
        if one in known:
            return f"nmtalign calls it {SET} {one}="
    if plain in _INSTEAD:
        return _INSTEAD[plain]
    if commands := [command for command, settings in SECTIONS.items() if bare in settings]:
        return f"this is a setting of {', '.join(f'`nmtalign {command}`' for command in commands)}"
    names = {option(one): f"{SET} {one}=" for one in known} | {one: one for one in options}
    if near := difflib.get_close_matches(f"--{plain}", names, n=1):
        return f"the nearest one is {names[near[0]]}"
    return _INSTEAD["help-all"] if known else "--help lists all options"
