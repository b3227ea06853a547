"""One run of `nmtalign translate`: files in, a file or stream out, one entry out for each line in (docs/formats.md).

An output file is called FILE.partial until it is complete. FILE.partial.json contains the origin of its lines: the
hash of the model, the settings, and the hashes of the files. A later run can resume it if its origin is the same.
"""

import json
import math
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, cast

import numpy as np

from nmtalign import files
from nmtalign.alignment.alignment_file import AlignmentWriter, check_same
from nmtalign.alignment.links import AlignmentRecord, argmax_links, format_links, merge_log_probs, merge_pieces
from nmtalign.errors import FormatError, InputError, NmtalignError, UsageError
from nmtalign.model_directory import BEST
from nmtalign.search.beam_search import Array
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import select
from nmtalign.text.languages import check_lines
from nmtalign.text.lines import (
    STDIN,
    Shard,
    as_json,
    counted,
    lines_after,
    raw_lines,
    reading,
    shown,
    strip_end,
    unpacked_size,
    whole_text,
)
from nmtalign.text.tokenizer import Subwords, Tokenizers, lexicon_file
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Alternative, Translation, Translator

_BLOCK = 1 << 20  # bytes
_MOSES_ID = re.compile(rb"(\d{1,15}) \|\|\| ")
_TEXT_KEYS = ("text", "source")  # the first that exists counts
_PHRASES_KEYS = ("phrases", "constraints")
# Keys that `json_line` writes only on request. In an object that was written here and is translated again, they would
# describe the earlier translation.
_OPTIONAL_KEYS = frozenset(("token_log_probs", "alignment", "words", "source_words", "pieces", "confidence"))


@dataclass(frozen=True, kw_only=True)
class InputRequest(Request):
    """A line of an input file as a request."""

    place: str  # the file and the number of the line in it, for messages
    index: int  # its number among all lines, from 0
    end: int  # the number of bytes of the lines to translate up to its end
    valid: bool  # whether all of its bytes were UTF-8


@dataclass(frozen=True)
class Inputs:
    """The files to translate, one after the other; `-` is stdin.

    In format `json` each line is an object. With a `shard` only its block of the lines is translated.
    """

    paths: tuple[Path, ...]
    format: Literal["text", "json"] = "text"
    shard: Shard | None = None

    def __iter__(self) -> Iterator[InputRequest]:
        """The lines; only `\\n` and the end of a file end a line. Bytes that are not UTF-8 become U+FFFD.

        Raises InputError for a file that cannot be read, for a line that is not the expected JSON, and for a line
        longer than `LONGEST_LINE`.
        """
        numbered = ((path, number, raw) for path in self.paths for number, raw in enumerate(raw_lines(path), 1))
        end, start = 0, self.block.start
        for index, (path, number, raw) in enumerate(islice(numbered, start, self.block.stop), start):
            line = strip_end(raw)
            text = line.decode("utf-8", "replace")
            place = f"{shown(path)}: line {number}"
            found = read_request(text, place) if self.format == "json" else Request(text)
            end += len(raw)
            yield InputRequest(**vars(found), place=place, index=index, end=end, valid=text.encode() == line)

    @property
    def name(self) -> str:
        """The names of all files, for messages."""
        return " and ".join(map(shown, self.paths))

    @cached_property
    def block(self) -> range:
        """The numbers of the lines to translate, from 0; raises UsageError for a shard of what is not a file."""
        if self.shard is None:
            return range(sys.maxsize)
        for path in self.paths:
            if not are_files(path):
                raise UsageError(f"{shown(path)}: a shard needs a regular file, because its lines are counted first")
        return self.shard.block(sum(map(_count_lines, self.paths)))

    def count(self) -> int:
        """The number of lines to translate. Reads all files; stdin must be a regular file and is rewound."""
        return len(self.block) if self.shard is not None else sum(map(_count_lines, self.paths))

    def size(self) -> int | None:
        """The number of bytes of the lines to translate, for the display of progress; None if it is not known."""
        if self.shard is not None or not are_files(*self.paths):
            return None
        sizes = [unpacked_size(path) for path in self.paths]
        return None if None in sizes else sum(size or 0 for size in sizes)


