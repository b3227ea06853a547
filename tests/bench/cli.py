"""The command line of the benchmark."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from nmtalign.errors import NmtalignError, UsageError

SKIPPABLE = ("memory", "optimizer", "startup")
SKIPPABLE_TRANSLATING = ("speed", "floor", "startup")
DESCRIPTION = (
    "Measures how fast nmtalign trains and translates on this machine, compared with naive code, with the time of its "
    "matrix products only, and with other toolkits."
)


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors as nmtalign does: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str]) -> int:
    """Runs a subcommand; a user's mistake gives one line on stderr and an exit code of nmtalign."""
    try:
        given = vars(_parser().parse_args(list(argv)))
        return _dispatch(given.pop("command"), given)
    except NmtalignError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain("out of memory; give a smaller size or batch", 5)
    except OSError as error:
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}", 5)


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"bench: error: {' '.join(message.split())}\n")
    return code


def _dispatch(command: str, given: dict[str, Any]) -> int:
    if command == "gpu":
        from bench.gpu import run as run_gpu

        return run_gpu(given)
    from nmtalign.cli.common import choose_wait_policy

    choose_wait_policy()  # before torch is imported, as `nmtalign train` and `translate` do
    if command == "memory":
        from bench.memory import measure

        measure(given["task"])
        return 0
    if command == "contestant":
        from bench.contestants import serve

        serve(given["task"])
        return 0
    if command == "translate":
        from bench.translate import run as run_translate

        return run_translate(given)
    if command == "align":
        from bench.align import run as run_align

        return run_align(given)
    if command == "round-trip":
        from bench.round_trip import run as run_round_trip

        return run_round_trip(given)
    if command == "score":
        from bench.score import run as run_score

        return run_score(given)
    if command == "quality":
        from bench.quality import run as run_quality

        return run_quality(given)
    if command == "share":
        from bench.scaling import measure_share

        measure_share(given["task"])
        return 0
    if command == "quick":
        from bench.quick import run as run_quick

        return run_quick(given)
    if command == "train":
        from bench.train import run as run_train

        return run_train(given)
    from bench.scaling import run as run_scaling

    return run_scaling(given)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bin/bench", description=DESCRIPTION)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="quick|train|scaling|translate|quality|align|score|round-trip|gpu"
    )
    quick = commands.add_parser("quick", help="training, translation, alignment, links and start-up in three minutes")
    _add_measuring(quick, repeats=3)
    _add_train(
        commands.add_parser("train", help="training: nmtalign, a naive loop, the floor; with --peers other toolkits")
    )
    _add_scaling(commands.add_parser("scaling", help="training: words/s by size, length, batch and processes; a plot"))
    _add_translate(
        commands.add_parser("translate", help="translation: nmtalign and a naive decoder; BLEU; start-up; peers")
    )
    _add_quality(commands.add_parser("quality", help="BLEU and dev loss after --words words; with --peers others too"))
    _add_align(commands.add_parser("align", help="forced decoding; writing, size and reading of alignment files"))
    _add_score(commands.add_parser("score", help="scoring three systems: seconds, memory, comparison with sacreBLEU"))
    _add_round_trip(commands.add_parser("round-trip", help="share of lines unchanged by tokenising and detokenising"))
    _add_gpu(
        commands.add_parser("gpu", help="a CUDA device: results beside float64, updates with and without CUDA graphs")
    )
    for hidden in ("memory", "share", "contestant"):  # subcommands of the processes that the others start
        commands.add_parser(hidden).add_argument("task")
    return parser


def _add_model(parser: argparse.ArgumentParser, size: str) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--size", default=size, metavar="NAME", help=f"paper, small, tiny or a system's preset [{size}]")
    group.add_argument("--vocabulary", type=_positive, metavar="N", help="words per side [depends on --size]")
    group.add_argument("--cell", choices=["paper", "cudnn", "lstm", "light", "minimal"])
    # Those of the plain loop (`naive.py`); the presets luong-* have the third order.
    group.add_argument("--order", choices=["look-generate-update", "look-update-generate"])
    group.add_argument("--attention", choices=["additive", "dot", "general", "none"])
    group.add_argument("--input-feeding", choices=["context", "attentional", "none"])
    group.add_argument("--unidirectional", dest="bidirectional", action="store_const", const=False)
    for name in ("hidden", "embedding", "attention-hidden", "maxout"):
        group.add_argument(f"--{name}", type=_positive, metavar="N")
    group.add_argument("--output-rank", type=int, metavar="N", help="rank of a factored output layer; 0 = not factored")
    group.add_argument("--dropout", type=float, metavar="P", help="[0]")


