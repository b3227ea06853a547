"""`nmtalign score-pairs`: the log-probability of given translations, and of n-best lists."""

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from nmtalign.checks import naming
from nmtalign.cli.common import (
    MACHINE,
    ConfigOption,
    DeviceOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    WhichOption,
    bound_caches,
    choose_wait_policy,
    notifier,
)
from nmtalign.cli.counting import counted
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import atomic_text
from nmtalign.model_files import check_ahead
from nmtalign.text.lines import STDIN
from nmtalign.workspace import Workspace, given, load_workspace

if TYPE_CHECKING:
    from nmtalign.translating.translation import ScoredPair
    from nmtalign.translating.translator import Translator

# Settings of section [translate] that say what a score is, and how the machine is used.
_PENALTIES = ("length_penalty", "word_penalty", "coverage_penalty")
_SETTINGS = frozenset(
    (*_PENALTIES, "search", "ensemble", "tokenized", "batch_size", "max_memory", "device", "precision", "threads")
)
_N_BEST, _OUTPUT, _SCORE = "N-best lists", "What comes out", "What a score is"

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SOURCE", help="Source text or .gz file (default: the workspace's test set).", show_default=False
    ),
]
Target = Annotated[
    Path | None, typer.Argument(metavar="TARGET", help="Its translation, line by line.", show_default=False)
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        help="Model directory [dim](default: the workspace's, or model/)[/dim]; several score together.",
    ),
]
NBest = Annotated[
    Path | None,
    typer.Option("--n-best", metavar="FILE", help="Score a Moses n-best list, not pairs.", rich_help_panel=_N_BEST),
]
NBestSource = Annotated[
    Path | None,
    typer.Option(
        "--source", "-s", metavar="FILE", help="What the list translates, a sentence a line.", rich_help_panel=_N_BEST
    ),
]
Feature = Annotated[
    str, typer.Option(metavar="NAME", help="Name of the feature that is added.", rich_help_panel=_N_BEST)
]
Rescore = Annotated[
    bool,
    typer.Option("--rescore", help="Set each score to the model's, the best first.", rich_help_panel=_N_BEST),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write here, whole or not at all.", rich_help_panel=_OUTPUT),
]
Format = Annotated[
    Literal["text", "json"], typer.Option(help="A number a line, or an object.", rich_help_panel=_OUTPUT)
]
WordScores = Annotated[
    bool,
    typer.Option(
        "--word-scores",
        help="Also those of the tokens and </s>, and the tokens: columns two and three. "
        "In a list the feature WordScores=.",
        rich_help_panel=_OUTPUT,
    ),
]
Tokenized = Annotated[
    bool | None,
    typer.Option("--tokenized/--raw", help="The text is tokenised as the model's is.", rich_help_panel=_SCORE),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="ALPHA",
        help="Print the score: log-probability / length^ALPHA, </s> counted.",
        rich_help_panel=_SCORE,
    ),
]
WordPenalty = Annotated[
    float | None, typer.Option(metavar="P", help="As in translate; prints the score too.", rich_help_panel=_SCORE)
]
CoveragePenalty = Annotated[
    float | None, typer.Option(metavar="P", help="As in translate; prints the score too.", rich_help_panel=_SCORE)
]
EnsembleRule = Annotated[
    str | None,
    typer.Option(metavar="probability|log", help="What is averaged over several models.", rich_help_panel=_SCORE),
]
BatchSize = Annotated[
    int | None,
    typer.Option(metavar="N", help="Words scored together, padding counted; 0 = enough.", rich_help_panel=MACHINE),
]


@dataclass(frozen=True)
class _Task:
    """What is scored, and what comes out."""

    source: Path
    target: Path
    lists: bool  # whether the target is an n-best list
    feature: str
    rescore: bool
    json: bool
    word_scores: bool
    as_score: bool
    quiet: bool


@dataclass
class _Tally:
    pairs: int = 0
    words: int = 0  # target tokens, `</s>` counted, of pairs that the models were asked for
    unknown: int = 0
    log_prob: float = 0.0

    def count(self, pair: "ScoredPair") -> None:
        self.pairs += 1
        if not pair.blank:
            self.words += len(pair.token_log_probs)
            self.unknown += pair.target_unknown
            self.log_prob += pair.log_prob

    def summary(self) -> str:
        mean = self.log_prob / max(self.words, 1)
        perplexity = math.exp(-mean) if mean > -700 else math.inf
        return (
            f"{self.pairs:,} pairs, {self.words:,} target tokens with </s>: log-probability {mean:.4f} a token, "
            f"perplexity {perplexity:.2f}; {self.unknown / max(self.words, 1):.2%} of the tokens are unknown"
        )


