"""The page of `nmtalign explain`: sentences of a test set, chosen by what the models do with them, and BLEU by length.

No sentence is built in, so that a model of any corpus explains itself with its own test set. page/ contains the
template, the style and the script.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Template
from markupsafe import Markup

from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.report.html_page import content_policy, inert_json
from nmtalign.scoring.buckets import by_length, parse_buckets
from nmtalign.scoring.measuring import measure
from nmtalign.scoring.metrics import MetricOptions, tokenizer_for
from nmtalign.teaching.lesson import SHOWN_UNITS, Lesson, kept_words, links_of, reordered_phrase
from nmtalign.text.lines import read_pairs
from nmtalign.text.vocabulary import UNK
from nmtalign.translating.translator import Translation, Translator
from nmtalign.version import __version__

BUCKETS = "5,10,...,60"
LONGEST = 40  # tokens of a sentence that the page shows
_LENGTHS = 24  # sentences of different lengths on the slider, at most
_SHORT = 14  # tokens of the sentences of the first two presets
_FAR = 4  # source words between a changed word and the word that agrees with it, at least
_LIKELY = math.log(0.5)  # log-probability of the words that agree, at least
_CHANGED, _OTHERS = 600, 3  # changed sentences that are translated to find an agreement, in all and per word


@dataclass(frozen=True, eq=False)
class SourceSentence:
    """A source sentence as both models translate it; its name says where it comes from."""

    name: str
    found: Translation  # by RNNsearch
    fixed: Translation | None = None  # by RNNencdec
    reference: str | None = None

    @property
    def length(self) -> int:
        """The number of source tokens."""
        return len(self.found.source_tokens)

    @property
    def showable(self) -> bool:
        """Whether both models translate it in one piece, and it is short enough for the page."""
        pieces = max(one.pieces for one in (self.found, self.fixed) if one)
        return pieces == 1 and 0 < self.length <= LONGEST and len(self.found.tokens) <= 2 * LONGEST

    @cached_property
    def likeness(self) -> float:
        """The share of words that the translation by RNNsearch has in common with the reference."""
        return _likeness(self.found, self.reference)


@dataclass(frozen=True)
class Preset:
    """A button of the page: what to see, in which example, from which step; without an example why there is none."""

    name: str
    note: str
    example: SourceSentence | None = None
    step: int = 0


def write_lesson(
    lesson: Lesson,
    test: tuple[Path, Path],
    output: Path,
    given: Sequence[str] = (),
    limit: int = 500,
    notify: Callable[[str], None] = lambda doing: None,
) -> list[str]:
    """Writes the page of two models, with the first `limit` pairs of a test set and `given` source sentences.

    Returns one line for each preset for which the test set has no sentence. `notify` is called with what is being
    done. Raises InputError for a test set that cannot be read, and UsageError for one without a sentence that the page
    can show, and for a given sentence that it cannot show.
    """
    pairs = list(islice(read_pairs(*test), limit))
    lines = [*(source for source, _ in pairs), *given]
    notify(f"translating {len(lines):,} sentences")
    translators = [Translator(loaded) for loaded in lesson.models.values()]
    found, *fixed = [list(translator.translate(lines)) for translator in translators]
    names = [*(f"{test[0].name}, line {n}" for n in range(1, len(pairs) + 1)), *(["Your sentence"] * len(given))]
    references = [*(reference for _, reference in pairs), *([None] * len(given))]
    everything = list(map(SourceSentence, names, found, fixed[0] if fixed else [None] * len(lines), references))
    examples, own = everything[: len(pairs)], everything[len(pairs) :]
    for example in own:
        if not example.showable:
            raise UsageError(f"--sentence {example.found.source!r}: the page shows sentences of 1 to {LONGEST} tokens")
    shown = [example for example in examples if example.showable]
    if not shown:
        raise UsageError(f"{test[0]}: has no sentence of 1 to {LONGEST} tokens; give another test set: SRC TGT")
    notify("choosing sentences")
    presets = [_monotonic(shown), _reordered(shown), _agreement(shown, translators[0]), _fixed_vector(shown)]
    presets += [Preset(example.name, example.found.source, example) for example in own]
    chosen = _on_slider(shown, [preset.example for preset in presets if preset.example])
    data = {
        "version": __version__,
        "units": SHOWN_UNITS,
        "test": test[0].name,
        "models": list(map(lesson.facts, lesson.models)),
        "sentences": [{"name": one.name, **lesson.sentence(one.found, one.fixed, one.reference)} for one in chosen],
        "presets": [
            {**vars(preset), "example": chosen.index(preset.example) if preset.example else None} for preset in presets
        ],
        "bleu": _bleu_by_length(examples, lesson),
    }
    with atomic_text(output) as stream:
        stream.write(_page(data))
    return [f"no preset '{preset.name}': {preset.note}" for preset in presets if not preset.example]


def _on_slider(shown: Sequence[SourceSentence], presets: Sequence[SourceSentence]) -> list[SourceSentence]:
    """The sentences of the presets, and the first of each of some lengths, sorted by length."""
    first: dict[int, SourceSentence] = {}
    for example in (*presets, *shown):
        first.setdefault(example.length, example)
    lengths = sorted(first)
    apart = max(1.0, (len(lengths) - 1) / (_LENGTHS - 1))
    spread = (first[lengths[round(apart * step)]] for step in range(min(_LENGTHS, len(lengths))))
    return sorted(dict.fromkeys([*presets, *spread]), key=lambda example: example.length)


def _monotonic(shown: Sequence[SourceSentence]) -> Preset:
    """The best translated of the short sentences that are read from left to right."""
    links = {one: links_of(one.found) for one in shown if 5 <= one.length <= _SHORT}
    found = [one for one, run in links.items() if len(dict(run)) >= 5 and all(a[0] <= b[0] for a, b in pairwise(run))]
    if not found:
        return Preset("Monotonic", "no short sentence of the test set is read from left to right")
    best = max(found, key=lambda one: (one.likeness, one.length))
    return Preset("Monotonic", "No target word has its largest weight further left than the word before it.", best)


def _reordered(shown: Sequence[SourceSentence]) -> Preset:
    """The well translated short sentence with the longest phrase that is read from right to left."""
    runs = {one: run for one in shown if one.length <= _SHORT and (run := reordered_phrase(links_of(one.found)))}
    if not runs:
        return Preset("Reordered phrase", "no short sentence of the test set has a phrase that is read backward")
    best = max(runs, key=lambda one: (one.likeness > 0.99, len(runs[one]), one.likeness, -one.length))
    source, target = best.found.source_tokens, best.found.tokens
    note = (
        f"“{' '.join(target[place] for _, place in runs[best])}” reads “"
        f"{' '.join(source[place] for place, _ in reversed(runs[best]))}” from right to left: source words "
        f"{', '.join(str(place + 1) for place, _ in runs[best])}."
    )
    return Preset("Reordered phrase", note, best, runs[best][0][1])


def _fixed_vector(shown: Sequence[SourceSentence]) -> Preset:
    """The sentence in which RNNsearch has the largest number of reference words more than RNNencdec."""
    if not shown[0].fixed:
        return Preset("Fixed vector", "no model without attention was given with --fixed")
    lost = {
        one: sum(kept_words(one.found.text, str(one.reference))) - sum(kept_words(one.fixed.text, str(one.reference)))
        for one in [one for one in shown if one.length <= 2 * _SHORT] or shown
        if one.fixed
    }
    best = max(lost, key=lambda one: lost[one])
    note = (
        f"RNNsearch writes {lost[best]} words of the reference more than RNNencdec, which has one vector for all "
        f"{best.length} source words. No test sentence of up to {max(one.length for one in lost)} words has a larger "
        "difference."
    )
    return Preset("Fixed vector", note, best)


def _agreement(shown: Sequence[SourceSentence], translator: Translator) -> Preset:
    """A target word that changes its form with a source word that is far from the one it reads.

    In each changed sentence one word is replaced by one that occurs in the test set between the same two words.
    """
    between = defaultdict[tuple[str, str], list[str]](list)
    for example in shown:
        for left, word, right in _inner_words(example):
            between[left, right].append(word)
    changed = [
        (example, " ".join([*words[: place + 1], other, *words[place + 2 :]]))
        for example in sorted(shown, key=lambda one: (-one.likeness, one.length))
        if 2 * _FAR <= example.length <= 2 * _SHORT and (words := example.found.source.split())
        for place, (left, word, right) in enumerate(_inner_words(example))
        for other in sorted({*between[left, right]} - {word})[:_OTHERS]
    ][:_CHANGED]
    others = translator.translate([line for _, line in changed])
    pairs = zip((example for example, _ in changed), others, strict=True)
    found = [(one, other, far) for one, other in pairs if (far := _far(one.found, other))]
    if not found:
        return Preset("Agreement at a distance", "no word was found that changes its form with a word far from it")
    example, other, (step, place, read) = max(found, key=_clearness)
    source, target = example.found.source_tokens, example.found.tokens
    p, q = (math.exp(one.n_best[0].token_log_probs[step]) for one in (example.found, other))
    note = (
        f"RNNsearch reads “{source[read]}” and writes “{target[step]}” (probability {p:.2f}). With "
        f"“{other.source_tokens[place]}” in place of “{source[place]}”, {abs(read - place)} words away, it still reads "
        f"“{source[read]}”, but writes “{other.tokens[step]}” (probability {q:.2f}): {other.text}"
    )
    return Preset("Agreement at a distance", note, example, step)


def _clearness(found: tuple[SourceSentence, Translation, tuple[int, int, int]]) -> tuple[bool, int, float]:
    """Sorts agreements: probable translations first, then large distances."""
    example, other, (_, place, read) = found
    least = min(example.found.log_prob, other.log_prob)
    return least > -0.5, abs(read - place), least


def _inner_words(example: SourceSentence) -> Iterator[tuple[str, str, str]]:
    """Each word of the source but the first and the last, between its neighbours."""
    words = example.found.source.split()
    return zip(words, words[1:], words[2:], strict=False)


def _far(one: Translation, other: Translation) -> tuple[int, int, int] | None:
    """(target place, changed source place, source place that is read) of an agreement at a distance, or None.

    The sentences differ in one source word. At the target place they have two forms of a word (with the same first
    half), both probable, whose largest weight is on the same source word, far from the one that differs.
    """
    if len(one.source_tokens) != len(other.source_tokens) or len(one.tokens) != len(other.tokens):
        return None
    differ = [place for place, word in enumerate(one.source_tokens) if word != other.source_tokens[place]]
    if len(differ) != 1 or UNK in (*one.tokens, *other.tokens):
        return None
    for read, step in sorted(set(links_of(one)) & set(links_of(other)), key=lambda link: -abs(link[0] - differ[0])):
        forms = [one.tokens[step], other.tokens[step]]
        half = max(2, min(map(len, forms)) // 2)
        likely = min(found.n_best[0].token_log_probs[step] for found in (one, other)) > _LIKELY
        different = forms[0] != forms[1] and forms[0][:half] == forms[1][:half]
        if different and likely and abs(read - differ[0]) >= _FAR:
            return step, differ[0], read
    return None


def _likeness(found: Translation, reference: str | None) -> float:
    words = len(found.text.split()) + len((reference or "").split())
    return 2 * sum(kept_words(found.text, reference or "")) / max(1, words)


def _bleu_by_length(examples: Sequence[SourceSentence], lesson: Lesson) -> dict[str, Any]:
    """BLEU of each model for all sentences, and for each length of the source that occurs, in whitespace words."""
    texts = [[one.found.text for one in examples], [one.fixed.text for one in examples if one.fixed]]
    reference = [str(one.reference) for one in examples]
    tokenize = tokenizer_for(lesson.search.tokenizers.target_language, reference)
    options = MetricOptions(("bleu",), tokenize=tokenize)
    scores = {name: measure(lines, [reference], options)[0] for name, lines in zip(lesson.models, texts, strict=False)}
    cut = by_length([[one.found.source for one in examples]], parse_buckets(BUCKETS))
    everything = np.ones(len(examples), dtype=bool)
    parts = [("all", everything), *((label, cut.part(number)[0]) for number, label in enumerate(cut.labels))]
    rows = [
        {"words": label, "sentences": int(mask.sum())}
        | {name: round(one.score(mask).value, 2) for name, one in scores.items()}
        for label, mask in parts
        if mask.any()
    ]
    return {"all": rows[0], "buckets": rows[1:], "signature": scores["RNNsearch"].score().signature}


def _page(data: Any) -> str:
    names = ("html", "css", "js")
    files = [
        resources.files(__package__).joinpath("page", f"lesson.{name}").read_text(encoding="utf-8") for name in names
    ]
    template, style, script = files
    parts = {"policy": content_policy(style, script), "style": style, "script": script, "data": inert_json(data)}
    inserted = {name: Markup(text) for name, text in parts.items()}  # noqa: S704 - own files, and JSON that is inert
    return str(Template(template, keep_trailing_newline=True).render(**inserted, sentences=len(data["sentences"])))