def _add_train(parser: argparse.ArgumentParser) -> None:
    _add_model(parser, "paper")
    work = parser.add_argument_group("work")
    work.add_argument("--batch", type=_positive, metavar="N", help="sentences per batch [80; with --data the preset's]")
    work.add_argument("--length", type=_positive, default=30, metavar="N", help="words per sentence, with `</s>` [30]")
    work.add_argument("--data", type=Path, metavar="DIR", help="use batches of this prepared corpus, not random words")
    work.add_argument("--batches", type=_positive, default=4, metavar="N", help="batches of the corpus [4]")
    _add_measuring(parser)
    work.add_argument("--variants", metavar="A,B", help="e.g. ours-bf16,loop-fp32, or all [all but one]")
    work.add_argument("--skip", type=_list_of(SKIPPABLE), default=[], metavar="A,B", help=", ".join(SKIPPABLE))
    peers = _add_peers(parser)
    peers.add_argument("--peer-seconds", type=float, default=60.0, metavar="S", help="training time of each [60]")


def _add_peers(parser: argparse.ArgumentParser) -> Any:
    peers = parser.add_argument_group("other toolkits, each installed into a separate environment")
    peers.add_argument("--peers", nargs="?", const="all", metavar="A,B", help="from joeynmt,opennmt,marian [all]")
    peers.add_argument("--peer-env", type=Path, metavar="DIR", help="folder for their environments [.venv-peers/]")
    return peers


def _add_translate(parser: argparse.ArgumentParser) -> None:
    _add_model(parser, "paper")
    work = parser.add_argument_group("work")
    work.add_argument("--beam", type=_numbers, default=[12, 5], metavar="A,B,..", help="[12,5]")
    work.add_argument("--sentences", type=_positive, metavar="N", help="sentences for nmtalign [128; small 256]")
    work.add_argument("--length", type=_positive, default=30, metavar="N", help="words in and out, with `</s>` [30]")
    work.add_argument(
        "--candidates", type=_positive, metavar="N", help="added to the lexicon's [1000; with --text 2000]"
    )
    work.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="[cpu]")
    _add_measuring(parser, repeats=3)
    work.add_argument("--variants", metavar="A,B", help="for example naive,ours-bf16 [all]")
    skippable = ", ".join(SKIPPABLE_TRANSLATING)
    work.add_argument("--skip", type=_list_of(SKIPPABLE_TRANSLATING), default=[], metavar="A,B", help=skippable)
    real = parser.add_argument_group("also your model on your text: what precision and candidates cost")
    real.add_argument("--model", type=Path, metavar="DIR")
    real.add_argument("--text", type=Path, metavar="FILE", help="source text, not tokenised")
    real.add_argument("--reference", type=Path, metavar="FILE", help="reference translation, for BLEU")
    real.add_argument("--lexicon", type=Path, metavar="FILE", help="lexicon that proposes candidate words")
    real.add_argument("--lexicon-data", type=Path, metavar="DIR", help="prepared corpus from which a lexicon is made")
    real.add_argument("--real-beam", type=_numbers, default=[12, 5, 1], metavar="A,B,..", help="[12,5,1]")
    peers = _add_peers(parser)
    peers.add_argument("--peer-sentences", type=_positive, default=64, metavar="N", help="lines for each toolkit [64]")


def _add_quality(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="prepared corpus of words, with a dev set"
    )
    parser.add_argument(
        "--test", type=Path, nargs=2, required=True, metavar="FILE", help="source and reference, not tokenised"
    )
    parser.add_argument(
        "--words", type=float, default=1e6, metavar="N", help="about how many target words to see [1e6]"
    )
    parser.add_argument("--minutes", type=_minutes, metavar="N,N", help="BLEU after these times instead, e.g. 5,10")
    parser.add_argument(
        "--size", default="small", choices=["paper", "small", "tiny", "transformer-tiny"], help="[small]"
    )
    parser.add_argument("--batch", type=_positive, default=80, metavar="N", help="sentences [80]")
    parser.add_argument(
        "--learning-rate", type=float, default=0.001, metavar="R", help="the same for all toolkits [0.001]"
    )
    parser.add_argument("--beam", type=_positive, default=5, metavar="N", help="[5]")
    parser.add_argument("--seed", type=int, default=1234, metavar="N", help="[1234]")
    parser.add_argument("--threads", type=_positive, default=2, metavar="N", help="threads of each training [2]")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="trainings at the same time [1]")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help="then measure the speed of training and decoding in N rounds"
    )
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="folder for texts and models, kept [a temporary folder]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here; - = stdout")
    _add_peers(parser).add_argument("--peers-only", action="store_true", help="leave nmtalign out")


