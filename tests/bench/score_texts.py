"""Texts to score that resemble translations by three systems: 1 to 80 words per sentence, with Zipf's frequencies.

The words are made of syllables, and frequent words are short. Punctuation, elisions, capitals and numbers are as
frequent as in French. A system repeats its reference, except for inserted, omitted, exchanged words and moved phrases.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NOISE = {
    "near": 0.1,
    "middle": 0.2,
    "far": 0.3,
}  # per system: the share of exchanged words; half as many are inserted or omitted
MOVED = 0.3  # the share of sentences in which two phrases are swapped
WORDS = 50_000
MEAN, LONGEST = 25, 80  # words per sentence
_FREQUENT = (
    "de la le et les des en un une à est que dans du qui pour au par sur a pas ce il plus son ne se avec on cette"
)
_ONSETS = "b c ch d f g j l m n p qu r s t v br cr dr fr gr pl pr st tr"
_VOWELS = "a e i o u é è ai an au en eu in on ou oi"
_ENDS = ["", "", "", "s", "r", "nt", "l", "t", "x"]
_FORMS = 5  # of a word: plain, with a comma, with an elision, with a capital, as a number
_SHARES = (0.86, 0.06, 0.04, 0.03, 0.01)

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class ScoredTexts:
    """Files with one sentence per line."""

    source: Path
    reference: Path
    systems: dict[str, Path]


def write_texts(folder: Path, sentences: int, seed: int = 0) -> ScoredTexts:
    """Writes source, reference and the systems of NOISE into the folder."""
    generator = np.random.default_rng(seed)
    forms = _forms(generator)
    lengths = np.clip(generator.gamma(2.2, MEAN / 2.2, sentences), 1, LONGEST).astype(np.int64)
    reference = np.split(_words(generator, int(lengths.sum())), np.cumsum(lengths)[:-1])
    source = np.clip(lengths + generator.normal(0, 2, sentences).astype(np.int64), 1, LONGEST)
    texts = {
        "source": np.split(_words(generator, int(source.sum())), np.cumsum(source)[:-1]),
        "reference": reference,
        **{name: _translated(generator, reference, lengths, noise) for name, noise in NOISE.items()},
    }
    paths = {name: folder / f"{name}.txt" for name in texts}
    for name, lines in texts.items():
        text = "".join(_line(forms, line) for line in lines)
        paths[name].write_text(text, encoding="utf-8", newline="\n")
    return ScoredTexts(paths["source"], paths["reference"], {name: paths[name] for name in NOISE})


def _forms(generator: np.random.Generator) -> list[str]:
    """Returns the words as they are written, each in all its forms."""
    words = _FREQUENT.split()
    onsets, vowels = _ONSETS.split(), _VOWELS.split()
    seen = set(words)
    for syllables in itertools.chain(itertools.repeat(1, 200), itertools.repeat(2, 8000), itertools.repeat(3)):
        if len(words) == WORDS:
            break
        parts = [_pick(generator, onsets) + _pick(generator, vowels) for _ in range(syllables)]
        word = "".join(parts) + _pick(generator, _ENDS)
        if word not in seen:
            seen.add(word)
            words.append(word)
    return [
        form
        for number, word in enumerate(words)
        for form in (word, f"{word},", f"l'{word}", word.capitalize(), str(number % 2100))
    ]


def _pick(generator: np.random.Generator, parts: list[str]) -> str:
    return parts[int(generator.random() * len(parts))]


def _words(generator: np.random.Generator, count: int) -> Ids:
    """Draws a number of word forms by Zipf's law."""
    shares = 1 / np.arange(1, WORDS + 1)
    words = np.searchsorted(np.cumsum(shares / shares.sum()), generator.random(count)).clip(max=WORDS - 1)
    return words * _FORMS + generator.choice(_FORMS, count, p=_SHARES)


def _translated(generator: np.random.Generator, reference: list[Ids], lengths: Ids, noise: float) -> list[Ids]:
    words = np.concatenate(reference)
    exchanged = generator.random(len(words)) < noise
    words[exchanged] = _words(generator, int(exchanged.sum()))
    times = generator.choice(3, len(words), p=(noise / 4, 1 - noise / 2, noise / 4))
    first = np.cumsum(np.concatenate([[0], lengths[:-1]]))
    times[first] = np.maximum(times[first], 1)  # every line keeps at least one word
    come = np.concatenate([[False], np.diff(np.repeat(np.arange(len(words)), times)) == 0])
    words = np.repeat(words, times)
    words[come] = _words(generator, int(come.sum()))
    lines = np.split(words, np.cumsum(np.add.reduceat(times, first))[:-1])
    for number in np.flatnonzero((generator.random(len(lines)) < MOVED) & (lengths > 8)).tolist():
        line = lines[number]
        start, middle, end = np.sort(generator.integers(0, len(line) + 1, 3))
        lines[number] = np.concatenate([line[:start], line[middle:end], line[start:middle], line[end:]])
    return lines


def _line(forms: list[str], words: Ids) -> str:
    text = " ".join([forms[word] for word in words.tolist()]).rstrip(",")
    return f"{text[:1].upper()}{text[1:]}.\n"
