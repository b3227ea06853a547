"""The translator of lines: raw text in, raw text out, one for one and in order."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from nmtalign.checks import Layer, SettingError, naming
from nmtalign.config import TranslateConfig, field_names
from nmtalign.core.devices import picks_bf16, return_memory, use_threads
from nmtalign.core.inference import Inference
from nmtalign.decoding.batching import BatchLimits, default_words, memory_limit
from nmtalign.decoding.candidates import CandidateLists
from nmtalign.decoding.decoder import Piece, PieceDecoder
from nmtalign.decoding.pieces import cut, join
from nmtalign.decoding.results import Alternative, Request, Translation
from nmtalign.decoding.scorer import Ensemble, ModelScorer, Scorer
from nmtalign.decoding.search import Hypothesis, SearchOptions
from nmtalign.decoding.stream import AtHand, Rest, windows
from nmtalign.decoding.trace import Scoring
from nmtalign.decoding.unknowns import Weights, read_lexicon, replace_unknowns
from nmtalign.decoding.workers import Workers
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.model_files import Which
from nmtalign.presets import translate_config
from nmtalign.text.tokenizer import WORD_START, SentencePieces, SpacedWords
from nmtalign.text.vocabulary import UNK_ID

_WINDOW_BATCHES = 10  # batches' worth of lines that are read and sorted by length together
_WORD_CHARACTERS = 6
_LINE_ENDS = str.maketrans("\r\n", "  ")
_GIVEN = -1  # the id of a word that is not the model's choice
_NOTHING = Hypothesis((), 0.0, 0.0, (0.0,), np.zeros((1, 1), np.float32))
_OF_LOADING = ("device", "precision", "threads", "max_memory", "ensemble")


@dataclass(frozen=True)
class _Line:
    number: int
    request: Request
    tokens: list[str]
    ids: list[int]
    pieces: list[slice]  # none for a blank line
    prefix: list[str]
    phrases: list[list[str]]


def search_options(config: TranslateConfig, keep_weights: bool = False) -> SearchOptions:
    """What `config` means for the search."""
    return SearchOptions(
        beam=config.beam,
        scoring=Scoring(config.length_penalty, config.word_penalty, config.coverage_penalty),
        n_best=min(config.n_best, config.beam),
        allow_unk=config.allow_unk or config.replace_unk,
        min_length_ratio=config.min_length_ratio,
        max_length_ratio=config.max_length_ratio,
        safe_stop=config.search != "paper",
        keep_weights=keep_weights or config.replace_unk,
    )


class Translator:
    """Translates lines with one model, or with several at once.

    `Translator.load("model/").translate(lines, beam=5)` yields a `Translation` a line, in order, as lines come.
    """

    def __init__(
        self,
        models: LoadedModel | Sequence[LoadedModel],
        config: TranslateConfig | None = None,
        alignments: bool = True,
        scorer: Scorer | None = None,
    ) -> None:
        """With `alignments` every translation carries its weights, if the model has attention.

        Raises UsageError for what the models cannot do, and FormatError for a lexicon that cannot be read.
        """
        self.models = (models,) if isinstance(models, LoadedModel) else tuple(models)
        self.loaded = self.models[0]
        self.config = config or TranslateConfig()
        self._given: Layer = "TranslateConfig", _changed_settings(self.config)
        _check_vocabularies(self.models)
        attends = any(loaded.model.config.attention != "none" for loaded in self.models)
        if self.config.replace_unk and not attends:
            raise SettingError("this model has no attention: it cannot replace unknown words", replace_unk=True)
        if self.config.coverage_penalty and not attends:
            raise SettingError(
                "this model has no attention: it knows no coverage", coverage_penalty=self.config.coverage_penalty
            )
        self.alignments = alignments and attends
        self._given_scorer = scorer
        source, target = self.loaded.tokenizers.source, self.loaded.tokenizers.target
        self._subwords = isinstance(source, SentencePieces)
        spaced = SpacedWords()
        self._tokenize = spaced.tokenize if self.config.tokenized else source.tokenize
        self._tokenize_target = spaced.tokenize if self.config.tokenized else target.tokenize
        self._detokenize = spaced.detokenize if self.config.tokenized else target.detokenize
        replaces = self.config.replace_unk and self.config.lexicon
        self._lexicon = read_lexicon(Path(self.config.lexicon)) if replaces else {}
        self._candidates = self._read_candidates()

    @classmethod
    def load(
        cls,
        model: str | Path,
        *more_models: str | Path,
        which: Which = "best",
        alignments: bool = True,
        **settings: Any,
    ) -> Self:
        """A translator of a model directory, or of several whose probabilities are averaged.

        Settings are those of section [translate] of nmtalign.toml, such as beam=5 or precision="bf16". Raises
        UsageError for an unknown setting or a wrong value, FormatError for a folder that is no model.
        """
        _check_settings(settings, field_names(TranslateConfig))
        layer = "Translator.load", settings
        config = translate_config(layer)
        with naming(layer):
            translator = cls(load_models([model, *more_models], config, which), config, alignments)
        translator._given = layer
        return translator

    def translate(self, lines: Iterable[str | Request], **settings: Any) -> Iterator[Translation]:
        """One translation a line, in order, lazily.

        A sequence is read in windows; any other iterable by a thread of its own, so that a line that comes alone is
        answered at once and a flood is sorted into batches. `settings` hold for these lines alone. Raises UsageError
        for a setting that is wrong, and for one text in place of lines.
        """
        if isinstance(lines, str):
            raise UsageError("translate takes lines, and this is one text: give a list of lines, such as [text]")
        translator = self._changed(settings) if settings else self
        return translator._translate(lines)

    def _changed(self, settings: Mapping[str, Any]) -> "Translator":
        _check_settings(settings, [name for name in field_names(TranslateConfig) if name not in _OF_LOADING])
        layers = self._given, ("Translator.translate", settings)
        config = translate_config(*layers)
        with naming(*layers):
            return Translator(self.models, config, self.alignments, self.scorer)

    @cached_property
    def scorer(self) -> Scorer:
        """The models, laid out for search when it is first asked for: loading takes a few milliseconds without it."""
        if self._given_scorer is not None:
            return self._given_scorer
        config, device = self.config, self.loaded.device
        dtype = torch.bfloat16 if picks_bf16(config.precision, device) else None
        scorers = [ModelScorer(Inference(loaded.model, dtype)) for loaded in self.models]
        return scorers[0] if len(scorers) == 1 else Ensemble(scorers, config.ensemble)

    @cached_property
    def _decoder(self) -> PieceDecoder:
        options = search_options(self.config, self.alignments)
        return PieceDecoder(self.scorer, options, self.config, self.loaded.device, self._candidates)

    def _read_candidates(self) -> CandidateLists | None:
        if not self.config.candidates:
            return None
        vocabularies = self.loaded.source_vocabulary, self.loaded.target_vocabulary
        return CandidateLists.read(Path(self.config.lexicon), *vocabularies, self.config.candidates)

    @cached_property
    def _limits(self) -> BatchLimits:
        config, device, target = self.config, self.loaded.device, self.loaded.target_vocabulary
        rows = config.n_best if config.sample else config.beam
        return BatchLimits(
            words=config.batch_size or default_words(rows, device),
            memory=memory_limit(config.max_memory, device) // Workers.count(device) // len(self.models),
            model=self.loaded.model.config,
            beam=rows,
            itemsize=2 if picks_bf16(config.precision, device) else 4,
            scored=len(target) if not config.candidates else min(len(target), 4 * config.candidates),
            length_ratio=config.max_length_ratio,
            keep_weights=self.alignments or config.replace_unk,
        )

    def _translate(self, lines: Iterable[str | Request]) -> Iterator[Translation]:
        words, used = self._limits.words * _WINDOW_BATCHES, 0
        at_hand = isinstance(lines, Sequence | AtHand)
        with Workers(self.loaded.device, ahead=at_hand) as workers:
            cut = windows(lines, max(1, words // 8), words * _WORD_CHARACTERS, _characters)
            for results in workers.in_order(self._window(window, workers) for window in self._numbered(lines, cut)):
                for translation in results:
                    yield translation
                    used += len(translation.source_tokens) + 1
                if used >= self._limits.words:  # rarely: the pages that are needed again cost little beside the search
                    return_memory()
                    used = 0

    def _numbered(self, lines: Iterable[str | Request], cut: Iterable[list[str | Request]]) -> Iterator[list[_Line]]:
        """The windows read; lines are numbered from 0, those that an earlier run has done included."""
        number = None
        for window in cut:
            if number is None:
                number = lines.passed if isinstance(lines, Rest) else 0
            yield [self._read(place, line) for place, line in enumerate(window, number)]
            number += len(window)

    def _window(self, lines: Sequence[_Line], workers: Workers) -> Iterator[Translation]:
        """Hands the batches of a window to the workers; the iterator then waits for them, line by line."""
        pieces = [piece for line in lines for piece in self._pieces(line)]
        batches = self._limits.cut([len(piece.source) + 1 for piece in pieces], workers.at_least(len(pieces)))
        search = self._decoder.search
        tasks = workers.submit(lambda batch: search([pieces[place] for place in batch]), batches)
        return self._results(lines, tasks)

    def _results(
        self, lines: Sequence[_Line], tasks: Iterator[tuple[Sequence[int], list[list[Hypothesis]]]]
    ) -> Iterator[Translation]:
        """The translations of a window's lines, each as soon as it and those before it are there."""
        found: dict[int, list[Hypothesis]] = {}
        place = 0
        for line in lines:
            there = range(place, place + len(line.pieces))
            place = there.stop
            while any(number not in found for number in there):
                batch, hypotheses = next(tasks)
                found.update(zip(batch, hypotheses, strict=True))
            yield self._translation(line, [found.pop(number) for number in there])

    def _read(self, number: int, line: str | Request) -> _Line:
        request = line if isinstance(line, Request) else Request(line)
        tokenizers, limit = self.loaded.tokenizers, self.config.max_source_length
        tokens = self._tokenize(request.text)
        pieces = [slice(0, len(tokens))] if tokens else []
        if len(tokens) > limit:
            pieces = cut(tokens, tokenizers.source.word_index(tokens), limit)
        prefix = self._tokenize_target(request.prefix) if request.prefix else []
        phrases = [self._tokenize_target(phrase) for phrase in request.phrases]
        return _Line(number, request, tokens, self.loaded.source_vocabulary.encode(tokens), pieces, prefix, phrases)

    def _pieces(self, line: _Line) -> Iterator[Piece]:
        """What of a line is searched at once; prefix and phrases are those of its first piece."""
        encode = self.loaded.target_vocabulary.encode
        prefix = tuple(encode(line.prefix))
        phrases = tuple(tuple(encode(phrase)) for phrase in line.phrases)
        for part, piece in enumerate(line.pieces):
            yield Piece(
                source=tuple(line.ids[piece]),
                prefix=() if part else prefix,
                phrases=() if part else phrases,
                number=line.number,
                part=part,
            )

    def _translation(self, line: _Line, found: Sequence[list[Hypothesis]]) -> Translation:
        pieces = [best for best, *_ in found]
        if not found:
            alternatives = [self._alternative(line, _NOTHING, [_NOTHING])]
        elif len(found) == 1:
            alternatives = [self._alternative(line, hypothesis, [hypothesis]) for hypothesis in found[0]]
        else:
            joined = join(pieces, search_options(self.config).scoring, keep_weights=self.alignments)
            alternatives = [self._alternative(line, joined, pieces)]
        return Translation(
            request=line.request,
            source_tokens=tuple(line.tokens),
            source_unknown=line.ids.count(UNK_ID),
            n_best=tuple(alternatives),
            pieces=max(1, len(found)),
        )

    def _alternative(self, line: _Line, hypothesis: Hypothesis, pieces: Sequence[Hypothesis]) -> Alternative:
        tokens = self._target_tokens(line, hypothesis, pieces)
        return Alternative(
            text=self._detokenize(tokens).translate(_LINE_ENDS),
            tokens=tuple(tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            token_log_probs=hypothesis.token_log_probs,
            alignment=hypothesis.weights if self.alignments else None,
        )

    def _target_tokens(self, line: _Line, hypothesis: Hypothesis, pieces: Sequence[Hypothesis]) -> list[str]:
        tokens = self.loaded.target_vocabulary.decode(hypothesis.tokens)
        ids = list(hypothesis.tokens)
        given = [(0, line.prefix), *zip(hypothesis.phrase_at, line.phrases, strict=False)] if tokens else []
        for place, words in given:
            if place < 0:  # an empty phrase is nowhere
                continue
            # Unknown words of what was asked for come out as they were given.
            tokens[place : place + len(words)] = words
            ids[place : place + len(words)] = [_GIVEN] * len(words)
        weights = [piece.weights for piece in pieces if piece.weights is not None]
        if not self.config.replace_unk or UNK_ID not in ids or not weights:
            return tokens
        return self._replaced(line, ids, tokens, weights)

    def _replaced(self, line: _Line, ids: Sequence[int], tokens: list[str], weights: Sequence[Weights]) -> list[str]:
        tokenizer = self.loaded.tokenizers.source
        names = tokenizer.words(line.tokens)
        words = [names[word] for word in tokenizer.word_index(line.tokens)]
        copies, word_start = words, ""
        if self._subwords:
            # A piece that is unknown itself is copied alone: its neighbours have their own places in the translation.
            word_start = WORD_START
            known = (number != UNK_ID for number in line.ids)
            copies = [word_start + w if k else t for w, k, t in zip(words, known, line.tokens, strict=True)]
        unknown = {place for place, number in enumerate(line.ids) if number == UNK_ID}
        language = self.loaded.tokenizers.target_language if self.loaded.tokenizers.kind == "moses" else ""
        return replace_unknowns(ids, tokens, weights, words, copies, self._lexicon, word_start, unknown, language)


def load_models(folders: Sequence[str | Path], config: TranslateConfig, which: Which = "best") -> list[LoadedModel]:
    """The models of folders, ready for `config`'s device and threads."""
    use_threads(config.threads)
    return [load_model(Path(folder), device=config.device, precision="fp32", which=which) for folder in folders]


def _characters(line: str | Request) -> int:
    return len(line.text if isinstance(line, Request) else line)


def _changed_settings(config: TranslateConfig) -> dict[str, Any]:
    """The settings that are not the usual ones."""
    usual = TranslateConfig()
    return {name: value for name, value in dataclasses.asdict(config).items() if value != getattr(usual, name)}


def _check_settings(settings: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in settings:
        if name not in known:
            raise UsageError(f"{name}: no setting of translate, or none that can change after loading")


def _check_vocabularies(models: Sequence[LoadedModel]) -> None:
    first, *others = models
    for other in others:
        for side in ("source_vocabulary", "target_vocabulary"):
            if getattr(other, side) != getattr(first, side):
                raise UsageError(
                    f"{other.folder}: its {side.replace('_', ' ')} is not that of {first.folder}; "
                    "an ensemble needs models of one prepared corpus"
                )
