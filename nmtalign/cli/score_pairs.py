"""`nmtalign score-pairs`: the log-probability of given translations, and of n-best lists."""

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from nmtalign.cli.common import (
    ModelsOption,
    QuietOption,
    WhichOption,
    bound_caches,
    choose_wait_policy,
    counted,
    notifier,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.files import atomic_text
from nmtalign.model_files import check_ahead
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.text.lines import STDIN

if TYPE_CHECKING:
    from nmtalign.translating.translation import ScoredPair
    from nmtalign.translating.translator import Translator

# Settings of section [translate] that define a score, and how the machine is used.
_PENALTIES = ("length_penalty", "word_penalty", "coverage_penalty")
_SETTINGS = (
    *_PENALTIES,
    "search",
    "ensemble",
    "tokenized",
    "batch_size",
    "max_memory",
    "device",
    "precision",
    "threads",
)

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SOURCE", help="Source text or .gz file (default: the workspace's test set).", show_default=False
    ),
]
Target = Annotated[
    Path | None, typer.Argument(metavar="TARGET", help="Its translation, line by line.", show_default=False)
]
NBestList = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Score a Moses n-best list instead of sentence pairs.")
]
NBestSource = Annotated[
    Path | None, typer.Option("--source", "-s", metavar="FILE", help="Source text of the n-best list.")
]
Feature = Annotated[str, typer.Option(metavar="NAME", help="Name of the feature that is added to the n-best list.")]
Rescore = Annotated[
    bool, typer.Option("--rescore", help="Replace the scores of the n-best list and sort it, the best first.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, which appears when complete.")
]
Format = Annotated[Literal["text", "json"], typer.Option(help="Print a number, or one JSON object, per line.")]
WordScores = Annotated[
    bool,
    typer.Option(
        "--word-scores",
        help="Also print the log-probabilities of the tokens and </s>, and the tokens; in a list, as WordScores=.",
    ),
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


@with_settings(TranslateConfig, section="translate", only=_SETTINGS)
def score_pairs(
    chosen: Chosen[TranslateConfig],
    source: Source = None,
    target: Target = None,
    model: ModelsOption = None,
    n_best_list: NBestList = None,
    n_best_source: NBestSource = None,
    feature: Feature = "nmtalign",
    rescore: Rescore = False,
    output: Output = None,
    format: Format = "text",
    word_scores: WordScores = False,
    which: WhichOption = "best",
    quiet: QuietOption = False,
) -> None:
    """Score given translations: print the log-probability of each pair, one per line.

    A translation has the log-probability and score that translate printed, if the tokens are the same: write and read
    them with --tokenized. With a penalty option the score is printed too. A target without words is scored as </s>
    only; a pair of blank lines has 0. An n-best list is written with the feature nmtalign= -3.21 added.

    Examples:

      nmtalign score-pairs in.en out.fr > scores.txt

      nmtalign score-pairs in.en out.fr -m model/ --format json | jq .log_prob

      nmtalign score-pairs --n-best-list list.txt -s in.en --rescore > best-first.txt
    """
    _, options = chosen.layers[-1]
    task = _Task(
        *_files(chosen.workspace, source, target, n_best_list, n_best_source),
        feature=feature,
        rescore=rescore,
        json=format == "json",
        word_scores=word_scores,
        as_score=any(name in options for name in _PENALTIES),
        quiet=quiet,
    )
    if task.lists and task.json:
        raise UsageError("--n-best-list writes Moses's format: leave out --format json")
    if (rescore or feature != "nmtalign") and not task.lists:
        raise UsageError("--rescore and --feature are for n-best lists: give --n-best-list FILE")
    translator = _load(chosen, model or [chosen.workspace.model], which)
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
        raise UsageError("--n-best-list goes with -s SOURCE, not with SOURCE TARGET")
    if n_best_source and not lists:
        raise UsageError("-s is for n-best lists: give --n-best-list FILE too, or the pairs as SOURCE TARGET")
    if lists:
        source, target = n_best_source or test[0], n_best
    elif source is None:
        source, target = test
    if source is None and lists:
        raise UsageError("--n-best-list needs the source text: give -s SOURCE")
    if source is None:
        raise UsageError(
            "no pairs to score: give SOURCE TARGET, or --n-best-list FILE -s SOURCE, or name a test set in "
            'nmtalign.toml ([corpus] test = ["test.en", "test.fr"])'
        )
    if target is None:
        raise UsageError(f"{source}: one text is given; give the source and its translation: SOURCE TARGET")
    if source == target == STDIN:
        raise UsageError("only one of the two texts can be stdin")
    return source, target, lists


def _load(chosen: Chosen[TranslateConfig], folders: list[Path], which: Literal["best", "last"]) -> "Translator":
    choose_wait_policy()
    bound_caches()
    check_ahead(folders, which)
    from nmtalign.translating.translator import Translator, load_models

    with chosen.naming():
        return Translator(load_models(folders, chosen.settings, which), chosen.settings, alignments=False)


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
