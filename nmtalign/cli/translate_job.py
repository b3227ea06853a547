"""What `nmtalign translate` does once its options are known."""

import contextlib
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np

from nmtalign.alignment.links import merge_log_probs, merge_pieces
from nmtalign.alignment.store import AlignmentWriter
from nmtalign.cli.common import notifier, say
from nmtalign.config import TranslateConfig
from nmtalign.core.devices import use_threads
from nmtalign.decoding.inputs import InputLine, are_at_hand, input_size, read_inputs
from nmtalign.decoding.output import json_line, moses_lines, text_line
from nmtalign.decoding.stream import AtHand, windows
from nmtalign.decoding.translator import WINDOW_CHARACTERS, Translation, Translator, search_options
from nmtalign.errors import NmtalignError
from nmtalign.files import atomic_text
from nmtalign.model_directory import LoadedModel, Which, load_model
from nmtalign.text.lines import STDIN
from nmtalign.text.tokenizer import SentencePieces, Tokenizers


class Progress(Protocol):
    """Told after each window: its bytes, and lines and source words so far."""

    def __call__(self, size: int, lines: int, words: int) -> None: ...


@dataclass
class _Counts:
    lines: int = 0
    words: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Job:
    """One run of `nmtalign translate`."""

    inputs: tuple[Path, ...]
    model: Path
    which: Which
    output: Path | None
    alignments: Path | None
    settings: TranslateConfig
    quiet: bool

    def run(self) -> None:
        """Translates every line of the inputs; raises NmtalignError if as many lines did not come out."""
        settings = self.settings
        search_options(settings)  # refuses what cannot be before a model is loaded
        size = input_size(self.inputs)
        use_threads(settings.threads)
        loaded = load_model(self.model, device=settings.device, precision=settings.precision, which=self.which)
        translator = Translator(loaded, settings, keep_weights=self.alignments is not None)
        if not self.quiet and STDIN in self.inputs and sys.stdin.isatty():
            say("reading from the terminal, a sentence a line; Ctrl-D ends it")
        started, counts = time.monotonic(), _Counts()
        with self._files(loaded) as (stream, writer), _progress(self.quiet, size) as progress:
            lines = read_inputs(self.inputs)
            source = AtHand(lines) if are_at_hand(self.inputs) else lines
            for window in windows(source, translator.window, WINDOW_CHARACTERS, lambda line: len(line.text)):
                self._translate(translator, window, counts, stream, writer)
                progress(sum(line.size for line in window), counts.lines, counts.words)
        self._summarize(counts, time.monotonic() - started, loaded)

    @contextlib.contextmanager
    def _files(self, loaded: LoadedModel) -> Iterator[tuple[TextIO, AlignmentWriter | None]]:
        """Where the text goes and, if they are wanted, the alignments; files appear when all is written."""
        with contextlib.ExitStack() as stack:
            writer = None
            if self.alignments:
                direction = f"{loaded.source_language}-{loaded.target_language}"
                options = json.dumps({"command": "translate", **asdict(self.settings)})
                attributes = {"model_hash": loaded.hash, "direction": direction, "options": options}
                writer = stack.enter_context(AlignmentWriter(self.alignments, attributes))
            yield stack.enter_context(atomic_text(self.output)) if self.output else _stdout(), writer

    def _translate(
        self,
        translator: Translator,
        window: Sequence[InputLine],
        counts: _Counts,
        stream: TextIO,
        writer: AlignmentWriter | None,
    ) -> None:
        """Translates the lines of a window, writes them out and flushes."""
        for line in window:
            if not line.valid:
                say(f"{line.place}: not UTF-8; the bytes that are not became U+FFFD")
        read, written = counts.lines + len(window), list[str]()
        formatted = (
            json_line if self.settings.format == "json" else moses_lines if self.settings.n_best > 1 else text_line
        )
        for line, translation in zip(window, translator.translate([line.text for line in window]), strict=False):
            if translation.pieces > 1:
                say(
                    f"{line.place}: {len(translation.source_tokens)} tokens, more than max_source_length = "
                    f"{self.settings.max_source_length}: translated in {translation.pieces} pieces"
                )
            written.append(formatted(counts.lines, translation) + "\n")
            if writer is not None:
                _keep_alignment(writer, counts.lines, translation, translator.loaded.tokenizers)
            counts.lines += 1
            counts.words += len(translation.source_tokens)
            counts.unknown += translation.source_unknown
        stream.writelines(written)
        stream.flush()
        if counts.lines != read:
            raise NmtalignError(f"{read} lines were read, but {counts.lines} translated; this is a bug of nmtalign")

    def _summarize(self, counts: _Counts, seconds: float, loaded: LoadedModel) -> None:
        unit = "pieces" if isinstance(loaded.tokenizers.source, SentencePieces) else "words"
        seconds = max(seconds, 1e-3)
        notifier(self.quiet)(
            f"{counts.lines:,} lines, {counts.words:,} source {unit} in {seconds:.1f} s "
            f"({counts.lines / seconds:.1f} lines/s, {counts.words / seconds:,.0f} {unit}/s); "
            f"{counts.unknown / max(counts.words, 1):.2%} of the source {unit} are unknown"
        )


def _stdout() -> TextIO:
    """Standard output in UTF-8 whatever the locale; only `\\n` ends a line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    return sys.stdout


def _keep_alignment(writer: AlignmentWriter, number: int, translation: Translation, tokenizers: Tokenizers) -> None:
    """Adds the alignment of the best hypothesis, between words."""
    hypothesis, source, target = translation.hypotheses[0], translation.source_tokens, translation.target_tokens[0]
    if hypothesis.weights is None:
        raise NmtalignError("the search kept no weights; this is a bug of nmtalign")
    source_index, target_index = tokenizers.source.word_index(source), tokenizers.target.word_index(target)
    writer.append(
        tokenizers.source.words(source),
        tokenizers.target.words(target),
        merge_pieces(hypothesis.weights, source_index, target_index),
        hypothesis.log_prob,
        number,
        token_log_probs=merge_log_probs(np.array(hypothesis.token_log_probs), target_index),
    )


@contextlib.contextmanager
def _progress(quiet: bool, size: int | None) -> Iterator[Progress]:
    """A live line on stderr where that is a terminal and stdout is not; `size` in bytes gives it a bar."""
    if quiet or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda size, lines, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    ends = (BarColumn(), TimeRemainingColumn()) if size else (TimeElapsedColumn(),)
    started = time.monotonic()
    with Display(TextColumn("{task.description}"), *ends, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("translating", total=size)

        def update(size: int, lines: int, words: int) -> None:
            rate = words / (time.monotonic() - started)
            display.update(task, advance=size, description=f"{lines:,} lines, {rate:,.0f} words/s")

        yield update
