"""`nmtalign prep`: from two text files to a prepared corpus."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nmtalign.cli.common import QuietOption, json_text, notifier
from nmtalign.cli.counting import status_line
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.cli.stopping import exit_on_signals
from nmtalign.cli.tables import Table, print_table
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.workspace import Workspace

if TYPE_CHECKING:
    from nmtalign.data.pair_spool import Summary

TrainSource = Annotated[
    Path | None, typer.Argument(help="Training text, plain or .gz.", metavar="TRAIN_SRC", show_default=False)
]
TrainTarget = Annotated[
    Path | None, typer.Argument(help="Its translation, line by line.", metavar="TRAIN_TGT", show_default=False)
]
Dev = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--dev", metavar="SRC TGT", help="Text to validate on."),
]
Test = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--test", metavar="SRC TGT", help="Text to score on."),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FOLDER", help="Folder of the corpus \\[data]."),
]
SourceLanguage = Annotated[str | None, typer.Option(help="Such as en \\[by the file's suffix].", metavar="CODE")]
TargetLanguage = Annotated[str | None, typer.Option(help="Such as fr \\[by the file's suffix].", metavar="CODE")]
Force = Annotated[bool, typer.Option("--force", help="Replace a corpus of other text or settings.")]
Format = Annotated[Literal["text", "json"], typer.Option(help="Of the summary on stdout.")]


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
    pairs = _texts(workspace, train_source, train_target, dev, test)
    languages = _languages(workspace, chosen.settings, pairs["train"], (source_language, target_language), tell)
    with chosen.naming():
        summary = _prepare(pairs, folder, chosen.settings, languages, quiet, force)
    if format == "json":
        sys.stdout.write(json_text(summary.as_dict(), indent=2) + "\n")
    else:
        _print_summary(summary)
    given = f" {folder}" if output or workspace.file is None else ""
    tell(f"the corpus is in {folder}; next: nmtalign train{given}")


def _prepare(
    pairs: dict[str, tuple[Path, Path]],
    folder: Path,
    settings: PrepConfig,
    languages: tuple[str, str],
    quiet: bool,
    force: bool,
) -> "Summary":
    """Prepares the corpus and shows progress on a terminal; SIGTERM and SIGHUP remove the temporary files."""
    from nmtalign.data.prepare import prepare

    exit_on_signals()
    with status_line("reading train", quiet) as show:
        dev, test = pairs.get("dev"), pairs.get("test")
        return prepare(
            pairs["train"],
            folder,
            settings,
            languages,
            dev,
            test,
            lambda read: show(f"reading train: {read:,} pairs"),
            show,
            force,
        )


def _texts(
    workspace: Workspace,
    train_source: Path | None,
    train_target: Path | None,
    dev: tuple[Path, Path] | None,
    test: tuple[Path, Path] | None,
) -> dict[str, tuple[Path, Path]]:
    """The texts of the command line; where it names no training text, all those of the workspace under it."""
    if (train_source is None) != (train_target is None):
        raise UsageError(f"{train_source}: give its translation too: nmtalign prep TRAIN_SRC TRAIN_TGT")
    given = {name: pair for name, pair in (("dev", dev), ("test", test)) if pair is not None}
    if train_source is not None and train_target is not None:
        pairs = {"train": (train_source, train_target)} | given
    else:
        pairs = {name: workspace.pairs[name] for name in ("train", "dev", "test") if name in workspace.pairs} | given
    if "train" not in pairs:
        place = f"{workspace.file} names none under [corpus]" if workspace.file else "there is no nmtalign.toml here"
        raise UsageError(f"no training text: {place}; give nmtalign prep TRAIN_SRC TRAIN_TGT")
    if sum(path == Path("-") for pair in pairs.values() for path in pair) > 1:
        raise UsageError("standard input (-) can be only one of the texts")
    return pairs


def _languages(
    workspace: Workspace,
    settings: PrepConfig,
    train: tuple[Path, Path],
    flags: tuple[str | None, str | None],
    tell: Callable[[str], None],
) -> tuple[str, str]:
    """Flag, workspace or file suffix; a text without any of them, or without rules of Moses, is taken for English."""
    if train[0] == train[1]:
        tell(f"warning: {train[0]} is source and target at once")
    named = (flags[0] or workspace.source_language, flags[1] or workspace.target_language)
    source, target = (language or _suffix(path) for language, path in zip(named, train, strict=True))
    if settings.vocabulary == "word":
        from nmtalign.text.moses import has_rules

        for option, language, path in (("source", source, train[0]), ("target", target, train[1])):
            if not has_rules(language):
                tell(
                    f"{path}: no Moses rules for language '{language}': those for English are used "
                    f"(--{option}-language CODE)"
                )
    return source, target


def _suffix(path: Path) -> str:
    name = path.with_suffix("") if path.suffix == ".gz" else path
    return name.suffix.removeprefix(".").lower()


PAIR_HEADS = ("pairs", "read", "kept", "empty", "duplicate", "too long")
SIDE_HEADS = ("text", "language", "tokens", "types", "types known", "coverage", "unknown")


def _print_summary(summary: "Summary") -> None:
    """Prints the pairs of each set, then the tokens of each text."""
    pairs = [
        [name, *(f"{number:,}" for number in (split.pairs, split.kept, *split.dropped.values()))]
        for name, split in summary.splits.items()
    ]
    sides = [
        [
            f"{name} {side}",
            language,
            f"{values.tokens:,}",
            f"{values.types:,}",
            f"{values.known_types:,}",
            f"{100 * values.coverage:.2f}%",
            f"{100 * values.unknown_rate:.2f}%",
        ]
        for name, split in summary.splits.items()
        for side, language, values in (
            ("source", summary.source_language, split.source),
            ("target", summary.target_language, split.target),
        )
    ]
    for table in (Table(PAIR_HEADS, pairs), Table(SIDE_HEADS, sides, left=frozenset({0, 1}))):
        print_table(table)
        sys.stdout.write("\n")
    sys.stdout.write(
        f"vocabularies: {summary.source_vocabulary_size:,} source and {summary.target_vocabulary_size:,} target ids\n"
    )