def score_pairs(
    source: Source = None,
    target: Target = None,
    model: Models = None,
    n_best: NBest = None,
    n_best_source: NBestSource = None,
    feature: Feature = "nmtalign",
    rescore: Rescore = False,
    output: Output = None,
    format: Format = "text",
    word_scores: WordScores = False,
    tokenized: Tokenized = None,
    length_penalty: LengthPenalty = None,
    word_penalty: WordPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    ensemble: EnsembleRule = None,
    which: WhichOption = "best",
    batch_size: BatchSize = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Score given translations: the log-probability of each, a line a pair.

    What translate finds has here the log-probability and score it had there,
    if the tokens are the same: write and read them with --tokenized. A target
    without words is scored as </s> alone; a pair of blank lines gives 0. A
    list is written back with the feature nmtalign= -3.21 added.

    Examples:

      nmtalign score-pairs in.en out.fr > scores.txt

      nmtalign score-pairs in.en out.fr -m model/ --format json | jq .log_prob

      nmtalign score-pairs --n-best list.txt -s in.en --rescore > best-first.txt
    """
    flags = {name: value for name, value in locals().items() if name in _SETTINGS}
    workspace = load_workspace(config)
    task = _Task(
        *_files(workspace, source, target, n_best, n_best_source),
        feature=feature,
        rescore=rescore,
        json=format == "json",
        word_scores=word_scores,
        as_score=any(flags[name] is not None for name in _PENALTIES),
        quiet=quiet,
    )
    if task.lists and task.json:
        raise UsageError("--n-best writes Moses's format: leave out --format json")
    if (rescore or feature != "nmtalign") and not task.lists:
        raise UsageError("--rescore and --feature are for n-best lists: give --n-best FILE")
    translator = _load(workspace, model, which, flags)
    tally = _Tally()
    with _output(output) as stream:
        _write(task, translator, stream, tally)
    notifier(quiet)(tally.summary())


def _files(
    workspace: Workspace, source: Path | None, target: Path | None, n_best: Path | None, n_best_source: Path | None
) -> tuple[Path, Path, bool]:
    """(source, target or list, whether it is a list); what was not given is the workspace's test set."""
    test = workspace.pairs.get("test", (None, None))
    lists = n_best is not None
    if lists and (source or target):
        raise UsageError("--n-best goes with -s SOURCE, not with SOURCE TARGET")
    if n_best_source and not lists:
        raise UsageError("-s is for n-best lists: give --n-best FILE too, or the pairs as SOURCE TARGET")
    if lists:
        source, target = n_best_source or test[0], n_best
    elif source is None:
        source, target = test
    if source is None and lists:
        raise UsageError("--n-best needs the text that the list translates: give -s SOURCE")
    if source is None:
        raise UsageError(
            "no pairs to score: give SOURCE TARGET, or --n-best FILE -s SOURCE, or name a test set in nmtalign.toml "
            '([corpus] test = ["test.en", "test.fr"])'
        )
    if target is None:
        raise UsageError(f"{source}: one text is given; give the source and its translation: SOURCE TARGET")
    if source == target == STDIN:
        raise UsageError("only one of the two texts can be stdin")
    return source, target, lists


def _load(
    workspace: Workspace, model: list[Path] | None, which: Literal["best", "last"], flags: dict[str, Any]
) -> "Translator":
    origin, section = workspace.section("translate")
    layers = (origin, {key: value for key, value in section.items() if key in _SETTINGS}), given(flags)
    choose_wait_policy()
    bound_caches()
    folders = model or [workspace.model]
    check_ahead(folders, which)
    from nmtalign.presets import translate_config
    from nmtalign.translating.translator import Translator, load_models

    settings = translate_config(*layers)
    with naming(*layers):
        return Translator(load_models(folders, settings, which), settings, alignments=False)


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """A file that appears when all is written, or standard output."""
    if path is not None and path != STDIN:
        with atomic_text(path) as stream:
            yield stream
        return
    yield sys.stdout


def _write(task: _Task, translator: "Translator", stream: TextIO, tally: _Tally) -> None:
    """Scores everything, each line going out as it comes; flushed at once where the input may trickle."""
    from nmtalign.translating.inputs import Inputs

    at_hand = Inputs((task.source, task.target)).at_hand
    lines = _list_lines(task, translator, tally, at_hand) if task.lists else _lines(task, translator, tally, at_hand)
    for line in counted(lines, "scoring", "pairs", task.quiet or stream.isatty()):
        stream.write(line + "\n")
        if not at_hand:
            stream.flush()


def _lines(task: _Task, translator: "Translator", tally: _Tally, at_hand: bool) -> Iterator[str]:
    from nmtalign.text.lines import read_pairs
    from nmtalign.translating.output_formats import pair_json, pair_line
    from nmtalign.translating.rescoring import score_pairs as scored_pairs
    from nmtalign.translating.stream import AtHand

    pairs: Iterable[tuple[str, str]] = read_pairs(task.source, task.target)
    for scored in scored_pairs(translator, AtHand(pairs) if at_hand else pairs):
        if scored.number != tally.pairs:
            raise NmtalignError(f"pair {tally.pairs} came out as {scored.number}; this is a bug of nmtalign")
        tally.count(scored)
        yield pair_json(scored) if task.json else pair_line(scored, task.as_score, task.word_scores)


def _list_lines(task: _Task, translator: "Translator", tally: _Tally, at_hand: bool) -> Iterator[str]:
    from nmtalign.translating.rescoring import best_first, check_feature_name, read_n_best, rescore

    check_feature_name(task.feature)
    found = rescore(translator, read_n_best(task.target, task.source), at_hand)
    for line, scored in best_first(found) if task.rescore else found:
        tally.count(scored)
        line = line.with_feature(task.feature, [scored.log_prob])
        if task.word_scores:
            line = line.with_feature("WordScores", scored.token_log_probs)
        yield str(line.with_score(scored.score) if task.rescore else line)
