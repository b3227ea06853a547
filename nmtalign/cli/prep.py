"""`nmtalign prep`: from parallel text to a prepared corpus."""

import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import nmtalign
from nmtalign.cli import common
from nmtalign.cli.common import DATA_DEFAULT, QUIET, output_option, own_argument, own_flag, own_option
from nmtalign.cli.options import NO_FILE, Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.files import CONFIG
from nmtalign.report.document import DataTable
from nmtalign.settings.command_settings import PrepConfig
from nmtalign.settings.definition import FilePair, PathPair, Workspace
from nmtalign.text.languages import languages_in, suffix_language
from nmtalign.text.lines import shown
from nmtalign.text.parallel import beginning, languages_of_columns

if TYPE_CHECKING:
    from nmtalign.data.corpus_writer import Summary

_REASONS = ("empty", "duplicate", "too long")  # every corpus has these; those of --clean have a separate table
_NAMED = "[dim]\\[default: the workspace's, or by the names of the texts][/dim]"


@with_settings(PrepConfig)
def prep(
    chosen: Chosen[PrepConfig],
    train_source: Path | None = own_argument("TRAIN_SRC", "Training text, or one file with both (TSV, TMX, Parquet)."),
    train_target: Path | None = own_argument("TRAIN_TGT", "Its translation, line by line."),
    dev: FilePair | None = own_option("Text for validation: two files, or one with both.", "SRC [TGT]", "--dev"),
    test: FilePair | None = own_option("Text for scoring.", "SRC [TGT]", "--test"),
    output: Path | None = output_option(f"Folder of the corpus {DATA_DEFAULT}", "FOLDER", folder=True),
    source_language: str | None = own_option(f"Language of the source, such as en {_NAMED}.", "CODE"),
    target_language: str | None = own_option(f"Language of the target, such as fr {_NAMED}.", "CODE"),
    force: bool = own_flag("Replace a corpus of other text or settings.", "--force"),
    quiet: bool = QUIET,
) -> None:
    """Prepare a corpus: tokenise parallel text, choose the vocabularies, write ids to HDF5.

    Without texts it prepares those of nmtalign.toml. It prints how many pairs it kept, and why it dropped the others.

    Examples:
      nmtalign prep train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data/
      nmtalign prep train.en.gz train.fr.gz --shortlist 30000:20000 --set min_count=2 -o frequent/
      nmtalign prep corpus.en-fr.tmx --clean --dev-lines 1000 --test-lines 1000 -o clean/
      nmtalign prep corpus.en-fr.parquet --subwords -o pieces/
      nmtalign prep news.en news.fr --vocabulary-from model/ -o news/
      nmtalign prep
    """
    workspace, folder, tell = chosen.workspace, output or chosen.workspace.data, common.notifier(quiet)
    texts = _texts(workspace, train_source, train_target, {"dev": dev, "test": test})
    languages = _languages(workspace, texts["train"], chosen.settings.columns, source_language, target_language)
    if "columns" in chosen.typed and all(target for _, target in texts.values()):
        tell(f"warning: --set columns={chosen.settings.columns} has no effect: no text is one file of both languages")
    with common.live_line("reading train", quiet) as show:
        summary = nmtalign.prepare(
            *texts["train"],
            folder,
            languages=languages,
            dev=texts.get("dev"),
            test=texts.get("test"),
            force=force,
            progress=lambda read: show(f"reading train: {read:,} pairs"),
            notify=show,
            config=chosen.settings,
        )
    _print_summary(summary)
    for name, names in summary.texts.items():
        tell(f"the {name} text is in {folder / names[0]} and {folder / names[1]}")
    for note in summary.notes:
        (common.say if note.startswith("warning: ") else tell)(note)
    corpus = f" {quote(str(folder))}" if output or workspace.file is None else ""
    first = chosen.settings.vocabulary_from  # perhaps a model, with which the training can begin
    start = f" --init-from {quote(first)} -o OTHER" if first and (Path(first) / CONFIG).is_file() else ""
    tell(f"the corpus is in {folder}; next: nmtalign train{corpus}{start}")


def _texts(
    workspace: Workspace, source: Path | None, target: Path | None, others: Mapping[str, FilePair | None]
) -> Mapping[str, PathPair]:
    """The texts of the command line; those of the workspace replace missing ones if it names no training text."""
    texts = dict(workspace.pairs) if source is None else {"train": (source, target)}
    texts |= {name: (pair[0], pair[1] if pair[1] != NO_FILE else None) for name, pair in others.items() if pair}
    if "train" not in texts:
        place = f"{workspace.file} names none under [corpus]" if workspace.file else "there is no nmtalign.toml here"
        raise UsageError(f"no training text: {place}; give nmtalign prep TRAIN_SRC TRAIN_TGT")
    return texts


def _languages(
    workspace: Workspace, train: PathPair, columns: str, source: str | None, target: str | None
) -> tuple[str, str]:
    """The languages: those of the command line, else of the workspace (exchanged if the texts are), else by name."""
    if train[1] is not None:
        named = suffix_language(train[0]), suffix_language(train[1])
    else:
        in_file, named = languages_of_columns(train[0], columns), languages_in(train[0])
        named = named if all(named) else in_file
    own = workspace.source_language, workspace.target_language
    if own == named[::-1] and train != workspace.pairs.get("train"):
        own = named
    found = source or own[0] or named[0], target or own[1] or named[1]
    if unknown := [side for side, language in enumerate(found) if not language]:
        path = train[unknown[0]] or train[0]
        beginning(path)  # a missing file, or an archive, is the more important error
        options = " and ".join(f"--{('source', 'target')[side]}-language CODE" for side in unknown)
        raise UsageError(f"{shown(path)}: its name contains no language; give {options}, such as en")
    return str(found[0]), str(found[1])


def _print_summary(summary: "Summary") -> None:
    """Prints the pairs of each set, then the tokens of each text."""
    pairs, texts = [], []
    for name, split in summary.splits.items():
        counts = split.pairs, split.kept, *(split.dropped[one] for one in _REASONS)
        pairs.append([name, *(f"{number:,}" for number in counts)])
        for side, language in (("source", summary.source_language), ("target", summary.target_language)):
            text = getattr(split, side)
            counts = text.tokens, text.types, text.known_types
            shares = (f"{100 * share:.2f}%" for share in (text.coverage, text.unknown_rate))
            texts.append([f"{name} {side}", language, *(f"{number:,}" for number in counts), *shares])
    common.print_table(DataTable(("pairs", "read", "kept", *_REASONS), pairs))
    for name, split in summary.splits.items():
        if further := [(reason, count) for reason, count in split.dropped.items() if reason not in _REASONS]:
            sys.stdout.write("\n")
            rows = [[reason, f"{count:,}", f"{100 * count / max(split.pairs, 1):.2f}%"] for reason, count in further]
            common.print_table(DataTable((f"left out of {name}", "pairs", "share"), rows))
    sys.stdout.write("\n")
    head = ("text", "language", "tokens", "types", "types known", "coverage", "unknown")
    common.print_table(DataTable(head, texts, words=2))
    sizes = f"{summary.source_vocabulary_size:,} source and {summary.target_vocabulary_size:,} target ids"
    sys.stdout.write(f"\nvocabularies: {sizes}; coverage is that of the words with letters\n")