def _add_align(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", default="small", choices=["paper", "small", "tiny"], help="[small]")
    parser.add_argument("--pairs", type=_positive, default=1_000_000, metavar="N", help="pairs in the file [1000000]")
    parser.add_argument("--length", type=_positive, default=25, metavar="N", help="words per side [25]")
    parser.add_argument(
        "--forced", type=_positive, default=2000, metavar="N", help="pairs that the model aligns [2000]"
    )
    parser.add_argument("--batch", type=_positive, default=80, metavar="N", help="sentences [80]")
    parser.add_argument("--reads", type=_positive, default=1000, metavar="N", help="random reads [1000]")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="[cpu]")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="parent of a temporary folder for the files")
    _add_measuring(parser, repeats=3)


def _add_score(parser: argparse.ArgumentParser) -> None:
    runs = ("counted, by length", "and intervals", "and paired bootstrap", "and approximate randomisation")
    parser.add_argument("--sentences", type=_positive, default=100_000, metavar="N", help="[100000]")
    parser.add_argument("--samples", type=_positive, default=1000, metavar="N", help="samples of the bootstrap [1000]")
    parser.add_argument("--trials", type=_positive, default=10_000, metavar="N", help="trials of randomisation [10000]")
    parser.add_argument(
        "--runs", nargs="+", choices=runs, metavar="NAME", help=f"one or more of: {'; '.join(runs)} [all]"
    )
    parser.add_argument(
        "--peer-sentences", type=_positive, default=300, metavar="N", help="sentences for sacreBLEU [300]"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="parent of a temporary folder for the texts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here; - = stdout")


def _add_round_trip(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of texts NAME.en and NAME.fr")
    parser.add_argument("--languages", type=_words, metavar="A,B", help="[en,fr]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here; - = stdout")


def _add_measuring(parser: argparse.ArgumentParser, repeats: int = 5) -> None:
    group = parser.add_argument_group("measuring")
    group.add_argument("--threads", type=int, default=2, metavar="N", help="threads; 0 = PyTorch's choice [2]")
    group.add_argument(
        "--repeats", type=_positive, default=repeats, metavar="N", help=f"rounds, after a warm-up round [{repeats}]"
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="also write the results here; - = stdout")


def _add_scaling(parser: argparse.ArgumentParser) -> None:
    _add_model(parser, "small")
    parser.add_argument(
        "--batch", type=_positive, default=80, metavar="N", help="sentences per batch on the other axes [80]"
    )
    parser.add_argument("--length", type=_positive, default=30, metavar="N", help="words per side, likewise [30]")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    for axis in ("hidden", "vocabulary", "length", "batch", "processes"):
        parser.add_argument(
            f"--{axis}-axis", type=_numbers, metavar="A,B,..", help=f"values of {axis}; 0 = no such axis"
        )
    _add_measuring(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the results: PNG, SVG or PDF")


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", default=None, choices=["paper", "small", "tiny"], help="model size [paper; on a CPU tiny]"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu = a dry run of the same code")
    parser.add_argument(
        "--batches", type=_numbers, metavar="A,B,..", help="sentences per batch [80,320,640,1280; on a CPU 2]"
    )
    parser.add_argument("--length", type=_positive, metavar="N", help="words per side, with `</s>` [30; on a CPU 3]")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="results [$OUT/bench-gpu.json; without OUT ./bench-gpu.json]"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def _numbers(text: str) -> list[int]:
    return [] if text == "0" else [_positive(part) for part in text.split(",")]


def _minutes(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < minutes < 10_000 for minutes in found):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of minutes such as 5,10")
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _list_of(allowed: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        for part in text.split(","):
            if part not in allowed:
                raise argparse.ArgumentTypeError(f"'{part}' is not one of {', '.join(allowed)}")
        return text.split(",")

    return parse
