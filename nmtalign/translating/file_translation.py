"""One run of `nmtalign translate`: files in, a file or stream out, one entry out for each line in."""

import contextlib
import dataclasses
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nmtalign.alignment.alignment_file import AlignmentFile, AlignmentWriter
from nmtalign.alignment.links import merge_log_probs, merge_pieces
from nmtalign.errors import InputError, NmtalignError, with_more
from nmtalign.files import PartialFile, disk_errors, sha256_of, stays_in_place, stream_number
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.direction import InputCheck
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.translating.inputs import InputRequest, Inputs
from nmtalign.translating.keeping import hashes_of_files
from nmtalign.translating.output_formats import OutputFormat, writes_lists
from nmtalign.translating.resume import ResumableOutput
from nmtalign.translating.translation import Translation
from nmtalign.translating.translator import Translator

_BUG = "this is a bug of nmtalign"


@dataclass(frozen=True)
class SavedAlignments:
    """The HDF5 file of a run: the alignments of the best or of all translations, as float16 or float32."""

    path: Path
    n_best: bool = False
    weights: str = "float16"

    def has_all(self, sentences: int) -> bool:
        """Whether the file contains this number of sentences, and no interrupted run has left another to resume."""
        written = PartialFile(self.path)
        if written.partial.exists() or not written.path.is_file():
            return False
        with AlignmentFile(written.path) as file:
            return file.sentence_count() == sentences

    def attributes(self, translator: Translator, inputs: Inputs) -> dict[str, object]:
        """The origin of the file, as the file records it."""
        loaded, settings = translator.loaded, translator.config
        options = {
            "command": "translate",
            "alignments_of": "n-best" if self.n_best else "best",
            **dataclasses.asdict(settings),
            "prefix_file": str(inputs.prefixes or ""),
            "phrase_file": str(inputs.phrases or ""),
            **({"shard": str(inputs.shard)} if inputs.shard else {}),
        }
        return {
            "model_hash": "+".join(model.hash for model in translator.models),
            "direction": f"{loaded.source_language}-{loaded.target_language}",
            "made_by": "sampling" if settings.sample else "beam search",
            "options": json.dumps(options),
            "files_sha256": json.dumps(
                hashes_of_files(settings, prefix_file=inputs.prefixes, phrase_file=inputs.phrases)
            ),
            "seed": settings.seed if settings.sample else 0,
            "source_file": ", ".join(map(str, inputs.paths)),
            "source_sha256": ", ".join(sha256_of(path) if path.is_file() else "" for path in inputs.paths),
        }

    def add(self, writer: AlignmentWriter, number: int, translation: Translation, tokenizers: Tokenizers) -> None:
        """Adds the alignments between words of the translations of a line; no model has read a blank line."""
        source = translation.source_tokens
        source_index, source_words = tokenizers.source.word_index(source), tokenizers.source.words(source)
        for rank, entry in enumerate(translation.n_best if self.n_best else translation.n_best[:1]):
            if entry.alignment is None:
                raise NmtalignError(f"the search kept no weights; {_BUG}")
            target_index = tokenizers.target.word_index(entry.tokens)
            writer.append(
                source_words,
                tokenizers.target.words(entry.tokens),
                merge_pieces(entry.alignment, source_index, target_index),
                entry.log_prob if source else math.nan,
                number,
                token_log_probs=merge_log_probs(np.array(entry.token_log_probs), target_index) if source else None,
                rank=rank,
            )


