"""`nmtalign lexicon`: a translation table of words, from sentence pairs or from their alignments."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtalign.cli.common import ConfigOption, QuietOption, notifier
from nmtalign.cli.stopping import exit_on_signals
from nmtalign.errors import InputError, UsageError
from nmtalign.files import atomic_text
from nmtalign.settings.definition import Setting
from nmtalign.settings.workspace import Workspace, load_workspace
from nmtalign.text.lines import shown

if TYPE_CHECKING:
    from nmtalign.alignment.links import LinkedPair
    from nmtalign.alignment.model1 import Bitext
    from nmtalign.alignment.translation_table import Lexicon, LexiconEntry
    from nmtalign.text.tokenizer import Tokenizers

STDIO = Path("-")
_TEXT, _TABLE = "How texts are read", "What comes out"

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SRC|DATA|FILE.h5",
        help="Source text, prepared corpus or alignments (default: the workspace's corpus).",
        show_default=False,
    ),
]
Target = Annotated[Path | None, typer.Argument(metavar="TGT", help="The translation of SRC.", show_default=False)]
Links = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Links of SRC and TGT, Pharaoh's format; they are counted, not learned."),
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The lexicon.", rich_help_panel=_TABLE)]
Top = Annotated[int, typer.Option(metavar="N", help="Entries a source word at most.", min=1, rich_help_panel=_TABLE)]
MinProbability = Annotated[
    float, typer.Option(metavar="P", help="Least probability of an entry.", rich_help_panel=_TABLE)
]
Reverse = Annotated[bool, typer.Option("--reverse", help="From target to source.", rich_help_panel=_TABLE)]
Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        help="Model or corpus that says how text is tokenised [dim](default: the workspace's)[/dim].",
        rich_help_panel=_TEXT,
    ),
]
Tokenized = Annotated[
    bool, typer.Option("--tokenized", help="Words stand between spaces: take them as they are.", rich_help_panel=_TEXT)
]
Every = Annotated[
    int, typer.Option(metavar="N", help="Only every N-th pair (of a large corpus).", min=1, rich_help_panel=_TEXT)
]
Workers = Annotated[
    int, typer.Option(metavar="N", help="Processes that tokenise; 0 = one a core.", min=0, rich_help_panel=_TEXT)
]
Iterations = Annotated[int, typer.Option(metavar="N", help="Of IBM Model 1.", min=1)]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Task:
    """Where the lexicon comes from, and how it is made; `target` only beside a text."""

    source: Path
    target: Path | None
    links: Path | None
    iterations: int
    every: int
    workers: int
    reverse: bool


def lexicon(
    source: Source = None,
    target: Target = None,
    links: Links = None,
    iterations: Iterations = 5,
    output: Output = STDIO,
    top: Top = 20,
    min_probability: MinProbability = 0.001,
    reverse: Reverse = False,
    model: Model = None,
    tokenized: Tokenized = False,
    every: Every = 1,
    workers: Workers = 0,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make a lexicon: which target words translate a source word, and how probably.

    From sentence pairs (two texts, or a prepared corpus) it is learned with
    IBM Model 1; from alignments (a file of `nmtalign align`, or --links) the
    links are counted. A line an entry: source, target, p(target | source).

    For `translate --lexicon FILE --candidates N` the entries must be words
    of the model's vocabularies: make it from the model's corpus, or from
    texts with -m. Then those of a subword model are pieces. For
    `--replace-unk` they are whole words: with a subword model make it from
    alignments or with --tokenized.

    Examples:

      nmtalign lexicon data/ -o lexicon.txt

      nmtalign lexicon train.en train.fr -m model/ -o lexicon.txt

      nmtalign lexicon train.en train.fr --tokenized --links links.txt --top 5

      nmtalign lexicon alignments.h5 --reverse | head
    """
    Setting("", "", below=1, name="min_probability", kind=float).check(min_probability)
    workspace = load_workspace(config)
    task = _Task(source or workspace.data, target, links, iterations, every, workers, reverse)
    _check(task, model, tokenized)
    exit_on_signals()
    with _progress(quiet) as progress:
        made, origin = _make(task, lambda: _tokenizers(workspace, task, model, tokenized), progress)
        progress("choosing the entries")
        entries = made.entries(top, min_probability)
    _write(entries, output)
    words = len({entry.source for entry in entries})
    place = "" if output == STDIO else f" in {output}"
    notifier(quiet)(f"{origin}: {len(entries):,} entries for {words:,} words{place}")


