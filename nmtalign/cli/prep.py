"""`nmtalign prep`: from two text files to a prepared corpus."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from nmtalign.cli.common import QuietOption, json_text, notifier, own_argument, own_option, say, status_line
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.cli.stopping import exit_on_signals
from nmtalign.cli.tables import print_table
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.workspace import PathPair, Workspace
from nmtalign.text.text_table import TextTable

if TYPE_CHECKING:
    from nmtalign.data.pair_spool import Summary

TrainSource = Annotated[Path | None, own_argument("TRAIN_SRC", "Training text, plain or .gz.")]
TrainTarget = Annotated[Path | None, own_argument("TRAIN_TGT", "Its translation, line by line.")]
Dev = Annotated[PathPair | None, own_option("Text for validation.", "SRC TGT", "--dev")]
Test = Annotated[PathPair | None, own_option("Text for scoring.", "SRC TGT", "--test")]
Output = Annotated[
    Path | None, own_option(f"Folder of the corpus [dim]\\[default: {Workspace.data}][/dim].", "FOLDER", "-o --output")
]
_SUFFIX = "[dim]\\[default: the suffix of the file][/dim]"
SourceLanguage = Annotated[str | None, own_option(f"Such as en {_SUFFIX}.", "CODE")]
TargetLanguage = Annotated[str | None, own_option(f"Such as fr {_SUFFIX}.", "CODE")]
Force = Annotated[bool, own_option("Replace a corpus of other text or settings.", names="--force")]
Format = Annotated[Literal["text", "json"], own_option("Format of the summary on stdout.")]


@with_settings(PrepConfig, section="prep")
def prep(
    chosen: Chosen[PrepConfig],
    train_source: TrainSource = None,
    train_target: TrainTarget = None,
    dev: Dev = None,
    test: Test = None,
    output: Output = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    force: Force = False,
    format: Format = "text",
    quiet: QuietOption = False,
) -> None:
    """Prepare a corpus: tokenise two aligned texts, choose the vocabularies, write ids to HDF5.

    Prints how many pairs it kept, and why it dropped the others. Without arguments it uses nmtalign.toml. A corpus of
    other text or settings is replaced only with --force.

    Examples:

      nmtalign prep train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data/

      nmtalign prep train.en.gz train.fr.gz --shortlist 30000:20000 --min-count 2

      nmtalign prep train.en train.fr --vocabulary bpe --size 8000

      nmtalign prep
    """
    workspace, folder, tell = chosen.workspace, output or chosen.workspace.data, notifier(quiet)
    texts = _texts(workspace, train_source, train_target, {"dev": dev, "test": test})
    train = texts["train"]
    languages = (
        _language(source_language, workspace.source_language, train[0]),
        _language(target_language, workspace.target_language, train[1]),
    )
    if not quiet:
        _warn(train, languages, chosen.settings)
    exit_on_signals()
    from nmtalign.data.prepare import prepare

    with chosen.naming(), status_line("reading train", quiet) as show:
        summary = prepare(
            train,
            folder,
            chosen.settings,
            languages,
            texts.get("dev"),
            texts.get("test"),
            lambda read: show(f"reading train: {read:,} pairs"),
            show,
            force,
        )
    if format == "json":
        sys.stdout.write(json_text(summary.as_dict(), indent=2) + "\n")
    else:
        _print_summary(summary)
    argument = f" {folder}" if output or workspace.file is None else ""
    tell(f"the corpus is in {folder}; next: nmtalign train{argument}")


def _texts(
    workspace: Workspace, source: Path | None, target: Path | None, others: Mapping[str, PathPair | None]
) -> Mapping[str, PathPair]:
    """The texts of the command line; those of the workspace replace missing ones if it names no training text."""
    if (source is None) != (target is None):
        raise UsageError(f"{source}: give its translation too: nmtalign prep TRAIN_SRC TRAIN_TGT")
    texts = dict(workspace.pairs) if source is None or target is None else {"train": (source, target)}
    texts |= {name: pair for name, pair in others.items() if pair is not None}
    if "train" not in texts:
        place = f"{workspace.file} names none under [corpus]" if workspace.file else "there is no nmtalign.toml here"
        raise UsageError(f"no training text: {place}; give nmtalign prep TRAIN_SRC TRAIN_TGT")
    if [path for pair in texts.values() for path in pair].count(Path("-")) > 1:
        raise UsageError("standard input (-) can be only one of the texts")
    return texts


def _language(given: str | None, of_workspace: str | None, text: Path) -> str:
    """The language of the command line, else of the workspace, else the suffix of the text file."""
    name = text.with_suffix("") if text.suffix == ".gz" else text
    return given or of_workspace or name.suffix.removeprefix(".").lower()


def _warn(train: PathPair, languages: tuple[str, str], settings: PrepConfig) -> None:
    if train[0] == train[1]:
        say(f"warning: {train[0]} is both source and target")
    if settings.vocabulary != "word":
        return
    from nmtalign.text.moses import has_rules

    for side, language, path in zip(("source", "target"), languages, train, strict=True):
        if not has_rules(language):
            used = f"those for English are used (--{side}-language CODE)"
            say(f"{path}: no Moses rules for language '{language}': {used}")


def _print_summary(summary: "Summary") -> None:
    """Prints the pairs of each set, then the tokens of each text."""
    pairs = [
        [name, *(f"{number:,}" for number in (split.pairs, split.kept, *split.dropped.values()))]
        for name, split in summary.splits.items()
    ]
    texts = [
        [
            f"{name} {side}",
            language,
            *(f"{number:,}" for number in (values.tokens, values.types, values.known_types)),
            *(f"{100 * share:.2f}%" for share in (values.coverage, values.unknown_rate)),
        ]
        for name, split in summary.splits.items()
        for side, language, values in (
            ("source", summary.source_language, split.source),
            ("target", summary.target_language, split.target),
        )
    ]
    print_table(TextTable(("pairs", "read", "kept", "empty", "duplicate", "too long"), pairs))
    sys.stdout.write("\n")
    head = ("text", "language", "tokens", "types", "types known", "coverage", "unknown")
    print_table(TextTable(head, texts, left=frozenset({0, 1})))
    sys.stdout.write(
        f"\nvocabularies: {summary.source_vocabulary_size:,} source and {summary.target_vocabulary_size:,} target ids\n"
    )
