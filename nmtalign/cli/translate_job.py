"""What `nmtalign translate` does once its options are known."""

import contextlib
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nmtalign.cli.common import notifier, say
from nmtalign.cli.stopping import Signals
from nmtalign.cli.translate_alignments import Alignments, Keep
from nmtalign.cli.translate_output import (
    Counts,
    FileOutput,
    StreamOutput,
    choose_output,
    live_progress,
    telling_what_is_left,
)
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.model_files import Which
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.lines import STDIN
from nmtalign.text.tokenizer import SentencePieces
from nmtalign.translating.inputs import InputRequest, Inputs, after
from nmtalign.translating.output_formats import formatter
from nmtalign.translating.stream import AtHand, Rest
from nmtalign.translating.translation import Translation
from nmtalign.translating.translator import Translator, load_models

_BUG = "this is a bug of nmtalign"


@dataclass(frozen=True)
class Job:
    """One run of `nmtalign translate`."""

    inputs: Inputs
    models: tuple[Path, ...]
    which: Which
    output: Path | None
    resume: bool
    alignments: Alignments | None
    settings: TranslateConfig
    quiet: bool

    def run(self, signals: Signals) -> None:
        """Translates every line of the inputs; raises NmtalignError if as many lines did not come out."""
        at_hand = self.inputs.at_hand
        output = choose_output(self.output, self.inputs, self.settings, self.resume)
        if at_hand and isinstance(output, FileOutput) and self._is_done(output):
            notifier(self.quiet)(f"{self.output}: already done: it holds the translations of all {output.done:,} lines")
            return
        translator, counts = self._translator(), Counts()
        signals.detail = lambda: output.left(counts.lines)
        if not self.quiet and STDIN in self.inputs.paths and sys.stdin.isatty():
            say("reading from the terminal, a sentence a line; Ctrl-D ends it")
        started = time.monotonic()
        with (
            telling_what_is_left(output, counts),
            self._alignments(translator, output) as keep_alignments,
            output.opened(),
            live_progress(self._shows_progress(), self.inputs.size()) as progress,
        ):
            for request, translation, text in self._translate(translator, at_hand, output):
                with signals.whole():
                    output.write(text)
                    counts.add(translation)
                    keep_alignments(request.index, translation)
                progress(request.end, counts)
            with signals.whole():
                output.finish()
        self._summarize(translator, counts, time.monotonic() - started, output.done)

    def _is_done(self, output: FileOutput) -> bool:
        if self.alignments is None:
            return output.is_complete(self.inputs)
        return output.is_whole(self.inputs) and self.alignments.is_whole(output.done)

    def _shows_progress(self) -> bool:
        """Whether stderr is a terminal whose lines are not mixed with those of stdout."""
        return not self.quiet and sys.stderr.isatty() and not (self.output is None and sys.stdout.isatty())

    def _translator(self) -> Translator:
        wanted = self.alignments is not None or self.settings.alignment != "none"
        models = load_models(self.models, self.settings, self.which)
        translator = Translator(models, self.settings, alignments=wanted)
        if wanted and not translator.alignments:
            option = "--save-alignments" if self.alignments is not None else "--alignment"
            raise UsageError(f"this model has no attention: it cannot give alignments; leave out {option}")
        return translator

    @contextlib.contextmanager
    def _alignments(self, translator: Translator, output: StreamOutput | FileOutput) -> Iterator[Keep]:
        if self.alignments is None:
            yield lambda number, translation: None
            return
        with self.alignments.opened(translator, self.settings, self.inputs, output) as keep:
            yield keep

    def _translate(
        self, translator: Translator, at_hand: bool, output: StreamOutput | FileOutput
    ) -> Iterator[tuple[InputRequest, Translation, bytes]]:
        """Each line that is left, its translation and what is to be written of it: in order, none left out."""
        formatted, done = formatter(self.settings, translator.loaded.tokenizers), output.done
        lines, number = _Counted(self.inputs), done
        earlier: Iterator[bytes] | None = None
        for translation in translator.translate(_left_of(lines, at_hand, output)):
            request = translation.request
            if not isinstance(request, InputRequest):
                raise NmtalignError(f"{request.text!r} was never read; {_BUG}")
            if earlier is None:  # the first; windows that are done in part are translated as a whole, as they were
                number = min(request.index, done)
                earlier = itertools.islice(output.lines_done(), number, done)
            if request.index != number:
                raise NmtalignError(f"line {number + 1} of the input has no translation; {_BUG}")
            number += 1
            text = formatted(request.index, translation).encode()
            if request.index >= done:
                self._tell(request, translation)
                yield request, translation, text
            elif text != next(earlier, text):
                say(f"{request.place}: was translated otherwise before; was that another model, or with other options?")
                earlier = iter(())
        if lines.count != number:
            raise NmtalignError(f"{lines.count} lines were read, but {number} translated; {_BUG}")

    def _tell(self, request: InputRequest, translation: Translation) -> None:
        """What is not as it should be with a line."""
        if not request.valid:
            say(f"{request.place}: not UTF-8; the bytes that are not became U+FFFD")
        if translation.pieces > 1:
            say(
                f"{request.place}: {len(translation.source_tokens)} tokens, more than max_source_length = "
                f"{self.settings.max_source_length}: translated in {translation.pieces} pieces"
            )

    def _summarize(self, translator: Translator, counts: Counts, seconds: float, done: int) -> None:
        unit = "pieces" if isinstance(translator.loaded.tokenizers.source, SentencePieces) else "words"
        seconds = max(seconds, 1e-3)
        before = f" after the {done:,} that were there" if done else ""
        notifier(self.quiet)(
            f"{counts.lines:,} lines{before}, {counts.words:,} source {unit} in {seconds:.1f} s "
            f"({counts.lines / seconds:.1f} lines/s, {counts.words / seconds:,.0f} {unit}/s); "
            f"{counts.unknown / max(counts.words, 1):.2%} of the source {unit} are unknown"
        )


class _Counted:
    """The lines of the inputs, and how many have been read."""

    def __init__(self, inputs: Inputs) -> None:
        self.count = 0
        self._inputs = inputs

    def __iter__(self) -> Iterator[InputRequest]:
        for request in self._inputs:
            self.count += 1
            yield request


def _left_of(lines: _Counted, at_hand: bool, output: StreamOutput | FileOutput) -> Iterable[InputRequest]:
    """What is left to translate; files in the windows of a run that was never interrupted."""
    if at_hand:
        return AtHand(lines, output.done)
    if isinstance(output, FileOutput) and output.done:
        return Rest(after(iter(lines), output.done, output.file.partial), output.done)
    return iter(lines)
