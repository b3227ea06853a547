"""The translator: text in, text out, one translation per line, in order."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from nmtalign.core.devices import inference_precision, precision_notices
from nmtalign.core.inference import Inference
from nmtalign.core.int8 import in_int8
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.model_files import Which
from nmtalign.processor import return_memory
from nmtalign.search.beam_search import Hypothesis, Scoring, SearchOptions
from nmtalign.search.candidates import CandidateLists
from nmtalign.search.scorer import Ensemble, ModelScorer, Scorer
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import Layer, SettingError, field_names, naming, resolve, select
from nmtalign.settings.workspace import check_keys
from nmtalign.text.sentences import separator
from nmtalign.text.tokenizer import WORD_START, SpacedWords, Subwords, TextBytes
from nmtalign.text.vocabulary import UNK_ID
from nmtalign.translating.batching import BatchLimits, Workers, default_words, memory_limit
from nmtalign.translating.confidence import Calibration
from nmtalign.translating.pieces import Piece, PieceDecoder, combine, join
from nmtalign.translating.requests import RequestReader, TokenizedLine
from nmtalign.translating.stream import windows
from nmtalign.translating.translation import Alternative, Request, Translation
from nmtalign.translating.unknown_words import Weights, read_lexicon, replace_unknowns

_WINDOW_BATCHES = 10  # the size of a window, in batches; the lines of a window are sorted by length
_WORD_CHARACTERS = 6
_LINE_BREAKS = str.maketrans("\r\n", "  ")
_GIVEN = -1  # the id of a word of a prefix or a phrase, which the model did not choose
_EMPTY = Hypothesis((), 0.0, 0.0, (0.0,), np.zeros((1, 1), np.float32))


def search_options(config: TranslateConfig, keep_weights: bool = False) -> SearchOptions:
    """The options of the search that `config` describes."""
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
    """Translates lines with one model, or with several models as an ensemble.

    `Translator.load("model/").translate(lines, beam=5)` yields one `Translation` per line, in order.
    """

    def __init__(
        self,
        models: LoadedModel | Sequence[LoadedModel],
        config: TranslateConfig | None = None,
        alignments: bool = True,
        scorer: Scorer | None = None,
        searched: Callable[[int], None] | None = None,
        given: Layer | None = None,
    ) -> None:
        """With `alignments` every translation includes its weights, if a model has attention.

        `given` are the settings that were chosen, without those that follow from them (None: those that differ from the
        defaults): `changed` resolves them anew.
        `searched` gets the number of lines (or pieces of long lines) of each finished batch, from any thread.
        Raises UsageError if the settings do not fit the models, and FormatError for a lexicon that cannot be read.
        """
        self.models = (models,) if isinstance(models, LoadedModel) else tuple(models)
        self.loaded = self.models[0]
        self.config = config or TranslateConfig()
        self._given = given or ("TranslateConfig", _changed_settings(self.config))
        _check_vocabularies(self.models)
        attends = any(loaded.model.config.attention != "none" for loaded in self.models)
        if self.config.replace_unk and not attends:
            raise SettingError("this model has no attention: it cannot replace unknown words", replace_unk=True)
        if self.config.coverage_penalty and not attends:
            raise SettingError(
                "this model has no attention: it knows no coverage", coverage_penalty=self.config.coverage_penalty
            )
        self.precision = inference_precision(self.config.precision, self.loaded.device)  # without "auto"
        self.alignments = alignments and attends
        self._given_scorer, self._searched = scorer, searched
        # The probabilities of several models together are not those that the calibration of each describes.
        self._calibration = Calibration.parse(self.loaded.calibration) if len(self.models) == 1 else None
        self._reader = RequestReader(self.loaded, self.config)
        self._subwords = isinstance(self.loaded.tokenizers.source, Subwords)
        target = SpacedWords() if self.config.tokenized else self.loaded.tokenizers.target
        self._detokenize = target.detokenize
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
        """Loads a model directory, or several whose probabilities are averaged.

        The settings are those of section [translate] of nmtalign.toml, such as beam=5 or precision="bf16". Raises
        UsageError for an unknown setting or a wrong value, and FormatError for a folder that contains no model.
        """
        check_keys("Translator.load", settings, field_names(TranslateConfig))
        layer = "Translator.load", settings
        config = resolve(TranslateConfig, layer)
        with naming(layer):
            return cls(load_models([model, *more_models], config, which), config, alignments, given=layer)

    def translate(self, lines: Iterable[str | Request], **settings: Any) -> Iterator[Translation]:
        """Yields one translation per line, in order.

        A sequence is read in windows. Any other iterable is read by a separate thread, so that a single line is
        translated at once and many lines are sorted into batches. `settings` apply only to these lines. Raises
        UsageError for a wrong setting, for a text instead of a list of lines, and for what is not a line.
        """
        if isinstance(lines, str):
            raise UsageError("translate takes lines, and this is one text: give a list of lines, such as [text]")
        translator = self.changed(settings) if settings else self
        return translator.translate_rest(lines)

    def changed(self, settings: Mapping[str, Any], origin: str = "Translator.translate") -> "Translator":
        """A translator with the same models and some other settings; messages call these settings `origin`."""
        check_keys(origin, settings, select(TranslateConfig, lambda one: not one.loading))
        layers = self._given, (origin, settings)
        config = resolve(TranslateConfig, *layers)
        with naming(*layers):
            given = origin, {**self._given[1], **settings}
            return Translator(self.models, config, self.alignments, self.scorer, given=given)

    def notices(self) -> list[str]:
        """What a user should know about the settings before the first line, such as unknown words of the glossary."""
        return [*precision_notices(self.config.precision, self.loaded.device), *self._reader.notices()]

    @cached_property
    def scorer(self) -> Scorer:
        """The models, prepared for search at the first use, so that loading takes a few milliseconds."""
        if self._given_scorer is not None:
            return self._given_scorer
        dtype = torch.bfloat16 if self.precision == "bf16" else None
        models = (in_int8(loaded.model) if self.precision == "int8" else loaded.model for loaded in self.models)
        scorers = [ModelScorer(Inference(model, dtype)) for model in models]
        return scorers[0] if len(scorers) == 1 else Ensemble(scorers, self.config.ensemble)

    @cached_property
    def _decoder(self) -> PieceDecoder:
        options = search_options(self.config, self.alignments)
        return PieceDecoder(self.scorer, options, self.config, self.loaded.device, self._candidates)

    def _read_candidates(self) -> CandidateLists | None:
        if not self.config.candidates:
            return None
        if isinstance(self.loaded.tokenizers.source, TextBytes):
            raise SettingError(
                "this model writes bytes, which a lexicon of words cannot restrict; leave it out",
                lexicon=self.config.lexicon,
            )
        vocabularies = self.loaded.source_vocabulary, self.loaded.target_vocabulary
        return CandidateLists.read(Path(self.config.lexicon), *vocabularies, self.config.candidates)

    @cached_property
    def _limits(self) -> BatchLimits:
        config, words = self.config, len(self.loaded.target_vocabulary)
        return self.batch_limits(
            beam=config.n_best if config.sample else config.beam,
            scored=words if not config.candidates else min(words, 4 * config.candidates),
            length_ratio=config.max_length_ratio,
            keep_weights=self.alignments or config.replace_unk,
        )

    def batch_limits(self, beam: int, scored: int, length_ratio: float, keep_weights: bool) -> BatchLimits:
        """The limits of batches that the settings, the device and the models allow."""
        config, device = self.config, self.loaded.device
        return BatchLimits(
            words=config.batch_size or default_words(beam, device),
            memory=memory_limit(config.max_memory, device) // Workers.count(device, config.threads) // len(self.models),
            model=self.loaded.model.config,
            beam=beam,
            itemsize=2 if self.precision == "bf16" else 4,
            scored=scored,
            length_ratio=length_ratio,
            keep_weights=keep_weights,
        )

    def translate_rest(
        self, lines: Iterable[str | Request], done: int = 0, available: bool = False, first: int = 0
    ) -> Iterator[Translation]:
        """Translates lines as `translate` does, without those that an earlier run translated: the first `done`.

        The lines are numbered from `first`, and the samples of a line depend on its number. Lines that are `available`
        without waiting, such as those of a file, are cut into the windows of a run that translates all of them. Windows
        without other lines are omitted; the results begin with the first line of the others, which may be one of the
        first `done`.
        """
        words, used = self._limits.words * _WINDOW_BATCHES, 0
        sequence = isinstance(lines, Sequence)
        if done and not available:
            lines = islice(lines, done, None)
        with Workers(self.loaded.device, available or sequence, self.config.threads) as workers:
            read = windows(lines, max(1, words // 8), words * _WORD_CHARACTERS, _characters, available)
            started = self._started(read, first + (0 if available else done), first + done, workers)
            for translations in workers.read_ahead(started):
                for translation in translations:
                    yield translation
                    used += len(translation.source_tokens) + 1
                if used >= self._limits.words:  # rarely, so that allocating the memory again costs little
                    return_memory()
                    used = 0

    def _started(
        self, read: Iterable[list[str | Request]], number: int, done: int, workers: Workers
    ) -> Iterator[Iterator[Translation]]:
        """Starts the search of each window, whose lines are numbered from `number`, and yields its translations.

        Windows of only lines below number `done` are omitted.
        """
        for window in read:
            if number + len(window) > done:
                lines = [self._reader.read(place, line) for place, line in enumerate(window, number)]
                yield self._window(lines, workers)
            number += len(window)

    def _window(self, lines: Sequence[TokenizedLine], workers: Workers) -> Iterator[Translation]:
        """Starts the search of a window at once; the iterator then waits for its translations."""
        pieces = [piece for line in lines for piece in line.pieces]
        found = workers.run(self._search, pieces, [len(piece.source) + 1 for piece in pieces], self._limits)
        return (self._translation(line, list(islice(found, len(line.pieces)))) for line in lines)

    def _search(self, pieces: list[Piece]) -> list[list[Hypothesis]]:
        found = self._decoder.search(pieces)
        if self._searched:
            self._searched(len(pieces))
        return found

    def _translation(self, line: TokenizedLine, found: Sequence[list[Hypothesis]]) -> Translation:
        combined = combine(found or [[_EMPTY]], self.config.n_best, self.config.sample)
        return Translation(
            request=line.request,
            source_tokens=tuple(line.tokens),
            source_unknown=line.ids.count(UNK_ID),
            n_best=tuple(self._alternative(line, hypotheses) for hypotheses in combined),
            pieces=max(1, len(found)),
            sentences=max(1, len({piece.sentence for piece in line.pieces})),
            confidence=self._calibration.of(combined[0]) if self._calibration else None,
        )

    def _alternative(self, line: TokenizedLine, pieces: Sequence[Hypothesis]) -> Alternative:
        hypothesis = join(pieces, search_options(self.config).scoring, keep_weights=self.alignments)
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
            if self._subwords or not parts:
                parts.append(words)
            else:
                parts[-1].extend(words)
        between = " " if self.config.tokenized else separator(self.loaded.target_language)
        texts = {number: between.join(filter(None, map(self._detokenize, own))) for number, own in sentences.items()}
        kept = 0  # characters of the prefix
        for prefix in line.begin if texts else ():
            first = line.pieces[0].sentence
            if match := prefix.pattern.match(texts[first]):
                texts[first] = prefix.text + texts[first][match.end() :]
                kept = len(prefix.text)
        for number, phrase, capital in line.phrases if texts else ():
            texts[number] = phrase.written(texts[number], capital, kept if number == line.pieces[0].sentence else 0)
        return between.join(filter(None, texts.values()))

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
        return self._replaced(line, ids, tokens, weights)

    def _replaced(
        self, line: TokenizedLine, ids: Sequence[int], tokens: list[str], weights: Sequence[Weights]
    ) -> list[str]:
        tokenizer = self.loaded.tokenizers.source
        names = tokenizer.words(line.tokens)
        words = [names[word] for word in tokenizer.word_index(line.tokens)]
        copies, word_start = words, ""
        if self._subwords:
            # Only the unknown piece of a word is copied; its other pieces have their own places in the translation.
            word_start = WORD_START
            known = (number != UNK_ID for number in line.ids)
            copies = [word_start + w if k else t for w, k, t in zip(words, known, line.tokens, strict=True)]
        unknown = {place for place, number in enumerate(line.ids) if number == UNK_ID}
        language = self.loaded.tokenizers.target_language if self.loaded.tokenizers.kind == "moses" else ""
        return replace_unknowns(ids, tokens, weights, words, copies, self._lexicon, word_start, unknown, language)


def load_models(folders: Sequence[str | Path], config: TranslateConfig, which: Which = "best") -> list[LoadedModel]:
    """Loads models for the device of `config`."""
    return [load_model(Path(folder), device=config.device, precision="fp32", which=which) for folder in folders]


def _characters(line: str | Request) -> int:
    text = line.text if isinstance(line, Request) else line
    return len(text) if isinstance(text, str) else 1  # `RequestReader.read` refuses what is not a line


def _changed_settings(config: TranslateConfig) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    usual = TranslateConfig()
    return {name: value for name, value in dataclasses.asdict(config).items() if value != getattr(usual, name)}


def _check_vocabularies(models: Sequence[LoadedModel]) -> None:
    first, *others = models
    for other in others:
        if other.model.config.copy != first.model.config.copy:
            raise UsageError(f"{other.folder}: either all models of an ensemble can copy words, or none; see --copy")
        for side in ("source_vocabulary", "target_vocabulary"):
            if getattr(other, side) != getattr(first, side):
                raise UsageError(
                    f"{other.folder}: its {side.replace('_', ' ')} is not that of {first.folder}; "
                    "an ensemble needs models of one prepared corpus"
                )
