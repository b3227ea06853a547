"""What to give instead of a command or an option of version 0.2, or of another program.

This file is read only if a command line has a name that nmtalign does not know.
"""

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

from nmtalign.settings.definition import SECTIONS, SET, Setting, option

_COMMANDS: Mapping[str, str] = {
    "doctor": "`nmtalign info` without arguments describes this machine",
    "plot": "`nmtalign view` draws alignment files and learning curves",
    "explain": "`nmtalign view --live -m MODEL -o explain.html` writes the page",
    "score-pairs": "give `nmtalign translate SOURCE --target TARGET`",
    "lexicon": "`nmtalign link SRC TGT -o FOLDER` learns a translation table, FOLDER/lexicon.tsv",
    "docs": f"the pages are in {Path(__file__).parents[1] / 'docs'}",
}
"""What has replaced the commands of version 0.2."""
_WHICH = "give the file of the last weights: -m MODEL/last.safetensors"
_JSON = (
    'give each line as JSON, with --set input_format=json: {"text": "a fox", "prefix": "un", "phrases": ["le renard"]}'
)
_OF_TRANSLATE = "set it in section [translate] of nmtalign.toml"
_OF_TRAIN = "set it in section [train] of nmtalign.toml"
# What has replaced the options of version 0.2 that are not settings of the same name: options, or advice.
_SETTINGS = """
prep --keep-duplicates drop_duplicates=false; prep --separate joint=false; train --unidirectional bidirectional=false;
train --readout-word readout_previous_word=true; train --no-readout-word readout_previous_word=false;
translate --weights alignment_type=; align --weights alignment_type=; score --apart cumulative=false;
score --cased lowercase=false; aer --keep-links reverse_links=false; aer --links-method links=;
view --links hard_links=true; view --no-links hard_links=false
"""
_OPTIONS: Mapping[str, str] = {
    **{f"{command} {old}": f"{SET} {new}" for command, old, new in map(str.split, _SETTINGS.split(";"))},
    "train --restart": "--force",
    "link --quick": "--learn-from 50000",
    "translate --feature": "the feature in the list is always nmtalign=",
    **dict.fromkeys(("translate --prefix-file", "translate --phrase-file"), _JSON),
    **dict.fromkeys(("translate --which", "serve --which"), _WHICH),
    "score --all": "give the folders of the models as HYP",
    "score --all-words": "--no-known-words",
    **dict.fromkeys(("score --beam", "score --device"), _OF_TRANSLATE),
    "score --data": "--model",
    "score --save-translation": "translate with `nmtalign translate -o FILE`, and give FILE as HYP",
    "score --table1": "--known-words",
    "align --backward": "--model",
    "align --forward": "--model",
    "symmetrize --method": "--symmetrize",
    "view --name": "give NAME=FILE",
    "view --sentences": "--sentence",
    "reproduce --ablations": "train a model per change, as examples/ablations.sh does, and compare them with `score`",
    "reproduce --beam": _OF_TRANSLATE,
    **dict.fromkeys((f"reproduce --{name}" for name in ("device", "precision", "threads")), _OF_TRAIN),
}
# Options of version 0.2 that have no replacement, without `--` and `no-`.
_GONE: Mapping[str, str] = {
    "score": "attention attention-from by-frequency by-place table1 train-text",
    "align": "temperature drop-end keep-end",
    "aer": "by-type worst",
    "view": "colorbar",
    "reproduce": "long reordered text",
}
# Settings, options and arguments of nmtalign, and what OpenNMT-py, Marian, fairseq, Sockeye, JoeyNMT, sacreBLEU and
# fast_align call them.
_OTHER_PROGRAMS = """
learning_rate=lr,learn-rate beam=b,beam-size,num-beams n_best=n,nbest batch_size=b,bs,batch,mini-batch,max-tokens
epochs=e,epoch,max-epoch,max-epochs,num-epochs,after-epochs
max_updates=steps,max-steps,train-steps,max-update,updates,after-batches max_time=time,timeout,max-hours
patience=early-stop,early-stopping validate_every=valid-freq,valid-steps,eval-steps
checkpoint_every=save-freq,save-interval optimizer=optim,opt clip_norm=clip,clip-gradient,max-grad-norm
hidden=rnn-size,hidden-size,dim-rnn embedding=emb-size,embedding-size,word-vec-size,dim-emb
length_penalty=lenpen,length-norm,normalize,alpha seed=random-seed,seeds precision=fp16,bf16 device=gpu,gpus,cuda,cpu
threads=jobs,j,num-threads,cpu-threads,workers dev=valid,validation,valid-sets,validpref test=testpref
shortlist=vocab-size,dim-vocabs subwords=subword,bpe,bpe-codes,sentencepiece tokenize=tok,tokenizer
source_language=src-lang,source-lang target_language=tgt-lang,trg-lang,target-lang,l reference=ref
model=m,models,checkpoint output=o,out,save-model,save-dir source=src target=tgt,trg force=f,overwrite lowercase=lc
symmetrize=sym,heuristic
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


def advice_on_command(name: str, commands: Collection[str]) -> str:
    """What to give instead of a command that nmtalign, which has these commands, does not have."""
    if name in _COMMANDS:
        return _COMMANDS[name]
    near = difflib.get_close_matches(name, commands, n=1)
    return f"did you mean `nmtalign {near[0]}`?" if near else "`nmtalign --help` lists the commands"


def advice(command: str, name: str, options: Collection[str], known: Mapping[str, Setting]) -> str:
    """What to give instead of an option that a command does not have; "" if nothing is known.

    `options` are those of the command, `known` its settings.
    """
    if old := _OPTIONS.get(f"{command} {name}"):
        return f"nmtalign calls it {old}" if old.startswith("-") else old
    plain = name.lstrip("-").replace("_", "-").lower()
    if plain.removeprefix("no-") in _GONE.get(command, "").split():
        return "it was removed after version 0.2; leave it out"
    entries = [entry.split("=") for entry in _OTHER_PROGRAMS.split()]
    for one in [plain.replace("-", "_"), *(ours for ours, theirs in entries if plain in theirs.split(","))]:
        if option(one) in options:
            return f"nmtalign calls it {option(one)}"
        if one in known:
            return f"nmtalign calls it {SET} {one}="
    if (positive := plain.removeprefix("no-").replace("-", "_")) in known:
        return f"nmtalign calls it {SET} {positive}=false"
    if plain in _INSTEAD:
        return _INSTEAD[plain]
    if commands := [command for command, settings in SECTIONS.items() if plain.replace("-", "_") in settings]:
        return f"this is a setting of {' and '.join(f'`nmtalign {command}`' for command in commands)}"
    near = difflib.get_close_matches(plain.replace("-", "_"), known, n=1)
    return f"the nearest setting is {SET} {near[0]}=" if near else ""