class FileTranslation:
    """Translates all lines of the inputs to a file, which a later run can resume, or to a stream.

    Streams are an open stream, and the path of something that cannot be replaced, such as /dev/null or a named pipe.
    `lines`, `tokens` and `unknown` count what this run has translated: lines, source tokens, and unknown ones of them.
    `done` counts the lines that earlier runs have translated. `end` is the number of bytes of the input up to the last
    translated line, `size` that of all bytes, or None. `str` gives a summary.
    """

    rest = b""  # what is written after the last line

    def __init__(
        self,
        inputs: Inputs,
        output: Path | BinaryIO,
        config: TranslateConfig,
        resume: bool = False,
        alignments: Path | None = None,
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        """The best translations, or all of `config.n_best`, have their attention weights saved in `alignments` (HDF5).

        `notify` receives one line of text for each thing that a user should know about a line or a file.
        """
        self.lines = self.tokens = self.unknown = self.done = self.end = 0
        self.size = inputs.size()
        self._inputs, self._config, self._resume = inputs, config, resume
        self._alignments, self._notify = alignments, notify
        self._stream, self._summary = output, ""
        self._file: ResumableOutput | None = None
        self._writer: AlignmentWriter | None = None
        self._list_size = config.n_best if writes_lists(config) else 0
        self._short = False  # whether the last list has fewer than `n_best` entries: a later run does not count it
        if isinstance(output, Path) and not files.stays_in_place(output):
            self._file = ResumableOutput(output, self._list_size, inputs.block.start)
        elif resume:
            name = output if isinstance(output, Path) else "standard output"
            raise UsageError(f"--resume needs an output file, and {name} is none: add -o FILE")

    def __str__(self) -> str:
        return self._summary

    def is_done(self, models: Sequence[Path] = ()) -> bool:
        """Whether the run that this one resumes has translated all lines.

        Raises UsageError if a complete output belongs to another input, or is older than the input or the weights of
        one of the `models`: to resume, there must be FILE.partial.
        """
        file = self._file
        if file is None or file.partial.exists() or not file.path.exists():
            return False
        self.done, lines = file.count(), self._inputs.count() if are_files(*self._inputs.paths) else None
        weights = (path for model in models for path in (model, model / BEST) if path.is_file())
        read = [*self._inputs.paths, *weights]
        newer = [shown(one) for one in read if _status(one).st_mtime > _status(file.path).st_mtime]
        problem = ""
        if self.done != lines:
            problem = "the lines of the input cannot be counted" if lines is None else f"the input has {lines}"
        elif newer:
            problem = f"{newer[0]} is newer"
        elif self._alignments is not None and not self._alignments.exists():
            problem = f"{self._alignments} does not exist"
        if problem:
            what = f"is complete, with {counted(self.done, 'translation')}, but {problem}"
            raise UsageError(f"{file.path}: {what}; leave out --resume to translate all lines again")
        file.close()  # a run that was killed at its very end has left FILE.partial.json
        shard = f", as many as shard {self._inputs.shard} has lines" if self._inputs.shard else ""
        self._summary = f"{file.path}: already done: it contains {counted(self.done, 'translation')}{shard}"
        return True

    def left(self) -> str:
        """The end of a message about an interruption: what the output contains."""
        if self._file is None:
            return f" after {counted(self.lines, 'line')}"
        if self._writer is not None:  # both continue after the last line that both have
            return self._writer.left()
        done = self.done + self.lines - self._short if self._file.partial.exists() else 0
        return f"; {self._file.partial} contains {counted(done, 'line')}; --resume continues after them" if done else ""

    def run(
        self,
        translator: Translator,
        progress: Callable[["FileTranslation"], None] = lambda run: None,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Translates the lines that are left; calls `progress` at the start, and after each line that was written.

        Output is written inside `guard()`, which may delay an interruption until the line is complete. Raises
        UsageError for alignments of a model without attention, NmtalignError if a line has no translation.
        """
        if not translator.alignments and (self._alignments is not None or self._config.alignment != "none"):
            option = "--alignment" if self._alignments is None else "--save-alignments"
            raise UsageError(f"this model has no attention: it cannot give alignments; leave out {option}")
        origin = self._origin(translator) if self._file is not None or self._alignments is not None else {}
        progress(self)
        started = time.monotonic()
        try:
            with ExitStack() as outputs:
                fit, name = translator.loaded.text_fit(0, self._config.tokenized), self._inputs.name
                write = self._open(outputs, origin)
                with self._opened_alignments(translator, origin) as add_alignments:
                    done = self._translations(translator)
                    for translation, text in check_lines(done, lambda one: one[0].source, name, fit, self._notify):
                        request = cast(InputRequest, translation.request)
                        with guard():
                            write(text)
                            self.lines, self._short = self.lines + 1, len(translation.n_best) < self._list_size
                            self.tokens += len(translation.source_tokens)
                            self.unknown += translation.source_unknown
                            add_alignments(request.index, translation)
                        self.end = request.end
                        progress(self)
                if self.rest:
                    write(self.rest)
                if self._file is not None:
                    with guard():
                        self._file.finish()
        except NmtalignError as error:
            if self.lines and self._file is not None:
                raise type(error)(f"{error}{self.left()}") from None
            raise
        seconds = max(time.monotonic() - started, 1e-3)
        unit = {"sentencepiece": "piece", "bytes": "byte"}.get(translator.loaded.tokenizers.kind, "word")
        before = f" after the {self.done:,} of an earlier run" if self.done else ""
        self._summary = (
            f"{counted(self.lines, 'line')}{before}, {counted(self.tokens, f'source {unit}')} in {seconds:.1f} s "
            f"({self.lines / seconds:.1f} lines/s, {self.tokens / seconds:,.0f} {unit}s/s; {translator.loaded.device}, "
            f"{translator.precision}); {self.unknown / max(self.tokens, 1):.2%} of the source {unit}s are unknown"
        )

    def _origin(self, translator: Translator) -> dict[str, Any]:
        """All that the output depends on; streams, which can be read only once, have no hash."""
        config = translator.config
        paths = select(TranslateConfig, lambda one: one.is_path)
        read = {name: lexicon_file(Path(path)) for name in paths if (path := getattr(config, name))}
        return {
            "model_hash": "+".join(model.hash for model in translator.models),
            "options": asdict(config) | ({"shard": str(self._inputs.shard)} if self._inputs.shard else {}),
            "files_sha256": {name: files.sha256_of(path) for name, path in read.items() if path.is_file()},
            "source_sha256": ", ".join(files.sha256_of(path) if path.is_file() else "" for path in self._inputs.paths),
        }

    def _open(self, outputs: ExitStack, origin: Mapping[str, Any]) -> Callable[[bytes], None]:
        """Opens the output; returns a function that writes complete lines at once. An error leaves FILE.partial."""
        if self._file is not None:
            outputs.callback(self._file.close)
            self.done = self._file.begin(origin, self._resume, self._notify, short=self._alignments is not None)
            return self._file.write
        stream = self._stream
        if isinstance(stream, Path):
            stream = outputs.enter_context(files.atomic_text(stream)).buffer

        def write(lines: bytes) -> None:
            stream.write(lines)
            stream.flush()

        return write

    @contextmanager
    def _opened_alignments(
        self, translator: Translator, origin: Mapping[str, Any]
    ) -> Iterator[Callable[[int, Translation], None]]:
        """Opens the file of alignments; when resuming, both outputs continue after the last line that both have."""
        loaded, config, path = translator.loaded, self._config, self._alignments
        if path is None:
            yield lambda number, translation: None
            return
        attributes = {
            "model_hash": origin["model_hash"],
            "direction": f"{loaded.source_language}-{loaded.target_language}",
            "made_by": "sampling" if config.sample else "beam search",
            "options": json.dumps({"command": "translate", **origin["options"]}),
            "files_sha256": json.dumps(origin["files_sha256"]),
            "links_method": "argmax",
            "symmetrization": "none",
            "seed": config.seed if config.sample else 0,
            "source_file": ", ".join(map(str, self._inputs.paths)),
            "source_sha256": origin["source_sha256"],
        }
        with AlignmentWriter(
            path, attributes, config.alignment_type, resume=self._resume, at_most=self.done, notify=self._notify
        ) as writer:
            self._writer = writer
            if self._file is not None and writer.sentences < self.done:
                self._notify(
                    f"{self._file.partial} contains {counted(self.done, 'line')}, and there are alignments of "
                    f"{writer.sentences:,}: both continue after line {writer.sentences:,}"
                )
                self.done = self._file.keep(writer.sentences)

            def add(number: int, translation: Translation) -> None:
                source = translation.source_tokens  # a blank line has none: no model has read it
                source_starts = loaded.tokenizers.source.word_starts(source)
                source_words = tuple(loaded.tokenizers.source.words(source))
                entries = translation.n_best if config.save_alignments_of == "n-best" else translation.n_best[:1]
                for rank, entry in enumerate(entries):
                    starts = loaded.tokenizers.target.word_starts(entry.tokens)
                    weights = merge_pieces(cast(Array, entry.alignment), source_starts, starts)  # it has attention
                    words, links = tuple(loaded.tokenizers.target.words(entry.tokens)), tuple(argmax_links(weights))
                    log_prob = entry.log_prob if source else math.nan
                    log_probs = merge_log_probs(entry.token_log_probs if source else [math.nan], starts)
                    writer.add(AlignmentRecord(source_words, words, weights, log_prob, number, log_probs, links, rank))

            yield add

    def _translations(self, translator: Translator) -> Iterator[tuple[Translation, bytes]]:
        """The lines that are left, in order and without a gap, with their translations and the text to write."""
        output, first = OutputFormat(self._config, translator.loaded.tokenizers), self._inputs.block.start
        requests = lines_after(self._inputs, self.done, self.done, self._inputs.name)
        for translation in translator.translate_numbered(requests, first + self.done, are_files(*self._inputs.paths)):
            request = cast(InputRequest, translation.request)
            if not request.valid:
                self._notify(f"{request.place}: not UTF-8; the bytes that are not became U+FFFD")
            if translation.pieces > translation.sentences:
                why = f"a sentence has more tokens than max_source_length = {self._config.max_source_length}"
                self._notify(f"{request.place}: {why}: translated in {translation.pieces} pieces")
            yield translation, output.lines(request.index, translation).encode()


class ResumableOutput(files.PartialFile):
    """An output FILE with one entry per input line, written as FILE.partial; each entry is written at once.

    `finish` renames FILE.partial to FILE, compressed if the name ends in .gz. Without `finish` FILE.partial and its
    origin, FILE.partial.json, remain, and a later run can resume after the complete entries.
    """

    def __init__(self, path: Path, list_size: int = 0, first: int = 0) -> None:
        """With `list_size` an entry is a Moses n-best list of at most this size; their ids count from `first`."""
        super().__init__(path)
        self._record = self.partial.with_name(f"{self.partial.name}.json")
        self._list_size, self._first = list_size, first

    def begin(self, origin: Mapping[str, Any], resume: bool, notify: Callable[[str], None], short: bool) -> int:
        """Opens FILE.partial and returns the number of its entries, which the next ones follow.

        Without `resume` an earlier FILE.partial is renamed to FILE.partial.old, which `finish` removes. A last list
        of fewer than `list_size` lines may be incomplete; `short` counts it, for a caller whose alignments show whether
        it is. Raises UsageError naming the difference if the file was begun with another origin.
        """
        self.open()
        if resume and not self.is_empty():
            record = dict[str, Any]()
            with suppress(OSError, ValueError, TypeError):
                record = {**files.read_json(self._record)}
            check_same(self.partial, {**record, "source_sha256": origin["source_sha256"]}, origin)
            done = self.keep(short=short)
            if record.get("source_sha256") != origin["source_sha256"]:  # a line that caused an error may be corrected
                where = f"warning: {self.partial}: the input has changed"
                notify(f"{where}; if its first {counted(done, 'line')} did, leave out --resume to begin again")
            return done
        self.set_aside(notify)
        with files.atomic_text(self._record, follow=False) as stream:
            json.dump(origin, stream)
        return 0

    def keep(self, most: int = sys.maxsize, short: bool = False) -> int:
        """Removes all but the first entries, at most this number, and what is not complete; returns their number."""
        with files.disk_errors(self.partial, "read"), self.partial.open("rb") as lines:
            count, size = self._entries(lines, most, short)
        self.cut(size)
        return count

    def count(self) -> int:
        """The number of entries of the complete FILE."""
        with reading(self.path) as lines:
            return self._entries(lines, sys.maxsize, True)[0]

    def _entries(self, lines: BinaryIO, most: int, short: bool) -> tuple[int, int]:
        """The number of complete entries, at most `most`, and of their bytes; a short last list counts with `short`."""
        count = size = offset = listed = 0
        for number, line in enumerate(lines, 1):
            if count == most or not line.endswith(b"\n"):
                break
            match = _MOSES_ID.match(line) if self._list_size else None
            if self._list_size and match is None:
                raise FormatError(f"{self.path}: line {number}: not a line of an n-best list; give the same options")
            if match is None or int(match[1]) - self._first > count:
                count, size, listed = count + 1, offset if match else offset + len(line), 0
            offset, listed = offset + len(line), listed + 1
        if size < offset and count < most and (short or listed == self._list_size):
            count, size = count + 1, offset
        return count, size

    def close(self, remove: bool = False) -> None:
        """Closes FILE.partial; removes it, and its origin, if it is empty, or with `remove`."""
        super().close(remove)
        if self._record.exists() and not self.partial.exists():
            self._record.unlink()

    def finish(self) -> None:
        """Renames FILE.partial to FILE."""
        with files.disk_errors(self.path):
            files.keep_mode(self.stream.fileno(), self.path)
            if self.path.suffix == ".gz":
                with self.partial.open("rb") as lines, files.atomic_text(self.path) as packed:
                    shutil.copyfileobj(lines, packed.buffer, _BLOCK)
                self.close(remove=True)
            else:
                self.rename(self.path)
            self._record.unlink(missing_ok=True)
            self.old.unlink(missing_ok=True)


def writes_lists(config: TranslateConfig) -> bool:
    """Whether the output is a Moses n-best list, which has one line per translation."""
    return config.format == "text" and (config.n_best > 1 or config.word_scores or config.alignment != "none")


class OutputFormat:
    """The format that `config` requests; without the model's `tokenizers`, subword pieces count as words."""

    def __init__(self, config: TranslateConfig, tokenizers: Tokenizers | None = None) -> None:
        self._config = config
        pieces = tokenizers is not None and isinstance(tokenizers.target, Subwords)
        # Alignments are written between complete words, unless the output consists of pieces.
        self._merging = tokenizers if pieces and not config.tokenized else None

    def lines(self, number: int, translation: Translation) -> str:
        """The output for a line of input, given its number from 0; it ends with `\\n`."""
        if self._config.format == "json":
            return self.json_line(number, translation) + "\n"
        if writes_lists(self._config):
            return "".join(self._moses_line(number, translation, each) + "\n" for each in translation.n_best)
        return translation.text + "\n"

    def _moses_line(self, number: int, translation: Translation, alternative: Alternative) -> str:
        """A line of a Moses n-best list (docs/formats.md); three or more bars in a text get spaces between them."""
        features = f"LogProb= {fixed(alternative.log_prob)} Length= {len(alternative.tokens) + 1}"
        if self._config.word_scores:
            features += " WordScores= " + " ".join(map(fixed, alternative.token_log_probs))
        text = re.sub(r"\|{3,}", lambda bars: " ".join(bars[0]), alternative.text)
        line = f"{number} ||| {text} ||| {features} ||| {fixed(alternative.score)}"
        if self._config.alignment == "none":
            return line
        weights = self._weights(translation, alternative)
        if weights is None:
            return f"{line} ||| "
        if self._config.alignment == "hard":
            return f"{line} ||| {format_links(argmax_links(weights))}"
        return f"{line} ||| {' '.join(','.join(f'{weight:.4g}' for weight in row) for row in _rounded(weights))}"

    def json_line(self, number: int, translation: Translation) -> str:
        """One line of valid JSON: NaN and infinity become null, and no character is a line break.

        docs/formats.md lists the keys. All other keys of the request's `extra` come first, unchanged. If `extra` was
        written here, which its n_best shows, none of our keys is taken from it.
        """
        entries = [self._entry(translation, alternative) for alternative in translation.n_best]
        extra = translation.request.extra
        results = {"source": translation.source, **entries[0]}
        results |= {"source_tokens": list(translation.source_tokens), "source_unknown": translation.source_unknown}
        if translation.confidence is not None:
            results["confidence"] = round(translation.confidence, 4)
        if translation.pieces > 1:
            results["pieces"] = translation.pieces
        results["n_best"] = entries
        ours = {"id", *results, *(_OPTIONAL_KEYS if "n_best" in extra else ())}
        passed = {key: value for key, value in extra.items() if key not in ours}
        return as_json({"id": extra.get("id", number), **passed, **results})

    def _entry(self, translation: Translation, alternative: Alternative) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "translation": alternative.text,
            "score": round(alternative.score, 6),
            "log_prob": round(alternative.log_prob, 6),
            "tokens": list(alternative.tokens),
        }
        if self._config.word_scores:
            entry["token_log_probs"] = [round(float(value), 6) for value in alternative.token_log_probs]
        if self._config.alignment != "none":
            weights = self._weights(translation, alternative)
            hard = self._config.alignment == "hard"
            entry["alignment"] = None if weights is None else argmax_links(weights) if hard else _rounded(weights)
            if self._merging is not None:
                entry["words"] = self._merging.target.words(alternative.tokens)
                entry["source_words"] = self._merging.source.words(translation.source_tokens)
        return entry

    def _weights(self, translation: Translation, alternative: Alternative) -> Array | None:
        """The alignment (target words + 1, source words + 1), or None without attention."""
        if self._merging is None or alternative.alignment is None:
            return alternative.alignment
        source = self._merging.source.word_starts(translation.source_tokens)
        target = self._merging.target.word_starts(alternative.tokens)
        return merge_pieces(alternative.alignment, source, target)


def _rounded(weights: Array) -> list[list[float]]:
    return cast(list[list[float]], np.round(weights.astype(np.float64), 4).tolist())


def fixed(value: float) -> str:
    return f"{value:.6f}"


def are_files(*paths: Path) -> bool:
    """Whether all are regular files, read without waiting; raises InputError for a missing file."""
    modes = [_status(path).st_mode for path in paths]
    return all(map(stat.S_ISREG, modes))


def read_request(line: str, where: str) -> Request:
    """The request of a line of JSON, empty for a blank line; raises InputError, which begins with `where`."""
    return make_request(parse_line(line, where), where) if line and not line.isspace() else Request("")


def make_request(found: Any, where: str) -> Request:
    """Makes a request of a JSON object with the source text under "text" or "source".

    Optional keys are "prefix" (a text) and "phrases" or "constraints" (a list of texts); null is the same as a missing
    key. All other keys become `extra`, so that the output of `json_line` can be read again. An escaped surrogate
    becomes U+FFFD. Raises InputError, which begins with `where`.
    """
    if not isinstance(found, dict):
        raise InputError(f'{where}: not an object; write {{"text": "..."}}')
    key = next((key for key in _TEXT_KEYS if key in found), None)
    if key is None:
        raise InputError(f'{where}: the object has no "text"; write {{"text": "..."}}, or the source under "source"')
    phrases = next((key for key in _PHRASES_KEYS if found.get(key) is not None), "")
    known = {*_TEXT_KEYS, *_PHRASES_KEYS, "prefix"}
    return Request(
        text=checked_text(found[key], f'{where}: "{key}"'),
        prefix="" if found.get("prefix") is None else checked_text(found["prefix"], f'{where}: "prefix"'),
        phrases=_phrases(found[phrases], f'{where}: "{phrases}"') if phrases else (),
        extra={key: value for key, value in found.items() if key not in known},
    )


def parse_line(line: str, where: str, fix: str = 'write one object per line, such as {"text": "..."}') -> Any:
    """Returns the value of a line of JSON; raises InputError, which begins with `where` and ends with `fix`."""
    try:
        return files.parse_json(line, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
    except ValueError as error:
        reason = str(error)
    raise InputError(f"{where}: not JSON ({reason}); {fix}")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def checked_text(value: Any, what: str) -> str:
    """Returns a text from JSON with U+FFFD for every surrogate; raises InputError, which begins with `what`."""
    if not isinstance(value, str):
        raise InputError(f"{what} is not a text; write one in quotes")
    return whole_text(value)


def _phrases(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f'{what} is not a list; write one of texts, such as ["..."]')
    return tuple(checked_text(phrase, f"{what}: entry {number}") for number, phrase in enumerate(value, 1))


def _status(path: Path) -> os.stat_result:
    try:
        with files.disk_errors(path, "read"):
            return os.fstat(0) if path == STDIN else path.stat()
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot read: {error.strerror}; give a text file, or text on stdin") from None


def _count_lines(path: Path) -> int:
    offset = os.lseek(0, 0, os.SEEK_CUR) if path == STDIN else 0
    count = sum(1 for _ in raw_lines(path))
    if path == STDIN:
        os.lseek(0, offset, os.SEEK_SET)
    return count