class FileTranslation:
    """Translates all lines of the inputs to a file, which a later run can resume, or to a stream.

    Streams are an open stream, and the path of something that cannot be replaced, such as /dev/null or a named pipe.
    `lines`, `tokens`, `words` and `unknown` count what this run has translated: lines, source tokens, those that are
    words, and unknown words. `done` counts the lines that earlier runs have translated.
    """

    def __init__(
        self,
        inputs: Inputs,
        output: Path | BinaryIO,
        settings: TranslateConfig,
        resume: bool = False,
        alignments: SavedAlignments | None = None,
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`notify` receives one line of text for each thing that a user should know about a line or a file."""
        self.lines = self.tokens = self.words = self.unknown = self.done = 0
        self._inputs, self._settings, self._resume = inputs, settings, resume
        self._alignments, self._notify = alignments, notify
        self._available, self._read = inputs.at_hand, 0
        self._output: BinaryIO | Path | ResumableOutput = output
        if isinstance(output, Path) and not stays_in_place(output):
            n_best = settings.n_best if writes_lists(settings) else 0
            self._output = file = ResumableOutput(output, n_best, inputs.block.start)
            if resume:
                file.look_back()
            self.done = file.done

    def is_done(self) -> bool:
        """Whether an earlier run has translated all lines; a complete FILE.partial is renamed to FILE.

        Raises InputError if the output has more lines than the inputs.
        """
        file = self._output
        if not isinstance(file, ResumableOutput) or file.found is None or not self._available:
            return False
        lines = self._inputs.count()
        if self.done > lines:
            raise self._too_many(lines)
        if self._alignments is not None:
            return self.done == lines and file.found == file.path and self._alignments.has_all(lines)
        if self.done == lines and file.found == file.partial:
            file.begin()
            file.finish()
        return self.done == lines

    def left(self) -> str:
        """The end of a message about an interruption: what the output contains."""
        if not isinstance(self._output, ResumableOutput):
            return f" after {self.lines:,} lines"
        lines = self.done + self.lines if self._output.partial.exists() else 0
        return f"; {self._output.partial} contains {lines:,} lines; --resume continues after them" if lines else ""

    def run(
        self,
        translator: Translator,
        report: Callable[[InputRequest], None] = lambda request: None,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Translates the lines that are left, and calls `report` after each line that was written.

        Output is written inside `guard()`, which may delay an interruption until the line is complete. Raises
        NmtalignError if a line has no translation.
        """
        for notice in translator.notices():
            self._notify(notice)
        try:
            check = InputCheck(translator.loaded.text_fit(0, self._settings.tokenized), self._inputs.name, self._notify)
            with self._opened_alignments(translator) as add_alignments, self._opened() as write:
                for request, translation, text in self._translations(translator):
                    with guard():
                        write(text)
                        self.lines += 1
                        self.tokens += len(translation.source_tokens)
                        words, unknown = translator.loaded.source_vocabulary.count_words(translation.source_tokens)
                        self.words, self.unknown = self.words + words, self.unknown + unknown
                        add_alignments(request.index, translation)
                    check.add(request.text)
                    report(request)
                check.finish(self.words, self.unknown)
                if isinstance(self._output, ResumableOutput):
                    with guard():
                        self._output.finish()
        except NmtalignError as error:
            if self.lines and isinstance(self._output, ResumableOutput):
                raise with_more(error, self.left()) from None
            raise

    @contextlib.contextmanager
    def _opened_alignments(self, translator: Translator) -> Iterator[Callable[[int, Translation], None]]:
        """Opens the file of alignments; when resuming, both outputs continue after the last line that both have."""
        saved, tokenizers = self._alignments, translator.loaded.tokenizers
        if saved is None:
            yield lambda number, translation: None
            return
        attributes, at_most = saved.attributes(translator, self._inputs), self.done if self._resume else None
        with AlignmentWriter(saved.path, attributes, saved.weights, resume=self._resume, at_most=at_most) as writer:
            if writer.kept is not None:
                self._notify(f"{writer.partial} existed; renamed to {writer.kept}; --resume would have continued it")
            if self._resume and isinstance(self._output, ResumableOutput) and writer.sentences < self.done:
                self._notify(
                    f"{self._output.found} contains {self.done:,} lines, and there are alignments of "
                    f"{writer.sentences:,}: both continue after line {writer.sentences:,}"
                )
                self._output.keep(writer.sentences)
                self.done = writer.sentences
            yield lambda number, translation: saved.add(writer, number, translation, tokenizers)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Callable[[bytes], None]]:
        """Opens the output; yields a function that writes complete lines at once. An error leaves FILE.partial."""
        output = self._output
        if isinstance(output, ResumableOutput):
            if output.begin():
                self._notify(f"{output.partial} existed; renamed to {output.old}; --resume would have continued it")
            try:
                yield output.write
            finally:
                output.close()
        elif isinstance(output, Path):
            number = stream_number(output)
            with disk_errors(output), open(output if number is None else os.dup(number), "wb") as stream:  # noqa: PTH123
                yield partial(_write, stream)
        else:
            yield partial(_write, output)

    def _translations(self, translator: Translator) -> Iterator[tuple[InputRequest, Translation, bytes]]:
        """The lines that are left, in order and without a gap, with their translations and the text to write.

        Lines of a window that was interrupted are translated again, and compared with what the earlier run wrote.
        """
        output, number = OutputFormat(self._settings, translator.loaded.tokenizers), None
        earlier: Iterator[bytes] = iter(())
        first = self._inputs.block.start
        for translation in translator.translate_rest(self._requests(), self.done, self._available, first):
            request = translation.request
            if not isinstance(request, InputRequest):
                raise NmtalignError(f"{request.text!r} was never read; {_BUG}")
            place = request.index - first
            if number is None:
                number = min(place, self.done)
                if isinstance(self._output, ResumableOutput):
                    earlier = itertools.islice(self._output.entries(), number, self.done)
            if place != number:
                raise NmtalignError(f"line {first + number + 1} of the input has no translation; {_BUG}")
            number += 1
            text = output.lines(request.index, translation).encode()
            if place >= self.done:
                self._describe(request, translation)
                yield request, translation, text
            elif text != next(earlier, text):
                self._notify(f"{request.place}: was translated differently before: by another model, or other options?")
                earlier = iter(())
        if self._read != (self.done if number is None else number):
            raise NmtalignError(f"{self._read} lines were read, but {number or 0} translated; {_BUG}")

    def _requests(self) -> Iterator[InputRequest]:
        for request in self._inputs:
            self._read += 1
            yield request
        if self._read < self.done:
            raise self._too_many(self._read)

    def _describe(self, request: InputRequest, translation: Translation) -> None:
        """Notifies of a line that is unusual."""
        if not request.valid:
            self._notify(f"{request.place}: not UTF-8; the bytes that are not became U+FFFD")
        if translation.pieces > translation.sentences:
            tokens = f"{len(translation.source_tokens)} tokens, more than"
            size = tokens if translation.sentences == 1 else "a sentence has more tokens than"
            self._notify(
                f"{request.place}: {size} max_source_length = {self._settings.max_source_length}: "
                f"translated in {translation.pieces} pieces"
            )

    def _too_many(self, lines: int) -> InputError:
        where = self._output.found if isinstance(self._output, ResumableOutput) else None
        return InputError(
            f"{where}: contains the translations of {self.done} lines, but the input has {lines}; "
            "to continue, give the input that belongs to it; to start again, leave out --resume"
        )


def _write(stream: BinaryIO, lines: bytes) -> None:
    stream.write(lines)
    stream.flush()
