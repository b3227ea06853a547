"""The translator: lines in, translations out, one per line and in order.

`Translator.translate` reads lines in windows. `RequestReader` cuts each line into pieces. The pieces of a window are
sorted by length into batches, which several threads search at the same time. The translations of the pieces of a line
are joined, and its tokens become text.
"""

import contextlib
import dataclasses
import heapq
import itertools
import json
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Self, TypeVar, cast

import numpy as np
import psutil
import torch

from nmtalign.alignment.word_aligner import load_aligner
from nmtalign.core.inference import Inference
from nmtalign.core.model import make_source
from nmtalign.core.numerics import in_halves, in_int8, inference_precision, precision_notices, using_threads
from nmtalign.errors import UsageError
from nmtalign.files import parse_json
from nmtalign.model_directory import CALIBRATION, LoadedModel, load_model
from nmtalign.processor import return_memory
from nmtalign.search.beam_search import (
    Array,
    BeamSearch,
    EnsembleSession,
    Hypothesis,
    ModelSession,
    Scorer,
    Scoring,
    Sources,
)
from nmtalign.search.candidates import CandidateLists
from nmtalign.search.phrases import PhraseSearch
from nmtalign.search.sampling import Sampling
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import (
    Layer,
    SettingError,
    byte_count,
    check_keys,
    definitions,
    naming,
    resolve,
    select,
    with_implied,
)
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.languages import has_no_spaces
from nmtalign.text.tokenizer import UNK_ID, Subwords, TextBytes
from nmtalign.translating.glossary import Glossary
from nmtalign.translating.requests import Piece, Request, RequestReader, TokenizedLine
from nmtalign.translating.unknown_words import read_lexicon, replace_unknowns

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
Line = TypeVar("Line")

WINDOW_BATCHES = 10  # the size of a window, in batches; the lines of a window are sorted by length
_WORD_CHARACTERS = 6
_LINE_BREAKS = str.maketrans("\r\n", "  ")
_ONLY_LINES = "a Translator takes lines; nmtalign.translate_files takes documents (markup)"
_GIVEN = -1  # the id of a word of a prefix or a phrase, which the model did not choose
_EMPTY = Hypothesis((), 0.0, 0.0, (0.0,), np.zeros((1, 1), np.float32))


@dataclass(frozen=True)
class Alternative:
    """One translation of a line.

    text: without a line break. tokens: those of the text, with unknown words replaced if that was requested. log_prob:
    the log-probability of the tokens and `</s>`. token_log_probs: those of each token and of `</s>`, len(tokens) + 1
    numbers. score: the quantity that the search compares. alignment (len(tokens) + 1, source tokens + 1): the weights
    of each step, float32, whose last row and column belong to `</s>`; None if it was not requested.
    """

    text: str
    tokens: tuple[str, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...]
    alignment: Array | None = field(default=None, compare=False)  # `==` of arrays is no truth value


@dataclass(frozen=True, kw_only=True)
class Translation(Alternative):
    """The first translation of one line, and all of `n_best`: best first, or samples in the order they were drawn in.

    `source` is the line. A blank line has one empty translation. `source_unknown` counts the source tokens that are not
    in the vocabulary. A line that was split into `sentences`, or cut into several `pieces`, has the joined translations
    of its pieces; they are ordered by the sum of the scores of the pieces. `confidence` is the expected chrF / 100 of
    the best translation (see `Calibration`), or None if the model has no calibration or there are several models.
    """

    request: Request
    source_tokens: tuple[str, ...]
    source_unknown: int
    n_best: tuple[Alternative, ...]
    pieces: int = 1
    sentences: int = 1
    confidence: float | None = None

    @property
    def source(self) -> str:
        return self.request.text


