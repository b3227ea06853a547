"""Parallel text of the sample's grammar, and systems that spoil its references more or less."""

import itertools
import random
from types import SimpleNamespace

import pytest

from nmtalign.sample.grammar import generate


def spoiled(lines, seed, rate):
    """The lines with words replaced, left out or exchanged, the more of them the higher the rate."""
    rng = random.Random(seed)
    known = [word for line in lines for word in line.split()]
    return [_spoil(line.split(), known, rng, rate) for line in lines]


def _spoil(words, known, rng, rate):
    kept = [rng.choice(known) if rng.random() < rate else word for word in words if rng.random() > rate / 2]
    if len(kept) > 3 and rng.random() < rate:
        kept[1:3] = kept[2:0:-1]
    return " ".join(kept)


@pytest.fixture(scope="session")
def texts():
    """A source of 200 sentences, three references and three systems, of which the last one is the best."""
    pairs = list(itertools.islice(generate(7, "test"), 200))
    target = [pair.target for pair in pairs]
    references = [target, spoiled(target, 9, 0.1), spoiled(target, 10, 0.1)]
    systems = [spoiled(target, seed, rate) for seed, rate in ((1, 0.3), (2, 0.31), (3, 0.2))]
    return SimpleNamespace(source=[pair.source for pair in pairs], references=references, systems=systems)
