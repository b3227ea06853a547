"""`nmtalign prep`: from two text files to a prepared corpus."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nmtalign.checks import naming
from nmtalign.cli.common import ConfigOption, QuietOption, escaped, json_text, notifier
from nmtalign.cli.stopping import exit_on_signals
from nmtalign.config import PrepConfig
from nmtalign.errors import UsageError
from nmtalign.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.data.pair_spool import Summary

TEXT, WORDS, PAIRS = "Text", "Vocabulary", "Which pairs"


TrainSource = Annotated[
    Path | None, typer.Argument(help="Training text, plain or .gz.", metavar="TRAIN_SRC", show_default=False)
]
TrainTarget = Annotated[
    Path | None, typer.Argument(help="Its translation, line by line.", metavar="TRAIN_TGT", show_default=False)
]
Dev = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--dev", metavar="SRC TGT", help="Text to validate on.", rich_help_panel=TEXT),
]
Test = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--test", metavar="SRC TGT", help="Text to score on.", rich_help_panel=TEXT),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FOLDER", help="Folder of the corpus \\[data].", rich_help_panel=TEXT),
]
SourceLanguage = Annotated[
    str | None, typer.Option(help="Such as en \\[by the file's suffix].", metavar="CODE", rich_help_panel=TEXT)
]
TargetLanguage = Annotated[
    str | None, typer.Option(help="Such as fr \\[by the file's suffix].", metavar="CODE", rich_help_panel=TEXT)
]
Vocabulary = Annotated[
    Literal["word", "bpe", "unigram", "none"] | None,
    typer.Option(
        help="Moses words, sentencepiece pieces, or text that is tokenised already \\[word].", rich_help_panel=WORDS
    ),
]
Shortlist = Annotated[
    str | None,
    typer.Option(metavar="N|N:M", help="Word ids a side, two of them special \\[30000].", rich_help_panel=WORDS),
]
MinCount = Annotated[int | None, typer.Option(help="Words seen less often are unknown \\[1].", rich_help_panel=WORDS)]
Size = Annotated[str | None, typer.Option(metavar="N|N:M", help="Subword ids a side \\[8000].", rich_help_panel=WORDS)]
MaxLength = Annotated[
    int | None, typer.Option(help="Tokens of the longer side; 0 = any \\[50].", rich_help_panel=PAIRS)
]
DropDuplicates = Annotated[
    bool | None,
    typer.Option("--drop-duplicates/--keep-duplicates", help="Repeated training pairs.", rich_help_panel=PAIRS),
]
Workers = Annotated[int | None, typer.Option(help="Processes; 0 = one a core \\[0].")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a corpus of other text or settings.", rich_help_panel=TEXT)
]
Format = Annotated[Literal["text", "json"], typer.Option(help="Of the summary on stdout.")]


def prep(
    train_source: TrainSource = None,
    train_target: TrainTarget = None,
    dev: Dev = None,
    test: Test = None,
    output: Output = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    vocabulary: Vocabulary = None,
    shortlist: Shortlist = None,
    min_count: MinCount = None,
    size: Size = None,
    max_length: MaxLength = None,
    drop_duplicates: DropDuplicates = None,
    workers: Workers = None,
    force: Force = False,
    format: Format = "text",
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Prepare a corpus: tokenise two aligned texts, choose the vocabularies, write ids to HDF5.

    Prints which pairs it kept, and why it dropped the others. With nmtalign.toml
    it runs bare. A corpus of other text or settings in the folder stays, unless
    --force is given.

    Examples:

      nmtalign prep train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data/

      nmtalign prep train.en.gz train.fr.gz --shortlist 30000:20000 --min-count 2

      nmtalign prep train.en train.fr --vocabulary bpe --size 8000

      nmtalign prep
    """
    workspace = load_workspace(config)
    flags = {
        "vocabulary": vocabulary,
        "shortlist": shortlist,
        "min_count": min_count,
        "size": size,
        "max_length": max_length,
        "drop_duplicates": drop_duplicates,
        "workers": workers,
    }
    settings = workspace.resolve(PrepConfig, "prep", flags)
    pairs = _texts(workspace, train_source, train_target, dev, test)
    folder = output or workspace.data
    tell = notifier(quiet)
    languages = _languages(workspace, settings, pairs["train"], (source_language, target_language), tell)
    with naming(*workspace.layers("prep", flags)):
        summary = _prepare(pairs, folder, settings, languages, quiet, force)
    if format == "json":
        sys.stdout.write(json_text(summary.as_dict(), indent=2) + "\n")
    else:
        _print_table(summary)
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
    """Prepares with progress on a terminal; SIGTERM or SIGHUP ends it with the temporary files taken away."""
    from nmtalign.data.prepare import prepare

    exit_on_signals()
    with _progress(quiet) as (count, step):
        dev, test = pairs.get("dev"), pairs.get("test")
        return prepare(pairs["train"], folder, settings, languages, dev, test, count, step, force)


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


@contextmanager
def _progress(quiet: bool) -> Iterator[tuple[Callable[[int], None] | None, Callable[[str], None] | None]]:
    """What to call with the pairs read and with the name of each step: a line on stderr, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None, None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading train", total=None)
        yield (
            lambda pairs: bar.update(task, description=f"reading train: {pairs:,} pairs"),
            lambda step: bar.update(task, description=step),
        )


PAIR_HEADS = ("pairs", "read", "kept", "empty", "duplicate", "too long")
SIDE_HEADS = ("text", "language", "tokens", "types", "types known", "coverage", "unknown")


def _print_table(summary: "Summary") -> None:
    """Pairs by split and reason, then tokens by split and side."""
    pairs = [
        [name, *(f"{number:,}" for number in (split.pairs, split.kept, *split.dropped.values()))]
        for name, split in summary.splits.items()
    ]
    sides = [
        [
            f"{name} {side}",
            escaped(language),
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
    show = _print_rich if sys.stdout.isatty() else _print_plain
    show(PAIR_HEADS, pairs, 1)
    show(SIDE_HEADS, sides, 2)
    sys.stdout.write(
        f"vocabularies: {summary.source_vocabulary_size:,} source and {summary.target_vocabulary_size:,} target ids\n"
    )


def _print_plain(heads: tuple[str, ...], rows: list[list[str]], words: int) -> None:
    """Columns set apart by two spaces, the first `words` of them on the left, numbers on the right."""
    lines = [list(heads), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        cells = [
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.write("\n")


def _print_rich(heads: tuple[str, ...], rows: list[list[str]], words: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column, head in enumerate(heads):
        table.add_column(head, justify="left" if column < words else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