class Translator:
    """Translates lines with one model, or with several models as an ensemble.

    `Translator.load("model/").translate(lines, beam=5)` yields one `Translation` per line, in order. A translator that
    was made by `load` can be pickled: the pickle contains the paths and the settings, and each process loads them once.
    Start processes with the method spawn: PyTorch's threads wait forever in one that is forked after a computation.
    """

    def __init__(
        self,
        models: LoadedModel | Sequence[LoadedModel],
        config: TranslateConfig | None = None,
        alignments: bool = True,
        scorer: Scorer | None = None,
        once: Callable[..., Any] | None = None,
    ) -> None:
        """With `alignments` every translation includes its weights, if a model has attention.

        `once` reads the glossary and the lexicon for all translators that share it. Raises UsageError if the settings
        do not fit the models, InputError for a glossary or a lexicon, FormatError for an aligner that cannot be read.
        """
        self.models = (models,) if isinstance(models, LoadedModel) else tuple(models)
        if not (self.models and all(isinstance(each, LoadedModel) for each in self.models)):
            raise UsageError("a Translator is made of loaded models; Translator.load takes their folders")
        self.loaded = self.models[0]
        self.config = config = config or TranslateConfig()
        self._load: tuple[Any, ...] = ()  # the arguments of `load`, for `_load_once`
        if len(self.models) > 1:
            _check_vocabularies(self.models)
        attends = any(loaded.model.config.attention != "none" for loaded in self.models)
        wrong = {name: value for name in ("replace_unk", "coverage_penalty") if (value := getattr(config, name))}
        if wrong and not attends:
            raise SettingError("this model has no attention, which this setting needs", **wrong)
        with using_threads(config.threads):  # as "auto" tries the products
            self.precision = inference_precision(config.precision, self.loaded.device)
        self.alignments = alignments and attends
        self.scoring = Scoring(config.length_penalty, config.word_penalty, config.coverage_penalty)
        if scorer is not None:
            self.scorer = scorer
        # The probabilities of several models together are not those that the calibration of each describes.
        calibration = self.loaded.metadata.get(CALIBRATION, "") if len(self.models) == 1 else ""
        self._calibration = Calibration.parse(calibration)
        self._once = once or cache(lambda read, *arguments: read(*arguments))
        glossary = self._once(Glossary.read, Path(config.glossary), config.tokenized) if config.glossary else None
        self._reader = RequestReader(self.loaded, config, glossary)
        self._lexicon = self._once(read_lexicon, Path(config.lexicon)) if config.replace_unk and config.lexicon else {}
        self._keep_weights = self.alignments or config.replace_unk
        if config.aligner:
            self._once(load_aligner, Path(config.aligner))  # a wrong folder is an error before the first document
        self._candidates: CandidateLists | None = None
        if config.candidates:
            if isinstance(self.loaded.tokenizers.source, TextBytes):
                rule = "this model writes bytes, which a lexicon of words cannot restrict; leave it out"
                raise SettingError(rule, lexicon=config.lexicon)
            vocabularies = self.loaded.source_vocabulary, self.loaded.target_vocabulary
            self._candidates = self._once(CandidateLists.read, Path(config.lexicon), *vocabularies, config.candidates)

    @classmethod
    def load(cls, model: str | Path, *more_models: str | Path, alignments: bool = True, **settings: Any) -> Self:
        """Loads a model directory, or several whose probabilities are averaged.

        A model may also be a file of weights, such as model/last.safetensors. The settings are those of section
        [translate] of nmtalign.toml, such as beam=5 or precision="bf16". Raises UsageError for an unknown setting or a
        wrong value, and FormatError for a folder that contains no model.
        """
        check_keys("Translator.load", settings, definitions(TranslateConfig))
        if settings.get("markup"):
            raise UsageError(_ONLY_LINES)
        layer = "Translator.load", settings
        config = resolve(TranslateConfig, layer)
        with naming(layer):
            translator = cls(load_models([model, *more_models], config), config, alignments)
        translator._given = layer
        paths = select(TranslateConfig, lambda one: one.is_path and bool(settings.get(one.name)))
        pickled = {**settings, **{name: str(Path(settings[name]).absolute()) for name in paths}}
        models = tuple(str(Path(each).absolute()) for each in (model, *more_models))
        translator._load = models, alignments, tuple(sorted(pickled.items()))
        return translator

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._load:
            raise TypeError("only a translator that was made by Translator.load can be pickled")
        return _load_once, (type(self), *self._load)

    def translate(self, lines: Iterable[str | Request], **settings: Any) -> Iterator[Translation]:
        """Yields one translation per line, in order.

        A sequence is read in windows. Any other iterable is read by a separate thread, so that a single line is
        translated at once and many lines are sorted into batches. `settings` apply only to these lines. Raises
        UsageError for a wrong setting, for a text instead of a list of lines, and for what is not a line.
        """
        if isinstance(lines, str | Request):
            raise UsageError("translate takes lines, and this is one text: give a list of lines, such as [text]")
        if settings.get("markup"):
            raise UsageError(_ONLY_LINES)
        if late := [name for name in select(TranslateConfig, lambda one: one.loading) if name in settings]:
            raise UsageError(f"{late[0]} is chosen when a model is loaded: Translator.load(..., {late[0]}=...)")
        return (self.changed(settings) if settings else self).translate_numbered(lines)

    def changed(
        self, settings: Mapping[str, Any], origin: str = "Translator.translate", alignments: bool | None = None
    ) -> "Translator":
        """A translator with the same models and some other settings; messages call these settings `origin`."""
        check_keys(origin, settings, select(TranslateConfig, lambda one: not one.loading))
        files = select(TranslateConfig, lambda one: one.is_path and one.name in settings)  # they are read again
        layers = self._given, (origin, settings)
        config = resolve(TranslateConfig, *layers)
        with naming(*layers):
            wanted = self.alignments if alignments is None else alignments
            made = Translator(self.models, config, wanted, self.scorer, None if files else self._once)
        made._given = origin, {**self._given[1], **settings}
        return made

    def notices(self) -> list[str]:
        """What a user should know about the settings before the first line, such as unknown words of the glossary."""
        return [*precision_notices(self.config.precision, self.loaded.device), *self._reader.notices()]

    @cached_property
    def _given(self) -> Layer:
        """The settings as they were given; of a configuration, those that differ and do not follow from other ones."""
        usual, implied, config = TranslateConfig(), dict[str, Any](), vars(self.config)
        changed = {name: value for name, value in config.items() if value != getattr(usual, name)}
        for _, values in with_implied(TranslateConfig, ("", changed))[:-1]:
            implied |= values
        own = {name: value for name, value in config.items() if value != implied.get(name, getattr(usual, name))}
        return "section [translate]", own

    @cached_property
    def scorer(self) -> Scorer:
        """The models, prepared for search at the first use, so that loading takes a few milliseconds."""
        dtype = torch.bfloat16 if self.precision == "bf16" else None
        models = (in_int8(loaded.model) if self.precision == "int8" else loaded.model for loaded in self.models)
        with using_threads(self.config.threads):
            scorers = [partial(ModelSession, Inference(model, dtype)) for model in models]
        return scorers[0] if len(scorers) == 1 else partial(EnsembleSession, scorers, self.config.ensemble)

    @cached_property
    def limits(self) -> "BatchLimits":
        """The limits of batches that the settings, the device and the models allow."""
        config, device, words = self.config, self.loaded.device, len(self.loaded.target_vocabulary)
        beam = config.n_best if config.sample else config.beam
        if config.max_memory:
            memory = byte_count("max_memory", config.max_memory)
        elif device.type == "cuda":
            memory = int(torch.cuda.mem_get_info(device)[0] * _GPU_SHARE)
        else:
            memory = int(psutil.virtual_memory().total * _MEMORY_SHARE)
        searches = 1 if device.type == "cuda" else _thread_count.of(config.threads)
        return BatchLimits(
            words=config.batch_size or default_words(beam, device),
            memory=memory // (searches * len(self.models)),
            model=self.loaded.model.config,
            beam=beam,
            itemsize=2 if self.precision == "bf16" else 4,
            scored=min(words, 4 * config.candidates) if config.candidates else words,
            length_ratio=config.max_length_ratio,
            keep_weights=self._keep_weights,
        )

    def translate_numbered(
        self, lines: Iterable[str | Request], first: int = 0, available: bool = False
    ) -> Iterator[Translation]:
        """Translates lines as `translate` does; they are numbered from `first`, on which the samples of a line depend.

        Lines that are `available` without waiting, such as those of a file, are read in large windows.
        """
        words, used, numbers = self.limits.words * WINDOW_BATCHES, 0, itertools.count(first)

        def read(request: str | Request) -> tuple[TokenizedLine, Sequence[Piece]]:
            line = self._reader.read(next(numbers), request)
            return line, line.pieces

        cut = windows(lines, max(1, words // 8), words * _WORD_CHARACTERS, _characters, available)
        device, ahead, threads = self.loaded.device, available or isinstance(lines, Sequence), self.config.threads
        searched = in_batches(
            cut, read, self.search, lambda piece: len(piece.source) + 1, self.limits, device, ahead, threads
        )
        with contextlib.closing(searched):
            for line, found in searched:
                yield self._translation(line, found)
                used += len(line.tokens) + 1
                if used >= self.limits.words:  # rarely, so that allocating the memory again costs little
                    return_memory()
                    used = 0

    def search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        """The hypotheses of each piece, best first, or samples in the order in which they were drawn.

        A batch that does not fit into memory is halved. Raises ResourceError if one piece does not fit, and UsageError
        for phrases in a sample.
        """
        return in_halves(self._search, pieces, self._too_much)

    def _too_much(self, piece: Piece) -> str:
        fewer = "--n-best" if self.config.sample else "--beam"
        size = f"one sentence of {len(piece.source)} tokens"
        return f"out of memory with {size}; give a smaller {fewer} or --set max_source_length=N"

    def _search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        sources, given = self._sources(pieces), any(piece.phrases.words for piece in pieces)
        if self.config.sample:
            if given:
                rule = "a sample cannot be made to contain given phrases; leave out one of them"
                raise SettingError(rule, sample=True)
            numbers = [(piece.number, piece.part) for piece in pieces]
            return Sampling(sources, self.config, numbers, self._keep_weights).run(self.scorer)
        found = BeamSearch(sources, self.config, self._keep_weights).run(self.scorer)
        # Phrases that a translation already contains are not required, unless it loses them with the other ones.
        for every in (False, True) if given else ():
            lack = [
                piece.phrases.lacking([each.tokens for each in own]) for piece, own in zip(pieces, found, strict=True)
            ]
            places = [place for place, phrases in enumerate(lack) if phrases.words]
            if not places:
                break
            required = [pieces[place].phrases if every else lack[place] for place in places]
            sources = self._sources([pieces[place] for place in places])
            again = PhraseSearch(sources, self.config, required, self._keep_weights).run(self.scorer)
            for place, own in zip(places, again, strict=True):
                found[place] = own
        return found

    def _sources(self, pieces: Sequence[Piece]) -> Sources:
        """The pieces as the search reads them."""
        device = self.loaded.device
        source, mask = (part.to(device) for part in make_source([piece.source for piece in pieces]))
        candidates = copies = None
        if self._candidates:
            more = [{*piece.copies, *piece.prefix, *piece.phrases.ids} for piece in pieces]
            candidates = self._candidates.of([piece.source for piece in pieces], more)
        if any(piece.copies for piece in pieces):
            copies = make_source([piece.copies for piece in pieces])[0].to(device)
        return Sources(source, mask, candidates, [piece.prefix for piece in pieces], copies)

    def _translation(self, line: TokenizedLine, found: Sequence[list[Hypothesis]]) -> Translation:
        combined = combine(found or [[_EMPTY]], self.config.n_best, self.config.sample)
        n_best = tuple(self._alternative(line, hypotheses) for hypotheses in combined)
        return Translation(
            **vars(n_best[0]),
            request=line.request,
            source_tokens=tuple(line.tokens),
            source_unknown=sum(piece.source.count(UNK_ID) for piece in line.pieces),
            n_best=n_best,
            pieces=max(1, len(found)),
            sentences=max(1, len({piece.sentence for piece in line.pieces})),
            confidence=self._calibration.of(combined[0]) if self._calibration else None,
        )

    def _alternative(self, line: TokenizedLine, pieces: Sequence[Hypothesis]) -> Alternative:
        hypothesis = join(pieces, self.scoring, keep_weights=self.alignments)
        tokens = self._target_tokens(line, hypothesis, pieces)
        return Alternative(
            text=self._text(line, tokens, pieces).translate(_LINE_BREAKS),
            tokens=tuple(tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            token_log_probs=hypothesis.token_log_probs,
            alignment=hypothesis.weights if self.alignments else None,
        )

    def _text(self, line: TokenizedLine, tokens: Sequence[str], pieces: Sequence[Hypothesis]) -> str:
        """The text of the tokens, whose sentences are detokenised one by one, with the phrases as they were given."""
        left, sentences = iter(tokens), dict[int, list[list[str]]]()
        for piece, hypothesis in zip(line.pieces, pieces, strict=False):
            parts, words = sentences.setdefault(piece.sentence, []), list(islice(left, len(hypothesis.tokens)))
            # Words of one sentence stay together, because the spacing of a mark depends on the words around it.
            if isinstance(self.loaded.tokenizers.target, Subwords) or not parts:
                parts.append(words)
            else:
                parts[-1].extend(words)
        texts = {number: self._joined(map(self._reader.target.detokenize, own)) for number, own in sentences.items()}
        first, kept = next(iter(texts), 0), 0  # the first sentence, and the characters of the prefix
        for prefix in line.begin if texts else ():
            if match := prefix.pattern.match(texts[first]):
                texts[first] = prefix.text + texts[first][match.end() :]
                kept = len(prefix.text)
        for number, phrase, capital in dict.fromkeys(line.phrases) if texts else ():
            texts[number] = phrase.written(texts[number], capital, kept if number == first else 0)
        return self._joined(texts.values())

    def _joined(self, texts: Iterable[str]) -> str:
        texts = [text for text in texts if text]
        gapless = len(texts) > 1 and self._reader.target.kind != "spaced" and has_no_spaces(self.loaded.target_language)
        return ("" if gapless else " ").join(texts)

    def _target_tokens(self, line: TokenizedLine, hypothesis: Hypothesis, pieces: Sequence[Hypothesis]) -> list[str]:
        tokens, left = list[str](), iter(line.tokens)
        for piece, found in zip(line.pieces, pieces, strict=False):
            tokens += self.loaded.target_vocabulary.decode(found.tokens, list(islice(left, len(piece.source))))
        # Unknown words of prefixes and phrases are printed as they were given.
        given = {**hypothesis.given, **dict(enumerate(line.prefix))} if tokens else {}
        for place, word in given.items():
            tokens[place] = word
        ids = [_GIVEN if place in given else number for place, number in enumerate(hypothesis.tokens)]
        weights = [piece.weights for piece in pieces if piece.weights is not None]
        if not self.config.replace_unk or UNK_ID not in ids or not weights:
            return tokens
        for place in self._reader.places(line, tokens):
            ids[place] = _GIVEN
        source_ids = [number for piece in line.pieces for number in piece.source]
        return replace_unknowns(ids, tokens, weights, source_ids, line.tokens, self.loaded.tokenizers, self._lexicon)


@lru_cache(4)
def _load_once(
    cls: type[Translator], models: Sequence[str], alignments: bool, settings: tuple[tuple[str, Any], ...]
) -> Translator:
    return cls.load(*models, alignments=alignments, **dict(settings))


def load_models(models: Sequence[str | Path], config: TranslateConfig) -> list[LoadedModel]:
    """Loads models, folders or their files of weights, for the device of `config`."""
    return [load_model(Path(model), config.device, threads=config.threads) for model in models]


def _characters(line: str | Request) -> int:
    text = line.text if isinstance(line, Request) else line
    return len(text) if isinstance(text, str) else 1  # `RequestReader.read` refuses what is not a line


def _check_vocabularies(models: Sequence[LoadedModel]) -> None:
    first, *others = models
    for other in others:
        if other.model.config.copy != first.model.config.copy:
            raise UsageError(f"{other.folder}: either all models of an ensemble copy words, or none: --set copy=true")
        for side in ("source_vocabulary", "target_vocabulary"):
            if getattr(other, side) != getattr(first, side):
                fix = "an ensemble needs models of one prepared corpus"
                raise UsageError(f"{other.folder}: its {side.replace('_', ' ')} is not that of {first.folder}; {fix}")


def combine(found: Sequence[Sequence[Hypothesis]], count: int, sampled: bool) -> list[list[Hypothesis]]:
    """The translations of a line, each a hypothesis for each piece: at most `count`, by the sum of their scores.

    The first one consists of the best hypotheses. Of samples, the first belong together, then the second, and so on.
    """
    if sampled or count == 1:
        return [list(chosen) for chosen in zip(*found, strict=False)]
    best: list[tuple[float, list[Hypothesis]]] = [(0.0, [])]
    for hypotheses in found:
        longer = heapq.nlargest(count, itertools.product(best, hypotheses), lambda one: one[0][0] + one[1].score)
        best = [(total + each.score, [*chosen, each]) for (total, chosen), each in longer]
    return [chosen for _, chosen in best]


def join(hypotheses: Sequence[Hypothesis], scoring: Scoring, keep_weights: bool = True) -> Hypothesis:
    """Joins the hypotheses of the pieces of a line.

    The log-probability of a `</s>` between two pieces is added to the word after it, and the coverage is that of all
    pieces. The weights form a block diagonal; the last column is that of all `</s>`, the last row that of the final
    `</s>`. They take 1.6 GB for 20,000 words, so they are joined only with `keep_weights`.
    """
    if len(hypotheses) == 1:
        return hypotheses[0]
    tokens, token_log_probs, given, end = list[int](), list[float](), dict[int, str](), 0.0
    for hypothesis in hypotheses:
        given |= {len(tokens) + place: word for place, word in hypothesis.given.items()}
        tokens += hypothesis.tokens
        first, *rest = hypothesis.token_log_probs
        *words, end = first + end, *rest
        token_log_probs += words
    log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses)
    score = scoring.score(log_prob, len(tokens) + 1)
    if scoring.coverage_penalty:  # what the coverage adds to the score of each piece
        score += sum(one.score - scoring.score(one.log_prob, len(one.tokens) + 1) for one in hypotheses)
    parts = [hypothesis.weights for hypothesis in hypotheses if hypothesis.weights is not None]
    joined = None
    if keep_weights and len(parts) == len(hypotheses):
        rows, columns = (sum(part.shape[axis] - 1 for part in parts) for axis in (0, 1))
        joined = np.zeros((rows + 1, columns + 1), np.float32)
        row = column = 0
        for part in parts:
            height, width = part.shape[0] - 1, part.shape[1] - 1
            # The first word of the next piece overwrites the row of this `</s>`. The zeros elsewhere are never written:
            # the system allocates no memory for pages that are not touched.
            joined[row, :] = 0
            joined[row : row + height + 1, column : column + width] = part[:, :-1]
            joined[row : row + height + 1, -1] = part[:, -1]
            row, column = row + height, column + width
    return Hypothesis(tuple(tokens), log_prob, score, (*token_log_probs, end), joined, given)


# Windows: large ones from files, and whatever is ready from a pipe or an iterator.

_PATIENCE = 0.003  # seconds to wait for the next line of a burst; a single line is delayed by no more than this
_LIMIT = 0.03  # seconds after which the first line of a burst is translated, even if more lines arrive
_READ_AHEAD = 1000  # lines
_PARTS = (8, 4, 2)  # the first window is 1/8 of a full one, so that results appear soon; the next ones are larger


def windows(
    lines: Iterable[T], count: int, characters: float, size: Callable[[T], float], available: bool = False
) -> Iterator[list[T]]:
    """Cuts lines into windows of 1 to `count` lines; a window ends with the line that brings it to `characters`.

    `size` gives the number of characters of a line. A sequence is cut into full windows. So are lines that are
    `available` without waiting, such as those of a file, but the first windows are smaller. Any other iterable is read
    by a separate thread; a window contains the lines that are ready: it waits for its first line and hardly for others.
    An error of the iterable is raised here, after the lines before it.
    """
    parts = itertools.chain(() if isinstance(lines, Sequence) else _PARTS, itertools.repeat(1))
    iterator, waits = iter(lines), not (available or isinstance(lines, Sequence))
    ready, closed = queue.Queue[tuple[T | None, BaseException | None]](min(count, _READ_AHEAD)), Event()
    if waits:  # in a daemon thread, since it may wait for its next line forever
        arguments = iterator, ready, closed
        threading.Thread(target=_read_ahead, args=arguments, name="nmtalign-input", daemon=True).start()

    def take(patience: float | None) -> T:
        line, error = ready.get(timeout=patience)
        if error is not None:
            raise error
        return cast(T, line)

    error: Exception | None = None
    try:
        for part in parts:
            window, total, deadline = list[T](), 0.0, math.inf
            try:
                while len(window) < -(-count // part) and total < -(-characters // part):
                    patience = max(0, min(_PATIENCE, deadline - time.monotonic())) if window else None
                    window.append(take(patience) if waits else next(iterator))
                    total += size(window[-1])
                    deadline = min(deadline, time.monotonic() + _LIMIT)
            except queue.Empty:
                pass
            except Exception as ended:
                error = ended
            if window:
                yield window
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
    finally:
        closed.set()
        with contextlib.suppress(queue.Empty):  # the thread may wait for room
            while True:
                ready.get_nowait()


def _read_ahead(lines: Iterator[T], ready: "queue.Queue[tuple[T | None, BaseException | None]]", closed: Event) -> None:
    """Puts (line, None) into a queue for each line, and (None, error) at the end; ends early once `closed` is set."""
    while not closed.is_set():
        try:
            ready.put((next(lines), None))
        except BaseException as error:
            ready.put((None, error))
            return


# Batches: which pieces are searched together, and the threads that search several batches at the same time.

_MEMORY_SHARE = 0.1  # share of the machine's memory, the default limit
_GPU_SHARE = 0.5  # share of the free memory of a GPU
_MIN_MEMORY = 64 << 20  # bytes; a search gets at least this, whatever the setting
# The default number of words in a batch times the beam, and the largest number of words; more words are not faster.
_ROWS, _MAX_WORDS = 12_000, 6_000
_GPU_ROWS, _MAX_GPU_WORDS = 200_000, 60_000


def default_words(beam: int, device: torch.device) -> int:
    """The default number of source words in a batch."""
    rows, most = (_GPU_ROWS, _MAX_GPU_WORDS) if device.type == "cuda" else (_ROWS, _MAX_WORDS)
    return min(most, max(1, rows // beam))


@dataclass(frozen=True)
class BatchLimits:
    """The limits of a batch: `words` source words including `</s>` and padding, and `memory` bytes."""

    words: int
    memory: int
    model: ModelConfig
    beam: int
    itemsize: int  # bytes of a number in a product
    scored: int  # words that are scored at each step
    length_ratio: float  # largest number of steps per source word
    keep_weights: bool

    def cut(self, lengths: Sequence[int], min_batches: int = 1) -> list[list[int]]:
        """The positions of sentences of these lengths (including `</s>`) in batches, the longest sentences first.

        There are at least `min_batches` batches of similar size, if there are enough sentences.
        """
        words = min(self.words, max(1, -(-sum(lengths) // min_batches)))
        memory = max(_MIN_MEMORY, self.memory)
        batches: list[list[int]] = []
        longest = 0
        for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
            count = len(batches[-1]) + 1 if batches else 0
            if not batches or count * longest > words or count * self.bytes_of(longest) > memory:
                batches.append([])
                longest = lengths[place]
            batches[-1].append(place)
        return batches

    def bytes_of(self, length: int) -> int:
        """An estimate of the memory that encoding and searching one sentence takes."""
        model, rows = self.model, self.beam
        annotation = 2 * model.hidden
        folded = 3 * model.hidden + 2 * model.maxout
        encoder = length * (7 * model.hidden * self.itemsize + 4 * annotation * 4)
        # Annotations, keys and folded values; keys and values exist twice while sentences are removed from the batch.
        keys = model.attention_hidden if model.attention in ("additive", "concat") else model.hidden
        source = length * (annotation + 2 * (keys + folded)) * self.itemsize
        if model.architecture == "transformer":  # keys and values of all layers, twice while rows are selected
            folded = 2 * model.layers * model.embedding
            source += 2 * rows * int(self.length_ratio * length) * folded * self.itemsize
        step = rows * (2 * self.scored + 4 * folded + 8 * model.hidden) * self.itemsize
        if model.attention_kind == "marginal":  # shares and readout of each alternative
            alternatives = model.attention_positions + 1
            step += rows * alternatives * (4 * length + 6 * model.maxout * self.itemsize)
        kept = rows * length * 4 * int(self.length_ratio * length) if self.keep_weights else 0
        return max(encoder, source) + source + step + kept


class _ThreadCount:
    """PyTorch's number of threads, a setting of the complete process: 1 while batches are searched in parallel."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may close `in_batches`, which calls `add`, meanwhile
        self._users = self._configured = 0

    def of(self, threads: int) -> int:
        """The number of threads of a setting, of which 0 means that of PyTorch outside parallel searches."""
        with self._lock:
            return threads or (self._configured if self._users else torch.get_num_threads())

    def add(self, users: int) -> None:
        """Registers one more or one less parallel search; the last one restores the number."""
        with self._lock:
            if not self._users:
                self._configured = torch.get_num_threads()
            self._users += users
            torch.set_num_threads(1 if self._users else self._configured)


_thread_count = _ThreadCount()


def in_batches(
    windows: Iterable[Sequence[S]],
    read: Callable[[S], tuple[Line, Sequence[T]]],
    work: Callable[[list[T]], list[R]],
    length: Callable[[T], int],
    limits: BatchLimits,
    device: torch.device,
    ahead: bool,
    threads: int = 0,
) -> Generator[tuple[Line, list[R]], None, None]:
    """Yields each line with the results of its pieces; `read` makes a line and its pieces of an input.

    The pieces of a window are cut into batches by their lengths. Several batches are worked on in parallel; on a GPU,
    and for a single batch, the caller's thread does the work when the first of its results is needed. Two threads with
    one batch each are 1.3 times as fast as two threads that share each product: neither waits for the other, and the
    Python code of one runs during the products of the other. The threads share the weights.

    With `ahead`, the work on the next window begins before this one is finished. An error that ends the reading is
    raised after the windows that were read before it.
    """
    threads, pool = _thread_count.of(threads), cast(ThreadPoolExecutor | None, None)
    count, in_this_thread = 1 if device.type == "cuda" else threads, using_threads(threads)(work)

    def start(window: Sequence[S]) -> Iterator[tuple[Line, list[R]]]:
        nonlocal pool
        lines = [read(each) for each in window]
        pieces = [piece for _, own in lines for piece in own]
        batches = limits.cut(list(map(length, pieces)), count if len(pieces) >= 2 * count else 1)
        parallel = count > 1 and (len(batches) > 1 or (ahead and pool is not None))
        if parallel and pool is None:
            pool = ThreadPoolExecutor(count, thread_name_prefix="nmtalign-search")
            _thread_count.add(1)
        if parallel:
            torch.set_num_threads(1)  # for the complete process: PyTorch has no setting per thread
        results: dict[int, tuple[Callable[[], list[R]], int]] = {}
        for batch in batches:
            own = [pieces[place] for place in batch]
            if parallel and pool is not None:
                result = pool.submit(copy_context().run, work, own).result  # `check_wanted` reads the context
            else:
                result = cache(partial(in_this_thread, own))
            results.update((place, (result, number)) for number, place in enumerate(batch))
        found = (result()[number] for result, number in (results.pop(place) for place in range(len(pieces))))
        return ((line, list(islice(found, len(own)))) for line, own in lines)

    waiting, source, error = deque[Iterator[tuple[Line, list[R]]]](), iter(windows), None
    try:
        while error is None:
            try:
                waiting.append(start(next(source)))
            except Exception as ended:
                error = ended
            if waiting and (not ahead or len(waiting) > 1):
                yield from waiting.popleft()
        yield from itertools.chain(*waiting)
        if not isinstance(error, StopIteration):
            raise error
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
            _thread_count.add(-1)


# The confidence: the quality that a model's translation of a line probably has.

_VERSION = 1
_FEWEST = 20  # sentences to fit to
_PRIOR = 0.01  # keeps the parameters finite
_STEPS = 50


def mean_probability(hypothesis: Hypothesis) -> float:
    """The geometric mean of the probabilities of the tokens and `</s>`."""
    return math.exp(min(0.0, hypothesis.log_prob / (len(hypothesis.tokens) + 1)))


@dataclass(frozen=True)
class Calibration:
    """confidence = 1 / (1 + exp(-(offset + slope * p))), where p is the mean probability of a translation.

    The confidence is an estimate of chrF / 100 of the translation against a reference (docs/results.md). Validation
    fits the parameters to its own translations of the development set, so that the fit takes no search. The share of
    unknown words and the length of the line add nothing.
    """

    offset: float
    slope: float  # at least 0: a more probable translation never has less confidence
    sentences: int  # the number of sentences to which it was fitted

    @classmethod
    def fit(cls, probabilities: Sequence[float], qualities: Sequence[float]) -> Self | None:
        """Fits the parameters to translations with these qualities from 0 to 1; None for fewer than 20 of them.

        Newton's method maximises the likelihood of a logistic regression, whose targets are the qualities.
        """
        if len(qualities) < _FEWEST:
            return None
        inputs, targets = np.array([np.ones(len(qualities)), probabilities]).T, np.array(qualities, np.float64)
        found = _newton(inputs, targets)
        if found[1] < 0:
            found = np.array([*_newton(inputs[:, :1], targets), 0.0])
        return cls(round(float(found[0]), 6), round(float(found[1]), 6), len(qualities))

    def of(self, pieces: Sequence[Hypothesis]) -> float:
        """The confidence in a translation; that in several pieces is the mean, weighted by their numbers of tokens.

        It is 1 for a blank line.
        """
        if not any(each.tokens or each.log_prob for each in pieces):
            return 1.0
        weights = [len(each.tokens) + 1 for each in pieces]
        logits = [self.offset + self.slope * mean_probability(each) for each in pieces]
        return math.fsum(w / (1 + math.exp(-x)) for w, x in zip(weights, logits, strict=True)) / sum(weights)

    def __str__(self) -> str:
        """The JSON text that `parse` reads."""
        return json.dumps({"version": _VERSION, "predicts": "chrF / 100", **dataclasses.asdict(self)})

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads the text of a calibration; None for an empty text and for one that another version wrote."""
        try:
            found = parse_json(text)
            offset, slope, sentences = float(found["offset"]), float(found["slope"]), int(found["sentences"])
            known = found["version"] == _VERSION and abs(offset) < 100 and 0 <= slope < 100
        except (ValueError, KeyError, TypeError, OverflowError):
            return None
        return cls(offset, slope, sentences) if known else None


def _newton(inputs: Any, targets: Any) -> Any:
    """The weights of a logistic regression with a weak prior."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        predicted = 1 / (1 + np.exp(-np.clip(inputs @ weights, -50, 50)))
        gradient = inputs.T @ (predicted - targets) + _PRIOR * weights
        spread = predicted * (1 - predicted)
        hessian = (inputs * spread[:, None]).T @ inputs + _PRIOR * np.eye(len(weights))
        weights = weights - np.linalg.solve(hessian, gradient)
    return weights
