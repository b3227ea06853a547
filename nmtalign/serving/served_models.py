"""The models of a server, one per direction, and the settings that a request may change."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nmtalign.alignment.aligning import Models, align
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.alignment.word_aligner import WordAligner
from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.serving.batch_queue import Work
from nmtalign.settings.command_settings import AlignConfig, Markup, TranslateConfig
from nmtalign.settings.definition import check_keys, resolve, select
from nmtalign.text.languages import language_code, language_name
from nmtalign.translating.file_translation import OutputFormat
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Translation, Translator

AUTO = "auto"  # the source language of each text is the one whose vocabulary covers it best
_WIDEST = 100  # beam and translations per line, unless the settings of the server are larger
_REQUEST = "request"  # the origin of settings in messages
_DETECTED = 2000  # characters that are enough to recognise a language

Query = tuple[tuple[str, str], ...]  # the settings of a request, (name, value), sorted


class LineTranslator:
    """Translates the lines of requests that have the same settings."""

    def __init__(self, translator: Translator, usual_beam: int) -> None:
        """`usual_beam` is that of the server."""
        config = translator.config
        self._translator, self._soft = translator, config.alignment == "soft"
        self.json_line = OutputFormat(config, translator.loaded.tokenizers).json_line  # of a numbered translation
        # The number of matrices of weights per line; those of a document are not printed, and tokens have four letters.
        self.matrices = (1 / 16 if config.markup else config.n_best) if translator.alignments else 0
        rows, usual = config.n_best if config.sample else config.beam, TranslateConfig().beam
        self.work = max(1.0, rows / max(usual, usual_beam))  # of a search, as a multiple of the usual one

    def translate(self, lines: Sequence[tuple[int, Request]]) -> list[Translation]:
        """One translation per numbered line; samples depend on the number of the line in its request."""
        if not self._translator.config.sample:
            return list(self._translator.translate([line for _, line in lines]))
        return [next(self._translator.translate_numbered([line], number)) for number, line in lines]

    def weights(self, translation: Translation) -> int:
        """The number of weights in the JSON of a translation, which contains the best one twice."""
        entries = (*translation.n_best[:1], *translation.n_best) if self._soft else ()
        return sum(each.alignment.size for each in entries if each.alignment is not None)


class ServedAligner:
    """What aligns pairs of one direction: a word aligner, or a model."""

    def __init__(self, models: Models, align_config: AlignConfig) -> None:
        self._models, self._align_config = models, align_config
        self._one = models if isinstance(models, WordAligner) else models[0]
        self.source, self.target = self._one.source_language, self._one.target_language
        self.direction, self.folder, self.alignments = f"{self.source}-{self.target}", self._one.folder, True
        self.pairs = lru_cache(16)(self._pairs)

    def _pairs(self, settings: Query) -> tuple[Work, AlignConfig]:
        """What aligns pairs with the settings of a request, and these; raises UsageError for settings that cannot be.

        The function is the same for equal settings, so that the queue merges their requests.
        """
        if not self.alignments:
            raise UsageError("this model has no attention, so it cannot align")
        given = "section [align]", vars(self._align_config)
        config = resolve(AlignConfig, given, (_REQUEST, _typed(settings, AlignConfig)))

        def aligned(pairs: Sequence[tuple[int, tuple[str, str]]]) -> list[AlignmentRecord]:
            """One record per numbered pair; raises InputError for one that is too long for the word aligner."""
            records = list(align(self._models, [lines for _, lines in pairs], config, first=pairs[0][0]))
            if isinstance(self._models, WordAligner) and (note := self._models.left_out()):
                raise InputError(note)
            return [replace(record, sentence_id=number) for (number, _), record in zip(pairs, records, strict=True)]

        return aligned, config

    def describe(self) -> Mapping[str, Any]:
        """The facts that a client may know."""
        return {"source": self.source, "target": self.target, "hash": self._one.hash, "alignments": self.alignments}


class ServedModel(ServedAligner):
    """A model that translates and aligns, with its direction."""

    def __init__(self, translator: Translator, align_config: AlignConfig) -> None:
        super().__init__([translator.loaded], replace(align_config, threads=translator.config.threads))
        self._translator, self.text_fit = translator, translator.loaded.text_fit
        self.alignments, self.aligner = translator.alignments, translator.config.aligner  # it may place tags
        self._widest = max(_WIDEST, translator.config.beam, translator.config.n_best)
        self.lines = lru_cache(16)(self._lines)
        _ = translator.scorer, translator.loaded.hash  # now, so that the first request need not wait

    def _lines(self, settings: Query, markup: Markup | None = None, alternatives: int = 0) -> LineTranslator:
        """The translator with the settings of a request; raises UsageError for settings that cannot be.

        `alternatives` is the number of further translations per line.
        """
        base = self._translator.config
        values = _typed(settings, type(base))
        if alternatives >= self._widest:
            raise UsageError(f'"alternatives" must be at most {self._widest - 1}')
        if alternatives:
            beam = values.get("beam", base.beam)  # a text if the client gave no number
            values |= {"beam": max(beam, alternatives + 1) if type(beam) is int else beam, "n_best": alternatives + 1}
        wanted = values.get("alignment", base.alignment) != "none" or (markup is not None and not base.aligner)
        given = {**values, "format": "json", "markup": markup}
        try:
            changed = self._translator.changed(given, _REQUEST, alignments=wanted)
        except (FormatError, InputError) as error:  # no client may learn of the server's files
            raise RuntimeError(error) from None
        for name in ("beam", "n_best"):
            if (number := getattr(changed.config, name)) > self._widest:
                raise UsageError(f"{_REQUEST}: {name} = {number}: must be at most {self._widest}")
        if wanted and not changed.alignments:
            raise UsageError("this model has no attention, so it cannot give alignments; leave out alignment and html")
        return LineTranslator(changed, base.beam)


# The model that knows a text best, and the log-odds of the languages, the largest first.
Detected = tuple[ServedModel, Mapping[str, float]]


class ServedModels:
    """The models and the word aligners of a server; raises UsageError for two of one direction, and for none."""

    def __init__(
        self, translators: Sequence[Translator], align_config: AlignConfig, aligners: Sequence[WordAligner] = ()
    ) -> None:
        self.models = [ServedModel(translator, align_config) for translator in translators]
        self.aligners = [ServedAligner(aligner, align_config) for aligner in aligners]
        for kind, several in (("model", self.models), ("word aligner", self.aligners)):
            for number, one in enumerate(several):
                if one.direction in [other.direction for other in several[:number]]:
                    fault = f"another {kind} is for {one.direction}; give one {kind} per direction"
                    raise UsageError(f"{one.folder}: {fault}")
        if not (self.models or self.aligners):
            raise UsageError("there is no model to serve; give at least one")

    def directions(self) -> list[str]:
        """Those of the models, such as en-fr, then those of the word aligners that no model translates."""
        translated = [one.direction for one in self.models]
        aligned = [one.direction for one in self.aligners if one.direction not in translated]
        return translated + [f"{direction} (only /align)" for direction in aligned]

    def languages(self) -> list[dict[str, Any]]:
        """All languages with those into which each is translated, in the format of LibreTranslate."""
        targets: dict[str, list[str]] = {code: [] for one in self.models for code in (one.source, one.target)}
        for one in self.models:
            targets[one.source].append(one.target)
        return [{"code": code, "name": language_name(code), "targets": each} for code, each in targets.items()]

    def matching(self, source: str | None, target: str | None) -> list[ServedModel]:
        """The models of a direction; None and the source `auto` mean any language. Raises InputError if none fits."""
        source = None if source == AUTO else source
        if found := [one for one in self.models if _means(source, one.source) and _means(target, one.target)]:
            return found
        asked, models = f"{source or AUTO}-{target or AUTO}", ", ".join(self.directions())
        raise InputError(f"no model translates {asked}; the models are {models}")

    def detected(self, asked: Sequence[tuple[str, str | None]]) -> list[Detected]:
        """What is known of texts, which are given with the language into which they are translated, or None for any."""
        found = list[Detected]()
        for text, target in asked:
            fits = [(model, model.text_fit()) for model in self.matching(AUTO, target)]
            for _, fit in fits:
                fit.add(text[:_DETECTED])
            known = [(one.source, fit.own.odds) for one, fit in fits]
            known += [(one.target, fit.other.odds) for one, fit in fits]
            odds = {language: max(own for other, own in known if other == language) for language, _ in known}
            best, _ = max(fits, key=lambda one: one[1].own.odds)
            found.append((best, dict(sorted(odds.items(), key=lambda one: one[1], reverse=True))))
        return found

    def same(self, source: str, target: str) -> bool:
        """Whether both languages are one language of the models, from which no model translates into itself."""
        pairs = [(one.source, one.target) for one in self.models]
        codes = {code for pair in pairs for code in pair}
        return any(_means(source, one) and _means(target, one) and (one, one) not in pairs for one in codes)

    def aligner(self, source: str | None, target: str | None) -> ServedAligner:
        """The word aligner of a direction, else the model of `only`."""
        fitting = [one for one in self.aligners if _means(source, one.source) and _means(target, one.target)]
        return fitting[0] if len(fitting) == 1 else self.only(source, target)

    def only(self, source: str | None, target: str | None) -> ServedModel:
        """The model of a direction; raises InputError if there is none, or more than one."""
        first, *others = self.matching(source, target)
        if others:
            raise InputError("several models fit; give source and target, such as ?source=en&target=fr")
        return first


def _means(asked: str | None, code: str) -> bool:
    """Whether a client asks for a language: by its code, or by another name such as `German` or `de-DE`."""
    return asked in (None, code) or language_code(asked) == code


def _typed(settings: Query, cls: type) -> dict[str, Any]:
    """The settings of a query with the types of their definitions; raises UsageError for one that is not allowed.

    A text that is not the number or the switch that it should be is refused later, like any wrong setting.
    """
    # What a client may change concerns neither files, the machine nor other clients.
    allowed = select(cls, lambda one: not (one.loading or one.is_path or one.server_only or one.affects == "machine"))
    check_keys(_REQUEST, dict(settings), allowed)
    return {name: allowed[name].parse(text) for name, text in settings}
