"""Mistakes that users make, and the one line and the exit code that each gets: a table for all commands."""

import contextlib
import gzip
import inspect
import itertools
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import COMMANDS, call
from helpers.records import add

import nmtalign
from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.settings.definition import SECTIONS, Settings, load_workspace, resolve


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A workspace with sample texts, a corpus, an untrained model and its alignments."""
    from nmtalign.alignment.link_files import read_links
    from nmtalign.sample.sample_corpus import write_sample

    home = tmp_path_factory.mktemp("mistakes") / "home"
    write_sample(home, 300)
    texts = [(home / f"{name}.en", home / f"{name}.fr") for name in ("train", "dev", "test")]
    nmtalign.prepare(*texts[0], home / "data", languages=("en", "fr"), dev=texts[1], test=texts[2])
    nmtalign.train(home / "data", home / "model", preset="tiny", max_updates=1, learning_rate=0.002)
    (home / "nmtalign.toml").unlink()
    for name in ("train.en", "train.fr"):
        shutil.copy(home / name, home / Path(name).with_suffix(".txt"))
    for name in ("empty.en", "empty.fr"):
        (home / name).touch()
    paragraphs = {language: (home / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "fr")}
    for language, lines in paragraphs.items():
        paragraphs_of_five = (f"{' '.join(lines[i : i + 5])}\n" for i in range(0, 300, 5))
        (home / f"long.{language}").write_text("".join(paragraphs_of_five), "utf-8")
        lines[::50] = [f"{line.partition(' ')[0]} <unk> ." for line in lines[::50]]
        (home / f"removed.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (home / "test.en.gz").write_bytes(gzip.compress((home / "test.en").read_bytes()))
    lines = [" ".join(f"{i}-{i}" for i, _ in zip(range(99), range(5), strict=False))] * 3
    (home / "links.txt").write_text("".join(f"{line}\n" for line in lines))
    gold = read_links(home / "test.align", "gold")
    turned = (" ".join(f"{j}-{i}" for i, j in sorted(pair.sure)) for pair in gold.pairs)
    (home / "turned.align").write_text("".join(f"{line}\n" for line in turned))
    write_odd_files(home)
    nmtalign.link(home / "test.en", home / "test.fr", home / "aligner", learn_from=50)
    return home


def write_odd_files(home: Path) -> None:
    """Files that are too short, or damaged, or of another kind, and alignments of three sentences."""
    texts = {"short.fr": "x\ny\nz\n", "one.links": "0-0\n", "bad.links": "0-0\n\n0:0\n", "long.wpt": "1 1 1\n4 1 1\n"}
    texts |= {
        "page.HTM": "<p>The cat sleeps.</p>\n",
        "list": "0 ||| un ||| a= 1 ||| 2\n",
        "far": "0 ||| un\n999 ||| un\n",
        "nan": "1\n-0.5\nnan\n" * 10,
    }
    for name, text in texts.items():
        (home / name).write_text(text)
    (home / "latin.fr").write_bytes(b"x\nl'\xe9t\xe9\n")
    (home / "bare").mkdir()
    for name, source in (("alignments.h5", "a"), ("b.h5", "b")):
        with AlignmentWriter(home / name, {}) as writer:
            add(writer, ["the", "cat"], ["le", "chat"], np.eye(3), -2.5)
            add(writer, [], ["été"], np.zeros((2, 1)), 0.0)
            for rank, word in enumerate(("le", "chat")):
                add(writer, [source], [word], np.eye(2), -1.0, links=[], rank=rank)
    (home / "cut.h5").write_bytes((home / "b.h5").read_bytes()[:900])


@pytest.fixture
def run(here):
    """Runs a command line in the workspace and this process: (exit code, stdout, lines of stderr)."""

    def run_line(command: str) -> tuple[int, str, list[str]]:
        code, out, err = here(*shlex.split(command))
        return code, out, err.splitlines()

    return run_line


ERRORS = """
2 prepp => no such command: prepp; did you mean `nmtalign prep`?
2 train --set hidden=many => --set hidden=many: must be a whole number
2 train --config absent.toml => absent.toml: cannot read: No such file or directory; give an existing file with --config
2 train --lr 0.1 => no such option: --lr; nmtalign calls it --set learning_rate=
2 translate -b 5 => no such option: -b; nmtalign calls it --beam
2 translate --beam_size=5 => no such option: --beam_size; nmtalign calls it --beam
2 translate test.en -output test.fr => no such option: -output; nmtalign calls it --output
2 translate -batch_size 5 => no such option: -batch_size; nmtalign calls it --set batch_size=
2 translate test.en -replace_unk => no such option: -replace_unk; nmtalign calls it --replace-unk
2 score out.fr -lc => no such option: -lc; nmtalign calls it --set lowercase=
2 score out.fr --paired-bs => no such option: --paired-bs; nmtalign calls it --significance
2 symmetrize links.txt links.txt -c union => no such option: -c; nmtalign calls it --symmetrize
2 translate --src in.en => no such option: --src;
2 align --tgt in.fr => no such option: --tgt; give the translation as the second argument
2 score --src in.en => no such option: --src; nmtalign calls it --source
2 train --gpu => no such option: --gpu; nmtalign calls it --device
2 train --n-best 5 => no such option: --n-best; this is a setting of `nmtalign translate`
2 score out.fr --metric bleu => no such option: --metric; nmtalign calls it --metrics
2 train --set metrics=bleu => --set: unknown setting 'metrics'; nmtalign calls it --set metric=
2 reproduce --seed 2 => no such option: --seed; nmtalign calls it --seeds
2 train --hiden 5 => no such option: --hiden; the nearest one is --set hidden=
2 train --zzzz => no such option: --zzzz; --help lists the options, --show-settings the settings that --set changes
2 symmetrize links.txt links.txt --zzzz => no such option: --zzzz; --help lists all options
2 translate test.en --ouput out.fr => no such option: --ouput; the nearest one is --output
2 translate –m model test.en => –m: begins with a long dash; write -m
2 train data —preset tiny => —preset: begins with a long dash; write --preset
2 train --set lr=0.1 => --set: unknown setting 'lr'; nmtalign calls it --set learning_rate=
2 train --set beam=5 => --set: unknown setting 'beam'; this is a setting of `nmtalign translate`
2 train --set preset=tiny => --set: unknown setting 'preset'; nmtalign calls it --preset
2 train --set layrs=2 => --set: unknown setting 'layrs'; the nearest one is --set layers=
2 train --set layers => --set layers: give a value, as in --set layers=N
2 train --set layers=0 => --set layers=0: must be at least 1
2 train --set cell=rnn => --set cell=rnn: must be one of paper,
2 train --set copy=maybe => --set copy=maybe: must be true or false
2 train --set layers=2 => --set layers=2 does not go with order = "look-generate-update" (the default):
2 train --set precision=int8 => --set precision=int8: must be one of auto, fp32, bf16
2 train --help-all => no such option: --help-all; --help lists the options, --show-settings the settings that
2 prep train.en train.fr --dev dev.en -o x => dev.en: one text is given; give its translation too
2 prep train.en train.fr --dev -o x => --dev needs a text and its translation, or one TSV or TMX file
2 prep train.en train.fr dev.en => dev.en: one argument too many: nmtalign prep takes only TRAIN_SRC TRAIN_TGT
2 prep train.en train.fr --force -o model => model: contains a model, which would lose its vocabularies
2 symmetrize links.txt => BACKWARD is missing: write nmtalign symmetrize FORWARD BACKWARD
2 translate --beam => --beam needs a value
2 train data -o data --force --dry-run => data: contains a prepared corpus; give another folder for the model with -o
2 train data model => model: one argument too many: nmtalign train takes only DATA
2 train data --max-time 90 => --max-time 90: give a time such as 60s, 15m, 2h or 1h30m
2 translate test.en --set max_memory=HUGE => give a size such as 500M or 2G
2 prep train.en train.fr -o x --shortlist HUGE => give N or N:M (source:target), each at least 3
2 prep train.en train.fr -o x --size 500 => --size 500: this is the number of subword pieces; add --subwords
2 translate test.en --glossary '' => error: --glossary: the name of a file is empty; is a variable of the shell unset?
2 translate -q test.en '' => error: translate: the name of a file is empty
2 link test.en test.fr --output= => error: -o: the name of a file is empty
2 link train.en => train.en: only one text is given; give two files, the source and its translation: SRC TGT; a file
2 align test.en test.fr --threshold 0.3 --set links=argmax => --threshold: links=argmax takes the largest weight
2 score test.fr -r test.fr --set target_language=x => --set target_language=x: is not a language; give a code
2 translate test.en --beam HUGE => ...: must be a whole number
2 train data -o x --set learning_rate=1e999 => --set learning_rate=inf: must be at most
2 train data -o x --set optimizer=adam --set weight_decay=0.1 => only adamw decays weights
2 reproduce --models none => --models none trains nothing; choose systems with --systems, too
2 reproduce => error: there is no nmtalign.toml with [corpus] here, and `reproduce` needs one: test = ["test.en",
4 serve -m missing --port 0 => missing: no nmtalign model here (no config.json); give the folder of a model, or train
4 export missing/ -o x => missing: no such file
4 train nowhere => nowhere: no prepared corpus here
4 info nowhere => nowhere: no such file or folder
4 info /dev/null => /dev/null: not an alignment file (it is no regular file)
4 info bare --card => bare: contains no model
2 info --card => --card describes a model; give its folder
4 train train.en => train.en: no prepared corpus here (no corpus.h5), but a text file; run nmtalign prep
4 translate -m train.en test.en => train.en: no nmtalign model here (no config.json), but a text file
4 translate -m data test.en => data: no nmtalign model here (no config.json), but a folder with a prepared corpus
3 translate model => model: is a folder with a model; give a text file, and the model with -m
4 view train.en => train.en: not an alignment file (it is a text file); `nmtalign align -o FILE.h5` writes one
3 translate missing.en => missing.en: cannot read: No such file or directory; give a text file, or text on stdin
3 prep train.en missing -o x => missing: cannot read: No such file or directory; give an existing text file
3 prep empty.en empty.fr -o x => empty.en and empty.fr: no lines; give files with text
3 score empty.fr -r test.fr => empty.fr: is empty; give a text with one line per sentence
2 sample /dev/null/x => /dev/null: is a file; give the name of a folder
2 sample x --seed 9223372036854775808 => --seed 9223372036854775808: must be at most 9223372036854775807
2 train data -o train.en => train.en: is a file; give the name of a folder
2 align test.en test.fr -o model => model: HDF5 needs a file: give a name such as alignments.h5
2 prep train.txt train.txt -o x => no language; give --source-language CODE and --target-language CODE, such as en
2 prep train.txt train.fr -o x => train.txt: its name contains no language; give --source-language CODE, such as en
2 prep train.en train.fr --source-language e_n -o x => 'e_n' is not a language; give a code such as en, de or zh
3 prep train.en train.fr --test test.fr test.en -o x => ; give --test test.en test.fr; --force accepts it as it is
2 prep train.fr train.en --source-language English --target-language fra -o x => train.fr and train.en are fr-en by thei
2 align test.fr test.en -o x.h5 => test.fr and test.en seem to be fr and en, and en-fr is expected (
3 aer test.align turned.align --source test.en --target test.fr => is the source first (else give --reverse-gold)?
3 aer test.align test.align -s test.en -t test.fr --reverse-gold => is the source first (else leave out --reverse-gold)?
2 train data -o model --preset tiny --set learning_rate=0.001 --set hidden=48 => model: contains a model trained with ot
2 train data -o model --preset small => to continue it, give what it was trained with (--preset tiny); else give another
2 prep => no training text: there is no nmtalign.toml here; give nmtalign prep TRAIN_SRC TRAIN_TGT
2 prep train.en -o x => train.en: one text is given; give its translation too
2 prep train.en train.fr -o x --vocabulary bpe => size = 8000 (the default): too large for train.en: its text gives
2 prep - - -o x => standard input (-) is given more than once
2 prep train.en train.fr -o x --subwords --vocabulary word => --subwords does not go with --vocabulary word: needs vo
2 prep train.en train.fr -o x --subwords --vocabulary-from x => --subwords does not go with --vocabulary-from x
2 prep train.en train.fr -o x --vocabulary bpe --vocabulary-from x => --vocabulary bpe does not go with --vocabulary-fr
2 prep train.en train.fr -o x --size 50 --vocabulary-from x => --size 50 does not go with --vocabulary-from x
2 prep train.en train.fr -o x --shortlist 90 --vocabulary-from x => --shortlist 90 does not go with --vocabulary-from x
2 prep train.en train.fr -o x --subwords --size 9000 => --size 9000: too large for train.en and train.fr: its text gives
3 prep train.en short.fr -o x => short.fr: has no line 4, but train.en has 300 lines
3 prep train.en latin.fr -o x => latin.fr: line 2: not UTF-8 (byte 0xe9 at column 3); convert the file to UTF-8
2 prep train.en train.fr -o x --dev-lines 300 => --dev-lines 300: too large for
2 prep train.en train.fr -o x --dev-lines 3 --dev dev.en dev.fr => there is a dev text, too
2 prep train.en train.fr -o x --set columns=1 => --set columns=1: give the source and the target column
3 link train.en short.fr -o x => short.fr: has no line 4, but train.en has 300 lines
3 link missing.en train.fr -o x => missing.en: cannot read: No such file or directory
3 link empty.en empty.fr -o x => empty.en and empty.fr: no lines; give files with text
2 link train.en - => standard input: is no file, and texts are read several times
2 link train.en train.fr -o train.en => train.en: is a file; give the name of a folder
2 link train.en train.fr -o . => .: has files that are not of nmtalign link; give another folder with -o
2 link dev.en dev.fr => aligner: has links of other or older texts (
2 link test.en test.fr => aligner: has links made with other settings: learn_from was 50, is 0
2 link train.en train.fr --max-time 1m => --max-time; give --learn-from N; the time grows with N
2 align test.en test.fr -m aligner --reading shifted => has no attention weights
2 align test.en test.fr -m aligner -m aligner => has both directions
3 align test.en short.fr -o x.h5 => short.fr: has no line 4
2 align test.en => SRC TGT
2 align => no pairs to align
2 align test.en test.fr -m aligner -o x.txt => such as alignments.h5; links are text: --pharaoh > FILE
2 link train.en train.fr -o x.align => -o is the folder of the aligner; links go to standard output: > x.align
2 align test.en test.fr -o - => -o -: standard output is not possible here
2 align test.en test.fr -o test.en/x.h5 => test.en: is a file; give the name of a folder
2 align test.en test.fr --gold test.align => --gold; compare with gold links: `nmtalign aer FILE.h5 GOLD`
2 align test.en test.fr --symmetrize union => --symmetrize joins two directions
2 align test.en test.fr -m model -m model -m model => -m is given more than twice
2 align test.en test.fr -m model -m model => translates en-fr, and
2 align test.en test.fr --resume --pharaoh => --pharaoh would print only the rest
3 symmetrize links.txt one.links => one.links: has no line 2, but links.txt has 3 lines
3 symmetrize links.txt bad.links => bad.links: line 3: '0:0' is not a link
2 symmetrize - - => standard input (-) is given more than once
2 symmetrize links.txt links.txt --symmetrize mean => 'mean' is not one of 'intersection', 'union'
2 symmetrize links.txt links.txt -o . => .: is not a file that can be replaced; give another name
2 symmetrize alignments.h5 b.h5 => alignments.h5: texts of links are joined; for HDF5 files align with both models
2 aer links.txt => nmtalign aer LINKS GOLD
2 aer links.txt links.txt --gold-base 2 => --gold-base
3 aer links.txt one.links --links-base 1 => links.txt: line 1: '0-0' has a position 0
3 aer one.links links.txt --gold-base 1 => links.txt: line 1: '0-0' has a position 0
2 aer alignments.h5 links.txt --links-base 1 => count from 0; leave --links-base out
3 aer links.txt one.links => one.links: has no line 2
3 aer links.txt links.txt -s one.links => one.links: has no line 2
3 aer links.txt long.wpt => long.wpt: a link of sentence 4, but links.txt has 3 lines
3 aer links.txt links.txt -s short.fr => links.txt: line 1: link 1-1 (counted from 0) points outside
2 aer links.txt links.txt --by-length => no such option: --by-length; it was removed after version 0.2
2 aer alignments.h5 links.txt --links-method argmax => no such option: --links-method; align again with
4 aer cut.h5 links.txt => cut.h5: damaged
3 translate test.en --glossary links.txt => links.txt: line 1: needs one tab, with text on both sides: a term
2 aer - - => standard input (-) is given more than once
2 translate - --glossary - => standard input (-) is given more than once
2 translate test.en --glossary links.txt --set sample=true => a sample cannot be made to contain given phrases
2 translate test.en --split-sentences --tokenized => tokenised text is not split; give raw text
3 translate test.en -o x --target short.fr => short.fr: has no line 4, but test.en has
2 translate test.en -o x - --target test.fr => test.fr: is scored with one source text, and 2 are given; give one
2 translate test.en -o x --target - --set glossary=- => standard input (-) is given more than once
2 translate test.en -o x --target test.fr --alignment hard => test.fr: is only scored; leave out --alignment (
2 translate test.en -o x --n-best-list list --n-best 2 => list: is only scored; leave out --alignment (nmtalign align
2 translate test.en -o x --target test.fr --rescore => --rescore sorts an n-best list: give --n-best-list FILE
2 translate test.en -o x --target test.fr --n-best-list list => --target scores given translations; leave out --n-best-
2 translate test.en -o x --target test.fr --resume => --target scores given translations; leave out --resume
2 translate test.en -o x --target test.fr --set input_format=json => is scored with plain text; leave out input_format
2 translate test.en -o x --n-best-list list --format json => leave out --format json
3 translate test.en -o x --n-best-list test.fr => test.fr: line 1: not a line of an n-best list
3 translate test.en -o x --n-best-list far => far: line 2: id 999 needs line 1000 of test.en, which has
2 translate test.en --markup html --n-best 2 => --markup translates one document
2 translate test.en --markup html --format json => --markup translates one document
2 translate test.en --markup html --alignment hard => --markup translates one document
2 translate test.en --markup html --set word_scores=true => --markup translates one document
2 translate test.en --markup html --resume -o x => --markup translates one document
2 translate test.en --markup html --save-alignments x.h5 => --markup translates one document
2 translate test.en --markup html test.en => --markup translates one document
2 translate test.en --markup html --target test.fr => --markup translates one document
2 translate test.en --markup html --tokenized => give raw text
3 translate test.en --markup xliff => test.en: not XML
3 translate latin.fr --markup html => latin.fr: line 2: not UTF-8
3 translate test.en --markup srt => test.en: not srt: it has no times
2 export alignments.h5 --format numpy => numpy
2 export alignments.h5 --weights int8 => alignments.h5: is no model directory; leave out --weights
2 export alignments.h5 -o b.h5/links => b.h5: is a file; give the name of a folder
2 export model => model: the copy of a model needs a folder: give -o FOLDER
2 export model -o - => give -o FOLDER
2 export model -o x --format json => model: a model has no format 'json': give ct
2 export model -o data => data: contains other files
2 export model -o x --format ctranslate2 => model: architecture = recurrent; CTranslate2 runs only
5 serve -m model --port 0 --host 192.0.2.1 => cannot listen on 192.0.2.1
2 serve -m model --port 0 --host 'no host' => --host no host: there is no such address
2 serve -m model -m model --port 0 => give one model per direction
2 serve -m model --port 70000 => --port 70000: must be at most 65535
4 serve -m model --port 0 --set aligner=absent => absent: no word aligner here (no aligner.safetensors); give the folder
2 serve -m model -m model --port 0 --set lexicon=x => a lexicon, glossary or aligner is for one direction
2 reproduce --hours 5 --words 1e6 => does not go with --hours 5
2 reproduce --hours 0 => --hours 0: must be greater than 0
2 reproduce --systems spell => --systems spell: unknown; give all, none, or some of rnnsearch,
2 view --sentence 3 => no sentence 3: choose one from 0 to 2
2 view --sentence 3 -o x.html => no sentence 3; it has sentences 0 to 2
2 view --sentence=-1 => --sentence: '-1' is not a number or a range
2 view -s 2 --rank 2 => sentence 2 has no rank 2; give a --rank up to 1
2 view -o x.gif => x.gif: give the name of a file that ends in .html, .png, .svg or .pdf
2 view -o bare => bare: give the name of a file
2 view --sentence 1 -o x.png => sentence 1: nothing to draw
3 view alignments.h5 b.h5 -s 2 => b.h5: sentence 2 has another source than in alignments.h5
3 view --gold links.txt -s 1 => links.txt: line 1: link 2-2 (counted from 0) points outside the pair
2 view model alignments.h5 => alignment files and models are drawn differently
2 view model --title x => a model has learning curves; leave out --sentence, --gold and --title
2 view alignments.h5 -s 0,2 --title x -o x.svg => --title is the caption of one picture, and these are 2
2 view model -o x.html => learning curves are a figure
4 view bare => bare/train.jsonl: cannot read: No such file or directory; give a model directory
2 view -m model => the live page runs models: give both --live and --model
2 view --live -m model => the live page needs a file: give -o live.html
2 view --live -m model -o x.html -s 3 => the live page translates any sentence
2 view --live -m model test.en test.fr -o x.png => the live page needs a file: give -o live.html
2 view --live -m model test.en -o x.html => from the two texts of a test set: give SRC TGT
2 score -m model -m model => -m is given more than once: give models that are compared as arguments
2 view --live model -o x.html => the two texts of a test set: give SRC TGT, and -m MODEL
2 view --live -m model test.fr test.en -o x.html => test.fr and test.en seem to be fr and en, and en-fr is expected (
4 prep train.en train.fr --vocabulary-from test.en -o x => test.en: contains neither a model (config.json) nor a corpus
2 score test.fr => no reference: give it with -r
2 score - x=- -r test.fr => standard input (-) is given more than once
3 score test.fr short.fr -r test.fr => short.fr: has no line 4, but test.fr has
3 score test.fr -s short.fr -r test.fr => short.fr: has no line 4, but test.fr
2 score model -r test.fr => nothing to translate: give the source with -s
2 score test.fr --by-length -r test.fr => scores by length: give the source with -s, or add --set length_of
2 score test.fr --known-words -m x -r test.fr => known words: give the source with -s
4 score test.fr -s test.en --known-words -m x -r test.fr => x: no vocabularies here
2 score test.fr --metrics bleu,tre -r test.fr => unknown 'tre'; give one of bleu, chrf, chrf++, ter
2 score test.fr --metrics bleu, -r test.fr => unknown ''; give one of bleu, chrf, chrf++, ter
2 score test.fr --metrics all,comet -r test.fr => unknown 'comet'; give one of bleu, chrf, chrf++, ter
2 score test.fr --set tokenize=intel -r test.fr => unknown 'intel'; give one of 13a, none, intl
2 score test.fr --metrics multi-bleu -r list => multi-bleu needs the language
2 score test.fr --plot x.gif -r test.fr => x.gif: give a name that ends in .png, .svg or .pdf
2 score test.fr --plot x.png -r test.fr => --plot draws scores by length: add --by-length
2 score test.fr --html x.txt -r test.fr => x.txt: a page's name ends in .html
2 score test.fr --differences 3 -r test.fr => --differences compares systems; give two or more
2 score test.fr --significance ar -r test.fr => --significance compares systems; give two or more
2 score test.fr --metrics ter --fail-under 30 -r test.fr => --fail-under: a lower TER is better
2 score test.fr --fail-under nan -r test.fr => --fail-under nan: must be at least
2 score test.fr --segment-scores test.fr -r test.fr => --segment-scores test.fr: give METRIC=FILE
2 score test.fr --segment-scores BLEU=nan -r test.fr => nmtalign computes BLEU; give another name
2 score test.fr dev.fr --segment-scores x=nan -r test.fr => --segment-scores x: 1 file for 2 systems
3 score test.fr --segment-scores x=short.fr -r test.fr => short.fr: has no line 4
3 score test.fr --segment-scores x=nan -r test.fr => nan: line 3: 'nan' is not a number
2 translate --which last => -m MODEL/last.safetensors
2 serve --which=last => -m MODEL/last.safetensors
2 translate --prefix-file a => "prefix":
2 score --by-place => it was removed after version 0.2; leave it out
2 reproduce --threads 2 => set it in section [train] of nmtalign.toml
2 score-pairs -m a => give nmtalign translate SOURCE --target TARGET
2 explain -s text => the live page translates any sentence: leave out -s
2 lexicon a b --links c => `nmtalign lexicon --links` is gone: `nmtalign link SRC TGT -o FOLDER` learns
2 lexicon data => `nmtalign lexicon` of anything but two texts is gone:
"""
CASES = [one.replace("HUGE", "9" * 5000).split(" => ") for one in ERRORS.strip().splitlines()]


@pytest.mark.parametrize(("command", "words"), CASES, ids=[one[0][:60] for one in CASES])
def test_an_error_is_one_line_that_leads_to_the_fix(run, folder, command, words):
    before = sorted(path.name for path in folder.iterdir())
    code, _, command = command.partition(" ")
    found, out, lines = run(command)
    assert (found, out) == (int(code), ""), lines
    assert lines[-1].startswith("nmtalign: error: ")
    assert words in lines[-1]
    assert all("warning" in line for line in lines[:-1])
    assert sorted(path.name for path in folder.iterdir()) == before


WARNINGS = """
translate test.fr --beam 1 --set max_length_ratio=1 => test.fr: seems to be fr, not en:
score test.en -r test.fr -s test.en --metrics bleu => test.en: 100% of its words are in the source,
score test.fr -r test.en -s test.fr --metrics bleu => are source and reference in the right order?
score test.en -r test.fr --metrics bleu => test.en is en by its name, and the reference test.fr is fr; give a
prep train.en train.fr --dev dev.fr dev.en -o forced --force => dev: dev.fr and dev.en seem to be fr and en
prep train.en train.fr --dev train.en train.fr -o same => the training text has 300 of 300 pairs of dev, so
prep train.en train.fr --subwords --shortlist 99 -o pieces => --shortlist 99 has no effect: no piece is left out
prep train.en train.fr --vocabulary word --size 99 -o words => --size 99 has no effect: only subword pieces have a size
translate page.HTM --beam 1 => page.HTM: is translated as lines of text; give --markup html
prep train.en train.fr --set columns=1,2 -o columns => --set columns=1,2 has no effect: no text is one file of both
prep removed.en removed.fr -o removed => removed.en: 2% of the lines have <unk> in place of a word, which no model
prep long.en long.fr -o long => long.en: 100% of the lines are paragraphs and not sentences; max_length = 50 drops
"""


@pytest.mark.parametrize("line", WARNINGS.strip().splitlines(), ids=lambda line: line.partition(" => ")[0])
def test_an_uncertain_mistake_is_a_warning(run, line):
    command, _, words = line.partition(" => ")
    code, out, lines = run(command)
    assert code == 0
    assert out
    assert [line for line in lines if line.startswith("nmtalign: warning: ") and words in line]


def test_no_warning_where_nothing_is_wrong(run):
    for command in (
        "prep train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o fine -q",
        "prep train.txt train.txt --source-language de_DE --target-language German -o german -q --force",
        "score test.fr -r test.fr -s test.en --metrics bleu -q",
    ):
        code, _, lines = run(command)
        assert code == 0
        assert not [line for line in lines if "seem" in line or "by its name" in line], lines


def test_another_corpus_names_what_differs(run):
    assert run("prep train.en train.fr -o other --shortlist 90:80 -q")[0] == 0
    code, _, lines = run("train other -o model --preset tiny --set learning_rate=0.002")
    assert code == 2
    assert 'model: contains a model trained on another corpus: shortlist of prep was "30000", is "90:80",' in lines[-1]
    assert "the source vocabulary is another (" in lines[-1]
    assert "words, now 90), the target vocabulary is another (" in lines[-1]


def test_languages_without_spaces_get_subwords(run, folder):
    for name, line in (("zh", "我 喜 欢 读 书 和 看 电 影"), ("en", "I like to read books and to watch films")):
        words = line.split()
        turned = (words[i % len(words) :] + words[: i % len(words)] for i in range(200))
        joint = "" if name == "zh" else " "
        (folder / f"asia.{name}").write_text("".join(f"{joint.join(one)}\n" for one in turned), "utf-8")
    code, _, lines = run("prep asia.zh asia.en --size 12:25 -o asia")
    assert code == 0
    assert "nmtalign: zh is written without spaces between words: the vocabulary is unigram pieces" in lines
    code, _, lines = run("prep asia.zh asia.en --vocabulary word -o asia --force")
    warning = "nmtalign: warning: asia.zh: has no spaces between words, so each line becomes a few long words; give "
    assert f"{warning}--vocabulary unigram" in lines


# Parameters with the path of an input. Every other path is an output, and is tested as one.
INPUTS = (
    "alignments average backward config data dev files forward glossary gold guided_alignment hypotheses init_from "
    "inputs lexicon model n_best_list path reference segment_scores source target test train_source train_target "
    "vocabulary_from"
)


def paths_of(command) -> list:
    """The parameters of a command that are paths."""
    annotations = inspect.signature(command.callback, eval_str=True).parameters
    return [one for one in command.params if "Path" in str(annotations.get(one.name))]


OUTPUTS = [(name, one.name) for name, command in COMMANDS.items() for one in paths_of(command)]
OUTPUTS = [(name, output) for name, output in OUTPUTS if output not in INPUTS.split()]


def spellings(path: Path, ending: str) -> list[str]:
    """Names of a file: relative and absolute ones, a symbolic and a hard link; the links have this ending."""
    links = Path(f"symbolic{ending}"), Path(f"hard{ending}")
    for link in links:
        link.unlink(missing_ok=True)
    links[0].symlink_to(path.absolute())
    links[1].hardlink_to(path)
    Path("sub").mkdir(exist_ok=True)
    return [str(path), f"./{path}", f"sub/../{path}", str(path.absolute()), *map(str, links)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuse(*arguments: str) -> str:
    """Runs a command line that must be refused without changing a file; returns the message."""
    before = content(Path())
    with pytest.raises((NmtalignError, OSError)) as raised:
        call(*arguments)
    assert content(Path()) == before
    return str(raised.value)


@pytest.mark.parametrize(("command", "output"), OUTPUTS, ids=["-".join(one) for one in OUTPUTS])
def test_no_output_replaces_an_input_by_any_name(tmp_path, monkeypatch, command, output):
    monkeypatch.chdir(tmp_path)
    paths = {one.name: one for one in paths_of(COMMANDS[command])}
    written = paths.pop(output)
    inputs = [one for one in paths.values() if one.name in INPUTS.split()]
    place, folders = len([one for one in inputs if one.param_type_name == "argument"]), ("FOLDER", "DIR")
    ending = f".{written.metavar.partition('.')[2].partition('|')[0]}".rstrip(".")
    for one in inputs:
        file = Path("input.tsv")  # one file that may have two texts
        file.write_text("a 0-0\n")
        given = [f"{one.name}.txt"] * place
        if one.param_type_name == "argument":
            given = [str(file)] * place
        for name in spellings(file, ending):
            option = [] if one.param_type_name == "argument" else [max(one.opts, key=len), str(file)]
            target = [max(written.opts, key=len), name] if written.param_type_name == "option" else [name]
            messages = refuse(command, *given, *option, *target)
            assert written.metavar in folders or f"{name.removeprefix('./')}: is also an input" in messages


FOUND = [  # what a command reads although its arguments do not name it
    ("align -o", "test.en test.fr data/corpus.h5 model/config.json model/best.safetensors nmtalign.toml"),
    ("translate test.en -o", "terms.tsv lexicon.txt model/tokenizer.json nmtalign.toml"),
    ("translate test.en --save-alignments", "terms.tsv lexicon.txt model/best.safetensors"),
    ("score -m model --html", "test.en test.fr"),
    ("score -m model --plot", "test.en test.fr"),
    ("view -o", "alignments.h5"),
    ("view -m model -o", "test.en test.fr model/config.json nmtalign.toml"),
    ("view model -o", "model/train.jsonl"),
]


@pytest.mark.parametrize(("command", "file"), [(one, file) for one, files in FOUND for file in files.split()])
def test_no_output_replaces_what_a_command_finds_by_itself(folder, tmp_path, monkeypatch, command, file):
    home = tmp_path / "home"
    shutil.copytree(folder, home)
    monkeypatch.chdir(home)
    (home / "nmtalign.toml").write_text(
        '[corpus]\ntest = ["test.en", "test.fr"]\ngold = "test.align"\n'
        '[translate]\nglossary = "terms.tsv"\nlexicon = "lexicon.txt"\n'
    )
    for name in ("terms.tsv", "lexicon.txt", "alignments.h5"):
        (home / name).write_text("a\ta\n")
    endings = {"score -m model --html": ".html", "score -m model --plot": ".png"}
    ending = endings.get(command, "")
    for name in spellings(Path(file), ending):
        messages = refuse(*command.split(), name)
        assert "is also an input" in messages or (ending and not name.endswith(ending))


def test_no_text_is_replaced_by_a_file_of_its_corpus(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language in ("en", "fr"):
        shutil.copy(folder / f"train.{language}", f"train.{language}")
    made = ["prep", "train.en", "train.fr", "--dev-lines", "30", "-o", "data", "-q"]
    call(*made)
    shutil.copy("data/dev.en", "linked.en")
    Path("data/dev.en").unlink()
    Path("data/dev.en").hardlink_to("linked.en")
    for source in ("data/dev.en", "linked.en", "data/source.vocabulary.txt"):
        given = f"prep {source} data/dev.fr --source-language en --dev-lines 3 --force -o data"
        assert "is also an input" in refuse(*given.split())


def test_two_outputs_are_two_files(folder, monkeypatch):
    monkeypatch.chdir(folder)
    messages = refuse("translate", "test.en", "-o", "new.fr", "--save-alignments", "./sub/../new.fr")
    assert messages == "sub/../new.fr: is given for -o and for --save-alignments; give two files"
    shutil.copy("test.en", "part.fr.partial")
    assert refuse("translate", "part.fr.partial", "-o", "part.fr").startswith("part.fr: is also an input")


@pytest.mark.parametrize(("command", "output"), OUTPUTS, ids=["-".join(one) for one in OUTPUTS])
def test_no_command_makes_a_file_named_with_a_hyphen(folder, monkeypatch, command, output):
    monkeypatch.chdir(folder)
    (written,) = (one for one in COMMANDS[command].params if one.name == output)
    arguments = {"translate": "test.en", "align": "test.en test.fr", "export": "train.en", "symmetrize": "a b"}
    given = [*arguments.get(command, "").split()]
    option = [min(written.opts, key=len)] if written.param_type_name == "option" else []
    with contextlib.suppress(NmtalignError, OSError):
        call(command, *given, *option, "-")
    assert not (folder / "-").exists()


TYPES = (  # of TOML; a text, and what may be one
    '"x"', '""', "3", "-3", "9223372036854775807", "2.5", "inf", "-inf", "nan", "true", "1979-05-27T07:32:00Z",
    "1979-05-27T07:32:00", "1979-05-27", "07:32:00", '["tiny"]', '["a", "b"]', "[]", '[["a"], ["b"]]', "{}", "{a = 1}",
    "[{a = 1}]", f'"{"9" * 400}"', f'"{"9" * 5000}"',
)  # fmt: skip
KEYS = {
    "": ["source_language", "data", "model", "corpus", *SECTIONS],
    "corpus": ["train", "dev", "test", "gold", "tests"],
    "corpus.tests": ["news"],
    **SECTIONS,
}


@pytest.mark.parametrize("section", KEYS)
def test_a_key_of_any_type_is_accepted_or_named_with_its_file(tmp_path, monkeypatch, section):
    monkeypatch.chdir(tmp_path)
    for key, value in itertools.product(KEYS[section], TYPES):
        Path("nmtalign.toml").write_text(f"[{section}]\n{key} = {value}\n" if section else f"{key} = {value}\n")
        messages = "nmtalign.toml: " + key
        try:
            workspace = load_workspace(None)
            for cls in Settings.__subclasses__():
                if cls.section == section:
                    resolve(cls, workspace.section(section))
        except UsageError as error:
            messages = str(error)
        assert messages.startswith("nmtalign.toml: ")
        assert key in messages
        assert len(messages) < 500
        assert "\n" not in messages


@pytest.mark.parametrize("value", ['["tiny"]', "3", "{a = 1}", "1979-05-27", "[[1]]"])
def test_a_preset_that_is_no_text_is_refused_by_every_command(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    Path("nmtalign.toml").write_text(f"[train]\npreset = {value}\n")
    for command in ("train", "score", "sample a"):
        assert refuse(*command.split()).startswith("nmtalign.toml: [train] preset = ")
