"""Names of options that other programs have: what to give instead."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.text.conversion import bare_name
from nmtalign.text.languages import suffix_language

NO_FILE = Path()  # the second value of an option for two files of which one is given

# Options of OpenNMT-py, Marian, fairseq, Sockeye, JoeyNMT, sacreBLEU and fast_align: names in a line, then the option
# of nmtalign. The first option that the command has is the right one.
_OTHER_PROGRAMS = """
lr learn-rate learningrate initial-learning-rate: --learning-rate
b beam-size beamsize num-beams beam-width: --beam --batch-size
n nbest nbest-size n-best-size num-return-sequences: --n-best
bs batch minibatch mini-batch max-tokens train-batch-size: --batch-size
epoch max-epoch max-epochs num-epochs after-epochs max-num-epochs e: --epochs
steps max-steps train-steps max-update updates after-batches num-updates: --max-updates
time timeout max-hours time-limit max-seconds: --max-time
early-stop early-stopping max-num-checkpoint-not-improved: --patience
valid-freq valid-steps valid-interval eval-every eval-steps validate-interval: --validate-every
save-freq save-interval save-every checkpoint-interval save-checkpoint-steps: --checkpoint-every
optim opt optimiser: --optimizer
clip clip-grad clip-gradient max-grad-norm gradient-clipping-threshold: --clip-norm
rnn-size hidden-size hidden-dim hidden-units rnn-num-hidden dim-rnn: --hidden
emb-size embedding-size embedding-dim word-vec-size src-word-vec-size num-embed dim-emb: --embedding
label-smooth smoothing: --label-smoothing
lenpen length-norm normalize alpha length-penalty-alpha: --length-penalty
coverage coverage-penalty-alpha: --coverage-penalty
random-seed seeds: --seed
fp16 bf16 half amp mixed-precision: --precision bf16
gpu gpus cuda use-cuda gpuid gpu-ids: --device cuda
cpu use-cpu no-cuda: --device cpu
jobs j num-workers num-threads cpu-threads nthreads workers threads: --workers --threads
valid val validation devel validation-source valid-sets validpref: --dev
testpref test-sets: --test
vocab-size vocabsize nwords num-words src-vocab-size dim-vocabs: --shortlist --size
min-freq word-min-count min-frequency minfreq threshold-src: --min-count
max-seq-len max-sent-len src-seq-length max-len max-len-b max-length-b: --max-length --max-length-ratio
subword bpe-codes subword-type: --vocabulary
src-lang source-lang srclang: --source-language
tgt-lang trg-lang target-lang tgtlang trglang l: --target-language
ref refs references reference-file: --reference
m models checkpoint ckpt load-model path model-path model-dir: --model --output
model save-model save-dir model-folder: --output --model
o out outfile output output-file: --output
src source source-file: --source
tgt trg target target-file: --target
overwrite replace: --force --restart
f force: --force --restart
resume continue: --resume
unk-replace replace-unknown replace-unknowns: --replace-unk
constraints lexical-constraints: --phrase-file
shortlist lexical-shortlist lex: --lexicon
temperature sampling-temp: --temperature
tok tokenizer: --tokenize --vocabulary
lc lowercase-all: --lowercase
sym symmetrization heuristic: --symmetrize --method
""".strip()
_SYNONYMS = {
    name: options.split(" --")
    for line in _OTHER_PROGRAMS.split("\n")
    for names, _, options in [line.partition(": --")]
    for name in names.split()
}
# What other programs take as options, and nmtalign as arguments or in another way.
_INSTEAD: Mapping[str, str] = {
    "src": "give the source text as an argument",
    "source": "give the source text as an argument",
    "input": "give the text as an argument",
    "i": "give the text as an argument",
    "tgt": "give the translation as the second argument",
    "trg": "give the translation as the second argument",
    "target": "give the translation as the second argument",
    "train-sets": "give the two training texts as arguments",
    "trainpref": "give the two training texts as arguments",
    "data": "give the folder of the corpus as an argument",
    "hyp": "give the translation as an argument",
    "resume": "the same command resumes an interrupted run",
    "continue": "the same command resumes an interrupted run",
    "verbose": "progress is shown unless --quiet is given",
    "v": "progress is shown unless --quiet is given",
    "comet": "compute COMET with its own command, and give its scores, one per line, with --segment-scores COMET=FILE",
}


def pairs_of_files(arguments: Sequence[str], parameters: Iterable[Any]) -> list[str]:
    """The arguments with NO_FILE after the value of an option of two files if it has only one, a TSV or TMX file.

    Raises UsageError if the one file is a text of one language, as in `--dev dev.en -o data`.
    """
    from nmtalign.text.parallel import is_plain

    options, result = {name for one in parameters if one.nargs == 2 for name in one.opts}, list(arguments)
    for place in (place for place in reversed(range(len(arguments))) if arguments[place] in options):
        given = list(
            itertools.takewhile(lambda one: one == "-" or not one.startswith("-"), arguments[place + 1 : place + 3])
        )
        both = bool(given) and bare_name(Path(given[0])).suffix.lower() in (".tsv", ".tmx")
        named = len(given) == 1 and not both and suffix_language(Path(given[0]))
        if not given or (named and (not Path(given[0]).exists() or is_plain(Path(given[0])))):
            name = arguments[place]
            raise UsageError(
                f"{name} needs two files, a text and its translation: {name} {name[2:]}.en {name[2:]}.fr; or one TSV "
                "or TMX file"
            )
        if both or len(given) == 1:
            result.insert(place + 2, str(NO_FILE))
    return result


def advice(name: str, command: str, own: Iterable[str], commands: Mapping[str, Iterable[str]]) -> str:
    """What to give instead of an option that `command` does not have; "" if nothing is known.

    `own` are the options of the command, `commands` those of all commands by name.
    """
    plain, own = name.lstrip("-").replace("_", "-").lower(), set(own)
    if f"--{plain}" in own:
        return f"nmtalign calls it --{plain}"
    if found := next((one for one in _SYNONYMS.get(plain, ()) if f"--{one.split()[0]}" in own), ""):
        return f"nmtalign calls it --{found}"
    if plain in _INSTEAD:
        return _INSTEAD[plain]
    others = [other for other, options in commands.items() if name in options]
    if not others and plain in _SYNONYMS:
        name = f"--{_SYNONYMS[plain][0]}"
        others = [other for other, options in commands.items() if name.split()[0] in options]
    if others:
        return f"{name} belongs to {', '.join(f'`nmtalign {other}`' for other in others)}"
    return ""
