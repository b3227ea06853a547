"""The command line of the benchmark: each subcommand is the function `run` of the module with its name."""

import argparse
import importlib
import sys
from pathlib import Path

from bench.report import write_json
from nmtalign.errors import NmtalignError, UsageError

COMMANDS = {
    "train": "training: nmtalign, a naive loop, the floor",
    "translate": "translation: nmtalign and a naive decoder",
    "quality": "BLEU, dev loss and speed of translation after --words words; with --peers others too",
    "links": "word aligners on texts with gold links: nmtalign link; with --peers eflomal, fast_align",
    "markup": "tags placed in translations by links, beside gold links: how many are exactly right",
    "gpu": "a CUDA device: updates with and without CUDA graphs, and their kernels",
}


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors as nmtalign does: one line, exit code 2."""

    def error(self, message):
        raise UsageError(f"{message}; see {self.prog} --help")


def main(argv):
    """Runs a subcommand; a user's mistake gives one line on stderr and an exit code of nmtalign."""
    try:
        given = vars(_parser().parse_args(list(argv)))
        command = given.pop("command")
        if command != "gpu":
            from nmtalign.cli.common import sleep_beside_others

            sleep_beside_others()  # before torch is imported, as `nmtalign train` and `translate` do
        results = importlib.import_module(f"bench.{command}").run(given)
        if results and given["json"]:
            write_json(given["json"], results)
        return 0
    except NmtalignError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain("out of memory; give a smaller size or batch", 5)
    except OSError as error:
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}", 5)


def _complain(message, code):
    sys.stderr.write(f"bench: error: {' '.join(message.split())}\n")
    return code


def _parser():
    parser = _Parser(prog="bin/bench", description="Measures nmtalign beside naive code, its products, other toolkits.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    added = {name: commands.add_parser(name, help=text) for name, text in COMMANDS.items()}
    commands.add_parser("memory").add_argument("task")  # of the process that `train` starts
    for one in added.values():
        one.add_argument("--json", type=Path, metavar="FILE", help="also write the results here; - = stdout")
    for name in ("train", "translate"):
        _add_model(added[name])
        _add(added[name], length=(30, "words per sentence, with `</s>`"))
        added[name].add_argument("--variants", metavar="A,B", help="for example naive,ours-bf16 [all]")
    for name, repeats in (("train", 5), ("translate", 3)):
        _add(added[name], threads=(2, "threads"), repeats=(repeats, "rounds, after a warm-up round"))
    _add_train(added["train"])
    _add_translate(added["translate"])
    _add_quality(added["quality"])
    _add_links(added["links"])
    _add_markup(added["markup"])
    _add_gpu(added["gpu"])
    return parser


def _add(parser, **options):
    """Adds options whose values are numbers above 0."""
    for name, (default, text) in options.items():
        shown = f"{text} [{default}]" if default is not None else text
        parser.add_argument(f"--{name.replace('_', '-')}", type=_positive, default=default, metavar="N", help=shown)


def _add_model(parser):
    parser.add_argument("--size", default="paper", metavar="NAME", help="paper, small, tiny or a preset [paper]")
    _add(parser, vocabulary=(None, "words per side [depends on --size]"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the model")


def _add_train(parser):
    _add(parser, batch=(None, "sentences [80; with --data the preset's]"), batches=(4, "batches of the corpus"))
    parser.add_argument("--data", type=Path, metavar="DIR", help="batches of this prepared corpus, not random words")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")


def _add_translate(parser):
    parser.add_argument("--beam", type=_numbers, default=[12, 5], metavar="A,B,..", help="[12,5]")
    _add(parser, sentences=(None, "for nmtalign [128; small 256]"), candidates=(1000, "added to the lexicon's"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="[cpu]")


def _add_quality(parser):
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="prepared corpus with a dev set")
    parser.add_argument("--test", type=Path, nargs=2, required=True, metavar="FILE", help="source and reference")
    parser.add_argument("--words", type=float, default=1e6, metavar="N", help="target words to see, about [1e6]")
    sizes = ["paper", "small", "tiny", "transformer-tiny"]
    parser.add_argument("--size", default="small", choices=sizes, help="[small]")
    parser.add_argument("--learning-rate", type=float, default=0.001, metavar="R", help="of all toolkits [0.001]")
    _add(parser, batch=(80, "sentences"), beam=(5, "width"), seed=(1234, "seed"), threads=(2, "of each training"))
    _add(parser, jobs=(1, "trainings at the same time"))
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for texts and models, kept [a temporary folder]")
    parser.add_argument("--peers", nargs="?", const="all", metavar="A,B", help="joeynmt,opennmt,marian [all]")
    parser.add_argument("--peer-env", type=Path, metavar="DIR", help="for their environments [.venv-peers/]")
    parser.add_argument("--peers-only", action="store_true", help="leave nmtalign out")


def _add_markup(parser):
    _add(parser, pairs=(20_000, "training pairs of the sample corpus"), spans=(20, "spans per sentence"))
    gold = "also PREFIX.SRC, PREFIX.TGT and PREFIX.gold, linked with the .gz files of the same name for train"
    parser.add_argument("--gold", nargs=3, action="append", metavar=("PREFIX", "SRC", "TGT"), help=gold)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for texts and aligners, kept [a temporary folder]")


def _add_links(parser):
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders: NAME.train.XX.gz, NAME.PART.gold")
    parser.add_argument("--part", default="dev", metavar="PART", help="the gold links: NAME.PART.gold [dev]")
    parser.add_argument("--methods", action="store_true", help="also join the two directions by each method")
    parser.add_argument("--peers", default="", metavar="A,B", help="eflomal,fast_align [none]")
    parser.add_argument("--peer-env", type=Path, metavar="DIR", help="a virtual environment that has them")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="parent of a temporary folder for the files")
    _add(parser, threads=(1, "threads"))


def _add_gpu(parser):
    parser.add_argument("--size", metavar="A,B,..", help="model sizes [paper; on a CPU tiny]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu = a dry run of the same code")
    parser.add_argument("--batches", type=_numbers, metavar="A,B,..", help="sentences per batch [80,320,640,1280]")
    _add(parser, length=(None, "words per side, with `</s>` [30; on a CPU 3]"))


def _positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def _numbers(text):
    return [_positive(part) for part in text.split(",")]


def as_settings(pairs):
    """{"cell": "lstm", "hidden": 512} of the values of `--set`."""
    given = {}
    for name, _, text in (pair.partition("=") for pair in pairs):
        words = {"true": True, "false": False}
        given[name] = words[text] if text in words else int(text) if text.isdigit() else text
    return given
