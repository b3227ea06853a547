"""`nmtalign translate`: raw text in, raw text out, one line for one line."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from nmtalign.cli.common import (
    ModelsOption,
    QuietOption,
    ShardOption,
    Signals,
    WhichOption,
    bound_caches,
    choose_wait_policy,
    live_line,
    notifier,
    own_argument,
    own_option,
    say,
    status_line,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.files import stays_in_place
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import SEARCH, TEXT
from nmtalign.text.lines import STDIN

if TYPE_CHECKING:
    from nmtalign.translating.file_translation import FileTranslation
    from nmtalign.translating.translator import Translator

_EVERY = 0.1  # seconds between two changes of the progress display

Inputs = Annotated[list[Path] | None, own_argument("INPUT", "Text or .gz files; - is stdin, the default.")]
Output = Annotated[
    Path | None,
    own_option(
        "Write to FILE, which is FILE.partial until it is complete.",
        "FILE",
        "--output -o",
        callback=writes("a file", stdout=True),
    ),
]
Resume = Annotated[bool, own_option("Continue an interrupted -o FILE after its last complete line.", names="--resume")]
SaveAlignments = Annotated[
    Path | None,
    own_option("Also save the attention weights of each translation (HDF5).", "FILE.h5", callback=writes("a file")),
]
SaveAlignmentsOf = Annotated[
    Literal["best", "n-best"],
    own_option("Translations in the file of --save-alignments: the best of each line, or all of --n-best.", panel=TEXT),
]
Weights = Annotated[
    Literal["float16", "float32"], own_option("Type of the weights in the file of --save-alignments.", panel=TEXT)
]
PrefixFile = Annotated[
    Path | None, own_option("The beginning of each translation, line by line.", "FILE", panel=SEARCH)
]
PhraseFile = Annotated[
    Path | None,
    own_option("Phrases that each translation contains, line by line, separated by tabs.", "FILE", panel=SEARCH),
]


@with_settings(TranslateConfig)
def translate(
    chosen: Chosen[TranslateConfig],
    inputs: Inputs = None,
    model: ModelsOption = None,
    output: Output = None,
    resume: Resume = False,
    save_alignments: SaveAlignments = None,
    save_alignments_of: SaveAlignmentsOf = "best",
    weights: Weights = "float16",
    prefix_file: PrefixFile = None,
    phrase_file: PhraseFile = None,
    which: WhichOption = "best",
    shard: ShardOption = None,
    quiet: QuietOption = False,
) -> None:
    """Translate text: one line out for each line in, as soon as it is translated.

    A blank line stays blank. Bytes that are not UTF-8 become U+FFFD.

    Examples:

      nmtalign translate -m model/ < in.en > out.fr

      nmtalign translate in.en.gz -o out.fr --resume --replace-unk

      nmtalign translate --n-best 5 --format json < in.en | jq .n_best

      nmtalign translate --save-alignments alignments.h5 < in.en > out.fr

      nmtalign translate --split-sentences --glossary terms.tsv < paragraphs.en > out.fr
    """
    paths, folders = tuple(inputs or (STDIN,)), tuple(model or (chosen.workspace.model,))
    output = None if output == STDIN else output
    _check(chosen.settings, [*paths, prefix_file, phrase_file], output, resume)
    if save_alignments_of == "n-best" and not save_alignments:
        raise UsageError("--save-alignments-of needs the file: give --save-alignments FILE.h5 too")
    choose_wait_policy()
    bound_caches()
    with Signals() as signals, chosen.naming():
        with status_line("loading PyTorch", quiet):
            from nmtalign.translating.file_translation import FileTranslation, SavedAlignments
            from nmtalign.translating.inputs import Inputs

        saved = SavedAlignments(save_alignments, save_alignments_of == "n-best", weights) if save_alignments else None
        sources = Inputs(paths, chosen.settings.input_format, prefix_file, phrase_file, shard)
        files = FileTranslation(sources, output or sys.stdout.buffer, chosen.settings, resume, saved, say)
        if files.is_done():
            notifier(quiet)(f"{output}: already done: it contains the translations of all {files.done:,} lines")
            return
        with status_line("loading the model", quiet):
            translator = _translator(folders, which, chosen.settings, save_alignments is not None)
        signals.detail = files.left
        if not quiet and STDIN in paths and sys.stdin.isatty():
            say("reading from the terminal, a sentence a line; Ctrl-D ends it")
        started = time.monotonic()
        shown = not quiet and _is_shown(output)
        with _progress(files, sources.size(), shown) as show:
            files.run(translator, lambda request: show(request.end), signals.whole)
        notifier(quiet)(_summary(files, translator, time.monotonic() - started))


def _is_shown(output: Path | None) -> bool:
    """Whether progress is shown; if stdout goes to the terminal, too, its lines would be mixed with the display."""
    return sys.stderr.isatty() and not (output is None and sys.stdout.isatty())


def _check(settings: TranslateConfig, files: Sequence[Path | None], output: Path | None, resume: bool) -> None:
    """Raises UsageError for options that do not go together; the last two files are of prefixes and phrases."""
    if [*files, Path(settings.glossary)].count(STDIN) > 1:
        raise UsageError("standard input (-) is given more than once; give all but one as files")
    if resume and (output is None or stays_in_place(output)):
        raise UsageError(f"--resume continues a file, and {output or 'standard output'} is none; give -o FILE")
    if settings.sample and files[-1]:
        raise UsageError("sampling cannot be made to contain phrases: leave out --sample or --phrase-file")
    if settings.input_format == "json" and any(files[-2:]):
        raise UsageError('--prefix-file and --phrase-file are for text; JSON has the keys "prefix" and "phrases"')


def _translator(
    folders: Sequence[Path], which: Literal["best", "last"], settings: TranslateConfig, saves_alignments: bool
) -> "Translator":
    """Raises UsageError if alignments are wanted of a model without attention."""
    from nmtalign.translating.translator import Translator, load_models

    wanted = saves_alignments or settings.alignment != "none"
    translator = Translator(load_models(folders, settings, which), settings, alignments=wanted)
    if wanted and not translator.alignments:
        option = "--save-alignments" if saves_alignments else "--alignment"
        raise UsageError(f"this model has no attention: it cannot give alignments; leave out {option}")
    return translator


def _summary(files: "FileTranslation", translator: "Translator", seconds: float) -> str:
    kind = translator.loaded.tokenizers.kind
    unit = {"sentencepiece": "pieces", "bytes": "bytes"}.get(kind, "words")
    seconds = max(seconds, 1e-3)
    before = f" after the {files.done:,} of an earlier run" if files.done else ""
    return (
        f"{files.lines:,} line{'s' * (files.lines != 1)}{before}, {files.tokens:,} source {unit} in {seconds:.1f} s "
        f"({files.lines / seconds:.1f} lines/s, {files.tokens / seconds:,.0f} {unit}/s; {translator.loaded.device}, "
        f"{translator.precision}); "
        f"{files.unknown / max(files.words, 1):.2%} of the source {unit if kind == 'bytes' else 'words'} are unknown"
    )


@contextlib.contextmanager
def _progress(files: "FileTranslation", size: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Shows a line on stderr; yields a function that is called with the byte of the input at which a line ends.

    `size` in bytes gives the line a bar.
    """
    if not shown:
        yield lambda end: None
        return
    started = last = time.monotonic()
    with live_line("translating", size) as update:

        def show(end: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last > _EVERY:
                rate = files.tokens / (now - started)
                update(completed=end, description=f"translating: {files.lines:,} lines, {rate:,.0f} words/s")
                last = now

        yield show
