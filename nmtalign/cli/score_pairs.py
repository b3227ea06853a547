"""`nmtalign score-pairs`: the log-probability of given translations, and of n-best lists."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

from nmtalign.cli.common import (
    ModelsOption,
    QuietOption,
    WhichOption,
    bound_caches,
    check_inputs,
    choose_wait_policy,
    counted,
    lines_of,
    notifier,
    open_output,
    own_argument,
    own_option,
    say,
    status_line,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.lines import STDIN

if TYPE_CHECKING:
    from nmtalign.translating.translation import ScoredPair

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

Source = Annotated[Path | None, own_argument("SOURCE", "Source text or .gz file (default: the workspace's test set).")]
Target = Annotated[Path | None, own_argument("TARGET", "Its translation, line by line.")]
NBestList = Annotated[Path | None, own_option("Score a Moses n-best list instead of sentence pairs.", "FILE")]
NBestSource = Annotated[Path | None, own_option("Source text of the n-best list.", "FILE", "--source -s")]
Feature = Annotated[str, own_option("Name of the feature that is added to the n-best list.", "NAME")]
Rescore = Annotated[
    bool, own_option("Replace the scores of the n-best list and sort it, the best first.", names="--rescore")
]
Output = Annotated[
    Path | None,
    own_option(
        "Write to FILE, which appears when complete.", "FILE", "--output -o", callback=writes("a file", stdout=True)
    ),
]
Format = Annotated[Literal["text", "json"], own_option("Print a number, or one JSON object, per line.")]
WordScores = Annotated[
    bool,
    own_option(
        "Also print the log-probabilities of the tokens and </s>, and the tokens; in a list, as WordScores=.",
        names="--word-scores",
    ),
]


@with_settings(TranslateConfig)
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
    them with --tokenized. --length-penalty or another penalty prints the score in place of the log-probability. A
    source or target without words is only </s>; two blank lines have 0. A list gets the feature nmtalign= -3.21.

    Examples:

      nmtalign score-pairs in.en out.fr > scores.txt

      nmtalign score-pairs in.en out.fr -m model/ --format json | jq .log_prob

      nmtalign score-pairs --n-best-list list.txt -s in.en --rescore > best-first.txt
    """
    test = chosen.workspace.test_files or (None, None)
    source, target = _files(test, source, target, n_best_list, n_best_source)
    if n_best_list and format == "json":
        raise UsageError("--n-best-list writes Moses's format: leave out --format json")
    if (rescore or feature != "nmtalign") and not n_best_list:
        raise UsageError("--rescore and --feature are for n-best lists: give --n-best-list FILE")
    folders = model or [chosen.workspace.model]
    check_inputs(source, target)
    choose_wait_policy()
    bound_caches()
    with chosen.naming(), status_line("loading the model", quiet):
        from nmtalign.translating.inputs import are_files
        from nmtalign.translating.output_formats import pair_json, pair_line
        from nmtalign.translating.rescoring import score_files, score_n_best_list
        from nmtalign.translating.translator import Translator, load_models

        translator = Translator(load_models(folders, chosen.settings, which), chosen.settings, alignments=False)
    say(*translator.notices())
    as_score = any(name in chosen.typed for name in _PENALTIES)  # a penalty is given as an option
    lines: Iterator[tuple[str, ScoredPair]]
    if n_best_list:
        found = score_n_best_list(translator, target, source, feature, rescore, word_scores)
        lines = ((str(line), pair) for line, pair in found)
    else:
        pairs, json = score_files(translator, source, target, say), format == "json"
        lines = ((pair_json(pair) if json else pair_line(pair, as_score, word_scores), pair) for pair in pairs)
    with open_output(output) as stream:
        shown = counted(lines, "scoring", "pairs", quiet or stream.isatty(), lambda: lines_of(target))
        summary = _write(shown, stream, flush=not are_files(source, target))
    notifier(quiet)(summary)


def _files(
    test: tuple[Path | None, Path | None],
    source: Path | None,
    target: Path | None,
    n_best: Path | None,
    n_best_source: Path | None,
) -> tuple[Path, Path]:
    """(source, target or list); what is not given is the workspace's test set."""
    if n_best and (source or target):
        raise UsageError("--n-best-list goes with -s SOURCE, not with SOURCE TARGET")
    if n_best_source and not n_best:
        raise UsageError("-s is for n-best lists: give --n-best-list FILE too, or the pairs as SOURCE TARGET")
    if n_best:
        source, target = n_best_source or test[0], n_best
        if source is None:
            raise UsageError("--n-best-list needs the source text: give -s SOURCE")
    elif source is None:
        source, target = test
    if source is None:
        raise UsageError(
            "no pairs to score: give SOURCE TARGET, or --n-best-list FILE -s SOURCE, or name a test set in "
            'nmtalign.toml ([corpus] test = ["test.en", "test.fr"])'
        )
    if target is None:
        raise UsageError(f"{source}: one text is given; give the source and its translation: SOURCE TARGET")
    if source == target == STDIN:
        raise UsageError("only one of the two texts can be stdin")
    return source, target


def _write(lines: "Iterator[tuple[str, ScoredPair]]", stream: TextIO, flush: bool) -> str:
    """Writes each line as it comes; returns a summary of the pairs."""
    pairs = words = unknown = 0
    total = 0.0
    for line, pair in lines:
        stream.write(line + "\n")
        if flush:
            stream.flush()
        pairs += 1
        if not pair.blank:
            words, unknown = words + len(pair.token_log_probs), unknown + pair.target_unknown
            total += pair.log_prob
    mean = total / max(words, 1)
    perplexity = math.exp(-mean) if mean > -700 else math.inf
    return (
        f"{pairs:,} pairs, {words:,} target tokens with </s>: log-probability {mean:.4f} per token, "
        f"perplexity {perplexity:.2f}; {unknown / max(words, 1):.2%} of the tokens are unknown"
    )
