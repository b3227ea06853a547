"""Which sentences a model reorders most, by its own links."""

from collections.abc import Collection, Iterable, Sequence

from nmtalign.alignment.links import AlignmentRecord, Link

_SURE = 0.5  # weight of a look that counts: of spread ones the largest says little of an order
_FEWEST, _LONGEST = 6, 30  # words of either side that make an order; words that a picture has room for


def reordering(links: Collection[Link]) -> float:
    """The share of pairs of links that cross: (1 - Kendall's tau) / 2, 0 in order and 1 from back to front.

    Pairs with a word in common are left out; 0 where no pair is left.
    """
    ordered = sorted(links)
    crossing = counted = 0
    for number, (source, target) in enumerate(ordered):
        for other_source, other_target in ordered[number + 1 :]:
            if other_source != source and other_target != target:
                counted += 1
                crossing += other_target < target
    return crossing / counted if counted else 0.0


def most_reordered(records: Iterable[AlignmentRecord], most: int) -> list[AlignmentRecord]:
    """The records with the most reordering first, of those that have links enough and words few enough to be drawn.

    A sentence that was drawn already in the same words is not taken again.
    """
    ranked: list[tuple[float, int, AlignmentRecord]] = []
    for record in records:
        links = sure_links(record)
        fewest = min(len({link[side] for link in links}) for side in (0, 1))
        if fewest >= _FEWEST and max(len(record.source), len(record.target)) <= _LONGEST:
            ranked.append((-reordering(links), record.sentence_id, record))
    ranked.sort(key=lambda one: one[:2])
    chosen: dict[tuple[Sequence[str], Sequence[str]], AlignmentRecord] = {}
    for _, _, record in ranked:
        if len(chosen) < most:
            chosen.setdefault((record.source, record.target), record)
    return list(chosen.values())


def sure_links(record: AlignmentRecord) -> list[Link]:
    """The links of at least half of a word's weight."""
    return record.links("threshold", _SURE)
