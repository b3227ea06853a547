"""The lesson: a page that shows how a model with attention translates, and what one fixed vector loses.

All numbers come from the translations of real models, on the CPU. Its sentences are those of a test set that show best
what happens, so that a model of any corpus explains itself.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nmtalign.alignment.links import Link, argmax_links
from nmtalign.core.model import make_batch
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.text.lines import read_pairs
from nmtalign.text.tokenizer import EOS, UNK_ID
from nmtalign.translating.translator import Translation, Translator
from nmtalign.version import __version__
from nmtalign.viewing.page import inert_json, page, part

LONGEST = 40  # tokens of a sentence that the page shows
_LIMIT = 500  # pairs of the test set that are translated, if the settings give no number
_SHORT = 14  # tokens of the sentences of the first two presets


class LessonSentence(NamedTuple):
    """A pair of the test set as the models translate it: with attention and, if there is such a model, without."""

    name: str
    reference: str
    attending: Translation
    fixed: Translation | None

    @property
    def length(self) -> int:
        """The number of source tokens."""
        return len(self.attending.source_tokens)

    def shows(self) -> bool:
        """Whether the sentence has weights, was translated in one piece, and is short enough for the page."""
        pieces = max(one.pieces for one in (self.attending, self.fixed) if one)
        short = 0 < self.length <= LONGEST and len(self.attending.tokens) <= 2 * LONGEST
        return short and pieces == 1 and self.attending.alignment is not None

    def likeness(self) -> float:
        """The share of words that the translation with attention and the reference have in common."""
        words = len(self.attending.text.split()) + len(self.reference.split())
        return 2 * sum(kept_words(self.attending.text, self.reference)) / max(1, words)


def write_lesson(
    models: Sequence[Path],
    texts: Sequence[Path],
    output: Path | None,
    title: str = "",
    limit: int | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> None:
    """Writes the lesson of a model with attention and perhaps one without, with the first `limit` pairs of a test set.

    Raises UsageError for other models, other texts and for an output that is no page.
    """
    if output is None or output.suffix.lower() != ".html":
        raise UsageError("a lesson is a page: give -o lesson.html")
    if len(texts) != 2:
        raise UsageError("a lesson needs the two texts of a test set: give SRC TGT")
    loaded = sorted((load_model(path, "cpu") for path in models), key=lambda one: one.model.config.attention == "none")
    if [one.model.config.attention == "none" for one in loaded] not in ([False], [False, True]):
        raise UsageError("a lesson needs one model with attention, and at most one without (RNNencdec)")
    if len({(one.source_language, one.target_language) for one in loaded}) > 1:
        raise UsageError(f"{models[0]} and {models[1]} translate between different languages; give models of the same")
    pairs = list(islice(read_pairs(*texts), _LIMIT if limit is None else limit or None))
    found = [list(Translator(one).translate([source for source, _ in pairs])) for one in loaded]
    examples = [
        LessonSentence(
            f"{texts[0].name}, line {number + 1}", reference, found[0][number], found[1][number] if found[1:] else None
        )
        for number, (_, reference) in enumerate(pairs)
    ]
    shown = [example for example in examples if example.shows()]
    if not shown:
        raise UsageError(f"{texts[0]}: has no sentence of 1 to {LONGEST} tokens; give another test set: SRC TGT")
    presets = list(_presets(shown))
    best = [example for _, _, example in presets]
    lengths = {example.length: example for example in (*reversed(shown), *best)}  # one sentence of each length
    named = {example.name: example for example in (*best, *lengths.values())}
    chosen = sorted(named.values(), key=lambda example: example.length)
    data = {
        "models": [_facts(one) for one in loaded],
        "sentences": [_numbers(example, loaded) for example in chosen],
        "presets": [[name, note, chosen.index(example)] for name, note, example in presets],
    }
    pieces = page(
        title or "How a translator learns to align", part("lesson.html"), ["lesson.js"], [("lesson", inert_json(data))]
    )
    with atomic_text(output) as stream:
        stream.writelines(pieces)
    notify(f"wrote {output} with {len(chosen)} sentences of {texts[0]}: open it in a browser")


def _facts(loaded: LoadedModel) -> str:
    parameters = sum(weight.numel() for weight in loaded.model.parameters())
    direction = f"{loaded.source_language}-{loaded.target_language}"
    return f"{loaded.folder.resolve().name}: {direction}, {parameters:,} parameters, nmtalign {__version__}"


def _presets(shown: Sequence[LessonSentence]) -> Iterator[tuple[str, str, LessonSentence]]:
    """(name, note, sentence) of what the test set shows: the best translated sentence of each kind."""
    short = [(example, links_of(example.attending)) for example in shown if example.length <= _SHORT]
    monotonic = [one for one, links in short if len(links) >= 5 and all(a[0] <= b[0] for a, b in pairwise(links))]
    if monotonic:
        best = max(monotonic, key=lambda one: (one.likeness(), one.length))
        yield "Monotonic", "No target word has its largest weight further left than the word before it.", best
    turned = [(one, phrase) for one, links in short if (phrase := reordered_phrase(links))]
    if turned:
        best, phrase = max(turned, key=lambda pair: (pair[0].likeness() > 0.99, len(pair[1]), pair[0].likeness()))
        words = " ".join(best.attending.tokens[target] for _, target in phrase)
        read = ", then ".join(best.attending.source_tokens[source] for source, _ in phrase)
        yield "Reordered phrase", f"“{words}” reads {read}: from right to left.", best
    lost = [
        (sum(kept_words(one.attending.text, one.reference)) - sum(kept_words(one.fixed.text, one.reference)), one)
        for one in shown
        if one.fixed
    ]
    if lost:
        more, best = max(lost, key=lambda pair: pair[0])
        yield "Fixed vector", f"With attention {more} words more of the reference are found than with one vector.", best
    if not (monotonic or turned or lost):
        yield "First sentence", "The test set has no short sentence that shows an order clearly.", shown[0]


@torch.no_grad()
def _numbers(example: LessonSentence, loaded: Sequence[LoadedModel]) -> dict[str, Any]:
    """The numbers of a sentence, as JSON; `</s>` is the last row and the last column of the weights."""
    found, fixed = example.attending, example.fixed
    weights = found.alignment.tolist() if found.alignment is not None else []
    numbers: dict[str, Any] = {
        "name": example.name,
        "source": [*found.source_tokens, EOS],
        "target": [*found.tokens, EOS],
        "reference": example.reference,
        "weights": [[_rounded(weight) for weight in row] for row in weights],
        "probabilities": [_rounded(math.exp(value)) for value in found.n_best[0].token_log_probs],
        "texts": [
            {"words": one.text.split(), "kept": kept_words(one.text, example.reference)}
            for one in (found, fixed)
            if one
        ],
    }
    if fixed:
        numbers["changes"] = list(map(_rounded, vector_changes(loaded[1], fixed.source_tokens)))
    return numbers


def vector_changes(loaded: LoadedModel, source: Sequence[str]) -> list[float]:
    """|c' - c| / |c| of the fixed vector c of a model without attention, if `<unk>` replaces each word in turn."""
    ids = loaded.source_vocabulary.encode(source)
    lines = [ids, *([*ids[:place], UNK_ID, *ids[place + 1 :]] for place in range(len(ids)))]
    batch = make_batch([(line, []) for line in lines])
    values = loaded.model.encode(batch.source, batch.source_mask).values
    changes: list[float] = ((values[1:] - values[0]).norm(dim=-1) / values[0].norm(dim=-1)).tolist()
    return changes


def _rounded(number: float) -> float:
    return float(f"{number:.4g}") if math.isfinite(number) else 0.0


def links_of(found: Translation) -> list[Link]:
    """Returns the links from each target token to the source token with the largest weight, if that is a word."""
    links = [] if found.alignment is None else argmax_links(found.alignment)
    return [(place, step) for place, step in links if any(map(str.isalnum, found.source_tokens[place]))]


def reordered_phrase(links: Sequence[Link]) -> list[Link]:
    """Returns the links of the longest run of adjacent target words that read ever earlier source words."""
    best: list[Link] = []
    run = list(links[:1])
    for (source, target), link in pairwise(links):
        run = [*run, link] if link[1] == target + 1 and link[0] < source else [link]
        best = max(best, run, key=len)
    return best if len(best) > 1 else []


def kept_words(text: str, reference: str) -> list[bool]:
    """Returns for each word of a text whether it is in the longest common sequences of the text and the reference."""
    words = text.split()
    kept = [False] * len(words)
    for block in SequenceMatcher(None, words, reference.split(), autojunk=False).get_matching_blocks():
        kept[block.a : block.a + block.size] = [True] * block.size
    return kept
