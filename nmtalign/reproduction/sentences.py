"""Single sentences: heat maps (the paper's Figure 3), and long ones side by side (its section 5.2.2)."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from nmtalign.alignment.heatmap import Panel, draw, heatmap_svg
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.reproduction.comparisons import FIGURES
from nmtalign.reproduction.document import Block, Figure, Heading, Paragraph, Sentence
from nmtalign.reproduction.reordering import reordering, sure_links
from nmtalign.reproduction.results import Results
from nmtalign.scoring.lengths import word_counts


def heat_maps(results: Results, folder: Path) -> Iterator[Block]:
    """Soft alignments of chosen or of the most reordered sentences."""
    request = results.plan.request
    if not results.pictures:
        if request.reordered and any(system.model.attention != "none" for system in results.outcome.translated()):
            yield Heading("Figure 3: soft alignments")
            yield Paragraph("No sentence to draw: in none of 30 words or less does the model look at a word surely.")
        return
    name = results.pictures[0][0]
    which = "chosen sentences" if request.sentences else "the most reordered sentences"
    yield Heading("Figure 3: soft alignments")
    yield Paragraph(
        f"{name}, {which} of {results.outcome.tests[0].name} and its own translations: source along x, translation "
        "along y, white is a weight of 1. A weight says from where the model read, and not why it wrote a word."
        + ("" if request.text else " Words are shown by their places: the text may not be passed on.")
    )
    for _, record in results.pictures:
        shown = record if request.text else without_words(record)
        line, turned = record.sentence_id + 1, reordering(sure_links(record))
        file = f"{FIGURES}/alignment-{line}.png"
        panel = Panel(shown)
        draw([panel], folder / file)
        caption = f"line {line}; {100 * turned:.0f}% of the pairs of sure links cross"
        yield Figure(file, caption, heatmap_svg([panel], caption), natural=True)


def without_words(record: AlignmentRecord) -> AlignmentRecord:
    """The record with places, from 1, for words."""
    source, target = (tuple(str(place + 1) for place in range(len(side))) for side in (record.source, record.target))
    return dataclasses.replace(record, source=source, target=target)


def side_by_side(results: Results) -> Iterator[Block]:
    """The longest or the chosen sentences, as the paper's models translate them."""
    request, test = results.plan.request, results.outcome.tests[0]
    if not request.text or not (request.long or request.sentences):
        return
    lengths = word_counts(test.source.lines)
    longest = sorted(range(len(lengths)), key=lambda number: (-int(lengths[number]), number))[: request.long]
    chosen = [number - 1 for number in request.sentences] or longest
    yield Heading("Long sentences, side by side")
    yield Paragraph("What a model forgets of a long sentence is seen best at its end (the paper's section 5.2.2).")
    seed = results.plan.seeds[0]
    systems = [system for system in results.outcome.translated() if not system.experiment.ablation]
    for number in chosen:
        texts = [("source", test.source.lines[number]), ("reference", test.reference.lines[number])]
        for system in systems:
            texts.append((system.name, results.outcome.translations[system.name, seed][test.name][number]))
        yield Sentence(f"Line {number + 1}, {lengths[number]} words", texts)
