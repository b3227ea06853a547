"""The models of a server, one per direction, and the settings that a request may change."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from nmtalign.alignment.aligning import align
from nmtalign.alignment.export_formats import json_line
from nmtalign.errors import InputError, UsageError
from nmtalign.settings.alignment_settings import AlignConfig
from nmtalign.settings.definition import definitions
from nmtalign.settings.presets import settings_of
from nmtalign.settings.workspace import check_keys
from nmtalign.text.languages import language_code, language_name
from nmtalign.translating.output_formats import OutputFormat
from nmtalign.translating.translation import Request, Translation
from nmtalign.translating.translator import Translator

AUTO = "auto"  # the source language is the one whose vocabulary covers the text best
# The settings that a request may change: none of a file, of the machine, or of the length of a translation.
TRANSLATE_SETTINGS = (
    "beam", "search", "length_penalty", "word_penalty", "coverage_penalty", "min_length_ratio", "n_best", "sample",
    "temperature", "top_k", "seed", "allow_unk", "replace_unk", "word_scores", "alignment", "tokenized",
    "split_sentences",
)  # fmt: skip
ALIGN_SETTINGS = ("links", "threshold", "reading", "temperature", "drop_end", "tokenized", "weights")
_WIDEST = 100  # beam and translations per line, unless the settings of the server are larger
_REQUEST = "request"  # the origin of settings in messages
_DETECTED = 2000  # characters that are enough to recognise a language
_SWITCHES = {"true": True, "false": False}

Settings = tuple[tuple[str, str], ...]  # (name, value) as in a query, sorted


class LineTranslator:
    """Translates the lines of requests that have the same settings."""

    def __init__(self, translator: Translator) -> None:
        config = dataclasses.replace(translator.config, format="json")
        wanted = config.alignment != "none"
        if wanted and not translator.alignments:
            raise UsageError("this model has no attention, so it cannot give alignments; leave out alignment")
        self._translator = Translator(translator.models, config, wanted, translator.scorer)
        self._format = OutputFormat(config, translator.loaded.tokenizers)
        self.matrices = config.n_best if wanted else 0  # of weights, per line

    def translate(self, lines: Sequence[tuple[int, Request]]) -> list[Translation]:
        """One translation per numbered line; samples depend on the number of the line in its request."""
        if not self._translator.config.sample:
            return list(self._translator.translate([line for _, line in lines]))
        found = list[Translation]()
        for _, group in groupby(enumerate(lines), lambda placed: placed[1][0] - placed[0]):  # consecutive numbers
            (first, _), *_ = run = [numbered for _, numbered in group]
            found += self._translator.translate_rest([line for _, line in run], first=first)
        return found

    def json_lines(self, translations: Sequence[Translation]) -> list[str]:
        """The translations of a request as `nmtalign translate --format json` prints them."""
        return [self._format.json_line(number, translation) for number, translation in enumerate(translations)]


class PairAligner:
    """Aligns the pairs of requests that have the same settings."""

    def __init__(self, translator: Translator, config: AlignConfig) -> None:
        self._loaded, self._config = translator.loaded, config
        if not translator.alignments and config.reading != "occlusion":
            raise UsageError("this model has no attention, so it can align only with reading=occlusion")

    def align(self, pairs: Sequence[tuple[int, tuple[str, str]]]) -> list[str]:
        """One line of JSON per numbered pair, as `nmtalign export --format json` writes it."""
        records = align([self._loaded], [lines for _, lines in pairs], self._config)
        numbered = (
            dataclasses.replace(record, sentence_id=number) for (number, _), record in zip(pairs, records, strict=True)
        )
        return [json_line(record, self._config.weights) for record in numbered]


class ServedModel:
    """A model with its direction."""

    def __init__(self, translator: Translator, align_config: AlignConfig) -> None:
        self._translator, self._align_config = translator, align_config
        self.source, self.target = translator.loaded.source_language, translator.loaded.target_language
        self.attends = translator.alignments
        self.lines = lru_cache(16)(self._lines)
        self.pairs = lru_cache(16)(self._pairs)

    def _lines(self, settings: Settings) -> LineTranslator:
        """The translator with the settings of a request; raises UsageError for settings that cannot be."""
        base = self._translator.config
        values = _typed(settings, TRANSLATE_SETTINGS, type(base))
        changed = self._translator.changed(values, _REQUEST)
        for name in ("beam", "n_best"):
            most = max(_WIDEST, getattr(base, name))
            if getattr(changed.config, name) > most:
                raise UsageError(f"{_REQUEST}: {name} = {getattr(changed.config, name)}: must be at most {most}")
        return LineTranslator(changed)

    def _pairs(self, settings: Settings) -> PairAligner:
        """The aligner with the settings of a request; raises UsageError for settings that cannot be."""
        base, usual = self._align_config, AlignConfig()
        given = {name: value for name, value in vars(base).items() if value != getattr(usual, name)}
        changes = _REQUEST, _typed(settings, ALIGN_SETTINGS, AlignConfig)
        return PairAligner(self._translator, settings_of(AlignConfig, ("align", given), changes))

    def alternatives(self, settings: Settings, count: int) -> Settings:
        """The settings with `count` more translations per line."""
        values = dict(settings)
        with contextlib.suppress(ValueError):
            beam = int(values.get("beam", self._translator.config.beam))
            values |= {"beam": str(max(beam, count + 1)), "n_best": str(count + 1)}
        return tuple(sorted(values.items()))

    def coverage(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """Of each text the share of its words that the model knows, and minus the number of tokens.

        The text is probably in the language of the model with the largest result.
        """
        return [self._coverage(text[:_DETECTED]) for text in texts]

    def _coverage(self, text: str) -> tuple[float, int]:
        vocabulary, tokenizer = self._translator.loaded.source_vocabulary, self._translator.loaded.tokenizers.source
        tokens = vocabulary.known_tokens(text, tokenizer.tokenize)
        words, unknown = vocabulary.count_words(tokens)
        return (words - unknown) / max(1, words), -len(tokens)

    def prepare(self) -> None:
        """Prepares what the first requests would wait for: the weights for the search, and the hash of the model."""
        _ = self._translator.scorer, self._translator.loaded.hash

    def describe(self) -> Mapping[str, Any]:
        """The facts that a client may know."""
        loaded = self._translator.loaded
        return {"source": self.source, "target": self.target, "hash": loaded.hash, "alignments": self.attends}


class ServedModels:
    """The models of a server; raises UsageError for two models of one direction, and for no model."""

    def __init__(self, translators: Sequence[Translator], align_config: AlignConfig) -> None:
        self._models: dict[tuple[str, str], ServedModel] = {}
        for translator in translators:
            model = ServedModel(translator, align_config)
            if (model.source, model.target) in self._models:
                raise UsageError(
                    f"{translator.loaded.folder}: another model translates {model.source}-{model.target}, too; "
                    "give one model per direction"
                )
            self._models[model.source, model.target] = model
        if not self._models:
            raise UsageError("there is no model to serve; give at least one")

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def languages(self) -> list[dict[str, Any]]:
        """All languages with those into which each is translated, in the format of LibreTranslate."""
        codes = dict.fromkeys(code for pair in self._models for code in pair)
        return [
            {
                "code": code,
                "name": language_name(code),
                "targets": [target for source, target in self._models if source == code],
            }
            for code in codes
        ]

    def matching(self, source: str | None, target: str | None) -> list[ServedModel]:
        """The models of a direction; None and `auto` stand for any language. Raises InputError if there is none."""
        source = None if source == AUTO else source
        found = [one for one in self if _means(source, one.source) and _means(target, one.target)]
        if not found:
            pairs = ", ".join(f"{one.source}-{one.target}" for one in self)
            raise InputError(f"no model translates {source or AUTO}-{target or AUTO}; the models are {pairs}")
        return found

    def only(self, source: str | None, target: str | None) -> ServedModel:
        """The model of a direction; raises InputError if there is none, or more than one."""
        first, *others = self.matching(source, target)
        if others:
            raise InputError("several models fit; give source and target, such as ?source=en&target=fr")
        return first


def _means(asked: str | None, code: str) -> bool:
    """Whether a client asks for a language: by its code, or by another name such as `German` or `de-DE`."""
    return asked in (None, code) or language_code(asked) == code


def _typed(settings: Settings, allowed: Sequence[str], cls: type) -> dict[str, Any]:
    """The settings of a query with the types of their definitions; raises UsageError for one that is not allowed.

    A text that is not the number or the switch that it should be is refused later, like any wrong setting.
    """
    check_keys(_REQUEST, dict(settings), allowed)
    known, values = definitions(cls), dict[str, Any](settings)
    for name, text in settings:
        if known[name].base is bool:
            values[name] = _SWITCHES.get(text, text)
        elif known[name].base in (int, float):
            with contextlib.suppress(ValueError):
                values[name] = known[name].base(text)
    return values