def _check(task: _Task, model: Path | None, tokenized: bool) -> None:
    """Raises UsageError for what does not go together."""
    if task.target is None:
        for name, given in (("--links", task.links), ("--model", model), ("--tokenized", tokenized)):
            if given:
                raise UsageError(f"{name} is for two texts: give SRC TGT")
    if model and tokenized:
        raise UsageError("--tokenized text is taken as it is: leave --model out, or --tokenized")
    if [task.source, task.target, task.links].count(STDIO) > 1:
        raise UsageError("only one of SRC, TGT and --links can be stdin")


def _tokenizers(workspace: Workspace, task: _Task, model: Path | None, tokenized: bool) -> "Tokenizers":
    """How the texts become words: as a model's or corpus's text did, or at spaces only.

    Links count whole words, and those of a subword model stand between spaces.
    """
    from nmtalign.text.tokenizer import TOKENIZER_FILE, SentencePieces, Tokenizers

    if tokenized:
        return Tokenizers.spaced()
    folders = [model] if model else [workspace.model, workspace.data]
    folder = next((path for path in folders if (path / TOKENIZER_FILE).is_file()), model)
    if folder is None:
        raise UsageError("no model or corpus here says how to tokenise: give one with -m, or --tokenized")
    found = Tokenizers.load(folder)
    return Tokenizers.spaced() if task.links and found.kind == SentencePieces.kind else found


def _make(task: _Task, tokenizers: "Callable[[], Tokenizers]", progress: Progress) -> "tuple[Lexicon, str]":
    """The lexicon, and in words what it is made from."""
    from nmtalign.alignment.model1 import read_bitext
    from nmtalign.alignment.translation_table import pharaoh_links
    from nmtalign.data.pipeline import worker_count
    from nmtalign.text.lines import read_pairs

    if task.target is None:
        return _make_of_one(task, progress)
    texts, workers = (task.source, task.target), worker_count(task.workers)
    if task.links:
        return _count(task, pharaoh_links(texts, task.links, tokenizers(), task.every, workers), progress)
    pairs = islice(read_pairs(*texts), 0, None, task.every)
    return _learn(
        task, read_bitext(pairs, tokenizers(), workers, lambda read: progress(f"reading: {read:,} pairs")), progress
    )


def _make_of_one(task: _Task, progress: Progress) -> "tuple[Lexicon, str]":
    """The lexicon of a file of alignments or of a prepared corpus."""
    import h5py

    from nmtalign.alignment.model1 import corpus_bitext
    from nmtalign.alignment.translation_table import stored_links
    from nmtalign.data.corpus import CORPUS_FILE, Corpus

    if task.source == STDIO or (task.source.is_file() and not h5py.is_hdf5(task.source)):
        raise UsageError(f"{shown(task.source)}: one text is given; give the source and its translation: SRC TGT")
    is_file = task.source.is_file() or (task.source.suffix == ".h5" and not task.source.exists())
    if is_file and task.source.name != CORPUS_FILE:
        return _count(task, stored_links(task.source, task.every), progress)
    return _learn(task, corpus_bitext(Corpus.open(task.source), task.every), progress)


def _learn(task: _Task, bitext: "Bitext", progress: Progress) -> "tuple[Lexicon, str]":
    from nmtalign.alignment.translation_table import learn_lexicon

    def report(iteration: int, share: float) -> None:
        progress(f"iteration {iteration} of {task.iterations}: {share:.0%}")

    made = learn_lexicon(bitext.reversed() if task.reverse else bitext, task.iterations, report)
    left_out = f" ({bitext.left_out:,} more are empty or too long)" if bitext.left_out else ""
    return made, f"{len(bitext):,} pairs{left_out}"


def _count(task: _Task, pairs: "Iterable[LinkedPair]", progress: Progress) -> "tuple[Lexicon, str]":
    from nmtalign.alignment.translation_table import lexicon_of_links

    counts = {"pairs": 0, "links": 0}

    def passing() -> "Iterator[LinkedPair]":
        for pair in pairs:
            counts["pairs"] += 1
            counts["links"] += len(pair.links)
            if counts["pairs"] % 1000 == 0:
                progress(f"counting: {counts['pairs']:,} pairs")
            yield pair.turned() if task.reverse else pair

    made = lexicon_of_links(passing())
    if not counts["links"]:
        raise InputError(f"{shown(task.links or task.source)}: no links to count")
    return made, f"{counts['pairs']:,} pairs, {counts['links']:,} links"


def _write(entries: "list[LexiconEntry]", output: Path) -> None:
    lines = (entry.line() for entry in entries)
    if output != STDIO:
        with atomic_text(output) as stream:
            stream.writelines(lines)
        return
    sys.stdout.writelines(lines)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """What to call with what is going on: a line on stderr, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("reading", total=None)
        yield lambda step: display.update(task, description=escape(step))
