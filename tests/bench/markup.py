"""`bench markup`: tags around random source spans, placed in the translation by the links of `nmtalign link`.

A tag is right if it encloses exactly the words that gold links connect with its span. Counted are spans of 1 to 5 words
whose words with sure links are contiguous; words with only possible links may be inside or outside.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import nmtalign
from bench.machine import describe_machine, in_words
from bench.report import Table, say, show
from nmtalign.alignment.aligning import align, load_models
from nmtalign.alignment.link_files import read_links
from nmtalign.alignment.links import Link
from nmtalign.alignment.placement import TagSpan, place
from nmtalign.sample.grammar import generate
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.lines import read_lines

LONGEST_SPAN = 5
TEST_PAIRS = 500  # of the sample corpus


@dataclass
class GoldSet:
    """Tokenised training pairs, and pairs with gold links: the sure ones, and all."""

    name: str
    train: Sequence[tuple[str, str]]
    pairs: Sequence[tuple[str, str]]
    gold: Sequence[tuple[frozenset[Link], frozenset[Link]]]


def sample_set(pairs):
    """Returns pairs of the sample corpus."""
    train, test = (list(islice(generate(1, name), count)) for name, count in (("train", pairs), ("test", TEST_PAIRS)))
    texts = [[(" ".join(one.source_tokens), " ".join(one.target_tokens)) for one in part] for part in (train, test)]
    return GoldSet("sample", texts[0], texts[1], [(frozenset(one.links), frozenset(one.links)) for one in test])


def read_set(prefix, source, target):
    """Returns the pairs of PREFIX.SOURCE, PREFIX.TARGET, PREFIX.gold, and those of the .gz files of `train`."""
    folder, name = Path(prefix).parent, Path(prefix).name
    train = ".".join([*name.split(".")[:-1], "train"])
    texts, known = (
        [list(read_lines(folder / f"{part}.{side}{ending}")) for side in (source, target)]
        for part, ending in ((name, ""), (train, ".gz"))
    )
    gold = [(links.sure, links.possible) for links in read_links(folder / f"{name}.gold").pairs]
    label = folder.name if train == "train" else f"{source}-{target}"
    return GoldSet(label, list(zip(*known, strict=True)), list(zip(*texts, strict=True)), gold)


def records(one, folder):
    """Yields the alignments of the pairs by an aligner that has learned from all texts."""
    texts, aligner = [folder / f"{one.name}.{side}" for side in ("source", "target")], folder / one.name
    for side, path in enumerate(texts):
        path.write_text("".join(f"{pair[side]}\n" for pair in (*one.train, *one.pairs)))
    nmtalign.link(*texts, aligner, tokenized=True)
    config = AlignConfig()
    return align(load_models([aligner], config), one.pairs, config)


def proportional(record, first, stop):
    """Returns the words at the same place of the sentence."""
    ratio = len(record.target) / len(record.source)
    start = min(round(first * ratio), len(record.target) - 1)
    return start, max(start + 1, round(stop * ratio))


def nearest(record, first, stop):
    """Returns the words from the first to the last with a link into the span, or the word linked nearest to it."""
    inside = [j for i, j in record.hard_links if first <= i < stop]
    if not inside:
        distances = [(max(first - i, i - stop + 1), j) for i, j in record.hard_links]
        inside = [min(distances, default=(0, 0))[1]]
    return min(inside), max(inside) + 1


def placed(record, first, stop):
    """Returns the words that nmtalign encloses."""
    return place([TagSpan(first, stop)], record.weights[:-1, :-1])[0]


METHODS = {"proportional": proportional, "nearest link": nearest, "nmtalign": placed}


def count(one, folder, repeats):
    """Returns the number of spans, and the number that each method places exactly."""
    counts, random = dict.fromkeys(("spans", *METHODS), 0), Random(1)
    for record, (sure, possible) in zip(records(one, folder), one.gold, strict=True):
        sizes = len(record.source), len(record.target)
        if any(link[side] >= sizes[side] for link in possible for side in (0, 1)):
            continue  # the gold text has other words
        for _ in range(repeats):
            length = random.randint(1, min(LONGEST_SPAN, sizes[0]))
            first = random.randint(0, sizes[0] - length)
            least, most = ({j for i, j in links if first <= i < first + length} for links in (sure, possible))
            if least and max(least) - min(least) < len(least):
                counts["spans"] += 1
                for name, method in METHODS.items():
                    found = set(range(*method(record, first, first + length)))
                    counts[name] += least <= found <= most
    return counts


def run(given):
    """Measures, prints a table, and returns the results."""
    machine = describe_machine()
    sets = [sample_set(given["pairs"]), *(read_set(*one) for one in given["gold"] or ())]
    table, found = Table(f"tags placed exactly; {in_words(machine)}", ["", "spans", *METHODS]), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = given["folder"] or Path(temporary)
        folder.mkdir(exist_ok=True)
        for one in sets:
            say(f"{one.name}: linking {len(one.train) + len(one.pairs):,} pairs")
            found[one.name] = counts = count(one, folder, given["spans"])
            shares = [f"{100 * counts[name] / max(counts['spans'], 1):.1f}%" for name in METHODS]
            table.rows.append([one.name, f"{counts['spans']:,}", *shares])
    show([table])
    return {"machine": machine, "sets": found}
